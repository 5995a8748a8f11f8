//! Reads e-mail: single messages, and mailboxes of them. Of a body in several forms the best is taken.

mod armour;
mod transfer;
mod words;
mod writer;

use crate::{
    Extraction, Format, FormatError, Limits, Pattern, Patterns, charset, html,
    members::{Budget, LeftOut, MemberHead, MemberPart, TakePart},
    text,
};
use mail_parser::{
    Address, ContentType, Encoding, HeaderName, Message, MessageParser, MessagePart, MimeHeaders, PartType,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::{Read, Seek},
};
pub(crate) use writer::{Addresses, Attachment, DEPTH, Field, Letter, SUBJECT, Writer, best_body, cut, unnamed};

const ATTACHMENTS: &str = "eml.attachments";
/// It selects characters in ASCII.
const ESCAPE: u8 = 0x1B;

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
        let message = with_readable_head(&message);
        let message = MessageParser::default().parse(&*message).filter(|message| !message.parts.is_empty());
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
        let name = name_of(message, part).unwrap_or_else(|| unnamed(*index));
        match bytes_of(message, part) {
            Some(bytes) => {
                budget.give(MemberHead { index: *index, name, declared_mime: declared_mime(part) }, &bytes, take)?;
            }
            None => take(MemberPart::LeftOut { name, reason: LeftOut::Damaged })?,
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

/// The bytes of a file as they were before they were encoded for their transfer; `None` if they are damaged.
fn bytes_of<'a>(message: &'a Message<'_>, part: &'a MessagePart<'_>) -> Option<Cow<'a, [u8]>> {
    let is_message = part.content_type().is_some_and(|kind| kind.ctype() == "message");
    match &part.body {
        // A message without headers is given as a text that ends before its boundary.
        PartType::Text(text) if is_message && transfer::encoding(part) == Encoding::None => {
            Some(Cow::Borrowed(text.as_bytes()))
        }
        // The parser gives texts in UTF-8, whatever their file is in.
        PartType::Text(_) | PartType::Html(_) => {
            let sent = transfer::sent(message, part);
            sent.is_whole.then_some(sent.bytes)
        }
        _ => Some(Cow::Borrowed(part.contents())),
    }
}

fn name_of(message: &Message<'_>, part: &MessagePart<'_>) -> Option<String> {
    let of = |header: HeaderName<'static>, attribute: &str| {
        let value = words::value(message, part, header)?;
        value.as_content_type()?.attribute(attribute).map(cut)
    };
    let name = of(HeaderName::ContentDisposition, "filename").or_else(|| of(HeaderName::ContentType, "name"));
    name.filter(|name| !name.is_empty())
}

fn kind_of(part: &MessagePart<'_>) -> Option<String> {
    part.content_type().map(|kind| match kind.subtype() {
        Some(subtype) => cut(&format!("{}/{subtype}", kind.ctype())),
        None => cut(kind.ctype()),
    })
}

/// The kind of a file with the encoding that its text declares, because the bytes stay as they were sent.
fn declared_mime(part: &MessagePart<'_>) -> Option<String> {
    let kind = kind_of(part)?;
    let charset = part.content_type().and_then(|kind| kind.attribute("charset")).map(cut);
    Some(match charset.filter(|charset| !charset.is_empty()) {
        Some(charset) => format!("{kind}; charset={charset}"),
        None => kind,
    })
}

/// Reads one message, or all of a mailbox; each becomes a section under its subject.
pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let bytes = text::read_all(source, limits)?;
    let mut writer = Writer::new(limits);
    let messages = messages(&bytes);
    for message in &messages {
        let message = with_readable_head(message);
        let message = MessageParser::default().parse(&*message).filter(|message| !message.parts.is_empty());
        let message = message.ok_or_else(|| FormatError::corrupt(Format::Eml, "a message has no headers"))?;
        write(&message, 1, messages.len() == 1, &mut writer, limits)?;
    }
    writer.finish(ATTACHMENTS)
}

