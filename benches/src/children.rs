//! Many children of one document: what a page of them, a change of one, and the move, the protection and the delete of all cost, and whether that grows with what
//! the store has elsewhere, or with the number of siblings.
use crate::{
    figure::{BoxError, Figure, median},
    sandbox::with_app,
    uploads,
};
use serde_json::{Value, json};
use sqlx::PgPool;
use std::time::{Duration, Instant};
use svc::app::App;
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPage, DocumentPath, PageQuery, TaskTypePath, WaitQuery},
};

/// The rows of a page.
const ROWS: u32 = 100;
/// How often each thing is done; its figure is the median.
const ROUNDS: usize = 15;
/// The documents of the subtree that moves, and those under each document elsewhere.
const SUBTREE: usize = 1_000;
/// The fewest nodes with which there are children enough for every round.
const LEAST: usize = 5_000;
/// A statement may take as long as it takes: the figure says how long.
const PATIENCE: Duration = Duration::from_secs(3_600);

pub async fn run(nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    if nodes < LEAST {
        return Err(format!("the size is {nodes}; this bench takes at least {LEAST} nodes").into());
    }
    let patient = |settings: &mut svc::settings::Settings| {
        settings.statement_timeout = PATIENCE;
        settings.request_timeout = PATIENCE;
    };
    with_app(patient, async |app: &App| measure(app, nodes, out).await).await
}

/// The name of what was done, with its milliseconds.
type Times = Vec<(&'static str, f64)>;

async fn measure(app: &App, nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let (client, pool) = (uploads::client(&format!("http://{}", app.address))?, &app.service.pool);
    // What changes queue would otherwise be done meanwhile.
    client.pause_task_type(TaskTypePath { task_type: "embed".to_owned() }).await?;
    let few = nodes / 2;
    fill_elsewhere(pool, &client, few).await?;
    let base = stage(pool, &client, nodes).await?;
    for (name, time) in &base {
        out(Figure::alone(&format!("children/{name}"), nodes, "ms", *time));
    }
    fill_elsewhere(pool, &client, 9 * few).await?;
    let full = stage(pool, &client, nodes).await?;
    for ((name, before), (_, time)) in base.iter().zip(&full) {
        out(Figure::alone(&format!("children/{name}/ten_times_elsewhere"), nodes, "ms", *time));
        out(Figure::alone(&format!("children/{name}/by_store"), nodes, "times", time / before));
    }
    let fewer = stage(pool, &client, nodes / 10).await?;
    for ((name, time), (_, tenth)) in full.iter().zip(&fewer) {
        out(Figure::alone(&format!("children/{name}/a_tenth"), nodes / 10, "ms", *tenth));
        out(Figure::alone(&format!("children/{name}/by_siblings"), nodes, "times", time / tenth));
    }
    Ok(())
}

async fn create(client: &Client<Remote>, fields: Value) -> Result<i64, BoxError> {
    let new = serde_json::from_value(fields)?;
    Ok(client.create_document(WaitQuery::default(), Json(new)).await?.document.id)
}

async fn fill_elsewhere(pool: &PgPool, client: &Client<Remote>, nodes: usize) -> Result<(), BoxError> {
    let top = create(client, json!({"title": "Elsewhere", "content": ""})).await?;
    for from in (0..nodes).step_by(SUBTREE) {
        let parent = create(client, json!({"title": "Folder", "content": "", "parent_id": top})).await?;
        fill(pool, parent, &[top, parent], SUBTREE.min(nodes - from)).await?;
        // As in a file whose every tenth node is a section.
        sqlx::query(
            "INSERT INTO ingest_node (document_id, parent_id, root_id, open_tasks, open_children, tokens)
             SELECT id, nullif($1, id), $1, 0, 0, 0 FROM documents WHERE id = $1 OR (parent_id = $1 AND position % 10 = 0)",
        )
        .bind(parent)
        .execute(pool)
        .await?;
        // A store with rights has many guards, of which most have few documents, and one that most documents have.
        if (from / SUBTREE).is_multiple_of(2) {
            client.protect_document(DocumentPath { id: parent }).await?;
        }
    }
    sqlx::raw_sql("VACUUM (ANALYZE) ingest_node").execute(pool).await?;
    eprintln!("bench: {nodes} more nodes elsewhere");
    Ok(())
}

/// Stores children with words, as an import does.
async fn fill(pool: &PgPool, parent: i64, path: &[i64], nodes: usize) -> Result<(), BoxError> {
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (parent_id, path, title, content, usetype, position, content_hash, guard)
             SELECT $1, $2, 'Note ' || n, 'The heron waits by the water of pond ' || n, 'markdown', n, 'sha256:' || md5(n::text), 0
               FROM generate_series(0, $3 - 1) n RETURNING id, title, content)
         INSERT INTO document_words SELECT id, to_tsvector('english', title || E'\\n' || content) FROM made",
    )
    .bind(parent)
    .bind(path)
    .bind(i32::try_from(nodes)?)
    .execute(pool)
    .await?;
    Ok(())
}

