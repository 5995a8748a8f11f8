//! The pictures within a file, with what the file says of each. They come as a stream, so that nobody holds them all in memory. A
//! picture goes as it is stored; only its header is read, never its pixels. Of office files the charts come too, as tables.

mod drawn;
pub(crate) mod file;
mod flow;
mod kind;
mod payload;
#[cfg(test)]
mod tests;

use crate::{Access, ChartTable, Format, FormatError, Limit, Limits, docx, epub, html, odf, ole2, pdf, pptx, xlsx};
pub(crate) use drawn::{Drawn, is_drawn};
pub(crate) use flow::{Flow, Reference, is_caption, one_line};
use kind::Look;
pub(crate) use payload::data_uri;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    io::{self, Read, Seek},
};

/// How many bytes of a picture are given at once.
const PIECE: usize = 256 << 10;
/// A rule, a bullet or a pixel that counts visits has a shorter side than this.
pub(crate) const LEAST_SIDE: u32 = 16;
/// A header that claims more pixels is a trap for whoever shows the picture.
pub(crate) const MOST_PIXELS: u64 = 1 << 28;
/// How many pictures of a file are remembered before the first is given, and how many pages are named of one.
const MOST_REMEMBERED: usize = 100_000;
const MOST_PAGES: usize = 100;
/// A longer name is cut where it is told.
const NAME_CHARACTERS: usize = 255;
/// How many pictures are named that were left out for one reason.
const NAMED: u64 = 100;

/// A step of the way through the pictures of a file. One begins, gives its bytes, and ends, or it is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImagePart {
    Begin(ImageHead),
    Bytes(Vec<u8>),
    End,
    /// A table of a chart, which has no bytes of its own.
    Chart(ChartTable),
    /// `count` pictures are not given; the name is that of the first.
    LeftOut {
        name: String,
        count: u64,
        reason: ImageLeftOut,
    },
}

/// What a file says of a picture.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageHead {
    /// Its place among the pictures of the file.
    pub index: u64,
    /// What the file calls it. It is a label: nothing is ever opened by it.
    pub name: String,
    /// Its type, by its bytes.
    pub mime: String,
    /// Pixels, if its header says so.
    pub width: Option<u32>,
    pub height: Option<u32>,
    /// The pages, slides or sheets that show it, counted from 1; empty if the format has none.
    pub pages: Vec<u32>,
    /// What stands below or above it as its caption.
    pub caption: String,
    /// What its author says that it shows, for those who do not see it.
    pub alt: String,
    /// The text beside it.
    pub nearby: String,
}

/// Why a picture or a chart is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageLeftOut {
    /// It comes after as many pictures as are taken.
    Images,
    /// The pictures before it have as many bytes as are taken.
    ImageBytes,
    /// It claims more pixels than anybody should unpack.
    Pixels,
    /// A side of it is too short for anything to be seen on it.
    Small,
    /// Its bytes are of no known type.
    Kind,
    /// It is packed in a way that is not read.
    Compression,
    /// Its colours are given in a way that is not read.
    Colors,
    /// It is a stencil through which a colour is drawn.
    Mask,
    /// It covers a whole page, as a scan or a background does.
    WholePage,
    /// The file refers to it and does not have it.
    Missing,
    /// Its bytes are damaged.
    Damaged,
    /// It unpacks to too many bytes for its size.
    ZipRatio,
    /// It is a chart whose elements nest too deep.
    XmlDepth,
    /// It is a chart with which the file unpacks to too many bytes, or that comes after it.
    UnpackedBytes,
    /// The page that shows it cannot be read.
    UnreadablePage,
    /// The file opens only with its password, which is stored nowhere.
    Encrypted,
    /// It is a chart after as many as are read.
    Charts,
    /// It is a chart of more rows than a table has.
    Rows,
    /// It is a chart of more columns than a table has.
    Columns,
    /// It is a chart whose categories lie within too many others.
    Levels,
    /// It is a chart of more bytes than a table has, or after as many as all tables have.
    Bytes,
    /// It is a chart of which the file keeps no values.
    Values,
}

impl ImageLeftOut {
    /// The name as used in evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::ImageBytes => "image_bytes",
            Self::Pixels => "pixels",
            Self::Small => "small",
            Self::Kind => "kind",
            Self::Compression => "compression",
            Self::Colors => "colors",
            Self::Mask => "mask",
            Self::WholePage => "whole_page",
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::ZipRatio => "zip_ratio",
            Self::XmlDepth => "xml_depth",
            Self::UnpackedBytes => "unpacked_bytes",
            Self::UnreadablePage => "unreadable_page",
            Self::Encrypted => "encrypted",
            Self::Charts => "charts",
            Self::Rows => "rows",
            Self::Columns => "columns",
            Self::Levels => "levels",
            Self::Bytes => "bytes",
            Self::Values => "values",
        }
    }
}

