//! `svc blobs move`: whatever is killed, each file has its bytes at each moment.
use super::*;
use crate::support::{invariants, s3::Stop, say, until_a_statement_like_this_waits};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::io::Write;
use svc::store::scope::Writable;
use svc_client::{
    OptionalJson,
    wire::{ReprocessRequest, TaskTypePath},
};

/// Files of both sorts: one whole, one in parts, and one under another.
async fn files(app: &TestApp) -> Vec<(i64, Vec<u8>)> {
    let mut files = Vec::new();
    for (name, bytes) in [("a.txt", b"herons".to_vec()), ("b.bin", noise(9 << 20, 5)), ("c.txt", b"coots".to_vec())] {
        files.push((app.upload_bytes(name, bytes.clone()).await.unwrap().document_id, bytes));
    }
    files
}

async fn all_come_back(app: &TestApp, files: &[(i64, Vec<u8>)], when: &str) {
    for (id, bytes) in files {
        assert!(bytes_of(app, *id).await.unwrap() == *bytes, "file {id} {when}");
    }
    invariants::check(&app.pool).await;
}

/// How many files have their bytes in the database, and in the object store.
async fn places(app: &TestApp) -> (i64, i64) {
    store::blobs::count_places(&mut app.pool.acquire().await.unwrap()).await.unwrap()
}

/// Lets the sweep and the upkeep take what kills have left, as if much time had passed.
pub(super) async fn tidied(app: &TestApp, s3: &S3) {
    s3.objects().iter().for_each(|path| age(path));
    app.service.blobs.sweep(&app.pool).await.unwrap();
    let_the_window_pass(app).await;
    while app.service.blobs.remove_garbage(&app.pool).await.unwrap() > 0 {}
    assert_eq!(keys_of(&s3.objects()), keys(app).await.0, "objects and files are the same, both ways");
}

