//! The locks of binary office files ([MS-OFFCRYPTO] 2.3.5 to 2.3.7).
//!
//! Office 97 and 2000 lock by RC4 with keys of 40 bits, which MD5 makes of the password. Later versions make keys by SHA-1, of the length
//! that the file names. Each block of a stream, or each object, has a key of its own. Older versions of Excel do not encrypt: they
//! obfuscate by sixteen bytes, which they make of the password.

use crate::{
    Format, FormatError, Secret,
    cipher::{Hash, Rc4, md5},
    compound::{long, short},
};
use encoding_rs::{
    BIG5, EUC_KR, GBK, SHIFT_JIS, WINDOWS_874, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1253, WINDOWS_1254,
    WINDOWS_1255, WINDOWS_1256, WINDOWS_1257, WINDOWS_1258,
};

/// The length in bytes of a salt, and of the verifier that tells a right password.
const SALT: usize = 16;
/// How much of a hash the keys of Office 97 are made of.
const KEY_OF_97: usize = 5;

/// How keys are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Md5,
    Sha1 { key_bytes: usize },
}

/// What a file says of its lock.
pub(crate) struct Lock {
    format: Format,
    form: Form,
    salt: Vec<u8>,
    /// The verifier and its hash, which only the right password opens.
    verifier: Vec<u8>,
    verifier_hash: Vec<u8>,
}

impl Lock {
    /// Reads the description of a lock, which begins with its version.
    pub(crate) fn read(format: Format, description: &[u8]) -> Result<Self, FormatError> {
        const RC4: [u32; 2] = [0, 0x6801];
        const SHA1: [u32; 2] = [0, 0x8004];
        const SHA1_BYTES: usize = 20;
        let damaged = || FormatError::corrupt(format, "the description of its encryption cannot be read");
        let bytes = |at: usize, count: usize| description.get(at..)?.get(..count).map(<[u8]>::to_vec);
        let taken = |form, salt: usize, verifier: usize, verifier_hash: usize, hash_bytes: usize| {
            let (salt, verifier) = (bytes(salt, SALT)?, bytes(verifier, SALT)?);
            Some(Self { format, form, salt, verifier, verifier_hash: bytes(verifier_hash, hash_bytes)? })
        };
        match (short(description, 0), short(description, 2)) {
            (Some(1), Some(1)) => taken(Form::Md5, 4, 20, 36, SALT).ok_or_else(damaged),
            (Some(2..=4), Some(2)) => {
                // The flags, and the length of a header; behind it, the salt with its length.
                const HEADER: usize = 12;
                let field = |at: usize| long(description, HEADER + at).ok_or_else(damaged);
                let (cipher, hash, bits) = (field(8)?, field(12)?, field(16)?);
                let key_bytes = match bits {
                    0 => KEY_OF_97,
                    40..=128 if bits.is_multiple_of(8) => bits as usize / 8,
                    _ => return Err(FormatError::Sealed { format }),
                };
                if !RC4.contains(&cipher) || !SHA1.contains(&hash) {
                    return Err(FormatError::Sealed { format });
                }
                let length = long(description, HEADER - 4).ok_or_else(damaged)?;
                let salt = HEADER.saturating_add(length as usize).saturating_add(4);
                let [verifier, verifier_hash] = [SALT, 2 * SALT + 4].map(|behind| salt.saturating_add(behind));
                taken(Form::Sha1 { key_bytes }, salt, verifier, verifier_hash, SHA1_BYTES).ok_or_else(damaged)
            }
            (None, _) | (_, None) => Err(damaged()),
            _ => Err(FormatError::Sealed { format }),
        }
    }

    /// The keys that a password makes; [`FormatError::Encrypted`] if it is wrong, or there is none.
    pub(crate) fn keys(&self, password: Option<&Secret>) -> Result<Keys, FormatError> {
        let refused = FormatError::Encrypted { format: self.format };
        let Some(password) = password else { return Err(refused) };
        let keys = Keys::new(self.form, &self.salt, password);
        let (mut verifier, mut verifier_hash) = (self.verifier.clone(), self.verifier_hash.clone());
        let mut cipher = keys.cipher(0);
        cipher.apply(&mut verifier);
        cipher.apply(&mut verifier_hash);
        if keys.hash(&verifier, &[]) == verifier_hash { Ok(keys) } else { Err(refused) }
    }
}

