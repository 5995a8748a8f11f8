//! Documents that callers create one by one, and that are stored together where they come together.
//!
//! Only documents without a parent, which everybody may read, go this way: nothing that one of them needs (a lock, a right, a count) can make another
//! wait.
use crate::{
    core::Core,
    error::OrFail,
    ingest::queueing,
    otlp,
    store::{
        self,
        away::{away, connection_was_lost, sql_state},
        documents::{DocumentRow, NewRow, content_hash},
        group_commit::{GroupCommit, Limits},
        places::Place,
    },
    usetype::Usetype,
};
use serde_json::json;
use std::{slice, sync::Arc, time::Duration};
use svc_actors::{Lane, Lanes};
use svc_client::{
    Code, Failure,
    wire::{EventKind, NewDocument, Settled},
};
use svc_ids::TaskId;
use tracing::Instrument;

/// The most bytes of a document that shares a transaction.
const LONGEST: usize = 32 * 1024;
const LIMITS: Limits = Limits { items: 32, bytes: 256 * 1024, transactions: 4, patience: Duration::from_millis(250) };

/// The calls that create documents.
pub struct Creating(GroupCommit<Asked, Result<Created, Arc<sqlx::Error>>>);

struct Asked {
    new: NewDocument,
    /// The trace of the call, as it is stored with its task.
    traceparent: Option<String>,
    /// Where the log and the trace show what is done for it.
    span: tracing::Span,
    trace: otlp::Span,
}

/// A document as it was stored, before it has a vector, and the task that embeds it.
#[derive(Debug)]
pub struct Created {
    pub document: DocumentRow,
    pub task: TaskId,
}

impl Default for Creating {
    fn default() -> Creating {
        Creating(GroupCommit::new(LIMITS, |asked| size(&asked.new)))
    }
}

impl Creating {
    /// Whether a document is stored here: one that has no parent and that everybody may read.
    pub fn takes(core: &Core, new: &NewDocument) -> bool {
        new.parent_id.is_none() && !new.private && !core.settings.is_enclosed(None)
    }

    /// Stores a document that [`Creating::takes`], with those of other calls if it is short.
    ///
    /// # Errors
    /// The document cannot be stored; others may be all the same.
    pub async fn create(&self, core: &Core, new: NewDocument) -> Result<Created, Failure> {
        let is_short = size(&new) <= LONGEST;
        let (traceparent, span, trace) = (otlp::traceparent(), tracing::Span::current(), otlp::Span::current());
        let asked = Asked { new, traceparent, span, trace };
        let core = core.clone();
        if !is_short {
            return insert_alone(&core, &asked).await.or_fail();
        }
        let store = move |together: Vec<Asked>| {
            // What is done for all is shown with the first of them.
            let first = together.first().map(|asked| (asked.span.clone(), asked.trace.clone()));
            let (span, trace) = first.unwrap_or_else(|| (tracing::Span::none(), otlp::Span::none()));
            trace.carry(store_together(core.clone(), together)).instrument(span)
        };
        match self.0.carry_out(asked, store).await {
            Some(created) => created.or_fail(),
            None => {
                tracing::error!("what stores documents together panicked, or the process ends");
                let message = "the document could not be stored; the log has the cause under this request's id";
                Err(Failure::new(Code::Internal, message))
            }
        }
    }
}

/// The bytes of a document, about.
fn size(new: &NewDocument) -> usize {
    // Only what is written out tells how large it is.
    let structured = match new.structured_content.is_empty() {
        true => 0,
        false => serde_json::to_string(&new.structured_content).map_or(usize::MAX, |text| text.len()),
    };
    new.title.len().saturating_add(new.content.len()).saturating_add(structured)
}

async fn store_together(core: Core, together: Vec<Asked>) -> Vec<Result<Created, Arc<sqlx::Error>>> {
    let mut stored = Vec::with_capacity(together.len());
    let mut failed = match insert(&core, &together).await {
        Ok(created) => {
            stored.extend(created.into_iter().map(Ok));
            None
        }
        // What is wrong with one must not keep the others out.
        Err(error) => (together.len() == 1 || is_of_all(&error)).then(|| Arc::new(error)),
    };
    // Whoever has no answer yet has that of all, or is stored alone, until all meet the same error.
    for asked in together.iter().skip(stored.len()) {
        let alone = match &failed {
            Some(error) => Err(error.clone()),
            None => {
                let alone = asked.trace.carry(insert_alone(&core, asked)).instrument(asked.span.clone());
                alone.await.map_err(Arc::new)
            }
        };
        failed = failed.or_else(|| alone.as_ref().err().filter(|error| is_of_all(error)).cloned());
        stored.push(alone);
    }
    core.wake.notify(Lanes::of(Lane::Model));
    stored
}

/// Whether the database, and none of the documents, is the reason.
fn is_of_all(error: &sqlx::Error) -> bool {
    // A transaction that was rolled back for others, a lock that others hold, and what an operator or a timeout ended.
    let classes = ["40", "55", "57"];
    away(error).is_some()
        || connection_was_lost(error)
        || classes.contains(&sql_state(error).get(..2).unwrap_or_default())
}

async fn insert_alone(core: &Core, asked: &Asked) -> sqlx::Result<Created> {
    insert(core, slice::from_ref(asked)).await?.pop().ok_or(sqlx::Error::RowNotFound)
}

/// A document as it is to be stored, under its parent if it has one.
pub fn row<'a>(new: &'a NewDocument, parent: Option<&'a Place>, content_hash: &'a str) -> NewRow<'a> {
    NewRow {
        parent,
        title: &new.title,
        content: &new.content,
        structured_content: &new.structured_content,
        usetype: new.usetype.as_deref().unwrap_or(Usetype::Markdown.as_str()),
        position: new.position,
        event_time: new.event_time,
        content_hash,
        settled: Settled::Settled,
    }
}

/// Stores documents and queues the tasks that embed them, in one transaction.
async fn insert(core: &Core, together: &[Asked]) -> sqlx::Result<Vec<Created>> {
    let hashes: Vec<String> = together.iter().map(|asked| content_hash(&asked.new.content)).collect();
    let rows: Vec<NewRow<'_>> =
        together.iter().zip(&hashes).map(|(asked, content_hash)| row(&asked.new, None, content_hash)).collect();
    let mut tx = store::transaction::begin_creating_by_keys(&core.pool).await?;
    let (places, documents): (Vec<Place>, Vec<DocumentRow>) =
        store::documents::insert_all(&mut tx, &core.lexicon, &rows).await?.into_iter().unzip();
    let ids: Vec<_> = places.iter().map(Place::id).collect();
    store::events::record(&mut tx, EventKind::DocumentCreated, &ids, &json!({})).await?;
    let of_calls = places.iter().zip(together).map(|(place, asked)| queueing::Created {
        place,
        priority: asked.new.priority,
        traceparent: asked.traceparent.clone(),
    });
    let tasks = queueing::embed_each(&core.settings.task_badges, &mut tx, of_calls.collect()).await?;
    tx.commit().await?;
    Ok(documents.into_iter().zip(tasks).map(|(document, task)| Created { document, task }).collect())
}
