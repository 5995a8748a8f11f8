//! Reads the table of a sheet once from its beginning, row by row. A row or cell that is repeated is kept once and given as
//! often as it comes; an empty one costs nothing, however often it comes.

use super::{
    super::{
        book::{Comments, Scan},
        markup::{Mark, Markup},
        moment::span_from_iso,
        range::{CellRef, MAX_COLUMN, MAX_ROW, Range},
        sheet::Comment,
        worksheet::{Item, RawCell, RawFormula, Shown, Stored, check_cells},
    },
    damaged, formula,
    styles::CellStyles,
};
use crate::{
    FormatError, Limits,
    extraction::check_text,
    markdown::{begins_raised, is_raised_run},
};
use std::io::Read;

/// How many blanks one element may stand for.
const MOST_BLANKS: usize = 1_000;

/// A filled cell of the present row.
struct Filled {
    column: u32,
    /// In how many columns it stands.
    copies: u32,
    /// How many columns and rows it covers.
    span: (u32, u32),
    raw: RawCell,
}

/// Where the present row is, and how much of it was given.
#[derive(Default)]
struct Given {
    row: u32,
    last_row: u32,
    hidden: bool,
    /// Whether the row itself was given.
    is_begun: bool,
    cell: usize,
    copy: u32,
    /// Whether it was given before, in a row above.
    is_repeated: bool,
    merged: Option<Range>,
}

/// What comes next of the present row.
enum Step {
    Row,
    /// A cell, by its index.
    Cell(CellRef, usize),
    Merged(Range),
}

pub(super) struct Content<'a, S: Read> {
    xml: Markup<S>,
    styles: &'a CellStyles,
    limits: Limits,
    /// How many groups of rows or columns are open.
    groups: u32,
    has_ended: bool,
    /// The last row that was read.
    row: u32,
    /// The last column that was declared.
    column: u32,
    /// The styles of columns, each with the last column that has it.
    column_styles: Vec<(u32, u32)>,
    hidden_columns: Option<(u32, u32)>,
    row_style: Option<u32>,
    cells: Vec<Filled>,
    given: Given,
    filled: u64,
    /// The bytes of the texts that repeated cells repeat.
    repeated_bytes: usize,
    /// Present if comments are wanted.
    comments: Option<Comments>,
}

impl<'a, S: Read> Content<'a, S> {
    /// Goes to the table that has so many others before it.
    pub(super) fn open(
        mut xml: Markup<S>,
        place: u32,
        styles: &'a CellStyles,
        limits: &Limits,
    ) -> Result<Self, FormatError> {
        let (mut before, mut is_found, mut is_empty) = (0, false, false);
        while let Some(mark) = xml.next()? {
            let Mark::Start { empty } = mark else { continue };
            match xml.name() {
                "document-content" | "body" | "spreadsheet" => {}
                "table" if before == place => {
                    (is_found, is_empty) = (true, empty);
                    break;
                }
                name => {
                    before += u32::from(name == "table");
                    if !empty {
                        xml.skip()?;
                    }
                }
            }
        }
        if !is_found {
            return Err(damaged("a table is missing"));
        }
        Ok(Self {
            xml,
            styles,
            limits: limits.clone(),
            groups: 0,
            has_ended: is_empty,
            row: 0,
            column: 0,
            column_styles: Vec::new(),
            hidden_columns: None,
            row_style: None,
            cells: Vec::new(),
            // A row below none was given already.
            given: Given { row: 1, ..Given::default() },
            filled: 0,
            repeated_bytes: 0,
            comments: None,
        })
    }

    /// Reads the whole sheet for its comments.
    pub(super) fn into_comments(mut self) -> Result<Comments, FormatError> {
        self.comments = Some(Comments::default());
        while self.read_row()? {}
        Ok(self.comments.unwrap_or_default())
    }

