//! Comments, legacy and threaded: `cm` elements whose author is a number or an id.

use crate::{
    FormatError,
    facts::{self, FactList},
    xml::{Node, XmlReader},
};
use std::{collections::HashMap, io::Read};

/// No presentation has this many commenters.
const MAX_AUTHORS: usize = 10_000;

/// Names of authors, by number or id.
#[derive(Debug, Default)]
pub(super) struct Authors(HashMap<String, String>);

impl Authors {
    pub(super) fn read<R: Read>(&mut self, mut xml: XmlReader<R>) -> Result<(), FormatError> {
        while let Some(node) = xml.next()? {
            if let Node::Start(element) = node
                && matches!(&*element.name, "cmAuthor" | "author")
                && let (Some(id), Some(name)) = (element.attribute("id"), element.attribute("name"))
                && self.0.len() < MAX_AUTHORS
            {
                self.0.insert(id.to_owned(), name.to_owned());
            }
        }
        Ok(())
    }
}

struct Comment {
    author: Option<String>,
    date: Option<String>,
    text: String,
    is_reply: bool,
    /// Its index in the list. Its replies end before it does.
    index: usize,
    depth: u32,
}

/// Reads a part with the comments on a slide.
pub(super) fn read<R: Read>(
    mut xml: XmlReader<R>,
    authors: &Authors,
    slide: u32,
    list: &mut FactList,
) -> Result<(), FormatError> {
    let mut depth = 0u32;
    // A thread's replies are inside its first comment.
    let mut open: Vec<Comment> = Vec::new();
    let mut in_text = false;
    while let Some(node) = xml.next()? {
        match node {
            Node::Start(element) => {
                depth += 1;
                in_text = false;
                match element.name.as_str() {
                    name @ ("cm" | "reply") => {
                        let own = |name: &str| element.attribute(name).map(str::to_owned);
                        open.push(Comment {
                            author: element.attribute("authorId").and_then(|id| authors.0.get(id)).cloned(),
                            date: own("dt").or_else(|| own("created")),
                            text: String::new(),
                            is_reply: name == "reply",
                            index: list.len(),
                            depth,
                        });
                    }
                    // Legacy text is in `text`, threaded text in the runs of a body.
                    "t" | "text" => in_text = true,
                    "p" | "br" => {
                        if let Some(comment) = open.last_mut() {
                            facts::append(&mut comment.text, "\n");
                        }
                    }
                    "extLst" => {
                        xml.skip()?;
                        depth -= 1;
                    }
                    _ => {}
                }
            }
            Node::Text(text) if in_text => {
                if let Some(comment) = open.last_mut() {
                    facts::append(&mut comment.text, &crate::charset::clean(&text));
                }
            }
            Node::Text(_) => {}
            Node::End => {
                in_text = false;
                if let Some(comment) = open.pop_if(|comment| comment.depth == depth)
                    && !comment.text.trim().is_empty()
                {
                    let fields = [
                        ("slide", Some(slide.into())),
                        ("author", comment.author.as_deref().map(facts::text)),
                        ("date", comment.date.as_deref().map(facts::text)),
                        ("text", Some(facts::text(&comment.text))),
                        ("reply", comment.is_reply.then(|| true.into())),
                    ];
                    list.insert(comment.index, fields);
                }
                depth -= 1;
            }
        }
    }
    Ok(())
}
