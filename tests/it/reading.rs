//! Closed, hostile or slow files, as the service has them read.
use crate::{
    markup::legacy::compound,
    members::archive,
    principals::someone,
    support::{TestApp, Wish, invariants, repository, sample, server, until},
};
use serde_json::{Value, json};
use std::{
    io::{Cursor, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use svc::reader::Reader;
use svc_client::{
    Code, Failure, FileUpload, Json, OptionalJson,
    wire::{
        AuditAct, AuditQuery, Bm25Search, CellsQuery, DocumentPath, ReprocessRequest, Settled, UploadQuery,
        UploadResponse,
    },
};

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

async fn upload(app: &TestApp, path: &Path, options: Value) -> Result<UploadResponse, Failure> {
    app.client.upload_file(UploadQuery::default(), FileUpload::from_path(path, Some(options)).await.unwrap()).await
}

fn password(text: &str) -> Value {
    json!({"extract": {"password": text}})
}

/// Everything that is stored besides the file's own bytes and text, as one text.
async fn dump(app: &TestApp) -> String {
    let mut dump = String::new();
    for table in [
        "documents",
        "document_blobs",
        "node_origins",
        "node_evidence",
        "extractions",
        "task_queue",
        "task_attempts",
        "workers",
    ] {
        let query = sqlx::AssertSqlSafe(format!("SELECT coalesce(string_agg(t::text, E'\n'), '') FROM {table} t"));
        dump += &sqlx::query_scalar::<_, String>(query).fetch_one(&app.pool).await.unwrap();
    }
    dump
}

#[tokio::test]
async fn a_password_opens_a_file_and_is_kept_nowhere() {
    let app = TestApp::start().await;
    let refused = upload(&app, &sample("locked.pdf"), password("stork")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::WrongPassword));
    assert!(!format!("{refused:?}").contains("stork"));
    for options in [password("st\0rk"), json!({"rollup": {"llm_model": "a\0b"}})] {
        let refused = upload(&app, &sample("locked.pdf"), options.clone()).await.unwrap_err();
        assert_eq!((refused.status, refused.code), (422, Code::InvalidField), "{options}: {refused}");
        let group = options.as_object().unwrap().keys().next().unwrap();
        assert!(refused.members["field"].as_str().unwrap().starts_with(group), "{refused:?}");
    }
    let stored: (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM pg_largeobject_metadata)")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(stored, (0, 0), "a wrong password stores nothing");

    let id = upload(&app, &sample("locked.pdf"), password("heron")).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, frontier.warnings.len()), (Settled::Settled, 0, 0));
    let found = app.client.search_bm25(Json(Bm25Search::new("porter vault cellar"))).await.unwrap();
    assert_eq!(found.results[0].document.path, [id]);
    let evidence = evidence(&app, id).await;
    assert_eq!(evidence["matched.patterns"]["is_encrypted"], true);
    assert_eq!(evidence["options"].get("extract"), None, "{}", evidence["options"]);
    assert!(!dump(&app).await.contains("heron"));
    // The same bytes with the same options and no password get what is stored.
    assert_eq!(app.upload(&sample("locked.pdf")).await.unwrap().document_id, id);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_password_opens_open_documents_and_spreadsheets_and_without_one_they_name_the_option() {
    let app = TestApp::start().await;
    let files = repository().join("formats/src/odf/files");
    for (name, secret, words, title) in [
        ("locked.odt", "heron", "weir eels dawn", "The weir"),
        ("locked.ods", "Wehr über Erlen", "duck counts pond", "Duck counts"),
    ] {
        let (id, frontier) = app.ingest(&files.join(name)).await;
        assert_eq!(frontier.settled, Settled::Failed, "{name}");
        let attempt = evidence(&app, id).await["attempts"][0].clone();
        assert_eq!((&attempt["error_type"], &attempt["code"]), (&json!("permanent"), &json!("encrypted")), "{attempt}");
        assert!(attempt["message"].as_str().unwrap().contains("extract.password"), "{attempt}");
        let refused = upload(&app, &files.join(name), password("stork")).await.unwrap_err();
        assert_eq!((refused.status, refused.code), (422, Code::WrongPassword), "{name}");
        let opened = upload(&app, &files.join(name), password(secret)).await.unwrap();
        assert_eq!((opened.document_id, opened.was_existing), (id, true), "{name}");
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        assert!(app.subtree(id).await.iter().any(|node| node.usetype == "section" && node.title == title), "{name}");
        let found = app.client.search_bm25(Json(Bm25Search::new(words))).await.unwrap();
        assert!(found.results.iter().any(|result| result.document.path.contains(&id)), "{name}: {found:?}");
        assert_eq!(evidence(&app, id).await["matched.patterns"]["is_encrypted"], true, "{name}");
    }
    assert!(!dump(&app).await.contains("Wehr über Erlen"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_locked_file_without_its_password_fails_and_names_the_option() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&sample("locked.pdf")).await;
    assert_eq!(frontier.settled, Settled::Failed);
    let evidence = evidence(&app, id).await;
    let attempts = evidence["attempts"].as_array().unwrap();
    assert_eq!(
        (attempts.len(), &attempts[0]["error_type"], &attempts[0]["code"]),
        (1, &json!("permanent"), &json!("encrypted"))
    );
    assert!(attempts[0]["message"].as_str().unwrap().contains("extract.password"), "{}", attempts[0]);
    assert_eq!(evidence["matched.patterns"]["is_encrypted"], true, "what was measured is kept");
    assert_eq!(evidence["plan"]["format"], "pdf");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_file_that_failed_without_its_password_is_read_when_it_comes_again_with_it() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&sample("locked.pdf")).await;
    assert_eq!(frontier.settled, Settled::Failed);
    // Without a password, or with a wrong one, nothing new becomes known.
    let again = app.upload(&sample("locked.pdf")).await.unwrap();
    assert_eq!((again.document_id, again.settled), (id, Settled::Failed));
    let refused = upload(&app, &sample("locked.pdf"), password("stork")).await.unwrap_err();
    assert_eq!(refused.code, Code::WrongPassword);

    let opened = upload(&app, &sample("locked.pdf"), password("heron")).await.unwrap();
    assert_eq!((opened.document_id, opened.was_existing, opened.settled), (id, true, Settled::InFlight));
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let found = app.client.search_bm25(Json(Bm25Search::new("porter vault cellar"))).await.unwrap();
    assert_eq!(found.results[0].document.path, [id]);
    assert!(!dump(&app).await.contains("heron"));
    let attempts = evidence(&app, id).await["attempts"].clone();
    assert_eq!(
        (&attempts[0]["code"], &attempts[1]["outcome"]),
        (&json!("encrypted"), &json!("completed")),
        "{attempts}"
    );
    // What has been read stays read.
    let opened = upload(&app, &sample("locked.pdf"), password("heron")).await.unwrap();
    assert_eq!((opened.document_id, opened.settled), (id, Settled::Settled));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn whoever_may_read_a_locked_file_and_has_its_bytes_and_its_password_has_it_read() {
    let app = TestApp::start().await;
    let bob = someone(&app, "bob").await;
    let office = server::work_dir().join("everybodys.docx");
    std::fs::write(&office, locked_document(&[])).unwrap();
    for (path, secret) in [(sample("locked.pdf"), "heron"), (office, LONG_PASSWORD)] {
        let upload = async |options: Option<Value>| {
            let file = FileUpload::from_path(&path, options).await.unwrap();
            bob.client.upload_file(UploadQuery::default(), file).await
        };
        let id = upload(None).await.unwrap().document_id;
        assert_eq!(app.settled(id).await.settled, Settled::Failed);
        let refused = upload(Some(password("stork"))).await.unwrap_err();
        assert_eq!(refused.code, Code::WrongPassword);
        let opened = upload(Some(password(secret))).await.unwrap();
        assert_eq!((opened.document_id, opened.was_existing, opened.settled), (id, true, Settled::InFlight));
        assert_eq!(app.settled(id).await.settled, Settled::Settled);
        let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
        let told = app.client.list_audit(query).await.unwrap().entries;
        let acts: Vec<_> =
            told.iter().map(|entry| (entry.act, entry.actor_id, &entry.detail["with_password"])).collect();
        assert_eq!(acts, [(AuditAct::TaskRetry, Some(bob.id), &json!(true))], "{told:?}");
        // Now there is nothing to add, and nothing to refuse.
        let again = upload(Some(password(secret))).await.unwrap();
        assert_eq!((again.document_id, again.was_existing, again.settled), (id, true, Settled::Settled));
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_locked_file_whose_reading_the_owner_ended_is_not_read_for_others() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let bob = someone(&app, "bob").await;
    let upload = async |options: Option<Value>| {
        let file = FileUpload::from_path(&sample("locked.pdf"), options).await.unwrap();
        bob.client.upload_file(UploadQuery::default(), file).await.unwrap()
    };
    let id = upload(None).await.document_id;
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    let again = upload(Some(password("heron"))).await;
    assert_eq!((again.document_id, again.was_existing, again.settled), (id, true, Settled::Failed));
    app.end().await;
}

#[tokio::test]
async fn a_password_that_nobody_needs_does_no_harm() {
    let app = TestApp::start().await;
    for name in ["handbook.md", "quarterly-review.pdf", "duck-counts.xlsx"] {
        let id = upload(&app, &sample(name), password("heron")).await.unwrap().document_id;
        assert_eq!(app.settled(id).await.settled, Settled::Settled, "{name}");
    }
    let refused = upload(&app, &sample("corrupt.pdf"), password("heron")).await.unwrap().document_id;
    assert_eq!(app.settled(refused).await.settled, Settled::Failed);
    assert!(!dump(&app).await.contains("\"heron\""));
    app.end().await;
}

/// What opens [`locked_document`]; no word of it is in the text.
const LONG_PASSWORD: &str = "Wehr über 3 Erlen 🦆";

/// A document of Word with a password, and with these bytes behind what is encrypted.
fn locked_document(more: &[u8]) -> Vec<u8> {
    let file = |name: &str| std::fs::read(repository().join("formats/src/ole2/files").join(name)).unwrap();
    let package = [file("agile-docx.package").as_slice(), more].concat();
    let mut locked = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for (stream, bytes) in [("/EncryptionInfo", file("agile-docx-umlauts.info")), ("/EncryptedPackage", package)] {
        locked.create_stream(stream).unwrap().write_all(&bytes).unwrap();
    }
    locked.flush().unwrap();
    locked.into_inner().into_inner()
}

#[tokio::test]
async fn a_password_opens_an_office_file_and_is_kept_nowhere() {
    let app = TestApp::start().await;
    let path = server::work_dir().join("house.docx");
    std::fs::write(&path, locked_document(&[])).unwrap();
    let refused = upload(&app, &path, password("stork")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::WrongPassword));
    let id = upload(&app, &path, password(LONG_PASSWORD)).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, frontier.warnings.len()), (Settled::Settled, 0, 0));
    let found = app.client.search_bm25(Json(Bm25Search::new("alder above the weir"))).await.unwrap();
    assert!(found.results[0].document.path.contains(&id), "{:?}", found.results[0].document.path);
    let evidence = evidence(&app, id).await;
    assert_eq!(evidence["matched.patterns"]["is_encrypted"], true);
    assert_eq!(evidence["extract.text"]["locked_format"], "docx");
    let dump = dump(&app).await;
    assert!(dump.contains("locked_format") && !dump.contains("Wehr") && !dump.contains("Erlen"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_locked_file_within_an_archive_is_to_be_uploaded_by_itself() {
    let app = TestApp::start().await;
    let files = [
        ("locked.odt", std::fs::read(repository().join("formats/src/odf/files/locked.odt")).unwrap(), "encrypted"),
        ("locked.pdf", std::fs::read(sample("locked.pdf")).unwrap(), "encrypted"),
        ("house.docx", locked_document(&[]), "encrypted_package"),
    ];
    let mut members = vec![("note.txt", b"The heron is grey.".as_slice())];
    members.extend(files.iter().map(|(name, bytes, _)| (*name, bytes.as_slice())));
    let id = app.upload_bytes("bundle.zip", archive(&members)).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 3), "{:?}", frontier.warnings);
    let nodes = app.subtree(id).await;
    for (name, _, code) in &files {
        let member = nodes.iter().find(|node| node.title == *name).unwrap();
        let of_member = evidence(&app, member.id).await;
        let attempt = &of_member["attempts"][0];
        assert_eq!((&attempt["error_type"], &attempt["code"]), (&json!("permanent"), &json!(code)), "{attempt}");
        assert!(attempt["message"].as_str().unwrap().contains("upload it by itself"), "{attempt}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_file_that_its_password_opens_is_told_at_once() {
    let app = TestApp::start().await;
    let path = server::work_dir().join("changed.docx");
    std::fs::write(&path, locked_document(&[0; 16])).unwrap();
    let refused = upload(&app, &path, password(LONG_PASSWORD)).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::InvalidField), "{refused}");
    assert_eq!(refused.members["field"], "file");
    assert!(refused.detail.contains("was changed after it was encrypted"), "{refused}");
    assert!(!format!("{refused:?}").contains("Erlen"));
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);
    // Without the password nothing but the lock is seen.
    let (id, frontier) = app.ingest(&path).await;
    assert_eq!(frontier.settled, Settled::Failed);
    assert_eq!(evidence(&app, id).await["attempts"][0]["code"], "encrypted_package");
    app.end().await;
}

