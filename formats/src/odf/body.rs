//! Follows the elements of a document's content and writes its text.

use super::{formulas::Formulas, styles::Styles};
use crate::{
    Extraction, Format, FormatError, Limits, Page, PageKind,
    extraction::check_text,
    markdown::{Block, Table, Writer, begins_raised, is_raised_run},
    xml::Element,
};

/// How often a repeated cell or run of blanks is written.
const REPEATED: usize = 1_000;

/// What an element is to the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Nothing of its own.
    Other,
    Heading(u8),
    Paragraph,
    /// A note within a paragraph.
    Note,
    /// A text above the line.
    Raised,
    List,
    Table,
    Row,
    Cell,
    Slide,
    /// The frame of a slide's title.
    Title,
    /// The notes of a slide.
    Notes,
    /// A frame, a shape, or an area of one.
    Drawing,
}

/// A slide before it is written.
#[derive(Default)]
struct Slide {
    title: Option<String>,
    blocks: Vec<Block>,
    notes: Vec<Block>,
    /// The bytes of text that it holds.
    bytes: usize,
}

pub(super) struct Body<'a> {
    styles: Styles,
    formulas: Formulas,
    format: Format,
    limits: &'a Limits,
    writer: Writer,
    roles: Vec<Role>,
    /// How many elements around the present one are not read.
    skipped: usize,
    /// The text of the open paragraph, or heading.
    line: String,
    /// Whether its last text is raised.
    was_raised: bool,
    /// Whether a paragraph within the open one has ended, so that what follows is no part of its last word.
    is_apart: bool,
    /// Whether a formula begins or has ended, whose letters and digits are no part of those beside it.
    is_at_formula: bool,
    /// How many paragraphs, lists and tables are open in each other.
    paragraphs: usize,
    lists: u8,
    tables: usize,
    table: Table,
    cell: String,
    table_bytes: usize,
    /// How often the open cell comes, and the empty cells that stand before the next one with text.
    repeated: usize,
    blanks: usize,
    slide: Option<Slide>,
    pages: Vec<Page>,
    promoted: u64,
}

impl<'a> Body<'a> {
    pub(super) fn new(styles: Styles, formulas: Formulas, format: Format, limits: &'a Limits) -> Self {
        Self {
            styles,
            formulas,
            format,
            limits,
            writer: Writer::default(),
            roles: Vec::new(),
            skipped: 0,
            line: String::new(),
            was_raised: false,
            is_apart: false,
            is_at_formula: false,
            paragraphs: 0,
            lists: 0,
            tables: 0,
            table: Table::default(),
            cell: String::new(),
            table_bytes: 0,
            repeated: 1,
            blanks: 0,
            slide: None,
            pages: Vec::new(),
            promoted: 0,
        }
    }

