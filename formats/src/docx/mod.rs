//! Converts Word documents to Markdown.
//!
//! Comments, notes, tracked changes and the kinds and numbers of lists are not in the Markdown. They are facts of the
//! extraction: `docx.comments`, `docx.footnotes`, `docx.endnotes`, `docx.tracked_changes` and `docx.lists`. In each
//! entry, `at` is the character of the text where its paragraph begins.

mod body;
mod evidence;
mod frames;
mod images;
mod notes;
mod numbering;
mod pieces;
mod styles;
pub(crate) mod symbols;

use crate::{
    Extraction, Format, FormatError, Limits, Pattern, Patterns, images::is_drawn, markdown, package::Package,
    tables::has_tables,
};
pub(crate) use images::images;
use std::io::{Read, Seek};

/// How many pictures the main part refers to.
const IMAGES: &str = "docx.images";

/// How many parts in other formats were not read, if there are any: those of no format that is text, and those that are damaged.
const UNREAD: &str = "docx.unread_parts";

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let (extraction, has_images) = read(source, limits, true)?;
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, markdown::has_text(&extraction.text))
        .with(Pattern::HasHeadingStyles, !extraction.headings.is_empty())
        .with(Pattern::HasTables, has_tables(&extraction.text))
        .with(Pattern::HasImages, has_images))
}

pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    read(source, limits, true).map(|(extraction, _)| extraction)
}

/// The text, with that of its parts in other formats or without it, and whether the main part refers to a picture or a chart.
fn read<R: Read + Seek>(source: R, limits: &Limits, with_pieces: bool) -> Result<(Extraction, bool), FormatError> {
    let mut package = Package::open(source, Format::Docx, limits)?;
    let main = package.main_part()?;
    let related = package.relationships(&main)?;
    let part = |kind: &str| related.iter().find(|relation| relation.kind == kind).map(|relation| &*relation.target);
    let styles = match part("styles") {
        Some(name) => package.xml(name)?.map(styles::Styles::read).transpose()?,
        None => None,
    };
    let numbering = match part("numbering") {
        Some(name) => package.xml(name)?.map(numbering::Numbering::read).transpose()?,
        None => None,
    };
    let mut evidence = evidence::Evidence::default();
    for kind in notes::Kind::ALL {
        if let Some(name) = part(kind.relationship())
            && let Some(xml) = package.xml(name)?
        {
            evidence.read_notes(xml, kind)?;
        }
    }
    let (pieces, unread) = if with_pieces { pieces::read(&mut package, &related, limits)? } else { Default::default() };
    let Some(xml) = package.xml(&main)? else {
        return Err(FormatError::corrupt(Format::Docx, "the package has no main part"));
    };
    let mut extraction =
        body::convert(xml, &styles.unwrap_or_default(), &numbering.unwrap_or_default(), evidence, pieces, limits)?;
    if unread > 0 {
        extraction.facts.insert(UNREAD.to_owned(), unread.into());
    }
    let images = related.iter().filter(|relation| relation.kind == "image").count();
    extraction.facts.insert(IMAGES.to_owned(), images.into());
    Ok((extraction.within(limits)?, related.iter().any(is_drawn)))
}

#[cfg(test)]
mod tests;
