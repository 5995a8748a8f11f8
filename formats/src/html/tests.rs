use super::*;
use crate::{Format, Limit, detect, markup, sections};
use std::io::Cursor;

fn of(html: impl AsRef<[u8]>) -> Extraction {
    extract(Cursor::new(html.as_ref()), &Limits::default()).unwrap()
}

fn headings(read: &Extraction) -> Vec<(u8, &str)> {
    read.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect()
}

/// A report as a program writes it: sections of which no one is the main one, tables, code, and much that is no content.
const REPORT: &str = include_str!("../../tests/files/orchard-report.html");

#[test]
fn a_file_keeps_all_of_its_content_and_nothing_else() {
    let read = of(REPORT);
    for kept in [
        "Orchard report",
        "the harvest of plums fell by 12 crates",
        "[orchard manual](manual.html#map)",
        "| Orchard | Crates | Picked by |",
        "| North | 84 | A. Miller |",
        "- Prune the pears.\n- Mend the ladder.",
        "read_crates(orchard_id)",
        "snake_case and 3 * 4 < 13",
        "Größe, žluťoučký, 水位",
        "Two goats under the plums",
        "the last word of the report",
    ] {
        assert!(read.text.contains(kept), "{kept}: {}", read.text);
    }
    for gone in
        ["Home", "trackVisit", "color:", "base64", "javascript", "Search", "cookies", "Secret draft", "<td", "&amp;"]
    {
        assert!(!read.text.contains(gone), "{gone}: {}", read.text);
    }
    assert_eq!(
        headings(&read),
        [(1, "Orchard report"), (2, "Harvest"), (3, "How it is counted"), (2, "What to do"), (2, "Remarks")]
    );
    assert_eq!(read.headings_from.as_deref(), Some("html"));
    assert_eq!((&read.facts["title"], &read.facts["lang"]), (&"Orchard report 2026".into(), &"en".into()));
    assert_eq!(sections(&read).len(), 5);
}

#[test]
fn what_people_see_as_lines_of_their_own_does_not_run_together() {
    let read = of(
        "<p>start</p><dl><dt>one</dt><dd>two</dd><dt>three</dt></dl><figure><img src='a.png' alt='x'><figcaption>four</figcaption>\
        </figure><form><fieldset><legend>five</legend><label>six</label><label>seven</label></fieldset></form><address>eight</address>\
        <details><summary>nine</summary>ten</details><center>eleven</center><menu><li>twelve<li>thirteen</menu>\
        <table><caption>The name</caption><tr><th>a<th>b<tr><td>c<td>d</table>",
    );
    let lines: Vec<&str> = read.text.lines().map(|line| line.trim_start_matches("- ").trim()).collect();
    for line in [
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
        "The name",
    ] {
        assert!(lines.contains(&line), "{line}: {}", read.text);
    }
    assert!(read.text.contains("| c | d |"), "{}", read.text);
}

#[test]
fn cells_that_span_others_and_tables_within_tables_keep_their_words_apart() {
    let read = of(
        "<p>start</p><table><tr><th rowspan=2>Pond<th colspan=2>Ducks<tr><th>spring<th>autumn<tr><td rowspan=2>Mill<td>12<td>14<tr>\
        <td>13<td>15<tr></tr></table>",
    );
    let expected = "| Pond | Ducks |  |\n";
    assert!(read.text.contains(expected), "{}", read.text);
    for row in ["|  | spring | autumn |", "| Mill | 12 | 14 |", "|  | 13 | 15 |"] {
        assert!(read.text.contains(row), "{row}: {}", read.text);
    }
    let layout = of("<p>start</p><table><tr><td>left<td><table><tr><th>a<th>b<tr><td>c<td>d</table><td>right</table>");
    let lines: Vec<&str> = layout.text.lines().collect();
    for line in ["left", "| a | b |", "| c | d |", "right"] {
        assert!(lines.contains(&line), "{line}: {}", layout.text);
    }
    // However deep they are, and however many.
    let inner = format!("{}{}", "<div>".repeat(50), "<table><tr><td>e<td>f</table>".repeat(50));
    let deep = of(format!("<p>start</p><table><tr><td>left<td>{inner}{}<td>right</table>", "</div>".repeat(50)));
    assert_eq!(deep.text.matches("| e | f |").count(), 50, "{}", deep.text);
    assert!(deep.text.lines().any(|line| line == "right"), "{}", deep.text);
}