    /// What is left to give of the present row, as often as it comes.
    fn step(&mut self) -> Result<Option<Step>, FormatError> {
        loop {
            let given = &mut self.given;
            if let Some(merged) = given.merged.take() {
                return Ok(Some(Step::Merged(merged)));
            }
            if given.row > given.last_row {
                return Ok(None);
            }
            if !given.is_begun {
                given.is_begun = true;
                return Ok(Some(Step::Row));
            }
            let Some(cell) = self.cells.get(given.cell) else {
                (given.row, given.is_begun, given.cell, given.is_repeated) = (given.row + 1, false, 0, true);
                continue;
            };
            let (index, row, column) = (given.cell, given.row, cell.column.saturating_add(given.copy));
            if given.is_repeated || given.copy > 0 {
                let shown = if let Shown::Text(shown) = &cell.raw.shown { shown.len() } else { 0 };
                self.repeated_bytes += cell.raw.text.len() + shown;
                check_text(self.repeated_bytes, &self.limits)?;
            }
            given.copy += 1;
            if given.copy >= cell.copies {
                (given.cell, given.copy) = (index + 1, 0);
            }
            let at = place(row, column)?;
            if cell.span != (1, 1) {
                let (columns, rows) = cell.span;
                let last = CellRef::new(
                    row.saturating_add(rows - 1).min(MAX_ROW),
                    column.saturating_add(columns - 1).min(MAX_COLUMN),
                );
                given.merged = last.map(|last| Range::new(at, last));
            }
            self.filled += 1;
            check_cells(self.filled, &self.limits)?;
            return Ok(Some(Step::Cell(at, index)));
        }
    }

    /// Reads on to the next row, past what is around rows; false at the end of the table. Hidden columns come as ranges.
    fn read_row(&mut self) -> Result<bool, FormatError> {
        loop {
            if self.has_ended {
                return Ok(false);
            }
            match self.xml.next()? {
                Some(Mark::Start { empty }) => match self.xml.name() {
                    "table-row" => {
                        self.row(empty)?;
                        return Ok(true);
                    }
                    "table-column" => {
                        let hidden = self.column();
                        if !empty {
                            self.xml.skip()?;
                        }
                        if let Some(hidden) = hidden {
                            self.hidden_columns = Some(hidden);
                            return Ok(true);
                        }
                    }
                    "table-header-rows"
                    | "table-rows"
                    | "table-row-group"
                    | "table-columns"
                    | "table-header-columns"
                    | "table-column-group" => self.groups += u32::from(!empty),
                    _ if !empty => self.xml.skip()?,
                    _ => {}
                },
                Some(Mark::End) if self.groups > 0 => self.groups -= 1,
                Some(Mark::End) | None => self.has_ended = true,
                Some(_) => {}
            }
        }
    }

    /// Takes the columns that just began; returns them if they are hidden.
    fn column(&mut self) -> Option<(u32, u32)> {
        let (mut count, mut is_hidden, mut style) = (1, false, None);
        for (name, value) in self.xml.attributes() {
            match name {
                "number-columns-repeated" => count = repeated(&value),
                "visibility" => is_hidden = hides(&value),
                "default-cell-style-name" => style = Some(self.styles.index(&value)),
                _ => {}
            }
        }
        let first = self.column.saturating_add(1);
        self.column = self.column.saturating_add(count).min(MAX_COLUMN);
        if first > self.column {
            return None;
        }
        self.column_styles.push((self.column, style.unwrap_or(u32::MAX)));
        is_hidden.then_some((first, self.column))
    }

