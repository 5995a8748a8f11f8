//! Files on disk without a name, which vanish with the process, however it ends.
pub use bundle::{Bundle, Part};
pub use cache::{SpoolCache, SpoolError, StoredFile};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsRawFd,
    path::Path,
};

mod bundle;
mod cache;

/// Received bytes, with what was learned on the way.
pub struct Spooled {
    pub file: File,
    pub byte_size: u64,
    /// `sha256:<hex>`.
    pub content_hash: String,
}

/// An upload as it was received: a file and what the client said about it.
pub struct SpooledUpload {
    pub filename: Option<String>,
    /// The media type that the client claims.
    pub declared_mime: Option<String>,
    pub file: Spooled,
    pub options: Option<serde_json::Value>,
}

/// A spool that is being filled; hashing and writing happen on a blocking thread, a piece at a time.
pub struct Spool {
    file: File,
    hasher: Sha256,
    byte_size: u64,
}

impl Spool {
    /// Makes an empty spool in `folder`, which is made if it is missing.
    pub fn new(folder: &Path) -> io::Result<Spool> {
        Ok(Spool { file: nameless(folder)?, hasher: Sha256::new(), byte_size: 0 })
    }

    /// Appends a piece.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.byte_size += piece.len() as u64;
        self.hasher.update(piece);
        self.file.write_all(piece)
    }

    /// The number of bytes so far.
    pub fn byte_size(&self) -> u64 {
        self.byte_size
    }

    /// Ends the writing. The resulting file can only be read, also by processes that inherit it.
    pub fn finish(self) -> io::Result<Spooled> {
        Ok(Spooled {
            file: reopen(&self.file)?,
            byte_size: self.byte_size,
            content_hash: format!("sha256:{}", hex::encode(self.hasher.finalize())),
        })
    }
}

/// Makes an empty file without a name in `folder`, which is made if it is missing.
pub fn nameless(folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    tempfile::tempfile_in(folder)
}

/// Opens the same file for reading only, with a position of its own that starts at 0. A clone of the descriptor would
/// share the position and the right to write.
pub fn reopen(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
