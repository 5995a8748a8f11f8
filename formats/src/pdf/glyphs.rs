//! Glyphs and images of a page, as an interpreter draws them.
mod actual;
mod drawings;
mod guesses;
mod known;
mod mirrored;
mod weights;

use super::{
    boxes::Boxes,
    coverage::{Coverage, WHOLE},
    layout::as_drawn,
    rulings::Rulings,
    unicode::Unicode,
};
use actual::ActualTexts;
use drawings::Drawings;
use guesses::Guesses;
use hayro_interpret::{
    BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask,
    font::{Glyph as Drawn, GlyphRun},
    hayro_cmap::{BfString, WritingMode},
    hayro_syntax::object::{Dict, String as PdfString},
};
use known::Known;
use kurbo::{Affine, BezPath, Point, Rect, Shape, Vec2};
use mirrored::{Mirrored, is_mirrored};
use rustc_hash::FxHashMap;
use std::{mem, ops::Range};
use weights::Weights;

/// Stands for a glyph whose character nothing in the file tells.
pub(super) const UNKNOWN: char = '\u{FFFD}';
/// More glyphs, forms or clips than this are an attack, such as forms that draw forms; the drawing ends there.
const MOST_GLYPHS: usize = 1_000_000;
const MOST_CLIPS: usize = 1_000_000;
/// Buffers for at most this many glyphs are kept from page to page.
const MOST_KEPT: usize = 50_000;

/// The most bytes of typed text that are compared with the page's text.
const MOST_COMPARED: usize = 1000;

/// The size in points of a text without an appearance, where it has the room.
const WRITTEN: f64 = 12.0;

/// How far text may extend beyond a page's edge, in points.
const BLEED: f64 = 2.0;
/// The share of a page's side in which text is at its edge, where stamps and page numbers are.
const EDGE: f64 = 0.08;

/// The payload of the unwinding that ends a drawing over [`MOST_GLYPHS`] or [`MOST_CLIPS`], because an interpreter has
/// no other way out.
pub(super) struct Endless;

/// A drawn character, or the few of a ligature. Lengths are in points, and y grows downwards.
#[derive(Debug, Clone)]
pub(super) struct Glyph {
    /// A byte range of [`PageGlyphs::text`].
    pub text: Range<u32>,
    pub origin: Point,
    /// Along the baseline, of length 1.
    pub direction: Vec2,
    pub advance: f64,
    pub size: f64,
    pub bold: bool,
    /// The marked content around it, by its identifier on the page.
    pub content: Option<u32>,
    /// It belongs to a form field or another annotation, which are drawn after everything else.
    pub annotated: bool,
    /// It begins a string that was drawn by itself.
    pub begins: bool,
}

/// What a page shows, in the order of drawing.
#[derive(Default)]
pub(super) struct PageGlyphs {
    pub text: String,
    pub glyphs: Vec<Glyph>,
    /// The number of characters that are not white space, including unknown ones.
    pub characters: usize,
    /// How many of these stand away from the page's edges or beside its images, or are hidden, as what an engine has read on a scan is.
    /// Annotations do not count.
    pub inner: usize,
    /// The number of glyphs whose character nothing in the file tells.
    pub unknown: usize,
    pub images: Coverage,
    /// Boxes drawn around text or beside it.
    pub boxes: Vec<Rect>,
    /// Lines drawn along its sides.
    pub rulings: Vec<Rect>,
}

impl PageGlyphs {
    pub(super) fn text_of(&self, glyph: &Glyph) -> &str {
        &self.text[glyph.text.start as usize..glyph.text.end as usize]
    }

    /// Gives an unknown glyph its character.
    fn replace(&mut self, glyph: usize, character: char) {
        let start = self.text.len() as u32;
        push_character(&mut self.text, character);
        self.glyphs[glyph].text = start..self.text.len() as u32;
        self.unknown -= 1;
        self.characters -= usize::from(character.is_whitespace());
    }
}

/// The buffers of a page, kept for the next page.
#[derive(Default)]
pub(super) struct Buffers {
    text: String,
    glyphs: Vec<Glyph>,
    /// Where each character was drawn, by blocks of cells, because shadowed and thickened text is drawn more than once.
    seen: FxHashMap<(char, i32, i32), u64>,
    known: Known,
    weights: Weights,
    guesses: Guesses,
}

