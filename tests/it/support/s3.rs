//! A server that speaks S3, or what Google's stores speak, in this process, that can be taken away and that can stop at a chosen request.
use super::server;
use hyper_util::rt::TokioIo;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use sqlx::postgres::PgConnectOptions;
use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, SystemTime},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

pub const KEY_ID: &str = "test-key-id";
pub const SECRET: &str = "test-s3cret-key";
/// The token by which Google's clients are known.
pub const GOOGLE_TOKEN: &str = "test-google-s3cret-token";
pub const BUCKET: &str = "svc-test";
/// What keys begin with.
const PREFIX: &str = "blobs";

/// The place in a request at which the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A request with this method and this in its address, which had no effect yet.
    Before(&'static str, &'static str),
    /// The same after it had its effect, and before its answer is sent.
    After(&'static str, &'static str),
}

/// Whose clients the server understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Amazon,
    /// The XML of Google's stores is that of S3; what differs is the authorization, and the condition that an object is new.
    Google,
}

/// The request to stop at, and who is told that it came.
type Awaited = (Stop, mpsc::UnboundedSender<()>);

#[derive(Clone)]
struct Gate {
    /// While it is away, connections are cut.
    is_away: watch::Sender<bool>,
    stop: Arc<Mutex<Option<Awaited>>>,
    /// It has stopped: no request goes on.
    is_stopped: watch::Sender<bool>,
    /// Methods and paths of all requests.
    heard: Arc<Mutex<Vec<String>>>,
}

pub struct S3 {
    pub address: SocketAddr,
    dialect: Dialect,
    folder: tempfile::TempDir,
    gate: Gate,
    accepting: tokio::task::JoinHandle<()>,
}

/// Keeps the bytes of a test in the database, whatever SVC_TEST_BLOBS says.
pub const BYTES_IN_DATABASE: (&str, &str) = ("SVC_BLOB_STORE", "");

/// The settings by which a service on this database has its bytes in a server that speaks S3, in a bucket of its own, if SVC_TEST_BLOBS is `s3`;
/// otherwise none. One server is there for all tests of a run.
pub fn of_all_tests(database: &PgConnectOptions) -> Vec<(&'static str, String)> {
    static SERVER: OnceLock<S3> = OnceLock::new();
    if std::env::var_os("SVC_TEST_BLOBS").is_none_or(|wanted| wanted != "s3") {
        return Vec::new();
    }
    // Nothing drops the server, so its folder lies where the end of the tests removes everything.
    let start = || {
        let folder = tempfile::tempdir_in(server::work_dir()).unwrap();
        server::runtime().block_on(S3::start_in(folder, Dialect::Amazon))
    };
    let s3 = SERVER.get_or_init(|| std::thread::spawn(start).join().expect("the server starts"));
    let mut hasher = DefaultHasher::new();
    (database.get_socket(), database.get_host(), database.get_port(), database.get_database()).hash(&mut hasher);
    let bucket = format!("svc-test-{:016x}", hasher.finish());
    std::fs::create_dir_all(s3.folder.path().join(&bucket)).unwrap();
    s3.settings_in(&bucket)
}

impl S3 {
    pub async fn start() -> S3 {
        S3::start_in(tempfile::tempdir().unwrap(), Dialect::Amazon).await
    }

    /// A server for clients of Google's stores.
    pub async fn of_google() -> S3 {
        S3::start_in(tempfile::tempdir().unwrap(), Dialect::Google).await
    }

