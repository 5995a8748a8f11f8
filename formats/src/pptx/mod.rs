//! Converts presentations to Markdown: each slide is a `#` section, in the order of the presentation.
//!
//! A slide's heading is its title placeholder. Without one, its first line of text is promoted and counted in the fact
//! `promoted_title_count`; if no line outside tables has text, the heading is `Slide N`. Hidden slides are read like
//! others. The pages of the extraction are the slides, by their number in the presentation. Facts: `pptx.slides`,
//! `pptx.hidden_slides`, `pptx.missing_slides` (listed, but not in the package), `pptx.slides_without_text` and
//! `pptx.comments`.

mod comments;
mod images;
mod inheritance;
mod paragraph;
mod presentation;
mod shapes;
mod slide;

use self::presentation::Presentation;
use crate::{
    Extraction, Format, FormatError, Limits, Page, PageKind, Pattern, Patterns,
    facts::FactList,
    markdown::{Block, Writer},
    package::Package,
};
pub(crate) use images::images;
pub(crate) use slide::Slide;
use std::io::{Read, Seek};

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, Format::Pptx, limits)?;
    let mut has_images = has_images(&package);
    let mut presentation = Presentation::open(&mut package, limits)?;
    let slides = presentation.take_slides();
    let (mut has_text, mut has_tables, mut has_comments, mut has_smartart) = (false, false, false, false);
    for slide in slides.iter().flatten() {
        let related = package.relationships(slide)?;
        let has = |kind: &str| related.iter().any(|relation| relation.kind == kind);
        has_comments |= has("comments");
        has_smartart |= has("diagramData");
        has_images |= has("chart");
        if !(has_text && has_tables)
            && let Some(slide) = presentation.slide(&mut package, slide, &related, limits)?
        {
            has_text |= slide.has_text();
            has_tables |= slide.has_tables();
        }
    }
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, has_text)
        .with(Pattern::HasSlides, !slides.is_empty())
        .with(Pattern::HasComments, has_comments)
        .with(Pattern::HasImages, has_images)
        .with(Pattern::HasTables, has_tables)
        .with(Pattern::HasSmartart, has_smartart))
}

/// Whether any slide, layout or master holds a picture, judging by the names of the parts.
fn has_images<R: Read + Seek>(package: &Package<R>) -> bool {
    const ENDINGS: [&str; 11] = ["png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "emf", "wmf", "svg", "wdp"];
    package.names().any(|name| {
        name.contains("/media/") && name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending))
    })
}

pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let mut package = Package::open(source, Format::Pptx, limits)?;
    let mut presentation = Presentation::open(&mut package, limits)?;
    let mut deck = Deck::default();
    for (slide, number) in presentation.take_slides().into_iter().zip(1u32..) {
        let read = match &slide {
            Some(name) => {
                let related = package.relationships(name)?;
                let slide = presentation.slide(&mut package, name, &related, limits)?;
                if slide.is_some() {
                    deck.comments_of(&mut package, &mut presentation, &related, number)?;
                }
                slide
            }
            None => None,
        };
        match read {
            Some(slide) => deck.write(slide, number, limits)?,
            None => deck.lack(number),
        }
    }
    deck.finish(Format::Pptx)?.within(limits)
}

/// The slides, written one after the other.
#[derive(Default)]
pub(crate) struct Deck {
    writer: Writer,
    pages: Vec<Page>,
    promoted: u64,
    hidden: Vec<u32>,
    missing: Vec<u32>,
    without_text: Vec<u32>,
    comments: FactList,
}

impl Deck {
    pub(crate) fn write(&mut self, slide: Slide, number: u32, limits: &Limits) -> Result<(), FormatError> {
        if slide.is_hidden {
            self.hidden.push(number);
        }
        if !slide.has_text() {
            self.without_text.push(number);
        }
        let Slide { title, mut blocks, notes, .. } = slide;
        let title = match title {
            Some(title) => title,
            None => match slide::promote(&mut blocks) {
                Some(line) => {
                    self.promoted += 1;
                    line
                }
                None => format!("Slide {number}"),
            },
        };
        let mut start = None;
        let heading = Block::Heading { level: 1, text: title };
        let notes_heading = (!notes.is_empty()).then(|| Block::Heading { level: 2, text: "Notes".to_owned() });
        for block in std::iter::once(heading).chain(blocks).chain(notes_heading).chain(notes) {
            start = start.or(self.writer.write(block, limits)?);
        }
        let end = self.writer.len();
        self.pages.push(Page { number, start: start.unwrap_or(end), end });
        Ok(())
    }

    /// Notes that the presentation lists a slide that is not there.
    pub(crate) fn lack(&mut self, number: u32) {
        self.missing.push(number);
    }

    fn comments_of<R: Read + Seek>(
        &mut self,
        package: &mut Package<R>,
        presentation: &mut Presentation,
        related: &[crate::package::Relationship],
        number: u32,
    ) -> Result<(), FormatError> {
        for relation in related.iter().filter(|relation| relation.kind == "comments") {
            if let Some(xml) = package.xml(&relation.target)? {
                comments::read(xml, &presentation.authors, number, &mut self.comments)?;
            }
        }
        Ok(())
    }

    /// The text of the slides; the facts have names of the format.
    pub(crate) fn finish(self, format: Format) -> Result<Extraction, FormatError> {
        if self.pages.is_empty() && !self.missing.is_empty() {
            return Err(FormatError::corrupt(format, "the file has none of its slides"));
        }
        let mut extraction = self.writer.finish("slides");
        let facts = &mut extraction.facts;
        facts.insert("promoted_title_count".to_owned(), self.promoted.into());
        facts.insert(format!("{format}.slides"), (self.pages.len() + self.missing.len()).into());
        for (name, numbers) in [
            ("hidden_slides", self.hidden),
            ("missing_slides", self.missing),
            ("slides_without_text", self.without_text),
        ] {
            if !numbers.is_empty() {
                facts.insert(format!("{format}.{name}"), numbers.into());
            }
        }
        self.comments.record("pptx.comments", facts);
        extraction.pages = self.pages;
        extraction.page_kind = PageKind::Slide;
        Ok(extraction)
    }
}

#[cfg(test)]
mod tests;
