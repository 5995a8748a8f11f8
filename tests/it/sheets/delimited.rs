//! Tables in text: what is delimited is read as a sheet.
use super::{cells, evidence, of_type, sheet};
use crate::support::{TestApp, invariants, repository};
use serde_json::{Value, json};
use svc_client::{
    Code, Json,
    wire::{Bm25Search, DocumentPath, RefSource, Settled},
};

#[tokio::test]
async fn a_table_in_text_is_read_as_a_sheet_of_records() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&repository().join("formats/tests/files/nest-boxes.csv")).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let read = evidence(&app, id).await;
    assert_eq!((&read["detected"]["format"], &read["detected"]["mime"]), (&json!("csv"), &json!("text/csv")));
    let nodes = app.subtree(id).await;
    assert_eq!((of_type(&nodes, "sheet").len(), of_type(&nodes, "record").len()), (1, 10));
    let profile = evidence(&app, sheet(&nodes, "Sheet1").id).await["profile.sheet"].clone();
    assert_eq!((&profile["used_range"], &profile["columns"][3]["types"]["number"]), (&json!("A1:G11"), &json!(10)));

    let found = app.client.search_bm25(Json(Bm25Search::new("Redstart Zaneta"))).await.unwrap();
    let record = &found.results[0].document;
    assert_eq!(
        Value::Object(record.structured_content.clone()),
        json!({"record": {"Box": "B-007", "Orchard": "Vörösmarty garden", "Hung on": "2025-02-14T00:00:00", "Eggs": 4,
                          "Fledged": 4, "Weight (g)": 18.3, "Remarks": "Redstart, seen by Żaneta"}})
    );
    assert!(record.content.contains("Weight (g): 18.30; Remarks: Redstart, seen by Żaneta"), "{}", record.content);
    let own = cells(&app, record.id, None, None).await.unwrap();
    assert_eq!((own.ref_source, own.reference.as_deref()), (RefSource::Anchor, Some("A8:G8")));
    let asked = cells(&app, id, Some("G4:G5"), Some("Sheet1")).await.unwrap();
    assert_eq!(asked.values, [[json!("Empty; \"wasps again\"")], [json!("Nuthatch,\nclay around the hole")]]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_is_a_table_by_its_name_and_its_rows() {
    let app = TestApp::start().await;
    let table = "name\tcount\nduck\t72\nheron\t2\n";
    for (name, text, format) in [
        ("ducks.tsv", table.to_owned(), "tsv"),
        ("ducks.txt", table.replace("72", "73"), "text"),
        ("note.csv", "The ducks are back, all of them.\n\nThe heron is, too.\n".to_owned(), "text"),
    ] {
        let upload = || svc_client::FileUpload::from_bytes(name, text.clone().into_bytes(), None);
        let analysis = app.client.analyze_file(upload()).await.unwrap();
        assert_eq!(analysis.file.format.as_deref(), Some(format), "{name}");
        assert_eq!(analysis.plan.unwrap().format, format, "{name}: the plan is for the same format");
        let id = app.client.upload_file(Default::default(), upload()).await.unwrap().document_id;
        assert_eq!(app.settled(id).await.settled, Settled::Settled, "{name}");
        let records = of_type(&app.subtree(id).await, "record").len();
        assert_eq!(records, if format == "tsv" { 2 } else { 0 }, "{name}");
        let refused = cells(&app, id, None, None).await.err().map(|failure| failure.code);
        assert_eq!(refused, (format == "text").then_some(Code::NotAWorkbook), "{name}");
    }
    app.end().await;
}

#[tokio::test]
async fn names_that_json_libraries_keep_for_themselves_spoil_no_list() {
    let app = TestApp::start().await;
    let table = "$serde_json::private::RawValue,$serde_json::private::Number\nheron,coot\nteal,wigeon\n";
    let id = app.upload_bytes("birds.csv", table).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!(frontier.nodes_failed, 0, "{frontier:?}");
    let nodes = app.subtree(id).await;
    assert_eq!(nodes.iter().filter(|node| node.usetype == "record").count(), 2);
    assert!(nodes.iter().any(|node| node.content.contains("heron")), "{nodes:?}");
    for body in [
        json!({"title": "t", "content": "", "structured_content": {"a": {"$serde_json::private::RawValue": "no JSON"}}}),
        json!({"title": "t", "content": "", "structured_content": {"$serde_json::private::RawValue": "5"}}),
    ] {
        let answer = app.raw("POST", "/documents").json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{body}");
    }
    let view = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap();
    assert!(!view.blocks.is_empty() || !view.children.blocks.is_empty());
    app.end().await;
}
