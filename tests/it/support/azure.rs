//! A server that speaks what the stores of Azure speak, as far as the service uses it, in this process: no crate of the registry has one.
use super::s3::objects_in;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// The token by which its clients are known.
pub const TOKEN: &str = "test-azure-s3cret-token";
const CONTAINER: &str = "svc-test";
/// What keys begin with.
const PREFIX: &str = "blobs";
/// How many blobs a list has before it names where the next one begins.
const PAGE: usize = 2;

struct Shared {
    folder: tempfile::TempDir,
    /// The blocks that no list of blocks has made a blob of, by their blob and their id.
    blocks: Mutex<HashMap<(String, String), Bytes>>,
}

pub struct Azure {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<io::Result<()>>,
}

impl Azure {
    pub async fn start() -> Azure {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { folder: tempfile::tempdir().unwrap(), blocks: Mutex::default() });
        fs::create_dir(shared.folder.path().join(CONTAINER)).unwrap();
        let router = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(shared.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        Azure { address, shared, serving }
    }

    /// The settings of a service whose bytes are here.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("SVC_BLOB_STORE", format!("az://{CONTAINER}/{PREFIX}")),
            ("SVC_BLOB_ENDPOINT", format!("http://{}", self.address)),
            ("SVC_BLOB_ALLOW_HTTP", "true".to_owned()),
            // Where all tests have a store of S3, its key is among their settings.
            ("SVC_BLOB_ACCESS_KEY_ID", String::new()),
            ("SVC_BLOB_SECRET_ACCESS_KEY", String::new()),
            ("AZURE_STORAGE_ACCOUNT_NAME", "herons".to_owned()),
            ("AZURE_STORAGE_TOKEN", TOKEN.to_owned()),
        ]
    }

    /// The files of the objects that hold bytes.
    pub fn objects(&self) -> Vec<PathBuf> {
        objects_in(&self.shared.folder.path().join(CONTAINER).join(PREFIX))
    }

    /// How many blocks are part of no blob.
    pub fn loose_blocks(&self) -> usize {
        self.shared.blocks.lock().unwrap().len()
    }
}

impl Drop for Azure {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

/// The name of the blob that a path leads to; empty for the container itself.
fn key_of(path: &str) -> String {
    let path = decoded(path);
    let (container, key) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    assert_eq!(container, CONTAINER, "{path}");
    key.to_owned()
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let token = headers.get(header::AUTHORIZATION);
    if token.is_none_or(|token| *token != format!("Bearer {TOKEN}")) {
        return (StatusCode::UNAUTHORIZED, format!("{token:?} is no token")).into_response();
    }
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let query: HashMap<String, String> = pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    let key = key_of(uri.path());
    let root = shared.folder.path().join(CONTAINER);
    let path = root.join(&key);
    match (method.as_str(), query.get("comp").map(String::as_str)) {
        ("GET", Some("list")) => list(&root, &query),
        ("POST", Some("batch")) => batch(&root, &body),
        ("PUT", Some("block")) => {
            shared.blocks.lock().unwrap().insert((key, query["blockid"].clone()), body);
            StatusCode::CREATED.into_response()
        }
        ("PUT", Some("blocklist")) => {
            let named = String::from_utf8(body.to_vec()).unwrap();
            let ids = named
                .lines()
                .filter_map(|line| line.trim().strip_prefix("<Uncommitted>")?.strip_suffix("</Uncommitted>"));
            let mut blocks = shared.blocks.lock().unwrap();
            let mut whole = Vec::new();
            for id in ids {
                match blocks.remove(&(key.clone(), id.to_owned())) {
                    Some(block) => whole.extend_from_slice(&block),
                    None => return (StatusCode::BAD_REQUEST, format!("there is no block {id}")).into_response(),
                }
            }
            stored(&path, &whole, false)
        }
        ("PUT", None) => {
            assert_eq!(headers["x-ms-blob-type"], "BlockBlob");
            stored(&path, &body, headers.contains_key(header::IF_NONE_MATCH))
        }
        ("GET" | "HEAD", None) => read(&path, method == Method::HEAD, headers.get(header::RANGE)),
        other => panic!("{other:?} is nothing that the service asks for"),
    }
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Sha256::digest(bytes)))
}

