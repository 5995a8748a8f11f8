//! Commands with a pipe before or behind them.
use super::{end_of, start, svc, text};
use crate::{
    admin::worker_command,
    support::{TestApp, Wish, document, sample},
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use std::{
    fs,
    io::Write,
    process::{Child, Command, Stdio},
};
use svc_client::{Json, wire::WaitQuery};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_lines_are_imported_though_nobody_reads_what_is_said_of_them() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("documents.ndjson");
    // A call takes 500 lines, and one of each is refused.
    let line = |number: usize| match number % 500 {
        0 => "no JSON\n".to_owned(),
        _ => format!("{}\n", json!({"title": format!("Line {number}"), "content": "It was read."})),
    };
    fs::write(&file, (0..1_500).map(line).collect::<String>()).unwrap();
    let mut import = start(&app.base, &["import", file.to_str().unwrap()]);
    drop(import.stdout.take());
    let done = end_of(import).await;
    assert_eq!(done.status.code(), Some(3), "{}", text(&done.stderr));
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE title LIKE 'Line %'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(stored, 1_497);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_is_not_imported_from_a_pipe_which_can_be_read_only_once() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let triple = "<http://example.org/heron> <http://example.org/eats> <http://example.org/fish> .\n";
    let mut import = start(&app.base, &["rdf", "import", "/dev/stdin"]);
    let mut input = import.stdin.take().unwrap();
    // The command may have ended by now.
    let _ = input.write_all(triple.as_bytes());
    drop(input);
    let done = end_of(import).await;
    let said = text(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("/dev/stdin is a pipe"), "{:?} {said}", done.status);

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("graph.ttl");
    mknodat(CWD, pipe.as_path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let written = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(written, triple));
    let path = pipe.to_str().unwrap();
    let done = svc(&app, &["rdf", "import", path]).await;
    let said = text(&done.stderr);
    assert!(
        done.status.code() == Some(1) && said.contains(&format!("{path} is a pipe")) && said.contains("to a file"),
        "{:?} {said}",
        done.status
    );
    // The writer waits for somebody who opens the pipe.
    let opened = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    writer.join().unwrap().unwrap();
    drop(opened);
    app.end().await;
}

/// The exit code of a command whose reader is gone before it says anything.
async fn unread(mut child: Child) -> Option<i32> {
    drop(child.stdout.take());
    end_of(child).await.status.code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_code_that_is_an_answer_is_given_though_nobody_reads() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    // This waits for a worker, of which there is none.
    app.upload(&sample("handbook.md")).await.unwrap();
    for arguments in [&["doctor", "--json"][..], &["doctor"]] {
        let mut doctor = worker_command(&app, arguments);
        let doctor = doctor.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(unread(doctor).await, Some(1), "{arguments:?}");
    }
    let mut ends = Vec::new();
    for title in ["Heron", "Coot"] {
        let made = app.client.create_document(WaitQuery::default(), Json(document(title, "It waits."))).await.unwrap();
        ends.push(made.id.to_string());
    }
    assert_eq!(unread(start(&app.base, &["path", &ends[0], &ends[1]])).await, Some(1));

    let folder = tempfile::tempdir().unwrap();
    let (manifest, journal) = (folder.path().join("files.jsonl"), folder.path().join("journal"));
    fs::write(&manifest, "no JSON\nneither\n").unwrap();
    let (manifest, journal) = (manifest.to_str().unwrap(), journal.to_str().unwrap());
    let bulk = start(&app.base, &["bulk", "--dry-run", "--journal", journal, manifest]);
    assert_eq!(unread(bulk).await, Some(3));
    app.end().await;
}

#[test]
fn completions_that_find_no_room_are_no_success() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut completions = Command::new(env!("CARGO_BIN_EXE_svc"));
    let done = completions.args(["completions", "bash"]).stdout(full).output().unwrap();
    assert!(done.status.code() == Some(1) && text(&done.stderr).contains("No space left"), "{done:?}");
}
