//! Computes what the streams of a page unpack to, before the engine unpacks them whole.

use super::unicode::Unicode;
use crate::{FormatError, Limit, Limits};
use flate2::read::ZlibDecoder;
use hayro_syntax::{
    Filter,
    object::{Dict, MaybeRef, Name, Object, ObjectIdentifier, Stream},
    page::Page,
    xref::XRef,
};
use rustc_hash::FxHashSet;
use std::{borrow::Cow, io::Read};

/// More than a few layers are always hostile.
const MOST_LAYERS: usize = 8;
/// Direct objects nest no deeper in any real file.
const MOST_DEPTH: u8 = 64;
/// Entries that lead from a page or an annotation to other pages, or to what is not drawn, such as files.
const NOT_FOLLOWED: [&[u8]; 16] = [
    b"Parent",
    b"P",
    b"Dest",
    b"A",
    b"AA",
    b"Popup",
    b"IRT",
    b"B",
    b"Metadata",
    b"PieceInfo",
    b"FS",
    b"EF",
    b"AF",
    b"3DD",
    b"RichMediaContent",
    b"Sound",
];
/// Dictionaries whose keys the file chooses, so that none of them may be skipped.
const CATEGORIES: [&[u8]; 9] =
    [b"Font", b"XObject", b"Pattern", b"Shading", b"ColorSpace", b"ExtGState", b"Properties", b"CharProcs", b"N"];

/// Follows pages to their streams, each stream once, and adds up what they unpack to.
pub(super) struct Streams<'a> {
    limits: &'a Limits,
    seen: FxHashSet<(ObjectIdentifier, Under)>,
    unpacked: u64,
    /// The fonts met on the way.
    pub unicode: Unicode,
}

/// An object to be followed.
struct Step<'d> {
    object: MaybeRef<Object<'d>>,
    depth: u8,
    under: Under,
}

/// The kind of entry that an object is under, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Under {
    Other,
    Category,
    /// The dictionary of named objects that are drawn.
    XObjects,
    /// An entry of that dictionary. An image that is drawn is never unpacked.
    XObject,
}

