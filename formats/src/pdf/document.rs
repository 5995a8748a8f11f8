//! A PDF opened within its limits.

use std::{
    collections::HashMap,
    io::{Read, Seek},
    sync::Arc,
};

use hayro_syntax::{
    DecryptionError, Filter, LoadPdfError, Pdf,
    object::{Dict, ObjectIdentifier},
    page::Page,
    xref::XRef,
};
use memchr::memmem;

use super::streams::unpacked_bytes;
use crate::{Access, Format, FormatError, Limit, Limits, Secret, text::read_all};

pub(super) struct Document {
    pdf: Pdf,
}

impl Document {
    pub(super) fn open<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Self, FormatError> {
        let limits = access.limits;
        let bytes = Arc::new(read_all(source, limits)?);
        check_packed_objects(&bytes, limits)?;
        let password = access.password.map_or("", Secret::reveal);
        let opened = Pdf::new_with_password(Arc::clone(&bytes), password).or_else(|error| match error {
            // A file that any reader opens needs no password, whatever was handed in.
            LoadPdfError::Decryption(DecryptionError::PasswordProtected) if !password.is_empty() => Pdf::new(bytes),
            error => Err(error),
        });
        let pdf = opened.map_err(|error| match error {
            LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
                FormatError::Encrypted { format: Format::Pdf }
            }
            LoadPdfError::Decryption(DecryptionError::UnsupportedAlgorithm) => FormatError::unsupported(
                Format::Pdf,
                "its encryption algorithm is not known; save it without encryption",
            ),
            LoadPdfError::Decryption(_) => FormatError::corrupt(Format::Pdf, "its encryption dictionary does not read"),
            LoadPdfError::Invalid => {
                FormatError::corrupt(Format::Pdf, "no cross-reference table, catalog or page tree was found")
            }
        })?;
        let pages = pdf.pages().len();
        if pages == 0 {
            return Err(FormatError::corrupt(Format::Pdf, "it has no pages"));
        }
        if pages > limits.pages as usize {
            return Err(FormatError::over(Limit::Pages, format_args!("{pages} pages, allowed are {}", limits.pages)));
        }
        Ok(Self { pdf })
    }

    pub(super) fn page_count(&self) -> usize {
        self.pdf.pages().len()
    }

    pub(super) fn pages(&self) -> &[Page<'_>] {
        self.pdf.pages()
    }

    /// The pages' indices by the objects they are.
    pub(super) fn page_indices(&self) -> HashMap<ObjectIdentifier, usize> {
        let pages = self.pages().iter().enumerate();
        pages.filter_map(|(index, page)| Some((page.raw().obj_id()?, index))).collect()
    }

    pub(super) fn xref(&self) -> &XRef {
        self.pdf.xref()
    }

    /// The document's root dictionary.
    pub(super) fn catalog(&self) -> Option<Dict<'_>> {
        self.xref().get(self.xref().root_id())
    }

    /// Whether it is encrypted, with an empty password, since it is open.
    pub(super) fn is_encrypted(&self) -> bool {
        // The trailer is plain even in an encrypted file; the key is followed by a reference or a dictionary.
        let bytes = self.pdf.data().as_ref();
        memmem::find_iter(bytes, b"/Encrypt").any(|at| {
            let rest = bytes[at + 8..].trim_ascii_start();
            rest.starts_with(b"<<") || (rest.first().is_some_and(u8::is_ascii_digit) && is_reference(rest))
        })
    }

    /// Whether it says that its structure tree tells what is what.
    pub(super) fn is_tagged(&self) -> bool {
        let marks = self.catalog().and_then(|catalog| catalog.get::<Dict<'_>>(b"MarkInfo"));
        marks.and_then(|marks| marks.get::<bool>(b"Marked")).unwrap_or(false)
    }
}

fn is_reference(bytes: &[u8]) -> bool {
    let mut words = bytes[..bytes.len().min(32)].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is_number = |word: Option<&[u8]>| word.is_some_and(|word| word.iter().all(u8::is_ascii_digit));
    is_number(words.next()) && is_number(words.next()) && words.next().is_some_and(|word| word.starts_with(b"R"))
}

/// Refuses streams of packed objects and tables that unpack beyond the limits: the engine unpacks them as it opens the file. They
/// are found by their names in the bytes; in an encrypted file, where they cannot be looked into, and where the names are
/// written in another way, the memory limit of the process has to do.
fn check_packed_objects(bytes: &[u8], limits: &Limits) -> Result<(), FormatError> {
    // How far a stream's dictionary reaches from its type.
    const REACH: usize = 1024;
    let ends: Vec<usize> = memmem::find_iter(bytes, b"endstream").collect();
    let mut left = limits.unpacked_bytes;
    let mut checked = 0;
    for kind in [b"/ObjStm".as_slice(), b"/XRef"] {
        for at in memmem::find_iter(bytes, kind) {
            let reach = &bytes[at..bytes.len().min(at + REACH)];
            let Some(start) = memmem::find(reach, b"stream").map(|start| at + start + b"stream".len()) else {
                continue;
            };
            let end = ends.get(ends.partition_point(|end| *end < start)).copied().unwrap_or(bytes.len());
            if start <= checked {
                continue;
            }
            checked = start;
            let before = &bytes[at.saturating_sub(REACH)..start];
            let dict = &before[memmem::rfind(before, b" obj").unwrap_or(0)..];
            let layers = memmem::find_iter(dict, b"/Fl").count();
            let packed = &bytes[start..end];
            let packed = packed.strip_prefix(b"\r").unwrap_or(packed);
            let packed = packed.strip_prefix(b"\n").unwrap_or(packed);
            left -= unpacked_bytes(packed, &vec![Filter::FlateDecode; layers], limits, left)?;
        }
        checked = 0;
    }
    Ok(())
}
