//! A service of its own for each test: own database, real model, real actors.
pub mod azure;
pub mod batches;
pub mod broker;
pub mod browser;
pub mod collector;
pub mod contract;
pub mod cross_encoder;
pub mod disk;
pub mod invariants;
pub mod llm;
pub mod poison;
pub mod proxy;
pub mod rude;
pub mod s3;
pub mod searches;
pub mod server;
pub mod standby;
pub mod statements;
pub mod transitions;
pub mod web;
mod workbook;

use contract::Breaches;
use futures_util::StreamExt;
use sqlx::{PgConnection, PgPool, postgres::PgConnectOptions};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use svc::{
    access::Caller,
    blobs::upkeep::Finding,
    ingest::extension::TaskTypes,
    listener::{self, Limits},
    reader::Reader,
    registry::{self, InProcess},
    service::{Service, Waits},
    settings::{Settings, model_settings},
    store::{
        documents::{self, NewRow},
        lexicon::Lexicon,
        places::{self, Place},
        reindex,
        scope::Writable,
    },
    worker::{Role, RunningWorker},
};
use svc_client::{
    Client, Failure, FileUpload, Json, Remote,
    wire::{
        DocumentPath, DocumentResponse, FrontierResponse, NewDocument, PageQuery, Settled, UploadQuery, UploadResponse,
        WaitQuery,
    },
};
use svc_ids::DocumentId;
use svc_models::Engine;
use svc_ranking::AnalyzerConfig;
pub use workbook::{rows_of_texts, workbook, workbook_of_named_sheets, workbook_of_rows, workbook_of_sheets};

pub const TOKEN: &str = "test-owner-token";
/// This only ends a test that hangs; no test waits this long if the code is right.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The lease by which connections are guarded: a test may hold a transaction for as long as a loaded machine takes for what it does meanwhile.
const HELD: Duration = Duration::from_secs(600);

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A sample that the project ships.
pub fn sample(name: &str) -> PathBuf {
    repository().join("tests/samples").join(name)
}

/// Keeps the stored bytes of a test in its database, wherever those of the other tests are.
pub const IN_DATABASE: (&str, &str) = ("SVC_BLOB_STORE", "");

/// The settings of the environment, overridden by these.
pub fn settings(extra: &[(&str, &str)]) -> Settings {
    let environment = std::env::vars().filter(|(name, _)| !name.starts_with("SVC_") || name == "SVC_CACHE_DIR");
    let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::load(Some(Path::new("/dev/null")), environment.chain(extra)).unwrap()
}

/// The small model, loaded once per run.
pub fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(own_engine).clone()
}

/// The small model once more, for a test that takes it away.
pub fn own_engine() -> Engine {
    Engine::load(&model_settings(&settings(&[]))).expect("the model of `make setup`")
}

/// The waits of a service whose moves are refused soon, where a test is about that.
pub fn refusing_soon() -> Waits {
    Waits { longest: Duration::from_secs(1), ..Waits::default() }
}

/// How a test wants its service.
#[derive(Default)]
pub struct Wish<'a> {
    pub settings: &'a [(&'a str, &'a str)],
    /// Starts no worker, so tasks stay in the queue.
    pub no_worker: bool,
    /// Reads files instead of the service's own program.
    pub reader: Option<Reader>,
    /// Replaces the small model with default settings.
    pub engine: Option<Engine>,
    /// The model to which vectors may be moved.
    pub coming: Option<Engine>,
    /// The task types of another crate.
    pub types: TaskTypes,
    /// How long edits wait for tasks.
    pub waits: Waits,
    /// A database with the schema on a server of its own, in place of a new one on that of all tests.
    pub database: Option<PgConnectOptions>,
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of the services that are counted.
struct Running;

