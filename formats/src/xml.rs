//! A bounded XML reader: events with local names, text with its references resolved, no document type.

use crate::{Format, FormatError, Limit, Limits};
use encoding_rs_io::{DecodeReaderBytes, DecodeReaderBytesBuilder};
use quick_xml::{
    Reader, XmlVersion,
    events::{BytesStart, Event},
};
use std::{
    borrow::Cow,
    io::{BufReader, Read},
};

/// One step through a document.
#[derive(Debug)]
pub(crate) enum Node {
    /// An element begins. Its end follows, even if it is empty.
    Start(Element),
    End,
    Text(String),
}

/// An element's local name and attributes. Attributes have local names too, and of two with the same name the first
/// wins.
#[derive(Debug)]
pub(crate) struct Element {
    pub name: String,
    attributes: Vec<(String, String)>,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes(name).next()
    }

    /// The attributes with a local name, which attributes of several namespaces may share.
    pub(crate) fn attributes(&self, name: &str) -> impl Iterator<Item = &str> {
        self.attributes.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The names and values of all attributes.
    pub(crate) fn into_attributes(self) -> impl Iterator<Item = (String, String)> {
        self.attributes.into_iter()
    }

    /// The attribute in which every WordprocessingML property has its value.
    pub(crate) fn value(&self) -> Option<&str> {
        self.attribute("val")
    }
}

/// One step through a document, before anything of it is kept.
pub(crate) enum Step<'a> {
    Start(BytesStart<'a>),
    End,
    Text(Cow<'a, str>),
}

pub(crate) struct XmlReader<R: Read> {
    inner: Reader<BufReader<DecodeReaderBytes<R, Vec<u8>>>>,
    buffer: Vec<u8>,
    format: Format,
    depth: u32,
    max_depth: u32,
    /// Whether it may declare a document type, of which nothing is read; entities of its own stay as they are written.
    may_have_type: bool,
}

impl<R: Read> XmlReader<R> {
    /// Reads a document of its own rather than a part of a package.
    pub(crate) fn document(source: R, format: Format, limits: &Limits) -> Self {
        Self { may_have_type: true, ..Self::new(source, format, limits) }
    }

    pub(crate) fn new(source: R, format: Format, limits: &Limits) -> Self {
        // Parts may be UTF-16; then they have a mark, which the standard demands.
        let decoded =
            DecodeReaderBytesBuilder::new().bom_sniffing(true).utf8_passthru(true).strip_bom(true).build(source);
        let mut inner = Reader::from_reader(BufReader::new(decoded));
        inner.config_mut().expand_empty_elements = true;
        Self { inner, buffer: Vec::new(), format, depth: 0, max_depth: limits.xml_depth, may_have_type: false }
    }

    /// The next node; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Node>, FormatError> {
        self.step(|step| match step {
            Step::Start(start) => Node::Start(element(&start)),
            Step::End => Node::End,
            Step::Text(text) => Node::Text(text.into_owned()),
        })
    }

    /// What is taken of the next step, for those who do not need all of it; `None` at the end.
    pub(crate) fn step<T>(&mut self, take: impl FnOnce(Step<'_>) -> T) -> Result<Option<T>, FormatError> {
        loop {
            self.buffer.clear();
            let event = self.inner.read_event_into(&mut self.buffer).map_err(|error| read_error(self.format, error))?;
            let step = match event {
                Event::Start(start) => {
                    self.depth = deeper(self.depth, self.max_depth)?;
                    Step::Start(start)
                }
                Event::End(_) => {
                    self.depth -= 1;
                    Step::End
                }
                Event::Text(text) => Step::Text(text.xml10_content()),
                Event::CData(text) => Step::Text(text.xml10_content()),
                Event::GeneralRef(reference) => Step::Text(match reference.resolve_char_ref() {
                    Ok(Some(character)) => character.to_string().into(),
                    _ => match quick_xml::escape::resolve_predefined_entity(&reference.xml10_content()) {
                        Some(text) => text.into(),
                        None if self.may_have_type => format!("&{};", reference.xml10_content()).into(),
                        None => {
                            return Err(FormatError::corrupt(self.format, "it refers to an undefined entity"));
                        }
                    },
                }),
                Event::DocType(_) if self.may_have_type => continue,
                Event::DocType(_) => return Err(document_type(self.format)),
                Event::Eof if self.depth > 0 => return Err(cut_short(self.format)),
                Event::Eof => return Ok(None),
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::Empty(_) => continue,
            };
            return Ok(Some(take(step)));
        }
    }

    /// Skips to the end of the element that just began, without reading its content.
    pub(crate) fn skip(&mut self) -> Result<(), FormatError> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            self.buffer.clear();
            match self.inner.read_event_into(&mut self.buffer).map_err(|error| read_error(self.format, error))? {
                Event::Start(_) => self.depth = deeper(self.depth, self.max_depth)?,
                Event::End(_) => self.depth -= 1,
                Event::DocType(_) => return Err(document_type(self.format)),
                Event::Eof => return Err(cut_short(self.format)),
                _ => {}
            }
        }
        Ok(())
    }
}

