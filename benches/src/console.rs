//! The operator's console beside a long queue: how long its pages take and how large they are, and what its viewers cost the database and
//! those who claim tasks.
use crate::{
    figure::{BoxError, Figure, median},
    markdown::Prose,
    queue::{claimer_named, peers},
    sandbox::{TOKEN, with_app},
    uploads,
};
use futures_util::StreamExt;
use reqwest::{Client, RequestBuilder, Response, header, redirect};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool};
use std::time::{Duration, Instant};
use svc::{
    app::App,
    settings::Settings,
    store::{
        tasks,
        workers::{self, WorkerRow},
    },
};
use svc_actors::Lane;
use svc_client::{
    FileUpload,
    wire::{DocumentPath, UploadQuery},
};
use tokio::task::JoinSet;

/// The pages of an operator.
const PAGES: [&str; 8] = ["/", "/actors", "/regions", "/tasks", "/failed", "/documents", "/workers", "/feed"];
/// How often each page is read. No two readings have the same address, so that none is shown again.
const READINGS: usize = 40;
const WORKERS: usize = 20;
/// The actors that the snapshot of a worker shows.
const ACTORS: usize = 500;
/// The regions that are held.
const HELD: usize = 640;
/// The tasks of a file.
const TASKS_OF_FILE: usize = 50;
/// How many turns of claims there are with viewers and without, and those who look. A turn is longer than any live page rests.
const TURNS: usize = 4;
/// How many tasks are held at once.
const SLOTS: usize = 50;
const VIEWERS: usize = 5;
/// Those whose cost is compared with that of one.
const CROWD: usize = 50;
/// How long a turn lasts.
const WATCHED: Duration = Duration::from_secs(20);
/// The files whose tasks are looked for, and what makes each of them last.
const FILES: usize = 10;
const WORDS: usize = 100_000;
const LOOK: Duration = Duration::from_millis(50);
/// The sampler has looked by then.
const WARM: Duration = Duration::from_secs(5);

pub async fn run(tasks: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| seen(app, out).await).await?;
    let alone = |settings: &mut Settings| settings.ingest_worker_enabled = false;
    with_app(alone, async |app: &App| measure(app, tasks, out).await).await
}

/// How soon the tree of actors shows the tasks of a file, after the file was accepted.
async fn seen(app: &App, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let page = Page::sign_in(app).await?;
    let _looking = page.viewers(1);
    tokio::time::sleep(WARM).await;
    let mut times = Vec::new();
    for number in 0..FILES {
        let (name, text) = (format!("seen-{number}.md"), Prose::new(number as u64).words(WORDS));
        let id =
            client.upload_file(UploadQuery::default(), FileUpload::from_bytes(&name, text, None)).await?.document_id;
        let begun = Instant::now();
        while !page.read(&format!("/actors?reading={}", begun.elapsed().as_nanos())).await?.contains(&name) {
            if begun.elapsed() > WATCHED {
                return Err(format!("{name} is not seen at work").into());
            }
            tokio::time::sleep(LOOK).await;
        }
        times.push(begun.elapsed().as_secs_f64());
        client.cancel_ingest(DocumentPath { id }).await?;
        while client.read_frontier(DocumentPath { id }).await?.tasks_unfinished > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    out(Figure::alone("console/actors/seen", FILES, "s", median(&mut times)));
    out(Figure::alone("console/actors/seen:worst", FILES, "s", times[FILES - 1]));
    Ok(())
}

async fn measure(app: &App, count: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let pool = &app.service.pool;
    fill(pool, count).await?;
    let page = Page::sign_in(app).await?;
    page.read("/").await?;
    tokio::time::sleep(WARM).await;
    for path in PAGES {
        let (mut times, mut bytes, mut rows) = (Vec::new(), 0, 0);
        for number in 0..READINGS {
            let begun = Instant::now();
            let text = page.read(&format!("{path}?reading={number}")).await?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
            bytes = bytes.max(text.len());
            rows = rows.max(text.matches("<tr").count());
        }
        let name = format!("console{path}");
        times.sort_unstable_by(f64::total_cmp);
        out(Figure::alone(&format!("{name}:p95"), count, "ms", times[times.len() * 95 / 100]));
        out(Figure::alone(&format!("{name}:p50"), count, "ms", median(&mut times)));
        out(Figure::alone(&format!("{name}:size"), count, "KiB", bytes as f64 / 1024.0));
        out(Figure::alone(&format!("{name}:rows"), count, "rows", rows as f64));
    }
    claims(pool, &page, count, out).await?;
    for (viewers, who) in [(0, "nobody"), (1, "one"), (CROWD, "fifty")] {
        let mut looking = page.viewers(viewers);
        tokio::time::sleep(WARM).await;
        let before = commits(pool).await?;
        tokio::time::sleep(WATCHED).await;
        let done = commits(pool).await? - before;
        looking.abort_all();
        while looking.join_next().await.is_some() {}
        out(Figure::alone(&format!("console/transactions/{who}"), viewers, "1/s", done as f64 / WATCHED.as_secs_f64()));
        // Nobody is looked for any more by then.
        tokio::time::sleep(WARM * 4).await;
    }
    Ok(())
}

/// Claims, and the time that they took.
#[derive(Default)]
struct Claims {
    made: usize,
    took: Duration,
}

impl Claims {
    fn rate(&self) -> f64 {
        self.made as f64 / self.took.as_secs_f64()
    }
}

/// How fast tasks are claimed while nobody looks, and while some do; turns of both kinds come equally early.
async fn claims(pool: &PgPool, page: &Page, count: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let mut conn = pool.acquire().await?;
    let claimer = claimer_named("bench");
    let mut admin = PgConnection::connect_with(&peers::superuser(pool)).await?;
    sqlx::query("SET session_replication_role = replica").execute(&mut admin).await?;
    let (mut without, mut with) = (Claims::default(), Claims::default());
    for turn in 0..2 * TURNS {
        let is_watched = matches!(turn % 4, 1 | 2);
        let mut looking = page.viewers(if is_watched { VIEWERS } else { 0 });
        // Claims become slower as dead entries gather at the head of the queue, which vacuum takes away.
        sqlx::query("VACUUM (INDEX_CLEANUP ON) task_queue").execute(&mut admin).await?;
        tokio::time::sleep(WARM).await;
        let claims = if is_watched { &mut with } else { &mut without };
        let turn = Instant::now();
        while turn.elapsed() < WATCHED {
            let begun = Instant::now();
            let mut claimed = Vec::with_capacity(SLOTS);
            while claimed.len() < SLOTS {
                let grants = tasks::claim(&mut *conn, &claimer, &[(Lane::Io, 1)]).await?.grants;
                claimed.push(grants.first().ok_or("a claim found nothing although a task was pending")?.task_id.0);
            }
            claims.took += begun.elapsed();
            claims.made += SLOTS;
            // A fleet holds as many tasks as it has slots, so these come back before others are claimed, and a short queue lasts too.
            sqlx::query(
                "WITH back AS (
                     UPDATE task_queue SET status = 'pending', ready = true, parked_on = NULL, claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL
                      WHERE id = ANY($1) RETURNING id)
                 DELETE FROM task_reservation r USING back WHERE r.task_id = back.id",
            )
            .bind(&claimed)
            .execute(&mut admin)
            .await?;
        }
        looking.abort_all();
        while looking.join_next().await.is_some() {}
    }
    admin.close().await?;
    let (without, with) = (without.rate(), with.rate());
    out(Figure::alone("console/claims/unwatched", count, "claims/s", without));
    out(Figure::alone("console/claims/watched", count, "claims/s", with));
    out(Figure::alone("console/claims/lost", count, "%", 100.0 * (1.0 - with / without)));
    Ok(())
}

