//! Which styles of paragraphs are those of titles, and which styles of text stand above the line.

use crate::xml::Element;
use std::collections::{HashMap, HashSet};

/// A file with more styles than this was made by no editor.
const MOST: usize = 100_000;
/// How many styles stand above each other.
const DEPTH: usize = 32;

/// Styles by their names, each with the style that it derives from.
#[derive(Debug, Default)]
pub(super) struct Styles {
    parents: HashMap<String, String>,
    raised: HashSet<String>,
    /// The style whose properties come next.
    open: String,
}

impl Styles {
    /// Takes in a style, or the properties of the text of the last one.
    pub(super) fn add(&mut self, element: &Element) {
        if self.parents.len() >= MOST || self.raised.len() >= MOST {
            return;
        }
        match element.name.as_str() {
            "style" => {
                let name = element.attribute("name").unwrap_or_default();
                name.clone_into(&mut self.open);
                // The text has styles of its own, which may be named as those of headers and footers are.
                if element.attribute("family") == Some("text") {
                    self.raised.remove(name);
                }
                if let Some(parent) = element.attribute("parent-style-name") {
                    self.parents.insert(name.to_owned(), parent.to_owned());
                }
            }
            "text-properties" if element.attribute("text-position").is_some_and(is_above) => {
                self.raised.insert(self.open.clone());
            }
            _ => {}
        }
    }

    /// Whether a style, or the one that it derives from, stands above the line.
    pub(super) fn is_raised(&self, name: &str) -> bool {
        self.raised.contains(name) || self.parents.get(name).is_some_and(|parent| self.raised.contains(parent))
    }

    /// Whether a style is that of a document's title, or derives from it.
    pub(super) fn is_title(&self, name: &str) -> bool {
        let mut name = name;
        for _ in 0..DEPTH {
            if name == "Title" {
                return true;
            }
            match self.parents.get(name) {
                Some(parent) => name = parent,
                None => return false,
            }
        }
        false
    }
}

/// Whether a position is above the line: `super`, or a share of the size.
pub(crate) fn is_above(position: &str) -> bool {
    let height = position.split_whitespace().next().unwrap_or_default();
    height == "super"
        || height.strip_suffix('%').and_then(|share| share.parse::<f64>().ok()).is_some_and(|share| share > 0.0)
}
