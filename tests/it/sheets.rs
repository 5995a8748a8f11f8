//! Workbooks: sheets, profiles, records, and the cells behind them.
mod delimited;
mod rows;
mod segments;

use crate::support::{TestApp, Wish, invariants, repository, sample, workbook};
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use svc_client::{
    Code, Failure, Json,
    wire::{
        Bm25Search, CellType, CellsQuery, CellsResponse, DocumentPath, DocumentResponse, EmbedQuery, HybridSearch,
        MAX_CELLS, RefSource, Settled, SheetState,
    },
};

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

async fn cells(app: &TestApp, id: i64, reference: Option<&str>, sheet: Option<&str>) -> Result<CellsResponse, Failure> {
    let query = CellsQuery { reference: reference.map(str::to_owned), sheet: sheet.map(str::to_owned) };
    app.client.read_cells(DocumentPath { id }, query).await
}

fn of_type<'a>(nodes: &'a [DocumentResponse], usetype: &str) -> Vec<&'a DocumentResponse> {
    nodes.iter().filter(|node| node.usetype == usetype).collect()
}

/// The sheet node with this name.
fn sheet<'a>(nodes: &'a [DocumentResponse], name: &str) -> &'a DocumentResponse {
    nodes.iter().find(|node| node.usetype == "sheet" && node.title == name).unwrap()
}

