//! Uploads files to a service over HTTP and follows them to their end.
use crate::{figure::BoxError, sandbox::TOKEN};
use futures_util::{StreamExt, TryStreamExt};
use std::time::Duration;
use svc_client::{
    Client, FileUpload, Remote,
    wire::{DocumentPath, Settled, UploadQuery},
};

/// How many uploads run at once.
const AT_ONCE: usize = 4;
/// The time between two looks at a file's frontier, short compared with any run worth measuring.
const LOOK: Duration = Duration::from_millis(50);

pub fn client(base: &str) -> Result<Client<Remote>, BoxError> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    Ok(Client(Remote::new(base, TOKEN, http)))
}

/// Stores the files, and returns the documents that they are.
pub async fn store(
    client: &Client<Remote>,
    files: impl Iterator<Item = (String, String)>,
) -> Result<Vec<i64>, BoxError> {
    let uploads = files.map(|(name, text)| async move {
        let stored = client.upload_file(UploadQuery::default(), FileUpload::from_bytes(&name, text, None)).await?;
        Ok::<i64, BoxError>(stored.document_id)
    });
    futures_util::stream::iter(uploads).buffered(AT_ONCE).try_collect().await
}

/// Stores the files and waits until everything under them has settled; returns the number of nodes.
pub async fn ingest(client: &Client<Remote>, files: impl Iterator<Item = (String, String)>) -> Result<usize, BoxError> {
    let ids = store(client, files).await?;
    let mut nodes = 0;
    for (done, &id) in ids.iter().enumerate() {
        nodes += settled(client, id).await?;
        if (done + 1) % 10 == 0 {
            eprintln!("bench: {} of {} files, {nodes} nodes", done + 1, ids.len());
        }
    }
    Ok(nodes)
}

/// Waits until a document and everything under it is settled; returns the number of nodes.
pub async fn settled(client: &Client<Remote>, id: i64) -> Result<usize, BoxError> {
    loop {
        let frontier = client.read_frontier(DocumentPath { id }).await?;
        if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 {
            if frontier.nodes_failed > 0 || frontier.settled != Settled::Settled {
                return Err(format!("document {id} did not settle: {frontier:?}").into());
            }
            return Ok(usize::try_from(frontier.nodes_total)?);
        }
        tokio::time::sleep(LOOK).await;
    }
}
