//! What `svc` shows a person: help, refusals, and texts of others.
use crate::{
    cli::{lines, svc},
    members::archive,
    support::{TestApp, Wish, document},
};
use serde_json::{Value, json};
use std::{path::Path, process::Output};
use svc_client::{Json, wire::WaitQuery};

/// What could control a terminal, in a line of its own.
const LOUD: &str = "red \u{1b}[31m\u{1b}]0;title\u{7} and \u{9b}2J";

/// Everything that was said, none of which controls a terminal.
fn tame(output: &Output) -> String {
    let said = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    let is_loud = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    assert!(!said.contains(is_loud), "{said:?}");
    said
}

fn written(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_somebody_stored_controls_the_terminal() {
    let app = TestApp::start().await;
    let folder = tempfile::tempdir().unwrap();
    let id = app.create("Heron", &format!("A heron, {LOUD}."), None).await.id;
    // No door takes such a title; a database may have one from before.
    sqlx::query("UPDATE documents SET title = $1 WHERE id = $2").bind(LOUD).bind(id).execute(&app.pool).await.unwrap();
    let id = id.to_string();
    for arguments in [
        &["ls"][..],
        &["tree", &id],
        &["get", &id],
        &["view", &id],
        &["search", "heron"],
        &["mv", &id, "--top"],
        &["access", "tokens", "list", LOUD],
    ] {
        for form in ["--table", "--json"] {
            tame(&svc(&app, &[&[form], arguments].concat()).await);
        }
    }
    // The name of a file within a file, which a warning quotes because the file needs a password.
    let name = format!("{LOUD}.txt");
    let mut locked = archive(&[("open.txt", "An open word."), (name.as_str(), "A locked word.")]);
    let second = locked.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    locked[second + 8] |= 1;
    let file = written(folder.path(), "locked.zip", locked);
    let said = tame(&svc(&app, &["--table", "ingest", &file]).await);
    assert!(said.contains("members.left_out"), "{said}");
    let unknown = json!({"title": "Child", "content": "", "parent_key": LOUD}).to_string();
    let strange = json!({"title": "Child", "content": "", LOUD: 1}).to_string();
    let file = written(folder.path(), "documents.ndjson", format!("{unknown}\n{strange}\n"));
    let said = tame(&svc(&app, &["--table", "import", &file]).await);
    assert!(said.contains("line 1 is refused") && said.contains("line 2 is refused"), "{said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn help_and_refusals_name_what_a_command_takes() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let help = tame(&svc(&app, &["mv", "--help"]).await);
    assert!(help.contains("Usage: svc mv [OPTIONS] <ID> <UNDER|--top>"), "{help}");
    let help = tame(&svc(&app, &["explain", "--help"]).await);
    for format in svc_formats::Format::ALL {
        assert!(help.contains(format.as_str()), "{format}: {help}");
    }
    for (arguments, named) in [
        (&["access", "grants", "list"][..], &["--document", "--principal"][..]),
        (&["split", "1"], &["--at", "--headings"]),
        (&["import", "documents.ndjson", "--priority", "1000"], &["--priority", "-100..=100"]),
        (&["ingest", "Cargo.toml", "--priority", "101"], &["--priority", "-100..=100"]),
        (&["priority", "1", "-101"], &["-100..=100"]),
        (&["segment", "1", "--penalty", "inf"], &["--penalty", "takes a number"]),
        (&["search", "heron", "--half-life", "nan"], &["--half-life", "takes a number"]),
    ] {
        let output = svc(&app, arguments).await;
        let said = tame(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(named.iter().all(|name| said.contains(name)), "{arguments:?}: {said}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_imported_once_whatever_stands_before_it_and_above_the_others() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let line = |value: Value| format!("{value}\n");
    let text = [
        "\u{feff}".to_owned(),
        line(json!({"title": "Shelf", "content": "", "key": "shelf"})),
        line(json!({"title": "Book", "content": "", "parent_key": "shelf"})),
    ]
    .concat();
    let file = written(folder.path(), "documents.ndjson", text);
    let room =
        app.client.create_document(WaitQuery::default(), Json(document("Room", ""))).await.unwrap().id.to_string();
    let summary = |output: &Output| lines(output).pop().unwrap();
    let first = summary(&svc(&app, &["--json", "import", &file]).await);
    assert_eq!(first, json!({"lines": 2, "stored": 2, "existing": 0, "refused": 0}));
    let again = summary(&svc(&app, &["--json", "import", &file, "--under", &room]).await);
    assert_eq!(again, json!({"lines": 2, "stored": 0, "existing": 2, "refused": 0}));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principals_name_is_no_number_and_a_token_says_whose_it_is() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for name in ["2", "007", "-3", " 5", "ann ", "\tann"] {
        let output = svc(&app, &["access", "principals", "add", "--", name]).await;
        let said = tame(&output);
        assert!(!output.status.success() && said.contains("name: "), "{name:?}: {said}");
    }
    let output = svc(&app, &["access", "principals", "add", "ann 2"]).await;
    assert!(output.status.success(), "{}", tame(&output));
    let id = lines(&output)[0]["id"].to_string();
    for named in ["ann 2", &id] {
        let said = tame(&svc(&app, &["--table", "access", "tokens", "issue", named]).await);
        assert!(said.contains(&format!("a token of principal {id}: ann 2")), "{said}");
    }
    let edited = svc(&app, &["access", "principals", "edit", "ann 2", "--name", "3"]).await;
    assert!(!edited.status.success(), "{}", tame(&edited));
    app.end().await;
}