#[tokio::test]
async fn a_workbook_becomes_sheets_profiles_and_records() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&sample("duck-counts.xlsx")).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let mut nodes = app.subtree(id).await;
    // Sheets are processed at the same time, so the ids under them are in no particular order.
    nodes.sort_by_key(|node| (node.path.len(), node.parent_id, node.position));
    let mut shape = String::new();
    for node in &nodes {
        let anchor = &evidence(&app, node.id).await["anchor"];
        let depth = "  ".repeat(node.path.len());
        shape += &format!("{depth}{} “{}” #{} {anchor}\n", node.usetype, node.title, node.position.unwrap_or(-1));
        for line in node.content.lines() {
            shape += &format!("{depth}  | {line}\n");
        }
    }
    insta::assert_snapshot!("duck_counts_tree", shape);
    // Its text just fits the model's window.
    assert_eq!(evidence(&app, id).await["effective_content"]["method"], "concatenated");

    let records = of_type(&nodes, "record");
    assert_eq!(
        Value::Object(records[0].structured_content.clone()),
        json!({"record": {"Seen on": "2023-04-03T00:00:00", "Place": "Mill pond", "Adults": 14, "Young": 3, "Total": 17,
                          "Remarks": "calm, light fog until nine"}})
    );
    let rules = evidence(&app, sheet(&nodes, "How we count").id).await;
    assert_eq!(
        (&rules["extract.sheet"]["records"], &rules["profile.sheet"]["used_range"]),
        (&json!(0), &json!("A1:B3"))
    );
    assert!(rules["extract.sheet"]["reason"].as_str().unwrap().len() > 10, "{rules}");
    let hidden = evidence(&app, sheet(&nodes, "Volunteers' phones").id).await;
    assert_eq!(hidden["sheet"]["state"], "hidden");
    let empty = sheet(&nodes, "Next year");
    let empty = evidence(&app, empty.id).await;
    assert_eq!((&empty["profile.sheet"]["used_range"], &empty["effective_content"]), (&Value::Null, &Value::Null));
    let counts = evidence(&app, sheet(&nodes, "Duck counts").id).await;
    let column = &counts["profile.sheet"]["columns"][2];
    assert_eq!(
        (&column["header"], &column["types"]["number"], &column["fill_ratio"]),
        (&json!("Adults"), &json!(6), &json!(1.0))
    );
    assert_eq!(counts["effective_content"]["method"], "concatenated");

    let found = app
        .client
        .search_hybrid(Json(HybridSearch::new("which place did the heron keep the ducks away from")))
        .await
        .unwrap();
    let first = &found.results[0].document;
    assert_eq!(
        (first.usetype.as_str(), &first.structured_content["record"]["Place"]),
        ("record", &json!("Upper lock"))
    );
    let found = app.client.search_bm25(Json(Bm25Search::new("binoculars bank counting"))).await.unwrap();
    let places: Vec<_> = found.results.iter().filter_map(|result| result.document.parent_id).collect();
    assert_eq!(places[0], sheet(&nodes, "How we count").id, "a sheet without records is found by what it shows");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn tables_below_titles_and_beside_each_other_give_records_and_every_value_is_found() {
    let app = TestApp::start().await;
    let rows: Vec<Vec<&str>> = [
        "Census of the Wexlow reserve",
        "",
        "Pond|Warden|Species||Boat|Captain|Berth",
        "Mill|Anselm|teal||Heron|Odalys|north quay",
        "Lock|Bertram|wigeon||Coot|Perpetua|south quay",
        "",
        "",
        "",
        "Zephyrine lent the scales.",
    ]
    .iter()
    .map(|row| row.split('|').collect())
    .collect();
    let bytes = workbook(&rows);
    let id = app.upload_bytes("census.xlsx", bytes.clone()).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, frontier.warnings.len()), (Settled::Settled, 0, 0));
    let nodes = app.subtree(id).await;
    let of_sheet = sheet(&nodes, "Sheet1");
    let read = evidence(&app, of_sheet.id).await["extract.sheet"].clone();
    assert_eq!((&read["records"], &read["table_count"]), (&json!(4), &json!(2)), "{read}");
    assert_eq!(read["tables"][0]["range"], "A3:C5");
    assert_eq!(
        (&read["tables"][1]["range"], &read["tables"][0]["titles"]),
        (&json!("E3:G5"), &json!(["Census of the Wexlow reserve"]))
    );
    let records = of_type(&nodes, "record");
    let captain = records.iter().find(|record| record.content.contains("Perpetua")).unwrap();
    assert_eq!(captain.content, "Boat: Coot; Captain: Perpetua; Berth: south quay");
    let own = cells(&app, captain.id, None, None).await.unwrap();
    assert_eq!((own.ref_source, own.reference.as_deref()), (RefSource::Anchor, Some("E5:G5")));
    for word in rows.iter().flatten().flat_map(|text| text.split_whitespace()).filter(|word| word.len() > 4) {
        let found = app.client.search_bm25(Json(Bm25Search::new(word))).await.unwrap();
        let shows = |usetype: &str| found.results.iter().any(|result| result.document.usetype == usetype);
        assert!(shows("record") || shows("chunk"), "`{word}` is not found");
    }
    let note = nodes.iter().find(|node| node.usetype == "chunk" && node.content.contains("Zephyrine")).unwrap();
    assert_eq!(evidence(&app, note.id).await["anchor"]["cells"], "Sheet1!A9:A9");
    assert_eq!(cells(&app, note.id, None, None).await.unwrap().values, [[json!("Zephyrine lent the scales.")]]);
    let mut order: Vec<_> = nodes.iter().filter(|node| node.parent_id == Some(of_sheet.id)).collect();
    order.sort_by_key(|node| node.position);
    let usetypes: Vec<&str> = order.iter().map(|node| node.usetype.as_str()).collect();
    assert_eq!(usetypes, ["profile", "chunk", "chunk", "record", "record", "record", "record", "chunk"]);

    let options = json!({"profile": {"tables": false}});
    let plain = svc_client::FileUpload::from_bytes("census.xlsx", bytes, Some(options));
    assert_eq!(app.client.upload_file(Default::default(), plain).await.unwrap_err().code, Code::StoredWithOtherOptions);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn without_tables_only_the_first_row_names_columns() {
    let app = TestApp::start().await;
    let rows = [vec!["Census"], vec!["Pond", "Warden", "Species"], vec!["Mill", "Anselm", "teal"]];
    let options = json!({"profile": {"tables": false}});
    let upload = svc_client::FileUpload::from_bytes("census.xlsx", workbook(&rows), Some(options));
    let id = app.client.upload_file(Default::default(), upload).await.unwrap().document_id;
    app.settled(id).await;
    let nodes = app.subtree(id).await;
    let usetypes: Vec<&str> = nodes.iter().map(|node| node.usetype.as_str()).collect();
    assert_eq!(usetypes, ["sheet", "profile"]);
    let read = evidence(&app, sheet(&nodes, "Sheet1").id).await["extract.sheet"].clone();
    assert_eq!((&read["records"], &read["reason"]), (&json!(0), &json!("no text in column B")));
    app.end().await;
}

