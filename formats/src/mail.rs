//! Reads e-mail: single messages, and mailboxes of them. What people see of the headers becomes lines of the text, of a
//! body in several forms the best is taken, and attachments are listed.

use crate::{
    Extraction, Format, FormatError, Heading, Limits, Pattern, Patterns, charset,
    extraction::check_text,
    facts::{self, FactList},
    html,
    members::{Budget, LeftOut, MemberHead, MemberPart, TakePart},
    text,
};
use mail_parser::{
    Address, ContentType, Encoding, Message, MessageParser, MessagePart, MimeHeaders, PartType,
    decoders::{base64::base64_decode, quoted_printable::quoted_printable_decode},
};
use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::Write,
    io::{Read, Seek},
};

/// Messages within messages that are opened; deeper ones are attachments.
const DEPTH: u8 = 5;
/// The most addresses of one field that are shown, and attachments of one message.
const SHOWN: usize = 100;
/// How many bytes of an attachment are given at once.
const PIECE: usize = 256 << 10;
/// A longer subject, address or name of an attachment is cut.
const CHARACTERS: usize = 300;
/// A text that has less than this share of the words of the same body in HTML only points to it.
const WHOLE_BODY: f64 = 0.5;

const ATTACHMENTS: &str = "eml.attachments";

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let read = extract(source, limits)?;
    Ok(read.patterns().with(Pattern::HasMembers, read.facts.contains_key(ATTACHMENTS)))
}

/// Reads the attachments that the text lists.
pub(crate) fn members<R: Read + Seek>(
    source: R,
    limits: &Limits,
    budget: &mut Budget,
    take: &mut TakePart<'_>,
) -> Result<(), FormatError> {
    let bytes = text::read_all(source, limits)?;
    let mut index = 0;
    for message in messages(&bytes) {
        let message = MessageParser::default().parse(message).filter(|message| !message.parts.is_empty());
        if let Some(message) = message {
            attached(&message, 1, &mut index, budget, take)?;
        }
    }
    Ok(())
}

/// Gives the attachments of a message and of those within it, in the order of the list in the text.
fn attached(
    message: &Message<'_>,
    level: u8,
    index: &mut u64,
    budget: &mut Budget,
    take: &mut TakePart<'_>,
) -> Result<(), FormatError> {
    let Attached { opened, listed } = Attached::of(message, &body_parts(message), level);
    for part in listed {
        let name = name_of(part).unwrap_or_else(|| format!("attachment {}", *index + 1));
        let bytes = part.contents();
        match (budget.spent(), budget.bytes.checked_sub(bytes.len() as u64)) {
            (Some(reason), _) => take(MemberPart::LeftOut { name, reason })?,
            (None, None) => {
                budget.bytes = 0;
                take(MemberPart::LeftOut { name, reason: LeftOut::MemberBytes })?;
            }
            (None, Some(left)) => {
                (budget.bytes, budget.members) = (left, budget.members - 1);
                take(MemberPart::Begin(MemberHead { index: *index, name, declared_mime: kind_of(part) }))?;
                for piece in bytes.chunks(PIECE) {
                    take(MemberPart::Bytes(piece.to_vec()))?;
                }
                take(MemberPart::End)?;
            }
        }
        *index += 1;
    }
    opened.into_iter().try_for_each(|inner| attached(inner, level + 1, index, budget, take))
}

/// The parts of a message that are not its body.
struct Attached<'a> {
    /// Messages, whose text is read with this one's.
    opened: Vec<&'a Message<'a>>,
    /// Files.
    listed: Vec<&'a MessagePart<'a>>,
}

impl<'a> Attached<'a> {
    fn of(message: &'a Message<'a>, of_body: &BTreeSet<u32>, level: u8) -> Self {
        let mut attached = Self { opened: Vec::new(), listed: Vec::new() };
        let parts = message.attachments.iter().filter(|id| !of_body.contains(*id));
        for part in parts.filter_map(|id| message.parts.get(*id as usize)) {
            match &part.body {
                PartType::Message(inner) if level < DEPTH && !inner.parts.is_empty() => attached.opened.push(inner),
                _ => attached.listed.push(part),
            }
        }
        attached
    }
}

