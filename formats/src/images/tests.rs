//! Files built by hand, each with its pictures.

use super::*;
use crate::{Pattern, probe, sample};
use std::io::Cursor;

/// The head of a PNG of these sides; no reader looks further.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(height.to_be_bytes());
    png.extend(b"\x08\x02\0\0\0 and so on");
    png
}

/// What was given of a file: each picture with its bytes, and those left out with the reason.
type Read = (Vec<(ImageHead, Vec<u8>)>, Vec<(String, u64, &'static str)>);

fn read_within(format: Format, bytes: &[u8], limits: &Limits) -> Result<Read, FormatError> {
    let (mut given, mut left_out) = (Vec::new(), Vec::new());
    images(format, Cursor::new(bytes), limits, &mut |part| {
        match part {
            ImagePart::Begin(head) => given.push((head, Vec::new())),
            ImagePart::Bytes(piece) => given.last_mut().unwrap().1.extend(piece),
            ImagePart::End | ImagePart::Chart(_) => {}
            ImagePart::LeftOut { name, count, reason } => left_out.push((name, count, reason.as_str())),
        }
        Ok(())
    })?;
    Ok((given, left_out))
}

/// The tables of the charts of a file.
fn charts(format: Format, bytes: &[u8]) -> Vec<ChartTable> {
    let mut tables = Vec::new();
    images(format, Cursor::new(bytes), &Limits::default(), &mut |part| {
        if let ImagePart::Chart(table) = part {
            tables.push(table);
        }
        Ok(())
    })
    .unwrap();
    tables
}

/// A chart part with this title and one value.
fn chart(title: &str) -> String {
    sample::chart(title, &format!("<c:barChart>{}</c:barChart>", sample::series("mm", &["May"], &["8"])))
}

fn read(format: Format, bytes: &[u8]) -> Read {
    read_within(format, bytes, &Limits::default()).unwrap()
}

fn package(members: &[(&str, &[u8])]) -> Vec<u8> {
    sample::package(members.iter().copied()).into_inner()
}

fn has_images(format: Format, bytes: &[u8]) -> bool {
    probe(format, Cursor::new(bytes), &Limits::default()).unwrap().holds(Pattern::HasImages)
}

fn docx(body: &str, pictures: &[(&str, &[u8])]) -> Vec<u8> {
    let main = format!(r#"<w:document xmlns:w="w" xmlns:r="r"><w:body>{body}</w:body></w:document>"#);
    let names: Vec<String> = (1..=pictures.len()).map(|number| format!("p{number}")).collect();
    let related: Vec<_> = names.iter().zip(pictures).map(|(id, (name, _))| (&**id, "image", *name)).collect();
    let (root, related) =
        (sample::relationships(&[("r1", "officeDocument", "word/main.xml")]), sample::relationships(&related));
    let parts: Vec<String> = pictures.iter().map(|(name, _)| format!("word/{name}")).collect();
    let mut members: Vec<(&str, &[u8])> = vec![
        ("_rels/.rels", root.as_bytes()),
        ("word/main.xml", main.as_bytes()),
        ("word/_rels/main.xml.rels", related.as_bytes()),
    ];
    members.extend(
        parts
            .iter()
            .zip(pictures)
            .filter(|(_, (_, bytes))| !bytes.is_empty())
            .map(|(name, (_, bytes))| (&**name, *bytes)),
    );
    package(&members)
}

fn paragraph(content: &str) -> String {
    format!("<w:p>{content}</w:p>")
}

fn run(text: &str) -> String {
    paragraph(&format!("<w:r><w:t>{text}</w:t></w:r>"))
}

fn drawing(id: &str, alt: &str) -> String {
    paragraph(&format!(
        r#"<w:r><w:drawing><wp:inline><wp:docPr id="1" descr="{alt}"/><a:blip r:embed="{id}"/></wp:inline></w:drawing></w:r>"#
    ))
}

#[test]
fn a_document_of_word_gives_each_picture_once_with_its_caption_and_the_text_beside_it() {
    let (mill, pump) = (png(640, 480), png(32, 32));
    let body = [
        run("The mill stands at the pond."),
        drawing("p1", "A mill &amp; its wheel"),
        paragraph(r#"<w:pPr><w:pStyle w:val="Caption"/></w:pPr><w:r><w:t>The mill in spring</w:t></w:r>"#),
        run("The pump is behind it."),
        drawing("p2", ""),
        drawing("p1", "again"),
        drawing("p3", ""),
        drawing("p9", "refers to nothing"),
    ]
    .concat();
    let file = docx(&body, &[("media/mill.png", &mill), ("media/pump.png", &pump), ("media/gone.png", b"")]);
    assert!(has_images(Format::Docx, &file));
    let (given, left_out) = read(Format::Docx, &file);
    let [(first, bytes), (second, _)] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!((bytes, first.mime.as_str(), first.width, first.height), (&mill, "image/png", Some(640), Some(480)));
    assert_eq!(
        (&*first.name, &*first.caption, &*first.alt, &*first.nearby),
        ("word/media/mill.png", "The mill in spring", "A mill & its wheel", "The mill stands at the pond.")
    );
    assert_eq!((second.name.as_str(), second.nearby.as_str()), ("word/media/pump.png", "The pump is behind it."));
    assert_eq!((first.index, second.index), (0, 1));
    assert_eq!(left_out, [("word/media/gone.png".to_owned(), 1, "missing")]);
    assert!(!has_images(Format::Docx, &docx(&run("No picture"), &[])));
}

#[test]
fn a_paragraph_of_many_pictures_gives_them_all_and_those_over_the_limit_are_counted() {
    let picture = png(20, 20);
    let names: Vec<String> = (0..700).map(|number| format!("media/{number}.png")).collect();
    let pictures: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), picture.as_slice())).collect();
    let runs: String = (1..=700).map(|number| format!(r#"<w:r><a:blip r:embed="p{number}"/></w:r>"#)).collect();
    let body = run("All birds of the pond.") + &paragraph(&runs) + &run("The end.");
    let (given, left_out) = read(Format::Docx, &docx(&body, &pictures));
    assert_eq!(given.len(), Limits::default().images as usize);
    assert!(given.iter().all(|(head, _)| head.nearby == "All birds of the pond."));
    let count: u64 = left_out.iter().map(|(_, count, _)| count).sum();
    assert_eq!(count, 700 - u64::from(Limits::default().images));
    assert!(left_out.iter().all(|(_, _, reason)| *reason == "images"));
}

#[test]
fn what_is_small_huge_unknown_or_too_much_is_left_out_by_name() {
    let pictures: [(&str, &[u8]); 5] = [
        ("rule.png", &png(600, 2)),
        ("trap.png", &png(1 << 20, 1 << 20)),
        ("page.html", b"<html><script>alert(1)</script></html>"),
        ("one.png", &png(20, 20)),
        ("two.png", &png(21, 21)),
    ];
    let body: String = (1..=pictures.len()).map(|number| drawing(&format!("p{number}"), "")).collect();
    let file = docx(&body, &pictures);
    let reasons = |limits: Limits| {
        let (given, left_out) = read_within(Format::Docx, &file, &limits).unwrap();
        (given.len(), left_out.into_iter().map(|(_, _, reason)| reason).collect::<Vec<_>>())
    };
    assert_eq!(reasons(Limits::default()), (2, vec!["small", "pixels", "kind"]));
    assert_eq!(reasons(Limits { images: 1, ..Limits::default() }), (1, vec!["small", "pixels", "kind", "images"]));
    let one = png(20, 20).len() as u64;
    let tight = Limits { image_bytes: one + 1, ..Limits::default() };
    assert_eq!(reasons(tight), (1, vec!["small", "pixels", "kind", "image_bytes"]));
    assert_eq!(reasons(Limits { images: 0, ..Limits::default() }).0, 0);
}

#[test]
fn those_that_are_left_out_for_one_reason_are_counted_and_the_first_hundred_named() {
    let body: String = (0..250).map(|number| format!("<img src='data:image/gif;base64,{number:04}'>")).collect();
    let (given, left_out) = read(Format::Html, body.as_bytes());
    assert!(given.is_empty());
    assert_eq!(left_out.len(), 101);
    assert_eq!((left_out[99].1, left_out[100].1), (1, 150));
    assert!(left_out.iter().all(|(_, _, reason)| *reason == "kind"));
}

#[test]
fn slides_give_their_pictures_with_their_numbers_and_texts() {
    let slide = |text: &str, alt: &str| {
        format!(
            r#"<p:sld xmlns:p="p" xmlns:a="a" xmlns:r="r"><p:cSld><p:bg><a:blip r:embed="r2"/></p:bg><p:spTree><p:sp><a:t>{text}</a:t></p:sp>
            <p:pic><p:nvPicPr><p:cNvPr id="4" descr="{alt}"/></p:nvPicPr><a:blip r:embed="r1"/></p:pic></p:spTree></p:cSld></p:sld>"#
        )
    };
    let main = r#"<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="256" r:id="s1"/><p:sldId id="257" r:id="s2"/></p:sldIdLst></p:presentation>"#;
    let logo = png(64, 64);
    let related = sample::relationships(&[("r1", "image", "../media/logo.png"), ("r2", "image", "../media/sky.png")]);
    let slides = sample::relationships(&[("s1", "slide", "slides/one.xml"), ("s2", "slide", "slides/two.xml")]);
    let root = sample::relationships(&[("r1", "officeDocument", "ppt/main.xml")]);
    let (one, two) = (slide("The pond", "A heron"), slide("The pump", ""));
    let file = package(&[
        ("_rels/.rels", root.as_bytes()),
        ("ppt/main.xml", main.as_bytes()),
        ("ppt/_rels/main.xml.rels", slides.as_bytes()),
        ("ppt/slides/one.xml", one.as_bytes()),
        ("ppt/slides/_rels/one.xml.rels", related.as_bytes()),
        ("ppt/slides/two.xml", two.as_bytes()),
        ("ppt/slides/_rels/two.xml.rels", related.as_bytes()),
        ("ppt/media/logo.png", &logo),
        ("ppt/media/sky.png", &logo),
    ]);
    assert!(has_images(Format::Pptx, &file));
    let (given, left_out) = read(Format::Pptx, &file);
    let [(head, bytes)] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!((bytes, &head.pages), (&logo, &vec![1, 2]));
    assert_eq!((head.alt.as_str(), head.nearby.as_str()), ("A heron", "The pond"));
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn sheets_give_the_pictures_of_their_drawings() {
    let picture = png(50, 40);
    let root = sample::relationships(&[("r1", "officeDocument", "xl/workbook.xml")]);
    let main = r#"<workbook xmlns:r="r"><sheets><sheet name="Plan" sheetId="1" r:id="a"/><sheet name="Ducks" sheetId="2" r:id="b"/></sheets></workbook>"#;
    let sheets = sample::relationships(&[("a", "worksheet", "sheets/one.xml"), ("b", "worksheet", "sheets/two.xml")]);
    let drawing = r#"<xdr:wsDr xmlns:xdr="x" xmlns:r="r"><xdr:pic><xdr:cNvPr id="1" descr="A duck"/><a:blip r:embed="r1"/></xdr:pic></xdr:wsDr>"#;
    let to_drawing = sample::relationships(&[("d", "drawing", "../drawings/one.xml")]);
    let to_picture = sample::relationships(&[("r1", "image", "../media/duck.png")]);
    let sheet = "<worksheet><sheetData/></worksheet>";
    let file = package(&[
        ("_rels/.rels", root.as_bytes()),
        ("xl/workbook.xml", main.as_bytes()),
        ("xl/_rels/workbook.xml.rels", sheets.as_bytes()),
        ("xl/sheets/one.xml", sheet.as_bytes()),
        ("xl/sheets/two.xml", sheet.as_bytes()),
        ("xl/sheets/_rels/two.xml.rels", to_drawing.as_bytes()),
        ("xl/drawings/one.xml", drawing.as_bytes()),
        ("xl/drawings/_rels/one.xml.rels", to_picture.as_bytes()),
        ("xl/media/duck.png", &picture),
    ]);
    let (given, _) = read(Format::Xlsx, &file);
    let [(head, bytes)] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!((bytes, &head.pages, head.alt.as_str(), head.nearby.as_str()), (&picture, &vec![2], "A duck", "Ducks"));
}

#[test]
fn open_documents_give_the_pictures_of_their_frames() {
    let picture = png(50, 40);
    let content = r#"<office:document-content xmlns:office="o"><office:body><office:text><text:p>By the weir</text:p><text:p>
        <draw:frame><draw:image xlink:href="Pictures/heron.png"/><draw:image xlink:href="Pictures/heron.svm"/><svg:desc>A heron</svg:desc></draw:frame></text:p>
        <text:p>Figure 2: At dawn</text:p></office:text></office:body></office:document-content>"#;
    let file = package(&[
        ("mimetype", b"application/vnd.oasis.opendocument.text"),
        ("content.xml", content.as_bytes()),
        ("Pictures/heron.png", &picture),
    ]);
    assert!(has_images(Format::Odt, &file));
    let (given, left_out) = read(Format::Odt, &file);
    let [(head, bytes)] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!(bytes, &picture);
    assert_eq!((&*head.alt, &*head.caption, &*head.nearby), ("A heron", "Figure 2: At dawn", "By the weir"));
    assert!(left_out.is_empty() && head.pages.is_empty());
}

#[test]
fn books_and_pages_give_the_pictures_that_they_hold_and_fetch_none() {
    let picture = png(50, 40);
    let page = "<html><body><h1>Ponds</h1><figure><img src='../img/heron%201.png' alt='A heron'><figcaption>At dawn</figcaption></figure>\
        <img src='https://elsewhere.example/x.png'></body></html>";
    let opf = "<package><manifest><item id=\"a\" href=\"text/a.xhtml\" media-type=\"application/xhtml+xml\"/></manifest>\
        <spine><itemref idref=\"a\"/></spine></package>";
    let container = "<container><rootfiles><rootfile full-path=\"book.opf\"/></rootfiles></container>";
    let file = package(&[
        ("mimetype", b"application/epub+zip"),
        ("META-INF/container.xml", container.as_bytes()),
        ("book.opf", opf.as_bytes()),
        ("text/a.xhtml", page.as_bytes()),
        ("img/heron 1.png", &picture),
    ]);
    assert!(has_images(Format::Epub, &file));
    let (given, left_out) = read(Format::Epub, &file);
    let [(head, bytes)] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!(bytes, &picture);
    assert_eq!((&*head.name, &*head.alt, &*head.caption), ("img/heron 1.png", "A heron", "At dawn"));
    assert!(left_out.is_empty(), "{left_out:?}");

    let html =
        "<p>The reed</p><img alt='Dots' src='data:image/gif;base64,R0lGODlhIAAgAA=='><img src='file:///etc/passwd'>";
    assert!(
        has_images(Format::Html, html.as_bytes()) && !has_images(Format::Html, b"<p>The reed</p><img src='a.png'>")
    );
    let (given, left_out) = read(Format::Html, html.as_bytes());
    let [(head, bytes)] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!((bytes.as_slice(), head.mime.as_str(), head.width), (&b"GIF89a \0 \0"[..], "image/gif", Some(32)));
    assert_eq!((&*head.alt, &*head.nearby), ("Dots", "The reed"));
    assert!(left_out.is_empty(), "{left_out:?}");
    let as_xml = format!("<?xml version='1.0'?><html><head><script src='a.js'/></head><body>{html}</body></html>");
    let (given, _) = read(Format::Html, as_xml.as_bytes());
    assert_eq!(given.iter().map(|(head, _)| &*head.alt).collect::<Vec<_>>(), ["Dots"]);
}

#[test]
fn a_document_of_word_gives_its_charts_with_their_titles_and_no_text_of_them() {
    let place = |id: &str, alt: &str| {
        format!(
            r#"<w:r><w:drawing><wp:inline><wp:docPr id="1" descr="{alt}"/><a:graphic><c:chart r:id="{id}"/></a:graphic></wp:inline></w:drawing></w:r>"#
        )
    };
    let one = place("c1", "");
    let body = [
        run("It rained often."),
        paragraph(&format!(
            "<mc:AlternateContent><mc:Choice>{one}</mc:Choice><mc:Fallback>{one}</mc:Fallback></mc:AlternateContent>"
        )),
        paragraph(&place("c2", "Bars")),
        run("Figure 2: What fell in May"),
        paragraph(&place("c3", "Bars of hail")),
        drawing("p1", ""),
        paragraph(&format!("<w:del>{}</w:del>", place("c4", ""))),
    ]
    .concat();
    let main = format!(r#"<w:document xmlns:w="w" xmlns:r="r"><w:body>{body}</w:body></w:document>"#);
    let root = sample::relationships(&[("r1", "officeDocument", "word/main.xml")]);
    let related = sample::relationships(&[
        ("c1", "chart", "charts/chart1.xml"),
        ("c2", "chart", "charts/chart2.xml"),
        ("c3", "chart", "charts/chart3.xml"),
        ("c4", "chart", "charts/chart4.xml"),
        ("p1", "image", "media/mill.png"),
    ]);
    let (titled, untitled, mill) = (chart("Rain"), chart(""), png(64, 64));
    let file = package(&[
        ("_rels/.rels", root.as_bytes()),
        ("word/main.xml", main.as_bytes()),
        ("word/_rels/main.xml.rels", related.as_bytes()),
        ("word/charts/chart1.xml", titled.as_bytes()),
        ("word/charts/chart2.xml", untitled.as_bytes()),
        ("word/charts/chart3.xml", untitled.as_bytes()),
        ("word/charts/chart4.xml", titled.as_bytes()),
        ("word/media/mill.png", &mill),
    ]);
    let given = charts(Format::Docx, &file);
    let told: Vec<_> = given.iter().map(|one| (one.chart, one.title.as_str(), one.page)).collect();
    assert_eq!(told, [(0, "Rain", None), (1, "Figure 2: What fell in May", None), (2, "Bars of hail", None)]);
    assert_eq!(given[0].table.content(""), "| Rain | mm |\n| --- | --- |\n| May | 8 |");
    let (pictures, left_out) = read(Format::Docx, &file);
    assert_eq!((pictures.len(), pictures[0].0.index, left_out.len()), (1, 0, 0));

    let read = crate::extract(Format::Docx, Cursor::new(&file), &Limits::default()).unwrap();
    assert_eq!(read.text, "It rained often.\n\nFigure 2: What fell in May");
    let patterns = probe(Format::Docx, Cursor::new(&file), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasImages) && !patterns.holds(Pattern::HasTables));
}

#[test]
fn slides_and_sheets_give_their_charts_with_their_numbers() {
    let frame = r#"<p:graphicFrame><p:cNvPr id="4" descr="Bars"/><a:graphic><a:graphicData><c:chart r:id="r5"/></a:graphicData></a:graphic></p:graphicFrame>"#;
    let slide = format!(r#"<p:sld xmlns:p="p"><p:cSld><p:spTree>{frame}</p:spTree></p:cSld></p:sld>"#);
    let main = r#"<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="256" r:id="s1"/><p:sldId id="257" r:id="s2"/></p:sldIdLst></p:presentation>"#;
    let slides = sample::relationships(&[("s1", "slide", "slides/one.xml"), ("s2", "slide", "slides/two.xml")]);
    let root = sample::relationships(&[("r1", "officeDocument", "ppt/main.xml")]);
    let related = sample::relationships(&[("r5", "chart", "../charts/chart1.xml")]);
    let rain = chart("Rain");
    let empty = r#"<p:sld xmlns:p="p"><p:cSld><p:spTree/></p:cSld></p:sld>"#;
    let file = package(&[
        ("_rels/.rels", root.as_bytes()),
        ("ppt/main.xml", main.as_bytes()),
        ("ppt/_rels/main.xml.rels", slides.as_bytes()),
        ("ppt/slides/one.xml", empty.as_bytes()),
        ("ppt/slides/two.xml", slide.as_bytes()),
        ("ppt/slides/_rels/two.xml.rels", related.as_bytes()),
        ("ppt/charts/chart1.xml", rain.as_bytes()),
    ]);
    assert!(has_images(Format::Pptx, &file));
    let given = charts(Format::Pptx, &file);
    let [one] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!((one.name.as_str(), one.title.as_str(), one.page), ("ppt/charts/chart1.xml", "Rain", Some(2)));

    let root = sample::relationships(&[("r1", "officeDocument", "xl/workbook.xml")]);
    let main = r#"<workbook xmlns:r="r"><sheets><sheet name="Plan" sheetId="1" r:id="a"/><sheet name="Drawn" sheetId="2" r:id="b"/></sheets></workbook>"#;
    let sheets =
        sample::relationships(&[("a", "worksheet", "sheets/one.xml"), ("b", "chartsheet", "chartsheets/two.xml")]);
    let to_drawing = sample::relationships(&[("d", "drawing", "../drawings/one.xml")]);
    let drawing = r#"<xdr:wsDr xmlns:xdr="x" xmlns:r="r"><xdr:graphicFrame><xdr:cNvPr id="2" name="Chart 1"/><a:graphic><c:chart r:id="r5"/></a:graphic></xdr:graphicFrame></xdr:wsDr>"#;
    let members: [(&str, &[u8]); 8] = [
        ("_rels/.rels", root.as_bytes()),
        ("xl/workbook.xml", main.as_bytes()),
        ("xl/_rels/workbook.xml.rels", sheets.as_bytes()),
        ("xl/sheets/one.xml", b"<worksheet><sheetData/></worksheet>"),
        ("xl/chartsheets/two.xml", b"<chartsheet/>"),
        ("xl/chartsheets/_rels/two.xml.rels", to_drawing.as_bytes()),
        ("xl/drawings/one.xml", drawing.as_bytes()),
        ("xl/drawings/_rels/one.xml.rels", related.as_bytes()),
    ];
    let with = |chart: &'static str| [&members[..], &[(chart, rain.as_bytes())][..]].concat();
    let file = package(&with("xl/charts/chart1.xml"));
    assert!(has_images(Format::Xlsx, &file));
    let given = charts(Format::Xlsx, &file);
    let [one] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!((one.title.as_str(), one.page), ("Rain", Some(2)));
    assert_eq!(one.table.rows, [["Rain", "mm"], ["May", "8"]]);
    assert!(!has_images(Format::Xlsx, &package(&with("xl/charts/chartEx1.xml"))));
}

#[test]
fn a_format_without_pictures_says_so() {
    let error = read_within(Format::Csv, b"a,b", &Limits::default()).unwrap_err();
    assert_eq!(error.code(), "unsupported");
    let with: Vec<Format> = Format::ALL.into_iter().filter(|format| format.has_images()).collect();
    assert_eq!(with.len(), 9, "{with:?}");
}
