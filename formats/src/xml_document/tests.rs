use super::*;
use crate::{Limit, detect, sections};
use proptest::prelude::*;
use std::io::Cursor;

const GUIDE: &[u8] = include_bytes!("../../tests/files/pond-guide.xml");

fn of(xml: impl AsRef<[u8]>) -> Extraction {
    extract(Cursor::new(xml.as_ref()), &Limits::default()).unwrap()
}

fn detected(bytes: impl AsRef<[u8]>) -> Option<Format> {
    detect(&mut Cursor::new(bytes.as_ref())).unwrap().format
}

#[test]
fn a_book_reads_as_one() {
    assert_eq!(detected(GUIDE), Some(Format::Xml));
    let read = of(GUIDE);
    let expected = "# Guide to the mill pond\n\nbookinfo.author.surname: Onym\n\n\
        ## Birds of the upper weir\n\n\
        The heron fishes at the weir & sleeps in the café garden. &lol2;\n\n\
        ### Nests\n\nTwo kinds of nests are known:\n\n\
        - nests in reed\n- nests in trees\n  - of pear\n\n\
        and H2O is near.\n\nCounts of spring\n\n\
        | Bird | Number |\n| --- | --- |\n| Grebe | 31 |\n\n\
        \\# count\ncount(grebe)\n\n\
        ## Boats\n\n\\- Rowing boats only.";
    assert_eq!(read.text, expected);
    let levels: Vec<_> = read.headings.iter().map(|heading| heading.level).collect();
    assert_eq!((levels, read.headings_from.as_deref()), (vec![1, 2, 3, 2], Some("xml")));
    assert_eq!((sections(&read).len(), read.charset.as_deref()), (4, Some("windows-1252")));
}

#[test]
fn an_article_of_a_journal_has_its_title_and_its_references() {
    let read = of("<article><front><article-meta><title-group><article-title>Grebes</article-title></title-group>\
        <abstract><p>They dive.</p></abstract></article-meta></front><body><sec id='s1'><title>Methods</title>\
        <p>We counted <xref ref-type='bibr' rid='b1'>[1]</xref>.</p></sec></body><back><ref-list><ref id='b1'>\
        <element-citation><article-title>Old grebes</article-title><year>1998</year></element-citation></ref></ref-list></back></article>");
    assert_eq!(read.text, "# Grebes\n\nThey dive.\n\n## Methods\n\nWe counted [1].\n\nOld grebes 1998");
}

#[test]
fn the_sheets_of_an_exported_workbook_are_tables_under_their_names() {
    let cell =
        |attributes: &str, text: &str| format!("<Cell{attributes}><Data ss:Type=\"String\">{text}</Data></Cell>\n");
    let rows = [
        format!("<Row>\n{}{}{}</Row>", cell(" ss:StyleID=\"s1\"", "Pond"), cell("", "Ducks"), cell("", "Note")),
        format!("<Row>{}{}</Row>", cell(" ss:MergeAcross=\"1\"", "Weir"), cell("", "closed | dry")),
        format!("<Row ss:Index=\"7\">{}<Cell/></Row>", cell(" ss:Index=\"2\"", "72")),
    ];
    let workbook = format!(
        "<?xml version=\"1.0\"?>\n<?mso-application progid=\"Excel.Sheet\"?>\n\
         <Workbook xmlns=\"urn:schemas-microsoft-com:office:spreadsheet\" xmlns:ss=\"urn:schemas-microsoft-com:office:spreadsheet\">\n\
         <DocumentProperties><Author>Somebody</Author></DocumentProperties>\n\
         <Styles><Style ss:ID=\"s1\"><Font ss:FontName=\"Calibri\"/></Style></Styles>\n\
         <Worksheet ss:Name=\"Ponds\"><Table ss:ExpandedColumnCount=\"3\"><Column ss:Width=\"60\"/>\n{}\n</Table>\n\
         <WorksheetOptions><Print><Scale>61</Scale></Print></WorksheetOptions></Worksheet>\n\
         <Worksheet ss:Name=\"Boats\"><Table><Row>{}</Row></Table></Worksheet></Workbook>",
        rows.join("\n"),
        cell("", "Heron")
    );
    assert_eq!(detected(&workbook), Some(Format::Xml));
    let read = of(&workbook);
    let expected = "# Ponds\n\n| Pond | Ducks | Note |\n| --- | --- | --- |\n| Weir |  | closed \\| dry |\n|  | 72 |  |\n\n\
        # Boats\n\n| Heron |\n| --- |";
    assert_eq!(read.text, expected);
    assert_eq!(read.headings.iter().map(|heading| heading.title.as_str()).collect::<Vec<_>>(), ["Ponds", "Boats"]);
    // Places far to the right are bounded, as all text is.
    let far = format!("<Row>{}</Row>", cell(" ss:Index=\"16384\"", "x")).repeat(100);
    let far = workbook.replace(&rows[2], &far);
    let limits = Limits { text_bytes: 1_000_000, ..Limits::default() };
    assert_eq!(extract(Cursor::new(far), &limits).unwrap_err().limit(), Some(Limit::TextBytes));
    // Another program's workbook is data.
    let other = of("<workbook><worksheet name='w'><table><view name='v'>8</view></table></worksheet></workbook>");
    assert!(!other.text.contains("# "), "{}", other.text);
}