/// The keys of the blocks of a file.
pub(crate) struct Keys {
    form: Form,
    /// The hash that all keys are made of.
    base: Vec<u8>,
}

impl Keys {
    fn new(form: Form, salt: &[u8], password: &Secret) -> Self {
        /// How often the hash and the salt are hashed together.
        const TIMES: usize = 16;
        let password: Vec<u8> = password.reveal().encode_utf16().flat_map(u16::to_le_bytes).collect();
        let base = match form {
            Form::Md5 => {
                let hash = md5(&password);
                let again = [&hash[..KEY_OF_97], salt].concat().repeat(TIMES);
                md5(&again)[..KEY_OF_97].to_vec()
            }
            Form::Sha1 { .. } => Hash::Sha1.of(salt, &password),
        };
        Self { form, base }
    }

    /// The hash that goes with the form.
    fn hash(&self, first: &[u8], second: &[u8]) -> Vec<u8> {
        match self.form {
            Form::Md5 => md5(&[first, second].concat()).to_vec(),
            Form::Sha1 { .. } => Hash::Sha1.of(first, second),
        }
    }

    /// What opens a block, or an object, of this number.
    pub(crate) fn cipher(&self, block: u32) -> Rc4 {
        let mut key = self.hash(&self.base, &block.to_le_bytes());
        if let Form::Sha1 { key_bytes } = self.form {
            key.truncate(key_bytes);
            // A key of 40 bits is padded with zeros.
            if key_bytes == KEY_OF_97 {
                key.resize(SALT, 0);
            }
        }
        Rc4::new(&key)
    }

    /// Opens a stream from its beginning, whose blocks have this many bytes.
    pub(crate) fn stream(self, block_bytes: usize) -> OpenStream {
        OpenStream { cipher: self.cipher(0), keys: self, block_bytes, at: 0 }
    }
}

/// A stream that is opened piece by piece. The caller skips its plain pieces.
pub(crate) struct OpenStream {
    keys: Keys,
    cipher: Rc4,
    block_bytes: usize,
    at: usize,
}

impl OpenStream {
    pub(crate) fn open(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte ^= self.turn();
        }
    }

    pub(crate) fn pass(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    fn turn(&mut self) -> u8 {
        if self.at.is_multiple_of(self.block_bytes) {
            self.cipher = self.keys.cipher(u32::try_from(self.at / self.block_bytes).unwrap_or(u32::MAX));
        }
        self.at += 1;
        self.cipher.turn()
    }
}

/// The sixteen bytes by which a workbook is obfuscated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Veil([u8; Self::BYTES]);

impl Veil {
    const BYTES: usize = 16;
    /// The bytes that pad a short password.
    const FILLER: [u8; 15] = [0xBB, 0xFF, 0xFF, 0xBA, 0xFF, 0xFF, 0xB9, 0x80, 0x00, 0xBE, 0x0F, 0x00, 0xBF, 0x0F, 0x00];

    /// The bytes that a password makes; `None` if the password does not make this key and this checksum.
    pub(crate) fn new(password: &Secret, key: u16, sum: u16) -> Option<Self> {
        // Excel takes the letters in the code page of its computer, and nothing names that code page before the file is open.
        let of_computers = [
            WINDOWS_1252,
            WINDOWS_1250,
            WINDOWS_1251,
            WINDOWS_1253,
            WINDOWS_1254,
            WINDOWS_1255,
            WINDOWS_1256,
            WINDOWS_1257,
            WINDOWS_1258,
            WINDOWS_874,
            SHIFT_JIS,
            GBK,
            BIG5,
            EUC_KR,
        ];
        let letters = of_computers.into_iter().find_map(|encoding| {
            let (letters, _, has_others) = encoding.encode(password.reveal());
            let letters = &letters[..letters.len().min(Self::FILLER.len())];
            let fits = !has_others && !letters.is_empty() && Self::key(letters) == key && Self::sum(letters) == sum;
            fits.then(|| letters.to_vec())
        })?;
        let mut filled = letters.iter().chain(&Self::FILLER);
        let halves = key.to_le_bytes();
        Some(Self(std::array::from_fn(|at| {
            (filled.next().copied().unwrap_or_default() ^ halves[at % halves.len()]).rotate_right(1)
        })))
    }

