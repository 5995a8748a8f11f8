//! Follows the groups of a document and writes its paragraphs.

use super::{
    charset::{by_page, page_of_font},
    state::{Destination, State, Style, character, symbol_font, symbol_of_code},
    tokens::Token,
};
use crate::{
    Extraction, FormatError, Limit, Limits,
    docx::symbols,
    extraction::check_text,
    facts,
    markdown::{Block, Table, Writer, begins_raised, is_raised_run},
};
use encoding_rs::Encoding;
use std::collections::HashMap;

pub(super) struct Document<'a> {
    limits: &'a Limits,
    writer: Writer,
    state: State,
    outer: Vec<State>,
    /// Whether the group says that it may be skipped.
    is_optional: bool,
    page: i32,
    default_font: i32,
    fonts: HashMap<i32, i32>,
    /// The fonts of symbols, by their numbers.
    symbol_fonts: HashMap<i32, &'static str>,
    /// The name of the font that is being defined, and whether its characters are symbols.
    font_name: String,
    has_symbols: bool,
    /// The code of the last field, how deep its group is, and where its result begins.
    code: String,
    field: Option<(usize, usize)>,
    /// The levels of the styles that are headings.
    headings: HashMap<i32, u8>,
    style: Style,
    /// Bytes that are not decoded yet.
    bytes: Vec<u8>,
    /// The first half of a pair of surrogates.
    high: Option<u32>,
    /// How many characters stand in for the last one of Unicode.
    skipped: usize,
    paragraph: String,
    /// Whether its last text is raised.
    was_raised: bool,
    is_item: bool,
    cell: String,
    table: Table,
    table_bytes: usize,
    is_in_row: bool,
    facts: HashMap<&'static str, String>,
    pictures: u64,
}