/// The body of a message, without what the message says of itself.
pub(crate) fn content(bytes: &[u8], limits: &Limits) -> Result<Extraction, FormatError> {
    let message = with_readable_head(bytes);
    let message = MessageParser::default().parse(&*message).filter(|message| !message.parts.is_empty());
    let message = message.ok_or_else(|| FormatError::corrupt(Format::Eml, "a message has no headers"))?;
    body(&message, &body_parts(&message), limits)
}

/// Writes a message and those within it.
fn write(
    message: &Message<'_>,
    level: u8,
    is_alone: bool,
    writer: &mut Writer<'_>,
    limits: &Limits,
) -> Result<(), FormatError> {
    let of_body = body_parts(message);
    let Attached { opened, listed } = Attached::of(message, &of_body, level);
    let attachments = listed.iter().map(|part| Attachment {
        name: name_of(message, part),
        kind: kind_of(part),
        bytes: bytes_of(message, part).map(|bytes| bytes.len() as u64),
    });
    let body = match body(message, &of_body, limits) {
        // One page that nobody can read keeps no other message out.
        Err(FormatError::Unsupported { .. }) if !is_alone => Extraction::default(),
        body => body?,
    };
    let letter = Letter { fields: fields(message), body, attachments: attachments.collect() };
    writer.letter(letter, level)?;
    opened.into_iter().try_for_each(|inner| write(inner, level + 1, false, writer, limits))
}

/// The messages of a mailbox, which begin with lines `From ` between an empty line and a header; a single message is one.
fn messages(bytes: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    if !bytes.starts_with(b"From ") {
        return vec![Cow::Borrowed(bytes)];
    }
    let borders = memchr::memmem::find_iter(bytes, b"\nFrom ").map(|at| at + 1);
    let borders = borders.filter(|&at| bytes[..at].ends_with(b"\n\n") || bytes[..at].ends_with(b"\r\n\r\n"));
    let borders = borders.filter(|&at| is_before_header(&bytes[at..]));
    let mut starts = vec![0];
    starts.extend(borders);
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let without_border = |(&start, end): (&usize, usize)| {
        let message = &bytes[start..end];
        unquoted(memchr::memchr(b'\n', message).map_or(&message[message.len()..], |line| &message[line + 1..]))
    };
    starts.iter().zip(ends).map(without_border).collect()
}

/// A message whose headers are UTF-8. Old programs write them in the encoding of their country, which they name nowhere,
/// and Japanese ones in ASCII with escapes.
fn with_readable_head(message: &[u8]) -> Cow<'_, [u8]> {
    let end = [b"\n\n".as_slice(), b"\r\n\r\n"].into_iter().filter_map(|end| memchr::memmem::find(message, end)).min();
    let (head, rest) = message.split_at(end.unwrap_or(message.len()));
    match std::str::from_utf8(head) {
        Ok(_) if memchr::memchr(ESCAPE, head).is_none() => Cow::Borrowed(message),
        _ => Cow::Owned([charset::decode(head).text.as_bytes(), rest].concat()),
    }
}

/// A message of a mailbox as it was sent: what looks like a border in it has a `>` more.
fn unquoted(message: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memmem::find(message, b">From ").is_none() {
        return Cow::Borrowed(message);
    }
    let mut sent = Vec::with_capacity(message.len());
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        let marks = line.iter().take_while(|byte| **byte == b'>').count();
        let is_marked = marks > 0 && line[marks..].starts_with(b"From ");
        sent.extend_from_slice(&line[usize::from(is_marked)..]);
    }
    Cow::Owned(sent)
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

