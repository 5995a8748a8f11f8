//! The pictures and charts that lie on sheets, with the names of their sheets.

use crate::{
    Format, FormatError, Limits,
    images::{Drawn, Gallery, Giver, Shown, one_line},
    package::Package,
    xml::{Node, XmlReader},
};
use std::{
    collections::{BTreeSet, HashMap},
    io::{Read, Seek},
};

const ALT_CHARACTERS: usize = 500;
const NAME_CHARACTERS: usize = 100;
/// More sheets have no workbook.
const MOST_SHEETS: usize = 10_000;

pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    let mut package = Package::open(source, Format::Xlsx, limits)?;
    let main = package.main_part()?;
    let related = package.relationships(&main)?;
    let parts: HashMap<&str, &str> = related.iter().map(|relation| (&*relation.id, &*relation.target)).collect();
    let mut sheets: Vec<(String, String)> = Vec::new();
    if let Some(mut xml) = package.xml(&main)? {
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            // A sheet has a number of its own and a relationship's id.
            if element.name == "sheet"
                && sheets.len() < MOST_SHEETS
                && let Some(part) = element.attributes("id").find_map(|id| parts.get(id))
            {
                let name = one_line(element.attribute("name").unwrap_or_default(), NAME_CHARACTERS);
                sheets.push((name, (*part).to_owned()));
            }
        }
    }
    let (mut gallery, mut drawn) = (Gallery::default(), Drawn::default());
    for ((name, part), number) in sheets.into_iter().zip(1u32..) {
        let related = package.relationships(&part)?;
        let drawings = related.into_iter().filter(|relation| relation.kind == "drawing");
        for drawing in drawings.map(|relation| relation.target).collect::<BTreeSet<_>>() {
            if drawn.begin(&package.relationships(&drawing)?)
                && let Some(xml) = package.xml(&drawing)?
            {
                read(xml, &drawn, number, &name, &mut gallery)?;
            }
        }
    }
    drawn.give(gallery, &mut package, Format::Xlsx, giver)
}

fn read<R: Read>(
    mut xml: XmlReader<R>,
    drawn: &Drawn,
    number: u32,
    sheet: &str,
    gallery: &mut Gallery,
) -> Result<(), FormatError> {
    let mut alt = String::new();
    while let Some(node) = xml.next()? {
        let Node::Start(element) = node else { continue };
        match element.name.as_str() {
            "Fallback" => xml.skip()?,
            "cNvPr" => {
                let told = element.attribute("descr").filter(|text| !text.trim().is_empty());
                alt = one_line(told.or(element.attribute("title")).unwrap_or_default(), ALT_CHARACTERS);
            }
            "blip" | "chart" => {
                if let Some(name) = drawn.shown(&element) {
                    gallery.add(Shown {
                        name: name.to_owned(),
                        pages: vec![number],
                        alt: alt.clone(),
                        nearby: sheet.to_owned(),
                        ..Shown::default()
                    });
                }
            }
            _ => {}
        }
    }
    Ok(())
}
