//! Workbooks whose sheets lie in segments, as those of a workbook with many sheets do.
use super::{cells, evidence, sheet};
use crate::support::{TestApp, invariants, rows_of_texts, until, workbook_of_named_sheets};
use serde_json::{Value, json};
use svc_client::{
    FileUpload, OptionalJson,
    wire::{DocumentPath, DocumentResponse, RefSource, ReprocessRequest, Settled, TaskPath, UploadQuery},
};

/// The name of each sheet, and its rows.
fn things() -> Vec<(String, Vec<Vec<String>>)> {
    let things = [
        ("Herons", "stands in the reeds and waits for a fish"),
        ("Invoices", "is overdue, and the customer owes the whole amount"),
        ("Loaves", "is kneaded with yeast, flour and water"),
        ("Volcanoes", "erupts lava, ash and glowing magma"),
        ("Leases", "has the tenant pay the rent to the landlord"),
        ("Tides", "rises with the moon, twice in a day"),
    ];
    let rows = |name: &str, remark: &str| {
        let row = |n: usize| vec![format!("One of the {name}, {n}"), remark.to_owned()];
        vec![vec!["Name".to_owned(), "Remark".to_owned()], row(1), row(2)]
    };
    things.map(|(name, remark)| (name.to_owned(), rows(name, remark))).to_vec()
}

/// Stores a workbook so that its sheets are cut into segments wherever their subject changes.
async fn ingested(app: &TestApp, sheets: &[(String, String)]) -> i64 {
    let options = json!({"rollup": {"max_children": 2, "min_segment": 1, "penalty": 0.01}});
    let file = FileUpload::from_bytes("things.xlsx", workbook_of_named_sheets(sheets), Some(options));
    let id = app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    id
}

fn is_in_segment(nodes: &[DocumentResponse], sheet: &DocumentResponse) -> bool {
    nodes.iter().any(|node| Some(node.id) == sheet.parent_id && node.title.starts_with("Segment "))
}

#[tokio::test]
async fn the_cells_of_a_sheet_are_its_own_wherever_segments_put_it() {
    let app = TestApp::start().await;
    let things = things();
    let sheets: Vec<_> = things.iter().map(|(name, rows)| (name.clone(), rows_of_texts(rows))).collect();
    let id = ingested(&app, &sheets).await;
    let nodes = app.subtree(id).await;
    for (name, rows) in &things {
        let node = sheet(&nodes, name);
        assert!(is_in_segment(&nodes, node), "{node:?}");
        let own = cells(&app, node.id, None, None).await.unwrap();
        assert_eq!(
            (own.sheet.as_str(), own.ref_source, own.reference.as_deref(), own.workbook_id),
            (name.as_str(), RefSource::UsedRange, Some("A1:B3"), id)
        );
        assert_eq!(json!(own.values), json!(rows));
        let asked = cells(&app, node.id, Some("A2:B2"), None).await.unwrap();
        assert_eq!((&asked.sheet, json!(asked.values)), (name, json!([rows[1]])));
        let record = nodes.iter().find(|record| record.usetype == "record" && record.path.contains(&node.id)).unwrap();
        let of_record = cells(&app, record.id, None, None).await.unwrap();
        assert_eq!(
            (&of_record.sheet, of_record.ref_source, json!(of_record.values)),
            (name, RefSource::Anchor, json!([rows[1]]))
        );
        let named = cells(&app, id, None, Some(name.as_str())).await.unwrap();
        assert_eq!((named.ref_source, json!(named.values)), (RefSource::UsedRange, json!(rows)));
    }
    let whole = cells(&app, id, None, None).await.unwrap();
    assert_eq!((&whole.sheet, json!(whole.values)), (&things[0].0, json!(things[0].1)));

    // A tree that a reprocess builds has its bytes where the file is.
    let request = ReprocessRequest { options: Some(json!({"rollup": {"max_children": 100}})), replace: false };
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
    until("the new tree", async || (evidence(&app, id).await["reprocess"]["state"] == "done").then_some(())).await;
    let nodes = app.subtree(id).await;
    let last = sheet(&nodes, "Tides");
    assert_eq!(last.parent_id, Some(id));
    assert_eq!(json!(cells(&app, last.id, None, None).await.unwrap().values), json!(things[5].1));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_sheet_that_failed_is_read_from_its_workbook_again_wherever_segments_put_it() {
    let app = TestApp::start().await;
    let mut sheets: Vec<_> = things().into_iter().map(|(name, rows)| (name, rows_of_texts(&rows))).collect();
    // The comment has no end.
    sheets[3].1 += "<!--";
    let id = ingested(&app, &sheets).await;
    let nodes = app.subtree(id).await;
    let damaged = sheet(&nodes, "Volcanoes");
    assert!(damaged.settled == Settled::Failed && is_in_segment(&nodes, damaged), "{damaged:?}");
    let profiles = async || {
        let attempts = evidence(&app, damaged.id).await["attempts"].clone();
        let attempts: Vec<Value> = serde_json::from_value(attempts).unwrap();
        attempts.into_iter().filter(|attempt| attempt["task_type"] == "profile:sheet").collect::<Vec<_>>()
    };
    let first = profiles().await;
    assert_eq!(first.iter().map(|attempt| &attempt["code"]).collect::<Vec<_>>(), ["corrupt"]);
    app.client.retry_task(TaskPath { id: first[0]["task_id"].as_i64().unwrap() }).await.unwrap();
    assert_eq!(app.settled(id).await.nodes_failed, 1);
    assert_eq!(profiles().await.iter().map(|attempt| &attempt["code"]).collect::<Vec<_>>(), ["corrupt", "corrupt"]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
