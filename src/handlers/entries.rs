//! Texts, conversations and addresses as files: stored as uploads are, and answered when they are ingested.
use super::lists::page;
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{
        entries::{self, exports},
        options::Requested,
    },
    registry::Handle,
    service::Service,
    store,
};
use std::{collections::HashSet, time::Duration};
use svc_client::{
    Call, Code, Failure, Meta, Nothing, ops,
    wire::{
        ConversationResponse, DocumentPath, EmbedQuery, Entry, FrontierResponse, IngestedTree, NewConversation,
        NewIngestion, PageQuery, PipelineList, Turn,
    },
};
use svc_ids::DocumentId;
use tokio::time::Instant;

/// The time between two looks at the ingestion at first, and later.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);
/// The most nodes of an answer; the others are read page by page.
const NODES: u32 = 1000;
/// The most speakers that an answer names.
const SPEAKERS: usize = 100;

impl Handle<ops::list_pipelines> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::list_pipelines>) -> Result<PipelineList, Failure> {
        Ok(PipelineList { pipelines: entries::pipelines(&self.task_types)? })
    }
}

impl Handle<ops::ingest> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::ingest>) -> Result<IngestedTree, Failure> {
        let waiting = call.query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let stored = entries::ingest(self, self.intake(), caller, call.body.0).await?;
        let id = stored.document_id;
        if let Some(waiting) = waiting {
            waiting.until(self.drained(caller, id)).await?;
        }
        // The caller may read a private document since it was stored, and another one no longer.
        let caller = &caller.again(&self.pool).await?;
        let path = DocumentPath { id };
        let include_embed = call.query.include_embed;
        let document = Call { meta: Meta::default(), path, query: EmbedQuery { include_embed }, body: Nothing {} };
        let document = Handle::<ops::read_document>::handle(self, caller, document).await?.value()?;
        let frontier = self.frontier(caller, id).await?;
        let query = PageQuery { limit: Some(NODES), include_embed, ..PageQuery::default() };
        let nodes = Call { meta: Meta::default(), path, query, body: Nothing {} };
        let page = Handle::<ops::list_subtree>::handle(self, caller, nodes).await?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let attempts = store::evidence::attempts(&mut conn, DocumentId(id)).await.or_fail()?;
        Ok(IngestedTree {
            document_id: id,
            was_existing: stored.was_existing,
            linked_into_parent: stored.linked_into_parent,
            document,
            nodes: page.documents,
            next_cursor: page.next_cursor,
            frontier,
            attempts: caller.told(attempts),
        })
    }
}

impl Handle<ops::create_conversation> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::create_conversation>,
    ) -> Result<ConversationResponse, Failure> {
        let (query, new) = (call.query, call.body.0);
        let waiting = query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let intake = self.intake();
        Requested::read(new.options.clone(), intake.types.groups())?;
        let turns = conversation(&new).await?;
        let mut speakers: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for turn in &turns {
            let speaker = turn.speaker.trim();
            if speakers.len() < SPEAKERS && seen.insert(speaker) {
                speakers.push(speaker.to_owned());
            }
        }
        let count = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let NewConversation { title, parent_id, private, event_time, options, .. } = new;
        let entry = NewIngestion::of(Entry::Conversation);
        let ingestion = NewIngestion { turns: Some(turns), title, parent_id, private, event_time, options, ..entry };
        let stored = entries::ingest(self, intake, caller, ingestion).await?;
        let id = stored.document_id;
        if let Some(waiting) = waiting {
            waiting.until(self.drained(caller, id)).await?;
        }
        let caller = &caller.again(&self.pool).await?;
        let path = DocumentPath { id };
        let shown = EmbedQuery { include_embed: query.include_embed };
        let document = Call { meta: Meta::default(), path, query: shown, body: Nothing {} };
        let document = Handle::<ops::read_document>::handle(self, caller, document).await?.value()?;
        let query = PageQuery { limit: Some(NODES), include_embed: query.include_embed, ..PageQuery::default() };
        let mut conn = self.pool.acquire().await.or_fail()?;
        let turns = store::documents::turns(&mut conn, &caller.readable(), DocumentId(id), NODES).await.or_fail()?;
        let sections = page(self, &mut conn, caller, &query, turns, |last| last.id.to_string()).await?;
        Ok(ConversationResponse {
            document_id: id,
            title: document.title,
            settled: document.settled,
            turns: count,
            speakers,
            was_existing: stored.was_existing,
            linked_into_parent: stored.linked_into_parent,
            sections: sections.documents,
        })
    }
}

