//! Predicates, which the owner changes. Every caller reads those that somebody created, and of those that came with a graph the ones of
//! facts that it may read.
use super::documents::{id_cursor, page_by_id};
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    graph::{named::shown, terms},
    registry::Handle,
    service::Service,
    store::{
        self,
        away::sql_state,
        extraction,
        predicates::{self, DEFAULT_NAMESPACE, PredicateRow},
        scope::Readable,
    },
};
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{NewPredicate, PredicatePage, PredicateResponse, opposed},
};
use svc_ids::PredicateId;

fn no_predicate(id: i64) -> Failure {
    Failure::new(Code::NotFound, format!("there is no predicate {id}"))
}

impl Service {
    fn predicate(&self, row: PredicateRow) -> PredicateResponse {
        shown(&self.settings.rdf_base, row)
    }
}

/// The predicate that the caller may read.
async fn read(conn: &mut PgConnection, caller: &Caller, id: PredicateId) -> Result<PredicateRow, Failure> {
    predicates::read(conn, &caller.readable(), id).await.or_fail()?.ok_or_else(|| no_predicate(id.0))
}

/// Whether it is said of a predicate what its facts must be like, or what follows from them.
fn says_something(new: &NewPredicate) -> bool {
    let flags = [
        new.functional,
        new.inverse_functional,
        new.symmetric,
        new.asymmetric,
        new.transitive,
        new.irreflexive,
        new.inverse_of.is_some(),
    ];
    flags.contains(&true) || !new.sub_property_of.is_empty() || !new.disjoint_with.is_empty()
}

/// Refuses what is no IRI, and one that the service derives itself, for this predicate or for something else.
fn check_iri(base: &str, iri: Option<&str>) -> Result<(), Failure> {
    let Some(iri) = iri else { return Ok(()) };
    terms::check_iri("iri", iri)?;
    match iri.get(..base.len()).is_some_and(|start| start.eq_ignore_ascii_case(base)) {
        true => Err(Failure::field("iri", format!("begins with {base}, under which the service derives IRIs itself"))
            .with("remedy", "leave it out, or choose one outside SVC_RDF_BASE")),
        false => Ok(()),
    }
}

/// Refuses what would reach into facts of others: an IRI means the same in all graphs, and the namespace of extraction belongs to texts.
fn check_principals(new: &NewPredicate) -> Result<(), Failure> {
    let remedy =
        "leave it out; POST /rdf/turtle brings predicates with their IRIs, and POST /ontologies says what they are";
    if new.iri.is_some() {
        let detail = "the owner alone gives a predicate an IRI, since graphs of others may have that";
        return Err(Failure::new(Code::Forbidden, detail).with("remedy", remedy));
    }
    if new.namespace.as_deref() == Some(extraction::NAMESPACE) {
        let detail = format!(
            "the owner alone creates predicates of the namespace {}, since those of texts are there",
            extraction::NAMESPACE
        );
        return Err(Failure::new(Code::Forbidden, detail).with("remedy", "choose another namespace"));
    }
    Ok(())
}

/// Refuses other predicates that do not exist.
async fn others(conn: &mut PgConnection, caller: &Caller, named: &[(&str, &[i64])]) -> Result<(), Failure> {
    let ids: Vec<i64> = named.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let known = predicates::existing(conn, &caller.readable(), &ids).await.or_fail()?;
    for (field, ids) in named {
        if let Some(missing) = ids.iter().find(|id| !known.contains(&PredicateId(**id))) {
            return Err(Failure::field(field, format!("there is no predicate {missing}")));
        }
    }
    Ok(())
}

async fn taken(conn: &mut PgConnection, namespace: &str, name: &str, iri: Option<&str>) -> Result<Failure, Failure> {
    let id = predicates::taken(conn, namespace, name, iri).await.or_fail()?;
    let failure = Failure::new(
        Code::Conflict,
        format!("there is a predicate `{namespace}:{name}` already, or one with this IRI"),
    );
    Ok(failure.with("predicate_id", id.map(|id| id.0)).with("remedy", "use that one, or choose another name and IRI"))
}