#[tokio::test]
async fn columns_are_sketched_only_where_the_options_say_so() {
    let app = TestApp::start().await;
    let options = json!({"profile": {"sketch_columns": false}});
    let bytes = std::fs::read(sample("duck-counts.xlsx")).unwrap();
    let upload = svc_client::FileUpload::from_bytes("ducks.xlsx", bytes, Some(options));
    let id = app.client.upload_file(Default::default(), upload).await.unwrap().document_id;
    app.settled(id).await;
    let nodes = app.subtree(id).await;
    let profile = evidence(&app, sheet(&nodes, "Duck counts").id).await["profile.sheet"].clone();
    assert_eq!((&profile["columns"][0]["sketch"], &profile["columns"][0]["filled"]), (&Value::Null, &json!(6)));
    app.end().await;
}

#[tokio::test]
async fn cells_are_read_by_file_sheet_and_record() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("duck-counts.xlsx")).await;
    let nodes = app.subtree(id).await;
    let counts = sheet(&nodes, "Duck counts");
    let of_counts = |node: &&DocumentResponse| node.parent_id == Some(counts.id) && node.position == Some(2);
    let record = nodes.iter().filter(|node| node.usetype == "record").find(of_counts).unwrap();

    let own = cells(&app, record.id, None, None).await.unwrap();
    assert_eq!(
        (own.ref_source, own.reference.as_deref(), own.sheet.as_str()),
        (RefSource::Anchor, Some("A3:F3"), "Duck counts")
    );
    assert_eq!(
        own.values,
        [[
            json!("2023-04-10T00:00:00"),
            json!("Mill pond"),
            json!(17),
            json!(5),
            json!(22),
            json!("two pairs with ducklings")
        ]]
    );
    assert_eq!(own.formulas, [[None, None, None, None, Some("=C3+D3".to_owned()), None]]);
    assert_eq!((own.types["A3"], own.number_formats["A3"].as_str()), (CellType::Date, "yyyy\\-mm\\-dd"));
    assert_eq!(
        own.grid,
        "|  | A | B | C | D | E | F |\n| ---: | --- | --- | --- | --- | --- | --- |\n| 3 | 2023-04-10 | Mill pond | 17 | 5 | 22 | two pairs with ducklings |\n"
    );
    let of_sheet = cells(&app, counts.id, None, None).await.unwrap();
    assert_eq!(
        (of_sheet.ref_source, of_sheet.reference.as_deref(), of_sheet.rows.len()),
        (RefSource::UsedRange, Some("A1:F7"), 7)
    );
    let of_file = cells(&app, id, None, None).await.unwrap();
    assert_eq!((of_file.document_id, of_file.workbook_id, &of_file.values), (id, id, &of_sheet.values));
    assert_eq!((of_file.date_epoch, of_file.state), (1900, SheetState::Visible));

    for (reference, sheet, expected) in [
        ("$C$1:$D$2", None, json!([["Adults", "Young"], [14, 3]])),
        ("'Volunteers'' phones'!A2", None, json!([["Front desk"]])),
        ("b3", Some("volunteers' PHONES"), json!([[31]])),
        ("'How we count'!A3:B3", Some("How we count"), json!([[1, "Binoculars first."]])),
        ("Z100", None, json!([[null]])),
    ] {
        let answer = cells(&app, id, Some(reference), sheet).await.unwrap();
        assert_eq!((json!(answer.values), answer.ref_source), (expected, RefSource::Ref), "{reference}");
    }
    let empty = cells(&app, sheet_id(&nodes, "Next year"), None, None).await.unwrap();
    assert_eq!((empty.reference, empty.rows.len(), empty.grid.as_str()), (None, 0, ""));
    let local = app.in_process.read_cells(DocumentPath { id }, CellsQuery::default()).await.unwrap();
    assert_eq!(serde_json::to_value(local).unwrap(), serde_json::to_value(of_file).unwrap());
    app.end().await;
}

