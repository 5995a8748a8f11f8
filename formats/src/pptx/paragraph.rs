//! A paragraph of DrawingML.

use crate::{
    charset,
    docx::symbols,
    markdown::{begins_raised, is_raised_run},
    math::Math,
};

#[derive(Debug, Default)]
pub(super) struct Paragraph {
    pub text: String,
    /// Counted from 0.
    pub level: u8,
    /// Whether it has a bullet or a number, if it says so itself.
    pub bullet: Option<bool>,
    pub math: Math,
    pub run: Run,
    /// Whether its last text is raised.
    was_raised: bool,
}

/// What the properties of a run say of its text.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// It stands above the line.
    pub is_raised: bool,
    /// The font of its symbols.
    pub symbols: Option<String>,
}

impl Paragraph {
    /// Appends text; a vertical tab is a soft break.
    pub(super) fn push(&mut self, text: &str) {
        // What is raised behind a formula belongs to it.
        if !self.run.is_raised {
            self.math.before_text(text, &mut self.text);
        }
        let text = &*symbols::shown(text, self.run.symbols.as_deref().unwrap_or_default());
        // A raised number would read as a part of the one before it.
        let begins = begins_raised(&self.text, self.run.is_raised, &mut self.was_raised);
        if begins && is_raised_run(text) {
            self.text.push('^');
        }
        if !text.contains(['\u{b}', '\0', '\r', '_']) {
            self.text.push_str(text);
            return;
        }
        let mut rest = text;
        while let Some(at) = rest.find("_x") {
            let (before, escape) = rest.split_at(at);
            self.push_clean(before);
            match unescape(escape) {
                Some(character) => {
                    self.push_clean(character.encode_utf8(&mut [0; 4]));
                    rest = &escape[ESCAPE..];
                }
                None => {
                    self.text.push_str("_x");
                    rest = &escape[2..];
                }
            }
        }
        self.push_clean(rest);
    }

    fn push_clean(&mut self, text: &str) {
        self.text.extend(charset::clean(text).chars().map(|character| match character {
            '\u{b}' => '\n',
            other => other,
        }));
    }
}

/// The length of `_x000B_`, the form of a character that XML does not allow.
const ESCAPE: usize = 7;

/// The control character that an escape at the start of the text stands for. Other escapes are text, because people
/// write `_x1234_` too.
fn unescape(text: &str) -> Option<char> {
    let digits = text.get(..ESCAPE)?.strip_prefix("_x")?.strip_suffix('_')?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u32::from_str_radix(digits, 16).ok()?;
    char::from_u32(number).filter(|character| character.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glyphs_and_raised_numbers_are_read_as_they_are_shown() {
        let mut paragraph = Paragraph::default();
        paragraph.push("Costs 10");
        paragraph.run.is_raised = true;
        paragraph.push("1");
        paragraph.push("6");
        paragraph.run = Run { symbols: Some("Wingdings".to_owned()), ..Run::default() };
        paragraph.push(" \u{F0E0} 10");
        paragraph.run = Run { is_raised: true, symbols: None };
        paragraph.push("−");
        paragraph.push("5");
        assert_eq!(paragraph.text, "Costs 10^16 🡪 10^−5");
    }

    #[test]
    fn vertical_tabs_break_lines_and_escapes_are_undone() {
        for (given, expected) in [
            ("plain", "plain"),
            ("a\u{b}b", "a\nb"),
            ("a_x000B_b_x000b_c", "a\nb\nc"),
            ("a_x000D_b", "a\nb"),
            ("snake_xcase and _x00e4_", "snake_xcase and _x00e4_"),
            ("_x_x000B_", "_x\n"),
            ("_xé0B_", "_xé0B_"),
            ("cut _x00", "cut _x00"),
        ] {
            let mut paragraph = Paragraph::default();
            paragraph.push(given);
            assert_eq!(paragraph.text, expected);
        }
    }
}
