//! Documents of an archive that come in, with what hangs on them: all of a call are stored, or none.
use super::carried;
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    graph::terms,
    ingest::{parent, queueing::embed_together, segments::outdate_sums},
    rdf::names,
    registry::Handle,
    search::bm25,
    service::Service,
    store::{
        self,
        archive::{self, Container, Restored, RestoredEntity},
        batch, graph_nodes,
        indexes::Covering,
        places::Place,
        vectors::Weighted,
    },
    usetype::Usetype,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use half::f16;
use pgvector::HalfVector;
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::{
    Call, Code, Failure,
    constraint::as_title,
    ops,
    wire::{ArchivedDocument, ArchivedVector, ImportedArchive, ImportedDocument, ImportedIds, ImportedPart, Settled},
};
use svc_ids::{DocumentId, IndexId};

/// What the keys of an archive's documents begin with, by which they are found again for the caller that imported them.
pub(super) fn keys(of: &ImportedArchive) -> String {
    format!("archive:{}:{}:", of.archive, of.parent_id.unwrap_or_default())
}

/// No model has wider vectors.
const WIDEST: usize = 4_096;

/// The key of a document of an archive.
fn key(of: &ImportedArchive, id: i64) -> String {
    format!("{}{id}", keys(of))
}

/// The documents that the caller imported of these ids, and those that it may no longer read.
pub(super) async fn imported(
    conn: &mut PgConnection,
    caller: &Caller,
    of: &ImportedArchive,
    ids: &[i64],
) -> Result<(HashMap<i64, DocumentId>, Vec<DocumentId>), Failure> {
    let keys: HashMap<String, i64> = ids.iter().map(|id| (key(of, *id), *id)).collect();
    let asked: Vec<&str> = keys.keys().map(String::as_str).collect();
    let known = batch::with_keys(conn, caller.principal_id(), &asked).await.or_fail()?;
    let found: Vec<DocumentId> = known.values().copied().collect();
    let readable = batch::readable_of(conn, &caller.readable(), &found).await.or_fail()?;
    let lost = found.into_iter().filter(|id| !readable.contains(id)).collect();
    let known = known.into_iter().filter(|(_, id)| readable.contains(id));
    Ok((known.filter_map(|(key, id)| Some((*keys.get(&key)?, id))).collect(), lost))
}

impl Handle<ops::find_imported> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::find_imported>) -> Result<ImportedIds, Failure> {
        let (of, ids) = (call.query, call.body.0.ids);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let (known, _) = imported(&mut conn, caller, &of, &ids).await?;
        let found = ids
            .iter()
            .filter_map(|id| Some(ImportedDocument { id: *id, document_id: known.get(id)?.0, was_existing: true }));
        Ok(ImportedIds { documents: found.collect() })
    }
}

impl Handle<ops::import_documents> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::import_documents>) -> Result<ImportedPart, Failure> {
        let (of, mut documents) = (call.query, call.body.0.documents);
        // A store of before may have had titles that no door takes any more.
        for document in documents.iter_mut().filter(|document| document.title.contains(char::is_control)) {
            document.title = as_title(&document.title);
        }
        for (index, document) in documents.iter().enumerate() {
            // What came without a name is written without one, so that no parser reads the IRI that stands for its label.
            if let Some(iri) = document.iri.as_ref().filter(|_| !document.blank) {
                let field = format!("documents[{index}].iri");
                terms::check_iri(&field, iri).map_err(|failure| failure.with("index", index))?;
            }
        }
        let part = Part::prepare(self, caller, &of, &documents).await?;
        match part.store(self, caller, &of).await {
            // The terms that this process remembers, the titles that it read, or the model, are of another time.
            Err(Refused::Stale) => {
                self.postings.forget_term_ids();
                let part = Part::prepare(self, caller, &of, &documents).await?;
                part.store(self, caller, &of).await.map_err(|refused| match refused {
                    Refused::Failure(failure) => failure,
                    Refused::Stale => {
                        let detail = "the index, the titles or the model change at this moment";
                        Failure::new(Code::Unavailable, detail).with("retry_after", 1)
                    }
                })
            }
            stored => stored.map_err(|refused| match refused {
                Refused::Failure(failure) => failure,
                Refused::Stale => Failure::new(Code::Internal, "the terms of the index are stale"),
            }),
        }
    }
}