    /// Reads the row that just began, with its cells.
    fn row(&mut self, empty: bool) -> Result<(), FormatError> {
        let (mut rows, mut hidden) = (1, false);
        self.row_style = None;
        for (name, value) in self.xml.attributes() {
            match name {
                "number-rows-repeated" => rows = repeated(&value),
                "visibility" => hidden = hides(&value),
                "default-cell-style-name" => self.row_style = Some(self.styles.index(&value)),
                _ => {}
            }
        }
        self.cells.clear();
        let row = self.row.saturating_add(1);
        self.row = self.row.saturating_add(rows);
        let (mut column, mut bytes) = (0u32, 0);
        let mut is_open = !empty;
        while is_open {
            match self.xml.next()? {
                Some(Mark::Start { empty }) => match self.xml.name() {
                    "table-cell" => {
                        let copies = self.cell(row, column.saturating_add(1), empty, &mut bytes)?;
                        column = column.saturating_add(copies);
                    }
                    // What it holds is not shown, because another cell covers it.
                    "covered-table-cell" => {
                        let count = self.xml.attribute("number-columns-repeated").map_or(1, |count| repeated(&count));
                        column = column.saturating_add(count);
                        if !empty {
                            self.xml.skip()?;
                        }
                    }
                    _ if !empty => self.xml.skip()?,
                    _ => {}
                },
                Some(Mark::End) | None => is_open = false,
                Some(_) => {}
            }
        }
        let last_row = match self.cells.last() {
            Some(last) => place(self.row, last.column.saturating_add(last.copies - 1))?.row(),
            None if hidden => self.row.min(MAX_ROW),
            // A row without anything is not given.
            None => 0,
        };
        self.given = Given { row, last_row, hidden, ..Given::default() };
        Ok(())
    }

    /// Reads the cell that just began, and keeps it if it is filled; returns in how many columns it stands.
    fn cell(&mut self, row: u32, column: u32, empty: bool, bytes: &mut usize) -> Result<u32, FormatError> {
        let mut tag = Tag::of(&self.xml, self.styles);
        let mut text = None;
        if !empty {
            let mut found = String::new();
            let mut is_first = true;
            loop {
                match self.xml.next()? {
                    Some(Mark::Start { empty }) => match self.xml.name() {
                        "annotation" if !empty && self.comments.is_some() => self.comment(row, column)?,
                        "p" | "h" | "list" => {
                            paragraphs(&mut self.xml, empty, self.styles, &mut found, &mut is_first)?;
                        }
                        _ if !empty => self.xml.skip()?,
                        _ => {}
                    },
                    Some(Mark::End) | None => break,
                    Some(_) => {}
                }
            }
            check_text(found.len(), &self.limits)?;
            text = (!is_first).then_some(found);
        }
        let copies = tag.copies;
        if let Some(mut raw) = tag.raw(text) {
            raw.style = tag.style.or(self.row_style).unwrap_or_else(|| self.style_of_column(column));
            *bytes += raw.text.len() + if let Shown::Text(shown) = &raw.shown { shown.len() } else { 0 };
            check_text(*bytes, &self.limits)?;
            // There is a cell at least in each column, so that their number is bounded.
            place(1, column.saturating_add(copies - 1))?;
            self.cells.push(Filled { column, copies, span: tag.span, raw });
        }
        Ok(copies)
    }

    fn style_of_column(&self, column: u32) -> u32 {
        let at = self.column_styles.partition_point(|(last, _)| *last < column);
        self.column_styles.get(at).map_or(u32::MAX, |(_, style)| *style)
    }

    /// Reads the comment that just began.
    fn comment(&mut self, row: u32, column: u32) -> Result<(), FormatError> {
        let (mut author, mut text, mut is_first) = (String::new(), String::new(), true);
        loop {
            match self.xml.next()? {
                Some(Mark::Start { empty }) => match self.xml.name() {
                    "creator" if !empty => self.xml.text(&mut author)?,
                    "p" | "h" | "list" => {
                        paragraphs(&mut self.xml, empty, self.styles, &mut text, &mut is_first)?;
                    }
                    _ if !empty => self.xml.skip()?,
                    _ => {}
                },
                Some(Mark::End) | None => break,
                Some(_) => {}
            }
        }
        if let (Some(cell), Some(comments)) = (CellRef::new(row, column), &mut self.comments) {
            comments.add(Comment { cell, author, text }, &self.limits)?;
        }
        Ok(())
    }
}

