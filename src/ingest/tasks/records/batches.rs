//! Batches of the records of a sheet that are embedded together.
use crate::{
    ingest::{
        tasks::embed,
        tree::{BATCH, BATCH_TOKENS},
    },
    store::places::Place,
};
use svc_actors::{LeafRange, path_key};
use svc_ids::DocumentId;

/// A leaf that waits for a batch: its ids from below the sheet down to its own, and its tokens.
pub(super) type Leaf = (Vec<i64>, i64);

/// The leaves that one task embeds.
#[derive(Debug)]
pub(super) struct Batch {
    /// The first and the last leaf in the order of their keys, each by its ids from below the sheet.
    first: Vec<i64>,
    last: Vec<i64>,
    /// The first and the last id.
    ids: (DocumentId, DocumentId),
    leaves: usize,
    tokens: i64,
}

impl Batch {
    fn of(leaf: &[i64], id: DocumentId) -> Batch {
        Batch { first: leaf.to_vec(), last: leaf.to_vec(), ids: (id, id), leaves: 0, tokens: 0 }
    }

    /// Keys of records sort as numbers only if their ids have the same number of digits. Tasks with overlapping ranges
    /// of keys would wait for each other.
    fn takes(&self, (leaf, tokens): &Leaf) -> bool {
        let digits = |leaf: &[i64]| leaf.first().and_then(|id| id.checked_ilog10());
        self.leaves < BATCH && self.tokens + tokens <= BATCH_TOKENS && digits(leaf) == digits(&self.first)
    }

    fn add(&mut self, (leaf, tokens): Leaf, id: DocumentId) {
        self.ids.1 = id;
        self.leaves += 1;
        self.tokens += tokens;
        if path_key(&leaf) < path_key(&self.first) {
            self.first = leaf;
        } else if path_key(&leaf) > path_key(&self.last) {
            self.last = leaf;
        }
    }

    /// The batch as it is queued; `sheet` holds the records.
    pub fn under(self, sheet: &Place) -> embed::Leaves {
        embed::Leaves { under: sheet.clone(), range: self.range(&sheet.children_path()), runs: vec![self.ids] }
    }

    fn range(&self, sheet: &[i64]) -> LeafRange {
        LeafRange { first: [sheet, &self.first].concat(), last: [sheet, &self.last].concat() }
    }
}

/// Collects leaves into batches, by ascending ids.
#[derive(Default)]
pub(super) struct Leaves {
    open: Option<Batch>,
    /// The number of batches so far.
    pub batches: i32,
}

impl Leaves {
    /// Adds leaves; returns the batches that became full.
    pub fn add(&mut self, leaves: Vec<Leaf>) -> Vec<Batch> {
        let mut full = Vec::new();
        for leaf in leaves {
            let Some(id) = leaf.0.last().copied().map(DocumentId) else { continue };
            if self.open.as_ref().is_some_and(|open| !open.takes(&leaf)) {
                full.extend(self.rest());
            }
            self.open.get_or_insert_with(|| Batch::of(&leaf.0, id)).add(leaf, id);
        }
        full
    }

    /// The batch that is still open.
    pub fn rest(&mut self) -> Option<Batch> {
        let open = self.open.take()?;
        self.batches += 1;
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(leaves: Vec<Leaf>, piece: usize) -> Vec<Batch> {
        let mut filling = Leaves::default();
        let mut batches: Vec<Batch> = leaves.chunks(piece).flat_map(|piece| filling.add(piece.to_vec())).collect();
        batches.extend(filling.rest());
        assert_eq!(batches.len(), filling.batches as usize);
        batches
    }

    #[test]
    fn batches_hold_every_leaf_once() {
        for count in [0, 1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH] {
            let leaves: Vec<Leaf> = (0..count as i64).map(|n| (vec![n * 2 + 1000], 100)).collect();
            let held = |batch: &Batch| {
                leaves.iter().filter(|(leaf, _)| (batch.ids.0.0..=batch.ids.1.0).contains(&leaf[0])).count()
            };
            let batches = batches(leaves.clone(), 100);
            assert_eq!(batches.iter().map(held).sum::<usize>(), count);
            assert!(batches.iter().all(|batch| held(batch) <= BATCH), "{batches:?}");
            assert_eq!(batches.len(), count.div_ceil(BATCH));
        }
        let tokens = [BATCH_TOKENS / 2, BATCH_TOKENS / 2, 1, 2 * BATCH_TOKENS, 1];
        let long = (1..).zip(tokens).map(|(id, tokens)| (vec![id], tokens)).collect();
        let cut: Vec<_> = batches(long, 5).iter().map(|batch| (batch.ids.0.0, batch.ids.1.0)).collect();
        assert_eq!(cut, [(1, 2), (3, 3), (4, 4), (5, 5)], "tokens are counted too");
    }

    #[test]
    fn a_batch_is_a_range_of_keys_though_ids_gain_a_digit() {
        // The records are 97, 98 (in pieces 99 to 101), 102 and 103.
        let leaves = [vec![97], vec![98, 99], vec![98, 100], vec![98, 101], vec![102], vec![103]];
        let cut: Vec<_> = batches(leaves.map(|leaf| (leaf, 1)).to_vec(), 9)
            .into_iter()
            .map(|batch| (batch.ids, batch.range(&[7])))
            .map(|(ids, range)| (ids, path_key(&range.first), path_key(&range.last)))
            .collect();
        let of = |ids: [i64; 2], first: &str, last: &str| {
            let [start, end] = ids.map(DocumentId);
            ((start, end), first.to_owned(), last.to_owned())
        };
        assert_eq!(cut, [of([97, 101], "7/97/", "7/98/99/"), of([102, 103], "7/102/", "7/103/")]);
    }
}
