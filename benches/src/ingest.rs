//! End to end: generated Markdown, and short documents that are created one by one, through the whole service, beside the bare encoder on the same
//! texts; and what a query waits for the model while files are ingested. The encoder works between what the service does, so that a machine whose
//! speed changes meets both sides.
use crate::{
    encoder::LONGEST_WAIT_MS,
    figure::{Bound, BoxError, Figure, Peer, median, p95},
    markdown::{self, Prose},
    sandbox::with_app,
    uploads,
};
use futures_util::{StreamExt, TryStreamExt};
use std::time::{Duration, Instant};
use svc::{
    app::App,
    search::{self, titles},
    store::nodes::{self, TextRow},
};
use svc_client::{
    Client, Json, Remote,
    wire::{NewDocument, WaitQuery},
};
use svc_ids::DocumentId;
use svc_models::Engine;

/// The texts in one call of the bare encoder: enough to sort by length, few enough to keep their vectors.
const TEXTS: usize = 4096;
/// How many times the files are ingested, other ones each time, with the encoder after each.
const ROUNDS: usize = 4;
/// The short documents, the words of each, and how many clients create them.
const DOCUMENTS: usize = 2000;
const WORDS: usize = 20;
const CLIENTS: usize = 16;
const TITLE: &str = "Note";
/// How many queries run while nothing else uses the model.
const ALONE: usize = 50;
/// The least share of the bare encoder's rate.
const GOAL: Bound = Bound::RatioAtLeast(0.9);
/// The time between two looks at the queue. Each takes time from what is measured, so they are few.
const LOOK: Duration = Duration::from_millis(50);

pub async fn run(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let of_files = async |app: &App| {
        measure(app, files, out).await?;
        beside(app, files, out).await
    };
    with_app(|_| {}, of_files).await?;
    // The clients create as fast as they can. The store holds nothing else, and so few vectors that none of the time goes to an index of them.
    with_app(|settings| settings.rate_writes = 0, async |app| short(app, out).await).await
}

async fn measure(app: &App, files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    // A file that does not count warms up connections, statements and the model's threads.
    uploads::ingest(&client, std::iter::once(file(0))).await?;
    let before = last_document(app).await?;

    let engine = engine(app)?;
    let (mut nodes, mut chunks, mut tokens) = (0, 0, 0);
    let (mut service_seconds, mut encoder_seconds) = (0.0, 0.0);
    for round in 0..ROUNDS {
        let before = last_document(app).await?;
        let start = Instant::now();
        let stored = uploads::store(&client, (1..=files).map(|number| file(round * files + number))).await?;
        drained(app).await?;
        service_seconds += start.elapsed().as_secs_f64();
        for id in stored {
            nodes += uploads::settled(&client, id).await?;
        }
        let texts = embedded_texts(app, before).await?;
        chunks += texts.len();
        tokens += texts.iter().try_fold(0, |sum, text| Ok::<usize, BoxError>(sum + engine.count_tokens(text)?))?;
        encoder_seconds += encode(engine, texts).await?;
    }
    // A task costs the same whatever it does, so their number tells where time goes.
    let tasks: Vec<(String, i64)> =
        sqlx::query_as("SELECT task_type, count(*) FROM task_attempts WHERE document_id > $1 GROUP BY 1 ORDER BY 1")
            .bind(before)
            .fetch_all(&app.service.pool)
            .await?;
    let files = ROUNDS * files;
    out(Figure::alone("ingest/files", files, "files", files as f64));
    out(Figure::alone("ingest/nodes", files, "nodes", nodes as f64));
    for (name, count) in tasks {
        out(Figure::alone(&format!("ingest/tasks/{name}"), files, "tasks", count as f64));
    }
    let encoder =
        |value| Peer { name: "the bare encoder on the same chunks", version: svc_client::VERSION.into(), value };
    out(Figure::alone("ingest/end_to_end", nodes, "nodes/s", nodes as f64 / service_seconds));
    for (name, count, unit) in [("chunks", chunks, "chunks/s"), ("tokens", tokens, "tokens/s")] {
        let (ours, peer) = (count as f64 / service_seconds, encoder(count as f64 / encoder_seconds));
        out(Figure::beside(&format!("ingest/{name}"), count, unit, ours, peer).meant_to_be(GOAL));
    }
    Ok(())
}

fn file(number: usize) -> (String, String) {
    (format!("handbook-{number}.md"), markdown::handbook(number))
}