/// Fills a document with children, measures, and deletes it.
async fn stage(pool: &PgPool, client: &Client<Remote>, nodes: usize) -> Result<Times, BoxError> {
    let parent = create(client, json!({"title": "Parent", "content": ""})).await?;
    let other = create(client, json!({"title": "Another", "content": ""})).await?;
    fill(pool, parent, &[parent], nodes).await?;
    let subtree =
        create(client, json!({"title": "Subtree", "content": "", "parent_id": parent, "position": 5})).await?;
    fill(pool, subtree, &[parent, subtree], SUBTREE).await?;
    sqlx::raw_sql("VACUUM (ANALYZE) documents, document_words").execute(pool).await?;
    eprintln!("bench: {nodes} children");
    let mut times = Times::new();
    pages(client, parent, false, &mut times).await?;
    pages(client, parent, true, &mut times).await?;
    let children: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM documents WHERE parent_id = $1 ORDER BY position OFFSET $2 LIMIT $3")
            .bind(parent)
            .bind(i64::try_from(nodes / 2)?)
            .bind(i64::try_from(5 * ROUNDS)?)
            .fetch_all(pool)
            .await?;
    let mut children = children.into_iter();
    let mut child = || children.next().ok_or("the document has too few children");
    let mut add = |name, measured: &mut Vec<f64>| times.push((name, median(measured)));
    let mut measured = Vec::new();
    for round in 0..ROUNDS {
        measured.push(patch(client, child()?, json!({"title": format!("Changed {round}")})).await?);
    }
    add("patch", &mut measured);
    let mut measured = Vec::new();
    for round in 0..ROUNDS {
        measured.push(patch(client, child()?, json!({"position": nodes / 2 + round})).await?);
    }
    add("place", &mut measured);
    let mut measured = Vec::new();
    for _ in 0..ROUNDS {
        measured.push(patch(client, child()?, json!({"parent_id": other})).await?);
    }
    add("move_one", &mut measured);
    let mut measured = Vec::new();
    for round in 0..ROUNDS {
        let to = if round % 2 == 0 { other } else { parent };
        measured.push(patch(client, subtree, json!({"parent_id": to})).await?);
    }
    add("move_1000", &mut measured);
    let mut measured = Vec::new();
    for round in 0..ROUNDS {
        let new = json!({"title": "First", "content": "The first.", "parent_id": parent, "position": -1 - i32::try_from(round)?});
        let start = Instant::now();
        create(client, new).await?;
        measured.push(milliseconds(start));
    }
    add("insert_first", &mut measured);
    let mut measured = Vec::new();
    for _ in 0..ROUNDS {
        let path = DocumentPath { id: child()? };
        let start = Instant::now();
        client.protect_document(path).await?;
        measured.push(milliseconds(start));
    }
    add("protect_one", &mut measured);
    let mut measured = Vec::new();
    for _ in 0..ROUNDS {
        measured.push(delete(client, child()?).await?);
    }
    add("delete_one", &mut measured);
    // All of them go under another document and come back, get an access root above them, and lose it.
    let there = patch(client, parent, json!({"parent_id": other})).await?;
    let back = patch(client, parent, json!({"parent_id": null})).await?;
    times.push(("move_all", f64::midpoint(there, back)));
    let start = Instant::now();
    client.protect_document(DocumentPath { id: parent }).await?;
    times.push(("protect_all", milliseconds(start)));
    let start = Instant::now();
    client.unprotect_document(DocumentPath { id: parent }).await?;
    times.push(("unprotect_all", milliseconds(start)));
    let whole = delete(client, parent).await?;
    times.push(("delete_all", whole));
    delete(client, other).await?;
    Ok(times)
}

/// The first, the middle and the last page of the children, or of everything under the document.
async fn pages(client: &Client<Remote>, id: i64, is_subtree: bool, times: &mut Times) -> Result<(), BoxError> {
    let names = match is_subtree {
        true => ["subtree/first_page", "subtree/middle_page", "subtree/last_page"],
        false => ["first_page", "middle_page", "last_page"],
    };
    let mut cursors = vec![None];
    loop {
        let page = list(client, id, is_subtree, cursors.last().cloned().flatten(), 1_000).await?;
        match page.next_cursor {
            None => break,
            next => cursors.push(next),
        }
    }
    for (name, at) in names.into_iter().zip([0, cursors.len() / 2, cursors.len() - 1]) {
        let mut measured = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            list(client, id, is_subtree, cursors[at].clone(), ROWS).await?;
            measured.push(milliseconds(start));
        }
        times.push((name, median(&mut measured)));
    }
    Ok(())
}

async fn list(
    client: &Client<Remote>,
    id: i64,
    is_subtree: bool,
    cursor: Option<String>,
    rows: u32,
) -> Result<DocumentPage, BoxError> {
    let (path, query) = (DocumentPath { id }, PageQuery { cursor, limit: Some(rows), ..PageQuery::default() });
    Ok(match is_subtree {
        true => client.list_subtree(path, query).await?,
        false => client.list_children(path, query).await?,
    })
}

/// The milliseconds that a change takes.
async fn patch(client: &Client<Remote>, id: i64, fields: Value) -> Result<f64, BoxError> {
    let change = serde_json::from_value(fields)?;
    let start = Instant::now();
    client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await?;
    Ok(milliseconds(start))
}

/// The milliseconds that a delete takes.
async fn delete(client: &Client<Remote>, id: i64) -> Result<f64, BoxError> {
    let start = Instant::now();
    client.delete_document(DocumentPath { id }).await?;
    Ok(milliseconds(start))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
