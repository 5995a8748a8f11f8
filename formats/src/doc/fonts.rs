//! The fonts of a document by their numbers (SttbfFfn).

use crate::compound::short;

/// Where the name of a font begins, behind its weight, its character set, its shape and the scripts that it has.
const NAME: usize = 39;

pub(super) struct Fonts(Vec<String>);

impl Fonts {
    pub(super) fn read(part: &[u8]) -> Self {
        let count = usize::from(short(part, 0).unwrap_or_default());
        // The size of what else each entry has comes second.
        let more = usize::from(short(part, 2).unwrap_or_default());
        let mut rest = part.get(4..).unwrap_or_default();
        let mut fonts = Vec::new();
        while let (true, Some((&length, after))) = (fonts.len() < count, rest.split_first()) {
            let length = usize::from(length);
            let Some(font) = after.get(..length) else { break };
            fonts.push(name(font));
            rest = after.get(length + more..).unwrap_or_default();
        }
        Self(fonts)
    }

    /// The name of a font.
    pub(super) fn name(&self, number: u16) -> Option<&str> {
        self.0.get(usize::from(number)).map(String::as_str)
    }
}

/// The name of a font ends with a zero, and that of another one that may stand for it follows.
fn name(font: &[u8]) -> String {
    let units = (NAME..).step_by(2).map_while(|at| short(font, at)).take_while(|unit| *unit != 0);
    char::decode_utf16(units).map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
