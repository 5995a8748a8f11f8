//! Segments: stretches of a node's children between which the subject changes, with a section over each.
//!
//! If there are too many segments too, they are cut in the same way, level by level. `structure:semantic` makes them in a file, and
//! `POST /documents/{id}/segment` wherever a caller asks for them.
mod anchors;

use super::{
    options::Rollup,
    queueing::{Queueing, Work},
    tasks::types::EMBED,
};
use crate::{
    store::{
        self,
        lexicon::Lexicon,
        nodes::{NewNode, ROWS},
        places::Place,
        segments::{After, Child, Move},
    },
    usetype::Usetype,
};
use anchors::span;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};
use svc_actors::WriteMode;
use svc_ids::DocumentId;
use svc_ranking::{Segment, Segmenter, changepoints};

/// Takes the vectors of segments that callers asked for, because what these documents add to the sums has changed or will be gone, and queues
/// what makes the sums anew. Call it while the documents are still in their old places, and again in their new ones.
pub async fn outdate_sums(
    badges: &BTreeMap<String, String>,
    conn: &mut PgConnection,
    documents: &[DocumentId],
) -> sqlx::Result<()> {
    for segment in store::segments::sums::forget(conn, documents).await? {
        if store::segments::sums::waiting(conn, &segment, EMBED.name).await?.is_none() {
            let queueing = Queueing { root_id: segment.id().as_root(), badges, priority: 0 };
            queueing.add(conn, &segment, Work::of(&EMBED).write_mode(WriteMode::Itself)).await?;
        }
    }
    Ok(())
}

/// A child, without its text and vector.
pub struct Member {
    pub id: DocumentId,
    pub position: Option<i32>,
    pub tokens: i64,
    pub has_failed: bool,
}

/// The children in their order, as far as they were read, and where the subject changes.
pub struct Children {
    members: Vec<Member>,
    /// Which of them have a vector.
    with_vector: Vec<usize>,
    segmenter: Segmenter,
}

impl Children {
    pub fn new(options: &Rollup) -> Children {
        let segmenter = Segmenter::new(options.penalty, options.min_segment);
        Children { members: Vec::new(), with_vector: Vec::new(), segmenter }
    }

