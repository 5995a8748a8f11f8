use super::*;
use crate::{Extraction, Format, Limit, Limits, markdown::Writer, sample};
use std::io::Cursor;

const RELATED: &str = "part.xml";

/// What becomes of chart parts: the text of each reference in turn, and the facts.
fn read_all(parts: &[(&str, &str)], targets: &[&str], limits: &Limits) -> Result<(Vec<String>, Value), FormatError> {
    let ids: Vec<String> = (0..targets.len()).map(|number| format!("r{number}")).collect();
    let related: Vec<_> = ids.iter().zip(targets).map(|(id, target)| (&**id, "chart", *target)).collect();
    let mut members = vec![(format!("_rels/{RELATED}.rels"), sample::relationships(&related))];
    members.extend(parts.iter().map(|(name, xml)| ((*name).to_owned(), (*xml).to_owned())));
    let mut package: Package<Cursor<Vec<u8>>> = Package::open(sample::package(members), Format::Docx, limits)?;
    let related = package.relationships(RELATED)?;
    let mut charts = Charts::default();
    let mut placed = charts.read(&mut package, &related)?;
    let mut texts = Vec::new();
    for id in &ids {
        let mut writer = Writer::default();
        for block in placed.take(Some(id)).into_iter().flat_map(Chart::into_tables) {
            writer.write(block, limits)?;
        }
        texts.push(writer.finish("styles").text);
    }
    let mut facts = BTreeMap::new();
    charts.record(&mut facts);
    Ok((texts, facts.remove("charts").unwrap_or_default()))
}

fn read_one(xml: &str) -> (String, Value) {
    let (mut texts, facts) = read_all(&[("chart.xml", xml)], &["chart.xml"], &Limits::default()).unwrap();
    (texts.remove(0), facts)
}

fn text_of(title: &str, plots: &str) -> String {
    read_one(&sample::chart(title, plots)).0
}

fn left_out(xml: &str) -> Value {
    let (text, facts) = read_one(xml);
    assert_eq!((text.as_str(), &facts["tables"]), ("", &json!(0)));
    facts["left_out"].clone()
}

fn plot(kind: &str, series: &[String]) -> String {
    format!("<c:{kind}>{}</c:{kind}>", series.concat())
}

fn numbers(element: &str, format: &str, values: &[&str]) -> String {
    let points = sample::points(values);
    format!(
        "<c:{element}><c:numRef><c:numCache><c:formatCode>{format}</c:formatCode>{points}</c:numCache></c:numRef></c:{element}>"
    )
}

#[test]
fn series_are_columns_beside_their_categories() {
    let years = ["2019", "2020", "2021"];
    let bars = plot(
        "barChart",
        &[
            sample::series("Fresh | salt", &years, &["120", "135.50", "0.30000000000000004"]),
            sample::series("Sea", &years, &["7", "", "1E2"]),
        ],
    );
    let lines = plot("lineChart", &[sample::series("Both", &years, &["127", "#N/A", ""])]);
    let text = text_of("Ducks\n by year", &(bars + &lines));
    let rows = "| 2019 | 120 | 7 | 127 |\n| 2020 | 135.5 |  | #N/A |\n| 2021 | 0.3 | 100 |  |";
    assert_eq!(text, format!("| Ducks by year | Fresh \\| salt | Sea | Both |\n| --- | --- | --- | --- |\n{rows}"));
    let tables = crate::tables(&Extraction { text, ..Extraction::default() }).tables;
    assert!(tables[0].has_header);
    assert_eq!(serde_json::to_value(tables[0].values().nth(1).unwrap()).unwrap()[1]["value"], 135.5);
}