#[test]
fn a_piece_of_a_page_shows_what_is_in_it_whatever_it_begins_with() {
    for (html, shown) in [
        ("<p>The <b>heron</b>.</p>", "The **heron**."),
        ("<nav>Ponds</nav>", "Ponds"),
        ("<footer>The end</footer>", "The end"),
        ("<p>Counted</p><nav>Ponds</nav>", "Counted"),
        ("<p></p>", ""),
    ] {
        assert_eq!(piece(html).as_deref(), Some(shown), "{html}");
    }
    // Rows without their table.
    let rows = piece("<tr><td>Mill</td><td>12</td></tr><tr><td>Quay</td><td>3</td></tr>").unwrap();
    assert!(rows.contains("| Mill | 12 |\n| Quay | 3 |"), "{rows}");
    assert_eq!(piece(&format!("{}x{}", "<div>".repeat(600), "</div>".repeat(600))), None);
}

#[test]
fn what_is_escaped_stays_so_at_the_beginning_of_a_line_alone() {
    let text = format!("\\_\\_ a\\_b{}\n\n\\*c\\_d\n\n\\[\\]\\[", "\\_".repeat(50_000));
    let expected = format!("\\_\\_ a_b{}\n\n\\*c_d\n\n\\[\\]\\[", "_".repeat(50_000));
    assert!(without_escapes(&text) == expected);
}

#[test]
fn the_title_is_a_heading_where_the_content_does_not_show_it() {
    let read = of("<title>Heron counts</title><p>Seventy-two birds were counted at the mill.</p>");
    assert_eq!(headings(&read), [(1, "Heron counts")]);
    assert!(read.text.ends_with("counted at the mill."), "{}", read.text);
    for empty in ["<html></html>", "<title>Only a title</title>", "<html><script>x()</script>", "<!doctype html>"] {
        assert_eq!(of(empty).text, "", "{empty}");
    }
}

#[test]
fn markup_is_almost_nothing_of_what_is_read() {
    let (before, after) = (markup::share(REPORT), markup::share(&of(REPORT).text));
    println!("share of markup: {before:.3} of the file, {after:.4} of its text");
    assert!(before > 0.3 && after < 0.02, "{before} {after}");
}

