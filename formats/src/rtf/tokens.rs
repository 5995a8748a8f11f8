//! Splits RTF (1.9.1) into groups, control words and text. Whatever the bytes are, they make tokens.

/// A longer name or number belongs to no control word.
const NAME: usize = 32;
const DIGITS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    /// A control word, with its number if it has one.
    Word(&'a str, Option<i32>),
    /// A control symbol: a backslash and what is no letter.
    Symbol(u8),
    /// A byte that is written as two digits.
    Byte(u8),
    /// Bytes without line ends, which say nothing in RTF.
    Text(&'a [u8]),
}

pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes as many bytes as `is` holds for, but no more than `most`.
    fn take_while(&mut self, most: usize, is: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.rest.iter().take(most).take_while(|byte| is(**byte)).count();
        self.take(length)
    }

    fn control(&mut self) -> Option<Token<'a>> {
        let name = self.take_while(NAME, |byte| byte.is_ascii_alphabetic());
        if name.is_empty() {
            let symbol = *self.take(1).first()?;
            if symbol != b'\'' {
                return Some(Token::Symbol(symbol));
            }
            let digits = self.take_while(2, |byte| byte.is_ascii_hexdigit());
            let value = digits.iter().fold(0, |value, digit| value * 16 + char::from(*digit).to_digit(16).unwrap_or(0));
            return Some(Token::Byte(u8::try_from(value).unwrap_or(b'?')));
        }
        let is_negative = self.rest.first() == Some(&b'-') && self.rest.get(1).is_some_and(u8::is_ascii_digit);
        self.take(usize::from(is_negative));
        let digits = self.take_while(DIGITS, |byte| byte.is_ascii_digit());
        let number = digits.iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
        let number = if is_negative { -number } else { number };
        let number = i32::try_from(number).unwrap_or(if is_negative { i32::MIN } else { i32::MAX });
        if self.rest.first() == Some(&b' ') {
            self.take(1);
        }
        let name = std::str::from_utf8(name).unwrap_or_default();
        if name == "bin" {
            self.take(usize::try_from(number).unwrap_or(0));
        }
        Some(Token::Word(name, (!digits.is_empty()).then_some(number)))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            return match *self.rest.first()? {
                b'{' => {
                    self.take(1);
                    Some(Token::Open)
                }
                b'}' => {
                    self.take(1);
                    Some(Token::Close)
                }
                b'\\' => {
                    self.take(1);
                    self.control()
                }
                b'\r' | b'\n' | 0 => {
                    self.take(1);
                    continue;
                }
                _ => {
                    let is_text = |byte: u8| !matches!(byte, b'{' | b'}' | b'\\' | b'\r' | b'\n' | 0);
                    Some(Token::Text(self.take_while(usize::MAX, is_text)))
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Token::*;

    #[test]
    fn words_symbols_and_bytes_are_told_apart() {
        let tokens: Vec<_> = Tokens::new(b"{\\b0 x\\par\r\n\\u-10179 ?\\'e9\\~\\{\\bin3 }{}\\*\\i y}").collect();
        let expected = [
            Open,
            Word("b", Some(0)),
            Text(b"x"),
            Word("par", None),
            Word("u", Some(-10179)),
            Text(b"?"),
            Byte(0xE9),
            Symbol(b'~'),
            Symbol(b'{'),
            Word("bin", Some(3)),
            Symbol(b'*'),
            Word("i", None),
            Text(b"y"),
            Close,
        ];
        assert_eq!(tokens, expected);
        assert_eq!(Tokens::new(b"\\bin99999999999 x").collect::<Vec<_>>(), [Word("bin", Some(i32::MAX))]);
        assert_eq!(Tokens::new(b"\\").next(), None);
    }
}
