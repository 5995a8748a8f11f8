#![expect(unsafe_code, reason = "a map is a slice that something outside the process could change")]

use bytes::Bytes;
use memmap2::Mmap;
use std::{fs::File, io};

/// Maps a file into memory: its pages are loaded when they are first read, and all processes share them.
pub(super) fn map(file: &File) -> io::Result<Bytes> {
    // SAFETY: only packs are mapped. A pack is written under another name, made read-only and renamed, and nothing
    // opens it for writing again. If it is replaced or removed, this map keeps the old file. If somebody with the right
    // to do so overwrites it by force, the map reads other numbers, and the checksums find that at the next start; if
    // somebody truncates it by force, the next look at what was cut off ends the process.
    let map = unsafe { Mmap::map(file)? };
    Ok(Bytes::from_owner(map))
}