fn modified(path: &Path) -> String {
    let modified: DateTime<Utc> = fs::metadata(path).unwrap().modified().unwrap().into();
    modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Stores a blob whole or not at all, as Azure does: who reads it meanwhile never gets a part of it.
fn stored(path: &Path, bytes: &[u8], must_be_new: bool) -> Response {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A list of the container never has this file.
    let mut whole = tempfile::NamedTempFile::new().unwrap();
    whole.write_all(bytes).unwrap();
    let kept = match must_be_new {
        true => whole.persist_noclobber(path),
        false => whole.persist(path),
    };
    match kept {
        Ok(_) => (StatusCode::CREATED, [(header::ETAG, etag(bytes))]).into_response(),
        Err(refused) if refused.error.kind() == io::ErrorKind::AlreadyExists => StatusCode::CONFLICT.into_response(),
        Err(refused) => panic!("{refused}"),
    }
}

fn read(path: &Path, is_head: bool, range: Option<&HeaderValue>) -> Response {
    let Ok(bytes) = fs::read(path) else { return StatusCode::NOT_FOUND.into_response() };
    let answer = Response::builder().header(header::ETAG, etag(&bytes)).header(header::LAST_MODIFIED, modified(path));
    let all = bytes.len();
    let range = range.map(|range| {
        let (first, last) = range.to_str().unwrap().strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap())
    });
    let answer = match range {
        Some((first, _)) if first >= all => return StatusCode::RANGE_NOT_SATISFIABLE.into_response(),
        Some((first, last)) => {
            let end = all.min(last + 1);
            let of = format!("bytes {first}-{}/{all}", end - 1);
            let part = Body::from(bytes[first..end].to_vec());
            answer.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, of).body(part)
        }
        None if is_head => answer.header(header::CONTENT_LENGTH, all).body(Body::empty()),
        None => answer.body(Body::from(bytes)),
    };
    answer.unwrap()
}

/// The names of all files in a folder and below it.
fn names(folder: &Path, above: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = format!("{above}{}", entry.file_name().to_str().unwrap());
        match entry.path().is_dir() {
            true => names(&entry.path(), &format!("{name}/"), found),
            false => {
                found.insert(name);
            }
        }
    }
}

fn list(root: &Path, query: &HashMap<String, String>) -> Response {
    let wanted = |name: &str| query.get(name).cloned().unwrap_or_default();
    let (prefix, from) = (wanted("prefix"), wanted("marker"));
    let mut all = BTreeSet::new();
    names(root, "", &mut all);
    let mut all = all.into_iter().filter(|name| name.starts_with(&prefix) && *name >= from);
    let mut page = "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>".to_owned();
    for name in all.by_ref().take(PAGE) {
        let path = root.join(&name);
        let (size, modified, etag) = (fs::metadata(&path).unwrap().len(), modified(&path), etag(name.as_bytes()));
        write!(
            page,
            "<Blob><Name>{name}</Name><Properties><Last-Modified>{modified}</Last-Modified><Etag>{etag}</Etag>\
             <Content-Length>{size}</Content-Length><Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
        )
        .unwrap();
    }
    write!(page, "</Blobs><NextMarker>{}</NextMarker></EnumerationResults>", all.next().unwrap_or_default()).unwrap();
    page.into_response()
}

/// Deletes the blobs that the parts of a body name.
fn batch(root: &Path, body: &[u8]) -> Response {
    let said = str::from_utf8(body).unwrap();
    let (mut id, mut answers, mut deletes) = ("", String::new(), 0);
    for line in said.lines() {
        id = line.strip_prefix("Content-ID: ").unwrap_or(id);
        let target = line.strip_prefix("DELETE ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
        let Some(target) = target else { continue };
        deletes += 1;
        let outcome = match fs::remove_file(root.join(key_of(target))) {
            Ok(()) => "202 Accepted",
            Err(_) => "404 The specified blob does not exist.",
        };
        write!(
            answers,
            "--batch\r\nContent-Type: application/http\r\nContent-ID: {id}\r\n\r\nHTTP/1.1 {outcome}\r\nx-ms-request-id: {id}\r\n\r\n"
        )
        .unwrap();
    }
    assert_eq!(said.matches(&format!("Authorization: Bearer {TOKEN}")).count(), deletes, "{said}");
    answers += "--batch--\r\n";
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "multipart/mixed; boundary=batch")], answers).into_response()
}
