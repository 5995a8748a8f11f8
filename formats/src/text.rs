//! Reads plain text and Markdown. Every text file is read as Markdown: a plain one simply declares no headings.

use crate::{Extraction, FormatError, Heading, Limit, Limits, Pattern, Patterns, charset, markup, tables::has_tables};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::io::{Read, Seek, SeekFrom};

/// Options that a reader of Markdown expects. The YAML block must be known, because otherwise its fence reads as a
/// heading's underline.
pub(crate) const MARKDOWN: Options = Options::ENABLE_TABLES.union(Options::ENABLE_YAML_STYLE_METADATA_BLOCKS);

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

/// The headings of a text in Markdown, in their order.
pub fn headings(text: &str) -> impl Iterator<Item = Heading> {
    let mut events = Parser::new_ext(text, MARKDOWN).into_offset_iter();
    std::iter::from_fn(move || {
        let mut open: Option<Heading> = None;
        for (event, range) in events.by_ref() {
            match (&mut open, event) {
                (_, Event::Start(Tag::Heading { level, .. })) => {
                    open = Some(Heading { level: level as u8, title: String::new(), start: range.start });
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
