//! Reads Jupyter notebooks (nbformat 3 to 5): cells of Markdown with what HTML in them shows, code with its language, and what it printed,
//! without images.

mod cell;

use crate::{
    Extraction, Format, FormatError, Limits, Patterns, charset,
    extraction::check_text,
    html,
    json::{self, Fault, Token, Tokens},
    text,
};
use cell::{Cell, Kind, Output};
use pulldown_cmark::{Event, Options, Parser, Tag};
use std::io::{BufRead, Read, Seek};

/// Bytes of what one cell printed; the rest is counted.
const PRINTED: usize = 4000;
/// Blocks of HTML that are read as what they show; further ones stay as they are.
const BLOCKS: usize = 20_000;
/// Elements within words, whose tags leave nothing behind.
const INLINE: &str = "a abbr b bdi bdo big cite code del dfn em font i ins kbd mark q s samp small span strike strong sub sup \
    tt u var";
/// Elements between words. Any other name is no element of a page, but for example a type in a text or a placeholder.
const BETWEEN: &str = "address article aside audio blockquote body br button caption center col colgroup dd details div dl dt \
    embed figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr html iframe input label li main nav \
    object ol option p picture pre script section select source style summary svg table tbody td tfoot th \
    thead tr track ul video wbr";
/// A longer name is none of a language.
const LANGUAGE: usize = 40;

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    extract(source, limits).map(|read| read.patterns())
}

pub(crate) fn extract<R: Read + Seek>(mut source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let charset = json::open(&mut source, limits)?;
    let described = language(Tokens::new(charset.reader(&mut source)?, limits));
    let language = described.map_err(|fault| fault.of(Format::Ipynb, limits))?;
    let mut writer = Writer { language, limits, read: Extraction::default(), cells: 0, blocks: 0 };
    writer.notebook(&mut Tokens::new(charset.reader(&mut source)?, limits))?;
    let Writer { mut read, language, cells, .. } = writer;
    if !read.headings.is_empty() {
        read.headings_from = Some("markdown".to_owned());
    }
    read.facts.insert("cells".to_owned(), cells.into());
    if !language.is_empty() {
        read.facts.insert("language".to_owned(), language.into());
    }
    read.charset = Some(charset.name().to_owned());
    read.within(limits)
}

/// The language of the code, which the file may name after it: of its description, or else of its kernel.
fn language<R: BufRead>(mut tokens: Tokens<R>) -> Result<String, Fault> {
    let (mut of_language, mut of_kernel) = (None, None);
    let mut path: Vec<String> = Vec::new();
    while let Some(token) = tokens.next()? {
        match token {
            Token::Key(key) => {
                path.truncate(tokens.depth().saturating_sub(1));
                let is_on_way = match tokens.depth() {
                    1 => key == "metadata",
                    2 => matches!(key.as_str(), "language_info" | "kernelspec"),
                    _ => tokens.depth() == 3,
                };
                if is_on_way {
                    path.push(key);
                } else {
                    tokens.skip_value()?;
                }
            }
            Token::Text(text) if path.len() == 3 && tokens.depth() == 3 => match (path[1].as_str(), path[2].as_str()) {
                ("language_info", "name") => of_language = Some(text),
                ("kernelspec", "language") => of_kernel = Some(text),
                _ => {}
            },
            _ => {}
        }
    }
    let is_name = |name: &String| {
        let is_plain = |character: char| character.is_alphanumeric() || "+-#._".contains(character);
        (1..=LANGUAGE).contains(&name.len()) && name.chars().all(is_plain)
    };
    Ok(of_language.or(of_kernel).filter(is_name).unwrap_or_default())
}

struct Writer<'a> {
    language: String,
    limits: &'a Limits,
    read: Extraction,
    cells: u64,
    /// How many blocks of HTML were read.
    blocks: usize,
}