impl Handle<ops::create_predicate> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_predicate>) -> Result<PredicateResponse, Failure> {
        let new = call.body.0;
        check_iri(&self.settings.rdf_base, new.iri.as_deref())?;
        if says_something(&new) && caller.principal().is_some() {
            return Err(Failure::new(
                Code::Forbidden,
                "the owner alone says what holds of a predicate, since it holds for the facts of all",
            )
            .with("remedy", "send only a name, a label and a description, or load an ontology of your own"));
        }
        if caller.principal().is_some() {
            check_principals(&new)?;
        }
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let inverse: Vec<i64> = new.inverse_of.into_iter().collect();
        let named = [
            ("inverse_of", inverse.as_slice()),
            ("sub_property_of", &new.sub_property_of),
            ("disjoint_with", &new.disjoint_with),
        ];
        others(&mut tx, caller, &named).await?;
        let Some(id) = predicates::insert(&mut tx, &new, caller.principal_id()).await.or_fail()? else {
            let namespace = new.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
            return Err(taken(&mut tx, namespace, &new.name, new.iri.as_deref()).await?);
        };
        let made = read(&mut tx, caller, id).await?;
        tx.commit().await.or_fail()?;
        Ok(self.predicate(made))
    }
}

impl Handle<ops::list_predicates> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_predicates>) -> Result<PredicatePage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let scope = if call.query.open { Readable::under(&[]) } else { caller.readable() };
        let rows = predicates::page(&mut conn, &scope, &call.query, PredicateId(after), limit + 1).await.or_fail()?;
        let rows = rows.into_iter().map(|row| self.predicate(row)).collect();
        let (predicates, next_cursor) = page_by_id(rows, limit, |predicate: &PredicateResponse| predicate.id);
        Ok(PredicatePage { predicates, next_cursor })
    }
}

impl Handle<ops::read_predicate> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_predicate>) -> Result<PredicateResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        Ok(self.predicate(read(&mut conn, caller, PredicateId(call.path.id)).await?))
    }
}

impl Handle<ops::update_predicate> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::update_predicate>) -> Result<PredicateResponse, Failure> {
        let (id, change) = (PredicateId(call.path.id), call.body.0);
        check_iri(&self.settings.rdf_base, change.iri.as_ref().and_then(|iri| iri.as_deref()))?;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let inverse: Vec<i64> = change.inverse_of.flatten().into_iter().collect();
        let named = [
            ("inverse_of", inverse.as_slice()),
            ("sub_property_of", change.sub_property_of.as_deref().unwrap_or_default()),
            ("disjoint_with", change.disjoint_with.as_deref().unwrap_or_default()),
        ];
        others(&mut tx, caller, &named).await?;
        match predicates::update(&mut tx, id, &change).await {
            Err(error) if sql_state(&error) == "23505" => {
                drop(tx);
                let mut conn = self.pool.acquire().await.or_fail()?;
                let before = read(&mut conn, caller, id).await?;
                let namespace = change.namespace.as_deref().unwrap_or(&before.namespace);
                let name = change.name.as_deref().unwrap_or(&before.name);
                let iri = change.iri.as_ref().and_then(|iri| iri.as_deref());
                return Err(taken(&mut conn, namespace, name, iri).await?);
            }
            Err(error) => return Err(error.into_failure()),
            Ok(true) => {}
            Ok(false) => return Err(no_predicate(id.0)),
        }
        let row = read(&mut tx, caller, id).await?;
        // What ontologies say is not this call's fault, so only a call that says one of the two is held against both.
        if [change.symmetric, change.asymmetric].contains(&Some(true)) {
            opposed(row.is_symmetric, row.is_asymmetric)?;
        }
        tx.commit().await.or_fail()?;
        Ok(self.predicate(row))
    }
}

impl Handle<ops::delete_predicate> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::delete_predicate>) -> Result<(), Failure> {
        let id = PredicateId(call.path.id);
        let used = || {
            Failure::new(Code::Conflict, format!("predicate {id} has facts, and what was believed is kept"))
                .with("remedy", "rename it, or say in its description that it is no longer used")
        };
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if predicates::is_used(&mut tx, id).await.or_fail()? {
            return Err(used());
        }
        let gone = predicates::delete(&mut tx, id).await.map_err(|error| match sql_state(&error).as_ref() {
            // A fact was asserted meanwhile.
            "23503" => used(),
            _ => error.into_failure(),
        })?;
        tx.commit().await.or_fail()?;
        if gone { Ok(()) } else { Err(no_predicate(id.0)) }
    }
}
