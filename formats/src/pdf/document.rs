//! A PDF opened within its limits.

use std::{
    io::{Read, Seek},
    sync::Arc,
};

use flate2::read::ZlibDecoder;
use hayro_syntax::{
    DecryptionError, Filter, LoadPdfError, Pdf,
    object::{Dict, Name, Object, Stream},
    page::Page,
    xref::XRef,
};

use super::page_text::PageReader;
use crate::{Access, Format, FormatError, Limit, Limits, Secret, text::read_all};

pub(super) struct Document {
    pdf: Pdf,
}

impl Document {
    pub(super) fn open<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Self, FormatError> {
        let limits = access.limits;
        let bytes = Arc::new(read_all(source, limits)?);
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
        check_streams(&pdf, limits)?;
        Ok(Self { pdf })
    }

    pub(super) fn page_count(&self) -> usize {
        self.pdf.pages().len()
    }

    pub(super) fn pages(&self) -> &[Page<'_>] {
        self.pdf.pages()
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
        memchr::memmem::find_iter(bytes, b"/Encrypt").any(|at| {
            let rest = bytes[at + 8..].trim_ascii_start();
            rest.starts_with(b"<<") || (rest.first().is_some_and(u8::is_ascii_digit) && is_reference(rest))
        })
    }

    pub(super) fn reader(&self) -> PageReader<'_> {
        PageReader::new(self)
    }
}

fn is_reference(bytes: &[u8]) -> bool {
    let mut words = bytes[..bytes.len().min(32)].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is_number = |word: Option<&[u8]>| word.is_some_and(|word| word.iter().all(u8::is_ascii_digit));
    is_number(words.next()) && is_number(words.next()) && words.next().is_some_and(|word| word.starts_with(b"R"))
}

/// Refuses streams that unpack beyond the limits before the engine unpacks them whole. Images are never unpacked here, and
/// what is packed by other means is left to the memory limit of the process.
fn check_streams(pdf: &Pdf, limits: &Limits) -> Result<(), FormatError> {
    let mut total = 0u64;
    for object in pdf.objects() {
        let Object::Stream(stream) = object else { continue };
        if stream.dict().get::<Name<'_>>(b"Subtype").as_deref() == Some(b"Image".as_slice()) {
            continue;
        }
        total += unpacked_bytes(&stream, limits, limits.unpacked_bytes - total)?;
    }
    Ok(())
}

fn unpacked_bytes(stream: &Stream<'_>, limits: &Limits, left: u64) -> Result<u64, FormatError> {
    let filters = stream.filters();
    let layers = filters.iter().take_while(|filter| **filter == Filter::FlateDecode).count();
    if layers == 0 {
        return Ok(0);
    }
    let raw = stream.raw_data();
    let mut unpacked: Box<dyn Read> = Box::new(raw.as_ref());
    // More layers than a few are only ever hostile.
    for _ in 0..layers.min(8) {
        unpacked = Box::new(ZlibDecoder::new(unpacked));
    }
    let ratio_bytes = (raw.len() as u64).saturating_mul(u64::from(limits.zip_ratio)).max(Limits::RATIO_FREE_BYTES);
    let mut buffer = [0; 16 << 10];
    let mut read = 0u64;
    // Damage ends the count; the engine has its own way of mending it.
    while let Ok(count @ 1..) = unpacked.read(&mut buffer) {
        read += count as u64;
        if read > ratio_bytes {
            let detail = format_args!("a stream unpacks to over {} times its size", limits.zip_ratio);
            return Err(FormatError::over(Limit::ZipRatio, detail));
        }
        if read > left {
            let detail = format_args!("the streams unpack to over {} bytes", limits.unpacked_bytes);
            return Err(FormatError::over(Limit::UnpackedBytes, detail));
        }
    }
    Ok(read)
}
