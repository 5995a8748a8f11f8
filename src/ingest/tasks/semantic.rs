//! structure:semantic: cuts the children of a container with too many of them into segments where the subject changes.
//!
//! A segment is a section between the container and its children. If there are too many segments too, they are cut in the same way, level
//! by level. The children are read page by page and their vectors are not kept, so a container may have any number of them.
use super::{
    Apply, OrTaskFailure,
    apply::Transaction,
    structure::{ROWS, model},
};
use crate::{
    embedding::Model,
    ingest::{Tools, options::Rollup, segments::span, tree::title},
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::{self, ChildrenDone, Frontier, IngestNode},
        nodes::NewNode,
        places::Place,
        segments::{Child, Move, Origin},
    },
    usetype::Usetype,
};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, ops::Range};
use svc_actors::{Outcome, TaskFailure};
use svc_ids::DocumentId;
use svc_ranking::{Segment, Segmenter, changepoints};

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let options: Rollup = serde_json::from_value(apply.grant.params["rollup"].clone()).unwrap_or_default();
    let model = model(tools).await?;
    let read = read(tools, &apply, &model, &options).await?;
    let children = read.members.len();
    let levels = tokio::task::spawn_blocking(move || read.levels(&options)).await.classified()?;
    let names = names(tools, &apply, &levels).await?;

    let mut tx = apply.begin_creating().await?;
    let evidence = match &levels {
        Some(levels) => {
            insert(&mut tx, levels, &names).await?;
            json!({"children": children, "segments": levels.levels.iter().map(Vec::len).collect::<Vec<_>>()})
        }
        None => {
            ingest_nodes::set_rollup(tx.conn(), id, ingest_nodes::Rollup::Segmented).await.classified()?;
            Value::Null
        }
    };
    store::evidence::record(tx.conn(), id, Evidence::StructureSemantic, &evidence).await.classified()?;
    let mut detail = Map::new();
    detail.insert("children".to_owned(), children.into());
    detail.insert("segments".to_owned(), evidence["segments"].clone());
    tx.complete(detail).await
}

/// A child, without its text and vector.
struct Member {
    id: DocumentId,
    position: Option<i32>,
    tokens: i64,
    has_failed: bool,
}

/// The children in their order, and where the subject changes.
struct Read {
    members: Vec<Member>,
    /// Which of them have a vector.
    with_vector: Vec<usize>,
    segmenter: Segmenter,
}

impl Read {
    fn take(&mut self, model: &Model, page: Vec<Child>) {
        for child in page {
            // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
            let count = |text: &String| model.count_content_tokens(text).unwrap_or(text.len()) as i64;
            let tokens = child.tokens.or_else(|| child.content.as_ref().map(count)).unwrap_or(0);
            if let Some(vector) = child.embed {
                let vector: Vec<f32> = vector.to_vec().into_iter().map(f32::from).collect();
                self.segmenter.push(&vector);
                self.with_vector.push(self.members.len());
            }
            self.members.push(Member { id: child.id, position: child.position, tokens, has_failed: child.has_failed });
        }
    }

    /// The levels of segments; `None` if the children are one segment.
    fn levels(self, options: &Rollup) -> Option<Levels> {
        let mut segments = self.segmenter.finish();
        if segments.len() < 2 {
            return None;
        }
        // A child without a vector stays with the one before it.
        let start = |at: usize| if at == 0 { 0 } else { self.with_vector[segments[at].range.start] };
        let starts: Vec<usize> = (0..segments.len()).map(start).collect();
        let mut levels = vec![ranges(&starts, self.members.len())];
        while segments.len() > options.max_children {
            let above: Vec<Segment> =
                changepoints(segments.iter().map(Segment::mean), options.penalty, options.min_segment);
            if above.len() < 2 || above.len() == segments.len() {
                break;
            }
            levels.push(above.iter().map(|segment| segment.range.clone()).collect());
            segments = above;
        }
        Some(Levels { members: self.members, levels })
    }
}