/// Why a part was not stored.
enum Refused {
    Failure(Failure),
    /// The terms, the titles under which the documents come and the model must be looked up anew.
    Stale,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failure(failure)
    }
}

/// A part of an archive with all that is found out before its transaction begins.
struct Part<'a> {
    documents: &'a [ArchivedDocument],
    /// The ids of those that are new.
    new: HashMap<i64, DocumentId>,
    vectors: HashMap<i64, Weighted>,
    /// The vectors of the names of entities, which may be of another model; the names get new ones then.
    names: HashMap<i64, HalfVector>,
    /// The model of the vectors.
    model: Option<String>,
    /// The titles under the documents that were there before, which the postings have.
    under: HashMap<DocumentId, Vec<String>>,
    /// The indexes that cover what is under these documents, and what is under none.
    covering: Vec<Covering>,
    postings: Vec<bm25::Prepared>,
}

impl<'a> Part<'a> {
    async fn prepare(
        service: &Service,
        caller: &Caller,
        of: &ImportedArchive,
        documents: &'a [ArchivedDocument],
    ) -> Result<Part<'a>, Failure> {
        let mut conn = service.pool.acquire().await.or_fail()?;
        let ids: Vec<i64> =
            documents.iter().flat_map(|document| [Some(document.id), document.parent]).flatten().collect();
        let (known, _) = imported(&mut conn, caller, of, &ids).await?;
        let fresh: Vec<&ArchivedDocument> =
            documents.iter().filter(|document| !known.contains_key(&document.id)).collect();
        let reserved = store::nodes::reserve_ids(&mut conn, fresh.len()).await.or_fail()?;
        let new: HashMap<i64, DocumentId> = fresh.iter().map(|document| document.id).zip(reserved).collect();
        // The document that is there already under which each new one goes.
        let mut anchors: HashMap<i64, Option<DocumentId>> = HashMap::new();
        for document in &fresh {
            let anchor = match document.parent {
                None => of.parent_id.map(DocumentId),
                Some(parent) => match (anchors.get(&parent), known.get(&parent)) {
                    (Some(anchor), _) => *anchor,
                    (None, known) => known.copied(),
                },
            };
            anchors.insert(document.id, anchor);
        }
        let there: HashSet<DocumentId> = anchors.values().flatten().copied().collect();
        let there: Vec<DocumentId> = there.into_iter().collect();
        let covering = store::indexes::covering_under(&mut conn, &there).await.or_fail()?;
        let under = store::titles::under(&mut conn, &there).await.or_fail()?;
        let above = above(&fresh, &anchors, &under);
        drop(conn);
        // Without a model nothing is wrong with a vector, but nothing can be said for it either.
        // A model that is away would have every vector made anew.
        let model = match service.model().await {
            Ok(model) => Some(model),
            Err(failure) if failure.code == Code::NotConfigured => None,
            Err(failure) => return Err(failure),
        };
        let mut names = HashMap::new();
        for (index, document) in documents.iter().enumerate().filter(|(_, document)| new.contains_key(&document.id)) {
            let vector = document.entity.as_ref().and_then(|entity| entity.vector.as_ref());
            if let Some((model, vector)) = model.as_ref().zip(vector) {
                let own = (vector.model == model.identity()).then(|| model.native_width());
                let read = halves(vector, own).map_err(|reason| {
                    Failure::field(&format!("documents[{index}].entity.vector"), reason).with("index", index)
                })?;
                names.insert(document.id, read);
            }
        }
        let mut vectors = HashMap::new();
        let mut texts: BTreeMap<IndexId, Vec<bm25::Text>> = BTreeMap::new();
        for document in fresh.iter().filter(|document| document.settled == Settled::Settled) {
            let vector = model.as_ref().zip(document.vector.as_ref());
            let vector = vector.filter(|(model, vector)| vector.model == model.identity());
            if let Some((model, vector)) = vector {
                let read = halves(vector, Some(model.native_width())).map_err(|reason| {
                    let index = documents.iter().position(|other| other.id == document.id).unwrap_or_default();
                    Failure::field(&format!("documents[{index}].vector"), reason).with("index", index)
                })?;
                vectors.insert(document.id, Weighted { vector: read, weight: vector.weight });
            }
            // What is embedded anew is indexed then too, but no container is embedded. The other store may have been building its index anew.
            let is_found = vector.is_some() || document.container.is_some();
            if is_found {
                let anchor = anchors.get(&document.id).copied().flatten();
                let takes = |index: &&Covering| index.under == anchor && index.takes(&document.usetype);
                for index in covering.iter().filter(takes) {
                    let document_id = new[&document.id];
                    let titles = above.get(&document.id).map(Vec::as_slice).unwrap_or_default();
                    let text =
                        bm25::Text::new(document_id, &document.usetype, &document.title, &document.content, titles);
                    texts.entry(index.index_id).or_default().push(text);
                }
            }
        }
        let mut postings = Vec::new();
        for (index, texts) in texts {
            postings.push(bm25::prepare(&service.pool, &service.postings, index, texts).await.or_fail()?);
        }
        let model = model.map(|model| model.identity().to_owned());
        Ok(Part { documents, new, vectors, names, model, under, covering, postings })
    }

    async fn store(self, service: &Service, caller: &Caller, of: &ImportedArchive) -> Result<ImportedPart, Refused> {
        let mut tx = store::transaction::begin_creating(&service.pool).await.or_fail()?;
        let conn = &mut *tx;
        let named = |document: &ArchivedDocument| {
            let source = source(document.anchor.as_ref());
            [Some(document.id), document.parent, source, document.container.map(|container| container.root)]
        };
        let named: Vec<i64> = self.documents.iter().flat_map(named).flatten().collect();
        let (known, lost) = imported(conn, caller, of, &named).await?;
        if self.new.keys().any(|id| known.contains_key(id)) {
            return Err(same_at_once().into());
        }
        let mut coming = Coming {
            caller: caller.clone(),
            known: &known,
            places: HashMap::new(),
            above: HashMap::new(),
            first: Vec::new(),
            open: Vec::new(),
        };
        let mut answer = ImportedPart {
            documents: Vec::with_capacity(self.documents.len()),
            vectors: 0,
            queued: 0,
            without_vector: 0,
            in_flight: 0,
            iris_taken: Vec::new(),
        };
        // What is to be embedded, the new segments that came without their sums, and a child of each.
        let (mut to_embed, mut without_sum, mut summed) = (Vec::new(), HashSet::<i64>::new(), Vec::new());
        let (mut origins, mut evidence, mut containers) = (Vec::new(), Vec::new(), Vec::new());
        for (index, document) in self.documents.iter().enumerate() {
            // A database that is away is no fault of the document.
            let at = |failure: Failure| match failure.code.members().contains(&"index") {
                true => failure.with("index", index),
                false => failure,
            };
            if let Some(found) = known.get(&document.id) {
                answer.documents.push(ImportedDocument { id: document.id, document_id: found.0, was_existing: true });
                continue;
            }
            let id = *self.new.get(&document.id).ok_or_else(same_at_once)?;
            let parent = coming.parent(conn, of, document).await.map_err(at)?;
            let place = coming.add(service, conn, document, id, parent).await?;
            answer.documents.push(ImportedDocument { id: document.id, document_id: id.0, was_existing: false });
            answer.in_flight += u32::from(document.settled == Settled::InFlight);
            summed.extend(document.parent.filter(|parent| without_sum.remove(parent)).map(|_| id));
            if let Some(rule) = document.rule.as_deref().filter(|rule| *rule != store::raptor::RULE) {
                // An anchor names the document that a piece was cut from by its old id.
                let anchor = match (document.anchor.clone(), source(document.anchor.as_ref())) {
                    (Some(mut anchor), Some(source)) => match coming.id_of(source) {
                        Some(id) => {
                            anchor["source"] = id.0.into();
                            Some(Some(anchor))
                        }
                        None => None,
                    },
                    (anchor, _) => Some(anchor),
                };
                origins.extend(anchor.map(|anchor| (id, rule, anchor)));
            }
            for name in carried() {
                evidence.extend(document.evidence.get(name.as_str()).map(|value| (id, name, value.clone())));
            }
            let root = document.container.and_then(|container| Some((container, coming.id_of(container.root)?)));
            if let Some((container, root)) = root.filter(|(_, root)| place.is_within(*root)) {
                containers.push(Container {
                    id,
                    root_id: root.as_root(),
                    tokens: container.tokens.max(0),
                    failed_children: container.failed_children.max(0),
                });
            }
            if document.settled == Settled::Settled && !self.vectors.contains_key(&document.id) {
                // The vector of a container is the sum of those under it, whatever text an archive gives it.
                let is_container = containers.last().is_some_and(|last| last.id == id);
                match !is_container && (document.rule.is_none() || !document.content.is_empty()) {
                    true => to_embed.push((place, document.title.len() + document.content.len())),
                    false => answer.without_vector += u32::from(document.vector.is_some()),
                }
                without_sum.extend((document.rule.as_deref() == Some(store::nodes::SEGMENT)).then_some(document.id));
            }
        }
        coming.flush(service, conn).await?;
        let anchors: Vec<DocumentId> = self.under.keys().copied().collect();
        if store::titles::under(conn, &anchors).await.or_fail()? != self.under {
            return Err(Refused::Stale);
        }
        if store::indexes::covering_under(conn, &anchors).await.or_fail()? != self.covering {
            return Err(Refused::Stale);
        }
        for place in &coming.first {
            // A region that covers one new child of a node covers all of them.
            store::reservations::hold_for_edit(conn, place, WriteMode::Itself).await.or_fail()?;
        }
        let ids: Vec<DocumentId> = self.new.values().copied().collect();
        archive::record_origins(conn, &origins).await.or_fail()?;
        store::evidence::record_all(conn, &evidence).await.or_fail()?;
        archive::count(conn, &ids, &containers).await.or_fail()?;
        answer.iris_taken = name_nodes(conn, service, caller, self.documents, &self.new).await?;
        // Others find documents by these, so that they are the owner's to bring.
        if caller.principal().is_none() {
            give_names(conn, self.documents, &self.new, &self.names).await?;
        }
        if let (Some(model), Some(within)) = (&self.model, coming.places.values().next()) {
            let (olds, vectors): (Vec<i64>, Vec<Weighted>) = self.vectors.into_iter().unzip();
            let ids: Vec<DocumentId> = olds.iter().filter_map(|old| self.new.get(old).copied()).collect();
            store::vectors::set(conn, within, &ids, &vectors, model).await.or_fail()?;
            answer.vectors = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            // Most segments of an archive come with their sums, and those that were there before lack what comes into them.
            if !ids.is_empty() {
                summed.extend(coming.first.iter().map(Place::id));
                outdate_sums(&service.settings.task_badges, conn, &summed).await.or_fail()?;
            }
        }
        for postings in &self.postings {
            bm25::append(conn, postings).await.map_err(|error| match error {
                bm25::Error::StaleTerms(_) => Refused::Stale,
                error => Refused::Failure(error.into_failure()),
            })?;
        }
        let keys: Vec<(String, DocumentId)> = self.new.iter().map(|(old, id)| (key(of, *old), *id)).collect();
        let keys: Vec<(&str, DocumentId)> = keys.iter().map(|(key, id)| (key.as_str(), *id)).collect();
        if !batch::give_keys(conn, caller.principal_id(), &keys, &lost).await.or_fail()? {
            return Err(same_at_once().into());
        }
        let tops = self.documents.iter().filter(|document| document.parent.is_none());
        let tops: Vec<DocumentId> = tops.filter_map(|document| self.new.get(&document.id).copied()).collect();
        store::events::imported(conn, &ids, &tops).await.or_fail()?;
        answer.queued = u32::try_from(to_embed.len()).unwrap_or(u32::MAX);
        embed_together(&service.settings.task_badges, conn, &to_embed, 0).await.or_fail()?;
        if answer.vectors > 0 && service.is_replaced(conn, self.model.as_deref().unwrap_or_default()).await.or_fail()? {
            return Err(Refused::Stale);
        }
        tx.commit().await.or_fail()?;
        service.wake.notify(Lanes::of(Lane::Model));
        Ok(answer)
    }
}

