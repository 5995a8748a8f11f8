//! Open documents that are locked with a password (ISO 26300-3, 3.4): each part is packed, and then encrypted with a key of its own.
//!
//! What is read of a document comes into another package as it is packed, so that it takes no more memory than the file has.

use super::{CONTENT, MIME, kind};
use crate::{
    Access, Format, FormatError, Limit, Limits, Secret,
    cipher::{BLOCK, Hash, decrypt, derived},
    images::read_part,
    opened::Opened,
    package::Package,
    xml::{Element, Node},
};
use flate2::{Crc, read::DeflateDecoder};
use mail_parser::decoders::base64::base64_decode;
use std::io::{Read, Seek};

/// The parts that are read.
const PARTS: [&str; 2] = ["styles.xml", CONTENT];
/// How often a password may be hashed for one of them, and how long a salt may be. LibreOffice hashes it 100,000 times, with a salt of
/// 16 bytes.
const MOST_TURNS: u32 = 2_000_000;
const LONGEST_SALT: usize = 1 << 10;
/// The checksum of a part is that of so many bytes.
const CHECKED: usize = 1024;
/// How many bytes of a part are unpacked at once.
const PIECE: usize = 64 << 10;
/// How a member of an archive is packed.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// How a document is locked.
pub(crate) struct Lock {
    format: Format,
    parts: Vec<PartLock>,
}

impl Lock {
    /// Reads what the manifest of a package says of it; `None` if nothing is encrypted.
    ///
    /// # Errors
    /// [`FormatError::Sealed`] for a lock that no password opens here.
    pub(crate) fn read<R: Read + Seek>(format: Format, package: &mut Package<R>) -> Result<Option<Self>, FormatError> {
        let Some(mut xml) = package.xml("META-INF/manifest.xml")? else { return Ok(None) };
        let (mut is_locked, mut told): (bool, Vec<Told>) = (false, Vec::new());
        // The part that the manifest tells of, if it is one that is read.
        let mut name = None;
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            match element.name.as_str() {
                "file-entry" => {
                    let path = element.attribute("full-path");
                    let is_new = |part: &&str| told.iter().all(|told| told.name != *part);
                    name = PARTS.into_iter().find(|part| path == Some(*part)).filter(is_new);
                }
                "encryption-data" => {
                    is_locked = true;
                    told.extend(name.map(|name| Told::new(name, &element)));
                }
                _ => {
                    if let Some(told) = told.last_mut().filter(|told| Some(told.name) == name) {
                        told.add(&element);
                    }
                }
            }
        }
        if !is_locked {
            return Ok(None);
        }
        let parts: Option<Vec<PartLock>> = told.into_iter().map(Told::finish).collect();
        let parts = parts.filter(|parts| parts.iter().any(|part| part.name == CONTENT));
        let parts = parts.ok_or(FormatError::Sealed { format })?;
        if let Some(part) = parts.iter().find(|part| !(1..=MOST_TURNS).contains(&part.turns)) {
            let turns = part.turns;
            let reason = format_args!("its password is hashed {turns} times, and 1 to {MOST_TURNS} are allowed");
            return Err(FormatError::corrupt(format, reason));
        }
        Ok(Some(Self { format, parts }))
    }

    /// Opens the document with the password.
    ///
    /// # Errors
    /// [`FormatError::Encrypted`] without a password, and for a wrong one.
    pub(crate) fn open<R: Read + Seek>(
        &self,
        package: &mut Package<R>,
        access: Access<'_>,
    ) -> Result<Opened, FormatError> {
        let Access { limits, password, .. } = access;
        let format = self.format;
        let password = password.ok_or(FormatError::Encrypted { format })?;
        let mime = format!("{MIME}{}", kind(format));
        let mut crc = Crc::new();
        crc.update(mime.as_bytes());
        let too_large = || FormatError::corrupt(format, "a part is larger than a package may have");
        let mut archive = Archive::default();
        archive.add("mimetype", STORED, mime.as_bytes(), crc.sum(), mime.len() as u64).ok_or_else(too_large)?;
        for part in &self.parts {
            let bytes = package.part(part.name)?.ok_or_else(|| FormatError::corrupt(format, "a part is missing"))?;
            let bytes = read_part(bytes, limits.input_bytes, format)?;
            // No password makes a part of a block whole.
            if bytes.is_empty() || !bytes.len().is_multiple_of(BLOCK) {
                return Err(FormatError::corrupt(format, "an encrypted part is cut short"));
            }
            let packed = part.open(bytes, password).ok_or(FormatError::Encrypted { format })?;
            let (crc, length) = measured(&packed, format, limits)?;
            archive.add(part.name, DEFLATED, &packed, crc, length).ok_or_else(too_large)?;
        }
        Ok(Opened::of(format, archive.finish()))
    }
}

/// What the manifest tells of the encryption of a part, as far as it is known here.
struct Told {
    name: &'static str,
    checksum: Option<(Hash, Vec<u8>)>,
    start: Option<[u8; BLOCK]>,
    /// The salt, the turns and the bytes of the key.
    derivation: Option<(Vec<u8>, u32, usize)>,
    hash: Option<Hash>,
}

impl Told {
    fn new(name: &'static str, element: &Element) -> Self {
        let kind = element.attribute("checksum-type").unwrap_or_default().to_ascii_lowercase();
        let hash = match kind.rsplit('#').next() {
            Some("sha256-1k") => Some(Hash::Sha256),
            Some("sha1-1k" | "sha1/1k") => Some(Hash::Sha1),
            _ => None,
        };
        let checksum = hash.zip(value(element, "checksum"));
        // Without another word it is SHA-1.
        Self { name, checksum, start: None, derivation: None, hash: Some(Hash::Sha1) }
    }

