//! What a node weighs in the database, and how much of the work of searches a standby takes off the primary.
use crate::{
    figure::{Bound, BoxError, Figure},
    markdown::{self, Prose},
    sandbox::Sandbox,
    service_process::ServiceProcess,
    standby::{self, Standby},
    uploads,
};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::time::Duration;
use svc::embedded::EmbeddedPostgres;
use svc_client::{
    Client, Json, Remote,
    wire::{Bm25Search, HybridSearch, VectorSearch},
};

/// More nodes would show nothing else.
const MOST: usize = 20_000;
/// The sections of a file, each of which is two nodes.
const SECTIONS: usize = 250;
/// How many searches of each method are counted, and how many come before them.
const SEARCHES: usize = 200;
const WARMING: usize = 20;
/// How often to look whether the standby answers.
const LOOK: Duration = Duration::from_millis(100);

/// What of the database is weighed, and what it is aimed at with the small model, whose width is 384, where that does not depend on the texts.
const WEIGHED: &[(&str, Option<Bound>, &str)] = &[
    ("documents", None, "SELECT pg_total_relation_size('documents')"),
    ("vectors", Some(Bound::OursAbout(910.0)), "SELECT pg_table_size('document_vectors')"),
    (
        "hnsw",
        Some(Bound::OursAbout(1171.0)),
        "SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_am a ON a.oid = c.relam
          WHERE a.amname = 'hnsw' AND c.relkind = 'i'",
    ),
    ("words", None, "SELECT pg_total_relation_size('document_words')"),
    ("database", None, "SELECT pg_database_size(current_database())"),
];

pub async fn measure(sandbox: &Sandbox, nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let folder = tempfile::Builder::new().prefix("svc-bench-offload.").tempdir()?;
    let home = sandbox.settings()?.postgres_home;
    let primary = EmbeddedPostgres::start(&folder.path().join("data"), &home).await?;
    let files = folder.path().join("files").display().to_string();
    let measured = on(&primary, sandbox, &files, nodes.min(MOST), out).await;
    primary.stop().await;
    standby::remove();
    measured
}

async fn on(
    primary: &EmbeddedPostgres,
    sandbox: &Sandbox,
    folder: &str,
    nodes: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let address = url(&primary.connect_options());
    let settings = [("SVC_DATABASE_URL", address.as_str()), ("SVC_DATA_DIR", folder), ("SVC_MIGRATE", "auto")];
    let mut service = ServiceProcess::start_with(sandbox, &settings)?;
    let filled = async {
        let client = uploads::client(&service.base().await?)?;
        let files = (0..(nodes / (2 * SECTIONS + 1)).max(1))
            .map(|number| (format!("ledger-{number}.md"), markdown::ledger(number, SECTIONS)));
        uploads::ingest(&client, files).await
    };
    let filled = filled.await;
    service.stop().await?;
    let nodes = filled?;
    let pool = PgPool::connect_with(primary.connect_options()).await?;
    for (name, goal, statement) in WEIGHED {
        let bytes: i64 = sqlx::query_scalar(*statement).fetch_one(&pool).await?;
        let figure = Figure::alone(&format!("scale/bytes/{name}"), nodes, "bytes/node", bytes as f64 / nodes as f64);
        out(match goal {
            Some(goal) => figure.meant_to_be(*goal),
            None => figure,
        });
    }
    pool.close().await;

    let server = primary.server_pid().ok_or("the primary has ended")?;
    let alone = searched(sandbox, &settings, server, None).await?;
    let standby = Standby::of(primary, "offload").await;
    let beside = searched(sandbox, &settings, server, Some(&standby)).await?;
    drop(standby);
    let offload = Figure::alone("scale/standby/offload", nodes, "share", 1.0 - beside / alone.max(1.0));
    out(offload.meant_to_be(Bound::OursAtLeast(0.95)));
    Ok(())
}

/// How much processor time the primary needs for searches, in the system's ticks.
async fn searched(
    sandbox: &Sandbox,
    settings: &[(&str, &str)],
    server: u32,
    standby: Option<&Standby>,
) -> Result<f64, BoxError> {
    let reads = standby.map(|standby| url(&standby.options)).unwrap_or_default();
    let settings =
        [settings, &[("SVC_INGEST_WORKER_ENABLED", "false"), ("SVC_DATABASE_READ_URL", reads.as_str())]].concat();
    let mut service = ServiceProcess::start_with(sandbox, &settings)?;
    let counted = async {
        let client = uploads::client(&service.base().await?)?;
        if let Some(standby) = standby {
            let answered = format!("svc_reads_total{{server=\"{}\"}} ", standby.name());
            loop {
                search(&client, &mut Prose::new(3)).await?;
                if client.read_metrics().await?.lines().any(|line| line.starts_with(&answered)) {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        let mut prose = Prose::new(7);
        for _ in 0..WARMING {
            search(&client, &mut prose).await?;
        }
        let before = ticks(server)?;
        for _ in 0..SEARCHES {
            search(&client, &mut prose).await?;
        }
        Ok::<_, BoxError>(ticks(server)? - before)
    };
    let counted = counted.await;
    service.stop().await?;
    counted
}

/// One search by each method.
async fn search(client: &Client<Remote>, prose: &mut Prose) -> Result<(), BoxError> {
    let query = prose.words(3);
    client.search_vector(Json(VectorSearch::new(&query))).await?;
    client.search_bm25(Json(Bm25Search::new(&query))).await?;
    client.search_hybrid(Json(HybridSearch::new(&query))).await?;
    Ok(())
}

/// The processor time that a server and its processes have had, also those that have ended.
fn ticks(server: u32) -> Result<f64, BoxError> {
    let mut sum = 0.0;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end between the two looks.
        let Ok(text) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name of the program, in parentheses, may have spaces.
        let Some((_, fields)) = text.rsplit_once(')') else { continue };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        if id == server {
            sum += number(11) + number(12) + number(13) + number(14);
        } else if number(1) == f64::from(server) {
            sum += number(11) + number(12);
        }
    }
    Ok(sum)
}

/// How a service is told of a server that listens in a folder.
fn url(options: &PgConnectOptions) -> String {
    let socket = options.get_socket().map(|path| path.display().to_string()).unwrap_or_default();
    let (user, port) = (options.get_username(), options.get_port());
    format!("postgres://{user}@localhost:{port}/{}?host={socket}", options.get_database().unwrap_or_default())
}