/// The titles that stand above the chunks and tables of a call, whose documents come after their parents; `there` has those under what was there before.
fn above(
    documents: &[&ArchivedDocument],
    anchors: &HashMap<i64, Option<DocumentId>>,
    there: &HashMap<DocumentId, Vec<String>>,
) -> HashMap<i64, Vec<String>> {
    let mut under: HashMap<i64, Vec<String>> = HashMap::new();
    let mut above = HashMap::new();
    for document in documents {
        let usetype = Usetype::named(&document.usetype);
        let in_call = document.parent.and_then(|parent| under.get(&parent));
        let titles = in_call.or_else(|| there.get(&anchors.get(&document.id).copied().flatten()?));
        // Not all who may read what is closed may read what is above it.
        let mut titles = if document.private { Vec::new() } else { titles.cloned().unwrap_or_default() };
        // What has chunks of its own is found by these.
        if usetype.is_some_and(Usetype::is_titled) && document.container.is_none() {
            above.insert(document.id, titles.clone());
        }
        if usetype.is_none_or(|usetype| !usetype.is_part()) {
            titles.clear();
        }
        titles.push(document.title.clone());
        under.insert(document.id, titles);
    }
    above
}

/// 503: another call imports the same documents.
fn same_at_once() -> Failure {
    Failure::new(Code::Unavailable, "another call is importing the same documents")
        .with("remedy", "try again: what the other call stored is then answered")
        .with("retry_after", 1)
}

