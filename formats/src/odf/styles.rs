//! Which styles of paragraphs are those of titles.

use crate::xml::Element;
use std::collections::HashMap;

/// A file with more styles than this was made by no editor.
const MOST: usize = 100_000;
/// How many styles stand above each other.
const DEPTH: usize = 32;

/// Styles by their names, each with the style that it derives from.
#[derive(Debug, Default)]
pub(super) struct Styles {
    parents: HashMap<String, String>,
}

impl Styles {
    pub(super) fn add(&mut self, element: &Element) {
        if element.name != "style" || self.parents.len() >= MOST {
            return;
        }
        if let (Some(name), Some(parent)) = (element.attribute("name"), element.attribute("parent-style-name")) {
            self.parents.insert(name.to_owned(), parent.to_owned());
        }
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