#[test]
fn kinds_of_charts_have_tables_of_their_shape() {
    let pie = "<c:ser><c:val><c:numLit><c:pt idx=\"0\"><c:v>3</c:v></c:pt><c:pt idx=\"2\"><c:v>4</c:v></c:pt></c:numLit></c:val></c:ser>";
    assert_eq!(
        text_of("Share", &plot("pieChart", &[pie.to_owned()])),
        "| Share | Series 1 |\n| --- | --- |\n| 1 | 3 |\n| 3 | 4 |"
    );
    // The title that says the name of the only series is not said twice.
    let area = plot("areaChart", &[sample::series("Rain", &["May"], &["8"])]);
    assert_eq!(text_of("Rain", &area), "|  | Rain |\n| --- | --- |\n| May | 8 |");

    let named = |name: &str, rest: &str| format!("<c:ser><c:tx><c:v>{name}</c:v></c:tx>{rest}</c:ser>");
    let along = |values: &[&str]| numbers("xVal", "General", values);
    let high = |values: &[&str]| numbers("yVal", "General", values);
    let scatter = plot(
        "scatterChart",
        &[
            named("A", &(along(&["1.5", "2"]) + &high(&["10", "20"]))),
            named("B", &(along(&["3"]) + &high(&["30"]))),
            named("C", &(along(&["1.5", "2"]) + &high(&["11", ""]))),
        ],
    );
    let first = "| Tide | A | C |\n| --- | --- | --- |\n| 1.5 | 10 | 11 |\n| 2 | 20 |  |";
    assert_eq!(text_of("Tide", &scatter), format!("{first}\n\n| Tide | B |\n| --- | --- |\n| 3 | 30 |"));
    let sizes = numbers("bubbleSize", "General", &["5"]);
    let bubble = plot("bubbleChart", &[named("Nests", &(along(&["1"]) + &high(&["2"]) + &sizes))]);
    assert_eq!(text_of("", &bubble), "|  | Nests | Nests (size) |\n| --- | --- | --- |\n| 1 | 2 | 5 |");
}

#[test]
fn days_and_levels_of_categories_are_names() {
    let days = numbers("cat", "d/m/yyyy", &["44197", "44198"]);
    let values = numbers("val", "0%", &["0.5", "0.25"]);
    let line = plot("lineChart", &[format!("<c:ser><c:tx><c:v>Open</c:v></c:tx>{days}{values}</c:ser>")]);
    assert_eq!(text_of("Gate", &line), "| Gate | Open |\n| --- | --- |\n| 2021-01-01 | 0.5 |\n| 2021-01-02 | 0.25 |");
    let later = sample::chart("Gate", &line).replace("<c:chart>", "<c:date1904 val=\"1\"/><c:chart>");
    assert!(read_one(&later).0.contains("| 2025-01-02 | 0.5 |"));

    let level = |values: &[&str]| format!("<c:lvl>{}</c:lvl>", sample::points(values));
    let levels = level(&["Q1", "Q2", "Q1"]) + &level(&["2024", "", "2025"]);
    let categories = format!(
        "<c:cat><c:multiLvlStrRef><c:f>x</c:f><c:multiLvlStrCache><c:ptCount val=\"3\"/>{levels}</c:multiLvlStrCache></c:multiLvlStrRef></c:cat>"
    );
    let values = numbers("val", "General", &["1", "2", "3"]);
    let bars = plot("bar3DChart", &[format!("<c:ser>{categories}{values}</c:ser>")]);
    assert_eq!(
        text_of("Sales", &bars),
        "| Sales | Series 1 |\n| --- | --- |\n| 2024 / Q1 | 1 |\n| 2024 / Q2 | 2 |\n| 2025 / Q1 | 3 |"
    );
}

