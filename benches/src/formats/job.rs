//! What both sides are asked to do and what they answer: lines of JSON, the same for both.
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One kind of reading of these files; each line after the job asks for a round of it.
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
    /// A file as Markdown by docling.rs; counts characters.
    Docling,
    /// The elements of a file by unstructured; counts characters.
    Unstructured,
    /// Every cell of every sheet, read by us as ingestion does: for the profile, then for the records. Counts cells
    /// with a value.
    Cells,
    /// The same for workbooks that another peer reads.
    Sheets,
    /// The same for tables in text.
    Rows,
    /// The headers and the body of a message; counts characters.
    Mail,
    /// Detection and patterns; counts files. The peers have nothing like it.
    Probe,
}

/// A round over all files of the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// The version of the program that did it.
    pub version: String,
    /// In the order of the job; `None` for a file that was not read.
    pub files: Vec<Option<Done>>,
    /// The most memory that the process has had resident so far.
    pub peak_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Done {
    /// The lesser of wall time and processor time.
    pub seconds: f64,
    /// The number of what the work counts.
    pub count: u64,
}
