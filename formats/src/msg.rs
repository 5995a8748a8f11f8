//! Reads messages of Outlook: their fields, the best form of their body, their attachments, and the messages within them.

mod compressed;
mod storage;

use crate::{
    Extraction, Format, FormatError, LeftOut, Limits, MemberHead, MemberPart, Pattern, Patterns, TakePart,
    compound::{self, Bounded, read},
    html,
    mail::{Addresses, Attachment, DEPTH, Field, Letter, SUBJECT, Writer, best_body, cut, unnamed},
    members::Budget,
    rtf,
};
use cfb::CompoundFile;
use mail_parser::DateTime;
use std::{
    io::{Cursor, Read, Seek},
    path::PathBuf,
};
use storage::{OF_FILE, OF_MESSAGE, OF_PART, Storage, TABLE};

const ATTACHMENTS: &str = "msg.attachments";

/// No more bytes are read of a subject, an address or a name; what is shown of them is shorter.
const LINE_BYTES: u64 = 8 << 10;

/// The ids of properties.
mod id {
    pub(super) const SUBJECT: u16 = 0x0037;
    pub(super) const SUBJECT_WITHOUT_PREFIX: u16 = 0x0E1D;
    pub(super) const SUBMITTED: u16 = 0x0039;
    pub(super) const DELIVERED: u16 = 0x0E06;
    pub(super) const SHOWN_TO: u16 = 0x0E04;
    pub(super) const SHOWN_CC: u16 = 0x0E03;
    pub(super) const BODY: u16 = 0x1000;
    pub(super) const BODY_RTF: u16 = 0x1009;
    pub(super) const BODY_HTML: u16 = 0x1013;
    /// Who a message is from, and who sent it for them.
    pub(super) const FROM: Party = Party { name: 0x0042, smtp: 0x5D02, address: 0x0065 };
    pub(super) const SENDER: Party = Party { name: 0x0C1A, smtp: 0x5D01, address: 0x0C1F };
    pub(super) const RECIPIENT: Party = Party { name: 0x3001, smtp: 0x39FE, address: 0x3003 };
    pub(super) const RECIPIENT_KIND: u16 = 0x0C15;
    pub(super) const DATA: u16 = 0x3701;
    pub(super) const LONG_NAME: u16 = 0x3707;
    pub(super) const SHORT_NAME: u16 = 0x3704;
    pub(super) const SHOWN_NAME: u16 = 0x3001;
    pub(super) const MIME: u16 = 0x370E;
    pub(super) const METHOD: u16 = 0x3705;

    /// The properties that tell of somebody.
    pub(super) struct Party {
        pub name: u16,
        pub smtp: u16,
        /// Where it is no address of the Internet, it is one within an organization, which tells people nothing.
        pub address: u16,
    }
}

/// Kinds of recipients.
const TO: u32 = 1;
const CC: u32 = 2;
/// Ways of attaching an address of a file in place of its bytes.
const BY_REFERENCE: [u32; 4] = [2, 3, 4, 7];

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let read = extract(source, limits)?;
    Ok(read.patterns().with(Pattern::HasMembers, read.facts.contains_key(ATTACHMENTS)))
}

/// Reads a message and those within it; each becomes a section under its subject.
pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let (mut file, message) = open(source, limits)?;
    let mut writer = Writer::new(limits);
    write(&mut file, &message, 1, &mut writer, limits)?;
    writer.finish(ATTACHMENTS)
}

/// Reads the attachments that the text lists.
pub(crate) fn members<R: Read + Seek>(
    source: R,
    limits: &Limits,
    budget: &mut Budget,
    take: &mut TakePart<'_>,
) -> Result<(), FormatError> {
    let (file, message) = open(source, limits)?;
    Members { file, limits, budget, take, index: 0 }.give(&message, 1)
}

fn open<R: Read + Seek>(source: R, limits: &Limits) -> Result<(CompoundFile<Bounded<R>>, Storage), FormatError> {
    let mut file = compound::open(source, Format::Msg, limits)?;
    let message = Storage::of_file(&mut file, OF_FILE, limits)?;
    Ok((file, message))
}

