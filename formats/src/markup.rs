//! Recognises texts that are written for programs: web pages, e-mail, RTF, XML, subtitles, and what only looks like text.
//!
//! Markup is not prose. What has a reader gets a format of its own, and of the rest [`is_markup`] says that it has none,
//! so that tags, control words and base64 reach no index.

use crate::{Format, rtf, subtitles};

/// What a text is written in, if not for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Html,
    /// It says so itself.
    Xml,
    /// It begins like XML; its end tells whether it is.
    Element,
    Rtf,
    Mail,
    PostScript,
}

/// The format of a text by its beginning, and by its end where that lies behind it; `None` if it is plain, or if its language has no reader.
pub(crate) fn format(head: &str, end: &str) -> Option<Format> {
    let Some(language) = language(head) else { return subtitles::format(head) };
    match language {
        Language::Html => Some(Format::Html),
        Language::Mail => Some(Format::Eml),
        Language::Rtf => Some(Format::Rtf),
        Language::Xml => Some(Format::Xml),
        Language::Element => is_element(&[head, end].concat()).then_some(Format::Xml),
        Language::PostScript => None,
    }
}

/// Whether a text that is read as plain is for programs: in a language without a reader, or mostly base64. A text with tags in it, such as a
/// program, a patch or a log, is found by what it says.
pub(crate) fn is_markup(text: &str) -> bool {
    let head = &text[..text.floor_char_boundary(HEAD)];
    language(head) == Some(Language::PostScript)
        || encoded(text) as f64 >= MOSTLY * text.len() as f64 && !text.is_empty()
}

/// Whether a text is a page by what it is called: a piece of a page in a file for Markdown or for a program is none.
pub(crate) fn is_page(head: &str, name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let is_other = extension.is_some_and(|extension| SOURCES.contains(&extension.as_str()));
    !is_other || is_whole_page(head)
}

/// The ends of the names of texts that may begin with a tag and are no pages.
const SOURCES: [&str; 14] =
    ["md", "markdown", "mdx", "rst", "adoc", "txt", "log", "vue", "svelte", "astro", "jsx", "tsx", "diff", "patch"];

/// Whether a text says at its beginning that it is a whole page.
fn is_whole_page(head: &str) -> bool {
    let head = head.trim_start_matches(|character: char| character.is_whitespace() || character == '\u{FEFF}');
    ["<!doctype html", "<html", "<?xml"]
        .iter()
        .any(|mark| head.get(..mark.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(mark)))
}

/// A document of which half is base64 is not for people.
const MOSTLY: f64 = 0.5;
/// As much of a text as tells its language.
const HEAD: usize = 64 << 10;
/// Fewer tags than this share of a text are pieces of markup in prose, as Markdown may have them.
const SOME: f64 = 0.15;

fn language(head: &str) -> Option<Language> {
    let text = head.trim_start_matches(|character: char| character.is_whitespace() || character == '\u{FEFF}');
    if text.starts_with(rtf::MARK) {
        return Some(Language::Rtf);
    }
    if text.starts_with("%!PS-") {
        return Some(Language::PostScript);
    }
    if text.starts_with('<') {
        return tagged(text);
    }
    is_mail(text).then_some(Language::Mail)
}

