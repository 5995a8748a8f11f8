//! What a password opens: the keys and ciphers of locked office files ([MS-OFFCRYPTO] 2.3.4 to 2.3.6) and open documents.

use aes::{
    Aes128, Aes192, Aes256,
    cipher::{BlockDecrypt, BlockEncrypt, BlockSizeUser, KeyInit, consts::U16},
};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// The bytes of a block of AES.
pub(crate) const BLOCK: usize = 16;

/// The hash functions that office programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The function of a name in an agile description.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        match name {
            "SHA1" | "SHA-1" => Some(Self::Sha1),
            "SHA256" | "SHA-256" => Some(Self::Sha256),
            "SHA384" | "SHA-384" => Some(Self::Sha384),
            "SHA512" | "SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The hash of two pieces, one after the other.
    pub(crate) fn of(self, first: &[u8], second: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => of::<Sha1>(first, second),
            Self::Sha256 => of::<Sha256>(first, second),
            Self::Sha384 => of::<Sha384>(first, second),
            Self::Sha512 => of::<Sha512>(first, second),
        }
    }

    /// How many bytes a hash has.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The HMAC of a text (RFC 2104).
    pub(crate) fn mac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        const INNER: u8 = 0x36;
        const OUTER: u8 = 0x5C;
        // The function takes in so many bytes at once.
        let block = match self {
            Self::Sha1 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 => 128,
        };
        let mut key = if key.len() > block { self.of(key, &[]) } else { key.to_vec() };
        key.resize(block, 0);
        let with = |pad: u8| -> Vec<u8> { key.iter().map(|byte| byte ^ pad).collect() };
        self.of(&with(OUTER), &self.of(&with(INNER), text))
    }

    /// The hash of a salt and a password, hashed again so many times with the number of the turn before it.
    pub(crate) fn spun(self, salt: &[u8], password: &str, turns: u32) -> Vec<u8> {
        let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
        match self {
            Self::Sha1 => spun::<Sha1>(salt, &password, turns),
            Self::Sha256 => spun::<Sha256>(salt, &password, turns),
            Self::Sha384 => spun::<Sha384>(salt, &password, turns),
            Self::Sha512 => spun::<Sha512>(salt, &password, turns),
        }
    }
}

fn of<D: Digest>(first: &[u8], second: &[u8]) -> Vec<u8> {
    D::new().chain_update(first).chain_update(second).finalize().to_vec()
}

fn spun<D: Digest>(salt: &[u8], password: &[u8], turns: u32) -> Vec<u8> {
    let mut hash = D::new().chain_update(salt).chain_update(password).finalize();
    for turn in 0..turns {
        hash = D::new().chain_update(turn.to_le_bytes()).chain_update(&hash).finalize();
    }
    hash.to_vec()
}

/// A key of this length from a password and a salt: PBKDF2 with HMAC-SHA-1 (RFC 8018), hashed so many times.
pub(crate) fn derived(password: &[u8], salt: &[u8], turns: u32, length: usize) -> Vec<u8> {
    /// The function takes in so many bytes at once.
    const TAKEN_IN: usize = 64;
    let mut key = if password.len() > TAKEN_IN { Hash::Sha1.of(password, &[]) } else { password.to_vec() };
    key.resize(TAKEN_IN, 0);
    let with = |pad: u8| Sha1::new().chain_update(key.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>());
    // Both halves of the HMAC begin alike in every turn.
    let (inner, outer) = (with(0x36), with(0x5C));
    let mac = |text: &[u8]| outer.clone().chain_update(inner.clone().chain_update(text).finalize()).finalize();
    let mut derived = Vec::new();
    let mut number = 0u32;
    while derived.len() < length {
        number += 1;
        let mut last = mac(&[salt, &number.to_be_bytes()[..]].concat());
        let mut sum = last.to_vec();
        for _ in 1..turns {
            last = mac(&last[..]);
            sum.iter_mut().zip(last.iter()).for_each(|(sum, with)| *sum ^= with);
        }
        derived.extend(sum);
    }
    derived.truncate(length);
    derived
}

