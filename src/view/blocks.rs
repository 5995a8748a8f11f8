//! Blocks, in the order of reading: a document's own, those of what is under it, and a list of names.
use super::{Rules, html};
use crate::usetype::Usetype;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use std::{collections::HashMap, iter};
use svc_client::wire::{BlockKind, DocumentResponse, Renderer, ViewBlock, ViewRow};

/// The most bytes of a text that a block has.
const LONGEST: usize = 256 << 10;
/// In how many bytes of a record's text its fields are looked for.
const NAMED: usize = 16 << 10;
/// How many colons behind the beginning of a name may be the one that ends it.
const COLONS: usize = 4;
/// The most columns of a table.
const COLUMNS: usize = 100;
/// How many bytes of HTML the texts of a page may have for each byte of theirs, and how many more.
const GROWTH: usize = 10;
const ROOM: usize = 1 << 20;

/// A document with the place that it has in its file.
pub struct Node {
    pub document: DocumentResponse,
    pub anchor: Value,
    /// Ingestion put it between a container and its children, and no text begins with its title.
    pub is_segment: bool,
}

impl Node {
    /// The first and the last of the pages, slides or characters that it takes.
    pub fn span(&self, name: &str) -> Option<[u64; 2]> {
        let of = |place: usize| self.anchor[name][place].as_u64();
        Some([of(0)?, of(1)?])
    }

    fn first(&self, name: &str) -> Option<u32> {
        u32::try_from(self.span(name)?[0]).ok()
    }

    fn cells(&self) -> Option<String> {
        self.anchor["cells"].as_str().map(str::to_owned)
    }

    /// What the row of a sheet holds.
    fn record(&self) -> Option<&Map<String, Value>> {
        self.document.structured_content.get("record").and_then(Value::as_object)
    }

    /// What a record holds under a name.
    fn value(&self, name: &str) -> Value {
        self.record().and_then(|record| record.get(name)).cloned().unwrap_or_default()
    }

    /// The names of what a record holds, in the order in which the beginning of its text names it. What that does not name comes last.
    fn names(&self) -> Vec<&str> {
        let Some(record) = self.record() else { return Vec::new() };
        let text = &self.document.content;
        let text = &text[..text.floor_char_boundary(NAMED)];
        let colons: Vec<usize> = text.match_indices(": ").map(|(at, _)| at).collect();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for begin in iter::once(0).chain(text.match_indices("; ").map(|(at, _)| at + 2)) {
            let behind = colons.partition_point(|colon| *colon < begin);
            // A name may hold colons itself.
            for colon in colons.iter().skip(behind).take(COLONS) {
                if let Some((name, _)) = record.get_key_value(&text[begin..*colon]) {
                    places.entry(name).or_insert(begin);
                }
            }
        }
        let mut names: Vec<&str> = record.keys().map(String::as_str).collect();
        names.sort_by_key(|name| places.get(name).copied().unwrap_or(text.len()));
        names
    }

    fn said<'a>(&'a self, name: &str) -> Option<&'a str> {
        self.document.structured_content.get(name).and_then(Value::as_str)
    }
}

/// Makes blocks by rules.
pub struct Maker<'a> {
    pub rules: &'a Rules,
    /// Whether the texts of the file are shown as they are written.
    pub is_plain: bool,
}

