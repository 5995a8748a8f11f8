//! Office packages that are locked with a password.
//!
//! A locked package is two streams: `EncryptionInfo` says how it is locked, and `EncryptedPackage` is the docx, pptx or
//! xlsx itself behind its length. Office 2007 wrote one form, and all later ones write the other.

use crate::{
    Format, FormatError, Limit, Limits, Secret,
    cipher::{BLOCK, Hash, decrypt, fitted},
    opened::Opened,
    xlsx::built_in_password,
    xml::{Node, XmlReader},
};
use cfb::CompoundFile;
use mail_parser::decoders::base64::base64_decode;
use std::io::{Read, Seek};

/// The longest description of a lock; real ones have two kilobytes.
const LONGEST_INFO: u64 = 1 << 20;
/// How often a password may be hashed and how long a salt may be, as the standard has it ([MS-OFFCRYPTO] 2.3.4.10).
/// Office programs hash it 100,000 times, with a salt of 16 bytes.
const MOST_TURNS: u32 = 10_000_000;
const LONGEST_SALT: usize = 1 << 16;
/// The turns of Office 2007.
const TURNS_OF_2007: u32 = 50_000;
/// The most turns of Excel itself. A lock with more is not tried without a password, because anyone could have made it so that trying
/// it takes long.
const TURNS_OF_EXCEL: u32 = 100_000;
/// What the later form encrypts at once.
const SEGMENT: usize = 4096;
/// Only a package that is encrypted for the holders of rights has this storage ([MS-OFFCRYPTO] 2.2.4).
const OF_RIGHTS: &str = "/\u{6}DataSpaces/TransformInfo/DRMEncryptedTransform";

/// Opens the package with a password.
///
/// # Errors
/// [`FormatError::Encrypted`] for a wrong password, [`FormatError::Sealed`] for a lock that no password opens here.
pub(super) fn open<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    password: &Secret,
    limits: &Limits,
) -> Result<Opened, FormatError> {
    let lock = lock(file, limits)?;
    let key = lock.key(password)?.ok_or(FormatError::Encrypted { format: Format::Ole2 })?;
    package(file, &lock, &key, limits)
}

/// Opens a package that needs no password from anyone, because Excel locked it with its own. `None` if it is locked otherwise.
///
/// # Errors
/// What is wrong with such a package beyond its lock.
pub(super) fn open_protected<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    limits: &Limits,
) -> Result<Option<Opened>, FormatError> {
    // Whatever is wrong with a lock is told to those who give a password for it.
    let Ok(lock) = lock(file, limits) else { return Ok(None) };
    if lock.turns() > TURNS_OF_EXCEL {
        return Ok(None);
    }
    match lock.key(&built_in_password()) {
        Ok(Some(key)) => package(file, &lock, &key, limits).map(Some),
        Ok(None) | Err(_) => Ok(None),
    }
}

/// What the key of a lock opens.
fn package<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    lock: &Lock,
    key: &[u8],
    limits: &Limits,
) -> Result<Opened, FormatError> {
    let mut bytes = stream(file, "/EncryptedPackage", limits.input_bytes)?;
    lock.check(key, &bytes)?;
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length)).ok_or_else(damaged)?;
    bytes.drain(..size_of::<u64>());
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len()).ok_or_else(damaged)?;
    lock.open(key, &mut bytes)?;
    bytes.truncate(length);
    Opened::new(bytes)
}

/// Whether the package is locked in a way that no password opens here.
pub(super) fn is_sealed<R: Read + Seek>(file: &mut CompoundFile<R>) -> bool {
    // The length of the description alone bounds its cost.
    matches!(lock(file, &Limits::default()), Err(FormatError::Sealed { .. }))
}

fn lock<R: Read + Seek>(file: &mut CompoundFile<R>, limits: &Limits) -> Result<Lock, FormatError> {
    if file.exists(OF_RIGHTS) {
        return Err(sealed());
    }
    Lock::read(&stream(file, "/EncryptionInfo", LONGEST_INFO)?, limits)
}

