//! The table that Tesseract writes with `tsv`: a line for each page, block, paragraph, line and word.

use std::{ops::Range, str::FromStr};
use svc_formats::{PictureSize, join_lines};

const HEADER: &str = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext";
const COLUMNS: usize = 12;
/// The level of a word.
const WORD: u8 = 5;
/// A page of a telephone book has a tenth of them.
const MOST_WORDS: usize = 100_000;

/// A word and where it stands, in pixels from the left and the top.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    pub text: String,
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
    /// How sure the engine is of it, 0 to 100.
    pub confidence: f32,
}

/// A line of the text and where it stands, in pixels from the left and the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Byte range of the text.
    pub start: usize,
    pub end: usize,
    /// The number of its paragraph.
    pub paragraph: u32,
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

/// What the engine has read on a page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recognised {
    /// Lines end in `\n`, paragraphs in an empty line.
    pub text: String,
    /// In the order of the text.
    pub words: Vec<Word>,
    /// In the order of the text.
    pub lines: Vec<Line>,
}

/// A line whose words come one after the other.
struct OpenLine {
    text: String,
    left: u32,
    top: u32,
    right: u32,
    bottom: u32,
}

impl OpenLine {
    fn new(word: &Word) -> OpenLine {
        let Word { text, left, top, width, height, .. } = word;
        OpenLine { text: text.clone(), left: *left, top: *top, right: left + width, bottom: top + height }
    }

    fn add(&mut self, word: &Word) {
        self.text.push(' ');
        self.text.push_str(&word.text);
        (self.left, self.top) = (self.left.min(word.left), self.top.min(word.top));
        (self.right, self.bottom) = (self.right.max(word.left + word.width), self.bottom.max(word.top + word.height));
    }
}

/// Reads the table of a picture.
///
/// # Errors
/// What is wrong with it, with the number of the line.
pub fn read(table: &[u8], size: &PictureSize) -> Result<Recognised, String> {
    let table = std::str::from_utf8(table).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut rows = table.lines();
    if rows.next() != Some(HEADER) {
        return Err("its first line does not name the columns".to_owned());
    }
    let mut words: Vec<Word> = Vec::new();
    let mut paragraphs: Vec<Vec<OpenLine>> = Vec::new();
    let mut place = None;
    for (number, row) in (2..).zip(rows) {
        let wrong = |what: &str| format!("line {number} {what}");
        let columns: Vec<&str> = row.splitn(COLUMNS, '\t').collect();
        let [level, page, block, paragraph, line, _, left, top, width, height, confidence, text] = columns[..] else {
            return Err(wrong("has another number of columns"));
        };
        let level: u8 = parsed(level).filter(|level| *level <= WORD).ok_or_else(|| wrong("has no level"))?;
        let text: String = text.trim().chars().filter(|character| !character.is_control()).collect();
        // Tesseract gives a word of blanks for a picture.
        if level < WORD || text.is_empty() {
            continue;
        }
        if words.len() == MOST_WORDS {
            return Err(format!("it has over {MOST_WORDS} words"));
        }
        let number = |column: &str| parsed::<u32>(column).ok_or_else(|| wrong("has no numbers where they belong"));
        let paragraph = (number(page)?, number(block)?, number(paragraph)?);
        let line = number(line)?;
        let (left, top) = (number(left)?.min(size.width), number(top)?.min(size.height));
        let (width, height) = (number(width)?.min(size.width - left), number(height)?.min(size.height - top));
        let confidence = parsed::<f32>(confidence).filter(|confidence| confidence.is_finite());
        let confidence = confidence.ok_or_else(|| wrong("has no confidence"))?.clamp(0.0, 100.0);
        let word = Word { text, left, top, width, height, confidence };
        match (place, paragraphs.last_mut()) {
            (Some((before, at)), Some(lines)) if before == paragraph => match lines.last_mut() {
                Some(last) if at == line => last.add(&word),
                _ => lines.push(OpenLine::new(&word)),
            },
            _ => paragraphs.push(vec![OpenLine::new(&word)]),
        }
        place = Some((paragraph, line));
        words.push(word);
    }
    let texts: Vec<Vec<&str>> =
        paragraphs.iter().map(|lines| lines.iter().map(|line| line.text.as_str()).collect()).collect();
    let (text, ranges) = join_lines(&texts);
    let numbered = (0..).zip(&paragraphs).flat_map(|(number, lines)| lines.iter().map(move |line| (number, line)));
    let place = |((paragraph, line), range): ((u32, &OpenLine), Range<usize>)| Line {
        start: range.start,
        end: range.end,
        paragraph,
        left: line.left,
        top: line.top,
        width: line.right - line.left,
        height: line.bottom - line.top,
    };
    let lines = numbered.zip(ranges).map(place).collect();
    Ok(Recognised { text, words, lines })
}