/// The vector of an archive, which must have the width of its model, if that is known.
fn halves(vector: &ArchivedVector, width: Option<usize>) -> Result<HalfVector, String> {
    let bytes = STANDARD.decode(&vector.halves).map_err(|error| format!("is no base64: {error}"))?;
    let width = width.unwrap_or((bytes.len() / 2).clamp(1, WIDEST));
    if bytes.len() != 2 * width {
        return Err(format!("has {} bytes, and {} of its model have {}", bytes.len(), width, 2 * width));
    }
    let halves: Vec<f16> = bytes.chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]])).collect();
    if !halves.iter().all(|half| half.is_finite()) || halves.iter().all(|half| *half == f16::ZERO) {
        return Err("has a number that is not finite, or no direction".to_owned());
    }
    Ok(HalfVector::from(halves))
}

/// The document that a piece was cut from, by its anchor.
fn source(anchor: Option<&Value>) -> Option<i64> {
    anchor?.get("source")?.as_i64()
}

/// Documents on their way into the database.
struct Coming<'a> {
    caller: Caller,
    /// What earlier calls stored, by its ids in the archive.
    known: &'a HashMap<i64, DocumentId>,
    /// What this call stores.
    places: HashMap<i64, Place>,
    /// The parents that were there before. They are locked.
    above: HashMap<DocumentId, Place>,
    /// The first new child of each of these.
    first: Vec<Place>,
    open: Vec<Restored<'a>>,
}

