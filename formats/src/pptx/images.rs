//! The pictures of slides, with the texts of their slides.

use super::presentation::Presentation;
use crate::{
    Format, FormatError, Limits,
    images::{Gallery, Giver, Shown, one_line, read_part},
    package::{Package, Relationship},
    xml::{Node, XmlReader},
};
use std::io::{Read, Seek};

/// As much of a slide's text stands beside its pictures.
const NEARBY_CHARACTERS: usize = 400;

pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    let mut package = Package::open(source, Format::Pptx, limits)?;
    let slides = Presentation::open(&mut package, limits)?.take_slides();
    let mut gallery = Gallery::default();
    for (name, number) in slides.into_iter().zip(1u32..) {
        let Some(name) = name else { continue };
        let related = package.relationships(&name)?;
        if !related.iter().any(|relation| relation.kind == "image") {
            continue;
        }
        if let Some(xml) = package.xml(&name)? {
            slide(xml, &related, number, &mut gallery)?;
        }
    }
    giver
        .give_all(gallery, |name, most| package.part(name)?.map(|part| read_part(part, most, Format::Pptx)).transpose())
}

fn slide<R: Read>(
    mut xml: XmlReader<R>,
    related: &[Relationship],
    number: u32,
    gallery: &mut Gallery,
) -> Result<(), FormatError> {
    let (mut text, mut alt, mut found) = (String::new(), String::new(), Vec::new());
    let mut is_text = Vec::new();
    while let Some(node) = xml.next()? {
        match node {
            Node::Start(element) => {
                match element.name.as_str() {
                    // The other form of what was read, and what is behind the slide.
                    "Fallback" | "bg" => {
                        xml.skip()?;
                        continue;
                    }
                    "cNvPr" => {
                        let told = element.attribute("descr").filter(|text| !text.trim().is_empty());
                        alt = told.or(element.attribute("title")).unwrap_or_default().to_owned();
                    }
                    "blip" => {
                        let target = element.attribute("embed").and_then(|id| {
                            related.iter().find(|relation| relation.kind == "image" && relation.id == id)
                        });
                        if let Some(target) = target {
                            found.push((target.target.clone(), one_line(&alt, NEARBY_CHARACTERS)));
                        }
                    }
                    _ => {}
                }
                is_text.push(element.name == "t");
            }
            Node::Text(piece) => {
                if is_text.last() == Some(&true) && text.len() < 4 * NEARBY_CHARACTERS {
                    text.push_str(&piece);
                    text.push(' ');
                }
            }
            Node::End => {
                is_text.pop();
            }
        }
    }
    let nearby = one_line(&text, NEARBY_CHARACTERS);
    for (name, alt) in found {
        gallery.add(Shown { name, pages: vec![number], alt, nearby: nearby.clone(), ..Shown::default() });
    }
    Ok(())
}