#[test]
fn labels_trends_and_errors_are_no_values() {
    let extra = [
        "<c:dLbls><c:dLbl><c:tx><c:rich><a:p><a:r><a:t>label</a:t></a:r></a:p></c:rich></c:tx></c:dLbl></c:dLbls>".to_owned(),
        "<c:trendline><c:name>trend</c:name></c:trendline>".to_owned(),
        format!("<c:errBars>{}</c:errBars>", numbers("plus", "General", &["99"])),
        "<c:extLst><c:ext><c15:f>name</c15:f><c:val><c:numLit><c:pt idx=\"0\"><c:v>98</c:v></c:pt></c:numLit></c:val></c:ext></c:extLst>".to_owned(),
    ];
    let series = sample::series("Rain", &["May"], &["8"]).replace("</c:ser>", &format!("{}</c:ser>", extra.concat()));
    assert_eq!(text_of("", &plot("barChart", &[series])), "|  | Rain |\n| --- | --- |\n| May | 8 |");
}

#[test]
fn a_part_is_read_once_and_what_cannot_be_read_is_counted() {
    let chart = sample::chart("Rain", &plot("barChart", &[sample::series("mm", &["May"], &["8"])]));
    let parts = [("a.xml", chart.as_str()), ("b.xml", "<c:chartSpace><c:chart>"), ("c.xml", "<w:document/>")];
    let targets = ["A.xml", "a.xml", "/../a.xml", "b.xml", "c.xml", "../../etc/passwd"];
    let (texts, facts) = read_all(&parts, &targets, &Limits::default()).unwrap();
    let table = "| Rain | mm |\n| --- | --- |\n| May | 8 |";
    assert_eq!(texts, [table, "", "", "", "", ""]);
    assert_eq!(facts, json!({"tables": 1, "left_out": {"damaged": 1, "missing": 1, "values": 1}}));
    let many: Vec<String> = (0..=MOST_TABLES).map(|number| format!("m{number}.xml")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (_, facts) = read_all(&[], &many, &Limits::default()).unwrap();
    assert_eq!(facts, json!({"tables": 0, "left_out": {"charts": 1, "missing": MOST_TABLES}}));
    let error = read_all(&parts, &targets, &Limits { xml_depth: 4, ..Limits::default() }).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::XmlDepth));
}

#[test]
fn a_chart_over_a_limit_has_no_table() {
    let point = |place: &str| format!("<c:pt idx=\"{place}\"><c:v>1</c:v></c:pt>");
    let values = |points: &str| format!("<c:ser><c:val><c:numLit>{points}</c:numLit></c:val></c:ser>");
    let of = |series: &str| left_out(&sample::chart("T", &format!("<c:barChart>{series}</c:barChart>")));
    assert_eq!(of(&values(&point("5000"))), json!({"rows": 1}));
    assert_eq!(of(&values(&point("18446744073709551615"))), json!({"rows": 1}));
    assert_eq!(of(&values(&(point("-1") + &point("x")))), json!({"values": 1}));
    assert_eq!(of(&values(&point("0")).repeat(201)), json!({"columns": 1}));
    // Few points far down in many series would fill a table of many more cells.
    let far: String = (0..4_000).map(|place| point(&place.to_string())).collect();
    assert_eq!(of(&(values(&far) + &values(&point("0")).repeat(100))), json!({"bytes": 1}));
    let long = "<c:ser><c:tx><c:v>".to_owned() + &"w".repeat(600 << 10) + "</c:v></c:tx></c:ser>";
    assert_eq!(of(&long), json!({"bytes": 1}));
    // A name around thousands of categories is in the label of each.
    let name = "n".repeat(1000);
    let (inner, outer) = (far.replace("<c:v>1<", "<c:v>i<"), point("0").replace('1', &name));
    let categories =
        format!("<c:cat><c:multiLvlStrCache><c:lvl>{inner}</c:lvl><c:lvl>{outer}</c:lvl></c:multiLvlStrCache></c:cat>");
    assert_eq!(of(&values(&far).replace("<c:ser>", &format!("<c:ser>{categories}"))), json!({"bytes": 1}));
    let empty = "<c:ser><c:val>".to_owned() + &"<c:lvl/>".repeat(20) + "</c:val></c:ser>";
    assert_eq!(of(&empty), json!({"levels": 1}));
}
