//! Backups of the embedded database: made of a service at work, and restored into an empty data folder.
use crate::support::{self, PATIENCE, TOKEN, disk::Disk, document, s3::S3, sample, server, until};
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};
use svc::{
    app::App,
    embedded::{EmbeddedPostgres, SUPERUSER},
    reader::Reader,
};
use svc_client::{
    Client, FileUpload, Json, Remote,
    wire::{
        DocumentPath, GrantPath, GrantRight, NewApiToken, NewGrant, NewPrincipal, PrincipalKind, PrincipalPath,
        UploadQuery, WaitQuery,
    },
};

/// A service with an embedded database of its own, as `svc serve` starts it.
struct Running {
    app: App,
    client: Client<Remote>,
}

impl Running {
    async fn start(data_dir: &Path) -> Running {
        Running::start_with(data_dir, &[]).await
    }

    async fn start_with(data_dir: &Path, more: &[(&str, String)]) -> Running {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut settings = vec![
            ("SVC_DATA_DIR", data_dir.to_str().unwrap()),
            ("SVC_LISTEN", "127.0.0.1:0"),
            ("SVC_CONSOLE_LISTEN", ""),
            ("SVC_INGEST_WORKER_POLL_SECONDS", "0.2"),
        ];
        settings.extend(more.iter().map(|(name, value)| (*name, value.as_str())));
        let settings = support::settings(&settings);
        let reader = Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")));
        let app = App::start(Arc::new(settings), TOKEN, reader).await.unwrap();
        let client = client(&app, TOKEN);
        Running { app, client }
    }

    async fn stop(self) {
        self.app.stop(std::future::pending()).await;
    }

    /// What searches by all methods answer. Scores of words change with all that is stored meanwhile.
    async fn found(&self, under: i64) -> Vec<Value> {
        let mut all = Vec::new();
        for method in ["vector", "bm25", "fulltext", "hybrid"] {
            for query in ["what to do when the radar gauge fails", "silent gauge"] {
                let body = serde_json::json!({"query": query, "parent_id": under, "include_embed": true, "limit": 100});
                let url = format!("http://{}/search/{method}", self.app.address);
                let answer = support::http().post(url).bearer_auth(TOKEN).json(&body).send().await.unwrap();
                let answer: Value = answer.json().await.unwrap();
                let mut results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
                assert!(!results.is_empty(), "{method}: {answer}");
                if method != "vector" {
                    results.iter_mut().for_each(|result| {
                        ["score", "legs"].iter().for_each(|of| drop(result.as_object_mut().unwrap().remove(*of)));
                    });
                    results.sort_by_key(|result| result["id"].as_i64());
                }
                all.push(results.into());
            }
        }
        all
    }
}

fn client(app: &App, token: &str) -> Client<Remote> {
    Client(Remote::new(&format!("http://{}", app.address), token, support::http()))
}

