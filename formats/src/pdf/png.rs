//! Writes rows of pixels as a PNG.

use super::images::{parts, unpacked};
use crate::{Limits, images::ImageLeftOut};
use flate2::{Compression, Crc, write::ZlibEncoder};
use hayro_syntax::object::{Array, Dict, Name, Object};
use std::io::Write;

/// How the pixels of a picture are stored.
pub(super) struct Raster {
    width: u32,
    height: u32,
    /// Bits of each part of a colour.
    depth: u8,
    colors: Colors,
    /// Black is the largest number.
    is_inverted: bool,
}

enum Colors {
    Grey,
    Rgb,
    /// Red, green and blue of each colour that a number stands for.
    Palette(Vec<u8>),
}

impl Colors {
    fn parts(&self) -> u64 {
        if matches!(self, Self::Rgb) { 3 } else { 1 }
    }
}

impl Raster {
    /// Reads how a picture is stored.
    ///
    /// # Errors
    /// The colours are given in a way for which a PNG has no form.
    pub(super) fn of(dict: &Dict<'_>, width: u32, height: u32, limits: &Limits) -> Result<Self, ImageLeftOut> {
        let colors = dict.get::<Object<'_>>(b"ColorSpace").and_then(|space| colors(&space, false, limits));
        let colors = colors.ok_or(ImageLeftOut::Colors)?;
        let depth = dict.get::<u32>(b"BitsPerComponent").and_then(|depth| u8::try_from(depth).ok());
        let depths: &[u8] = match colors {
            Colors::Grey => &[1, 2, 4, 8, 16],
            Colors::Rgb => &[8, 16],
            Colors::Palette(_) => &[1, 2, 4, 8],
        };
        let depth = depth.filter(|depth| depths.contains(depth)).ok_or(ImageLeftOut::Colors)?;
        let ends = dict.get::<Array<'_>>(b"Decode").map(|ends| ends.iter::<f64>().take(2).collect::<Vec<_>>());
        let is_inverted = matches!(ends.as_deref(), Some([first, last]) if first > last);
        if is_inverted && matches!(colors, Colors::Palette(_)) {
            return Err(ImageLeftOut::Colors);
        }
        Ok(Self { width, height, depth, colors, is_inverted })
    }

    fn row_bytes(&self) -> u64 {
        (u64::from(self.width) * self.colors.parts() * u64::from(self.depth)).div_ceil(8)
    }

    /// The bytes of all rows.
    pub(super) fn bytes(&self) -> u64 {
        self.row_bytes().saturating_mul(u64::from(self.height))
    }

    /// The picture; `None` if rows are missing.
    pub(super) fn png(&self, rows: &[u8]) -> Option<Vec<u8>> {
        let row = usize::try_from(self.row_bytes()).ok()?;
        let rows = rows.get(..usize::try_from(self.bytes()).ok()?)?;
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        let mut line = Vec::with_capacity(row);
        for row in rows.chunks(row) {
            line.clear();
            // The line is written as it is, which is the filter of this number.
            line.push(0);
            line.extend(row.iter().map(|byte| if self.is_inverted { !byte } else { *byte }));
            packed.write_all(&line).ok()?;
        }
        let packed = packed.finish().ok()?;
        let kind = match self.colors {
            Colors::Grey => 0,
            Colors::Rgb => 2,
            Colors::Palette(_) => 3,
        };
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        let [width, height] = [self.width, self.height].map(u32::to_be_bytes);
        chunk(&mut png, b"IHDR", &[&width[..], &height[..], &[self.depth, kind, 0, 0, 0]].concat())?;
        if let Colors::Palette(palette) = &self.colors {
            chunk(&mut png, b"PLTE", palette)?;
        }
        chunk(&mut png, b"IDAT", &packed)?;
        chunk(&mut png, b"IEND", &[])?;
        Some(png)
    }
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], body: &[u8]) -> Option<()> {
    let mut sum = Crc::new();
    sum.update(kind);
    sum.update(body);
    png.extend_from_slice(&u32::try_from(body.len()).ok()?.to_be_bytes());
    png.extend_from_slice(kind);
    png.extend_from_slice(body);
    png.extend_from_slice(&sum.sum().to_be_bytes());
    Some(())
}

