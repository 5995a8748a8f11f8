//! Cuts a document's text into documents under it. The text itself stays.
use super::{must_match, wait_for};
use crate::{
    access::Caller,
    admission::{self, Waiting},
    error::OrFail,
    ingest::{
        options::Structure,
        queueing::embed_together,
        raptor,
        segments::outdate_sums,
        tree::{self, CharacterIndex},
    },
    registry::Handle,
    search::bm25,
    service::Service,
    store::{
        self,
        ingest_nodes::Frontier,
        lexicon::Lexicon,
        nodes::{NewNode, ROWS},
        places::Place,
    },
    usetype::Usetype,
};
use serde_json::json;
use sqlx::PgConnection;
use std::ops::Range;
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::{
    Call, Code, Failure, Meta, ops,
    wire::{EventKind, MOST_PIECES, PiecesResponse, Settled, SplitRequest},
};
use svc_formats::{ChunkOptions, chunk, headings};
use svc_ids::DocumentId;
use tokio_util::sync::CancellationToken;

/// A part of a text that becomes a document.
struct Piece {
    title: String,
    content: String,
    /// Where it stands in the text, in bytes.
    range: Range<usize>,
}

/// How pieces are made.
#[derive(Clone, Copy)]
struct Making {
    rule: &'static str,
    usetype: Usetype,
    replace: bool,
}

/// The text to cut.
struct Source {
    id: DocumentId,
    title: String,
    content: String,
    content_hash: String,
}

impl Handle<ops::split_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::split_document>) -> Result<PiecesResponse, Failure> {
        let request = call.body.0;
        let source = source(self, caller, DocumentId(call.path.id)).await?;
        let (rule, usetype) = (store::nodes::SPLIT, Usetype::Markdown);
        let making = Making { rule, usetype, replace: request.replace };
        let waiting = call.query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let (source, pieces) = on_a_thread(self, caller, source, move |source, _| split(source, &request)).await?;
        make(self, caller, &source, pieces?, making, waiting, &call.meta).await
    }
}

impl Handle<ops::chunk_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::chunk_document>) -> Result<PiecesResponse, Failure> {
        let request = call.body.0.unwrap_or_default();
        let source = source(self, caller, DocumentId(call.path.id)).await?;
        let (rule, usetype) = (store::nodes::CHUNK, Usetype::Chunk);
        let making = Making { rule, usetype, replace: request.replace };
        let waiting = call.query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let defaults = Structure::default();
        let options = ChunkOptions {
            max_tokens: request.max_tokens.map_or(defaults.max_tokens, |tokens| tokens as usize),
            min_chunk_length: request.min_chunk_length.map_or(defaults.min_chunk_length, |length| length as usize),
            max_chars: self.settings.chunk_max_chars,
            ..ChunkOptions::default()
        };
        let model = self.model().await?;
        let cut = move |source: &Source, stop: &CancellationToken| -> Result<Vec<Piece>, Failure> {
            let count = |text: &str| match stop.is_cancelled() {
                // Nobody waits for the chunks any more, and counting takes most of the time.
                true => text.len(),
                // A tokenizer that fails on a sentence has a defect; then the length in bytes is a safe upper bound.
                false => model.count_content_tokens(text).unwrap_or(text.len()),
            };
            let text = &source.content;
            let chunks = chunk(text, 0..text.len(), &options, &count);
            few_enough(chunks.len())?;
            let piece = |chunk: svc_formats::Chunk| Piece {
                title: source.title.clone(),
                content: chunk.content(text).into_owned(),
                range: chunk.start..chunk.end,
            };
            Ok(chunks.into_iter().map(piece).collect())
        };
        let (source, pieces) = on_a_thread(self, caller, source, cut).await?;
        make(self, caller, &source, pieces?, making, waiting, &call.meta).await
    }
}