fn name_of(part: &MessagePart<'_>) -> Option<String> {
    part.attachment_name().map(cut).filter(|name| !name.is_empty())
}

fn kind_of(part: &MessagePart<'_>) -> Option<String> {
    part.content_type().map(|kind| match kind.subtype() {
        Some(subtype) => cut(&format!("{}/{subtype}", kind.ctype())),
        None => cut(kind.ctype()),
    })
}

/// Reads one message, or all of a mailbox; each becomes a section under its subject.
pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let bytes = text::read_all(source, limits)?;
    let mut writer = Writer { limits, read: Extraction::default(), attachments: FactList::default(), messages: 0 };
    for message in messages(&bytes) {
        let message = MessageParser::default().parse(message).filter(|message| !message.parts.is_empty());
        let message = message.ok_or_else(|| FormatError::corrupt(Format::Eml, "a message has no headers"))?;
        writer.message(&message, 1)?;
    }
    let Writer { mut read, attachments, messages, .. } = writer;
    read.facts.insert("messages".to_owned(), messages.into());
    attachments.record(ATTACHMENTS, &mut read.facts);
    read.headings_from = Some("mail".to_owned());
    read.within(limits)
}

/// The messages of a mailbox, which begin with lines `From ` between an empty line and a header; a single message is one.
fn messages(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    if !bytes.starts_with(b"From ") {
        return vec![bytes];
    }
    let borders = memchr::memmem::find_iter(bytes, b"\nFrom ").map(|at| at + 1);
    let borders = borders.filter(|&at| bytes[..at].ends_with(b"\n\n") || bytes[..at].ends_with(b"\r\n\r\n"));
    let borders = borders.filter(|&at| is_before_header(&bytes[at..]));
    let mut starts = vec![0];
    starts.extend(borders);
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let without_border = |(&start, end): (&usize, usize)| {
        let message = &bytes[start..end];
        memchr::memchr(b'\n', message).map_or(&message[message.len()..], |line| &message[line + 1..])
    };
    starts.iter().zip(ends).map(without_border).collect()
}

/// Whether the second line begins as a header does.
fn is_before_header(lines: &[u8]) -> bool {
    /// No line between messages and no name of a header is longer.
    const LONGEST: usize = 1000;
    let mut lines = lines[..lines.len().min(LONGEST)].split(|byte| *byte == b'\n');
    let name =
        lines.nth(1).and_then(|line| line.split(|byte| *byte == b':').next().filter(|name| name.len() < line.len()));
    name.is_some_and(|name| !name.is_empty() && name.iter().all(u8::is_ascii_graphic))
}

struct Writer<'a> {
    limits: &'a Limits,
    read: Extraction,
    attachments: FactList,
    messages: u64,
}

