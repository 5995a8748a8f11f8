//! A table in GFM, written row by row; a row is only kept as its text.

/// The rows so far. The first is the header, which GFM demands, and the widest gives the number of columns.
#[derive(Debug, Default)]
pub(crate) struct Table {
    header: String,
    header_cells: usize,
    rows: String,
    /// The row being written.
    row: String,
    row_cells: usize,
    count: usize,
    columns: usize,
    has_text: bool,
}

impl Table {
    /// The size of an empty cell in bytes.
    pub(crate) const BLANK_BYTES: usize = BLANK.len();

    /// Adds a cell to the row: white space becomes single blanks, and bars are escaped.
    pub(crate) fn cell(&mut self, text: &str) {
        self.row_cells += 1;
        let start = self.row.len();
        let mut words = text.split_whitespace();
        if let Some(word) = words.next() {
            self.row.push(' ');
            push_escaped(&mut self.row, word);
        }
        for word in words {
            self.row.push(' ');
            push_escaped(&mut self.row, word);
        }
        if self.row.len() == start {
            self.row.push(' ');
        }
        self.row.push_str(" |");
        self.has_text |= self.row.len() > start + BLANK.len();
    }

    /// Adds empty cells for what a span covers or a row leaves out.
    pub(crate) fn blanks(&mut self, count: usize) {
        self.row_cells += count;
        self.row.extend(std::iter::repeat_n(BLANK, count));
    }

    /// Ends the row; a row without cells gets one.
    pub(crate) fn end_row(&mut self) {
        if self.row_cells == 0 {
            self.blanks(1);
        }
        self.columns = self.columns.max(self.row_cells);
        if self.count == 0 {
            self.header = std::mem::take(&mut self.row);
            self.header_cells = self.row_cells;
        } else {
            self.rows.push_str("\n|");
            self.rows.push_str(&self.row);
            self.row.clear();
        }
        self.row_cells = 0;
        self.count += 1;
    }

    /// Takes the row back and returns its text.
    pub(crate) fn drop_row(&mut self) -> String {
        self.row_cells = 0;
        let mut row = std::mem::take(&mut self.row);
        row.truncate(row.trim_end_matches(" |").len());
        row
    }

    /// Whether any cell has text.
    pub(crate) fn has_text(&self) -> bool {
        self.has_text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends the table to a text.
    pub(crate) fn write(self, out: &mut String) {
        out.push('|');
        out.push_str(&self.header);
        // The header sets the width. Shorter rows below are valid, and filling each to a hostile width would be
        // quadratic.
        out.extend(std::iter::repeat_n(BLANK, self.columns - self.header_cells));
        out.push_str("\n|");
        out.extend(std::iter::repeat_n(" --- |", self.columns));
        out.push_str(&self.rows);
    }
}

const BLANK: &str = "  |";

/// A backslash before a bar is doubled, because parsers disagree on whether it then escapes the bar.
fn push_escaped(out: &mut String, word: &str) {
    let mut rest = word;
    while let Some(at) = rest.find('|') {
        let (before, after) = rest.split_at(at);
        let slashes = before.len() - before.trim_end_matches('\\').len();
        out.push_str(before);
        out.extend(std::iter::repeat_n('\\', slashes + 1));
        out.push('|');
        rest = &after[1..];
    }
    out.push_str(rest);
}