/// Cuts on a thread of its own, because a long text takes a while. A client that hangs up stops it, and nothing is stored.
async fn on_a_thread<T: Send + 'static>(
    service: &Service,
    caller: &Caller,
    source: Source,
    cut: impl FnOnce(&Source, &CancellationToken) -> T + Send + 'static,
) -> Result<(Source, T), Failure> {
    let slot = service.admission.embed(caller.principal_id()).await?;
    let stop = admission::client_gone().child_token();
    let _stopped_if_dropped = stop.clone().drop_guard();
    let stopped = stop.clone();
    let work = move || {
        let pieces = cut(&source, &stopped);
        // The thread has the slot, because it outlives a request that is dropped.
        drop(slot);
        (source, pieces)
    };
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new(Code::Internal, error))?;
    if stop.is_cancelled() {
        let detail = "the client did not wait for the text to be cut; nothing was stored";
        return Err(Failure::new(Code::Unavailable, detail));
    }
    Ok(done)
}

/// The text of a document that the caller may change, and that no ingestion cuts.
async fn source(service: &Service, caller: &Caller, id: DocumentId) -> Result<Source, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let place = caller.writes(&mut conn, id).await.or_fail()??;
    made_by_a_caller(&mut conn, &place, "cuts its text").await?;
    let row = store::documents::read(&mut conn, &caller.readable(), id, false).await.or_fail()?;
    let row = row.ok_or_else(|| Failure::no_document(id.0))?;
    if row.content.trim().is_empty() {
        return Err(Failure::field("id", format!("document {id} has no text to cut"))
            .with("remedy", "name a document that has a text of its own"));
    }
    Ok(Source { id, title: tree::title(&row.title), content: row.content, content_hash: row.content_hash })
}

/// Refuses a document that ingestion made, and a summary; `what` says what ingestion does to its documents by itself.
pub(super) async fn made_by_a_caller(conn: &mut PgConnection, place: &Place, what: &str) -> Result<(), Failure> {
    let id = place.id();
    let part = store::edits::part(conn, place).await.or_fail()?.ok_or_else(|| Failure::no_document(id.0))?;
    if part.is_container || part.file.is_some() {
        let detail = format!("document {id} was ingested, and its ingestion {what}");
        return Err(Failure::field("id", detail).with("remedy", "name a document that a caller created"));
    }
    if part.is_summary {
        let detail = format!("document {id} summarises others, and goes when they are summarised again");
        return Err(Failure::field("id", detail).with("remedy", "name a document that a caller created"));
    }
    Ok(())
}

/// Refuses more pieces than one call makes.
fn few_enough(pieces: usize) -> Result<(), Failure> {
    if pieces <= MOST_PIECES {
        return Ok(());
    }
    let detail = format!("the text falls into {pieces} pieces, and a call makes at most {MOST_PIECES}");
    Err(Failure::new(Code::TooLarge, detail).with("limit", MOST_PIECES).with("remedy", "make the pieces longer"))
}

/// The pieces between the cuts. Those without a visible character are left out.
fn split(source: &Source, request: &SplitRequest) -> Result<Vec<Piece>, Failure> {
    let text = &source.content;
    let starts = match &request.at {
        Some(at) => cuts(text, at)?,
        None => at_headings(text),
    };
    few_enough(starts.len())?;
    let ends: Vec<usize> = starts.iter().skip(1).map(|(start, _)| *start).chain([text.len()]).collect();
    let piece = |((start, title), end): ((usize, Option<String>), usize)| {
        let content = text.get(start..end)?.trim();
        let title = title.map(|title| tree::title(&title)).filter(|title| !title.is_empty());
        let title = title.unwrap_or_else(|| source.title.clone());
        (!content.is_empty()).then(|| Piece { title, content: content.to_owned(), range: start..end })
    };
    Ok(starts.into_iter().zip(ends).filter_map(piece).collect())
}