impl<'a> Coming<'a> {
    /// The document of an id of the archive.
    fn id_of(&self, id: i64) -> Option<DocumentId> {
        self.places.get(&id).map(Place::id).or_else(|| self.known.get(&id).copied())
    }

    /// Adds a document under its parent, see [`parent`](Coming::parent). It may store those before this one, of which any may be at fault.
    async fn add(
        &mut self,
        service: &Service,
        conn: &mut PgConnection,
        document: &'a ArchivedDocument,
        id: DocumentId,
        (parent, is_first): (Option<Place>, bool),
    ) -> Result<Place, Failure> {
        let place = batch::new_place(parent.as_ref(), id);
        if is_first {
            self.first.push(place.clone());
        }
        self.open.push(Restored {
            place: place.clone(),
            title: &document.title,
            content: &document.content,
            structured_content: Value::Object(document.structured_content.clone()),
            usetype: &document.usetype,
            position: document.position,
            event_time: document.event_time,
            created_at: document.created_at,
            updated_at: document.updated_at.max(document.created_at),
            content_hash: match &document.file {
                Some(file) if !document.is_picture() => file.content_hash.clone(),
                _ => store::documents::content_hash(&document.content),
            },
            settled: match document.settled {
                Settled::Settled => Settled::Settled,
                // What was still to come stayed behind.
                Settled::InFlight | Settled::Failed => Settled::Failed,
            },
        });
        self.places.insert(document.id, place.clone());
        // What is open at the top is the owner's to write, so that a principal could put nothing under it in a later call.
        let is_own = parent.is_none() && self.caller.principal().is_some();
        // What is put under an access root later in the call must find it.
        if document.private || is_own || service.settings.is_enclosed(parent.as_ref().map(|parent| parent.id().0)) {
            self.flush(service, conn).await?;
            self.caller = self.caller.enclose(conn, &place).await.or_fail()??;
        }
        Ok(place)
    }

