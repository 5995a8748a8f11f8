//! Streams the shapes of a slide, or of its notes, in the order of the tree.

use super::{
    inheritance::{Bullets, Inheritance, Placeholder, Role, bullet},
    paragraph::{Paragraph, Run},
    slide::Slide,
};
use crate::{
    FormatError, Limits,
    extraction::check_text,
    markdown::{Block, Table, one_line},
    xml::{Element, Node, XmlReader},
};
use std::io::Read;

/// Which part the shapes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Slide,
    /// In notes only the body placeholder is read, because the rest repeats the slide or the page.
    Notes,
}

pub(super) fn read<R: Read>(
    xml: XmlReader<R>,
    part: Part,
    inheritance: &Inheritance,
    limits: &Limits,
) -> Result<Slide, FormatError> {
    let mut reader = Reader {
        xml,
        part,
        inheritance,
        limits,
        open: Vec::new(),
        alternates: Vec::new(),
        shape: Shape::default(),
        table: None,
        cell: None,
        paragraph: None,
        held: 0,
        slide: Slide::default(),
    };
    reader.run()?;
    Ok(reader.slide)
}

struct Reader<'a, R: Read> {
    xml: XmlReader<R>,
    part: Part,
    inheritance: &'a Inheritance,
    limits: &'a Limits,
    /// The meaning of each open element.
    open: Vec<Open>,
    /// For each open `mc:AlternateContent`, whether a branch was taken.
    alternates: Vec<bool>,
    shape: Shape,
    table: Option<Table>,
    /// The open cell's text; `None` outside a cell.
    cell: Option<Cell>,
    paragraph: Option<Paragraph>,
    held: usize,
    slide: Slide,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Body,
    Table,
    Row,
    Cell,
    Paragraph,
    Text,
    /// A formula, or an element of one.
    Math,
    Alternate,
    Other,
}

/// The shape around the text being read.
#[derive(Default)]
struct Shape {
    placeholder: Option<Placeholder>,
    bullets: Bullets,
}

#[derive(Default)]
struct Cell {
    text: String,
    /// A cell to the left or above covers it.
    is_covered: bool,
}

