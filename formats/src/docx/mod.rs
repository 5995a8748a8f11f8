//! Word documents to Markdown.

mod body;
mod markdown;
mod styles;

use std::io::{Read, Seek};

use crate::{Extraction, Format, FormatError, Limits, Pattern, Patterns, package::Package};

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let extraction = extract(source, limits)?;
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, !extraction.text.is_empty())
        .with(Pattern::HasHeadingStyles, !extraction.headings.is_empty()))
}

pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let mut package = Package::open(source, Format::Docx, limits)?;
    let main = package.main_part()?;
    let related = package.relationships(&main)?;
    let styles = match related.iter().find(|relation| relation.kind == "styles") {
        Some(relation) => package.xml(&relation.target)?.map(styles::Styles::read).transpose()?,
        None => None,
    };
    let Some(xml) = package.xml(&main)? else {
        return Err(FormatError::corrupt(Format::Docx, "the package has no main part"));
    };
    body::convert(xml, &styles.unwrap_or_default(), limits)?.within(limits)
}

#[cfg(test)]
mod tests;