fn sheet_id(nodes: &[DocumentResponse], name: &str) -> i64 {
    sheet(nodes, name).id
}

#[tokio::test]
async fn cells_that_cannot_be_had_are_refused_by_name() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("duck-counts.xlsx")).await;
    for (reference, sheet, field) in [
        (Some("A0"), None, "ref"),
        (Some("Duck"), None, "ref"),
        (Some("XFE1"), None, "ref"),
        (Some("Nowhere!A1"), None, "ref"),
        (Some("'How we count'!A1"), Some("Duck counts"), "ref"),
        (Some("Nowhere!A1"), Some("Duck counts"), "ref"),
        (None, Some("Nowhere"), "sheet"),
    ] {
        let failure = cells(&app, id, reference, sheet).await.unwrap_err();
        assert_eq!(
            (failure.status, failure.members["field"].as_str()),
            (422, Some(field)),
            "{reference:?} {sheet:?}: {failure}"
        );
    }
    let failure = cells(&app, id, Some("A0"), None).await.unwrap_err();
    assert_eq!(failure.members["ref"], "A0");
    let unknown = app.raw("GET", &format!("/documents/{id}/cells?range=A1")).send().await.unwrap();
    assert_eq!(unknown.status(), 422);

    let text = app.upload_bytes("plain.txt", "No cells are in here at all.").await.unwrap().document_id;
    let note = app.create("A note", "Of no file.", None).await.id;
    for other in [text, note] {
        assert_eq!(cells(&app, other, Some("A1"), None).await.unwrap_err().code, Code::NotAWorkbook);
    }
    assert_eq!(cells(&app, 999_999, Some("A1"), None).await.unwrap_err().code, Code::NotFound);
    app.settled(text).await;
    app.end().await;
}

#[tokio::test]
async fn an_area_over_the_limit_is_refused_before_the_file_is_opened() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("duck-counts.xlsx")).await;
    // Nobody gets to open a file now.
    let mut permits = Vec::new();
    for _ in 0..std::thread::available_parallelism().unwrap().get().max(2) {
        permits.push(app.service.admission.reader(None).await.unwrap());
    }
    for (reference, area) in
        [("A1:B25001", MAX_CELLS + 2), ("A:A", 1_048_576), ("1:4", 65_536), ("A1:XFD1048576", 17_179_869_184)]
    {
        let failure = cells(&app, id, Some(reference), None).await.unwrap_err();
        assert_eq!((failure.status, failure.code), (413, Code::TooLarge), "{reference}");
        assert_eq!((failure.members["limit"].as_u64(), failure.members["cells"].as_u64()), (Some(50_000), Some(area)));
    }
    let busy = cells(&app, id, Some("A1:B25000"), None).await.unwrap_err();
    assert_eq!((busy.status, busy.code), (429, Code::TooManyRequests));
    assert!(busy.members["retry_after"].as_u64().unwrap() > 0);
    drop(permits);
    let whole = cells(&app, id, Some("A1:B25000"), None).await.unwrap();
    assert_eq!((whole.rows.len(), whole.columns.len(), &whole.values[0][1]), (25_000, 2, &json!("Place")));
    app.end().await;
}

