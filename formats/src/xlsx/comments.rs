//! Notes and threaded comments on cells.

use super::{
    book::Comments,
    markup::{Mark, Markup},
    range::CellRef,
    shared_strings::rich_text,
    sheet::Comment,
};
use crate::{FormatError, Limits, extraction::check_text};
use std::{
    collections::{HashMap, HashSet},
    io::Read,
};

/// Gathers the comments of a sheet from its parts. Threads come before notes, because each thread also has a note.
#[derive(Default)]
pub(super) struct Found {
    pub comments: Comments,
    persons: HashMap<String, String>,
    /// Cells with a thread. For older readers each also has a note, which says so.
    threaded: HashSet<CellRef>,
}

impl Found {
    pub(super) fn add_note(&mut self, note: Comment, limits: &Limits) -> Result<(), FormatError> {
        if note.author.starts_with("tc=") && self.threaded.contains(&note.cell) {
            return Ok(());
        }
        self.comments.add(note, limits)
    }

    pub(super) fn read_persons<S: Read>(&mut self, part: S, limits: &Limits) -> Result<(), FormatError> {
        let mut xml = Markup::new(part, limits);
        let mut bytes = 0;
        while let Some(mark) = xml.next()? {
            if matches!(mark, Mark::Start { .. }) && xml.name() == "person" {
                let attribute = |name: &str| xml.attribute(name).unwrap_or_default().into_owned();
                let (id, name) = (attribute("id"), attribute("displayName"));
                bytes += id.len() + name.len();
                check_text(bytes, limits)?;
                self.persons.insert(id, name);
            }
        }
        Ok(())
    }

    pub(super) fn read_threads<S: Read>(&mut self, part: S, limits: &Limits) -> Result<(), FormatError> {
        let mut xml = Markup::new(part, limits);
        while let Some(mark) = xml.next()? {
            let Mark::Start { empty: false } = mark else { continue };
            if xml.name() != "threadedComment" {
                continue;
            }
            let cell = xml.attribute("ref").and_then(|cell| cell.parse().ok());
            let author =
                xml.attribute("personId").and_then(|id| self.persons.get(id.as_ref()).cloned()).unwrap_or_default();
            let mut text = String::new();
            loop {
                match xml.next()? {
                    Some(Mark::Start { empty: false }) if xml.name() == "text" => xml.text(&mut text)?,
                    Some(Mark::Start { empty: false }) => xml.skip()?,
                    Some(Mark::End) | None => break,
                    Some(_) => {}
                }
            }
            if let Some(cell) = cell {
                self.threaded.insert(cell);
                self.comments.add(Comment { cell, author, text }, limits)?;
            }
        }
        Ok(())
    }

    pub(super) fn read_notes<S: Read>(&mut self, part: S, limits: &Limits) -> Result<(), FormatError> {
        let mut xml = Markup::new(part, limits);
        let mut authors: Vec<String> = Vec::new();
        let mut bytes = 0;
        while let Some(mark) = xml.next()? {
            let Mark::Start { empty } = mark else { continue };
            match xml.name() {
                "author" => {
                    let mut author = String::new();
                    if !empty {
                        xml.text(&mut author)?;
                    }
                    // An empty text takes memory too.
                    bytes += author.len() + size_of::<String>();
                    check_text(bytes, limits)?;
                    authors.push(author);
                }
                "comment" if !empty => {
                    let cell = xml.attribute("ref").and_then(|cell| cell.parse().ok());
                    let author = xml.attribute("authorId").and_then(|id| id.trim().parse::<usize>().ok());
                    let author = author.and_then(|id| authors.get(id)).cloned().unwrap_or_default();
                    let mut text = String::new();
                    loop {
                        match xml.next()? {
                            Some(Mark::Start { empty: false }) if xml.name() == "text" => {
                                rich_text(&mut xml, &mut text)?
                            }
                            Some(Mark::Start { empty: false }) => xml.skip()?,
                            Some(Mark::End) | None => break,
                            Some(_) => {}
                        }
                    }
                    if let Some(cell) = cell {
                        self.add_note(Comment { cell, author, text }, limits)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
