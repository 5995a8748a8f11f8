//! The titles above a chunk, by which it is found although they are not in its text.
use crate::{store::nodes::TextRow, usetype::Usetype};

/// The most titles that stand before a chunk, and the most bytes of them; those nearest to it come first.
const MOST: usize = 8;
const MOST_BYTES: usize = 1200;
/// What names of files end with.
const EXTENSIONS: [&str; 37] = [
    "bmp", "csv", "doc", "docx", "eml", "epub", "gif", "htm", "html", "ipynb", "jpeg", "jpg", "json", "jsonl", "log",
    "md", "msg", "odp", "ods", "odt", "pdf", "png", "ppt", "pptx", "rst", "rtf", "srt", "tif", "tiff", "tsv", "txt",
    "vtt", "webp", "xls", "xlsb", "xlsx", "xml",
];

/// Those of the titles from a document down to a chunk's parent that tell something: not the numbers of pages, slides and segments, not twice the
/// same, and of a file's name neither its extension nor mere numbers.
pub fn telling(titles: &[String]) -> Vec<&str> {
    let (mut telling, mut bytes): (Vec<&str>, usize) = (Vec::new(), 0);
    for (at, title) in titles.iter().enumerate().rev() {
        let title = if at == 0 { without_extension(title.trim()) } else { title.trim() };
        let is_said = telling.last().is_some_and(|below| below.to_lowercase() == title.to_lowercase());
        if title.is_empty() || is_said || is_made_up(title) {
            continue;
        }
        bytes += title.len();
        if telling.len() == MOST || bytes > MOST_BYTES {
            break;
        }
        telling.push(title);
    }
    telling.reverse();
    telling
}

/// The titles that a text is embedded with, from the top down. What begins with its own heading need not be told it.
pub fn before(row: &TextRow) -> Vec<&str> {
    let mut before = if row.content.trim().is_empty() { Vec::new() } else { telling(&row.titles) };
    before.pop_if(|nearest| is_heading_of(nearest, &row.content));
    before
}

/// A text behind its titles.
pub fn join<'a>(titles: impl IntoIterator<Item = &'a str>, text: &'a str) -> String {
    titles.into_iter().chain([text]).collect::<Vec<_>>().join("\n")
}

/// Whether a text begins with this title, as the first chunk under a heading does.
fn is_heading_of(title: &str, content: &str) -> bool {
    content.trim_start().lines().next().is_some_and(|line| line.trim_start_matches('#').trim() == title)
}

/// Whether a document without a text is found by its title: ingestion numbers pages, slides and segments, and what holds summaries is no result.
pub fn is_telling(usetype: &str, title: &str) -> bool {
    match Usetype::named(usetype) {
        Some(Usetype::Section) => !is_made_up(title.trim()),
        usetype => usetype != Some(Usetype::Raptor),
    }
}

/// Whether ingestion gave this title to a part that had none.
fn is_made_up(title: &str) -> bool {
    let number = ["Page ", "Segment ", "Slide "].iter().find_map(|word| title.strip_prefix(word));
    title == "Untitled section" || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn without_extension(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, extension)) if EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)) => {
            if stem.chars().any(char::is_alphabetic) { stem } else { "" }
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(titles: &[&str]) -> Vec<String> {
        let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
        telling(&titles).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_title_that_tells_nothing_is_left_out() {
        let cases: [(&[&str], &[&str]); 6] = [
            (&["Annual report.PDF", "Income", "Page 12"], &["Annual report", "Income"]),
            (&["0012.md", "Wing flutter"], &["Wing flutter"]),
            (&["report.md", "Report", "Segment 3"], &["Report"]),
            (&["Node.js", "  ", "Untitled section", "Page layout"], &["Node.js", "Page layout"]),
            (&["notes", "config.json"], &["notes", "config.json"]),
            (&[], &[]),
        ];
        for (titles, expected) in cases {
            assert_eq!(told(titles), expected, "{titles:?}");
        }
    }

    #[test]
    fn of_many_titles_the_nearest_stay() {
        let many: Vec<String> = (0..240).map(|level| format!("Level {level}")).collect();
        assert_eq!(telling(&many), many[240 - MOST..].iter().map(String::as_str).collect::<Vec<_>>());
        let long = ["ä".repeat(300), "ö".repeat(300), "ü".repeat(300)];
        assert_eq!(telling(&long), [long[1].as_str(), long[2].as_str()]);
    }

    #[test]
    fn a_heading_is_recognised_in_the_text_that_it_begins() {
        for (content, expected) in [
            ("# Income\nIt rose.", true),
            ("\n\nIncome\n", true),
            ("Income rose.", false),
            ("It rose.\nIncome", false),
            ("", false),
        ] {
            assert_eq!(is_heading_of("Income", content), expected, "{content:?}");
        }
    }
}