impl<R: Read> Reader<'_, R> {
    fn run(&mut self) -> Result<(), FormatError> {
        while let Some(node) = self.xml.next()? {
            match node {
                Node::Start(element) => self.start(&element)?,
                Node::Text(text) => {
                    if self.open.last() == Some(&Open::Text)
                        && let Some(paragraph) = &mut self.paragraph
                    {
                        self.held += text.len();
                        check_text(self.held, self.limits)?;
                        paragraph.push(&text);
                    }
                }
                Node::End => self.end()?,
            }
        }
        Ok(())
    }

    fn start(&mut self, element: &Element) -> Result<(), FormatError> {
        let open = match element.name.as_str() {
            "sld" => {
                self.slide.is_hidden = is_off(element, "show");
                Open::Other
            }
            "sp" => {
                self.shape = Shape::default();
                Open::Other
            }
            "ph" => {
                self.shape.placeholder = Some(Placeholder::of(element));
                Open::Other
            }
            "txBody" if self.cell.is_some() || self.reads_shape() => Open::Body,
            "lstStyle" if self.cell.is_none() => {
                self.shape.bullets = Bullets::read(&mut self.xml)?;
                return Ok(());
            }
            // A table within a cell is out of place.
            "tbl" if self.table.is_none() && self.part == Part::Slide => {
                self.table = Some(Table::default());
                Open::Table
            }
            "tr" if self.open.last() == Some(&Open::Table) => Open::Row,
            "tc" if self.open.last() == Some(&Open::Row) => {
                let is_covered = is_on(element, "hMerge") || is_on(element, "vMerge");
                self.cell = Some(Cell { text: String::new(), is_covered });
                Open::Cell
            }
            "p" if self.open.last() == Some(&Open::Body) => {
                self.paragraph = Some(Paragraph::default());
                Open::Paragraph
            }
            "pPr" if self.open.last() == Some(&Open::Paragraph) => return self.paragraph_properties(element),
            "t" if self.paragraph.is_some() => Open::Text,
            "br" => {
                if let Some(paragraph) = &mut self.paragraph {
                    paragraph.push("\n");
                }
                Open::Other
            }
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
            "rPr" => return self.run_properties(element),
            // These hold no text, or text that is not the slide's own.
            "txBody" | "lstStyle" | "tbl" | "spPr" | "style" | "bodyPr" | "pPr" | "endParaRPr" | "tblPr"
            | "tblGrid" | "tcPr" | "bg" | "timing" | "transition" | "extLst" | "oleObj" => return self.xml.skip(),
            _ => match &mut self.paragraph {
                Some(paragraph) if paragraph.math.takes(element) => {
                    paragraph.math.start(element, &mut paragraph.text);
                    Open::Math
                }
                _ => Open::Other,
            },
        };
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), FormatError> {
        match self.open.pop() {
            Some(Open::Alternate) => {
                self.alternates.pop();
            }
            Some(Open::Text) => {
                if let Some(paragraph) = &mut self.paragraph {
                    paragraph.run = Run::default();
                }
            }
            Some(Open::Paragraph) => self.close_paragraph(),
            Some(Open::Cell) => {
                if let (Some(cell), Some(table)) = (self.cell.take(), &mut self.table) {
                    table.cell(if cell.is_covered { "" } else { &cell.text });
                    self.held += Table::BLANK_BYTES;
                    check_text(self.held, self.limits)?;
                }
            }
            Some(Open::Row) => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            Some(Open::Table) => {
                self.slide.blocks.extend(self.table.take().filter(|table| !table.is_empty()).map(Block::Table));
            }
            Some(Open::Math) => {
                if let Some(paragraph) = &mut self.paragraph {
                    paragraph.math.end(&mut paragraph.text);
                }
            }
            Some(Open::Body | Open::Other) | None => {}
        }
        Ok(())
    }

    /// Whether the text of the shape is read at all.
    fn reads_shape(&self) -> bool {
        match (self.part, &self.shape.placeholder) {
            (Part::Slide, placeholder) => {
                placeholder.as_ref().is_none_or(|placeholder| placeholder.role != Role::Furniture)
            }
            (Part::Notes, placeholder) => placeholder.as_ref().is_some_and(|placeholder| placeholder.is_body),
        }
    }

    fn paragraph_properties(&mut self, element: &Element) -> Result<(), FormatError> {
        let level = element.attribute("lvl").and_then(|level| level.parse().ok()).unwrap_or(0u8).min(8);
        let mut own = None;
        let mut depth = 1u32;
        while depth > 0 {
            match self.xml.next()? {
                Some(Node::Start(element)) => {
                    depth += 1;
                    own = own.or(bullet(&element.name));
                }
                Some(Node::End) => depth -= 1,
                Some(Node::Text(_)) => {}
                None => break,
            }
        }
        if let Some(paragraph) = &mut self.paragraph {
            (paragraph.level, paragraph.bullet) = (level, own);
        }
        Ok(())
    }

    /// Reads what the properties of a run say of its text, until their end.
    fn run_properties(&mut self, element: &Element) -> Result<(), FormatError> {
        let raised = element.attribute("baseline").and_then(|share| share.trim_end_matches('%').parse::<f64>().ok());
        let mut run = Run { is_raised: raised.is_some_and(|share| share > 0.0), symbols: None };
        let mut depth = 1u32;
        while depth > 0 {
            match self.xml.next()? {
                Some(Node::Start(inner)) => {
                    depth += 1;
                    if inner.name == "sym" {
                        run.symbols = inner.attribute("typeface").map(str::to_owned);
                    }
                }
                Some(Node::End) => depth -= 1,
                Some(Node::Text(_)) => {}
                None => break,
            }
        }
        if let Some(paragraph) = &mut self.paragraph {
            paragraph.run = run;
        }
        Ok(())
    }

    fn close_paragraph(&mut self) {
        let Some(Paragraph { text, level, bullet, .. }) = self.paragraph.take() else { return };
        if text.trim().is_empty() {
            return;
        }
        if let Some(cell) = &mut self.cell {
            if !cell.text.is_empty() {
                cell.text.push(' ');
            }
            cell.text.push_str(&text);
            return;
        }
        let placeholder = self.shape.placeholder.as_ref();
        let is_title = self.part == Part::Slide && placeholder.is_some_and(|own| own.role == Role::Title);
        if is_title {
            let line = one_line(&text);
            match &mut self.slide.title {
                Some(title) => {
                    title.push(' ');
                    title.push_str(&line);
                }
                None => self.slide.title = Some(line),
            }
            return;
        }
        let at = usize::from(level);
        let inherited = || placeholder.is_some_and(|own| self.inheritance.has_bullet(own, at));
        let block = match bullet.or(self.shape.bullets.0[at]).unwrap_or_else(inherited) {
            true => Block::ListItem { level, text },
            false => Block::Paragraph(text),
        };
        self.slide.blocks.push(block);
    }
}

fn is_on(element: &Element, name: &str) -> bool {
    matches!(element.attribute(name), Some("1" | "true" | "on"))
}

fn is_off(element: &Element, name: &str) -> bool {
    matches!(element.attribute(name), Some("0" | "false" | "off"))
}