impl Maker<'_> {
    fn renderer(&self, usetype: &str) -> Renderer {
        self.rules.of(usetype).map_or(Renderer::Plain, |rule| rule.renderer)
    }

    fn block(kind: BlockKind, node: &Node) -> ViewBlock {
        ViewBlock {
            kind,
            document_id: node.document.id,
            continued_by: Vec::new(),
            level: None,
            title: None,
            text: None,
            html: None,
            cut: false,
            speaker: None,
            role: None,
            time: None,
            columns: Vec::new(),
            rows: Vec::new(),
            page: node.first("pages"),
            slide: node.first("slides"),
            usetype: None,
            href: None,
        }
    }

    /// The blocks of a document's own text.
    pub fn own(&self, node: &Node) -> Vec<ViewBlock> {
        let renderer = self.renderer(&node.document.usetype);
        match renderer {
            Renderer::Image => {
                let href = Some(format!("/documents/{}/bytes", node.document.id));
                let title = Some(node.document.title.clone());
                let picture = ViewBlock { title, href, ..Self::block(BlockKind::Image, node) };
                // The text of a picture of a file is what the file says beside it.
                let said = if node.anchor["image"].is_null() { node.document.content.as_str() } else { "" };
                [picture].into_iter().chain(self.text(node, said, renderer)).collect()
            }
            Renderer::Record if node.record().is_some() => vec![self.record(node)],
            _ => self
                .text(node, without_title(&node.document.content, &node.document.title), renderer)
                .into_iter()
                .collect(),
        }
    }

    fn text(&self, node: &Node, text: &str, renderer: Renderer) -> Option<ViewBlock> {
        if text.trim().is_empty() {
            return None;
        }
        let kind = match renderer {
            Renderer::Plain => BlockKind::Plain,
            Renderer::Code => BlockKind::Code,
            Renderer::Source if self.is_plain => BlockKind::Plain,
            _ => BlockKind::Markdown,
        };
        Some(ViewBlock { text: Some(text.to_owned()), ..Self::block(kind, node) })
    }

    fn record(&self, node: &Node) -> ViewBlock {
        let columns: Vec<String> = node.names().into_iter().map(str::to_owned).collect();
        let values = columns.iter().map(|name| node.value(name)).collect();
        let row = ViewRow { document_id: node.document.id, cells: node.cells(), values };
        ViewBlock { columns, rows: vec![row], ..Self::block(BlockKind::Record, node) }
    }

    /// Documents by their names.
    pub fn names(&self, nodes: &[Node]) -> Vec<ViewBlock> {
        nodes.iter().map(name).collect()
    }

    /// Records as one table.
    pub fn table(&self, nodes: &[Node]) -> Vec<ViewBlock> {
        let mut blocks = Vec::new();
        nodes.iter().for_each(|node| push_row(&mut blocks, node));
        blocks
    }

    /// All of these documents with their texts, each before what is under it; `depth` is that of the document above them, and `table` is the
    /// table on an earlier page that the first of them is under.
    pub fn flow(&self, depth: usize, nodes: &[Node], mut table: Option<i64>) -> Vec<ViewBlock> {
        let mut blocks: Vec<ViewBlock> = Vec::new();
        // The heading of the document whose texts come, until the first of them. A page may begin behind the heading.
        let before = |node: &Node| Some((node.document.parent_id?, node.document.title.clone()));
        let mut heading: Option<(i64, String)> = nodes.first().and_then(before);
        let mut last: Option<&Node> = None;
        for node in nodes {
            let document = &node.document;
            if document.usetype == Usetype::Raptor.as_str() {
                blocks.push(name(node));
                continue;
            }
            if node.record().is_some() && !document.content.is_empty() {
                push_row(&mut blocks, node);
                (heading, last) = (None, None);
                continue;
            }
            let usetype = Usetype::named(&document.usetype);
            // The chunks of a table of a file, and the segments of these, repeat it.
            if matches!(usetype, Some(Usetype::Chunk | Usetype::Section))
                && table.is_some_and(|table| document.path.contains(&table))
            {
                if let Some(block) = blocks.last_mut() {
                    block.continued_by.push(document.id);
                }
                continue;
            }
            if usetype == Some(Usetype::Table) && document.structured_content.contains_key("table") {
                table = Some(document.id);
                blocks.extend(self.text(node, &document.content, self.renderer(&document.usetype)));
                (heading, last) = (None, None);
                continue;
            }
            if self.renderer(&document.usetype) == Renderer::Image {
                blocks.extend(self.own(node));
                (heading, last) = (None, None);
                continue;
            }
            if !usetype.is_some_and(Usetype::is_leaf) {
                blocks.push(self.heading(node, depth));
                heading = match heading.take() {
                    Some((above, title)) if node.is_segment && document.parent_id == Some(above) => {
                        Some((document.id, title))
                    }
                    _ => Some((document.id, document.title.clone())),
                };
                last = None;
            }
            let mut text = document.content.as_str();
            if let Some((id, title)) = heading.take()
                && (document.parent_id == Some(id) || document.id == id)
            {
                let rest = without_title(text, &title);
                match blocks.last_mut() {
                    _ if !rest.is_empty() => text = rest,
                    Some(_) if document.id == id => (text, heading) = (rest, Some((id, title))),
                    Some(block) => {
                        text = rest;
                        block.continued_by.push(document.id);
                    }
                    None => {}
                }
            }
            if let (Some(before), Some(block)) = (last, blocks.last_mut())
                && goes_on(before, node)
                && let Some(joined) = block.text.as_mut().filter(|joined| joined.len() + text.len() < LONGEST)
            {
                if !meets(before, node) {
                    joined.push('\n');
                }
                joined.push_str(text);
                block.continued_by.push(document.id);
                last = Some(node);
                continue;
            }
            last = None;
            if let Some(block) = self.text(node, text, self.renderer(&document.usetype)) {
                blocks.push(block);
                last = Some(node);
            }
        }
        blocks
    }

    fn heading(&self, node: &Node, depth: usize) -> ViewBlock {
        let document = &node.document;
        let level = u8::try_from((document.path.len().saturating_sub(depth) + 1).clamp(2, 6)).ok();
        if let Some(speaker) = node.said("speaker") {
            let (role, time) = (node.said("role").map(str::to_owned), document.event_time);
            return ViewBlock { speaker: Some(speaker.to_owned()), role, time, ..Self::block(BlockKind::Turn, node) };
        }
        ViewBlock { title: Some(document.title.clone()), level, ..Self::block(BlockKind::Heading, node) }
    }
}

