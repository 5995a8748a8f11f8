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
use sqlx::{PgConnection, PgPool};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use svc_actors::{TaskFailure, WriteMode};
use svc_client::wire::{EventKind, MergeMethod, ResolveNames, Settled};
use svc_ids::DocumentId;

/// The most names of a text that are compared by their meaning; those after them are taken for what has the same letters.
const COMPARED_NAMES: usize = 200;
/// How many of them one statement compares.
const PORTION: usize = 25;
/// The most names of a zone that get a vector of the model for one text, because a model of before made theirs.
const RENEWED: i64 = 500;

/// What a text calls a thing, and of which type: its key and that of its type.
pub type Name = (String, String);

/// The things that a text names.
pub struct Things {
    /// In the order of the text, with the name as it stands there.
    names: Vec<(Name, String)>,
    /// The names that no fact has any more.
    unused: HashSet<Name>,
    /// What each key with the type of a mention is among the names.
    of: HashMap<Name, Name>,
    /// The vectors of the names, by their model, where names of the same meaning count.
    vectors: Option<(Model, HashMap<Name, HalfVector>)>,
    compared: Compared,
}

/// What names were compared with by their meaning, before anybody was kept away from the zone.
struct Compared {
    /// The names that were compared, each with those that are near, the nearest first.
    near: HashMap<Name, Vec<Near>>,
    /// The youngest entity of the zone that was looked at.
    seen: DocumentId,
}