impl Buffers {
    /// Takes a page's buffers back if the next page may need as much.
    pub(super) fn take_back(&mut self, page: PageGlyphs) {
        self.seen.clear();
        if page.glyphs.capacity() <= 2 * MOST_KEPT && page.text.capacity() <= 8 * MOST_KEPT {
            (self.text, self.glyphs) = (page.text, page.glyphs);
            self.text.clear();
            self.glyphs.clear();
        }
    }
}

/// How a string shows a glyph.
#[derive(Clone, Copy)]
struct Shown {
    bold: bool,
    begins: bool,
    hidden: bool,
}

/// A device that keeps what can be read.
pub(super) struct Collector<'u> {
    page: PageGlyphs,
    boxes: Boxes,
    rulings: Rulings,
    drawings: Drawings,
    mirrored: Mirrored,
    actual: ActualTexts,
    bounds: Rect,
    /// What of the page is away from its edges.
    inner: Rect,
    /// Where characters stand at the edges, and how many.
    edges: Vec<(Point, usize)>,
    buffers: Buffers,
    /// The identifiers of the open marked contents on the page, the innermost last.
    open: Vec<Option<u32>>,
    clips: usize,
    strings: usize,
    annotates: bool,
    unicode: &'u Unicode,
}

impl<'u> Collector<'u> {
    pub(super) fn new(bounds: Rect, unicode: &'u Unicode, mut buffers: Buffers) -> Self {
        let (text, glyphs) = (mem::take(&mut buffers.text), mem::take(&mut buffers.glyphs));
        let page = PageGlyphs { text, glyphs, images: Coverage::new(bounds), ..PageGlyphs::default() };
        Self {
            page,
            boxes: Boxes::default(),
            rulings: Rulings::default(),
            drawings: Drawings::default(),
            mirrored: Mirrored::default(),
            actual: ActualTexts::default(),
            bounds: bounds.inflate(BLEED, BLEED),
            inner: bounds.inflate(-EDGE * bounds.width(), -EDGE * bounds.height()),
            edges: Vec::new(),
            buffers,
            open: Vec::new(),
            clips: 0,
            strings: 0,
            annotates: false,
            unicode,
        }
    }

    /// Returns what the page shows, and the buffers for the next collector once the page is handed back.
    pub(super) fn finish(mut self) -> (PageGlyphs, Buffers) {
        for (glyph, size) in self.drawings.sizes() {
            self.page.glyphs[glyph].size = size;
        }
        for glyphs in self.buffers.weights.bold() {
            self.page.glyphs[glyphs].iter_mut().for_each(|glyph| glyph.bold = true);
        }
        for (glyph, character) in self.buffers.guesses.finish() {
            self.page.replace(glyph, character);
        }
        // A stamp stands on the picture of a page, or beside one that leaves no room for more than a stamp. Whatever else is at the edges
        // is the page's own, such as the title of a slide above a picture.
        if self.page.images.union() < WHOLE {
            let beside = self.edges.iter().filter(|(place, _)| !self.page.images.covers(*place));
            let beside: usize = beside.map(|(_, characters)| characters).sum();
            self.page.inner += beside;
        }
        // From here on the glyphs have other places, and then other numbers.
        self.mirrored.finish(&mut self.page);
        self.actual.finish(&mut self.page);
        if self.buffers.seen.len() > MOST_KEPT {
            self.buffers.seen = FxHashMap::default();
        }
        (PageGlyphs { boxes: self.boxes.finish(), rulings: self.rulings.finish(), ..self.page }, self.buffers)
    }

    /// Declares that what follows is not the page's own content.
    pub(super) fn annotate(&mut self) {
        self.annotates = true;
    }

    /// Whether the page's text contains this text, ignoring blanks.
    pub(super) fn has_drawn(&self, text: &str) -> bool {
        let bare = |text: &str| text.chars().filter(|character| !character.is_whitespace()).collect::<String>();
        let wanted = bare(text);
        wanted.len() < MOST_COMPARED && bare(&self.page.text).contains(&wanted)
    }

    /// How many strings were drawn so far, whether somebody can read them or not.
    pub(super) fn strings_drawn(&self) -> usize {
        self.strings
    }

