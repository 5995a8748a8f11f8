//! Stored bytes in an object store: a server that speaks S3, or a folder. They come back as they were, also where something was killed or
//! away; what nobody needs goes, and what somebody needs never does.
mod clouds;
mod garbage;
mod killed;
mod moving;
mod past;
mod verifying;

use crate::{
    admin::run,
    crash::{self, Process, url},
    members,
    principals::{Someone, someone},
    queue::claimer,
    support::{
        IN_DATABASE, TOKEN, TestApp, Wish, document,
        s3::{KEY_ID, S3, SECRET, age, objects_in},
        sample, server, until,
    },
};
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use svc::{
    blobs::BlobError,
    store::{self, blobs::BlobPlace},
    worker::queue::PgQueue,
};
use svc_actors::Queue;
use svc_client::{
    Code, Failure, FileUpload, Json,
    wire::{Bm25Search, CheckedPart, DocumentPath, EmbedQuery, FindingKind, Settled, UploadQuery, WaitQuery},
};
use svc_ids::DocumentId;

/// A service whose bytes are in a store, and which keeps no copies of them.
async fn app_on(settings: &[(&str, String)], no_worker: bool) -> TestApp {
    let mut settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    settings.push(("SVC_SPOOL_MAX_BYTES", "0"));
    TestApp::with(Wish { settings: &settings, no_worker, ..Wish::default() }).await
}

fn in_folder(folder: &Path) -> Vec<(&'static str, String)> {
    vec![("SVC_BLOB_STORE", format!("file://{}", folder.display()))]
}

/// A program of the service with these settings, on the database of a test.
fn program(app: &TestApp, settings: &[(&str, String)], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["--config", "/dev/null"])
        .args(arguments)
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", server::work_dir().join("data"))
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn last_line(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| panic!("{output:?}"))
}

/// Bytes that no program shortens.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(next).collect()
}

async fn bytes_of(app: &TestApp, id: i64) -> Result<Vec<u8>, Failure> {
    let download = app.client.read_bytes(DocumentPath { id }).await?.value().unwrap();
    Ok(download.bytes.try_collect::<Vec<_>>().await?.concat())
}

async fn delete(app: &TestApp, id: i64) {
    app.client.delete_document(DocumentPath { id }).await.unwrap();
}

/// The keys of files, and those of garbage.
async fn keys(app: &TestApp) -> (BTreeSet<String>, BTreeSet<String>) {
    let all = async |query: &'static str| -> BTreeSet<String> {
        sqlx::query_scalar(query).fetch_all(&app.pool).await.unwrap().into_iter().collect()
    };
    (
        all("SELECT object FROM document_blobs WHERE object IS NOT NULL").await,
        all("SELECT object FROM blob_garbage").await,
    )
}

/// The keys that files of objects have.
fn keys_of(objects: &[PathBuf]) -> BTreeSet<String> {
    let key = |path: &PathBuf| {
        let mut parts = path.iter().rev().map(|part| part.to_string_lossy().into_owned());
        let (name, shard) = (parts.next().unwrap(), parts.next().unwrap());
        format!("{shard}/{name}")
    };
    objects.iter().map(key).collect()
}

async fn count(app: &TestApp, what: &'static str) -> i64 {
    sqlx::query_scalar(what).fetch_one(&app.pool).await.unwrap()
}

async fn large_objects(app: &TestApp) -> i64 {
    count(app, "SELECT count(*) FROM pg_largeobject_metadata").await
}

/// Lets the window pass for all garbage.
async fn let_the_window_pass(app: &TestApp) {
    sqlx::query("UPDATE blob_garbage SET since = since - interval '7 days 1 minute'").execute(&app.pool).await.unwrap();
}

