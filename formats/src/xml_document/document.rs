//! Follows the elements of a document and writes their text.

use super::{
    fields::Fields,
    survey::{Survey, path},
    vocabulary::{
        ALTERNATIVES, FORMULA, Kind, Role, is_citation, is_displayed_formula, is_exhibit, is_front, is_note,
        is_of_program, is_raised, is_technical, known, may_hold_page, role, shown,
    },
};
use crate::{
    Extraction, FormatError, Limits,
    extraction::check_text,
    html,
    markdown::{Block, Table, Writer, is_raised_number, one_line},
    markup,
    math::MathMl,
    xml::{Element, Node},
};
use std::{collections::HashMap, rc::Rc};

/// Further titles are paragraphs.
const HEADINGS: usize = 2000;
/// How many values that are pieces of web pages are read as what they show; a page takes longer than a plain value.
const PAGES: usize = 20_000;
/// What is shown of a path: its last names.
const NAMES: usize = 8;
/// How many names of elements are kept, so that they are not made anew for each element.
const KEPT_NAMES: usize = 10_000;

struct Frame {
    /// In lower case.
    name: Rc<str>,
    shown: Rc<str>,
    path: u64,
    number: usize,
    role: Role,
    /// What the text in it belongs to: its own role, or that of what it is inline in.
    context: Role,
    /// Attributes that were not written yet.
    attributes: Vec<(String, String)>,
    /// Whether values in it are told apart from those of its neighbours.
    is_record: bool,
    has_children: bool,
    has_title: bool,
    /// Where its text begins in that of the innermost element that is not inline.
    begin: usize,
    /// Whether it is alternatives of which one, a formula, was read.
    has_formula: bool,
    /// How many elements around it have titles.
    titles: u8,
    lists: u8,
}

pub(super) struct Document<'a> {
    survey: &'a Survey,
    limits: &'a Limits,
    writer: Writer,
    fields: Fields,
    frames: Vec<Frame>,
    /// The names of elements as they are shown, each with the one by which it is known.
    names: HashMap<Rc<str>, Rc<str>>,
    numbered: usize,
    /// The text of the innermost element that is not inline.
    text: String,
    /// The formula that is open in it, and whether one has just ended.
    formula: Option<MathMl>,
    is_behind_formula: bool,
    table: Table,
    table_bytes: usize,
    /// The number of frames around the open table.
    table_at: Option<usize>,
    /// How many places of the row of a workbook are filled, and the place of the next cell if the cell names none.
    filled: usize,
    next_place: usize,
    headings: usize,
    was_end: bool,
    skipped: usize,
    pages: usize,
}

impl<'a> Document<'a> {
    pub(super) fn new(survey: &'a Survey, limits: &'a Limits) -> Self {
        Self {
            survey,
            limits,
            writer: Writer::default(),
            fields: Fields::default(),
            frames: Vec::new(),
            names: HashMap::new(),
            numbered: 0,
            text: String::new(),
            formula: None,
            is_behind_formula: false,
            table: Table::default(),
            table_bytes: 0,
            table_at: None,
            filled: 0,
            next_place: 0,
            headings: 0,
            was_end: false,
            skipped: 0,
            pages: 0,
        }
    }

