//! Values that stand together: a paragraph of names and values, under the path of the element that holds them.

use crate::{
    FormatError, Limits,
    markdown::{Block, Writer, one_line},
};

/// After so many bytes the path is said again, so that every chunk has it.
const PARAGRAPH: usize = 400;
/// A longer value stands alone.
const LINE: usize = 200;

#[derive(Default)]
pub(super) struct Fields {
    /// The element whose values they are, by its number.
    of: usize,
    path: String,
    line: String,
    /// The name of the last value, of which more may follow.
    last: String,
}

impl Fields {
    /// Adds a value; `path` names the element, and `name` the value in it, if anything does.
    pub(super) fn add(
        &mut self,
        (of, path): (usize, String),
        name: String,
        value: &str,
        (writer, limits): (&mut Writer, &Limits),
    ) -> Result<(), FormatError> {
        let value = one_line(value);
        if value.is_empty() {
            return Ok(());
        }
        if self.of != of || self.line.len() > PARAGRAPH || value.len() > LINE {
            self.write(writer, limits)?;
        }
        if value.len() > LINE {
            let names = [path, name].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(".");
            let text = if names.is_empty() { value } else { format!("{names}:\n{value}") };
            return writer.write(Block::Paragraph(text), limits).map(drop);
        }
        (self.of, self.path) = (of, path);
        if !self.line.is_empty() {
            self.line.push_str(if name == self.last { ", " } else { "; " });
        }
        if !name.is_empty() && (self.line.is_empty() || name != self.last) {
            self.line.push_str(&name);
            self.line.push_str(": ");
        }
        self.line.push_str(&value);
        self.last = name;
        Ok(())
    }

    /// Writes what was added.
    pub(super) fn write(&mut self, writer: &mut Writer, limits: &Limits) -> Result<(), FormatError> {
        let Self { path, line, .. } = std::mem::take(self);
        let text = if path.is_empty() { line } else { format!("{path}\n{line}") };
        if text.len() > path.len() + 1 || path.is_empty() {
            writer.write(Block::Paragraph(text), limits)?;
        }
        Ok(())
    }
}
