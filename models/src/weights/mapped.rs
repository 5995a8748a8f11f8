#![expect(unsafe_code, reason = "a map is a slice that something outside the process could change")]

use std::{fs::File, io};

use bytes::Bytes;
use memmap2::Mmap;

/// A file as memory: its pages come in when they are first read, and all processes share them.
pub(super) fn map(file: &File) -> io::Result<Bytes> {
    // SAFETY: only packs are mapped. A pack is written under another name, made read-only and renamed, and nothing opens it to
    // write again: one that is replaced or removed leaves this map the file that it was. What somebody with the right to do so
    // writes into it by force is read as other numbers, and its checksums find that at the next start.
    let map = unsafe { Mmap::map(file)? };
    Ok(Bytes::from_owner(map))
}