fn parsed<T: FromStr>(column: &str) -> Option<T> {
    column.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: PictureSize = PictureSize { width: 1000, height: 800, dpi: 300.0 };

    fn table(rows: &[&str]) -> Vec<u8> {
        let rows: String = rows.iter().map(|row| format!("{}\n", row.replace(' ', "\t"))).collect();
        format!("{HEADER}\n{rows}").into_bytes()
    }

    #[test]
    fn words_become_lines_and_paragraphs_with_their_boxes() {
        let read = read(
            &table(&[
                "1 1 0 0 0 0 0 0 1000 800 -1 ",
                "2 1 1 0 0 0 10 10 500 300 -1 ",
                "5 1 1 1 1 1 10 10 90 20 96.5 The",
                "5 1 1 1 1 2 110 10 90 20 90 com-",
                "5 1 1 1 2 1 10 40 90 20 91 mon",
                "5 1 1 1 2 2 110 40 90 20 12.25 heron",
                "5 1 1 2 1 1 10 90 90 20 95 \u{a0}",
                "5 1 1 2 1 2 10 90 90 20 95 wades",
                "5 1 2 1 1 1 950 790 90 20 101 away",
                "5 2 2 1 1 1 10 10 90 20 95 next",
            ]),
            &SIZE,
        );
        let read = read.unwrap();
        assert_eq!(read.text, "The common heron\n\nwades\n\naway\n\nnext", "also of the next picture of a file");
        let texts: Vec<_> = read.words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["The", "com-", "mon", "heron", "wades", "away", "next"]);
        let heron = Word { text: "heron".to_owned(), left: 110, top: 40, width: 90, height: 20, confidence: 12.25 };
        assert_eq!(read.words[3], heron);
        let lines: Vec<_> = read.lines.iter().map(|line| (&read.text[line.start..line.end], line.paragraph)).collect();
        assert_eq!(lines, [("The com", 0), ("mon heron", 0), ("wades", 1), ("away", 2), ("next", 3)]);
        let first = Line { start: 0, end: 7, paragraph: 0, left: 10, top: 10, width: 190, height: 20 };
        assert_eq!(read.lines[0], first, "around its words");
        let away = &read.words[5];
        assert_eq!((away.width, away.height, away.confidence), (50, 10, 100.0), "kept within the picture");
        assert_eq!(super::read(&table(&[]), &SIZE), Ok(Recognised::default()), "an empty page");
    }

    #[test]
    fn what_is_no_such_table_is_refused_with_its_reason() {
        let many = vec!["5 1 1 1 1 1 10 10 90 20 96.5 The"; MOST_WORDS + 1];
        for (wrong, why) in [
            (b"".to_vec(), "first line"),
            (b"\xff\xfe".to_vec(), "UTF-8"),
            (b"Segmentation fault\n".to_vec(), "first line"),
            (table(&["5 1 1 1"]), "line 2 has another number of columns"),
            (table(&["9 1 1 1 1 1 10 10 90 20 96.5 The"]), "line 2 has no level"),
            (table(&["5 1 1 1 1 1 10 10 90 20 NaN The"]), "line 2 has no confidence"),
            (table(&["5 1 1 1 1 1 -10 10 90 20 96 The"]), "no numbers"),
            (table(&["5 1 1 1 1 1 99999999999 10 90 20 96 The"]), "no numbers"),
            (table(&many), "over 100000 words"),
        ] {
            let reason = read(&wrong, &SIZE).unwrap_err();
            assert!(reason.contains(why), "{reason}: {why}");
        }
    }
}