    /// Adds a text that has a place on the page and no appearance, as a viewer would draw it: its lines from the top of the place, in letters that
    /// have room there.
    pub(super) fn write(&mut self, text: &str, place: Rect) {
        let lines: Vec<&str> = text.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect();
        let height = place.height() / lines.len() as f64;
        let size = (0.8 * height).min(WRITTEN);
        for (number, line) in lines.into_iter().enumerate() {
            let characters = as_drawn(line);
            let advance = (0.5 * size).min(place.width() / characters.len() as f64);
            let baseline = place.y0 + height * number as f64 + 0.5 * height + 0.35 * size;
            for (index, character) in characters.into_iter().enumerate() {
                let origin = Point::new(place.x0 + advance * index as f64, baseline);
                let is_sane = advance > 0.0 && advance.is_finite() && self.bounds.contains(origin);
                let start = self.page.text.len();
                push_character(&mut self.page.text, character);
                if self.page.glyphs.len() >= MOST_GLYPHS {
                    std::panic::resume_unwind(Box::new(Endless));
                }
                if !is_sane || self.page.text.len() == start {
                    self.page.text.truncate(start);
                    continue;
                }
                self.page.characters += usize::from(!character.is_whitespace());
                self.page.glyphs.push(Glyph {
                    text: start as u32..self.page.text.len() as u32,
                    origin,
                    direction: Vec2::new(1.0, 0.0),
                    advance,
                    size,
                    bold: false,
                    content: None,
                    annotated: true,
                    begins: index == 0,
                });
            }
        }
    }

    fn place(&mut self, glyph: &Drawn<'_>, transform: Affine, next: Option<Point>, vertical: bool, shown: Shown) {
        if self.page.glyphs.len() >= MOST_GLYPHS {
            std::panic::resume_unwind(Box::new(Endless));
        }
        let start = self.page.text.len();
        let told = self.buffers.known.get(glyph, self.unicode);
        let (width, stroke, guess) = (told.width, told.stroke, told.guess);
        match &told.text {
            Some(BfString::Char(character)) => push_character(&mut self.page.text, *character),
            Some(BfString::String(text)) => text.chars().for_each(|one| push_character(&mut self.page.text, one)),
            None => self.page.text.push(UNKNOWN),
        }
        let placed = self.measure(width, transform, next, vertical);
        let first = self.page.text[start..].chars().next();
        let (Some((origin, direction, advance, size)), Some(first)) = (placed, first) else {
            return self.page.text.truncate(start);
        };
        if self.is_drawn_again(first, origin, size, advance) {
            return self.page.text.truncate(start);
        }
        let text = &self.page.text[start..];
        let characters = text.chars().filter(|character| !character.is_whitespace()).count();
        self.page.characters += characters;
        if shown.hidden || (!self.annotates && self.inner.contains(origin)) {
            self.page.inner += characters;
        } else if !self.annotates {
            self.edges.push((origin, characters));
        }
        self.page.unknown += usize::from(first == UNKNOWN);
        let is_known = text.chars().all(char::is_alphanumeric);
        if matches!(glyph, Drawn::Type3(_)) {
            self.drawings.push(self.page.glyphs.len(), size, is_known.then_some(advance));
        }
        if let Some(stroke) = stroke {
            self.buffers.weights.push(stroke);
        }
        if let Some(guess) = guess.filter(|_| first == UNKNOWN) {
            self.buffers.guesses.push(self.page.glyphs.len(), guess);
        }
        let text = start as u32..self.page.text.len() as u32;
        let content = self.open.last().copied().flatten();
        self.page.glyphs.push(Glyph {
            text,
            origin,
            direction,
            advance,
            size,
            bold: shown.bold,
            content,
            annotated: self.annotates,
            begins: shown.begins,
        });
    }

    fn measure(
        &self,
        width: Option<f32>,
        transform: Affine,
        next: Option<Point>,
        vertical: bool,
    ) -> Option<(Point, Vec2, f64, f64)> {
        let origin = transform * Point::ZERO;
        let [a, b, c, d, ..] = transform.as_coeffs();
        let (across, along) = (Vec2::new(a, b), Vec2::new(c, d));
        let size = along.hypot() * 1000.0;
        // A font's y axis points up, the page's points down.
        let direction = unit(if vertical { -along } else { across })?;
        let advance =
            if vertical { size } else { advance(width, size, across.hypot() * 1000.0, origin, next, direction) };
        let is_sane = origin.is_finite() && advance.is_finite() && size > 0.0 && size < 1e5;
        // Some files draw the whole document's text on every page and clip it.
        let middle = origin + direction * (0.5 * advance);
        (is_sane && self.bounds.contains(middle)).then_some((origin, direction, advance, size))
    }

