//! Reads plain text and Markdown. Every text file is read as Markdown: a plain one simply declares no headings.

use crate::{Extraction, FormatError, Heading, Limit, Limits, Pattern, Patterns, charset, markup, tables::has_tables};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::{
    io::{Read, Seek, SeekFrom},
    ops::Range,
};

/// Options that a reader of Markdown expects.
pub(crate) const MARKDOWN: Options = Options::ENABLE_TABLES;

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let text = charset::decode(&read_all(source, limits)?).text;
    // Markup without a reader has no text to be found by.
    let has_markup = markup::is_markup(&text);
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, !has_markup && text.chars().any(|character| !character.is_whitespace()))
        .with(Pattern::HasHeadings, !has_markup && headings(&text).next().is_some())
        .with(Pattern::HasTables, !has_markup && has_tables(&text))
        .with(Pattern::HasMarkup, has_markup))
}

pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let decoded = charset::decode(&read_all(source, limits)?);
    let headings: Vec<_> = headings(&decoded.text).take(limits.headings as usize + 1).collect();
    let mut extraction = Extraction {
        headings_from: (!headings.is_empty()).then(|| "markdown".to_owned()),
        headings,
        charset: Some(decoded.charset.to_owned()),
        text: decoded.text,
        ..Extraction::default()
    };
    if decoded.had_errors {
        extraction.facts.insert("undecodable_bytes".to_owned(), true.into());
    }
    extraction.within(limits)
}

