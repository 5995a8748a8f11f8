//! Pictures of files: nodes with bytes and a text under their file, found by what is said of them.
use crate::{
    cli::svc,
    members::archive,
    principals::{Someone, grant, someone},
    support::{IN_DATABASE, TestApp, Wish, invariants, left_out, repository, until},
};
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{
        Bm25Search, DocumentPath, DocumentResponse, EmbedQuery, FileQuery, GrantRight, ReprocessRequest, Settled,
        TaskPath, TaskTypePath, UploadQuery, ViewBlock,
    },
};

/// A PNG as far as anybody looks at it; `mark` makes its bytes its own.
fn png(width: u32, height: u32, mark: &str) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(height.to_be_bytes());
    png.extend(b"\x08\x02\0\0\0");
    png.extend(mark.as_bytes());
    png
}

fn paragraph(text: &str) -> String {
    format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>")
}

fn picture(id: &str, alt: &str) -> String {
    format!(
        r#"<w:p><w:r><w:drawing><wp:inline><wp:docPr id="1" descr="{alt}"/><a:blip r:embed="{id}"/></wp:inline></w:drawing></w:r></w:p>"#
    )
}

/// A document of Word with these pictures, whose references are p0, p1 and so on.
fn docx(body: &str, pictures: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let relation = |id: &str, kind: &str, target: &str| {
        format!(r#"<Relationship Id="{id}" Type="http://example.org/rel/{kind}" Target="{target}"/>"#)
    };
    let related: String =
        pictures.iter().enumerate().map(|(at, (name, _))| relation(&format!("p{at}"), "image", name)).collect();
    let main = format!(r#"<w:document xmlns:w="w" xmlns:r="r"><w:body>{body}</w:body></w:document>"#);
    let mut parts: Vec<(String, Vec<u8>)> = vec![
        (
            "_rels/.rels".to_owned(),
            format!("<Relationships>{}</Relationships>", relation("r1", "officeDocument", "word/document.xml")).into(),
        ),
        ("word/document.xml".to_owned(), main.into()),
        ("word/_rels/document.xml.rels".to_owned(), format!("<Relationships>{related}</Relationships>").into()),
    ];
    parts.extend(pictures.iter().map(|(name, bytes)| (format!("word/{name}"), bytes.clone())));
    archive(&parts.iter().map(|(name, bytes)| (name.as_str(), bytes)).collect::<Vec<_>>())
}

/// A report with three pictures: one comes twice, and one has the bytes of another.
fn report() -> Vec<u8> {
    let body = [
        paragraph("The weir was mended in autumn."),
        picture("p0", "A grebe at its nest"),
        paragraph("Figure 1: The sluice after the flood"),
        paragraph("Nothing else was broken."),
        picture("p1", ""),
        picture("p0", ""),
        picture("p2", ""),
        picture("p3", ""),
    ]
    .concat();
    let sluice = png(640, 480, "sluice");
    docx(
        &body,
        &[
            ("media/sluice.png", sluice.clone()),
            ("media/pump.png", png(200, 100, "pump")),
            ("media/copy.png", sluice),
            ("media/line.png", png(900, 1, "line")),
        ],
    )
}

async fn ingested(app: &TestApp, name: &str, bytes: Vec<u8>) -> i64 {
    let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
    id
}

async fn pictures(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
    app.subtree(id).await.into_iter().filter(|node| node.usetype == "image").collect()
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

async fn bytes(app: &TestApp, id: i64) -> Vec<u8> {
    let download = app.client.read_bytes(DocumentPath { id }).await.unwrap().value().unwrap();
    download.bytes.try_collect::<Vec<_>>().await.unwrap().concat()
}

async fn find(app: &TestApp, words: &str) -> Vec<DocumentResponse> {
    let found = app.client.search_bm25(Json(Bm25Search::new(words))).await.unwrap();
    found.results.into_iter().map(|result| result.document).collect()
}

#[tokio::test]
async fn each_picture_of_a_file_is_a_node_with_its_bytes_and_is_found_by_what_is_said_of_it() {
    let app = TestApp::with(Wish { settings: &[IN_DATABASE], ..Wish::default() }).await;
    let id = ingested(&app, "report.docx", report()).await;
    let found = pictures(&app, id).await;
    let [sluice, pump] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((sluice.parent_id, sluice.settled), (Some(id), Settled::Settled));
    assert_eq!(sluice.title, "Figure 1: The sluice after the flood");
    assert_eq!(
        sluice.content,
        "Figure 1: The sluice after the flood\nA grebe at its nest\nThe weir was mended in autumn."
    );
    let told = json!(sluice.structured_content);
    assert_eq!((&told["mime"], &told["width"], &told["height"]), (&json!("image/png"), &json!(640), &json!(480)));
    assert_eq!((&told["alt"], &told["name"]), (&json!("A grebe at its nest"), &json!("word/media/sluice.png")));
    assert_eq!(bytes(&app, sluice.id).await, png(640, 480, "sluice"));
    assert_eq!(bytes(&app, pump.id).await, png(200, 100, "pump"));
    let answer = app.raw("GET", &format!("/documents/{}/bytes", sluice.id)).send().await.unwrap();
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!((header("content-type"), header("x-content-type-options")), ("image/png".into(), "nosniff".into()));
    let disposition = header("content-disposition");
    assert!(disposition.starts_with("attachment") && disposition.contains("flood.png"), "{disposition}");

    // Its alternative text stands nowhere else.
    assert_eq!(find(&app, "grebe").await[0].id, sluice.id);
    let read = evidence(&app, id).await;
    assert_eq!(read["images"]["images"], 2, "{read}");
    assert_eq!(read["images"]["same"], json!([{"name": "word/media/copy.png", "as": "word/media/sluice.png"}]));
    assert_eq!(read["images.left_out"]["reasons"], json!({"small": 1}), "{read}");
    assert_eq!(read["images.left_out"]["first"][0]["name"], "word/media/line.png");
    let anchor = evidence(&app, sluice.id).await["anchor"].clone();
    assert_eq!((&anchor["image"], &anchor["sha256"]), (&json!(0), &told["sha256"]), "{anchor}");
    // What stands beside a picture is told once, by the text itself.
    let text = read["effective_content"]["text"].as_str().unwrap_or_default().to_owned();
    assert!(!text.contains("grebe"), "{text}");

    // A picture is no file: it is not listed, no upload finds it, and it is not ingested again.
    let files = app.client.list_files(FileQuery::default()).await.unwrap().files;
    assert_eq!(files.iter().map(|file| file.id).collect::<Vec<_>>(), [id]);
    let again = app.client.reprocess_file(DocumentPath { id: sluice.id }, OptionalJson(None)).await.unwrap_err();
    assert_eq!(again.code, Code::Conflict, "{again}");
    let shown = app.client.view_document(DocumentPath { id: sluice.id }).await.unwrap().value().unwrap();
    assert_eq!(json!(shown.blocks[0].kind), "image");
    assert_eq!((shown.blocks.len(), &shown.blocks[0].href), (1, &Some(format!("/documents/{}/bytes", sluice.id))));
    // In the view of its file it is a picture too, and what stands beside it is said once.
    let whole = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap().children.blocks;
    let of_picture = |block: &&ViewBlock| [sluice.id, pump.id].contains(&block.document_id);
    let kinds: Vec<Value> = whole.iter().filter(of_picture).map(|block| json!(block.kind)).collect();
    assert_eq!(kinds, ["image", "image"], "{whole:?}");
    let said: String = whole.iter().filter_map(|block| block.text.as_deref()).collect();
    assert_eq!(said.matches("The weir was mended").count(), 1, "{said}");
    invariants::check_drained(&app.pool).await;

    let held = async || {
        let count = "SELECT (SELECT count(*) FROM document_blobs), (SELECT count(*) FROM pg_largeobject_metadata)";
        sqlx::query_as::<_, (i64, i64)>(count).fetch_one(&app.pool).await.unwrap()
    };
    assert_eq!(held().await, (3, 3));
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    assert_eq!(held().await, (0, 0));
    app.end().await;
}

#[tokio::test]
async fn a_picture_is_as_closed_as_its_file_and_a_reprocess_makes_it_anew() {
    let app = TestApp::start().await;
    let query = UploadQuery { private: true, ..UploadQuery::default() };
    let upload = FileUpload::from_bytes("report.docx", report(), None);
    let id = app.client.upload_file(query, upload).await.unwrap().document_id;
    app.settled(id).await;
    let before = pictures(&app, id).await;
    assert_eq!(before.len(), 2);
    let (reader, other) = (someone(&app, "reader").await, someone(&app, "other").await);
    grant(&app, &reader, id, GrantRight::Read).await;
    let reads = async |who: &Someone, id| who.client.read_bytes(DocumentPath { id }).await.map(drop);
    assert!(reads(&reader, before[0].id).await.is_ok());
    assert_eq!(reads(&other, before[0].id).await.unwrap_err().code, Code::NotFound);
    // The same bytes of an open file are a picture of their own.
    let open = ingested(&app, "other.docx", docx(&picture("p0", ""), &[("a.png", png(640, 480, "sluice"))])).await;
    let open = pictures(&app, open).await;
    assert!(reads(&other, open[0].id).await.is_ok() && open[0].id != before[0].id);

    let request = ReprocessRequest { options: Some(json!({"structure": {"max_tokens": 60}})), replace: false };
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
    until("the reprocess is over", async || (evidence(&app, id).await["reprocess"]["state"] == "done").then_some(()))
        .await;
    let after = pictures(&app, id).await;
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|new| before.iter().all(|old| old.id != new.id)));
    assert!(reads(&reader, after[0].id).await.is_ok());
    assert_eq!(reads(&other, after[0].id).await.unwrap_err().code, Code::NotFound);
    assert_eq!(bytes(&app, after[0].id).await, png(640, 480, "sluice"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_option_leaves_pictures_out_and_limits_cap_them() {
    let app = TestApp::with(Wish { settings: &[("SVC_PARSER_IMAGES", "1")], ..Wish::default() }).await;
    let skip = FileUpload::from_bytes("report.docx", report(), Some(json!({"skip": {"images": true}})));
    let id = app.client.upload_file(UploadQuery::default(), skip).await.unwrap().document_id;
    app.settled(id).await;
    assert!(pictures(&app, id).await.is_empty());
    let read = evidence(&app, id).await;
    let row = read["plan"]["tasks"].as_array().unwrap().iter().find(|row| row["task"] == "extract:images").unwrap();
    assert_eq!((&row["outcome"], &row["reason"]), (&json!("skipped"), &json!("the option skip.images is true")));
    assert!(read.get("images").is_none());

    let body = [picture("p0", "One"), picture("p1", "Two"), paragraph("Words enough.")].concat();
    let two = [("one.png", png(20, 20, "one")), ("two.png", png(20, 20, "two"))];
    let id = ingested(&app, "two.docx", docx(&body, &two)).await;
    assert_eq!(pictures(&app, id).await.len(), 1);
    assert_eq!(evidence(&app, id).await["images.left_out"]["reasons"], json!({"images": 1}));

    // Without a text the file says so, whatever pictures it has.
    let bare = ingested(&app, "bare.docx", docx(&picture("p0", "A lone crane"), &two[..1])).await;
    assert_eq!(pictures(&app, bare).await.len(), 1);
    assert_eq!(evidence(&app, bare).await["extract.empty"], "no_text");
    assert_eq!(find(&app, "crane").await[0].id, pictures(&app, bare).await[0].id);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_file_whose_pictures_cannot_be_read_settles_with_its_text_and_waits_for_them_if_that_is_tried_again() {
    let app = TestApp::with(Wish { settings: &[("SVC_PARSER_UNPACKED_BYTES", "1 MiB")], ..Wish::default() }).await;
    let large = png(640, 480, &"0".repeat(2 << 20));
    let body = [paragraph("The weir was mended."), picture("p0", "The weir")].concat();
    let id = ingested(&app, "large.docx", docx(&body, &[("large.png", large)])).await;
    assert!(pictures(&app, id).await.is_empty());
    assert!(!find(&app, "weir mended").await.is_empty());
    let attempts = evidence(&app, id).await["attempts"].clone();
    let failed = attempts.as_array().unwrap().iter().find(|attempt| attempt["outcome"] == "failed").unwrap();
    assert_eq!((&failed["task_type"], &failed["code"]), (&json!("extract:images"), &json!("limit_exceeded")));
    invariants::check_drained(&app.pool).await;

    let images = || TaskTypePath { task_type: "extract:images".to_owned() };
    app.client.pause_task_type(images()).await.unwrap();
    let task: i64 = sqlx::query_scalar("SELECT id FROM task_queue WHERE task_type = 'extract:images'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    app.client.retry_task(TaskPath { id: task }).await.unwrap();
    let waits = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!(waits.settled, Settled::InFlight);
    app.client.resume_task_type(images()).await.unwrap();
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    app.end().await;
}

#[tokio::test]
async fn a_text_beside_many_pictures_finds_a_few_of_them() {
    let app = TestApp::start().await;
    let ids = ["p0", "p1", "p2", "p3", "p4"];
    let body = paragraph("The zephyr pond in spring.") + &ids.map(|id| picture(id, "")).concat();
    let files: Vec<(&str, Vec<u8>)> = ids.iter().map(|id| (*id, png(20, 20, id))).collect();
    let id = ingested(&app, "pond.docx", docx(&body, &files)).await;
    let found = pictures(&app, id).await;
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|node| node.structured_content["nearby"] == "The zephyr pond in spring."), "{found:?}");
    assert_eq!(find(&app, "zephyr").await.iter().filter(|node| node.usetype == "image").count(), 3);
    assert_eq!(found[4].content, "Picture 5 of pond.docx");
    app.end().await;
}

#[tokio::test]
async fn a_picture_that_could_act_is_only_handed_out_to_be_saved() {
    let app = TestApp::start().await;
    let svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>".to_vec();
    let page = b"<html><script>alert(1)</script></html>".to_vec();
    let body = [picture("p0", "A drawing"), picture("p1", "A page"), paragraph("Words enough.")].concat();
    let id = ingested(&app, "acts.docx", docx(&body, &[("a.svg", svg), ("b.png", page)])).await;
    let found = pictures(&app, id).await;
    let [drawing] = found.as_slice() else { panic!("{found:?}") };
    let answer = app.raw("GET", &format!("/documents/{}/bytes", drawing.id)).send().await.unwrap();
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert!(header("content-disposition").starts_with("attachment") && header("x-content-type-options") == "nosniff");
    assert_eq!(header("content-type"), "image/svg+xml");
    assert_eq!(evidence(&app, id).await["images.left_out"]["reasons"], json!({"kind": 1}));
    app.end().await;
}

#[tokio::test]
async fn bytes_of_pictures_lie_in_the_object_store_as_those_of_files_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().display());
    let settings: &[(&str, &str)] = &[("SVC_BLOB_STORE", &store), ("SVC_SPOOL_MAX_BYTES", "0")];
    let app = TestApp::with(Wish { settings, ..Wish::default() }).await;
    let id = ingested(&app, "report.docx", report()).await;
    let found = pictures(&app, id).await;
    assert_eq!(bytes(&app, found[0].id).await, png(640, 480, "sluice"));
    let (lobs, objects): (i64, i64) =
        sqlx::query_as("SELECT count(lob), count(object) FROM document_blobs").fetch_one(&app.pool).await.unwrap();
    assert_eq!((lobs, objects), (0, 3));
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    let given_up: i64 = sqlx::query_scalar("SELECT count(*) FROM blob_garbage").fetch_one(&app.pool).await.unwrap();
    assert_eq!(given_up, 3);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_and_charts_go_with_their_file_into_an_archive_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let archived = folder.path().join("archive");
    let (app, other) = (TestApp::start().await, TestApp::start().await);
    let id = ingested(&app, "report.docx", report()).await;
    let drawn = ingested(&app, "rain.docx", charted()).await;
    let run = async |app: &TestApp, command: &str, folder: &Path| {
        let output = svc(app, &[command, folder.to_str().unwrap()]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&app, "export", &archived).await;
    run(&other, "import", &archived).await;
    let files = other.client.list_files(FileQuery::default()).await.unwrap().files;
    assert_eq!(files.len(), 2, "{files:?}");
    let named = |title: &str| files.iter().find(|file| file.title == title).unwrap().id;
    let (of_report, of_rain) = (named("report.docx"), named("rain.docx"));
    let (before, after) = (pictures(&app, id).await, pictures(&other, of_report).await);
    assert_eq!(after.len(), 2);
    for (was, is) in before.iter().zip(&after) {
        assert_eq!(
            (&is.title, &is.content, &is.structured_content),
            (&was.title, &was.content, &was.structured_content)
        );
        assert_eq!(bytes(&other, is.id).await, bytes(&app, was.id).await);
    }
    let (was, is) = (charts(&app, drawn).await, charts(&other, of_rain).await);
    assert_eq!(is.len(), 1);
    assert_eq!((&is[0].content, &is[0].structured_content), (&was[0].content, &was[0].structured_content));
    invariants::check_drained(&other.pool).await;
    // A second import finds everything there.
    run(&other, "import", &archived).await;
    assert_eq!(pictures(&other, of_report).await.len(), 2);
    assert_eq!(charts(&other, of_rain).await.len(), 1);
    app.end().await;
    other.end().await;
}

/// A part of relationships; each entry is an id, a kind and a target.
fn related(entries: &[(&str, &str, &str)]) -> String {
    let entries = entries.iter().map(|(id, kind, target)| {
        format!(r#"<Relationship Id="{id}" Type="http://example.org/rel/{kind}" Target="{target}"/>"#)
    });
    format!("<Relationships>{}</Relationships>", entries.collect::<String>())
}

/// A chart part of two series.
fn rain() -> String {
    let cache = |kind: &str, values: &[&str]| {
        let points: String =
            (0..).zip(values).map(|(at, value)| format!(r#"<c:pt idx="{at}"><c:v>{value}</c:v></c:pt>"#)).collect();
        format!("<c:{kind}Ref><c:{kind}Cache>{points}</c:{kind}Cache></c:{kind}Ref>")
    };
    let series = |name: &str, values: &[&str]| {
        let (name, months, values) =
            (cache("str", &[name]), cache("str", &["Lenzing", "Brachet"]), cache("num", values));
        format!("<c:ser><c:tx>{name}</c:tx><c:cat>{months}</c:cat><c:val>{values}</c:val></c:ser>")
    };
    let title = "<c:title><c:tx><c:rich><a:p><a:r><a:t>Rain at the weir</a:t></a:r></a:p></c:rich></c:tx></c:title>";
    let plot = format!("<c:barChart>{}{}</c:barChart>", series("North", &["8", "12.5"]), series("South", &["30"]));
    format!("<c:chartSpace><c:chart>{title}<c:plotArea>{plot}</c:plotArea></c:chart></c:chartSpace>")
}

/// A document with the chart of rain.
fn charted() -> Vec<u8> {
    with_chart(rain())
}

/// A document with this chart between two sentences, and a chart without values.
fn with_chart(chart: String) -> Vec<u8> {
    let place = |id: &str| {
        format!(r#"<w:p><w:r><w:drawing><a:graphic><c:chart r:id="{id}"/></a:graphic></w:drawing></w:r></w:p>"#)
    };
    let body = [
        paragraph("The gauges stood all year."),
        place("r7"),
        paragraph("Nobody emptied them at the zephyr pond."),
        place("r8"),
    ]
    .concat();
    archive(&[
        ("_rels/.rels", related(&[("r1", "officeDocument", "word/document.xml")])),
        ("word/document.xml", format!("<w:document><w:body>{body}</w:body></w:document>")),
        (
            "word/_rels/document.xml.rels",
            related(&[("r7", "chart", "charts/chart1.xml"), ("r8", "chart", "charts/chart2.xml")]),
        ),
        ("word/charts/chart1.xml", chart),
        ("word/charts/chart2.xml", "<c:chartSpace><c:chart/></c:chartSpace>".to_owned()),
    ])
}

async fn charts(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
    app.subtree(id).await.into_iter().filter(|node| node.usetype == "table").collect()
}

#[tokio::test]
async fn a_chart_of_a_document_is_a_table_under_its_file_and_no_text_of_it() {
    let app = TestApp::start().await;
    let id = ingested(&app, "rain.docx", charted()).await;
    let found = charts(&app, id).await;
    let [chart] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (chart.parent_id, chart.settled, chart.title.as_str()),
        (Some(id), Settled::Settled, "Rain at the weir")
    );
    let rows = "| Lenzing | 8 | 30 |\n| Brachet | 12.5 |  |";
    assert_eq!(chart.content, format!("| Rain at the weir | North | South |\n| --- | --- | --- |\n{rows}"));
    assert_eq!(
        json!(chart.structured_content),
        json!({"table": {
            "columns": ["Rain at the weir", "North", "South"],
            "rows": [["Lenzing", 8, 30], ["Brachet", 12.5, null]],
        }})
    );
    assert_eq!(evidence(&app, chart.id).await["anchor"], json!({"chart": 0, "name": "word/charts/chart1.xml"}));
    for (word, expected) in [("Brachet", "table"), ("weir", "table"), ("zephyr", "chunk")] {
        let usetypes: Vec<String> = find(&app, word).await.into_iter().map(|node| node.usetype).collect();
        assert_eq!(usetypes, [expected], "{word}");
    }
    let read = evidence(&app, id).await;
    assert_eq!(read["images"], json!({"images": 0, "same": [], "charts": 1, "left_out": 1}));
    assert_eq!(read["images.left_out"]["reasons"], json!({"values": 1}));
    let patterns = &read["matched.patterns"];
    assert_eq!((&patterns["has_images"], &patterns["has_tables"]), (&json!(true), &json!(false)));
    assert!(read["extract.text"].get("charts").is_none() && read.get("extract.tables").is_none(), "{read}");
    // Neither the chunks nor what stands for the whole file says what the chart says.
    let nodes = app.subtree(id).await;
    let said: String = nodes.iter().filter(|node| node.id != chart.id).map(|node| node.content.as_str()).collect();
    assert!(said.contains("zephyr pond") && !said.contains("Brachet"), "{said}");
    let whole = read["effective_content"]["source_children"].as_u64();
    assert_eq!(whole, Some(nodes.iter().filter(|node| node.usetype == "chunk").count() as u64), "{read}");
    // A table of a chart is no file, and has no bytes.
    assert!(app.client.read_bytes(DocumentPath { id: chart.id }).await.is_err());
    let view = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap().children.blocks;
    assert_eq!(view.iter().filter(|block| block.document_id == chart.id).count(), 1, "{view:?}");

    app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    until("the reprocess is over", async || (evidence(&app, id).await["reprocess"]["state"] == "done").then_some(()))
        .await;
    let after = charts(&app, id).await;
    assert_eq!((after.len(), &after[0].content), (1, &chart.content));
    assert_ne!(after[0].id, chart.id);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn charts_of_slides_and_sheets_say_where_they_are_and_an_option_leaves_them_out() {
    let app = TestApp::start().await;
    let frame = r#"<a:graphic><a:graphicData><c:chart r:id="r5"/></a:graphicData></a:graphic>"#;
    let to_chart = || related(&[("r5", "chart", "../charts/chart1.xml")]);
    let slide = |text: &str, more: &str| {
        format!(
            "<p:sld><p:cSld><p:spTree><p:sp><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>{more}</p:spTree></p:cSld></p:sld>"
        )
    };
    let slides = r#"<p:sldIdLst><p:sldId id="256" r:id="s1"/><p:sldId id="257" r:id="s2"/></p:sldIdLst>"#;
    let deck = archive(&[
        ("_rels/.rels", related(&[("r1", "officeDocument", "ppt/presentation.xml")])),
        ("ppt/presentation.xml", format!("<p:presentation>{slides}</p:presentation>")),
        (
            "ppt/_rels/presentation.xml.rels",
            related(&[("s1", "slide", "slides/slide1.xml"), ("s2", "slide", "slides/slide2.xml")]),
        ),
        ("ppt/slides/slide1.xml", slide("Gauges of the north", "")),
        ("ppt/slides/slide2.xml", slide("What they held", &format!("<p:graphicFrame>{frame}</p:graphicFrame>"))),
        ("ppt/slides/_rels/slide2.xml.rels", to_chart()),
        ("ppt/charts/chart1.xml", rain()),
    ]);
    let cell = r#"<row r="1"><c r="A1" t="inlineStr"><is><t>Gauges</t></is></c></row>"#;
    let sheets = r#"<sheet name="Gauges" sheetId="1" r:id="s1"/><sheet name="Drawn" sheetId="2" r:id="s2"/>"#;
    let book = archive(&[
        ("_rels/.rels", related(&[("r1", "officeDocument", "xl/workbook.xml")])),
        ("xl/workbook.xml", format!("<workbook><sheets>{sheets}</sheets></workbook>")),
        (
            "xl/_rels/workbook.xml.rels",
            related(&[("s1", "worksheet", "worksheets/sheet1.xml"), ("s2", "chartsheet", "chartsheets/sheet1.xml")]),
        ),
        ("xl/worksheets/sheet1.xml", format!("<worksheet><sheetData>{cell}</sheetData></worksheet>")),
        ("xl/chartsheets/sheet1.xml", "<chartsheet/>".to_owned()),
        ("xl/chartsheets/_rels/sheet1.xml.rels", related(&[("d1", "drawing", "../drawings/drawing1.xml")])),
        ("xl/drawings/drawing1.xml", format!("<xdr:wsDr><xdr:graphicFrame>{frame}</xdr:graphicFrame></xdr:wsDr>")),
        ("xl/drawings/_rels/drawing1.xml.rels", to_chart()),
        ("xl/charts/chart1.xml", rain()),
    ]);
    for (name, bytes, pages) in [("rain.pptx", &deck, "slides"), ("rain.xlsx", &book, "sheets")] {
        let id = ingested(&app, name, bytes.clone()).await;
        let found = charts(&app, id).await;
        let [chart] = found.as_slice() else { panic!("{name}: {found:?}") };
        assert_eq!((chart.parent_id, chart.title.as_str()), (Some(id), "Rain at the weir"), "{name}");
        assert_eq!(evidence(&app, chart.id).await["anchor"][pages], json!([2, 2]), "{name}");
        assert_eq!(evidence(&app, id).await["images"]["charts"], 1, "{name}");
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    let skip = FileUpload::from_bytes("rain.pptx", deck, Some(json!({"skip": {"images": true}})));
    let id = app.client.upload_file(UploadQuery::default(), skip).await.unwrap().document_id;
    app.settled(id).await;
    assert!(charts(&app, id).await.is_empty());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_long_chart_without_a_title_is_one_node_and_found_by_its_last_name() {
    const POINTS: u32 = 600;
    let app = TestApp::start().await;
    let point = |at: u32, value: &str| format!(r#"<c:pt idx="{at}"><c:v>{value}</c:v></c:pt>"#);
    let name = |at: u32| if at + 1 == POINTS { "quillon" } else { "gauge" };
    let names: String = (0..POINTS).map(|at| point(at, name(at))).collect();
    let values: String = (0..POINTS).map(|at| point(at, &at.to_string())).collect();
    let axis = format!("<c:cat><c:strLit>{names}</c:strLit></c:cat>");
    let series = format!("<c:ser>{axis}<c:val><c:numLit>{values}</c:numLit></c:val></c:ser>");
    let plot = format!("<c:plotArea><c:lineChart>{series}</c:lineChart></c:plotArea>");
    let long = with_chart(format!("<c:chartSpace><c:chart>{plot}</c:chart></c:chartSpace>"));
    let id = ingested(&app, "long.docx", long).await;
    let found = charts(&app, id).await;
    let [chart] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((chart.title.as_str(), chart.parent_id), ("Chart 1", Some(id)));
    assert_eq!(chart.structured_content["table"]["rows"].as_array().unwrap().len(), POINTS as usize);
    assert!(app.subtree(chart.id).await.iter().all(|node| node.id == chart.id), "it has no parts");
    let ids: Vec<i64> = find(&app, "quillon").await.into_iter().map(|node| node.id).collect();
    assert_eq!(ids, [chart.id]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_chart_is_as_closed_as_its_file() {
    let app = TestApp::start().await;
    let query = UploadQuery { private: true, ..UploadQuery::default() };
    let upload = FileUpload::from_bytes("rain.docx", charted(), None);
    let id = app.client.upload_file(query, upload).await.unwrap().document_id;
    app.settled(id).await;
    let chart = charts(&app, id).await[0].id;
    let (reader, other) = (someone(&app, "reader").await, someone(&app, "other").await);
    grant(&app, &reader, id, GrantRight::Read).await;
    let finds = async |who: &Someone| {
        let found = who.client.search_bm25(Json(Bm25Search::new("Brachet"))).await.unwrap();
        found.results.into_iter().map(|result| result.document.id).collect::<Vec<_>>()
    };
    assert_eq!(finds(&reader).await, [chart]);
    assert!(finds(&other).await.is_empty());
    let read = other.client.read_document(DocumentPath { id: chart }, EmbedQuery::default()).await.map(drop);
    assert_eq!(read.unwrap_err().code, Code::NotFound);
    app.end().await;
}

/// The files of the corpus that have pictures, if the corpus is here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_real_files_are_read() {
    let corpus = repository().join("../shared/corpus");
    if !corpus.exists() {
        return left_out("no corpus beside the repository, so no pictures of real files");
    }
    let app = TestApp::start().await;
    for (name, least) in [
        ("docx/word_sample.docx", 1),
        ("pptx/powerpoint_with_image.pptx", 1),
        ("pptx/45545_Comment.pptx", 0),
        ("pdf/GeoBase_NHNC1_Data_Model_UML_EN.pdf", 0),
    ] {
        let (id, frontier) = app.ingest(&corpus.join(name)).await;
        assert_eq!(frontier.settled, Settled::Settled, "{name}");
        let read = evidence(&app, id).await;
        let count = read["images"]["images"].as_u64().unwrap_or_else(|| panic!("{name}: {read}"));
        assert!(count >= least, "{name}: {read}");
        let found = pictures(&app, id).await;
        assert_eq!(found.len() as u64, count, "{name}");
        let hashes: BTreeSet<String> =
            found.iter().map(|node| json!(node.structured_content)["sha256"].to_string()).collect();
        assert_eq!(hashes.len(), found.len(), "{name}: the same picture once");
        for node in &found {
            let told = json!(node.structured_content);
            assert_eq!(Some(bytes(&app, node.id).await.len() as u64), told["byte_size"].as_u64(), "{name}");
            let read = app.client.read_document(DocumentPath { id: node.id }, EmbedQuery::default()).await;
            assert_eq!(read.unwrap().value().unwrap().settled, Settled::Settled);
        }
    }
    assert!(find(&app, "cartoon duck").await.iter().any(|node| node.usetype == "image"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
