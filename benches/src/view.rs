//! What a view costs: of a chunk, of a file of 300 pages, and of a document with many children; in process, and as a client of HTTP gets it.
use crate::{
    figure::{BoxError, Figure, median},
    sandbox::with_app,
    uploads,
};
use serde_json::json;
use sqlx::PgPool;
use std::time::Instant;
use svc::{access::Caller, app::App, registry::InProcess};
use svc_client::{
    Client, Json, Transport, ops,
    wire::{DocumentPath, WaitQuery},
};

/// The sections of the long file, each as long as a page.
const PAGES: usize = 300;
/// How often each thing is viewed.
const ROUNDS: usize = 50;

pub async fn run(children: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, children, out).await).await
}

async fn measure(app: &App, children: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let (client, pool) = (uploads::client(&format!("http://{}", app.address))?, &app.service.pool);
    let sentence = "The heron waits by the water, and the logger notes the height of the tide once a minute. ";
    let page = |number: usize| format!("# Page {number}\n\n{}\n\n{}\n", sentence.repeat(18), sentence.repeat(17));
    let book = ("book.md".to_owned(), (1..=PAGES).map(page).collect::<String>());
    uploads::ingest(&client, std::iter::once(book)).await?;
    let file: i64 = sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'file'").fetch_one(pool).await?;
    let leaf = "SELECT id FROM documents WHERE usetype = 'chunk' ORDER BY id OFFSET 100 LIMIT 1";
    let chunk: i64 = sqlx::query_scalar(leaf).fetch_one(pool).await?;
    let top = serde_json::from_value(json!({"title": "Many", "content": ""}))?;
    let many = client.create_document(WaitQuery::default(), Json(top)).await?.document.id;
    fill(pool, many, children).await?;
    let near = Client(InProcess { service: app.service.clone(), caller: Caller::Owner });
    for (name, id, n) in [("chunk", chunk, 1), ("file", file, PAGES), ("children", many, children)] {
        for (way, mut times) in [("in_process", times(&near, id).await?), ("http", times(&client, id).await?)] {
            let slowest = times.iter().copied().fold(0.0, f64::max);
            out(Figure::alone(&format!("view/{name}/{way}"), n, "ms", median(&mut times)));
            out(Figure::alone(&format!("view/{name}/{way}/slowest"), n, "ms", slowest));
        }
    }
    Ok(())
}

/// The milliseconds of each view.
async fn times<T: Transport<ops::view_document>>(client: &Client<T>, id: i64) -> Result<Vec<f64>, BoxError> {
    // The first one warms caches.
    client.view_document(DocumentPath { id }).await?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        client.view_document(DocumentPath { id }).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Stores children, as an import does.
async fn fill(pool: &PgPool, parent: i64, children: usize) -> Result<(), BoxError> {
    sqlx::query(
        "INSERT INTO documents (parent_id, path, title, content, usetype, position, content_hash, guard)
         SELECT $1, ARRAY[$1], 'Note ' || n, 'The heron waits by the water of pond ' || n, 'markdown', n, 'sha256:' || md5(n::text), 0
           FROM generate_series(0, $2 - 1) n",
    )
    .bind(parent)
    .bind(i32::try_from(children)?)
    .execute(pool)
    .await?;
    sqlx::raw_sql("VACUUM (ANALYZE) documents").execute(pool).await?;
    Ok(())
}
