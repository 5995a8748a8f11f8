//! Draws a page as a picture, for an engine that reads pictures.

use super::{document::Document, streams::Streams};
use crate::{Access, Format, FormatError, Limits};
use hayro::{PixmapSettings, RenderCache, RenderSettings, vello_cpu::color::palette::css::WHITE};
use hayro_interpret::InterpreterSettings;
use serde::{Deserialize, Serialize};
use std::io::{Read, Seek};

/// Points in an inch.
const POINTS: f64 = 72.0;
/// The longest side of a picture. Engines refuse longer ones, and the renderer counts in 16 bits.
const LONGEST_SIDE: f64 = 32_000.0;

/// How a page is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raster {
    /// Pixels in an inch of the page.
    pub dpi: u32,
    /// The most pixels of a picture; a larger page is drawn with fewer in an inch.
    pub pixels: u64,
}

/// The size of a page's picture.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PictureSize {
    pub width: u32,
    pub height: u32,
    /// Pixels in an inch of the page.
    pub dpi: f64,
}

impl PictureSize {
    /// The number of pixels, each of which is a byte.
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// The size of the picture of a page of these points.
    fn of(width: f64, height: f64, raster: Raster) -> Option<Self> {
        let is_real = |side: f64| side.is_finite() && side > 0.0;
        if !is_real(width) || !is_real(height) {
            return None;
        }
        let most = raster.pixels.max(1) as f64;
        let scale =
            (f64::from(raster.dpi) / POINTS).min((most / width / height).sqrt()).min(LONGEST_SIDE / width.max(height));
        let side = |points: f64| (points * scale).floor().max(1.0) as u32;
        let (width, height) = (side(width), side(height));
        // A page that is far longer than wide has a pixel in its width where it should have a fraction of one.
        let height = u64::from(height).min(raster.pixels.max(1) / u64::from(width));
        Some(Self { width, height: u32::try_from(height).ok().filter(|height| *height > 0)?, dpi: scale * POINTS })
    }
}

/// Draws the page of this number, counted from 1, in shades of grey on white. Each byte is a pixel, row by row.
///
/// # Errors
/// The file cannot be opened, has no such page, or the page's streams exceed the limits. What its images take is limited by the memory of the process.
pub(crate) fn render<R: Read + Seek>(
    source: R,
    number: u32,
    raster: Raster,
    access: Access<'_>,
) -> Result<(PictureSize, Vec<u8>), FormatError> {
    let limits: &Limits = access.limits;
    let document = Document::open(source, access)?;
    let index = (number as usize).checked_sub(1).filter(|index| *index < document.page_count());
    let index = index.ok_or_else(|| FormatError::corrupt(Format::Pdf, format_args!("it has no page {number}")))?;
    let page = document.page(index);
    Streams::new(limits).follow(page, document.xref())?;
    let (width, height) = page.render_dimensions();
    let size = PictureSize::of(f64::from(width), f64::from(height), raster)
        .ok_or_else(|| FormatError::corrupt(Format::Pdf, format_args!("page {number} has no size")))?;
    // The renderer rounds down, so a hundredth of a pixel keeps the sides as they were computed.
    let scale = |pixels: u32, points: f32| (pixels as f32 + 0.01) / points;
    let settings =
        PixmapSettings { x_scale: scale(size.width, width), y_scale: scale(size.height, height), bg_color: WHITE };
    let drawn = hayro::render(
        page,
        &RenderCache::new(),
        &InterpreterSettings::default(),
        &RenderSettings::default(),
        &settings,
    );
    let size = PictureSize { width: drawn.width().into(), height: drawn.height().into(), ..size };
    let grey = drawn.data().iter().map(|pixel| luma(pixel.r, pixel.g, pixel.b)).collect();
    Ok((size, grey))
}

/// The brightness of a colour, with the weights of Rec. 601 in parts of 256.
fn luma(red: u8, green: u8, blue: u8) -> u8 {
    ((77 * u32::from(red) + 150 * u32::from(green) + 29 * u32::from(blue)) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: f64, height: f64) -> Option<(u32, u32, u32)> {
        let raster = Raster { dpi: 300, pixels: 20_000_000 };
        PictureSize::of(width, height, raster).map(|size| (size.width, size.height, size.dpi.round() as u32))
    }

    #[test]
    fn a_page_has_the_resolution_that_is_asked_for_unless_it_is_huge() {
        assert_eq!(size(595.0, 842.0), Some((2479, 3508, 300)), "A4");
        let (width, height, dpi) = size(2384.0, 3370.0).unwrap();
        assert!(u64::from(width) * u64::from(height) <= 20_000_000 && dpi == 114, "A0: {width} {height} {dpi}");
        for (width, height) in [(1e9, 1e9), (1e30, 1e-30), (3.0, 1e9), (1e9, 3.0), (1e-9, 1e-9)] {
            let (width, height, _) = size(width, height).unwrap();
            assert!(u64::from(width) * u64::from(height) <= 20_000_000 && width.max(height) <= 32_000);
        }
        for side in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(size(side, 800.0), None);
        }
    }
}