#[test]
fn a_page_is_detected_in_every_encoding() {
    let page = "<!DOCTYPE html>\n<html><body><p>Größe 水位</p></body></html>";
    let wide: Vec<u8> = format!("\u{FEFF}{page}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin = b"<html><meta charset=windows-1252><p>Gr\xF6\xDFe</p>".to_vec();
    for (bytes, text) in [(page.as_bytes().to_vec(), "Größe 水位"), (wide, "Größe 水位"), (latin, "Größe")] {
        assert_eq!(detect(&mut Cursor::new(&bytes)).unwrap().format, Some(Format::Html));
        assert_eq!(of(&bytes).text, text);
    }
}

#[test]
fn a_page_that_calls_itself_two_bytes_wide_is_read_as_the_bytes_that_it_is() {
    for label in ["unicode", "ucs-2", "utf-16", "UTF-16LE", "unicodeFFFE"] {
        let head =
            format!("<html><meta http-equiv=\"Content-Type\" content=\"text/html; charset={label}\"><p>The herons ");
        let read = of(format!("{head}wait in the w\u{e4}ter.</p>"));
        assert_eq!(
            (read.text.as_str(), read.charset.as_deref()),
            ("The herons wait in the w\u{e4}ter.", Some("UTF-8"))
        );
        let latin = [head.as_bytes(), &b"wait f\xFCr die Gr\xF6\xDFe.</p>"[..]].concat();
        assert_eq!(of(latin).text, "The herons wait für die Größe.", "{label}");
    }
}

#[test]
fn hostile_pages_are_read_or_refused_by_name() {
    let deep = format!("<html>{}text{}", "<div>".repeat(3_000), "</div>".repeat(3_000));
    let wide = format!("<html><p a='{}'>text</p>", "x".repeat(4 << 20));
    let entities = format!("<html><p>{}</p>", "&lt;&#x0;&bogus;".repeat(50_000));
    let tables = format!("<html>{}", "<table><tr><td>cell".repeat(400));
    let cells = "<html><table><tr><td colspan=1000000 rowspan=1000000>text</table>".to_owned();
    let unclosed = format!("<html><b>{}", "<i><p>x".repeat(1_000));
    for page in [deep, wide, entities, tables, cells, unclosed, "<html>\0<p>te\0xt\0</p>".to_owned()] {
        let read = of(&page);
        assert!(!read.text.contains('\0') && read.text.len() <= page.len() + 100, "{:.100}", page);
    }
    let limits = Limits { text_bytes: 100, ..Limits::default() };
    let error = extract(Cursor::new(REPORT), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::TextBytes));
}

#[test]
fn a_formula_within_many_others_is_not_walked_through_for_each_of_them() {
    let page = format!("<html><p>A {}{}", "<math><mtext>".repeat(1_000), "<b>x</b>".repeat(5_000));
    let before = formulas::WALKED.get();
    assert_eq!(of(page).text.matches('x').count(), 5_000);
    // A page is opened for its text and for its facts.
    let walked = formulas::WALKED.get() - before;
    assert!((5_000..100_000).contains(&walked), "{walked}");
}

#[test]
fn an_address_that_runs_something_leads_nowhere_and_its_words_stay() {
    for address in [
        "javascript:alert(1)",
        " \n java\tscript:alert(1)",
        "JAVASCRIPT&colon;alert(1)",
        "&#1;javascript:alert(1)",
        "vbscript:x",
        "data:text/html,x",
        "file:///etc/passwd",
    ] {
        let read = of(format!(
            "<html><body><p>See <a href=\"{address}\">the words</a> <img alt=picture src=\"{address}\"> here.</p></body></html>"
        ));
        assert_eq!(read.text, "See the words here.", "{address}");
    }
    for address in ["a.html", "#map", "?q=a:b", "//e.org/x", "https://e.org/a:b", "mailto:a@e.org", "tel:1"] {
        let read = of(format!("<html><body><p>See <a href=\"{address}\">the words</a>.</p></body></html>"));
        assert_eq!(read.text, format!("See [the words]({address})."), "{address}");
    }
}

#[test]
fn what_a_style_hides_is_not_read() {
    for style in [
        "DISPLAY : NONE",
        "color:red; display:none !important",
        "visibility:hidden",
        "font-size:0",
        "font-size: 0.0px;",
        "opacity:0",
    ] {
        let read = of(format!("<html><body><p>Seen</p><p style=\"{style}\">Hidden</p></body></html>"));
        assert_eq!(read.text, "Seen", "{style}");
    }
    for style in ["display:block", "font-size:0.8em", "opacity:0.5", "visibility:visible"] {
        let read = of(format!("<html><body><p>Seen</p><p style=\"{style}\">too</p></body></html>"));
        assert_eq!(read.text, "Seen\n\ntoo", "{style}");
    }
    for style in ["visibility:hidden", "opacity:0"] {
        let read = of(format!("<html><body style=\"{style}\" onload=\"show()\"><p>Seen</p></body></html>"));
        assert_eq!(read.text, "Seen", "{style}");
    }
    let formula = "<math><semantics><mi>x</mi><annotation encoding=tex>\\alpha</annotation></semantics></math>";
    assert!(!of(format!("<html><body><p>A {formula}</p></body></html>")).text.contains("alpha"));
}

