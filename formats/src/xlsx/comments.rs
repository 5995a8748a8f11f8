//! Notes and threaded comments on cells.

use super::{
    markup::{Mark, Markup},
    range::CellRef,
    shared_strings::rich_text,
    sheet::{Comment, SheetProfile},
    workbook::Opened,
};
use crate::{FormatError, Limits, extraction::check_text};
use std::{
    collections::{HashMap, HashSet},
    io::{Read, Seek},
};

/// The comments of a sheet's part, threads first, and how many there are in all.
pub(super) fn read<R: Read + Seek>(
    opened: &mut Opened<R>,
    part: &str,
    limits: &Limits,
) -> Result<(Vec<Comment>, u64), FormatError> {
    let relations = opened.package.relationships(part)?;
    let parts = |kind: &str| -> Vec<String> {
        relations.iter().filter(|relation| relation.kind == kind).map(|relation| relation.target.clone()).collect()
    };
    let mut found = Found::default();
    let threads = parts("threadedComment");
    if !threads.is_empty() {
        let mut persons = HashMap::new();
        for name in opened.persons.clone() {
            if let Some(part) = opened.package.part(&name)? {
                read_persons(Markup::new(part, limits), &mut persons, limits)?;
            }
        }
        for name in threads {
            if let Some(part) = opened.package.part(&name)? {
                read_threads(Markup::new(part, limits), &persons, &mut found, limits)?;
            }
        }
    }
    for name in parts("comments") {
        if let Some(part) = opened.package.part(&name)? {
            read_notes(Markup::new(part, limits), &mut found, limits)?;
        }
    }
    Ok((found.comments, found.count))
}

#[derive(Default)]
struct Found {
    comments: Vec<Comment>,
    count: u64,
    text_bytes: usize,
    /// Cells with a thread. For older readers each also has a note, which says so.
    threaded: HashSet<CellRef>,
}

impl Found {
    fn add(&mut self, comment: Comment, limits: &Limits) -> Result<(), FormatError> {
        self.count += 1;
        if self.comments.len() < SheetProfile::MAX_COMMENTS {
            self.text_bytes += comment.text.len() + comment.author.len();
            check_text(self.text_bytes, limits)?;
            self.comments.push(comment);
        }
        Ok(())
    }
}

fn read_persons<S: Read>(
    mut xml: Markup<S>,
    persons: &mut HashMap<String, String>,
    limits: &Limits,
) -> Result<(), FormatError> {
    let mut bytes = 0;
    while let Some(mark) = xml.next()? {
        if matches!(mark, Mark::Start { .. }) && xml.name() == "person" {
            let attribute = |name: &str| xml.attribute(name).unwrap_or_default().into_owned();
            let (id, name) = (attribute("id"), attribute("displayName"));
            bytes += id.len() + name.len();
            check_text(bytes, limits)?;
            persons.insert(id, name);
        }
    }
    Ok(())
}

fn read_threads<S: Read>(
    mut xml: Markup<S>,
    persons: &HashMap<String, String>,
    found: &mut Found,
    limits: &Limits,
) -> Result<(), FormatError> {
    while let Some(mark) = xml.next()? {
        let Mark::Start { empty: false } = mark else { continue };
        if xml.name() != "threadedComment" {
            continue;
        }
        let cell = xml.attribute("ref").and_then(|cell| cell.parse().ok());
        let author = xml.attribute("personId").and_then(|id| persons.get(id.as_ref()).cloned()).unwrap_or_default();
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
            found.threaded.insert(cell);
            found.add(Comment { cell, author, text }, limits)?;
        }
    }
    Ok(())
}

fn read_notes<S: Read>(mut xml: Markup<S>, found: &mut Found, limits: &Limits) -> Result<(), FormatError> {
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
                        Some(Mark::Start { empty: false }) if xml.name() == "text" => rich_text(&mut xml, &mut text)?,
                        Some(Mark::Start { empty: false }) => xml.skip()?,
                        Some(Mark::End) | None => break,
                        Some(_) => {}
                    }
                }
                if let Some(cell) = cell
                    && !(author.starts_with("tc=") && found.threaded.contains(&cell))
                {
                    found.add(Comment { cell, author, text }, limits)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
