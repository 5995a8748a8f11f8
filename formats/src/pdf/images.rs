//! The pictures that pages draw, each once, with captions and the text of their pages.
//!
//! JPEG and JPEG 2000 go as they are stored. What is stored as rows of pixels becomes a PNG with the same pixels. Pictures within the
//! content of a page itself are small by the standard, and are left out.

use super::{
    document::Document,
    pages::{PageReader, content},
    png::Raster,
    streams::{Streams, unpacked_bytes},
};
use crate::{
    Access, FormatError, Limits,
    images::{Gallery, Giver, ImageLeftOut, LEAST_SIDE, MOST_PIXELS, Shown, is_caption, one_line},
};
use hayro_syntax::{
    Filter,
    content::{
        TypedIter,
        ops::{Transform, TypedInstruction, XObject},
    },
    object::{Array, Dict, Name, Object, ObjectIdentifier, Stream},
    page::Resources,
};
use kurbo::{Affine, Rect};
use std::{
    collections::HashMap,
    io::{Read, Seek},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// How deep forms lie in each other, and how often a page draws forms and pictures.
const MOST_DEPTH: usize = 8;
const MOST_DRAWN: usize = 10_000;
/// How many states of a page are kept at once.
const MOST_STATES: usize = 1_000;
/// The most bytes of rows that become a PNG.
const MOST_ROWS: u64 = 256 << 20;
const CAPTION_CHARACTERS: usize = 500;
const NEARBY_CHARACTERS: usize = 400;

pub(crate) fn images<R: Read + Seek>(
    source: R,
    access: Access<'_>,
    giver: &mut Giver<'_, '_>,
) -> Result<(), FormatError> {
    let limits = access.limits;
    let document = Document::open(source, access)?;
    let (mut reader, mut streams) = (PageReader::new(&document, limits), Streams::new(limits));
    let (mut gallery, mut objects) = (Gallery::default(), HashMap::new());
    for (index, number) in (0..document.page_count()).zip(1u32..) {
        let page = document.page(index);
        streams.follow(page, document.xref())?;
        let (width, height) = page.render_dimensions();
        let bounds = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            let mut drawing = Drawing { bounds, drawn: Vec::new(), left: MOST_DRAWN };
            let place = Affine::new(page.initial_transform(true).as_coeffs());
            drawing.read(&content(page), page.resources(), place, 0);
            drawing.drawn
        }));
        let Ok(mut drawn) = drawn else {
            giver.leave_out(&format!("page {number}"), ImageLeftOut::UnreadablePage)?;
            continue;
        };
        if drawn.is_empty() {
            continue;
        }
        let text = reader.read(index)?;
        let whole_share = text.whole_share();
        drawn.retain(|one| {
            objects.insert(name(one.object), one.object);
            one.share < whole_share
        });
        drawn.sort_by(|one, other| one.top.total_cmp(&other.top));
        let usable = if text.has_usable_text() { text.laid.text.as_str() } else { "" };
        for (one, (caption, nearby)) in drawn.iter().zip(told(usable, drawn.len())) {
            gallery.add(Shown { name: name(one.object), pages: vec![number], caption, nearby, ..Shown::default() });
        }
    }
    let mut whole = objects.clone();
    for shown in &gallery.shown {
        whole.remove(&shown.name);
    }
    let mut whole: Vec<(ObjectIdentifier, String)> = whole.into_iter().map(|(name, object)| (object, name)).collect();
    whole.sort_unstable();
    for (_, name) in whole {
        giver.leave_out(&name, ImageLeftOut::WholePage)?;
    }
    giver.give_each(gallery, |name, _| {
        let stream = objects.get(name).and_then(|object| document.xref().get::<Stream<'_>>(*object));
        let Some(stream) = stream else { return Ok(Err(ImageLeftOut::Missing)) };
        // What the engine makes of one picture must not end the reading of the others.
        let stored = catch_unwind(AssertUnwindSafe(|| stored(&stream, limits)));
        Ok(stored.unwrap_or(Err(ImageLeftOut::Damaged)))
    })
}

fn name(object: ObjectIdentifier) -> String {
    format!("object {}", object.obj_number)
}

/// A picture on a page.
struct Drawn {
    object: ObjectIdentifier,
    /// How far below the page's upper edge it begins, in points.
    top: f64,
    /// The share of the page that it covers.
    share: f64,
}

/// Follows what a page draws, without drawing it.
struct Drawing {
    bounds: Rect,
    drawn: Vec<Drawn>,
    left: usize,
}