/// The hash that Office 97 uses.
pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

/// RC4, with keys of the length that a file names. The cipher is broken; it serves here only to read what it has locked.
pub(crate) struct Rc4 {
    state: [u8; 256],
    first: u8,
    second: u8,
}

impl Rc4 {
    pub(crate) fn new(key: &[u8]) -> Self {
        let mut state: [u8; 256] = std::array::from_fn(|at| at as u8);
        let mut second = 0u8;
        for (at, of_key) in (0..state.len()).zip(key.iter().cycle()) {
            second = second.wrapping_add(state[at]).wrapping_add(*of_key);
            state.swap(at, usize::from(second));
        }
        Self { state, first: 0, second: 0 }
    }

    /// The next byte of the key stream.
    pub(crate) fn turn(&mut self) -> u8 {
        self.first = self.first.wrapping_add(1);
        let at = usize::from(self.first);
        self.second = self.second.wrapping_add(self.state[at]);
        self.state.swap(at, usize::from(self.second));
        let sum = self.state[at].wrapping_add(self.state[usize::from(self.second)]);
        self.state[usize::from(sum)]
    }

    pub(crate) fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte ^= self.turn();
        }
    }
}

/// A hash cut to a length, or filled up to it.
pub(crate) fn fitted(mut hash: Vec<u8>, length: usize) -> Vec<u8> {
    const FILLER: u8 = 0x36;
    hash.resize(length, FILLER);
    hash
}

/// Decrypts whole blocks in place with AES: chained from `start`, or each for itself. `None` if AES has no keys of this
/// length; a part of a block at the end stays as it is.
pub(crate) fn decrypt(key: &[u8], start: Option<[u8; BLOCK]>, data: &mut [u8]) -> Option<()> {
    match key.len() {
        16 => blocks::<Aes128>(key, start, data),
        24 => blocks::<Aes192>(key, start, data),
        32 => blocks::<Aes256>(key, start, data),
        _ => None,
    }
}

fn blocks<C>(key: &[u8], start: Option<[u8; BLOCK]>, data: &mut [u8]) -> Option<()>
where
    C: BlockDecrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
{
    let cipher = C::new_from_slice(key).ok()?;
    let mut chained = start;
    let (blocks, _) = data.as_chunks_mut::<BLOCK>();
    for block in blocks {
        let before = *block;
        cipher.decrypt_block((&mut *block).into());
        if let Some(with) = &mut chained {
            block.iter_mut().zip(with.iter()).for_each(|(byte, with)| *byte ^= with);
            *with = before;
        }
    }
    Some(())
}

/// Encrypts or decrypts bytes in place with AES that counts its blocks from 1, as zip tools do. `None` if AES has no keys of this length.
pub(crate) fn counted(key: &[u8], data: &mut [u8]) -> Option<()> {
    match key.len() {
        16 => stream::<Aes128>(key, data),
        24 => stream::<Aes192>(key, data),
        32 => stream::<Aes256>(key, data),
        _ => None,
    }
}