/// Everything that a file with members and a large one must do, whatever the store is.
async fn comes_back(settings: &[(&str, String)], objects: impl Fn() -> Vec<PathBuf>) {
    let app = app_on(settings, false).await;
    let handbook = std::fs::read(sample("handbook.md")).unwrap();
    let stored = app.upload(&sample("handbook.md")).await.unwrap();
    assert!(stored.blob_ref.starts_with("obj:"), "{}", stored.blob_ref);
    assert_eq!(app.settled(stored.document_id).await.settled, Settled::Settled);
    let found: Bm25Search = serde_json::from_value(json!({"query": "radar gauge"})).unwrap();
    let found = app.client.search_bm25(Json(found)).await.unwrap();
    assert!(!found.results.is_empty(), "its text is found");
    assert_eq!(bytes_of(&app, stored.document_id).await.unwrap(), handbook);
    let part = app.raw("GET", &format!("/documents/{}/bytes", stored.document_id)).header("range", "bytes=10-19");
    let part = part.send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), &handbook[10..20]);

    // Members have objects of their own, and the same bytes are stored once.
    let zip = members::archive(&[("heron.md", "# Herons\n\nThey wait."), ("coot.md", "# Coots\n\nThey dive.")]);
    let container = app.upload_bytes("birds.zip", zip.clone()).await.unwrap().document_id;
    assert_eq!(app.settled(container).await.settled, Settled::Settled);
    assert_eq!(objects().len(), 4);
    let again = app.upload_bytes("birds.zip", zip).await.unwrap();
    assert!(again.was_existing && again.blob_ref.starts_with("obj:"));
    assert_eq!(objects().len(), 4);

    // This goes in parts, of which the last one is short; an empty file has none.
    let large = noise((20 << 20) + 17, 1);
    let of_parts = app.upload_bytes("noise.bin", large.clone()).await.unwrap().document_id;
    assert!(bytes_of(&app, of_parts).await.unwrap() == large);
    let empty = app.upload_bytes("empty.txt", "").await.unwrap().document_id;
    assert_eq!(bytes_of(&app, empty).await.unwrap(), b"");
    app.settled(of_parts).await;
    app.settled(empty).await;
    assert_eq!(large_objects(&app).await, 0, "nothing is in the database");
    let (of_files, garbage) = keys(&app).await;
    assert_eq!((of_files, garbage.len()), (keys_of(&objects()), 0));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_with_their_members_come_back_from_a_server_of_s3() {
    let s3 = S3::start().await;
    comes_back(&s3.settings(), || s3.objects()).await;
    assert!(s3.heard("DELETE") == 0 && s3.heard("POST") >= 2, "the large one went in parts, and no part was given up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_with_their_members_come_back_from_a_folder_that_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("made/by/the service");
    comes_back(&in_folder(&store), || objects_in(&store)).await;
    assert_eq!(std::fs::metadata(&store).unwrap().permissions().mode() & 0o077, 0);
}

#[tokio::test]
async fn deleted_bytes_are_kept_for_a_while_and_then_removed() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let kept = app.upload_bytes("kept.txt", "kept").await.unwrap();
    let first = app.upload_bytes("first.txt", "one").await.unwrap();
    let second = app.upload_bytes("second.txt", "two").await.unwrap();
    delete(&app, first.document_id).await;
    delete(&app, second.document_id).await;
    let key = |stored: &str| stored.trim_start_matches("obj:").to_owned();
    let (of_files, garbage) = keys(&app).await;
    assert_eq!(of_files, [key(&kept.blob_ref)].into());
    assert_eq!(garbage, [key(&first.blob_ref), key(&second.blob_ref)].into());
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 0, "a restored database may need them");
    assert_eq!(s3.objects().len(), 3);

    // One is gone from the store already, as after a look that was killed.
    std::fs::remove_file(s3.object(&key(&first.blob_ref))).unwrap();
    let_the_window_pass(&app).await;
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), crate::queue::LEASE, None);
    queue.sweep().await.unwrap();
    until("the garbage to go", async || keys(&app).await.1.is_empty().then_some(())).await;
    assert_eq!(keys_of(&s3.objects()), keys(&app).await.0);
    assert_eq!(bytes_of(&app, kept.document_id).await.unwrap(), b"kept");
    app.end().await;
}

