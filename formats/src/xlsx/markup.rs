//! The events of a large part, borrowed from one buffer. Worksheets have millions of them, so none may cost an
//! allocation.

use crate::{Format, FormatError, Limit, Limits};
use encoding_rs::{Encoding, UTF_8};
use encoding_rs_io::{DecodeReaderBytes, DecodeReaderBytesBuilder};
use quick_xml::{
    Reader, XmlVersion,
    events::{Event, attributes::Attributes},
};
use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Read},
    ops::Range,
};

/// The most bytes of one tag or one text. A cell holds 32,767 characters, a formula 8,192.
const MAX_EVENT_BYTES: u64 = 16 << 20;
const READ_BYTES: usize = 64 << 10;

/// A declaration of the encoding ends within this many bytes.
const DECLARATION_BYTES: u64 = 200;

type Decoded<R> = DecodeReaderBytes<io::Chain<io::Cursor<Vec<u8>>, R>, Vec<u8>>;

/// One step through a part; the [`Markup`] has its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// An element begins. If `empty`, it has ended too and no [`Mark::End`] follows.
    Start {
        empty: bool,
    },
    End,
    /// A piece of text; a reference is a separate piece.
    Text,
    /// Something that no reader needs.
    Other,
}

pub(super) struct Markup<R: Read> {
    inner: Reader<Metered<BufReader<Decoded<R>>>>,
    /// The bytes of the event, as they are in the part.
    buffer: Vec<u8>,
    /// The range in `buffer` of a tag's content, or of a text.
    content: Range<usize>,
    name_length: usize,
    /// The text, if it differs from what is in the part.
    resolved: Option<String>,
    /// An error from reading the first bytes.
    failed: Option<FormatError>,
    depth: u32,
    max_depth: u32,
    /// What errors say that the file is.
    format: Format,
}

impl<R: Read> Markup<R> {
    pub(super) fn new(part: R, limits: &Limits) -> Self {
        Self::of_format(part, Format::Xlsx, limits)
    }

    pub(super) fn of_format(mut part: R, format: Format, limits: &Limits) -> Self {
        let mut head = Vec::new();
        let failed = part.by_ref().take(DECLARATION_BYTES).read_to_end(&mut head).err();
        // Parts may be UTF-16; then they have a mark, which the standard demands.
        let decoded = DecodeReaderBytesBuilder::new()
            .encoding(declared_encoding(&head))
            .bom_sniffing(true)
            .utf8_passthru(true)
            .strip_bom(true)
            .build(io::Cursor::new(head).chain(part));
        let source = Metered { inner: BufReader::with_capacity(READ_BYTES, decoded), since_event: 0 };
        let failed = failed.map(|error| refused(format, error.into()));
        Self { failed, ..Self::of(source, format, limits.xml_depth) }
    }

    fn of(source: Metered<BufReader<Decoded<R>>>, format: Format, max_depth: u32) -> Self {
        Self {
            inner: Reader::from_reader(source),
            buffer: Vec::new(),
            content: 0..0,
            name_length: 0,
            resolved: None,
            failed: None,
            depth: 0,
            max_depth,
            format,
        }
    }