    fn is_drawn_again(&mut self, character: char, origin: Point, size: f64, advance: f64) -> bool {
        if character.is_whitespace() {
            return false;
        }
        // Two cells are less than the letter's advance, which may be small beside the size that a font claims; one cell
        // is more than the offset that makes text bold.
        let cell = if advance > 0.0 { (0.08 * size).min(0.4 * advance) } else { 0.08 * size };
        let (x, y) = ((origin.x / cell).round() as i32, (origin.y / cell).round() as i32);
        let seen = &mut self.buffers.seen;
        let again = blocks(x).any(|across| {
            blocks(y).any(|down| {
                let taken = seen.get(&(character, across, down)).copied().unwrap_or_default();
                taken & cells_around(x - (across << 3), y - (down << 3)) != 0
            })
        });
        if !again {
            *seen.entry((character, x >> 3, y >> 3)).or_default() |= 1 << ((x & 7) << 3 | (y & 7));
        }
        again
    }
}

/// The blocks of 8 cells that a cell and its neighbours are in.
fn blocks(cell: i32) -> impl Iterator<Item = i32> {
    cell.saturating_sub(1) >> 3..=cell.saturating_add(1) >> 3
}

/// The cells of a block around one that is in it or beside it, one byte per column; each position is from -1 to 8.
fn cells_around(x: i32, y: i32) -> u64 {
    let column = (0b111 << (y + 8) >> 9) & 0xFF_u64;
    let columns = column * 0x01_01_01;
    if x > 0 { columns << ((x - 1) * 8) } else { columns >> ((1 - x) * 8) }
}

/// Appends a character as a reader writes it: ligatures and presentation forms are taken apart, blanks become spaces,
/// and controls are dropped.
fn push_character(text: &mut String, character: char) {
    match character {
        'ﬀ' => text.push_str("ff"),
        'ﬁ' => text.push_str("fi"),
        'ﬂ' => text.push_str("fl"),
        'ﬃ' => text.push_str("ffi"),
        'ﬄ' => text.push_str("ffl"),
        'ﬅ' | 'ﬆ' => text.push_str("st"),
        '\u{FB13}'..='\u{FB4F}' | '\u{FB50}'..='\u{FDFB}' | '\u{FE70}'..='\u{FEFC}' => {
            unicode_normalization::char::decompose_compatible(character, |part| {
                // An isolated mark decomposes into a blank and the mark.
                if part != ' ' {
                    text.push(part);
                }
            });
        }
        character if character.is_whitespace() => text.push(' '),
        // These have no width: nobody sees them, and they would break words.
        '\u{200B}' | '\u{FEFF}' | '\u{FFFE}' | '\u{FFFF}' => {}
        character if character.is_control() => {}
        character => text.push(character),
    }
}

fn unit(vector: Vec2) -> Option<Vec2> {
    let length = vector.hypot();
    (length.is_finite() && length > 0.0).then(|| vector / length)
}

/// How far a glyph extends along its line. The transform's width scale contains both the text's own stretching, which
/// counts, and that of a substituted font, which does not; the position of the next glyph tells which it is.
fn advance(
    width: Option<f32>,
    size: f64,
    width_scale: f64,
    origin: Point,
    next: Option<Point>,
    direction: Vec2,
) -> f64 {
    let em = f64::from(width.unwrap_or(500.0)) / 1000.0;
    let (plain, stretched) = (em * size, em * width_scale);
    match next.map(|next| (next - origin).dot(direction)) {
        Some(step) if (step - stretched).abs() < (step - plain).abs() => stretched,
        Some(_) => plain,
        None => plain.min(stretched),
    }
}

/// Whether the font says that it is bold; others are found by [`Weights`].
fn is_bold(glyph: &Drawn<'_>) -> bool {
    let Drawn::Outline(glyph) = glyph else { return false };
    glyph.font_data().is_some_and(|font| {
        font.weight.is_some_and(|weight| weight >= 600)
            || font.postscript_name.is_some_and(|name| {
                let name = name.to_ascii_lowercase();
                ["bold", "black", "heavy"].iter().any(|weight| name.contains(weight))
            })
    })
}