/// The bytes at which pieces begin, if the first begins with the text and each further one at one of these characters.
fn cuts(text: &str, at: &[u32]) -> Result<Vec<(usize, Option<String>)>, Failure> {
    let mut starts = vec![(0, None)];
    let mut places = text.char_indices().map(|(byte, _)| byte).enumerate().skip(1);
    let mut next = places.next();
    for wanted in at {
        while next.is_some_and(|(place, _)| place < *wanted as usize) {
            next = places.next();
        }
        match next {
            Some((place, byte)) if place == *wanted as usize => starts.push((byte, None)),
            _ => {
                let characters = text.chars().count();
                let detail = format!("{wanted} is no place within a text of {characters} characters");
                return Err(Failure::field("at", detail).with("limit", characters.saturating_sub(1)));
            }
        }
    }
    Ok(starts)
}

/// The bytes at which the text and its headings begin, with the headings' titles.
fn at_headings(text: &str) -> Vec<(usize, Option<String>)> {
    let mut starts = vec![(0, None)];
    for heading in headings(text).take(MOST_PIECES + 1) {
        match starts.last_mut() {
            Some(last) if last.0 == heading.start => last.1 = Some(heading.title),
            _ => starts.push((heading.start, Some(heading.title))),
        }
    }
    starts
}

async fn make(
    service: &Service,
    caller: &Caller,
    source: &Source,
    pieces: Vec<Piece>,
    making: Making,
    waiting: Option<Waiting>,
    meta: &Meta,
) -> Result<PiecesResponse, Failure> {
    let id = source.id;
    // To find the places to cut may have taken long.
    let caller = &caller.again(&service.pool).await?;
    let mut tx = store::transaction::begin_creating(&service.pool).await.or_fail()?;
    let Some(place) = store::places::lock_for_change(&mut tx, &caller.writable(), id).await.or_fail()? else {
        return Err(caller.refusal(&mut tx, id).await.or_fail()?);
    };
    let now = store::documents::read(&mut tx, &caller.readable(), id, true).await.or_fail()?;
    let now = now.ok_or_else(|| Failure::no_document(id.0))?;
    let is_as_cut = now.content_hash == source.content_hash;
    must_match(meta, now)?;
    if !is_as_cut {
        return Err(Failure::new(Code::Conflict, format!("the text of document {id} changed while it was being cut"))
            .with("remedy", "cut it again"));
    }
    place.admits(0)?;
    let Cleared { pieces: deleted, documents: gone } = clear(service, &mut tx, caller, &place, making).await?;
    let ids = store::nodes::reserve_ids(&mut tx, pieces.len()).await.or_fail()?;
    let places: Vec<Place> = ids.iter().map(|id| place.of_new(*id, place.children_path())).collect();
    if let Some(first) = places.first() {
        // A region that covers one new child of a node covers all of them.
        store::reservations::hold_for_edit(&mut tx, first, WriteMode::Itself).await.or_fail()?;
    }
    let sizes: Vec<usize> = pieces.iter().map(|piece| piece.title.len() + piece.content.len()).collect();
    insert(&mut tx, &service.lexicon, source, &place, &ids, pieces, making).await?;
    let grown = ids.len() as i64 - gone as i64;
    let change = Frontier { total: grown, settled: grown, ..Frontier::default() };
    store::ingest_nodes::count(&mut tx, id, change).await.or_fail()?;
    store::events::record(&mut tx, EventKind::DocumentCreated, &ids, &json!({})).await.or_fail()?;
    let to_embed: Vec<(Place, usize)> = places.into_iter().zip(sizes).collect();
    let tasks = embed_together(&service.settings.task_badges, &mut tx, &to_embed, 0).await.or_fail()?;
    tx.commit().await.or_fail()?;
    service.wake.notify(Lanes::of(Lane::Model));
    let warnings = match waiting {
        Some(waiting) => {
            let mut failed = waiting.until(wait_for(service, id, &tasks)).await?;
            failed.extend(warnings(service, &ids).await?);
            failed
        }
        None => Vec::new(),
    };
    Ok(PiecesResponse { document_id: id.0, created: ids.into_iter().map(|id| id.0).collect(), deleted, warnings })
}

