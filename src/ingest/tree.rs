//! Plans the nodes under a file from its text: sections in pre-order, each before its chunks and tables.
use crate::{ingest::records, usetype::Usetype};
use serde_json::{Value, json};
use std::ops::Range;
use svc_formats::{Area, Chunk, ChunkOptions, Extraction, PageKind, Section, Table, TokenCounter, chunk, sections};
use svc_ids::DocumentId;

/// A node to be made. Ids are assigned in the order of the list, which is the order of the file.
#[derive(Clone, Debug)]
pub struct Node {
    /// The index of the section above; `None` directly under the file.
    pub parent: Option<usize>,
    pub kind: Kind,
    pub title: String,
    /// For a chunk, how it was cut: from the text, or from the table that it belongs to.
    pub chunk: Option<Chunk>,
    /// The index of the table that it is, or belongs to.
    pub table: Option<usize>,
    /// Byte range of the text.
    pub start: usize,
    pub end: usize,
    pub position: i32,
    pub depth: usize,
    /// The tokens of the chunk, or for a section of everything under it.
    pub tokens: i64,
    /// The number of direct children.
    pub children: i32,
    /// The number of leaves under it, including itself if it is one.
    pub leaves: usize,
}

impl Node {
    /// Whether it is embedded by itself: a chunk, or a table that needs no chunks of its own.
    pub fn is_leaf(&self) -> bool {
        self.kind == Kind::Chunk || (self.kind == Kind::Table && self.children == 0)
    }
}

/// A table of the text, as its node has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableNode {
    /// What of the text is in no chunk, because the table has it.
    ranges: Vec<Range<usize>>,
    pub content: String,
    /// The typed values: `columns` if the first row names them, and `rows`.
    pub structured: Value,
}

impl TableNode {
    /// The node's content and values; `text` is that of the file.
    pub fn new(table: &Table, text: &str) -> TableNode {
        let cell = |value: Option<svc_formats::xlsx::Value>| value.as_ref().map_or(Value::Null, records::json);
        let row = |row: Vec<Option<_>>| row.into_iter().map(cell).collect::<Vec<_>>();
        let rows: Vec<Vec<Value>> = table.values().map(row).collect();
        TableNode {
            ranges: table.ranges.clone(),
            content: table.content(text).into_owned(),
            structured: json!({"table": {"columns": table.columns(), "rows": rows}}),
        }
    }

    fn span(&self) -> Range<usize> {
        let start = self.ranges.first().map_or(0, |range| range.start);
        start..self.ranges.last().map_or(start, |range| range.end)
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Section,
    Chunk,
    Table,
}

impl Kind {
    /// The usetype of the document.
    pub fn usetype(self) -> Usetype {
        match self {
            Kind::Section => Usetype::Section,
            Kind::Chunk => Usetype::Chunk,
            Kind::Table => Usetype::Table,
        }
    }
}

/// Plans the tree under a file: by the file's own headings or pages if `declared`, and otherwise only chunks. Each of the `tables`
/// is a node in its place, and what it holds is in no chunk of the text.
pub fn build(
    extraction: &Extraction,
    tables: &[TableNode],
    file_title: &str,
    declared: bool,
    options: &ChunkOptions,
    tokens: &dyn TokenCounter,
) -> Vec<Node> {
    let text = &extraction.text;
    let sections = if declared { sections(extraction) } else { Vec::new() };
    let own_end = sections.first().map_or(text.len(), |first| first.start);
    let mut builder =
        Builder { text, tables, holes: holes(tables), options, tokens, nodes: Vec::new(), positions: vec![0] };
    builder.stretch(None, file_title, 0, own_end, 0);
    // Where each section's node is in the list.
    let mut placed = Vec::with_capacity(sections.len());
    for section in &sections {
        let parent = section.parent.and_then(|index| placed.get(index).copied());
        let index = builder.section(parent, section);
        placed.push(index);
        let depth = builder.nodes[index].depth + 1;
        builder.stretch(Some(index), &section.title, section.start, section.text_end, depth);
    }
    builder.sum_up()
}

/// A piece of the text that a table has.
struct Hole {
    range: Range<usize>,
    /// The table that begins here.
    begins: Option<usize>,
}

/// What tables have of the text, in its order.
fn holes(tables: &[TableNode]) -> Vec<Hole> {
    let of_table = |(index, table): (usize, &TableNode)| -> Vec<Hole> {
        let begins = std::iter::once(Some(index)).chain(std::iter::repeat(None));
        table.ranges.iter().zip(begins).map(|(range, begins)| Hole { range: range.clone(), begins }).collect()
    };
    let mut holes: Vec<Hole> = tables.iter().enumerate().flat_map(of_table).collect();
    holes.sort_by_key(|hole| hole.range.start);
    holes
}

struct Builder<'a> {
    text: &'a str,
    tables: &'a [TableNode],
    holes: Vec<Hole>,
    options: &'a ChunkOptions,
    tokens: &'a dyn TokenCounter,
    nodes: Vec<Node>,
    /// The next position under the file (first), and under each node.
    positions: Vec<i32>,
}

