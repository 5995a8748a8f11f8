//! Prints tables for people and JSON lines for programs.
use serde::Serialize;
use std::{
    fmt::Arguments,
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether what is printed only tells of work, which goes on where nobody reads that.
static GOES_ON_UNREAD: AtomicBool = AtomicBool::new(false);

/// Has the command do its work to the end, also where nobody reads any more what it prints, as behind `| head`.
pub fn go_on_unread() {
    GOES_ON_UNREAD.store(true, Ordering::Relaxed);
}

/// Whether the command does its work to the end without a reader.
pub fn goes_on_unread() -> bool {
    GOES_ON_UNREAD.load(Ordering::Relaxed)
}

/// Writes to standard output. It is an error if nobody reads any more, unless the work goes on without a reader.
fn write(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && goes_on_unread() => Ok(()),
        written => written,
    }
}

/// Prints a line, in which nothing controls the terminal; an error ends the command.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::output::print(format_args!($($text)*))?
    };
}
pub(super) use say;

/// Tells a person something beside the output, whether or not anybody reads it.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::cli::output::beside(format_args!($($text)*))
    };
}
pub(crate) use tell;

/// What [`tell!`] does.
pub fn beside(text: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// What [`say!`] does.
pub fn print(text: Arguments<'_>) -> io::Result<()> {
    write(&format!("{}\n", harmless(&text.to_string())))
}

/// JSON with the control characters that it may leave as they are, and that some terminals obey, in escapes.
fn escaped(json: &str) -> String {
    let escape = |character: char| match character.is_control() {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.to_string(),
    };
    json.chars().map(escape).collect()
}

/// A text without what could control the terminal: it keeps its lines and tabs.
pub fn harmless(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

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
        let mut line = serde_json::to_string(value)?;
        if line.contains(char::is_control) {
            line = escaped(&line);
        }
        line.push('\n');
        write(&line)
    }

    /// Prints rows under their headings, with columns as wide as necessary; the last column is not padded. Nothing in a cell controls the
    /// terminal or begins another row.
    pub fn table(headings: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let cell = |cell: &String| cell.replace(char::is_control, " ");
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let print = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            write(&format!("{}\n", cells.join("  ").trim_end()))
        };
        print(&mut headings.iter().copied())?;
        for row in &rows {
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
    use super::{count, escaped, harmless, one_line};

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "leaf", "leaves")), ["0 leaves", "1 leaf", "2 leaves"]);
    }

    #[test]
    fn a_line_is_a_line_and_never_a_command() {
        assert_eq!(one_line("a\n  b\tc", 10), "a b c");
        assert_eq!(one_line("\u{1b}[2Jboo", 10), "[2Jboo");
        assert_eq!(one_line("one two three", 8), "one two…");
        assert_eq!(escaped("\"a\u{9b}b\u{7f}\""), r#""a\u009bb\u007f""#);
        assert_eq!(harmless("a\tb\n\u{1b}[2Jc\r\u{9b}d"), "a\tb\n[2Jcd");
    }
}
