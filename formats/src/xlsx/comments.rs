//! Notes and threaded comments on cells.

use serde::{Deserialize, Serialize};

use super::range::CellRef;

/// A note, or one entry of a thread; a thread's entries follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    pub cell: CellRef,
    /// Empty where the file names none.
    pub author: String,
    pub text: String,
}
