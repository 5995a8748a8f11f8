//! The stored bytes of files, as a client downloads them.
use crate::{
    cli::svc,
    support::{TOKEN, TestApp, Wish, disk::Disk, document, left_out, sample, until},
};
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Response;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::Arc,
};
use svc_client::{
    Code, Failure, FileUpload, Json, Meta, Validated,
    wire::{DocumentPath, NewDocument, UploadQuery},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Wish::default() }).await
}

/// Bytes that differ from place to place.
fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

async fn get(app: &TestApp, id: i64, headers: &[(&str, &str)]) -> Response {
    let request = app.raw("GET", &format!("/documents/{id}/bytes"));
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_file_comes_back_as_it_was_sent_to_be_saved_and_never_shown() {
    let app = idle().await;
    let bytes = std::fs::read(sample("handbook.md")).unwrap();
    let file = FileUpload::from_bytes("naïve \"plan\".md", bytes.clone(), None);
    let id = app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id;
    let answer = get(&app, id, &[]).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "content-length"), bytes.len().to_string());
    assert_eq!(header(&answer, "etag"), format!("\"sha256:{}\"", hex::encode(Sha256::digest(&bytes))));
    assert_eq!((header(&answer, "accept-ranges"), header(&answer, "x-content-type-options")), ("bytes", "nosniff"));
    let disposition = r#"attachment; filename="na_ve _plan_.md"; filename*=UTF-8''na%C3%AFve%20%22plan%22.md"#;
    assert_eq!(header(&answer, "content-disposition"), disposition);
    assert_eq!(answer.bytes().await.unwrap(), bytes);

    // Both clients read the same.
    for answer in
        [app.client.read_bytes(DocumentPath { id }).await, app.in_process.read_bytes(DocumentPath { id }).await]
    {
        let file = answer.unwrap().value().unwrap();
        assert_eq!((file.size, file.part.clone()), (bytes.len() as u64, None));
        assert_eq!(file.file_name.as_deref(), Some("naïve \"plan\".md"));
        assert_eq!(file.bytes.try_collect::<Vec<_>>().await.unwrap().concat(), bytes);
    }
    let head = app.raw("HEAD", &format!("/documents/{id}/bytes")).header("range", "bytes=0-1").send().await.unwrap();
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, bytes.len().to_string().as_str()));
    app.end().await;
}

#[tokio::test]
async fn ranges_are_answered_as_the_standard_says() {
    let app = idle().await;
    // The file has several pieces, so that ranges begin and end within them.
    let bytes = noise(700_001);
    let id = app.upload_bytes("noise.bin", bytes.clone()).await.unwrap().document_id;
    let size = bytes.len();
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-", 0, size - 1),
        ("bytes=262143-262144", 262_143, 262_144),
        ("bytes=100000-600000", 100_000, 600_000),
        ("bytes=700000-900000", 700_000, 700_000),
        ("bytes=-1", 700_000, 700_000),
        ("bytes=-900000", 0, size - 1),
    ] {
        let answer = get(&app, id, &[("range", range)]).await;
        assert_eq!(answer.status(), 206, "{range}");
        assert_eq!(header(&answer, "content-range"), format!("bytes {first}-{last}/{size}"), "{range}");
        assert_eq!(answer.bytes().await.unwrap(), bytes[first..=last], "{range}");
    }
    for range in ["bytes=700001-", "bytes=-0"] {
        let answer = get(&app, id, &[("range", range)]).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "content-range")), (416, "bytes */700001"), "{range}");
        assert_eq!(answer.json::<serde_json::Value>().await.unwrap()["code"], "range_not_satisfiable");
    }
    // Several ranges, other units and nonsense are answered with the whole file.
    for range in ["bytes=0-1,5-6", "lines=0-1", "bytes=7-3", "bytes=x-"] {
        let answer = get(&app, id, &[("range", range)]).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "content-range")), (200, ""), "{range}");
        assert_eq!(answer.bytes().await.unwrap(), bytes, "{range}");
    }
    let etag = header(&get(&app, id, &[]).await, "etag").to_owned();
    let weak = format!("W/{etag}");
    for (if_range, status) in
        [(etag.as_str(), 206), ("\"other\"", 200), (weak.as_str(), 200), ("Sat, 29 Oct 1994 19:43:31 GMT", 200)]
    {
        let answer = get(&app, id, &[("range", "bytes=5-9"), ("if-range", if_range)]).await;
        assert_eq!(answer.status(), status, "{if_range}");
    }
    for (known, status) in [(etag.as_str(), 304), ("*", 304), (weak.as_str(), 304), ("\"other\"", 206)] {
        let answer = get(&app, id, &[("range", "bytes=5-9"), ("if-none-match", known)]).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "etag")), (status, etag.as_str()), "{known}");
    }
    let part = app.client.given(Meta { range: Some("bytes=5-9".into()), ..Meta::default() });
    let part = part.read_bytes(DocumentPath { id }).await.unwrap().value().unwrap();
    assert_eq!((part.part.clone(), part.size), (Some(5..10), size as u64));
    assert_eq!(part.bytes.try_collect::<Vec<_>>().await.unwrap().concat(), bytes[5..10]);

    let empty = app.upload_bytes("empty.bin", Vec::new()).await.unwrap().document_id;
    let answer = get(&app, empty, &[("range", "bytes=0-")]).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "content-length")), (200, "0"));
    app.end().await;
}