impl Builder<'_> {
    fn push(&mut self, mut node: Node) -> usize {
        let slot = &mut self.positions[node.parent.map_or(0, |parent| parent + 1)];
        node.position = *slot;
        *slot += 1;
        self.positions.push(0);
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn section(&mut self, parent: Option<usize>, section: &Section) -> usize {
        let depth = parent.map_or(0, |parent| self.nodes[parent].depth + 1);
        let title = if section.title.trim().is_empty() { "Untitled section".to_owned() } else { title(&section.title) };
        self.push(Node {
            parent,
            kind: Kind::Section,
            title,
            chunk: None,
            table: None,
            start: section.start,
            end: section.end,
            position: 0,
            depth,
            tokens: 0,
            children: 0,
            leaves: 0,
        })
    }

    /// Adds a stretch of the text: its tables, and chunks of what is between them.
    fn stretch(&mut self, parent: Option<usize>, title: &str, start: usize, end: usize, depth: usize) {
        let mut at = start;
        let mut next = self.holes.partition_point(|hole| hole.range.end <= start);
        while let Some(Hole { range, begins }) = self.holes.get(next).filter(|hole| hole.range.start < end) {
            let (range, begins) = (range.clone(), begins.filter(|_| range.start >= start));
            self.chunks(parent, title, at, range.start.max(at), depth);
            if let Some(table) = begins {
                self.table(parent, title, table, depth);
            }
            at = range.end.min(end).max(at);
            next += 1;
        }
        self.chunks(parent, title, at, end, depth);
    }

    /// Adds a table: whole, whatever `max_tokens` says, because half a table says little, and in chunks besides if it is over the
    /// hard cap of a chunk.
    fn table(&mut self, parent: Option<usize>, title: &str, index: usize, depth: usize) {
        let tables = self.tables;
        let Some(table) = tables.get(index) else { return };
        let is_whole = table.content.chars().nth(self.options.max_chars).is_none();
        let tokens = if is_whole { self.tokens.count(&table.content) } else { 0 };
        let Range { start, end } = table.span();
        let node = Node {
            parent,
            kind: Kind::Table,
            title: self::title(title),
            chunk: None,
            table: Some(index),
            start,
            end,
            position: 0,
            depth,
            tokens: i64::try_from(tokens).unwrap_or(i64::MAX),
            children: 0,
            leaves: usize::from(is_whole),
        };
        let at = self.push(node.clone());
        if is_whole {
            return;
        }
        for chunk in chunk(&table.content, 0..table.content.len(), self.options, self.tokens) {
            let tokens = i64::try_from(chunk.tokens).unwrap_or(i64::MAX);
            let (kind, depth) = (Kind::Chunk, depth + 1);
            self.push(Node { parent: Some(at), kind, chunk: Some(chunk), depth, tokens, leaves: 1, ..node.clone() });
        }
    }

    fn chunks(&mut self, parent: Option<usize>, title: &str, start: usize, end: usize, depth: usize) {
        for chunk in chunk(self.text, start..end, self.options, self.tokens) {
            let tokens = i64::try_from(chunk.tokens).unwrap_or(i64::MAX);
            self.push(Node {
                parent,
                kind: Kind::Chunk,
                title: self::title(title),
                start: chunk.start,
                end: chunk.end,
                chunk: Some(chunk),
                table: None,
                position: 0,
                depth,
                tokens,
                children: 0,
                leaves: 1,
            });
        }
    }

    /// Children come after their parents, so one pass from the back sums up every subtree.
    fn sum_up(mut self) -> Vec<Node> {
        for index in (0..self.nodes.len()).rev() {
            let (tokens, leaves) = (self.nodes[index].tokens, self.nodes[index].leaves);
            if let Some(parent) = self.nodes[index].parent {
                let parent = &mut self.nodes[parent];
                parent.tokens += tokens;
                parent.leaves += leaves;
                parent.children += 1;
            }
        }
        self.nodes
    }
}

