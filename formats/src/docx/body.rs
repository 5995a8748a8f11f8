//! Streams the main part: paragraphs, lists and tables in body order.

mod changes;
mod properties;

use self::changes::Inserted;
use super::{
    evidence::{Change, Evidence, Mark},
    frames::{Carried, Cell, Frame, Noted, Paragraph, Run, Table},
    notes::Kind,
    numbering::{Counter, Numbering},
    styles::Styles,
    symbols,
};
use crate::{
    Extraction, FormatError, Limits, charset,
    extraction::check_text,
    markdown::{self, Block, Writer},
    xml::{Element, Node, XmlReader},
};
use std::{collections::HashMap, io::Read};

pub(super) fn convert<R: Read>(
    xml: XmlReader<R>,
    styles: &Styles,
    numbering: &Numbering,
    evidence: Evidence,
    pieces: HashMap<String, Extraction>,
    limits: &Limits,
) -> Result<Extraction, FormatError> {
    let mut converter = Converter {
        xml,
        styles,
        numbering,
        counter: Counter::new(numbering),
        evidence,
        pieces,
        limits,
        open: Vec::new(),
        frames: Vec::new(),
        runs: Vec::new(),
        alternates: Vec::new(),
        changes: Vec::new(),
        carried: None,
        held: 0,
        writer: Writer::default(),
    };
    converter.run()?;
    let mut extraction = converter.writer.finish("styles");
    converter.evidence.record(&mut extraction);
    Ok(extraction)
}

struct Converter<'a, R: Read> {
    xml: XmlReader<R>,
    styles: &'a Styles,
    numbering: &'a Numbering,
    counter: Counter<'a>,
    evidence: Evidence,
    /// What parts in other formats hold, by the ids by which the text refers to them.
    pieces: HashMap<String, Extraction>,
    limits: &'a Limits,
    /// The meaning of each open element.
    open: Vec<Open>,
    /// Open paragraphs, tables and cells. A text box nests them in a paragraph, a cell in a table.
    frames: Vec<Frame>,
    runs: Vec<Run>,
    /// For each open `mc:AlternateContent`, whether a branch was taken; all branches hold the same text.
    alternates: Vec<bool>,
    /// Open insertions.
    changes: Vec<Inserted>,
    /// A paragraph whose mark is deleted, so that it continues in the next one.
    carried: Option<Carried>,
    /// The number of bytes taken in so far; the limit of the text bounds what waits in frames too.
    held: usize,
    writer: Writer,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Paragraph,
    Table,
    Row,
    Cell,
    /// A table within a cell, which becomes text of the cell.
    InnerTable,
    InnerRow,
    Run,
    Text,
    Insertion,
    /// A formula, or an element of one.
    Math,
    Alternate,
    Other,
}

