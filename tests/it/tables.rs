//! Tables of files: nodes with Markdown, typed values and anchors, in the place of the chunks that would hold the same.
use crate::support::{TestApp, invariants, left_out, repository, sample, until};
use serde_json::{Value, json};
use std::fmt::Write;
use svc_client::{
    FileUpload, Json, OptionalJson,
    wire::{Bm25Search, DocumentPath, DocumentResponse, ExpandRequest, PlanOutcome, Settled, UploadQuery, ViewBlock},
};

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

fn tables(nodes: &[DocumentResponse]) -> Vec<&DocumentResponse> {
    nodes.iter().filter(|node| node.usetype == "table").collect()
}

/// A PDF whose pages have these contents, of 600 by 800 points.
fn pdf(pages: &[String]) -> Vec<u8> {
    let kids: String = (0..pages.len()).map(|page| format!("{} 0 R ", 10 + 2 * page)).collect();
    let mut objects: Vec<(usize, String)> = vec![
        (1, "<< /Type /Catalog /Pages 2 0 R >>".to_owned()),
        (2, format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", pages.len())),
        (3, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned()),
    ];
    for (page, content) in pages.iter().enumerate() {
        let number = 10 + 2 * page;
        let resources = "/MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >>";
        let node = format!("<< /Type /Page /Parent 2 0 R {resources} /Contents {} 0 R >>", number + 1);
        let stream = format!("<< /Length {} >> stream\n{content}\nendstream", content.len());
        objects.extend([(number, node), (number + 1, stream)]);
    }
    let (mut file, mut table) = ("%PDF-1.7\n".to_owned(), "xref\n".to_owned());
    for (number, body) in &objects {
        write!(table, "{number} 1\n{:010} 00000 n \n", file.len()).unwrap();
        write!(file, "{number} 0 obj\n{body}\nendobj\n").unwrap();
    }
    let start = file.len();
    write!(file, "{table}trailer << /Root 1 0 R /Size 1000 >>\nstartxref\n{start}\n%%EOF\n").unwrap();
    file.into_bytes()
}

fn text(x: u32, y: u32, text: &str) -> String {
    format!("BT /F1 10 Tf {x} {y} Td ({text}) Tj ET\n")
}

/// Rows from `y` downwards, with lines between all cells.
fn grid(y: u32, rows: &[[&str; 3]]) -> String {
    let bottom = y - 14 * rows.len() as u32;
    let mut content = String::new();
    for (row, top) in rows.iter().zip((bottom..=y).rev().step_by(14)) {
        for (cell, x) in row.iter().zip([55, 205, 355]) {
            content += &text(x, top - 11, cell);
        }
    }
    for level in (bottom..=y).step_by(14) {
        content += &format!("50 {level} m 500 {level} l S\n");
    }
    for x in [50, 200, 350, 500] {
        content += &format!("{x} {bottom} m {x} {y} l S\n");
    }
    content
}

const NAMES: [&str; 3] = ["Pond", "Ducks", "Warden"];

/// A table that goes on on the second page, under its header, and a sentence on each page.
fn counts() -> Vec<u8> {
    let first = text(50, 760, "The wardens count every pond in spring.")
        + &grid(700, &[NAMES, ["Mill lock", "1,204", "Ada"], ["Old quay", "17", "Bertram"]]);
    let second = grid(760, &[NAMES, ["Upper pond", "9", "Cyprian"]])
        + &text(50, 600, "Numbers of the zephyr pond came too late.");
    pdf(&[first, second])
}

#[tokio::test]
async fn a_table_of_a_pdf_is_one_node_over_its_pages_and_in_no_chunk() {
    let app = TestApp::start().await;
    let id = app.upload_bytes("counts.pdf", counts()).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, frontier.warnings.len()), (Settled::Settled, 0, 0));
    let nodes = app.subtree(id).await;
    let found = tables(&nodes);
    assert_eq!(found.len(), 1, "{nodes:?}");
    let rows = "| Mill lock | 1,204 | Ada |\n| Old quay | 17 | Bertram |\n| Upper pond | 9 | Cyprian |";
    assert_eq!(found[0].content, format!("| Pond | Ducks | Warden |\n| --- | --- | --- |\n{rows}"));
    assert_eq!(
        Value::Object(found[0].structured_content.clone()),
        json!({"table": {
            "columns": NAMES,
            "rows": [["Mill lock", 1204, "Ada"], ["Old quay", 17, "Bertram"], ["Upper pond", 9, "Cyprian"]],
        }})
    );
    assert_eq!(evidence(&app, found[0].id).await["anchor"]["pages"], json!([1, 2]));
    let of_file = evidence(&app, id).await;
    assert_eq!(of_file["matched.patterns"]["has_tables"], true);
    let counted = &of_file["extract.tables"];
    assert_eq!((&counted["tables"], &counted["rows"], &counted["cells"]), (&json!(1), &json!(4), &json!(12)));
    assert_eq!((&counted["rules"], &counted["left_out"]), (&json!({"lines": 1}), &json!(0)));
    assert_eq!((&counted["first"][0]["pages"], &counted["first"][0]["parts"]), (&json!([1, 2]), &json!(2)));
    assert_eq!(of_file["structure"]["tables"], 1);

    let chunks: Vec<&DocumentResponse> = nodes.iter().filter(|node| node.usetype == "chunk").collect();
    let said = chunks.iter().map(|chunk| chunk.content.as_str()).collect::<Vec<_>>().join(" ");
    assert!(said.contains("every pond in spring") && said.contains("zephyr pond"), "{said}");
    assert!(!said.contains("Bertram") && !said.contains("Ducks"), "{said}");
    for (word, expected) in [("Cyprian", "table"), ("zephyr", "chunk")] {
        let results = app.client.search_bm25(Json(Bm25Search::new(word))).await.unwrap().results;
        let usetypes: Vec<&str> = results.iter().map(|result| result.document.usetype.as_str()).collect();
        assert_eq!(usetypes, [expected], "{word}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_option_leaves_tables_in_chunks_and_a_reprocess_without_it_makes_them_nodes() {
    let app = TestApp::start().await;
    let options = json!({"skip": {"tables": true}});
    let upload = FileUpload::from_bytes("counts.pdf", counts(), Some(options));
    let id = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let nodes = app.subtree(id).await;
    assert!(tables(&nodes).is_empty());
    assert!(nodes.iter().any(|node| node.usetype == "chunk" && node.content.contains("Bertram")), "{nodes:?}");
    let of_file = evidence(&app, id).await;
    let row = of_file["plan"]["tasks"].as_array().unwrap().iter().find(|row| row["task"] == "extract:tables").unwrap();
    assert_eq!(
        (&row["outcome"], row["reason"].as_str()),
        (&json!(PlanOutcome::Skipped), Some("the option skip.tables is true"))
    );
    assert_eq!(of_file.get("extract.tables"), None);

    app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    until("the reprocess is over", async || {
        let read = evidence(&app, id).await;
        (read["reprocess"]["state"] == "done").then_some(())
    })
    .await;
    assert_eq!(tables(&app.subtree(id).await).len(), 1);
    app.end().await;
}

#[tokio::test]
async fn a_table_that_is_too_long_for_a_chunk_has_chunks_with_its_header() {
    let app = TestApp::start().await;
    let rows: String = (0..120).map(|row| format!("| heron {row} | {row} |\n")).collect();
    let file = format!("# Herons\n\nEach has a number.\n\n| Bird | Ring |\n| --- | --- |\n{rows}\nThat is all.\n");
    let id = app.upload_bytes("herons.md", file.into_bytes()).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let nodes = app.subtree(id).await;
    let found = tables(&nodes);
    assert_eq!(found.len(), 1);
    assert!(found[0].content.starts_with("| Bird | Ring |") && found[0].content.ends_with("| heron 119 | 119 |"));
    assert_eq!(found[0].structured_content["table"]["rows"][119], json!(["heron 119", 119]));
    assert_eq!(found[0].settled, Settled::Settled);
    let pieces: Vec<_> = nodes.iter().filter(|node| node.parent_id == Some(found[0].id)).collect();
    assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.content.starts_with("| Bird | Ring |")), "{pieces:?}");
    let shown = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap();
    let said: Vec<&str> = shown.children.blocks.iter().filter_map(|block| block.text.as_deref()).collect();
    assert_eq!(said.iter().filter(|text| text.contains("heron 119")).count(), 1, "the view shows it once: {said:?}");
    // Page by page it does so too, although a page may begin within the table.
    let (mut cursor, mut times) = (None, 0);
    loop {
        let request = ExpandRequest { cursor, limit: Some(2) };
        let page = app.client.expand_children(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
        let has_heron = |block: &&ViewBlock| block.text.as_ref().is_some_and(|text| text.contains("heron 119"));
        times += page.blocks.iter().filter(has_heron).count();
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(times, 1);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn office_files_have_the_tables_that_they_declare() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("onboarding-checklist.docx")).await;
    let nodes = app.subtree(id).await;
    let found = tables(&nodes);
    assert_eq!((found.len(), found[0].title.as_str()), (1, "Whom to ask"));
    let section = nodes.iter().find(|node| Some(node.id) == found[0].parent_id).unwrap();
    assert_eq!((section.usetype.as_str(), section.title.as_str()), ("section", "Whom to ask"));
    let values = &found[0].structured_content["table"];
    assert_eq!(values["columns"], json!(["Question", "Person", "Room"]));
    assert_eq!(values["rows"][0], json!(["Shifts and holidays", "Volunteer office", 12]));

    let corpus = repository().join("../shared/corpus");
    if !corpus.exists() {
        left_out("no corpus beside the repository; only the sample's table was looked for");
        return app.end().await;
    }
    // The rows and columns that independent readers found. The last table of the first file has text in one row alone.
    let manifest: Value = serde_json::from_slice(&std::fs::read(corpus.join("manifest.json")).unwrap()).unwrap();
    for (name, without) in [("docx/word_tables.docx", 1), ("docx/word_sample.docx", 0)] {
        let entry = manifest.as_array().unwrap().iter().find(|entry| entry["file"] == name).unwrap();
        let of = |table: &Value| [&table["rows"], &table["grid_cols"]].map(|size| size.as_u64().unwrap());
        let mut expected: Vec<_> = entry["expect"]["top_level_tables"].as_array().unwrap().iter().map(of).collect();
        expected.truncate(expected.len() - without);
        let (id, _) = app.ingest(&corpus.join(name)).await;
        let evidence = evidence(&app, id).await;
        let size = |table: &Value| [&table["rows"], &table["columns"]].map(|size| size.as_u64().unwrap());
        let sizes: Vec<_> = evidence["extract.tables"]["first"].as_array().unwrap().iter().map(size).collect();
        assert_eq!(sizes, expected, "{name}");
        assert_eq!(tables(&app.subtree(id).await).len(), expected.len(), "{name}");
    }
    let (id, _) = app.ingest(&corpus.join("pptx/powerpoint_sample.pptx")).await;
    let nodes = app.subtree(id).await;
    let found = tables(&nodes);
    assert_eq!(found.len(), 1, "{nodes:?}");
    assert_eq!(evidence(&app, found[0].id).await["anchor"]["slides"], json!([1, 1]));
    app.end().await;
}

#[tokio::test]
async fn prose_and_forms_of_real_files_have_no_tables() {
    let corpus = repository().join("../shared/corpus");
    if !corpus.exists() {
        return left_out("no corpus beside the repository, so no real PDF was looked through for tables");
    }
    let app = TestApp::start().await;
    for name in ["pdf/crazyones.pdf", "pdf/multi_page.pdf", "pdf/basicapi.pdf"] {
        let (id, frontier) = app.ingest(&corpus.join(name)).await;
        assert_eq!(frontier.settled, Settled::Settled, "{name}");
        let nodes = app.subtree(id).await;
        let found: Vec<&str> = tables(&nodes).iter().map(|table| table.content.as_str()).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
    }
    app.end().await;
}