fn deeper(depth: u32, max_depth: u32) -> Result<u32, FormatError> {
    if depth >= max_depth {
        return Err(FormatError::over(Limit::XmlDepth, format_args!("XML elements nest deeper than {max_depth}")));
    }
    Ok(depth + 1)
}

/// Entities declared there expand without bound, and no office package has a document type.
fn document_type(format: Format) -> FormatError {
    FormatError::corrupt(format, "an XML part declares a document type, which is refused")
}

fn cut_short(format: Format) -> FormatError {
    FormatError::corrupt(format, "it ends within an element")
}

fn element(start: &BytesStart<'_>) -> Element {
    let attributes = start
        .attributes()
        // The check for duplicates compares each attribute with all before it.
        .with_checks(false)
        .flatten()
        // What names a namespace is no attribute.
        .filter(|attribute| attribute.key.as_namespace_binding().is_none())
        .map(|attribute| {
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).unwrap_or(Cow::Borrowed(""));
            (attribute.key.local_name().as_ref().to_owned(), value.into_owned())
        })
        .collect();
    Element { name: start.local_name().as_ref().to_owned(), attributes }
}

fn read_error(format: Format, error: quick_xml::Error) -> FormatError {
    match error {
        // A limit met while inflating, or a member that does not inflate.
        quick_xml::Error::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref::<FormatError>()) {
            Some(ours) => ours.clone(),
            None => FormatError::corrupt(format, io),
        },
        other => FormatError::corrupt(format, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(xml: &[u8]) -> Result<String, FormatError> {
        let mut reader = XmlReader::new(xml, Format::Docx, &Limits::default());
        let mut out = String::new();
        while let Some(node) = reader.next()? {
            match node {
                Node::Start(element) => out.push_str(&format!("<{} {:?}>", element.name, element.value())),
                Node::End => out.push('/'),
                Node::Text(text) => out.push_str(&text),
            }
        }
        Ok(out)
    }

    #[test]
    fn references_are_text_and_names_are_local() {
        let xml = br#"<?xml version="1.0"?><w:t w:val="a&amp;b">x &amp; y &#x41;<![CDATA[<&]]></w:t>"#;
        assert_eq!(all(xml).unwrap(), r#"<t Some("a&b")>x & y A<&/"#);
    }

    #[test]
    fn what_is_skipped_is_bounded_too() {
        let skip = |xml: &str| {
            let mut reader = XmlReader::new(xml.as_bytes(), Format::Docx, &Limits::default());
            reader.next()?;
            reader.next()?;
            reader.skip()?;
            Ok::<_, FormatError>(matches!(reader.next()?, Some(Node::Text(text)) if text == "after"))
        };
        assert_eq!(skip("<a><b><c>x</c><d/>&amp;</b>after</a>"), Ok(true));
        assert_eq!(skip(&format!("<a><b>{}", "<c>".repeat(300))).unwrap_err().limit(), Some(Limit::XmlDepth));
        assert_eq!(skip("<a><b><c>").unwrap_err().code(), "corrupt");
    }

    #[test]
    fn utf_16_reads() {
        let bytes: Vec<u8> = "\u{FEFF}<a>é</a>".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(all(&bytes).unwrap(), "<a None>é/");
    }

    #[test]
    fn what_is_hostile_is_refused_by_name() {
        let refused = all(b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>").unwrap_err();
        assert!(refused.code() == "corrupt" && refused.to_string().contains("document type"), "{refused}");
        assert_eq!(all(b"<a>&b;</a>").unwrap_err().code(), "corrupt");
        assert_eq!(all("<a>".repeat(300).as_bytes()).unwrap_err().limit(), Some(Limit::XmlDepth));
        assert_eq!(all(b"<a><b>").unwrap_err().code(), "corrupt");
        assert_eq!(all(b"<a></b>").unwrap_err().code(), "corrupt");
    }
}