    async fn start_in(folder: tempfile::TempDir, dialect: Dialect) -> S3 {
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        if dialect == Dialect::Amazon {
            builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        }
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Gate {
            is_away: watch::Sender::new(false),
            stop: Arc::default(),
            is_stopped: watch::Sender::new(false),
            heard: Arc::default(),
        };
        let at_gate = gate.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (service, gate) = (service.clone(), at_gate.clone());
                tokio::spawn(async move {
                    let mut away = gate.is_away.subscribe();
                    let answer = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        let (service, gate) = (service.clone(), gate.clone());
                        async move {
                            let line = format!("{} {}", request.method(), request.uri());
                            gate.heard.lock().unwrap().push(line.clone());
                            gate.pass(true, &line).await;
                            let token = format!("{:?} is no token", request.headers().get(http::header::AUTHORIZATION));
                            let request = request.map(s3s::Body::from);
                            let admitted = match dialect {
                                Dialect::Amazon => Some(request),
                                Dialect::Google => of_google(request),
                            };
                            let answer = match admitted {
                                Some(request) => service.call(request).await.expect("an answer of the server"),
                                None => hyper::Response::builder().status(401).body(s3s::Body::from(token)).unwrap(),
                            };
                            gate.pass(false, &line).await;
                            Ok::<_, Infallible>(answer)
                        }
                    });
                    let serving =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                    // The look at whether it is away comes first, or else a request that is already here may be answered.
                    tokio::select! {
                        biased;
                        _ = away.wait_for(|is_away| *is_away) => {}
                        _ = serving => {}
                    }
                });
            }
        });
        S3 { address, dialect, folder, gate, accepting }
    }

    /// The settings of a service whose bytes are here.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        self.settings_in(BUCKET)
    }

    fn settings_in(&self, bucket: &str) -> Vec<(&'static str, String)> {
        let (scheme, key_id, secret) = match self.dialect {
            Dialect::Amazon => ("s3", KEY_ID, SECRET),
            Dialect::Google => ("gs", "", ""),
        };
        let mut settings = vec![
            ("SVC_BLOB_STORE", format!("{scheme}://{bucket}/{PREFIX}")),
            ("SVC_BLOB_ENDPOINT", format!("http://{}", self.address)),
            ("SVC_BLOB_ALLOW_HTTP", "true".to_owned()),
            ("SVC_BLOB_ACCESS_KEY_ID", key_id.to_owned()),
            ("SVC_BLOB_SECRET_ACCESS_KEY", secret.to_owned()),
        ];
        if self.dialect == Dialect::Google {
            settings.push(("GOOGLE_BEARER_TOKEN", GOOGLE_TOKEN.to_owned()));
        }
        settings
    }

    /// Cuts all connections, and further ones, or takes them again.
    pub fn set_away(&self, is_away: bool) {
        self.gate.is_away.send_replace(is_away);
    }

    /// Stops at the next such request, and lets none go on from then on; the receiver tells when it has come.
    pub fn stop_at(&self, stop: Stop) -> mpsc::UnboundedReceiver<()> {
        let (stopped, told) = mpsc::unbounded_channel();
        *self.gate.stop.lock().unwrap() = Some((stop, stopped));
        told
    }

    /// Lets requests go on.
    pub fn go_on(&self) {
        self.gate.is_stopped.send_replace(false);
    }

    /// How many requests of a method there were.
    pub fn heard(&self, method: &str) -> usize {
        self.gate.heard.lock().unwrap().iter().filter(|heard| heard.starts_with(method)).count()
    }

    /// The files of the objects that hold bytes.
    pub fn objects(&self) -> Vec<PathBuf> {
        objects_in(&self.folder.path().join(BUCKET).join(PREFIX))
    }

    pub fn object(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(PREFIX).join(key)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Gate {
    /// Lets a request go on, unless this is where to stop.
    async fn pass(&self, is_before: bool, line: &str) {
        let told = {
            let mut stop = self.stop.lock().unwrap();
            let is_here = |(stop, _): &mut (Stop, mpsc::UnboundedSender<()>)| match stop {
                Stop::Before(method, part) => is_before && line.starts_with(*method) && line.contains(*part),
                Stop::After(method, part) => !is_before && line.starts_with(*method) && line.contains(*part),
            };
            stop.take_if(is_here)
        };
        if let Some((_, told)) = told {
            self.is_stopped.send_replace(true);
            told.send(()).unwrap();
        }
        self.is_stopped.subscribe().wait_for(|is_stopped| !is_stopped).await.unwrap();
    }
}

/// The request of S3 that a request of Google's clients is; `None` if it does not bear the token.
fn of_google<B>(mut request: hyper::Request<B>) -> Option<hyper::Request<B>> {
    let headers = request.headers_mut();
    if headers.remove(http::header::AUTHORIZATION)? != format!("Bearer {GOOGLE_TOKEN}") {
        return None;
    }
    if headers.remove("x-goog-if-generation-match").is_some_and(|generation| generation == "0") {
        headers.insert(http::header::IF_NONE_MATCH, http::HeaderValue::from_static("*"));
    }
    Some(request)
}

/// The files of objects in the folder of a store, below its two-digit folders.
pub fn objects_in(folder: &Path) -> Vec<PathBuf> {
    let shards = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let shards = shards.filter(|path| path.is_dir() && path.file_name().is_some_and(|name| name.len() == 2));
    let mut found: Vec<PathBuf> =
        shards.flat_map(|shard| std::fs::read_dir(shard).unwrap().flatten().map(|entry| entry.path())).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found
}

/// Makes an object two days older.
pub fn age(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(2 * 86_400)).unwrap();
}