#[tokio::test]
async fn an_object_that_nothing_names_becomes_garbage_once_it_is_old_and_foreign_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let app = app_on(&in_folder(folder.path()), true).await;
    let kept = app.upload_bytes("kept.txt", "kept").await.unwrap();
    let name = |digit: char| format!("ab/ab{}", digit.to_string().repeat(30));
    std::fs::create_dir_all(folder.path().join("ab")).unwrap();
    let foreign = ["photo.jpg", "ab/photo.jpg", "ab/cd"].map(str::to_owned);
    let broken_off = [format!("{}#1", name('3')), format!("{}#2", name('4'))];
    for path in [name('1'), name('2')].iter().chain(&foreign).chain(&broken_off) {
        std::fs::write(folder.path().join(path), "x").unwrap();
    }
    let key = kept.blob_ref.trim_start_matches("obj:").to_owned();
    for path in [name('1'), key.clone(), broken_off[0].clone()].iter().chain(&foreign) {
        age(&folder.path().join(path));
    }
    // While the store cannot be told to be ours the weekly look breaks off, and is not put off for a week.
    let mark = folder.path().join("svc-blob-store");
    let id = std::fs::read(&mark).unwrap();
    std::fs::write(&mark, "another's").unwrap();
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), crate::queue::LEASE, None);
    assert!(app.service.blobs.sweep(&app.pool).await.is_err());
    queue.sweep().await.unwrap();
    let turn = "SELECT count(*) FROM upkeep_turn WHERE name = 'sweep_objects'";
    until("the look that breaks off", async || (queue.is_tidy() && count(&app, turn).await == 0).then_some(())).await;
    std::fs::write(&mark, id).unwrap();
    assert!(keys(&app).await.1.is_empty());
    sqlx::query("DELETE FROM upkeep_turn").execute(&app.pool).await.unwrap();
    queue.sweep().await.unwrap();
    until("the look", async || (queue.is_tidy() && count(&app, turn).await == 1).then_some(())).await;
    assert_eq!(app.service.blobs.sweep(&app.pool).await.unwrap(), 0, "it is noted once");
    assert_eq!(keys(&app).await, ([key.clone()].into(), [name('1')].into()));
    // A file that comes to name it after all keeps it.
    sqlx::query("UPDATE blob_garbage SET object = $1").bind(&key).execute(&app.pool).await.unwrap();
    let_the_window_pass(&app).await;
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 0);
    sqlx::query("UPDATE blob_garbage SET object = $1").bind(name('1')).execute(&app.pool).await.unwrap();
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 1);
    for (path, is_there) in [(name('1'), false), (name('2'), true), (key, true)]
        .into_iter()
        .chain(foreign.map(|path| (path, true)))
        .chain([(broken_off[0].clone(), false), (broken_off[1].clone(), true)])
    {
        assert_eq!(folder.path().join(&path).exists(), is_there, "{path}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_goes_away_in_mid_ingest_fails_no_file_and_uploads_say_so() {
    let s3 = S3::start().await;
    let mut app = app_on(&s3.settings(), true).await;
    let note = Json(document("A note", "Herons wait in the reeds."));
    let before = app.client.create_document(WaitQuery::default(), note).await.unwrap().document.id;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    s3.set_away(true);
    app.start_worker().await;
    // One statement, because the task is tried again, and then has no reason for a moment.
    let message: String = until("a task that waits for the store", async || {
        let waits =
            "SELECT put_off_message FROM task_queue WHERE put_off_code = 'blob_store_away' AND NOT final LIMIT 1";
        sqlx::query_scalar(waits).fetch_optional(&app.pool).await.unwrap()
    })
    .await;
    assert!(message.contains("SVC_BLOB_STORE") && !message.contains("127.0.0.1"), "{message}");

    let refused = app.upload_bytes("late.md", "# Late").await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::Unavailable, 503), "{refused}");
    assert_eq!(refused.members["setting"], "SVC_BLOB_STORE");
    assert!(refused.members["retry_after"].is_u64() && !refused.to_string().contains("127.0.0.1"), "{refused}");
    assert_eq!(count(&app, "SELECT count(*) FROM documents WHERE title = 'late.md'").await, 0);

    // It is ready all the same, because it finds what it has; and it tells.
    app.sampled().await;
    app.service.sampler.ask_blob_store().await;
    let ready = app.client.read_readiness().await.unwrap();
    let check = ready.checks.iter().find(|check| check.name == CheckedPart::BlobStore).unwrap();
    assert!(ready.ready && !check.ok && check.detail.contains("SVC_BLOB_STORE"), "{check:?}");
    let findings = app.client.list_findings().await.unwrap().findings;
    assert!(findings.iter().any(|finding| finding.kind == FindingKind::BlobStore), "{findings:?}");
    let mut doctor = crate::admin::worker_command(&app, &["doctor", "--json"]);
    doctor.envs(s3.settings());
    let said = String::from_utf8_lossy(&run(doctor).await.stdout).into_owned();
    assert!(said.contains(r#""kind":"blob_store""#) && !said.contains(SECRET), "{said}");
    assert!(app.client.read_document(DocumentPath { id: before }, EmbedQuery::default()).await.is_ok());

    s3.set_away(false);
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    app.service.sampler.ask_blob_store().await;
    let ready = app.client.read_readiness().await.unwrap();
    assert!(ready.checks.iter().any(|check| check.name == CheckedPart::BlobStore && check.ok), "{ready:?}");
    let late = app.upload_bytes("late.md", "# Late").await.unwrap().document_id;
    assert_eq!(app.settled(late).await.settled, Settled::Settled);
    app.end().await;
}

#[tokio::test]
async fn a_reader_holds_no_connection_and_a_changed_object_is_never_read_to_its_end() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let stored = app.upload_bytes("noise.bin", noise(3 << 20, 2)).await.unwrap();
    let id = DocumentId(stored.document_id);
    let row = store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), id).await.unwrap().unwrap();
    let alone = sqlx::postgres::PgPoolOptions::new().connect_with(app.options.clone()).await.unwrap();
    let mut reading = app.service.blobs.read(&alone, &row, None, 1 << 20);
    alone.close().await;
    let mut read = 0;
    while let Some(piece) = reading.next().await.unwrap() {
        read += piece.len();
    }
    assert_eq!(read, 3 << 20, "the database was not asked");

    let path = s3.object(stored.blob_ref.trim_start_matches("obj:"));
    let sound = std::fs::read(&path).unwrap();
    let mut changed = sound.clone();
    changed[100] ^= 1;
    std::fs::write(&path, &changed).unwrap();
    let mut reading = app.service.blobs.read(&app.pool, &row, None, 1 << 20);
    let mut read = 0;
    let error = loop {
        match reading.next().await {
            Ok(Some(piece)) => read += piece.len(),
            Ok(None) => panic!("the whole of it was read"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, BlobError::Damaged { .. }) && read == 2 << 20, "{error} after {read}");
    assert!(bytes_of(&app, stored.document_id).await.is_err(), "a client sees that it ends early");
    // Cut off, it is known without a hash.
    std::fs::write(&path, &changed[..1000]).unwrap();
    let mut reading = app.service.blobs.read(&app.pool, &row, None, 1 << 20);
    let short = loop {
        if let Err(error) = reading.next().await {
            break error;
        }
    };
    assert!(matches!(short, BlobError::Short { .. }), "{short}");
    std::fs::remove_file(&path).unwrap();
    let missing = app.service.blobs.read(&app.pool, &row, None, 1 << 20).next().await.unwrap_err();
    assert!(matches!(missing, BlobError::Missing { .. }), "{missing}");
    std::fs::write(&path, &sound).unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_or_changed_is_named_and_saved_by_no_download() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, aside) = (folder.path().join("ours"), folder.path().join("aside"));
    let app = app_on(&in_folder(&ours), true).await;
    let path = |blob_ref: &str| ours.join(blob_ref.trim_start_matches("obj:"));
    // The service keeps the last piece back, and a download that goes on there asks for a part, which the service cannot check.
    let large = app.upload_bytes("large.bin", noise(3 << 20, 4)).await.unwrap();
    let sound = std::fs::read(path(&large.blob_ref)).unwrap();
    let mut changed = sound.clone();
    changed[100] ^= 1;
    std::fs::write(path(&large.blob_ref), &changed).unwrap();
    let saved = elsewhere.path().join("saved.bin");
    let arguments = ["bytes", &large.document_id.to_string(), "-o", &saved.display().to_string()];
    let mut command = program(&app, &[], &arguments);
    command.env("SVC_URL", &app.base).env("SVC_API_TOKEN", TOKEN);
    let refused = run(command).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("have not the hash"), "{refused:?}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing is saved");
    std::fs::write(path(&large.blob_ref), &sound).unwrap();

    // A file of one piece is an error from the beginning, and no answer that breaks off.
    let refusal = async |id: i64| {
        let answer = app.raw("GET", &format!("/documents/{id}/bytes")).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let small = app.upload_bytes("small.txt", "The small one.").await.unwrap();
    let id = small.document_id;
    for change in ["The other one.", "The", ""] {
        match change {
            "" => std::fs::remove_file(path(&small.blob_ref)).unwrap(),
            other => std::fs::write(path(&small.blob_ref), other).unwrap(),
        }
        let (status, problem) = refusal(id).await;
        assert_eq!((status, problem["code"].as_str()), (500, Some("internal")), "{change}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(&format!("document {id} are damaged")), "{problem}");
    }
    // What the remedy says helps, and an upload alone finds the file that is there.
    assert!(app.upload_bytes("small.txt", "The small one.").await.unwrap().was_existing);
    delete(&app, id).await;
    let again = app.upload_bytes("small.txt", "The small one.").await.unwrap();
    assert!(!again.was_existing);
    assert_eq!(bytes_of(&app, again.document_id).await.unwrap(), b"The small one.");
    // A disk that is not mounted is said to be away.
    std::fs::rename(&ours, &aside).unwrap();
    std::fs::create_dir(&ours).unwrap();
    let (status, problem) = refusal(again.document_id).await;
    assert_eq!((status, problem["setting"].as_str()), (503, Some("SVC_BLOB_STORE")), "{problem}");
    std::fs::remove_dir(&ours).unwrap();
    std::fs::rename(&aside, &ours).unwrap();
    assert_eq!(bytes_of(&app, again.document_id).await.unwrap(), b"The small one.");
    app.end().await;
}

#[tokio::test]
async fn a_store_of_another_database_or_an_empty_one_is_not_taken_for_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (folder.path().join("ours"), folder.path().join("other"));
    let app = app_on(&in_folder(&ours), true).await;
    let id = app.upload_bytes("one.txt", "one").await.unwrap().document_id;
    // Another database has marked this one.
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("svc-blob-store"), uuid::Uuid::new_v4().to_string()).unwrap();
    let verify = async |folder: &Path| run(program(&app, &in_folder(folder), &["blobs", "verify"])).await;
    let refused = verify(&other).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("belongs to another database"), "{said}");
    let refused = verify(&folder.path().join("not mounted")).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("mount its disk"), "{said}");

    // Where a disk was mounted there is an empty folder: the bytes are away, and not lost.
    let aside = folder.path().join("aside");
    std::fs::rename(&ours, &aside).unwrap();
    std::fs::create_dir(&ours).unwrap();
    let row = store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), DocumentId(id)).await.unwrap().unwrap();
    let away = app.service.blobs.read(&app.pool, &row, None, 1 << 20).next().await.unwrap_err();
    assert!(away.is_away(), "{away}");
    assert_eq!(app.upload_bytes("two.txt", "two").await.unwrap_err().code, Code::Unavailable);
    assert!(app.service.blobs.sweep(&app.pool).await.is_err() && objects_in(&ours).is_empty());
    std::fs::remove_dir_all(&ours).unwrap();
    std::fs::rename(&aside, &ours).unwrap();
    assert_eq!(bytes_of(&app, id).await.unwrap(), b"one");

    // Without the setting nobody can read them, and everybody says why.
    let without = svc::blobs::Blobs::default();
    let state = without.state(&app.pool).await;
    assert!(matches!(state, Some(Err(BlobError::NotConfigured))), "{state:?}");
    let unset = std::sync::Arc::new(without).read(&app.pool, &row, None, 1 << 20).next().await.unwrap_err();
    assert!(unset.is_away() && unset.to_string().contains("SVC_BLOB_STORE"), "{unset}");
    app.end().await;
}