    pub(super) fn node(&mut self, node: Node) -> Result<(), FormatError> {
        if let Some(mut formula) = self.formula.take() {
            formula.node(node);
            let open = if formula.is_open() { formula.len() } else { 0 };
            if formula.is_open() {
                self.formula = Some(formula);
            } else {
                let formula = formula.finish();
                self.part_numbers(&formula);
                self.text.push_str(&formula);
                (self.was_end, self.is_behind_formula) = (true, true);
            }
            return check_text(self.writer.len() + self.table_bytes + self.text.len() + open, self.limits);
        }
        match node {
            Node::Start(_) if self.skipped > 0 => self.skipped += 1,
            Node::End if self.skipped > 0 => self.skipped -= 1,
            Node::Text(_) if self.skipped > 0 => {}
            Node::Start(element) => {
                let was_end = std::mem::take(&mut self.was_end);
                self.start(element, was_end)?;
            }
            Node::Text(text) => {
                self.was_end = false;
                if std::mem::take(&mut self.is_behind_formula) {
                    self.part_numbers(&text);
                }
                let is_unseen = |character: char| character.is_control() && !character.is_whitespace();
                match text.contains(is_unseen) {
                    true => self.text.extend(text.chars().filter(|character| !is_unseen(*character))),
                    false => self.text.push_str(&text),
                }
                check_text(self.writer.len() + self.table_bytes + self.text.len(), self.limits)?;
            }
            Node::End => {
                self.end()?;
                self.was_end = true;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Extraction, FormatError> {
        self.fields.write(&mut self.writer, self.limits)?;
        Ok(self.writer.finish("xml"))
    }

    /// The name by which an element is known, and the one that is shown.
    fn names(&mut self, written: &str) -> (Rc<str>, Rc<str>) {
        let written = shown(written);
        if let Some((shown, known)) = self.names.get_key_value(written) {
            return (Rc::clone(known), Rc::clone(shown));
        }
        let (known, shown): (Rc<str>, Rc<str>) = (known(written).into(), written.into());
        if self.names.len() < KEPT_NAMES {
            self.names.insert(Rc::clone(&shown), Rc::clone(&known));
        }
        (known, shown)
    }

    fn start(&mut self, element: Element, was_end: bool) -> Result<(), FormatError> {
        let (name, shown) = self.names(&element.name);
        let hash = path(self.frames.last().map(|frame| frame.path), &name);
        let role = self.role(&name, hash);
        if role == Role::Skipped {
            self.skipped = 1;
            return Ok(());
        }
        let context = self.frames.last().map_or(Role::Container, |frame| frame.context);
        if role == Role::Inline {
            let parent = self.frames.last().map_or("", |frame| &*frame.name);
            let is_apart =
                matches!(context, Role::Item | Role::Cell) || is_citation(parent) || self.is_in_displayed_formula();
            if matches!(&*name, "br" | "lb") || (was_end && is_apart) {
                self.text.push(if context == Role::Lines { '\n' } else { ' ' });
            } else if is_displayed_formula(&name, parent) {
                self.text.push(' ');
            }
            if is_note(&name, context) {
                self.text.push_str(" (");
            }
        } else {
            self.flush()?;
        }
        self.write_attributes()?;
        if self.survey.kind == Kind::Workbook {
            self.of_workbook(role, &name, &element)?;
        }
        let parent = self.frames.last_mut();
        let (titles, lists) = parent.as_ref().map_or((0, 0), |parent| {
            (parent.titles + u8::from(parent.has_title), parent.lists + u8::from(parent.role == Role::List))
        });
        if let Some(parent) = parent {
            parent.has_children = true;
        }
        if role == Role::Inline && &*name == FORMULA {
            self.begin_formula();
            return Ok(());
        }
        if role == Role::Table {
            self.fields.write(&mut self.writer, self.limits)?;
            self.table_at = Some(self.frames.len());
        }
        let keeps = |attribute: &str| match self.survey.kind {
            Kind::Feed => matches!(attribute, "href" | "url"),
            Kind::Drawing | Kind::Workbook => false,
            Kind::Other => !self.survey.is_prose && !is_technical(attribute),
        };
        let attributes = match role {
            Role::Container => element.into_attributes().filter(|(name, _)| keeps(name)).collect(),
            _ => Vec::new(),
        };
        self.numbered += 1;
        self.frames.push(Frame {
            name,
            shown,
            path: hash,
            number: self.numbered,
            role,
            context: if role == Role::Inline { context } else { role },
            attributes,
            is_record: self.survey.is_repeated(hash),
            has_children: false,
            has_title: false,
            begin: self.text.len(),
            has_formula: false,
            titles: titles.min(8),
            lists: lists.min(8),
        });
        Ok(())
    }

    /// Writes a blank between the number of a formula and one beside it. A raised one belongs to it.
    fn part_numbers(&mut self, next: &str) {
        let is_within_raised = || {
            let mut within = self.frames.iter().rev().take_while(|frame| frame.role == Role::Inline);
            within.any(|frame| is_raised(&frame.name))
        };
        if self.text.ends_with(char::is_numeric) && next.starts_with(char::is_numeric) && !is_within_raised() {
            self.text.push(' ');
        }
    }

    /// Begins a formula. What stands beside it says it once more, in another language.
    fn begin_formula(&mut self) {
        let mut formula = MathMl::default();
        formula.start(FORMULA, |_| None);
        self.formula = Some(formula);
        if let Some(parent) = self.frames.last_mut().filter(|parent| &*parent.name == ALTERNATIVES) {
            parent.has_formula = true;
            if self.text.is_char_boundary(parent.begin) {
                self.text.truncate(parent.begin);
            }
        }
    }

    /// Writes what an element of a workbook says before it holds anything: the name of a sheet, or empty cells before a cell whose place
    /// is further to the right.
    fn of_workbook(&mut self, role: Role, name: &str, element: &Element) -> Result<(), FormatError> {
        /// No sheet of Excel has more columns.
        const COLUMNS: usize = 16_384;
        let number = |attribute: &str| {
            let number = element.attribute(attribute).and_then(|number| number.parse::<usize>().ok());
            number.filter(|number| *number <= COLUMNS)
        };
        match role {
            Role::Row => (self.filled, self.next_place) = (0, 0),
            Role::Cell => {
                let named = number("Index").and_then(|index| index.checked_sub(1));
                let place = named.unwrap_or(self.next_place).max(self.filled);
                let blanks = place - self.filled;
                self.table_bytes += blanks * Table::BLANK_BYTES;
                check_text(self.writer.len() + self.table_bytes, self.limits)?;
                self.table.blanks(blanks);
                self.filled = place + 1;
                self.next_place = self.filled + number("MergeAcross").unwrap_or(0);
            }
            Role::Container if name == "worksheet" => {
                let title = one_line(element.attribute("Name").unwrap_or_default());
                self.headings += 1;
                let block = match self.headings > HEADINGS {
                    true => Block::Paragraph(title),
                    false => Block::Heading { level: 1, text: title },
                };
                self.fields.write(&mut self.writer, self.limits)?;
                self.writer.write(block, self.limits)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What an element is by its name, by what is around it, and by what it holds.
    fn role(&self, name: &str, hash: u64) -> Role {
        let Some(parent) = self.frames.last() else { return Role::Container };
        let named = role(name);
        if parent.has_formula {
            return Role::Skipped;
        }
        if named == Some(Role::Skipped) || (self.survey.kind == Kind::Workbook && is_of_program(name)) {
            return Role::Skipped;
        }
        let begins_block =
            matches!(named, Some(Role::List | Role::Lines)) || named == Some(Role::Table) && self.table_at.is_none();
        let is_prose = self.survey.is_prose;
        match parent.context {
            Role::Paragraph if is_displayed_formula(name, &parent.name) => return Role::Paragraph,
            Role::Heading | Role::Lines | Role::Cell => return Role::Inline,
            Role::Paragraph | Role::Item if !begins_block => return Role::Inline,
            Role::Row => return Role::Cell,
            _ => {}
        }
        match (named, name) {
            (_, "tr" | "row") if self.table_at.is_some() => Role::Row,
            (Some(Role::Table), _) if self.table_at.is_some() => Role::Container,
            (_, "item") if parent.role == Role::List && is_prose => Role::Item,
            (Some(Role::List), "list") if !is_prose => Role::Container,
            (Some(Role::Heading), _) if is_exhibit(&parent.name) => Role::Paragraph,
            (Some(Role::Heading), _) if self.survey.kind == Kind::Drawing && self.frames.len() > 1 => Role::Paragraph,
            (Some(role), _) => role,
            (None, "disp-formula") => Role::Paragraph,
            (None, "equation" | "informalequation") if is_prose => Role::Paragraph,
            // Data name the formulas of substances so.
            (None, "formula") if is_prose && self.survey.has_formulas => Role::Paragraph,
            (None, "text" | "desc") if self.survey.kind == Kind::Drawing => Role::Paragraph,
            (None, _) if self.survey.is_mixed(hash) => Role::Paragraph,
            (None, _) => Role::Container,
        }
    }

    /// Whether the innermost element is a formula on lines of its own.
    fn is_in_displayed_formula(&self) -> bool {
        let is_formula = |frame: &Frame| is_displayed_formula(&frame.name, "") || &*frame.name == "formula";
        self.frames.last().is_some_and(|frame| frame.role == Role::Paragraph && is_formula(frame))
    }

    fn end(&mut self) -> Result<(), FormatError> {
        let Some(frame) = self.frames.last() else { return Ok(()) };
        let is_leaf = !frame.has_children;
        match frame.role {
            Role::Inline if is_note(&frame.name, frame.context) => {
                self.text.truncate(self.text.trim_end().len());
                match self.text.strip_suffix(" (").map(str::len) {
                    Some(before) => self.text.truncate(before),
                    // A list in the note has ended the paragraph with the opening bracket.
                    None if self.text.is_empty() => {}
                    None => self.text.push(')'),
                }
            }
            Role::Inline => {
                if is_raised(&frame.name) {
                    mark_raised_number(&mut self.text, frame.begin);
                }
                // Paragraphs and formulas within a cell or an item are words of it.
                let parent = self.frames.iter().nth_back(1).map_or("", |frame| &*frame.name);
                if role(&frame.name) == Some(Role::Paragraph) || is_displayed_formula(&frame.name, parent) {
                    self.text.push(' ');
                }
            }
            Role::Container if is_leaf => self.value()?,
            Role::Row => {
                self.flush()?;
                self.table.end_row();
            }
            Role::Table => {
                self.flush()?;
                self.end_table()?;
            }
            _ => self.flush()?,
        }
        self.write_attributes()?;
        self.frames.pop();
        Ok(())
    }

    /// Writes the text so far as what it belongs to.
    fn flush(&mut self) -> Result<(), FormatError> {
        let text = std::mem::take(&mut self.text);
        let Some(frame) = self.frames.last() else { return Ok(()) };
        let context = frame.context;
        // A text between cells is one.
        if context == Role::Cell || (context == Role::Row && !text.trim().is_empty()) {
            self.table.cell(&text);
            self.table_bytes += text.len() + Table::BLANK_BYTES;
            return check_text(self.writer.len() + self.table_bytes, self.limits);
        }
        let line = one_line(&text);
        if line.is_empty() || markup::is_encoded_value(&line) {
            return Ok(());
        }
        let block = match context {
            Role::Heading => match self.level() {
                Some(level) => Block::Heading { level, text: line },
                None => Block::Paragraph(line),
            },
            Role::Item => Block::ListItem { level: frame.lists.saturating_sub(1), text: line },
            Role::Lines => Block::Paragraph(text),
            _ => Block::Paragraph(line),
        };
        self.fields.write(&mut self.writer, self.limits)?;
        self.writer.write(block, self.limits).map(drop)
    }

    /// The level of a title: how many elements with titles it is in. `None` if there are too many titles.
    fn level(&mut self) -> Option<u8> {
        self.headings += 1;
        if self.headings > HEADINGS {
            return None;
        }
        let title = self.frames.iter().rposition(|frame| frame.role == Role::Heading)?;
        let by_name = self.frames[title].name.strip_prefix('h').and_then(|level| level.parse().ok());
        let owner = self.frames[..title].iter_mut().rev().find(|frame| !is_front(&frame.name));
        let titles = owner.map_or(0, |owner| {
            owner.has_title = true;
            owner.titles
        });
        Some(by_name.unwrap_or(titles + 1))
    }

    /// Writes the text of an element that holds nothing else.
    fn value(&mut self) -> Result<(), FormatError> {
        let text = std::mem::take(&mut self.text);
        let Some(frame) = self.frames.last() else { return Ok(()) };
        if self.survey.kind == Kind::Feed && may_hold_page(&frame.name) && text.contains('<') {
            return self.page(&text);
        }
        let text = self.as_page(text);
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        if markup::is_encoded_value(&text) {
            return Ok(());
        }
        // An element may be named by an attribute, as settings and columns are.
        let is_name = |(name, _): &(String, String)| matches!(name.as_str(), "name" | "key");
        let named = frame.attributes.iter().position(is_name).filter(|_| !text.trim().is_empty());
        if let Some(at) = named
            && frame.attributes.len() == 1
        {
            let (_, name) = frame.attributes.remove(at);
            return self.field(self.frames.len() - 1, Some(&name), &text);
        }
        if frame.attributes.is_empty() || !frame.is_record {
            let name = Rc::clone(&frame.shown);
            return self.field(self.frames.len() - 1, Some(&name), &text);
        }
        self.write_attributes()?;
        self.field(self.frames.len(), None, &text)
    }

    /// Writes a page that stands in a feed as text.
    fn page(&mut self, html: &str) -> Result<(), FormatError> {
        let page = match html::Source::of_text(html).body(self.limits) {
            Ok(page) => page.text,
            Err(error) if error.limit().is_some() => return Err(error),
            // What no reader of pages opens has no text.
            Err(_) => return Ok(()),
        };
        self.fields.write(&mut self.writer, self.limits)?;
        for paragraph in page.split("\n\n") {
            self.writer.write(Block::Paragraph(paragraph.to_owned()), self.limits)?;
        }
        Ok(())
    }

    /// A value, as what it shows if it is a piece of a web page.
    fn as_page(&mut self, value: String) -> String {
        if self.pages >= PAGES || !markup::is_page_value(&value) {
            return value;
        }
        self.pages += 1;
        html::piece(&value).unwrap_or(value)
    }

    fn write_attributes(&mut self) -> Result<(), FormatError> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        for (name, value) in std::mem::take(&mut frame.attributes) {
            let value = self.as_page(value);
            self.field(self.frames.len(), Some(&name), &value)?;
        }
        Ok(())
    }

    /// Writes a value in the first `depth` elements, under the innermost one that is a record.
    fn field(&mut self, depth: usize, name: Option<&str>, value: &str) -> Result<(), FormatError> {
        let record = self.frames[..depth].iter().rposition(|frame| frame.is_record);
        let begin = record.map_or(1, |at| at + 1).min(depth);
        // The first element is the whole.
        let path = joined(&self.frames[begin.saturating_sub(NAMES).max(1)..begin.max(1)]);
        let within = &self.frames[begin.max(depth.saturating_sub(NAMES))..depth];
        let mut label = joined(within);
        if let Some(name) = name {
            if !within.is_empty() {
                label.push('.');
            }
            label.push_str(&one_line(name));
        }
        let of = record.map_or(0, |at| self.frames[at].number);
        self.fields.add((of, path), label, value, (&mut self.writer, self.limits))
    }

    fn end_table(&mut self) -> Result<(), FormatError> {
        (self.table_at, self.table_bytes) = (None, 0);
        let table = std::mem::take(&mut self.table);
        if table.has_text() {
            self.writer.write(Block::Table(table), self.limits)?;
        }
        Ok(())
    }
}

/// The names of elements within each other.
fn joined(frames: &[Frame]) -> String {
    let mut names = String::new();
    for (index, frame) in frames.iter().enumerate() {
        if index > 0 {
            names.push('.');
        }
        names.push_str(&frame.shown);
    }
    names
}

/// Marks a raised number that begins here behind a digit: it would read as a part of the number before it.
fn mark_raised_number(text: &mut String, begin: usize) {
    let (Some(before), Some(raised)) = (text.get(..begin), text.get(begin..)) else { return };
    if before.ends_with(|last: char| last.is_ascii_digit()) && is_raised_number(raised) {
        text.insert(begin, '^');
    }
}
