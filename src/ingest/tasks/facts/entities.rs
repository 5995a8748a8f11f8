//! The documents that stand for the things a text names: those that are there, or new ones under the document `Entities` of the text's zone.
use super::answer::Mention;
use crate::{
    embedding::Model,
    graph::resolve,
    ingest::{
        queueing::embed_together,
        tasks::{OrTaskFailure, windows},
    },
    rdf::names,
    store::{
        self, batch, entities, ingest_nodes::Frontier, nodes::TextRow, places::Place, reservations::EditError,
        scope::Writable, word::Word,
    },
    usetype::Usetype,
};
use pgvector::HalfVector;
use serde_json::json;
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use svc_actors::{TaskFailure, WriteMode};
use svc_client::wire::{EventKind, MergeMethod, ResolveNames, Settled};
use svc_ids::DocumentId;

/// What a text calls a thing, and of which type: its key and that of its type.
pub type Name = (String, String);

/// The things that a text names.
pub struct Things {
    /// In the order of the text, with the name as it stands there.
    names: Vec<(Name, String)>,
    /// The vectors of the names, by their model, where names of the same meaning count.
    vectors: Option<(Model, HashMap<Name, HalfVector>)>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
enum Planned {
    Known(DocumentId),
    New { merge: Option<Merge> },
}

/// A new entity that is taken for another one.
#[derive(Clone, Debug)]
struct Merge {
    with: Name,
    /// The other one, if it was there before this text.
    id: Option<DocumentId>,
    method: MergeMethod,
    score: Option<f64>,
}

/// What the names of a text stand for, before anything is made.
pub struct Plan(Vec<Planned>);

/// The documents that stand for the names, and what is to be merged.
pub struct Made {
    pub documents: HashMap<Name, DocumentId>,
    pub created: Vec<DocumentId>,
    pub merges: Vec<store::merges::NewMerge>,
}

impl Things {
    /// Takes in what facts name. A name without a type has the one that the text gives it elsewhere.
    pub fn of<'a>(mentions: impl Iterator<Item = &'a Mention>) -> Things {
        let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut names: Vec<(Name, String)> = Vec::new();
        let mentions: Vec<&Mention> = mentions.collect();
        for mention in &mentions {
            let known = types.entry(mention.key.clone()).or_default();
            if !mention.type_key.is_empty() {
                known.insert(mention.type_key.clone());
            }
        }
        let mut things = Things { names: Vec::new(), vectors: None };
        for mention in mentions {
            let name = named(&types, mention);
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, mention.name.clone()));
            }
        }
        things.names = names;
        things
    }

    /// The name of a mention among these.
    pub fn name(&self, mention: &Mention) -> Name {
        let exact = (mention.key.clone(), mention.type_key.clone());
        let mut same = self.names.iter().map(|(name, _)| name).filter(|name| name.0 == mention.key);
        same.clone().find(|name| **name == exact).or_else(|| same.next()).cloned().unwrap_or(exact)
    }

    /// Embeds the names.
    pub async fn embed(&mut self, model: Model) -> Result<(), TaskFailure> {
        let rows: Vec<TextRow> = self
            .names
            .iter()
            .enumerate()
            .map(|(at, (_, title))| TextRow {
                id: DocumentId(at as i64),
                title: title.clone(),
                content: String::new(),
                usetype: Usetype::Entity.as_str().to_owned(),
                settled: Word(Settled::InFlight),
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let embedded = windows::embed(&model, &rows).await?;
        let of = |id: DocumentId| self.names.get(usize::try_from(id.0).ok()?).map(|(name, _)| name.clone());
        let vectors = embedded.ids.iter().zip(embedded.vectors);
        self.vectors = Some((model, vectors.filter_map(|(id, vector)| Some((of(*id)?, vector.vector))).collect()));
        Ok(())
    }

    /// What the names stand for in a zone, which nobody else adds names to meanwhile.
    pub async fn plan(
        &self,
        conn: &mut PgConnection,
        zone: DocumentId,
        by: ResolveNames,
        least: f64,
    ) -> sqlx::Result<Plan> {
        if by == ResolveNames::Off {
            return Ok(Plan(vec![Planned::New { merge: None }; self.names.len()]));
        }
        let keys: Vec<&str> = self.names.iter().map(|(name, _)| name.0.as_str()).collect();
        let known = entities::named(conn, zone, &keys).await?;
        let mut plan: Vec<Planned> = Vec::with_capacity(self.names.len());
        for (name, _) in &self.names {
            let is = |entity: &&entities::NamedEntity| entity.name_key == name.0 && entity.type_key == name.1;
            let here = known.iter().filter(|entity| entity.zone == zone).find(is);
            if let Some(entity) = here.or_else(|| known.iter().find(is)) {
                plan.push(Planned::Known(entity.document_id));
                continue;
            }
            let same = known.iter().find(|entity| entity.zone == zone && entity.name_key == name.0);
            let merge = match same {
                Some(entity) => Some(Merge {
                    with: (entity.name_key.clone(), entity.type_key.clone()),
                    id: Some(entity.document_id),
                    method: MergeMethod::Exact,
                    score: None,
                }),
                None => match self.before(&plan, |other| other.0 == name.0) {
                    Some(other) => Some(Merge { with: other, id: None, method: MergeMethod::Exact, score: None }),
                    None => self.near(conn, zone, name, &plan, least).await?,
                },
            };
            plan.push(Planned::New { merge });
        }
        Ok(Plan(plan))
    }

    /// The first of the names that are to be made so far that fits.
    fn before(&self, plan: &[Planned], fits: impl Fn(&Name) -> bool) -> Option<Name> {
        let new = self.names.iter().zip(plan).filter(|(_, planned)| matches!(planned, Planned::New { .. }));
        new.map(|((name, _), _)| name).find(|name| fits(name)).cloned()
    }

    /// The entity with the name of the nearest meaning, if that is near enough and nothing else speaks against it.
    async fn near(
        &self,
        conn: &mut PgConnection,
        zone: DocumentId,
        name: &Name,
        plan: &[Planned],
        least: f64,
    ) -> sqlx::Result<Option<Merge>> {
        let Some((model, vectors)) = &self.vectors else { return Ok(None) };
        let Some(vector) = vectors.get(name) else { return Ok(None) };
        let may = |other: &Name| resolve::may_be_one((&name.0, &name.1), (&other.0, &other.1));
        let stored = entities::near(conn, zone, model.identity(), vector, least).await?;
        let stored = stored.into_iter().map(|(id, name_key, type_key, score)| (Some(id), (name_key, type_key), score));
        let new = self.names.iter().zip(plan).filter(|(_, planned)| matches!(planned, Planned::New { .. }));
        let new = new.filter_map(|((other, _), _)| Some((None, other.clone(), cosine(vector, vectors.get(other)?))));
        let found = stored.chain(new).filter(|(_, other, score)| *score >= least && may(other));
        let best = found.max_by(|(.., one), (.., other)| one.total_cmp(other));
        Ok(best.map(|(id, with, score)| Merge { with, id, method: MergeMethod::Similarity, score: Some(score) }))
    }

    /// Makes the entities that are missing.
    pub async fn make(
        &self,
        tools: &crate::ingest::Tools,
        conn: &mut PgConnection,
        zone: DocumentId,
        plan: &Plan,
        has_names: bool,
    ) -> Result<Made, TaskFailure> {
        let mut made = Made { documents: HashMap::new(), created: Vec::new(), merges: Vec::new() };
        let mut new: Vec<(&Name, &str, Option<&Merge>)> = Vec::new();
        for ((name, title), planned) in self.names.iter().zip(&plan.0) {
            match planned {
                Planned::Known(id) => {
                    made.documents.insert(name.clone(), *id);
                }
                Planned::New { merge } => new.push((name, title, merge.as_ref())),
            }
        }
        if new.is_empty() {
            return Ok(made);
        }
        let above = entities_of(tools, conn, zone).await?;
        let titles: Vec<(&str, &str)> = new.iter().map(|(name, title, _)| (*title, name.1.as_str())).collect();
        made.created = insert(tools, conn, Some(&above), &titles).await?;
        for ((name, ..), id) in new.iter().zip(&made.created) {
            made.documents.insert((*name).clone(), *id);
        }
        if has_names {
            let vector = |name: &Name| {
                let (model, vectors) = self.vectors.as_ref()?;
                Some((model.identity(), vectors.get(name)?))
            };
            let named: Vec<entities::NewName<'_>> = new
                .iter()
                .zip(&made.created)
                .map(|((name, ..), id)| entities::NewName {
                    document_id: *id,
                    name_key: &name.0,
                    type_key: &name.1,
                    vector: vector(name),
                })
                .collect();
            entities::name(conn, zone, &named).await.classified()?;
        }
        for ((name, _, merge), id) in new.iter().zip(&made.created) {
            let Some(Merge { with, id: kept, method, score }) = merge else { continue };
            let kept = kept.or_else(|| made.documents.get(with).copied());
            debug_assert!(kept.is_some(), "{name:?} is merged with what is made before it");
            if let Some(kept_id) = kept {
                let merge = store::merges::NewMerge { kept_id, merged_id: *id, method: *method, score: *score };
                made.merges.push(merge);
            }
        }
        Ok(made)
    }
}

impl Plan {
    /// The documents that stand for names and are there.
    pub fn known(&self, things: &Things) -> HashMap<Name, DocumentId> {
        let known = things.names.iter().zip(&self.0).filter_map(|((name, _), planned)| match planned {
            Planned::Known(id) => Some((name.clone(), *id)),
            Planned::New { .. } => None,
        });
        known.collect()
    }

    /// How many entities are to be made, and how many of these merged.
    pub fn counts(&self) -> (usize, usize) {
        let new = self.0.iter().filter(|planned| matches!(planned, Planned::New { .. }));
        let merged = self.0.iter().filter(|planned| matches!(planned, Planned::New { merge: Some(_) }));
        (new.count(), merged.count())
    }
}

/// The name of a mention, with the type that the text gives it elsewhere if it is the only one.
fn named(types: &BTreeMap<String, BTreeSet<String>>, mention: &Mention) -> Name {
    let known = types.get(&mention.key).filter(|known| known.len() == 1 && mention.type_key.is_empty());
    let type_key = known.and_then(|known| known.first()).unwrap_or(&mention.type_key);
    (mention.key.clone(), type_key.clone())
}

fn cosine(one: &HalfVector, other: &HalfVector) -> f64 {
    let numbers = |vector: &HalfVector| vector.to_vec().into_iter().map(f64::from).collect::<Vec<_>>();
    let (one, other) = (numbers(one), numbers(other));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let length = (dot(&one, &one) * dot(&other, &other)).sqrt();
    if length > 0.0 { dot(&one, &other) / length } else { 0.0 }
}

/// The document that holds the entities of a zone. It is under the document that guards the zone, or at the top.
async fn entities_of(
    tools: &crate::ingest::Tools,
    conn: &mut PgConnection,
    zone: DocumentId,
) -> Result<Place, TaskFailure> {
    let base = &tools.settings.rdf_base;
    // What is made at the top may be the owner's alone; then the open entities have a document of their own.
    let iri = match zone.0 == 0 && !tools.settings.is_enclosed(None) {
        true => names::entities(base, None),
        false => names::entities_of_zone(base, zone.0),
    };
    let everything = Writable::everything();
    let known = store::graph_nodes::in_zone(conn, zone, &[&iri]).await.classified()?;
    let id = match known.first() {
        Some((_, id)) => *id,
        None => {
            let above = match zone.0 {
                0 => None,
                _ => Some(
                    store::places::lock_parent(conn, &everything, zone)
                        .await
                        .classified()?
                        .ok_or_else(|| TaskFailure::away("changed", "the document that guards the text is gone"))?,
                ),
            };
            let id =
                insert(tools, conn, above.as_ref(), &[("Entities", "")]).await?.first().copied().ok_or_else(no_id)?;
            store::graph_nodes::name(conn, &[(id, &iri, false)]).await.classified()?;
            id
        }
    };
    let place = store::places::lock_parent(conn, &everything, id).await.classified()?;
    place.ok_or_else(|| TaskFailure::away("changed", "the document of the entities is gone"))
}

/// Makes documents, each with a title and a type.
async fn insert(
    tools: &crate::ingest::Tools,
    conn: &mut PgConnection,
    above: Option<&Place>,
    titles: &[(&str, &str)],
) -> Result<Vec<DocumentId>, TaskFailure> {
    if let Some(above) = above {
        above.admits(0).map_err(|failure| TaskFailure::permanent("too_deep", failure.detail))?;
    }
    let ids = store::nodes::reserve_ids(conn, titles.len()).await.classified()?;
    let new: Vec<batch::NewDocument<'_>> = titles
        .iter()
        .zip(&ids)
        .map(|((title, kind), id)| batch::NewDocument {
            place: batch::new_place(above, *id),
            title,
            content: "",
            structured_content: if kind.is_empty() { json!({}) } else { json!({"type": kind}) },
            usetype: Usetype::Entity.as_str(),
            position: None,
            event_time: None,
        })
        .collect();
    batch::insert(conn, &tools.lexicon, &new).await.classified()?;
    if let (Some(above), Some(first)) = (above, new.first()) {
        // A region that covers one new child of a node covers all of them.
        store::reservations::hold_for_edit(conn, &first.place, WriteMode::Itself).await.map_err(held)?;
        let count = new.len() as i64;
        let change = Frontier { total: count, settled: count, ..Frontier::default() };
        store::ingest_nodes::count(conn, above.id(), change).await.classified()?;
    }
    store::events::record(conn, EventKind::DocumentCreated, &ids, &json!({})).await.classified()?;
    let to_embed: Vec<(Place, usize)> = new.iter().map(|new| (new.place.clone(), new.title.len())).collect();
    embed_together(&tools.settings.task_badges, conn, &to_embed, 0).await.classified()?;
    Ok(ids)
}

fn held(error: EditError) -> TaskFailure {
    match error {
        EditError::Held(_) => TaskFailure::away("region_held", "a task works where entities are to be made"),
        EditError::Database(error) => super::super::Classify::classify(error),
    }
}

fn no_id() -> TaskFailure {
    TaskFailure::retryable("database", "the database reserved no id")
}
