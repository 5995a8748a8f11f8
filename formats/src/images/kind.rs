//! Recognises a picture by its bytes, and reads its size from its header.

/// What a picture's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub mime: &'static str,
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
}

/// How far into a picture its header is looked for.
const HEADER_BYTES: usize = 1024;
/// How many segments a JPEG has before its size, notes a GIF before its first frame, and entries a TIFF.
const MOST_SEGMENTS: usize = 1000;

/// `None` for bytes of no known kind.
pub(super) fn look(bytes: &[u8]) -> Option<Look> {
    let of =
        |mime, size: Option<(u32, u32)>| Some(Look { mime, size: size.filter(|(wide, high)| *wide > 0 && *high > 0) });
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => of("image/png", big(bytes, 16).zip(big(bytes, 20))),
        [0xFF, 0xD8, 0xFF, ..] => of("image/jpeg", jpeg(bytes)),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => of("image/gif", gif(bytes)),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => of("image/webp", webp(bytes)),
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => of("image/tiff", tiff(bytes)),
        [0, 0, 0, 0x0C, b'j', b'P', b' ', b' ', ..] => of("image/jp2", jp2(bytes)),
        [0xFF, 0x4F, 0xFF, 0x51, ..] => of("image/j2c", codestream(bytes)),
        // Texts begin with these letters too, but not with the length of a header behind them.
        [b'B', b'M', ..] if matches!(little(bytes, 14), Some(12 | 16 | 40 | 52 | 56 | 64 | 108 | 124)) => {
            of("image/bmp", bmp(bytes))
        }
        [1, 0, 0, 0, ..] if bytes.get(40..44) == Some(&b" EMF"[..]) => of("image/emf", emf(bytes)),
        [0xD7, 0xCD, 0xC6, 0x9A, ..] | [1 | 2, 0, 9, 0, 0, 1 | 3, ..] => of("image/wmf", None),
        _ if is_svg(bytes) => of("image/svg+xml", None),
        _ => None,
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn big(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn little(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// Two numbers of two bytes, the small byte first.
fn pair(bytes: &[u8], at: usize) -> Option<(u32, u32)> {
    let [one, two, three, four] = array(bytes, at)?;
    Some((u16::from_le_bytes([one, two]).into(), u16::from_le_bytes([three, four]).into()))
}

/// The first frame may be larger than the screen whose size the header tells.
fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    let (wide, high) = pair(bytes, 6)?;
    let frame = gif_frame(bytes).unwrap_or_default();
    Some((wide.max(frame.0), high.max(frame.1)))
}

/// The size of the first frame, which comes behind the colours and notes of programs.
fn gif_frame(bytes: &[u8]) -> Option<(u32, u32)> {
    let colours = match *bytes.get(10)? {
        flags @ 0x80.. => 3usize << ((flags & 7) + 1),
        _ => 0,
    };
    let mut at = 13 + colours;
    for _ in 0..MOST_SEGMENTS {
        match *bytes.get(at)? {
            0x2C => return pair(bytes, at + 5),
            0x21 => at += 2,
            _ => return None,
        }
        // A note has pieces with their lengths, up to an empty one.
        while let length @ 1.. = *bytes.get(at)? {
            at += 1 + usize::from(length);
        }
        at += 1;
    }
    None
}

/// The size stands in the segment that begins a frame.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    for _ in 0..MOST_SEGMENTS {
        let [mark, kind] = array(bytes, at)?;
        match (mark, kind) {
            (0xFF, 0xFF) => at += 1,
            // These have no length.
            (0xFF, 0x01 | 0xD0..=0xD8) => at += 2,
            (0xFF, 0xC0..=0xCF) if ![0xC4, 0xC8, 0xCC].contains(&kind) => {
                let [one, two, three, four] = array(bytes, at + 5)?;
                return Some((u16::from_be_bytes([three, four]).into(), u16::from_be_bytes([one, two]).into()));
            }
            (0xFF, 0xD9 | 0xDA) => return None,
            (0xFF, _) => at += 2 + usize::from(u16::from_be_bytes(array(bytes, at + 2)?)),
            _ => return None,
        }
    }
    None
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => pair(bytes, 26).map(|(width, height)| (width & 0x3FFF, height & 0x3FFF)),
        b"VP8L" => little(bytes, 21).map(|bits| (1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))),
        b"VP8X" => {
            let side = |at| little(bytes, at).map(|side| 1 + (side & 0x00FF_FFFF));
            side(24).zip(little(bytes, 26).map(|side| 1 + (side >> 8)))
        }
        _ => None,
    }
}

/// The first directory has the size of the first picture.
fn tiff(bytes: &[u8]) -> Option<(u32, u32)> {
    let is_little = bytes.first() == Some(&b'I');
    let short = |at| array(bytes, at).map(if is_little { u16::from_le_bytes } else { u16::from_be_bytes });
    let long = |at| if is_little { little(bytes, at) } else { big(bytes, at) };
    let directory = long(4)? as usize;
    let (mut width, mut height) = (None, None);
    for entry in 0..usize::from(short(directory)?).min(MOST_SEGMENTS) {
        let at = directory.checked_add(2 + 12 * entry)?;
        let value = || match short(at + 2) {
            Some(3) => short(at + 8).map(u32::from),
            Some(4) => long(at + 8),
            _ => None,
        };
        match short(at)? {
            256 => width = value(),
            257 => height = value(),
            _ => {}
        }
    }
    width.zip(height)
}

