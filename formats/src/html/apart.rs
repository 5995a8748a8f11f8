//! Keeps apart the words and lines of a page that the writer of Markdown would run together: in links, headings, code and raised digits.

use crate::markdown::is_raised_number;
use dom_query::NodeRef;
use dom_smoothie::Readability;

/// Elements that stand on lines of their own. A link of Markdown stands within a line.
const BLOCKS: [&str; 16] = [
    "article",
    "blockquote",
    "div",
    "dl",
    "figure",
    "footer",
    "form",
    "header",
    "li",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tr",
    "ul",
];
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

fn is_block(node: &NodeRef<'_>) -> bool {
    BLOCKS.iter().chain(&HEADINGS).any(|name| node.has_name(name))
}

/// Gives a link that has whole blocks in it to the first of them that can have it, which is a heading if there is one.
fn open(page: &Readability, link: &NodeRef<'_>) {
    let tree = &page.doc.tree;
    let blocks: Vec<NodeRef<'_>> = link.descendants_it().filter(is_block).collect();
    if blocks.is_empty() {
        let breaks: Vec<_> = link.descendants_it().filter(|node| node.has_name("br")).collect();
        breaks.iter().for_each(|line| line.replace_with(&tree.new_text(" ")));
        return;
    }
    let heading = blocks.iter().position(|block| HEADINGS.iter().any(|name| block.has_name(name)));
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
    let first = heading.unwrap_or_default();
    let lowest = (first..blocks.len()).find(|at| !holds_next(*at)).map(|at| blocks[at]);
    if let (Some(block), Some(address)) = (lowest, link.attr("href")) {
        let inner = tree.new_element("a");
        inner.set_attr("href", &address);
        block.children().iter().for_each(|child| inner.append_child(child));
        block.append_child(&inner);
    }
    link.rename("div");
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