/// Stores the pieces. Like every document that a caller creates, they are settled at once, and found when their tasks are done.
async fn insert(
    conn: &mut PgConnection,
    lexicon: &Lexicon,
    source: &Source,
    place: &Place,
    ids: &[DocumentId],
    pieces: Vec<Piece>,
    making: Making,
) -> Result<(), Failure> {
    let characters = CharacterIndex::new(&source.content);
    let node = |((piece, id), position): ((Piece, &DocumentId), i32)| NewNode {
        id: *id,
        parent_id: place.id(),
        path: place.children_path(),
        title: piece.title,
        content: piece.content,
        usetype: making.usetype,
        position,
        structured_content: json!({}),
        anchor: json!({
            "characters": [characters.at(piece.range.start), characters.at(piece.range.end)],
            "source": place.id(),
        }),
    };
    let mut nodes = pieces.into_iter().zip(ids).zip(0..).map(node).peekable();
    while nodes.peek().is_some() {
        let part: Vec<NewNode> = nodes.by_ref().take(ROWS).collect();
        store::nodes::insert(conn, lexicon, place, making.rule, &part).await.or_fail()?;
    }
    store::nodes::leave_flight(conn, ids, Settled::Settled).await.or_fail().map(|_| ())
}

/// What was deleted of an earlier call.
#[derive(Default)]
struct Cleared {
    pieces: usize,
    /// The pieces, and the segments that held nothing else and have no text of their own.
    documents: usize,
}

/// Deletes the pieces of an earlier call, if that is what the caller asked for.
async fn clear(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    place: &Place,
    making: Making,
) -> Result<Cleared, Failure> {
    let segments = store::segments::made(conn, place).await.or_fail()?;
    // What has rights of its own is no longer this caller's to replace.
    let segments = segments.iter().filter(|made| !made.has_own_rights);
    let segments: Vec<DocumentId> = segments.map(|made| made.place.id()).collect();
    // The segments are locked before what lies under them, as a delete of a segment does it.
    store::segments::hold(conn, &segments).await.or_fail()?;
    let earlier = store::pieces::lock(conn, place, &segments, making.rule).await.or_fail()?;
    if earlier.is_empty() {
        return Ok(Cleared::default());
    }
    if !making.replace {
        let detail = format!("document {} has {} pieces of an earlier call", place.id(), earlier.len());
        return Err(Failure::new(Code::Conflict, detail).with("remedy", "send `replace` to delete them"));
    }
    if let Some(piece) = store::pieces::occupied(conn, &earlier).await.or_fail()? {
        let detail = format!("documents were put under document {piece}, a piece of the earlier call");
        return Err(Failure::new(Code::Conflict, detail).with("remedy", "move them elsewhere first"));
    }
    store::reservations::hold_for_edit(conn, place, WriteMode::Subtree).await.or_fail()?;
    raptor::forget_over(conn, &earlier).await.or_fail()?;
    let ids: Vec<DocumentId> = earlier.iter().map(Place::id).collect();
    outdate_sums(&service.settings.task_badges, conn, &ids).await.or_fail()?;
    caller.record_unprotected(conn, &ids, true).await.or_fail()?;
    store::batch::hand_over(conn, &earlier).await.or_fail()?;
    let mut gone = store::documents::delete_subtrees(conn, &earlier).await.or_fail()?.ids;
    let empty = store::segments::empty(conn, &segments).await.or_fail()?;
    if !empty.is_empty() {
        gone.extend(store::documents::delete_subtrees(conn, &empty).await.or_fail()?.ids);
    }
    bm25::remove(conn, None, &gone).await.or_fail()?;
    Ok(Cleared { pieces: earlier.len(), documents: gone.len() })
}

/// Why some of the pieces have no vector.
async fn warnings(service: &Service, ids: &[DocumentId]) -> Result<Vec<String>, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let refused = store::pieces::refused(&mut conn, ids).await.or_fail()?;
    let warning = |refused: store::pieces::Refused| {
        format!("embed: {} of the pieces: {} ({})", refused.documents, refused.reason, refused.remedy)
    };
    Ok(refused.into_iter().map(warning).collect())
}
