//! Commands with a pipe before or behind them.
use super::{end_of, start, svc, text};
use crate::support::{TestApp, Wish};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use std::{fs, io::Write};

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