#[test]
fn data_is_values_under_the_names_of_their_elements() {
    let read = of("<orders xmlns:x='urn:x'><shop><name>Mill</name></shop>\
        <order id='17'><customer><Name>Ada</Name></customer><tag>old</tag><tag>new</tag><sum currency='EUR'>1.50</sum></order>\
        <order id='18'><customer><Name>Bea</Name></customer></order></orders>");
    let expected = "shop.name: Mill\n\norder\nid: 17; customer.Name: Ada; tag: old, new; sum: 1.50; sum.currency: EUR\n\n\
        order\nid: 18; customer.Name: Bea";
    assert_eq!(read.text, expected);
    let settings =
        of("<resources><string name='greeting'>Good day</string><string name='farewell'>Bye</string></resources>");
    assert_eq!(settings.text, "greeting: Good day; farewell: Bye");
    let dump = of("<a><table><row>x<td>y</td></row></table></a>");
    assert_eq!(dump.text, "| x | y |\n| --- | --- |");
    let long = of(format!("<a><b><c>{}</c></b></a>", "heron ".repeat(100)));
    assert!(long.text.starts_with("b.c:\nheron heron"), "{}", long.text);
}

#[test]
fn feeds_and_drawings_are_sensible() {
    let read = of("<rss version='2.0'><channel><title>Pond news</title><item><title>Heron back</title>\
        <link>https://example.org/1</link><description>&lt;p&gt;It &lt;b&gt;fishes&lt;/b&gt; again.&lt;/p&gt;</description></item>\
        <item><title>Ice</title><description>No boats.</description></item></channel></rss>");
    let expected = "# Pond news\n\n## Heron back\n\nchannel.item\nlink: https://example.org/1\n\nIt **fishes** again.\n\n\
        ## Ice\n\nchannel.item\ndescription: No boats.";
    assert_eq!(read.text, expected);
    let drawing =
        of("<svg xmlns='http://www.w3.org/2000/svg' width='9'><title>Map</title><style>a{}</style><g><path d='M0 0'/>\
        <text x='1'><tspan>Mill</tspan> pond</text></g></svg>");
    assert_eq!(drawing.text, "# Map\n\nMill pond");
}

#[test]
fn entities_are_never_expanded_and_encoded_bytes_left_out() {
    let laughs: String =
        (1..20).map(|level| format!("<!ENTITY l{level} '{}'>", format!("&l{};", level - 1).repeat(10))).collect();
    let read = of(format!(
        "<!DOCTYPE a [<!ENTITY l0 'lol'>{laughs}<!ENTITY f SYSTEM 'file:///etc/passwd'>]><a><p>&l19; &f; &#65;</p></a>"
    ));
    assert_eq!(read.text, "&l19; &f; A");
    assert_eq!(of(format!("<a><b>x</b><c>{}</c></a>", "QUFB".repeat(200))).text, "b: x");
}

