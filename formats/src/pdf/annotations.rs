//! What is on a page besides its own content: form fields, and what was typed or stamped on it.

use super::{
    glyphs::Collector,
    images::unpacked,
    strings::{text_lines, text_string},
};
use crate::Limits;
use hayro_interpret::{Context, interpret};
use hayro_syntax::{
    content::TypedIter,
    object::{Array, Dict, Name, Object, Rect as PdfRect, Stream, String as PdfString},
    page::{Page, Resources},
};
use kurbo::{Affine, Rect, Shape};
use std::iter;

/// The most annotations that are drawn on a page; no real form has more fields.
const MOST: usize = 2000;
/// Flags of what no viewer shows: hidden, and not to be viewed.
const HIDDEN: u32 = 1 << 1 | 1 << 5;
/// The flag of a field whose value no viewer shows.
const PASSWORD: u32 = 1 << 13;
/// The most bytes of what was typed on a page, where no appearance shows it.
const MOST_TYPED: usize = 1 << 20;
/// The most values of a page that are streams. Hardly any form has one, and many fields may share one that is large.
const MOST_STREAMS: usize = 32;
/// The most fields of which each is a part of the next, with the last one.
const DEPTH: usize = 32;

/// Draws the annotations of a page, which `initial` places. `context` makes a context whose space is that of an appearance, from its place on the page.
pub(super) fn draw<'a>(
    page: &'a Page<'a>,
    initial: Affine,
    context: impl Fn(Affine) -> Context<'a>,
    limits: &Limits,
    collector: &mut Collector<'_>,
) {
    let Some(annotations) = page.raw().get::<Array<'_>>(b"Annots") else { return };
    collector.annotate();
    let (mut left, mut streams) = (MOST_TYPED, MOST_STREAMS);
    for annotation in annotations.iter::<Dict<'_>>().take(MOST) {
        if annotation.get::<u32>(b"F").unwrap_or(0) & HIDDEN != 0 || !is_text(&annotation, collector) {
            continue;
        }
        let before = collector.strings_drawn();
        draw_one(page, &annotation, &context, collector);
        // Programs that fill forms often leave it to the viewer to draw what they filled in.
        if collector.strings_drawn() == before
            && let Some(value) = value(&annotation, limits, &mut left, &mut streams)
            && let Some(place) = annotation.get::<PdfRect>(b"Rect")
        {
            let place = Rect::new(place.x0, place.y0, place.x1, place.y1);
            collector.write(&value, (initial * place.to_path(0.1)).bounding_box());
        }
    }
}

/// What was typed into a field or chosen there, or typed onto the page. A part of a field has what the field has.
/// `left` bytes are read at most, and so many `streams`.
fn value(annotation: &Dict<'_>, limits: &Limits, left: &mut usize, streams: &mut usize) -> Option<String> {
    if annotation.get::<Name<'_>>(b"Subtype").as_deref() == Some(b"FreeText") {
        return annotation.get::<PdfString<'_>>(b"Contents").map(|text| typed(text.as_bytes(), left));
    }
    let fields = || iter::successors(Some(annotation.clone()), |field| field.get::<Dict<'_>>(b"Parent")).take(DEPTH);
    let kind = fields().find_map(|field| field.get::<Name<'_>>(b"FT"))?;
    let flags = fields().find_map(|field| field.get::<u32>(b"Ff")).unwrap_or(0);
    if !matches!((kind.as_ref(), flags & PASSWORD), (b"Tx", 0) | (b"Ch", _)) {
        return None;
    }
    let options = fields().find_map(|field| field.get::<Array<'_>>(b"Opt")).filter(|_| kind.as_ref() == b"Ch");
    let mut shown = |value: &PdfString<'_>| match options.as_ref().and_then(|options| option(options, value, left)) {
        Some(shown) => typed(shown.as_bytes(), left),
        None => typed(value.as_bytes(), left),
    };
    match fields().find_map(|field| field.get::<Object<'_>>(b"V"))? {
        Object::String(text) => Some(shown(&text)),
        Object::Array(chosen) => {
            let chosen = chosen.iter::<PdfString<'_>>().map(|text| shown(&text));
            Some(chosen.collect::<Vec<_>>().join("\n"))
        }
        // What a field has of the field above it was not met on the way to the page's streams.
        Object::Stream(text) if *left > 0 && *streams > 0 => {
            *streams -= 1;
            let bytes = unpacked(&text, &text.filters(), limits).ok()?;
            Some(typed(&bytes, left))
        }
        _ => None,
    }
}

/// What a page shows for a value of a choice, if that is another text.
fn option<'a>(options: &Array<'a>, value: &PdfString<'_>, left: &mut usize) -> Option<PdfString<'a>> {
    options.iter::<Object<'_>>().take(*left).find_map(|option| {
        *left -= 1;
        let Object::Array(pair) = option else { return None };
        let mut pair = pair.iter::<PdfString<'_>>();
        pair.next().filter(|exported| exported.as_bytes() == value.as_bytes())?;
        pair.next()
    })
}

fn typed(bytes: &[u8], left: &mut usize) -> String {
    let read = &bytes[..bytes.len().min(*left)];
    *left -= read.len();
    text_lines(read)
}

/// Whether it adds text to the page. Some files repeat the page's own words in an annotation.
fn is_text(annotation: &Dict<'_>, collector: &Collector<'_>) -> bool {
    match annotation.get::<Name<'_>>(b"Subtype").as_deref() {
        Some(b"Widget" | b"Stamp") => true,
        Some(b"FreeText") => {
            let text = annotation.get::<PdfString<'_>>(b"Contents").map(|text| text_string(text.as_bytes()));
            text.is_none_or(|text| !collector.has_drawn(&text))
        }
        _ => false,
    }
}

fn draw_one<'a>(
    page: &'a Page<'a>,
    annotation: &Dict<'a>,
    context: &impl Fn(Affine) -> Context<'a>,
    collector: &mut Collector<'_>,
) -> Option<()> {
    let appearance = appearance(annotation)?;
    let dict = appearance.dict();
    let place = annotation.get::<PdfRect>(b"Rect")?;
    let [left, top, right, bottom] = dict.get::<[f64; 4]>(b"BBox")?;
    let matrix = Affine::new(dict.get::<[f64; 6]>(b"Matrix").unwrap_or([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
    // ISO 32000-1, 12.5.5: the box, transformed by the matrix, is stretched to the annotation's rectangle.
    let turned = (matrix * Rect::new(left, top, right, bottom).to_path(0.1)).bounding_box();
    let (across, down) = ((place.x1 - place.x0) / turned.width(), (place.y1 - place.y0) / turned.height());
    let stretched = Affine::new([across, 0.0, 0.0, down, place.x0 - across * turned.x0, place.y0 - down * turned.y0]);
    let content = appearance.decoded_data().ok()?;
    let own = dict.get::<Dict<'_>>(b"Resources").map(Resources::new);
    let resources = own.as_ref().unwrap_or(page.resources());
    interpret(TypedIter::new(&content), resources, &mut context(stretched * matrix), collector);
    Some(())
}

fn appearance<'a>(annotation: &Dict<'a>) -> Option<Stream<'a>> {
    match annotation.get::<Dict<'_>>(b"AP")?.get::<Object<'_>>(b"N")? {
        Object::Stream(stream) => Some(stream),
        Object::Dict(states) => states.get::<Stream<'_>>(annotation.get::<Name<'_>>(b"AS")?.as_ref()),
        _ => None,
    }
}