#[test]
fn a_text_with_a_size_of_its_own_is_read_in_a_cell_without_one() {
    let cell = "<td style=\"font-size:0px;padding:10px 25px\"><div style=\"font-family:Ubuntu;font-size:13px\">Your order 4711</div></td>";
    let read = of(format!(
        "<html><body><table><tr>{cell}</tr></table><p style=\"font-size:0\">Hidden <b style=\"font-size: 0\">too</b></p></body></html>"
    ));
    assert!(read.text.contains("Your order 4711") && !read.text.contains("Hidden"), "{}", read.text);
}

#[test]
fn a_button_in_a_heading_is_the_heading() {
    let read = of(
        "<html><body><h2><button>How do I return it?</button></h2><div>Within 30 days.</div><button>Buy</button></body></html>",
    );
    assert_eq!(read.text, "## How do I return it?\n\nWithin 30 days.");
}

#[test]
fn a_file_is_more_than_its_main_part() {
    let words = "word ".repeat(100);
    let read = of(format!(
        "<html><body><header><h1>Safety notice 14</h1><p>Valid from 1 March.</p></header><main><p>{words}</p></main><section>Annex: {words}</section></body></html>"
    ));
    assert!(read.text.contains("Safety notice 14") && read.text.contains("Annex"), "{}", read.text);
}

#[test]
fn what_ends_where_it_begins_has_an_end_in_a_page_of_xml() {
    for (xml, expected) in [
        ("<head><title/></head><body>x</body>", "<head><title></title></head><body>x</body>"),
        ("<script src=\"a>b.js\" /><br/>", "<script src=\"a>b.js\" ></script><br/>"),
        ("<title>a</title><titlepage/>", "<title>a</title><titlepage></titlepage>"),
        ("<p><object data=\"a/b\"/></p>", "<p><object data=\"a/b\"></object></p>"),
        ("<epub:case id='1'/><IMG src=\"a\"/>", "<epub:case id='1'></epub:case><IMG src=\"a\"/>"),
        ("<?a b=\"/\"?><!--/>-->", "<?a b=\"/\"?><!--/>-->"),
        ("<title", "<title"),
        ("<title '\"<title/>", "<title '\"<title></title>"),
        ("ä<style/>ö<", "ä<style></style>ö<"),
    ] {
        assert_eq!(with_ends(xml), expected);
    }
    for hostile in ["<title", "<title \"'", "<title a='"] {
        let long = hostile.repeat(500_000);
        assert_eq!(with_ends(&long), long);
    }
}

#[test]
fn a_page_that_would_take_too_long_is_refused_at_once() {
    let deep = format!("<html><body>{}x", "<div>".repeat(200_000));
    let wide = format!("<html><body><p {}>x</p>", (0..100_000).map(|at| format!("a{at}=1 ")).collect::<String>());
    // An end tag without a start tag makes nothing less deep.
    let unmatched = format!("<html><body>{}x", "<div></q>".repeat(200_000));
    // A table in a cell is four levels deeper, although pages leave rows and cells open.
    let cells = format!("<html><body>{}x", "<table><tr><td>".repeat(2_501));
    for (page, says) in
        [(deep, "10000 deep"), (unmatched, "10000 deep"), (cells, "10000 deep"), (wide, "5000 attributes")]
    {
        let refused = extract(Cursor::new(page), &Limits::default()).unwrap_err();
        assert!(refused.code() == "unsupported" && refused.to_string().contains(says), "{refused}");
    }
    // What is open without an end, or in a program, is not deep.
    let flat = format!(
        "<html><body>{}<script>{}</script><ul>{}</ul><p>end</p>",
        "<p>a<br>".repeat(20_000),
        "if (a<b && c<d) {}\n".repeat(20_000),
        "<li>b".repeat(20_000)
    );
    assert!(of(flat).text.ends_with("end"));
}