fn stream<R: Read + Seek>(file: &mut CompoundFile<R>, name: &str, most: u64) -> Result<Vec<u8>, FormatError> {
    let stream = file.open_stream(name).map_err(|error| FormatError::corrupt(Format::Ole2, error))?;
    let mut bytes = Vec::new();
    let read = stream.take(most.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| FormatError::corrupt(Format::Ole2, error))?;
    if bytes.len() as u64 > most {
        return Err(FormatError::over(Limit::InputBytes, format_args!("the stream {name} has over {most} bytes")));
    }
    Ok(bytes)
}

fn damaged() -> FormatError {
    FormatError::corrupt(Format::Ole2, "the description of its encryption cannot be read")
}

fn sealed() -> FormatError {
    FormatError::Sealed { format: Format::Ole2 }
}

/// How a package is locked.
enum Lock {
    Standard(Standard),
    Agile(Agile),
}

impl Lock {
    fn read(info: &[u8], limits: &Limits) -> Result<Self, FormatError> {
        let mut fields = Fields(info);
        let (major, minor) = (fields.short()?, fields.short()?);
        match (major, minor) {
            (4, 4) => {
                // Its flags are always the same.
                fields.number()?;
                Agile::read(fields.0, limits).map(Self::Agile)
            }
            (2..=4, 2) => Standard::read(&mut fields).map(Self::Standard),
            _ => Err(sealed()),
        }
    }

    /// How often a password is hashed.
    fn turns(&self) -> u32 {
        match self {
            Self::Standard(_) => TURNS_OF_2007,
            Self::Agile(agile) => agile.turns,
        }
    }

    /// The key of the package; `None` if the password is wrong.
    fn key(&self, password: &Secret) -> Result<Option<Vec<u8>>, FormatError> {
        match self {
            Self::Standard(standard) => standard.key(password),
            Self::Agile(agile) => agile.key(password),
        }
    }

    /// Refuses a package, with its length in front, that was changed after it was locked. Only the later form can tell.
    fn check(&self, key: &[u8], package: &[u8]) -> Result<(), FormatError> {
        match self {
            Self::Standard(_) => Ok(()),
            Self::Agile(agile) => agile.check(key, package),
        }
    }

    fn open(&self, key: &[u8], bytes: &mut [u8]) -> Result<(), FormatError> {
        match self {
            Self::Standard(_) => decrypt(key, None, bytes).ok_or_else(damaged),
            Self::Agile(agile) => {
                for (segment, number) in bytes.chunks_mut(SEGMENT).zip(0u32..) {
                    let start = agile.data.start(&number.to_le_bytes());
                    decrypt(key, Some(start), segment).ok_or_else(damaged)?;
                }
                Ok(())
            }
        }
    }
}

/// Reads fields one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn short(&mut self) -> Result<u16, FormatError> {
        let bytes = self.bytes(size_of::<u16>())?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes)))
    }

    fn number(&mut self) -> Result<u32, FormatError> {
        let bytes = self.bytes(size_of::<u32>())?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }
}

/// The lock of Office 2007: AES, each block for itself, and SHA-1.
struct Standard {
    salt: Vec<u8>,
    key_bytes: usize,
    verifier: Vec<u8>,
    verifier_hash: Vec<u8>,
}

impl Standard {
    fn read(fields: &mut Fields<'_>) -> Result<Self, FormatError> {
        /// Set for AES; other packages of this form are locked by RC4, which no office program writes.
        const IS_AES: u32 = 1 << 5;
        const VERIFIER_HASH: usize = 32;
        let flags = fields.number()?;
        let header = fields.number()?;
        let mut header = Fields(fields.bytes(usize::try_from(header).map_err(|_| damaged())?)?);
        // The flags again, a size that is not used, and the names of cipher and hash.
        header.bytes(4 * size_of::<u32>())?;
        let bits = header.number()?;
        if flags & IS_AES == 0 || !matches!(bits, 128 | 192 | 256) {
            return Err(sealed());
        }
        let salt = fields.number()?;
        let salt = fields.bytes(usize::try_from(salt).map_err(|_| damaged())?)?.to_vec();
        let verifier = fields.bytes(BLOCK)?.to_vec();
        // The length of the hash, which is that of SHA-1.
        fields.number()?;
        let verifier_hash = fields.bytes(VERIFIER_HASH)?.to_vec();
        Ok(Self { salt, key_bytes: bits as usize / 8, verifier, verifier_hash })
    }

