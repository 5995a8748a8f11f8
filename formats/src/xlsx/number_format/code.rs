//! Takes a format code apart into sections of tokens.

/// The part of a code between two semicolons.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    pub condition: Option<Condition>,
    pub shape: Shape,
    pub tokens: Vec<Token>,
}

/// What a section makes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    General,
    Number,
    Date,
    Duration,
    Text,
    /// Nothing of the number is shown.
    Literal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Literal(String),
    /// `0`, `#` or `?`.
    Digit(u8),
    /// A digit 1 to 9: a literal, or part of a fraction's denominator.
    Numeral(u8),
    Point,
    Comma,
    Percent,
    /// `E+` shows the sign of every exponent, `E-` only that of negative ones.
    Exponent {
        plus: bool,
    },
    Slash,
    Year(usize),
    /// The month, or the minute if a neighbour says so.
    Month(usize),
    Minute(usize),
    Day(usize),
    Hour(usize),
    Second(usize),
    /// Digits of a second, with their point.
    Subsecond(usize),
    /// `AM/PM`
    HalfDay,
    /// `A/P` or `a/p`, which is shown as it is written.
    HalfDayLetter {
        lower: bool,
    },
    /// Hours, minutes or seconds in total, not of a day.
    Elapsed(Unit, usize),
    General,
    /// `@`
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Hours,
    Minutes,
    Seconds,
}

/// A comparison with a number, such as `[>=100]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Condition {
    comparison: Comparison,
    with: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Condition {
    fn parse(text: &str) -> Option<Self> {
        const SIGNS: [(&str, Comparison); 6] = [
            ("<=", Comparison::LessOrEqual),
            ("<>", Comparison::NotEqual),
            ("<", Comparison::Less),
            (">=", Comparison::GreaterOrEqual),
            (">", Comparison::Greater),
            ("=", Comparison::Equal),
        ];
        SIGNS.iter().find_map(|&(sign, comparison)| {
            let with = text.strip_prefix(sign)?.trim().parse().ok()?;
            Some(Self { comparison, with })
        })
    }

    pub(super) fn holds(self, number: f64) -> bool {
        match self.comparison {
            Comparison::Less => number < self.with,
            Comparison::LessOrEqual => number <= self.with,
            Comparison::Greater => number > self.with,
            Comparison::GreaterOrEqual => number >= self.with,
            Comparison::Equal => number == self.with,
            Comparison::NotEqual => number != self.with,
        }
    }

    /// Whether the section is only for negative numbers, so that it brings its own sign if it wants one.
    pub(super) fn only_negative(self) -> bool {
        match self.comparison {
            Comparison::Less => self.with <= 0.0,
            Comparison::LessOrEqual | Comparison::Equal => self.with < 0.0,
            _ => false,
        }
    }
}

impl Section {
    /// Whether it shows a text unchanged.
    pub(super) fn is_bare_text(&self) -> bool {
        self.tokens == [Token::Text]
    }
}

pub(super) fn sections(code: &str) -> Vec<Section> {
    split(code).into_iter().map(section).collect()
}

/// Cuts at semicolons outside quotes, brackets and escapes.
fn split(code: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quoted, mut bracket, mut escaped) = (0, false, false, false);
    for (at, character) in code.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '"' if !bracket => quoted = !quoted,
            _ if quoted => {}
            '\\' | '_' | '*' if !bracket => escaped = true,
            '[' => bracket = true,
            ']' => bracket = false,
            ';' if !bracket => {
                parts.push(&code[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&code[start..]);
    parts
}

/// Reads one section's characters.
struct Scanner<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
    condition: Option<Condition>,
}

