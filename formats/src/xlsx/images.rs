//! The pictures that lie on sheets, with the names of their sheets.

use crate::{
    Format, FormatError, Limits,
    images::{Gallery, Giver, Shown, one_line, read_part},
    package::Package,
    xml::{Node, XmlReader},
};
use std::{
    collections::HashMap,
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
    let mut gallery = Gallery::default();
    for ((name, part), number) in sheets.into_iter().zip(1u32..) {
        for drawing in targets(&mut package, &part, "drawing")?.into_values() {
            let pictures = targets(&mut package, &drawing, "image")?;
            if let Some(xml) = package.xml(&drawing)? {
                read(xml, &pictures, number, &name, &mut gallery)?;
            }
        }
    }
    giver
        .give_all(gallery, |name, most| package.part(name)?.map(|part| read_part(part, most, Format::Xlsx)).transpose())
}

/// What a part refers to of one kind, by the ids of the references.
fn targets<R: Read + Seek>(
    package: &mut Package<R>,
    part: &str,
    kind: &str,
) -> Result<HashMap<String, String>, FormatError> {
    let related = package.relationships(part)?;
    let of_kind = related.into_iter().filter(|relation| relation.kind == kind);
    Ok(of_kind.map(|relation| (relation.id, relation.target)).collect())
}

fn read<R: Read>(
    mut xml: XmlReader<R>,
    pictures: &HashMap<String, String>,
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
            "blip" => {
                if let Some(name) = element.attribute("embed").and_then(|id| pictures.get(id)) {
                    gallery.add(Shown {
                        name: name.clone(),
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
