//! The pictures and charts of slides, with the texts of their slides.

use super::presentation::Presentation;
use crate::{
    Format, FormatError, Limits,
    images::{Drawn, Gallery, Giver, Shown, one_line},
    package::Package,
    xml::{Node, XmlReader},
};
use std::{
    collections::HashSet,
    io::{Read, Seek},
};

/// As much of a slide's text stands beside its pictures.
const NEARBY_CHARACTERS: usize = 400;

pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    let mut package = Package::open(source, Format::Pptx, limits)?;
    let slides = Presentation::open(&mut package, limits)?.take_slides();
    let (mut gallery, mut drawn) = (Gallery::default(), Drawn::default());
    for (name, number) in slides.into_iter().zip(1u32..) {
        let Some(name) = name else { continue };
        if drawn.begin(&package.relationships(&name)?)
            && let Some(xml) = package.xml(&name)?
        {
            slide(xml, &drawn, number, &mut gallery)?;
        }
    }
    drawn.give(gallery, &mut package, Format::Pptx, giver)
}

fn slide<R: Read>(mut xml: XmlReader<R>, drawn: &Drawn, number: u32, gallery: &mut Gallery) -> Result<(), FormatError> {
    let (mut text, mut alt, mut found) = (String::new(), String::new(), Vec::new());
    let mut known = HashSet::new();
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
                    "blip" | "chart" => {
                        if let Some(target) = drawn.shown(&element)
                            && known.insert((target, alt.is_empty()))
                        {
                            found.push((target, one_line(&alt, NEARBY_CHARACTERS)));
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
        let (name, nearby) = (name.to_owned(), nearby.clone());
        gallery.add(Shown { name, pages: vec![number], alt, nearby, ..Shown::default() });
    }
    Ok(())
}