impl<R: Read> Converter<'_, R> {
    fn run(&mut self) -> Result<(), FormatError> {
        while let Some(node) = self.xml.next()? {
            match node {
                Node::Start(element) => self.start(&element)?,
                Node::Text(text) => {
                    if self.open.last() == Some(&Open::Text) {
                        self.push_text(&text)?;
                    }
                }
                Node::End => self.end()?,
            }
        }
        self.flush_carried(0)
    }

    fn end(&mut self) -> Result<(), FormatError> {
        match self.open.pop() {
            Some(Open::Alternate) => {
                self.alternates.pop();
            }
            Some(Open::Run) => {
                self.runs.pop();
            }
            Some(Open::Insertion) => self.close_insertion(),
            Some(Open::Paragraph | Open::Table | Open::Cell) => self.close_frame()?,
            Some(Open::Row) => self.close_row()?,
            Some(inner @ (Open::InnerRow | Open::InnerTable)) => {
                if let Some(Frame::Cell(cell)) = self.frames.last_mut() {
                    cell.separator = if inner == Open::InnerRow { "; " } else { " " };
                }
            }
            Some(Open::Math) => {
                if let Some(Frame::Paragraph(paragraph)) = self.frames.last_mut() {
                    paragraph.math.end(&mut paragraph.text);
                }
            }
            Some(Open::Text | Open::Other) | None => {}
        }
        Ok(())
    }

    fn start(&mut self, element: &Element) -> Result<(), FormatError> {
        let open = match element.name.as_str() {
            "p" => self.open_paragraph(),
            "tbl" => self.open_table()?,
            "tr" => match self.frames.last_mut() {
                Some(Frame::Table(table)) => {
                    table.begin_row();
                    Open::Row
                }
                _ => Open::InnerRow,
            },
            "tc" if matches!(self.frames.last(), Some(Frame::Table(_))) => {
                self.frames.push(Frame::Cell(Cell::default()));
                Open::Cell
            }
            "r" => {
                self.runs.push(Run::default());
                Open::Run
            }
            "t" => Open::Text,
            "altChunk" => return self.piece(element.attribute("id")),
            "pPr" => return self.paragraph_properties(),
            "tcPr" => return self.cell_properties(),
            "trPr" => return self.row_properties(),
            "rPr" => return self.run_properties(),
            "AlternateContent" => {
                self.alternates.push(false);
                Open::Alternate
            }
            // An emoji that only its number names stands in the other branch too, as a character.
            "Choice" if element.attribute("Requires") == Some("w16se") => return self.xml.skip(),
            "Choice" | "Fallback" if self.open.last() == Some(&Open::Alternate) => {
                match self.alternates.last_mut() {
                    Some(taken) if !*taken => *taken = true,
                    _ => return self.xml.skip(),
                }
                Open::Other
            }
            name @ ("del" | "moveFrom") => return self.deletion(element, name),
            name @ ("ins" | "moveTo") => self.open_insertion(element, name),
            // These are instructions rather than text, phonetic guides, and properties without text.
            "delText" | "instrText" | "delInstrText" | "rt" | "sectPr" | "tblPr" | "tblGrid" | "tblPrEx" | "sdtPr"
            | "sdtEndPr" => return self.xml.skip(),
            "tab" | "ptab" => self.push_character('\t')?,
            "br" | "cr" => self.push_character('\n')?,
            "noBreakHyphen" => self.push_character('-')?,
            "sym" => match symbols::character(element.attribute("font"), element.attribute("char")) {
                Some(character) => self.push_character(character)?,
                None => Open::Other,
            },
            "fldChar" => self.field(element.attribute("fldCharType"))?,
            "ffData" => return self.form_field(),
            "commentRangeStart" | "commentReference" => self.reference(Kind::Comment, element),
            "footnoteReference" => self.reference(Kind::Footnote, element),
            "endnoteReference" => self.reference(Kind::Endnote, element),
            _ => match self.frames.last_mut() {
                Some(Frame::Paragraph(paragraph)) if paragraph.math.takes(element) => {
                    paragraph.math.start(element, &mut paragraph.text);
                    Open::Math
                }
                _ => Open::Other,
            },
        };
        self.open.push(open);
        Ok(())
    }

    fn open_paragraph(&mut self) -> Open {
        let depth = self.frames.len();
        let mut paragraph = Paragraph::default();
        if let Some(carried) = self.carried.take_if(|carried| carried.depth == depth) {
            paragraph.text = carried.text;
            paragraph.noted = carried.noted;
            paragraph.own_from = paragraph.text.len();
        }
        self.frames.push(Frame::Paragraph(paragraph));
        Open::Paragraph
    }

    /// Opens a table. Only the text of a table within a cell is kept, because a Markdown table cannot contain a table.
    fn open_table(&mut self) -> Result<Open, FormatError> {
        if self.frames.iter().any(|frame| matches!(frame, Frame::Cell(_))) {
            return Ok(Open::InnerTable);
        }
        self.flush_carried(self.frames.len())?;
        self.frames.push(Frame::Table(Table::default()));
        Ok(Open::Table)
    }

    /// Takes in a part in another format, which stands where it is referred to.
    fn piece(&mut self, id: Option<&str>) -> Result<(), FormatError> {
        if let Some(piece) = id.and_then(|id| self.pieces.get(id)).cloned() {
            self.held += piece.text.len();
            check_text(self.held, self.limits)?;
            self.flush_carried(self.frames.len())?;
            self.emit(Block::Written(piece), Vec::new())?;
        }
        self.xml.skip()
    }

    /// Takes in a part of a field: its instructions are hidden, its result is shown.
    fn field(&mut self, part: Option<&str>) -> Result<Open, FormatError> {
        let shown = match self.frames.last_mut() {
            Some(Frame::Paragraph(paragraph)) => paragraph.fields.note(part),
            _ => None,
        };
        if let Some(shown) = shown {
            self.push_text(&shown)?;
        }
        Ok(Open::Other)
    }

    fn push_character(&mut self, character: char) -> Result<Open, FormatError> {
        self.push_text(character.encode_utf8(&mut [0; 4]))?;
        Ok(Open::Other)
    }

    fn push_text(&mut self, text: &str) -> Result<(), FormatError> {
        let Some(Frame::Paragraph(paragraph)) = self.frames.last_mut() else { return Ok(()) };
        let hidden = self.runs.last().and_then(|run| run.hidden).unwrap_or(paragraph.hidden);
        if hidden || paragraph.fields.in_instructions() {
            return Ok(());
        }
        self.held += text.len();
        check_text(self.held, self.limits)?;
        paragraph.fields.has_result();
        let run = self.runs.last();
        let is_raised = run.is_some_and(|run| run.is_raised);
        // What is raised behind a formula belongs to it.
        if !is_raised {
            paragraph.math.before_text(text, &mut paragraph.text);
        }
        let text = symbols::shown(text, run.and_then(|run| run.font.as_deref()).unwrap_or_default());
        // A raised number would read as a part of the one before it.
        let begins = markdown::begins_raised(&paragraph.text, is_raised, &mut paragraph.was_raised);
        if begins && markdown::is_raised_run(&text) {
            paragraph.text.push('^');
        }
        match text.contains(['\0', '\r']) {
            true => paragraph.text.push_str(&charset::clean(&text)),
            false => paragraph.text.push_str(&text),
        }
        Ok(())
    }

    fn close_row(&mut self) -> Result<(), FormatError> {
        let Some(Frame::Table(table)) = self.frames.last_mut() else { return Ok(()) };
        match table.row_deleted.take() {
            Some((author, date)) => {
                let row = table.markdown.drop_row();
                table.noted.marks.extend(self.evidence.change(Change::Deleted, &author, &date, &row));
            }
            None => {
                self.held += table.blanks_after * markdown::Table::BLANK_BYTES;
                table.markdown.blanks(table.blanks_after);
                table.markdown.end_row();
            }
        }
        check_text(self.held, self.limits)
    }

    fn close_frame(&mut self) -> Result<(), FormatError> {
        // What was carried within the frame ends with it.
        self.flush_carried(self.frames.len())?;
        match self.frames.pop() {
            Some(Frame::Paragraph(paragraph)) => self.close_paragraph(paragraph),
            Some(Frame::Table(table)) => self.emit(Block::Table(table.markdown), table.noted.marks),
            Some(Frame::Cell(cell)) => {
                if let Some(Frame::Table(table)) = self.frames.last_mut() {
                    table.noted.marks.extend(cell.noted.marks);
                    if !cell.deleted {
                        table.markdown.cell(if cell.continues { "" } else { &cell.text });
                        table.markdown.blanks(cell.span - 1);
                        self.held += cell.span * markdown::Table::BLANK_BYTES;
                    }
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn close_paragraph(&mut self, paragraph: Paragraph) -> Result<(), FormatError> {
        let has_text = paragraph.text.get(paragraph.own_from..).is_some_and(|own| !own.trim().is_empty());
        if self.frames.is_empty() {
            self.evidence.paragraphs += u64::from(has_text || !paragraph.noted.after.is_empty());
        }
        if paragraph.mark_deleted {
            let depth = self.frames.len();
            self.carried = Some(Carried { depth, text: paragraph.text, noted: paragraph.noted });
            return Ok(());
        }
        self.finish_paragraph(paragraph)
    }

    fn finish_paragraph(&mut self, mut paragraph: Paragraph) -> Result<(), FormatError> {
        let Noted { mut marks, after } = std::mem::take(&mut paragraph.noted);
        if !paragraph.text.trim().is_empty() {
            let block = self.block(paragraph, &mut marks);
            self.emit(block, std::mem::take(&mut marks))?;
        } else {
            self.count_empty(&paragraph);
        }
        for (index, (block, mut own)) in after.into_iter().enumerate() {
            // A paragraph without its own text passes its marks to the first box in it.
            if index == 0 {
                own.append(&mut marks);
            }
            self.emit(block, own)?;
        }
        match marks.is_empty() {
            true => Ok(()),
            false => self.keep_marks(marks),
        }
    }

    /// Counts an item without text. Word shows its number, unless its mark is hidden or is that of a section alone.
    fn count_empty(&mut self, paragraph: &Paragraph) {
        let is_hidden = paragraph.mark_hidden.unwrap_or(paragraph.hidden);
        let place = self.styles.list_place(paragraph.place, paragraph.style.as_deref(), self.numbering);
        if let Some((list, level)) = place.filter(|_| !is_hidden && !paragraph.ends_section) {
            self.counter.next(list, level);
        }
    }

    /// Keeps the marks of a paragraph without text. They belong to what is around it, or to the place where it stood.
    fn keep_marks(&mut self, marks: Vec<Mark>) -> Result<(), FormatError> {
        match self.frames.last_mut() {
            Some(Frame::Paragraph(Paragraph { noted, .. }) | Frame::Cell(Cell { noted, .. })) => {
                noted.marks.extend(marks)
            }
            Some(Frame::Table(table)) => table.noted.marks.extend(marks),
            None => self.evidence.place(marks, self.writer.len()),
        }
        Ok(())
    }

    fn block(&mut self, paragraph: Paragraph, marks: &mut Vec<Mark>) -> Block {
        let Paragraph { text, style, place, heading, .. } = paragraph;
        let style = style.as_deref();
        let heading = heading.or_else(|| self.styles.heading_level(style?));
        let place = self.styles.list_place(place, style, self.numbering);
        if let Some((list, level)) = place {
            let label = self.counter.next(list, level);
            marks.extend(self.evidence.item(level, label, heading.is_some()));
        }
        match (heading, place) {
            (Some(level), _) => Block::Heading { level, text },
            (None, Some((_, level))) => Block::ListItem { level, text },
            (None, None) => Block::Paragraph(text),
        }
    }

    /// Ends what was carried at this depth or deeper, because nothing follows it there.
    fn flush_carried(&mut self, depth: usize) -> Result<(), FormatError> {
        match self.carried.take_if(|carried| carried.depth >= depth) {
            Some(carried) => {
                self.finish_paragraph(Paragraph { text: carried.text, noted: carried.noted, ..Paragraph::default() })
            }
            None => Ok(()),
        }
    }

    /// Hands a finished block to what is around it.
    fn emit(&mut self, block: Block, marks: Vec<Mark>) -> Result<(), FormatError> {
        match self.frames.last_mut() {
            Some(Frame::Paragraph(paragraph)) => paragraph.noted.after.push((block, marks)),
            Some(Frame::Cell(cell)) => cell.take(block, marks),
            // A block directly in a table is out of place, but its text is kept.
            Some(Frame::Table(_)) | None => {
                if let Some(start) = self.writer.write(block, self.limits)? {
                    self.evidence.place(marks, start);
                }
            }
        }
        Ok(())
    }
}
