//! Files that are written for programs: what people read in them is found, and the markup around it is not.
#[path = "../../formats/tests/legacy/mod.rs"]
pub mod legacy;

use crate::support::{TestApp, invariants, repository};
use legacy::{old_document, old_presentation};
use serde_json::{Value, json};
use svc_client::{
    Json, OptionalJson,
    wire::{Bm25Search, DocumentPath, Settled},
};
use svc_formats::Format;

/// The texts of all chunks and tables under a file.
async fn chunks(app: &TestApp, id: i64) -> String {
    let nodes = app.subtree(id).await;
    let leaves = nodes.iter().filter(|node| ["chunk", "table"].contains(&node.usetype.as_str()));
    leaves.map(|node| node.content.as_str()).collect::<Vec<_>>().join("\n")
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

#[tokio::test]
async fn a_web_page_is_read_without_its_markup() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&repository().join("formats/tests/files/orchard-report.html")).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let read = evidence(&app, id).await;
    assert_eq!((&read["detected"]["format"], &read["detected"]["mime"]), (&json!("html"), &json!("text/html")));
    assert_eq!((&read["structure"]["from"], &read["structure"]["sections"]), (&json!("html"), &json!(5)), "{read}");
    let chunks = chunks(&app, id).await;
    assert!(chunks.contains("| North | 84 | A. Miller |") && chunks.contains("the harvest of plums"), "{chunks}");
    for gone in ["<", "trackVisit", "cookies", "base64"] {
        assert!(!chunks.replace("4 < 13", "").contains(gone), "{gone}: {chunks}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn markup_without_a_reader_is_not_indexed() {
    let app = TestApp::start().await;
    let encoded = "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24sIGJ1dCBi\n".repeat(50);
    for (name, bytes) in
        [("page.ps", "%!PS-Adobe-3.0\n/Times findfont\n(Words) show\n".to_owned()), ("key.pem", encoded)]
    {
        let stored = app.upload_bytes(name, bytes.into_bytes()).await.unwrap();
        let frontier = app.settled(stored.document_id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        let read = evidence(&app, stored.document_id).await;
        assert_eq!(read["extract.empty"], "no_reader", "{read}");
        assert_eq!(read["matched.patterns"]["has_markup"], true, "{read}");
        assert!(app.subtree(stored.document_id).await.is_empty(), "{name} has nodes under it");
    }
    app.end().await;
}

#[tokio::test]
async fn a_text_with_a_piece_of_a_page_is_read_as_its_name_says() {
    let app = TestApp::start().await;
    for (name, format, shown) in [("notes.txt", "text", "<b>Weir</b>"), ("weir.html", "html", "Weir")] {
        let piece = format!("<p align=center><b>Weir</b></p>\n\nWords of it in {name}.\n");
        let id = app.upload_bytes(name, piece.into_bytes()).await.unwrap().document_id;
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        let read = evidence(&app, id).await;
        assert_eq!((&read["detected"]["format"], &read["plan"]["format"]), (&json!(format), &json!(format)), "{read}");
        let chunks = chunks(&app, id).await;
        assert!(chunks.contains(shown) && chunks.contains("<b>") == (format == "text"), "{name}: {chunks}");
    }
    app.end().await;
}

#[tokio::test]
async fn an_email_is_found_by_its_fields_and_its_body() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&repository().join("formats/tests/files/nest-boxes.eml")).await;
    // The attachment is a file of its own, and it is no whole PDF.
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 1));
    assert!(frontier.warnings.iter().any(|warning| warning.ends_with("in `round-1.pdf`")), "{:?}", frontier.warnings);
    let read = evidence(&app, id).await;
    assert_eq!((&read["detected"]["format"], &read["detected"]["mime"]), (&json!("eml"), &json!("message/rfc822")));
    assert_eq!((&read["structure"]["from"], &read["structure"]["sections"]), (&json!("mail"), &json!(4)), "{read}");
    let facts = &read["extract.text"];
    assert_eq!(facts["subject"], "First round of the nest boxes – please read", "{facts}");
    assert_eq!(facts["from"], "Żaneta Vörösmarty <zaneta@orchard.example.org>", "{facts}");
    assert_eq!(facts["date"], "2025-04-03T18:22:01+02:00", "{facts}");
    assert_eq!(
        (&read["eml.attachments"][0]["name"], &facts["messages"]),
        (&json!("round-1.pdf"), &json!(2)),
        "{facts}"
    );
    for (words, text) in [
        ("redstart Vorosmarty garden", "The redstart took box B-007 in the Vörösmarty garden"),
        ("ladders@orchard.example.org", "Cc: ladders@orchard.example.org"),
        ("lid below the pear tree", "I found the lid of a box below the old pear tree"),
        ("round-1.pdf", "- round-1.pdf (application/pdf, 33 bytes)"),
    ] {
        let found = app.client.search_bm25(Json(Bm25Search::new(words))).await.unwrap();
        let first = &found.results[0].document;
        assert_eq!(first.usetype, "chunk", "{words}");
        assert!(first.content.contains(text), "{words}: {}", first.content);
    }
    let chunks = chunks(&app, id).await;
    for gone in ["Please see the formatted", "color: green", "--inner", "JVBERi"] {
        assert!(!chunks.contains(gone), "{gone}: {chunks}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Ingests a file that the readers ship, and finds words of it in a chunk or a table that also shows where they belong.
async fn is_found(name: &str, format: &str, mime: &str, findings: &[(&str, &str)], gone: &[&str]) {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&repository().join("formats/tests/files").join(name)).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let read = evidence(&app, id).await;
    assert_eq!((&read["detected"]["format"], &read["detected"]["mime"]), (&json!(format), &json!(mime)));
    assert_eq!(read["extract.empty"], Value::Null, "{read}");
    for (words, text) in findings {
        let found = app.client.search_bm25(Json(Bm25Search::new(words))).await.unwrap();
        let first = &found.results[0].document;
        let usetype = if text.starts_with("| ") { "table" } else { "chunk" };
        assert_eq!(first.usetype, usetype, "{words}");
        assert!(first.content.contains(text), "{words}: {}", first.content);
    }
    let chunks = chunks(&app, id).await;
    for gone in gone {
        assert!(!chunks.contains(gone), "{gone}: {chunks}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_value_of_json_is_found_with_the_keys_it_stands_under() {
    let findings = [
        ("owner name vorosmarty", "owner.name: Żaneta Vörösmarty"),
        ("station position lat", "lat: 52.5170"),
        ("trees quince height", "id: B-003; kind: quince; height: 3.1"),
        ("redstart hollow", "The redstart nests in the hollow pear."),
    ];
    is_found("orchard-survey.json", "json", "application/json", &findings, &["{", "\"", "\\u"]).await;
}

#[tokio::test]
async fn a_notebook_is_found_by_its_text_its_code_and_what_it_printed() {
    let findings = [
        ("somebody counts the herons each morning", "Each morning of **April** somebody counts the herons."),
        ("counts = [12, 17, 15, 13]", "```python\ncounts = [12, 17, 15, 13]"),
        ("mean of the mornings 14.25", "mean of the mornings: 14.25"),
        ("ZeroDivisionError", "ZeroDivisionError: division by zero"),
    ];
    let gone = ["iVBOR", "cell_type", "Figure size", "Traceback"];
    is_found("heron-counts.ipynb", "ipynb", "application/x-ipynb+json", &findings, &gone).await;
}

#[tokio::test]
async fn a_document_in_rtf_is_found_by_its_words_and_not_by_its_controls() {
    let findings = [
        ("Łukasz Żołna", "Names: Łukasz Żołna, 水位"),
        ("herons monday morning", "| Monday morning | 12 \\| 14 |"),
        ("rowing boats", "- Two rowing boats"),
        ("nests upstream", "(It nests upstream.)"),
    ];
    let gone = ["rtf1", "cellx", "fonttbl", "89504e47", "Page header", "struck", "hidden"];
    is_found("pond-rules.rtf", "rtf", "application/rtf", &findings, &gone).await;
}

#[tokio::test]
async fn a_meeting_is_found_by_what_was_said_and_by_whom() {
    let findings = [
        ("sluice leaking flood", "00:00:01 Ann Onym: The sluice has been leaking since the flood & the frost."),
        ("Żaneta eels", "00:12:07 Żaneta Łoś: Then the eels cannot pass."),
    ];
    is_found("weir-meeting.vtt", "vtt", "text/vtt", &findings, &["-->", "<", "papayawhip", "opening"]).await;
}

#[tokio::test]
async fn a_document_in_xml_is_found_by_its_words_and_not_by_its_tags() {
    let findings = [
        ("heron café garden", "The heron fishes at the weir & sleeps in the café garden."),
        ("nests in reed", "- nests in reed"),
        ("grebe 31", "| Grebe | 31 |"),
        ("author surname onym", "bookinfo.author.surname: Onym"),
    ];
    let gone = ["<", "ENTITY", "para", "lollol", "aGVyb24"];
    is_found("pond-guide.xml", "xml", "application/xml", &findings, &gone).await;
}

#[tokio::test]
async fn open_documents_and_books_are_found_by_their_words() {
    let findings = [
        (
            "lockkeeper weir dawn",
            "The lockkeeper opens the weir at dawn [In winter an hour later.] and the eels go down.",
        ),
        ("sluice alone", "- Leave the sluice alone"),
        ("kingfisher", "| Kingfisher | 4 |"),
    ];
    is_found("pond-walk.odt", "odt", Format::Odt.mime(), &findings, &["<", "cormorant", "remark"]).await;
    let findings = [
        ("pipistrelles dusk", "- Pipistrelles leave the mill at dusk"),
        ("detectors", "Hand out the detectors first."),
        ("slates boathouse", "Under the slates of the boathouse."),
    ];
    is_found("bat-talk.odp", "odp", Format::Odp.mime(), &findings, &["<", "page1"]).await;
    let findings = [
        ("toad anvil", "A toad lived beneath the anvil — for years."),
        ("otter ferry", "An otter slept on the *ferry* all summer."),
        ("crayfish", "- It ate crayfish"),
    ];
    is_found("pond-tales.epub", "epub", Format::Epub.mime(), &findings, &["<", "teal"]).await;
}

#[tokio::test]
async fn a_damaged_open_document_fails_for_good_and_says_so() {
    let app = TestApp::start().await;
    for (name, format) in [("pond-walk.odt", "odt"), ("bat-talk.odp", "odp"), ("pond-tales.epub", "epub")] {
        let mut bytes = std::fs::read(repository().join("formats/tests/files").join(name)).unwrap();
        // The members stay named, but none of them inflates.
        let at = bytes.len() / 4;
        bytes[at..at + 60].fill(0xff);
        let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
        assert_eq!(app.settled(id).await.settled, Settled::Failed, "{name}");
        let read = evidence(&app, id).await;
        assert_eq!(
            (&read["detected"]["format"], &read["attempts"][0]["error_type"]),
            (&json!(format), &json!("permanent"))
        );
        assert_eq!(read["attempts"].as_array().unwrap().len(), 1, "{read}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_hostile_page_settles_with_what_it_shows_or_a_reason() {
    let app = TestApp::start().await;
    let page = "<!doctype html><p>Ducks.</p><table><tr><td colspan=1000000000>Herons<tr><td>x</table>";
    let stored = app.upload_bytes("wide.html", page.as_bytes().to_vec()).await.unwrap();
    assert_eq!(app.settled(stored.document_id).await.nodes_failed, 0);
    assert!(chunks(&app, stored.document_id).await.contains("Herons"));
    app.end().await;
}

#[tokio::test]
async fn legacy_documents_and_presentations_are_found_by_their_words() {
    let app = TestApp::start().await;
    let text = "The weir is opened at dawn.\rSee \u{13} HYPERLINK nowhere \u{14}the lockkeeper\u{15}.\r";
    for (name, bytes, mime, words, shown) in [
        ("weir.doc", old_document(text), Format::Doc.mime(), "lockkeeper", "See the lockkeeper."),
        (
            "pond.ppt",
            old_presentation("The pond", "Ducks\rKingfisher"),
            Format::Ppt.mime(),
            "kingfisher",
            "- Kingfisher",
        ),
    ] {
        let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        let read = evidence(&app, id).await;
        assert_eq!(read["detected"]["mime"], mime, "{read}");
        assert_eq!(read["matched.patterns"]["is_legacy_binary"], true, "{read}");
        let found = app.client.search_bm25(Json(Bm25Search::new(words))).await.unwrap();
        assert!(found.results[0].document.content.contains(shown), "{}", found.results[0].document.content);
        assert!(!chunks(&app, id).await.contains("HYPERLINK"), "{name}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_an_older_version_stored_as_a_compound_file_is_read_by_a_reprocess() {
    let app = TestApp::start().await;
    for (name, bytes, format, shown) in [
        ("weir.doc", old_document("The weir is opened at dawn.\r"), "doc", "opened at dawn"),
        ("pond.ppt", old_presentation("The pond", "Kingfisher"), "ppt", "- Kingfisher"),
    ] {
        let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
        app.settled(id).await;
        sqlx::query("UPDATE document_blobs SET format = 'ole2' WHERE document_id = $1")
            .bind(id)
            .execute(&app.pool)
            .await
            .unwrap();
        app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        let read = evidence(&app, id).await;
        assert_eq!((&read["reprocess"]["state"], &read["plan"]["format"]), (&json!("done"), &json!(format)), "{read}");
        assert!(chunks(&app, id).await.contains(shown), "{name}");
    }
    app.end().await;
}
