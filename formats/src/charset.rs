//! Finds the encoding of a text and decodes it.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{DecoderResult, Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};
use encoding_rs_io::DecodeReaderBytesBuilder;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};

/// A decoded text without byte order marks and NUL; its lines end in `\n`.
pub(crate) struct Decoded {
    pub text: String,
    /// The name in the Encoding Standard, or of UTF-32, which that standard does not have.
    pub charset: &'static str,
    /// Whether some bytes were not characters and became U+FFFD.
    pub had_errors: bool,
}

/// An encoding with units of two or four bytes, recognised by a mark or by the positions of its NUL bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wide {
    Utf16(&'static Encoding),
    Utf32 { big_endian: bool },
}

/// How many bytes are examined for the width of characters.
const SAMPLE: usize = 4096;

/// A text has at most one stray NUL in so many bytes.
const STRAY_SHARE: usize = 20;

/// Whether the head of a file reads as text. `whole` says that nothing follows it.
pub(crate) fn looks_like_text(head: &[u8], whole: bool) -> bool {
    // RTF may hold pictures as raw bytes, but it is text.
    if wide(head).is_some() || head.starts_with(crate::rtf::MARK.as_bytes()) {
        return true;
    }
    if !has_few_nuls(head) {
        return false;
    }
    match std::str::from_utf8(head) {
        Ok(_) => has_text_bytes(head),
        // A character that the end of the head cuts is not an error.
        Err(error) if !whole && error.error_len().is_none() => has_text_bytes(head),
        Err(_) => match nuls(head) {
            0 => controls(head) * 100 <= head.len(),
            // They are the only controls.
            strays => strays * STRAY_SHARE <= head.len(),
        },
    }
}

/// Whether bytes from the middle of a file may be text with one-byte units.
pub(crate) fn has_text_bytes(window: &[u8]) -> bool {
    has_few_nuls(window) && controls(window) * 10 <= window.len()
}

/// Whether the bytes have few NUL bytes. Bytes that are not text have many, also side by side, and other controls too;
/// a stray NUL in a text is dropped when it is read. Each line of a text may have one, or each name of a list.
pub(crate) fn has_few_nuls(bytes: &[u8]) -> bool {
    let nuls = nuls(bytes);
    let are_strays = nuls * STRAY_SHARE <= bytes.len() && memchr::memmem::find(bytes, b"\0\0").is_none();
    nuls == 0 || ((are_strays || nuls * 1000 <= bytes.len().max(1000)) && controls(bytes) == nuls)
}

fn nuls(bytes: &[u8]) -> usize {
    memchr::memchr_iter(0, bytes).count()
}

/// Counts controls. Random bytes decode as windows-1252, so the density of controls distinguishes them from text.
fn controls(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| matches!(byte, 0x00..=0x08 | 0x0E..=0x1A | 0x1C..=0x1F | 0x7F)).count()
}

/// The encoding with units of two or four bytes, if it is one. It is recognised by its mark, or else by NUL bytes that
/// are all in the high part of a unit; and the decoded units must be text.
fn wide(head: &[u8]) -> Option<Wide> {
    let sample = &head[..head.len().min(SAMPLE)];
    let (marked, bare) = match sample {
        [0xFF, 0xFE, 0, 0, ..] => (Some(Wide::Utf32 { big_endian: false }), None),
        [0, 0, 0xFE, 0xFF, ..] => (Some(Wide::Utf32 { big_endian: true }), None),
        [0xFF, 0xFE, ..] => (Some(Wide::Utf16(UTF_16LE)), None),
        [0xFE, 0xFF, ..] => (Some(Wide::Utf16(UTF_16BE)), None),
        _ => (None, by_zeros(sample)),
    };
    marked.or(bare).filter(|wide| {
        let characters = match wide {
            Wide::Utf16(charset) => charset.decode_without_bom_handling(&sample[..sample.len() & !1]).0.into_owned(),
            Wide::Utf32 { big_endian } => decode_utf_32(&sample[..sample.len() & !3], *big_endian).0,
        };
        let characters = characters.trim_start_matches('\u{FEFF}');
        // Without a mark, a few NUL bytes may be strays. Only scripts with two significant bytes per character have
        // few.
        if marked.is_none() && sample.iter().filter(|&&byte| byte == 0).count() * 3 < sample.len() {
            return characters.chars().all(is_east_asian);
        }
        // The last unit may be half of a character.
        let odd = characters.chars().filter(|&character| is_odd(character)).count().saturating_sub(1);
        odd * 20 <= characters.chars().count()
    })
}