/// The transactions of the database, but for those of other databases and of the server itself.
async fn commits(pool: &PgPool) -> Result<i64, BoxError> {
    // A connection that is idle tells what it did within a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    Ok(sqlx::query_scalar(query).fetch_one(pool).await?)
}

/// The console for one who is signed in.
#[derive(Clone)]
struct Page {
    http: Client,
    base: String,
    cookie: String,
}

impl Page {
    async fn sign_in(app: &App) -> Result<Page, BoxError> {
        let base = format!("http://{}", app.console.ok_or("there is no console")?);
        let http = Client::builder().no_proxy().redirect(redirect::Policy::none()).build()?;
        let form = http
            .post(format!("{base}/login"))
            .header(header::ORIGIN, &base)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = form.body(format!("token={TOKEN}")).send().await?;
        let cookie = answer.headers().get(header::SET_COOKIE).ok_or("the console signed nobody in")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Page { http, base, cookie })
    }

    fn request(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base)).header(header::COOKIE, &self.cookie)
    }

    async fn get(&self, path: &str) -> Result<Response, BoxError> {
        Ok(self.request(path).send().await?.error_for_status()?)
    }

    /// Reads as a page does that reads itself again.
    async fn read_again(&self, path: &str) -> Result<(), BoxError> {
        self.request(path).header("x-fragment", "page").send().await?.error_for_status()?.text().await?;
        Ok(())
    }

    async fn read(&self, path: &str) -> Result<String, BoxError> {
        Ok(self.get(path).await?.text().await?)
    }

    /// People who leave a page open each, which reads itself again whenever there is news.
    fn viewers(&self, count: usize) -> JoinSet<Result<(), BoxError>> {
        let mut looking = JoinSet::new();
        for path in PAGES.iter().cycle().take(count) {
            let page = self.clone();
            looking.spawn(async move {
                page.read(path).await?;
                let mut news = page.get("/live").await?.bytes_stream();
                while let Some(piece) = news.next().await {
                    if piece?.windows(7).any(|word| word == b"changed") {
                        page.read_again(path).await?;
                    }
                }
                Ok(())
            });
        }
        looking
    }
}