/// Writes a message, and those within it.
fn write<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    message: &Storage,
    level: u8,
    writer: &mut Writer<'_>,
    limits: &Limits,
) -> Result<(), FormatError> {
    let Attached { opened, listed } = Attached::of(file, message, level)?;
    let attachments = listed.into_iter().map(|(attachment, _)| attachment).collect();
    let letter = Letter { fields: fields(file, message)?, body: body(file, message, limits)?, attachments };
    writer.letter(letter, level)?;
    for path in opened {
        let inner = message.within(file, &path, OF_MESSAGE)?;
        write(file, &inner, level + 1, writer, limits)?;
    }
    Ok(())
}

/// Where the bytes of an attachment are, or why it has none.
type Content = Result<PathBuf, LeftOut>;

/// What is attached to a message.
struct Attached {
    /// Messages, whose text is read with this one's.
    opened: Vec<PathBuf>,
    /// Files.
    listed: Vec<(Attachment, Content)>,
}

impl Attached {
    fn of<R: Read + Seek>(file: &mut CompoundFile<R>, message: &Storage, level: u8) -> Result<Self, FormatError> {
        let mut attached = Self { opened: Vec::new(), listed: Vec::new() };
        for path in message.attachments() {
            let part = message.within(file, &path, OF_PART)?;
            let object = part.object(id::DATA);
            let (bytes, content) = match (object, part.binary(id::DATA)) {
                (Some(object), _) if file.is_stream(object.join(TABLE)) => {
                    if level < DEPTH {
                        attached.opened.push(object);
                        continue;
                    }
                    (None, Err(LeftOut::MemberDepth))
                }
                (_, Some((path, bytes))) => (Some(bytes), Ok(path)),
                (Some(_), None) => (None, Err(LeftOut::Object)),
                (None, None) if part.number(id::METHOD).is_some_and(|method| BY_REFERENCE.contains(&method)) => {
                    (None, Err(LeftOut::Link))
                }
                (None, None) => (None, Err(LeftOut::Damaged)),
            };
            let name = line(file, &part, &[id::LONG_NAME, id::SHORT_NAME, id::SHOWN_NAME])?;
            let kind = match content {
                Err(LeftOut::MemberDepth) => Some(Format::Msg.mime().to_owned()),
                _ => line(file, &part, &[id::MIME])?,
            };
            attached.listed.push((Attachment { name, kind, bytes }, content));
        }
        Ok(attached)
    }
}

/// Gives the attachments of a message and of those within it, in the order of the list in the text.
struct Members<'a, 'b, R> {
    file: CompoundFile<R>,
    limits: &'a Limits,
    budget: &'a mut Budget,
    take: &'a mut TakePart<'b>,
    index: u64,
}

impl<R: Read + Seek> Members<'_, '_, R> {
    fn give(&mut self, message: &Storage, level: u8) -> Result<(), FormatError> {
        let Attached { opened, listed } = Attached::of(&mut self.file, message, level)?;
        for (Attachment { name, kind, .. }, content) in listed {
            let name = name.unwrap_or_else(|| unnamed(self.index));
            let head = MemberHead { index: self.index, name, declared_mime: kind };
            self.index += 1;
            // Several attachments may claim the same bytes, so none is read once there is no room.
            let bytes = match (self.budget.spent(), content) {
                (Some(reason), _) | (None, Err(reason)) => Err(reason),
                (None, Ok(path)) => read(&mut self.file, &path, self.limits.input_bytes)?.ok_or(LeftOut::Damaged),
            };
            match bytes {
                Ok(bytes) => self.budget.give(head, &bytes, self.take)?,
                Err(reason) => (self.take)(MemberPart::LeftOut { name: head.name, reason })?,
            }
        }
        for path in opened {
            let inner = message.within(&mut self.file, &path, OF_MESSAGE)?;
            self.give(&inner, level + 1)?;
        }
        Ok(())
    }
}