fn section(code: &str) -> Section {
    let mut scanner = Scanner { rest: code, tokens: Vec::new(), condition: None };
    while scanner.step() {}
    let mut tokens = scanner.tokens;
    settle_minutes(&mut tokens);
    settle_numerals(&mut tokens);
    let any = |of: fn(&Token) -> bool| tokens.iter().any(of);
    let shape = if any(|token| matches!(token, Token::Elapsed(..))) {
        Shape::Duration
    } else if any(is_time) && !any(|token| *token == Token::General) {
        Shape::Date
    } else if any(|token| matches!(token, Token::Digit(_))) {
        Shape::Number
    } else if any(|token| *token == Token::Text) {
        Shape::Text
    } else if any(|token| *token == Token::General) || code.trim().is_empty() && scanner.condition.is_some() {
        Shape::General
    } else {
        Shape::Literal
    };
    Section { condition: scanner.condition, shape, tokens }
}

fn is_time(token: &Token) -> bool {
    matches!(
        token,
        Token::Year(_)
            | Token::Month(_)
            | Token::Minute(_)
            | Token::Day(_)
            | Token::Hour(_)
            | Token::Second(_)
            | Token::HalfDay
            | Token::HalfDayLetter { .. }
    )
}

impl Scanner<'_> {
    fn step(&mut self) -> bool {
        let Some(character) = self.rest.chars().next() else { return false };
        let ascii = character.to_ascii_lowercase();
        if let Some(taken) = self.word() {
            self.rest = &self.rest[taken..];
            return true;
        }
        match ascii {
            '"' => {
                let quoted = &self.rest[1..];
                let end = quoted.find('"').unwrap_or(quoted.len());
                self.literal(&quoted[..end]);
                self.rest = quoted.get(end + 1..).unwrap_or("");
                return true;
            }
            '[' => {
                let Some(end) = self.rest.find(']') else {
                    // The bracket is not closed, so the rest is literal.
                    let rest = std::mem::take(&mut self.rest);
                    self.literal(rest);
                    return true;
                };
                let inside = &self.rest[1..end];
                self.bracket(inside);
                self.rest = &self.rest[end + 1..];
                return true;
            }
            '\\' | '_' | '*' => {
                let mut after = self.rest[1..].char_indices();
                let next = after.next().map(|(_, next)| next);
                self.rest = after.as_str();
                match (ascii, next) {
                    ('\\', Some(next)) => self.literal(next.encode_utf8(&mut [0; 4])),
                    // This leaves a gap as wide as a character.
                    ('_', Some(_)) => self.literal(" "),
                    // This would be repeated to the width of the cell, but a text has no width.
                    _ => {}
                }
                return true;
            }
            'y' | 'm' | 'd' | 'h' | 's' => {
                let count = run(self.rest);
                self.tokens.push(match ascii {
                    'y' => Token::Year(count),
                    'm' => Token::Month(count),
                    'd' => Token::Day(count),
                    'h' => Token::Hour(count),
                    _ => Token::Second(count),
                });
                self.rest = &self.rest[count..];
                return true;
            }
            '.' => {
                let zeros = self.rest[1..].bytes().take_while(|byte| *byte == b'0').count();
                let after_seconds =
                    matches!(self.tokens.last(), Some(Token::Second(_) | Token::Elapsed(Unit::Seconds, _)));
                if zeros > 0 && after_seconds {
                    self.tokens.push(Token::Subsecond(zeros));
                    self.rest = &self.rest[1 + zeros..];
                    return true;
                }
                self.tokens.push(Token::Point);
            }
            '0' | '#' | '?' => self.tokens.push(Token::Digit(ascii as u8)),
            '1'..='9' => self.tokens.push(Token::Numeral(ascii as u8)),
            // East Asian versions write the day of the week so.
            'a' if matches!(run(self.rest), 3 | 4) => {
                let count = run(self.rest);
                self.tokens.push(Token::Day(count));
                self.rest = &self.rest[count..];
                return true;
            }
            // The name and the year of an emperor's reign; elsewhere the year.
            'g' => {}
            'e' if matches!(self.tokens.last(), None | Some(Token::Literal(_))) && is_year(self.rest) => {
                self.tokens.push(Token::Year(4));
                self.rest = &self.rest[run(self.rest)..];
                return true;
            }
            ',' => self.tokens.push(Token::Comma),
            '%' => self.tokens.push(Token::Percent),
            '/' => self.tokens.push(Token::Slash),
            '@' => self.tokens.push(Token::Text),
            _ => self.literal(character.encode_utf8(&mut [0; 4])),
        }
        self.rest = &self.rest[character.len_utf8()..];
        true
    }

    /// Reads what is spelled with more than one character; returns its length in bytes.
    fn word(&mut self) -> Option<usize> {
        let starts = |word: &str| {
            self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)).then_some(word.len())
        };
        let (token, taken) = if let Some(taken) = starts("General") {
            (Token::General, taken)
        } else if let Some(taken) = starts("AM/PM") {
            (Token::HalfDay, taken)
        } else if let Some(taken) = starts("A/P") {
            (Token::HalfDayLetter { lower: self.rest.starts_with('a') }, taken)
        } else if let Some(taken) = starts("\u{4E0A}\u{5348}/\u{4E0B}\u{5348}") {
            (Token::HalfDay, taken)
        } else if let Some(taken) = starts("E+") {
            (Token::Exponent { plus: true }, taken)
        } else if let Some(taken) = starts("E-") {
            (Token::Exponent { plus: false }, taken)
        } else {
            return None;
        };
        self.tokens.push(token);
        Some(taken)
    }

    fn bracket(&mut self, inside: &str) {
        let lower = inside.to_ascii_lowercase();
        let unit = match lower.as_bytes().first() {
            Some(b'h') => Some(Unit::Hours),
            Some(b'm') => Some(Unit::Minutes),
            Some(b's') => Some(Unit::Seconds),
            _ => None,
        };
        if let Some(unit) = unit
            && lower.bytes().all(|byte| Some(&byte) == lower.as_bytes().first())
        {
            self.tokens.push(Token::Elapsed(unit, lower.len()));
        } else if let Some(currency) = inside.strip_prefix('$') {
            // A symbol, then the language after a dash.
            self.literal(currency.split_once('-').map_or(currency, |(symbol, _)| symbol));
        } else if let Some(condition) = Condition::parse(inside) {
            self.condition = Some(condition);
        }
        // Otherwise it is a colour, a calendar or a way to write digits.
    }

    fn literal(&mut self, text: &str) {
        match self.tokens.last_mut() {
            _ if text.is_empty() => {}
            Some(Token::Literal(before)) => before.push_str(text),
            _ => self.tokens.push(Token::Literal(text.to_owned())),
        }
    }
}