/// Characters that no text contains: controls, private use, and replacements of broken units.
fn is_odd(character: char) -> bool {
    (character.is_control() && !character.is_ascii_whitespace() && character != '\u{1B}')
        || matches!(character, '\u{E000}'..='\u{F8FF}' | '\u{FFFD}' | '\u{FFFE}' | '\u{FFFF}' | '\u{F0000}'..)
}

fn is_east_asian(character: char) -> bool {
    character.is_ascii()
        || matches!(character, '\u{2010}'..='\u{2026}' | '\u{3000}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}' | '\u{FF00}'..='\u{FFEF}')
}

fn by_zeros(sample: &[u8]) -> Option<Wide> {
    if sample.len() < 8 {
        return None;
    }
    let mut zeros = [0usize; 4];
    for unit in sample.chunks_exact(4) {
        for (zeros, byte) in zeros.iter_mut().zip(unit) {
            *zeros += usize::from(*byte == 0);
        }
    }
    let units = sample.len() / 4;
    let [first, second, third, fourth] = zeros;
    if first * 5 <= units && third * 10 >= units * 9 && fourth == units {
        return Some(Wide::Utf32 { big_endian: false });
    }
    if fourth * 5 <= units && first == units && second * 10 >= units * 9 {
        return Some(Wide::Utf32 { big_endian: true });
    }
    match (first + third, second + fourth) {
        (0, 1..) => Some(Wide::Utf16(UTF_16LE)),
        (1.., 0) => Some(Wide::Utf16(UTF_16BE)),
        _ => None,
    }
}

/// Decodes a text of unknown encoding: by its mark, then as UTF-8, then as what the bytes resemble most.
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    let charset = match wide(bytes) {
        Some(Wide::Utf32 { big_endian }) => {
            let (text, had_errors) = decode_utf_32(bytes, big_endian);
            let charset = if big_endian { "UTF-32BE" } else { "UTF-32LE" };
            return Decoded { text: clean(text.trim_start_matches('\u{FEFF}')), charset, had_errors };
        }
        Some(Wide::Utf16(charset)) => charset,
        None => guess(bytes),
    };
    let (decoded, had_errors) = charset.decode_with_bom_removal(bytes);
    Decoded { text: clean(&decoded), charset: charset.name(), had_errors }
}

fn decode_utf_32(bytes: &[u8], big_endian: bool) -> (String, bool) {
    let mut had_errors = !bytes.len().is_multiple_of(4);
    let units = bytes.chunks_exact(4).map(|unit| {
        let unit = [unit[0], unit[1], unit[2], unit[3]];
        let value = if big_endian { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) };
        char::from_u32(value).unwrap_or_else(|| {
            had_errors = true;
            char::REPLACEMENT_CHARACTER
        })
    });
    (units.collect(), had_errors)
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    if memchr::memchr(0x1B, bytes).is_some() && is_iso_2022_jp(&mut &*bytes).unwrap_or_default() {
        return ISO_2022_JP;
    }
    if std::str::from_utf8(bytes).is_ok() || is_utf_8(&mut &*bytes).unwrap_or_default() {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

/// The encoding of a text that is too large to be decoded at once. It is the one that [`decode`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    Standard(&'static Encoding),
    Utf32 { big_endian: bool },
}

/// How much is read at a time.
const BLOCK: usize = 64 << 10;

