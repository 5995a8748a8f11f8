//! Reads legacy workbooks: the stream of records that Excel 97 to 2003 wrote (BIFF8), or Excel 5 and 95 (BIFF5), in a
//! compound file ([MS-XLS]).

mod locked;
mod records;
mod sheet;
#[cfg(test)]
mod tests;

use super::{
    NO_TEXT,
    book::{Book, Comments, Scan, See},
    built_in_password,
    moment::DateEpoch,
    office::check_sheets,
    range::CellRef,
    sheet::Comment,
    styles::{Styles, check_styles},
    tokens::{Layout, Surroundings},
    workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook},
};
use crate::{
    Access, Extraction, Format, FormatError, Limits, Pattern, Patterns, Secret, compound, extraction::check_text,
    opened::Opened, rtf,
};
use cfb::{CompoundFile, Stream};
use encoding_rs::WINDOWS_1252;
use records::{BEGIN, END, Records, refused};
use sheet::LegacySheet;
use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, Cursor, Read, Seek, Write},
    path::Path,
};

/// The streams that hold a workbook, the newer first; a file for both versions has both.
const STREAMS: [&str; 2] = ["/Workbook", "/Book"];

const CODE_PAGE: u16 = 0x0042;
const DATE_1904: u16 = 0x0022;
const FILE_PASS: u16 = 0x002F;
const BOUND_SHEET: u16 = 0x0085;
const FONT: u16 = 0x0031;
const FORMAT: u16 = 0x041E;
const EXTENDED_FORMAT: u16 = 0x00E0;
const STRINGS: u16 = 0x00FC;
const NAME: u16 = 0x0018;
const BOOK: u16 = 0x01AE;
const SHEET_REFERENCES: u16 = 0x0017;
const NOTE: u16 = 0x001C;
const OBJECT: u16 = 0x005D;
const TEXT_OBJECT: u16 = 0x01B6;

/// A compound file with a workbook, and what the first part of its stream says.
pub(super) struct Legacy<R> {
    file: CompoundFile<R>,
    stream: &'static str,
    /// Where the parts of the sheets begin.
    places: Vec<u64>,
    strings: Option<u64>,
    styles: Vec<u32>,
    codes: HashMap<u32, String>,
    /// The numbers of the fonts above the line.
    raised: HashSet<u16>,
    around: Surroundings,
}

/// Opens a workbook.
pub(super) fn open<'a, R: Read + Seek + 'a>(
    source: R,
    limits: &Limits,
) -> Result<(Box<dyn Book + 'a>, Workbook), FormatError> {
    let mut legacy = Legacy::new(source)?;
    match legacy.globals(limits) {
        Ok(workbook) => Ok((Box::new(legacy), workbook)),
        Err(FormatError::Encrypted { .. }) => {
            let mut legacy = Legacy::new(Cursor::new(legacy.unlocked(&built_in_password(), limits)?))?;
            let workbook = legacy.globals(limits)?;
            Ok((Box::new(legacy), workbook))
        }
        Err(error) => Err(error),
    }
}

impl<R: Read + Seek> Legacy<R> {
    fn new(source: R) -> Result<Self, FormatError> {
        let file = CompoundFile::open(source).map_err(|error| refused(&error))?;
        let stream = STREAMS.into_iter().find(|stream| file.is_stream(stream));
        let stream = stream.ok_or_else(|| damaged("it has no stream with a workbook"))?;
        let around = Surroundings {
            layout: Layout::Biff8,
            names: Vec::new(),
            sheets: Vec::new(),
            references: Vec::new(),
            encoding: WINDOWS_1252,
        };
        let (places, styles, codes) = (Vec::new(), Vec::new(), HashMap::new());
        Ok(Self { file, stream, places, strings: None, styles, codes, raised: HashSet::new(), around })
    }

    /// The bytes of the workbook without its lock.
    fn unlocked(&mut self, password: &Secret, limits: &Limits) -> Result<Vec<u8>, FormatError> {
        let stream = compound::read(&mut self.file, Path::new(self.stream), limits.input_bytes)?;
        let mut stream = stream.ok_or_else(|| damaged("its stream cannot be read"))?;
        locked::open(&mut stream, password)?;
        let written = CompoundFile::create(Cursor::new(Vec::new())).and_then(|mut file| {
            file.create_stream(self.stream)?.write_all(&stream)?;
            file.flush()?;
            Ok(file.into_inner().into_inner())
        });
        Ok(written?)
    }

