use super::*;
use crate::{Format, Limits, images::ImagePart, sample, xlsx::Value};

/// The tables and what was left out.
type Given = (Vec<ChartTable>, Vec<(&'static str, u64)>);

/// What is given of charts in these parts, which are shown in turn.
fn read_all(parts: &[(&str, &str)], names: &[&str], limits: &Limits) -> Result<Given, FormatError> {
    let mut package = Package::open(sample::package(parts.iter().copied()), Format::Docx, limits)?;
    let shown = names.iter().zip(1u32..).map(|(name, page)| Shown {
        name: (*name).to_owned(),
        pages: vec![page],
        ..Shown::default()
    });
    let (mut tables, mut left_out) = (Vec::new(), BTreeMap::<&'static str, u64>::new());
    let mut take = |part: ImagePart| -> Result<(), FormatError> {
        match part {
            ImagePart::Chart(table) => tables.push(table),
            ImagePart::LeftOut { count, reason, .. } => *left_out.entry(reason.as_str()).or_default() += count,
            part => panic!("{part:?}"),
        }
        Ok(())
    };
    let mut giver = Giver::new(limits, &mut take);
    give(&mut package, shown.collect(), &mut giver)?;
    giver.finish()?;
    Ok((tables, left_out.into_iter().collect()))
}

fn read_one(xml: &str) -> Given {
    read_all(&[("chart.xml", xml)], &["chart.xml"], &Limits::default()).unwrap()
}

fn text_of(title: &str, plots: &str) -> String {
    let (tables, left_out) = read_one(&sample::chart(title, plots));
    assert!(left_out.is_empty(), "{left_out:?}");
    tables.iter().map(|one| one.table.content("").into_owned()).collect::<Vec<_>>().join("\n\n")
}

fn left_out(xml: &str) -> Vec<(&'static str, u64)> {
    let (tables, left_out) = read_one(xml);
    assert!(tables.is_empty(), "{tables:?}");
    left_out
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
    let plots = bars + &lines;
    let text = text_of("Ducks\n by year", &plots);
    let rows = "| 2019 | 120 | 7 | 127 |\n| 2020 | 135.5 |  | #N/A |\n| 2021 | 0.3 | 100 |  |";
    assert_eq!(text, format!("| Ducks by year | Fresh \\| salt | Sea | Both |\n| --- | --- | --- | --- |\n{rows}"));
    let (tables, _) = read_one(&sample::chart("Ducks\n by year", &plots));
    let [one] = tables.as_slice() else { panic!("{tables:?}") };
    assert_eq!((one.title.as_str(), one.name.as_str(), one.page), ("Ducks by year", "chart.xml", Some(1)));
    assert_eq!(one.table.columns().unwrap(), ["Ducks by year", "Fresh | salt", "Sea", "Both"]);
    let number = |number| Some(Value::Number(number));
    let values: Vec<_> = one.table.values().collect();
    assert_eq!(values[2], [number(2021.0), number(0.3), number(100.0), None]);
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
    let mixed = line.replace("<c:pt idx=\"1\"><c:v>44198<", "<c:pt idx=\"1\" formatCode=\"General\"><c:v>44198<");
    let mixed = mixed.replace("<c:pt idx=\"0\"><c:v>0.5<", "<c:pt idx=\"0\" formatCode=\"[h]:mm\"><c:v>0.5<");
    assert_eq!(text_of("Gate", &mixed), "| Gate | Open |\n| --- | --- |\n| 2021-01-01 | PT12H |\n| 44198 | 0.25 |");
    let later = sample::chart("Gate", &line).replace("<c:chart>", "<c:date1904 val=\"1\"/><c:chart>");
    assert_eq!(read_one(&later).0[0].table.rows[1], ["2025-01-02", "0.5"]);

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
fn the_titles_of_axes_stand_behind_that_of_the_chart() {
    let bars = plot("barChart", &[sample::series("Rain", &["May"], &["8"])]);
    let across = sample::axis("catAx", "Month");
    let up = sample::axis("valAx", "Height\n in mm");
    let rows = "| --- | --- |\n| May | 8 |";
    let titled = bars.clone() + &across + &up;
    assert_eq!(text_of("Weather", &titled), format!("| Weather (Month, Height in mm) | Rain |\n{rows}"));
    let (tables, _) = read_one(&sample::chart("Weather", &titled));
    assert_eq!(tables[0].title, "Weather", "the chart is called by its own title");
    assert_eq!(text_of("", &titled), format!("| Month, Height in mm | Rain |\n{rows}"));
    assert_eq!(text_of("Rain", &titled), format!("| Month, Height in mm | Rain |\n{rows}"));
    // What the names of the columns or the title of the chart say already is not said again, nor what no reader sees.
    let again = bars.clone() + &across + &sample::axis("valAx", "Rain") + &across;
    assert_eq!(text_of("Month", &again), format!("| Month | Rain |\n{rows}"));
    let hidden = bars.clone() + &across.replace("<c:delete val=\"0\"/>", "<c:delete/>") + &up;
    assert_eq!(text_of("Weather", &hidden), format!("| Weather (Height in mm) | Rain |\n{rows}"));
    let many: String = (0..10).map(|number| sample::axis("valAx", &format!("v{number}"))).collect();
    assert_eq!(text_of("", &(bars + &many)), format!("| v0, v1, v2, v3 | Rain |\n{rows}"));
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
    let names = ["b.xml", "A.xml", "a.xml", "c.xml", "etc/passwd"];
    let (tables, left_out) = read_all(&parts, &names, &Limits::default()).unwrap();
    let [one] = tables.as_slice() else { panic!("{tables:?}") };
    assert_eq!((one.chart, one.name.as_str(), one.page), (1, "A.xml", Some(2)));
    assert_eq!(one.table.content(""), "| Rain | mm |\n| --- | --- |\n| May | 8 |");
    assert_eq!(left_out, [("damaged", 1), ("missing", 1), ("values", 1)]);
    let many: Vec<String> = (0..=MOST_CHART_TABLES).map(|number| format!("m{number}.xml")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (tables, left_out) = read_all(&parts, &many, &Limits::default()).unwrap();
    assert!(tables.is_empty());
    assert_eq!(left_out, [("charts", 1), ("missing", MOST_CHART_TABLES as u64)]);
}

#[test]
fn a_chart_over_a_limit_of_the_reader_is_left_out_and_the_others_are_given() {
    let chart = sample::chart("Rain", &plot("barChart", &[sample::series("mm", &["May"], &["8"])]));
    let deep = format!("<c:chartSpace>{}{}</c:chartSpace>", "<a>".repeat(1000), "</a>".repeat(1000));
    let parts = [("deep.xml", deep.as_str()), ("a.xml", chart.as_str())];
    let (tables, left_out) = read_all(&parts, &["deep.xml", "a.xml"], &Limits::default()).unwrap();
    assert_eq!((tables.len(), left_out), (1, vec![("xml_depth", 1)]));

    // What the file unpacks to is counted over all of its parts: the one that is too large leaves no room for those behind it.
    let large = format!("<c:chartSpace><!--{}--></c:chartSpace>", " ".repeat(64 << 10));
    let parts = [("a.xml", chart.as_str()), ("large.xml", large.as_str()), ("b.xml", chart.as_str())];
    let limits = Limits { unpacked_bytes: 32 << 10, ..Limits::default() };
    let (tables, left_out) = read_all(&parts, &["a.xml", "large.xml", "b.xml"], &limits).unwrap();
    let [one] = tables.as_slice() else { panic!("{tables:?}") };
    assert_eq!((one.name.as_str(), left_out), ("a.xml", vec![("unpacked_bytes", 2)]));
}

#[test]
fn charts_of_a_file_have_as_many_tables_together_as_a_file_has() {
    // Each series has an axis of its own, and so a table.
    let series = |at: usize| {
        let axis = numbers("xVal", "General", &[at.to_string().as_str()]);
        format!("<c:ser>{axis}{}</c:ser>", numbers("yVal", "General", &["1"]))
    };
    let chart = sample::chart("", &plot("scatterChart", &(0..200).map(series).collect::<Vec<_>>()));
    let parts = ["a", "b", "c", "d", "e", "f"].map(|name| (name, chart.as_str()));
    let (tables, left_out) = read_all(&parts, &parts.map(|(name, _)| name), &Limits::default()).unwrap();
    assert_eq!((tables.len(), left_out), (MOST_CHART_TABLES, vec![("charts", 1)]));
}

#[test]
fn a_chart_over_a_limit_has_no_table() {
    let point = |place: &str| format!("<c:pt idx=\"{place}\"><c:v>1</c:v></c:pt>");
    let values = |points: &str| format!("<c:ser><c:val><c:numLit>{points}</c:numLit></c:val></c:ser>");
    let of = |series: &str| left_out(&sample::chart("T", &format!("<c:barChart>{series}</c:barChart>")));
    let places = |count: usize| values(&(0..count).map(|place| point(&place.to_string())).collect::<String>());
    assert_eq!(of(&places(MOST_ROWS)), [("rows", 1)], "the header is a row too");
    let (fitting, _) = read_one(&sample::chart("T", &plot("barChart", &[places(MOST_ROWS - 1)])));
    assert_eq!(fitting[0].table.rows.len(), MOST_ROWS);
    assert_eq!(of(&values(&point("18446744073709551615"))), [("rows", 1)]);
    assert_eq!(of(&values(&(point("-1") + &point("x")))), [("values", 1)]);
    assert_eq!(of(&values(&point("0")).repeat(201)), [("columns", 1)]);
    // Few points far down in many series would fill a table of many more cells.
    let far: String = (0..4_000).map(|place| point(&place.to_string())).collect();
    assert_eq!(of(&(values(&far) + &values(&point("0")).repeat(100))), [("bytes", 1)]);
    let long = "<c:ser><c:tx><c:v>".to_owned() + &"w".repeat(600 << 10) + "</c:v></c:tx></c:ser>";
    assert_eq!(of(&long), [("bytes", 1)]);
    // A name around thousands of categories is in the label of each.
    let name = "n".repeat(1000);
    let (inner, outer) = (far.replace("<c:v>1<", "<c:v>i<"), point("0").replace('1', &name));
    let categories =
        format!("<c:cat><c:multiLvlStrCache><c:lvl>{inner}</c:lvl><c:lvl>{outer}</c:lvl></c:multiLvlStrCache></c:cat>");
    assert_eq!(of(&values(&far).replace("<c:ser>", &format!("<c:ser>{categories}"))), [("bytes", 1)]);
    let empty = "<c:ser><c:val>".to_owned() + &"<c:lvl/>".repeat(20) + "</c:val></c:ser>";
    assert_eq!(of(&empty), [("levels", 1)]);
}