    fn add(&mut self, element: &Element) {
        let named = |name: &str| element.attribute(name).unwrap_or_default().to_ascii_lowercase();
        match element.name.as_str() {
            "algorithm" => {
                let name = named("algorithm-name");
                let is_known = name.contains("#aes") && name.ends_with("-cbc");
                let start = value(element, "initialisation-vector").filter(|_| is_known);
                self.start = start.and_then(|start| start.try_into().ok());
            }
            "key-derivation" if named("key-derivation-name").ends_with("pbkdf2") => {
                let number = |name: &str| element.attribute(name).and_then(|number| number.parse::<u32>().ok());
                let salt = value(element, "salt").filter(|salt| salt.len() <= LONGEST_SALT);
                let key_bytes = match number("key-size") {
                    Some(16) | None => Some(16),
                    Some(24) => Some(24),
                    Some(32) => Some(32),
                    Some(_) => None,
                };
                self.derivation = salt
                    .zip(number("iteration-count"))
                    .zip(key_bytes)
                    .map(|((salt, turns), key_bytes)| (salt, turns, key_bytes));
            }
            "start-key-generation" => {
                self.hash = match named("start-key-generation-name").rsplit('#').next() {
                    Some("sha256") => Some(Hash::Sha256),
                    Some("sha1") => Some(Hash::Sha1),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    fn finish(self) -> Option<PartLock> {
        let (salt, turns, key_bytes) = self.derivation?;
        let (name, start, hash, checksum) = (self.name, self.start?, self.hash?, self.checksum?);
        Some(PartLock { name, start, hash, salt, turns, key_bytes, checksum })
    }
}

/// The bytes of an attribute.
fn value(element: &Element, name: &str) -> Option<Vec<u8>> {
    base64_decode(element.attribute(name)?.as_bytes())
}

/// How a part is locked: with AES, chained.
struct PartLock {
    name: &'static str,
    /// Where the chain begins.
    start: [u8; BLOCK],
    /// What the password is hashed with before its key is derived.
    hash: Hash,
    salt: Vec<u8>,
    turns: u32,
    key_bytes: usize,
    checksum: (Hash, Vec<u8>),
}

impl PartLock {
    /// The part as it was packed; `None` if the password is wrong.
    fn open(&self, mut bytes: Vec<u8>, password: &Secret) -> Option<Vec<u8>> {
        let hashed = self.hash.of(password.reveal().as_bytes(), &[]);
        let key = derived(&hashed, &self.salt, self.turns, self.key_bytes);
        decrypt(&key, Some(self.start), &mut bytes)?;
        // The last byte says how many were added to fill the last block.
        let added = usize::from(*bytes.last()?);
        let length = bytes.len().checked_sub(added).filter(|_| (1..=BLOCK).contains(&added))?;
        bytes.truncate(length);
        let (hash, checksum) = &self.checksum;
        (hash.of(&bytes[..length.min(CHECKED)], &[]) == *checksum).then_some(bytes)
    }
}

/// The check value and the length of what is packed.
fn measured(packed: &[u8], format: Format, limits: &Limits) -> Result<(u32, u64), FormatError> {
    let by_ratio = (packed.len() as u64).saturating_mul(u64::from(limits.zip_ratio)).max(Limits::RATIO_FREE_BYTES);
    let (mut crc, mut length) = (Crc::new(), 0u64);
    let (mut unpacked, mut piece) = (DeflateDecoder::new(packed), vec![0; PIECE]);
    loop {
        let read = unpacked.read(&mut piece).map_err(|error| FormatError::corrupt(format, error))?;
        if read == 0 {
            return Ok((crc.sum(), length));
        }
        crc.update(&piece[..read]);
        length += read as u64;
        if length > by_ratio {
            let detail = format_args!("a member unpacks to over {} times its size", limits.zip_ratio);
            return Err(FormatError::over(Limit::ZipRatio, detail));
        }
        if length > limits.unpacked_bytes {
            let detail = format_args!("the package unpacks to over {} bytes", limits.unpacked_bytes);
            return Err(FormatError::over(Limit::UnpackedBytes, detail));
        }
    }
}

/// A zip archive of parts that are packed already.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
}

impl Archive {
    /// Adds a part; `None` if a number of it does not fit its field.
    fn add(&mut self, name: &str, method: u16, packed: &[u8], crc: u32, length: u64) -> Option<()> {
        const VERSION: u16 = 20;
        const FIRST_DAY: u16 = 0x21;
        let at = u32::try_from(self.bytes.len()).ok()?;
        let sizes = [crc, u32::try_from(packed.len()).ok()?, u32::try_from(length).ok()?];
        // Both descriptions of a member have this, from the version to the lengths of its name and of what there is besides.
        let mut about: Vec<u8> =
            [VERSION, 0, method, 0, FIRST_DAY].iter().flat_map(|number| number.to_le_bytes()).collect();
        about.extend(sizes.iter().flat_map(|number| number.to_le_bytes()));
        about.extend(u16::try_from(name.len()).ok()?.to_le_bytes());
        about.extend([0; 2]);
        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(VERSION.to_le_bytes());
        self.directory.extend(&about);
        // No comment, the first disk, and nothing of a system.
        self.directory.extend([0; 10]);
        self.directory.extend(at.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(about);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(packed);
        self.count += 1;
        Some(())
    }

    fn finish(mut self) -> Vec<u8> {
        let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let size = u32::try_from(self.directory.len()).unwrap_or(u32::MAX);
        self.bytes.append(&mut self.directory);
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend([self.count; 2].iter().flat_map(|count| count.to_le_bytes()));
        self.bytes.extend([size, at].iter().flat_map(|number| number.to_le_bytes()));
        self.bytes.extend([0; 2]);
        self.bytes
    }
}