    /// The records from a place in the workbook's stream on.
    fn records(&mut self, place: u64) -> Result<Records<Stream<R>>, FormatError> {
        let stream = self.file.open_stream(self.stream).map_err(|error| refused(&error))?;
        Records::from(stream, place)
    }

    /// Reads the first part of the stream, which is about the whole workbook.
    fn globals(&mut self, limits: &Limits) -> Result<Workbook, FormatError> {
        let mut records = self.records(0)?;
        if records.next()? != Some(BEGIN) {
            return Err(damaged("its stream does not begin with a workbook of Excel 5 or later"));
        }
        self.around.layout = match records.word(0) {
            0x0600 => Layout::Biff8,
            0x0500 => Layout::Biff5,
            other => return Err(damaged(format_args!("it has the unknown version {other:#06x}"))),
        };
        let is_unicode = self.around.layout == Layout::Biff8;
        let mut sheets = Vec::new();
        let mut date_epoch = DateEpoch::default();
        let mut names: Vec<(Vec<u8>, u16)> = Vec::new();
        let mut is_own_book = Vec::new();
        let mut fonts = 0u16;
        loop {
            match records.next()? {
                Some(END) | None => break,
                Some(FILE_PASS) => return Err(FormatError::Encrypted { format: Format::Xls }),
                Some(CODE_PAGE) => self.around.encoding = rtf::by_page(records.word(0).into()),
                Some(DATE_1904) if records.word(0) == 1 => date_epoch = DateEpoch::From1904,
                Some(BOUND_SHEET) => {
                    self.places.push(records.double_word(0).into());
                    let (state, kind) = (records.body().get(4).copied(), records.body().get(5).copied());
                    let length = records.body().get(6).copied().unwrap_or_default().into();
                    records.go_to(7);
                    let name = self.text(&mut records, length)?;
                    self.around.sheets.push(name.clone());
                    sheets.push(Sheet {
                        index: u32::try_from(sheets.len()).unwrap_or(u32::MAX),
                        name,
                        kind: match kind {
                            Some(0) => SheetKind::Worksheet,
                            Some(2) => SheetKind::Chartsheet,
                            _ => SheetKind::Macrosheet,
                        },
                        state: match state.unwrap_or_default() & 3 {
                            0 => SheetState::Visible,
                            1 => SheetState::Hidden,
                            _ => SheetState::VeryHidden,
                        },
                    });
                    check_sheets(sheets.len(), limits)?;
                }
                Some(FONT) => {
                    // No font has the number 4.
                    let number = if fonts < 4 { fonts } else { fonts.saturating_add(1) };
                    fonts = fonts.saturating_add(1);
                    if records.word(8) == 1 {
                        self.raised.insert(number);
                    }
                }
                Some(FORMAT) => {
                    let id = records.word(0).into();
                    let (length, at) =
                        if is_unicode { (records.word(2).into(), 4) } else { (records.word(2) as u8 as usize, 3) };
                    records.go_to(at);
                    let code = self.text(&mut records, length)?;
                    self.codes.insert(id, code);
                }
                Some(EXTENDED_FORMAT) => {
                    self.styles.push(records.word(2).into());
                    check_styles(self.styles.len())?;
                }
                Some(STRINGS) => self.strings = Some(records.place()),
                Some(NAME) => {
                    let (marks, tokens, sheet) = (records.word(0), records.word(4), records.word(8));
                    let length = records.body().get(3).copied().unwrap_or_default().into();
                    records.go_to(14);
                    let name = self.text(&mut records, length)?;
                    self.around.names.push(if marks & 0x20 != 0 { builtin_name(&name) } else { name });
                    if names.len() < Workbook::MAX_NAMES {
                        names.push((records.rest(tokens.into()).to_vec(), sheet));
                    }
                    // A name is named by tokens of two bytes.
                    if self.around.names.len() > usize::from(u16::MAX) {
                        return Err(damaged("it has too many names"));
                    }
                }
                Some(BOOK) => {
                    const OWN: u16 = 0x0401;
                    is_own_book.push(records.body().len() == 4 && records.word(2) == OWN);
                    if is_own_book.len() > usize::from(u16::MAX) {
                        return Err(damaged("it refers to too many workbooks"));
                    }
                }
                Some(SHEET_REFERENCES) if is_unicode => {
                    let references = records.body().get(2..).unwrap_or_default().chunks_exact(6).map(|reference| {
                        let word = |at: usize| u16::from_le_bytes([reference[at], reference[at + 1]]);
                        let is_own = is_own_book.get(usize::from(word(0))).copied().unwrap_or_default();
                        is_own.then(|| (word(2).into(), word(4).into()))
                    });
                    self.around.references = references.collect();
                }
                Some(_) => {}
            }
        }
        let cell = CellRef::new(1, 1);
        let refers_to = |tokens: &[u8]| cell.and_then(|cell| self.around.text(tokens, cell)).unwrap_or_default();
        let names = names.iter().zip(&self.around.names).map(|((tokens, sheet), name)| DefinedName {
            name: name.clone(),
            refers_to: refers_to(tokens),
            sheet: u32::from(*sheet).checked_sub(1),
        });
        let defined_names = names.collect();
        Ok(Workbook { sheets, date_epoch, defined_names })
    }

