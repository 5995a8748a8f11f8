//! HTML that is safe to show, made of texts that nobody trusts.
use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};
use std::{borrow::Cow, collections::HashSet, sync::LazyLock};

/// How deep what is in a text may be nested; deeper texts are shown as they are written.
const DEPTH: usize = 40;

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
    maud::html! { pre { (text) } }.into_string()
}

/// Markdown as HTML. Tags of HTML in it are shown as they are written, an image is a link, and `[[7]]` leads to document 7. Headings
/// begin below that of the page.
pub fn markdown(text: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS | Options::ENABLE_WIKILINKS;
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
    }
    let mut html = String::with_capacity(text.len() + text.len() / 2);
    pulldown_cmark::html::push_html(&mut html, events.into_iter());
    SAFE.clean(&html).to_string()
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
            "<h2>Tides</h2>\n<ul>\n<li><em>high</em></li>\n<li><code>low</code></li>\n</ul>\n<p><a href=\"/view/12\" rel=\"noopener noreferrer nofollow\">12</a> and Note and \
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
                let name = tag.trim_start_matches('/');
                let harmless = ["p", "a", "code", "pre", "table", "thead", "tbody", "tr", "th", "td"];
                assert!(
                    harmless.contains(&name) || tag == "a rel=\"noopener noreferrer nofollow\"",
                    "{hostile}: {shown}"
                );
            }
        }
    }

    #[test]
    fn what_is_nested_too_deeply_is_shown_as_it_is_written() {
        for deep in
            [">".repeat(100_000), "* ".repeat(5000), "*a **b ".repeat(2000), "[".repeat(50_000), "`".repeat(50_000)]
        {
            let shown = markdown(&deep);
            assert!(shown.len() < 10 * deep.len() + 100, "{}", &deep[..20]);
        }
        assert!(markdown(&format!("{} x", ">".repeat(100))).starts_with("<pre>&gt;&gt;"));
    }
}