/// Reads the whole source, or refuses it by the limit it exceeds.
pub(crate) fn read_all<R: Read + Seek>(mut source: R, limits: &Limits) -> Result<Vec<u8>, FormatError> {
    // Space for all of it is reserved at once, because growing would take twice as much.
    let length = source.seek(SeekFrom::End(0))?.min(limits.input_bytes);
    source.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    source.take(limits.input_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limits.input_bytes {
        return Err(FormatError::over(Limit::InputBytes, format_args!("over {} bytes", limits.input_bytes)));
    }
    Ok(bytes)
}

/// The headings of a text in Markdown, in their order. One in a quote is none of the text that quotes it.
pub fn headings(text: &str) -> impl Iterator<Item = Heading> {
    let start = front_matter(text);
    headings_of_piece(&text[start..]).map(move |mut heading| {
        heading.start += start;
        heading
    })
}

/// The headings of a piece of Markdown, which has no metadata, because it is not the beginning of a file.
pub(crate) fn headings_of_piece(text: &str) -> impl Iterator<Item = Heading> {
    let mut events = Parser::new_ext(text, MARKDOWN).into_offset_iter();
    let mut quotes = 0_usize;
    let mut rule = None;
    std::iter::from_fn(move || {
        let mut open: Option<Heading> = None;
        for (event, range) in events.by_ref() {
            match (&mut open, event) {
                (_, Event::Start(Tag::BlockQuote(_))) => quotes += 1,
                (_, Event::End(TagEnd::BlockQuote(_))) => quotes = quotes.saturating_sub(1),
                (_, Event::Rule) => rule = Some(range.start),
                (_, Event::Start(Tag::Heading { level, .. })) if quotes == 0 && !is_metadata(text, rule, &range) => {
                    // The marks of a list before the heading are no text of their own.
                    let start = text[..range.start].rfind(['\n', '\r']).map_or(0, |end| end + 1);
                    open = Some(Heading { level: level as u8, title: String::new(), start });
                }
                (Some(heading), Event::Text(piece) | Event::Code(piece)) => heading.title.push_str(&piece),
                (Some(heading), Event::SoftBreak | Event::HardBreak) => heading.title.push('\n'),
                (Some(_), Event::End(TagEnd::Heading(_))) => return open,
                _ => {}
            }
        }
        None
    })
}

/// The length of the metadata that a file may begin with, between two lines of dashes. A parser of Markdown would look for
/// such blocks anywhere, and take the sections between two rules for one.
pub(crate) fn front_matter(text: &str) -> usize {
    let blank: usize = text.split_inclusive('\n').take_while(|line| line.trim().is_empty()).map(str::len).sum();
    let mut lines = text[blank..].split_inclusive('\n').map(|line| (line.len(), line.trim_end()));
    let Some((mut end, "---")) = lines.next() else { return 0 };
    for (index, (length, line)) in lines.enumerate() {
        let is_last = matches!(line, "---" | "...");
        // Behind blank lines, it may as well be a rule above a title or a section.
        let fits = blank == 0 || is_last || if index == 0 { is_key(line) } else { is_of_metadata(line) };
        if !fits || (index == 0 && (is_last || line.is_empty())) {
            return 0;
        }
        end += length;
        if is_last {
            return blank + end;
        }
    }
    0
}

/// Whether a heading is the metadata of what follows, as files that are joined, or slides, have it: between a `rule` directly above
/// it, of which this is the beginning, and the line that makes it a heading.
fn is_metadata(text: &str, rule: Option<usize>, heading: &Range<usize>) -> bool {
    let above = rule.map_or("", |rule| &text[rule..heading.start]);
    let mut lines = text[heading.clone()].trim_end().lines();
    above.trim_end() == "---"
        && above.matches('\n').count() == 1
        && lines.next_back() == Some("---")
        && lines.next().is_some_and(is_key)
        && lines.all(is_of_metadata)
}

/// Whether a line may stand in metadata below the first one.
fn is_of_metadata(line: &str) -> bool {
    line.starts_with([' ', '\t']) || line.starts_with("- ") || line.contains(": ") || line.trim_end().ends_with(':')
}

/// Whether a line is the name of a value, with the value or above it.
fn is_key(line: &str) -> bool {
    let line = line.trim_end();
    let name = line.split_once(": ").map(|(name, _)| name).or_else(|| line.strip_suffix(':'));
    name.is_some_and(|name| !name.is_empty() && !name.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn of(text: &str) -> Extraction {
        extract(Cursor::new(text), &Limits::default()).unwrap()
    }

    #[test]
    fn headings_keep_level_title_and_offset() {
        let read = of("---\ntitle: x\n---\n\n# One `code` &amp; more\r\n\ntext\n\nTwo\n---\n\n```\n# not one\n```\n");
        let found: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect();
        assert_eq!(found, [(1, "One code & more"), (2, "Two")]);
        assert!(read.text[read.headings[0].start..].starts_with("# One"));
        assert!(read.text[read.headings[1].start..].starts_with("Two\n---"));
        assert_eq!(read.headings_from.as_deref(), Some("markdown"));
    }

    fn titles(text: &str) -> Vec<String> {
        of(text).headings.into_iter().map(|heading| heading.title).collect()
    }

    #[test]
    fn metadata_within_a_file_or_behind_a_blank_line_is_no_heading() {
        assert_eq!(titles("# A\n\nx\n\n---\nlayout: center\n---\n\n# B\n"), ["A", "B"]);
        let notes = "# A\n---\ntitle: x\ndate created: 2026-03-04\naliases:\n  [y, z]\n---\n# B\n";
        assert_eq!(titles(notes), ["A", "B"]);
        assert_eq!(titles("\n---\ntitle: x\n---\n# A\n"), ["A"]);
        assert_eq!(titles("\n---\ntags:\n- x\ntitle: y\n---\n# A\n"), ["A"]);
        let chapters = "\n---\nStatus: draft\n\n# Chapter 1\n\nx\n\n---\n\n# Chapter 2\n";
        assert_eq!(titles(chapters), ["Chapter 1", "Chapter 2"]);
        for (text, title) in [
            ("x\n\n---\nA title\n---\n", "A title"),
            ("x\n\n---\nChapter 1: Ducks\n---\n", "Chapter 1: Ducks"),
            ("x\n\n---\n\nDucks: all of them\n---\n", "Ducks: all of them"),
            ("x\n\nlayout: center\n---\n", "layout: center"),
            ("\n---\nA title\n---\n", "A title"),
        ] {
            assert_eq!(titles(text), [title], "{text}");
        }
    }

    #[test]
    fn rules_around_a_section_are_no_metadata() {
        let text = "# A\n\nx\n\n---\n## B\n\ny\n\n---\n\n## C\n";
        assert_eq!(titles(text), ["A", "B", "C"]);
        let read = of(&format!("---\ntitle: x\n...\n{text}"));
        assert_eq!(read.headings.len(), 3);
        assert!(read.text[read.headings[1].start..].starts_with("## B"));
        assert_eq!(titles("---\nIt has no end.\n\n# A\n"), ["A"]);
    }

    #[test]
    fn a_heading_in_a_quote_takes_nothing_of_the_text_around_it() {
        let read = of("## Install\n\nRun it.\n\n> ### Note\n> Needs root.\n\nThen configure.\n");
        let titles: Vec<_> = read.headings.iter().map(|heading| heading.title.as_str()).collect();
        assert_eq!(titles, ["Install"]);
        assert!(of("> # Quote\n> Words.\n").headings.is_empty());
        let list = of("Before.\n\n- ### Card\n  x\n");
        assert!(list.text[list.headings[0].start..].starts_with("- ### Card"), "{:?}", list.headings);
    }

    #[test]
    fn plain_text_declares_nothing() {
        let read = of("Just a line.\n");
        assert!(read.headings.is_empty() && read.headings_from.is_none());
        let patterns = probe(Cursor::new("  \n"), &Limits::default()).unwrap();
        assert_eq!(patterns.get(Pattern::HasTextLayer), Some(&false.into()));
    }

    #[test]
    fn a_text_over_its_limit_names_it() {
        let limits = Limits { text_bytes: 4, ..Limits::default() };
        let error = extract(Cursor::new("12345"), &limits).unwrap_err();
        assert_eq!((error.limit(), error.is_permanent()), (Some(Limit::TextBytes), true));
    }
}