impl Writer<'_> {
    /// Writes a message: its subject as a heading, its fields, its body, its attachments, and the messages within it.
    fn message(&mut self, message: &Message<'_>, level: u8) -> Result<(), FormatError> {
        self.messages += 1;
        let fields = fields(message);
        if self.messages == 1 {
            let facts = fields.iter().map(|(name, value)| (name.to_lowercase(), facts::text(value)));
            self.read.facts.extend(facts);
        }
        let subject = fields.iter().find(|(name, _)| *name == SUBJECT).map_or("(no subject)", |(_, value)| value);
        let heading = format!("{} {subject}", "#".repeat(usize::from(level)));
        let start = self.paragraph(&heading)?;
        self.read.headings.push(Heading { level, title: subject.to_owned(), start });
        let lines = fields.iter().filter(|(name, _)| *name != SUBJECT).map(|(name, value)| format!("{name}: {value}"));
        self.paragraph(&lines.collect::<Vec<_>>().join("\n"))?;
        let of_body = body_parts(message);
        self.body(body(message, &of_body, self.limits)?, level)?;
        let Attached { opened, listed } = Attached::of(message, &of_body, level);
        self.list(&listed)?;
        for inner in opened {
            self.message(inner, level + 1)?;
        }
        Ok(())
    }

    /// Appends a body; its headings are below that of its message.
    fn body(&mut self, body: Extraction, level: u8) -> Result<(), FormatError> {
        let start = self.paragraph(&body.text)?;
        let below = body.headings.into_iter().map(|heading| Heading {
            level: heading.level.saturating_add(level).min(9),
            start: start + heading.start,
            ..heading
        });
        self.read.headings.extend(below);
        Ok(())
    }

    /// Lists attachments; their bytes are files of their own.
    fn list(&mut self, parts: &[&MessagePart<'_>]) -> Result<(), FormatError> {
        if parts.is_empty() {
            return Ok(());
        }
        let mut list = "Attachments:\n".to_owned();
        for (index, part) in parts.iter().enumerate() {
            let (name, kind) = (name_of(part), kind_of(part));
            let bytes = part.contents().len();
            if index < SHOWN {
                let named = name.as_deref().unwrap_or("without a name");
                let kind = kind.as_deref().map(|kind| format!("{kind}, ")).unwrap_or_default();
                // A String takes whatever is written.
                let _ = write!(list, "\n- {named} ({kind}{bytes} bytes)");
            }
            self.attachments.push([
                ("name", name.as_deref().map(facts::text)),
                ("type", kind.as_deref().map(facts::text)),
                ("bytes", Some(bytes.into())),
            ]);
        }
        if let Some(more) = parts.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = write!(list, "\n- and {more} more");
        }
        self.paragraph(&list).map(drop)
    }

    /// Appends a text after an empty line, and returns where it begins.
    fn paragraph(&mut self, text: &str) -> Result<usize, FormatError> {
        let out = &mut self.read.text;
        if !out.is_empty() && !text.is_empty() {
            out.push_str("\n\n");
        }
        let start = out.len();
        out.push_str(text);
        check_text(out.len(), self.limits)?;
        Ok(start)
    }
}

const SUBJECT: &str = "Subject";

/// What people see of the headers.
fn fields(message: &Message<'_>) -> Vec<(&'static str, String)> {
    let fields = [
        (SUBJECT, message.subject().map(cut)),
        ("From", message.from().map(addresses)),
        ("To", message.to().map(addresses)),
        ("Cc", message.cc().map(addresses)),
        ("Date", message.date().map(mail_parser::DateTime::to_rfc3339)),
    ];
    let present = |(name, value): (_, Option<String>)| Some((name, value.filter(|value| !value.is_empty())?));
    fields.into_iter().filter_map(present).collect()
}

/// The parts that are the body: those that the parser takes for it, and texts that it takes for attachments because they
/// are damaged.
fn body_parts(message: &Message<'_>) -> BTreeSet<u32> {
    let is_lost = |id: &&u32| match &message.parts[..] {
        [only] => is_text(only) || only.content_type().is_some_and(|kind| kind.ctype() == "multipart"),
        parts => parts.get(**id as usize).is_some_and(|part| part.is_encoding_problem && is_text(part)),
    };
    let lost = message.attachments.iter().filter(is_lost);
    // An image within the text is among the parts of the body, too.
    let is_readable = |id: &&u32| message.parts.get(**id as usize).is_some_and(|part| decoded(message, part).is_some());
    message.text_body.iter().chain(&message.html_body).filter(is_readable).chain(lost).copied().collect()
}

/// Whether a part holds text that belongs to no file.
fn is_text(part: &MessagePart<'_>) -> bool {
    let is_encoded = part.content_transfer_encoding().is_some_and(|encoding| encoding.eq_ignore_ascii_case("base64"));
    matches!(part.body, PartType::Text(_)) && part.attachment_name().is_none() && !is_encoded
}