/// The colours that a space stands for; `None` if a PNG has none like them. The base of a palette is no palette.
fn colors(space: &Object<'_>, is_base: bool, limits: &Limits) -> Option<Colors> {
    let array = match space {
        Object::Name(name) => return plain(name),
        Object::Array(array) => parts(array, 4),
        _ => return None,
    };
    match array.as_slice() {
        [Object::Name(name), Object::Stream(profile), ..] if name.as_ref() == b"ICCBased" => {
            match profile.dict().get::<u32>(b"N")? {
                1 => Some(Colors::Grey),
                3 => Some(Colors::Rgb),
                _ => None,
            }
        }
        [Object::Name(name), base, Object::Number(last), table] if name.as_ref() == b"Indexed" && !is_base => {
            palette(base, last.as_i64(), table, limits)
        }
        [Object::Name(name), ..] => plain(name),
        _ => None,
    }
}

fn plain(name: &Name<'_>) -> Option<Colors> {
    match name.as_ref() {
        b"DeviceGray" | b"CalGray" => Some(Colors::Grey),
        b"DeviceRGB" | b"CalRGB" => Some(Colors::Rgb),
        _ => None,
    }
}

fn palette(base: &Object<'_>, last: i64, table: &Object<'_>, limits: &Limits) -> Option<Colors> {
    let base = colors(base, true, limits)?;
    let count = usize::try_from(last).ok().filter(|last| *last < 256)? + 1;
    let table = match table {
        Object::String(text) => text.as_bytes().to_vec(),
        Object::Stream(stream) => unpacked(stream, &stream.filters(), limits).ok()?,
        _ => return None,
    };
    let mut palette: Vec<u8> = match base {
        Colors::Rgb => table,
        Colors::Grey => table.iter().flat_map(|grey| [*grey; 3]).collect(),
        Colors::Palette(_) => return None,
    };
    // Colours that the table lacks are black.
    palette.resize(3 * count, 0);
    Some(Colors::Palette(palette))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    #[test]
    fn rows_become_a_png_with_the_same_pixels() {
        let raster = Raster { width: 3, height: 2, depth: 8, colors: Colors::Rgb, is_inverted: false };
        let rows: Vec<u8> = (0..18).collect();
        let png = raster.png(&rows).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(&png[8..33], b"\0\0\0\x0dIHDR\0\0\0\x03\0\0\0\x02\x08\x02\0\0\0\x12\x16\xf1\x4d");
        let length = u32::from_be_bytes(png[33..37].try_into().unwrap()) as usize;
        assert_eq!(&png[37..41], b"IDAT");
        let mut lines = Vec::new();
        ZlibDecoder::new(&png[41..41 + length]).read_to_end(&mut lines).unwrap();
        assert_eq!(lines, [&[0_u8][..], &rows[..9], &[0], &rows[9..]].concat());
        assert!(png.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
        assert_eq!(raster.png(&rows[..17]), None, "a row is missing");
    }

    #[test]
    fn what_counts_down_to_white_is_turned_over() {
        let raster = Raster { width: 9, height: 1, depth: 1, colors: Colors::Grey, is_inverted: true };
        assert_eq!((raster.row_bytes(), raster.bytes()), (2, 2));
        let png = raster.png(&[0xF0, 0x80]).unwrap();
        let length = u32::from_be_bytes(png[33..37].try_into().unwrap()) as usize;
        let mut lines = Vec::new();
        ZlibDecoder::new(&png[41..41 + length]).read_to_end(&mut lines).unwrap();
        assert_eq!(lines, [0, 0x0F, 0x7F]);
    }
}