/// Moves with a kill at each of these requests, and then one while the row is about to change; then to the end.
async fn moved_with_kills(app: &TestApp, s3: &S3, to: &str, stops: &[Stop], files: &[(i64, Vec<u8>)]) {
    let command = || program(app, &s3.settings(), &["blobs", "move", "--to", to]);
    for stop in stops {
        let mut stopped = s3.stop_at(*stop);
        let mover = Process(command().spawn().unwrap());
        tokio::time::timeout(crate::support::PATIENCE, stopped.recv()).await.unwrap().unwrap();
        mover.kill();
        s3.go_on();
        all_come_back(app, files, &format!("after a kill at {stop:?} on the way to the {to}")).await;
    }
    // The bytes are copied, and the row waits for us.
    let mut holder = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM document_blobs FOR SHARE").execute(&mut holder).await.unwrap();
    let mover = Process(command().spawn().unwrap());
    until("a row that is about to change", async || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                          AND query LIKE 'UPDATE document_blobs%'";
        (count(app, waiting).await > 0).then_some(())
    })
    .await;
    mover.kill();
    holder.close().await.unwrap();
    all_come_back(app, files, &format!("after a kill at the row on the way to the {to}")).await;
    let moved = run(command()).await;
    assert!(moved.status.success(), "{moved:?}");
    assert_eq!((last_line(&moved)["failed"].as_i64(), last_line(&moved)["to"].as_str()), (Some(0), Some(to)));
    all_come_back(app, files, &format!("in the {to}")).await;
    // There is nothing left to do.
    assert_eq!(last_line(&run(command()).await)["moved"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_at_each_step_loses_nothing_and_goes_on() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let files = files(&app).await;
    assert_eq!(places(&app).await, (0, 3));
    let object = [Stop::Before("GET", "/blobs/"), Stop::After("GET", "/blobs/")];
    moved_with_kills(&app, &s3, "database", &object, &files).await;
    assert_eq!((places(&app).await, large_objects(&app).await), ((3, 0), 3));
    assert_eq!(s3.objects().len(), 3, "a database that is restored to before needs the objects");
    tidied(&app, &s3).await;
    assert!(s3.objects().is_empty());
    let stops = [
        Stop::Before("POST", "uploads"),
        Stop::After("POST", "uploads"),
        Stop::Before("PUT", "/blobs/"),
        Stop::After("PUT", "/blobs/"),
        Stop::Before("POST", "uploadId"),
        Stop::After("POST", "uploadId"),
    ];
    moved_with_kills(&app, &s3, "object", &stops, &files).await;
    assert_eq!((places(&app).await, large_objects(&app).await), ((0, 3), 0));
    assert!(s3.objects().len() > 3, "the kills have left copies, which shows that they hit");
    tidied(&app, &s3).await;
    app.end().await;
}

#[tokio::test]
async fn damaged_bytes_stay_where_they_are_and_the_others_move() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let files = files(&app).await;
    let (sound, damaged) = (files[0].0, files[2].0);
    let place =
        store::blobs::place_of(&mut app.pool.acquire().await.unwrap(), DocumentId(damaged)).await.unwrap().unwrap();
    let path = s3.object(place.to_string().trim_start_matches("obj:"));
    std::fs::write(&path, "coats").unwrap();
    let moved = run(program(&app, &s3.settings(), &["blobs", "move", "--to", "database"])).await;
    assert_eq!(moved.status.code(), Some(3), "{moved:?}");
    assert_eq!((last_line(&moved)["moved"].as_i64(), last_line(&moved)["failed"].as_i64()), (Some(2), Some(1)));
    assert!(String::from_utf8_lossy(&moved.stderr).contains(&format!("document {damaged} are damaged")), "{moved:?}");
    assert_eq!(bytes_of(&app, sound).await.unwrap(), files[0].1);
    assert_eq!(places(&app).await, (2, 1));
    std::fs::write(&path, &files[2].1).unwrap();
    // A reader that began before a move goes on after it.
    let id = DocumentId(damaged);
    let row = store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), id).await.unwrap().unwrap();
    let moved = run(program(&app, &s3.settings(), &["blobs", "move", "--to", "database"])).await;
    assert_eq!(last_line(&moved)["moved"], 1, "{moved:?}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(app.service.blobs.read(&app.pool, &row, None, 1 << 20).next().await.unwrap().unwrap(), files[2].1);
    let row = store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), id).await.unwrap().unwrap();
    let moved = run(program(&app, &s3.settings(), &["blobs", "move", "--to", "object"])).await;
    assert_eq!(last_line(&moved)["moved"], 3, "{moved:?}");
    assert_eq!(app.service.blobs.read(&app.pool, &row, None, 1 << 20).next().await.unwrap().unwrap(), files[2].1);
    // A change of place that comes too late changes nothing.
    let mut conn = app.pool.acquire().await.unwrap();
    let file = crate::support::place(&mut conn, damaged).await;
    let outside = store::blobs::by_place(&mut conn, true, DocumentId(0), 10).await.unwrap();
    let (outside, all): (Vec<_>, Vec<_>) =
        (outside.iter().map(|row| row.document_id.0).collect(), files.iter().map(|file| file.0).collect());
    assert_eq!(outside, all);
    let other = BlobPlace::Object("ab/other".to_owned());
    assert!(!store::blobs::replace(&mut conn, &file, &row.place, &other).await.unwrap());
    drop(conn);
    // Where there is no store, nothing is moved to it.
    let refused = run(program(&app, &[], &["blobs", "move", "--to", "object"])).await;
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("SVC_BLOB_STORE"),
        "{refused:?}"
    );
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_that_a_reprocess_builds_move_with_the_others() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), false).await;
    let members = [("heron.md", "# Herons\n\nThey wait."), ("coot.md", "# Coots\n\nThey dive.")];
    let id = app.upload_bytes("birds.zip", members::archive(&members)).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let embed = || TaskTypePath { task_type: "embed".into() };
    app.client.pause_task_type(embed()).await.unwrap();
    let request = ReprocessRequest { options: Some(json!({"structure": {"max_tokens": 20}})), replace: false };
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
    let built = until("the members of the new tree", async || {
        let hidden = "SELECT d.id FROM documents d JOIN document_blobs b ON b.document_id = d.id
                       WHERE d.guard = -1 AND b.object IS NOT NULL";
        let ids: Vec<i64> = sqlx::query_scalar(hidden).fetch_all(&app.pool).await.unwrap();
        (ids.len() == members.len()).then_some(ids)
    })
    .await;
    let mut conn = app.pool.acquire().await.unwrap();
    for id in built.iter().map(|id| DocumentId(*id)) {
        assert_eq!(store::places::find(&mut conn, &Writable::everything(), id).await.unwrap(), None);
        let found = store::places::find_for_operator(&mut conn, id).await.unwrap();
        assert_eq!(found.map(|place| place.id()), Some(id));
    }
    drop(conn);
    let moved = run(program(&app, &s3.settings(), &["blobs", "move", "--to", "database"])).await;
    assert!(moved.status.success(), "{moved:?}");
    assert_eq!((last_line(&moved)["moved"].as_i64(), last_line(&moved)["left"].as_i64()), (Some(5), Some(0)));
    assert_eq!(places(&app).await, (5, 0), "nothing names an object");
    // Whoever goes back to the database deletes the objects by hand.
    s3.objects().iter().for_each(|object| std::fs::remove_file(object).unwrap());
    app.client.resume_task_type(embed()).await.unwrap();
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, frontier.reprocess), (Settled::Settled, 0, None));
    let tree = app.subtree(id).await;
    for (name, text) in members {
        let member = tree.iter().find(|node| node.usetype == "file" && node.title == name).unwrap();
        assert!(built.contains(&member.id), "{name} is of the new tree");
        assert_eq!(bytes_of(&app, member.id).await.unwrap(), text.as_bytes());
    }
    app.end().await;
}

