//! What is around a document.
use super::{super::lists::must_exist, moment};
use crate::{
    access::Caller,
    error::OrFail,
    graph::{named, paths::Merged},
    registry::Handle,
    service::Service,
    store::{
        self,
        graph::names,
        triples::paths::{Along, edges, steps},
    },
};
use std::collections::{BTreeSet, HashMap};
use svc_client::{
    Call, Failure, ops,
    wire::{Direction, GraphDocument, Neighbor, NeighborFact, NeighborResponse},
};
use svc_ids::{DocumentId, TripleId};

/// The most facts that an answer shows.
const FACTS: usize = 10_000;
/// The most predicates that are named.
const PREDICATES: usize = 100;
/// The most facts that one step is read with.
const EDGES: usize = 100_000;

/// The predicates that are named with commas between them.
fn named_in(text: &str) -> Result<Vec<&str>, Failure> {
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    match (1..=PREDICATES).contains(&names.len()) {
        true => Ok(names),
        false => {
            Err(Failure::field("predicates", format!("takes 1 to {PREDICATES} predicates with commas between them")))
        }
    }
}

impl Handle<ops::find_neighbors> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::find_neighbors>) -> Result<NeighborResponse, Failure> {
        let query = call.query;
        let (centre, scope) = (DocumentId(query.document_id), caller.readable());
        let asked = query.predicates.as_deref().map(named_in).transpose()?;
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        must_exist(&mut tx, caller, centre).await?;
        let predicates = match &asked {
            None => None,
            Some(asked) => {
                let found = named::resolve(&mut tx, &scope, &self.settings.rdf_base, asked).await?;
                let id = |name: &&str| found.get(name).copied().ok_or_else(|| named::no_predicate("predicates", name));
                Some(asked.iter().map(id).collect::<Result<Vec<_>, _>>()?)
            }
        };
        let moment = moment(&mut tx, query.valid_at, query.known_at, query.asserted_only).await?;
        let along = Along {
            direction: query.direction.unwrap_or(Direction::Any),
            predicates,
            valid_at: moment.valid_at,
            known_at: moment.known_at,
            asserted_only: moment.asserted_only,
        };
        let limit = query.limit.unwrap_or(100) as usize;
        let mut merged = Merged::begin(&mut tx, caller, &along, &[centre]).await?;
        let centre = merged.sets.canonical(centre);
        let mut distances: HashMap<DocumentId, u32> = HashMap::from([(centre, 0)]);
        let (mut facts, mut truncated) = (BTreeSet::new(), false);
        let mut frontier = vec![centre];
        for distance in 1..=query.depth.unwrap_or(1) {
            if frontier.is_empty() || truncated {
                break;
            }
            let all = merged.members(&frontier);
            let found = edges(&mut tx, &scope, &all, &along, false, EDGES as i64 + 1).await.or_fail()?;
            truncated |= found.len() > EDGES;
            let Some(mut found) = merged.unite(&mut tx, caller, &along, found).await? else {
                truncated = true;
                break;
            };
            // The facts that were recorded first come first, whatever the order in which they are read.
            found.sort_unstable_by_key(|edge| (edge.id, edge.to));
            frontier.clear();
            for edge in found {
                let is_known = distances.contains_key(&edge.to);
                if !is_known && distances.len() >= limit || facts.len() >= FACTS {
                    truncated = true;
                    continue;
                }
                facts.insert(edge.id);
                if !is_known {
                    distances.insert(edge.to, distance);
                    frontier.push(edge.to);
                }
            }
        }
        let ids: Vec<i64> = distances.keys().map(|id| id.0).collect();
        let documents = names(&mut tx, &scope, &ids).await.or_fail()?;
        let mut documents: Vec<Neighbor> = documents
            .into_iter()
            .map(|row| {
                let distance = distances.get(&DocumentId(row.id)).copied().unwrap_or_default();
                let document = GraphDocument { document_id: row.id, title: row.title, usetype: row.usetype };
                Neighbor { document, distance }
            })
            .collect();
        documents.sort_unstable_by_key(|near| (near.distance, near.document.document_id));
        let facts: Vec<TripleId> = facts.into_iter().collect();
        let sets = merged.sets;
        let facts = steps(&mut tx, &facts).await.or_fail()?.into_iter().map(|step| NeighborFact {
            triple_id: step.id.0,
            subject_id: sets.canonical(step.subject_id).0,
            stated_subject_id: sets.stated(step.subject_id),
            predicate: step.predicate(),
            object_id: sets.canonical(step.object_id).0,
            stated_object_id: sets.stated(step.object_id),
        });
        let mut facts: Vec<NeighborFact> = facts.collect();
        facts.sort_unstable_by_key(|fact| fact.triple_id);
        Ok(NeighborResponse { documents, facts, truncated, valid_at: moment.valid_at, known_at: moment.known_at })
    }
}