    /// A text of so many characters at the present place.
    fn text<S: BufRead + Seek>(&self, records: &mut Records<S>, length: usize) -> Result<String, FormatError> {
        match self.around.layout {
            Layout::Biff5 => records.encoded(length, self.around.encoding),
            _ => records.unicode(length),
        }
    }

    fn sheet_records(&mut self, sheet: u32) -> Result<Records<Stream<R>>, FormatError> {
        let place = self.places.get(sheet as usize).copied();
        self.records(place.ok_or_else(|| damaged(format_args!("it has no sheet number {sheet}")))?)
    }
}

impl<R: Read + Seek> Book for Legacy<R> {
    fn scan(&mut self, sheet: u32, limits: &Limits) -> Result<Box<dyn Scan + '_>, FormatError> {
        let records = self.sheet_records(sheet)?;
        Ok(Box::new(LegacySheet::new(records, &self.around, limits)))
    }

    fn styles(&mut self, _limits: &Limits) -> Result<Styles, FormatError> {
        Ok(Styles::of(&self.styles, &self.codes))
    }

    fn strings(&mut self, _limits: &Limits, see: &mut See<'_>) -> Result<(), FormatError> {
        let Some(place) = self.strings else { return Ok(()) };
        let mut records = self.records(place)?;
        records.next()?;
        let count = records.double_word(4);
        records.go_to(8);
        for index in 0..count {
            if !records.has_more()? {
                break;
            }
            let length = records.u16()?.into();
            if !see(index, &records.rich(length, &self.raised)?)? {
                break;
            }
        }
        Ok(())
    }

    fn comments(&mut self, sheet: u32, limits: &Limits) -> Result<Comments, FormatError> {
        let mut records = self.sheet_records(sheet)?;
        if self.around.layout == Layout::Biff5 {
            self.old_notes(&mut records, limits)
        } else {
            notes(&mut records, limits)
        }
    }
}

impl<R: Read + Seek> Legacy<R> {
    /// The notes of the older layout, which hold their texts. A long one goes on in a record without a row.
    fn old_notes<S: BufRead + Seek>(&self, records: &mut Records<S>, limits: &Limits) -> Result<Comments, FormatError> {
        const NO_ROW: u16 = u16::MAX;
        let mut comments = Comments::default();
        let mut open: Option<Comment> = None;
        while let Some(kind) = records.next_of_part()? {
            if kind != NOTE {
                continue;
            }
            let (row, column) = (records.word(0), records.word(2));
            let length = records.body().len().saturating_sub(6);
            records.go_to(6);
            let text = self.text(records, length)?;
            match &mut open {
                Some(note) if row == NO_ROW => {
                    note.text.push_str(&text);
                    check_text(note.text.len(), limits)?;
                }
                _ => {
                    let cell = sheet::place(row, column)?;
                    let note = Comment { cell, author: String::new(), text };
                    open.replace(note).map(|note| comments.add(note, limits)).transpose()?;
                }
            }
        }
        open.map(|note| comments.add(note, limits)).transpose()?;
        Ok(comments)
    }
}