#[tokio::test]
async fn what_has_no_bytes_or_may_not_be_read_is_404() {
    let app = idle().await;
    let plain = app.client.create_document(Default::default(), Json(document("Tides", "The moon."))).await.unwrap().id;
    // A usetype of what came with bytes does not make a file of what came without.
    let named = NewDocument { usetype: Some("raw".to_owned()), ..document("Ebb", "The sun.") };
    let named = app.client.create_document(Default::default(), Json(named)).await.unwrap().id;
    for id in [plain, named] {
        let refused = app.client.read_bytes(DocumentPath { id }).await.unwrap_err();
        assert_eq!(refused.code, Code::NotFound);
        assert!(refused.detail.contains("is not a file"), "{refused}");
        assert!(!refused.members["remedy"].as_str().unwrap().contains("import"), "{refused:?}");
    }
    let absent = app.client.read_bytes(DocumentPath { id: plain + 1000 }).await.unwrap_err();
    assert_eq!((absent.code, absent.detail), (Code::NotFound, format!("there is no document {}", plain + 1000)));

    let id = app.upload_bytes("plan.txt", "The gauge was read.").await.unwrap().document_id;
    let nobody = svc::registry::InProcess { service: app.service.clone(), caller: svc::access::Caller::Nobody };
    let forbidden = svc_client::Client(nobody).read_bytes(DocumentPath { id }).await.unwrap_err();
    assert_eq!((forbidden.code, forbidden.detail), (Code::NotFound, format!("there is no document {id}")));
    let url = format!("{}/documents/{id}/bytes", app.base);
    assert_eq!(crate::support::http().get(url).send().await.unwrap().status(), 401);
    app.end().await;
}

/// Starts a download and reads only its head.
async fn begin(app: &TestApp, id: i64) -> TcpStream {
    let mut stream = TcpStream::connect(app.base.trim_start_matches("http://")).await.unwrap();
    let request = format!("GET /documents/{id}/bytes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = vec![0; 64];
    stream.read_exact(&mut head).await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

#[tokio::test]
async fn downloads_hold_no_connection_to_the_database_and_free_everything_when_their_clients_go() {
    let settings = [("SVC_DOWNLOADS_AT_ONCE", "4"), ("SVC_DATABASE_POOL_SIZE", "2")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    // The file is larger than the buffers of a socket.
    let bytes = noise(24 << 20);
    let id = app.upload_bytes("noise.bin", bytes.clone()).await.unwrap().document_id;
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(begin(&app, id).await);
    }
    // Four clients stop reading, and everybody else needs the pool's two connections meanwhile.
    until("the pool to be free", async || {
        (app.service.pool.num_idle() as u32 == app.service.pool.size()).then_some(())
    })
    .await;
    app.client.list_roots(Default::default()).await.unwrap();
    let refused = app.client.read_bytes(DocumentPath { id }).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.members["setting"].as_str()),
        (Code::TooManyRequests, Some("SVC_DOWNLOADS_AT_ONCE"))
    );
    drop(slow);
    let read = until("a place", async || app.client.read_bytes(DocumentPath { id }).await.ok()).await.value().unwrap();
    let mut digest = Sha256::new();
    let mut pieces = read.bytes;
    while let Some(piece) = pieces.next().await {
        digest.update(piece.unwrap());
    }
    assert_eq!(digest.finalize(), Sha256::digest(&bytes));
    app.end().await;
}

