//! The wait for an ingestion, of which a client is told how far it is.
use super::door::Telling;
use futures_util::StreamExt;
use serde_json::{Value, json};
use svc_client::{
    Client, Code, Failure, Operation, Remote, Untyped, ops,
    wire::{DocumentPath, EmbedQuery, FrontierResponse, PageQuery},
};

pub const NAME: &str = "ingest";
/// The most nodes of an answer, as of the operation.
const NODES: u32 = 1000;
/// The record of a document that the operation shows beside the others.
const ATTEMPTS: &str = "attempts";

/// Ingests as the operation `ingest` does. Where somebody wants to know how far it is, the operation itself does not wait.
pub async fn call(calls: &Remote, mut call: Untyped, telling: &Telling) -> Result<Value, Failure> {
    let info = &<ops::ingest as Operation>::INFO;
    if !telling.is_wanted() || call.query.iter().any(|(name, _)| name == "wait") {
        return calls.call(info, call).await;
    }
    call.query.push(("wait".to_owned(), "false".to_owned()));
    let mut tree = calls.call(info, call).await?;
    let id = tree["document_id"].as_i64().unwrap_or_default();
    watch(calls, id, telling, &mut tree).await.map_err(|failure| stored(failure, id))?;
    Ok(tree)
}

/// Follows an ingestion to its end, and puts what became of it into what was answered when it began.
async fn watch(calls: &Remote, id: i64, telling: &Telling, tree: &mut Value) -> Result<(), Failure> {
    let frontier = followed(calls, id, telling).await?;
    // What was stored is known, and what became of it is read again.
    let (client, path) = (Client(calls.clone()), DocumentPath { id });
    let document = client.read_document(path, EmbedQuery::default()).await?.value()?;
    let nodes = client.list_subtree(path, PageQuery { limit: Some(NODES), ..PageQuery::default() }).await?;
    let evidence = client.read_evidence(path).await?.evidence;
    tree["document"] = json!(document);
    tree["nodes"] = json!(nodes.documents);
    tree["next_cursor"] = json!(nodes.next_cursor);
    tree["frontier"] = json!(frontier);
    tree[ATTEMPTS] = evidence.get(ATTEMPTS).cloned().unwrap_or_else(|| json!([]));
    Ok(())
}

/// Follows an ingestion to its end and tells how far it is. Whoever gives up the wait leaves the ingestion alone.
pub async fn follow(calls: &Remote, id: i64, telling: &Telling) -> Result<FrontierResponse, Failure> {
    followed(calls, id, telling).await.map_err(|failure| stored(failure, id))
}

/// Says of a failure that came after a file was stored where the file is.
fn stored(failure: Failure, id: i64) -> Failure {
    let detail = format!(
        "{}; the file was stored as document {id}, and the tool read_frontier tells how far it is",
        failure.detail
    );
    Failure { detail, ..failure }
}

async fn followed(calls: &Remote, id: i64, telling: &Telling) -> Result<FrontierResponse, Failure> {
    let mut events = Client(calls.clone()).follow_frontier(DocumentPath { id }).await?;
    while let Some(event) = events.next().await {
        let event = event?;
        telling.frontier(&event.data).await;
        if event.name == "end" {
            return Ok(event.data);
        }
    }
    Err(Failure::new(Code::Unavailable, format!("the progress of document {id} is told no longer")))
}