fn is_page(part: &MessagePart<'_>) -> bool {
    let is_named = |kind: &ContentType<'_>| kind.ctype() == "text" && kind.subtype() == Some("html");
    matches!(part.body, PartType::Html(_)) || part.content_type().is_some_and(is_named)
}

/// The body without white space around it: its text, or its HTML if the text is missing or much shorter.
fn body(message: &Message<'_>, parts: &BTreeSet<u32>, limits: &Limits) -> Result<Extraction, FormatError> {
    let parts = parts.iter().filter_map(|id| message.parts.get(*id as usize));
    let (pages, texts): (Vec<_>, Vec<_>) = parts.partition(|part| is_page(part));
    let plain: Vec<_> = texts.into_iter().filter_map(|part| Some(charset::clean(&decoded(message, part)?))).collect();
    let plain = plain.join("\n\n").trim().to_owned();
    let mut page = Extraction::default();
    for text in pages.into_iter().filter_map(|part| decoded(message, part)) {
        let piece = html::Source::of_text(&text).body(limits)?;
        if !page.text.is_empty() {
            page.text.push_str("\n\n");
        }
        let start = page.text.len();
        page.text.push_str(&piece.text);
        page.headings.extend(piece.headings.into_iter().map(|mut heading| {
            heading.start += start;
            heading
        }));
    }
    let words = |text: &str| text.split_whitespace().count() as f64;
    let is_whole = words(&plain) > 0.0 && words(&plain) >= WHOLE_BODY * words(&page.text);
    Ok(if is_whole { Extraction { text: plain, ..Extraction::default() } } else { page })
}

/// The text of a part in its true encoding; `None` for an image and the like. Programs declare what they do not write:
/// UTF-8 reads as nothing else, and what the declared encoding cannot read is read as what it resembles.
fn decoded<'a>(message: &Message<'_>, part: &'a MessagePart<'_>) -> Option<Cow<'a, str>> {
    let text = match &part.body {
        PartType::Text(text) | PartType::Html(text) => text,
        // A multipart without parts.
        PartType::Binary(bytes) if message.parts.len() == 1 => return Some(Cow::Owned(charset::decode(bytes).text)),
        _ => return None,
    };
    if text.is_ascii() {
        return Some(Cow::Borrowed(text));
    }
    let raw = message.raw_message.get(part.offset_body as usize..part.offset_end as usize).unwrap_or_default();
    let bytes = match part.encoding {
        Encoding::None => Some(Cow::Borrowed(raw)),
        Encoding::QuotedPrintable => quoted_printable_decode(raw).map(Cow::Owned),
        Encoding::Base64 => base64_decode(raw).map(Cow::Owned),
    };
    Some(match bytes {
        Some(bytes) if !bytes.is_ascii() => match String::from_utf8(bytes.into_owned()) {
            Ok(text) => Cow::Owned(text),
            Err(error) if text.contains(char::REPLACEMENT_CHARACTER) => {
                Cow::Owned(charset::decode(error.as_bytes()).text)
            }
            Err(_) => Cow::Borrowed(text),
        },
        _ => Cow::Borrowed(text),
    })
}

fn addresses(address: &Address<'_>) -> String {
    let one = |address: &mail_parser::Addr<'_>| match (address.name(), address.address()) {
        (Some(name), Some(address)) => format!("{} <{}>", cut(name), cut(address)),
        (one, other) => cut(one.or(other).unwrap_or_default()),
    };
    let mut shown: Vec<String> = address.iter().take(SHOWN).map(one).collect();
    if let Some(more) = address.iter().count().checked_sub(SHOWN).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

/// A value in one line, without controls, and not too long.
fn cut(value: &str) -> String {
    let mut line = String::new();
    for word in value.split_whitespace() {
        if line.len() > 4 * CHARACTERS {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|character| !character.is_control()).take(CHARACTERS));
    }
    line.chars().take(CHARACTERS).collect()
}

#[cfg(test)]
mod tests;
