//! Comments, footnotes and endnotes: separate parts that the body refers to by number.

use super::evidence::Marks;
use crate::{
    FormatError,
    facts::{self, FactList},
    xml::{Element, Node, XmlReader},
};
use std::io::Read;

/// Which part is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Comment,
    Footnote,
    Endnote,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Comment, Self::Footnote, Self::Endnote];

    /// The kind of relationship that leads to the part.
    pub(super) fn relationship(self) -> &'static str {
        match self {
            Self::Comment => "comments",
            Self::Footnote => "footnotes",
            Self::Endnote => "endnotes",
        }
    }

    fn element(self) -> &'static str {
        match self {
            Self::Comment => "comment",
            Self::Footnote => "footnote",
            Self::Endnote => "endnote",
        }
    }
}

/// Reads the part into a list of facts; `marks` records which number means which entry.
pub(super) fn read<R: Read>(mut xml: XmlReader<R>, kind: Kind, marks: &mut Marks) -> Result<FactList, FormatError> {
    let mut list = FactList::default();
    while let Some(node) = xml.next()? {
        let Node::Start(element) = node else { continue };
        // Notes with a type are the lines that separate notes from text.
        if element.name != kind.element() || !matches!(element.attribute("type"), None | Some("normal")) {
            continue;
        }
        let own = |name: &str| element.attribute(name).filter(|value| !value.is_empty()).map(facts::text);
        let (author, date) = (own("author"), own("date"));
        let text = note_text(&mut xml)?;
        if text.trim().is_empty() {
            continue;
        }
        let index = list.push([("author", author), ("date", date), ("text", Some(facts::text(&text)))]);
        if let (Some(id), Some(index)) = (element.attribute("id"), index) {
            marks.expect(kind, id, index);
        }
    }
    Ok(list)
}

/// The text of the element that just began, one line per paragraph.
fn note_text<R: Read>(xml: &mut XmlReader<R>) -> Result<String, FormatError> {
    collect(xml, |element| match element.name.as_str() {
        "t" => Piece::Text,
        "tab" | "ptab" => Piece::Character('\t'),
        "br" | "cr" | "p" => Piece::Character('\n'),
        "noBreakHyphen" => Piece::Character('-'),
        "del" | "moveFrom" | "pPr" | "rPr" | "rt" => Piece::Skipped,
        _ => Piece::Entered,
    })
}

/// The text of a deletion that just began: deleted text, or text from before it moved away.
pub(super) fn deleted_text<R: Read>(xml: &mut XmlReader<R>) -> Result<String, FormatError> {
    collect(xml, |element| match element.name.as_str() {
        "delText" | "t" => Piece::Text,
        "tab" | "ptab" => Piece::Character('\t'),
        "br" | "cr" => Piece::Character('\n'),
        "noBreakHyphen" => Piece::Character('-'),
        "pPr" | "rPr" | "rt" | "Fallback" => Piece::Skipped,
        _ => Piece::Entered,
    })
}

enum Piece {
    Text,
    Character(char),
    Skipped,
    Entered,
}

fn collect<R: Read>(xml: &mut XmlReader<R>, piece: impl Fn(&Element) -> Piece) -> Result<String, FormatError> {
    let mut text = String::new();
    let mut depth = 1u32;
    // The depth of the element whose text is taken.
    let mut taken: Option<u32> = None;
    while depth > 0 {
        match xml.next()? {
            Some(Node::Start(element)) => match piece(&element) {
                Piece::Skipped => xml.skip()?,
                piece => {
                    depth += 1;
                    taken = matches!(piece, Piece::Text).then_some(depth);
                    if let Piece::Character(character) = piece {
                        facts::append(&mut text, character.encode_utf8(&mut [0; 4]));
                    }
                }
            },
            Some(Node::Text(piece)) if taken == Some(depth) => {
                facts::append(&mut text, &crate::charset::clean(&piece));
            }
            Some(Node::Text(_)) => {}
            Some(Node::End) => depth -= 1,
            None => break,
        }
    }
    Ok(text)
}
