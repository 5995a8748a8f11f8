//! The table that Tesseract writes with `tsv`: a line for each page, block, paragraph, line and word.

use std::{ops::Range, str::FromStr};
use svc_formats::{PictureSize, is_without_blanks, join_lines};

const HEADER: &str = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext";
const COLUMNS: usize = 12;
/// The level of a word.
const WORD: u8 = 5;
/// A page of a telephone book has a tenth of them.
const MOST_WORDS: usize = 100_000;
/// Characters of scripts without blanks are one text unless they are as far apart as this, in heights of their line: those of China and
/// Japan, whose signs fill squares, and those of Thailand and its neighbours, which part phrases by blanks.
const GAP_OF_SQUARES: f64 = 1.0;
const GAP_OF_PHRASES: f64 = 0.2;

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
        if !self.goes_on_with(word) {
            self.text.push(' ');
        }
        self.text.push_str(&word.text);
        (self.left, self.top) = (self.left.min(word.left), self.top.min(word.top));
        (self.right, self.bottom) = (self.right.max(word.left + word.width), self.bottom.max(word.top + word.height));
    }

    /// Whether no blank is before a word. The engine takes single characters for words where the script has no blanks.
    fn goes_on_with(&self, word: &Word) -> bool {
        let around = [self.text.chars().next_back(), word.text.chars().next()];
        let [Some(before), Some(after)] = around.map(|character| character.and_then(most_gap)) else { return false };
        let height = (self.bottom - self.top).max(word.height);
        f64::from(word.left.saturating_sub(self.right)) < before.min(after) * f64::from(height)
    }
}

/// How far apart, in heights of the line, a character and its neighbour may be without a blank between them; `None` if its script has blanks.
fn most_gap(character: char) -> Option<f64> {
    match character {
        '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' => Some(GAP_OF_PHRASES),
        // Marks and digits that are as wide as the signs.
        '\u{FF01}'..='\u{FF20}' | '\u{FF5B}'..='\u{FF65}' => Some(GAP_OF_SQUARES),
        _ => is_without_blanks(character).then_some(GAP_OF_SQUARES),
    }
}

/// What the table says of a page so far.
#[derive(Default)]
struct OpenPage {
    words: Vec<Word>,
    paragraphs: Vec<Vec<OpenLine>>,
    /// Where the last word stands: its page, block and paragraph, and its line.
    place: Option<([u32; 3], u32)>,
}

impl OpenPage {
    fn add(&mut self, word: Word, paragraph: [u32; 3], line: u32) {
        match (self.place, self.paragraphs.last_mut()) {
            (Some((before, at)), Some(lines)) if before == paragraph => match lines.last_mut() {
                Some(last) if at == line => last.add(&word),
                _ => lines.push(OpenLine::new(&word)),
            },
            _ => self.paragraphs.push(vec![OpenLine::new(&word)]),
        }
        self.place = Some((paragraph, line));
        self.words.push(word);
    }

    fn end(self) -> Recognised {
        let OpenPage { words, paragraphs, .. } = self;
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
        Recognised { text, words, lines }
    }
}

/// Reads the table of one picture; `None` if it has no rows, because the engine saw no picture.
///
/// # Errors
/// What is wrong with it, with the number of the line.
pub fn read(table: &[u8], size: &PictureSize) -> Result<Option<Recognised>, String> {
    Ok(pages(table, |_| Some((0, size)))?.pop())
}

/// Reads the table of many pictures, whose pages are numbered from 1. The table ends before the first picture that the engine could not unpack.
///
/// # Errors
/// As for [`read`].
pub fn read_all(table: &[u8], sizes: &[PictureSize]) -> Result<Vec<Recognised>, String> {
    pages(table, |number| {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Some((index, sizes.get(index)?))
    })
}

