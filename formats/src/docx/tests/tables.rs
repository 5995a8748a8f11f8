use super::*;

fn cell(properties: &str, text: &str) -> String {
    format!("<w:tc><w:tcPr>{properties}</w:tcPr>{}</w:tc>", paragraph("", text))
}

fn row(properties: &str, cells: &[String]) -> String {
    format!("<w:tr><w:trPr>{properties}</w:trPr>{}</w:tr>", cells.concat())
}

fn table(rows: &[String]) -> String {
    format!("<w:tbl><w:tblPr/><w:tblGrid/>{}</w:tbl>", rows.concat())
}

#[test]
fn tables_become_gfm_with_spans_filled() {
    let nested = format!(
        "<w:tc>{}{}{}</w:tc>",
        paragraph("", "e"),
        table(&[row("", &[cell("", "n1"), cell(r#"<w:gridSpan w:val="9"/>"#, "n2")]), row("", &[cell("", "n3")])]),
        paragraph("", "f"),
    );
    let rows = [
        row("", &[cell(r#"<w:gridSpan w:val="2"/>"#, "a|b"), cell(r#"<w:vMerge w:val="restart"/>"#, "c")]),
        row("", &[cell("", "d"), nested, cell("<w:vMerge/>", "hidden")]),
        row("<w:del/>", &[cell("", "deleted")]),
        row(r#"<w:gridBefore w:val="1"/><w:gridAfter w:val="1"/>"#, &[cell("", "middle")]),
        row("", &[cell("<w:cellDel/>", "deleted"), cell("", "two"), numbered_cell()]),
    ];
    let read = read(&(table(&rows) + &paragraph("", "after")));
    let expected = "| a\\|b |  | c |\n| --- | --- | --- |\n| d | e n1 n2; n3 f |  |\n|  | middle |  |\n| two | item line |\n\nafter";
    assert_eq!(read.text, expected);
}

fn numbered_cell() -> String {
    format!("<w:tc>{}<w:p><w:r><w:t>line</w:t><w:br/></w:r></w:p></w:tc>", numbered(4, 0, "item"))
}

#[test]
fn a_lying_span_costs_no_memory() {
    let wide = cell(r#"<w:gridSpan w:val="4000000000"/>"#, "x");
    let read = read(&table(&[row("", std::slice::from_ref(&wide))]));
    assert_eq!(read.text.lines().next().unwrap().matches('|').count(), 64);
    let limits = Limits { text_bytes: 10_000, ..Limits::default() };
    for hostile in [
        row(r#"<w:gridBefore w:val="63"/>"#, &[]).repeat(200),
        row(r#"<w:gridAfter w:val="63"/>"#, &[]).repeat(200),
        row("", &[cell(r#"<w:gridSpan w:val="63"/>"#, "")]).repeat(200),
    ] {
        let error = extract(docx_with(&table(&[hostile]), &[]), &limits).unwrap_err();
        assert_eq!(error.limit(), Some(crate::Limit::TextBytes));
    }
}

#[test]
fn a_table_in_a_text_box_in_a_cell_is_text_of_the_cell() {
    let boxed =
        format!("<w:p><w:r><w:txbxContent>{}</w:txbxContent></w:r></w:p>", table(&[row("", &[cell("", "in")])]));
    let read = read(&table(&[row("", &[format!("<w:tc>{boxed}</w:tc>"), cell("", "beside")])]));
    assert_eq!(read.text, "| in | beside |\n| --- | --- |");
}

#[test]
fn elements_out_of_place_lose_no_text() {
    let body =
        format!("<w:tc>{}</w:tc><w:tr>{}</w:tr><w:tbl>{}</w:tbl>", run("x"), paragraph("", "a"), paragraph("", "b"));
    assert_eq!(read(&body).text, "a\n\nb");
}