impl Charset {
    /// The name in the Encoding Standard, or of UTF-32.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard(charset) => charset.name(),
            Self::Utf32 { big_endian: true } => "UTF-32BE",
            Self::Utf32 { big_endian: false } => "UTF-32LE",
        }
    }

    /// Reads all of the source, a block at a time.
    pub(crate) fn of<R: Read + Seek>(source: &mut R) -> io::Result<Self> {
        source.seek(SeekFrom::Start(0))?;
        let mut sample = Vec::new();
        source.by_ref().take(SAMPLE as u64).read_to_end(&mut sample)?;
        match wide(&sample) {
            Some(Wide::Utf32 { big_endian }) => return Ok(Self::Utf32 { big_endian }),
            Some(Wide::Utf16(charset)) => return Ok(Self::Standard(charset)),
            None => {}
        }
        source.seek(SeekFrom::Start(0))?;
        if is_iso_2022_jp(source)? {
            return Ok(Self::Standard(ISO_2022_JP));
        }
        source.seek(SeekFrom::Start(0))?;
        if is_utf_8(source)? {
            return Ok(Self::Standard(UTF_8));
        }
        source.seek(SeekFrom::Start(0))?;
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
        let mut block = vec![0; BLOCK];
        loop {
            let read = source.read(&mut block)?;
            detector.feed(&block[..read], read == 0);
            if read == 0 {
                return Ok(Self::Standard(detector.guess(None, Utf8Detection::Allow)));
            }
        }
    }

    /// The text in UTF-8 from its beginning, without a mark. NUL and line ends are as they are.
    pub(crate) fn reader<'a, R: Read + Seek>(self, source: &'a mut R) -> io::Result<Box<dyn BufRead + 'a>> {
        source.seek(SeekFrom::Start(0))?;
        match self {
            Self::Standard(charset) => {
                let decoded = DecodeReaderBytesBuilder::new()
                    .encoding(Some(charset))
                    // What is broken in UTF-8 is replaced.
                    .utf8_passthru(false)
                    .strip_bom(true)
                    .build(source);
                Ok(Box::new(BufReader::with_capacity(BLOCK, decoded)))
            }
            // Hardly anybody has such a text, and the standard does not know it.
            Self::Utf32 { big_endian } => {
                let mut bytes = Vec::new();
                source.read_to_end(&mut bytes)?;
                let text = decode_utf_32(&bytes, big_endian).0;
                Ok(Box::new(Cursor::new(text.trim_start_matches('\u{FEFF}').to_owned().into_bytes())))
            }
        }
    }
}

/// Whether a text is ASCII whose escapes select Japanese characters, and so would read as UTF-8, too. The escapes that
/// colour a terminal are others.
fn is_iso_2022_jp<R: Read>(source: &mut R) -> io::Result<bool> {
    let mut decoder = ISO_2022_JP.new_decoder_without_bom_handling();
    let (mut block, mut text) = (vec![0; BLOCK], vec![0; BLOCK]);
    let (mut is_escaped, mut is_japanese) = (false, false);
    loop {
        let read = source.read(&mut block)?;
        if read == 0 {
            return Ok(is_japanese);
        }
        if !block[..read].is_ascii() {
            return Ok(false);
        }
        is_escaped |= memchr::memchr(0x1B, &block[..read]).is_some();
        // Before the first escape there is nothing to decode.
        if !is_escaped {
            continue;
        }
        let mut from = 0;
        loop {
            // A character that the end cuts is not an error, because the bytes may be the head of a file.
            let (result, taken, written) =
                decoder.decode_to_utf8_without_replacement(&block[from..read], &mut text, false);
            from += taken;
            is_japanese |= !text[..written].is_ascii();
            match result {
                DecoderResult::InputEmpty => break,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => return Ok(false),
            }
        }
    }
}

/// Of so many characters of UTF-8 one may be broken: other encodings hardly ever write even one.
const BROKEN: u64 = 10;

/// Whether a text is UTF-8, but for the few characters that a program cut or took from elsewhere.
fn is_utf_8<R: Read>(source: &mut R) -> io::Result<bool> {
    const MARK: &[u8] = "\u{FEFF}".as_bytes();
    let mut block = vec![0; BLOCK];
    // The bytes of a character that the end of a block cuts.
    let mut kept = 0;
    let (mut is_begin, mut is_marked, mut whole, mut broken) = (true, false, 0_u64, 0_u64);
    loop {
        let read = source.read(&mut block[kept..])?;
        let filled = kept + read;
        is_marked |= is_begin && block[..filled].starts_with(MARK);
        is_begin = false;
        let mut from = 0;
        while from < filled {
            let (valid, length) = match std::str::from_utf8(&block[from..filled]) {
                Ok(_) => (filled - from, 0),
                Err(error) => match error.error_len() {
                    Some(length) => {
                        broken += 1;
                        (error.valid_up_to(), length)
                    }
                    None if read > 0 => {
                        whole += characters(&block[from..from + error.valid_up_to()]);
                        from += error.valid_up_to();
                        break;
                    }
                    // The end cuts a character.
                    None => {
                        broken += 1;
                        (error.valid_up_to(), filled - from - error.valid_up_to())
                    }
                },
            };
            whole += characters(&block[from..from + valid]);
            from += valid + length;
        }
        if read == 0 {
            return Ok(is_marked || whole >= BROKEN * broken);
        }
        block.copy_within(from..filled, 0);
        kept = filled - from;
    }
}