    fn key(&self, password: &Secret) -> Result<Option<Vec<u8>>, FormatError> {
        /// What the two halves of a key are made with.
        const PADS: [u8; 2] = [0x36, 0x5C];
        const PAD_BYTES: usize = 64;
        let spun = Hash::Sha1.spun(&self.salt, password.reveal(), TURNS_OF_2007);
        let last = Hash::Sha1.of(&spun, &0u32.to_le_bytes());
        let half = |pad: u8| {
            let mut padded = [pad; PAD_BYTES];
            padded.iter_mut().zip(&last).for_each(|(byte, with)| *byte ^= with);
            Hash::Sha1.of(&padded, &[])
        };
        let mut key = PADS.map(half).concat();
        key.truncate(self.key_bytes);
        let (mut verifier, mut verifier_hash) = (self.verifier.clone(), self.verifier_hash.clone());
        decrypt(&key, None, &mut verifier).ok_or_else(damaged)?;
        decrypt(&key, None, &mut verifier_hash).ok_or_else(damaged)?;
        let is_right = verifier_hash.starts_with(&Hash::Sha1.of(&verifier, &[]));
        Ok(is_right.then_some(key))
    }
}

/// The lock of Office 2010 and later.
struct Agile {
    /// How the package is encrypted.
    data: Cipher,
    /// What the package was when it was locked; some programs leave it out.
    integrity: Option<Integrity>,
    /// How the key of the package is encrypted, with the password.
    with: Cipher,
    turns: u32,
    verifier: Vec<u8>,
    verifier_hash: Vec<u8>,
    key: Vec<u8>,
}

/// The HMAC of a package, and the key that it was made with, both encrypted with the key of the package.
struct Integrity {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A cipher with its hash: AES, chained.
struct Cipher {
    salt: Vec<u8>,
    hash: Hash,
    key_bytes: usize,
}

impl Cipher {
    /// Where a chain begins.
    fn start(&self, block: &[u8]) -> [u8; BLOCK] {
        let start = fitted(self.hash.of(&self.salt, block), BLOCK);
        std::array::from_fn(|at| start[at])
    }
}

impl Agile {
    fn read(info: &[u8], limits: &Limits) -> Result<Self, FormatError> {
        let mut xml = XmlReader::new(info, Format::Ole2, limits);
        let (mut data, mut integrity, mut found) = (None, None, None);
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            let attribute = |name: &str| element.attribute(name);
            let value = |name: &str| {
                let bytes = attribute(name).and_then(|value| base64_decode(value.as_bytes()));
                bytes.ok_or_else(damaged)
            };
            let cipher = || -> Result<Cipher, FormatError> {
                let is_known = attribute("cipherAlgorithm") == Some("AES")
                    && attribute("cipherChaining") == Some("ChainingModeCBC")
                    && attribute("blockSize") == Some("16");
                let hash =
                    attribute("hashAlgorithm").and_then(Hash::of_name).filter(|_| is_known).ok_or_else(sealed)?;
                let key_bytes = match attribute("keyBits") {
                    Some("128") => 16,
                    Some("192") => 24,
                    Some("256") => 32,
                    _ => return Err(sealed()),
                };
                let salt = value("saltValue")?;
                if salt.len() > LONGEST_SALT { Err(damaged()) } else { Ok(Cipher { salt, hash, key_bytes }) }
            };
            match element.name.as_str() {
                "keyData" if data.is_none() => data = Some(cipher()?),
                "dataIntegrity" if integrity.is_none() => {
                    integrity =
                        Some(Integrity { key: value("encryptedHmacKey")?, value: value("encryptedHmacValue")? });
                }
                // Another key may be for the holder of a certificate, whose element has no password's turns.
                "encryptedKey" if found.is_none() && attribute("spinCount").is_some() => {
                    let turns = attribute("spinCount").and_then(|turns| turns.parse::<u32>().ok());
                    found = Some((
                        cipher()?,
                        turns.ok_or_else(damaged)?,
                        value("encryptedVerifierHashInput")?,
                        value("encryptedVerifierHashValue")?,
                        value("encryptedKeyValue")?,
                    ));
                }
                _ => {}
            }
            // Some programs write more than the document.
            if data.is_some() && found.is_some() {
                break;
            }
        }
        let (with, turns, verifier, verifier_hash, key) = found.ok_or_else(sealed)?;
        if turns > MOST_TURNS {
            let reason =
                format_args!("its password is hashed {turns} times, more than the {MOST_TURNS} that are allowed");
            return Err(FormatError::corrupt(Format::Ole2, reason));
        }
        Ok(Self { data: data.ok_or_else(damaged)?, integrity, with, turns, verifier, verifier_hash, key })
    }