fn jp2(bytes: &[u8]) -> Option<(u32, u32)> {
    let head = &bytes[..bytes.len().min(HEADER_BYTES)];
    let at = memchr::memmem::find(head, b"ihdr")?;
    big(bytes, at + 8).zip(big(bytes, at + 4))
}

/// The size is where the picture ends, less where it begins.
fn codestream(bytes: &[u8]) -> Option<(u32, u32)> {
    let side = |end, start| big(bytes, end)?.checked_sub(big(bytes, start)?);
    side(8, 16).zip(side(12, 20))
}

fn bmp(bytes: &[u8]) -> Option<(u32, u32)> {
    if little(bytes, 14)? == 12 {
        return pair(bytes, 18);
    }
    // A negative height says that the rows come from the top.
    let side = |at| array(bytes, at).map(|side| i32::from_le_bytes(side).unsigned_abs());
    side(18).zip(side(22))
}

fn emf(bytes: &[u8]) -> Option<(u32, u32)> {
    let edge = |at| array(bytes, at).map(i32::from_le_bytes);
    let side = |low, high| u32::try_from(edge(high)?.checked_sub(edge(low)?)?.checked_add(1)?).ok();
    side(8, 16).zip(side(12, 20))
}

fn is_svg(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEADER_BYTES)];
    let begin = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head).trim_ascii_start();
    let begins = |with: &[u8]| begin.starts_with(with);
    begins(b"<svg") || ((begins(b"<?xml") || begins(b"<!")) && memchr::memmem::find(begin, b"<svg").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: &[u8]) -> Option<(&'static str, Option<(u32, u32)>)> {
        look(bytes).map(|Look { mime, size }| (mime, size))
    }

    #[test]
    fn each_kind_tells_its_size_in_its_own_way() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0";
        assert_eq!(seen(png), Some(("image/png", Some((640, 480)))));
        let jpeg = b"\xFF\xD8\xFF\xE0\0\x04ab\xFF\xFF\xC4\0\x03x\xFF\xC2\0\x11\x08\x01\xE0\x02\x80\x03";
        assert_eq!(seen(jpeg), Some(("image/jpeg", Some((640, 480)))));
        assert_eq!(seen(b"GIF89a\x80\x02\xE0\x01"), Some(("image/gif", Some((640, 480)))));
        let mut bmp = b"BM".to_vec();
        bmp.extend([0; 12]);
        bmp.extend(40u32.to_le_bytes());
        bmp.extend(640i32.to_le_bytes());
        bmp.extend((-480i32).to_le_bytes());
        bmp.extend([0; 8]);
        assert_eq!(seen(&bmp), Some(("image/bmp", Some((640, 480)))));
        let mut tiff = b"II*\0\x08\0\0\0\x02\0".to_vec();
        tiff.extend(b"\0\x01\x03\0\x01\0\0\0\x80\x02\0\0\x01\x01\x04\0\x01\0\0\0\xE0\x01\0\0");
        assert_eq!(seen(&tiff), Some(("image/tiff", Some((640, 480)))));
        let webp = b"RIFF\0\0\0\0WEBPVP8X\x0A\0\0\0\0\0\0\0\x7F\x02\0\xDF\x01\0";
        assert_eq!(seen(webp), Some(("image/webp", Some((640, 480)))));
        let jp2 = b"\0\0\0\x0CjP  \r\n\x87\n\0\0\0\x16ihdr\0\0\x01\xE0\0\0\x02\x80";
        assert_eq!(seen(jp2), Some(("image/jp2", Some((640, 480)))));
        assert_eq!(seen(b"<?xml version=\"1.0\"?>\n<svg width=\"3\">"), Some(("image/svg+xml", None)));
    }

    #[test]
    fn a_gif_is_as_large_as_its_first_frame() {
        let mut gif = b"GIF89a\x10\0\x10\0\x80\0\0rgbRGB".to_vec();
        gif.extend(b"!\xFE\x02hi\x03you\0!\xF9\x04\0\0\0\0\0");
        gif.extend(b",\0\0\0\0\x80\x02\x0C\0\0");
        assert_eq!(seen(&gif), Some(("image/gif", Some((640, 16)))));
        for cut in 10..gif.len() - 1 {
            assert_eq!(seen(&gif[..cut]), Some(("image/gif", Some((16, 16)))), "{cut}");
        }
    }

    #[test]
    fn what_is_cut_short_or_no_picture_has_no_size_and_ends_no_reader() {
        assert_eq!(seen(b"GIF89a"), Some(("image/gif", None)));
        assert_eq!(seen(b"\xFF\xD8\xFF\xE0\xFF\xFF"), Some(("image/jpeg", None)));
        assert_eq!(seen(b"MM\0*\xFF\xFF\xFF\xFF"), Some(("image/tiff", None)));
        assert_eq!(seen(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\0"), Some(("image/png", None)));
        assert_eq!(seen(b"<html><script>alert(1)</script><svg></svg>"), None);
        assert_eq!(seen(b"%PDF-1.7"), None);
        assert_eq!(seen(b"BMW is a name, and this is no picture of a car."), None);
        assert_eq!(seen(b""), None);
    }
}