/// Holds the table of stored bytes alone; what comes after this waits in line behind it.
async fn held(options: PgConnectOptions) -> PgConnection {
    let mut holder = PgConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE document_blobs").execute(&mut holder).await.unwrap();
    holder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_comes_behind_the_last_one_of_a_move_is_left_and_said_to_be() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    app.upload_bytes("first.txt", "herons").await.unwrap();
    let late = app.upload_bytes("late.txt", "coots").await.unwrap();
    let key = late.blob_ref.trim_start_matches("obj:");
    // Until the move has passed, it is not there to be moved.
    sqlx::query("UPDATE document_blobs SET object = NULL, lob = lo_from_bytea(0, 'coots') WHERE document_id = $1")
        .bind(late.document_id)
        .execute(&app.pool)
        .await
        .unwrap();
    let command = || program(&app, &s3.settings(), &["blobs", "move", "--to", "database"]);
    let mut stopped = s3.stop_at(Stop::Before("GET", "/blobs/"));
    let mover = tokio::spawn(run(command()));
    tokio::time::timeout(crate::support::PATIENCE, stopped.recv()).await.unwrap().unwrap();
    let mut holder = held(app.options.clone()).await;
    s3.go_on();
    // Each holder lets the statement before the next one pass, until the move counts what is left.
    loop {
        let waiting = until("a statement of the move that waits", async || {
            let waits =
                "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                    AND query LIKE '%document_blobs%' AND query NOT LIKE '%LOCK TABLE%'";
            sqlx::query_scalar::<_, String>(waits).fetch_optional(&app.pool).await.unwrap()
        })
        .await;
        if waiting.starts_with("SELECT count(lob)") {
            break;
        }
        let next = tokio::spawn(held(app.options.clone()));
        until_a_statement_like_this_waits(&app.pool, "%LOCK TABLE%").await;
        holder.close().await.unwrap();
        holder = next.await.unwrap();
    }
    sqlx::query(
        "WITH named AS (DELETE FROM blob_garbage WHERE object = $2)
         UPDATE document_blobs SET object = $2, lob = NULL WHERE document_id = $1",
    )
    .bind(late.document_id)
    .bind(key)
    .execute(&mut holder)
    .await
    .unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    holder.close().await.unwrap();
    let moved = mover.await.unwrap();
    assert_eq!((moved.status.code(), &last_line(&moved)["moved"]), (Some(3), &json!(1)), "{moved:?}");
    assert_eq!((&last_line(&moved)["left"], &last_line(&moved)["failed"]), (&json!(1), &json!(0)), "{moved:?}");
    let again = run(command()).await;
    assert_eq!((again.status.code(), &last_line(&again)["left"]), (Some(0), &json!(0)), "{again:?}");
    assert_eq!(places(&app).await, (2, 0));
    app.end().await;
}

