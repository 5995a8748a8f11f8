//! Reads HTML: the content as Markdown, without navigation, scripts and advertisements. Uploaded files and fetched pages
//! are read in the same way.

mod apart;
mod formulas;
mod images;
mod tables;

use crate::{Extraction, Format, FormatError, Limits, Pattern, Patterns, charset, text};
use dom_smoothie::{Config, ParsePolicy, Readability, TextMode};
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
pub(crate) use images::images;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    io::{Read, Seek},
};

/// The encoding must be named within this many bytes.
const HEAD_BYTES: usize = 1024;
/// A longer text about the page is cut.
const FACT_CHARACTERS: usize = 1000;
/// What is no content wherever it stands.
const NO_CONTENT: &str = "script, style, noscript, template, iframe, object, embed, svg, canvas, nav, dialog, button, \
    input, select, textarea, body > footer, body > aside, [role=navigation], [role=search], [role=contentinfo], \
    [hidden], [aria-hidden=true], annotation, annotation-xml";
/// Buttons that are no commands, but headings.
const HEADING_BUTTONS: &str =
    "h1 button, h2 button, h3 button, h4 button, h5 button, h6 button, summary button, dt button";
/// Elements that people see as separate lines, and that the writer of Markdown takes for words within a line.
const LINES: &str = "dt, dd, details, summary, address, center, figcaption, legend";
/// More such elements, by which the reader also tells the main part of a page.
const LINES_OF_PAGE: &str = "fieldset, figure, form, header, hgroup, label";
/// Elements around the content of a page; a piece of a page may consist of one alone.
const AROUND: &str = "nav, dialog, button, footer, aside";
/// Elements that mean nothing without a table around them.
const PARTS_OF_TABLE: [&str; 9] = ["caption", "col", "colgroup", "tbody", "td", "tfoot", "th", "thead", "tr"];
/// Schemes of addresses that lead somewhere, and do nothing else.
const SCHEMES: [&str; 6] = ["http", "https", "mailto", "tel", "ftp", "sftp"];
/// More elements within each other, and more attributes of one, take a reader of pages more than the square of their number.
const DEEPEST: usize = 10_000;
/// The deepest nesting of a piece of a page: a file may have many pieces, and none needs more.
const DEEPEST_OF_PIECE: usize = 500;
const ATTRIBUTES: usize = 5_000;
/// What has less than this share of a page's words is not its article.
const ARTICLE_OF_PAGE: f64 = 0.25;

/// The decoded text of a page.
pub(crate) struct Source {
    html: String,
    charset: &'static str,
}

/// The content of a page and what it says of itself.
#[derive(Default)]
pub(crate) struct Content {
    pub extraction: Extraction,
    pub title: Option<String>,
    pub byline: Option<String>,
    pub site_name: Option<String>,
    pub lang: Option<String>,
    pub published_time: Option<String>,
}

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let bytes = text::read_all(source, limits)?;
    let page = Source::decode(&bytes, None);
    drop(bytes);
    let has_images = page.has_pictures();
    Ok(page.extraction(limits)?.patterns().with(Pattern::HasImages, has_images))
}

/// Reads a file; its title becomes its first heading, unless the content begins with it.
pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let bytes = text::read_all(source, limits)?;
    Source::decode(&bytes, None).extraction(limits)
}

impl Source {
    /// Decodes a page: by its mark, by what its server declared, by what it declares, or by what it resembles. It may say at its beginning
    /// that it is written as XML.
    pub(crate) fn decode(bytes: &[u8], declared: Option<&str>) -> Self {
        let label = |label: &str| Encoding::for_label(label.as_bytes());
        let marked = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
        // A page whose beginning was read as bytes is not in units of two bytes, whatever it says.
        let is_wide = |encoding: &&'static Encoding| *encoding == UTF_16LE || *encoding == UTF_16BE;
        let named = || label(&in_head(bytes)?).filter(|encoding| !is_wide(encoding));
        let page = match marked.or_else(|| declared.and_then(label)).or_else(named) {
            Some(encoding) => {
                let (text, encoding, _) = encoding.decode(bytes);
                Self { html: charset::clean(&text), charset: encoding.name() }
            }
            None => {
                let decoded = charset::decode(bytes);
                Self { html: decoded.text, charset: decoded.charset }
            }
        };
        if page.html.trim_start().starts_with("<?xml") { page.of_xml() } else { page }
    }

