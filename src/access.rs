//! Who calls, and what they may read.
use crate::store::{
    documents,
    scope::{Readable, Writable},
};
use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use subtle::ConstantTimeEq;
use svc_client::{Access, Code, Failure};
use svc_ids::DocumentId;

/// The maker of a call.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Has the owner token, which passes every access check.
    Owner,
    /// Holds a token of its own, and reaches what it was granted.
    Principal {
        /// The guards of what it may read.
        read: Vec<i64>,
        /// The guards of what it may change.
        write: Vec<i64>,
    },
    /// Has the runner key, or calls something public; reads no document.
    Nobody,
}

impl Caller {
    /// The caller that holds a principal's token, by the guards under its grants and whether it may write there.
    pub fn principal(guards: &[(i64, bool)]) -> Caller {
        Caller::Principal {
            read: guards.iter().map(|(guard, _)| *guard).collect(),
            write: guards.iter().filter(|(_, can_write)| *can_write).map(|(guard, _)| *guard).collect(),
        }
    }

    /// What this caller may read.
    pub fn readable(&self) -> Readable {
        match self {
            Caller::Owner => Readable::everything(),
            Caller::Principal { read, .. } => Readable::under(read),
            Caller::Nobody => Readable::default(),
        }
    }

    /// What this caller may change.
    pub fn writable(&self) -> Writable {
        match self {
            Caller::Owner => Writable::everything(),
            Caller::Principal { write, .. } => Writable::under(write),
            Caller::Nobody => Writable::default(),
        }
    }

    /// 403 if an operation of this access is the owner's alone, and the caller is a principal.
    pub fn admit(&self, access: Access) -> Result<(), Failure> {
        match (self, access) {
            (Caller::Principal { .. }, Access::Owner) => {
                Err(Failure::new(Code::Forbidden, "this operation is the owner's: call it with the owner's token"))
            }
            _ => Ok(()),
        }
    }

    /// 403 if this caller may not put anything at the top of the tree, which is the owner's.
    pub fn may_write_at_the_top(&self) -> Result<(), Failure> {
        if self.writable().is_everything() {
            return Ok(());
        }
        Err(Failure::new(Code::Forbidden, "only the owner puts documents at the top of the tree")
            .with("remedy", "name a parent_id that you may write under"))
    }

    /// Why this caller may not change a document: 404 if it may not even read it, else 403.
    pub async fn refusal(&self, conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Failure> {
        Ok(match documents::is_readable(conn, &self.readable(), id).await? {
            true => Failure::new(Code::Forbidden, format!("you may read document {id}, and not change it"))
                .with("document_id", id.0)
                .with("remedy", "ask the owner for a grant that may write"),
            false => Failure::no_document(id.0),
        })
    }

    /// Refuses, as [`Caller::refusal`] says, a caller that may not change the document.
    pub async fn writes(&self, conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Result<(), Failure>> {
        Ok(match documents::is_writable(conn, &self.writable(), id).await? {
            true => Ok(()),
            false => Err(self.refusal(conn, id).await?),
        })
    }
}

/// The secrets that open the service, as digests. Comparing digests takes the same time whatever is sent.
pub struct Keys {
    owner: [u8; 32],
    runner: Option<[u8; 32]>,
    metrics_are_public: bool,
}

impl Keys {
    /// Makes the keys. `runner` is `None` if SVC_RUNNER_KEY is not set, and then nobody may call the runner.
    pub fn new(owner: &str, runner: Option<&str>, metrics_are_public: bool) -> Keys {
        Keys { owner: digest(owner), runner: runner.map(digest), metrics_are_public }
    }

    /// Finds out who calls; 401 if the operation demands more than the call shows.
    pub fn authenticate(&self, access: Access, headers: &HeaderMap) -> Result<Caller, Failure> {
        let bearer = || {
            let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| digest(token.trim()))
        };
        let holds = |key: &[u8; 32]| bearer().is_some_and(|shown| bool::from(shown.ct_eq(key)));
        match access {
            // A public operation may tell the owner more.
            Access::Public if holds(&self.owner) => Ok(Caller::Owner),
            Access::Public => Ok(Caller::Nobody),
            Access::Metrics if self.metrics_are_public => Ok(Caller::Nobody),
            Access::Read | Access::Write | Access::Owner | Access::Metrics if holds(&self.owner) => Ok(Caller::Owner),
            Access::RunnerKey => match &self.runner {
                None => Err(Failure::new(Code::NotConfigured, "this service is not a runner, because it has no key")
                    .with("setting", "SVC_RUNNER_KEY")),
                Some(key) if holds(key) => Ok(Caller::Nobody),
                Some(_) => Err(Failure::new(
                    Code::Unauthenticated,
                    "send `Authorization: Bearer <key>` with the SVC_RUNNER_KEY of this service",
                )),
            },
            _ => Err(Failure::new(Code::Unauthenticated, "send `Authorization: Bearer <token>` with a valid token")),
        }
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().expect("a header value"))])
    }

    #[test]
    fn only_the_right_secret_opens_and_each_only_its_own_door() {
        let keys = Keys::new("owner", Some("runner"), false);
        let opens = |access, value: &str| keys.authenticate(access, &headers(value)).is_ok();
        assert!(
            opens(Access::Read, "Bearer owner")
                && opens(Access::Read, "bearer  owner")
                && opens(Access::Metrics, "Bearer owner")
        );
        assert!(opens(Access::RunnerKey, "Bearer runner") && opens(Access::Public, "nonsense"));
        for wrong in ["Bearer", "Bearer ", "Bearer owner2", "Bearer runner", "Basic owner", "owner", ""] {
            assert!(!opens(Access::Read, wrong), "{wrong:?} opened");
        }
        assert!(!opens(Access::RunnerKey, "Bearer owner") && !opens(Access::Metrics, "Bearer runner"));
        assert!(keys.authenticate(Access::Read, &HeaderMap::new()).is_err());
        let closed = Keys::new("owner", None, true);
        for value in ["Bearer ", "Bearer owner", ""] {
            let refused = closed.authenticate(Access::RunnerKey, &headers(value)).expect_err("closed");
            assert_eq!((refused.code, &refused.members["setting"]), (Code::NotConfigured, &"SVC_RUNNER_KEY".into()));
        }
        assert!(closed.authenticate(Access::Metrics, &HeaderMap::new()).is_ok());
    }
}