impl Device<'_> for Collector<'_> {
    fn draw_path(&mut self, path: &BezPath, props: DrawProps<'_>, mode: &DrawMode) {
        self.boxes.add(path, props.transform);
        self.rulings.add(path, props.transform, mode);
    }

    fn draw_rect(&mut self, rect: &Rect, props: DrawProps<'_>, mode: &DrawMode) {
        self.boxes.add_rect(rect, props.transform);
        self.rulings.add_rect(rect, props.transform, mode);
    }

    fn push_clip_path(&mut self, _: &ClipPath) {
        self.clips += 1;
        if self.clips > MOST_CLIPS {
            std::panic::resume_unwind(Box::new(Endless));
        }
    }

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, mode: &DrawMode) {
        let glyphs = run.glyphs();
        self.strings += 1;
        self.buffers.known.begin_run();
        let vertical = matches!(run.writing_mode(), WritingMode::Vertical);
        let hidden = matches!(mode, DrawMode::Invisible);
        let bold = glyphs.first().is_some_and(|glyph| is_bold(glyph));
        let first = self.page.glyphs.len();
        for (index, glyph) in glyphs.iter().enumerate() {
            let next = glyphs.get(index + 1).map(|next| props.transform * next.transform() * Point::ZERO);
            let shown = Shown { bold, begins: index == 0, hidden };
            self.place(glyph, props.transform * glyph.transform(), next, vertical, shown);
        }
        self.buffers.weights.end_run(first..self.page.glyphs.len());
        if glyphs.first().is_some_and(|glyph| !vertical && is_mirrored(props.transform * glyph.transform())) {
            self.mirrored.push(first..self.page.glyphs.len());
        }
    }

    fn draw_image(&mut self, image: Image<'_, '_>, props: ImageDrawProps<'_>) {
        let size = Rect::new(0.0, 0.0, f64::from(image.width()), f64::from(image.height()));
        self.page.images.add((props.transform * size.to_path(0.1)).bounding_box());
    }

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}

    fn begin_marked_content(&mut self, _: &[u8], properties: Option<&Dict<'_>>) {
        // Content without an identifier belongs to what is around it.
        let around = self.open.last().copied().flatten();
        let content = properties.and_then(|properties| properties.get::<u32>(b"MCID")).or(around);
        if let Some(text) = properties.and_then(|properties| properties.get::<PdfString<'_>>(b"ActualText")) {
            self.actual.begin(text.as_bytes(), self.open.len(), self.page.glyphs.len());
        }
        self.open.push(content);
    }

    fn end_marked_content(&mut self) {
        self.open.pop();
        self.actual.end(self.open.len(), &mut self.page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_takes_nothing_away_that_was_learnt_of_its_file() {
        let mut buffers = Buffers::default();
        (0..40).for_each(|_| buffers.weights.push(61.0));
        buffers.weights.end_run(0..40);
        buffers.weights.bold();
        let glyphs = Vec::with_capacity(2 * MOST_KEPT + 1);
        buffers.take_back(PageGlyphs { glyphs, ..PageGlyphs::default() });
        assert_eq!(buffers.glyphs.capacity(), 0, "nor are its buffers kept");
        (0..10).for_each(|_| buffers.weights.push(93.0));
        buffers.weights.end_run(0..10);
        assert_eq!(buffers.weights.bold(), Vec::from_iter(Some(0..10)));
    }

    #[test]
    fn the_cells_around_one_are_found_in_every_block() {
        for (x, y) in (-20..20).flat_map(|x| (-20..20).map(move |y| (x, y))) {
            let mut found = Vec::new();
            for (across, down) in blocks(x).flat_map(|across| blocks(y).map(move |down| (across, down))) {
                let cells = cells_around(x - (across << 3), y - (down << 3));
                let of_block = (0..64).filter(|bit| cells >> bit & 1 == 1);
                found.extend(of_block.map(|bit| ((across << 3) + (bit >> 3), (down << 3) + (bit & 7))));
            }
            found.sort_unstable();
            let around: Vec<_> = (x - 1..=x + 1).flat_map(|x| (y - 1..=y + 1).map(move |y| (x, y))).collect();
            assert_eq!(found, around, "around {x}, {y}");
        }
        assert!(blocks(i32::MAX).chain(blocks(i32::MIN)).all(|block| (block << 3) >> 3 == block));
    }
}