    /// A page that is decoded already.
    pub(crate) fn of_text(html: &str) -> Self {
        Self { html: charset::clean(html), charset: "UTF-8" }
    }

    /// The same page, written as XML: there an element may end where it begins, which a reader of HTML takes for the beginning of an element to the end of the page.
    pub(crate) fn of_xml(mut self) -> Self {
        self.html = with_ends(&self.html);
        self
    }

    /// The content without what the page says of itself.
    pub(crate) fn body(self, limits: &Limits) -> Result<Extraction, FormatError> {
        self.content(None, limits).map(|content| content.extraction)
    }

    /// The content as the text of a file, with the title as its first heading.
    pub(crate) fn extraction(self, limits: &Limits) -> Result<Extraction, FormatError> {
        let Content { mut extraction, title, byline, lang, published_time, .. } = self.content(None, limits)?;
        if let Some(title) = &title
            && !extraction.text.is_empty()
            && !begins_with(&extraction, title)
        {
            let text = format!("# {title}\n\n{}", extraction.text);
            extraction = of_markdown(text, extraction.charset).within(limits)?;
        }
        let facts = [("title", title), ("byline", byline), ("lang", lang), ("published_time", published_time)];
        extraction
            .facts
            .extend(facts.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), Value::from(fact?)))));
        Ok(extraction)
    }

    /// Opens the page, which reading changes; `None` if it is nothing.
    pub(crate) fn open(&self, url: Option<&str>) -> Option<Readability> {
        let config = Config { text_mode: TextMode::Markdown, ..Config::default() };
        // Without a usable address, links stay as they are.
        let page = Readability::new(self.html.as_str(), url, Some(config.clone()));
        let page = page.or_else(|_| Readability::new(self.html.as_str(), None, Some(config))).ok()?;
        // What is written into addresses, such as whole images and programs, is no text.
        page.doc.select("source, picture > source").remove();
        for image in page.doc.select("img[src]").nodes() {
            if image.attr("src").is_none_or(|address| !leads_somewhere(&address)) {
                image.remove_from_parent();
            }
        }
        for link in page.doc.select("a[href]").nodes() {
            if link.attr("href").is_none_or(|address| !leads_somewhere(&address)) {
                link.remove_attr("href");
            }
        }
        let styled = page.doc.select("[style]");
        // What is above a text with a size of its own. Mails give cells no size, so that no gaps come between them.
        let mut above_texts = HashSet::new();
        for sized in styled.nodes().iter().filter(|node| node.attr("style").is_some_and(|style| sets_size(&style))) {
            let mut above = sized.parent();
            while let Some(node) = above
                && above_texts.insert(node.id)
            {
                above = node.parent();
            }
        }
        for node in styled.nodes() {
            let hides = match node.attr("style").map_or(Hiding::Nothing, |style| hiding(&style)) {
                Hiding::Nothing => false,
                Hiding::Size => !above_texts.contains(&node.id),
                Hiding::Whole => true,
            };
            // A page that is hidden as a whole shows itself once it is loaded.
            let is_all = node.node_name().is_some_and(|name| matches!(&*name, "html" | "body" | "main"));
            if hides && !is_all {
                node.remove_from_parent();
            }
        }
        // What opens and closes a part of a page is often a button, and the heading of the part.
        page.doc.select(HEADING_BUTTONS).rename("span");
        page.doc.select("img:not([alt]), img[alt='']").remove();
        // A caption within a table would be lost.
        for caption in page.doc.select("table > caption").nodes() {
            if let Some(table) = caption.parent() {
                table.insert_before(caption);
                caption.rename("div");
            }
        }
        // A note of a book is a part of its text.
        for note in page.doc.select("aside").nodes() {
            if note.has_attr("epub:type") || note.attr("role").is_some_and(|role| role.starts_with("doc-")) {
                note.rename("div");
            }
        }
        formulas::write(&page);
        tables::square(&page);
        apart::keep(&page);
        // Of all blocks, a list of definitions counts least where the article is looked for.
        page.doc.select(LINES).rename("dl");
        page.doc.select("menu").rename("ul");
        Some(page)
    }

    /// The content. Of a file it is all of the page, because somebody chose it for what it holds. Of a page that was
    /// fetched from `url` it is the article, because the rest is often about other pages.
    pub(crate) fn content(&self, url: Option<&str>, limits: &Limits) -> Result<Content, FormatError> {
        within_reason(&self.html, DEEPEST)?;
        let charset = Some(self.charset.to_owned());
        let Some(page) = self.open(url) else { return Ok(Content::default()) };
        let whole = whole(&page, if url.is_none() { MAIN_OF_FILE } else { MAIN_OF_PAGE });
        drop(page);
        let words = |text: &str| text.split_whitespace().count() as f64;
        let is_article = |text: &str| words(text) >= ARTICLE_OF_PAGE * words(&whole);
        let mut article = self.open(url).and_then(|mut page| page.parse().ok());
        let text = match &mut article {
            _ if url.is_none() => whole,
            Some(article) if is_article(&article.text_content) => article.text_content.to_string(),
            _ => {
                let page = self.open(url).and_then(|mut page| page.parse_with_policy(ParsePolicy::Raw).ok());
                page.map(|page| page.text_content.to_string()).filter(|text| is_article(text)).unwrap_or(whole)
            }
        };
        let fact = |text: Option<String>| {
            let words = text?.split_whitespace().collect::<Vec<_>>().join(" ");
            let text: String = words.chars().take(FACT_CHARACTERS).collect();
            (!text.is_empty()).then_some(text)
        };
        let extraction = of_markdown(without_escapes(&charset::clean(text.trim())), charset).within(limits)?;
        let Some(article) = article else { return Ok(Content { extraction, ..Content::default() }) };
        Ok(Content {
            extraction,
            title: fact(Some(article.title)),
            byline: fact(article.byline),
            site_name: fact(article.site_name),
            lang: fact(article.lang),
            published_time: fact(article.published_time),
        })
    }
}

