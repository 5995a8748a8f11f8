//! Splits JSON (RFC 8259) into tokens, one at a time. Several texts may follow each other, each on a line of its own.

use crate::{Format, FormatError, Limit, Limits};
use std::io::{self, BufRead};

/// A longer number is none.
const DIGITS: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    BeginObject,
    EndObject,
    BeginArray,
    EndArray,
    /// The name of the member whose value follows.
    Key(String),
    Text(String),
    /// As it is written.
    Number(String),
    /// `true`, `false` or `null`.
    Word(&'static str),
}

/// Why there is no next token.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Syntax {
        what: &'static str,
        at: u64,
    },
    /// The bytes end within a text.
    End,
    TooDeep,
    TooLong,
}

impl Fault {
    pub(crate) fn of(self, format: Format, limits: &Limits) -> FormatError {
        match self {
            Self::Io(error) => error.into(),
            Self::Syntax { what, at } => FormatError::corrupt(format, format_args!("{what} at byte {at} of the text")),
            Self::End => FormatError::corrupt(format, "it ends within an object or an array"),
            Self::TooDeep => {
                let detail = format_args!("JSON values nest deeper than {}", limits.xml_depth);
                FormatError::over(Limit::XmlDepth, detail)
            }
            Self::TooLong => {
                let detail = format_args!("a text has over {} bytes", limits.text_bytes);
                FormatError::over(Limit::TextBytes, detail)
            }
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How much of a text is kept.
#[derive(Debug, Clone, Copy)]
enum Keep {
    /// All of it; a longer one is refused.
    Within(u64),
    Beginning(usize),
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    Document { is_first: bool },
    Value { or_end: bool },
    Key { or_end: bool },
    Next,
}

pub(crate) struct Tokens<R> {
    source: R,
    /// Whether each open value is an object, the outermost first.
    open: Vec<bool>,
    expected: Expected,
    deepest: usize,
    keep: Keep,
    at: u64,
}

impl<R: BufRead> Tokens<R> {
    pub(crate) fn new(source: R, limits: &Limits) -> Self {
        Self::with(source, limits.xml_depth as usize, Keep::Within(limits.text_bytes))
    }

    /// Keeps only as much of a text as tells one name from another.
    pub(crate) fn of_names(source: R, deepest: usize) -> Self {
        Self::with(source, deepest, Keep::Beginning(32))
    }

    fn with(source: R, deepest: usize, keep: Keep) -> Self {
        let expected = Expected::Document { is_first: true };
        Self { source, open: Vec::new(), expected, deepest, keep, at: 0 }
    }

    /// The number of values that are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The next token; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Token>, Fault> {
        loop {
            let is_new_line = self.skip_blanks()?;
            let Some(byte) = self.peek()? else {
                return match self.expected {
                    Expected::Document { is_first: false } => Ok(None),
                    _ => Err(Fault::End),
                };
            };
            let token = match (self.expected, byte) {
                (Expected::Document { is_first }, b'{' | b'[') if is_first || is_new_line => self.begin(byte)?,
                (Expected::Document { .. }, _) => {
                    return Err(self.syntax("something other than an object or an array"));
                }
                (Expected::Value { or_end: true }, b']') => self.end(),
                (Expected::Value { .. }, b'{' | b'[') => self.begin(byte)?,
                (Expected::Value { .. }, b'"') => Token::Text(self.text()?),
                (Expected::Value { .. }, b'-' | b'0'..=b'9') => Token::Number(self.number()?),
                (Expected::Value { .. }, b't' | b'f' | b'n') => Token::Word(self.word(byte)?),
                (Expected::Value { .. }, _) => return Err(self.syntax("no value")),
                (Expected::Key { or_end: true }, b'}') => self.end(),
                (Expected::Key { .. }, b'"') => {
                    let key = self.text()?;
                    self.skip_blanks()?;
                    if self.peek()?.ok_or(Fault::End)? != b':' {
                        return Err(self.syntax("no colon"));
                    }
                    self.consume(1);
                    self.expected = Expected::Value { or_end: false };
                    Token::Key(key)
                }
                (Expected::Key { .. }, _) => return Err(self.syntax("no key")),
                (Expected::Next, b',') => {
                    self.consume(1);
                    self.expected = match self.open.last() {
                        Some(true) => Expected::Key { or_end: false },
                        _ => Expected::Value { or_end: false },
                    };
                    continue;
                }
                (Expected::Next, b'}') if self.open.last() == Some(&true) => self.end(),
                (Expected::Next, b']') if self.open.last() == Some(&false) => self.end(),
                (Expected::Next, _) => return Err(self.syntax("no comma")),
            };
            return Ok(Some(token));
        }
    }

    /// Skips the value that comes next, without keeping its texts.
    pub(crate) fn skip_value(&mut self) -> Result<(), Fault> {
        let keep = std::mem::replace(&mut self.keep, Keep::Beginning(0));
        let depth = self.depth();
        loop {
            self.next()?.ok_or(Fault::End)?;
            // The key of a member is no value yet.
            if self.depth() <= depth && !matches!(self.expected, Expected::Value { .. }) {
                break;
            }
        }
        self.keep = keep;
        Ok(())
    }

    fn begin(&mut self, byte: u8) -> Result<Token, Fault> {
        if self.open.len() >= self.deepest {
            return Err(Fault::TooDeep);
        }
        self.consume(1);
        self.open.push(byte == b'{');
        Ok(if byte == b'{' {
            self.expected = Expected::Key { or_end: true };
            Token::BeginObject
        } else {
            self.expected = Expected::Value { or_end: true };
            Token::BeginArray
        })
    }

    fn end(&mut self) -> Token {
        self.consume(1);
        let was_object = self.open.pop() == Some(true);
        self.expected = if self.open.is_empty() { Expected::Document { is_first: false } } else { Expected::Next };
        if was_object { Token::EndObject } else { Token::EndArray }
    }

    fn text(&mut self) -> Result<String, Fault> {
        self.consume(1);
        let mut kept = Vec::new();
        loop {
            let buffer = self.source.fill_buf()?;
            if buffer.is_empty() {
                return Err(Fault::End);
            }
            let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
            let end = buffer.iter().position(is_special).unwrap_or(buffer.len());
            let special = buffer.get(end).copied();
            push(&mut kept, &buffer[..end], self.keep)?;
            match special {
                None => self.consume(end),
                Some(b'"') => {
                    self.consume(end + 1);
                    break;
                }
                Some(b'\\') => {
                    self.consume(end + 1);
                    self.escape(&mut kept)?;
                }
                Some(_) => return Err(self.syntax("a control character in a text")),
            }
        }
        self.expected = Expected::Next;
        Ok(String::from_utf8(kept).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Takes what follows a backslash. Half of a pair of surrogates is no character.
    fn escape(&mut self, kept: &mut Vec<u8>) -> Result<(), Fault> {
        let mut unit = match self.take()? {
            b'u' => self.unit()?,
            byte => return self.escaped(byte, kept),
        };
        loop {
            let is_high = (0xD800..0xDC00).contains(&unit);
            if !is_high || self.peek()? != Some(b'\\') {
                return self.character(char::from_u32(unit), kept);
            }
            self.consume(1);
            match self.take()? {
                b'u' => {
                    let low = self.unit()?;
                    if (0xDC00..0xE000).contains(&low) {
                        let pair = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                        return self.character(char::from_u32(pair), kept);
                    }
                    self.character(None, kept)?;
                    unit = low;
                }
                byte => {
                    self.character(None, kept)?;
                    return self.escaped(byte, kept);
                }
            }
        }
    }

    fn escaped(&self, byte: u8, kept: &mut Vec<u8>) -> Result<(), Fault> {
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            _ => return Err(self.syntax("an unknown escape")),
        };
        self.character(Some(character), kept)
    }

    fn character(&self, character: Option<char>, kept: &mut Vec<u8>) -> Result<(), Fault> {
        let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
        push(kept, character.encode_utf8(&mut [0; 4]).as_bytes(), self.keep)
    }

    fn unit(&mut self) -> Result<u32, Fault> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.take()?).to_digit(16).ok_or_else(|| self.syntax("an unknown escape"))?;
            unit = unit * 16 + digit;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<String, Fault> {
        let mut digits = String::new();
        while let Some(byte @ (b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) = self.peek()? {
            if digits.len() >= DIGITS {
                return Err(self.syntax("a number without end"));
            }
            digits.push(char::from(byte));
            self.consume(1);
        }
        if !is_number(&digits) {
            return Err(self.syntax("no number"));
        }
        self.expected = Expected::Next;
        Ok(digits)
    }

    fn word(&mut self, first: u8) -> Result<&'static str, Fault> {
        let word = match first {
            b't' => "true",
            b'f' => "false",
            _ => "null",
        };
        for expected in word.bytes() {
            if self.take()? != expected {
                return Err(self.syntax("an unknown word"));
            }
        }
        self.expected = Expected::Next;
        Ok(word)
    }

    /// Whether a line ended in what was skipped.
    fn skip_blanks(&mut self) -> Result<bool, Fault> {
        let mut is_new_line = false;
        loop {
            let buffer = self.source.fill_buf()?;
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            let length = buffer.iter().position(|byte| !is_blank(byte)).unwrap_or(buffer.len());
            is_new_line |= buffer[..length].iter().any(|byte| matches!(byte, b'\n' | b'\r'));
            let is_end = length < buffer.len() || buffer.is_empty();
            self.consume(length);
            if is_end {
                return Ok(is_new_line);
            }
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, Fault> {
        Ok(self.source.fill_buf()?.first().copied())
    }

    fn take(&mut self) -> Result<u8, Fault> {
        let byte = self.peek()?.ok_or(Fault::End)?;
        self.consume(1);
        Ok(byte)
    }

    fn consume(&mut self, length: usize) {
        self.source.consume(length);
        self.at += length as u64;
    }

    fn syntax(&self, what: &'static str) -> Fault {
        Fault::Syntax { what, at: self.at }
    }
}

fn push(kept: &mut Vec<u8>, bytes: &[u8], keep: Keep) -> Result<(), Fault> {
    match keep {
        Keep::Within(limit) if (kept.len() + bytes.len()) as u64 > limit => return Err(Fault::TooLong),
        Keep::Within(_) => kept.extend_from_slice(bytes),
        Keep::Beginning(most) => kept.extend_from_slice(&bytes[..bytes.len().min(most.saturating_sub(kept.len()))]),
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

#[cfg(test)]
mod tests;
