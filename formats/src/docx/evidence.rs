//! What the Markdown leaves out and the evidence reports: comments, notes, tracked changes, the kinds and numbers of
//! lists.

use super::{
    notes::{self, Kind},
    numbering::Label,
};
use crate::{
    Extraction, FormatError,
    facts::{self, FactList},
    xml::XmlReader,
};
use serde_json::Value;
use std::{collections::HashMap, io::Read};

/// An entry whose place in the text is not yet known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    list: List,
    index: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Note(Kind),
    Change,
    Item,
}

/// Which entry each reference in the body means; each entry is placed once.
#[derive(Debug, Default)]
pub(super) struct Marks {
    expected: HashMap<(Kind, String), usize>,
}

impl Marks {
    pub(super) fn expect(&mut self, kind: Kind, id: &str, index: usize) {
        self.expected.insert((kind, id.to_owned()), index);
    }

    /// Takes the mark of a reference found in the body.
    pub(super) fn take(&mut self, kind: Kind, id: &str) -> Option<Mark> {
        if self.expected.is_empty() {
            return None;
        }
        let index = self.expected.remove(&(kind, id.to_owned()))?;
        Some(Mark { list: List::Note(kind), index })
    }
}

/// What a tracked change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Inserted,
    Deleted,
    MovedFrom,
    MovedTo,
}

impl Change {
    /// The change that an element of the body stands for.
    pub(super) fn of(element: &str) -> Option<Self> {
        match element {
            "ins" => Some(Self::Inserted),
            "del" => Some(Self::Deleted),
            "moveFrom" => Some(Self::MovedFrom),
            "moveTo" => Some(Self::MovedTo),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Deleted => "deleted",
            Self::MovedFrom => "moved_from",
            Self::MovedTo => "moved_to",
        }
    }
}

/// The lists of facts of one document, and the places of their entries.
#[derive(Default)]
pub(super) struct Evidence {
    pub marks: Marks,
    comments: FactList,
    footnotes: FactList,
    endnotes: FactList,
    changes: FactList,
    items: FactList,
    places: Vec<(Mark, usize)>,
    /// The number of paragraphs directly in the body that have text, or a text box with some.
    pub paragraphs: u64,
    /// The number of paragraphs that are numbered by their own properties, in every story of the body.
    pub numbered: u64,
}

impl Evidence {
    pub(super) fn read_notes<R: Read>(&mut self, xml: XmlReader<R>, kind: Kind) -> Result<(), FormatError> {
        *self.list(List::Note(kind)) = notes::read(xml, kind, &mut self.marks)?;
        Ok(())
    }

    pub(super) fn change(&mut self, change: Change, author: &str, date: &str, text: &str) -> Option<Mark> {
        if text.trim().is_empty() {
            return None;
        }
        let known = |value: &str| (!value.is_empty()).then(|| facts::text(value));
        let index = self.changes.push([
            ("change", Some(change.as_str().into())),
            ("author", known(author)),
            ("date", known(date)),
            ("text", Some(facts::text(text))),
        ])?;
        Some(Mark { list: List::Change, index })
    }

    /// Records a list item, or a numbered heading.
    pub(super) fn item(&mut self, level: u8, label: Label, is_heading: bool) -> Option<Mark> {
        let index = self.items.push([
            ("level", Some(level.into())),
            ("ordered", Some(label.ordered.into())),
            ("number", label.number.map(Value::from)),
            ("label", label.text.as_deref().map(facts::text)),
            ("heading", is_heading.then(|| true.into())),
        ])?;
        Some(Mark { list: List::Item, index })
    }

    /// Records that the block with these marks was written at this byte.
    pub(super) fn place(&mut self, marks: Vec<Mark>, at: usize) {
        self.places.extend(marks.into_iter().map(|mark| (mark, at)));
    }

    /// Records everything; like anchors, places are given in characters.
    pub(super) fn record(mut self, extraction: &mut Extraction) {
        self.places.sort_by_key(|&(_, at)| at);
        let (mut characters, mut bytes) = (0, 0);
        for (mark, at) in std::mem::take(&mut self.places) {
            characters += extraction.text.get(bytes..at).map_or(0, |between| between.chars().count());
            bytes = at;
            self.list(mark.list).set(mark.index, "at", characters);
        }
        let facts = &mut extraction.facts;
        facts.insert("docx.paragraphs".to_owned(), self.paragraphs.into());
        facts.insert("docx.numbered_paragraphs".to_owned(), self.numbered.into());
        self.comments.record("docx.comments", facts);
        self.footnotes.record("docx.footnotes", facts);
        self.endnotes.record("docx.endnotes", facts);
        self.changes.record("docx.tracked_changes", facts);
        self.items.record("docx.lists", facts);
    }

    fn list(&mut self, list: List) -> &mut FactList {
        match list {
            List::Note(Kind::Comment) => &mut self.comments,
            List::Note(Kind::Footnote) => &mut self.footnotes,
            List::Note(Kind::Endnote) => &mut self.endnotes,
            List::Change => &mut self.changes,
            List::Item => &mut self.items,
        }
    }
}
