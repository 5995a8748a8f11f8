//! The pictures of documents, presentations and spreadsheets, with the paragraphs around them.

use super::{CONTENT, check_encryption};
use crate::{
    Format, FormatError, Limits,
    images::{Flow, Gallery, Giver, Reference, read_part},
    package::{Package, resolve},
    xml::{Node, XmlReader},
};
use std::io::{Read, Seek};

/// A longer paragraph is cut, because only its beginning is shown beside a picture.
const MOST_BYTES: usize = 4096;
/// The pictures of one paragraph.
const MOST_PICTURES: usize = 256;

pub(crate) fn images<R: Read + Seek>(
    format: Format,
    source: R,
    limits: &Limits,
    giver: &mut Giver<'_, '_>,
) -> Result<(), FormatError> {
    let mut package = Package::open(source, format, limits)?;
    check_encryption(format, &mut package)?;
    let gallery = match package.xml(CONTENT)? {
        Some(xml) => gallery(format, xml)?,
        None => return Ok(()),
    };
    giver.give_all(gallery, |name, most| package.part(name)?.map(|part| read_part(part, most, format)).transpose())
}

/// Whether the package has pictures of its own, judging by the names of its parts.
pub(crate) fn has_images<R: Read + Seek>(package: &Package<R>) -> bool {
    package.names().any(|name| name.starts_with("pictures/") && name.len() > "pictures/".len())
}

/// What an open element is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Other,
    Paragraph,
    /// A slide, or the table that is a sheet.
    Page,
    Frame,
    /// What the author says that the picture of a frame shows.
    Told,
}

#[derive(Default)]
struct Open {
    text: String,
    is_caption: bool,
    pictures: Vec<Reference>,
}

#[derive(Default)]
struct Frame {
    names: Vec<String>,
    alt: String,
}

fn gallery<R: Read>(format: Format, mut xml: XmlReader<R>) -> Result<Gallery, FormatError> {
    let page_element = match format {
        Format::Odp => "page",
        Format::Ods => "table",
        _ => "",
    };
    let mut flow = Flow::default();
    let (mut roles, mut page): (Vec<Role>, u32) = (Vec::new(), 0);
    let (mut paragraphs, mut frames): (Vec<Open>, Vec<Frame>) = (Vec::new(), Vec::new());
    while let Some(node) = xml.next()? {
        match node {
            Node::Start(element) => {
                let role = match element.name.as_str() {
                    // What was deleted, and what is said of the text, is not shown.
                    "tracked-changes" | "annotation" | "forms" | "scripts" | "master-styles" | "binary-data" => {
                        xml.skip()?;
                        continue;
                    }
                    name if name == page_element => {
                        page = page.saturating_add(1);
                        Role::Page
                    }
                    "p" | "h" => {
                        let style = element.attribute("style-name").unwrap_or_default().to_lowercase();
                        let is_caption = ["caption", "illustration", "figure", "abbildung"].contains(&style.as_str());
                        paragraphs.push(Open { is_caption, ..Open::default() });
                        Role::Paragraph
                    }
                    "frame" => {
                        frames.push(Frame::default());
                        Role::Frame
                    }
                    "image" => {
                        let target = element.attribute("href").map(|href| resolve("", href));
                        if let (Some(frame), Some(target)) = (frames.last_mut(), target) {
                            frame.names.push(target);
                        }
                        Role::Other
                    }
                    "title" | "desc" => Role::Told,
                    _ => Role::Other,
                };
                roles.push(role);
            }
            Node::Text(text) => {
                if roles.last() == Some(&Role::Told) {
                    if let Some(frame) = frames.last_mut().filter(|frame| frame.alt.len() < MOST_BYTES) {
                        frame.alt.push_str(&text);
                        frame.alt.push(' ');
                    }
                } else if let Some(open) = paragraphs.last_mut().filter(|open| open.text.len() < MOST_BYTES) {
                    open.text.push_str(&text);
                }
            }
            Node::End => match roles.pop() {
                Some(Role::Paragraph) => {
                    let Open { text, is_caption, pictures } = paragraphs.pop().unwrap_or_default();
                    flow.paragraph(&text, is_caption, (page > 0).then_some(page), pictures);
                }
                Some(Role::Frame) => {
                    let Frame { names, alt } = frames.pop().unwrap_or_default();
                    // A frame may hold one picture in several forms, the best of which comes first.
                    let picture = names.into_iter().next().map(|name| Reference { name, alt });
                    match paragraphs.last_mut().filter(|open| open.pictures.len() < MOST_PICTURES) {
                        Some(open) => open.pictures.extend(picture),
                        None => {
                            flow.paragraph("", false, (page > 0).then_some(page), picture.into_iter().collect());
                        }
                    }
                }
                Some(Role::Page) => flow.end_page(),
                _ => {}
            },
        }
    }
    Ok(flow.finish())
}