impl<S: Read> Scan for Content<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, FormatError> {
        loop {
            if let Some((first, last)) = self.hidden_columns.take() {
                return Ok(Some(Item::HiddenColumns { first, last }));
            }
            match self.step()? {
                Some(Step::Row) => {
                    return Ok(Some(Item::Row { row: self.given.row, hidden: self.given.hidden }));
                }
                Some(Step::Cell(at, index)) => return Ok(Some(Item::Cell(at, &self.cells[index].raw))),
                Some(Step::Merged(range)) => return Ok(Some(Item::Merged(range))),
                None if self.read_row()? => {}
                None => return Ok(None),
            }
        }
    }

    fn formula_text(&self, formula: &RawFormula, _at: CellRef) -> String {
        match formula {
            RawFormula::Own(text) => format!("={text}"),
            _ => "=".to_owned(),
        }
    }

    /// A merged range comes with its first cell, so that none comes after the cells.
    fn behind_cells<'b>(mut self: Box<Self>, _bytes: u64) -> Result<Option<Box<dyn Scan + 'b>>, FormatError>
    where
        Self: 'b,
    {
        self.given = Given { row: 1, ..Given::default() };
        self.has_ended = true;
        Ok(Some(self))
    }
}

/// What a cell's tag says.
struct Tag {
    copies: u32,
    span: (u32, u32),
    style: Option<u32>,
    stored: Option<Stored>,
    is_error: bool,
    value: Option<String>,
    formula: Option<String>,
}

impl Tag {
    fn of<S: Read>(xml: &Markup<S>, styles: &CellStyles) -> Self {
        let mut tag =
            Self { copies: 1, span: (1, 1), style: None, stored: None, is_error: false, value: None, formula: None };
        for (name, value) in xml.attributes() {
            match name {
                "number-columns-repeated" => tag.copies = repeated(&value),
                "number-columns-spanned" => tag.span.0 = repeated(&value),
                "number-rows-spanned" => tag.span.1 = repeated(&value),
                "style-name" => tag.style = Some(styles.index(&value)),
                "value-type" => match value.as_ref() {
                    "float" | "percentage" | "currency" => tag.stored = Some(Stored::Number),
                    "date" => tag.stored = Some(Stored::Date),
                    "time" => tag.stored = Some(Stored::Time),
                    "boolean" => tag.stored = Some(Stored::Boolean),
                    "string" => tag.stored = Some(Stored::Text),
                    // Beside the standard's type, which is that of a text.
                    "error" => tag.is_error = true,
                    _ => {}
                },
                "value" | "date-value" | "time-value" | "boolean-value" | "string-value" => {
                    tag.value = Some(value.into_owned());
                }
                "formula" => tag.formula = Some(value.into_owned()),
                _ => {}
            }
        }
        tag
    }

    /// The cell, with what it shows; `None` if it is not filled.
    fn raw(&mut self, shown: Option<String>) -> Option<RawCell> {
        let mut raw = RawCell {
            formula: self.formula.take().map(|text| RawFormula::Own(formula::formula(&text))),
            ..RawCell::default()
        };
        let value = self.value.take().filter(|value| !value.is_empty());
        match (self.stored, value) {
            _ if self.is_error => (raw.stored, raw.text) = (Stored::Error, shown.clone().unwrap_or_default()),
            (Some(Stored::Text), Some(value)) => (raw.stored, raw.text) = (Stored::Text, value),
            (Some(Stored::Time), Some(value)) => match span_from_iso(&value) {
                Some(milliseconds) => (raw.stored, raw.text) = (Stored::Time, milliseconds.to_string()),
                None => (raw.stored, raw.text) = (Stored::Text, value),
            },
            (Some(stored), Some(value)) => (raw.stored, raw.text) = (stored, value),
            (_, None) | (None, _) => (raw.stored, raw.text) = (Stored::Text, shown.clone().unwrap_or_default()),
        }
        raw.text.retain(|character| character != '\0');
        raw.has_value = !raw.text.is_empty();
        if let Some(mut shown) = shown {
            shown.retain(|character| character != '\0');
            raw.shown = if shown == raw.text { Shown::AsStored } else { Shown::Text(shown) };
        }
        raw.is_filled().then_some(raw)
    }
}

