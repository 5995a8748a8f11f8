//! Events: how long one takes from its commit to its reader, and what they cost ingestion.
use crate::{
    figure::{BoxError, Figure, Peer, median},
    markdown,
    sandbox::with_app,
    uploads,
};
use futures_util::StreamExt;
use serde_json::json;
use sqlx::PgPool;
use std::time::{Duration, Instant};
use svc::{
    app::App,
    store::{events, transaction},
};
use svc_client::{
    Client, Remote,
    wire::{EventKind, EventQuery},
};
use svc_ids::DocumentId;

/// Commits whose way to a reader is measured.
const COMMITS: usize = 400;
/// How many write at once.
const WRITERS: usize = 8;
/// Rounds of ingestion, each once with events and once without.
const ROUNDS: usize = 5;

pub async fn run(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, files, out).await).await
}

async fn measure(app: &App, files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let mut number = 0;
    // One round does not count: it warms up connections, statements and the model's threads.
    seconds_for(&client, &mut number, files).await?;
    let id: i64 = sqlx::query_scalar("SELECT max(id) FROM documents").fetch_one(&app.service.pool).await?;
    latency(&client, &app.service.pool, DocumentId(id), out).await?;

    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The order changes, because the store grows and the machine warms up.
        for told in [round % 2 == 0, round % 2 == 1] {
            drop_events(&app.service.pool, !told).await?;
            let seconds = seconds_for(&client, &mut number, files).await?;
            if told { &mut with } else { &mut without }.push(files as f64 / seconds);
        }
    }
    drop_events(&app.service.pool, false).await?;
    let peer = Peer {
        name: "the same service, whose database drops every event that it is given",
        version: svc_client::VERSION.into(),
        value: median(&mut without),
    };
    out(Figure::beside("events/ingest", files * ROUNDS, "files/s", median(&mut with), peer));
    Ok(())
}

/// The seconds to ingest small files, where events are the greatest share of the work.
async fn seconds_for(client: &Client<Remote>, number: &mut usize, files: usize) -> Result<f64, BoxError> {
    let first = *number;
    *number += files;
    let start = Instant::now();
    let file = |number| (format!("entry-{number}.md"), markdown::ledger(number, 2));
    uploads::ingest(client, (first..first + files).map(file)).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Has the database drop what is written to the outbox, or keep it again. The statements are still sent: they cost what one record
/// costs, which is a figure of its own.
async fn drop_events(pool: &PgPool, dropped: bool) -> Result<(), BoxError> {
    let sql = match dropped {
        true => {
            "CREATE OR REPLACE FUNCTION drop_event() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE OR REPLACE TRIGGER drop_events BEFORE INSERT ON event_outbox FOR EACH ROW EXECUTE FUNCTION drop_event()"
        }
        false => "DROP TRIGGER IF EXISTS drop_events ON event_outbox",
    };
    sqlx::raw_sql(sql).execute(pool).await?;
    Ok(())
}

async fn latency(
    client: &Client<Remote>,
    pool: &PgPool,
    id: DocumentId,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let kinds = Some("document.updated".to_owned());
    let query = EventQuery { kinds, since: Some("now".to_owned()), ..EventQuery::default() };
    let mut followed = client.follow_events(query).await?;
    let start = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let (mut commits, mut records) = (Vec::new(), Vec::new());
                for commit in 0..COMMITS / WRITERS {
                    let number = commit * WRITERS + writer;
                    let mut tx = transaction::begin(&pool).await?;
                    let begun = Instant::now();
                    let fields = json!({"fields": [number]});
                    events::record(&mut tx, EventKind::DocumentUpdated, &[id], &fields).await?;
                    records.push(begun.elapsed().as_secs_f64() * 1e6);
                    tx.commit().await?;
                    commits.push((number, start.elapsed()));
                    tokio::time::sleep(Duration::from_millis(37)).await;
                }
                Ok::<_, sqlx::Error>((commits, records))
            })
        })
        .collect();
    let mut seen = vec![Duration::ZERO; COMMITS];
    for _ in 0..COMMITS {
        let event = followed.next().await.ok_or("the stream ended")??;
        let number = event.data.data["fields"][0].as_u64().ok_or("an event without its number")?;
        seen[usize::try_from(number)?] = start.elapsed();
    }
    let (mut waits, mut records) = (Vec::new(), Vec::new());
    for writer in writers {
        let (commits, took) = writer.await??;
        waits.extend(commits.into_iter().map(|(number, at)| seen[number].saturating_sub(at).as_secs_f64() * 1e3));
        records.extend(took);
    }
    waits.sort_unstable_by(f64::total_cmp);
    out(Figure::alone("events/latency_p95", waits.len(), "ms", waits[waits.len() * 95 / 100]));
    out(Figure::alone("events/latency_median", waits.len(), "ms", median(&mut waits)));
    out(Figure::alone("events/record", records.len(), "us", median(&mut records)));
    Ok(())
}
