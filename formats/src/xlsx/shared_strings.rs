//! The table of texts that cells refer to by index.

use super::{
    book::See,
    markup::{Mark, Markup},
};
use crate::{
    FormatError, Limit, Limits,
    extraction::check_text,
    markdown::{begins_raised, is_raised_run},
};
use std::{
    collections::{BTreeSet, HashMap},
    io::{self, BufReader, Read, Write},
};

/// All texts, or those that were asked for, in one piece of memory.
#[derive(Default)]
pub(super) struct SharedStrings {
    text: String,
    /// Where each text ends in `text`.
    ends: Vec<u32>,
    /// Index in the file to index in `ends`, if not all were kept.
    kept: Option<HashMap<u32, usize>>,
}

impl SharedStrings {
    /// Keeps all texts that `each` passes on.
    pub(super) fn read(
        each: impl FnOnce(&mut See<'_>) -> Result<(), FormatError>,
        limits: &Limits,
    ) -> Result<Self, FormatError> {
        let mut strings = Self::default();
        each(&mut |_, text| {
            strings.keep(text, limits)?;
            Ok(true)
        })?;
        Ok(strings)
    }

    /// Keeps the texts with these indices, and wants none after the last of them.
    pub(super) fn read_some(
        each: impl FnOnce(&mut See<'_>) -> Result<(), FormatError>,
        wanted: &BTreeSet<u32>,
        limits: &Limits,
    ) -> Result<Self, FormatError> {
        let mut strings = Self::default();
        let mut kept = HashMap::with_capacity(wanted.len());
        if let Some(&last) = wanted.last() {
            each(&mut |index, text| {
                if wanted.contains(&index) {
                    kept.insert(index, strings.ends.len());
                    strings.keep(text, limits)?;
                }
                Ok(index < last)
            })?;
        }
        strings.kept = Some(kept);
        Ok(strings)
    }

    /// Keeps all texts of a table that [`write`] wrote.
    pub(super) fn read_written(table: impl Read, limits: &Limits) -> Result<Self, FormatError> {
        let mut table = BufReader::with_capacity(1 << 18, table);
        let mut strings = Self::default();
        let (mut length, mut text) = ([0; size_of::<u32>()], Vec::new());
        loop {
            match table.read_exact(&mut length) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(strings),
                Err(error) => return Err(error.into()),
            }
            text.clear();
            let length = u64::from(u32::from_le_bytes(length));
            let read = table.by_ref().take(length).read_to_end(&mut text)?;
            let text = str::from_utf8(&text).ok().filter(|_| read as u64 == length);
            let text = text.ok_or_else(|| FormatError::Io { reason: "the table of texts broke off".to_owned() })?;
            strings.keep(text, limits)?;
        }
    }

    fn keep(&mut self, text: &str, limits: &Limits) -> Result<(), FormatError> {
        self.text.push_str(text);
        check_text(self.text.len(), limits)?;
        // No sheet has more cells, and a text in no cell is useless; but a workbook may have several sheets.
        let most = limits.cells.saturating_mul(4);
        let end = u32::try_from(self.text.len()).ok().filter(|_| (self.ends.len() as u64) < most);
        let Some(end) = end else {
            return Err(FormatError::over(Limit::Cells, format_args!("over {most} shared strings")));
        };
        self.ends.push(end);
        Ok(())
    }

    /// The text of an index, if the table has it.
    pub(super) fn get(&self, index: u32) -> Option<&str> {
        let index = match &self.kept {
            Some(kept) => *kept.get(&index)?,
            None => index as usize,
        };
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }
}

/// The number of texts in a batch.
const BATCH_TEXTS: usize = 4096;
/// The bytes of text in a batch, unless one text is longer.
const BATCH_BYTES: usize = 256 << 10;

/// Hands out all texts, in batches.
pub(super) fn batches(
    each: impl FnOnce(&mut See<'_>) -> Result<(), FormatError>,
    emit: &mut dyn FnMut(Vec<String>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    each(&mut |_, text| {
        if batch.len() == BATCH_TEXTS || (bytes > 0 && bytes + text.len() > BATCH_BYTES) {
            bytes = 0;
            emit(std::mem::take(&mut batch))?;
        }
        bytes += text.len();
        batch.push(text.to_owned());
        Ok(true)
    })?;
    if batch.is_empty() { Ok(()) } else { emit(batch) }
}

/// Appends texts to a table that later readings of the same workbook use instead of its XML. The table has the length
/// of each text as four little-endian bytes, then the text.
pub(super) fn write(out: &mut impl Write, texts: &[String]) -> io::Result<()> {
    texts.iter().try_for_each(|text| {
        out.write_all(&u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes())?;
        out.write_all(text.as_bytes())
    })
}

/// Passes each text of an XML part and its index to `see`, until `see` says that it has enough.
pub(super) fn each<S: Read>(part: S, limits: &Limits, see: &mut See<'_>) -> Result<(), FormatError> {
    let mut xml = Markup::new(part, limits);
    let (mut index, mut text) = (0u32, String::new());
    while let Some(mark) = xml.next()? {
        let Mark::Start { empty } = mark else { continue };
        if xml.name() != "si" {
            continue;
        }
        text.clear();
        if !empty {
            rich_text(&mut xml, &mut text)?;
        }
        if !see(index, &text)? {
            return Ok(());
        }
        index = index.saturating_add(1);
    }
    Ok(())
}

/// Appends the text of the `si`, `is` or comment text that just began: its plain text and its runs, without phonetic
/// hints.
pub(super) fn rich_text<S: Read>(xml: &mut Markup<S>, out: &mut String) -> Result<(), FormatError> {
    let start = out.len();
    runs(xml, out, &mut false)?;
    unescape(out, start);
    Ok(())
}

fn runs<S: Read>(xml: &mut Markup<S>, out: &mut String, was_raised: &mut bool) -> Result<(), FormatError> {
    let mut is_raised = false;
    loop {
        match xml.next()? {
            Some(Mark::Start { empty: false }) => match xml.name() {
                "t" => {
                    let (start, begins) = (out.len(), begins_raised(out, is_raised, was_raised));
                    xml.text(out)?;
                    // A raised number would read as a part of the one before it.
                    if begins && is_raised_run(&out[start..]) {
                        out.insert(start, '^');
                    }
                }
                // The reader limits how deep elements nest.
                "r" => runs(xml, out, was_raised)?,
                "rPr" => is_raised = raises(xml)?,
                _ => xml.skip()?,
            },
            Some(Mark::End) | None => return Ok(()),
            Some(_) => {}
        }
    }
}

/// Whether the properties of a run that just began raise its text.
fn raises<S: Read>(xml: &mut Markup<S>) -> Result<bool, FormatError> {
    let mut is_raised = false;
    loop {
        match xml.next()? {
            Some(Mark::Start { empty }) => {
                if xml.name() == "vertAlign" {
                    is_raised = xml.attribute("val").as_deref() == Some("superscript");
                }
                if !empty {
                    xml.skip()?;
                }
            }
            Some(Mark::End) | None => return Ok(is_raised),
            Some(_) => {}
        }
    }
}

/// Resolves `_x000D_` and similar escapes from `start` on, and drops NUL, which no text may hold.
pub(super) fn unescape(text: &mut String, start: usize) {
    let bytes = &text.as_bytes()[start..];
    if memchr::memmem::find(bytes, b"_x").is_none() && memchr::memchr(0, bytes).is_none() {
        return;
    }
    let mut units: Vec<u16> = Vec::new();
    let mut out = String::with_capacity(text.len() - start);
    let mut rest = &text[start..];
    while !rest.is_empty() {
        // Consecutive escapes may be the halves of one character.
        while let Some(unit) = escape(rest) {
            units.push(unit);
            rest = &rest[ESCAPE_BYTES..];
        }
        out.extend(char::decode_utf16(units.drain(..)).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)));
        let next = rest.char_indices().skip(1).find(|(_, character)| *character == '_');
        let (plain, after) = rest.split_at(next.map_or(rest.len(), |(at, _)| at));
        out.push_str(plain);
        rest = after;
    }
    out.retain(|character| character != '\0');
    text.truncate(start);
    text.push_str(&out);
}

const ESCAPE_BYTES: usize = "_x000D_".len();

fn escape(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("_x")?.get(..4)?;
    (text.as_bytes().get(ESCAPE_BYTES - 1) == Some(&b'_') && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(text: &str) -> String {
        let mut text = text.to_owned();
        unescape(&mut text, 0);
        text
    }

    #[test]
    fn escapes_are_the_characters_they_stand_for() {
        for (text, plain) in [
            ("a_x000D_\nb", "a\r\nb"),
            ("_x005F_x000D_", "_x000D_"),
            ("_xD83D__xDE00_!", "\u{1F600}!"),
            ("_xD83D_!", "\u{FFFD}!"),
            ("_x0000_a", "a"),
            ("a\0b", "ab"),
            ("a_b_xyz_ _x12_ _x000d", "a_b_xyz_ _x12_ _x000d"),
            ("__x0041_", "_A"),
            ("_x0041", "_x0041"),
            ("é_x0041_é", "éAé"),
        ] {
            assert_eq!(unescaped(text), plain, "{text}");
        }
    }

    fn table(xml: &str, limits: &Limits) -> Result<SharedStrings, FormatError> {
        SharedStrings::read(|see| each(xml.as_bytes(), limits, see), limits)
    }

    #[test]
    fn runs_join_and_phonetic_hints_are_left_out() {
        let xml = "<sst><si><t>plain</t></si><si><r><rPr><b/></rPr><t>rich </t></r><r><t>text</t></r>\
            <rPh sb=\"0\" eb=\"1\"><t>hint</t></rPh><phoneticPr fontId=\"1\"/></si><si/><si><t>a &amp; b</t></si></sst>";
        let strings = table(xml, &Limits::default()).unwrap();
        let all: Vec<_> = (0..5).map(|index| strings.get(index)).collect();
        assert_eq!(all, [Some("plain"), Some("rich text"), Some(""), Some("a & b"), None]);
        let some = SharedStrings::read_some(
            |see| each(xml.as_bytes(), &Limits::default(), see),
            &BTreeSet::from([3, 1, 9]),
            &Limits::default(),
        );
        let some = some.unwrap();
        let found: Vec<_> = [0, 1, 3, 9].map(|index| some.get(index)).into();
        assert_eq!(found, [None, Some("rich text"), Some("a & b"), None]);
    }

    #[test]
    fn a_raised_number_is_no_part_of_the_number_before_it() {
        let run = |align: &str, text: &str| format!("<r><rPr><b/><vertAlign val=\"{align}\"/></rPr><t>{text}</t></r>");
        for (runs, expected) in [
            (format!("<r><t>2019</t></r>{}", run("superscript", "1")), "2019^1"),
            (
                run("baseline", "10") + &run("superscript", "1") + &run("superscript", "2") + &run("baseline", "5"),
                "10^125",
            ),
            (run("baseline", "1") + &run("superscript", "st") + &run("subscript", "2"), "1st2"),
            (run("baseline", "m") + &run("superscript", "2"), "m2"),
            (run("baseline", "10") + &run("superscript", "−") + &run("superscript", "6"), "10^−6"),
        ] {
            let strings = table(&format!("<sst><si>{runs}</si></sst>"), &Limits::default()).unwrap();
            assert_eq!(strings.get(0), Some(expected), "{runs}");
        }
    }

    #[test]
    fn a_written_table_reads_as_the_first_one() {
        let long = "y".repeat(BATCH_BYTES);
        let xml = format!(
            "<sst><si><t>a</t></si><si/><si><t>{long}</t></si>{}</sst>",
            "<si><t>é</t></si>".repeat(BATCH_TEXTS)
        );
        let (mut written, mut sizes) = (Vec::new(), Vec::new());
        let limits = Limits::default();
        batches(|see| each(xml.as_bytes(), &limits, see), &mut |texts| {
            sizes.push(texts.len());
            Ok(write(&mut written, &texts)?)
        })
        .unwrap();
        assert_eq!(sizes, [2, 1, BATCH_TEXTS]);
        let (first, again) =
            (table(&xml, &limits).unwrap(), SharedStrings::read_written(&written[..], &limits).unwrap());
        assert_eq!((&first.text, &first.ends), (&again.text, &again.ends));
        assert!(SharedStrings::read_written(&written[..written.len() - 1], &limits).is_err(), "half a text");
        assert!(SharedStrings::read_written(&[1, 0, 0, 0, 0xFF][..], &limits).is_err(), "no text");
        assert!(SharedStrings::read_written(&[0xFF; 8][..], &limits).is_err(), "a length over what follows");
        let small = Limits { text_bytes: 10, ..limits };
        let error = SharedStrings::read_written(&written[..], &small).err();
        assert_eq!(
            error.and_then(|error| error.limit()),
            Some(Limit::TextBytes),
            "a written table is bounded as the first"
        );
        assert!(SharedStrings::read_written(&[][..], &small).unwrap().get(0).is_none());
    }

    #[test]
    fn the_table_is_bounded() {
        let xml = format!("<sst>{}</sst>", "<si><t>12345678</t></si>".repeat(10));
        let limits = Limits { text_bytes: 79, ..Limits::default() };
        assert_eq!(table(&xml, &limits).err().and_then(|error| error.limit()), Some(Limit::TextBytes));
        let limits = Limits { cells: 2, ..Limits::default() };
        assert_eq!(table(&xml, &limits).err().and_then(|error| error.limit()), Some(Limit::Cells));
    }
}