/// A document by its name.
fn name(node: &Node) -> ViewBlock {
    let (title, usetype) = (Some(node.document.title.clone()), Some(node.document.usetype.clone()));
    ViewBlock { title, usetype, ..Maker::block(BlockKind::Document, node) }
}

/// Adds a record to the table before it, or begins one.
fn push_row(blocks: &mut Vec<ViewBlock>, node: &Node) {
    if blocks.last().is_none_or(|block| block.kind != BlockKind::Table) {
        blocks.push(Maker::block(BlockKind::Table, node));
    }
    let Some(table) = blocks.last_mut() else { return };
    // A record lacks the columns that are empty in its row, so a table learns them as they come.
    let room = COLUMNS.saturating_sub(table.columns.len());
    if room > 0 {
        let is_new = |name: &&str| table.columns.iter().all(|known| known != name);
        let new: Vec<String> = node.names().into_iter().filter(is_new).take(room).map(str::to_owned).collect();
        table.columns.extend(new);
        let width = table.columns.len();
        table.rows.iter_mut().for_each(|row| row.values.resize(width, Value::Null));
    }
    let values = table.columns.iter().map(|name| node.value(name)).collect();
    table.rows.push(ViewRow { document_id: node.document.id, cells: node.cells(), values });
    let shown = |record: &Map<String, Value>| table.columns.iter().filter(|name| record.contains_key(*name)).count();
    table.cut |= node.record().is_some_and(|record| shown(record) < record.len());
}

/// Whether a text goes on in the next one: no blank line is between them in the file.
fn goes_on(before: &Node, node: &Node) -> bool {
    let ends = |node: &Node| node.span("characters");
    before.document.parent_id == node.document.parent_id
        && matches!((ends(before), ends(node)), (Some([_, end]), Some([start, _])) if start.saturating_sub(end) <= 1)
}

/// Whether a text begins where the one before it ends, in the middle of a line. A text that was trimmed has fewer characters than it takes.
fn meets(before: &Node, node: &Node) -> bool {
    let count = before.document.content.chars().count() as u64;
    let is_whole = |[start, end]: &[u64; 2]| end.checked_sub(*start) == Some(count);
    let ends = before.span("characters").filter(is_whole).map(|[_, end]| end);
    ends.is_some() && ends == node.span("characters").map(|[start, _]| start)
}

/// A text without its first line if that is its title. The heading of a turn says in parentheses when it was said.
fn without_title<'a>(text: &'a str, title: &str) -> &'a str {
    let whole = text.trim_start_matches(['\n', '\r']);
    let (first, rest) = whole.split_once('\n').unwrap_or((whole, ""));
    let more = first.trim_start_matches('#').trim().strip_prefix(title.trim());
    let is_time = |more: &str| {
        let time = more.strip_prefix(" (").and_then(|more| more.strip_suffix(')'));
        first.starts_with('#') && time.is_some_and(|time| time.parse::<DateTime<Utc>>().is_ok())
    };
    match more.is_some_and(|more| more.is_empty() || is_time(more)) {
        true => rest.trim_start_matches(['\n', '\r']),
        false => text,
    }
}

/// Cuts what is too long for a page, and gives each text its HTML. Where the HTML of a page would be much longer than its texts, the last of these
/// are shown as they are written.
pub fn finish(blocks: &mut [ViewBlock]) {
    let texts: usize = blocks.iter().filter_map(|block| block.text.as_ref()).map(|text| text.len().min(LONGEST)).sum();
    let mut room = ROOM.saturating_add(GROWTH.saturating_mul(texts));
    for block in blocks {
        let Some(text) = &mut block.text else { continue };
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            block.cut = true;
        }
        let marked = match block.kind {
            BlockKind::Markdown => Some(html::markdown(text)).filter(|shown| shown.len() <= room),
            _ => None,
        };
        let shown = marked.unwrap_or_else(|| html::plain(text));
        room = room.saturating_sub(shown.len());
        block.html = Some(shown);
    }
}

