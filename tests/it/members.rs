//! Files within files: what an archive holds and what is attached to a message is ingested as uploads are, under the node
//! of the file that it came in.
use crate::{
    edits::patched,
    principals::{Someone, grant, someone},
    support::{TestApp, Wish, document, invariants, repository, sample, until, workbook},
};
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use svc_client::{
    Code, Failure, FileUpload, Json, OptionalJson,
    wire::{
        Bm25Search, CellsQuery, DocumentPath, DocumentResponse, EmbedQuery, FrontierResponse, GrantRight, NewDocument,
        ReprocessRequest, Settled, UploadQuery, WaitQuery,
    },
};
use zip::{ZipWriter, write::SimpleFileOptions};

pub fn archive<T: AsRef<[u8]>>(files: &[(&str, T)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes.as_ref()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

async fn ingested(app: &TestApp, name: &str, bytes: Vec<u8>) -> (i64, FrontierResponse) {
    let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
    (id, app.settled(id).await)
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

/// The file nodes at any depth under a file, by their titles.
async fn files(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
    app.subtree(id).await.into_iter().filter(|node| node.usetype == "file").collect()
}

fn named<'a>(files: &'a [DocumentResponse], title: &str) -> &'a DocumentResponse {
    let mut with_it = files.iter().filter(|file| file.title == title);
    let first = with_it.next().unwrap_or_else(|| panic!("there is no file {title}"));
    assert!(with_it.next().is_none(), "{title} stands there twice");
    first
}

async fn find(app: &TestApp, words: &str) -> Vec<DocumentResponse> {
    let found = app.client.search_bm25(Json(Bm25Search::new(words))).await.unwrap();
    found.results.into_iter().map(|result| result.document).collect()
}

#[tokio::test]
async fn the_files_of_an_archive_are_ingested_each_by_its_own_format() {
    let app = TestApp::start().await;
    let handbook = std::fs::read(sample("handbook.md")).unwrap();
    let inner = archive(&[("deep/kestrel.txt", "A kestrel hovers over the stubble field.")]);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01".to_vec();
    let rows = [["Place", "Bird"], ["Mill pond", "Goosander"]].map(Vec::from);
    let bytes = archive(&[
        ("docs/handbook.md", handbook.clone()),
        ("docs/copy of handbook.md", handbook.clone()),
        ("../../etc/ladder.txt", b"The ladder leans at the old pear tree.".to_vec()),
        ("/absolute/pump.txt", b"The pump is behind the mill.".to_vec()),
        ("counts.xlsx", workbook(&rows)),
        ("inner.zip", inner),
        ("picture.png", png),
        ("broken.pdf", std::fs::read(sample("corrupt.pdf")).unwrap()),
    ]);
    let (id, frontier) = ingested(&app, "bundle.zip", bytes).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 1), "{:?}", frontier.warnings);
    assert!(frontier.warnings.iter().any(|warning| warning.contains("`broken.pdf`")), "{:?}", frontier.warnings);
    let files = files(&app, id).await;
    let mut titles: Vec<&str> = files.iter().map(|file| file.title.as_str()).collect();
    titles.sort_unstable();
    let expected = [
        "broken.pdf",
        "counts.xlsx",
        "handbook.md",
        "inner.zip",
        "kestrel.txt",
        "ladder.txt",
        "picture.png",
        "pump.txt",
    ];
    assert_eq!(titles, expected);
    let of_container = evidence(&app, id).await;
    assert_eq!(
        of_container["members"]["same"],
        json!([{"name": "docs/copy of handbook.md", "as": "docs/handbook.md"}])
    );
    assert_eq!(of_container["extract.empty"], Value::Null, "{of_container}");

    let anchor = evidence(&app, named(&files, "ladder.txt").id).await;
    assert_eq!(anchor["anchor"], json!({"member": "../../etc/ladder.txt", "index": 2}), "{anchor}");
    let picture = named(&files, "picture.png");
    let read = evidence(&app, picture.id).await;
    assert_eq!((picture.settled, &read["extract.empty"]), (Settled::Settled, &json!("needs_ocr")), "{read}");
    assert_eq!((&read["detected"]["format"], &read["detected"]["mime"]), (&json!("image"), &json!("image/png")));
    assert_eq!(named(&files, "broken.pdf").settled, Settled::Failed);
    assert_eq!(named(&files, "kestrel.txt").parent_id, Some(named(&files, "inner.zip").id));

    for (words, file) in
        [("kestrel stubble", "kestrel.txt"), ("radar gauge fails", "handbook.md"), ("goosander mill", "counts.xlsx")]
    {
        let first = find(&app, words).await.swap_remove(0);
        let file = named(&files, file);
        let is_above = first.id == file.id || first.path.contains(&file.id);
        assert!(is_above, "{words} is found in {first:?} and not in {}", file.title);
    }
    let query = CellsQuery { reference: Some("B2".to_owned()), ..CellsQuery::default() };
    let cells = app.client.read_cells(DocumentPath { id: named(&files, "counts.xlsx").id }, query).await.unwrap();
    assert!(serde_json::to_string(&cells).unwrap().contains("Goosander"), "{cells:?}");

    // An upload of a member's bytes is a file of its own, which stays when the container goes.
    let own = app.upload_bytes("handbook.md", handbook).await.unwrap();
    assert!(!own.was_existing && own.document_id != named(&files, "handbook.md").id);
    app.settled(own.document_id).await;
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    assert_eq!(find(&app, "radar gauge fails").await[0].path.first(), Some(&own.document_id));
    assert!(find(&app, "kestrel").await.is_empty());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_attachments_of_a_message_are_files_beside_its_text() {
    let app = TestApp::start().await;
    let mail = "From: ann@example.org\r\nTo: ben@example.org\r\nSubject: Counts of the pond\r\nMIME-Version: 1.0\r\n\
                Content-Type: multipart/mixed; boundary=\"b\"\r\n\r\n--b\r\n\r\nSee the table.\r\n--b\r\n\
                Content-Type: text/csv; name=\"pond.csv\"\r\nContent-Disposition: attachment\r\n\r\n\
                Bird,Count\r\nSmew,17\r\nWigeon,40\r\nPochard,3\r\n\r\n--b--\r\n";
    let (id, frontier) = ingested(&app, "counts.eml", mail.into()).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
    let files = files(&app, id).await;
    let table = named(&files, "pond.csv");
    assert_eq!((files.len(), table.parent_id), (1, Some(id)));
    let read = evidence(&app, table.id).await;
    assert_eq!((&read["detected"]["format"], &read["detected"]["declared_mime"]), (&json!("csv"), &json!("text/csv")));
    let smew = find(&app, "smew 17").await.swap_remove(0);
    assert!(smew.path.starts_with(&[id, table.id]) && smew.usetype == "record", "{smew:?}");
    let text = find(&app, "see the table").await.swap_remove(0);
    assert!(text.path.starts_with(&[id]) && !text.path.contains(&table.id), "{text:?}");
    let children = app.subtree(id).await;
    let sections = children.iter().filter(|node| node.parent_id == Some(id) && node.usetype != "file");
    assert!(sections.map(|node| node.position).max() < Some(table.position), "the files come after the text");

    let refused = app.client.reprocess_file(DocumentPath { id: table.id }, OptionalJson(None)).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["file_id"]), (Code::Conflict, &json!(id)), "{refused:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A message of Outlook with a table attached, and another message.