/// The turns of a new conversation, in whichever form they came.
async fn conversation(new: &NewConversation) -> Result<Vec<Turn>, Failure> {
    let given = [new.turns.is_some(), new.messages.is_some(), new.content.is_some()];
    if given.iter().filter(|given| **given).count() != 1 {
        return Err(Failure::field("turns", "exactly one of `turns`, `messages` and `content` is needed"));
    }
    if let Some(turns) = &new.turns {
        return Ok(turns.clone());
    }
    if let Some(messages) = &new.messages {
        return exports::of_messages(messages);
    }
    let (content, event_time) = (new.content.clone().unwrap_or_default(), new.event_time);
    let read = tokio::task::spawn_blocking(move || exports::turns(&content, event_time));
    read.await.map_err(|error| Failure::new(Code::Internal, error))?.unwrap_or_else(|| {
        Err(Failure::field(
            "content",
            "has none of the forms that are known: messages in JSON or JSON lines, WebVTT, SubRip",
        )
        .with("remedy", "give the conversation as `turns`, or its text in Markdown by POST /ingest"))
    })
}

impl Service {
    async fn frontier(&self, caller: &Caller, id: i64) -> Result<FrontierResponse, Failure> {
        let call = Call { meta: Meta::default(), path: DocumentPath { id }, query: Nothing {}, body: Nothing {} };
        Handle::<ops::read_frontier>::handle(self, caller, call).await
    }

    /// Waits until no work is left under a file. The work goes on if the wait is given up, and the failure tells the caller of what it may
    /// read.
    async fn drained(&self, caller: &Caller, id: i64) -> Result<(), Failure> {
        let deadline = Instant::now() + self.settings.ingest_wait;
        let mut pause = SOONEST;
        loop {
            // The parts that the caller may not read are waited for too.
            let frontier = self.frontier(&Caller::Owner, id).await?;
            if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 {
                return Ok(());
            }
            if Instant::now() + pause > deadline {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.ending.cancelled() => break,
            }
            pause = pause.mul_f32(1.5).min(LATEST);
        }
        // Since the file was stored its caller may read a private one, or no longer another one.
        let caller = caller.again(&self.pool).await?;
        Err(unfinished(&self.frontier(&caller, id).await?))
    }
}

/// 503 for a document that is stored and not ingested yet; it says what its tasks wait for.
fn unfinished(frontier: &FrontierResponse) -> Failure {
    let id = frontier.document_id;
    let waits: Vec<_> = frontier.blocked_by.iter().map(|(reason, tasks)| format!("{tasks} by {reason}")).collect();
    let waits = if waits.is_empty() { String::new() } else { format!("; tasks blocked: {}", waits.join(", ")) };
    let detail = format!("document {id} is stored, and its ingestion goes on{waits}");
    let route = format!("/ingest/file/{id}/frontier");
    Failure::new(Code::Unavailable, detail)
        .with("document_id", id)
        .with("blocked_by", serde_json::to_value(&frontier.blocked_by).unwrap_or_default())
        .with("setting", "SVC_INGEST_WAIT_SECONDS")
        .with("remedy", format!("follow GET {route} to its end, then read GET /documents/{id}/subtree"))
        .with("frontier", route)
}