impl fmt::Display for ImageLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Takes the parts one by one. A reader that gets an error from it ends with that error.
pub type TakeImage<'a> = dyn FnMut(ImagePart) -> Result<(), FormatError> + 'a;

/// Reads the pictures of a file of a format that [has images](Format::has_images), and then the charts of an office file. What cannot be
/// given is left out, and the others are given.
///
/// # Errors
/// What the reader met, or what `take` returned. [`FormatError::Unsupported`] for a format whose pictures are not read.
pub fn images<'a, R: Read + Seek>(
    format: Format,
    source: R,
    access: impl Into<Access<'a>>,
    take: &mut TakeImage<'_>,
) -> Result<(), FormatError> {
    let access = access.into();
    let limits = access.limits;
    let mut giver = Giver::new(limits, take);
    match format {
        Format::Pdf => pdf::images(source, access, &mut giver)?,
        Format::Docx => docx::images(source, limits, &mut giver)?,
        Format::Pptx => pptx::images(source, limits, &mut giver)?,
        Format::Xlsx => xlsx::images(source, limits, &mut giver)?,
        Format::Odt | Format::Odp | Format::Ods => odf::images(format, source, limits, &mut giver)?,
        Format::Epub => epub::images(source, limits, &mut giver)?,
        Format::Html => html::images(source, limits, &mut giver)?,
        Format::Ole2 => ole2::images(source, limits, &mut giver)?,
        _ => return Err(FormatError::unsupported(format, "its pictures are not read")),
    }
    giver.finish()
}

/// A picture as a file refers to it, perhaps more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Where the file has it.
    pub name: String,
    pub pages: Vec<u32>,
    pub caption: String,
    pub alt: String,
    pub nearby: String,
}

/// The pictures of a file in the order in which they first come, each once.
#[derive(Debug, Default)]
pub(crate) struct Gallery {
    pub shown: Vec<Shown>,
    known: HashMap<String, usize>,
    /// How many more the file has than are remembered.
    forgotten: u64,
}

impl Gallery {
    /// Adds a reference to a picture. Of one that came before, the page is noted, and what was not said of it yet.
    pub(crate) fn add(&mut self, new: Shown) {
        let Some(&index) = self.known.get(&new.name) else {
            if self.shown.len() == MOST_REMEMBERED {
                self.forgotten += 1;
                return;
            }
            self.known.insert(new.name.clone(), self.shown.len());
            return self.shown.push(new);
        };
        let old = &mut self.shown[index];
        for page in new.pages {
            if old.pages.len() < MOST_PAGES && !old.pages.contains(&page) {
                old.pages.push(page);
            }
        }
        for (old, new) in [(&mut old.caption, new.caption), (&mut old.alt, new.alt), (&mut old.nearby, new.nearby)] {
            if old.is_empty() {
                *old = new;
            }
        }
    }

    /// Takes out what shows one of these parts.
    fn take_out(&mut self, parts: &HashSet<String>) -> Vec<Shown> {
        let shown = std::mem::take(&mut self.shown).into_iter();
        let (taken, left): (Vec<Shown>, Vec<Shown>) = shown.partition(|shown| parts.contains(&shown.name));
        self.shown = left;
        taken
    }
}

/// Gives pictures while there is room for them.
pub(crate) struct Giver<'g, 't> {
    take: &'g mut TakeImage<'t>,
    images: u32,
    bytes: u64,
    index: u64,
    left_out: BTreeMap<ImageLeftOut, (u64, u64)>,
    rest: Vec<(ImageLeftOut, String)>,
}

impl<'g, 't> Giver<'g, 't> {
    pub(crate) fn new(limits: &Limits, take: &'g mut TakeImage<'t>) -> Self {
        Self {
            take,
            images: limits.images,
            bytes: limits.image_bytes,
            index: 0,
            left_out: BTreeMap::new(),
            rest: Vec::new(),
        }
    }

    /// How many bytes are read of a picture to learn that it is too large.
    fn most_bytes(&self) -> u64 {
        self.bytes.saturating_add(1)
    }

    /// Why no other picture is given, if so.
    fn spent(&self) -> Option<ImageLeftOut> {
        match self {
            Self { images: 0, .. } => Some(ImageLeftOut::Images),
            Self { bytes: 0, .. } => Some(ImageLeftOut::ImageBytes),
            _ => None,
        }
    }