#[tokio::test]
async fn legacy_and_encrypted_office_files_are_refused_each_by_its_kind() {
    let app = TestApp::start().await;
    let mut messages = Vec::new();
    for (name, stream, pattern) in [
        ("old.doc", "/WordDocument", "is_legacy_binary"),
        ("old.ppt", "/PowerPoint Document", "is_legacy_binary"),
        ("closed.docx", "/EncryptedPackage", "is_encrypted"),
    ] {
        let stored = app.upload_bytes(name, compound(&[(stream, &[0; 600])])).await.unwrap();
        assert_eq!(app.settled(stored.document_id).await.settled, Settled::Failed, "{name}");
        let evidence = evidence(&app, stored.document_id).await;
        let attempts = evidence["attempts"].as_array().unwrap();
        assert_eq!((attempts.len(), &attempts[0]["error_type"]), (1, &json!("permanent")), "{name}: {attempts:?}");
        assert_eq!(evidence["matched.patterns"][pattern], true, "{name}");
        messages.push(format!(
            "{name}: {}: {}\n",
            attempts[0]["code"].as_str().unwrap(),
            attempts[0]["message"].as_str().unwrap()
        ));
    }
    insta::assert_snapshot!("closed_files", messages.concat());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A workbook of Excel that the password `heron` obfuscates.
fn obfuscated_workbook() -> Vec<u8> {
    // What the standard makes of the password: its bytes, and in the record of the lock its key and its checksum.
    const VEIL: [u8; 16] = [11, 85, 6, 80, 8, 58, 192, 24, 98, 24, 192, 59, 127, 231, 96, 96];
    let head = |kind: u16, length: usize| [kind, length as u16].map(u16::to_le_bytes).concat();
    let words = |words: &[u16]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let text = |row: u16, column: u16, text: &str| {
        [words(&[row, column, 0, text.len() as u16]), vec![0], text.as_bytes().to_vec()].concat()
    };
    let begin = |kind: u16| (0x0809, words(&[0x0600, kind, 0, 0, 0, 0, 0, 0]));
    let cells = [(0, 0, "Pond"), (0, 1, "Ducks"), (1, 0, "Quillon"), (1, 1, "many")];
    let mut records = vec![
        begin(5),
        (0x002F, vec![0, 0, 0x7E, 0xCF, 0xAA, 0xC7]),
        (0x0085, [&[0u8; 6][..], b"\x05\0Ponds"].concat()),
        (0x000A, Vec::new()),
    ];
    let sheet: usize = records.iter().map(|(_, body)| 4 + body.len()).sum();
    records[2].1[..4].copy_from_slice(&(sheet as u32).to_le_bytes());
    records.push(begin(0x10));
    records.extend(cells.map(|(row, column, shown)| (0x0204, text(row, column, shown))));
    records.push((0x000A, Vec::new()));
    let mut stream = Vec::new();
    for (kind, body) in records {
        stream.extend(head(kind, body.len()));
        let end = stream.len() + body.len();
        let plain = match kind {
            0x0809 | 0x002F => body.len(),
            0x0085 => 4,
            _ => 0,
        };
        for (at, byte) in body.into_iter().enumerate() {
            let hidden = byte.rotate_right(3) ^ VEIL[(end + at) % VEIL.len()];
            stream.push(if at < plain { byte } else { hidden });
        }
    }
    compound(&[("/Workbook", &stream)])
}

#[tokio::test]
async fn a_password_opens_a_legacy_workbook_as_a_text_and_without_one_it_names_the_option() {
    let app = TestApp::start().await;
    let path = server::work_dir().join("ponds.xls");
    std::fs::write(&path, obfuscated_workbook()).unwrap();
    let (id, frontier) = app.ingest(&path).await;
    assert_eq!(frontier.settled, Settled::Failed);
    let attempt = evidence(&app, id).await["attempts"][0].clone();
    assert_eq!((&attempt["error_type"], &attempt["code"]), (&json!("permanent"), &json!("encrypted")), "{attempt}");
    assert!(attempt["message"].as_str().unwrap().contains("extract.password"), "{attempt}");
    let refused = upload(&app, &path, password("stork")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::WrongPassword));
    let opened = upload(&app, &path, password("heron")).await.unwrap();
    assert_eq!((opened.document_id, opened.was_existing), (id, true));
    let frontier = app.settled(id).await;
    let attempts = evidence(&app, id).await["attempts"].clone();
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{attempts}");
    assert!(app.subtree(id).await.iter().any(|node| node.usetype == "section" && node.title == "Ponds"));
    let found = app.client.search_bm25(Json(Bm25Search::new("Quillon"))).await.unwrap();
    assert!(found.results.iter().any(|result| result.document.path.contains(&id)), "{found:?}");
    let read = evidence(&app, id).await;
    assert_eq!(read["extract.text"]["locked_format"], "xls");
    assert_eq!(read["matched.patterns"]["is_encrypted"], true);
    assert!(!dump(&app).await.contains("heron"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_workbook_that_excel_opens_without_asking_needs_no_password_here_either() {
    let app = TestApp::start().await;
    let file = |name: &str| std::fs::read(repository().join("formats/src/ole2/files").join(name)).unwrap();
    let [info, package] = ["agile-xlsx-protected.info", "agile-xlsx.package"].map(file);
    let locked = compound(&[("/EncryptionInfo", &info), ("/EncryptedPackage", &package)]);
    let id = app.upload_bytes("nests.xlsx", locked).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
    let nodes = app.subtree(id).await;
    let records = nodes.iter().filter_map(|node| node.structured_content.get("record"));
    let mut records: Vec<&str> = records.map(|record| record["Nest"].as_str().unwrap()).collect();
    records.sort_unstable();
    assert_eq!(records, ["Alder", "Weir | bank"]);
    let query = CellsQuery { reference: Some("Nests!A2:B2".to_owned()), sheet: None };
    let area = app.client.read_cells(DocumentPath { id }, query).await.unwrap();
    assert_eq!(area.values, [[json!("Alder"), json!(5)]]);
    let found = app.client.search_bm25(Json(Bm25Search::new("Counted by Ada"))).await.unwrap();
    assert!(found.results.iter().any(|result| result.document.path.contains(&id)), "{found:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_password_opens_the_members_of_an_archive_at_its_upload_or_later_and_is_kept_nowhere() {
    let app = TestApp::start().await;
    let folder = repository().join("formats/src/archive/files");
    let (early, late) = (folder.join("aes-256.zip"), folder.join("aes-128.zip"));
    let refused = upload(&app, &early, password("stork")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::WrongPassword));
    let opened = upload(&app, &early, password("Wehr über Erlen")).await.unwrap().document_id;

    let (closed, frontier) = app.ingest(&late).await;
    assert_eq!(frontier.settled, Settled::Settled);
    let told = frontier.warnings.iter().any(|warning| {
        warning.starts_with("members.left_out: 2 (encrypted)") && warning.contains("`extract.password`")
    });
    assert!(told, "{:?}", frontier.warnings);
    let request = ReprocessRequest { options: Some(password("Wehr über Erlen")), replace: false };
    app.client.reprocess_file(DocumentPath { id: closed }, OptionalJson(Some(request))).await.unwrap();

    for id in [opened, closed] {
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
        assert!(frontier.warnings.is_empty(), "{:?}", frontier.warnings);
        let nodes = app.subtree(id).await;
        for title in ["rules/house.md", "nests.csv"] {
            assert!(nodes.iter().any(|node| node.usetype == "section" && node.title == title), "{title}");
        }
        let of_file = evidence(&app, id).await;
        assert_eq!(of_file["extract.text"]["locked_format"], "zip");
        assert_eq!(of_file["matched.patterns"]["is_encrypted"], true);
        let found = app.client.search_bm25(Json(Bm25Search::new("herons nest above"))).await.unwrap();
        assert!(found.results.iter().any(|result| result.document.path.contains(&id)), "{found:?}");
    }
    let dump = dump(&app).await;
    assert!(!dump.contains("Wehr") && !dump.contains("Erlen"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_partly_locked_archive_with_a_wrong_password_and_an_opened_one_over_a_limit_are_refused() {
    let app = TestApp::with(Wish { settings: &[("SVC_PARSER_HEADINGS", "3")], ..Wish::default() }).await;
    let folder = repository().join("formats/src/archive/files");
    // One of its three members is open.
    let partly = folder.join("old.zip");
    let refused = upload(&app, &partly, password("stork")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::WrongPassword));
    let refused = upload(&app, &folder.join("aes-256.zip"), password("Wehr über Erlen")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (422, Code::InvalidField), "{refused}");
    assert!(refused.detail.contains("SVC_PARSER_HEADINGS"), "{refused}");
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);

    let (id, frontier) = app.ingest(&partly).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert!(frontier.warnings.iter().any(|warning| warning.starts_with("members.left_out: 2 (encrypted)")));
    assert!(app.subtree(id).await.iter().any(|node| node.usetype == "file" && node.title == "open.txt"));
    let found = app.client.search_bm25(Json(Bm25Search::new("Anybody may read"))).await.unwrap();
    assert!(found.results.iter().any(|result| result.document.path.contains(&id)), "{found:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A reader that reports its process id and then does nothing, for ever.
fn idle_reader(name: &str) -> (Reader, PathBuf) {
    let folder = server::work_dir();
    let (program, told) = (folder.join(name), folder.join(format!("{name}.pid")));
    std::fs::write(
        &program,
        format!("#!/bin/sh\necho $$ > '{0}.new'\nmv '{0}.new' '{0}'\nexec tail -f /dev/null\n", told.display()),
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (Reader::new(program), told)
}

#[tokio::test]
async fn a_reader_that_is_killed_from_outside_says_nothing_about_its_file() {
    let program = server::work_dir().join("killed-reader");
    std::fs::write(&program, "#!/bin/sh\nkill -KILL $$\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let app = TestApp::with(Wish { reader: Some(Reader::new(program)), ..Wish::default() }).await;
    let refused = upload(&app, &sample("locked.pdf"), password("heron")).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (503, Code::Unavailable), "{refused}");
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let attempt = until("an attempt", async || evidence(&app, id).await["attempts"].get(0).cloned()).await;
    assert_eq!((&attempt["error_type"], &attempt["code"]), (&json!("retryable"), &json!("io")), "{attempt}");
    assert!(attempt["message"].as_str().unwrap().contains("killed from outside"), "{attempt}");
    // It would be tried again.
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!(app.settled(id).await.settled, Settled::Failed);
    app.end().await;
}

/// Whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_cancelled_task_takes_its_reader_with_it() {
    let (reader, told) = idle_reader("idle-reader");
    let app = TestApp::with(Wish { reader: Some(reader), ..Default::default() }).await;
    let id = app.upload_bytes("slow.txt", "A text that is never read to its end.").await.unwrap().document_id;
    let pid = until("the reader starts", async || std::fs::read_to_string(&told).ok()).await;
    let pid = pid.trim().to_owned();
    assert!(lives(&pid));
    sqlx::query("UPDATE task_queue SET cancel_requested_at = now() WHERE scope_document_id = $1")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let frontier = app.settled(id).await;
    assert_eq!(frontier.settled, Settled::Failed);
    until("the reader is gone", async || (!lives(&pid)).then_some(())).await;
    let attempts = evidence(&app, id).await["attempts"].clone();
    assert_eq!((&attempts[0]["code"], &attempts[0]["error_type"]), (&json!("cancelled"), &json!("permanent")));
    app.end().await;
}

#[tokio::test]
async fn a_reading_that_is_let_go_of_ends_its_process() {
    let (reader, told) = idle_reader("idle-reader-alone");
    let input = tempfile::tempfile().unwrap();
    let request =
        svc_formats::isolated::Request::new(svc_formats::isolated::Step::Probe, svc_formats::Limits::default());
    let pid = {
        let reading = reader.read(input, &request);
        tokio::pin!(reading);
        tokio::select! {
            _ = &mut reading => panic!("the reader never answers"),
            pid = until("the reader starts", async || std::fs::read_to_string(&told).ok()) => pid.trim().to_owned(),
        }
    };
    until("the reader is gone", async || (!lives(&pid)).then_some(())).await;
}

#[tokio::test]
async fn hostile_files_fail_for_good_by_the_name_of_their_limit() {
    let corpus = repository().join("../shared/corpus/made");
    if !corpus.exists() {
        crate::support::left_out("no corpus beside the repository, so no bombs");
        return;
    }
    let app = TestApp::start().await;
    for name in ["bomb_document_xml.docx", "deep_nesting.docx", "pdf_stream_bomb.pdf", "pdf_double_flate_bomb.pdf"] {
        let (id, frontier) = app.ingest(&corpus.join(name)).await;
        let attempts = evidence(&app, id).await["attempts"].clone();
        assert_eq!(frontier.settled, Settled::Failed, "{name}: {attempts}");
        assert_eq!(
            (&attempts[0]["error_type"], &attempts[0]["code"]),
            (&json!("permanent"), &json!("limit_exceeded")),
            "{name}"
        );
        let limit = attempts[0]["detail"]["limit"].as_str().unwrap();
        assert!(attempts[0]["message"].as_str().unwrap().contains(limit), "{name}: {attempts}");
    }
    app.end().await;
}
