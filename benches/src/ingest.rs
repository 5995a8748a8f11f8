//! End to end: generated Markdown through the whole service, beside the bare encoder on the same chunks.
use crate::{
    figure::{BoxError, Figure, Peer},
    markdown,
    sandbox::with_app,
    uploads,
};
use std::time::Instant;
use svc::app::App;
use svc_models::Engine;

/// The texts in one call of the bare encoder: enough to sort by length, few enough to keep their vectors.
const TEXTS: usize = 4096;

pub async fn run(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, files, out).await).await
}

async fn measure(app: &App, files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let file = |number: usize| (format!("handbook-{number}.md"), markdown::handbook(number));
    // A file that does not count warms up connections, statements and the model's threads.
    uploads::ingest(&client, std::iter::once(file(0))).await?;
    let before: i64 = sqlx::query_scalar("SELECT max(id) FROM documents").fetch_one(&app.service.pool).await?;

    let start = Instant::now();
    let nodes = uploads::ingest(&client, (1..=files).map(file)).await?;
    let service_seconds = start.elapsed().as_secs_f64();

    let texts: Vec<String> =
        sqlx::query_scalar("SELECT content FROM documents WHERE usetype = 'chunk' AND id > $1 ORDER BY id")
            .bind(before)
            .fetch_all(&app.service.pool)
            .await?;
    // A task costs the same whatever it does, so their number tells where time goes.
    let tasks: Vec<(String, i64)> =
        sqlx::query_as("SELECT task_type, count(*) FROM task_attempts WHERE document_id > $1 GROUP BY 1 ORDER BY 1")
            .bind(before)
            .fetch_all(&app.service.pool)
            .await?;
    let engine =
        app.service.embedder.as_ref().and_then(svc::embedding::Embedder::engine).ok_or("the service has no model")?;
    let tokens = texts.iter().try_fold(0, |sum, text| Ok::<usize, BoxError>(sum + engine.count_tokens(text)?))?;
    out(Figure::alone("ingest/files", files, "files", files as f64));
    out(Figure::alone("ingest/nodes", files, "nodes", nodes as f64));
    for (name, count) in tasks {
        out(Figure::alone(&format!("ingest/tasks/{name}"), files, "tasks", count as f64));
    }

    let encoder_seconds = encode(engine, &texts).await?;
    let encoder =
        |value| Peer { name: "the bare encoder on the same chunks", version: svc_client::VERSION.into(), value };
    out(Figure::alone("ingest/end_to_end", nodes, "nodes/s", nodes as f64 / service_seconds));
    for (name, count, unit) in [("chunks", texts.len(), "chunks/s"), ("tokens", tokens, "tokens/s")] {
        let (ours, peer) = (count as f64 / service_seconds, encoder(count as f64 / encoder_seconds));
        out(Figure::beside(&format!("ingest/{name}"), count, unit, ours, peer));
    }
    Ok(())
}

/// The seconds that the model alone takes.
async fn encode(engine: &Engine, texts: &[String]) -> Result<f64, BoxError> {
    let start = Instant::now();
    for texts in texts.chunks(TEXTS) {
        engine.embed_documents(texts.to_vec()).await?;
    }
    Ok(start.elapsed().as_secs_f64())
}
