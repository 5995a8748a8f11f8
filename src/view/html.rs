//! HTML that is safe to show, made of texts that nobody trusts.
use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};
use std::{borrow::Cow, collections::HashSet, sync::LazyLock};

/// How deep what is in a text may be nested; deeper texts are shown as they are written.
const DEPTH: usize = 40;
/// How many cells the tables of a text may have if it is short; a longer one may have as many as it has bytes.
const CELLS: usize = 4096;

/// What leaves this module: the tags of text, and links to http, https, mailto and documents. A link tells its target nothing.
static SAFE: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let tags = [
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "em",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ];
    let mut builder = Builder::empty();
    builder
        .tags(HashSet::from(tags))
        .add_tag_attributes("a", &["href"])
        .add_tag_attributes("ol", &["start"])
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Custom(Box::new(view_only)))
        .link_rel(Some("noopener noreferrer nofollow"));
    for tag in ["blockquote", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul"] {
        builder.add_tag_attribute_values(tag, "dir", &["auto"]);
    }
    builder
});

/// Lets an address within the service through if it is that of a view.
fn view_only(url: &str) -> Option<Cow<'_, str>> {
    is_view(url).then_some(Cow::Borrowed(url))
}

/// Whether an address is that of a document's view.
fn is_view(url: &str) -> bool {
    url.strip_prefix("/view/").is_some_and(is_id)
}

fn is_id(text: &str) -> bool {
    (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A text as it is written, with its lines.
pub fn plain(text: &str) -> String {
    maud::html! { pre dir="auto" { (text) } }.into_string()
}

/// Markdown as HTML. Tags of HTML in it are shown as they are written, an image is a link, and `[[7]]` leads to document 7. Headings
/// begin below that of the page. Each piece that is in no other has the direction of its own letters, whatever that of the page is.
pub fn markdown(text: &str) -> String {
    // The parser makes all cells before it shows the first of them.
    if most_cells(text) > text.len().max(CELLS) {
        return plain(text);
    }
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS | Options::ENABLE_WIKILINKS;
    let mut html = String::with_capacity(text.len() + text.len() / 2);
    // Those of one piece.
    let mut events = Vec::new();
    let (mut depth, mut links) = (0_usize, 0_usize);
    // Whether each open link or image is shown as a link.
    let mut shown = Vec::new();
    for event in Parser::new_ext(text, options) {
        match &event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH {
            return plain(text);
        }
        match event {
            Event::Start(Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. }) => {
                let to = target(link_type, dest_url).filter(|_| links == 0);
                shown.push(to.is_some());
                if let Some(dest_url) = to {
                    links += 1;
                    let (title, id) = (CowStr::Borrowed(""), CowStr::Borrowed(""));
                    events.push(Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url, title, id }));
                }
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if shown.pop().unwrap_or(false) {
                    links -= 1;
                    events.push(Event::End(TagEnd::Link));
                }
            }
            Event::Start(Tag::Heading { level, .. }) => {
                events.push(Event::Start(Tag::Heading {
                    level: below(level),
                    id: None,
                    classes: Vec::new(),
                    attrs: Vec::new(),
                }));
            }
            Event::End(TagEnd::Heading(level)) => events.push(Event::End(TagEnd::Heading(below(level)))),
            Event::Start(Tag::HtmlBlock) => events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => events.push(Event::End(TagEnd::Paragraph)),
            Event::Html(tag) | Event::InlineHtml(tag) => events.push(Event::Text(tag)),
            Event::TaskListMarker(is_done) => {
                events.push(Event::Text(CowStr::Borrowed(if is_done { "☑ " } else { "☐ " })))
            }
            other => events.push(other),
        }
        if depth == 0 {
            let begin = html.len();
            pulldown_cmark::html::push_html(&mut html, events.drain(..));
            // What is inside has none: a browser passes over the letters of such a part, and numbers of a list would stand at the other edge.
            if let Some(name) = html[begin..].find([' ', '>']) {
                html.insert_str(begin + name, " dir=\"auto\"");
            }
        }
    }
    SAFE.clean(&html).to_string()
}

/// The most cells that the tables of a text can have. A row that is shorter than its table is filled up with empty cells, so that a few bytes
/// may ask for a million of them; what is written out needs a byte for each.
fn most_cells(text: &str) -> usize {
    let (mut cells, mut columns, mut lines) = (0_usize, 0_usize, 0_usize);
    // A carriage return alone ends a line too.
    for line in text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r')) {
        let line = line.trim_matches([' ', '\t', '>']);
        // No table goes on behind a blank line.
        if line.is_empty() {
            cells = cells.saturating_add(columns.saturating_mul(lines));
            (columns, lines) = (0, 0);
            continue;
        }
        lines += 1;
        // The line below the header of a table says how many columns there are.
        if line.contains('-')
            && line.contains('|')
            && line.bytes().all(|byte| matches!(byte, b'|' | b'-' | b':' | b' '))
        {
            columns = columns.max(line.matches('|').count() + 1);
        }
    }
    cells.saturating_add(columns.saturating_mul(lines))
}