impl Running {
    fn begin() -> Running {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A service with its own database, listening on its own port.
pub struct TestApp {
    pub client: Client<Remote>,
    /// For requests that the client would never make, on connections that stay open.
    pub http: reqwest::Client,
    pub in_process: Client<InProcess>,
    pub pool: PgPool,
    pub options: PgConnectOptions,
    pub base: String,
    pub service: Arc<Service>,
    /// Whether the database was made for this service alone.
    owns_database: bool,
    worker: Option<RunningWorker>,
    feed: Option<tokio::task::JoinHandle<()>>,
    server: tokio::task::JoinHandle<()>,
    stop_server: tokio::sync::watch::Sender<bool>,
    breaches: Arc<Breaches>,
    _running: Running,
}

impl TestApp {
    pub async fn start() -> TestApp {
        TestApp::with(Wish::default()).await
    }

    pub async fn with(wish: Wish<'_>) -> TestApp {
        let running = Running::begin();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let owns_database = wish.database.is_none();
        let options = match wish.database {
            Some(options) => options,
            None => server::new_database().await,
        };
        let data_dir = server::work_dir().join("data").display().to_string();
        let outside = s3::of_all_tests(&options);
        let mut extra = vec![
            ("SVC_DATA_DIR", data_dir.as_str()),
            ("SVC_WORKER_HEARTBEAT_SECONDS", "1"),
            ("SVC_WORKER_LEASE_SECONDS", "6"),
            ("SVC_WORKER_REAP_SECONDS", "1"),
            ("SVC_INGEST_WORKER_POLL_SECONDS", "0.2"),
            // Unless a test is about them, a loaded machine must not reach them.
            ("SVC_REQUEST_TIMEOUT_SECONDS", "600"),
            ("SVC_STATEMENT_TIMEOUT_SECONDS", "300"),
            ("SVC_PATH_TIMEOUT_SECONDS", "300"),
            // Tests call as fast as they can.
            ("SVC_RATE_READS", "0"),
            ("SVC_RATE_WRITES", "0"),
            ("SVC_RATE_COSTLY", "0"),
            // Whoever tests may have a language model where one is by default.
            ("SVC_FALLBACK_LLM_URL", ""),
        ];
        extra.extend(outside.iter().map(|(name, value)| (*name, value.as_str())));
        extra.extend(wish.settings);
        let settings = Arc::new(settings(&extra));
        let pool = svc::store::database::pool(options.clone(), 8, HELD);
        let embedder = match settings.runner_url.is_empty() {
            true => wish.engine.unwrap_or_else(engine).into(),
            false => svc::app::load_embedder(&settings).await.unwrap(),
        };
        let reader = wish.reader.unwrap_or_else(reader);
        let service = Service::new(settings.clone(), pool.clone(), Some(embedder), TOKEN, reader);
        let coming = match settings.coming() {
            Some(coming) => Some(svc::app::load_embedder(&coming).await.unwrap()),
            None => wish.coming.map(Into::into),
        };
        let service = service.with_task_types(wish.types).with_coming(coming).with_waits(wish.waits);
        let service = service.with_replicas().unwrap().with_language().await.unwrap();
        let service = Arc::new(service.with_ocr().await.unwrap());
        let worker = if wish.no_worker {
            None
        } else {
            Some(RunningWorker::start(Role::of(&settings), service.tools(), options.clone()).await.unwrap())
        };
        let feed = svc::feed::start(&service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let breaches = Arc::new(Breaches::default());
        let router = registry::router(service.clone())
            .layer(axum::middleware::from_fn_with_state(breaches.clone(), contract::hold));
        let (stop_server, stopped) = tokio::sync::watch::channel(false);
        let server = tokio::spawn(listener::serve(listener, router, Limits::of(&settings), stopped));
        TestApp {
            client: Client(Remote::new(&base, TOKEN, http())),
            http: http(),
            in_process: Client(InProcess { service: service.clone(), caller: Caller::Owner }),
            pool,
            options,
            base,
            service,
            owns_database,
            worker,
            feed,
            server,
            stop_server,
            breaches,
            _running: running,
        }
    }

    /// How many of them there are.
    pub fn running() -> usize {
        RUNNING.load(Ordering::Relaxed)
    }

    /// Asks the listener to stop, as a signal does.
    pub fn stop_listening(&self) {
        self.service.ending.cancel();
        self.stop_server.send(true).unwrap();
    }

    /// Whether the listener has ended.
    pub fn has_stopped_listening(&self) -> bool {
        self.server.is_finished()
    }

    /// Has an index of the vectors of the model, which so few would not get by themselves.
    pub async fn index_vectors(&self) {
        let model = engine().info().clone();
        until("the index of the vectors", async || {
            reindex::add_index(&self.pool, &model.identity, model.native_width).await.unwrap();
            let mut conn = self.pool.acquire().await.unwrap();
            reindex::has_index(&mut conn, &model.identity).await.unwrap().then_some(())
        })
        .await;
    }

    /// A client in this process, whose edits wait as long for tasks as those of a service by default.
    pub fn patient(&self) -> Client<InProcess> {
        let service = Service::clone(&self.service).with_waits(Waits::default());
        Client(InProcess { service: Arc::new(service), caller: Caller::Owner })
    }

    /// Starts the worker that `no_worker` left out.
    pub async fn start_worker(&mut self) {
        let role = Role::of(&self.service.settings);
        self.worker = Some(RunningWorker::start(role, self.service.tools(), self.options.clone()).await.unwrap());
    }

    /// Ends what works beside the requests, if anything does.
    pub async fn stop_worker(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop(Duration::from_secs(10), std::future::pending()).await;
        }
    }

    /// Checks the invariants on what the test left, then stops everything.
    pub async fn end(mut self) {
        if let Some(feed) = self.feed.take() {
            self.service.ending.cancel();
            feed.await.unwrap();
        }
        self.stop_worker().await;
        invariants::check(&self.pool).await;
        invariants::check_idle(&self.pool).await;
        if self.service.blobs.are_outside() {
            let mut lost = Vec::new();
            let tell = |finding: &Finding| lost.push(format!("{finding:?}"));
            self.service.blobs.verify(&self.pool, true, tell).await.unwrap();
            assert!(lost.is_empty(), "the object store and the database differ: {lost:?}");
        }
        self.breaches.check();
        self.server.abort();
        self.service.close().await;
        self.pool.close().await;
        if self.owns_database {
            server::drop_database(&self.options);
        }
    }

    pub async fn upload(&self, path: &Path) -> Result<UploadResponse, Failure> {
        self.client.upload_file(UploadQuery::default(), FileUpload::from_path(path, None).await.unwrap()).await
    }

    pub async fn upload_bytes(&self, name: &str, bytes: impl Into<bytes::Bytes>) -> Result<UploadResponse, Failure> {
        self.client.upload_file(UploadQuery::default(), FileUpload::from_bytes(name, bytes, None)).await
    }

    /// Follows a file's frontier to its end.
    pub async fn settled(&self, id: i64) -> FrontierResponse {
        let end = async {
            let begun = Instant::now();
            loop {
                let frontier = self.client.read_frontier(DocumentPath { id }).await.unwrap();
                if frontier.is_at_rest() {
                    return frontier;
                }
                // A long wait looks less and less often, because each look takes processor time from the work that it waits for.
                let rest = (begun.elapsed() / 10).clamp(Duration::from_millis(20), Duration::from_millis(200));
                tokio::time::timeout(rest, std::future::pending::<()>()).await.unwrap_err();
            }
        };
        match tokio::time::timeout(PATIENCE, end).await {
            Ok(frontier) => frontier,
            Err(_) => panic!("document {id} does not settle: {}", queue_text(&self.pool).await),
        }
    }

    /// Stores a file and follows it to its end.
    pub async fn ingest(&self, path: &Path) -> (i64, FrontierResponse) {
        let id = self.upload(path).await.unwrap().document_id;
        (id, self.settled(id).await)
    }

    /// Creates a document and waits until it can be found.
    pub async fn create(&self, title: &str, content: &str, parent_id: Option<i64>) -> DocumentResponse {
        let new = NewDocument { parent_id, ..document(title, content) };
        self.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap().document
    }

    /// Everything under a node, each before what is under it.
    pub async fn subtree(&self, id: i64) -> Vec<DocumentResponse> {
        let (mut all, mut cursor, mut limit) = (Vec::new(), None, 7);
        loop {
            let query = PageQuery { cursor, limit: Some(limit), ..PageQuery::default() };
            let page = self.client.list_subtree(DocumentPath { id }, query).await.unwrap();
            all.extend(page.documents);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return all;
            }
            // Small trees have several pages, and large ones not hundreds.
            limit = (limit * 2).min(500);
        }
    }

    /// Makes the service's sampler measure now.
    pub async fn sampled(&self) {
        self.service.sampler.sample().await;
        self.service.sampler.ask_runner().await;
    }

    /// A request that the client would never make, on a connection of its own.
    pub fn raw(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        http().request(method.parse().unwrap(), format!("{}{path}", self.base)).bearer_auth(TOKEN)
    }
}

/// The place of a document, which its holder may change.
pub async fn place(conn: &mut PgConnection, id: i64) -> Place {
    places::find(conn, &Writable::everything(), DocumentId(id)).await.unwrap().unwrap()
}

/// Stores a document under another one or at the top, in a transaction that creates.
pub async fn insert(conn: &mut PgConnection, parent: Option<i64>) -> DocumentId {
    let parent = match parent {
        Some(id) => places::lock_parent(conn, &Writable::everything(), DocumentId(id)).await.unwrap(),
        None => None,
    };
    let row = NewRow {
        parent: parent.as_ref(),
        title: "t",
        content: "c",
        structured_content: &serde_json::Map::new(),
        usetype: "markdown",
        position: None,
        event_time: None,
        content_hash: "sha256:",
        settled: Settled::Settled,
    };
    documents::insert(conn, &Lexicon::new(AnalyzerConfig::default()), &row).await.unwrap().0.id()
}

/// Asks repeatedly until there is an answer.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let answer = async {
        let begun = Instant::now();
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            // The condition may hold only for a moment, so a long wait looks often too.
            let rest = (begun.elapsed() / 10).clamp(Duration::from_millis(20), Duration::from_millis(60));
            tokio::time::timeout(rest, std::future::pending::<()>()).await.unwrap_err();
        }
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Waits until a statement of the service waits for a lock of another one.
pub async fn until_a_statement_waits(pool: &PgPool) {
    until_a_statement_like_this_waits(pool, "%").await;
}