/// A text as a title: trimmed, with at most 255 characters.
pub fn title(title: &str) -> String {
    title.trim().chars().take(255).collect()
}

/// Chunks that are embedded together, under a container of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The index of the container; `None`: the file.
    pub under: Option<usize>,
    /// The first and the last chunk in the order of their paths. No chunk of another batch lies between them.
    pub first: usize,
    pub last: usize,
    /// The same chunks as stretches of the list, which hold no other chunk: the first and the last of each.
    pub runs: Vec<(usize, usize)>,
}

/// The most chunks of one batch.
pub const BATCH: usize = 256;
/// The most tokens of a batch with more than one chunk. Even a model that does only 50 tokens per second finishes it
/// within the time of a task.
pub const BATCH_TOKENS: i64 = 32_768;
/// A subtree with fewer chunks shares a batch with its neighbours.
const SMALL: usize = 32;

/// Cuts the chunks into batches, so that large subtrees are embedded in parallel and small ones share a pass.
pub fn batches(nodes: &[Node], ids: &[DocumentId]) -> Vec<Batch> {
    let mut chunks: Vec<usize> = (0..nodes.len()).filter(|index| nodes[*index].is_leaf()).collect();
    let tokens: i64 = chunks.iter().map(|index| nodes[*index].tokens).sum();
    let is_one = chunks.len() <= BATCH && tokens <= BATCH_TOKENS;
    let mut before = vec![0; nodes.len()];
    for (count, index) in chunks.iter().enumerate() {
        before[*index] = count;
    }
    let keys = keys(nodes, ids);
    chunks.sort_unstable_by(|one, other| keys[*one].cmp(&keys[*other]));
    let mut batches = Vec::new();
    // The container of the open batch, its chunks and their tokens. The chunks of a large section come in a row and close it.
    let mut open: (Option<usize>, Vec<usize>, i64) = (None, Vec::new(), 0);
    for index in chunks {
        let under = if is_one { None } else { container(nodes, index) };
        let (container, members, tokens) = &open;
        if *container != under || members.len() == BATCH || tokens + nodes[index].tokens > BATCH_TOKENS {
            batches.extend(batch(open, &before));
            open = (under, Vec::new(), 0);
        }
        open.1.push(index);
        open.2 += nodes[index].tokens;
    }
    batches.extend(batch(open, &before));
    batches
}

/// A batch of chunks that are given in the order of their paths. `before`: how many chunks of the list come before each.
fn batch((under, mut members, _): (Option<usize>, Vec<usize>, i64), before: &[usize]) -> Option<Batch> {
    let (first, last) = (*members.first()?, *members.last()?);
    members.sort_unstable();
    let runs = members.chunk_by(|one, next| before[*one] + 1 == before[*next]);
    let runs = runs.filter_map(|run| Some((*run.first()?, *run.last()?))).collect();
    Some(Batch { under, first, last, runs })
}

/// The key of each node below the file: `5/9/`.
fn keys(nodes: &[Node], ids: &[DocumentId]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::with_capacity(nodes.len());
    for (node, id) in nodes.iter().zip(ids) {
        let above = node.parent.map_or("", |parent| &keys[parent]);
        keys.push(format!("{above}{id}/"));
    }
    keys
}