    pub(super) fn start(&mut self, element: Element) -> Result<(), FormatError> {
        if self.skipped > 0 {
            self.skipped += 1;
            return Ok(());
        }
        let count = |name: &str| element.attribute(name).and_then(|count| count.parse::<usize>().ok()).unwrap_or(1);
        let class = element.attribute("class").unwrap_or_default();
        let is_slides = self.format == Format::Odp;
        let role = match element.name.as_str() {
            // What was deleted, remarks, and what a table of contents is made of are no text. Neither are forms and scripts. How a word is read out stands
            // beside it.
            "tracked-changes"
            | "annotation"
            | "forms"
            | "scripts"
            | "event-listeners"
            | "desc"
            | "table-of-content-source"
            | "alphabetical-index-source"
            | "illustration-index-source"
            | "sequence-decls"
            | "note-citation"
            | "ruby-text"
            | "settings"
            | "master-styles"
            | "binary-data" => {
                self.skipped = 1;
                return Ok(());
            }
            // The title of a drawing or a table describes it. A field of this name shows that of the document.
            "title" if matches!(self.roles.last(), Some(Role::Drawing | Role::Title | Role::Table)) => {
                self.skipped = 1;
                return Ok(());
            }
            "date-time" | "footer" | "page-number" if is_slides => {
                self.skipped = 1;
                return Ok(());
            }
            "style" | "text-properties" => {
                self.styles.add(&element);
                Role::Other
            }
            "span" if self.styles.is_raised(element.attribute("style-name").unwrap_or_default()) => Role::Raised,
            "h" => {
                let level = element.attribute("outline-level").and_then(|level| level.parse().ok());
                Role::Heading(level.unwrap_or(1).clamp(1, 9))
            }
            "p" if self.styles.is_title(element.attribute("style-name").unwrap_or_default()) && !is_slides => {
                Role::Heading(1)
            }
            "p" => Role::Paragraph,
            "note" => Role::Note,
            "list" => Role::List,
            "table" => Role::Table,
            "table-row" if self.tables == 1 => Role::Row,
            "table-cell" if self.tables == 1 => Role::Cell,
            "covered-table-cell" if self.tables == 1 => {
                self.blanks = self.blanks.saturating_add(count("number-columns-repeated"));
                self.skipped = 1;
                return Ok(());
            }
            "page" if is_slides && self.slide.is_none() => Role::Slide,
            "notes" if is_slides => Role::Notes,
            "frame" | "custom-shape" if is_slides && class == "title" => Role::Title,
            "frame" | "custom-shape" | "g" | "rect" | "line" | "polyline" | "polygon" | "regular-polygon" | "path"
            | "circle" | "ellipse" | "connector" | "caption" | "measure" | "control" | "scene" | "area-rectangle"
            | "area-circle" | "area-polygon" => Role::Drawing,
            "s" => {
                let blanks = count("c").min(REPEATED);
                self.text(&" ".repeat(blanks))?;
                Role::Other
            }
            "tab" => {
                self.text("\t")?;
                Role::Other
            }
            "object" => {
                let formula = element.attribute("href").and_then(|href| self.formulas.get(href)).map(str::to_owned);
                self.formula(formula.as_deref().unwrap_or_default())?;
                Role::Other
            }
            "line-break" => {
                self.text("\n")?;
                Role::Other
            }
            _ => Role::Other,
        };
        match role {
            // A paragraph within another is that of a frame or a note.
            Role::Heading(_) | Role::Paragraph => {
                self.paragraphs += 1;
                if self.paragraphs > 1 {
                    self.space();
                }
            }
            Role::Note => self.line.push_str(" ["),
            Role::List => self.lists = self.lists.saturating_add(1),
            Role::Table => self.tables += 1,
            Role::Cell => self.repeated = count("number-columns-repeated"),
            Role::Slide => self.slide = Some(Slide::default()),
            _ => {}
        }
        self.roles.push(role);
        Ok(())
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), FormatError> {
        if self.skipped > 0 || self.paragraphs == 0 {
            return Ok(());
        }
        if std::mem::take(&mut self.is_apart) && !text.starts_with(char::is_whitespace) {
            self.space();
        }
        let mut within = self.roles.iter().rev().take_while(|role| !matches!(role, Role::Paragraph | Role::Heading(_)));
        let is_raised = within.any(|role| *role == Role::Raised);
        let is_one = self.line.ends_with(char::is_alphanumeric) && text.starts_with(char::is_alphanumeric);
        // What is raised behind a formula belongs to it.
        if std::mem::take(&mut self.is_at_formula) && is_one && !is_raised {
            self.line.push(' ');
        }
        // A raised number would read as a part of the one before it.
        if begins_raised(&self.line, is_raised, &mut self.was_raised) && is_raised_run(text) {
            self.line.push('^');
        }
        self.line.extend(text.chars().filter(|character| !character.is_control() || character.is_whitespace()));
        let waiting = self.slide.as_ref().map_or(0, |slide| slide.bytes);
        check_text(self.writer.len() + waiting + self.table_bytes + self.cell.len() + self.line.len(), self.limits)
    }

    /// Takes in a formula: a part of the open paragraph, or a paragraph of its own.
    pub(super) fn formula(&mut self, formula: &str) -> Result<(), FormatError> {
        if self.skipped > 0 || formula.is_empty() {
            return Ok(());
        }
        self.paragraphs += 1;
        self.is_at_formula = true;
        self.text(formula)?;
        self.is_at_formula = true;
        self.paragraphs -= 1;
        if self.paragraphs == 0 { self.end_paragraph(Role::Paragraph) } else { Ok(()) }
    }

    fn space(&mut self) {
        if !self.line.is_empty() && !self.line.ends_with([' ', '[', '\n']) {
            self.line.push(' ');
        }
    }

