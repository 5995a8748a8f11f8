//! The pictures of the pages of a book, with the text around them.

use super::{Book, encrypted, resolved, root};
use crate::{
    Format, FormatError, Limits,
    extraction::check_text,
    html,
    images::{Flow, Giver, read_part},
    package::Package,
};
use std::io::{Read, Seek};

pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    let mut package = Package::open(source, Format::Epub, limits)?;
    let root = root(&mut package, limits)?;
    let spine = Book::read(&mut package, &root, limits)?.spine;
    let sealed = encrypted(&mut package, limits)?;
    let mut flow = Flow::default();
    for page in spine.iter().filter(|page| !sealed.contains(*page)) {
        let Some(part) = package.part(page)? else { continue };
        let bytes = read_part(part, limits.text_bytes.saturating_add(1), Format::Epub)?;
        check_text(bytes.len(), limits)?;
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        html::Source::decode(&bytes, None).of_xml().pictures(None, &mut flow, &mut |address: &str| {
            // An address with a scheme leads out of the book.
            let is_own = !address.split(['/', '?', '#']).next().unwrap_or_default().contains(':');
            is_own.then(|| resolved(folder, address)).filter(|name| !sealed.contains(name))
        })?;
        flow.end_page();
    }
    giver.give_all(flow.finish(), |name, most| {
        package.part(name)?.map(|part| read_part(part, most, Format::Epub)).transpose()
    })
}

/// Whether the package has pictures, judging by the names of its parts.
pub(super) fn has_images<R: Read + Seek>(package: &Package<R>) -> bool {
    const ENDINGS: [&str; 6] = ["png", "jpg", "jpeg", "gif", "svg", "webp"];
    package.names().any(|name| name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending)))
}
