use super::*;

const DRAWING: &str = r#"<xdr:wsDr xmlns:xdr="x" xmlns:a="a"><xdr:twoCellAnchor>
    <xdr:from><xdr:col>2</xdr:col><xdr:colOff>0</xdr:colOff><xdr:row>4</xdr:row><xdr:rowOff>9</xdr:rowOff></xdr:from><xdr:to><xdr:col>5</xdr:col><xdr:row>9</xdr:row></xdr:to>
    <xdr:sp><xdr:nvSpPr><xdr:cNvPr id="2" name="TextBox 1"/></xdr:nvSpPr><xdr:txBody><a:bodyPr/><a:p><a:r><a:rPr/><a:t>Fill in the </a:t></a:r><a:r><a:t>yellow cells</a:t></a:r></a:p>
    <a:p><a:r><a:t>by 5 May.</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:twoCellAnchor>
    <xdr:absoluteAnchor><xdr:grpSp><xdr:sp><xdr:txBody><a:p><a:r><a:t>Draft</a:t></a:r></a:p></xdr:txBody></xdr:sp><xdr:sp><xdr:txBody><a:p/></xdr:txBody></xdr:sp></xdr:grpSp></xdr:absoluteAnchor></xdr:wsDr>"#;

#[test]
fn the_text_of_a_box_is_read_at_its_place_whatever_the_cells_are() {
    let relation = r#"<Relationships><Relationship Id="d" Type="http://x/drawing" Target="../drawings/drawing1.xml"/></Relationships>"#;
    let header = "<row r=\"1\"><c r=\"A1\" t=\"inlineStr\"><is><t>Name</t></is></c><c r=\"B1\" t=\"inlineStr\"><is><t>Count</t></is></c></row>\
        <row r=\"2\"><c r=\"A2\" t=\"inlineStr\"><is><t>Heron</t></is></c><c r=\"B2\"><v>3</v></c></row>\
        <row r=\"3\"><c r=\"A3\" t=\"inlineStr\"><is><t>Goose</t></is></c><c r=\"B3\"><v>4</v></c></row>";
    for rows in [header, ""] {
        let book = Book::new(rows)
            .with("xl/worksheets/_rels/sheet1.xml.rels", relation)
            .with("xl/drawings/drawing1.xml", DRAWING);
        let (_, _, loose) = book.rows(true);
        let row = |row: u32, column: u32, text: &str| LooseRow {
            row,
            cells: vec![LooseCell { column, text: text.to_owned() }],
        };
        assert_eq!(loose[..1], [row(5, 3, "Fill in the yellow cells\nby 5 May.")], "{rows}");
        assert_eq!(loose[1].cells[0].text, "Draft");
        assert_eq!(loose.len(), 2);
        // Who does not look for tables is given records alone.
        assert!(book.rows(false).2.is_empty());
    }
    // A damaged drawing keeps nobody from the cells.
    let damaged = DRAWING.replace("Draft", "&nbsp;");
    let book = Book::new(header)
        .with("xl/worksheets/_rels/sheet1.xml.rels", relation)
        .with("xl/drawings/drawing1.xml", damaged);
    let (_, records, loose) = book.rows(true);
    assert_eq!((records.len(), loose.len()), (2, 0));
}
