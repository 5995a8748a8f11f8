//! Charts of office files: tables of the values that their files keep.
use super::{evidence, find, ingested, paragraph};
use crate::{
    members::archive,
    principals::{Someone, grant, someone},
    support::{TestApp, invariants, until},
};
use serde_json::json;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{Bm25Search, DocumentPath, DocumentResponse, EmbedQuery, GrantRight, Settled, UploadQuery},
};

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
pub fn charted() -> Vec<u8> {
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

pub async fn charts(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
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
    // Neither the chunks nor the node of the whole file contains the words of the chart.
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
async fn a_file_whose_only_content_is_a_chart_is_not_called_empty() {
    let app = TestApp::start().await;
    let place = r#"<w:p><w:r><w:drawing><a:graphic><c:chart r:id="r7"/></a:graphic></w:drawing></w:r></w:p>"#;
    let document = |chart: String| {
        archive(&[
            ("_rels/.rels", related(&[("r1", "officeDocument", "word/document.xml")])),
            ("word/document.xml", format!("<w:document><w:body>{place}</w:body></w:document>")),
            ("word/_rels/document.xml.rels", related(&[("r7", "chart", "charts/chart1.xml")])),
            ("word/charts/chart1.xml", chart),
        ])
    };
    let sheets = r#"<sheet name="Drawn" sheetId="1" r:id="s1"/>"#;
    let frame = r#"<a:graphic><a:graphicData><c:chart r:id="r5"/></a:graphicData></a:graphic>"#;
    let book = archive(&[
        ("_rels/.rels", related(&[("r1", "officeDocument", "xl/workbook.xml")])),
        ("xl/workbook.xml", format!("<workbook><sheets>{sheets}</sheets></workbook>")),
        ("xl/_rels/workbook.xml.rels", related(&[("s1", "chartsheet", "chartsheets/sheet1.xml")])),
        ("xl/chartsheets/sheet1.xml", "<chartsheet/>".to_owned()),
        ("xl/chartsheets/_rels/sheet1.xml.rels", related(&[("d1", "drawing", "../drawings/drawing1.xml")])),
        ("xl/drawings/drawing1.xml", format!("<xdr:wsDr><xdr:graphicFrame>{frame}</xdr:graphicFrame></xdr:wsDr>")),
        ("xl/drawings/_rels/drawing1.xml.rels", related(&[("r5", "chart", "../charts/chart1.xml")])),
        ("xl/charts/chart1.xml", rain()),
    ]);
    for (name, bytes) in [("drawn.docx", document(rain())), ("drawn.xlsx", book)] {
        let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]), "{name}");
        assert_eq!(charts(&app, id).await.len(), 1, "{name}");
        assert_eq!(evidence(&app, id).await["extract.empty"], json!(null), "{name}");
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    // One whose file keeps no values has no table, and so the file is empty.
    let bare = "<c:chartSpace><c:chart/></c:chartSpace>".to_owned();
    let id = app.upload_bytes("bare.docx", document(bare)).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.warnings, ["extract.empty: no_text"]);
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