    pub(crate) fn leave_out(&mut self, name: &str, reason: ImageLeftOut) -> Result<(), FormatError> {
        self.index += 1;
        let (count, named) = self.left_out.entry(reason).or_default();
        *count += 1;
        if *named == NAMED {
            // The others are counted, and told of together at the end.
            if *count == NAMED + 1 {
                self.rest.push((reason, label(name)));
            }
            return Ok(());
        }
        *named += 1;
        (self.take)(ImagePart::LeftOut { name: label(name), count: 1, reason })
    }

    /// Gives a picture whose bytes are at hand, if its header allows it and there is room.
    fn give(&mut self, shown: Shown, bytes: &[u8]) -> Result<(), FormatError> {
        if bytes.len() as u64 > self.bytes {
            return self.leave_out(&shown.name, ImageLeftOut::ImageBytes);
        }
        let Some(Look { mime, size }) = kind::look(bytes) else {
            let reason = if bytes.is_empty() { ImageLeftOut::Damaged } else { ImageLeftOut::Kind };
            return self.leave_out(&shown.name, reason);
        };
        let reason = match size {
            Some((width, height)) if width.min(height) < LEAST_SIDE => Some(ImageLeftOut::Small),
            Some((width, height)) if u64::from(width) * u64::from(height) > MOST_PIXELS => Some(ImageLeftOut::Pixels),
            _ => None,
        };
        if let Some(reason) = reason {
            return self.leave_out(&shown.name, reason);
        }
        (self.bytes, self.images) = (self.bytes - bytes.len() as u64, self.images.saturating_sub(1));
        let Shown { name, pages, caption, alt, nearby } = shown;
        let (width, height) = size.unzip();
        let (index, name, mime) = (self.index, label(&name), mime.to_owned());
        let head = ImageHead { index, name, mime, width, height, pages, caption, alt, nearby };
        self.index += 1;
        (self.take)(ImagePart::Begin(head))?;
        for piece in bytes.chunks(PIECE) {
            (self.take)(ImagePart::Bytes(piece.to_vec()))?;
        }
        (self.take)(ImagePart::End)
    }

    /// Gives the pictures of a gallery; `read` takes the bytes of one from the file, or says why not.
    pub(crate) fn give_each(
        &mut self,
        gallery: Gallery,
        mut read: impl FnMut(&str, u64) -> Result<Result<Vec<u8>, ImageLeftOut>, FormatError>,
    ) -> Result<(), FormatError> {
        for shown in gallery.shown {
            let bytes = match self.spent() {
                Some(reason) => Ok(Err(reason)),
                None => read(&shown.name, self.most_bytes()),
            };
            match bytes {
                Ok(Ok(bytes)) => self.give(shown, &bytes)?,
                Ok(Err(reason)) => self.leave_out(&shown.name, reason)?,
                // What one picture is says nothing against the others.
                Err(FormatError::Corrupt { .. }) => self.leave_out(&shown.name, ImageLeftOut::Damaged)?,
                Err(error) if error.limit() == Some(Limit::ZipRatio) => {
                    self.leave_out(&shown.name, ImageLeftOut::ZipRatio)?;
                }
                Err(error) => return Err(error),
            }
        }
        (0..gallery.forgotten).try_for_each(|_| self.leave_out("", ImageLeftOut::Images))
    }

    /// Gives the pictures of a gallery as [`Self::give_each`] does; `read` finds none of those that the file does not have.
    pub(crate) fn give_all(
        &mut self,
        gallery: Gallery,
        mut read: impl FnMut(&str, u64) -> Result<Option<Vec<u8>>, FormatError>,
    ) -> Result<(), FormatError> {
        self.give_each(gallery, |name, most| Ok(read(name, most)?.ok_or(ImageLeftOut::Missing)))
    }

    pub(crate) fn chart(&mut self, table: ChartTable) -> Result<(), FormatError> {
        (self.take)(ImagePart::Chart(table))
    }

    /// Tells of those that were left out without being named.
    pub(crate) fn finish(mut self) -> Result<(), FormatError> {
        for (reason, name) in std::mem::take(&mut self.rest) {
            let (count, named) = self.left_out.get(&reason).copied().unwrap_or_default();
            (self.take)(ImagePart::LeftOut { name, count: count - named, reason })?;
        }
        Ok(())
    }
}

fn label(name: &str) -> String {
    one_line(name, NAME_CHARACTERS)
}

/// Reads a part of a package to its end, or as far as is asked.
pub(crate) fn read_part(part: impl Read, most: u64, format: Format) -> Result<Vec<u8>, FormatError> {
    let mut bytes = Vec::new();
    match part.take(most).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(damage(error, format)),
    }
}

/// A member that does not inflate is damage, and a limit on the way is its own error.
fn damage(error: io::Error, format: Format) -> FormatError {
    match FormatError::from(error) {
        FormatError::Io { reason } => FormatError::corrupt(format, reason),
        ours => ours,
    }
}
