//! Properties of paragraphs, runs, cells and rows.

use super::{Converter, Open};
use crate::{
    FormatError,
    docx::{frames::Frame, styles},
    markdown::Table,
    xml::{Element, Node},
};
use std::io::Read;

/// No sheet of paper holds a wider span.
const MAX_SPAN: usize = 63;

impl<R: Read> Converter<'_, R> {
    /// Reads the children of a properties element that just began, until its end.
    fn properties(&mut self, mut note: impl FnMut(&mut Self, &Element)) -> Result<(), FormatError> {
        let mut depth = 1u32;
        while depth > 0 {
            match self.xml.next()? {
                // This holds the properties before a tracked change.
                Some(Node::Start(element)) if element.name.ends_with("Change") => self.xml.skip()?,
                Some(Node::Start(element)) => {
                    depth += 1;
                    note(self, &element);
                }
                Some(Node::End) => depth -= 1,
                Some(Node::Text(_)) => {}
                None => break,
            }
        }
        Ok(())
    }

    pub(super) fn paragraph_properties(&mut self) -> Result<(), FormatError> {
        let mut is_numbered = false;
        self.properties(|converter, element| {
            let Some(Frame::Paragraph(paragraph)) = converter.frames.last_mut() else { return };
            match element.name.as_str() {
                "pStyle" => {
                    paragraph.style = element.value().map(str::to_owned);
                    paragraph.hidden = paragraph.style.as_deref().is_some_and(|style| converter.styles.hides(style));
                }
                // The paragraph's mark was deleted or moved away.
                "del" | "moveFrom" => paragraph.mark_deleted = true,
                "vanish" => paragraph.mark_hidden = Some(styles::is_on(element)),
                "sectPr" => paragraph.ends_section = true,
                "numPr" => is_numbered = true,
                "outlineLvl" => {
                    paragraph.heading = styles::outline_level(element).and_then(styles::level_of_outline);
                }
                name => paragraph.place.note(name, element.value()),
            }
        })?;
        self.evidence.numbered += u64::from(is_numbered);
        Ok(())
    }

    pub(super) fn run_properties(&mut self) -> Result<(), FormatError> {
        if self.open.last() != Some(&Open::Run) {
            return self.xml.skip();
        }
        self.properties(|converter, element| {
            let Some(run) = converter.runs.last_mut() else { return };
            match element.name.as_str() {
                "vanish" => run.hidden = Some(styles::is_on(element)),
                "vertAlign" => run.is_raised = element.value() == Some("superscript"),
                "rFonts" => {
                    run.font = element.attribute("ascii").or(element.attribute("hAnsi")).map(str::to_owned);
                }
                "rStyle" => {
                    let (styles, style) = (converter.styles, element.value().unwrap_or_default());
                    run.hidden = run.hidden.or(styles.hides(style).then_some(true));
                    run.is_raised |= styles.raises(style);
                }
                _ => {}
            }
        })
    }

    /// Reads what a field of a form shows: Word keeps it apart from the text.
    pub(super) fn form_field(&mut self) -> Result<(), FormatError> {
        let mut form = FormField::default();
        self.properties(|_, element| form.note(element))?;
        if let (Some(Frame::Paragraph(paragraph)), Some(shown)) = (self.frames.last_mut(), form.shown()) {
            paragraph.fields.shows(shown);
        }
        Ok(())
    }

    pub(super) fn cell_properties(&mut self) -> Result<(), FormatError> {
        if self.open.last() != Some(&Open::Cell) {
            return self.xml.skip();
        }
        self.properties(|converter, element| {
            let Some(Frame::Cell(cell)) = converter.frames.last_mut() else { return };
            match element.name.as_str() {
                "gridSpan" => cell.span = count(element).max(1),
                // Without a value it continues the cell above or to the left.
                "vMerge" | "hMerge" => cell.continues = element.value() != Some("restart"),
                "cellDel" => cell.deleted = true,
                _ => {}
            }
        })
    }

    pub(super) fn row_properties(&mut self) -> Result<(), FormatError> {
        if self.open.last() != Some(&Open::Row) {
            return self.xml.skip();
        }
        self.properties(|converter, element| {
            let Some(Frame::Table(table)) = converter.frames.last_mut() else { return };
            match element.name.as_str() {
                "gridBefore" => {
                    table.markdown.blanks(count(element));
                    converter.held += count(element) * Table::BLANK_BYTES;
                }
                "gridAfter" => table.blanks_after = count(element),
                "del" => {
                    let own = |name: &str| element.attribute(name).unwrap_or_default().to_owned();
                    table.row_deleted = Some((own("author"), own("date")));
                }
                _ => {}
            }
        })
    }
}

/// A box that may be ticked, or a list of which one entry is chosen.
#[derive(Default)]
struct FormField {
    is_box: bool,
    is_ticked: Option<bool>,
    default: Option<String>,
    chosen: Option<usize>,
    entries: Vec<String>,
}

impl FormField {
    /// Word allows 25 entries.
    const MOST_ENTRIES: usize = 1_000;

    fn note(&mut self, element: &Element) {
        let value = element.value().map(str::to_owned);
        match element.name.as_str() {
            "checkBox" => self.is_box = true,
            "checked" => self.is_ticked = Some(styles::is_on(element)),
            "default" => self.default = value,
            "result" => self.chosen = value.and_then(|value| value.parse().ok()),
            "listEntry" if self.entries.len() < Self::MOST_ENTRIES => self.entries.extend(value),
            _ => {}
        }
    }

    fn shown(mut self) -> Option<String> {
        let default = self.default.as_deref();
        if self.is_box {
            let is_ticked = self.is_ticked.unwrap_or(matches!(default, Some("1" | "true" | "on")));
            return Some(if is_ticked { "☒" } else { "☐" }.to_owned());
        }
        let chosen = self.chosen.or_else(|| default?.parse().ok()).unwrap_or_default();
        (chosen < self.entries.len()).then(|| self.entries.swap_remove(chosen))
    }
}

/// The number of columns that an element spans or leaves out.
fn count(element: &Element) -> usize {
    element.value().and_then(|value| value.parse().ok()).unwrap_or(0).min(MAX_SPAN)
}