#[tokio::test]
async fn a_long_row_keeps_its_record_and_is_embedded_in_pieces() {
    let app = TestApp::start().await;
    let story = "The keeper wrote down what she saw from the tower that day. ".repeat(60);
    let rows = [vec!["Day", "Story"], vec!["Monday", story.trim()], vec!["Tuesday", "Rain."]];
    let id = app.upload_bytes("diary.xlsx", workbook(&rows)).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let nodes = app.subtree(id).await;
    let records = of_type(&nodes, "record");
    assert_eq!((records.len(), &records[0].structured_content["record"]["Story"]), (2, &json!(story.trim())));
    let pieces: Vec<_> = nodes.iter().filter(|node| node.parent_id == Some(records[0].id)).collect();
    assert!(
        pieces.len() > 3 && pieces.iter().all(|piece| piece.content.chars().count() <= 1800),
        "{} pieces",
        pieces.len()
    );
    assert_eq!(
        pieces.iter().map(|p| p.content.split_whitespace().count()).sum::<usize>(),
        records[0].content.split_whitespace().count()
    );
    for node in records.iter().chain(&pieces) {
        let read = app
            .client
            .read_document(DocumentPath { id: node.id }, EmbedQuery { include_embed: true })
            .await
            .unwrap()
            .value()
            .unwrap();
        assert!(read.embed.is_some() && read.settled == Settled::Settled, "{} {}", node.usetype, node.title);
        let embed = evidence(&app, node.id).await.get("embed").cloned();
        assert!(embed.is_none_or(|embed| embed["windows"] == 1), "nothing was over the window");
    }
    let sheet = of_type(&nodes, "sheet")[0];
    assert_eq!(evidence(&app, sheet.id).await["extract.sheet"]["in_pieces"], 1);
    assert_eq!(cells(&app, pieces[0].id, None, None).await.unwrap().reference.as_deref(), Some("A2:B2"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn thousands_of_records_are_made_once_each_and_rolled_up() {
    let app = TestApp::start().await;
    let rows: Vec<Vec<String>> = std::iter::once(vec!["Number".to_owned(), "Square".to_owned()])
        .chain((1..=2500).map(|n| vec![format!("item {n}"), format!("square {}", n * n)]))
        .collect();
    let id = app.upload_bytes("squares.xlsx", workbook(&rows)).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    let nodes = app.subtree(id).await;
    let segments = i64::try_from(of_type(&nodes, "section").len()).unwrap();
    // The file, its sheet, the profile.
    assert_eq!((frontier.settled, frontier.nodes_total, frontier.nodes_failed), (Settled::Settled, 2503 + segments, 0));
    let records = of_type(&nodes, "record");
    for (n, record) in (1..).zip(&records) {
        assert_eq!(
            (record.content.as_str(), record.position),
            (&*format!("Number: item {n}; Square: square {}", n * n), Some(n))
        );
    }
    assert_eq!(records.len(), 2500);
    let sheet = of_type(&nodes, "sheet")[0];
    let (of_sheet, of_file) = (evidence(&app, sheet.id).await, evidence(&app, id).await);
    assert_eq!(of_sheet["extract.sheet"]["records"], 2500);
    assert!(of_file["rollup"]["not_concatenated"]["tokens"].as_i64().unwrap() > 10_000, "{of_file}");
    for id in [sheet.id, id] {
        let read = app
            .client
            .read_document(DocumentPath { id }, EmbedQuery { include_embed: true })
            .await
            .unwrap()
            .value()
            .unwrap();
        assert!(read.embed.is_some(), "a container gets an embedding from its children");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_sheet_that_cannot_be_read_fails_alone() {
    let app = TestApp::with(Wish { settings: &[("SVC_PARSER_CELLS", "10")], ..Default::default() }).await;
    for kind in ["xlsb", "xls", "ods"] {
        let (id, frontier) = app.ingest(&sample(&format!("duck-counts.{kind}"))).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 1), "{kind}");
        assert_eq!(frontier.warnings, ["failed_parts: 1 (cells) in `Duck counts`"], "{kind}");
        assert_eq!(of_type(&app.subtree(id).await, "record").len(), 2, "{kind}: the other sheets go on");
    }
    let (id, frontier) = app.ingest(&sample("duck-counts.xlsx")).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 1));
    assert_eq!(
        frontier.warnings,
        ["failed_parts: 1 (cells) in `Duck counts`"],
        "a settled file does not hide what failed in it"
    );
    let nodes = app.subtree(id).await;
    let counts = sheet(&nodes, "Duck counts");
    let failed = json!({"nodes": 1, "tasks_by_reason": {"cells": 1}, "parts": [counts.id]});
    assert_eq!(evidence(&app, id).await["failed_parts"], failed);
    assert_eq!(counts.settled, Settled::Failed);
    let attempts = evidence(&app, counts.id).await["attempts"].clone();
    assert_eq!(
        (&attempts[0]["task_type"], &attempts[0]["error_type"], &attempts[0]["detail"]["limit"]),
        (&json!("profile:sheet"), &json!("permanent"), &json!("cells"))
    );
    assert_eq!(
        (&attempts[1]["task_type"], &attempts[1]["error_type"]),
        (&json!("extract:sheet"), &json!("dependency"))
    );
    assert_eq!(of_type(&nodes, "record").len(), 2, "the other sheets go on");
    assert_eq!(cells(&app, id, None, None).await.unwrap_err().code, Code::Conflict);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_same_workbook_becomes_the_same_tree_in_every_kind_of_file() {
    let app = TestApp::start().await;
    let mut trees = Vec::new();
    for kind in ["xlsx", "xlsb", "xls", "ods"] {
        let name = format!("duck-counts.{kind}");
        let (id, frontier) = app.ingest(&sample(&name)).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{kind}");
        let read = evidence(&app, id).await;
        let format: svc_formats::Format = kind.parse().unwrap();
        let detected = &read["detected"];
        assert_eq!((&detected["format"], &detected["mime"]), (&json!(kind), &json!(format.mime())), "{kind}");
        assert_eq!(read["matched.patterns"]["sheet_count"], 4, "{kind}");
        let mut nodes = app.subtree(id).await;
        nodes.retain(|node| node.id != id);
        let mut tree = Vec::new();
        for node in &nodes {
            let of_node = evidence(&app, node.id).await;
            let content = node.content.replace(&name, "the workbook");
            // The formats of numbers are written in more than one way.
            let content: Vec<_> = content.lines().filter(|line| !line.contains("yyyy")).map(str::to_owned).collect();
            tree.push(
                json!([
                    node.usetype,
                    node.title,
                    node.position,
                    content,
                    node.structured_content,
                    of_node["anchor"],
                    of_node["sheet"],
                ])
                .to_string(),
            );
        }
        tree.sort();
        let counts = sheet(&nodes, "Duck counts").id;
        let area = cells(&app, counts, Some("A1:F3"), None).await.unwrap();
        assert_eq!(area.formulas[1][4].as_deref(), Some("=C2+D2"), "{kind}");
        assert_eq!(area.values[1][0], "2023-04-03T00:00:00", "{kind}");
        trees.push((tree, area.values, area.types));
    }
    assert!(trees[0].0.len() > 15, "{:?}", trees[0].0);
    for other in &trees[1..] {
        assert_eq!(other, &trees[0]);
    }
    let found = app.client.search_bm25(Json(Bm25Search::new("heron bank Upper lock"))).await.unwrap();
    assert!(found.results.iter().filter(|result| result.document.usetype == "record").count() >= 4, "in each file");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_workbook_that_is_closed_or_damaged_fails_for_good_and_says_so() {
    let app = TestApp::start().await;
    let mut closed = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in [
        ("mimetype", "application/vnd.oasis.opendocument.spreadsheet"),
        ("META-INF/manifest.xml", "<m><file-entry full-path=\"content.xml\"><encryption-data/></file-entry></m>"),
        ("content.xml", "\u{1}\u{2}"),
    ] {
        closed.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        closed.write_all(text.as_bytes()).unwrap();
    }
    let closed = closed.finish().unwrap().into_inner();
    // The record that checks a password comes second.
    let begin = [&[9, 8, 16, 0, 0, 6, 5, 0][..], &[0; 12]].concat();
    let mut locked = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    locked.create_stream("/Workbook").unwrap().write_all(&[&begin[..], &[0x2F, 0, 6, 0], &[0; 6]].concat()).unwrap();
    let locked = locked.into_inner().into_inner();
    let read = |name: &str| std::fs::read(sample(name)).unwrap();
    for (name, bytes, code, words) in [
        ("corrupt.xls", read("corrupt.xls"), "corrupt", "the xls file is damaged"),
        ("closed.xls", locked, "encrypted", "`extract.password`"),
        ("closed.ods", closed, "encrypted", "upload it without encryption"),
        ("cut.xlsb", read("duck-counts.xlsb")[..2_000].to_vec(), "corrupt", "damaged"),
        ("corrupt.ods", read("corrupt.ods"), "corrupt", "the ods file is damaged"),
    ] {
        let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
        assert_eq!(app.settled(id).await.settled, Settled::Failed, "{name}");
        let attempts = evidence(&app, id).await["attempts"].clone();
        assert_eq!(attempts.as_array().unwrap().len(), 1, "{name}: {attempts}");
        assert_eq!((&attempts[0]["code"], &attempts[0]["error_type"]), (&json!(code), &json!("permanent")), "{name}");
        assert!(attempts[0]["message"].as_str().unwrap().contains(words), "{name}: {attempts}");
        assert_eq!(cells(&app, id, None, None).await.unwrap_err().status, 409, "{name}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_workbooks_of_the_corpus_are_read_as_their_manifest_says() {
    let corpus = repository().join("../shared/corpus");
    if !corpus.exists() {
        crate::support::left_out("no corpus beside the repository; the sample alone stood for workbooks");
        return;
    }
    let app = TestApp::start().await;
    let manifest: Value = serde_json::from_slice(&std::fs::read(corpus.join("manifest.json")).unwrap()).unwrap();
    let workbooks = manifest.as_array().unwrap().iter().filter(|entry| entry["detector"] == "xlsx");
    let mut seen = 0;
    for entry in workbooks {
        let name = entry["file"].as_str().unwrap();
        let (id, frontier) = app.ingest(&corpus.join(name)).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        let nodes = app.subtree(id).await;
        let expected = entry["expect"]["sheets"].as_array().unwrap();
        assert_eq!(of_type(&nodes, "sheet").len(), expected.len(), "{name}");
        for sheet in expected {
            let title = sheet["name"].as_str().unwrap();
            let node = self::sheet(&nodes, title);
            let evidence = evidence(&app, node.id).await;
            assert_eq!(evidence["profile.sheet"]["used_range"], sheet["used_range"], "{name} {title}");
            let state = match sheet["state"].as_str() {
                Some("veryHidden") => "very_hidden",
                state => state.unwrap_or("visible"),
            };
            assert_eq!(evidence["sheet"]["state"], state, "{name} {title}");
            seen += 1;
            if name == "made/sparse_corners.xlsx" {
                let failure = cells(&app, node.id, None, None).await.unwrap_err();
                assert_eq!((failure.status, failure.members["limit"].as_u64()), (413, Some(50_000)));
                let corner = cells(&app, node.id, Some("XFD1048576"), None).await.unwrap();
                assert!(!corner.values[0][0].is_null());
            } else {
                let answer = cells(&app, node.id, None, None).await.unwrap();
                assert_eq!(json!(answer.reference), sheet["used_range"], "{name} {title}");
                for cell in sheet["sample_cells"].as_array().into_iter().flatten() {
                    agrees(&answer, cell, &format!("{name} {title}"));
                }
            }
        }
    }
    assert_eq!(seen, 17, "sheets of the corpus");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Compares one expected cell with the answer.
fn agrees(answer: &CellsResponse, cell: &Value, place: &str) {
    let reference: svc_formats::xlsx::CellRef = cell["ref"].as_str().unwrap().parse().unwrap();
    let letters = svc_formats::xlsx::column_letters(reference.column());
    let column = answer.columns.iter().position(|column| *column == letters).unwrap();
    let row = answer.rows.iter().position(|row| *row == reference.row()).unwrap();
    assert_eq!(json!(answer.formulas[row][column]), cell["formula"], "{place} {cell}");
    let value = &answer.values[row][column];
    // The manifest has durations as another library prints them.
    if answer.types.get(&reference.to_string()) != Some(&CellType::Duration) {
        assert_eq!(value, &cell["value"], "{place} {cell}");
    }
}
