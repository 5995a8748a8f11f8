//! The part of the document tree a task reserves.

use crate::words::UnknownWord;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    ops::{Range, RangeInclusive},
    str::FromStr,
};

/// How far below its node a task writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WriteMode {
    /// The node alone.
    #[serde(rename = "self")]
    Itself,
    /// The node and its direct children, including future ones.
    #[serde(rename = "children")]
    Children,
    /// The node and everything under it.
    #[serde(rename = "subtree")]
    Subtree,
}

impl WriteMode {
    /// The word stored in the queue and used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            WriteMode::Itself => "self",
            WriteMode::Children => "children",
            WriteMode::Subtree => "subtree",
        }
    }

    /// How many levels below the node belong to the region.
    const fn reach(self) -> usize {
        match self {
            WriteMode::Itself => 0,
            WriteMode::Children => 1,
            WriteMode::Subtree => usize::MAX,
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for WriteMode {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "self" => Ok(WriteMode::Itself),
            "children" => Ok(WriteMode::Children),
            "subtree" => Ok(WriteMode::Subtree),
            other => Err(UnknownWord::new("write mode", other, "self, children or subtree")),
        }
    }
}

/// A node, and everything below it that `mode` reaches; or some of the leaves below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// Node ids from the tree's root down to the node itself (a document's `path` stops at its parent).
    pub path: Vec<i64>,
    pub mode: WriteMode,
    /// The task writes only these nodes under its node, and not the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<LeafRange>,
}

/// The nodes between two leaves, both included, and everything under them. Paths are in the order of their keys, as the queue's index
/// has them: `1/10/` comes before `1/9/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeafRange {
    /// Node ids from the tree's root down to the leaf itself.
    pub first: Vec<i64>,
    pub last: Vec<i64>,
}

/// The key of a node by the ids from the tree's root down to the node itself: `1/5/9/`. Keys are compared byte by byte, so that
/// everything under a node lies between its key and the key that `after` gives.
pub fn path_key(path: &[i64]) -> String {
    use std::fmt::Write;
    let mut key = String::with_capacity(path.len() * 8);
    for id in path {
        let written = write!(key, "{id}/");
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    key
}

/// The first key after a node and everything under it: `0` comes right after `/`.
fn after(mut key: String) -> String {
    key.pop();
    key.push('0');
    key
}

impl Region {
    /// Whether the two sets of nodes intersect, now or after any insertion. A region of children also counts as overlapping any
    /// leaves under its node that lie deeper.
    pub fn overlaps(&self, other: &Region) -> bool {
        let (keys, others) = (self.keys(), other.keys());
        let (depths, other_depths) = (self.depths(), other.depths());
        keys.start < others.end
            && others.start < keys.end
            && depths.start() <= other_depths.end()
            && other_depths.start() <= depths.end()
    }

    fn keys(&self) -> Range<String> {
        match (&self.leaves, self.mode) {
            (Some(leaves), _) => path_key(&leaves.first)..after(path_key(&leaves.last)),
            // No key lies between a node's own and the same with one character more.
            (None, WriteMode::Itself) => path_key(&self.path)..path_key(&self.path) + "\0",
            (None, _) => path_key(&self.path)..after(path_key(&self.path)),
        }
    }

    fn depths(&self) -> RangeInclusive<usize> {
        match &self.leaves {
            Some(_) => self.path.len() + 1..=usize::MAX,
            None => self.path.len()..=self.path.len().saturating_add(self.mode.reach()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MODES: [WriteMode; 3] = [WriteMode::Itself, WriteMode::Children, WriteMode::Subtree];

    #[test]
    fn words_round_trip_and_strangers_are_named() {
        for mode in MODES {
            assert_eq!(mode.as_str().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
        }
        let error = "branch".parse::<WriteMode>().unwrap_err().to_string();
        assert!(error.contains("branch") && error.contains("subtree"), "{error}");
    }

    #[test]
    fn a_child_still_to_come_belongs_to_children() {
        let parent = Region { path: vec![1], mode: WriteMode::Children, leaves: None };
        let unborn = Region { path: vec![1, i64::MAX], mode: WriteMode::Itself, leaves: None };
        assert!(parent.overlaps(&unborn) && unborn.overlaps(&parent));
    }

    /// A random tree: node `n + 1` hangs under one of the nodes `0..=n`.
    fn paths(parents: &[prop::sample::Index]) -> Vec<Vec<i64>> {
        let mut paths: Vec<Vec<i64>> = vec![vec![0]];
        for (at, parent) in parents.iter().enumerate() {
            let mut path = paths[parent.index(paths.len())].clone();
            path.push(at as i64 + 1);
            paths.push(path);
        }
        paths
    }

    fn set(paths: &[Vec<i64>], region: &Region) -> BTreeSet<i64> {
        let node = *region.path.last().unwrap();
        paths
            .iter()
            .filter(|path| {
                let parent = path.len().checked_sub(2).map(|at| path[at]);
                if let Some(LeafRange { first, last }) = &region.leaves {
                    let (key, first, last) = (path_key(path), path_key(first), path_key(last));
                    return path.contains(&node) && first <= key && (key <= last || key.starts_with(&last));
                }
                match region.mode {
                    WriteMode::Itself => path.last() == Some(&node),
                    WriteMode::Children => path.last() == Some(&node) || parent == Some(node),
                    WriteMode::Subtree => path.contains(&node),
                }
            })
            .map(|path| *path.last().unwrap())
            .collect()
    }

    /// A region of a mode, or of some leaves under the node if it has any.
    fn region(paths: &[Vec<i64>], node: &[i64], mode: usize, ends: &[prop::sample::Index; 2]) -> Region {
        let is_leaf = |path: &&Vec<i64>| !paths.iter().any(|other| other.len() > path.len() && other.starts_with(path));
        let mut leaves: Vec<&Vec<i64>> =
            paths.iter().filter(|path| path.len() > node.len() && path.starts_with(node)).filter(is_leaf).collect();
        leaves.sort_by_key(|path| path_key(path));
        let path = node.to_vec();
        match MODES.get(mode) {
            Some(mode) => Region { path, mode: *mode, leaves: None },
            None if leaves.is_empty() => Region { path, mode: WriteMode::Itself, leaves: None },
            None => {
                let (a, b) = (ends[0].index(leaves.len()), ends[1].index(leaves.len()));
                let (first, last) = (leaves[a.min(b)].clone(), leaves[a.max(b)].clone());
                Region { path, mode: WriteMode::Subtree, leaves: Some(LeafRange { first, last }) }
            }
        }
    }

    proptest! {
        #[test]
        fn overlap_is_set_intersection(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
            picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..5, any::<[prop::sample::Index; 2]>()), 2..12),
        ) {
            let paths = paths(&parents);
            let regions: Vec<Region> =
                picks.iter().map(|(node, mode, ends)| region(&paths, &paths[node.index(paths.len())], *mode, ends)).collect();
            for a in &regions {
                for b in &regions {
                    let expected = !set(&paths, a).is_disjoint(&set(&paths, b));
                    // A region of children counts as overlapping all leaves under its node, also deeper ones.
                    let is_coarse = (a.leaves.is_some() && b.mode == WriteMode::Children)
                        || (b.leaves.is_some() && a.mode == WriteMode::Children);
                    prop_assert!(a.overlaps(b) || !expected, "{:?} {:?}", a, b);
                    prop_assert!(is_coarse || a.overlaps(b) == expected, "{:?} {:?}", a, b);
                }
            }
        }
    }
}