/// Reads the pages of a table, which stand in their order; `of` gives the index and the size of a page by its number.
fn pages<'a>(table: &[u8], of: impl Fn(u32) -> Option<(usize, &'a PictureSize)>) -> Result<Vec<Recognised>, String> {
    let table = std::str::from_utf8(table).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut rows = table.lines();
    if rows.next() != Some(HEADER) {
        return Err("its first line does not name the columns".to_owned());
    }
    let mut pages: Vec<OpenPage> = Vec::new();
    for (number, row) in (2..).zip(rows) {
        let wrong = |what: &str| format!("line {number} {what}");
        let columns: Vec<&str> = row.splitn(COLUMNS, '\t').collect();
        let [level, page, block, paragraph, line, _, left, top, width, height, confidence, text] = columns[..] else {
            return Err(wrong("has another number of columns"));
        };
        let level: u8 = parsed(level).filter(|level| *level <= WORD).ok_or_else(|| wrong("has no level"))?;
        let number = |column: &str| parsed::<u32>(column).ok_or_else(|| wrong("has no numbers where they belong"));
        let page = number(page)?;
        let (index, size) = of(page).ok_or_else(|| wrong("is of a page that is not there"))?;
        if index == pages.len() {
            pages.push(OpenPage::default());
        }
        let count = pages.len();
        let open =
            pages.last_mut().filter(|_| index + 1 == count).ok_or_else(|| wrong("is of a page out of its order"))?;
        let text: String = text.trim().chars().filter(|character| !character.is_control()).collect();
        // Tesseract gives a word of blanks for a picture.
        if level < WORD || text.is_empty() {
            continue;
        }
        if open.words.len() == MOST_WORDS {
            return Err(format!("it has over {MOST_WORDS} words of one page"));
        }
        let paragraph = [page, number(block)?, number(paragraph)?];
        let line = number(line)?;
        let (left, top) = (number(left)?.min(size.width), number(top)?.min(size.height));
        let (width, height) = (number(width)?.min(size.width - left), number(height)?.min(size.height - top));
        let confidence = parsed::<f32>(confidence).filter(|confidence| confidence.is_finite());
        let confidence = confidence.ok_or_else(|| wrong("has no confidence"))?.clamp(0.0, 100.0);
        open.add(Word { text, left, top, width, height, confidence }, paragraph, line);
    }
    Ok(pages.into_iter().map(OpenPage::end).collect())
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
        let read = read.unwrap().unwrap();
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
        let empty = table(&["1 1 0 0 0 0 0 0 1000 800 -1 "]);
        assert_eq!(super::read(&empty, &SIZE), Ok(Some(Recognised::default())), "an empty page");
        assert_eq!(super::read(&table(&[]), &SIZE), Ok(None), "no page");
    }

    #[test]
    fn no_blanks_are_read_where_the_script_has_none() {
        let line = |words: &[(u32, u32, &str)]| {
            let row = |(at, (left, width, text)): (usize, &(u32, u32, &str))| {
                format!("5 1 1 1 1 {} {left} 10 {width} 40 95 {text}", at + 1)
            };
            let rows: Vec<String> = words.iter().enumerate().map(row).collect();
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            read(&table(&rows), &SIZE).unwrap().unwrap().text
        };
        let pond =
            [(10, 40, "水"), (55, 40, "库"), (100, 40, "的"), (145, 90, "资源"), (245, 10, "，"), (285, 40, "鱼")];
        assert_eq!(line(&pond), "水库的资源，鱼");
        assert_eq!(line(&[(10, 40, "用"), (60, 100, "PDF"), (170, 80, "文件"), (255, 40, "。")]), "用 PDF 文件。");
        assert_eq!(line(&[(10, 80, "姓名"), (180, 80, "王伟")]), "姓名 王伟", "columns of a form");
        assert_eq!(line(&[(10, 80, "ปลา"), (94, 80, "ใน"), (190, 80, "บึง")]), "ปลาใน บึง");
        assert_eq!(line(&[(10, 80, "물"), (92, 80, "새")]), "물 새");
    }

    #[test]
    fn pages_are_told_apart_by_their_numbers_and_end_where_the_engine_did() {
        let rows = [
            "1 1 0 0 0 0 0 0 1000 800 -1 ",
            "5 1 1 1 1 1 10 10 90 20 96 heron",
            "1 2 0 0 0 0 0 0 50 800 -1 ",
            "1 3 0 0 0 0 0 0 50 800 -1 ",
            "5 3 1 1 1 1 40 10 90 20 96 egret",
        ];
        let narrow = PictureSize { width: 50, ..SIZE };
        let read = read_all(&table(&rows), &[SIZE, narrow, narrow, SIZE]).unwrap();
        assert_eq!(read.iter().map(|page| page.text.as_str()).collect::<Vec<_>>(), ["heron", "", "egret"]);
        assert_eq!(read[2].words[0].width, 10, "kept within its own picture");
        assert_eq!(read_all(&table(&[]), &[SIZE]), Ok(vec![]));
        for (wrong, why) in [
            (&rows[2..], "line 2 is of a page out of its order"),
            (&[rows[0], rows[3]], "line 3 is of a page out of its order"),
            (&[rows[0], rows[2], rows[1]], "line 4 is of a page out of its order"),
            (&["1 0 0 0 0 0 0 0 1000 800 -1 "], "not there"),
            (&["1 5 0 0 0 0 0 0 1000 800 -1 "], "not there"),
            (&["1 x 0 0 0 0 0 0 1000 800 -1 "], "no numbers"),
        ] {
            let reason = read_all(&table(wrong), &[SIZE, SIZE, SIZE, SIZE]).unwrap_err();
            assert!(reason.contains(why), "{reason}: {why}");
        }
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
