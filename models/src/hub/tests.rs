use super::{
    test_server::{Reply, Request, TestServer},
    *,
};
use crate::{Engine, ModelSettings, sample};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const WEIGHTS: &str = "model.safetensors";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sample model's files as a hub has them.
#[derive(Clone)]
struct Hub {
    files: Arc<BTreeMap<String, Vec<u8>>>,
}

impl Hub {
    fn new() -> Self {
        let folder = sample::sample_folder();
        let read = |name: &str| (name.to_owned(), std::fs::read(folder.path().join(name)).unwrap());
        Self { files: Arc::new(["config.json", "tokenizer.json", WEIGHTS].map(read).into()) }
    }

    /// Answers as the real hub does: small files directly, the weights by a redirect to a store.
    fn answer(&self, request: &Request) -> Reply {
        if let Some(name) = request.path.strip_prefix("/store/") {
            let name = name.split('?').next().unwrap();
            return Reply::ok(self.files[name].clone()).header("etag", "\"of-the-store\"").ranged(request);
        }
        // This is the part after `/owner/tiny/resolve/revision/`.
        let name = request.path.splitn(6, '/').nth(5).unwrap();
        let Some(bytes) = self.files.get(name) else {
            return Reply::status(404).header("x-error-code", "EntryNotFound");
        };
        if name == WEIGHTS {
            return Reply::status(302)
                .header("location", format!("/store/{name}?signature=secret"))
                .header("x-linked-etag", format!("\"{}\"", hex(&Sha256::digest(bytes))))
                .header("x-linked-size", bytes.len().to_string())
                .header("x-repo-commit", COMMIT);
        }
        let blob = Sha1::new_with_prefix(format!("blob {}\0", bytes.len())).chain_update(bytes);
        Reply::ok(bytes.clone())
            .header("etag", format!("\"{}\"", hex(&blob.finalize())))
            .header("x-repo-commit", COMMIT)
            .ranged(request)
    }
}

fn is_weights(request: &Request) -> bool {
    request.method == "GET" && request.path.starts_with("/store/")
}

fn settings(server: &TestServer) -> HubSettings {
    HubSettings { endpoint: Some(server.address.clone()), attempts: 3, pause: Duration::ZERO, ..HubSettings::default() }
}

async fn fetch_sample(models: &TempDir, settings: &HubSettings) -> Result<PathBuf, ModelError> {
    fetch_model("owner/tiny", Some(models.path()), settings, &|_| {}).await
}

fn load(models: &TempDir) -> Engine {
    let (model, models_dir) = ("owner/tiny".to_owned(), Some(models.path().to_owned()));
    Engine::load(&ModelSettings { model, models_dir, threads: 1, ..ModelSettings::default() }).unwrap()
}

fn source(error: ModelError) -> FetchError {
    let ModelError::NotFetched { source, .. } = error else { panic!("{error}") };
    source
}