impl Drawing {
    fn read(&mut self, content: &[u8], resources: &Resources<'_>, place: Affine, depth: usize) {
        let (mut state, mut kept) = (place, Vec::new());
        let mut instructions = TypedIter::new(content);
        while let Some(instruction) = instructions.next() {
            match instruction {
                TypedInstruction::SaveState(_) if kept.len() < MOST_STATES => kept.push(state),
                TypedInstruction::RestoreState(_) => state = kept.pop().unwrap_or(state),
                TypedInstruction::Transform(Transform(a, b, c, d, e, f)) => {
                    state *= Affine::new([a, b, c, d, e, f].map(|number| number.as_f64()));
                }
                TypedInstruction::XObject(XObject(name)) => {
                    if let Some(left) = self.left.checked_sub(1)
                        && let Some(object) = resources.get_x_object(name)
                    {
                        self.left = left;
                        self.draw(&object, resources, state, depth);
                    }
                }
                _ => {}
            }
        }
    }

    fn draw(&mut self, stream: &Stream<'_>, around: &Resources<'_>, place: Affine, depth: usize) {
        let dict = stream.dict();
        let Some(kind) = dict.get::<Name<'_>>(b"Subtype") else { return };
        if kind.as_ref() == b"Image" {
            let shown = place.transform_rect_bbox(Rect::new(0.0, 0.0, 1.0, 1.0)).intersect(self.bounds);
            let share = shown.area() / self.bounds.area();
            if let Some(object) = dict.obj_id()
                && share.is_finite()
                && shown.width() > 0.0
                && shown.height() > 0.0
                && !self.drawn.iter().any(|drawn| drawn.object == object)
            {
                self.drawn.push(Drawn { object, top: shown.y0, share });
            }
        } else if kind.as_ref() == b"Form" && depth < MOST_DEPTH {
            let matrix = dict.get::<[f64; 6]>(b"Matrix").map_or(Affine::IDENTITY, Affine::new);
            let own = dict.get::<Dict<'_>>(b"Resources").map(Resources::new);
            if let Ok(content) = stream.decoded_data() {
                self.read(&content, own.as_ref().unwrap_or(around), place * matrix, depth + 1);
            }
        }
    }
}

/// The captions of the pictures of a page, and the text beside each. Only if there are as many captions as pictures does
/// each picture have one.
fn told(text: &str, pictures: usize) -> Vec<(String, String)> {
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    let captions: Vec<usize> = (0..paragraphs.len()).filter(|at| is_caption(paragraphs[*at])).collect();
    let page = one_line(text, NEARBY_CHARACTERS);
    if captions.len() != pictures {
        return vec![(String::new(), page); pictures];
    }
    let beside = |at: usize| {
        let before = at.checked_sub(1).filter(|before| !captions.contains(before));
        let after = Some(at + 1).filter(|after| *after < paragraphs.len() && !captions.contains(after));
        before.or(after).map_or(page.clone(), |beside| one_line(paragraphs[beside], NEARBY_CHARACTERS))
    };
    captions.iter().map(|at| (one_line(paragraphs[*at], CAPTION_CHARACTERS), beside(*at))).collect()
}

/// The bytes of a picture as they can be shown elsewhere.
fn stored(stream: &Stream<'_>, limits: &Limits) -> Result<Vec<u8>, ImageLeftOut> {
    let dict = stream.dict();
    if dict.get::<bool>(b"ImageMask") == Some(true) {
        return Err(ImageLeftOut::Mask);
    }
    let side = |key: &[u8]| dict.get::<u32>(key).filter(|side| *side > 0).ok_or(ImageLeftOut::Damaged);
    let (width, height) = (side(b"Width")?, side(b"Height")?);
    if width.min(height) < LEAST_SIDE {
        return Err(ImageLeftOut::Small);
    }
    if u64::from(width) * u64::from(height) > MOST_PIXELS {
        return Err(ImageLeftOut::Pixels);
    }
    let filters = stream.filters();
    match filters.as_slice() {
        [Filter::DctDecode | Filter::JpxDecode] => Ok(stream.raw_data().into_owned()),
        [.., Filter::DctDecode | Filter::JpxDecode | Filter::CcittFaxDecode | Filter::Jbig2Decode] => {
            Err(ImageLeftOut::Compression)
        }
        filters => {
            let raster = Raster::of(dict, width, height, limits)?;
            if raster.bytes() > MOST_ROWS {
                return Err(ImageLeftOut::Pixels);
            }
            let rows = unpacked(stream, filters, limits)?;
            raster.png(&rows).ok_or(ImageLeftOut::Damaged)
        }
    }
}

/// Unpacks a stream that is no bomb.
pub(super) fn unpacked(stream: &Stream<'_>, filters: &[Filter], limits: &Limits) -> Result<Vec<u8>, ImageLeftOut> {
    if !filters.is_empty() {
        let checked = unpacked_bytes(&stream.raw_data(), filters, limits, limits.unpacked_bytes);
        checked.map_err(|_| ImageLeftOut::ZipRatio)?;
    }
    stream.decoded_data().map(|bytes| bytes.into_owned()).map_err(|_| ImageLeftOut::Damaged)
}

/// The parts of an array, at most so many.
pub(super) fn parts<'a>(array: &Array<'a>, most: usize) -> Vec<Object<'a>> {
    array.iter::<Object<'a>>().take(most).collect()
}