/// Queries one after the other, while as many other files are ingested.
async fn beside(app: &App, files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let (engine, mut prose) = (engine(app)?, Prose::new(2));
    let mut alone = Vec::with_capacity(ALONE);
    for _ in 0..ALONE {
        alone.push(embed(engine, prose.words(7)).await?);
    }
    let mut ingested = std::pin::pin!(uploads::ingest(&client, (ROUNDS * files + 1..=(ROUNDS + 1) * files).map(file)));
    let mut waits = Vec::new();
    loop {
        tokio::select! {
            nodes = &mut ingested => {
                nodes?;
                break;
            }
            seconds = embed(engine, prose.words(7)) => waits.push(seconds?),
        }
    }
    let (alone, count) = (median(&mut alone), waits.len());
    let mut tell = |what: &str, seconds: f64| {
        let name = format!("ingest/beside/{what}");
        let figure = Figure::alone(&name, count, "ms", (seconds - alone).max(0.0) * 1e3);
        out(figure.meant_to_be(Bound::OursAtMost(LONGEST_WAIT_MS)));
    };
    tell("95% of the queries wait at most", p95(&mut waits));
    tell("longest wait of a query", waits.last().copied().unwrap_or(f64::NAN));
    Ok(())
}

/// The seconds that a query takes.
async fn embed(engine: &Engine, query: String) -> Result<f64, BoxError> {
    let start = Instant::now();
    engine.embed_query(query).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Short documents from the first call that creates one until all of them can be found.
async fn short(app: &App, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let mut prose = Prose::new(1);
    let mut texts = |count: usize| (0..count).map(|_| prose.words(WORDS)).collect::<Vec<_>>();
    create(app, &client, texts(CLIENTS)).await?;
    let before = last_document(app).await?;

    let (engine, texts) = (engine(app)?, texts(DOCUMENTS));
    // The service embeds the title too.
    let half = |texts: &[String]| texts.iter().map(|text| format!("{TITLE}\n{text}")).collect();
    let (first, last) = texts.split_at(DOCUMENTS / 2);
    let mut encoder_seconds = encode(engine, half(first)).await?;
    let service_seconds = create(app, &client, texts.clone()).await?;
    encoder_seconds += encode(engine, half(last)).await?;
    // What shares a transaction was written at one moment.
    let written: i64 =
        sqlx::query_scalar("SELECT count(DISTINCT v.xmin::text) FROM document_vectors v WHERE v.document_id > $1")
            .bind(before)
            .fetch_one(&app.service.pool)
            .await?;
    let count = DOCUMENTS as f64;
    let encoder = Peer {
        name: "the bare encoder on the same texts",
        version: svc_client::VERSION.into(),
        value: count / encoder_seconds,
    };
    out(Figure::alone("ingest/short/transactions", DOCUMENTS, "transactions", written as f64));
    out(Figure::beside("ingest/short/documents", DOCUMENTS, "documents/s", count / service_seconds, encoder)
        .meant_to_be(GOAL));
    Ok(())
}

/// The seconds until all of these documents are created, a call each, and can be found.
async fn create(app: &App, client: &Client<Remote>, texts: Vec<String>) -> Result<f64, BoxError> {
    let start = Instant::now();
    let calls = texts.into_iter().map(|content| async move {
        let new = NewDocument { title: TITLE.to_owned(), content, ..NewDocument::default() };
        client.create_document(WaitQuery::default(), Json(new)).await?;
        Ok::<_, BoxError>(())
    });
    futures_util::stream::iter(calls).buffer_unordered(CLIENTS).try_collect::<Vec<()>>().await?;
    drained(app).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Waits until nothing is to be done and nothing waits to settle.
async fn drained(app: &App) -> Result<(), BoxError> {
    loop {
        let waits: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM task_queue WHERE NOT final) OR EXISTS (SELECT 1 FROM documents WHERE settled = 'in_flight')",
        )
        .fetch_one(&app.service.pool)
        .await?;
        if !waits {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn last_document(app: &App) -> Result<i64, BoxError> {
    Ok(sqlx::query_scalar("SELECT max(id) FROM documents").fetch_one(&app.service.pool).await?)
}

fn engine(app: &App) -> Result<&Engine, BoxError> {
    let engine = app.service.embedder.as_ref().and_then(svc::embedding::Embedder::engine);
    engine.ok_or_else(|| "the service has no model".into())
}

/// The texts that the service embedded of the chunks after a document: the titles above a chunk are before it.
async fn embedded_texts(app: &App, after: i64) -> Result<Vec<String>, BoxError> {
    let chunks: Vec<DocumentId> =
        sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'chunk' AND id > $1 ORDER BY id")
            .bind(after)
            .fetch_all(&app.service.pool)
            .await?;
    let rows = nodes::texts(&mut *app.service.pool.acquire().await?, &chunks).await?;
    let of = |row: &TextRow| titles::join(titles::before(row), &search::text(&row.usetype, &row.title, &row.content));
    Ok(rows.iter().map(of).collect())
}

/// The seconds that the model alone takes.
async fn encode(engine: &Engine, texts: Vec<String>) -> Result<f64, BoxError> {
    let start = Instant::now();
    for texts in texts.chunks(TEXTS) {
        engine.embed_documents(texts.to_vec()).await?;
    }
    Ok(start.elapsed().as_secs_f64())
}
