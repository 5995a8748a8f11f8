//! Documents of 200 words, stored in batches until they can be found, beside the bare encoder on the same texts.
use crate::{
    figure::{BoxError, Figure, Peer},
    markdown::Prose,
    sandbox::with_app,
    uploads,
};
use std::time::{Duration, Instant};
use svc::{
    app::App,
    store::{reindex, vectors::FEW},
};
use svc_client::{
    Client, Json, Remote,
    wire::{BatchItem, NewBatch, VectorSearch},
};
use svc_models::Engine;

/// The documents of one call. Those of the next call are stored while these are embedded.
const CALL: usize = 100;
const WORDS: usize = 200;
/// The time between two looks at the queue.
const LOOK: Duration = Duration::from_millis(10);

pub async fn run(documents: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, documents, out).await).await
}

async fn measure(app: &App, documents: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let engine =
        app.service.embedder.as_ref().and_then(svc::embedding::Embedder::engine).ok_or("the service has no model")?;
    // A round that does not count warms up connections, statements and the model's threads.
    let warm = texts(0, 64);
    encode(engine, &warm).await?;
    store(app, &client, warm).await?;
    // The encoder works before and after, with half of the texts each time, so that a machine whose speed changes meets both sides.
    let texts = texts(1, documents);
    let (before, after) = texts.split_at(documents / 2);
    let mut encoding = encode(engine, before).await?;
    let storing = store(app, &client, texts.clone()).await?;
    // What is left of the build of the index of the vectors is not the encoder's.
    while !reindex::without_index(&mut *app.service.pool.acquire().await?, FEW).await?.is_empty() {
        tokio::time::sleep(LOOK).await;
    }
    encoding += encode(engine, after).await?;
    let found = client.search_vector(Json(VectorSearch::new("an old bridge over the river"))).await?;
    if found.scope_state.in_flight != 0 || found.scope_state.failed != 0 {
        return Err(format!("not all documents can be found: {:?}", found.scope_state).into());
    }
    let count = documents as f64;
    let encoder = Peer { name: "the bare encoder", version: svc_client::VERSION.into(), value: count / encoding };
    out(Figure::beside("batch/stored_and_found", documents, "documents/s", count / storing, encoder));
    Ok(())
}

fn texts(seed: usize, count: usize) -> Vec<String> {
    let mut prose = Prose::new(seed as u64);
    (0..count).map(|_| prose.words(WORDS)).collect()
}

/// The seconds that the model alone takes. The service embeds the title too, so the text here is the same.
async fn encode(engine: &Engine, texts: &[String]) -> Result<f64, BoxError> {
    let texts = texts.iter().map(|text| format!("Note\n{text}")).collect();
    let start = Instant::now();
    engine.embed_documents(texts).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// The seconds until the documents are stored and can be found.
async fn store(app: &App, client: &Client<Remote>, texts: Vec<String>) -> Result<f64, BoxError> {
    let item = |content| BatchItem { title: "Note".to_owned(), content, ..BatchItem::default() };
    let documents: Vec<BatchItem> = texts.into_iter().map(item).collect();
    let start = Instant::now();
    for documents in documents.chunks(CALL) {
        client.create_documents(Json(NewBatch { documents: documents.to_vec(), priority: 0 })).await?;
    }
    loop {
        let waits: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM task_queue WHERE NOT final)")
            .fetch_one(&app.service.pool)
            .await?;
        if !waits {
            return Ok(start.elapsed().as_secs_f64());
        }
        tokio::time::sleep(LOOK).await;
    }
}