    fn check(&self, key: &[u8], package: &[u8]) -> Result<(), FormatError> {
        /// What the chains of two values begin with.
        const KEY: [u8; 8] = [0x5F, 0xB2, 0xAD, 0x01, 0x0C, 0xB9, 0xE1, 0xF6];
        const VALUE: [u8; 8] = [0xA0, 0x67, 0x7F, 0x02, 0xB2, 0x2C, 0x84, 0x33];
        let Some(integrity) = &self.integrity else { return Ok(()) };
        let hash = self.data.hash;
        let opened = |value: &[u8], block: [u8; 8]| {
            let mut value = value.to_vec();
            decrypt(key, Some(self.data.start(&block)), &mut value).ok_or_else(damaged)?;
            // It is filled up to whole blocks.
            value.truncate(hash.length());
            Ok::<_, FormatError>(value)
        };
        if hash.mac(&opened(&integrity.key, KEY)?, package) == opened(&integrity.value, VALUE)? {
            Ok(())
        } else {
            Err(FormatError::corrupt(Format::Ole2, "what is encrypted in it was changed after it was encrypted"))
        }
    }

    fn key(&self, password: &Secret) -> Result<Option<Vec<u8>>, FormatError> {
        /// What the keys of three values are made with.
        const VERIFIER: [u8; 8] = [0xFE, 0xA7, 0xD2, 0x76, 0x3B, 0x4B, 0x9E, 0x79];
        const VERIFIER_HASH: [u8; 8] = [0xD7, 0xAA, 0x0F, 0x6D, 0x30, 0x61, 0x34, 0x4E];
        const KEY: [u8; 8] = [0x14, 0x6E, 0x0B, 0xE7, 0xAB, 0xAC, 0xD0, 0xD6];
        let Cipher { salt, hash, key_bytes } = &self.with;
        let spun = hash.spun(salt, password.reveal(), self.turns);
        let start = fitted(salt.clone(), BLOCK);
        let start: [u8; BLOCK] = std::array::from_fn(|at| start[at]);
        let opened = |value: &[u8], block: [u8; 8]| {
            let mut value = value.to_vec();
            decrypt(&fitted(hash.of(&spun, &block), *key_bytes), Some(start), &mut value).ok_or_else(damaged)?;
            Ok::<_, FormatError>(value)
        };
        let mut verifier = opened(&self.verifier, VERIFIER)?;
        // It is as long as the salt, and filled up to whole blocks.
        verifier.truncate(salt.len());
        let verifier_hash = opened(&self.verifier_hash, VERIFIER_HASH)?;
        if !verifier_hash.starts_with(&hash.of(&verifier, &[])) {
            return Ok(None);
        }
        let mut key = opened(&self.key, KEY)?;
        key.truncate(self.data.key_bytes);
        Ok(Some(key))
    }
}