/// What a piece of a page shows, as Markdown; `None` if the piece is nested too deep, or if the reader of pages cannot open it.
pub(crate) fn piece(html: &str) -> Option<String> {
    within_reason(html, DEEPEST_OF_PIECE).ok()?;
    let tag = html.trim_start().strip_prefix('<').unwrap_or_default();
    let name = &tag[..tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tag.len())];
    let is_of_table = PARTS_OF_TABLE.iter().any(|part| part.eq_ignore_ascii_case(name));
    let source = if is_of_table { Source::of_text(&format!("<table>{html}")) } else { Source::of_text(html) };
    let page = source.open(None)?;
    let has_around = page.doc.select(AROUND).exists();
    let mut shown = whole(&page, MAIN_OF_FILE);
    if shown.is_empty() && has_around {
        let page = source.open(None)?;
        page.doc.select(AROUND).rename("div");
        shown = whole(&page, MAIN_OF_FILE);
    }
    Some(without_escapes(&charset::clean(&shown)))
}

/// Whether an address may stay: it has no scheme, or one that is known to be harmless.
fn leads_somewhere(address: &str) -> bool {
    let address = address.trim();
    let end = address.find([':', '/', '?', '#']).unwrap_or(address.len());
    match address[end..].starts_with(':') {
        true => SCHEMES.contains(&address[..end].to_ascii_lowercase().as_str()),
        false => true,
    }
}

/// Gives elements an end tag that end where they begin, but for those that never have one in HTML.
fn with_ends(xml: &str) -> String {
    const VOID: [&str; 14] =
        ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];
    let (bytes, mut whole, mut kept) = (xml.as_bytes(), String::with_capacity(xml.len()), 0);
    for at in memchr::memchr_iter(b'<', bytes) {
        let tag = &xml[at + 1..];
        let is_end = |character: char| character.is_ascii_whitespace() || matches!(character, '/' | '<' | '>');
        let name = &tag[..tag.find(is_end).unwrap_or(tag.len())];
        let is_name = name.starts_with(|character: char| character.is_ascii_alphabetic());
        if !is_name || VOID.iter().any(|void| void.eq_ignore_ascii_case(name)) {
            continue;
        }
        let mut quote = None;
        // No tag of XML has another within it, so that each part is looked at once.
        let end = tag.bytes().position(|byte| match (quote, byte) {
            (_, b'<') => true,
            (Some(open), _) if open == byte => {
                quote = None;
                false
            }
            (Some(_), _) => false,
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                false
            }
            (None, byte) => byte == b'>',
        });
        // Nothing after a tag that does not end is a tag.
        let Some(end) = end.map(|end| at + 1 + end) else { break };
        if bytes[end] == b'>' && bytes[end - 1] == b'/' {
            whole.push_str(&xml[kept..end - 1]);
            whole.push_str("></");
            whole.push_str(name);
            whole.push('>');
            kept = end + 1;
        }
    }
    whole.push_str(&xml[kept..]);
    whole
}