#[test]
fn a_target_of_links_takes_nothing_away_before_it() {
    let read = of("<p>One</p><p><a name='x'></a>Two</p><h2><a id='s'></a>Heading</h2><p>See <a name='q'></a>below</p>\
        <ul><li><a name='i'></a>Item one</li></ul><table><tr><td>a<td>b<tr><td><a name='c'>x<br>y</a><td>z</table>");
    assert_eq!(
        read.text.split("\n\n").take(5).collect::<Vec<_>>(),
        ["One", "Two", "## Heading", "See below", "- Item one"],
        "{}",
        read.text
    );
    assert_eq!(headings(&read), [(2, "Heading")]);
    assert!(read.text.contains("| x y"), "{}", read.text);
}

#[test]
fn what_is_in_a_link_is_as_it_is_outside() {
    let read = of(
        "<ul><li><a href='/p/1'><h3>Night train</h3><span>Vienna</span></a></li></ul><p><a href='tel:1'>Call us<br>0800 123</a></p>\
        <h1>Annual<br>Report 2025</h1><a href='/q'><div><p>One</p><p>Two</p></div></a><a href='/r'><div><img src='a.png' alt='A cat'></div></a>",
    );
    assert_eq!(headings(&read), [(3, "Night train"), (1, "Annual Report 2025")], "{}", read.text);
    for shown in ["[Call us 0800 123](tel:1)", "[Night train](/p/1)", "[One](/q)\n\nTwo"] {
        assert!(read.text.contains(shown), "{shown}: {}", read.text);
    }
    assert!(!read.text.contains("trainVienna") && read.text.contains("Vienna") && read.text.contains("A cat"));
    // What shows nothing is no place for a link, and a row of a table has no words of its own.
    let read = of(
        "<a href='/x'><table><tr><td>Date</td><td>12 May</td></tr><tr><td>Place</td><td>Vienna</td></tr></table></a>\
        <a href='/y'><div><img src='a.png' alt=''></div><div>Title words</div></a><a href='/z'><dl><dt>Term</dt><dd>Meaning</dd></dl></a>\
        <h2><a href='/h'><div>Annual</div><div>report</div></a></h2>",
    );
    for shown in ["[Date](/x)", "12 May", "Place", "Vienna", "[Title words](/y)", "[Term](/z)", "Meaning"] {
        assert!(read.text.contains(shown), "{shown}: {}", read.text);
    }
    assert_eq!(headings(&read), [(2, "Annual report")], "{}", read.text);
}

#[test]
fn lines_of_code_stay_lines_whatever_ends_them() {
    for code in [
        "<span><span>npm init</span><br></span><span>cd <b>site</b><br></span>",
        "<div>npm init</div><div>cd site</div>",
        "<ol><li>npm init\n</li><li>cd site</li></ol>",
    ] {
        let read = of(format!("<p>Type this.</p><pre><code>{code}</code></pre>"));
        assert!(read.text.contains("npm init\ncd site\n"), "{code}: {}", read.text);
    }
}

