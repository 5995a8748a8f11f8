//! Reads pages one by one.

use super::{
    annotations,
    coverage::{Coverage, WHOLE},
    document::Document,
    glyphs::{Buffers, Collector},
    layout::{Laid, lay_out},
    streams::Streams,
};
use crate::{FormatError, Limits};
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, interpret};
use hayro_syntax::{
    content::TypedIter,
    object::{Array, Object, Stream},
    page::Page,
};
use kurbo::{Affine, Rect};
use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Fewer characters on a large image are a page number, not the page's text.
const SCANNED_CHARACTERS: usize = 10;
const SCANNED_COVERAGE: f64 = 0.5;
/// Where images cover so much, characters on them at the page's edges and those of annotations are a stamp, however many they are.
const STAMPED_COVERAGE: f64 = 0.75;
/// Fonts are cached for this many pages and then read anew, because a file may have its own fonts for each page.
const CACHED_PAGES: usize = 64;

pub(super) struct PageText {
    pub laid: Laid,
    /// The number of characters that are not white space, including unknown ones.
    pub characters: usize,
    /// How many of these are neither on images at the page's edges nor of annotations.
    pub inner: usize,
    /// The number of glyphs whose character nothing in the file tells.
    pub unknown: usize,
    pub images: Coverage,
    /// The engine gave up on the page, or the drawing did not end; what was drawn until then is here.
    pub failed: bool,
}

impl PageText {
    /// Whether the text is usable: with over 30 % unknown glyphs it is noise.
    pub(super) fn has_usable_text(&self) -> bool {
        self.characters > 0 && self.unknown * 10 <= self.characters * 3
    }

    /// Whether it shows characters of which too many are unknown, because its fonts do not say what their glyphs are.
    pub(super) fn is_unusable(&self) -> bool {
        self.characters > 0 && !self.has_usable_text() && !self.is_scanned()
    }

    /// Whether it is a picture of a page: images over at least half of it and hardly any characters, or over nearly all of it and hardly
    /// any but a stamp's.
    pub(super) fn is_scanned(&self) -> bool {
        let covered = self.images.union();
        (self.characters < SCANNED_CHARACTERS && covered >= SCANNED_COVERAGE)
            || (self.inner < SCANNED_CHARACTERS && covered >= STAMPED_COVERAGE)
    }

    /// The share of the page from which on an image is the page itself. On a scan every image is a part of it, unless one alone is the
    /// scan that something was stamped or put on.
    pub(super) fn whole_share(&self) -> f64 {
        let is_put_on = self.characters >= SCANNED_CHARACTERS && self.images.largest >= STAMPED_COVERAGE;
        match self.is_scanned() {
            false => WHOLE,
            true if is_put_on => STAMPED_COVERAGE,
            true => 0.0,
        }
    }

    /// Whether it has a text of its own, even if it is a scan: a stamp, or what was filled into it.
    pub(super) fn has_own_text(&self) -> bool {
        self.has_usable_text() && (self.characters >= SCANNED_CHARACTERS || !self.is_scanned())
    }
}

/// Reads pages one by one; fonts read for one page serve the next.
pub(super) struct PageReader<'a> {
    document: &'a Document,
    limits: &'a Limits,
    streams: Streams<'a>,
    cache: InterpreterCache<'a>,
    settings: InterpreterSettings,
    buffers: Buffers,
    read: usize,
}

impl<'a> PageReader<'a> {
    pub(super) fn new(document: &'a Document, limits: &'a Limits) -> Self {
        Self {
            document,
            limits,
            streams: Streams::new(limits),
            cache: InterpreterCache::new(),
            settings: InterpreterSettings::default(),
            buffers: Buffers::default(),
            read: 0,
        }
    }

    /// Reads the page at an index.
    ///
    /// # Errors
    /// The limit that its contents would exceed once unpacked.
    pub(super) fn read(&mut self, index: usize) -> Result<PageText, FormatError> {
        let page = self.document.page(index);
        self.streams.follow(page, self.document.xref())?;
        self.read += 1;
        if self.read.is_multiple_of(CACHED_PAGES) {
            self.cache = InterpreterCache::new();
        }
        let (width, height) = page.render_dimensions();
        let bounds = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
        let mut collector = Collector::new(bounds, &self.streams.unicode, mem::take(&mut self.buffers));
        let drawn = catch_unwind(AssertUnwindSafe(|| self.draw(page, bounds, &mut collector)));
        let (mut glyphs, buffers) = collector.finish();
        if drawn.is_err() {
            // A panic may have poisoned the cache's lock.
            self.cache = InterpreterCache::new();
        }
        let page = PageText {
            laid: lay_out(&glyphs),
            characters: glyphs.characters,
            inner: glyphs.inner,
            unknown: glyphs.unknown,
            images: mem::take(&mut glyphs.images),
            failed: drawn.is_err(),
        };
        self.buffers = buffers;
        self.buffers.take_back(glyphs);
        Ok(page)
    }

    fn draw(&self, page: &'a Page<'a>, bounds: Rect, collector: &mut Collector<'_>) {
        let initial = Affine::new(page.initial_transform(true).as_coeffs());
        let context = |place: Affine| {
            Context::new(initial * place, bounds, &self.cache, self.document.xref(), self.settings.clone())
        };
        // The content is unpacked here because the page would keep it as long as the file is open.
        let content = content(page);
        interpret(TypedIter::new(&content), page.resources(), &mut context(Affine::IDENTITY), collector);
        annotations::draw(page, initial, context, self.limits, collector);
    }
}

pub(super) fn content(page: &Page<'_>) -> Vec<u8> {
    let mut content = Vec::new();
    let mut push = |stream: Stream<'_>| {
        if let Ok(bytes) = stream.decoded_data() {
            content.extend_from_slice(&bytes);
            // A word does not continue in the next stream.
            content.push(b'\n');
        }
    };
    match page.raw().get::<Object<'_>>(b"Contents") {
        Some(Object::Stream(stream)) => push(stream),
        Some(Object::Array(streams)) => Array::iter::<Stream<'_>>(&streams).for_each(push),
        _ => {}
    }
    content
}