/// What a style keeps from being seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hiding {
    Nothing,
    /// The text that has no size of its own.
    Size,
    /// The element with all that is in it.
    Whole,
}

fn hiding(style: &str) -> Hiding {
    let plain = plain(style);
    let hiding = rules(&plain).map(|rule| match rule {
        ("display", "none") | ("visibility", "hidden" | "collapse") => Hiding::Whole,
        ("opacity", value) if is_zero(value) => Hiding::Whole,
        ("font-size", value) if is_zero(value) => Hiding::Size,
        _ => Hiding::Nothing,
    });
    hiding.max().unwrap_or(Hiding::Nothing)
}

/// Whether a style gives its element a size in which the text is seen, whatever the size around it.
fn sets_size(style: &str) -> bool {
    rules(&plain(style)).any(|(name, value)| name == "font" || (name == "font-size" && !is_zero(value)))
}

fn plain(style: &str) -> String {
    let plain: String = style.chars().filter(|character| !character.is_whitespace()).collect();
    plain.to_ascii_lowercase()
}

/// The properties of a plain style, with their values.
fn rules(plain: &str) -> impl Iterator<Item = (&str, &str)> {
    plain.split(';').filter_map(|rule| rule.strip_suffix("!important").unwrap_or(rule).split_once(':'))
}

fn is_zero(value: &str) -> bool {
    let number = value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic() || unit == '%');
    number.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// Refuses a page that a reader would take too long for: one whose elements are nested deeper than `deepest`, or one with too many
/// attributes on an element.
fn within_reason(html: &str, deepest: usize) -> Result<(), FormatError> {
    /// Elements that end by themselves, or that pages commonly leave open.
    const OPEN: [&str; 28] = [
        "area", "base", "br", "col", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta", "option", "p",
        "param", "rp", "rt", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr", "keygen",
    ];
    let refused = |reason: String| Err(FormatError::Unsupported { format: Format::Html, reason });
    let (bytes, mut from, mut depth) = (html.as_bytes(), 0, 0_usize);
    // How many of each name are open.
    let mut open: HashMap<String, usize> = HashMap::new();
    while let Some(at) = memchr::memchr(b'<', &bytes[from..]).map(|at| from + at + 1) {
        from = at;
        let is_end = bytes.get(at) == Some(&b'/');
        let begin = at + usize::from(is_end);
        if !bytes.get(begin).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let length =
            bytes[begin..].iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(bytes.len() - begin);
        let name = html[begin..begin + length].to_ascii_lowercase();
        let (mut quote, mut attributes, mut is_between) = (None, 0, false);
        from = begin + length;
        while let Some(byte) = bytes.get(from).copied() {
            from += 1;
            match (quote, byte) {
                (Some(open), _) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'>') => break,
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, _) if byte.is_ascii_whitespace() => is_between = true,
                (None, _) => {
                    attributes += usize::from(is_between);
                    is_between = false;
                }
            }
        }
        if attributes > ATTRIBUTES {
            return refused(format!("an element of the page has more than {ATTRIBUTES} attributes"));
        }
        let may_stay_open = OPEN.contains(&name.as_str());
        match (is_end, may_stay_open) {
            // What stands in a program is no tag.
            (false, _) if name == "script" || name == "style" => {
                let end = format!("</{name}");
                let ends =
                    |at: &usize| html.get(*at..at + end.len()).is_some_and(|text| text.eq_ignore_ascii_case(&end));
                from = memchr::memchr_iter(b'<', &bytes[from..]).map(|at| from + at).find(ends).unwrap_or(bytes.len());
                continue;
            }
            (true, _) if name == "script" || name == "style" => {}
            (_, true) => {}
            // An end tag without a start tag closes nothing.
            (true, _) => {
                let levels = levels(&name);
                if let Entry::Occupied(mut begun) = open.entry(name) {
                    depth -= levels;
                    *begun.get_mut() -= 1;
                    if *begun.get() == 0 {
                        begun.remove();
                    }
                }
            }
            (false, _) => {
                depth += levels(&name);
                *open.entry(name).or_default() += 1;
            }
        }
        if depth > deepest {
            return refused(format!("the elements of the page are nested more than {deepest} deep"));
        }
    }
    Ok(())
}

