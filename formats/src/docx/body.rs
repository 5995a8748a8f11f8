//! The main part, streamed: paragraphs, lists and tables in body order.

use std::io::Read;

use super::{
    markdown::{Block, Writer},
    styles::{Numbering, Styles},
};
use crate::{
    Extraction, FormatError, Limits, charset,
    xml::{Element, Node, XmlReader},
};

/// A span wider than any sheet of paper holds is a lie.
const MAX_SPAN: usize = 63;

pub(super) fn convert<R: Read>(xml: XmlReader<R>, styles: &Styles, limits: &Limits) -> Result<Extraction, FormatError> {
    let mut converter = Converter {
        xml,
        styles,
        limits,
        open: Vec::new(),
        frames: Vec::new(),
        alternates: Vec::new(),
        writer: Writer::default(),
    };
    converter.run()?;
    Ok(converter.writer.finish())
}

struct Converter<'a, R: Read> {
    xml: XmlReader<R>,
    styles: &'a Styles,
    limits: &'a Limits,
    /// What each open element means.
    open: Vec<Open>,
    /// Open paragraphs, tables and cells: a text box nests them in a paragraph, a cell in a table.
    frames: Vec<Frame>,
    /// For each open `mc:AlternateContent`, whether a branch was taken: both hold the same text.
    alternates: Vec<bool>,
    writer: Writer,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Paragraph,
    Table,
    Row,
    Cell,
    Text,
    Alternate,
    Other,
}

enum Frame {
    Paragraph(Paragraph),
    Table { rows: Vec<Vec<String>>, row_deleted: bool },
    Cell { text: String, span: usize, continues: bool },
}

#[derive(Default)]
struct Paragraph {
    text: String,
    style: Option<String>,
    numbering: Numbering,
    /// Blocks of text boxes anchored in it, which follow it.
    after: Vec<Block>,
}