    /// The next mark; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Mark>, FormatError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.buffer.clear();
        self.resolved = None;
        self.inner.get_mut().since_event = 0;
        let format = self.format;
        let damaged = |reason: &str| FormatError::corrupt(format, reason);
        let event = self.inner.read_event_into(&mut self.buffer).map_err(|error| refused(format, error))?;
        let mark = match event {
            Event::Start(start) => {
                self.depth += 1;
                if self.depth > self.max_depth {
                    let detail = format_args!("XML elements nest deeper than {}", self.max_depth);
                    return Err(FormatError::over(Limit::XmlDepth, detail));
                }
                self.name_length = start.name().0.len();
                // After the `<`.
                self.content = 1..1 + start.len();
                Mark::Start { empty: false }
            }
            Event::Empty(start) => {
                self.name_length = start.name().0.len();
                self.content = 1..1 + start.len();
                Mark::Start { empty: true }
            }
            Event::End(_) => {
                self.depth = self.depth.saturating_sub(1);
                Mark::End
            }
            Event::Text(text) => {
                self.content = 0..text.len();
                if memchr::memchr(b'\r', text.as_bytes()).is_some() {
                    self.resolved = Some(text.xml10_content().into_owned());
                }
                Mark::Text
            }
            Event::CData(text) => {
                self.resolved = Some(text.xml10_content().into_owned());
                Mark::Text
            }
            Event::GeneralRef(reference) => {
                self.resolved = Some(match reference.resolve_char_ref() {
                    Ok(Some(character)) => character.to_string(),
                    _ => match quick_xml::escape::resolve_predefined_entity(&reference) {
                        Some(text) => text.to_owned(),
                        None => return Err(damaged("an XML part refers to an undefined entity")),
                    },
                });
                Mark::Text
            }
            // Entities declared there expand without bound, and no office package has a document type.
            Event::DocType(_) => return Err(damaged("an XML part declares a document type, which is refused")),
            Event::Eof if self.depth > 0 => return Err(damaged("an XML part ends within an element")),
            Event::Eof => return Ok(None),
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => Mark::Other,
        };
        Ok(Some(mark))
    }

    /// The local name of the element that just began, because prefixes differ between producers.
    pub(super) fn name(&self) -> &str {
        local(self.content().get(..self.name_length).unwrap_or_default())
    }

    /// The attributes of the element that just began, in order, by their local names; broken ones are left out.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let mut attributes = Attributes::new(self.content(), self.name_length);
        // The check for duplicates compares each attribute with all before it.
        attributes.with_checks(false);
        attributes.flatten().map(|attribute| {
            let value = match attribute.value {
                // Most values are plain; checking that first is cheaper than resolving.
                Cow::Borrowed(plain) if !plain.bytes().any(|byte| matches!(byte, b'&' | b'\n' | b'\r' | b'\t')) => {
                    Cow::Borrowed(plain)
                }
                _ => attribute.normalized_value(XmlVersion::Implicit1_0).unwrap_or_default(),
            };
            (local(attribute.key.0), value)
        })
    }

    /// The first attribute with a local name.
    pub(super) fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The text that a [`Mark::Text`] stands for.
    pub(super) fn piece(&self) -> &str {
        self.resolved.as_deref().unwrap_or_else(|| self.content())
    }

    fn content(&self) -> &str {
        // The text was checked before its range was set.
        self.buffer.get(self.content.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Skips to the end of the element that just began, which must not be empty.
    pub(super) fn skip(&mut self) -> Result<(), FormatError> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside && self.next()?.is_some() {}
        Ok(())
    }

    /// Appends the text of the element that just began, without that of elements in it. The element must not be empty.
    pub(super) fn text(&mut self, out: &mut String) -> Result<(), FormatError> {
        loop {
            match self.next()? {
                Some(Mark::Text) => out.push_str(self.piece()),
                Some(Mark::Start { empty: false }) => self.skip()?,
                Some(Mark::End) | None => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// Continues after the first `text` in the part, skipping at most `bytes` bytes without parsing them; `None` if it
    /// does not come that soon. What was open before is forgotten.
    pub(super) fn behind(self, text: &[u8], mut bytes: u64) -> Result<Option<Self>, FormatError> {
        let mut source = self.inner.into_inner();
        // The end of the last window, where it may have begun.
        let mut seam: Vec<u8> = Vec::new();
        loop {
            source.since_event = 0;
            let window = source.fill_buf()?;
            if window.is_empty() || bytes == 0 {
                return Ok(None);
            }
            let length = window.len();
            let old = seam.len();
            seam.extend_from_slice(&window[..length.min(text.len())]);
            let over_seam = memchr::memmem::find(&seam, text).map(|at| (at + text.len()).saturating_sub(old));
            if let Some(end) = over_seam.or_else(|| memchr::memmem::find(window, text).map(|at| at + text.len())) {
                source.consume(end);
                let mut after = Self::of(source, self.format, self.max_depth);
                // The ends of elements that were open will appear.
                after.inner.config_mut().allow_unmatched_ends = true;
                return Ok(Some(after));
            }
            seam.clear();
            seam.extend_from_slice(&window[length.saturating_sub(text.len())..]);
            source.consume(length);
            bytes = bytes.saturating_sub(length as u64);
        }
    }
}

/// Whether it is `1`, `true` or `on`.
pub(super) fn is_true(value: &str) -> bool {
    matches!(value, "1" | "true" | "on")
}

pub(super) fn damaged(reason: impl ToString) -> FormatError {
    FormatError::corrupt(Format::Xlsx, reason)
}

/// The encoding that an XML declaration names; `None` for UTF-8, which needs no decoding.
fn declared_encoding(head: &[u8]) -> Option<&'static Encoding> {
    let end = memchr::memmem::find(head, b"?>")?;
    let after = &head[memchr::memmem::find(&head[..end], b"encoding=")? + b"encoding=".len()..end];
    let (quote, rest) = after.split_first()?;
    let label = &rest[..memchr::memchr(*quote, rest)?];
    // A declaration that can be read as bytes is not in UTF-16, whatever it says.
    Encoding::for_label(label).filter(|encoding| *encoding != UTF_8 && encoding.is_ascii_compatible())
}

fn local(name: &str) -> &str {
    match memchr::memchr(b':', name.as_bytes()) {
        Some(colon) => &name[colon + 1..],
        None => name,
    }
}

fn refused(format: Format, error: quick_xml::Error) -> FormatError {
    match error {
        // A limit met while inflating, or a member that does not inflate.
        quick_xml::Error::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref::<FormatError>()) {
            Some(ours) => ours.clone(),
            None => FormatError::corrupt(format, io),
        },
        other => FormatError::corrupt(format, other),
    }
}

/// A source that fails when an event grows too long, because the reader gathers each event in memory.
struct Metered<B> {
    inner: B,
    since_event: u64,
}

impl<B: BufRead> Read for Metered<B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl<B: BufRead> BufRead for Metered<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.since_event > MAX_EVENT_BYTES {
            let detail = format_args!("one XML tag or text is over {MAX_EVENT_BYTES} bytes");
            return Err(FormatError::over(Limit::TextBytes, detail).into());
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.since_event += bytes as u64;
        self.inner.consume(bytes);
    }
}