/// The language of a text that begins with a tag.
fn tagged(text: &str) -> Option<Language> {
    let (mut rest, mut declared) = (text, false);
    loop {
        rest = rest.trim_start();
        let (close, is_xml) = match rest {
            _ if rest.starts_with("<!--") => ("-->", false),
            _ if rest.starts_with("<?xml") => ("?>", true),
            _ if rest.starts_with("<?") => ("?>", false),
            _ => break,
        };
        declared |= is_xml;
        let Some((_, behind)) = rest.split_once(close) else { return declared.then_some(Language::Xml) };
        rest = behind;
    }
    let rest = rest.strip_prefix('<')?;
    let name = |text: &str| -> String {
        let end = text.find(|c: char| !(c.is_alphanumeric() || "_:.-".contains(c))).unwrap_or(text.len());
        text[..end].to_ascii_lowercase()
    };
    if let Some(declaration) = rest.strip_prefix('!') {
        let mut words = declaration.split_whitespace();
        let is_type = words.next().is_some_and(|word| word.eq_ignore_ascii_case("doctype"));
        let root = words.next().map(name).unwrap_or_default();
        return is_type.then_some(if root == "html" { Language::Html } else { Language::Xml });
    }
    let root = name(rest);
    if root.is_empty() {
        return None;
    }
    if matches!(root.as_str(), "html" | "head" | "body" | "title" | "meta" | "frameset") {
        return Some(Language::Html);
    }
    if declared {
        return Some(Language::Xml);
    }
    if share(text) < SOME {
        return None;
    }
    // A component of a program: a template with the script that fills it.
    if root == "template" || (root == "script" && text.contains("<template")) {
        return None;
    }
    if PIECES.contains(&root.as_str()) {
        return (!has_markdown(text)).then_some(Language::Html);
    }
    Some(Language::Element)
}

/// Whether a text is one element of XML from its first tag to its last. Angle brackets alone make none: in a log of a chat they hold
/// names, in a list addresses, and a program has text around its tags.
fn is_element(text: &str) -> bool {
    let mut rest = text.trim_start_matches(|character: char| character.is_whitespace() || character == '\u{FEFF}');
    while let Some(comment) = rest.strip_prefix("<!--").or_else(|| rest.strip_prefix("<?")) {
        let close = if rest.starts_with("<!--") { "-->" } else { "?>" };
        let Some((_, behind)) = comment.split_once(close) else { return false };
        rest = behind.trim_start();
    }
    let Some(tag) = rest.strip_prefix('<') else { return false };
    let end = tag.find(|c: char| !(c.is_alphanumeric() || "_:.-".contains(c))).unwrap_or(tag.len());
    let (name, behind) = tag.split_at(end);
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_') && !name.ends_with(':');
    if !is_name || !behind.starts_with(|c: char| c.is_whitespace() || c == '>' || c == '/') {
        return false;
    }
    let rest = rest.trim_end();
    match rest.strip_suffix('>').map(str::trim_end) {
        Some(last) => match last.strip_suffix(name) {
            Some(before) => before.ends_with("</"),
            None => last.ends_with('/') && last.matches('<').nth(1).is_none(),
        },
        None => false,
    }
}

/// Elements with which a piece of a web page may begin.
const PIECES: [&str; 36] = [
    "a",
    "article",
    "b",
    "blockquote",
    "br",
    "center",
    "dd",
    "div",
    "dl",
    "em",
    "font",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "i",
    "img",
    "li",
    "link",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "script",
    "section",
    "span",
    "strong",
    "style",
    "table",
    "ul",
];

/// Whether lines are as in Markdown, which may have tags of HTML, mostly at its beginning.
fn has_markdown(text: &str) -> bool {
    let marks = [
        "# ", "## ", "### ", "#### ", "- ", "* ", "+ ", "```", "~~~", "![", "> ", "1. ", "|-", "| -", "|:", "===",
        "---", "**",
    ];
    let is_marked = |line: &str| {
        marks.iter().any(|mark| line.starts_with(mark))
            || line.contains("](")
            || (line.starts_with('[') && line.contains("]: "))
    };
    text.lines().filter(|line| is_marked(line)).take(2).count() == 2
}

/// Headers that every message has some of, in lower case.
const HEADERS: [&str; 20] = [
    "bcc",
    "cc",
    "content-transfer-encoding",
    "content-type",
    "date",
    "delivered-to",
    "dkim-signature",
    "from",
    "in-reply-to",
    "message-id",
    "mime-version",
    "received",
    "references",
    "reply-to",
    "return-path",
    "sender",
    "subject",
    "to",
    "user-agent",
    "x-mailer",
];
/// Headers that only programs write.
const OF_PROGRAMS: [&str; 7] = [
    "content-transfer-encoding",
    "content-type",
    "dkim-signature",
    "message-id",
    "mime-version",
    "received",
    "return-path",
];