/// The notes of a sheet: their texts stand in objects that come before them.
fn notes<S: BufRead + Seek>(records: &mut Records<S>, limits: &Limits) -> Result<Comments, FormatError> {
    let mut comments = Comments::default();
    let mut texts: HashMap<u16, String> = HashMap::new();
    let (mut object, mut bytes) = (0, 0);
    while let Some(kind) = records.next_of_part()? {
        match kind {
            OBJECT => object = records.word(6),
            TEXT_OBJECT => {
                let length = records.word(10).into();
                // The text begins in the record that this one goes on in.
                records.go_to(usize::MAX);
                if records.has_more()? {
                    let text = records.unicode(length)?;
                    bytes += text.len();
                    check_text(bytes, limits)?;
                    texts.insert(object, text);
                }
            }
            NOTE => {
                let (cell, object) = (sheet::place(records.word(0), records.word(2))?, records.word(6));
                let length = records.word(8).into();
                records.go_to(10);
                let author = records.unicode(length)?;
                let text = texts.remove(&object).unwrap_or_default();
                comments.add(Comment { cell, author, text }, limits)?;
            }
            _ => {}
        }
    }
    Ok(comments)
}

/// Measures what the workbook lists, and passes over its records for a note.
pub(super) fn probe<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Patterns, FormatError> {
    let limits = access.limits;
    let mut legacy = Legacy::new(source)?;
    let closed = Patterns::default().with(Pattern::IsEncrypted, true);
    let patterns = match legacy.globals(limits) {
        Ok(workbook) => return patterns(legacy, &workbook),
        Err(FormatError::Encrypted { .. }) => match (legacy.unlocked(&built_in_password(), limits), access.password) {
            (Ok(bytes), _) => {
                let mut legacy = Legacy::new(Cursor::new(bytes))?;
                let workbook = legacy.globals(limits)?;
                return patterns(legacy, &workbook);
            }
            (Err(FormatError::Encrypted { .. }), Some(password)) => {
                Opened::of(Format::Xls, legacy.unlocked(password, limits)?).probe(limits)?
            }
            (Err(FormatError::Encrypted { .. }), None) => closed,
            (Err(error), _) => return Err(error),
        },
        Err(error) => return Err(error),
    };
    Ok(patterns.with(Pattern::IsLegacyBinary, true))
}

/// The text of a workbook that only its password opens.
pub(super) fn extract<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Extraction, FormatError> {
    let no_text = || FormatError::unsupported(Format::Xls, NO_TEXT);
    let mut legacy = Legacy::new(source)?;
    match legacy.globals(access.limits) {
        Err(locked @ FormatError::Encrypted { .. }) => match legacy.unlocked(&built_in_password(), access.limits) {
            Ok(_) => Err(no_text()),
            Err(FormatError::Encrypted { .. }) => {
                let bytes = legacy.unlocked(access.password.ok_or(locked)?, access.limits)?;
                Opened::of(Format::Xls, bytes).extract(access.limits)
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
        Ok(_) => Err(no_text()),
    }
}

fn patterns<R: Read + Seek>(mut legacy: Legacy<R>, workbook: &Workbook) -> Result<Patterns, FormatError> {
    let mut records = legacy.records(0)?;
    let mut has_comments = false;
    while let (false, Some(kind)) = (has_comments, records.next()?) {
        has_comments = kind == NOTE;
    }
    Ok(Patterns::default()
        .with(Pattern::HasSheets, !workbook.sheets.is_empty())
        .with(Pattern::SheetCount, workbook.sheets.len())
        .with(Pattern::HasComments, has_comments)
        .with(Pattern::IsEncrypted, false)
        .with(Pattern::IsLegacyBinary, true))
}

/// Names that the program itself gives are stored as numbers; packages of parts have them as these texts.
fn builtin_name(stored: &str) -> String {
    const NAMES: [&str; 14] = [
        "Consolidate_Area",
        "Auto_Open",
        "Auto_Close",
        "Extract",
        "Database",
        "Criteria",
        "Print_Area",
        "Print_Titles",
        "Recorder",
        "Data_Form",
        "Auto_Activate",
        "Auto_Deactivate",
        "Sheet_Title",
        "_FilterDatabase",
    ];
    // The first number is NUL, which texts leave out.
    let number = stored.chars().next().map_or(0, |character| character as usize);
    NAMES.get(number).map_or_else(|| stored.to_owned(), |name| format!("_xlnm.{name}"))
}

fn damaged(reason: impl ToString) -> FormatError {
    FormatError::corrupt(Format::Xls, reason)
}