impl<'a> Streams<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self { limits, seen: FxHashSet::default(), unpacked: 0, unicode: Unicode::default() }
    }

    /// Follows what is drawn for a page.
    ///
    /// # Errors
    /// The limit that one stream exceeds, or all of them together.
    pub(super) fn follow(&mut self, page: &Page<'_>, xref: &XRef) -> Result<(), FormatError> {
        let mut waiting = Vec::new();
        push_entries(&mut waiting, page.raw(), Under::Other, 0);
        // These are the page's own, or those it inherits.
        let resources = page.resources();
        push_entries(&mut waiting, &resources.x_objects, Under::XObjects, 0);
        for category in [
            &resources.fonts,
            &resources.patterns,
            &resources.shadings,
            &resources.color_spaces,
            &resources.ext_g_states,
            &resources.properties,
        ] {
            push_entries(&mut waiting, category, Under::Category, 0);
        }
        while let Some(Step { object, depth, under }) = waiting.pop() {
            let (object, depth) = match object {
                MaybeRef::Ref(reference) => {
                    let id = reference.into();
                    match self.seen.insert((id, under)).then(|| xref.get::<Object<'_>>(id)).flatten() {
                        Some(object) => (object, 0),
                        None => continue,
                    }
                }
                MaybeRef::NotRef(object) => (object, depth + 1),
            };
            if depth > MOST_DEPTH {
                continue;
            }
            match object {
                Object::Dict(dict) => {
                    self.unicode.add(&dict);
                    push_entries(&mut waiting, &dict, under, depth);
                }
                Object::Array(array) => {
                    let under = Under::Other;
                    waiting.extend(array.raw_iter().filter(leads_on).map(|object| Step { object, depth, under }));
                }
                Object::Stream(stream) if under == Under::XObject && is_image(&stream) => {
                    let space = stream.dict().entries().find(|(name, _)| name.as_ref() == b"ColorSpace");
                    let under = Under::Other;
                    waiting.extend(space.map(|(_, object)| Step { object, depth, under }));
                }
                Object::Stream(stream) => {
                    self.unpacked += self.unpack(&stream)?;
                    push_entries(&mut waiting, stream.dict(), Under::Other, depth);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn unpack(&self, stream: &Stream<'_>) -> Result<u64, FormatError> {
        let filters = stream.filters();
        if filters.is_empty() {
            return Ok(0);
        }
        unpacked_bytes(&stream.raw_data(), &filters, self.limits, self.limits.unpacked_bytes - self.unpacked)
    }
}

fn push_entries<'d>(waiting: &mut Vec<Step<'d>>, dict: &Dict<'d>, dict_under: Under, depth: u8) {
    let is_category = matches!(dict_under, Under::Category | Under::XObjects);
    for (name, object) in dict.entries() {
        let name = name.as_ref();
        let under = match dict_under {
            Under::XObjects => Under::XObject,
            Under::Category => Under::Other,
            _ if name == b"XObject" => Under::XObjects,
            _ if CATEGORIES.contains(&name) => Under::Category,
            _ => Under::Other,
        };
        if leads_on(&object) && (is_category || !NOT_FOLLOWED.contains(&name)) {
            waiting.push(Step { object, depth, under });
        }
    }
}

fn is_image(stream: &Stream<'_>) -> bool {
    stream.dict().get::<Name<'_>>(b"Subtype").is_some_and(|kind| kind.as_ref() == b"Image")
}

fn leads_on(object: &MaybeRef<Object<'_>>) -> bool {
    matches!(object, MaybeRef::Ref(_) | MaybeRef::NotRef(Object::Dict(_) | Object::Array(_) | Object::Stream(_)))
}

/// The unpacked size of the largest layer. At most one layer and the next are in memory.
///
/// # Errors
/// The ratio's limit or `left` is exceeded.
pub(super) fn unpacked_bytes(
    packed: &[u8],
    filters: &[Filter],
    limits: &Limits,
    left: u64,
) -> Result<u64, FormatError> {
    let ratio_bytes = (packed.len() as u64).saturating_mul(u64::from(limits.zip_ratio)).max(Limits::RATIO_FREE_BYTES);
    let most = ratio_bytes.min(left).saturating_add(1);
    let mut data = Cow::Borrowed(packed);
    let mut largest = 0;
    for (index, filter) in filters.iter().enumerate() {
        let mut layer = Vec::new();
        let bytes = match filter {
            _ if index >= MOST_LAYERS => u64::MAX,
            // The last layer, nearly always the only one, is counted and not kept. Damage ends the count; the engine
            // repairs it in its own way.
            Filter::FlateDecode if index + 1 == filters.len() => count(ZlibDecoder::new(&*data).take(most)),
            Filter::FlateDecode => {
                ZlibDecoder::new(&*data).take(most).read_to_end(&mut layer).ok();
                layer.len() as u64
            }
            Filter::LzwDecode => {
                lzw(&data, most, &mut layer);
                layer.len() as u64
            }
            Filter::RunLengthDecode => {
                run_lengths(&data, most, &mut layer);
                layer.len() as u64
            }
            Filter::Ascii85Decode => {
                ascii_85(&data, &mut layer);
                layer.len() as u64
            }
            Filter::AsciiHexDecode => {
                ascii_hex(&data, &mut layer);
                layer.len() as u64
            }
            Filter::Crypt => continue,
            // Images are never unpacked.
            Filter::CcittFaxDecode | Filter::Jbig2Decode | Filter::DctDecode | Filter::JpxDecode => break,
        };
        if bytes > ratio_bytes {
            let detail = format_args!("a stream unpacks to over {} times its size", limits.zip_ratio);
            return Err(FormatError::over(Limit::ZipRatio, detail));
        }
        if bytes > left {
            let detail = format_args!("the streams unpack to over {} bytes", limits.unpacked_bytes);
            return Err(FormatError::over(Limit::UnpackedBytes, detail));
        }
        largest = largest.max(bytes);
        data = Cow::Owned(layer);
    }
    Ok(largest)
}

fn count(mut unpacked: impl Read) -> u64 {
    let mut buffer = [0; 16 << 10];
    let mut bytes = 0;
    while let Ok(read @ 1..) = unpacked.read(&mut buffer) {
        bytes += read as u64;
    }
    bytes
}

fn lzw(packed: &[u8], most: u64, into: &mut Vec<u8>) {
    let mut decoder = weezl::decode::Configuration::with_tiff_size_switch(weezl::BitOrder::Msb, 8).build();
    let mut rest = packed;
    let mut buffer = [0; 16 << 10];
    while (into.len() as u64) < most {
        let step = decoder.decode_bytes(rest, &mut buffer);
        into.extend_from_slice(&buffer[..step.consumed_out]);
        rest = &rest[step.consumed_in..];
        let stuck = step.consumed_in == 0 && step.consumed_out == 0;
        if stuck || !matches!(step.status, Ok(weezl::LzwStatus::Ok)) {
            break;
        }
    }
}

fn run_lengths(packed: &[u8], most: u64, into: &mut Vec<u8>) {
    let mut rest = packed;
    while let [length, tail @ ..] = rest
        && *length != 128
        && (into.len() as u64) < most
    {
        if let Some(repeats) = 257usize.checked_sub(usize::from(*length)).filter(|repeats| *repeats < 129) {
            let [byte, tail @ ..] = tail else { break };
            into.resize(into.len() + repeats, *byte);
            rest = tail;
        } else {
            let (copied, tail) = tail.split_at(tail.len().min(usize::from(*length) + 1));
            into.extend_from_slice(copied);
            rest = tail;
        }
    }
}

/// The result is at most four times as large, so it needs no limit of its own.
fn ascii_85(packed: &[u8], into: &mut Vec<u8>) {
    let (mut group, mut digits) = (0u32, 0);
    for byte in packed {
        match byte {
            b'z' if digits == 0 => into.extend_from_slice(&[0; 4]),
            b'!'..=b'u' => {
                group = group.wrapping_mul(85).wrapping_add(u32::from(byte - b'!'));
                digits += 1;
                if digits == 5 {
                    into.extend_from_slice(&group.to_be_bytes());
                    (group, digits) = (0, 0);
                }
            }
            b'~' => break,
            _ => {}
        }
    }
    if digits > 1 {
        for _ in digits..5 {
            group = group.wrapping_mul(85).wrapping_add(84);
        }
        into.extend_from_slice(&group.to_be_bytes()[..digits - 1]);
    }
}

fn ascii_hex(packed: &[u8], into: &mut Vec<u8>) {
    let digits = packed.iter().take_while(|byte| **byte != b'>').filter_map(|byte| char::from(*byte).to_digit(16));
    let mut high = None;
    for digit in digits {
        match high.take() {
            Some(high) => into.push((high << 4 | digit) as u8),
            None => high = Some(digit),
        }
    }
    into.extend(high.map(|high| (high << 4) as u8));
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write;

    fn flate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn bytes(packed: &[u8], filters: &[Filter]) -> Result<u64, FormatError> {
        unpacked_bytes(packed, filters, &Limits::default(), 1 << 30)
    }

    #[test]
    fn every_layer_counts() {
        let zeroes = vec![0; 64 << 20];
        let (once, twice) = (flate(&zeroes), flate(&flate(&zeroes)));
        let limit = |packed: &[u8], filters: &[Filter]| bytes(packed, filters).unwrap_err().limit();
        assert_eq!(limit(&once, &[Filter::FlateDecode]), Some(Limit::ZipRatio));
        assert_eq!(limit(&twice, &[Filter::FlateDecode, Filter::FlateDecode]), Some(Limit::ZipRatio));
        assert_eq!(limit(b"", &[Filter::AsciiHexDecode; 9]), Some(Limit::ZipRatio), "layers upon layers");
        let hex: Vec<u8> = once.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
        assert_eq!(limit(&hex, &[Filter::AsciiHexDecode, Filter::FlateDecode]), Some(Limit::ZipRatio));
        let runs = [129, 0].repeat(90_000);
        assert_eq!(bytes(&runs, &[Filter::RunLengthDecode]), Ok(128 * 90_000), "which no ratio forbids");
        let lzw = weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8).encode(&zeroes).unwrap();
        assert_eq!(limit(&lzw, &[Filter::LzwDecode]), Some(Limit::ZipRatio));
        let left = unpacked_bytes(&flate(&[1; 1000]), &[Filter::FlateDecode], &Limits::default(), 999).unwrap_err();
        assert_eq!(left.limit(), Some(Limit::UnpackedBytes));
    }

    #[test]
    fn honest_streams_pass_with_their_size() {
        let text: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(bytes(&flate(&text), &[Filter::FlateDecode]), Ok(text.len() as u64));
        let lzw = weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8).encode(&text).unwrap();
        assert_eq!(bytes(&lzw, &[Filter::LzwDecode]), Ok(text.len() as u64));
        let mut layer = Vec::new();
        ascii_85(b"87cURD]i,\"Ebo80~>", &mut layer);
        assert_eq!(layer, b"Hello World!");
        layer.clear();
        run_lengths(&[2, b'a', b'b', b'c', 254, b'd', 128, 9], 100, &mut layer);
        assert_eq!(layer, b"abcddd");
        layer.clear();
        ascii_hex(b"48 65 6c6C 7>00", &mut layer);
        assert_eq!(layer, b"Hellp");
        assert_eq!(bytes(b"not zlib at all", &[Filter::FlateDecode]), Ok(0), "damage is for the engine");
    }
}