fn stream<C>(key: &[u8], data: &mut [u8]) -> Option<()>
where
    C: BlockEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
{
    let cipher = C::new_from_slice(key).ok()?;
    for (piece, number) in data.chunks_mut(BLOCK).zip(1u128..) {
        let mut with = number.to_le_bytes();
        cipher.encrypt_block((&mut with).into());
        piece.iter_mut().zip(with).for_each(|(byte, with)| *byte ^= with);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes().chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    /// The vectors of NIST SP 800-38A, F.1 and F.2.
    #[test]
    fn blocks_are_decrypted_as_the_standard_says() {
        let plain = bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let key = bytes("2b7e151628aed2a6abf7158809cf4f3c");
        let mut alone = bytes("3ad77bb40d7a3660a89ecaf32466ef97f5d3d58503b9699de785895a96fdbaaf");
        decrypt(&key, None, &mut alone).unwrap();
        assert_eq!(alone, plain);
        let mut chained = bytes("7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2");
        decrypt(&key, Some(std::array::from_fn(|at| at as u8)), &mut chained).unwrap();
        assert_eq!(chained, plain);
        let long = bytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let mut of_long = bytes("f3eed1bdb5d2a03c064b5a7e3db181f8");
        decrypt(&long, None, &mut of_long).unwrap();
        assert_eq!(of_long, plain[..BLOCK]);
        assert_eq!(decrypt(&key[..5], None, &mut of_long), None);
    }

    /// The stream of the first block is the number 1, encrypted.
    #[test]
    fn blocks_are_counted_from_one() {
        let key = bytes("000102030405060708090a0b0c0d0e0f");
        let mut data = [0; 20];
        counted(&key, &mut data).unwrap();
        let mut first: [u8; BLOCK] = std::array::from_fn(|at| data[at]);
        decrypt(&key, None, &mut first).unwrap();
        assert_eq!(u128::from_le_bytes(first), 1);
        let once = data;
        counted(&key, &mut data).unwrap();
        assert_eq!(data, [0; 20], "it is its own reverse");
        assert_ne!(once[..4], once[16..], "each block has another stream");
        assert_eq!(counted(&key[..5], &mut data), None);
    }

    /// The vectors of RFC 6229 for keys of 40 and 128 bits, and a hash of RFC 1321.
    #[test]
    fn streams_are_opened_as_other_programs_lock_them() {
        for (key, expected) in [
            ("0102030405", "b2396305f03dc027ccc3524a0a1118a8"),
            ("0102030405060708090a0b0c0d0e0f10", "9ac7cc9a609d1ef7b2932899cde41b97"),
        ] {
            let mut text = [0; 16];
            Rc4::new(&bytes(key)).apply(&mut text);
            assert_eq!(text[..], bytes(expected), "{key}");
        }
        assert_eq!(md5(b"abc")[..], bytes("900150983cd24fb0d6963f7d28e17f72"));
    }

    #[test]
    fn hashes_are_cut_and_filled() {
        assert_eq!(fitted(vec![1, 2, 3], 2), [1, 2]);
        assert_eq!(fitted(vec![1], 3), [1, 0x36, 0x36]);
        assert_eq!(Hash::Sha1.of(b"a", b"bc"), bytes("a9993e364706816aba3e25717850c26c9cd0d89d"));
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            assert_eq!(hash.of(b"a", b"bc").len(), hash.length(), "{hash:?}");
        }
    }

    /// Vectors of RFC 6070, and one of a password that is longer than a block.
    #[test]
    fn keys_are_derived_as_the_standard_says() {
        assert_eq!(derived(b"password", b"salt", 1, 20), bytes("0c60c80f961f0e71f3a9b524af6012062fe037a6"));
        assert_eq!(derived(b"password", b"salt", 2, 20), bytes("ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"));
        let long = (b"passwordPASSWORDpassword", b"saltSALTsaltSALTsaltSALTsaltSALTsalt");
        let expected = "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038";
        assert_eq!(derived(long.0, long.1, 4096, 25), bytes(expected));
        let expected = "6fcaa29d60751059573c47dcec3c8cb92a90fdb8fc0950357d";
        assert_eq!(derived(&[b'k'; 80], b"salt", 3, 25), bytes(expected));
    }

    /// The vectors of RFC 2202 and RFC 4231, with a key that is shorter and one that is longer than a block.
    #[test]
    fn texts_are_authenticated_as_the_standard_says() {
        let (key, text) = (b"Jefe", b"what do ya want for nothing?");
        assert_eq!(Hash::Sha1.mac(key, text), bytes("effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"));
        let of_sha256 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(Hash::Sha256.mac(key, text), bytes(of_sha256));
        let of_sha512 = "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
            6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598";
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(Hash::Sha512.mac(&[0xAA; 131], text), bytes(of_sha512));
    }
}