/// Waits until a statement that fits the pattern of LIKE waits for a lock of another one.
pub async fn until_a_statement_like_this_waits(pool: &PgPool, pattern: &str) {
    let waits = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1)";
    until("a statement to wait for a lock", async || {
        sqlx::query_scalar::<_, bool>(waits).bind(pattern).fetch_one(pool).await.unwrap().then_some(())
    })
    .await;
}

/// An address where nobody answers, and which nobody else gets, until this socket listens.
pub fn nobody() -> (tokio::net::TcpSocket, std::net::SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Says in a line what a test left out. It does not use `println!`, whose output is only shown for failed tests.
pub fn left_out(what: &str) {
    say(&format!("left out: {what}"));
}

/// Says a line that is shown of a test that passes too.
pub fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says what a test left out because this machine lacks a program that `config/setup.sh` fetches; with SVC_TEST_STRICT=1 that is a failure.
pub fn missing(what: &str) {
    let is_strict = std::env::var_os("SVC_TEST_STRICT").is_some_and(|strict| strict == "1");
    assert!(!is_strict, "SVC_TEST_STRICT=1, and this is left out: {what}");
    left_out(what);
}

/// A document with nothing but a title and a content.
pub fn document(title: &str, content: &str) -> NewDocument {
    serde_json::from_value(serde_json::json!({"title": title, "content": content})).unwrap()
}

/// A client with connections of its own.
pub fn http() -> reqwest::Client {
    http_builder().build().unwrap()
}

/// What tests make clients from. They trust no certificate, because they call without TLS, and reading the certificates of this machine takes
/// longer than most calls.
pub fn http_builder() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

/// Reads files with the service's own program.
pub fn reader() -> Reader {
    Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")))
}

/// The queue as text, for a failed test.
#[expect(clippy::type_complexity, reason = "the rows are printed and nothing else")]
pub async fn queue_text(pool: &PgPool) -> String {
    let rows: Vec<(i64, String, i64, String, bool, Option<i64>, i32, Option<String>)> = sqlx::query_as(
        "SELECT t.id, task_type, scope_document_id, status, ready, parked_on, unmet_deps, (SELECT a.message FROM task_attempts a WHERE a.task_id = t.id ORDER BY a.id DESC LIMIT 1)
           FROM task_queue t WHERE NOT final ORDER BY t.id LIMIT 50",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let nodes: Vec<(i64, i32, i32, String, String)> = sqlx::query_as(
        "SELECT n.document_id, open_tasks, open_children, rollup, d.settled FROM ingest_node n JOIN documents d ON d.id = n.document_id WHERE d.settled = 'in_flight' ORDER BY 1 LIMIT 50",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    format!("tasks {rows:#?}\nnodes {nodes:#?}")
}

/// A stream that yields a few pieces and then breaks off, like a client that hangs up.
pub fn broken_stream(pieces: usize) -> futures_util::stream::BoxStream<'static, std::io::Result<bytes::Bytes>> {
    let piece = |_| Ok(bytes::Bytes::from(vec![b'x'; 64 * 1024]));
    let pieces = futures_util::stream::iter((0..pieces).map(piece));
    pieces.chain(futures_util::stream::once(async { Err(std::io::Error::other("the client hangs up")) })).boxed()
}