    /// Takes the next children. `count` counts the tokens of a text.
    pub fn take(&mut self, page: Vec<Child>, count: &dyn Fn(&str) -> i64) {
        for child in page {
            let tokens = child.tokens.or_else(|| child.content.as_deref().map(count)).unwrap_or(0);
            if let Some(vector) = child.embed {
                let vector: Vec<f32> = vector.to_vec().into_iter().map(f32::from).collect();
                self.segmenter.push(&vector);
                self.with_vector.push(self.members.len());
            }
            self.members.push(Member { id: child.id, position: child.position, tokens, has_failed: child.has_failed });
        }
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How many of the members have a vector.
    pub fn vectors(&self) -> usize {
        self.with_vector.len()
    }

    /// The members without a vector.
    pub fn without_vector(&self) -> Vec<DocumentId> {
        let mut with_vector = self.with_vector.iter().peekable();
        let has_none = |at: &usize| with_vector.next_if_eq(&at).is_none();
        (0..self.members.len()).filter(has_none).map(|at| self.members[at].id).collect()
    }

    /// After which child the next page begins.
    pub fn last(&self) -> After {
        self.members.last().map(|member| (member.position, member.id))
    }

    /// The levels of segments; `None` if the children are one segment.
    pub fn levels(self, options: &Rollup) -> Option<Levels> {
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
        Some(Levels { spans: spans(&levels), members: self.members, levels })
    }
}

/// The stretches between these starts.
fn ranges(starts: &[usize], end: usize) -> Vec<Range<usize>> {
    let ends = starts.iter().skip(1).copied().chain([end]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// The segments as ranges of children, level by level.
fn spans(levels: &[Vec<Range<usize>>]) -> Vec<Vec<Range<usize>>> {
    let mut spans: Vec<Vec<Range<usize>>> = Vec::new();
    for level in levels {
        let span = |range: &Range<usize>| match spans.last() {
            Some(below) => below[range.start].start..below[range.end - 1].end,
            None => range.clone(),
        };
        spans.push(level.iter().map(span).collect());
    }
    spans
}

/// The segments of a container.
pub struct Levels {
    members: Vec<Member>,
    /// The segments of each level, as ranges of the one below; the lowest level are ranges of children.
    levels: Vec<Vec<Range<usize>>>,
    /// The same segments as ranges of children.
    spans: Vec<Vec<Range<usize>>>,
}

impl Levels {
    /// The number of levels.
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// The number of segments on all levels.
    pub fn total(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }

    /// The children under a segment, given by its level and its place there.
    pub fn under(&self, level: usize, at: usize) -> &[Member] {
        &self.members[self.spans[level][at].clone()]
    }

    /// How many segments or children are directly under a segment.
    pub fn directly_under(&self, level: usize, at: usize) -> usize {
        self.levels[level][at].len()
    }

    /// What is recorded about the container.
    pub fn evidence(&self) -> Value {
        json!({"children": self.members.len(), "segments": self.levels.iter().map(Vec::len).collect::<Vec<_>>()})
    }

    /// The first and the last child of each lowest segment. Those of the others are among them.
    fn edges(&self) -> impl Iterator<Item = DocumentId> {
        self.levels[0].iter().flat_map(|range| [range.start, range.end - 1]).map(|at| self.members[at].id)
    }

    /// The sections over the children of the container, with these ids, one for each segment.
    pub fn sections(&self, container: &Place, ids: Vec<DocumentId>, anchors: &Anchors) -> Sections {
        let (path, spans, total) = (container.children_path(), &self.spans, self.total());
        let mut ids = ids.into_iter();
        let ids: Vec<Vec<DocumentId>> =
            spans.iter().rev().map(|level| ids.by_ref().take(level.len()).collect()).collect();
        let ids: Vec<Vec<DocumentId>> = ids.into_iter().rev().collect();
        // Children without a position come last, so the last one says whether all have one.
        let are_placed = self.members.last().is_some_and(|last| last.position.is_some());
        // Of each segment the ids from the topmost one down to itself.
        let mut below: Vec<Vec<Vec<i64>>> = vec![Vec::new(); spans.len()];
        let (mut nodes, mut places) = (Vec::with_capacity(total), Vec::with_capacity(total));
        for level in (0..spans.len()).rev() {
            // The segment of the level above that holds each segment of this one.
            let holders: Vec<Option<usize>> = match self.levels.get(level + 1) {
                Some(above) => {
                    above.iter().enumerate().flat_map(|(at, range)| range.clone().map(move |_| Some(at))).collect()
                }
                None => vec![None; spans[level].len()],
            };
            let mut number = 0;
            for at in 0..spans[level].len() {
                let is_first = at == 0 || holders[at] != holders[at - 1];
                number = if is_first { 1 } else { number + 1 };
                let above = holders[at].map(|holder| below[level + 1][holder].clone()).unwrap_or_default();
                let id = ids[level][at];
                let members = self.under(level, at);
                let (first, last) = (&members[0], &members[members.len() - 1]);
                nodes.push(NewNode {
                    id,
                    parent_id: holders[at].map_or(container.id(), |holder| ids[level + 1][holder]),
                    path: path.iter().chain(&above).copied().collect(),
                    // A child may be closed or deleted later, and its title must not stay here for the readers of the others.
                    title: format!("Segment {number}"),
                    content: String::new(),
                    usetype: Usetype::Section,
                    // A child that stays directly under the container keeps its place between the segments.
                    position: first.position.filter(|_| are_placed).unwrap_or(number - 1),
                    structured_content: json!({}),
                    anchor: anchors.span(first.id, last.id),
                });
                places.push((level, at));
                below[level].push(above.into_iter().chain([id.0]).collect());
            }
        }
        let moves = below[0].iter().enumerate().flat_map(|(at, below)| {
            self.under(0, at).iter().map(|member| Move { id: member.id, below: below.clone() })
        });
        Sections { nodes, places, moves: moves.collect(), levels: ids }
    }
}

/// The sections over the children of a container, ready to be stored.
pub struct Sections {
    /// Parents before their children.
    pub nodes: Vec<NewNode>,
    /// Of each node its level and its place there.
    pub places: Vec<(usize, usize)>,
    /// The ids of each level, from the lowest up.
    pub levels: Vec<Vec<DocumentId>>,
    moves: Vec<Move>,
}

impl Sections {
    /// Inserts the sections in flight, as this rule made them.
    pub async fn insert(
        &self,
        conn: &mut PgConnection,
        lexicon: &Lexicon,
        container: &Place,
        rule: &str,
    ) -> sqlx::Result<()> {
        for part in self.nodes.chunks(ROWS) {
            store::nodes::insert(conn, lexicon, container, rule, part).await?;
        }
        Ok(())
    }

    /// Moves the children of the container under them.
    pub async fn move_members(&self, conn: &mut PgConnection, container: &Place) -> sqlx::Result<()> {
        for part in self.moves.chunks(ROWS) {
            store::segments::move_children(conn, container, part).await?;
        }
        Ok(())
    }
}

/// The anchors from which segments get theirs: those of the children at their edges.
#[derive(Default)]
pub struct Anchors(HashMap<i64, Value>);

impl Anchors {
    pub async fn read(conn: &mut PgConnection, levels: &Levels) -> sqlx::Result<Anchors> {
        let mut anchors = HashMap::new();
        for part in levels.edges().collect::<Vec<_>>().chunks(ROWS) {
            anchors.extend(store::view::anchors(conn, part).await?);
        }
        Ok(Anchors(anchors))
    }

    fn span(&self, first: DocumentId, last: DocumentId) -> Value {
        let anchor = |id: DocumentId| self.0.get(&id.0);
        span(anchor(first).unwrap_or(&Value::Null), anchor(last).unwrap_or(&Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vectors: impl IntoIterator<Item = Option<[f32; 3]>>, options: &Rollup) -> Children {
        let mut read = Children::new(options);
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
        assert_eq!(levels.spans[1], [0..40, 40..80]);
    }
}