#[tokio::test]
async fn two_principals_with_the_same_bytes_share_no_object_and_each_reads_its_own() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let (alice, bob) = (someone(&app, "alice").await, someone(&app, "bob").await);
    let upload = async |who: &Someone| {
        let query = UploadQuery { private: true, ..UploadQuery::default() };
        who.client.upload_file(query, FileUpload::from_bytes("plan.txt", "the plan", None)).await.unwrap()
    };
    let (of_alice, of_bob) = (upload(&alice).await, upload(&bob).await);
    assert!(!of_alice.was_existing && !of_bob.was_existing && of_alice.blob_ref != of_bob.blob_ref);
    assert_eq!(s3.objects().len(), 2);
    let hash = of_alice.content_hash.trim_start_matches("sha256:");
    assert!(keys(&app).await.0.iter().all(|key| !hash.starts_with(&key[3..11])), "a key says nothing of the bytes");
    assert!(upload(&alice).await.was_existing, "her own are found again");
    let read = async |who: &Someone, id: i64| {
        who.client.read_bytes(DocumentPath { id }).await.map(|_| ()).map_err(|failure| failure.code)
    };
    assert_eq!(read(&alice, of_alice.document_id).await, Ok(()));
    assert_eq!(read(&alice, of_bob.document_id).await, Err(Code::NotFound));
    alice.client.delete_document(DocumentPath { id: of_alice.document_id }).await.unwrap();
    let_the_window_pass(&app).await;
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 1);
    assert_eq!(read(&bob, of_bob.document_id).await, Ok(()), "his are his");
    // A write that is refused leaves no object.
    let query = UploadQuery { parent_id: Some(of_bob.document_id), ..UploadQuery::default() };
    let refused = alice.client.upload_file(query, FileUpload::from_bytes("more.txt", "more", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    until("its object to go", async || (s3.objects().len() == 1).then_some(())).await;
    app.end().await;
}

#[tokio::test]
async fn no_secret_of_the_store_is_shown() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let mut settings = s3.settings();
    settings.push(("AWS_SESSION_TOKEN", "another-s3cret".to_owned()));
    let shown = run(program(&app, &settings, &["config"])).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("SVC_BLOB_STORE") && shown.contains(KEY_ID), "{shown}");
    assert!(!shown.contains(SECRET) && !shown.contains("another-s3cret"), "{shown}");
    // The server refuses a wrong key, and what it answers is told without it.
    for (name, value) in &mut settings {
        if *name == "SVC_BLOB_SECRET_ACCESS_KEY" {
            *value = "a-wrong-s3cret".to_owned();
        }
    }
    let refused = run(program(&app, &settings, &["blobs", "verify"])).await;
    let said = format!("{refused:?}");
    assert!(!refused.status.success() && said.contains("SVC_BLOB_STORE names"), "{said}");
    assert!(!said.contains("a-wrong-s3cret") && !said.contains("another-s3cret"), "{said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_goes_from_a_store_of_objects_into_a_database_and_back() {
    let s3 = S3::start().await;
    let within = Wish { settings: &[IN_DATABASE], ..Wish::default() };
    let (outside, inside) = (app_on(&s3.settings(), false).await, TestApp::with(within).await);
    let bytes = noise(9 << 20, 3);
    let id = outside.upload_bytes("noise.bin", bytes.clone()).await.unwrap().document_id;
    outside.settled(id).await;
    let folder = tempfile::tempdir().unwrap();
    let go = async |app: &TestApp, command: &str, name: &str| {
        let folder = folder.path().join(name).display().to_string();
        let output = crate::cli::svc(app, &[command, &folder]).await;
        assert!(output.status.success(), "{output:?}");
    };
    let file_in = async |app: &TestApp| {
        let id: i64 = sqlx::query_scalar("SELECT document_id FROM document_blobs").fetch_one(&app.pool).await.unwrap();
        let conn = &mut app.pool.acquire().await.unwrap();
        (id, store::blobs::place_of(conn, DocumentId(id)).await.unwrap().unwrap())
    };
    go(&outside, "export", "first").await;
    go(&inside, "import", "first").await;
    let (there, place) = file_in(&inside).await;
    assert!(matches!(place, BlobPlace::LargeObject(_)));
    assert!(bytes_of(&inside, there).await.unwrap() == bytes);
    go(&inside, "export", "second").await;
    delete(&outside, id).await;
    go(&outside, "import", "second").await;
    let (back, place) = file_in(&outside).await;
    assert!(matches!(place, BlobPlace::Object(_)));
    assert!(bytes_of(&outside, back).await.unwrap() == bytes);
    outside.end().await;
    inside.end().await;
}
