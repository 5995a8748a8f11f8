//! The number format of each cell style.

use super::{
    markup::{Mark, Markup},
    number_format::{NumberFormat, builtin},
};
use crate::{FormatError, Limit, Limits};
use std::{collections::HashMap, io::Read};

/// How many styles and formats are kept; spreadsheets allow 65,490 and about 250.
const MAX_STYLES: usize = 1 << 17;

pub(super) fn check_styles(count: usize) -> Result<(), FormatError> {
    if count > MAX_STYLES {
        let detail = format_args!("the workbook has over {MAX_STYLES} cell styles");
        return Err(FormatError::over(Limit::Cells, detail));
    }
    Ok(())
}

/// Number formats by the style index of cells.
pub(super) struct Styles {
    formats: Vec<NumberFormat>,
    /// Style index to index in `formats`.
    by_style: Vec<u32>,
}

impl Default for Styles {
    fn default() -> Self {
        Self { formats: vec![NumberFormat::new("General")], by_style: Vec::new() }
    }
}

impl Styles {
    pub(super) fn read<S: Read>(part: S, limits: &Limits) -> Result<Self, FormatError> {
        let mut xml = Markup::new(part, limits);
        let mut codes: HashMap<u32, String> = HashMap::new();
        let mut ids: Vec<u32> = Vec::new();
        let mut in_cell_formats = false;
        while let Some(mark) = xml.next()? {
            let Mark::Start { empty } = mark else { continue };
            match xml.name() {
                "numFmt" => {
                    let id = xml.attribute("numFmtId").and_then(|id| id.trim().parse().ok());
                    // Differential formats come after the cells' formats and repeat ids.
                    if let (Some(id), Some(code)) = (id, xml.attribute("formatCode")) {
                        codes.entry(id).or_insert_with(|| code.into_owned());
                    }
                }
                "cellXfs" => in_cell_formats = !empty,
                "cellStyles" | "dxfs" | "cellStyleXfs" => in_cell_formats = false,
                "xf" if in_cell_formats => {
                    ids.push(xml.attribute("numFmtId").and_then(|id| id.trim().parse().ok()).unwrap_or(0));
                }
                _ => {}
            }
            check_styles(ids.len().max(codes.len()))?;
        }
        Ok(Self::of(&ids, &codes))
    }

    /// Makes the styles whose formats have these ids; those of `codes` win over the builtin ones.
    pub(super) fn of(ids: &[u32], codes: &HashMap<u32, String>) -> Self {
        let mut styles = Self::default();
        let mut known: HashMap<u32, u32> = HashMap::new();
        for &id in ids {
            let formats = &mut styles.formats;
            let index = *known.entry(id).or_insert_with(|| {
                let format = match codes.get(&id) {
                    Some(code) => Some(NumberFormat::new(code)),
                    None => builtin(id),
                };
                format.map_or(0, |format| {
                    formats.push(format);
                    (formats.len() - 1) as u32
                })
            });
            styles.by_style.push(index);
        }
        styles
    }

    /// The index of a style's format; a style that the file does not define is General.
    pub(super) fn format_of(&self, style: u32) -> u32 {
        self.by_style.get(style as usize).copied().unwrap_or(0)
    }

    pub(super) fn format(&self, index: u32) -> &NumberFormat {
        // The first format always exists.
        self.formats.get(index as usize).unwrap_or(&self.formats[0])
    }
}
