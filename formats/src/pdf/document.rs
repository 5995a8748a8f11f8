//! A PDF opened within its limits.

use super::{encryption, streams::unpacked_bytes};
use crate::{Access, Format, FormatError, Limit, Limits, Secret, text::read_all};
use hayro_syntax::{
    DecryptionError, Filter, LoadPdfError, Pdf,
    object::{Array, Dict, MaybeRef, Name, ObjectIdentifier},
    page::Page,
    xref::XRef,
};
use memchr::memmem;
use std::{
    collections::HashMap,
    io::{Read, Seek},
    sync::Arc,
};

pub(super) struct Document {
    pdf: Pdf,
    /// The engine's indices of the pages, in their order.
    order: Vec<usize>,
    is_encrypted: bool,
}

impl Document {
    pub(super) fn open<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Self, FormatError> {
        let limits = access.limits;
        let bytes = Arc::new(read_all(source, limits)?);
        check_packed_objects(&bytes, limits)?;
        let password = access.password.map_or("", Secret::reveal);
        let opened = Pdf::new_with_password(Arc::clone(&bytes), password).or_else(|error| match error {
            // A file that any viewer opens needs no password, even if one was given.
            LoadPdfError::Decryption(DecryptionError::PasswordProtected) if !password.is_empty() => {
                Pdf::new(Arc::clone(&bytes)).or_else(|error| match encryption::opened_by_owner(&bytes, password) {
                    Some(opening) => Pdf::new_with_password(Arc::clone(&bytes), &opening),
                    None => Err(error),
                })
            }
            error => Err(error),
        });
        let pdf = match opened {
            Err(error @ LoadPdfError::Decryption(_)) => encryption::without(&bytes).ok_or(error),
            opened => opened,
        };
        let pdf = pdf.map_err(|error| match error {
            LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
                FormatError::Encrypted { format: Format::Pdf }
            }
            LoadPdfError::Decryption(DecryptionError::UnsupportedAlgorithm) => {
                FormatError::Sealed { format: Format::Pdf }
            }
            LoadPdfError::Decryption(_) => {
                FormatError::corrupt(Format::Pdf, "its encryption dictionary cannot be read")
            }
            LoadPdfError::Invalid => {
                FormatError::corrupt(Format::Pdf, "no cross-reference table, catalog or page tree was found")
            }
        })?;
        let order = page_order(&pdf, limits.pages as usize);
        let pages = order.len();
        if pages == 0 {
            return Err(FormatError::corrupt(Format::Pdf, "it has no pages"));
        }
        if pages > limits.pages as usize {
            return Err(FormatError::over(
                Limit::Pages,
                format_args!("{pages} pages, more than the {} that are allowed", limits.pages),
            ));
        }
        let is_encrypted = encryption::is_encrypted(&bytes);
        Ok(Self { pdf, order, is_encrypted })
    }

    pub(super) fn page_count(&self) -> usize {
        self.order.len()
    }

    pub(super) fn page(&self, index: usize) -> &Page<'_> {
        &self.pdf.pages()[self.order[index]]
    }

    /// The pages' indices by their objects; a page that comes more than once has the index of the first.
    pub(super) fn page_indices(&self) -> HashMap<ObjectIdentifier, usize> {
        let pages = (0..self.page_count()).rev();
        pages.filter_map(|index| Some((self.page(index).raw().obj_id()?, index))).collect()
    }

    pub(super) fn xref(&self) -> &XRef {
        self.pdf.xref()
    }

    /// The document's root dictionary.
    pub(super) fn catalog(&self) -> Option<Dict<'_>> {
        self.xref().get(self.xref().root_id())
    }

    /// Whether the file is encrypted; what is read of it was open, or was opened by the password.
    pub(super) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Whether the file says that its structure tree describes its content.
    pub(super) fn is_tagged(&self) -> bool {
        let marks = self.catalog().and_then(|catalog| catalog.get::<Dict<'_>>(b"MarkInfo"));
        marks.and_then(|marks| marks.get::<bool>(b"Marked")).unwrap_or(false)
    }
}

/// The engine's pages in the order of the page tree, at most one more than `most`. The tree may name a page more than
/// once, but the engine keeps only the first.
fn page_order(pdf: &Pdf, most: usize) -> Vec<usize> {
    let count = pdf.pages().len();
    let in_order = || (0..count).collect();
    let xref = pdf.xref();
    let Some(root) = xref.get::<Dict<'_>>(xref.root_id()).and_then(|catalog| catalog.get::<Dict<'_>>(b"Pages")) else {
        return in_order();
    };
    let (mut order, mut next) = (Vec::with_capacity(count), 0);
    // The index of a page, or `None` for a node.
    let mut seen: HashMap<ObjectIdentifier, Option<usize>> = HashMap::new();
    seen.extend(root.obj_id().map(|id| (id, None)));
    let mut waiting: Vec<_> = root.get::<Array<'_>>(b"Kids").map(|kids| kids.raw_iter()).into_iter().collect();
    while let Some(siblings) = waiting.last_mut() {
        let Some(kid) = siblings.next() else {
            waiting.pop();
            continue;
        };
        let id = kid.as_obj_ref().map(ObjectIdentifier::from);
        if let Some(known) = id.and_then(|id| seen.get(&id)) {
            order.extend(*known);
        } else {
            let dict = match kid {
                MaybeRef::Ref(kid) => xref.get::<Dict<'_>>(kid.into()),
                MaybeRef::NotRef(kid) => kid.into_dict(),
            };
            let Some(dict) = dict else { continue };
            let is_node = dict.get::<Name<'_>>(b"Type").is_some_and(|kind| kind.as_ref() == b"Pages");
            seen.extend(id.map(|id| (id, (!is_node).then_some(next))));
            if is_node {
                waiting.extend(dict.get::<Array<'_>>(b"Kids").map(|kids| kids.raw_iter()));
            } else {
                order.push(next);
                next += 1;
            }
        }
        if order.len() > most {
            return order;
        }
    }
    // If the tree does not lead to the pages, the engine has found them elsewhere.
    if next == count { order } else { in_order() }
}

/// Refuses streams of packed objects and tables that unpack beyond the limits, because the engine unpacks them when it
/// opens the file. They are found by their names in the bytes. Where that fails, in an encrypted file or if the names
/// are written in another way, the memory limit of the process must suffice.
fn check_packed_objects(bytes: &[u8], limits: &Limits) -> Result<(), FormatError> {
    // How far a stream's dictionary may extend beyond its type.
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
