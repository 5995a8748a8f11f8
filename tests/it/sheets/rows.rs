//! Rows of a sheet: which ones are records, and the cells of a record.
use super::{cells, evidence, of_type, sheet};
use crate::support::{TestApp, invariants, workbook_of_rows};
use serde_json::json;
use svc_client::{
    Json,
    wire::{
        ArchivePart, ArchiveQuery, ArchivedDocument, Bm25Search, DocumentPath, EmbedQuery, ImportedArchive, RefSource,
        Settled,
    },
};

fn text(text: &str) -> String {
    format!("<c t=\"inlineStr\"><is><t>{text}</t></is></c>")
}

#[tokio::test]
async fn formulas_that_show_nothing_are_filled_down_without_records_and_warnings() {
    let app = TestApp::start().await;
    let mut rows = format!("<row r=\"1\">{}{}</row>", text("Pond"), text("Total"));
    for row in 2..=4 {
        rows += &format!("<row r=\"{row}\">{}<c r=\"B{row}\"><f>1+1</f><v>2</v></c></row>", text("Mill"));
    }
    for row in 5..=40 {
        let formula = format!("IF(A{row}=\"\",\"\",1+1)");
        rows += &format!("<row r=\"{row}\"><c r=\"B{row}\" t=\"str\"><f>{formula}</f><v></v></c></row>");
    }
    let id = app.upload_bytes("totals.xlsx", workbook_of_rows("Totals", rows)).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert!(frontier.warnings.is_empty(), "{:?}", frontier.warnings);
    let nodes = app.subtree(id).await;
    let records: Vec<_> = of_type(&nodes, "record").iter().map(|node| node.content.as_str()).collect();
    assert_eq!(records, ["Pond: Mill; Total: 2"; 3]);
    let read = evidence(&app, sheet(&nodes, "Totals").id).await;
    assert_eq!(
        (&read["extract.sheet"]["records"], &read["profile.sheet"]["used_range"]),
        (&json!(3), &json!("A1:B40"))
    );
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_cells_of_a_record_are_read_whatever_its_sheet_is_called() {
    let app = TestApp::start().await;
    for name in ["Plan [2024]", "[2024] Plan"] {
        let rows = format!("<row>{}{}</row><row>{}{}</row>", text("Pond"), text("Birds"), text(name), text("teal"));
        let id = app.upload_bytes("plan.xlsx", workbook_of_rows(name, rows)).await.unwrap().document_id;
        assert_eq!(app.settled(id).await.settled, Settled::Settled);
        let nodes = app.subtree(id).await;
        let record = of_type(&nodes, "record")[0].id;
        let anchor = format!("'{name}'!A2:B2");
        assert_eq!(evidence(&app, record).await["anchor"]["cells"], json!(anchor));
        let own = cells(&app, record, None, None).await.unwrap();
        assert_eq!((own.ref_source, own.reference.as_deref()), (RefSource::Anchor, Some("A2:B2")));
        assert_eq!(own.values, [[json!(name), json!("teal")]]);
        let asked = cells(&app, id, Some(anchor.as_str()), None).await.unwrap();
        assert_eq!((asked.sheet.as_str(), asked.values), (name, own.values));
        let failure = cells(&app, id, Some("[1]Sheet1!A2"), None).await.unwrap_err();
        assert_eq!((failure.status, failure.members["field"].as_str()), (422, Some("ref")), "{failure}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_row_with_the_largest_number_is_listed_found_exported_and_imported() {
    let app = TestApp::start().await;
    let cell = |value: &str| format!("<c><v>{value}</v></c>");
    let rows =
        [text("Pond") + &text("Depth"), text("Mill") + &cell("1.7976931348623157E308"), text("Lock") + &cell("-7")];
    let rows: String = rows.iter().map(|row| format!("<row>{row}</row>")).collect();
    let id = app.upload_bytes("depths.xlsx", workbook_of_rows("Depths", rows)).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let nodes = app.subtree(id).await;
    let mill = of_type(&nodes, "record").into_iter().find(|node| node.content.contains("Mill")).unwrap();
    let expected = json!({"Pond": "Mill", "Depth": f64::MAX});
    assert_eq!(mill.structured_content["record"], expected);
    let profile = evidence(&app, sheet(&nodes, "Depths").id).await;
    let sketch = &profile["profile.sheet"]["columns"][1]["sketch"];
    assert_eq!(sketch["max"], json!({"type": "number", "value": f64::MAX}), "{profile}");
    let found = app.client.search_bm25(Json(Bm25Search::new("Mill"))).await.unwrap().results;
    let found = found.iter().find(|result| result.document.id == mill.id).unwrap();
    assert_eq!(found.document.structured_content["record"], expected);
    let exported = app.client.export_documents(ArchiveQuery::default()).await.unwrap().documents;
    let row = exported.into_iter().find(|document| document.id == mill.id).unwrap();
    let row = ArchivedDocument { parent: None, rule: None, anchor: None, ..row };
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: None };
    let imported = app.client.import_documents(of, Json(ArchivePart { documents: vec![row] })).await.unwrap();
    let path = DocumentPath { id: imported.documents[0].document_id };
    let again = app.client.read_document(path, EmbedQuery::default()).await.unwrap();
    assert_eq!(again.value().unwrap().structured_content["record"], expected);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
