//! Unpacks the RTF of a message, which is compressed by LZFu: pieces of what came before are written as their places in a
//! window.

use crate::{Format, FormatError, Limit};

/// The bytes before the packed ones: two lengths, the kind and a checksum. The lengths are not believed.
const HEADER: usize = 16;
const PACKED: &[u8] = b"LZFu";
const UNPACKED: &[u8] = b"MELA";
const WINDOW: usize = 4096;
/// What every window begins with.
const FIRST: &[u8; 207] =
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \
\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par \
\\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx";

struct Window {
    bytes: [u8; WINDOW],
    /// Where the next byte goes.
    at: usize,
    out: Vec<u8>,
}

impl Window {
    fn push(&mut self, byte: u8) {
        self.bytes[self.at] = byte;
        self.at = (self.at + 1) % WINDOW;
        self.out.push(byte);
    }
}

/// The RTF, of at most so many bytes. One that breaks off is read as far as it goes.
pub(super) fn unpack(bytes: &[u8], most: u64) -> Result<Vec<u8>, FormatError> {
    let broken = || FormatError::corrupt(Format::Msg, "its compressed text has no header");
    let (kind, packed) = bytes.get(8..12).zip(bytes.get(HEADER..)).ok_or_else(broken)?;
    match kind {
        PACKED => {}
        UNPACKED => return Ok(packed.to_vec()),
        _ => return Err(FormatError::corrupt(Format::Msg, "its text is compressed in an unknown way")),
    }
    let mut window = Window { bytes: [b' '; WINDOW], at: FIRST.len(), out: Vec::new() };
    window.bytes[..FIRST.len()].copy_from_slice(FIRST);
    let mut packed = packed.iter().copied();
    while let Some(flags) = packed.next() {
        for bit in 0..8 {
            let Some(byte) = packed.next() else { return Ok(window.out) };
            if flags & (1 << bit) == 0 {
                window.push(byte);
                continue;
            }
            let Some(second) = packed.next() else { return Ok(window.out) };
            let place = usize::from(u16::from_be_bytes([byte, second]));
            let (from, length) = (place >> 4, (place & 0xF) + 2);
            // The place of the next byte holds nothing yet, so it stands for the end.
            if from == window.at {
                return Ok(window.out);
            }
            for step in 0..length {
                window.push(window.bytes[(from + step) % WINDOW]);
            }
        }
        if window.out.len() as u64 > most {
            return Err(FormatError::over(Limit::UnpackedBytes, format_args!("over {most} bytes of RTF")));
        }
    }
    Ok(window.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the description of the format.
    const EXAMPLE: &[u8] = b"\x2d\0\0\0\x2b\0\0\0LZFu\xf1\xc5\xc7\xa7\x03\0\x0a\0rcpg125B2\x0a\xf3 hel\x09\0 bw\x05\xb0ld}\x0a\x80\x0f\xa0";

    #[test]
    fn the_example_of_the_format_is_unpacked() {
        let unpacked = unpack(EXAMPLE, 1 << 20).unwrap();
        assert_eq!(String::from_utf8(unpacked).unwrap(), "{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n");
        assert_eq!(unpack(&[&[0; 8][..], UNPACKED, &[0; 4], b"{\\rtf1 x}"].concat(), 9).unwrap(), b"{\\rtf1 x}");
    }

    #[test]
    fn what_is_damaged_ends_and_what_is_too_long_is_refused() {
        for cut in 0..EXAMPLE.len() {
            assert_eq!(unpack(&EXAMPLE[..cut], 1 << 20).is_ok(), cut >= HEADER, "{cut}");
        }
        assert_eq!(unpack(&[0; 40], 1 << 20).unwrap_err().code(), "corrupt");
        // Each reference gives 16 bytes, and none of them is the end.
        let group = [&[0xFF][..], &[0, 0x0E].repeat(8)].concat();
        let packed = [&[0; 8][..], PACKED, &[0; 4], &group.repeat(1000)].concat();
        assert_eq!(unpack(&packed, 100_000).unwrap_err().limit(), Some(Limit::UnpackedBytes));
        assert_eq!(unpack(&packed, 1 << 20).unwrap().len(), 16 * 8 * 1000);
    }
}
