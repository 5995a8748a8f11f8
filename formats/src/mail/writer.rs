//! Writes messages, whatever kind of file they came in: what people see of the headers becomes lines of the text, and
//! attachments are listed.

use super::armour::without_armour;
use crate::{
    Extraction, FormatError, Heading, Limits,
    extraction::check_text,
    facts::{self, FactList},
};
use std::fmt::Write;

/// Messages within messages that are opened; deeper ones are attachments.
pub(crate) const DEPTH: u8 = 5;
/// The most addresses of one field that are shown, and attachments of one message.
const SHOWN: usize = 100;
/// A longer subject, address or name of an attachment is cut.
pub(super) const CHARACTERS: usize = 300;
/// A text that has less than this share of the words of the same body in another form only points to it.
const WHOLE_BODY: f64 = 0.5;

pub(crate) const SUBJECT: &str = "Subject";

/// The name of a field and its value.
pub(crate) type Field = (&'static str, String);

/// A message as its text shows it.
pub(crate) struct Letter {
    /// Empty ones are not shown.
    pub fields: Vec<Field>,
    pub body: Extraction,
    pub attachments: Vec<Attachment>,
}

/// What is said of an attachment.
pub(crate) struct Attachment {
    pub name: Option<String>,
    pub kind: Option<String>,
    /// `None` if it has no bytes of its own.
    pub bytes: Option<u64>,
}

/// Addresses of one field, of which the first are shown.
#[derive(Default)]
pub(crate) struct Addresses {
    shown: Vec<String>,
    more: usize,
}

impl Addresses {
    pub(crate) fn push(&mut self, name: Option<&str>, address: Option<&str>) {
        if self.shown.len() == SHOWN {
            self.more += 1;
            return;
        }
        self.shown.push(match (name, address) {
            (Some(name), Some(address)) => format!("{} <{}>", cut(name), cut(address)),
            (one, other) => cut(one.or(other).unwrap_or_default()),
        });
    }

    pub(crate) fn line(mut self) -> String {
        if self.more > 0 {
            self.shown.push(format!("and {} more", self.more));
        }
        self.shown.join(", ")
    }
}

pub(crate) struct Writer<'a> {
    limits: &'a Limits,
    read: Extraction,
    attachments: FactList,
    messages: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self { limits, read: Extraction::default(), attachments: FactList::default(), messages: 0 }
    }

    /// Writes a message: its subject as a heading, its fields, its body and the list of its attachments.
    pub(crate) fn letter(&mut self, letter: Letter, level: u8) -> Result<(), FormatError> {
        let Letter { mut fields, body, attachments } = letter;
        fields.retain(|(_, value)| !value.is_empty());
        self.messages += 1;
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
        self.body(body, level)?;
        self.list(&attachments)
    }

    /// The whole text; the attachments are recorded under this name.
    pub(crate) fn finish(self, attachments: &str) -> Result<Extraction, FormatError> {
        let Self { limits, mut read, attachments: listed, messages } = self;
        read.facts.insert("messages".to_owned(), messages.into());
        listed.record(attachments, &mut read.facts);
        read.headings_from = Some("mail".to_owned());
        read.within(limits)
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
    fn list(&mut self, attachments: &[Attachment]) -> Result<(), FormatError> {
        if attachments.is_empty() {
            return Ok(());
        }
        let mut list = "Attachments:\n".to_owned();
        for (index, Attachment { name, kind, bytes }) in attachments.iter().enumerate() {
            if index < SHOWN {
                let named = name.as_deref().unwrap_or("without a name");
                let details = [kind.clone(), bytes.map(|bytes| format!("{bytes} bytes"))];
                let details = details.into_iter().flatten().collect::<Vec<_>>().join(", ");
                // A String takes whatever is written.
                let _ = match details.is_empty() {
                    true => write!(list, "\n- {named}"),
                    false => write!(list, "\n- {named} ({details})"),
                };
            }
            self.attachments.push([
                ("name", name.as_deref().map(facts::text)),
                ("type", kind.as_deref().map(facts::text)),
                ("bytes", bytes.map(Into::into)),
            ]);
        }
        if let Some(more) = attachments.len().checked_sub(SHOWN).filter(|more| *more > 0) {
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

/// The better one of two forms of a body: the plain text without its parts for programs, unless that text is missing or much shorter than the other form.
pub(crate) fn best_body(plain: String, rich: Extraction) -> Extraction {
    let plain = without_armour(plain);
    let words = |text: &str| text.split_whitespace().count() as f64;
    let is_whole = words(&plain) > 0.0 && words(&plain) >= WHOLE_BODY * words(&rich.text);
    if is_whole { Extraction { text: plain, ..Extraction::default() } } else { rich }
}

/// What an attachment without a name is called, by its place among all of the file.
pub(crate) fn unnamed(index: u64) -> String {
    format!("attachment {}", index + 1)
}

/// A value in one line, without controls, and not too long.
pub(crate) fn cut(value: &str) -> String {
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
