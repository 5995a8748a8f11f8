//! The pictures of web pages, with the text around them.

use super::{DEEPEST, Source, within_reason};
use crate::{
    FormatError, Limits,
    images::{Flow, Giver, Reference, data_uri},
    text,
};
use dom_smoothie::Readability;
use std::io::{Read, Seek};

/// A longer paragraph is cut, because only its beginning is shown beside a picture.
const MOST_BYTES: usize = 4096;
/// What is no content, and what is nothing but itself.
const SKIPPED: [&str; 8] = ["head", "script", "style", "noscript", "template", "iframe", "nav", "object"];
/// What ends a paragraph where it begins and where it ends.
const BLOCKS: [&str; 31] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "caption",
    "dd",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "td",
    "ul",
];

/// The pictures that are written into the addresses of a file. Others are on other machines, and nothing is fetched.
pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    let bytes = text::read_all(source, limits)?;
    let page = Source::decode(&bytes, None);
    drop(bytes);
    let mut flow = Flow::default();
    let (mut pictures, mut left) = (Vec::new(), limits.image_bytes);
    page.pictures(None, &mut flow, &mut |address: &str| {
        // One that is too large is kept as far as that shows.
        let bytes = data_uri(address, left.saturating_add(1))?;
        left = left.checked_sub(bytes.len() as u64).unwrap_or(left);
        pictures.push(bytes);
        Some(format!("image {}", pictures.len()))
    })?;
    giver.give_all(flow.finish(), |name, _| {
        let number = name.rsplit(' ').next().and_then(|number| number.parse::<usize>().ok());
        let index = number.and_then(|number| number.checked_sub(1)).filter(|index| *index < pictures.len());
        Ok(index.map(|index| std::mem::take(&mut pictures[index])))
    })
}

impl Source {
    /// Whether any address has a picture written into it.
    pub(super) fn has_pictures(&self) -> bool {
        memchr::memmem::find_iter(self.html.as_bytes(), b"data:image/").next().is_some()
    }

    /// Hands the paragraphs of a page to `flow`. `name` names the picture of an address, or says that it is none of the file's.
    pub(crate) fn pictures(
        &self,
        number: Option<u32>,
        flow: &mut Flow,
        name: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<(), FormatError> {
        within_reason(&self.html, DEEPEST)?;
        let Ok(page) = Readability::new(self.html.as_str(), None, None) else { return Ok(()) };
        let mut open = Open { number, text: String::new(), is_caption: false, pictures: Vec::new() };
        let mut node = page.doc.root();
        loop {
            let element = node.node_name();
            let element = element.as_deref().unwrap_or_default();
            if BLOCKS.contains(&element) {
                open.end(flow);
                open.is_caption = element == "figcaption";
            }
            match element {
                "img" | "image" => {
                    let address = ["src", "href", "xlink:href"].into_iter().find_map(|key| node.attr(key));
                    if let Some(name) = address.and_then(|address| name(&address)) {
                        let alt = node.attr("alt").or_else(|| node.attr("title"));
                        let alt = alt.map(|alt| alt.to_string()).unwrap_or_default();
                        open.pictures.push(Reference { name, alt });
                    }
                }
                "" if node.is_text() && open.text.len() < MOST_BYTES => open.text.push_str(&node.text()),
                _ => {}
            }
            let below = if SKIPPED.contains(&element) { None } else { node.first_child() };
            if let Some(child) = below {
                node = child;
                continue;
            }
            loop {
                if BLOCKS.contains(&node.node_name().as_deref().unwrap_or_default()) {
                    open.end(flow);
                }
                match (node.next_sibling(), node.parent()) {
                    (Some(next), _) => {
                        node = next;
                        break;
                    }
                    (None, Some(above)) => node = above,
                    (None, None) => {
                        open.end(flow);
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// A paragraph that is open.
struct Open {
    number: Option<u32>,
    text: String,
    is_caption: bool,
    pictures: Vec<Reference>,
}

impl Open {
    fn end(&mut self, flow: &mut Flow) {
        flow.paragraph(&self.text, self.is_caption, self.number, std::mem::take(&mut self.pictures));
        self.text.clear();
        self.is_caption = false;
    }
}