impl<'a> Document<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            writer: Writer::default(),
            state: State::FIRST,
            outer: Vec::new(),
            is_optional: false,
            page: 1252,
            default_font: 0,
            fonts: HashMap::new(),
            symbol_fonts: HashMap::new(),
            font_name: String::new(),
            has_symbols: false,
            code: String::new(),
            field: None,
            headings: HashMap::new(),
            style: Style::default(),
            bytes: Vec::new(),
            high: None,
            skipped: 0,
            paragraph: String::new(),
            was_raised: false,
            is_item: false,
            cell: String::new(),
            table: Table::default(),
            table_bytes: 0,
            is_in_row: false,
            facts: HashMap::new(),
            pictures: 0,
        }
    }

    /// Takes the next token; false at the end of the document.
    pub(super) fn token(&mut self, token: Token<'_>) -> Result<bool, FormatError> {
        match token {
            Token::Open => {
                self.flush();
                if self.outer.len() >= self.limits.xml_depth as usize {
                    let detail = format_args!("groups nest deeper than {}", self.limits.xml_depth);
                    return Err(FormatError::over(Limit::XmlDepth, detail));
                }
                self.outer.push(self.state);
                (self.is_optional, self.skipped) = (false, 0);
            }
            Token::Close => {
                self.flush();
                self.close();
                return Ok(!self.outer.is_empty());
            }
            Token::Byte(byte) => self.text(&[byte]),
            Token::Text(bytes) => self.text(bytes),
            Token::Symbol(b'*') => self.is_optional = true,
            Token::Symbol(symbol) => self.symbol(symbol)?,
            Token::Word(name, number) => self.word(name, number)?,
        }
        check_text(self.writer.len() + self.table_bytes + self.paragraph.len() + self.cell.len(), self.limits)?;
        Ok(true)
    }

    pub(super) fn finish(mut self) -> Result<Extraction, FormatError> {
        self.flush();
        self.end_paragraph()?;
        self.end_table()?;
        let mut read = self.writer.finish("styles");
        read.facts.extend(
            self.facts
                .into_iter()
                .filter(|(_, text)| !text.trim().is_empty())
                .map(|(name, text)| (name.to_owned(), facts::text(&text))),
        );
        if self.pictures > 0 {
            read.facts.insert("pictures_left_out".to_owned(), self.pictures.into());
        }
        if !self.outer.is_empty() {
            read.facts.insert("ends_within_a_group".to_owned(), true.into());
        }
        Ok(read)
    }

    fn close(&mut self) {
        let Some(outer) = self.outer.pop() else { return };
        if self.state.destination == Destination::Styles {
            let style = std::mem::take(&mut self.style);
            self.headings.extend(style.level().map(|level| (style.number, level)));
        }
        if self.state.is_note && !outer.is_note {
            self.paragraph.truncate(self.paragraph.trim_end().len());
            self.paragraph.push(')');
        }
        self.state = outer;
        (self.is_optional, self.skipped) = (false, 0);
        // Most programs leave it to the reader to show the symbol that a field names.
        if let Some((_, start)) = self.field.take_if(|(depth, _)| self.outer.len() + 2 <= *depth)
            && self.paragraph.len() == start
            && self.state.destination == Destination::Body
            && let Some(symbol) = symbol_of_code(&self.code)
        {
            self.push(symbol.encode_utf8(&mut [0; 4]));
        }
    }

    fn word(&mut self, name: &str, number: Option<i32>) -> Result<(), FormatError> {
        if name == "u" {
            self.unicode(number.unwrap_or(0));
            return Ok(());
        }
        // A control word that stands in for a character says nothing else.
        if self.skipped > 0 && !matches!(name, "par" | "cell" | "row") {
            self.skipped -= 1;
            return Ok(());
        }
        self.flush();
        let is_optional = std::mem::take(&mut self.is_optional);
        let value = number.unwrap_or(0);
        let is_on = number != Some(0);
        if let Some(character) = character(name) {
            self.push(character.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        let state = &mut self.state;
        match name {
            "ansicpg" => self.page = value,
            "mac" => self.page = 10000,
            "deff" => (self.default_font, state.font) = (value, value),
            "uc" => state.substitutes = usize::try_from(value).unwrap_or(0).min(16),
            "f" => {
                state.font = value;
                if state.destination == Destination::Fonts {
                    self.font_name.clear();
                    self.has_symbols = false;
                }
            }
            "fcharset" if value == 2 && state.destination == Destination::Fonts => self.has_symbols = true,
            "fcharset" if state.destination == Destination::Fonts => {
                self.fonts.extend(page_of_font(value).map(|page| (state.font, page)));
            }
            "cpg" if state.destination == Destination::Fonts => drop(self.fonts.insert(state.font, value)),
            "plain" => {
                state.font = self.default_font;
                (state.is_hidden, state.is_deleted, state.is_raised) = (false, false, false);
            }
            "super" => state.is_raised = is_on,
            "sub" | "nosupersub" => state.is_raised = false,
            "v" => state.is_hidden = is_on,
            "deleted" => state.is_deleted = is_on,
            "pard" => (state.is_in_table, state.list, state.outline, state.style) = (false, None, None, 0),
            "intbl" => state.is_in_table = is_on,
            "s" if state.destination == Destination::Styles => self.style.number = value,
            "s" => state.style = value,
            // The level after the last one is that of no heading.
            "outlinelevel" => {
                let outline = u8::try_from(value).ok().filter(|level| *level < 9).map(|level| level + 1);
                match state.destination {
                    Destination::Styles => self.style.outline = outline,
                    _ => state.outline = outline,
                }
            }
            "ls" => state.list = (value > 0).then(|| state.list.unwrap_or(0)),
            "ilvl" => state.list = Some(u8::try_from(value).unwrap_or(0).min(8)),
            "par" | "sect" | "page" => self.end_paragraph()?,
            "line" => self.push("\n"),
            "cell" => self.end_cell(),
            "row" => self.end_row(),
            "nestcell" | "nestrow" => self.push(" "),
            _ => self.destination(name, is_optional),
        }
        Ok(())
    }

    /// Takes a control word that may say where the text of its group goes.
    fn destination(&mut self, name: &str, is_optional: bool) {
        let state = &mut self.state;
        // What is within a group that is skipped is skipped.
        if state.destination == Destination::Skipped {
            return;
        }
        // The code of a field has only text.
        if state.destination == Destination::Code {
            if is_optional {
                state.destination = Destination::Skipped;
            }
            return;
        }
        state.destination = match name {
            "fonttbl" => Destination::Fonts,
            "stylesheet" => Destination::Styles,
            "title" => Destination::Fact("title"),
            "author" => Destination::Fact("author"),
            "shpinst" | "shptxt" | "shppict" | "fldrslt" | "info" => return,
            "footnote" => {
                if !state.is_note {
                    state.is_note = true;
                    self.push(if self.paragraph.ends_with(' ') { "(" } else { " (" });
                }
                return;
            }
            "listtext" | "pntext" => {
                self.is_item = true;
                Destination::Skipped
            }
            "fldinst" => {
                self.code.clear();
                self.field = Some((self.outer.len(), self.paragraph.len()));
                Destination::Code
            }
            "pict" => {
                self.pictures += 1;
                Destination::Skipped
            }
            "colortbl" | "filetbl" | "listtable" | "revtbl" | "objdata" | "objclass" | "sp" | "shprslt"
            | "nonshppict" | "nonesttables" | "header" | "headerl" | "headerr" | "headerf" | "footer" | "footerl"
            | "footerr" | "footerf" | "ftnsep" | "ftnsepc" | "aftnsep" | "aftnsepc" | "annotation" | "atnid"
            | "atnauthor" | "xe" | "tc" | "rxe" | "txe" | "subject" | "operator" | "keywords" | "comment"
            | "doccomm" | "manager" | "company" | "category" | "hlinkbase" | "template" | "private" | "themedata"
            | "datastore" | "latentstyles" | "bkmkstart" | "bkmkend" | "generator" => Destination::Skipped,
            _ if is_optional => Destination::Skipped,
            _ => return,
        };
    }

    fn symbol(&mut self, symbol: u8) -> Result<(), FormatError> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return Ok(());
        }
        self.flush();
        match symbol {
            b'~' => self.push("\u{A0}"),
            b'_' => self.push("\u{2011}"),
            b'{' | b'}' | b'\\' => self.push(char::from(symbol).encode_utf8(&mut [0; 4])),
            b'\t' => self.push("\t"),
            b'\r' | b'\n' => self.end_paragraph()?,
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, bytes: &[u8]) {
        let skipped = self.skipped.min(bytes.len());
        self.skipped -= skipped;
        self.bytes.extend_from_slice(&bytes[skipped..]);
    }

    /// Writes a character of Unicode, of which large ones come in two halves, and large numbers are negative.
    fn unicode(&mut self, number: i32) {
        self.flush();
        let unit = u32::from(number as u16);
        match (self.high.take(), unit) {
            (_, 0xD800..=0xDBFF) => self.high = Some(unit),
            (Some(high), 0xDC00..=0xDFFF) => {
                let character = char::from_u32(0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00));
                self.push(character.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut [0; 4]));
            }
            // Fonts of symbols have their characters where nobody else has any.
            (_, 0xF020..=0xF0FF) if self.symbol_font().is_some() => {
                let shown = self.symbol_font().and_then(|font| symbols::glyph(font, unit));
                self.push(shown.map(String::from).as_deref().unwrap_or_default());
            }
            (_, 0xF0B7) => self.push("•"),
            (_, 0xE000..=0xF8FF) => {}
            _ => {
                let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
                self.push(character.encode_utf8(&mut [0; 4]));
            }
        }
        self.skipped = self.state.substitutes;
    }

    /// Decodes the bytes so far.
    fn flush(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(font) = self.symbol_font() {
            let shown: String = bytes.iter().filter_map(|byte| symbols::glyph(font, u32::from(*byte))).collect();
            self.push(&shown);
        } else if bytes.is_ascii() {
            self.push(std::str::from_utf8(&bytes).unwrap_or_default());
        } else {
            let text = self.encoding().decode_without_bom_handling(&bytes).0;
            self.push(&text);
        }
        // Its space is used again.
        self.bytes = bytes;
        self.bytes.clear();
    }

    /// The font of the text, if it shows symbols.
    fn symbol_font(&self) -> Option<&'static str> {
        let is_shown = self.state.destination == Destination::Body;
        self.symbol_fonts.get(&self.state.font).copied().filter(|_| is_shown)
    }

    fn encoding(&self) -> &'static Encoding {
        by_page(self.fonts.get(&self.state.font).copied().unwrap_or(self.page))
    }

    fn push(&mut self, text: &str) {
        let shown = text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t'));
        match self.state.destination {
            Destination::Body if !self.state.is_hidden && !self.state.is_deleted => {
                // A raised number would read as a part of the one before it.
                let begins = begins_raised(&self.paragraph, self.state.is_raised, &mut self.was_raised);
                if begins && is_raised_run(text) {
                    self.paragraph.push('^');
                }
                self.paragraph.extend(shown);
            }
            Destination::Styles => {
                // No name is longer.
                let left = 100_usize.saturating_sub(self.style.name.len());
                self.style.name.extend(shown.take(left));
            }
            Destination::Fact(name) => {
                facts::append(self.facts.entry(name).or_default(), &shown.collect::<String>());
            }
            Destination::Fonts => {
                let left = 100_usize.saturating_sub(self.font_name.len());
                self.font_name.extend(shown.take(left));
                if let Some((name, _)) = self.font_name.split_once(';') {
                    let font = symbol_font(name.trim()).filter(|_| self.has_symbols);
                    self.symbol_fonts.extend(font.map(|font| (self.state.font, font)));
                }
            }
            Destination::Code => {
                // The code of a symbol is shorter.
                let left = 100_usize.saturating_sub(self.code.len());
                self.code.extend(shown.take(left));
            }
            Destination::Body | Destination::Skipped => {}
        }
    }

    fn end_paragraph(&mut self) -> Result<(), FormatError> {
        if self.state.destination != Destination::Body {
            return Ok(());
        }
        if self.state.is_note {
            self.paragraph.push(' ');
            return Ok(());
        }
        if self.state.is_in_table {
            self.cell.push_str(&self.paragraph);
            self.cell.push('\n');
            self.paragraph.clear();
            self.is_item = false;
            return Ok(());
        }
        let text = std::mem::take(&mut self.paragraph);
        let is_item = std::mem::take(&mut self.is_item);
        // An empty line between two cells ends no table: some programs do not say of the lines of a cell that they are in one.
        if self.is_in_row && text.trim().is_empty() {
            return Ok(());
        }
        self.end_table()?;
        let heading = self.state.outline.or_else(|| self.headings.get(&self.state.style).copied());
        let block = match heading {
            Some(level) => Block::Heading { level, text },
            None if is_item || self.state.list.is_some() => {
                Block::ListItem { level: self.state.list.unwrap_or(0), text }
            }
            None => Block::Paragraph(text),
        };
        self.writer.write(block, self.limits).map(drop)
    }

    fn end_cell(&mut self) {
        if self.state.destination != Destination::Body {
            return;
        }
        self.cell.push_str(&self.paragraph);
        self.table.cell(&self.cell);
        self.table_bytes += self.cell.len() + Table::BLANK_BYTES;
        self.paragraph.clear();
        self.cell.clear();
        (self.is_in_row, self.is_item) = (true, false);
    }

    fn end_row(&mut self) {
        if self.is_in_row {
            self.table.end_row();
            self.is_in_row = false;
        }
    }

    /// Writes the table, if one is open. Cells that no row has taken in are a row.
    fn end_table(&mut self) -> Result<(), FormatError> {
        self.end_row();
        let cell = std::mem::take(&mut self.cell);
        let table = std::mem::take(&mut self.table);
        self.table_bytes = 0;
        if table.has_text() {
            self.writer.write(Block::Table(table), self.limits)?;
        }
        self.writer.write(Block::Paragraph(cell), self.limits).map(drop)
    }
}