impl<R: Read> Converter<'_, R> {
    fn run(&mut self) -> Result<(), FormatError> {
        while let Some(node) = self.xml.next()? {
            match node {
                Node::Start(element) => self.start(&element)?,
                Node::Text(text) => {
                    if self.open.last() == Some(&Open::Text) {
                        self.push_text(&text);
                    }
                }
                Node::End => match self.open.pop() {
                    Some(Open::Alternate) => {
                        self.alternates.pop();
                    }
                    Some(Open::Paragraph | Open::Table | Open::Cell) => self.close_frame()?,
                    Some(Open::Row) => self.close_row(),
                    _ => {}
                },
            }
        }
        Ok(())
    }

    fn start(&mut self, element: &Element) -> Result<(), FormatError> {
        let open = match element.name.as_str() {
            "p" => {
                self.frames.push(Frame::Paragraph(Paragraph::default()));
                Open::Paragraph
            }
            "tbl" => {
                self.frames.push(Frame::Table { rows: Vec::new(), row_deleted: false });
                Open::Table
            }
            "tr" => {
                if let Some(Frame::Table { rows, row_deleted }) = self.frames.last_mut() {
                    rows.push(Vec::new());
                    *row_deleted = false;
                }
                Open::Row
            }
            "tc" => {
                self.frames.push(Frame::Cell { text: String::new(), span: 1, continues: false });
                Open::Cell
            }
            "t" => Open::Text,
            "pPr" => return self.paragraph_properties(),
            "tcPr" => return self.cell_properties(),
            "trPr" => return self.row_properties(),
            "AlternateContent" => {
                self.alternates.push(false);
                Open::Alternate
            }
            "Choice" | "Fallback" if self.open.last() == Some(&Open::Alternate) => {
                match self.alternates.last_mut() {
                    Some(taken) if !*taken => *taken = true,
                    _ => return self.xml.skip(),
                }
                Open::Other
            }
            // Deleted or moved away, instructions rather than text, phonetic guides, and properties without text.
            "del" | "moveFrom" | "delText" | "instrText" | "delInstrText" | "rt" | "rPr" | "sectPr" | "tblPr"
            | "tblGrid" | "tblPrEx" | "sdtPr" | "sdtEndPr" => return self.xml.skip(),
            "tab" | "ptab" => self.push_character('\t'),
            "br" | "cr" => self.push_character('\n'),
            "noBreakHyphen" => self.push_character('-'),
            _ => Open::Other,
        };
        self.open.push(open);
        Ok(())
    }

    fn push_character(&mut self, character: char) -> Open {
        self.push_text(character.encode_utf8(&mut [0; 4]));
        Open::Other
    }

    fn push_text(&mut self, text: &str) {
        if let Some(Frame::Paragraph(paragraph)) = self.frames.last_mut() {
            paragraph.text.push_str(&charset::clean(text));
        }
    }

    /// Reads the children of a properties element that just began, until its end.
    fn properties(&mut self, mut note: impl FnMut(&mut Self, &Element)) -> Result<(), FormatError> {
        let mut depth = 1u32;
        while depth > 0 {
            match self.xml.next()? {
                // What the properties were before a tracked change, and those of the paragraph's mark.
                Some(Node::Start(element)) if element.name.ends_with("Change") || element.name == "rPr" => {
                    self.xml.skip()?
                }
                Some(Node::Start(element)) => {
                    depth += 1;
                    note(self, &element);
                }
                Some(Node::End) => depth -= 1,
                Some(Node::Text(_)) => {}
                None => break,
            }
        }
        Ok(())
    }

    fn paragraph_properties(&mut self) -> Result<(), FormatError> {
        self.properties(|converter, element| {
            let Some(Frame::Paragraph(paragraph)) = converter.frames.last_mut() else { return };
            match element.name.as_str() {
                "pStyle" => paragraph.style = element.value().map(str::to_owned),
                name => paragraph.numbering.note(name, element.value()),
            }
        })
    }

    fn cell_properties(&mut self) -> Result<(), FormatError> {
        self.properties(|converter, element| {
            let Some(Frame::Cell { span, continues, .. }) = converter.frames.last_mut() else { return };
            match element.name.as_str() {
                "gridSpan" => {
                    *span = element.value().and_then(|value| value.parse().ok()).unwrap_or(1).clamp(1, MAX_SPAN)
                }
                // Without a value it continues the cell above.
                "vMerge" | "hMerge" => *continues = element.value() != Some("restart"),
                _ => {}
            }
        })
    }

    fn row_properties(&mut self) -> Result<(), FormatError> {
        self.properties(|converter, element| {
            if let Some(Frame::Table { row_deleted, .. }) = converter.frames.last_mut() {
                *row_deleted |= element.name == "del";
            }
        })
    }

    fn close_row(&mut self) {
        if let Some(Frame::Table { rows, row_deleted: true }) = self.frames.last_mut() {
            rows.pop();
        }
    }

    fn close_frame(&mut self) -> Result<(), FormatError> {
        match self.frames.pop() {
            Some(Frame::Paragraph(paragraph)) => {
                let (block, after) = self.paragraph(paragraph);
                for block in block.into_iter().chain(after) {
                    self.emit(block)?;
                }
            }
            Some(Frame::Table { rows, .. }) if rows.iter().flatten().any(|cell| !cell.is_empty()) => {
                self.emit(Block::Table(rows))?;
            }
            Some(Frame::Cell { text, span, continues }) => {
                if let Some(Frame::Table { rows, .. }) = self.frames.last_mut()
                    && let Some(row) = rows.last_mut()
                {
                    row.push(if continues { String::new() } else { text });
                    row.extend(std::iter::repeat_n(String::new(), span - 1));
                }
            }
            Some(Frame::Table { .. }) | None => {}
        }
        Ok(())
    }

    fn paragraph(&self, paragraph: Paragraph) -> (Option<Block>, Vec<Block>) {
        let Paragraph { text, style, numbering, after } = paragraph;
        if text.trim().is_empty() {
            return (None, after);
        }
        let style = style.as_deref();
        let block = match style.and_then(|style| self.styles.heading_level(style)) {
            Some(level) => Block::Heading { level, text },
            None => match self.styles.list_level(numbering, style) {
                Some(level) => Block::ListItem { level, text },
                None => Block::Paragraph(text),
            },
        };
        (Some(block), after)
    }

    /// Hands a finished block to what is around it.
    fn emit(&mut self, block: Block) -> Result<(), FormatError> {
        match self.frames.last_mut() {
            Some(Frame::Paragraph(paragraph)) => paragraph.after.push(block),
            Some(Frame::Cell { text, .. }) => {
                let inner = block.into_cell_text();
                if !text.is_empty() && !inner.is_empty() {
                    text.push(' ');
                }
                text.push_str(&inner);
            }
            // A block right in a table is out of place; its text is not lost.
            Some(Frame::Table { .. }) | None => self.writer.write(block, self.limits)?,
        }
        Ok(())
    }
}
