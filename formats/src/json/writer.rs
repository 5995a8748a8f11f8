//! Writes values as lines with their keys: each key of the whole is a heading, what is deeper a paragraph under its path,
//! and each object of an array a paragraph like a record.

use super::Token;
use crate::{Extraction, FormatError, Heading, Limits, extraction::check_text, html, markdown, markup};
use std::fmt::Write;

/// Keys of the whole that become headings; further ones are written as what is deeper.
const HEADINGS: usize = 500;
/// Objects at most this deep under keys alone have a paragraph of their own; deeper ones are a part of it.
const PARTS: usize = 3;
/// After so many bytes the path is said again, so that every chunk has it.
const PARAGRAPH: usize = 400;
/// A longer text stands alone.
const LINE: usize = 200;
/// Numbers that follow each other without a key or a text between them; the others are counted.
const NUMBERS: usize = 1000;
/// How many values that are pieces of web pages are read as what they show; a page takes longer than a plain value.
const PAGES: usize = 20_000;
/// What is shown of a path: its last steps, and so many bytes of a key.
const STEPS: usize = 8;
const KEY: usize = 200;

enum Step {
    Key(String),
    Index(usize),
}

/// A value around the present one.
struct Frame {
    /// The index of the next element; `None` in an object.
    next: Option<usize>,
    number: usize,
    has_base: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heading,
    Part,
    Record,
}

/// What the labels of values are relative to.
#[derive(Clone, Copy)]
struct Base {
    kind: Kind,
    /// Steps of the path that lead to it.
    steps: usize,
    number: usize,
}

/// Values that are written together, and where they begin in the text.
struct Group {
    base: usize,
    start: usize,
}

/// The number of the whole; values inside have others.
const WHOLE: usize = 0;