/// What people see of the message besides its body.
fn fields<R: Read + Seek>(file: &mut CompoundFile<R>, message: &Storage) -> Result<Vec<Field>, FormatError> {
    let mut fields = Vec::new();
    fields.extend(line(file, message, &[id::SUBJECT, id::SUBJECT_WITHOUT_PREFIX])?.map(|subject| (SUBJECT, subject)));
    let mut from = Addresses::default();
    if add(file, message, &id::FROM, &mut from)? || add(file, message, &id::SENDER, &mut from)? {
        fields.push(("From", from.line()));
    }
    let (mut to, mut cc) = (Addresses::default(), Addresses::default());
    for path in message.recipients() {
        let recipient = message.within(file, &path, OF_PART)?;
        // The other bits say what became of the message for this recipient.
        let field = match recipient.number(id::RECIPIENT_KIND).map_or(TO, |kind| kind & 0xF) {
            TO => &mut to,
            CC => &mut cc,
            _ => continue,
        };
        add(file, &recipient, &id::RECIPIENT, field)?;
    }
    for (name, addresses, shown) in [("To", to, id::SHOWN_TO), ("Cc", cc, id::SHOWN_CC)] {
        let mut addresses = addresses.line();
        if addresses.is_empty() {
            addresses = line(file, message, &[shown])?.unwrap_or_default();
        }
        fields.push((name, addresses));
    }
    let time = message.time(id::SUBMITTED).or(message.time(id::DELIVERED));
    fields.extend(time.and_then(date).map(|date| ("Date", date)));
    Ok(fields)
}

/// Adds somebody to a field; false if there is nothing to be said of them.
fn add<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    storage: &Storage,
    party: &id::Party,
    addresses: &mut Addresses,
) -> Result<bool, FormatError> {
    let address = match line(file, storage, &[party.smtp])? {
        Some(address) => Some(address),
        None => line(file, storage, &[party.address])?.filter(|address| address.contains('@')),
    };
    let name = line(file, storage, &[party.name])?.map(|name| name.trim_matches('\'').to_owned());
    let name = name.filter(|name| address.as_deref().is_none_or(|address| !address.eq_ignore_ascii_case(name)));
    if name.is_none() && address.is_none() {
        return Ok(false);
    }
    addresses.push(name.as_deref(), address.as_deref());
    Ok(true)
}

/// The first of these properties that says anything, in one line.
fn line<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    storage: &Storage,
    ids: &[u16],
) -> Result<Option<String>, FormatError> {
    for id in ids {
        let text = storage.text(file, *id, LINE_BYTES)?.map(|text| cut(&text));
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// The time of so many times 100 nanoseconds since 1601; `None` if no calendar has it.
fn date(time: u64) -> Option<String> {
    const SECOND: u64 = 10_000_000;
    /// From 1601 to 1970, and to the year 10000.
    const BEFORE_1970: i64 = 11_644_473_600;
    const LAST: i64 = 253_402_300_800;
    let seconds = i64::try_from(time / SECOND).ok()? - BEFORE_1970;
    (time > 0 && seconds < LAST).then(|| DateTime::from_timestamp(seconds).to_rfc3339())
}

/// The body without white space around it: its text, or its HTML or RTF if the text is missing or much shorter.
fn body<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    message: &Storage,
    limits: &Limits,
) -> Result<Extraction, FormatError> {
    let plain = message.text(file, id::BODY, limits.input_bytes)?.unwrap_or_default().trim().to_owned();
    match rich_body(file, message, limits) {
        Ok(rich) => Ok(best_body(plain, rich)),
        // A body that has a text does not need the other form of it, unless that is only out of reach now.
        Err(error) if plain.is_empty() || !error.is_permanent() => Err(error),
        Err(_) => Ok(best_body(plain, Extraction::default())),
    }
}

/// The body as HTML, or else as RTF.
fn rich_body<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    message: &Storage,
    limits: &Limits,
) -> Result<Extraction, FormatError> {
    if let Some(text) = message.text(file, id::BODY_HTML, limits.input_bytes)? {
        return html::Source::of_text(&text).body(limits);
    }
    let mut bytes = |property: u16| match message.binary(property) {
        Some((path, _)) => read(file, &path, limits.input_bytes),
        None => Ok(None),
    };
    if let Some(page) = bytes(id::BODY_HTML)? {
        // Nothing but UTF-8 reads as it, whatever the page says.
        let page = match std::str::from_utf8(&page) {
            Ok(text) if !text.is_ascii() => html::Source::of_text(text),
            _ => html::Source::decode(&page, None),
        };
        return page.body(limits);
    }
    match bytes(id::BODY_RTF)?.filter(|packed| !packed.is_empty()) {
        Some(packed) => rtf::extract(Cursor::new(compressed::unpack(&packed, limits.unpacked_bytes)?), limits),
        None => Ok(Extraction::default()),
    }
}

#[cfg(test)]
mod tests;