/// A name of nearly the same meaning.
#[derive(Clone, Debug)]
struct Near {
    with: Name,
    /// The entity that has it; of a name of the text, none.
    id: Option<DocumentId>,
    score: f64,
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
        let mut types: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mentions: Vec<&Mention> = mentions.collect();
        for mention in &mentions {
            let known = types.entry(&mention.key).or_default();
            if !mention.type_key.is_empty() {
                known.insert(&mention.type_key);
            }
        }
        let (mut names, mut of) = (Vec::new(), HashMap::new());
        let mut seen: HashSet<Name> = HashSet::new();
        for mention in mentions {
            let name = named(&types, mention);
            of.entry(exact(mention)).or_insert_with(|| name.clone());
            if seen.insert(name.clone()) {
                names.push((name, mention.name.clone()));
            }
        }
        Things {
            names,
            unused: HashSet::new(),
            of,
            vectors: None,
            compared: Compared { near: HashMap::new(), seen: DocumentId(0) },
        }
    }

    /// Leaves out, until the next call, what these mentions do not name.
    pub fn keep<'a>(&mut self, mentions: impl Iterator<Item = &'a Mention>) {
        let kept: HashSet<Name> = mentions.map(|mention| self.name(mention)).collect();
        self.unused = self.names.iter().map(|(name, _)| name).filter(|name| !kept.contains(*name)).cloned().collect();
    }

    /// The names that facts have, in the order of the text, each as it stands there.
    fn used(&self) -> impl Iterator<Item = (&Name, &str)> {
        self.names.iter().filter(|(name, _)| !self.unused.contains(name)).map(|(name, title)| (name, title.as_str()))
    }

    /// The name of a mention among these.
    pub fn name(&self, mention: &Mention) -> Name {
        let exact = exact(mention);
        self.of.get(&exact).cloned().unwrap_or(exact)
    }

    /// Embeds the names.
    pub async fn embed(&mut self, model: Model) -> Result<(), TaskFailure> {
        let rows: Vec<TextRow> =
            self.names.iter().enumerate().map(|(at, (_, title))| told(DocumentId(at as i64), title.clone())).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let embedded = windows::embed(&model, &rows).await?;
        let of = |id: DocumentId| self.names.get(usize::try_from(id.0).ok()?).map(|(name, _)| name.clone());
        let vectors = embedded.ids.iter().zip(embedded.vectors);
        self.vectors = Some((model, vectors.filter_map(|(id, vector)| Some((of(*id)?, vector.vector))).collect()));
        Ok(())
    }

    /// Compares the names with those of a zone and with each other by their meaning. This takes a while, so nobody is kept away from the zone
    /// meanwhile; [`plan`](Self::plan) looks at what has changed since.
    pub async fn compare(&mut self, pool: &PgPool, zone: DocumentId, least: f64) -> Result<(), TaskFailure> {
        let Some((model, vectors)) = &self.vectors else { return Ok(()) };
        entities::ensure_index(pool, model.identity(), model.native_width()).await.classified()?;
        renew(pool, zone, model).await?;
        let mut conn = store::transaction::begin_search(pool).await.classified()?;
        let keys: Vec<&str> = self.names.iter().map(|(name, _)| name.0.as_str()).collect();
        let known = Known::of(entities::named(&mut conn, zone, &keys).await.classified()?, zone);
        let new = self.names.iter().map(|(name, _)| name);
        let new = new.filter(|name| known.is(name).is_none() && !known.beside.contains_key(&name.0));
        let new: Vec<(Name, HalfVector)> =
            new.filter_map(|name| Some((name.clone(), vectors.get(name)?.clone()))).take(COMPARED_NAMES).collect();
        let mut compared =
            Compared { seen: entities::youngest(&mut conn, zone).await.classified()?, near: HashMap::new() };
        for portion in new.chunks(PORTION) {
            let found = near(&mut conn, zone, model, portion, DocumentId(0), least).await.classified()?;
            for (name, near) in found {
                compared.near.entry(name).or_default().push(near);
            }
        }
        conn.commit().await.classified()?;
        let among = tokio::task::spawn_blocking(move || among(&new, least)).await.classified()?;
        for (name, mut near) in among {
            compared.near.entry(name).or_default().append(&mut near);
        }
        for near in compared.near.values_mut() {
            near.sort_by(|one, other| other.score.total_cmp(&one.score));
        }
        self.compared = compared;
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
            return Ok(Plan(self.used().map(|_| Planned::New { merge: None }).collect()));
        }
        let keys: Vec<&str> = self.used().map(|(name, _)| name.0.as_str()).collect();
        let known = Known::of(entities::named(conn, zone, &keys).await?, zone);
        let near = self.near(conn, zone, &known, least).await?;
        let mut plan: Vec<Planned> = Vec::new();
        // The names that are to be made so far, and the first one with each key.
        let mut new: HashSet<&Name> = HashSet::new();
        let mut first: HashMap<&str, &Name> = HashMap::new();
        for (name, _) in self.used() {
            if let Some(id) = known.is(name) {
                plan.push(Planned::Known(id));
                continue;
            }
            let merge = match (known.beside.get(&name.0), first.get(name.0.as_str())) {
                (Some((with, id)), _) => {
                    Some(Merge { with: with.clone(), id: Some(*id), method: MergeMethod::Exact, score: None })
                }
                (None, Some(other)) => {
                    Some(Merge { with: (*other).clone(), id: None, method: MergeMethod::Exact, score: None })
                }
                (None, None) => {
                    let fits = |near: &&Near| near.id.is_some() || new.contains(&near.with);
                    near.get(name).and_then(|near| near.iter().find(fits)).map(|near| Merge {
                        with: near.with.clone(),
                        id: near.id,
                        method: MergeMethod::Similarity,
                        score: Some(near.score),
                    })
                }
            };
            new.insert(name);
            first.entry(&name.0).or_insert(name);
            plan.push(Planned::New { merge });
        }
        Ok(Plan(plan))
    }

    /// The names that were compared, each with what is near still: entities that have gone are left out, and those that have come since are in.
    async fn near(
        &self,
        conn: &mut PgConnection,
        zone: DocumentId,
        known: &Known,
        least: f64,
    ) -> sqlx::Result<HashMap<Name, Vec<Near>>> {
        let Some((model, vectors)) = &self.vectors else { return Ok(HashMap::new()) };
        let ids: BTreeSet<DocumentId> = self.compared.near.values().flatten().filter_map(|near| near.id).collect();
        let there: HashMap<DocumentId, Name> = entities::names(conn, zone, &Vec::from_iter(ids))
            .await?
            .into_iter()
            .map(|(id, key, kind)| (id, (key, kind)))
            .collect();
        let mut near_of = self.compared.near.clone();
        for near in near_of.values_mut() {
            near.retain(|near| near.id.is_none_or(|id| there.get(&id) == Some(&near.with)));
        }
        let new = self.used().map(|(name, _)| name).filter(|name| known.is(name).is_none());
        let new: Vec<(Name, HalfVector)> =
            new.filter_map(|name| Some((name.clone(), vectors.get(name)?.clone()))).take(COMPARED_NAMES).collect();
        for (name, near) in near(conn, zone, model, &new, self.compared.seen, least).await? {
            let all = near_of.entry(name).or_default();
            let at = all.partition_point(|other| other.score >= near.score);
            all.insert(at, near);
        }
        Ok(near_of)
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
        for ((name, title), planned) in self.used().zip(&plan.0) {
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
        let known = things.used().zip(&self.0).filter_map(|((name, _), planned)| match planned {
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

/// The entities that have some names.
struct Known {
    /// The one with each name and type: that of the zone, or else the one that is open to all.
    exact: HashMap<Name, DocumentId>,
    /// The first one of the zone with each name, whatever its type.
    beside: HashMap<String, (Name, DocumentId)>,
}

impl Known {
    fn of(found: Vec<entities::NamedEntity>, zone: DocumentId) -> Known {
        let mut known = Known { exact: HashMap::new(), beside: HashMap::new() };
        for entity in found {
            let name: Name = (entity.name_key, entity.type_key);
            match entity.zone == zone {
                true => {
                    known.beside.entry(name.0.clone()).or_insert_with(|| (name.clone(), entity.document_id));
                    known.exact.insert(name, entity.document_id);
                }
                false => {
                    known.exact.entry(name).or_insert(entity.document_id);
                }
            }
        }
        known
    }

    fn is(&self, name: &Name) -> Option<DocumentId> {
        self.exact.get(name).copied()
    }
}

/// A name as a model is given it.
fn told(id: DocumentId, name: String) -> TextRow {
    TextRow {
        id,
        title: name,
        content: String::new(),
        usetype: Usetype::Entity.as_str().to_owned(),
        settled: Word(Settled::InFlight),
        titles: Vec::new(),
    }
}

/// Embeds names of a zone whose vectors another model made, so that they are compared after all vectors have moved to this one too.
async fn renew(pool: &PgPool, zone: DocumentId, model: &Model) -> Result<(), TaskFailure> {
    let mut conn = pool.acquire().await.classified()?;
    let outdated = entities::outdated(&mut conn, zone, model.identity(), RENEWED).await.classified()?;
    // Nobody else waits for a connection while the model works.
    drop(conn);
    if outdated.is_empty() {
        return Ok(());
    }
    let ids: Vec<DocumentId> = outdated.iter().map(|entity| entity.document_id).collect();
    let rows: Vec<TextRow> = outdated
        .into_iter()
        .map(|entity| {
            // A document may have got another title since, and is still found by its name.
            let is_name = resolve::key(&entity.title) == entity.name_key;
            told(entity.document_id, if is_name { entity.title } else { entity.name_key })
        })
        .collect();
    let embedded = windows::embed(model, &rows).await?;
    let vectors = embedded.vectors.into_iter().map(|vector| vector.vector);
    let mut vectors: HashMap<DocumentId, HalfVector> = embedded.ids.into_iter().zip(vectors).collect();
    let new: Vec<(DocumentId, Option<HalfVector>)> = ids.into_iter().map(|id| (id, vectors.remove(&id))).collect();
    let mut conn = pool.acquire().await.classified()?;
    entities::renew(&mut conn, zone, model.identity(), &new).await.classified()
}

fn exact(mention: &Mention) -> Name {
    (mention.key.clone(), mention.type_key.clone())
}

/// The name of a mention, with the type that the text gives it elsewhere if it is the only one.
fn named(types: &BTreeMap<&str, BTreeSet<&str>>, mention: &Mention) -> Name {
    let known = types.get(mention.key.as_str()).filter(|known| known.len() == 1 && mention.type_key.is_empty());
    let type_key = known.and_then(|known| known.first().copied()).unwrap_or(&mention.type_key);
    (mention.key.clone(), type_key.to_owned())
}

fn may_be_one(one: &Name, other: &Name) -> bool {
    resolve::may_be_one((&one.0, &one.1), (&other.0, &other.1))
}

/// The entities of a zone that came after one and whose names are near to these, as far as nothing else speaks against them.
async fn near(
    conn: &mut PgConnection,
    zone: DocumentId,
    model: &Model,
    names: &[(Name, HalfVector)],
    after: DocumentId,
    least: f64,
) -> sqlx::Result<Vec<(Name, Near)>> {
    let vectors: Vec<HalfVector> = names.iter().map(|(_, vector)| vector.clone()).collect();
    let found = entities::near(conn, zone, model.identity(), &vectors, after, least).await?;
    let near = found.into_iter().filter_map(|found| {
        let (name, _) = names.get(usize::try_from(found.at - 1).ok()?)?;
        let (with, id) = ((found.name_key, found.type_key), Some(found.document_id));
        may_be_one(name, &with).then(|| (name.clone(), Near { with, id, score: found.score }))
    });
    Ok(near.collect())
}

/// The names among these that are near to each other; each is near to those before it.
fn among(names: &[(Name, HalfVector)], least: f64) -> Vec<(Name, Vec<Near>)> {
    let unit = |vector: &HalfVector| {
        let numbers: Vec<f32> = vector.to_vec().into_iter().map(f32::from).collect();
        let length = numbers.iter().map(|number| number * number).sum::<f32>().sqrt();
        numbers.into_iter().map(|number| if length > 0.0 { number / length } else { 0.0 }).collect::<Vec<_>>()
    };
    let units: Vec<Vec<f32>> = names.iter().map(|(_, vector)| unit(vector)).collect();
    let mut found = Vec::new();
    for (at, (name, _)) in names.iter().enumerate() {
        let before = names.iter().zip(&units).take(at).filter_map(|((other, _), unit)| {
            let score = f64::from(units[at].iter().zip(unit).map(|(a, b)| a * b).sum::<f32>());
            (score >= least && may_be_one(name, other)).then(|| Near { with: other.clone(), id: None, score })
        });
        found.push((name.clone(), before.collect()));
    }
    found
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
