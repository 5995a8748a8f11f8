//! Placed glyphs to lines and paragraphs.
//!
//! Glyphs stay in the order they are drawn, which is the reading order of nearly every producer, columns among them; what is
//! decided here is where words, lines and paragraphs end.

use kurbo::{Point, Vec2};

/// A blank narrower than this part of the font's size is kerning.
const WORD_GAP: f64 = 0.17;
/// Within this part of the size a baseline is the same: sub- and superscripts stay in their line.
const BASELINE: f64 = 0.5;
/// Going back further than this along a line begins another.
const BACKSTEP: f64 = 0.6;
/// Lines further apart than this many sizes are paragraphs apart.
const PARAGRAPH_GAP: f64 = 1.7;
/// A line this much larger than its neighbour is a title.
const SIZE_CHANGE: f64 = 1.2;

/// Where a glyph stands, in points, y downwards.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub origin: Point,
    /// Along the baseline, of length 1.
    pub direction: Vec2,
    pub advance: f64,
    pub size: f64,
}

#[derive(Default)]
pub(super) struct Layout {
    text: String,
    line: Option<Line>,
    /// The line before, once there is one.
    before: Option<Line>,
    line_text: String,
}

#[derive(Clone, Copy)]
struct Line {
    direction: Vec2,
    /// The baseline's distance from the page's corner.
    across: f64,
    /// Where the last glyph ends along the baseline.
    end: f64,
    size: f64,
}

impl Layout {
    pub(super) fn push(&mut self, text: &str, placed: Placed) {
        let position = placed.origin.to_vec2();
        let start = position.dot(placed.direction);
        let across = position.dot(turned(placed.direction));
        match &mut self.line {
            Some(line) if line.goes_on(&placed, start, across) => {
                let gap = start - line.end;
                if gap > WORD_GAP * placed.size.min(line.size) && !self.line_text.ends_with(char::is_whitespace) {
                    self.line_text.push(' ');
                }
                line.end = start + placed.advance;
                line.size = line.size.max(placed.size);
            }
            _ => {
                self.end_line();
                self.line =
                    Some(Line { direction: placed.direction, across, end: start + placed.advance, size: placed.size });
            }
        }
        for character in text.chars() {
            push_character(&mut self.line_text, character);
        }
    }

    fn end_line(&mut self) {
        let Some(line) = self.line.take() else { return };
        let text = std::mem::take(&mut self.line_text);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if let Some(before) = self.before.replace(line) {
            let break_ = if line.follows(&before) { "\n" } else { "\n\n" };
            // A soft hyphen at a line's end is there for the break only.
            match self.text.strip_suffix('\u{AD}') {
                Some(joined) if break_ == "\n" => self.text.truncate(joined.len()),
                _ => self.text.push_str(break_),
            }
        }
        self.text.push_str(text);
    }

    pub(super) fn finish(mut self) -> String {
        self.end_line();
        self.text
    }
}

impl Line {
    fn goes_on(&self, placed: &Placed, start: f64, across: f64) -> bool {
        let size = self.size.max(placed.size);
        self.direction.dot(placed.direction) > 0.99
            && (across - self.across).abs() < BASELINE * size
            && start - self.end > -BACKSTEP * size
    }

    fn follows(&self, before: &Self) -> bool {
        let step = self.across - before.across;
        let (small, large) = (self.size.min(before.size), self.size.max(before.size));
        self.direction.dot(before.direction) > 0.99
            && step > -BASELINE * large
            && step < PARAGRAPH_GAP * large
            && large < SIZE_CHANGE * small
    }
}

/// A quarter turn, so that the next line of horizontal text is further down.
fn turned(direction: Vec2) -> Vec2 {
    Vec2::new(-direction.y, direction.x)
}

fn push_character(text: &mut String, character: char) {
    match character {
        'ﬀ' => text.push_str("ff"),
        'ﬁ' => text.push_str("fi"),
        'ﬂ' => text.push_str("fl"),
        'ﬃ' => text.push_str("ffi"),
        'ﬄ' => text.push_str("ffl"),
        'ﬅ' | 'ﬆ' => text.push_str("st"),
        character if character.is_whitespace() => {
            if !text.ends_with(char::is_whitespace) {
                text.push(' ');
            }
        }
        character if character.is_control() => {}
        character => text.push(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(lines: &[(&str, f64, f64, f64)]) -> String {
        let mut layout = Layout::default();
        for &(text, x, y, size) in lines {
            for (index, character) in text.chars().enumerate() {
                let origin = Point::new(x + index as f64 * size * 0.5, y);
                let placed = Placed { origin, direction: Vec2::new(1.0, 0.0), advance: size * 0.5, size };
                layout.push(character.encode_utf8(&mut [0; 4]), placed);
            }
        }
        layout.finish()
    }

    #[test]
    fn gaps_make_words_lines_and_paragraphs() {
        let text = set(&[
            ("Title", 0.0, 10.0, 20.0),
            ("one", 0.0, 40.0, 10.0),
            ("two", 18.0, 40.0, 10.0),
            ("three", 0.0, 52.0, 10.0),
        ]);
        assert_eq!(text, "Title\n\none two\nthree");
        assert_eq!(set(&[("a", 0.0, 10.0, 10.0), ("b", 0.0, 40.0, 10.0)]), "a\n\nb");
        assert_eq!(set(&[("bottom", 0.0, 700.0, 10.0), ("next column", 300.0, 50.0, 10.0)]), "bottom\n\nnext column");
    }

    #[test]
    fn superscripts_stay_and_soft_hyphens_go() {
        assert_eq!(set(&[("x", 0.0, 10.0, 10.0), ("2", 5.0, 7.0, 6.0), (" + y", 8.0, 10.0, 10.0)]), "x2 + y");
        assert_eq!(set(&[("infan\u{AD}", 0.0, 10.0, 10.0), ("try", 0.0, 22.0, 10.0)]), "infantry");
    }
}