    /// The parent of a document, and whether it was there before and the call puts something under it for the first time.
    async fn parent(
        &mut self,
        conn: &mut PgConnection,
        of: &ImportedArchive,
        document: &ArchivedDocument,
    ) -> Result<(Option<Place>, bool), Failure> {
        if let Some(place) = document.parent.and_then(|parent| self.places.get(&parent)) {
            place.admits(0)?;
            return Ok((Some(place.clone()), false));
        }
        let id = match (document.parent, of.parent_id) {
            (Some(parent), _) => *self.known.get(&parent).ok_or_else(|| {
                let detail = format!("document {} comes before its parent {parent}", document.id);
                Failure::field("parent", detail).with("remedy", "put the parent before its children")
            })?,
            (None, Some(id)) => DocumentId(id),
            (None, None) => return Ok((None, false)),
        };
        if let Some(place) = self.above.get(&id) {
            return Ok((Some(place.clone()), false));
        }
        let place = parent::lock(conn, &self.caller, id, 0).await?;
        self.above.insert(id, place.clone());
        Ok((Some(place), true))
    }

    /// Stores the documents that are not yet stored.
    async fn flush(&mut self, service: &Service, conn: &mut PgConnection) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.open);
        match open.is_empty() {
            true => Ok(()),
            false => archive::insert(conn, &service.lexicon, &open).await.or_fail(),
        }
    }
}