/// Where a link leads; `None` if that is no address that this module lets through.
fn target(link_type: LinkType, address: CowStr<'_>) -> Option<CowStr<'_>> {
    match link_type {
        LinkType::WikiLink { .. } => is_id(&address).then(|| CowStr::from(format!("/view/{address}"))),
        _ => Some(address),
    }
}

fn below(level: HeadingLevel) -> HeadingLevel {
    HeadingLevel::try_from((level as usize + 1).min(6)).unwrap_or(HeadingLevel::H6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_shown_and_what_runs_or_loads_is_not() {
        let shown = markdown(
            "# Tides\n\n* *high*\n* `low`\n\n[[12]] and [[Note]] and [x](https://example.org/a) ![a map](https://example.org/m.png)\n",
        );
        assert_eq!(
            shown,
            "<h2 dir=\"auto\">Tides</h2>\n<ul dir=\"auto\">\n<li><em>high</em></li>\n<li><code>low</code></li>\n</ul>\n<p dir=\"auto\"><a href=\"/view/12\" rel=\"noopener noreferrer nofollow\">12</a> and Note and \
             <a href=\"https://example.org/a\" rel=\"noopener noreferrer nofollow\">x</a> <a href=\"https://example.org/m.png\" rel=\"noopener noreferrer nofollow\">a map</a></p>\n"
        );
        for hostile in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "<svg/onload=alert(1)>",
            "<iframe src=\"javascript:alert(1)\"></iframe>",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](java\tscript:alert(1))",
            "[x](data:text/html,<script>alert(1)</script>)",
            "[x](vbscript:msgbox(1))",
            "![x](javascript:alert(1))",
            "<a href=\"javascript:alert(1)\">x</a>",
            "<javascript:alert(1)>",
            "[x](&#106;avascript:alert(1))",
            "[x](//evil.example/)",
            "[x](/documents/1)",
            "[x](/view/1/../../logout)",
            "<style>*{display:none}</style>",
            "<form action=/logout><button>x</button></form>",
            "`<script>`",
            "```\n<script>alert(1)</script>\n```",
            "<p onclick=\"alert(1)\">x</p>",
            "[a](x \"onmouseover=alert(1)\")",
            "<base href=\"https://evil.example/\">",
            "<!--><script>alert(1)</script>-->",
            "[![x](javascript:alert(1))](javascript:alert(2))",
            "| a |\n|---|\n| <script>alert(1)</script> |",
        ] {
            let shown = markdown(hostile);
            let tags = shown.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag);
            for tag in tags {
                let name = tag.trim_start_matches('/').trim_end_matches(" dir=\"auto\"");
                let harmless = ["p", "a", "code", "pre", "table", "thead", "tbody", "tr", "th", "td"];
                assert!(
                    harmless.contains(&name) || tag == "a rel=\"noopener noreferrer nofollow\"",
                    "{hostile}: {shown}"
                );
            }
        }
    }

    #[test]
    fn each_piece_of_a_text_that_is_in_no_other_has_a_direction_of_its_own() {
        let shown = markdown(
            "## שלום\n\nשלום\n\n7. one\n\n   > two\n\n8. שתיים\n\n---\n\n* a\n\n> ש\n\n| א |\n|---|\n| b |\n\n```\nש\n```\n",
        );
        let tags: Vec<&str> = shown.split('<').filter_map(|rest| Some(rest.split_once(" dir=\"auto\"")?.0)).collect();
        assert_eq!(tags, ["h3", "p", "ol", "ul", "blockquote", "table", "pre"]);
        assert!(shown.contains("<ol dir=\"auto\" start=\"7\">\n<li>\n<p>one</p>\n<blockquote>\n<p>two"), "{shown}");
        assert!(shown.contains("<hr>\n<ul"), "{shown}");
        assert_eq!(plain("שלום"), "<pre dir=\"auto\">שלום</pre>");
    }

    #[test]
    fn what_is_nested_too_deeply_is_shown_as_it_is_written() {
        for deep in
            [">".repeat(100_000), "* ".repeat(5000), "*a **b ".repeat(2000), "[".repeat(50_000), "`".repeat(50_000)]
        {
            let shown = markdown(&deep);
            assert!(shown.len() < 10 * deep.len() + 100, "{}", &deep[..20]);
        }
        assert!(markdown(&format!("{} x", ">".repeat(100))).starts_with("<pre dir=\"auto\">&gt;&gt;"));
    }

    #[test]
    fn tables_with_more_empty_cells_than_a_text_has_bytes_are_shown_as_they_are_written() {
        let wide = format!("{}\n{}\n{}", "a|".repeat(362), "-|".repeat(362), "a\n".repeat(726));
        let quoted = wide.lines().map(|line| format!("> {line}\n")).collect::<String>();
        for hostile in
            [&wide, &format!("{wide}\n").repeat(10), &quoted, &wide.replace('\n', "\r\n"), &wide.replace('\n', "\r")]
        {
            let shown = markdown(hostile);
            assert!(shown.starts_with("<pre") && shown.len() < 10 * hostile.len() + 100, "{} bytes", shown.len());
        }
        // What is written out is a table however large it is, and so is one of which some cells are not.
        let row = format!("{}\n", "a|".repeat(100));
        let written = format!("{row}{}\n{}", "-|".repeat(100), row.repeat(1000));
        let short = format!("a|b|c|d\n-|-|-|-\n{}", "a|b\n".repeat(500));
        // Lines of hyphens within a table are rows.
        let ruled = format!("a|b|c|d\n{}", "-|-|-|-\na|b|c|d\n".repeat(500));
        for (table, cells) in [(&written, 100_000), (&short, 2_000), (&ruled, 3_996)] {
            assert_eq!(markdown(table).matches("<td>").count(), cells);
        }
    }
}