/// What people see of the headers.
fn fields(message: &Message<'_>) -> Vec<Field> {
    let value = |name: HeaderName<'static>| words::value(message, message.parts.first()?, name);
    let people = |name: HeaderName<'static>| value(name)?.as_address().map(addresses);
    let fields = [
        (SUBJECT, value(HeaderName::Subject).and_then(|subject| subject.as_text().map(cut))),
        ("From", people(HeaderName::From)),
        ("To", people(HeaderName::To)),
        ("Cc", people(HeaderName::Cc)),
        ("Date", message.date().map(mail_parser::DateTime::to_rfc3339)),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The parts that are the body: those that the parser takes for it, and texts that it takes for attachments because they
/// are damaged.
fn body_parts(message: &Message<'_>) -> BTreeSet<u32> {
    let is_lost = |id: &&u32| match &message.parts[..] {
        [only] => is_text(only) || only.content_type().is_some_and(|kind| kind.ctype() == "multipart"),
        parts => {
            parts.get(**id as usize).is_some_and(|part| part.is_encoding_problem && is_text(part) && is_shown(part))
        }
    };
    let lost = message.attachments.iter().filter(is_lost);
    // An image within the text is among the parts of the body, too.
    let is_readable = |id: &&u32| message.parts.get(**id as usize).is_some_and(|part| decoded(message, part).is_some());
    message.text_body.iter().chain(&message.html_body).filter(is_readable).chain(lost).copied().collect()
}

/// Whether a part holds text that belongs to no file.
fn is_text(part: &MessagePart<'_>) -> bool {
    let is_of_body = match transfer::encoding(part) {
        Encoding::Base64 => {
            part.is_encoding_problem && part.content_type().is_none_or(|kind| kind.ctype() == "text") && is_shown(part)
        }
        _ => true,
    };
    matches!(part.body, PartType::Text(_)) && part.attachment_name().is_none() && is_of_body
}

/// Whether the parser takes a text of this kind for a part of the body if nothing is broken. An invitation's calendar, for example,
/// is a file.
fn is_shown(part: &MessagePart<'_>) -> bool {
    let is_shown = |kind: &ContentType<'_>| kind.ctype() != "text" || matches!(kind.subtype(), Some("plain" | "html"));
    part.content_type().is_none_or(is_shown)
}

fn is_page(part: &MessagePart<'_>) -> bool {
    let is_named = |kind: &ContentType<'_>| kind.ctype() == "text" && kind.subtype() == Some("html");
    matches!(part.body, PartType::Html(_)) || part.content_type().is_some_and(is_named)
}

/// The body without white space around it: its text, or its HTML if the text is missing or much shorter. A part that belongs to both forms, such as the footer
/// that a mailing list adds, is in either.
fn body(message: &Message<'_>, parts: &BTreeSet<u32>, limits: &Limits) -> Result<Extraction, FormatError> {
    let (mut of_text, mut of_page): (BTreeSet<u32>, BTreeSet<u32>) =
        (message.text_body.iter().copied().collect(), message.html_body.iter().copied().collect());
    let lost = parts.difference(&of_text).copied().filter(|id| !of_page.contains(id)).collect::<BTreeSet<u32>>();
    // If one form of a text is lost, the parser counts it to no form, and counts another one to all.
    let forms = forms(message);
    let broken: BTreeSet<u32> = lost.iter().filter_map(|id| Some(forms.get(id)?.text)).collect();
    let of_form = |id: &u32| forms.get(id).filter(|form| broken.contains(&form.text)).map(|form| (*id, form.id));
    let of_forms: Vec<(u32, u32)> = parts.iter().filter_map(of_form).collect();
    let is_of_page = |(id, _): &&(u32, u32)| message.parts.get(*id as usize).is_some_and(is_page);
    let pages: BTreeSet<u32> = of_forms.iter().filter(is_of_page).map(|(_, form)| *form).collect();
    for (id, form) in of_forms {
        let is_page = pages.contains(&form);
        let (form, other) = if is_page { (&mut of_page, &mut of_text) } else { (&mut of_text, &mut of_page) };
        form.insert(id);
        other.remove(&id);
    }
    let form = |of: &BTreeSet<u32>, other: &BTreeSet<u32>| {
        parts.iter().copied().filter(|id| of.contains(id) || !other.contains(id)).collect::<Vec<u32>>()
    };
    let (plain, rich) = (form(&of_text, &of_page), form(&of_page, &of_text));
    let part = |id: &u32| message.parts.get(*id as usize);
    let plain = match plain.iter().filter_map(part).any(is_page) {
        // There is one form alone.
        true if plain == rich => return joined(message, rich.iter().filter_map(part), limits),
        true => joined(message, plain.iter().filter_map(part), limits)?.text,
        false => {
            let texts = plain.iter().filter_map(part).filter_map(|part| Some(charset::clean(&decoded(message, part)?)));
            texts.collect::<Vec<_>>().join("\n\n")
        }
    };
    let plain = plain.trim().to_owned();
    match joined(message, rich.iter().filter_map(part), limits) {
        Ok(rich) => Ok(best_body(plain, rich)),
        // A body that has a text does not need a page that is none.
        Err(FormatError::Unsupported { .. }) if !plain.is_empty() => Ok(best_body(plain, Extraction::default())),
        Err(error) => Err(error),
    }
}

/// One of several forms of a text: a part, or several together, such as a page with its pictures.
#[derive(Clone, Copy)]
struct Form {
    /// The part that holds all forms.
    text: u32,
    /// The part that is the form, or holds its parts.
    id: u32,
}

/// The forms that parts belong to.
fn forms(message: &Message<'_>) -> BTreeMap<u32, Form> {
    let is_alternative = |kind: &ContentType<'_>| kind.ctype() == "multipart" && kind.subtype() == Some("alternative");
    let mut forms: BTreeMap<u32, Form> = BTreeMap::new();
    // A part comes before the parts within it.
    for (text, part) in (0u32..).zip(&message.parts) {
        let PartType::Multipart(within) = &part.body else { continue };
        let around = forms.get(&text).copied();
        let is_alternative = part.content_type().is_some_and(is_alternative);
        for id in within.iter().copied() {
            let form = if is_alternative { Some(Form { text, id }) } else { around };
            forms.extend(form.map(|form| (id, form)));
        }
    }
    forms
}

/// Parts of a body one after the other.
fn joined<'a>(
    message: &Message<'_>,
    parts: impl Iterator<Item = &'a MessagePart<'a>>,
    limits: &Limits,
) -> Result<Extraction, FormatError> {
    let mut all = Extraction::default();
    for part in parts {
        let Some(text) = decoded(message, part) else { continue };
        let piece = match is_page(part) {
            true => html::Source::of_text(&text).body(limits)?,
            false => Extraction { text: charset::clean(&text).trim().to_owned(), ..Extraction::default() },
        };
        if piece.text.is_empty() {
            continue;
        }
        if !all.text.is_empty() {
            all.text.push_str("\n\n");
        }
        let start = all.text.len();
        all.text.push_str(&piece.text);
        all.headings.extend(piece.headings.into_iter().map(|mut heading| {
            heading.start += start;
            heading
        }));
    }
    Ok(all)
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
    if transfer::is_broken(part) {
        return Some(Cow::Owned(transfer::text(message, part)));
    }
    if text.is_ascii() {
        return Some(match memchr::memchr(ESCAPE, text.as_bytes()) {
            Some(_) => Cow::Owned(charset::decode(text.as_bytes()).text),
            None => Cow::Borrowed(text),
        });
    }
    let bytes = transfer::sent(message, part).bytes;
    if bytes.is_ascii() {
        return Some(Cow::Borrowed(text));
    }
    Some(match String::from_utf8(bytes.into_owned()) {
        Ok(text) => Cow::Owned(text),
        Err(error) if text.contains(char::REPLACEMENT_CHARACTER) => Cow::Owned(charset::decode(error.as_bytes()).text),
        Err(_) => Cow::Borrowed(text),
    })
}

fn addresses(address: &Address<'_>) -> String {
    let mut addresses = Addresses::default();
    for one in address.iter() {
        addresses.push(one.name(), one.address());
    }
    addresses.line()
}

#[cfg(test)]
mod tests;