/// Gives new documents the keys of callers and the names of entities, as far as nothing else has them here.
async fn give_names(
    conn: &mut PgConnection,
    documents: &[ArchivedDocument],
    new: &HashMap<i64, DocumentId>,
    vectors: &HashMap<i64, HalfVector>,
) -> Result<(), Failure> {
    let there = documents.iter().filter_map(|document| Some((*new.get(&document.id)?, document)));
    let (mut keys, mut entities) = (Vec::new(), Vec::new());
    for (id, document) in there {
        keys.extend(document.keys.iter().map(|key| (id, key.principal.as_deref(), key.key.as_str())));
        entities.extend(document.entity.as_ref().map(|entity| RestoredEntity {
            id,
            name: &entity.name,
            kind: &entity.kind,
            vector: entity.vector.as_ref().and_then(|vector| Some((vector.model.as_str(), vectors.get(&document.id)?))),
        }));
    }
    archive::restore_keys(conn, &keys).await.or_fail()?;
    // Whoever adds a name to a zone holds that.
    let ids: Vec<DocumentId> = entities.iter().map(|entity| entity.id).collect();
    let zones: BTreeSet<DocumentId> =
        archive::guards(conn, &ids).await.or_fail()?.into_iter().map(|(guard, _)| guard).collect();
    for zone in zones {
        graph_nodes::hold_zone(conn, zone).await.or_fail()?;
    }
    archive::restore_entities(conn, &entities).await.or_fail()
}

/// Gives new documents the IRIs that they stand for, and returns those that others have already.
async fn name_nodes(
    conn: &mut PgConnection,
    service: &Service,
    caller: &Caller,
    documents: &[ArchivedDocument],
    new: &HashMap<i64, DocumentId>,
) -> Result<Vec<String>, Failure> {
    let base = &service.settings.rdf_base;
    // What this store names itself is not for an archive to take: another caller's entities would come to lie there.
    let is_own = |iri: &str| iri.starts_with(base.as_str()) && !iri[base.len()..].starts_with("genid/");
    let is_allowed = |iri: &str| match caller {
        Caller::Owner => !["document/", "predicate/"].iter().any(|part| iri.starts_with(&format!("{base}{part}"))),
        Caller::Principal(_) | Caller::Nobody => !is_own(iri),
    };
    let wanted: HashMap<DocumentId, (&str, bool)> = documents
        .iter()
        .filter_map(|document| Some((*new.get(&document.id)?, (document.iri.as_deref()?, document.blank))))
        .filter(|(_, (iri, _))| is_allowed(iri))
        .collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<DocumentId> = wanted.keys().copied().collect();
    let mut zones: BTreeMap<DocumentId, Vec<DocumentId>> = BTreeMap::new();
    for (guard, id) in archive::guards(conn, &ids).await.or_fail()? {
        zones.entry(guard).or_default().push(id);
    }
    let mut taken = Vec::new();
    for (zone, ids) in zones {
        graph_nodes::hold_zone(conn, zone).await.or_fail()?;
        // What holds the entities of a closed place is found by the id that the place has here.
        let of_entities = names::entities_of_zone(base, zone.0);
        let iri = |id: &DocumentId| match names::zone_of_entities(base, wanted[id].0) {
            Some(old) if old > 0 && zone.0 > 0 => of_entities.as_str(),
            _ => wanted[id].0,
        };
        let iris: Vec<&str> = ids.iter().map(iri).collect();
        let there = graph_nodes::in_zone(conn, zone, &iris).await.or_fail()?;
        let mut seen: HashSet<&str> =
            there.iter().filter_map(|(at, _)| iris.get(usize::try_from(at - 1).ok()?).copied()).collect();
        let (free, held): (Vec<DocumentId>, Vec<DocumentId>) = ids.iter().partition(|id| seen.insert(iri(id)));
        taken.extend(held.iter().map(|id| wanted[id].0.to_owned()));
        let named: Vec<(DocumentId, &str, bool)> = free.iter().map(|id| (*id, iri(id), wanted[id].1)).collect();
        graph_nodes::name(conn, &named).await.or_fail()?;
    }
    Ok(taken)
}
