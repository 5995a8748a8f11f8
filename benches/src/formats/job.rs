//! What the two sides are asked to do, and what they say of it: lines of JSON, the same for both.
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One kind of reading, of these files; a round of it for every line that follows the job's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub work: Work,
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// The text of every page; counts pages.
    Pdf,
    /// An office file as Markdown; counts characters.
    Markdown,
    /// Every cell of every sheet, by us as ingestion reads them: for the profile, then for the records. Counts those with a
    /// value.
    Cells,
    /// Detection and patterns; counts files. The peers have no like of it.
    Probe,
}

/// A round over all files of the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// Of whoever did it.
    pub version: String,
    /// In the order of the job; none for a file that was not read.
    pub files: Vec<Option<Done>>,
    /// Most memory that the process had resident at once, so far.
    pub peak_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Done {
    /// The lesser of wall and processor time.
    pub seconds: f64,
    /// Of what the work says.
    pub count: u64,
}
