//! Who calls, and what they may read and change.
mod keys;

use crate::store::{
    self,
    audit::{Actor, Entry},
    documents,
    places::{self, Place},
    scope::{Readable, Writable},
};
pub use keys::{Keys, NewSecret};
use sqlx::PgConnection;
use std::collections::BTreeSet;
use svc_client::{
    Access, Code, Failure,
    wire::{Attempt, AuditAct, ErrorType, GrantRight},
};
use svc_ids::{ApiTokenId, DocumentId, PrincipalId};

/// The most grants to write with which a principal gets another document of its own. Each request of a principal looks up all of its grants, and each
/// statement that heeds them carries them.
const MOST_OWN: u32 = 10_000;

/// The maker of a call.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Has the owner token, which passes every access check.
    Owner,
    /// Holds a token of its own, and reaches what it was granted.
    Principal(Principal),
    /// Has the runner key, or calls something public; reads no document.
    Nobody,
}

/// A caller with a token of its own, and what it reached when the request came.
#[derive(Clone, Debug)]
pub struct Principal {
    pub id: PrincipalId,
    pub name: String,
    /// The token that it showed; `None` if the message broker answers for it.
    pub token_id: Option<ApiTokenId>,
    /// The guards of what it may read, besides what is open to all.
    read: Vec<DocumentId>,
    /// The guards of what it may change.
    write: Vec<DocumentId>,
}

impl Caller {
    /// The principal that calls; `None` for the owner, who has no row.
    pub fn principal(&self) -> Option<&Principal> {
        match self {
            Caller::Principal(principal) => Some(principal),
            Caller::Owner | Caller::Nobody => None,
        }
    }

    /// Whether another caller is the same, with the same rights.
    pub fn is_as(&self, other: &Caller) -> bool {
        let of = |guards: &[DocumentId]| guards.iter().copied().collect::<BTreeSet<_>>();
        match (self, other) {
            (Caller::Principal(one), Caller::Principal(two)) => {
                one.id == two.id && of(&one.read) == of(&two.read) && of(&one.write) == of(&two.write)
            }
            (Caller::Owner, Caller::Owner) | (Caller::Nobody, Caller::Nobody) => true,
            _ => false,
        }
    }

    /// The id of the principal that calls; `None` for the owner.
    pub fn principal_id(&self) -> Option<PrincipalId> {
        self.principal().map(|principal| principal.id)
    }

    /// Records what this caller does, in the transaction that carries it out.
    pub async fn record(&self, conn: &mut PgConnection, entry: Entry<'_>) -> sqlx::Result<()> {
        store::audit::record(conn, self.actor(), entry).await
    }

    /// Records which of these nodes are no access roots any more, and with `and_under` the same of every root under them; call it
    /// before they go.
    pub async fn record_unprotected(
        &self,
        conn: &mut PgConnection,
        ids: &[DocumentId],
        and_under: bool,
    ) -> sqlx::Result<()> {
        store::audit::record_unprotected(conn, self.actor(), ids, and_under).await
    }

