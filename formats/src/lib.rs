//! Bytes in; what they are, what they hold, and their text with pages and headings out. No async, no SQL, no network.
//!
//! The way through: [`detect`] names the format, [`probe`] measures its patterns cheaply, [`extract`] gives the text with
//! its anchors, [`sections`] makes the tree of declared structure and [`chunk`] cuts a stretch of text into pieces.
//!
//! Every byte is hostile. All readers hold [`Limits`], but a third-party engine cannot be held to them from inside:
//! callers run readers in a child process through [`isolated`].

mod access;
mod archive;
mod charset;
mod chunk;
mod detect;
mod docx;
mod error;
mod extraction;
mod facts;
mod format;
pub mod isolated;
mod limits;
mod markdown;
mod math;
mod ole2;
mod package;
mod patterns;
mod pdf;
mod pptx;
#[cfg(test)]
mod sample;
mod sections;
mod text;
pub mod xlsx;
mod xml;

use std::io::{Read, Seek};

pub use access::{Access, Secret};
pub use archive::{Archive, Member};
pub use chunk::{Chunk, ChunkOptions, ChunkStrategy, TokenCounter, chunk};
pub use detect::detect;
pub use error::FormatError;
pub use extraction::{Extraction, Heading, Page, PageKind};
pub use format::{DetectedBy, Detection, Format, UnknownFormat};
pub use limits::{Limit, Limits};
pub use ole2::CompoundKind;
pub use patterns::{Pattern, Patterns, UnknownPattern};
pub use sections::{Section, sections};

/// Measures what the file holds; a pattern that was not measured is absent from the answer.
///
/// # Errors
/// What the reader met. A format without a prober ([`Format::has_prober`]) measures nothing and is no error.
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
        Format::Xlsx => xlsx::probe(source, limits),
        Format::Ole2 => ole2::probe(source),
        Format::Zip => Ok(Patterns::default()),
    }
}

/// Pulls the text out of the file, with pages and headings as byte offsets into it.
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
        Format::Xlsx => Err(FormatError::unsupported(format, "no reader yet")),
        Format::Ole2 => Err(ole2::refusal(source)),
        Format::Zip => {
            Err(FormatError::unsupported(format, "an archive has no text of its own; upload its files one by one"))
        }
    }
}

/// Why no reader can open a file that could be probed: a compound file by its kind, or a missing key. `None` where
/// nothing is known to stand in the way.
pub fn refusal<R: Read + Seek>(format: Format, source: R, patterns: &Patterns) -> Option<FormatError> {
    match format {
        Format::Ole2 => Some(ole2::refusal(source)),
        // Of a file that opened, more than that was measured.
        Format::Pdf if patterns.holds(Pattern::IsEncrypted) && patterns.get(Pattern::HasTextLayer).is_none() => {
            pdf::refusal(source)
        }
        _ => None,
    }
}

/// Lists what a zip archive says it holds; `None` where it has lost its directory. Nothing is unpacked.
///
/// # Errors
/// What reading the source gives.
pub fn archive<R: Read + Seek>(mut source: R) -> Result<Option<Archive>, FormatError> {
    Ok(Archive::read(&mut source)?)
}