/// How often the first letter comes in a row, in either case.
fn run(text: &str) -> usize {
    let bytes = text.as_bytes();
    bytes.iter().take_while(|byte| bytes.first().is_some_and(|first| first.eq_ignore_ascii_case(byte))).count()
}

/// Whether a year is one or two letters, which are no part of a longer word.
fn is_year(text: &str) -> bool {
    let count = run(text);
    count <= 2 && !text[count..].starts_with(|next: char| next.is_ascii_alphabetic())
}

/// An `m` after hours or before seconds means minutes.
fn settle_minutes(tokens: &mut [Token]) {
    let mut after_hour = false;
    for at in 0..tokens.len() {
        match tokens[at] {
            Token::Hour(_) | Token::Elapsed(Unit::Hours, _) => after_hour = true,
            Token::Month(count) => {
                let next = tokens[at + 1..].iter().find(|token| is_time(token) || matches!(token, Token::Elapsed(..)));
                let before_second = matches!(next, Some(Token::Second(_) | Token::Elapsed(Unit::Seconds, _)));
                if count <= 2 && (after_hour || before_second) {
                    tokens[at] = Token::Minute(count);
                }
                after_hour = false;
            }
            Token::Year(_) | Token::Day(_) | Token::Second(_) => after_hour = false,
            _ => {}
        }
    }
}

/// Numerals are literals except in the denominator of a fraction.
fn settle_numerals(tokens: &mut [Token]) {
    let mut in_denominator = false;
    for token in tokens {
        match token {
            Token::Slash => in_denominator = true,
            Token::Digit(_) if in_denominator => {}
            Token::Numeral(_) if in_denominator => {}
            Token::Numeral(digit) => *token = Token::Literal(char::from(*digit).to_string()),
            _ => in_denominator = false,
        }
    }
}