pub(super) struct Writer<'a> {
    limits: &'a Limits,
    /// Whether the first step counts lines.
    is_lines: bool,
    documents: usize,
    read: Extraction,
    path: Vec<Step>,
    frames: Vec<Frame>,
    bases: Vec<Base>,
    numbered: usize,
    /// The heading that was written last, by its number.
    section: Option<usize>,
    group: Option<Group>,
    /// The array whose elements the last line holds, and where that line begins.
    line: Option<(usize, usize)>,
    numbers: usize,
    left_out: usize,
    all_left_out: usize,
    pages: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(is_lines: bool, limits: &'a Limits) -> Self {
        Self {
            limits,
            is_lines,
            documents: 0,
            read: Extraction::default(),
            path: Vec::new(),
            frames: Vec::new(),
            bases: Vec::new(),
            numbered: WHOLE,
            section: None,
            group: None,
            line: None,
            numbers: 0,
            left_out: 0,
            all_left_out: 0,
            pages: 0,
        }
    }

    pub(super) fn token(&mut self, token: Token) -> Result<(), FormatError> {
        match token {
            Token::Key(key) => {
                self.end_numbers();
                let key = markdown::one_line(&key[..key.floor_char_boundary(KEY)]);
                self.path.push(Step::Key(key.chars().filter(|character| !character.is_control()).collect()));
                return Ok(());
            }
            Token::EndObject | Token::EndArray => {
                if self.frames.pop().is_some_and(|frame| frame.has_base) {
                    self.bases.pop();
                }
                self.path.pop();
            }
            Token::BeginObject => self.begin(None),
            Token::BeginArray => self.begin(Some(0)),
            Token::Number(number) => {
                self.begin_value();
                self.numbers += 1;
                if self.numbers > NUMBERS {
                    self.left_out += 1;
                } else {
                    self.value(&number)?;
                }
                self.path.pop();
            }
            Token::Word(word) => {
                self.begin_value();
                self.value(word)?;
                self.path.pop();
            }
            Token::Text(text) => {
                self.begin_value();
                self.end_numbers();
                if markup::is_encoded_value(&text) {
                    self.value(&format!("({} characters of encoded data are left out)", text.len()))?;
                } else {
                    let page = self.page(&text);
                    self.value(&page.unwrap_or_else(|| crate::charset::clean(&text)))?;
                }
                self.path.pop();
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Extraction {
        self.end_numbers();
        if !self.read.headings.is_empty() {
            self.read.headings_from = Some("json".to_owned());
        }
        if self.all_left_out > 0 {
            self.read.facts.insert("numbers_left_out".to_owned(), self.all_left_out.into());
        }
        self.read
    }

    /// What a value shows if it is a piece of a web page.
    fn page(&mut self, text: &str) -> Option<String> {
        if self.pages >= PAGES || !markup::is_page_value(text) {
            return None;
        }
        self.pages += 1;
        html::piece(text)
    }

    /// Adds the step to an element; the key of a member was added before it.
    fn begin_value(&mut self) {
        if let Some(next) = self.frames.last_mut().and_then(|frame| frame.next.as_mut()) {
            self.path.push(Step::Index(*next));
            *next += 1;
        }
    }

    fn begin(&mut self, next: Option<usize>) {
        self.begin_value();
        if self.frames.is_empty() && self.is_lines {
            self.path.push(Step::Index(self.documents));
            self.documents += 1;
        }
        self.numbered += 1;
        let is_named = self.path.iter().all(|step| matches!(step, Step::Key(_)));
        let kind = match (self.path.len(), self.path.last()) {
            (1, Some(Step::Key(_))) if self.read.headings.len() < HEADINGS => Some(Kind::Heading),
            (1..=PARTS, Some(Step::Key(_))) if is_named && next.is_none() => Some(Kind::Part),
            (_, Some(Step::Index(_))) if next.is_none() => Some(Kind::Record),
            _ => None,
        };
        self.bases.extend(kind.map(|kind| Base { kind, steps: self.path.len(), number: self.numbered }));
        self.frames.push(Frame { next, number: self.numbered, has_base: kind.is_some() });
    }

    /// Says how many numbers were left out behind the last one.
    fn end_numbers(&mut self) {
        if self.left_out > 0 {
            // A String takes whatever is written.
            let _ = write!(self.read.text, ", and {} more numbers", self.left_out);
            self.all_left_out += self.left_out;
        }
        (self.numbers, self.left_out) = (0, 0);
    }

    fn value(&mut self, value: &str) -> Result<(), FormatError> {
        let is_long = value.len() > LINE || value.contains('\n');
        let array = self.frames.last().filter(|frame| frame.next.is_some()).map(|frame| frame.number);
        if let (Some(array), Some((of, start))) = (array, self.line)
            && of == array
            && !is_long
            && self.read.text.len() - start < PARAGRAPH
        {
            self.read.text.push_str(", ");
            self.read.text.push_str(value);
            return check_text(self.read.text.len(), self.limits);
        }
        // A list of short values needs no heading where none was written before.
        let is_of_whole = !is_long && self.section.is_none() && array.is_some() && self.path.len() == 2;
        let base = self.bases.last().copied().filter(|_| !is_of_whole);
        let heading = self.bases.first().copied().filter(|base| base.kind == Kind::Heading && !is_of_whole);
        let named = self.path.len() - usize::from(array.is_some());
        self.line = None;
        if is_long {
            let is_new_section = self.section(heading)?;
            self.begin_paragraph();
            let label = self.shown(0, named);
            let is_title = is_new_section && named == 1;
            if !label.is_empty() && !is_title {
                markdown::push_text(&mut self.read.text, &format!("{label}:"));
                self.read.text.push_str("\n\n");
            }
            markdown::push_text(&mut self.read.text, value);
            self.group = None;
            return check_text(self.read.text.len(), self.limits);
        }
        let label = self.shown(base.map_or(0, |base| base.steps).min(named), named);
        let item = if label.is_empty() { value.to_owned() } else { format!("{label}: {value}") };
        let is_record = base.is_some_and(|base| base.kind == Kind::Record);
        let is_first = self.group(base, heading)?;
        let text = &mut self.read.text;
        let start = text.len();
        match (is_record, is_first) {
            (true, true) => markdown::push_text(text, &item),
            (true, false) => text.extend(["; ", &item]),
            (false, is_first) => {
                text.push_str(if is_first { "- " } else { "\n- " });
                markdown::push_text(text, &item);
            }
        }
        self.line = array.map(|array| (array, start));
        check_text(text.len(), self.limits)
    }

    /// Makes sure that a group of the base is open; whether it begins here.
    fn group(&mut self, base: Option<Base>, heading: Option<Base>) -> Result<bool, FormatError> {
        let number = base.map_or(WHOLE, |base| base.number);
        if let Some(group) = &self.group
            && group.base == number
            && self.read.text.len() - group.start < PARAGRAPH
        {
            return Ok(false);
        }
        let is_new_section = self.section(heading)?;
        self.begin_paragraph();
        let start = self.read.text.len();
        if let Some(base) = base
            && (base.kind != Kind::Heading || !is_new_section)
        {
            let lead = self.shown(0, base.steps);
            if !lead.is_empty() {
                markdown::push_text(&mut self.read.text, &lead);
                self.read.text.push('\n');
            }
        }
        self.group = Some(Group { base: number, start });
        Ok(true)
    }

    /// Makes sure that what follows stands under its heading; whether one was written.
    fn section(&mut self, heading: Option<Base>) -> Result<bool, FormatError> {
        let number = heading.map_or(WHOLE, |base| base.number);
        if self.section == Some(number) || (heading.is_none() && self.section.is_none()) {
            return Ok(false);
        }
        // What belongs to the whole and comes after a heading is no part of it.
        let title = self.shown(0, 1);
        if title.is_empty() || self.read.headings.len() >= HEADINGS {
            return Ok(false);
        }
        self.begin_paragraph();
        let start = self.read.text.len();
        markdown::push_heading(&mut self.read.text, 1, &title);
        self.read.headings.push(Heading { level: 1, title, start });
        self.section = Some(number);
        check_text(self.read.text.len(), self.limits)?;
        Ok(true)
    }

    fn begin_paragraph(&mut self) {
        if !self.read.text.is_empty() {
            self.read.text.push_str("\n\n");
        }
    }

    /// The steps `from..to` of the path as programs write them. Of the elements of the whole the index says nothing.
    fn shown(&self, from: usize, to: usize) -> String {
        let mut shown = String::new();
        let skipped = usize::from(from == 0 && matches!(self.path.first(), Some(Step::Index(_))));
        let first = (from + skipped).max(to.saturating_sub(STEPS));
        if first > from + skipped {
            shown.push('…');
        }
        for step in self.path.get(first..to).unwrap_or_default() {
            match step {
                Step::Key(key) => {
                    if !shown.is_empty() {
                        shown.push('.');
                    }
                    shown.push_str(key);
                }
                // A String takes whatever is written.
                Step::Index(index) => drop(write!(shown, "[{index}]")),
            }
        }
        shown
    }
}
