//! A first reading, which finds what no single element shows: which elements come again beside each other, and which
//! mix text with elements.

use super::vocabulary::{CELL, FORMULA, Kind, ROW, Role, known, role};
use crate::{
    FormatError,
    xml::{Step, XmlReader},
};
use rustc_hash::{FxHashSet, FxHasher};
use std::{
    hash::{Hash, Hasher},
    io::Read,
};

/// Elements are known by the hash of the names that lead to them.
#[derive(Debug)]
pub(super) struct Survey {
    pub kind: Kind,
    /// Whether it has paragraphs, or text mixed with elements.
    pub is_prose: bool,
    /// Whether it has formulas in MathML.
    pub has_formulas: bool,
    repeated: FxHashSet<u64>,
    mixed: FxHashSet<u64>,
}

struct Frame {
    path: u64,
    children: FxHashSet<u64>,
    has_text: bool,
}

impl Survey {
    pub(super) fn of<R: Read>(mut reader: XmlReader<R>) -> Result<Self, FormatError> {
        let mut survey = Self {
            kind: Kind::Other,
            is_prose: false,
            has_formulas: false,
            repeated: FxHashSet::default(),
            mixed: FxHashSet::default(),
        };
        let mut frames: Vec<Frame> = Vec::new();
        let mut is_first = true;
        let row_of_workbook = ROW.into_iter().fold(None, |parent, name| Some(path(parent, name)));
        let mut take = |step: Step<'_>| match step {
            Step::Start(start) => {
                let local = start.local_name();
                let name = known(local.as_ref());
                if std::mem::take(&mut is_first) {
                    survey.kind = Kind::of(&name);
                }
                // Other programs have workbooks, too, but none with such cells.
                if name == CELL && frames.last().map(|frame| frame.path) == row_of_workbook {
                    survey.kind = Kind::Workbook;
                }
                survey.is_prose |= role(&name) == Some(Role::Paragraph);
                survey.has_formulas |= name == FORMULA;
                let path = path(frames.last().map(|frame| frame.path), &name);
                if let Some(parent) = frames.last_mut()
                    && !parent.children.insert(path)
                {
                    survey.repeated.insert(path);
                }
                frames.push(Frame { path, children: FxHashSet::default(), has_text: false });
            }
            Step::Text(text) => {
                if let Some(frame) = frames.last_mut() {
                    frame.has_text |= !text.trim().is_empty();
                }
            }
            Step::End => {
                if let Some(frame) = frames.pop()
                    && frame.has_text
                    && !frame.children.is_empty()
                {
                    survey.mixed.insert(frame.path);
                }
            }
        };
        while reader.step(&mut take)?.is_some() {}
        survey.is_prose |= !survey.mixed.is_empty();
        Ok(survey)
    }

    pub(super) fn is_repeated(&self, path: u64) -> bool {
        self.repeated.contains(&path)
    }

    pub(super) fn is_mixed(&self, path: u64) -> bool {
        self.mixed.contains(&path)
    }
}

/// The hash of the names that lead to an element.
pub(super) fn path(parent: Option<u64>, name: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (parent, name).hash(&mut hasher);
    hasher.finish()
}