/// The lowest node above a chunk that is large enough for its own batch.
fn container(nodes: &[Node], chunk: usize) -> Option<usize> {
    let mut at = nodes[chunk].parent;
    while let Some(section) = at {
        if nodes[section].leaves >= SMALL {
            return Some(section);
        }
        at = nodes[section].parent;
    }
    None
}

/// Counts characters up to byte offsets of one text, quickly for any offset.
pub struct CharacterIndex<'a> {
    text: &'a str,
    /// The number of characters before each `STEP` bytes.
    before: Vec<usize>,
}

const STEP: usize = 1024;

impl<'a> CharacterIndex<'a> {
    /// Reads the text once.
    pub fn new(text: &'a str) -> Self {
        let mut before = Vec::with_capacity(text.len() / STEP + 1);
        let mut count = 0;
        for piece in text.as_bytes().chunks(STEP) {
            before.push(count);
            count += piece.iter().filter(|byte| starts_character(**byte)).count();
        }
        before.push(count);
        CharacterIndex { text, before }
    }

    /// The number of characters before a byte offset.
    pub fn at(&self, offset: usize) -> usize {
        let step = (offset / STEP).min(self.before.len() - 1);
        let rest = &self.text.as_bytes()[(step * STEP).min(offset)..offset.min(self.text.len())];
        self.before[step] + rest.iter().filter(|byte| starts_character(**byte)).count()
    }
}

fn starts_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

