//! Prints tables for people and JSON lines for programs.
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Prints a line; it is an error if nobody reads any more, as behind `| head`.
macro_rules! say {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout().lock(), format_args!("{}\n", format_args!($($text)*)))?
    };
}
pub(super) use say;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Table,
    Json,
}

impl Output {
    /// A terminal gets a table and a pipe gets JSON lines, unless told otherwise.
    pub fn choose(json: bool, table: bool) -> Output {
        if json || (!table && !io::stdout().is_terminal()) { Output::Json } else { Output::Table }
    }

    /// One JSON line.
    pub fn line(value: &impl Serialize) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, value)?;
        out.write_all(b"\n")
    }

    /// Prints rows under their headings, with columns as wide as necessary; the last column is not padded.
    pub fn table(headings: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let mut out = io::stdout().lock();
        let mut print = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(out, "{}", cells.join("  ").trim_end())
        };
        print(&mut headings.iter().copied())?;
        for row in rows {
            print(&mut row.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// A number of things, in words.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A text on one line with at most `most` characters. Nothing in a document can control the terminal.
pub fn one_line(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= most {
        return line;
    }
    let cut: String = line.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::{count, one_line};

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "leaf", "leaves")), ["0 leaves", "1 leaf", "2 leaves"]);
    }

    #[test]
    fn a_line_is_a_line_and_never_a_command() {
        assert_eq!(one_line("a\n  b\tc", 10), "a b c");
        assert_eq!(one_line("\u{1b}[2Jboo", 10), "[2Jboo");
        assert_eq!(one_line("one two three", 8), "one two…");
    }
}