/// Makes a queue with all that may be in one: three quarters of the tasks are open, some of them wait, and all tried once.
async fn fill(pool: &PgPool, count: usize) -> Result<(), BoxError> {
    let mut conn = PgConnection::connect_with(&peers::superuser(pool)).await?;
    for statement in ["SET session_replication_role = replica", "SET synchronous_commit = off"] {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    sqlx::query(
        "INSERT INTO documents (title, content, usetype, content_hash, guard) SELECT 'file ' || n || '.pdf', '', 'file', '', 0 FROM generate_series(1, $1) n",
    )
    .bind(i64::try_from(count / TASKS_OF_FILE)?)
    .execute(&mut conn)
    .await?;
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, status, final, ready, unmet_deps,
                retry_after, retry_count, error_type, created_at)
         SELECT (ARRAY['probe', 'extract', 'structure', 'embed', 'summarize'])[n % 5 + 1], CASE n % 5 WHEN 3 THEN 'model' ELSE 'io' END,
                d.id, d.id || '/' || n || '/', 1, d.id, 'self', s.status, s.status IN ('completed', 'failed'), s.status = 'pending' AND n % 7 > 1,
                CASE WHEN s.status = 'pending' AND n % 7 = 0 THEN 1 ELSE 0 END,
                CASE WHEN s.status = 'pending' AND n % 7 = 1 THEN clock_timestamp() + interval '1 hour' END, n % 3,
                CASE s.status WHEN 'failed' THEN 'permanent' END, clock_timestamp() - interval '1 day' * n / $1
           FROM documents d, generate_series(1, $2) n, LATERAL (
                SELECT CASE WHEN (d.id + n) % 200 < 149 THEN 'pending' WHEN (d.id + n) % 200 < 195 THEN 'completed' ELSE 'failed' END AS status) s
          ORDER BY n, d.id",
    )
    .bind(i64::try_from(TASKS_OF_FILE)?)
    .bind(i64::try_from(TASKS_OF_FILE)?)
    .execute(&mut conn)
    .await?;
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, ended_at, param_fingerprint)
         SELECT scope_document_id, id, task_type, 1, CASE status WHEN 'failed' THEN 'failed' ELSE 'completed' END, error_type,
                CASE status WHEN 'failed' THEN 'file_damaged' END, CASE status WHEN 'failed' THEN 'the file breaks off' END,
                'worker-' || id % $1, created_at, created_at + interval '2 s', ''
           FROM task_queue ORDER BY created_at",
    )
    .bind(i64::try_from(WORKERS)?)
    .execute(&mut conn)
    .await?;
    for statement in
        ["VACUUM ANALYZE documents", "VACUUM ANALYZE task_queue", "VACUUM ANALYZE task_attempts", "CHECKPOINT"]
    {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    for number in 0..WORKERS {
        let name = format!("worker-{number}");
        let row = WorkerRow {
            worker_id: name.clone(),
            boot_nonce: uuid::Uuid::new_v4(),
            version: "bench".to_owned(),
            badges: Vec::new(),
            strict: false,
            holds_folder: false,
            task_types: ["probe", "extract", "structure", "embed", "summarize"].map(str::to_owned).to_vec(),
            lease: Duration::from_secs(3_600),
        };
        workers::beat(&mut conn, &row, &snapshot()).await?;
        let claimer = claimer_named(&name);
        let got = tasks::claim(&mut conn, &claimer, &[(Lane::Io, HELD / WORKERS)]).await?.grants.len();
        if got != HELD / WORKERS {
            return Err(format!("{name} claimed {got} tasks").into());
        }
    }
    Ok(conn.close().await?)
}

/// What a busy worker tells of its actors: documents with four tasks each.
fn snapshot() -> Value {
    let now = chrono::Utc::now();
    let actor = |kind: &str, children: Vec<Value>| {
        json!({
            "kind": kind, "state": "running", "since": now, "handled": 7, "queued": 0, "restarts": 0, "children": children
        })
    };
    let document = |id: usize| {
        let task = |number: usize| {
            let mut task = actor("embed", Vec::new());
            task["task_id"] = json!(id * 4 + number);
            task["task_type"] = json!("embed");
            task["document_id"] = json!(id);
            task["attempt"] = json!(1);
            task["lane"] = json!("model");
            task["region"] = json!({ "path": [id], "mode": "self" });
            task["phase"] = json!("preparing");
            task
        };
        let mut document = actor("document", (0..4).map(task).collect());
        document["document_id"] = json!(id);
        document["title"] = json!(format!("file {id}.pdf"));
        document["tasks"] = json!({ "open": 40, "held": 4, "done": 6, "failed": 0 });
        document
    };
    let documents = actor("documents", (1..=ACTORS / 5).map(document).collect());
    let heart = ["lock_manager", "dispatcher", "heart"].map(|kind| actor(kind, Vec::new()));
    let root = actor("root", heart.into_iter().chain([documents]).collect());
    json!({
        "taken_at": now, "actors": ACTORS + 5, "omitted": 0, "root": root,
        "totals": [{ "kind": "embed", "task_type": "embed", "state": "running", "count": ACTORS * 4 / 5, "oldest": now, "queued": 0 }],
        "lanes": [{ "lane": "model", "permits": 4, "busy": 4 }]
    })
}
