//! Many files in one working file, because a process may open only so many.
use super::{nameless, reopen};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    mem,
    os::unix::fs::FileExt,
    path::Path,
};

/// Files that are written one after the other.
pub struct Bundle {
    file: File,
    /// The number of bytes of the files that are whole.
    whole: u64,
    written: u64,
    hasher: Sha256,
}

/// A whole file of a bundle.
#[derive(Clone, Debug)]
pub struct Part {
    start: u64,
    pub byte_size: u64,
    /// `sha256:<hex>`.
    pub content_hash: String,
}

impl Bundle {
    /// Makes an empty bundle in `folder`, which is made if it is missing.
    pub fn new(folder: &Path) -> io::Result<Bundle> {
        Ok(Bundle { file: nameless(folder)?, whole: 0, written: 0, hasher: Sha256::new() })
    }

    /// Appends a piece to the file that is being written.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hasher.update(piece);
        self.file.write_all(piece)?;
        self.written += piece.len() as u64;
        Ok(())
    }

    /// Ends the file that is being written.
    pub fn end(&mut self) -> Part {
        let hash = mem::take(&mut self.hasher).finalize();
        let part = Part {
            start: self.whole,
            byte_size: mem::take(&mut self.written),
            content_hash: format!("sha256:{}", hex::encode(hash)),
        };
        self.whole += part.byte_size;
        part
    }

    /// Forgets the file that is being written.
    pub fn forget(&mut self) -> io::Result<()> {
        (self.hasher, self.written) = (Sha256::new(), 0);
        self.file.set_len(self.whole)?;
        self.file.seek(SeekFrom::Start(self.whole)).map(|_| ())
    }

    /// Opens a file for reading only.
    pub fn open(&self, part: &Part) -> io::Result<Slice> {
        Ok(Slice { file: reopen(&self.file)?, start: part.start, length: part.byte_size, at: 0 })
    }
}

/// A file of a bundle, opened to be read.
pub struct Slice {
    file: File,
    start: u64,
    length: u64,
    at: u64,
}

impl Read for Slice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..most], self.start + self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Slice {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn each_file_reads_back_alone_and_a_forgotten_one_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut bundle = Bundle::new(folder.path()).unwrap();
        let mut parts = Vec::new();
        for (text, is_kept) in [("one", true), ("forgotten, and longer", false), ("", true), ("three", true)] {
            for piece in text.as_bytes().chunks(2) {
                bundle.write(piece).unwrap();
            }
            match is_kept {
                true => parts.push((text, bundle.end())),
                false => bundle.forget().unwrap(),
            }
        }
        for (text, part) in parts {
            let mut read = String::new();
            let mut slice = BufReader::new(bundle.open(&part).unwrap());
            slice.read_to_string(&mut read).unwrap();
            assert_eq!((read.as_str(), part.byte_size), (text, text.len() as u64));
            assert_eq!(part.content_hash, format!("sha256:{}", hex::encode(Sha256::digest(text))));
            slice.seek(SeekFrom::End(-(text.len() as i64))).unwrap();
            read.clear();
            slice.read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
    }
}