/// What is in the models folder, without locks.
fn left(models: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![models.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => names.push(path.strip_prefix(models).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    names.retain(|name| !name.ends_with(".lock"));
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_comes_over_redirects_and_is_loaded_and_is_fetched_once() {
    let hub = Hub::new();
    let server = TestServer::start({
        let hub = hub.clone();
        move |request, _| hub.answer(request)
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    let seen = Mutex::new(BTreeMap::new());
    let progress = |progress: Progress<'_>| {
        seen.lock().unwrap().insert(progress.file.to_owned(), (progress.bytes, progress.total));
    };
    fetch_model("owner/tiny", Some(models.path()), &settings(&server), &progress).await.unwrap();
    for (file, bytes) in hub.files.iter() {
        assert_eq!(&std::fs::read(models.path().join("owner--tiny").join(file)).unwrap(), bytes);
        let size = bytes.len() as u64;
        assert_eq!(seen.lock().unwrap()[file], (size, Some(size)));
    }
    assert_eq!(load(&models).info().name, "owner/tiny");
    let requests = server.requests();
    assert_eq!(requests[0].path, "/owner/tiny/resolve/main/config.json");
    // From then on requests name the commit, so that a push in the middle mixes no two revisions.
    let others = requests[1..].iter().filter(|request| request.path.starts_with("/owner/"));
    assert!(others.clone().count() > 3);
    assert!(others.into_iter().all(|request| request.path.contains(&format!("/resolve/{COMMIT}/"))), "{requests:?}");
    fetch_sample(&models, &settings(&server)).await.unwrap();
    assert_eq!(server.requests().len(), requests.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_breaks_off_goes_on_where_it_was() {
    let hub = Hub::new();
    let cut = hub.clone();
    let server = TestServer::start(move |request, count| {
        let reply = cut.answer(request);
        if is_weights(request) && count < 2 { Reply { cut_after: Some(1000), ..reply } } else { reply }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    fetch_sample(&models, &settings(&server)).await.unwrap();
    let starts: Vec<_> =
        server.requests().iter().filter(|request| is_weights(request)).map(|request| request.start).collect();
    assert_eq!(starts, [None, Some(1000), Some(2000)]);
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_failed_goes_on_in_the_next_run() {
    let hub = Hub::new();
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let server = TestServer::start(move |request, _| {
        let reply = hub.answer(request);
        match is_weights(request) && broken.load(Ordering::SeqCst) {
            true => Reply { cut_after: Some(if request.start.is_none() { 500 } else { 0 }), ..reply },
            false => reply,
        }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    let error = source(fetch_sample(&models, &settings(&server)).await.unwrap_err());
    assert!(matches!(error, FetchError::BrokenOff { bytes: 500, .. }), "{error}");
    assert!(!models.path().join("owner--tiny").exists(), "half a model is no model");
    is_broken.store(false, Ordering::SeqCst);
    fetch_sample(&models, &settings(&server)).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests.iter().rfind(|request| is_weights(request)).unwrap().start, Some(500));
    let of_config = |request: &&Request| request.method == "GET" && request.path.ends_with("/config.json");
    assert_eq!(requests.iter().filter(of_config).count(), 1, "what was whole is not fetched again");
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_meanwhile_starts_anew() {
    let hub = Hub::new();
    let is_new = Arc::new(AtomicBool::new(false));
    let new = Arc::clone(&is_new);
    let server = TestServer::start(move |request, _| {
        let mut reply = hub.answer(request);
        match new.load(Ordering::SeqCst) {
            // This is an older revision of the same length.
            false if request.path.contains(WEIGHTS) => {
                let old = vec![7; hub.files[WEIGHTS].len()];
                reply.headers.retain(|(name, _)| *name != "x-linked-etag");
                reply.headers.push(("x-linked-etag", format!("\"{}\"", hex(&Sha256::digest(&old)))));
                if is_weights(request) {
                    reply = Reply { body: old, cut_after: Some(300), ..reply };
                }
                reply
            }
            _ => reply,
        }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    let impatient = HubSettings { attempts: 1, ..settings(&server) };
    fetch_sample(&models, &impatient).await.unwrap_err();
    is_new.store(true, Ordering::SeqCst);
    fetch_sample(&models, &impatient).await.unwrap();
    assert_eq!(server.requests().iter().rfind(|request| is_weights(request)).unwrap().start, None);
    assert!(left(models.path()).iter().all(|name| !name.ends_with(".part")), "{:?}", left(models.path()));
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_another_hash_are_thrown_away() {
    let hub = Hub::new();
    let is_wrong = Arc::new(AtomicBool::new(true));
    let wrong = Arc::clone(&is_wrong);
    let server = TestServer::start(move |request, _| {
        let mut reply = hub.answer(request);
        if wrong.load(Ordering::SeqCst) && is_weights(request) {
            reply.body[77] ^= 1;
        }
        reply
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    let error = source(fetch_sample(&models, &settings(&server)).await.unwrap_err());
    assert!(matches!(&error, FetchError::Checksum { file, .. } if file == WEIGHTS), "{error}");
    assert!(left(models.path()).iter().all(|name| !name.contains(WEIGHTS)), "{:?}", left(models.path()));
    is_wrong.store(false, Ordering::SeqCst);
    fetch_sample(&models, &settings(&server)).await.unwrap();
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_was_damaged_on_disk_is_fetched_again_from_the_beginning() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, count| {
        let reply = hub.answer(request);
        match is_weights(request) {
            true if count == 0 => Reply { cut_after: Some(600), ..reply },
            true if count == 1 => Reply::status(500),
            _ => reply,
        }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    fetch_sample(&models, &HubSettings { attempts: 1, ..settings(&server) }).await.unwrap_err();
    let part = left(models.path()).into_iter().find(|name| name.contains(WEIGHTS)).unwrap();
    std::fs::write(models.path().join(part), [0; 600]).unwrap();
    fetch_sample(&models, &settings(&server)).await.unwrap();
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_ranges_is_read_from_the_beginning() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, count| {
        let reply = hub.answer(&Request { start: None, ..request.clone() });
        if is_weights(request) && count == 0 { Reply { cut_after: Some(1000), ..reply } } else { reply }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    fetch_sample(&models, &settings(&server)).await.unwrap();
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hub_does_not_have_is_said_by_name() {
    let error_of = async |answer: fn(&Hub, &Request) -> Reply| {
        let hub = Hub::new();
        let server = TestServer::start(move |request, _| answer(&hub, request)).await;
        let models = tempfile::tempdir().unwrap();
        let error = fetch_sample(&models, &settings(&server)).await.unwrap_err();
        assert!(!models.path().join("owner--tiny").exists());
        error.to_string()
    };
    let error = error_of(|_, _| Reply::status(401).header("x-error-code", "RepoNotFound")).await;
    assert!(error.contains("no owner/tiny at revision main") && error.contains("127.0.0.1"), "{error}");
    let error = error_of(|_, _| Reply::status(404).header("x-error-code", "RevisionNotFound")).await;
    assert!(error.contains("no owner/tiny at revision main"), "{error}");
    let error = error_of(|hub, request| match request.path.contains(WEIGHTS) {
        true => Reply::status(404).header("x-error-code", "EntryNotFound"),
        false => hub.answer(request),
    })
    .await;
    assert!(error.contains("has no model.safetensors"), "{error}");
    let error = error_of(|_, _| Reply::status(403).header("x-error-code", "GatedRepo")).await;
    assert!(error.contains("behind a login"), "{error}");
    let error = error_of(|hub, request| match request.path.contains(WEIGHTS) {
        true => hub.answer(request).header("x-linked-size", "1").header("location", "/x"),
        false => Reply::ok("x").header("etag", "\"9a10a8c3f0ef3c6ac1ffd7a4a2d1f1cc0b47a8d7\""),
    })
    .await;
    assert!(error.contains("config.json has the hash"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_in_trouble_is_asked_again_and_not_for_ever() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, count| {
        // Each path fails twice, for HEAD and GET.
        if count < 2 { Reply::status([503, 429][count]) } else { hub.answer(request) }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    // The hub and the store each fail twice before the weights arrive.
    fetch_sample(&models, &HubSettings { attempts: 5, ..settings(&server) }).await.unwrap();
    let down = TestServer::start(|_, _| Reply::status(500)).await;
    let error = source(fetch_sample(&tempfile::tempdir().unwrap(), &settings(&down)).await.unwrap_err());
    assert!(matches!(error, FetchError::Status { status: 500, .. }), "{error}");
    assert_eq!(down.requests().len(), 3);
    let gone = HubSettings { endpoint: Some("http://127.0.0.1:1".into()), ..settings(&down) };
    let error = source(fetch_sample(&tempfile::tempdir().unwrap(), &gone).await.unwrap_err());
    assert!(matches!(&error, FetchError::Unreachable { problem, .. } if problem.contains("refused")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_hub_is_given_up_and_what_came_is_kept() {
    let impatient =
        |server: &TestServer| HubSettings { silence: Duration::from_secs(1), attempts: 1, ..settings(server) };
    let mute = TestServer::start(|_, _| Reply { hangs: true, ..Reply::ok("") }).await;
    let error = source(fetch_sample(&tempfile::tempdir().unwrap(), &impatient(&mute)).await.unwrap_err());
    assert!(matches!(error, FetchError::Silent { .. }), "{error}");

    let hub = Hub::new();
    let server = TestServer::start(move |request, count| {
        let reply = hub.answer(request);
        let hangs = is_weights(request) && count < 2;
        Reply { cut_after: hangs.then_some(if count == 0 { 1000 } else { 0 }), hangs, ..reply }
    })
    .await;
    let models = tempfile::tempdir().unwrap();
    let error = loop {
        let error = source(fetch_sample(&models, &impatient(&server)).await.unwrap_err());
        // On a busy machine an answer of the hub itself may be late.
        if !matches!(error, FetchError::Silent { .. }) {
            break error;
        }
    };
    assert!(matches!(&error, FetchError::BrokenOff { bytes: 1000, problem, .. } if problem == "silence"), "{error}");
    fetch_sample(&models, &settings(&server)).await.unwrap();
    assert_eq!(server.requests().iter().rfind(|request| is_weights(request)).unwrap().start, Some(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_and_redirects_have_their_limits() {
    let error_of = async |reply: Reply| {
        let server = TestServer::start(move |_, _| reply.clone()).await;
        let error = source(fetch_sample(&tempfile::tempdir().unwrap(), &settings(&server)).await.unwrap_err());
        (error, server.requests().len())
    };
    let (error, _) = error_of(Reply::status(302).header("location", "/again")).await;
    assert!(matches!(&error, FetchError::Redirect { .. }), "{error}");
    let (error, asked) = error_of(Reply::status(302).header("location", "file:///etc/passwd")).await;
    assert!(matches!(&error, FetchError::Redirect { .. }) && asked == 1, "{error}");
    let (error, asked) = error_of(Reply::ok("x").header("x-linked-size", (65u64 << 20).to_string())).await;
    assert!(matches!(&error, FetchError::TooLarge { .. }) && asked == 1, "{error}");
    // The body is longer than announced: not one byte of it is kept.
    let (error, _) = error_of(Reply::ok("too long").header("x-linked-size", "3")).await;
    assert!(matches!(&error, FetchError::TooLarge { .. }), "{error}");
    let (error, _) = error_of(Reply::status(302)).await;
    assert!(error.to_string().contains("to nowhere"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_signature_of_a_store_is_shown() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, _| match is_weights(request) {
        true => Reply::status(500),
        false => hub.answer(request),
    })
    .await;
    let error = fetch_sample(&tempfile::tempdir().unwrap(), &settings(&server)).await.unwrap_err().to_string();
    assert!(error.contains("/store/model.safetensors") && !error.contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_the_catalogue_pins_wins_over_the_hub_s() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, _| hub.answer(request)).await;
    let models = tempfile::tempdir().unwrap();
    let error = fetch_model("all-MiniLM-L6-v2", Some(models.path()), &settings(&server), &|_| {}).await.unwrap_err();
    assert!(error.to_string().contains("be50c3628f2bf5bb"), "{error}");
    assert!(server.requests()[0].path.starts_with("/sentence-transformers/all-MiniLM-L6-v2/resolve/main/"));
    assert!(!models.path().join("all-MiniLM-L6-v2").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_fetch_the_same_model_fetch_it_once() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, _| hub.answer(request)).await;
    let models = tempfile::tempdir().unwrap();
    let settings = settings(&server);
    let (one, two) = tokio::join!(fetch_sample(&models, &settings), fetch_sample(&models, &settings));
    one.unwrap();
    two.unwrap();
    assert_eq!(server.requests().iter().filter(|request| is_weights(request)).count(), 1);
    assert!(!models.path().join("owner--tiny.part").exists(), "nothing half done is left");
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_lacks_a_file_gets_it_and_keeps_what_is_whole() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, _| hub.answer(request)).await;
    let models = tempfile::tempdir().unwrap();
    fetch_sample(&models, &settings(&server)).await.unwrap();
    let folder = models.path().join("owner--tiny");
    std::fs::remove_file(folder.join(WEIGHTS)).unwrap();
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    let offline = HubSettings { offline: true, ..settings(&server) };
    let error = source(fetch_sample(&models, &offline).await.unwrap_err());
    assert!(matches!(&error, FetchError::Offline { missing } if *missing == [WEIGHTS]), "{error}");
    assert!(error.to_string().contains("lacks model.safetensors, and fetching is switched off"), "{error}");
    // As in a models folder that cannot be written.
    let lock = models.path().join("owner--tiny.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let error = source(fetch_sample(&models, &settings(&server)).await.unwrap_err()).to_string();
    assert!(error.contains("lacks model.safetensors, and nothing") && error.contains("owner--tiny.lock"), "{error}");
    std::fs::remove_dir(&lock).unwrap();
    fetch_sample(&models, &settings(&server)).await.unwrap();
    let requests = server.requests();
    let fetched =
        |name: &str| requests.iter().filter(|request| request.method == "GET" && request.path.ends_with(name)).count();
    assert_eq!(requests.iter().filter(|request| is_weights(request)).count(), 2);
    assert_eq!((fetched("/config.json"), fetched("/tokenizer.json")), (2, 1), "one was another one, and one was whole");
    let whole = ["config.json", WEIGHTS, "notes.txt", "tokenizer.json"].map(|name| format!("owner--tiny/{name}"));
    assert_eq!(left(models.path()), whole);
    load(&models);
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_nothing_is_asked_and_what_is_here_is_taken() {
    let hub = Hub::new();
    let server = TestServer::start(move |request, _| hub.answer(request)).await;
    let models = tempfile::tempdir().unwrap();
    let offline = HubSettings { offline: true, ..settings(&server) };
    let error = source(fetch_sample(&models, &offline).await.unwrap_err());
    assert!(matches!(error, FetchError::Offline { .. }), "{error}");
    assert!(server.requests().is_empty() && left(models.path()).is_empty());
    fetch_sample(&models, &settings(&server)).await.unwrap();
    fetch_sample(&models, &offline).await.unwrap();
    // A folder of the user's own is never fetched.
    fetch_model(models.path().to_str().unwrap(), None, &offline, &|_| {}).await.unwrap();
    for endpoint in ["", "no address", "ftp://127.0.0.1", "data:x"] {
        let wrong = HubSettings { endpoint: Some(endpoint.into()), ..HubSettings::default() };
        let error = source(fetch_sample(&tempfile::tempdir().unwrap(), &wrong).await.unwrap_err());
        assert!(matches!(error, FetchError::Endpoint { .. }), "{endpoint:?}: {error}");
    }
}
