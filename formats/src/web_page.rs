//! Reads fetched web pages: the main content as Markdown, and what a page says of itself.

use crate::{
    Extraction, FormatError, Limits,
    html::{self, Content},
    text,
};
use dom_smoothie::Readability;
use serde::{Deserialize, Serialize};
use std::io::{Read, Seek};

/// Where a page comes from, as far as its reading depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSource {
    /// The address to which the page's links are relative.
    pub url: String,
    /// The encoding that the server declared.
    pub charset: Option<String>,
}

/// A web page: its main content as Markdown, with absolute links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WebPage {
    pub extraction: Extraction,
    pub title: Option<String>,
    pub byline: Option<String>,
    pub site_name: Option<String>,
    pub lang: Option<String>,
    /// As the page writes it.
    pub published_time: Option<String>,
    /// Its tags `citation_...`, which pages of papers have, in their order.
    pub citation: Vec<(String, String)>,
}

/// The most tags `citation_...`, and the most characters of each; an abstract is one of them.
const CITATIONS: usize = 2000;
const CITATION_CHARACTERS: usize = 20_000;

pub(crate) fn read<R: Read + Seek>(
    source: R,
    PageSource { url, charset }: &PageSource,
    limits: &Limits,
) -> Result<WebPage, FormatError> {
    let bytes = text::read_all(source, limits)?;
    let source = html::Source::decode(&bytes, charset.as_deref());
    drop(bytes);
    // This refuses a page that would take too long to open.
    let Content { extraction, title, byline, site_name, lang, published_time } = source.content(Some(url), limits)?;
    let citation = source.open(Some(url)).map(|page| citation(&page)).unwrap_or_default();
    Ok(WebPage { extraction, title, byline, site_name, lang, published_time, citation })
}

fn citation(page: &Readability) -> Vec<(String, String)> {
    let tags = page.doc.select("meta[name^='citation_']");
    let mut found = Vec::new();
    for tag in tags.iter().take(CITATIONS) {
        let (Some(name), Some(content)) = (tag.attr("name"), tag.attr("content")) else { continue };
        let content: String = content.trim().chars().take(CITATION_CHARACTERS).collect();
        found.push((name.chars().take(100).collect(), content));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn of(html: impl AsRef<[u8]>, charset: Option<&str>) -> WebPage {
        let source = PageSource {
            url: "https://birds.example.org/wiki/Heron?view=1".to_owned(),
            charset: charset.map(str::to_owned),
        };
        read(Cursor::new(html.as_ref()), &source, &Limits::default()).unwrap()
    }

    fn paragraph() -> String {
        "The grey heron is a wading bird that stands in shallow water, and waits for fish and frogs, and eats them. "
            .repeat(5)
    }

    fn page() -> String {
        let text = paragraph();
        format!(
            "<!doctype html><html lang=en><head><title>Grey heron</title><meta name=author content='Ann Onym'>
             <script>steal()</script><style>p {{ color: red }}</style></head><body>
             <nav><a href=/home>Home</a><a href=/login>Log in</a></nav>
             <article><p>{text} See <a href='../Egret#nest'>egrets</a> and <a href='javascript:steal()'>this</a>.</p>
             <h2>Diet</h2><p>{text}</p><ul><li>fish<li>frogs</ul>
             <table><tr><th>Part<th>Length<tr><td>Wing<td>46 cm</table><img src='data:image/png;base64,AAAA'>
             <h3>In winter</h3><p>{text}</p></article>
             <footer>Imprint and cookies</footer></body></html>"
        )
    }

    #[test]
    fn the_main_content_becomes_markdown_with_absolute_links() {
        let WebPage { extraction, title, byline, lang, .. } = of(page(), None);
        let facts = (title.as_deref(), byline.as_deref(), lang.as_deref());
        assert_eq!(facts, (Some("Grey heron"), Some("Ann Onym"), Some("en")));
        let text = &extraction.text;
        assert!(text.contains("[egrets](https://birds.example.org/Egret#nest)"), "{text}");
        for gone in ["Log in", "steal", "color: red", "cookies", "base64", "<p>"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert!(text.contains("- fish\n- frogs") && text.contains("| Wing | 46 cm |"), "{text}");
        let headings: Vec<_> =
            extraction.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect();
        assert_eq!(headings, [(2, "Diet"), (3, "In winter")]);
        assert!(text[extraction.headings[0].start..].starts_with("## Diet"));
    }

    #[test]
    fn a_page_that_is_no_article_is_taken_whole_and_an_empty_one_has_no_text() {
        assert_eq!(of("<title>Tiny</title><p>One line.</p>", None).extraction.text, "One line.");
        let as_xml = "<?xml version='1.0'?><html><head><script src='a.js'/></head><body><p>One line.</p></body></html>";
        assert_eq!(of(as_xml, None).extraction.text, "One line.");
        for empty in ["", "<html></html>", "<script>x()</script>", "<title>Only a title</title>", "\0\0\0", "<!--"] {
            assert_eq!(of(empty, None).extraction.text, "", "{empty}");
        }
    }

    #[test]
    fn a_page_that_is_too_deep_is_refused_before_it_is_opened() {
        let deep = format!("<table><tr><td>{}x", "<div>".repeat(1_000_000));
        let source = PageSource { url: "https://birds.example.org/".to_owned(), charset: None };
        assert_eq!(read(Cursor::new(deep), &source, &Limits::default()).unwrap_err().code(), "unsupported");
    }

    #[test]
    fn the_encoding_is_the_servers_or_the_pages_own() {
        let latin = |text: &str| -> Vec<u8> { text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect() };
        assert_eq!(
            of(latin("<p>Żółw</p>".replace(['Ż', 'ł'], "o").as_str()), Some("iso-8859-1")).extraction.text,
            "oóow"
        );
        let declared = latin("<meta charset=\"ISO-8859-2\"><p>caf\u{e9}</p>");
        assert_eq!(of(declared, None).extraction.text, "café");
        let old = latin("<meta http-equiv=content-type content='text/html; charset=windows-1252'><p>caf\u{e9}</p>");
        assert_eq!(of(old, None).extraction.text, "café");
        assert_eq!(of("<meta charset=utf-16><p>café</p>", None).extraction.text, "café");
        assert_eq!(of("\u{feff}<p>café</p>", Some("windows-1252")).extraction.text, "café");
        assert_eq!(of("<p>café</p>", Some("no-such-encoding")).extraction.text, "café");
    }

    #[test]
    fn the_page_of_a_paper_says_what_it_cites() {
        let html = "<meta name=citation_title content=' Herons '><meta name=citation_author content='Onym, Ann'>
                    <meta name=citation_author content='Body, Some'><meta name=other content=x><p>text</p>";
        let names = ["citation_title", "citation_author", "citation_author"];
        let found = of(html, None).citation;
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(found[0].1, "Herons");
    }

    #[test]
    fn a_text_over_its_limit_names_it() {
        let source = PageSource { url: "https://example.org".to_owned(), charset: None };
        let limits = Limits { text_bytes: 100, ..Limits::default() };
        let error = read(Cursor::new(page()), &source, &limits).unwrap_err();
        assert_eq!(error.limit(), Some(crate::Limit::TextBytes));
    }
}
