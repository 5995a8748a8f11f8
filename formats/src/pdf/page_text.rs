//! Glyphs of a page as an interpreter draws them.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps, InterpreterCache,
    InterpreterSettings, SoftMask,
    font::{Glyph, GlyphRun},
    hayro_cmap::{BfString, WritingMode},
    interpret_page,
};
use kurbo::{Affine, BezPath, Point, Rect, Shape, Vec2};

use super::{
    document::Document,
    layout::{Layout, Placed},
};

/// What a page shows.
#[derive(Default)]
pub(super) struct PageText {
    pub text: String,
    /// Characters that are not white space, unknown ones among them.
    pub characters: usize,
    /// Glyphs whose character nothing in the file tells.
    pub unknown: usize,
    /// The largest part of the page one image covers, 0 to 1.
    pub image_coverage: f64,
    /// The engine gave up on it.
    pub failed: bool,
}

impl PageText {
    /// Whether the text is worth having: over 30 % unknown glyphs is noise.
    pub(super) fn has_usable_text(&self) -> bool {
        self.characters > 0 && self.unknown * 10 <= self.characters * 3
    }
}

/// Reads pages one by one; fonts read for one serve the next.
pub(super) struct PageReader<'a> {
    document: &'a Document,
    cache: InterpreterCache<'a>,
}

impl<'a> PageReader<'a> {
    pub(super) fn new(document: &'a Document) -> Self {
        Self { document, cache: InterpreterCache::new() }
    }

    pub(super) fn read(&mut self, index: usize) -> PageText {
        let page = &self.document.pages()[index];
        let (width, height) = page.render_dimensions();
        let bounds = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
        let mut collector = Collector::new(bounds);
        let initial = Affine::new(page.initial_transform(true).as_coeffs());
        let cache = self.cache.clone();
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            let mut context =
                Context::new(initial, bounds, &cache, self.document.xref(), InterpreterSettings::default());
            interpret_page(page, &mut context, &mut collector);
        }));
        if drawn.is_err() {
            // A panic may have left the cache's lock poisoned.
            self.cache = InterpreterCache::new();
        }
        collector.finish(drawn.is_err())
    }
}

struct Collector {
    bounds: Rect,
    layout: Layout,
    page: PageText,
    /// Where which character was drawn, in fifths of a point: outlined and doubled text is drawn more than once.
    seen: HashSet<(char, i32, i32)>,
}

impl Collector {
    fn new(bounds: Rect) -> Self {
        Self { bounds, layout: Layout::default(), page: PageText::default(), seen: HashSet::new() }
    }

    fn finish(self, failed: bool) -> PageText {
        PageText { text: self.layout.finish(), failed, ..self.page }
    }

    fn place(&mut self, glyph: &Glyph<'_>, transform: Affine, next: Option<Point>, vertical: bool) {
        let text = match glyph.as_unicode() {
            Some(BfString::Char(character)) => character.to_string(),
            Some(BfString::String(text)) => text,
            None => '\u{FFFD}'.to_string(),
        };
        let origin = transform * Point::ZERO;
        let Some(first) = text.chars().next() else { return };
        let near = |value: f64| (value * 5.0).round() as i32;
        if !origin.is_finite() || !self.seen.insert((first, near(origin.x), near(origin.y))) {
            return;
        }
        self.page.characters += text.chars().filter(|character| !character.is_whitespace()).count();
        self.page.unknown += usize::from(first == '\u{FFFD}');
        let [a, b, c, d, ..] = transform.as_coeffs();
        let (across, along) = (Vec2::new(a, b), Vec2::new(c, d));
        let size = along.hypot() * 1000.0;
        // A font's y axis points up while the page's points down.
        let direction = if vertical { -along } else { across };
        let (Some(direction), true) = (unit(direction), size.is_finite() && size > 0.0) else { return };
        let advance =
            if vertical { size } else { advance(glyph, size, across.hypot() * 1000.0, origin, next, direction) };
        self.layout.push(&text, Placed { origin, direction, advance, size });
    }
}

fn unit(vector: Vec2) -> Option<Vec2> {
    let length = vector.hypot();
    (length.is_finite() && length > 0.0).then(|| vector / length)
}

/// How far a glyph reaches along its line. The transform's width scale holds both the text's own stretching, which counts, and
/// that of a substituted font, which does not; the next glyph's place tells which.
fn advance(glyph: &Glyph<'_>, size: f64, width_scale: f64, origin: Point, next: Option<Point>, direction: Vec2) -> f64 {
    let width = match glyph {
        Glyph::Outline(outline) => outline.advance_width(),
        Glyph::Type3(drawn) => drawn.advance_width(),
    };
    let em = f64::from(width.unwrap_or(500.0)) / 1000.0;
    let (plain, stretched) = (em * size, em * width_scale);
    match next.map(|next| (next - origin).dot(direction)) {
        Some(step) if (step - stretched).abs() < (step - plain).abs() => stretched,
        Some(_) => plain,
        None => plain.min(stretched),
    }
}

impl Device<'_> for Collector {
    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}

    fn push_clip_path(&mut self, _: &ClipPath) {}

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        let glyphs = run.glyphs();
        let vertical = matches!(run.writing_mode(), WritingMode::Vertical);
        for (index, glyph) in glyphs.iter().enumerate() {
            let next = glyphs.get(index + 1).map(|next| props.transform * next.transform() * Point::ZERO);
            self.place(glyph, props.transform * glyph.transform(), next, vertical);
        }
    }

    fn draw_image(&mut self, image: Image<'_, '_>, props: ImageDrawProps<'_>) {
        let size = Rect::new(0.0, 0.0, f64::from(image.width()), f64::from(image.height()));
        let shown = (props.transform * size.to_path(0.1)).bounding_box().intersect(self.bounds);
        let coverage = shown.area() / self.bounds.area();
        if coverage.is_finite() {
            self.page.image_coverage = self.page.image_coverage.max(coverage);
        }
    }

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}
}