impl Writer<'_> {
    fn notebook<R: BufRead>(&mut self, tokens: &mut Tokens<R>) -> Result<(), FormatError> {
        let fault = |fault: Fault| fault.of(Format::Ipynb, self.limits);
        while let Some(token) = tokens.next().map_err(fault)? {
            match token {
                Token::Key(key) if key == "worksheets" && tokens.depth() == 1 => {}
                Token::Key(key) if key == "cells" => {
                    // What is not as the format says has no cells.
                    if !matches!(tokens.next().map_err(fault)?, Some(Token::BeginArray)) {
                        continue;
                    }
                    let end = tokens.depth();
                    while let Some(token) = tokens.next().map_err(fault)? {
                        match token {
                            Token::BeginObject if tokens.depth() == end + 1 => {
                                let cell = Cell::read(tokens).map_err(fault)?;
                                self.cell(&cell)?;
                            }
                            Token::EndArray if tokens.depth() < end => break,
                            _ => {}
                        }
                    }
                }
                Token::Key(_) => tokens.skip_value().map_err(fault)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn cell(&mut self, cell: &Cell) -> Result<(), FormatError> {
        self.cells += 1;
        let source = charset::clean(&cell.source);
        match cell.kind {
            Kind::Markdown => {
                let shown = self.without_tags(&without_data(source.trim()));
                self.markdown(shown.trim())
            }
            Kind::Heading(level) => {
                let level = usize::from(level.clamp(1, 6));
                self.markdown(&format!("{} {}", "#".repeat(level), crate::markdown::one_line(&source)))
            }
            Kind::Raw => self.fenced("", source.trim_end()),
            Kind::Code => {
                let language = std::mem::take(&mut self.language);
                let written = self.fenced(&language, source.trim_end());
                self.language = language;
                written?;
                self.outputs(&cell.outputs)
            }
        }
    }

    /// Markdown with what the HTML in it shows.
    fn without_tags(&mut self, markdown: &str) -> String {
        // In a formula, angle brackets compare numbers.
        let options = text::MARKDOWN.union(Options::ENABLE_MATH);
        let mut out = String::with_capacity(markdown.len());
        let (matter, markdown) = markdown.split_at(self.front_matter(markdown));
        out.push_str(matter);
        let mut from = 0;
        for (event, range) in Parser::new_ext(markdown, options).into_offset_iter() {
            // A block within another one was read with that one.
            let Some(before) = markdown.get(from..range.start) else { continue };
            let source = &markdown[range.clone()];
            let shown = match (event, stands_for(source)) {
                (Event::Start(Tag::HtmlBlock), Some(_)) if self.blocks < BLOCKS => {
                    self.blocks += 1;
                    let Some(shown) = html::piece(source) else { continue };
                    // Otherwise the text would continue the line before, or turn it into a heading.
                    let begins_line = before.trim_end_matches(' ').ends_with('\n');
                    format!("{}{shown}\n", if begins_line { "\n" } else { "" })
                }
                (Event::InlineHtml(_), Some(Tagged::Picture)) if self.blocks < BLOCKS => {
                    self.blocks += 1;
                    html::piece(source).unwrap_or_default()
                }
                (Event::InlineHtml(_), Some(Tagged::Between)) => " ".to_owned(),
                (Event::InlineHtml(_), Some(Tagged::Nothing)) => String::new(),
                _ => continue,
            };
            out.push_str(before);
            out.push_str(&shown);
            from = range.end;
        }
        out.push_str(&markdown[from..]);
        out
    }

    /// Appends Markdown with its headings. What it leaves open ends with the cell.
    fn markdown(&mut self, markdown: &str) -> Result<(), FormatError> {
        let start = self.begin(markdown)?;
        let matter = self.front_matter(markdown);
        let shown = &markdown[matter..];
        let headings = text::headings_of_piece(shown).take(self.limits.headings as usize + 1);
        self.read.headings.extend(headings.map(|mut heading| {
            heading.start += start + matter;
            heading
        }));
        self.read.text.push_str(markdown);
        if is_open(shown) {
            // A mark that is as long as the longest one closes any block of code.
            let fence = |mark: char| mark.to_string().repeat(longest_run(markdown, mark).max(3));
            let mut ends = [fence('`'), fence('~'), "-->".to_owned()].into_iter();
            if let Some(end) = ends.find(|end| !is_open(&format!("{shown}\n{end}"))) {
                self.read.text.push('\n');
                self.read.text.push_str(&end);
            }
        }
        Ok(())
    }

    /// The length of the metadata that Markdown begins with, which only the first cell may have.
    fn front_matter(&self, markdown: &str) -> usize {
        if self.read.text.is_empty() { text::front_matter(markdown) } else { 0 }
    }

    fn fenced(&mut self, language: &str, code: &str) -> Result<(), FormatError> {
        if code.trim().is_empty() {
            return Ok(());
        }
        let fence = "`".repeat(longest_run(code, '`').max(2) + 1);
        let text = format!("{fence}{language}\n{code}\n{fence}");
        self.begin(&text)?;
        self.read.text.push_str(&text);
        Ok(())
    }

    /// Writes what a cell printed, as much of it as is allowed.
    fn outputs(&mut self, outputs: &[Output]) -> Result<(), FormatError> {
        let mut left = PRINTED;
        let mut more = 0;
        for output in outputs {
            match output {
                Output::Printed { text, cut } => {
                    let text = without_terminal(&charset::clean(text));
                    let text = text.trim_end();
                    let end = text.floor_char_boundary(left);
                    left -= end;
                    more += text.len() - end + cut;
                    self.fenced("text", &text[..end])?;
                }
                Output::Markdown { text, cut } | Output::Page { text, cut } => {
                    let shown = match output {
                        Output::Page { .. } if self.blocks < BLOCKS => {
                            self.blocks += 1;
                            html::piece(text).unwrap_or_default()
                        }
                        Output::Page { .. } => String::new(),
                        _ => self.without_tags(&without_data(text.trim())),
                    };
                    let shown = shown.trim();
                    let end = shown.floor_char_boundary(left);
                    left -= end;
                    more += shown.len() - end + cut;
                    self.markdown(&shown[..end])?;
                }
                Output::Error { name, value } => {
                    let line =
                        crate::markdown::one_line(&without_terminal(&charset::clean(&format!("{name}: {value}"))));
                    let end = line.floor_char_boundary(left);
                    left -= end;
                    more += line.len() - end;
                    self.paragraph(&line[..end])?;
                }
            }
        }
        if more > 0 {
            self.paragraph(&format!("(and {more} more bytes of output)"))?;
        }
        Ok(())
    }

    fn paragraph(&mut self, line: &str) -> Result<(), FormatError> {
        self.begin(line)?;
        crate::markdown::push_text(&mut self.read.text, line);
        Ok(())
    }

    /// Parts what follows from what is before it, and returns where it begins.
    fn begin(&mut self, text: &str) -> Result<usize, FormatError> {
        let out = &mut self.read.text;
        if !out.is_empty() && !text.is_empty() {
            out.push_str("\n\n");
        }
        check_text(out.len() + text.len(), self.limits)?;
        Ok(out.len())
    }
}

/// What HTML stands for within a line.
enum Tagged {
    Nothing,
    Between,
    Picture,
}

/// What HTML stands for by the tag that it begins with; `None` if no page has such an element.
fn stands_for(html: &str) -> Option<Tagged> {
    let tag = html.trim_start().strip_prefix('<')?;
    if tag.starts_with(['!', '?']) {
        return Some(Tagged::Nothing);
    }
    let tag = tag.strip_prefix('/').unwrap_or(tag);
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let name = tag.split(|character: char| !is_of_name(character)).next().unwrap_or_default();
    let is_one_of = |names: &str| names.split(' ').any(|known| known.eq_ignore_ascii_case(name));
    if name.eq_ignore_ascii_case("img") {
        Some(Tagged::Picture)
    } else if is_one_of(INLINE) {
        Some(Tagged::Nothing)
    } else {
        is_one_of(BETWEEN).then_some(Tagged::Between)
    }
}

/// Whether what follows the text would be a part of its last block.
fn is_open(markdown: &str) -> bool {
    let followed = format!("{markdown}\n\n# x");
    text::headings_of_piece(&followed).last().is_none_or(|heading| heading.start != markdown.len() + 2)
}

/// The length of the longest run of a mark of one byte.
fn longest_run(code: &str, mark: char) -> usize {
    code.split(|character| character != mark).map(str::len).max().unwrap_or(0)
}

/// Leaves out images that are written into addresses.
fn without_data(markdown: &str) -> String {
    const MARK: &str = ";base64,";
    let (mut out, mut rest) = (String::with_capacity(markdown.len()), markdown);
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at + MARK.len());
        let is_data = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
        let length = after.bytes().position(|byte| !is_data(byte)).unwrap_or(after.len());
        out.push_str(before);
        rest = &after[length..];
    }
    out.push_str(rest);
    out
}

/// Leaves out what colours a terminal (ECMA-48), and other controls.
fn without_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1B}' {
            if characters.next_if_eq(&'[').is_some() {
                while characters.next_if(|c| ('\u{20}'..='\u{3F}').contains(c)).is_some() {}
                characters.next_if(|c| ('\u{40}'..='\u{7E}').contains(c));
            }
        } else if !character.is_control() || matches!(character, '\n' | '\t') {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests;