#[test]
fn what_is_damaged_or_too_much_is_refused_by_name() {
    for damaged in ["<?xml version='1.0'?><a><b></a>", "<a>", "<a b=>x</a", "<?xml version='1.0'?><a>\u{1}</b>"] {
        assert_eq!(extract(Cursor::new(damaged), &Limits::default()).unwrap_err().code(), "corrupt", "{damaged}");
    }
    let component = "<App name={x}>\n  <Nav/><Body a='1'>{rest}\n</App>";
    assert_eq!(detected(component), Some(Format::Xml));
    let patterns = probe(Cursor::new(component), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasMarkup) && !patterns.holds(Pattern::HasTextLayer), "{patterns:?}");
    assert!(probe(Cursor::new("<?xml version='1.0'?><a><b></a>"), &Limits::default()).is_err());
    let deep = format!("{}{}", "<a>".repeat(300), "</a>".repeat(300));
    assert_eq!(extract(Cursor::new(deep), &Limits::default()).unwrap_err().limit(), Some(Limit::XmlDepth));
    let limits = Limits { text_bytes: 200, ..Limits::default() };
    assert_eq!(extract(Cursor::new(GUIDE), &limits).unwrap_err().limit(), Some(Limit::TextBytes));
    let titles = "<s><title>x</title></s>".repeat(5000);
    assert_eq!(of(format!("<a>{titles}</a>")).headings.len(), 2000);
}