    /// Clears the last bytes of a record that ends at `end`; before them its body has `plain` other bytes.
    pub(crate) fn clear(&self, end: usize, plain: usize, bytes: &mut [u8]) {
        for (byte, at) in bytes.iter_mut().zip(end.wrapping_add(plain)..) {
            *byte = (*byte ^ self.0[at % Self::BYTES]).rotate_left(3);
        }
    }

    /// The key: a shift register takes a step for each bit of the letters, and one more for each letter.
    fn key(letters: &[u8]) -> u16 {
        const TAPS: u16 = 0x1020;
        let step = |register: u16| match register.rotate_left(1) {
            next if next & 1 == 1 => next ^ TAPS,
            next => next,
        };
        let (mut key, mut register, mut last) = (0, 0x8000, 0xFFFF);
        for letter in letters.iter().rev() {
            for bit in 0..8 {
                (register, last) = (step(register), step(last));
                // The highest bit of a letter does not count.
                if bit < 7 && letter >> bit & 1 == 1 {
                    key ^= register;
                }
            }
        }
        key ^ last
    }

    fn sum(letters: &[u8]) -> u16 {
        const BITS: u16 = 0x7FFF;
        let length = u16::try_from(letters.len()).unwrap_or(u16::MAX);
        let turned = |sum: u16| (sum << 1 & BITS) | (sum >> 14 & 1);
        let sum = letters.iter().rev().fold(0, |sum, letter| turned(sum) ^ u16::from(*letter));
        turned(sum) ^ length ^ 0xCE4B
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The keys of a password and the description of their lock: by MD5, or by SHA-1 with keys of this many bits.
    pub(crate) fn locked_with(password: &str, bits: Option<u32>) -> (Keys, Vec<u8>) {
        let (salt, mut verifier) = ([7; SALT], vec![9; SALT]);
        let form = match bits {
            None => Form::Md5,
            Some(bits) => Form::Sha1 { key_bytes: bits as usize / 8 },
        };
        let keys = Keys::new(form, &salt, &Secret::new(password));
        let mut hash = keys.hash(&verifier, &[]);
        let mut cipher = keys.cipher(0);
        cipher.apply(&mut verifier);
        cipher.apply(&mut hash);
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let description = match bits {
            None => [&[1u8, 0, 1, 0][..], &salt, &verifier, &hash].concat(),
            Some(bits) => {
                let header = [numbers(&[4, 0, 0x6801, 0x8004, bits, 1, 0, 0]), b"C\0S\0P\0\0\0".to_vec()].concat();
                let head =
                    [&[2u8, 0, 2, 0][..], &numbers(&[4, header.len() as u32]), &header, &numbers(&[16])].concat();
                [head, salt.to_vec(), verifier, numbers(&[20]), hash].concat()
            }
        };
        (keys, description)
    }

    fn keys(description: &[u8], password: &str) -> Result<Keys, FormatError> {
        Lock::read(Format::Doc, description)?.keys(Some(&Secret::new(password)))
    }

    /// A lock of Office 97 with its password, as other programs made them.
    #[test]
    fn a_known_lock_is_opened_by_its_password_alone() {
        let salt = *b"\xe8w,\x1d\x91\xc5j7\x96Ga\xb2\x80\x182\x17";
        let verifier = *b"\xc9\xe9\x97\xd4T\x97=1\x0b\xb1\xbap\x14&\x83~";
        let hash = *b"\xb1\xde\x17\x8f\x07\xe9\x89\xc4M\xae^L\xf9j\xc4\x07";
        let description = [&[1u8, 0, 1, 0][..], &salt, &verifier, &hash].concat();
        let opened = keys(&description, "password1").unwrap();
        let first = opened.hash(&opened.base, &0u32.to_le_bytes());
        assert_eq!(first, b" \xbf2\xdd\xf5@\x85\x8cQ7D\xaf\x0f$\xe0<");
        let refused = FormatError::Encrypted { format: Format::Doc };
        assert_eq!(keys(&description, "password2").err(), Some(refused.clone()));
        assert_eq!(Lock::read(Format::Doc, &description).unwrap().keys(None).err(), Some(refused));
    }

    #[test]
    fn every_length_of_a_key_opens_what_it_has_locked() {
        for bits in [None, Some(40), Some(56), Some(128)] {
            let (locking, description) = locked_with("Wehr über Erlen 🦆", bits);
            let plain: Vec<u8> = (0..3000u32).map(|at| at as u8).collect();
            let mut bytes = plain.clone();
            let mut stream = locking.stream(512);
            stream.pass(1000);
            stream.open(&mut bytes[1000..]);
            assert!(bytes[..1000] == plain[..1000] && bytes[1000..] != plain[1000..]);
            let mut stream = keys(&description, "Wehr über Erlen 🦆").unwrap().stream(512);
            stream.pass(1000);
            let (first, rest) = bytes[1000..].split_at_mut(77);
            stream.open(first);
            stream.open(rest);
            assert_eq!(bytes, plain, "{bits:?}");
            assert_eq!(keys(&description, "heron").err().map(|error| error.code()), Some("encrypted"), "{bits:?}");
        }
    }

    #[test]
    fn a_lock_that_is_cut_or_of_another_kind_is_refused() {
        for bits in [None, Some(128)] {
            let (_, description) = locked_with("heron", bits);
            for cut in 0..description.len() {
                assert_eq!(
                    keys(&description[..cut], "heron").err().map(|error| error.code()),
                    Some("corrupt"),
                    "{cut}"
                );
            }
        }
        let (_, description) = locked_with("heron", Some(128));
        for (at, other) in [(0, 9u32), (12 + 8, 0x660E), (12 + 12, 0x800C), (12 + 16, 256), (12 + 16, 41)] {
            let mut changed = description.clone();
            changed[at..at + 4].copy_from_slice(&other.to_le_bytes());
            assert_eq!(keys(&changed, "heron").err(), Some(FormatError::Sealed { format: Format::Doc }), "{at}");
        }
        let mut far = description.clone();
        far[8..12].fill(0xFF);
        assert_eq!(keys(&far, "heron").err().map(|error| error.code()), Some("corrupt"));
    }

    /// Values that the procedures of the standard give.
    #[test]
    fn what_is_obfuscated_is_cleared_by_its_password_alone() {
        let veil = Veil::new(&Secret::new("heron"), 0xCF7E, 0xC7AA).unwrap();
        assert_eq!(veil.0, 0x0b55_0650_083a_c018_6218_c03b_7fe7_6060u128.to_be_bytes());
        let long = Veil::new(&Secret::new("VelvetSweatshop"), 0xB359, 0x9A0A).unwrap();
        assert_eq!(long.0, 0x876b_9ae2_1ee3_0562_1e69_9660_986e_9404u128.to_be_bytes());
        assert_eq!(Veil::sum(b"password"), 0x83AF);
        for wrong in ["Heron", "", "heron ", "цапля"] {
            assert_eq!(Veil::new(&Secret::new(wrong), 0xCF7E, 0xC7AA), None, "{wrong}");
        }
        // Passwords from computers with other code pages.
        for (password, letters) in [("цапля", &b"\xF6\xE0\xEF\xEB\xFF"[..]), ("サギ", b"\x83T\x83M")] {
            let veil = Veil::new(&Secret::new(password), Veil::key(letters), Veil::sum(letters));
            assert_eq!(
                veil.map(|veil| veil.0[0]),
                Some((letters[0] ^ Veil::key(letters).to_le_bytes()[0]).rotate_right(1))
            );
        }
        let mut bytes = *b"\x12\x34";
        veil.clear(30, 1, &mut bytes);
        assert_eq!(bytes, [(0x12u8 ^ 0x60).rotate_left(3), (0x34u8 ^ 0x0b).rotate_left(3)]);
    }
}