/// Whether the text begins with the headers of a message: three that messages have, one of which only programs write; or the two of a message that has
/// nothing but parts.
fn is_mail(text: &str) -> bool {
    let (mut known, mut of_programs) = (0, 0);
    // A page that a program saved with its pictures has no other headers.
    let (mut has_version, mut has_parts) = (false, false);
    // A mailbox puts a line of its own before each message.
    let skipped = usize::from(text.starts_with("From ") && text.lines().nth(1).is_some_and(|line| line.contains(':')));
    for line in text.lines().skip(skipped).take(200) {
        if line.is_empty() {
            break;
        }
        if line.starts_with([' ', '\t']) {
            continue;
        }
        let Some((name, value)) = line.split_once(':') else { return false };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return false;
        }
        let name = name.to_ascii_lowercase();
        has_version |= name == "mime-version";
        has_parts |= name == "content-type" && value.trim_start().to_ascii_lowercase().starts_with("multipart/");
        if HEADERS.contains(&name.as_str()) {
            known += 1;
            of_programs += u32::from(OF_PROGRAMS.contains(&name.as_str()));
        }
    }
    (known >= 3 && of_programs >= 1) || (has_version && has_parts)
}

/// Which share of a text is tags, or lines of base64.
pub(crate) fn share(text: &str) -> f64 {
    if text.is_empty() {
        return 0.0;
    }
    (tags(text) + encoded(text)) as f64 / text.len() as f64
}

/// The bytes of lines of base64.
fn encoded(text: &str) -> usize {
    text.lines().filter(|line| is_encoded(line)).map(str::len).sum()
}

/// The bytes between angle brackets that make a tag.
fn tags(text: &str) -> usize {
    /// A longer one is none.
    const LONGEST: usize = 4096;
    let bytes = text.as_bytes();
    let (mut sum, mut from) = (0, 0);
    while let Some(at) = memchr::memchr(b'<', &bytes[from..]).map(|at| from + at) {
        from = at + 1;
        if !matches!(bytes.get(from), Some(b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'!' | b'?')) {
            continue;
        }
        let window = &bytes[from..bytes.len().min(from + LONGEST)];
        // The next tag begins where this one did not end.
        if let Some(length) = memchr::memchr2(b'<', b'>', window)
            && window[length] == b'>'
        {
            sum += length + 2;
            from += length + 1;
        }
    }
    sum
}

/// Whether a whole value is bytes in base64, as images are written into JSON and XML.
pub(crate) fn is_encoded_value(value: &str) -> bool {
    /// A shorter one may be a name.
    const SHORTEST: usize = 400;
    let value = value.trim();
    let data = value.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).map(|(_, data)| data);
    let is_data =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\n' | b'\r');
    value.len() > SHORTEST && data.unwrap_or(value).bytes().all(is_data)
}

/// Whether a whole value is a page or a piece of one, as programs keep texts with their markup: it begins with an element of a page
/// and ends with a tag.
pub(crate) fn is_page_value(value: &str) -> bool {
    let value = value.trim();
    // A page may begin with an XML declaration; other documents that do so have element names of their own.
    let value = match value.strip_prefix("<?xml") {
        Some(rest) => rest.split_once("?>").map_or("", |(_, rest)| rest.trim_start()),
        None => value,
    };
    let Some(tag) = value.strip_prefix('<') else { return false };
    let (name, behind) = tag.split_at(tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tag.len()));
    let is_element = PIECES.iter().any(|piece| piece.eq_ignore_ascii_case(name))
        && behind.starts_with(|c: char| c.is_whitespace() || "/>".contains(c));
    let is_closed = value.ends_with('>') && value.contains("</");
    (is_element || is_whole_page(value)) && is_closed
}

/// Whether a line is a piece of base64 as programs wrap it.
fn is_encoded(line: &str) -> bool {
    let line = line.trim_end();
    (60..=1000).contains(&line.len())
        && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
        && line.bytes().any(|byte| byte.is_ascii_digit())
        && line.bytes().any(|byte| byte.is_ascii_uppercase())
        && line.bytes().any(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests;
