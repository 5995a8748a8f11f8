use super::*;
use crate::Limit;

const CHART: &str = r#"<w:r><w:drawing><wp:inline><a:graphic><a:graphicData><c:chart r:id="r-chart"/></a:graphicData></a:graphic></wp:inline></w:drawing></w:r>"#;
const TABLE: &str = "| Rain | mm |\n| --- | --- |\n| May | 8 |\n| June | 12 |";

fn chart() -> String {
    let series = sample::series("mm", &["May", "June"], &["8", "12"]);
    sample::chart("Rain", &format!("<c:barChart>{series}</c:barChart>"))
}

fn read_chart(body: &str) -> Extraction {
    read_with(body, &[("chart", &chart())])
}

#[test]
fn a_chart_is_a_table_below_its_paragraph() {
    let beside = format!("<w:p>{}{CHART}{}</w:p>", run("It rained "), run("often."));
    let read = read_chart(&(beside + &paragraph("", "Then it was dry.")));
    assert_eq!(read.text, format!("It rained often.\n\n{TABLE}\n\nThen it was dry."));
    assert_eq!(read.facts["charts"], serde_json::json!({"tables": 1, "left_out": {}}));
    assert!(
        probe(docx_with(&format!("<w:p>{CHART}</w:p>"), &[("chart", &chart())]), &Limits::default())
            .unwrap()
            .holds(Pattern::HasTables)
    );
    let twice = format!(
        "<w:p><mc:AlternateContent><mc:Choice>{CHART}</mc:Choice><mc:Fallback>{CHART}</mc:Fallback></mc:AlternateContent></w:p><w:p>{CHART}</w:p>"
    );
    assert_eq!(read_chart(&twice).text, TABLE, "a chart stands once, whatever refers to it");
}

#[test]
fn a_chart_in_a_cell_is_text_and_one_that_is_not_shown_is_none() {
    let cells =
        format!("<w:tbl><w:tr><w:tc><w:p>{CHART}</w:p></w:tc><w:tc>{}</w:tc></w:tr></w:tbl>", paragraph("", "x"));
    assert_eq!(read_chart(&cells).text, "| Rain mm; May 8; June 12 | x |\n| --- | --- |");
    let hidden = CHART.replace("<w:r>", "<w:r><w:rPr><w:vanish/></w:rPr>");
    let deleted = format!("<w:del>{CHART}</w:del>");
    assert_eq!(read_chart(&format!("<w:p>{hidden}{deleted}</w:p>")).text, "");
}

#[test]
fn a_chart_is_within_the_limit_of_the_text() {
    let limits = Limits { text_bytes: 20, ..Limits::default() };
    let error = extract(docx_with(&format!("<w:p>{CHART}</w:p>"), &[("chart", &chart())]), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::TextBytes));
}