#[test]
fn the_lines_of_a_cell_are_words_apart_and_what_lays_out_a_page_is_no_table() {
    let read = of(
        "<table><tr><th><h3>Plan</h3></th><th><h3>Price</h3><h4>in euros</h4></th></tr><tr><td>Basic</td><td>10 €<br>per month</td></tr>\
        <tr><td>More</td><td><p>20 €</p><p>per month</p></td></tr></table>",
    );
    for row in ["| Plan | Price in euros |", "| Basic | 10 € per month |", "| More | 20 € per month |"] {
        assert!(read.text.contains(row), "{row}: {}", read.text);
    }
    assert!(headings(&read).is_empty());
    let read = of("<table><tr><td><h2>Opening hours</h2><p>Mon to Fri</p></td></tr></table>\
        <table><tr><td><pre>one\ntwo</pre></td><td>three</td></tr></table>");
    assert_eq!(headings(&read), [(2, "Opening hours")]);
    assert!(read.text.contains("Mon to Fri") && read.text.contains("one\ntwo\n"), "{}", read.text);
    // What a page says of tags is no break.
    assert!(of("<p>Write a &lt;br&gt; there.</p>").text.contains("Write a <br> there."));
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let read = of(
        "<p>5 × 10<sup>6</sup> in 2019<sup><a href='#n'>3</a></sup>, 10<sup>−3</sup>, H<sub>2</sub>O, m<sup>2</sup>, 1<sup>st</sup>, 2020<sup>3, 4</sup></p>",
    );
    assert_eq!(read.text, "5 × 10^6 in 2019^[3](#n), 10^−3, H2O, m2, 1st, 2020^3, 4");
}

#[test]
fn a_formula_says_its_numbers() {
    let fraction = "<mfrac><mn>3</mn><mn>4</mn></mfrac>";
    let power = "<msup><mi>x</mi><mn>12</mn></msup>";
    let read = of(format!(
        "<p>It costs <math><msup><mn>10</mn><mn>6</mn></msup></math> and <math display='block'>{fraction}</math> of <math>{power}</math>.</p>\
         <p>In <math><semantics><mrow>{fraction}{power}</mrow><annotation encoding='application/x-tex'>frac34</annotation></semantics></math> \
         and <math alttext='two pi'></math> of <math><msub><mi>x</mi><mn>1</mn></msub></math>.</p>"
    ));
    assert_eq!(read.text, "It costs 10^6 and 3/4 of x^12.\n\nIn 3/4 x^12 and two pi of x_1.");
    let read = of(format!(
        "<p>2<math>{fraction}</math>4 of x<math><mi>y</mi></math>, <math><mn>10</mn></math><sup>6</sup>.</p>"
    ));
    assert_eq!(read.text, "2 3/4 4 of xy, 10^6.");
    // Pages that are written as XML give the elements of formulas a prefix.
    let prefixed = |prefix: &str| {
        let elements = "<P:math><P:mfrac><P:mn>1</P:mn><P:mrow><P:mspace/><P:mn>2</P:mn></P:mrow></P:mfrac></P:math>";
        format!("<p>Half is {}, or less.</p>", elements.replace("P:", prefix))
    };
    let page = format!("<?xml version='1.0'?><html><body>{}{}</body></html>", prefixed("m:"), prefixed("mml:"));
    assert_eq!(of(&page).text, "Half is 1/2, or less.\n\nHalf is 1/2, or less.");
    let page = Source::of_text(&page).of_xml().body(&Limits::default()).unwrap();
    assert_eq!(page.text, "Half is 1/2, or less.\n\nHalf is 1/2, or less.");
}

#[test]
fn how_a_word_is_said_is_not_read_into_it_and_the_notes_of_a_book_are_read() {
    let read = of(
        "<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby></p><aside epub:type='footnote'><p>1. A note.</p></aside>",
    );
    assert_eq!(read.text, "漢字\n\n1\\. A note.");
}

/// As programs save pages with their pictures.
#[test]
fn a_page_that_was_saved_whole_is_read_as_the_message_that_it_is() {
    let saved = "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=\"b\"\n\n--b\nContent-Type: text/html; charset=\"utf-8\"\n\
        Content-Transfer-Encoding: quoted-printable\n\n<p>Gr=C3=BCn und lan=\ng</p>\n--b--\n";
    assert_eq!(detect(&mut Cursor::new(saved)).unwrap().format, Some(Format::Eml));
    let read = crate::extract(Format::Eml, Cursor::new(saved), &Limits::default()).unwrap();
    assert!(read.text.contains("Grün und lang"), "{}", read.text);
}