fn outlook() -> Vec<u8> {
    const RECIPIENT: &str = "/__recip_version1.0_#00000000";
    const TABLE: &str = "/__attach_version1.0_#00000000";
    const FORWARDED: &str = "/__attach_version1.0_#00000001";
    const WITHIN: &str = "/__attach_version1.0_#00000001/__substg1.0_3701000D";
    let mut message = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for storage in [RECIPIENT, TABLE, FORWARDED, WITHIN] {
        message.create_storage(storage).unwrap();
    }
    let mut put = |path: String, bytes: &[u8]| message.create_stream(path).unwrap().write_all(bytes).unwrap();
    for (at, bytes) in [("", 32), (RECIPIENT, 8), (TABLE, 8), (FORWARDED, 8), (WITHIN, 24)] {
        put(format!("{at}/__properties_version1.0"), &vec![0; bytes]);
    }
    for (at, property, text) in [
        ("", "0037", "Counts of the pond"),
        ("", "0C1A", "Ann Onym"),
        ("", "5D01", "ann@example.org"),
        ("", "1000", "See the table of the warden."),
        (RECIPIENT, "3001", "Ben"),
        (RECIPIENT, "39FE", "ben@example.org"),
        (TABLE, "3707", "pond.csv"),
        (TABLE, "370E", "text/csv"),
        (WITHIN, "0037", "The weir"),
        (WITHIN, "1000", "Three kingfishers nest at the weir."),
    ] {
        let text: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(format!("{at}/__substg1.0_{property}001F"), &text);
    }
    put(format!("{TABLE}/__substg1.0_37010102"), b"Bird,Count\r\nSmew,17\r\nWigeon,40\r\nPochard,3\r\n");
    message.flush().unwrap();
    message.into_inner().into_inner()
}