/// The stretches between these starts.
fn ranges(starts: &[usize], end: usize) -> Vec<Range<usize>> {
    let ends = starts.iter().skip(1).copied().chain([end]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

async fn read(tools: &Tools, apply: &Apply<'_>, model: &Model, options: &Rollup) -> Result<Read, TaskFailure> {
    let id = apply.grant.document_id;
    let segmenter = Segmenter::new(options.penalty, options.min_segment);
    let mut read = Read { members: Vec::new(), with_vector: Vec::new(), segmenter };
    let mut after = None;
    loop {
        if apply.cancel.is_cancelled() {
            return Err(TaskFailure::cancelled());
        }
        let page = {
            let mut conn = tools.pool.acquire().await.classified()?;
            store::segments::children(&mut conn, id, model.identity(), after, ROWS).await.classified()?
        };
        after = page.last().map(|child| (child.position, child.id));
        if after.is_none() {
            return Ok(read);
        }
        let model = model.clone();
        read = tokio::task::spawn_blocking(move || {
            read.take(&model, page);
            read
        })
        .await
        .classified()?;
    }
}

/// The segments of a container.
struct Levels {
    members: Vec<Member>,
    /// The segments of each level, as ranges of the one below; the lowest level are ranges of children.
    levels: Vec<Vec<Range<usize>>>,
}

impl Levels {
    /// The segments as ranges of children, level by level.
    fn spans(&self) -> Vec<Vec<Range<usize>>> {
        let mut spans: Vec<Vec<Range<usize>>> = Vec::new();
        for level in &self.levels {
            let span = |range: &Range<usize>| match spans.last() {
                Some(below) => below[range.start].start..below[range.end - 1].end,
                None => range.clone(),
            };
            spans.push(level.iter().map(span).collect());
        }
        spans
    }

    /// The first and the last child of each lowest segment. Those of the others are among them.
    fn edges(&self) -> Vec<DocumentId> {
        let edges = self.levels[0].iter().flat_map(|range| [range.start, range.end - 1]);
        edges.map(|at| self.members[at].id).collect()
    }
}

/// The names and places of the nodes that name segments, with the title of the container.
struct Names {
    container: String,
    origins: HashMap<DocumentId, Origin>,
}

impl Names {
    /// A segment is called by its number, and by its first child's title if that is not just its container's.
    fn title(&self, number: usize, first: DocumentId) -> String {
        match self.origins.get(&first) {
            Some(origin) if origin.title != self.container && !origin.title.trim().is_empty() => {
                title(&format!("Segment {number}: {}", origin.title))
            }
            _ => format!("Segment {number}"),
        }
    }

    fn anchor(&self, first: DocumentId, last: DocumentId) -> Value {
        let anchor = |id| self.origins.get(&id).and_then(|origin| origin.anchor.as_ref());
        span(anchor(first).unwrap_or(&Value::Null), anchor(last).unwrap_or(&Value::Null))
    }
}

async fn names(tools: &Tools, apply: &Apply<'_>, levels: &Option<Levels>) -> Result<Names, TaskFailure> {
    let mut names = Names { container: String::new(), origins: HashMap::new() };
    let Some(levels) = levels else { return Ok(names) };
    let id = apply.grant.document_id;
    let mut conn = tools.pool.acquire().await.classified()?;
    for part in [id].into_iter().chain(levels.edges()).collect::<Vec<_>>().chunks(ROWS) {
        let origins = store::segments::origins(&mut conn, part).await.classified()?;
        names.origins.extend(origins.into_iter().map(|origin| (origin.id, origin)));
    }
    names.container = names.origins.remove(&id).map(|origin| origin.title).unwrap_or_default();
    Ok(names)
}

/// Inserts the segments in flight and moves the children under them.
async fn insert(tx: &mut Transaction<'_>, levels: &Levels, names: &Names) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    let container = Place::of_claim(grant);
    let path = container.children_path();
    let spans = levels.spans();
    let total = spans.iter().map(Vec::len).sum();
    let mut ids = store::nodes::reserve_ids(tx.conn(), total).await.classified()?.into_iter();
    // The ids of each level, and of each of its segments the ids from the topmost segment down to itself.
    let ids: Vec<Vec<DocumentId>> = spans.iter().rev().map(|level| ids.by_ref().take(level.len()).collect()).collect();
    let ids: Vec<Vec<DocumentId>> = ids.into_iter().rev().collect();
    let mut below: Vec<Vec<Vec<i64>>> = vec![Vec::new(); spans.len()];
    let (mut nodes, mut counters, mut failed) = (Vec::with_capacity(total), Vec::new(), Vec::new());
    for level in (0..spans.len()).rev() {
        // The segment of the level above that holds each segment of this one.
        let holders: Vec<Option<usize>> = match levels.levels.get(level + 1) {
            Some(above) => {
                above.iter().enumerate().flat_map(|(at, range)| range.clone().map(move |_| Some(at))).collect()
            }
            None => vec![None; spans[level].len()],
        };
        let mut number = 0;
        for (at, span) in spans[level].iter().enumerate() {
            let is_first = at == 0 || holders[at] != holders[at - 1];
            number = if is_first { 1 } else { number + 1 };
            let above = holders[at].map(|holder| below[level + 1][holder].clone()).unwrap_or_default();
            let id = ids[level][at];
            let parent_id = holders[at].map_or(container.id(), |holder| ids[level + 1][holder]);
            let members = &levels.members[span.clone()];
            let (first, last) = (&members[0], &members[members.len() - 1]);
            nodes.push(NewNode {
                id,
                parent_id,
                path: path.iter().chain(&above).copied().collect(),
                title: names.title(number, first.id),
                content: String::new(),
                usetype: Usetype::Section,
                // What is left of the container's children keeps its place between the segments.
                position: first.position.unwrap_or(i32::MAX),
                structured_content: json!({}),
                anchor: names.anchor(first.id, last.id),
            });
            let (open_children, failures) = match level {
                0 => (0, members.iter().filter(|member| member.has_failed).count()),
                _ => (levels.levels[level][at].len(), 0),
            };
            counters.push(IngestNode {
                document_id: id,
                parent_id: Some(parent_id),
                open_tasks: 0,
                open_children: i32::try_from(open_children).unwrap_or(i32::MAX),
                tokens: members.iter().map(|member| member.tokens).sum(),
            });
            failed.push(i32::try_from(failures).unwrap_or(i32::MAX));
            below[level].push(above.into_iter().chain([id.0]).collect());
        }
    }
    for (part, failed) in
        (0..total).step_by(ROWS).map(|start| start..total.min(start + ROWS)).map(|part| (part.clone(), &failed[part]))
    {
        store::nodes::insert(tx.conn(), &container, &grant.task_type, &nodes[part.clone()]).await.classified()?;
        ingest_nodes::insert(tx.conn(), grant.root_id, &counters[part.clone()]).await.classified()?;
        let ids: Vec<DocumentId> = nodes[part].iter().map(|node| node.id).collect();
        store::segments::begin(tx.conn(), &ids, failed).await.classified()?;
    }
    let moves = spans[0].iter().zip(&below[0]).flat_map(|(span, below)| {
        levels.members[span.clone()].iter().map(|member| Move { id: member.id, below: below.clone() })
    });
    let moves: Vec<Move> = moves.collect();
    for part in moves.chunks(ROWS) {
        store::segments::move_children(tx.conn(), &container, part).await.classified()?;
    }
    let top = i32::try_from(spans.last().map_or(0, Vec::len)).unwrap_or(i32::MAX);
    store::segments::end(tx.conn(), &container, top, failed.iter().sum()).await.classified()?;
    // The settler looks at the lowest segments, whose children are done.
    let done: Vec<ChildrenDone> = ids[0].iter().map(|id| ChildrenDone { parent_id: *id, done: 0, failed: 0 }).collect();
    ingest_nodes::children_done(tx.conn(), grant.root_id, &done).await.classified()?;
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let change = Frontier { total, in_flight: total, ..Frontier::default() };
    ingest_nodes::count(tx.conn(), grant.root_id.document(), change).await.classified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vectors: impl IntoIterator<Item = Option<[f32; 3]>>, options: &Rollup) -> Read {
        let segmenter = Segmenter::new(options.penalty, options.min_segment);
        let mut read = Read { members: Vec::new(), with_vector: Vec::new(), segmenter };
        for (at, vector) in vectors.into_iter().enumerate() {
            if let Some(vector) = vector {
                read.segmenter.push(&vector);
                read.with_vector.push(at);
            }
            let has_failed = vector.is_none();
            read.members.push(Member { id: DocumentId(at as i64), position: Some(at as i32), tokens: 1, has_failed });
        }
        read
    }

    #[test]
    fn what_has_no_vector_stays_with_its_neighbour() {
        let (a, b) = (Some([1.0, 0.0, 0.0]), Some([0.0, 1.0, 0.0]));
        let options = Rollup { max_children: 4, ..Rollup::default() };
        let levels = read([None, a, a, None, a, a, None, b, b, b, b, None], &options).levels(&options).expect("two");
        assert_eq!(levels.levels, [vec![0..7, 7..12]]);
        assert!(read([a; 9], &options).levels(&options).is_none());
        assert!(read([None; 9], &options).levels(&options).is_none());
    }

    #[test]
    fn too_many_segments_are_cut_level_by_level() {
        // Turns of four, first about one pair of subjects, then about another.
        let options = Rollup { max_children: 5, ..Rollup::default() };
        let turn = |at: usize| match (at / 40, at / 4 % 2) {
            (0, 0) => [1.0, 0.0, 0.0],
            (0, _) => [0.6, 0.8, 0.0],
            (_, 0) => [0.0, 0.0, 1.0],
            _ => [0.0, 0.6, 0.8],
        };
        let levels = read((0..80).map(turn).map(Some), &Rollup { penalty: 0.1, ..options.clone() });
        let levels = levels.levels(&Rollup { penalty: 0.9, ..options }).expect("segments");
        assert_eq!((levels.levels[0].len(), &levels.levels[1]), (20, &vec![0..10, 10..20]), "{:?}", levels.levels);
        assert_eq!(levels.spans()[1], [0..40, 40..80]);
    }
}