/// Appends the text of the paragraph or list that just began, each paragraph on a line of its own.
fn paragraphs<S: Read>(
    xml: &mut Markup<S>,
    empty: bool,
    styles: &CellStyles,
    out: &mut String,
    is_first: &mut bool,
) -> Result<(), FormatError> {
    if matches!(xml.name(), "p" | "h") {
        if !std::mem::take(is_first) {
            out.push('\n');
        }
        let mut before = Before { is_blank: true, is_raised: false, was_raised: false };
        return if empty { Ok(()) } else { inline(xml, styles, out, &mut before) };
    }
    let mut is_open = !empty;
    while is_open {
        match xml.next()? {
            Some(Mark::Start { empty }) => match xml.name() {
                // The reader limits how deep elements nest.
                "p" | "h" | "list" | "list-item" => paragraphs(xml, empty, styles, out, is_first)?,
                _ if !empty => xml.skip()?,
                _ => {}
            },
            Some(Mark::End) | None => is_open = false,
            Some(_) => {}
        }
    }
    Ok(())
}

/// What the text so far says of that which follows: whether it ends with a blank or begins the paragraph, and whether the text around the
/// next one and the last one are above the line.
struct Before {
    is_blank: bool,
    is_raised: bool,
    was_raised: bool,
}

/// Appends the text within the element that just began. White space is one blank, and none at the beginning of a paragraph.
fn inline<S: Read>(
    xml: &mut Markup<S>,
    styles: &CellStyles,
    out: &mut String,
    before: &mut Before,
) -> Result<(), FormatError> {
    loop {
        match xml.next()? {
            Some(Mark::Text) => {
                // A raised number would read as a part of the one before it.
                let begins = begins_raised(out, before.is_raised, &mut before.was_raised);
                if begins && is_raised_run(xml.piece()) {
                    out.push('^');
                }
                for character in xml.piece().chars() {
                    let blank = matches!(character, ' ' | '\t' | '\n' | '\r');
                    match (blank, before.is_blank) {
                        (true, true) => {}
                        (true, false) => out.push(' '),
                        (false, _) => out.push(character),
                    }
                    before.is_blank = blank;
                }
            }
            Some(Mark::Start { empty }) => {
                match xml.name() {
                    "s" => {
                        let count = xml.attribute("c").map_or(1, |count| repeated(&count) as usize);
                        out.extend(std::iter::repeat_n(' ', count.min(MOST_BLANKS)));
                    }
                    "tab" => out.push('\t'),
                    "line-break" => out.push('\n'),
                    // These have texts of their own.
                    "annotation" | "note" | "ruby-text" | "frame" => {}
                    name if !empty => {
                        let around = before.is_raised;
                        let style = if name == "span" { xml.attribute("style-name") } else { None };
                        before.is_raised |= style.is_some_and(|style| styles.raises(&style));
                        inline(xml, styles, out, before)?;
                        before.is_raised = around;
                        continue;
                    }
                    _ => {}
                }
                if !empty {
                    xml.skip()?;
                }
            }
            Some(Mark::End) | None => return Ok(()),
            Some(Mark::Other) => {}
        }
    }
}

/// How often something comes: at least once.
fn repeated(count: &str) -> u32 {
    count.trim().parse::<u64>().map_or(1, |count| u32::try_from(count).unwrap_or(u32::MAX).max(1))
}

fn hides(visibility: &str) -> bool {
    matches!(visibility, "collapse" | "filter")
}

fn place(row: u32, column: u32) -> Result<CellRef, FormatError> {
    CellRef::new(row, column)
        .ok_or_else(|| damaged(format_args!("a sheet has cells beyond row {MAX_ROW} or column {MAX_COLUMN}")))
}