/// The way back to the database, as docs/operations.md says it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_names_no_store_keeps_what_is_new_while_the_rest_comes_back() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let old = app.upload_bytes("old.txt", "herons").await.unwrap().document_id;
    let blank = Wish {
        settings: &[IN_DATABASE, ("SVC_SPOOL_MAX_BYTES", "0")],
        no_worker: true,
        database: Some(app.options.clone()),
        ..Wish::default()
    };
    let blank = TestApp::with(blank).await;
    let new = blank.upload_bytes("new.txt", "coots").await.unwrap().document_id;
    assert_eq!(places(&app).await, (1, 1));
    let refused = bytes_of(&blank, old).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["setting"]), (Code::Unavailable, &json!("SVC_BLOB_STORE")));
    let moved = run(program(&app, &s3.settings(), &["blobs", "move", "--to", "database"])).await;
    assert_eq!((moved.status.code(), &last_line(&moved)["moved"]), (Some(0), &json!(1)), "{moved:?}");
    s3.objects().iter().for_each(|object| std::fs::remove_file(object).unwrap());
    for (id, bytes) in [(old, "herons"), (new, "coots")] {
        assert_eq!(bytes_of(&blank, id).await.unwrap(), bytes.as_bytes());
    }
    blank.end().await;
    app.end().await;
}

/// Runs to its end, and returns the most memory that it had, in MiB.
async fn peak_of(mut command: Command) -> u64 {
    let mut mover = Process(command.spawn().unwrap());
    let status = format!("/proc/{}/status", mover.0.id());
    let mut peak = 0;
    until("the move", async || {
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        let line = now.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak = kibibytes.unwrap_or_default().max(peak);
        mover.0.try_wait().unwrap()
    })
    .await;
    peak >> 10
}

/// The size of the large file in MiB; SVC_TEST_LARGE_FILE names another one.
const LARGE: usize = 128;
/// The most MiB that a large file may take beyond what a small one does, as the design has it.
const GOAL: u64 = 64;
/// The same where a file of the usual size is moved beside other tests.
const BESIDE_OTHERS: u64 = 96;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_moved_in_little_memory() {
    let named: Option<usize> =
        std::env::var("SVC_TEST_LARGE_FILE").ok().map(|size| size.parse().expect("a number of MiB"));
    let size = named.unwrap_or(LARGE);
    let s3 = S3::start().await;
    let mut settings = s3.settings();
    settings.push(("SVC_MAX_UPLOAD_BYTES", format!("{} MiB", size + 1)));
    let app = app_on(&settings, true).await;
    app.upload_bytes("small.txt", "small").await.unwrap();
    let to = |place: &str| program(&app, &s3.settings(), &["blobs", "move", "--to", place]);
    let (to_database, to_object) = (peak_of(to("database")).await, peak_of(to("object")).await);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.bin");
    let (mut file, piece) = (std::fs::File::create(&path).unwrap(), noise(1 << 20, 9));
    (0..size).for_each(|_| file.write_all(&piece).unwrap());
    let large = app.upload(&path).await.unwrap();
    drop(folder);
    let hash = large.content_hash.clone();
    let most = if named.is_some() { GOAL } else { BESIDE_OTHERS };
    for (place, base) in [("database", to_database), ("object", to_object)] {
        let peak = peak_of(to(place)).await;
        if named.is_some() {
            say(&format!(
                "{size} MiB on the way to the {place}: {peak} MiB of memory, {} more than for a small file (goal: {GOAL})",
                peak.saturating_sub(base)
            ));
        }
        // The whole file would be more.
        assert!(peak <= base + most, "{peak} MiB on the way to the {place}, and {base} MiB for a small file");
    }
    assert_eq!(places(&app).await, (0, 2));
    let id = DocumentId(large.document_id);
    let row = store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), id).await.unwrap().unwrap();
    assert_eq!(row.content_hash, hash);
    app.end().await;
}