    fn actor(&self) -> Actor<'_> {
        // `Nobody` never reaches this code, so a caller that is not a principal is the owner.
        match self.principal() {
            Some(Principal { id, name, .. }) => Actor::Principal { id: *id, name },
            None => Actor::Owner,
        }
    }

    /// Makes a node that this transaction created an access root, which this caller may write. Returns the caller with
    /// that right, or refuses one that has very many such rights.
    pub async fn enclose(&self, conn: &mut PgConnection, place: &Place) -> sqlx::Result<Result<Caller, Failure>> {
        store::access::protect_new(conn, place).await?;
        self.own(conn, place.id()).await
    }

    /// Does the same to a document that this transaction moved to the top. One that is an access root already stays as it is, and a principal that
    /// could write it by a grant on what was above it still may.
    pub async fn enclose_moved(&self, conn: &mut PgConnection, place: &Place) -> sqlx::Result<Result<Caller, Failure>> {
        let id = place.id();
        if store::access::protect_held(conn, id).await? {
            return self.own(conn, id).await;
        }
        match self.principal_id() {
            Some(principal) if !store::access::is_writer(conn, principal, id).await? => {
                self.grant_write(conn, id).await
            }
            _ => Ok(Ok(self.clone())),
        }
    }

    /// Grants this caller a document that was made an access root for it.
    async fn own(&self, conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Result<Caller, Failure>> {
        self.record(conn, Entry::new(AuditAct::DocumentProtect).document(id)).await?;
        self.grant_write(conn, id).await
    }

    /// Grants this caller to write an access root, and returns it with that right; the owner needs no grant.
    async fn grant_write(&self, conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Result<Caller, Failure>> {
        let Caller::Principal(principal) = self else { return Ok(Ok(self.clone())) };
        // What it may write are its grants and the roots under them, so that mostly nobody has to count the grants.
        if principal.write.len() >= MOST_OWN as usize
            && store::access::has_write_grants(conn, principal.id, MOST_OWN).await?
        {
            return Ok(Err(too_many_own()));
        }
        // If the principal was deleted meanwhile, the node is the owner's alone.
        if store::access::grant(conn, principal.id, id, GrantRight::Write).await?.is_some() {
            let entry = Entry::new(AuditAct::GrantPut).principal(principal.id, &principal.name).document(id);
            self.record(conn, entry.with("right", GrantRight::Write.as_str())).await?;
        }
        let mut principal = principal.clone();
        principal.read.push(id);
        principal.write.push(id);
        Ok(Ok(Caller::Principal(principal)))
    }

    /// What this caller is told of attempts: names of machines, and errors between them, are for the owner alone.
    pub fn told(&self, attempts: Vec<Attempt>) -> Vec<Attempt> {
        let told = |attempt: Attempt| match self {
            Caller::Owner => attempt,
            Caller::Principal(_) | Caller::Nobody => Attempt {
                worker: None,
                message: attempt.message.filter(|_| attempt.error_type != Some(ErrorType::Retryable)),
                ..attempt
            },
        };
        attempts.into_iter().map(told).collect()
    }

    /// A failure as this caller is told of it.
    pub fn told_failure(&self, mut failure: Failure) -> Failure {
        if !matches!(self, Caller::Owner) {
            failure.members.remove("worker");
        }
        failure
    }

    /// What this caller may read.
    pub fn readable(&self) -> Readable {
        match self {
            Caller::Owner => Readable::everything(),
            Caller::Principal(principal) => Readable::under(&principal.read),
            Caller::Nobody => Readable::default(),
        }
    }

    /// What this caller may change.
    pub fn writable(&self) -> Writable {
        match self {
            Caller::Owner => Writable::everything(),
            Caller::Principal(principal) => Writable::under(&principal.write),
            Caller::Nobody => Writable::default(),
        }
    }

    /// 403 if an operation of this access is the owner's alone, and the caller is a principal.
    pub fn admit(&self, access: Access) -> Result<(), Failure> {
        match (self, access) {
            (Caller::Principal(_), Access::Owner) => {
                Err(Failure::new(Code::Forbidden, "this operation is the owner's alone")
                    .with("remedy", "call it with the owner's token"))
            }
            _ => Ok(()),
        }
    }

    /// Why this caller may not change a document: 404 if it may not even read it, else 403.
    pub async fn refusal(&self, conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Failure> {
        Ok(match documents::is_readable(conn, &self.readable(), id).await? {
            true => Failure::new(Code::Forbidden, format!("you may read document {id}, but not change it"))
                .with("document_id", id.0)
                .with("remedy", "ask the owner for a grant that may write"),
            false => Failure::no_document(id.0),
        })
    }

    /// Refuses a caller that may not change what a document is directly under: others read the document there, and it would be gone for them.
    pub async fn takes(&self, conn: &mut PgConnection, place: &Place) -> sqlx::Result<Result<(), Failure>> {
        let Some(&above) = place.path().last() else { return Ok(Ok(())) };
        Ok(match places::find(conn, &self.writable(), DocumentId(above)).await? {
            Some(_) => Ok(()),
            None => {
                let detail = format!("you may change document {}, but not what it is under", place.id());
                let failure = Failure::new(Code::Forbidden, detail).with("document_id", place.id().0);
                Err(failure.with("remedy", "ask the owner to move it, or for a grant that may write there"))
            }
        })
    }

    /// The place of a document that this caller may change; otherwise it is refused, as [`Caller::refusal`] says.
    pub async fn writes(&self, conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Result<Place, Failure>> {
        Ok(match places::find(conn, &self.writable(), id).await? {
            Some(place) => Ok(place),
            None => Err(self.refusal(conn, id).await?),
        })
    }
}

/// 422 for a document that would become another one of its caller's own.
fn too_many_own() -> Failure {
    let detail = format!("you have {MOST_OWN} grants to write, the most with which a document becomes your own");
    Failure::field("parent_id", detail).with(
        "remedy",
        "put it under a document that you may write, by `parent_id` and without `private`: it is as closed as that, and takes no grant; or have the owner do it",
    )
}