/// Where a node came from: characters of the extracted text, pages or slides if the format has them, and for a leaf of pages that OCR
/// read, or a table, where on them it stands.
pub fn anchor(node: &Node, extraction: &Extraction, characters: &CharacterIndex<'_>) -> Value {
    let mut anchor = json!({"characters": [characters.at(node.start), characters.at(node.end)]});
    let first = extraction.page_at(node.start);
    let last = extraction.page_at(node.end.saturating_sub(1).max(node.start));
    if let (Some(first), Some(last)) = (first, last) {
        let kind = match extraction.page_kind {
            PageKind::Page => "pages",
            PageKind::Slide => "slides",
        };
        anchor[kind] = json!([first, last]);
    }
    if node.kind != Kind::Section {
        let boxes = extraction.boxes(node.start..node.end).into_iter().map(|(page, area)| {
            let Area { left, top, width, height } = area;
            json!({"page": page, "left": left, "top": top, "width": width, "height": height})
        });
        let boxes: Vec<Value> = boxes.collect();
        if !boxes.is_empty() {
            anchor["boxes"] = boxes.into();
        }
    }
    anchor
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use svc_formats::{Heading, Page, ReadLine};

    fn extraction(levels: &[u8], words: usize) -> Extraction {
        let mut text = "A preface before any heading.\n".to_owned();
        let mut headings = Vec::new();
        for (index, level) in levels.iter().enumerate() {
            headings.push(Heading { level: *level, title: format!("Heading {index}"), start: text.len() });
            text.push_str(&format!("Heading {index}\n{}\n", "Some words follow here. ".repeat(words)));
        }
        Extraction { text, headings, ..Extraction::default() }
    }
    fn count(text: &str) -> usize {
        text.split_whitespace().count()
    }
    fn nodes(extraction: &Extraction) -> Vec<Node> {
        build(extraction, &[], "file.txt", true, &ChunkOptions { max_tokens: 20, ..ChunkOptions::default() }, &count)
    }

    fn ids(nodes: &[Node], first: i64) -> Vec<DocumentId> {
        (first..).take(nodes.len()).map(DocumentId).collect()
    }
    fn members(batch: &Batch) -> impl Iterator<Item = usize> {
        batch.runs.iter().flat_map(|(first, last)| *first..=*last)
    }

    #[test]
    fn a_tree_reads_like_its_file() {
        let extraction = extraction(&[1, 2, 2, 1], 3);
        let shown: String = nodes(&extraction)
            .iter()
            .map(|n| {
                format!(
                    "{}{} {} #{} [{}]\n",
                    "  ".repeat(n.depth),
                    n.kind.usetype().as_str(),
                    n.title,
                    n.position,
                    &extraction.text[n.start..n.end].lines().next().unwrap_or_default()
                )
            })
            .collect();
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn anchors_count_characters_and_pages() {
        let text = "äöü one\npage two ends".to_owned();
        let pages = vec![Page { number: 1, start: 0, end: 10 }, Page { number: 2, start: 11, end: text.len() }];
        let mut extraction = Extraction { text, pages, ..Extraction::default() };
        let nodes = build(&extraction, &[], "f", false, &ChunkOptions::default(), &count);
        let characters = CharacterIndex::new(&extraction.text);
        assert_eq!(anchor(&nodes[0], &extraction, &characters), json!({"characters": [0, 21], "pages": [1, 2]}));
        extraction.page_kind = PageKind::Slide;
        assert_eq!(anchor(&nodes[0], &extraction, &characters), json!({"characters": [0, 21], "slides": [1, 2]}));
    }

    #[test]
    fn anchors_of_leaves_have_boxes_and_those_of_sections_have_none() {
        let line = |start, end| {
            let area = Area { left: 72.0, top: 30.5, width: 100.0, height: 12.0 };
            ReadLine { start, end, paragraph: 0, area }
        };
        let headings = vec![Heading { level: 1, title: "Ponds".to_owned(), start: 0 }];
        let pages = vec![Page { number: 1, start: 0, end: 15 }];
        let (text, read_lines) = ("Ponds\nA heron.\n".to_owned(), vec![line(0, 5), line(6, 14)]);
        let extraction = Extraction { text, headings, pages, read_lines, ..Extraction::default() };
        let nodes = build(&extraction, &[], "f", true, &ChunkOptions::default(), &count);
        let characters = CharacterIndex::new(&extraction.text);
        let [section, chunk] = nodes.as_slice() else { panic!("{nodes:?}") };
        assert_eq!(anchor(section, &extraction, &characters)["boxes"], Value::Null);
        let boxes = anchor(chunk, &extraction, &characters)["boxes"].clone();
        assert_eq!(boxes, json!([{"page": 1, "left": 72.0, "top": 30.5, "width": 100.0, "height": 12.0}]));
    }

    #[test]
    fn long_chunks_share_no_batch_that_a_slow_model_cannot_end_in_time() {
        let mut extraction = extraction(&[], 0);
        extraction.text = "word ".repeat(80_000);
        let options = ChunkOptions { max_tokens: 8_192, ..ChunkOptions::default() };
        let nodes = build(&extraction, &[], "file.txt", true, &options, &count);
        let batches = batches(&nodes, &ids(&nodes, 1));
        assert!(nodes.len() < BATCH && batches.len() > 1, "{} chunks in {} batches", nodes.len(), batches.len());
        for batch in batches {
            let tokens: i64 = members(&batch).map(|index| nodes[index].tokens).sum();
            assert!(tokens <= BATCH_TOKENS, "{batch:?}: {tokens} tokens");
        }
    }

    #[test]
    fn the_marks_before_a_heading_are_no_chunk() {
        for (text, titles) in [("- ### Card\n  x\n", &["Card", "Card"][..]), ("> # Quote\n> x\n", &["file.txt"])] {
            let headings = svc_formats::headings(text).collect();
            let extraction = Extraction { text: text.to_owned(), headings, ..Extraction::default() };
            let nodes = nodes(&extraction);
            let found: Vec<_> = nodes.iter().map(|node| node.title.as_str()).collect();
            assert_eq!(found, titles, "{text}");
            let chunk = nodes.iter().find_map(|node| node.chunk.as_ref()).expect("a chunk");
            assert_eq!(chunk.content(text), text.trim_end());
        }
    }

    #[test]
    fn a_table_is_a_node_in_its_place_and_in_no_chunk() {
        let long: String = (0..200).map(|row| format!("| {row} | heron number {row} |\n")).collect();
        let text = format!(
            "# Ponds\n\nBefore it.\n\n| Pond | Ducks |\n| --- | --- |\n| Mill | 14 |\n\nAfter it.\n\n# Birds\n\n| No | Bird |\n| --- | --- |\n{long}"
        );
        let headings = svc_formats::headings(&text).collect();
        let extraction = Extraction { text, headings, ..Extraction::default() };
        let tables = svc_formats::tables(&extraction).tables;
        let tables: Vec<TableNode> = tables.iter().map(|table| TableNode::new(table, &extraction.text)).collect();
        assert_eq!(tables[0].structured, json!({"table": {"columns": ["Pond", "Ducks"], "rows": [["Mill", 14]]}}));
        let nodes = build(&extraction, &tables, "f.md", true, &ChunkOptions::default(), &count);
        let kinds: Vec<(Kind, usize)> = nodes.iter().take(7).map(|node| (node.kind, node.depth)).collect();
        let (section, chunk, table) = ((Kind::Section, 0), (Kind::Chunk, 1), (Kind::Table, 1));
        assert_eq!(kinds, [section, chunk, table, chunk, section, chunk, table]);
        let in_text = nodes.iter().filter(|node| node.table.is_none()).filter_map(|node| node.chunk.as_ref());
        assert!(in_text.map(|chunk| chunk.content(&extraction.text)).all(|content| !content.contains('|')));
        // A long table has chunks, each with its header, and is no leaf.
        let (short, long) = (&nodes[2], &nodes[6]);
        assert!(short.is_leaf() && !long.is_leaf() && long.children > 1);
        let below: Vec<&Node> = nodes.iter().filter(|node| node.parent == Some(6)).collect();
        assert_eq!((usize::try_from(long.children), long.leaves), (Ok(below.len()), below.len()));
        for piece in below {
            let content = piece.chunk.as_ref().unwrap().content(&tables[1].content).into_owned();
            assert!(content.starts_with("| No | Bird |"), "{content}");
        }
        assert!(extraction.text[long.start..long.end].starts_with("| No |"));
        let batches = batches(&nodes, &ids(&nodes, 1));
        let embedded: usize = batches.iter().flat_map(members).filter(|index| nodes[*index].is_leaf()).count();
        assert_eq!(embedded, nodes.iter().filter(|node| node.is_leaf()).count());
    }

    proptest! {
        #[test]
        fn character_index_agrees_with_counting(text in "\\PC{0,3000}", at in 0usize..3000) {
            let mut at = at.min(text.len());
            while !text.is_char_boundary(at) { at -= 1; }
            prop_assert_eq!(CharacterIndex::new(&text).at(at), text[..at].chars().count());
        }

        #[test]
        fn batches_hold_every_chunk_once_and_their_regions_cover_them_alone(
            levels in prop::collection::vec(1u8..5, 0..60), words in 0usize..120, first_id in 1i64..1200,
        ) {
            let extraction = extraction(&levels, words);
            let nodes = nodes(&extraction);
            let ids = ids(&nodes, first_id);
            let keys = keys(&nodes, &ids);
            let batches = batches(&nodes, &ids);
            let mut seen = vec![0; nodes.len()];
            for (number, batch) in batches.iter().enumerate() {
                let chunks: Vec<usize> = members(batch).filter(|index| nodes[*index].kind == Kind::Chunk).collect();
                for index in &chunks {
                    seen[*index] += 1;
                    let mut above = nodes[*index].parent;
                    while above != batch.under { prop_assert!(above.is_some(), "chunk {} outside {:?}", index, batch); above = nodes[above.unwrap()].parent; }
                }
                prop_assert!(chunks.len() <= BATCH);
                let tokens: i64 = chunks.iter().map(|index| nodes[*index].tokens).sum();
                prop_assert!(chunks.len() == 1 || tokens <= BATCH_TOKENS, "{} tokens in {} chunks", tokens, chunks.len());
                for (other, chunk) in batches.iter().enumerate().flat_map(|(other, batch)| members(batch).map(move |chunk| (other, chunk))) {
                    let is_inside = keys[batch.first] <= keys[chunk] && keys[chunk] <= keys[batch.last];
                    prop_assert!(nodes[chunk].kind != Kind::Chunk || is_inside == (other == number), "{} of {:?} in {:?}", keys[chunk], batches[other], batch);
                }
            }
            for (index, node) in nodes.iter().enumerate() {
                prop_assert_eq!(seen[index], usize::from(node.kind == Kind::Chunk), "node {}", index);
            }
        }
    }
}
