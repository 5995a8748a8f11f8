//! Takes bytes and tells what they are, what they hold, and their text with pages and headings. No async, no SQL, no
//! network.
//!
//! [`detect_named`] recognises the format, [`probe`] measures its patterns cheaply, [`extract`] returns the text with its
//! anchors, [`sections`] makes the tree of declared structure, and [`chunk`] cuts a range of text into pieces.
//!
//! Every byte is hostile. All readers respect [`Limits`], but a third-party engine cannot be limited from inside, so
//! callers run readers in a child process through [`isolated`]. Templates of prompts ([`template`](fn@template)) are rendered there
//! for the same reason.

mod access;
mod archive;
mod binary_lock;
mod charset;
mod chart;
mod chunk;
mod cipher;
mod compound;
mod delimited;
mod detect;
mod doc;
mod docx;
mod epub;
mod error;
mod extraction;
mod facts;
mod format;
mod html;
mod images;
pub mod isolated;
mod json;
mod limits;
mod lines;
mod mail;
mod markdown;
mod markup;
mod math;
mod members;
mod msg;
mod notebook;
mod odf;
mod ole2;
mod opened;
mod package;
mod patterns;
mod pdf;
mod ppt;
mod pptx;
mod rtf;
#[cfg(test)]
mod sample;
mod sections;
mod subtitles;
mod tables;
mod template;
mod text;
mod web_page;
pub mod xlsx;
mod xml;
mod xml_document;

pub use access::{Access, Secret};
pub use archive::{Archive, Member};
pub use chart::{ChartTable, MOST_CHART_TABLES};
pub use chunk::{Chunk, ChunkOptions, ChunkStrategy, TokenCounter, chunk};
pub use detect::{detect, detect_named};
pub use error::FormatError;
pub use extraction::{Extraction, Heading, OutlineEntry, Page, PageKind};
pub use format::{DetectedBy, Detection, Format, UnknownFormat};
pub use images::{ImageHead, ImageLeftOut, ImagePart, TakeImage, images};
pub use limits::{Limit, Limits};
pub use lines::{Area, ReadLine};
pub use members::{LeftOut, MemberHead, MemberPart, TakePart, members};
pub use ole2::CompoundKind;
pub use patterns::{Pattern, Patterns, UnknownPattern};
pub use pdf::{PictureSize, Raster, ReadPage, is_without_blanks, join_lines};
pub use sections::{Section, sections};
use std::io::{Read, Seek};
pub use subtitles::{Cue, Subtitles, subtitles};
pub use tables::{Table, TableRule, Tables, tables};
pub use template::{
    TEMPLATE_OUTPUT_BYTES, TemplateFault, TemplateFaultKind, TemplateJob, TemplateRead, TemplateText, template,
};
pub use text::headings;
pub use web_page::{PageSource, WebPage};

/// Measures what the file holds. A pattern that was not measured is absent from the answer.
///
/// # Errors
/// What the reader met. A format without a prober ([`Format::has_prober`]) measures nothing that plans ask for, which is not an error.
pub fn probe<'a, R: Read + Seek>(
    format: Format,
    source: R,
    access: impl Into<Access<'a>>,
) -> Result<Patterns, FormatError> {
    let access = access.into();
    let limits = access.limits;
    match format {
        Format::Text => text::probe(source, limits),
        Format::Pdf => pdf::probe(source, access),
        Format::Docx => docx::probe(source, limits),
        Format::Pptx => pptx::probe(source, limits),
        Format::Xlsx | Format::Xls | Format::Xlsb => xlsx::probe(format, source, access),
        Format::Ole2 => ole2::probe(source, access),
        Format::Html => html::probe(source, limits),
        Format::Eml => mail::probe(source, limits),
        Format::Msg => msg::probe(source, limits),
        Format::Doc => doc::probe(source, access),
        Format::Ppt => ppt::probe(source, access),
        Format::Json => json::probe(source, limits),
        Format::Ipynb => notebook::probe(source, limits),
        Format::Rtf => rtf::probe(source, limits),
        Format::Xml => xml_document::probe(source, limits),
        Format::Odt | Format::Odp | Format::Ods => odf::probe(format, source, access),
        Format::Epub => epub::probe(source, limits),
        Format::Csv | Format::Tsv => Ok(delimited::probe()),
        Format::Zip => archive::probe(source, access),
        Format::Image => images::file::probe(source, limits),
        Format::Vtt | Format::Srt => subtitles::probe(format, source, limits),
    }
}

/// Extracts the text of the file, with pages and headings as byte offsets into it.
///
/// # Errors
/// [`FormatError::Unsupported`] for a format without a reader, else what the reader met.
pub fn extract<'a, R: Read + Seek>(
    format: Format,
    source: R,
    access: impl Into<Access<'a>>,
) -> Result<Extraction, FormatError> {
    let access = access.into();
    let limits = access.limits;
    match format {
        Format::Text => text::extract(source, limits),
        Format::Pdf => pdf::extract(source, access),
        Format::Docx => docx::extract(source, limits),
        Format::Pptx => pptx::extract(source, limits),
        Format::Html => html::extract(source, limits),
        Format::Eml => mail::extract(source, limits),
        Format::Msg => msg::extract(source, limits),
        Format::Doc => doc::extract(source, access),
        Format::Ppt => ppt::extract(source, access),
        Format::Json => json::extract(source, limits),
        Format::Ipynb => notebook::extract(source, limits),
        Format::Rtf => rtf::extract(source, limits),
        Format::Xml => xml_document::extract(source, limits),
        Format::Odt | Format::Odp | Format::Ods => odf::extract(format, source, access),
        Format::Epub => epub::extract(source, limits),
        Format::Xls => xlsx::extract_locked(source, access),
        Format::Xlsx | Format::Xlsb | Format::Csv | Format::Tsv => Err(FormatError::unsupported(format, xlsx::NO_TEXT)),
        Format::Ole2 => ole2::extract(source, access),
        Format::Image => images::file::extract(source, limits),
        Format::Vtt | Format::Srt => subtitles::extract(format, source, limits),
        Format::Zip => archive::extract(source, access),
    }
}

/// Why no reader can open a file that could be probed: the kind of a compound file, or a missing password. `None` if no
/// obstacle is known.
pub fn refusal<R: Read + Seek>(format: Format, source: R, patterns: &Patterns) -> Option<FormatError> {
    match format {
        // Of a file that opened, more than its lock was measured.
        Format::Ole2 if [Pattern::HasTextLayer, Pattern::HasSheets].iter().all(|of| patterns.get(*of).is_none()) => {
            Some(ole2::refusal(source))
        }
        Format::Doc | Format::Ppt if patterns.get(Pattern::HasTextLayer).is_none() => {
            extract(format, source, &Limits::default()).err()
        }
        Format::Pdf if patterns.holds(Pattern::IsEncrypted) && patterns.get(Pattern::HasTextLayer).is_none() => {
            pdf::refusal(source)
        }
        Format::Odt | Format::Odp | Format::Ods | Format::Xls
            if patterns.holds(Pattern::IsEncrypted) && patterns.get(Pattern::HasTextLayer).is_none() =>
        {
            Some(FormatError::Encrypted { format })
        }
        _ => None,
    }
}

/// Lists what a zip archive says it holds; `None` if it has lost its directory. Nothing is unpacked.
///
/// # Errors
/// Any error of reading the source.
pub fn archive<R: Read + Seek>(mut source: R) -> Result<Option<Archive>, FormatError> {
    Ok(Archive::read(&mut source)?)
}
