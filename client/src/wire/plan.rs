//! Plans: what an upload of a file would queue, and why.
use crate::{
    constraint::{Constraint, Form, constrain},
    operation::Wire,
    wire::{DetectedBy, ErrorType, Settled, WriteMode},
    words::wire_words,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

wire_words! {
    /// What becomes of a task.
    PlanOutcome {
        /// The task's condition holds, and an upload queues it.
        Enqueued = "enqueued",
        /// The task is recorded as never attempted, with a reason.
        Skipped = "skipped",
        /// The condition holds, and nothing here can do the task, so nothing is queued.
        Deferred = "deferred",
        /// The condition does not hold for these patterns.
        NotApplicable = "not_applicable",
        /// The condition cannot hold for this format.
        Impossible = "impossible",
        /// The condition depends on patterns that are not known; `if_condition_holds` says the rest.
        Conditional = "conditional",
    }
    /// Where the patterns of a plan come from.
    PatternsSource {
        /// Nobody measured them.
        Unknown = "unknown",
        /// The caller supplied them.
        Supplied = "supplied",
        /// They were measured in the file.
        Probed = "probed",
        /// The format has none to measure.
        NoProber = "no_prober",
    }
}

/// A file of which only this much is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The name of a detector: `text`, `pdf`, `docx`, `pptx`, `xlsx`, `zip`, `ole2`, `html`, `csv`,
    /// `tsv`, `eml`, `json`, `ipynb`, `rtf`, `xml`, `odt`, `odp`, `epub`, `ods`, `xls`, `xlsb`, `msg`,
    /// `doc`, `ppt`, `image`, `vtt` or `srt`. Nothing is queued for another name.
    pub format: String,
    /// What is known of the file: true or false by pattern name, and a number for `sheet_count`. An absent pattern counts as
    /// not measured. Without this object the plan says on what it depends.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::optional")]
    pub patterns: Option<Map<String, Value>>,
    /// The options of the upload, by group.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::value")]
    pub options: Option<Value>,
}
impl Wire for ExplainRequest {
    constrain! { format: Constraint::Text(1, 100, Form::NotBlank) }
}

/// The tasks of a file's ingestion on its way down, from the bytes to the chunks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Plan {
    /// The detector's name.
    pub format: String,
    /// Whether patterns of this format can be measured.
    pub prober_available: bool,
    pub patterns_source: PatternsSource,
    /// False only if `patterns_source` is `unknown`.
    pub patterns_known: bool,
    /// The supplied patterns that no condition consults for this format.
    pub patterns_ignored: Vec<String>,
    /// The resolved options, by group.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options: Value,
    pub tasks: Vec<PlanRow>,
}
impl Wire for Plan {}

/// One task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PlanRow {
    /// The task type.
    pub task: String,
    pub outcome: PlanOutcome,
    /// What a conditional task becomes where its condition holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_condition_holds: Option<PlanOutcome>,
    /// Why the task is not applicable, deferred or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub write_mode: WriteMode,
    /// The patterns that must be true.
    pub requires: Vec<String>,
    /// The patterns that must not be true.
    pub forbids: Vec<String>,
    /// The tasks that end first, if they are queued.
    pub after: Vec<String>,
    /// The resolved options that the task gets.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub params: Map<String, Value>,
}

/// What an upload of these bytes would do. Exactly one of `plan` and `probe_failed` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AnalyzeResponse {
    pub file: AnalyzedFile,
    /// Null if there is no plan for the bytes, because probing them fails.
    pub plan: Option<Plan>,
    pub probe_failed: Option<ProbeFailure>,
    /// Set if an upload would find these bytes stored.
    pub already_stored: Option<StoredAlready>,
}
impl Wire for AnalyzeResponse {}

/// What the bytes are, beside what the client declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AnalyzedFile {
    pub filename: Option<String>,
    pub byte_size: u64,
    /// `sha256:<hex>` of the bytes.
    pub content_hash: String,
    /// The detector's name; null if nothing recognised the bytes.
    pub format: Option<String>,
    pub detected_mime: Option<String>,
    pub detected_by: Option<DetectedBy>,
    /// The media type that the client claimed.
    pub declared_mime: Option<String>,
    /// Whether the two media types are the same; null if one of them is unknown.
    pub mime_agrees: Option<bool>,
}

/// Why the probe of an upload would fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ProbeFailure {
    /// The class that the task's failure would have.
    pub error_type: ErrorType,
    /// The stable reason, for programs.
    pub code: String,
    /// The reason for people.
    pub message: String,
}

/// The node that holds the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct StoredAlready {
    pub document_id: i64,
    pub settled: Settled,
    /// The options that it was ingested with.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options: Value,
    /// Whether they are those of this call; an upload with other options is refused.
    pub options_agree: bool,
}