/// The fields of a rule that a document has, with their values.
pub fn fields(document: &DocumentResponse, show: &[svc_client::wire::ShownField]) -> Vec<svc_client::wire::ViewField> {
    let Ok(Value::Object(values)) = serde_json::to_value(document) else { return Vec::new() };
    let has = |value: &Value| {
        !value.is_null() && value.as_object().is_none_or(|members: &Map<String, Value>| !members.is_empty())
    };
    let field = |name: &'static str| {
        let value = values.get(name).filter(|value| has(value))?.clone();
        Some(svc_client::wire::ViewField { name: name.to_owned(), value })
    };
    show.iter().filter_map(|shown| field(shown.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_says_no_more_than_the_title_is_taken_off_a_text() {
        for (text, title, expected) in [
            ("# Release 4\n\nInstall it so.", "Release 4", "Install it so."),
            ("Release 4\n\nInstall it so.", " Release 4 ", "Install it so."),
            ("## Ann (2024-05-01T10:00:00Z)\n\nHello.", "Ann", "Hello."),
            ("## Ann (2024-05-01T10:00:00.250Z)\n\nHello.", "Ann", "Hello."),
        ] {
            assert_eq!(without_title(text, title), expected, "{text}");
        }
        for (text, title) in [
            ("# Release 4 (withdrawn)\n\nInstall it so.", "Release 4"),
            ("# Release 4 (2024-05-01)\n\nInstall it so.", "Release 4"),
            ("Ann (2024-05-01T10:00:00Z)\n\nHello.", "Ann"),
            ("# Release 40\n\nInstall it so.", "Release 4"),
        ] {
            assert_eq!(without_title(text, title), text);
        }
    }

    #[test]
    fn a_line_that_a_cut_divides_is_one_line_again() {
        let node = |id: i64, content: &str, characters: [u64; 2]| {
            let at = "2026-03-01T10:00:00Z";
            let document = serde_json::json!({
                "id": id, "parent_id": 1, "title": "Herons", "content": content, "structured_content": {}, "path": [1], "usetype": "chunk",
                "position": null, "event_time": null, "created_at": at, "updated_at": at, "content_hash": "", "settled": "settled",
            });
            let document = serde_json::from_value(document).unwrap();
            Node { document, anchor: serde_json::json!({ "characters": characters }), is_segment: false }
        };
        let rules = Rules::new(Vec::new());
        let maker = Maker { rules: &rules, is_plain: true };
        let shown =
            |nodes: &[Node]| maker.flow(1, nodes, None).into_iter().filter_map(|block| block.text).collect::<Vec<_>>();
        let nodes = [node(2, "鹭在等。", [0, 4]), node(3, "鹭飞了。", [4, 8]), node(4, "It is gone.", [9, 20])];
        assert_eq!(shown(&nodes), ["鹭在等。鹭飞了。\nIt is gone."]);
        // A piece that a caller cuts off has the blank lines behind it among its characters.
        let nodes = [node(2, "One.", [0, 6]), node(3, "# Two", [6, 11])];
        assert_eq!(shown(&nodes), ["One.\n# Two"]);
    }

    #[test]
    fn a_page_of_texts_whose_html_is_much_longer_shows_the_rest_of_them_as_they_are_written() {
        let text = format!("{}\n\n[a]: https://example.org/{}\n", "[a] ".repeat(90), "x".repeat(1000));
        let block = serde_json::json!({"kind": "markdown", "document_id": 1, "text": text});
        let mut blocks: Vec<ViewBlock> = vec![serde_json::from_value(block).unwrap(); 200];
        finish(&mut blocks);
        let html: Vec<&str> = blocks.iter().map(|block| block.html.as_deref().unwrap()).collect();
        assert!(html[0].contains("<a href=") && html[199].starts_with("<pre"), "{} and {}", html[0], html[199]);
        let (all, texts) = (html.concat().len(), 200 * text.len());
        assert!(all <= ROOM + (GROWTH + 1) * texts, "{all} bytes of {texts}");
        assert!(blocks.iter().all(|block| !block.cut && block.text.as_ref() == Some(&text)));
    }
}
