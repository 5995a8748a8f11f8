use super::*;

/// A document whose body refers to parts of these names, one after the other.
fn docx_of(parts: &[(&str, &[u8])]) -> Cursor<Vec<u8>> {
    let ids: Vec<String> = (0..parts.len()).map(|number| format!("chunk{number}")).collect();
    let related: Vec<_> = ids.iter().zip(parts).map(|(id, (name, _))| (&**id, "aFChunk", *name)).collect();
    let body: String =
        ids.iter().map(|id| format!(r#"<w:altChunk r:id="{id}"><w:altChunkPr/></w:altChunk>"#)).collect();
    let body = format!("{}{body}{}", paragraph("", "before"), paragraph("", "after"));
    let mut members = vec![
        (
            "_rels/.rels".to_owned(),
            sample::relationships(&[("r1", "officeDocument", "/word/document.xml")]).into_bytes(),
        ),
        ("word/document.xml".to_owned(), document(&body).into_bytes()),
        ("word/_rels/document.xml.rels".to_owned(), sample::relationships(&related).into_bytes()),
    ];
    members.extend(parts.iter().map(|(name, bytes)| (format!("word/{name}"), bytes.to_vec())));
    sample::package(members)
}

const PAGE: &str = "<!DOCTYPE html><html><body><h2>Gr&uuml;n</h2><p>One <b>two</b>.</p><table><tr><th>a</th></tr><tr><td>1</td></tr></table></body></html>";

#[test]
fn a_web_page_in_a_document_is_read_where_it_stands() {
    let read = extract(docx_of(&[("page.html", PAGE.as_bytes())]), &Limits::default()).unwrap();
    assert!(read.text.starts_with("before\n\n## Grün\n\nOne **two**.\n\n"), "{}", read.text);
    assert!(read.text.contains("\n| a |\n| - |\n| 1 |"), "{}", read.text);
    assert!(read.text.ends_with("\n\nafter"), "{}", read.text);
    let headings: Vec<_> =
        read.headings.iter().map(|heading| (heading.level, &*heading.title, heading.start)).collect();
    assert_eq!(headings, [(2, "Grün", 8)]);
    assert_eq!(read.facts.get("docx.unread_parts"), None);
}

/// As programs that make documents of web pages write it.
#[test]
fn a_page_within_a_message_is_read_without_the_message() {
    let message = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/related;\r\n    type=\"text/html\";\r\n    boundary=\"----=mhtDocumentPart\"\r\n\r\n\
         ------=mhtDocumentPart\r\nContent-Type: text/html;\r\n    charset=\"utf-8\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\
         Content-Location: file:///C:/fake/document.html\r\n\r\n{}\r\n\r\n------=mhtDocumentPart--\r\n",
        PAGE.replace('=', "=3D")
    );
    let read = extract(docx_of(&[("afchunk.mht", message.as_bytes())]), &Limits::default()).unwrap();
    assert!(read.text.starts_with("before\n\n## Grün\n\nOne **two**."), "{}", read.text);
}

#[test]
fn texts_and_documents_in_a_document_are_read_and_no_document_within_these() {
    let inner = docx_of(&[("inner.html", PAGE.as_bytes())]).into_inner();
    let parts: [(&str, &[u8]); 4] = [
        ("a.rtf", br"{\rtf1\ansi From rtf.\par}"),
        ("b.txt", b"# no heading"),
        ("c.docx", &inner),
        ("d.bin", b"\x00\x01\x02\xFF\xFE\x00\x00"),
    ];
    let read = extract(docx_of(&parts), &Limits::default()).unwrap();
    assert_eq!(read.text, "before\n\nFrom rtf.\n\n\\# no heading\n\nbefore\n\nafter\n\nafter");
    assert_eq!(read.facts["docx.unread_parts"], 1);
}

#[test]
fn what_a_part_costs_is_bounded_and_a_part_in_a_cell_is_text_of_the_cell() {
    let limits = Limits { text_bytes: 1_000, ..Limits::default() };
    let page = format!("<html><body><p>{}</p></body></html>", "ten bytes.".repeat(200));
    let error = extract(docx_of(&[("page.html", page.as_bytes())]), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(crate::Limit::TextBytes));
    let body = r#"<w:tbl><w:tr><w:tc><w:altChunk r:id="r-aFChunk"/></w:tc></w:tr></w:tbl>"#;
    let read = read_with(body, &[("aFChunk", "<html><body><p>one</p><p>two</p></body></html>")]);
    assert_eq!(read.text.lines().next(), Some("| one two |"));
}

#[test]
fn a_part_may_stand_at_two_places() {
    let again = r#"<w:altChunk r:id="r-aFChunk"/>"#;
    let read = read_with(
        &format!("{again}{}{again}", paragraph("", "mid")),
        &[("aFChunk", "<html><body><p>Clause</p></body></html>")],
    );
    assert_eq!(read.text, "Clause\n\nmid\n\nClause");
}