#[test]
fn every_encoding_is_read() {
    let text = "<?xml version='1.0'?><a><b>Żaneta</b></a>";
    let wide: Vec<u8> = format!("\u{FEFF}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let declared = b"<?xml version='1.0' encoding='windows-1250'?><a><b>\xAFaneta</b></a>".to_vec();
    for bytes in [text.as_bytes().to_vec(), wide, declared] {
        assert_eq!(detected(&bytes), Some(Format::Xml));
        assert_eq!(of(&bytes).text, "b: Żaneta");
    }
    // Nothing but the declaration tells this byte from that of another encoding.
    assert_eq!(of(b"<?xml version='1.0' encoding=\"KOI8-R\"?><a><b>\xC1</b></a>").text, "b: а");
}

#[test]
fn notes_stand_in_brackets_where_they_belong() {
    let read = of(
        "<article><title>Pond</title><para>The heron<footnote><para>It is grey.</para></footnote> waits<note/>.</para>\
        <para>So does the egret <note>a white one</note>, and fishes.</para></article>",
    );
    let expected = "# Pond\n\nThe heron (It is grey.) waits.\n\nSo does the egret (a white one), and fishes.";
    assert_eq!(read.text, expected);
    let listed = of(
        "<article><title>Pond</title><para>The heron<footnote><para>It eats</para><itemizedlist><listitem><para>fish</para>\
        </listitem></itemizedlist></footnote> waits.</para></article>",
    );
    assert_eq!(listed.text, "# Pond\n\nThe heron (It eats\n\n- fish\n\nwaits.");
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let read = of(
        "<article><p>10<sup>6</sup> in 2019<sup><xref>3</xref></sup>, m<sup>2</sup>, 10<sup>&#8722;3</sup>, 1<sup>st</sup>, \
        2020<sup><xref>3</xref>,<xref>4</xref></sup></p>\
        <para>In 1998<superscript>4</superscript></para></article>",
    );
    assert_eq!(read.text, "10^6 in 2019^3, m2, 10^−3, 1st, 2020^3,4\n\nIn 1998^4");
}

#[test]
fn a_formula_is_said_once_and_says_its_numbers() {
    let half = "<mml:math><mml:mfrac><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:mfrac></mml:math>";
    let tex = "<tex-math>\\frac{1}{2}</tex-math>";
    let read = of(format!(
        "<article><p>It was <inline-formula><alternatives>{tex}{half}</alternatives></inline-formula> of all.</p>\
        <sec><disp-formula><label>(1)</label><alternatives>{half}{tex}</alternatives></disp-formula></sec>\
        <p>Of {half}, <inline-formula>{tex}</inline-formula> is the rest.</p></article>"
    ));
    assert_eq!(read.text, "It was 1/2 of all.\n\n(1) 1/2\n\nOf 1/2, \\frac{1}{2} is the rest.");
    let beside = of(format!("<article><p>2{half}4 of <math><mn>10</mn></math><sup>6</sup></p></article>"));
    assert_eq!(beside.text, "2 1/2 4 of 10^6");
    // The names of data are their own.
    assert_eq!(of("<marks><math>2</math><art>3</art></marks>").text, "math: 2; art: 3");
}

#[test]
fn a_formula_on_lines_of_its_own_is_a_paragraph() {
    let half = "<m:math><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math>";
    let book = of(format!(
        "<book><title>Ponds</title><para>Half of<informalequation>{half}</informalequation>is water.</para>\
        <equation><title>Share</title><mediaobject>{half}</mediaobject></equation><informalequation>{half}</informalequation>\
        <itemizedlist><listitem><para>So<informalequation>{half}</informalequation>it is.</para></listitem></itemizedlist></book>"
    ));
    assert_eq!(book.text, "# Ponds\n\nHalf of\n\n1/2\n\nis water.\n\nShare 1/2\n\n1/2\n\n- So 1/2 it is.");
    let text =
        of(format!("<TEI><p>Of <formula>{half}</formula>.</p><formula notation='mathml'>{half}</formula></TEI>"));
    assert_eq!(text.text, "Of 1/2.\n\n1/2");
    let article = of(format!(
        "<article><ce:para>As<ce:display><ce:formula><ce:label>(1)</ce:label>{half}</ce:formula></ce:display>says.</ce:para>\
        <p>Or<disp-formula>{half}</disp-formula>of it.</p></article>"
    ));
    assert_eq!(article.text, "As\n\n(1) 1/2\n\nsays.\n\nOr\n\n1/2\n\nof it.");
    // The formulas of substances are data.
    let data = of("<list><water><formula>H2O</formula><name>water</name></water><p>It is wet.</p></list>");
    assert_eq!(data.text, "water.formula: H2O; water.name: water\n\nIt is wet.");
}

#[test]
fn values_are_read_under_their_names_however_many_names_there_are() {
    let values: Vec<String> = (0..12_000).map(|at| format!("<Value{at}>{at}</Value{at}>")).collect();
    let read = of(format!("<a>{}<Value3>again</Value3></a>", values.concat()));
    for shown in ["Value3: 3;", "Value11999: 11999", "Value3: again"] {
        assert!(read.text.contains(shown), "{shown}");
    }
}

#[test]
fn pages_in_values_are_read_as_what_they_show() {
    let read =
        of("<posts><row Id='1' Body='&lt;p&gt;The heron &lt;b&gt;waits&lt;/b&gt;.&lt;/p&gt;' Tags='&lt;birds&gt;'/>\
        <row Id='2' Body='&lt;p&gt;Deep.&lt;/p&gt;'/>\
        <item><description><![CDATA[<p>A <i>page</i> in a value.</p>]]></description></item></posts>");
    for shown in ["Body: The heron **waits**.", "Body: Deep.", "Tags: <birds>", "page", "in a value."] {
        assert!(read.text.contains(shown), "{shown}: {}", read.text);
    }
    for gone in ["<p>", "<b>", "<i>", "</"] {
        assert!(!read.text.contains(gone), "{gone}: {}", read.text);
    }
}

const NAMES: [&str; 16] = [
    "a",
    "b",
    "p",
    "title",
    "sec",
    "list",
    "item",
    "li",
    "table",
    "row",
    "td",
    "info",
    "pre",
    "style",
    "mixed-citation",
    "h2",
];

fn any_element() -> impl Strategy<Value = String> {
    let leaf = prop_oneof!["[a-z]{1,8}", Just(String::new()), "(&amp;|#|- |\\| )[a-z]{1,4}"];
    leaf.prop_recursive(6, 60, 6, |inner| {
        (prop::sample::select(NAMES.to_vec()), "( n='[a-z]{1,3}')?", prop::collection::vec(inner, 0..6))
            .prop_map(|(name, attribute, inner)| format!("<{name}{attribute}>{}</{name}>", inner.concat()))
    })
}

proptest! {
    #[test]
    fn no_word_is_lost_and_no_tag_is_kept(inner in any_element()) {
        let xml = format!("<root>{inner}</root>");
        let read = of(&xml);
        prop_assert!(!read.text.contains(['<', '>']), "{}", read.text);
        for heading in &read.headings {
            prop_assert!(read.text[heading.start..].starts_with('#'));
        }
        if !xml.contains("<style") {
            let letters = |text: &str| -> String { text.chars().filter(char::is_ascii_lowercase).collect() };
            let mut words = quick_xml::Reader::from_str(&xml);
            loop {
                match words.read_event().unwrap() {
                    quick_xml::events::Event::Text(word) => {
                        let word = word.xml10_content().trim().to_owned();
                        prop_assert!(letters(&read.text).contains(&letters(&word)), "{word}: {}", read.text);
                    }
                    quick_xml::events::Event::Eof => break,
                    _ => {}
                }
            }
        }
    }
}