/// How many characters of UTF-8 are no ASCII.
fn characters(utf_8: &[u8]) -> u64 {
    utf_8.iter().filter(|byte| **byte >= 0xC0).count() as u64
}

/// Removes NUL, which never reaches the store, and makes each line end one character, so that offsets mean the same
/// everywhere.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\0' => {}
            '\r' => {
                characters.next_if_eq(&'\n');
                clean.push('\n');
            }
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_line_ends_go() {
        let decoded = decode(b"\xEF\xBB\xBFa\r\nb\rc\nd\0e");
        assert_eq!((decoded.text.as_str(), decoded.charset, decoded.had_errors), ("a\nb\nc\nde", "UTF-8", false));
    }

    #[test]
    fn a_stray_nul_makes_no_text_another_kind_of_file() {
        let text = "Measured at the mill: 72 ducks, of which a stray one\0 hides a NUL byte.\n";
        assert!(looks_like_text(text.as_bytes(), true));
        assert!(!decode(text.as_bytes()).text.contains('\0'));
        for binary in [&b"\0"[..], b"\0\x01\x02\x03", b"MZ\0\0 and words that follow", &[0; 4096]] {
            assert!(!looks_like_text(binary, true), "{binary:?}");
        }
    }

    #[test]
    fn a_broken_character_makes_no_utf_8_another_encoding() {
        let german =
            "Für die Mühle zählten wir Enten, größere und dünnere, am späten Nachmittag über der Brücke. ".repeat(3);
        let broken = [german.as_bytes(), b"\xE4 ", german.as_bytes(), b"\xC3"].concat();
        let decoded = decode(&broken);
        assert_eq!((decoded.charset, decoded.had_errors), ("UTF-8", true));
        assert_eq!(decoded.text, format!("{german}\u{FFFD} {german}\u{FFFD}"));
        let charset = Charset::of(&mut Cursor::new(&broken)).unwrap();
        let mut read = String::new();
        charset.reader(&mut Cursor::new(&broken)).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, decoded.text);
        let (latin, _, _) = encoding_rs::WINDOWS_1252.encode(&german);
        for text in [&latin[..], b"caf\xE9", &[&latin[..], "für die Mühle".as_bytes()].concat()] {
            assert_eq!(decode(text).charset, "windows-1252");
            assert_eq!(Charset::of(&mut Cursor::new(text)).unwrap().name(), "windows-1252");
        }
        assert_eq!(decode(b"\xEF\xBB\xBFone \xE4").charset, "UTF-8");
    }

    #[test]
    fn strays_are_judged_by_their_share_and_not_by_their_number() {
        for line in ["The gauge at the mill\0 shows 72.\n", "Le débit\0 à la passe aux poissons.\n"] {
            let (latin, _, _) = encoding_rs::WINDOWS_1252.encode(line);
            for line in [line.as_bytes(), &latin[..]] {
                for lines in [1, 20, 2000] {
                    let text = line.repeat(lines);
                    assert!(looks_like_text(&text, true), "{lines} of {line:?}");
                    assert!(!decode(&text).text.contains('\0'));
                }
            }
        }
        let head: Vec<u8> =
            [&b"pond.txt\0\0\0\0\0\x000000644\0ustar"[..], &b"words of the pond ".repeat(50)[..]].concat();
        assert!(!looks_like_text(&head, true), "an archive pads with NUL bytes");
        assert!(!looks_like_text(&b"ab\0cd\0ef\0gh\0".repeat(100), true), "too many");
    }

    #[test]
    fn utf_16_reads_with_and_without_a_mark() {
        let bare: Vec<u8> = "Plain words.".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(looks_like_text(&bare, true));
        assert_eq!(decode(&bare).text, "Plain words.");
        let marked: Vec<u8> = "\u{FEFF}Żółw".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(decode(&marked).text, "Żółw");
        let script: Vec<u8> = "中文的句子。 第二句。\n".repeat(9).encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(looks_like_text(&script, true));
        assert_eq!(decode(&script).charset, "UTF-16LE");
    }

    #[test]
    fn utf_32_reads_with_and_without_a_mark() {
        for mark in ["", "\u{FEFF}"] {
            let text = format!("{mark}Plain words, \u{1F600}.");
            let little: Vec<u8> = text.chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
            let big: Vec<u8> = text.chars().flat_map(|character| u32::from(character).to_be_bytes()).collect();
            for (bytes, charset) in [(little, "UTF-32LE"), (big, "UTF-32BE")] {
                assert!(looks_like_text(&bytes, true), "{charset}");
                let decoded = decode(&bytes);
                assert_eq!((decoded.text.as_str(), decoded.charset), ("Plain words, \u{1F600}.", charset));
            }
        }
    }

    #[test]
    fn escapes_that_select_japanese_are_told_from_those_that_colour() {
        let text = "Subject: 日本語のテキスト。\n";
        let (japanese, _, _) = ISO_2022_JP.encode(text);
        assert!(japanese.is_ascii());
        for (bytes, charset, expected) in [
            (&japanese[..], "ISO-2022-JP", text),
            (b"\x1B[31mred\x1B[0m\n", "UTF-8", "\x1B[31mred\x1B[0m\n"),
            (b"\x1B(B\x1B[mreset\n", "UTF-8", "\x1B(B\x1B[mreset\n"),
            (b"\x1B(Bplain\n", "UTF-8", "\x1B(Bplain\n"),
        ] {
            let decoded = decode(bytes);
            assert_eq!((decoded.charset, decoded.text.as_str()), (charset, expected));
            // Escapes are found behind any number of blocks.
            let long = [&b"plain words\n".repeat(20_000)[..], bytes].concat();
            assert_eq!(Charset::of(&mut Cursor::new(&long)).unwrap().name(), charset);
            assert!(decode(&long).text.ends_with(expected));
        }
        assert_eq!(decode(&japanese[..japanese.len() - 5]).charset, "ISO-2022-JP", "a head that cuts a character");
    }

    #[test]
    fn a_large_text_is_decoded_as_a_small_one() {
        let lines = "żółw, café;\r\n".repeat(20_000);
        let utf_16: Vec<u8> = "\u{FEFF}"
            .chars()
            .chain(lines.chars())
            .collect::<String>()
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let utf_32: Vec<u8> = lines.chars().flat_map(|character| u32::from(character).to_be_bytes()).collect();
        let (latin, _, _) = encoding_rs::WINDOWS_1250.encode(&lines);
        let marked = format!("\u{FEFF}{lines}").into_bytes();
        let cut = lines.as_bytes()[..lines.len() - 12].to_vec();
        for bytes in [lines.clone().into_bytes(), marked, utf_16, utf_32, latin.into_owned(), cut] {
            let mut source = Cursor::new(&bytes);
            let charset = Charset::of(&mut source).unwrap();
            let mut text = String::new();
            charset.reader(&mut source).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(clean(&text), decode(&bytes).text, "{charset:?}");
        }
    }

    #[test]
    fn a_mark_alone_makes_no_text() {
        let noise = (0..4096u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8);
        let marked: Vec<u8> = [0xFF, 0xFE].into_iter().chain(noise).collect();
        assert!(!looks_like_text(&marked, true));
        let samples: Vec<u8> = (0..2048i16).flat_map(|index| (index.wrapping_mul(7919) | 1).to_le_bytes()).collect();
        assert!(!looks_like_text(&samples, true), "sound is no text either");
    }

    #[test]
    fn a_character_cut_by_the_window_is_still_text() {
        let head = "é".repeat(10).into_bytes();
        assert!(looks_like_text(&head[..19], false));
    }

    #[test]
    fn noise_is_no_text() {
        let noise: Vec<u8> = (0..4096u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        assert!(!looks_like_text(&noise, true));
    }
}