#[tokio::test]
async fn a_message_of_outlook_is_read_as_mail_is() {
    let app = TestApp::start().await;
    let (id, frontier) = ingested(&app, "counts.msg", outlook()).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
    let read = evidence(&app, id).await;
    assert_eq!(
        (&read["detected"]["format"], &read["detected"]["mime"], &read["structure"]["from"]),
        (&json!("msg"), &json!("application/vnd.ms-outlook"), &json!("mail")),
        "{read}"
    );
    let facts = &read["extract.text"];
    assert_eq!(
        (&facts["subject"], &facts["from"], &facts["to"], &facts["messages"]),
        (
            &json!("Counts of the pond"),
            &json!("Ann Onym <ann@example.org>"),
            &json!("Ben <ben@example.org>"),
            &json!(2)
        ),
        "{facts}"
    );
    assert_eq!(read["msg.attachments"], json!([{"name": "pond.csv", "type": "text/csv", "bytes": 43}]), "{read}");
    let files = files(&app, id).await;
    let table = named(&files, "pond.csv");
    assert_eq!((files.len(), table.parent_id, table.settled), (1, Some(id), Settled::Settled));
    let smew = find(&app, "smew 17").await.swap_remove(0);
    assert!(smew.path.starts_with(&[id, table.id]) && smew.usetype == "record", "{smew:?}");
    for (words, text) in [("warden table", "See the table"), ("kingfishers nest", "Three kingfishers nest")] {
        let first = find(&app, words).await.swap_remove(0);
        assert!(first.path.starts_with(&[id]) && !first.path.contains(&table.id), "{words}: {first:?}");
        assert!(first.content.contains(text), "{words}: {}", first.content);
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_reprocess_replaces_the_files_and_their_readers_are_those_of_the_container() {
    let app = TestApp::start().await;
    let inner = archive(&[("owl.txt", "The owl sleeps in the barn.")]);
    let bytes = archive(&[("heron.md", b"# Herons\n\nThe heron waits in the reeds.".to_vec()), ("inner.zip", inner)]);
    let (id, _) = ingested(&app, "birds.zip", bytes).await;
    let before = files(&app, id).await;
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, id, GrantRight::Read).await;
    assert!(reads(&reader, named(&before, "owl.txt").id).await.is_ok());
    assert!(reads(&someone(&app, "other").await, named(&before, "owl.txt").id).await.is_err());

    let options = json!({"structure": {"max_tokens": 60}});
    let request = ReprocessRequest { options: Some(options.clone()), replace: false };
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
    until("the reprocess is over", async || {
        let read = evidence(&app, id).await;
        (read["reprocess"]["state"] == "done").then_some(())
    })
    .await;
    let after = files(&app, id).await;
    let titles = |files: &[DocumentResponse]| {
        let mut titles: Vec<String> = files.iter().map(|file| file.title.clone()).collect();
        titles.sort();
        titles
    };
    assert_eq!(titles(&after), ["heron.md", "inner.zip", "owl.txt"]);
    assert!(after.iter().all(|file| before.iter().all(|was| was.id != file.id)), "every file is a new node");
    assert_eq!(evidence(&app, named(&after, "heron.md").id).await["options"]["structure"]["max_tokens"], 60);
    let owl = named(&after, "owl.txt");
    assert!(reads(&reader, owl.id).await.is_ok());
    assert_eq!(find(&app, "owl barn").await[0].path, [id, named(&after, "inner.zip").id, owl.id]);
    let bytes = app.raw("GET", &format!("/documents/{}/bytes", owl.id)).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "The owl sleeps in the barn.");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

async fn reads(reader: &Someone, id: i64) -> Result<(), Code> {
    let read = reader.client.read_document(DocumentPath { id }, EmbedQuery::default()).await;
    read.map(drop).map_err(|failure| failure.code)
}

#[tokio::test]
async fn what_is_over_a_limit_or_cannot_be_read_is_left_out_and_named() {
    let settings: &[(&str, &str)] = &[("SVC_PARSER_MEMBERS", "4"), ("SVC_PARSER_MEMBER_DEPTH", "2")];
    let app = TestApp::with(Wish { settings, ..Wish::default() }).await;
    let three = |word: &str| {
        let files = ["1", "2", "3"].map(|n| (format!("{word}{n}.txt"), format!("The {word} has the number {n}.")));
        archive(&files.iter().map(|(name, text)| (name.as_str(), text)).collect::<Vec<_>>())
    };
    // Two archives at once may not take more than one could.
    let (id, frontier) =
        ingested(&app, "two.zip", archive(&[("a.zip", three("alder")), ("b.zip", three("birch"))])).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert_eq!(files(&app, id).await.len(), 4, "of all archives under the upload");

    let nested = (0..4)
        .fold(archive(&[("leaf.txt", "The innermost leaf.")]), |inner, n| archive(&[(&*format!("{n}.zip"), inner)]));
    let (id, frontier) = ingested(&app, "nested.zip", nested).await;
    assert_eq!(frontier.settled, Settled::Settled);
    let deep = files(&app, id).await;
    assert_eq!(deep.iter().map(|file| file.title.as_str()).collect::<Vec<_>>(), ["3.zip", "2.zip"]);
    let warnings = app.client.read_frontier(DocumentPath { id: named(&deep, "2.zip").id }).await.unwrap().warnings;
    assert_eq!(warnings, ["extract.empty: no_members", "members.left_out: 1 (member_depth): `1.zip`"]);

    // The directory says that the second needs a password.
    let mut locked = archive(&[("open.txt", "An open word."), ("locked.txt", "A locked word.")]);
    let second = locked.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    locked[second + 8] |= 1;
    let (id, frontier) = ingested(&app, "locked.zip", locked).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert_eq!(
        frontier.warnings,
        [
            "members.left_out: 1 (encrypted): `locked.txt` (reprocess the archive with its password as the option `extract.password`, or unpack it and upload what was locked in it)"
        ]
    );
    assert_eq!(files(&app, id).await.len(), 1);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_archive_that_was_cut_off_is_damaged_and_not_one_without_a_reader() {
    let app = TestApp::start().await;
    let whole = archive(&[("heron.txt", "The heron waits by the water."), ("owl.txt", "The owl sleeps in the barn.")]);
    let cut = whole[..whole.len() - 30].to_vec();
    let (id, frontier) = ingested(&app, "cut.zip", cut.clone()).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Failed, 1), "{:?}", frontier.warnings);
    let attempts = evidence(&app, id).await["attempts"].clone();
    let message = attempts[0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("the list of its files at its end is missing"), "{attempts}");

    let bundle = archive(&[("cut.zip", cut), ("pump.txt", b"The pump is behind the mill.".to_vec())]);
    let (_, frontier) = ingested(&app, "bundle.zip", bundle).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 1), "{:?}", frontier.warnings);
    assert!(frontier.warnings.iter().any(|warning| warning.contains("`cut.zip`")), "{:?}", frontier.warnings);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_text_of_an_archive_is_that_of_its_files_and_not_of_what_is_put_beside_them() {
    let app = TestApp::start().await;
    let inner = archive(&[("deep/two.txt", "A heron waits.")]);
    let bytes = archive(&[("one.txt", b"A kestrel hovers.".to_vec()), ("inner.zip", inner)]);
    let (id, _) = ingested(&app, "birds.zip", bytes).await;
    let text = async || {
        let effective = evidence(&app, id).await["effective_content"].clone();
        (effective["method"].clone(), effective["source_children"].clone(), effective["characters"].clone())
    };
    let both = "A kestrel hovers.\n\nA heron waits.".chars().count();
    assert_eq!(text().await, (json!("concatenated"), json!(2), json!(both)));
    // A file that somebody puts under the archive is no part of it.
    let query = UploadQuery { parent_id: Some(id), ..UploadQuery::default() };
    let guest = FileUpload::from_bytes("guest.txt", "A grebe dives.", None);
    let guest = app.client.upload_file(query, guest).await.unwrap().document_id;
    app.settled(guest).await;
    let chunk = app.subtree(id).await.into_iter().find(|node| node.content.contains("kestrel")).unwrap();
    patched(&app, chunk.id, json!({"content": "A kestrel stands still."})).await;
    app.settled(id).await;
    assert_eq!(text().await.2, json!(both + "A kestrel stands still.".len() - "A kestrel hovers.".len()));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn members_come_after_what_lies_under_their_archive_also_where_that_is_at_the_last_position() {
    let mut app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut archives = Vec::new();
    for (last, expected) in [(7, [8, 9]), (i32::MAX, [i32::MAX - 2, i32::MAX - 1])] {
        let (one, two) = (format!("A heron sees {last} ducks."), format!("An owl hears {last} mice."));
        let stored = app.upload_bytes("birds.zip", archive(&[("one.txt", one), ("two.txt", two)])).await.unwrap();
        let id = stored.document_id;
        let note = NewDocument { parent_id: Some(id), position: Some(last), ..document("A note", "Of the archive.") };
        app.client.create_document(WaitQuery::default(), Json(note)).await.unwrap();
        archives.push((id, expected));
    }
    app.start_worker().await;
    for (id, expected) in archives {
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
        let members = files(&app, id).await;
        let one = named(&members, "one.txt").position;
        assert_eq!([one, named(&members, "two.txt").position], expected.map(Some));
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_password_of_an_archive_whose_locked_members_are_over_a_limit_is_refused_with_the_limit() {
    let app = TestApp::start().await;
    let mut bytes = std::fs::read(repository().join("formats/src/archive/files/old.zip")).unwrap();
    let entries: Vec<usize> = (0..bytes.len() - 28).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect();
    // The directory says of the locked members that they are larger than a file may be.
    for at in entries.into_iter().filter(|at| bytes[at + 8] & 1 == 1).collect::<Vec<_>>() {
        bytes[at + 24..at + 28].copy_from_slice(&0x7FFF_FFFF_u32.to_le_bytes());
    }
    let is_told = |refused: Failure| {
        assert_eq!((refused.status, &refused.members["field"]), (422, &json!("file")), "{refused}");
        assert!(refused.detail.contains("SVC_MAX_UPLOAD_BYTES"), "{refused}");
    };
    let with = |password: &str| json!({"extract": {"password": password}});
    for password in ["heron", "stork"] {
        let file = || FileUpload::from_bytes("lock.zip", bytes.clone(), Some(with(password)));
        is_told(app.client.upload_file(UploadQuery::default(), file()).await.unwrap_err());
        is_told(app.client.analyze_file(file()).await.unwrap_err());
    }
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);

    // Without the password it is stored with what is open, and its warning names the way that the reprocess goes.
    let (id, frontier) = ingested(&app, "lock.zip", bytes).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert!(frontier.warnings.iter().any(|warning| warning.contains("encrypted")), "{:?}", frontier.warnings);
    let request = ReprocessRequest { options: Some(with("heron")), replace: false };
    is_told(app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap_err());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
