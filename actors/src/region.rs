//! The part of the document tree a task reserves.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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

/// A word that is not a write mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown write mode {0:?}: use self, children or subtree")]
pub struct UnknownWriteMode(pub String);

impl FromStr for WriteMode {
    type Err = UnknownWriteMode;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "self" => Ok(WriteMode::Itself),
            "children" => Ok(WriteMode::Children),
            "subtree" => Ok(WriteMode::Subtree),
            // The word comes from outside, so only its beginning is shown.
            other => Err(UnknownWriteMode(other.chars().take(64).collect())),
        }
    }
}

/// A node, and everything below it that `mode` reaches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// Node ids from the tree's root down to the node itself (a document's `path` stops at its parent).
    pub path: Vec<i64>,
    pub mode: WriteMode,
}

impl Region {
    /// Whether the two sets of nodes intersect, now or after any insertion.
    pub fn overlaps(&self, other: &Region) -> bool {
        let (upper, lower) = if self.path.len() <= other.path.len() { (self, other) } else { (other, self) };
        lower.path.starts_with(&upper.path) && lower.path.len() - upper.path.len() <= upper.mode.reach()
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
        let parent = Region { path: vec![1], mode: WriteMode::Children };
        let unborn = Region { path: vec![1, i64::MAX], mode: WriteMode::Itself };
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
                match region.mode {
                    WriteMode::Itself => path.last() == Some(&node),
                    WriteMode::Children => path.last() == Some(&node) || parent == Some(node),
                    WriteMode::Subtree => path.contains(&node),
                }
            })
            .map(|path| *path.last().unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn overlap_is_set_intersection(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
            picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3), 2..12),
        ) {
            let paths = paths(&parents);
            let regions: Vec<Region> =
                picks.iter().map(|(node, mode)| Region { path: node.get(&paths).clone(), mode: MODES[*mode] }).collect();
            for a in &regions {
                for b in &regions {
                    let expected = !set(&paths, a).is_disjoint(&set(&paths, b));
                    prop_assert_eq!(a.overlaps(b), expected, "{:?} {:?}", a, b);
                }
            }
        }
    }
}
