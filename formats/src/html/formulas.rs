//! Writes the formulas of a page as text. The letters of their elements alone would say other numbers.

use crate::math::MathMl;
use dom_query::{NodeId, NodeRef};
use dom_smoothie::Readability;
use std::collections::HashSet;

#[cfg(test)]
thread_local! {
    /// How many elements and texts of formulas were walked through.
    pub(super) static WALKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn write(page: &Readability) {
    // A formula within another is written with it. By itself, each would be walked through as often as formulas are around it.
    let mut taken = HashSet::new();
    let root = page.doc.tree.root();
    let is_formula = |node: &NodeRef<'_>| node.qual_name_ref().is_some_and(|name| local(&name.local) == "math");
    let formulas: Vec<NodeRef<'_>> = root.descendants_it().filter(is_formula).collect();
    for math in &formulas {
        if taken.contains(&math.id) {
            continue;
        }
        let mut text = written(math, &mut taken);
        if text.is_empty() {
            text = math.attr("alttext").map(|text| text.to_string()).unwrap_or_default();
        }
        // A number beside a formula is no part of the formula's own.
        let numbers = [text.starts_with(char::is_numeric), text.ends_with(char::is_numeric)];
        if numbers[0]
            && math.prev_sibling().is_some_and(|node| node.is_text() && node.text().ends_with(char::is_numeric))
        {
            text.insert(0, ' ');
        }
        if numbers[1]
            && math.next_sibling().is_some_and(|node| node.is_text() && node.text().starts_with(char::is_numeric))
        {
            text.push(' ');
        }
        if !text.is_empty() {
            math.replace_with(&page.doc.tree.new_text(text.as_str()));
        }
    }
}

/// A name without its prefix, with which pages that are written as XML tell formulas from what is around them.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Walks through the elements of a formula, which may be nested deeper than calls may be, and notes the formulas among them.
fn written(math: &NodeRef<'_>, taken: &mut HashSet<NodeId>) -> String {
    let mut formula = MathMl::default();
    let mut node = *math;
    loop {
        #[cfg(test)]
        WALKED.set(WALKED.get() + 1);
        match node.node_name() {
            Some(name) => {
                if local(&name) == "math" {
                    taken.insert(node.id);
                }
                formula.start(local(&name), |attribute| node.attr(attribute).map(|value| value.to_string()));
                if let Some(child) = node.first_child() {
                    node = child;
                    continue;
                }
                formula.end();
            }
            None if node.is_text() => formula.text(&node.text()),
            None => {}
        }
        while node.id != math.id {
            if let Some(next) = node.next_sibling() {
                node = next;
                break;
            }
            let Some(parent) = node.parent() else { return formula.finish() };
            node = parent;
            formula.end();
        }
        if node.id == math.id {
            return formula.finish();
        }
    }
}
