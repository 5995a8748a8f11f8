//! The pictures and charts of the main part, with the paragraphs around them.

use crate::{
    Format, FormatError, Limits,
    images::{Drawn, Flow, Gallery, Giver, Reference, one_line},
    package::Package,
    xml::{Element, Node, XmlReader},
};
use std::io::{Read, Seek};

/// A longer paragraph is cut, because only its beginning is shown beside a picture.
const MOST_BYTES: usize = 4096;
const ALT_CHARACTERS: usize = 500;
/// The pictures of one paragraph that are held together; those behind them count as of another.
const MOST_PICTURES: usize = 256;

pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    let mut package = Package::open(source, Format::Docx, limits)?;
    let main = package.main_part()?;
    let mut drawn = Drawn::default();
    if !drawn.begin(&package.relationships(&main)?) {
        return Ok(());
    }
    let Some(xml) = package.xml(&main)? else { return Ok(()) };
    let gallery = gallery(xml, &drawn)?;
    drawn.give(gallery, &mut package, Format::Docx, giver)
}

/// A paragraph that is open.
#[derive(Default)]
struct Open {
    text: String,
    is_caption: bool,
    pictures: Vec<Reference>,
}

fn gallery<R: Read>(mut xml: XmlReader<R>, drawn: &Drawn) -> Result<Gallery, FormatError> {
    let mut flow = Flow::default();
    // Paragraphs nest, because a box of text stands within one.
    let mut paragraphs: Vec<Open> = Vec::new();
    // Whether each open element is a paragraph, and whether it is a text.
    let mut elements: Vec<(bool, bool)> = Vec::new();
    let mut alt = String::new();
    while let Some(node) = xml.next()? {
        match node {
            Node::Start(element) => {
                match element.name.as_str() {
                    // The other form of what was read, and what was deleted.
                    "Fallback" | "del" | "moveFrom" => {
                        xml.skip()?;
                        continue;
                    }
                    "p" => paragraphs.push(Open::default()),
                    "pStyle" => {
                        if let Some(open) = paragraphs.last_mut() {
                            open.is_caption = element.value().is_some_and(names_captions);
                        }
                    }
                    "docPr" => alt = told(&element),
                    "blip" | "chart" => refer(&mut paragraphs, drawn.shown(&element), &alt),
                    "imagedata" => {
                        let title = one_line(element.attribute("title").unwrap_or_default(), ALT_CHARACTERS);
                        refer(&mut paragraphs, drawn.part(element.attribute("id")), &title);
                    }
                    _ => {}
                }
                if let Some(full) = paragraphs.last_mut().filter(|open| open.pictures.len() == MOST_PICTURES) {
                    let pictures = std::mem::take(&mut full.pictures);
                    flow.paragraph(&full.text, full.is_caption, None, pictures);
                }
                elements.push((element.name == "p", element.name == "t"));
            }
            Node::Text(text) => {
                if let (Some((_, true)), Some(open)) = (elements.last(), paragraphs.last_mut())
                    && open.text.len() < MOST_BYTES
                {
                    open.text.push_str(&text);
                }
            }
            Node::End => {
                if let Some((true, _)) = elements.pop()
                    && let Some(Open { text, is_caption, pictures }) = paragraphs.pop()
                {
                    flow.paragraph(&text, is_caption, None, pictures);
                }
            }
        }
    }
    Ok(flow.finish())
}

/// What the author says that a picture shows.
fn told(element: &Element) -> String {
    let told = element.attribute("descr").filter(|text| !text.trim().is_empty()).or(element.attribute("title"));
    one_line(told.unwrap_or_default(), ALT_CHARACTERS)
}

fn refer(paragraphs: &mut [Open], part: Option<&str>, alt: &str) {
    if let (Some(open), Some(part)) = (paragraphs.last_mut(), part) {
        open.pictures.push(Reference { name: part.to_owned(), alt: alt.to_owned() });
    }
}

/// Whether the name of a style is that of captions, in the languages of which Word translates it.
fn names_captions(style: &str) -> bool {
    const NAMES: [&str; 6] = ["caption", "beschriftung", "lgende", "legende", "leyenda", "didascalia"];
    let style = style.to_lowercase();
    NAMES.iter().any(|name| style.contains(name))
}