fn command(data_dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(arguments).env("SVC_CONFIG", "/dev/null").env("SVC_DATA_DIR", data_dir).env_remove("SVC_DATABASE_URL");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn svc(data_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = command(data_dir, arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// What a command says that is refused.
async fn refused(data_dir: &Path, arguments: &[&str]) -> String {
    let output = svc(data_dir, arguments).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.lines().count() == 1, "{arguments:?} is refused: {said}");
    said
}

/// A folder that the user of a server may enter.
fn folder_in(place: &Path) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("svc-backup-").tempdir_in(place).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_service_at_work_restores_to_one_that_answers_alike() {
    let folder = folder_in(server::folder());
    let (data_dir, kept) = (folder.path().join("data"), folder.path().join("a backup"));
    let kept_path = kept.to_str().unwrap();
    let running = Running::start(&data_dir).await;
    let upload = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let id = running.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    let settled = async || running.client.read_frontier(DocumentPath { id }).await.unwrap().is_at_rest().then_some(());
    until("the handbook", settled).await;
    let new = NewPrincipal { name: "reader".to_owned(), kind: PrincipalKind::User };
    let reader = running.client.create_principal(Json(new)).await.unwrap().id;
    running.client.protect_document(DocumentPath { id }).await.unwrap();
    let grant = GrantPath { id, principal_id: reader };
    running.client.put_grant(grant, Json(NewGrant { right: GrantRight::Read })).await.unwrap();
    let new = NewApiToken { name: "reader".to_owned(), expires_at: None };
    let token = running.client.issue_api_token(PrincipalPath { id: reader }, Json(new)).await.unwrap();
    let before = running.found(id).await;

    // Documents come in all the time.
    let (writer, stop) = (running.client.clone(), tokio_util::sync::CancellationToken::new());
    let stopped = stop.clone();
    let writing = tokio::spawn(async move {
        let mut written = 0;
        while !stopped.is_cancelled() {
            let new = document(&format!("note {written}"), "Herons wait in the reeds.");
            writer.create_document(WaitQuery::default(), Json(new)).await.unwrap();
            written += 1;
        }
        written
    });
    let backed = svc(&data_dir, &["backup", kept_path]).await;
    stop.cancel();
    assert!(writing.await.unwrap() > 0);
    assert!(backed.status.success(), "{}", String::from_utf8_lossy(&backed.stderr));
    let label: Value = serde_json::from_slice(&backed.stdout).unwrap();
    assert_eq!((label["format"].as_u64(), label["version"].as_str()), (Some(1), Some(env!("CARGO_PKG_VERSION"))));
    let moment = |name: &str| label[name].as_str().and_then(|at| at.parse::<chrono::DateTime<chrono::Utc>>().ok());
    let (begun, ended) = (moment("begun_at").unwrap(), moment("ended_at").unwrap());
    assert!(begun < ended, "{label}");

    // It is for its user alone, and has no token in the clear.
    let all = files(&kept);
    let open = |path: &&PathBuf| fs::metadata(path).unwrap().mode() & 0o077 != 0;
    assert!(fs::metadata(&kept).unwrap().mode() & 0o077 == 0 && all.iter().find(open).is_none());
    assert!(!all.iter().any(|path| path.ends_with("owner-token") || path.ends_with("postmaster.pid")), "{all:?}");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "nothing but the data and the backup");

    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("linked"), &link).unwrap();
    for (data_dir, arguments, says) in [
        (&data_dir, ["backup", kept_path], "is not empty"),
        (&data_dir, ["backup", link.to_str().unwrap()], "is a link"),
        (&data_dir, ["backup", "/proc"], "is where a disk is mounted"),
        (&data_dir, ["backup", "/dev/null"], "is no folder"),
        (&data_dir, ["restore", kept_path], "overwrites nothing"),
        (&data_dir, ["backup", data_dir.join("within").to_str().unwrap()], "in the data folder"),
        (&folder.path().join("nowhere"), ["backup", folder.path().join("x").to_str().unwrap()], "no service runs"),
        (&folder.path().join("new"), ["restore", data_dir.to_str().unwrap()], "has no backup.json"),
    ] {
        let said = refused(data_dir, &arguments).await;
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    running.stop().await;

    let restored = folder.path().join("restored");
    let output = svc(&restored, &["--table", "restore", kept_path]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let moments = [format!("as of shortly before {}", ended.to_rfc3339()), format!("since {}", begun.to_rfc3339())];
    assert!(moments.iter().all(|moment| said.contains(moment)), "{said}");
    let again = Running::start(&restored).await;
    assert_eq!(again.found(id).await, before);
    let url = format!("http://{}/documents/{id}/bytes", again.app.address);
    let bytes = support::http().get(url).bearer_auth(TOKEN).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, fs::read(sample("handbook.md")).unwrap());
    let reader = client(&again.app, &token.secret);
    assert_eq!(reader.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap().id, id);
    let new = document("after", "The service goes on.");
    again.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    support::invariants::check(&again.app.service.pool).await;
    let said = refused(&restored, &["restore", kept_path]).await;
    assert!(said.contains("overwrites nothing"), "{said}");
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_has_the_bytes_of_its_moment_although_the_object_store_went_on() {
    let s3 = S3::start().await;
    let folder = folder_in(server::folder());
    let (data_dir, kept, restored) =
        (folder.path().join("data"), folder.path().join("kept"), folder.path().join("restored"));
    let kept = kept.to_str().unwrap();
    let upload = async |running: &Running, name: &str, text: &'static str| {
        let file = FileUpload::from_bytes(name, text, None);
        running.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id
    };
    let read = async |running: &Running, id: i64| {
        let url = format!("http://{}/documents/{id}/bytes", running.app.address);
        let answer = support::http().get(url).bearer_auth(TOKEN).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let running = Running::start_with(&data_dir, &s3.settings()).await;
    let (heron, coot) = (
        upload(&running, "heron.txt", "The heron waits.").await,
        upload(&running, "coot.txt", "The coot dives.").await,
    );
    for id in [heron, coot] {
        let settled =
            async || running.client.read_frontier(DocumentPath { id }).await.unwrap().is_at_rest().then_some(());
        until("the files", settled).await;
    }
    let backed = svc(&data_dir, &["backup", kept]).await;
    assert!(backed.status.success(), "{}", String::from_utf8_lossy(&backed.stderr));
    let label: Value = serde_json::from_slice(&backed.stdout).unwrap();
    assert_eq!(label["files_elsewhere"], 2, "{label}");
    // A copy has what is stored until its end, so files are counted once it is made.
    let (counted, copied) = (folder.path().join("counted"), folder.path().join("counted.part/cluster/backup_manifest"));
    let count = async { Some(if copied.exists() { 7 } else { 0 }) };
    let home = &running.app.service.settings.postgres_home;
    let label = svc::embedded::backup::backup(&data_dir, home, &counted, count).await.unwrap();
    assert_eq!(label.files_elsewhere, Some(7));
    // A backup that cannot count them says so, and not that there are none.
    let uncounted = folder.path().join("uncounted");
    let uncounted_path = uncounted.to_str().unwrap();
    let superuser = EmbeddedPostgres::connect_options_of(&data_dir).unwrap().username(SUPERUSER);
    let mut superuser = PgConnection::connect_with(&superuser).await.unwrap();
    sqlx::raw_sql("ALTER ROLE svc_app CONNECTION LIMIT 0").execute(&mut superuser).await.unwrap();
    let backed = svc(&data_dir, &["--table", "backup", uncounted_path]).await;
    sqlx::raw_sql("ALTER ROLE svc_app CONNECTION LIMIT -1").execute(&mut superuser).await.unwrap();
    superuser.close().await.unwrap();
    let (said, reason) = (String::from_utf8_lossy(&backed.stdout), String::from_utf8_lossy(&backed.stderr));
    assert!(backed.status.success() && said.contains("is not known"), "{said} {reason}");
    assert!(reason.contains("cannot be counted"), "{reason}");
    let label: Value = serde_json::from_slice(&fs::read(uncounted.join("backup.json")).unwrap()).unwrap();
    assert_eq!(label.get("files_elsewhere"), Some(&Value::Null), "{label}");

    // The store goes on: one file goes, and another one comes.
    running.client.delete_document(DocumentPath { id: heron }).await.unwrap();
    let later = upload(&running, "smew.txt", "The smew is late.").await;
    assert_eq!(running.app.service.blobs.remove_garbage(&running.app.service.pool).await.unwrap(), 0);
    assert_eq!((read(&running, heron).await.0, read(&running, later).await.0), (404, 200));
    running.stop().await;
    assert_eq!(s3.objects().len(), 3, "each has what some moment may need");

    let output = svc(&folder.path().join("other"), &["--table", "restore", uncounted_path]).await;
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("is not known"), "{output:?}");
    let output = svc(&restored, &["restore", kept]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let again = Running::start_with(&restored, &s3.settings()).await;
    assert_eq!(read(&again, heron).await, (200, "The heron waits.".to_owned()));
    assert_eq!(read(&again, coot).await, (200, "The coot dives.".to_owned()));
    support::invariants::check(&again.app.service.pool).await;
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_broke_off_never_looks_whole_and_what_is_damaged_is_not_restored() {
    let folder = folder_in(server::folder());
    // On a disk a backup takes long enough to be killed before its end.
    let disk = folder_in(Path::new("/tmp"));
    let (data_dir, kept) = (folder.path().join("data"), disk.path().join("kept"));
    let (kept_path, part) = (kept.to_str().unwrap(), disk.path().join("kept.part"));
    let running = Running::start(&data_dir).await;
    running.client.create_document(WaitQuery::default(), Json(document("a", "Herons wait."))).await.unwrap();

    // A kill as soon as there is something.
    let mut child = command(&data_dir, &["backup", kept_path]).spawn().unwrap();
    let begun = part.join("cluster");
    until("the backup", async || begun.exists().then_some(())).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!kept.exists() && !part.join("backup.json").exists());
    let new = folder.path().join("new");
    let said = refused(&new, &["restore", part.to_str().unwrap()]).await;
    assert!(said.contains("no whole backup") && !new.exists(), "{said}");
    // What is left of PostgreSQL's program ends by itself, and the next backup takes its place.
    let again = until("another backup", async || {
        let output = svc(&data_dir, &["backup", kept_path]).await;
        output.status.success().then_some(())
    });
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    assert!(kept.exists() && !part.exists());
    // A signal leaves nothing at all.
    let other = folder.path().join("other");
    let child = command(&data_dir, &["backup", other.to_str().unwrap()]).spawn().unwrap();
    let begun = folder.path().join("other.part");
    until("the backup", async || begun.exists().then_some(())).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    if output.status.code() == Some(130) {
        assert!(!other.exists());
    }
    // Only the superuser of the private socket may copy the server, and the service's own role may not.
    let settings = support::settings(&[]);
    let mut copy = Command::new(settings.postgres_home.join("bin/pg_basebackup"));
    copy.args(["--pgdata", folder.path().join("stolen").to_str().unwrap(), "--username", "svc_app", "--no-password"]);
    copy.arg("--host").arg(data_dir.join("postgres/run")).env("LD_LIBRARY_PATH", settings.postgres_home.join("lib"));
    let said = String::from_utf8_lossy(&copy.output().unwrap().stderr).into_owned();
    assert!(said.contains("no pg_hba.conf entry for replication"), "{said}");
    running.stop().await;

    // One byte is another.
    let damaged = folder.path().join("damaged");
    let copied = Command::new("cp").args(["-a", kept_path, damaged.to_str().unwrap()]).status().unwrap();
    assert!(copied.success());
    let large = files(&damaged.join("cluster/base")).into_iter().filter(|path| path.is_file());
    let victim = large.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&victim, bytes).unwrap();
    let said = refused(&new, &["restore", damaged.to_str().unwrap()]).await;
    let name = victim.file_name().unwrap().to_str().unwrap();
    assert!(said.contains("not the checksum") && said.contains(name), "{said}");
    assert!(!new.join("postgres/cluster").exists());
    // No service makes a fresh database where one was to be restored.
    let settings = support::settings(&[("SVC_DATA_DIR", new.to_str().unwrap())]);
    let error = EmbeddedPostgres::start(&new, &settings.postgres_home).await.unwrap_err().to_string();
    assert!(error.contains("broke off") && error.contains("svc restore"), "{error}");
    // Another form and another server.
    let label = fs::read_to_string(kept.join("backup.json")).unwrap();
    fs::write(damaged.join("backup.json"), label.replace("\"format\": 1", "\"format\": 7")).unwrap();
    assert!(refused(&new, &["restore", damaged.to_str().unwrap()]).await.contains("form 7"));
    fs::write(damaged.join("backup.json"), &label).unwrap();
    fs::write(damaged.join("cluster/PG_VERSION"), "9\n").unwrap();
    assert!(refused(&new, &["restore", damaged.to_str().unwrap()]).await.contains("PostgreSQL 9"));
    // A disk that is too small is named, and not the one that has the backup.
    match Disk::mount(&folder.path().join("small"), 2) {
        Some(disk) => {
            let data_dir = disk.0.join("data");
            let said = refused(&data_dir, &["restore", kept_path]).await;
            assert!(said.contains("No space left") && said.contains(data_dir.to_str().unwrap()), "{said}");
        }
        None => support::left_out("a restore onto a full disk, because this user may not mount"),
    }
    // The whole one goes into the same folder.
    let output = svc(&new, &["restore", kept_path]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let again = Running::start(&new).await;
    assert_eq!(again.client.list_roots(Default::default()).await.unwrap().documents[0].title, "a");
    again.stop().await;
}

#[tokio::test]
async fn a_server_of_one_s_own_is_backed_up_by_its_own_means() {
    for arguments in [["backup", "/tmp/x"], ["restore", "/tmp/x"]] {
        let mut command = command(Path::new("/nowhere"), &arguments);
        let output = command.env("SVC_DATABASE_URL", "postgres://nobody:a-secret@localhost/x").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains("docs/backup.md"), "{said}");
        assert!(!said.contains("a-secret"), "{said}");
    }
}
