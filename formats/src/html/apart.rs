//! Keeps apart the words and lines of a page that the writer of Markdown would run together: in links, headings, code and raised digits.

use crate::markdown::is_raised_number;
use dom_query::NodeRef;
use dom_smoothie::Readability;

/// Elements that stand on lines of their own. A link of Markdown stands within a line.
const BLOCKS: [&str; 20] = [
    "address",
    "article",
    "blockquote",
    "caption",
    "center",
    "dd",
    "details",
    "div",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "header",
    "li",
    "p",
    "section",
    "summary",
    "td",
    "th",
];
/// Such elements that hold others of them, and no words.
const HOLDERS: [&str; 6] = ["dl", "ol", "pre", "table", "tr", "ul"];
const HEADINGS: [&str; 6] = ["h1", "h2", "h3", "h4", "h5", "h6"];
const BREAKS_OF_HEADINGS: &str = "h1 br, h2 br, h3 br, h4 br, h5 br, h6 br";
/// Lines of code, where no text between them ends them.
const LINES_OF_CODE: &str = "pre div, pre p, pre li, pre tr";
/// How characters are read that stand above or below others.
const RUBY: &str = "rt, rp";

pub(super) fn keep(page: &Readability) {
    page.doc.select(RUBY).remove();
    // The target of a link is no link, and the writer would take the blanks and marks before it away.
    page.doc.select("a:not([href])").rename("span");
    page.doc.select(BREAKS_OF_HEADINGS).nodes().iter().for_each(|line| line.replace_with(&page.doc.tree.new_text(" ")));
    page.doc.select("a[href]").nodes().iter().for_each(|link| open(page, link));
    code(page);
    digits(page);
}

fn is_heading(node: &NodeRef<'_>) -> bool {
    HEADINGS.iter().any(|name| node.has_name(name))
}

fn is_block(node: &NodeRef<'_>) -> bool {
    BLOCKS.iter().chain(&HOLDERS).any(|name| node.has_name(name)) || is_heading(node)
}

/// Gives a link that has whole blocks in it to the first of them that shows something, which is a heading if one does.
fn open(page: &Readability, link: &NodeRef<'_>) {
    let tree = &page.doc.tree;
    let blocks: Vec<NodeRef<'_>> = link.descendants_it().filter(is_block).collect();
    let shows = |block: &NodeRef<'_>| {
        block.descendants_it().any(|node| node.has_name("img") || (node.is_text() && !node.text().trim().is_empty()))
    };
    let holds_next = |at: usize| {
        let mut above = blocks.get(at + 1).and_then(NodeRef::parent);
        while let Some(node) = above.filter(|node| node.id != link.id) {
            if node.id == blocks[at].id {
                return true;
            }
            above = node.parent();
        }
        false
    };
    let can_have = |at: &usize| {
        let block = &blocks[*at];
        !HOLDERS.iter().any(|name| block.has_name(name)) && !holds_next(*at) && shows(block)
    };
    let heading = (0..blocks.len()).filter(|at| is_heading(&blocks[*at])).find(can_have);
    let target = heading.or_else(|| (0..blocks.len()).find(can_have)).map(|at| blocks[at]);
    match (target.filter(|_| !is_within_heading(link)), link.attr("href")) {
        (Some(block), Some(address)) => {
            let inner = tree.new_element("a");
            inner.set_attr("href", &address);
            block.children().iter().for_each(|child| inner.append_child(child));
            block.append_child(&inner);
            link.rename("div");
        }
        // It stays within a line, and so do its parts.
        _ => {
            for (at, block) in blocks.iter().enumerate() {
                if at > 0 || block.prev_sibling().is_some() {
                    block.insert_before(&tree.new_text(" "));
                }
            }
            let breaks: Vec<_> = link.descendants_it().filter(|node| node.has_name("br")).collect();
            breaks.iter().for_each(|line| line.replace_with(&tree.new_text(" ")));
        }
    }
}

fn is_within_heading(link: &NodeRef<'_>) -> bool {
    let mut above = link.parent();
    while let Some(node) = above.filter(|node| !BLOCKS.iter().any(|name| node.has_name(name))) {
        if is_heading(&node) {
            return true;
        }
        above = node.parent();
    }
    false
}

/// Ends the lines of code that only elements end.
fn code(page: &Readability) {
    let tree = &page.doc.tree;
    page.doc.select("pre br").nodes().iter().for_each(|line| line.replace_with(&tree.new_text("\n")));
    // The innermost come first, so that what ends with a line gets no second end.
    for line in page.doc.select(LINES_OF_CODE).nodes().iter().rev() {
        let mut last = *line;
        while let Some(child) = last.last_child() {
            last = child;
        }
        let is_ended = last.is_text() && last.text().ends_with('\n');
        if !is_ended {
            line.append_child(&tree.new_text("\n"));
        }
    }
}

/// Marks a raised number behind a digit, or both would read as one number.
fn digits(page: &Readability) {
    for raised in page.doc.select("sup").nodes() {
        if !is_raised_number(&raised.text()) {
            continue;
        }
        let mut before = raised.prev_sibling();
        while let Some(inner) = before.and_then(|node| node.last_child()) {
            before = Some(inner);
        }
        if before.is_some_and(|node| node.is_text() && node.text().ends_with(|last: char| last.is_ascii_digit())) {
            raised.insert_before(&page.doc.tree.new_text("^"));
        }
    }
}