/// By how many levels an element makes deeper what stands in it. Its rows, cells or items are not counted by themselves, because pages leave them open.
fn levels(name: &str) -> usize {
    match name {
        "table" => 4,
        "dl" | "menu" | "ol" | "ruby" | "select" | "ul" => 2,
        _ => 1,
    }
}

/// The share of a page's words that its main part must have to stand for the page: of a file, whatever is around that is shown too.
const MAIN_OF_PAGE: f64 = 0.5;
const MAIN_OF_FILE: f64 = 0.95;

/// All of the page but what is no content, or its main part if that has this share of the words.
fn whole(page: &Readability, main_part: f64) -> String {
    page.doc.select(NO_CONTENT).remove();
    page.doc.select(LINES_OF_PAGE).rename("div");
    let body = page.doc.select("body");
    let main = page.doc.select("main, [role=main]");
    let words = |text: &str| text.split_whitespace().count() as f64;
    let is_whole = main.length() == 1 && words(&main.text()) >= main_part * words(&body.text());
    let root = if is_whole { main } else { body };
    root.nodes().first().map(|node| node.md(None).trim().to_owned()).unwrap_or_default()
}

/// Whether the content shows the title before anything else.
fn begins_with(extraction: &Extraction, title: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ");
    let title = words(title);
    extraction.headings.iter().take(3).any(|heading| {
        let heading = words(&heading.title);
        !heading.is_empty() && (title.contains(&heading) || heading.contains(&title))
    })
}

fn of_markdown(text: String, charset: Option<String>) -> Extraction {
    let headings: Vec<_> = text::headings(&text).collect();
    let headings_from = (!headings.is_empty()).then(|| "html".to_owned());
    Extraction { headings_from, headings, charset, text, ..Extraction::default() }
}

/// Takes back what is escaped within lines, because a name such as `snake_case` is found only as it is written; at the
/// beginning of a line an escape says that no structure follows.
fn without_escapes(text: &str) -> String {
    // What is left out, each with what stands for it.
    let (mut dropped, mut in_code) = (Vec::new(), false);
    // How far the text was looked at, and whether its last line has a letter up to there.
    let (mut looked_at, mut has_letter) = (0, false);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(_) if !in_code && range.start > 0 => {
                let escaped = text[range.start..].starts_with(['_', '*', '[', ']', '~', '`', '<', '>', '!']);
                if !escaped || text.as_bytes()[range.start - 1] != b'\\' {
                    continue;
                }
                for character in text.get(looked_at..range.start).unwrap_or_default().chars() {
                    has_letter = character != '\n' && (has_letter || character.is_alphabetic());
                }
                looked_at = looked_at.max(range.start);
                if has_letter {
                    dropped.push((range.start - 1..range.start, ""));
                }
            }
            // The lines of a cell of a table.
            Event::InlineHtml(tag) if &*tag == "<br>" => {
                let start = text[..range.start].trim_end_matches(' ').len();
                let end = text.len() - text[range.end..].trim_start_matches(' ').len();
                dropped.push((start..end, " "));
            }
            _ => {}
        }
    }
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for (range, instead) in dropped {
        // Breaks that stand together are one.
        out.push_str(text.get(from..range.start).unwrap_or_default());
        if range.start >= from {
            out.push_str(instead);
        }
        from = from.max(range.end);
    }
    out.push_str(&text[from..]);
    out
}

/// What stands after `charset=` at the beginning of the page.
fn in_head(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD_BYTES)]).to_ascii_lowercase();
    let (_, rest) = head.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:.".contains(c)).unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests;