    pub(super) fn end(&mut self) -> Result<(), FormatError> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return Ok(());
        }
        let Some(role) = self.roles.pop() else { return Ok(()) };
        match role {
            Role::Heading(_) | Role::Paragraph => {
                self.paragraphs -= 1;
                if self.paragraphs == 0 {
                    self.end_paragraph(role)?;
                } else {
                    self.is_apart = true;
                }
            }
            Role::Note => {
                self.is_apart = false;
                let trimmed = self.line.trim_end().len();
                self.line.truncate(trimmed);
                self.line.push(']');
            }
            Role::List => self.lists -= 1,
            Role::Cell => self.end_cell()?,
            Role::Row => {
                // What is empty at the end of a row is no cell.
                self.blanks = 0;
                self.table.end_row();
            }
            Role::Table => {
                self.tables -= 1;
                if self.tables == 0 {
                    let table = std::mem::take(&mut self.table);
                    self.table_bytes = 0;
                    if table.has_text() {
                        self.write(Block::Table(table))?;
                    }
                }
            }
            Role::Slide => self.end_slide()?,
            Role::Other | Role::Raised | Role::Title | Role::Notes | Role::Drawing => {}
        }
        Ok(())
    }

    fn end_paragraph(&mut self, role: Role) -> Result<(), FormatError> {
        let line = std::mem::take(&mut self.line);
        let line = line.trim().to_owned();
        if line.is_empty() {
            return Ok(());
        }
        if self.tables > 0 {
            if !self.cell.is_empty() {
                self.cell.push(' ');
            }
            self.cell.push_str(&line);
            return Ok(());
        }
        let is_in = |role: Role| self.roles.contains(&role);
        if is_in(Role::Title)
            && !is_in(Role::Notes)
            && let Some(slide) = &mut self.slide
        {
            slide.bytes += line.len();
            match &mut slide.title {
                Some(title) => *title = format!("{title} {line}"),
                None => slide.title = Some(line),
            }
            return check_text(self.writer.len() + slide.bytes, self.limits);
        }
        self.write(match role {
            Role::Heading(level) if self.slide.is_none() => Block::Heading { level, text: line },
            _ if self.lists > 0 => Block::ListItem { level: self.lists - 1, text: line },
            _ => Block::Paragraph(line),
        })
    }

    fn end_cell(&mut self) -> Result<(), FormatError> {
        let text = std::mem::take(&mut self.cell);
        if text.is_empty() {
            self.blanks = self.blanks.saturating_add(self.repeated);
            return Ok(());
        }
        let blanks = std::mem::take(&mut self.blanks).min(REPEATED);
        self.table.blanks(blanks);
        for _ in 0..self.repeated.min(REPEATED) {
            self.table.cell(&text);
            self.table_bytes += text.len() + Table::BLANK_BYTES;
            check_text(self.writer.len() + self.table_bytes, self.limits)?;
        }
        self.table_bytes += blanks * Table::BLANK_BYTES;
        check_text(self.writer.len() + self.table_bytes, self.limits)
    }

    /// Writes a block, or keeps it for the slide that it is on.
    fn write(&mut self, block: Block) -> Result<(), FormatError> {
        let is_note = self.roles.contains(&Role::Notes);
        match &mut self.slide {
            Some(slide) => {
                slide.bytes += match &block {
                    Block::Heading { text, .. } | Block::Paragraph(text) | Block::ListItem { text, .. } => text.len(),
                    Block::Written(piece) => piece.text.len(),
                    Block::Table(_) => 0,
                };
                check_text(self.writer.len() + slide.bytes, self.limits)?;
                let blocks = if is_note { &mut slide.notes } else { &mut slide.blocks };
                blocks.push(block);
                Ok(())
            }
            None => self.writer.write(block, self.limits).map(drop),
        }
    }

    fn end_slide(&mut self) -> Result<(), FormatError> {
        let Some(Slide { title, mut blocks, notes, .. }) = self.slide.take() else { return Ok(()) };
        let number = u32::try_from(self.pages.len() + 1).unwrap_or(u32::MAX);
        let title = title.or_else(|| {
            let first =
                blocks.iter().position(|block| matches!(block, Block::Paragraph(_) | Block::ListItem { .. }))?;
            self.promoted += 1;
            match blocks.remove(first) {
                Block::Paragraph(text) | Block::ListItem { text, .. } => Some(text),
                _ => None,
            }
        });
        let heading = Block::Heading { level: 1, text: title.unwrap_or_else(|| format!("Slide {number}")) };
        let notes_heading = (!notes.is_empty()).then(|| Block::Heading { level: 2, text: "Notes".to_owned() });
        let mut start = None;
        for block in std::iter::once(heading).chain(blocks).chain(notes_heading).chain(notes) {
            start = start.or(self.writer.write(block, self.limits)?);
        }
        let end = self.writer.len();
        self.pages.push(Page { number, start: start.unwrap_or(end), end });
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Extraction, FormatError> {
        let is_slides = self.format == Format::Odp;
        let mut extraction = self.writer.finish(if is_slides { "slides" } else { "styles" });
        if is_slides {
            extraction.facts.insert("promoted_title_count".to_owned(), self.promoted.into());
            extraction.pages = self.pages;
            extraction.page_kind = PageKind::Slide;
        }
        Ok(extraction)
    }
}