#[tokio::test]
async fn a_download_whose_file_is_deleted_breaks_off_and_never_ends_short() {
    const LENGTH: usize = 24 << 20;
    let app = idle().await;
    let id = app.upload_bytes("noise.bin", noise(LENGTH)).await.unwrap().document_id;
    let file = app.client.read_bytes(DocumentPath { id }).await.unwrap().value().unwrap();
    let mut pieces = file.bytes;
    let first = pieces.next().await.unwrap().unwrap();
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    let end: Result<Vec<_>, Failure> = pieces.try_collect().await;
    match end {
        Err(failure) => assert_eq!(failure.code, Code::Unreachable),
        // An object store keeps the bytes for a while, for a backup that is restored.
        Ok(rest) => {
            assert!(app.service.settings.blob_store.is_some(), "bytes of a deleted document come from the database");
            assert_eq!(first.len() + rest.iter().map(|piece| piece.len()).sum::<usize>(), LENGTH);
        }
    }
    // Nothing is damaged: the log says nothing of it, and the reader is told what happened.
    let id = app.upload_bytes("noise.bin", noise(2 << 20)).await.unwrap().document_id;
    let file = app.in_process.read_bytes(DocumentPath { id }).await.unwrap().value().unwrap();
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    let log = Arc::new(tempfile::tempfile().unwrap());
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::WARN).with_writer(log.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let end: Result<Vec<_>, Failure> = file.bytes.try_collect().await;
    drop(guard);
    if app.service.settings.blob_store.is_none() {
        assert_eq!(end.unwrap_err().code, Code::NotFound);
    }
    let mut log: &File = &log;
    log.seek(SeekFrom::Start(0)).unwrap();
    let said = std::io::read_to_string(log).unwrap();
    assert!(!said.contains("damaged"), "{said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_saves_a_file() {
    let app = idle().await;
    let bytes = noise(600_000);
    let id = app.upload_bytes("noise.bin", bytes.clone()).await.unwrap().document_id;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.bin");
    let run = |arguments: Vec<String>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).env("SVC_URL", &app.base).env("SVC_API_TOKEN", TOKEN).env("SVC_CONFIG", "/dev/null");
        async { tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap() }
    };
    let saved = run(vec!["bytes".into(), id.to_string(), "-o".into(), path.display().to_string()]).await;
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let told: serde_json::Value = serde_json::from_slice(&saved.stdout).unwrap();
    assert_eq!((told["bytes"].as_u64(), told["document_id"].as_i64()), (Some(600_000), Some(id)));
    assert_eq!(run(vec!["bytes".into(), id.to_string()]).await.stdout, bytes, "a pipe gets the bytes alone");
    let refused = run(vec!["bytes".into(), "999999".into(), "-o".into(), path.display().to_string()]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "a failed download leaves what was there");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "and nothing beside it");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_bytes_are_saved_to_stays_the_pipe_the_link_or_the_closed_file_that_it_is() {
    let app = idle().await;
    let bytes = noise(600_000);
    let id = app.upload_bytes("noise.bin", bytes.clone()).await.unwrap().document_id.to_string();
    let folder = tempfile::tempdir().unwrap();
    let save = async |path: &Path| {
        let saved = svc(&app, &["bytes", &id, "-o", path.to_str().unwrap()]).await;
        assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    };
    let pipe = folder.path().join("pipe");
    mknodat(CWD, pipe.as_path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let read = pipe.clone();
    let reader = std::thread::spawn(move || std::fs::read(read));
    save(&pipe).await;
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap().unwrap() == bytes, "the reader of the pipe got other bytes");

    let (target, link) = (folder.path().join("target.bin"), folder.path().join("link.bin"));
    symlink("target.bin", &link).unwrap();
    // The first time, nothing is behind the link yet.
    for _ in 0..2 {
        save(&link).await;
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(std::fs::read(&target).unwrap() == bytes, "the target of the link has other bytes");
    }
    for mode in [0o600, 0o666] {
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).unwrap();
        save(&target).await;
        assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, mode);
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_too_small_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&folder.path().join("disk"), 1) else {
        return left_out("a full disk below saved bytes, because this user may not mount");
    };
    let app = idle().await;
    let id = app.upload_bytes("noise.bin", noise(4 << 20)).await.unwrap().document_id.to_string();
    let path = disk.0.join("saved.bin");
    let saved = svc(&app, &["bytes", &id, "-o", path.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&saved.stderr).into_owned();
    assert_eq!(saved.status.code(), Some(1), "{said}");
    assert!(said.contains(path.to_str().unwrap()) && said.contains("No space left"), "{said}");
    assert_eq!(std::fs::read_dir(&disk.0).unwrap().count(), 0, "what came is not kept");
    let archive = disk.0.join("archive");
    let exported = svc(&app, &["export", archive.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&exported.stderr).into_owned();
    assert_eq!(exported.status.code(), Some(1), "{said}");
    assert!(said.contains("archive.part") && said.contains("bytes.new: No space left"), "{said}");
    app.end().await;
}

#[tokio::test]
async fn the_entity_tag_of_bytes_answers_in_process_too() {
    let app = idle().await;
    let id = app.upload_bytes("plan.txt", "The gauge was read.").await.unwrap().document_id;
    let etag = app.in_process.read_bytes(DocumentPath { id }).await.unwrap().etag().to_owned();
    let meta = Meta { if_none_match: Some(etag), ..Meta::default() };
    let again = app.in_process.given(meta).read_bytes(DocumentPath { id }).await.unwrap();
    assert!(matches!(again, Validated::NotModified { .. }));
    app.end().await;
}
