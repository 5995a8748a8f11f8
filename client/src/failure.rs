//! The only error on the wire: an RFC 9457 problem (`application/problem+json`).
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes { ($(
    $(#[doc = $doc:literal])* $name:ident = $text:literal, $status:literal, $title:literal $(, [$($member:literal),*])?;
)*) => {
    /// Why a call failed. A code is stable, and is always sent with the same status.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Code { $( $(#[doc = $doc])* #[serde(rename = $text)] $name, )* }

    impl Code {
        /// Every code, for documentation and tests.
        pub const ALL: &[Code] = &[$( Code::$name ),*];
        /// The wire form, snake_case.
        pub fn as_str(self) -> &'static str { match self { $( Code::$name => $text, )* } }
        /// The HTTP status that the code is always sent with (0: never sent by a server).
        pub fn status(self) -> u16 { match self { $( Code::$name => $status, )* } }
        /// A short title, the same for every occurrence.
        pub fn title(self) -> &'static str { match self { $( Code::$name => $title, )* } }
        /// When the code is sent, in a sentence or two.
        pub fn meaning(self) -> &'static str { match self { $( Code::$name => concat!($($doc),*).trim_ascii(), )* } }
        /// The members that a problem of this code may carry besides the standard ones; docs/errors.md explains each.
        pub fn members(self) -> &'static [&'static str] { match self { $( Code::$name => &[$($($member),*)?], )* } }
    }
} }

codes! {
    /// The request cannot be read: broken JSON, a broken form, a bad header, or a body that broke off.
    MalformedRequest = "malformed_request", 400, "The request cannot be read";
    /// An ingest option has a key that does not exist.
    UnknownOption = "unknown_option", 400, "An option key is not known", ["key"];
    /// A file with these bytes is stored already and was ingested with other options.
    StoredWithOtherOptions = "stored_with_other_options", 400, "The same bytes are stored with other options",
        ["document_id", "stored_options", "requested_options"];
    /// The bearer token is missing or wrong.
    Unauthenticated = "unauthenticated", 401, "A valid bearer token is needed";
    /// The caller may read the resource but may not change it, or the operation is the owner's alone.
    Forbidden = "forbidden", 403, "The caller may not do this", ["document_id", "index"];
    /// The resource does not exist, or the caller may not read it; the answer is the same for both.
    NotFound = "not_found", 404, "No such resource", ["index"];
    /// The path exists but does not take the request's method.
    MethodNotAllowed = "method_not_allowed", 405, "The resource does not take this method";
    /// The request's body arrived too slowly.
    RequestTimeout = "request_timeout", 408, "The request did not come in time", ["setting"];
    /// The resource is in a state that does not allow the request, for example because a task holds this part of the tree.
    Conflict = "conflict", 409, "The request conflicts with the present state",
        ["task_status", "task_id", "task_type", "worker", "file_id", "model", "link_id", "started_at", "running_options", "document_ids", "index",
            "reason", "triple_id", "invalidated_by", "premises", "predicate_id", "to_model"];
    /// Events after the given one were deleted, because they were too old, or a failover of the database lost them.
    EventsExpired = "events_expired", 410, "The events are no longer kept", ["oldest_seq"];
    /// The resource is no longer in the version that `If-Match` names; nothing was changed.
    PreconditionFailed = "precondition_failed", 412, "The resource has changed", ["document_id"];
    /// The file, the body or the requested area is larger than its limit.
    TooLarge = "too_large", 413, "The request is too large", ["limit", "setting", "cells", "ref", "line", "column", "document_id"];
    /// The body's media type is not one that the operation takes.
    UnsupportedMediaType = "unsupported_media_type", 415, "The media type is not accepted here";
    /// The requested range of bytes is outside the file.
    RangeNotSatisfiable = "range_not_satisfiable", 416, "The range is outside the file", ["size"];
    /// A field has a value that its constraint forbids; the detail names both.
    InvalidField = "invalid_field", 422, "A field breaks a constraint",
        ["document_id", "column", "field", "index", "limit", "line", "ref", "sheets"];
    /// A bound shape refuses what the write would make of the facts; nothing was stored.
    ShapeViolation = "shape_violation", 422, "A shape refuses the facts", ["results"];
    /// The document is neither a readable workbook (xlsx, xlsb, xls, ods, csv or tsv) nor a part of one.
    NotAWorkbook = "not_a_workbook", 422, "The document is not in a workbook", ["reason"];
    /// The password given with the upload does not open the file.
    WrongPassword = "wrong_password", 422, "The password does not open the file", ["field"];
    /// The text has more tokens than the model's window; svc never truncates a text.
    TextTooLong = "text_too_long", 422, "The text is longer than the model's window",
        ["token_count", "limit", "chars_total", "index", "field"];
    /// An address that the service was to fetch did not give what was expected of it; nothing was stored.
    FetchFailed = "fetch_failed", 424, "The source could not be fetched", ["upstream_status"];
    /// Client and service come from different releases.
    VersionMismatch = "version_mismatch", 426, "Client and service are of different versions",
        ["client_version", "service_version"];
    /// As many requests of this kind are being served, or were made by this principal, as a setting allows.
    TooManyRequests = "too_many_requests", 429, "Too much is waiting", ["setting"];
    /// A defect or an unexpected error; the log has the cause under the problem's `request_id`.
    Internal = "internal", 500, "The service failed", ["document_id", "without_direction"];
    /// The endpoint of the language model refused the call or gave no usable answer; `setting` is what to look at.
    LlmFailed = "llm_failed", 502, "The language model gave no usable answer", ["setting", "upstream_status"];
    /// No sentence of the language model's answer is supported by a literal quote from the sources; `sentences` has what it said.
    UngroundedAnswer = "ungrounded_answer", 502, "The answer is not grounded in the sources", ["sentences", "document_ids"];
    /// The operation needs a model, a key or another part that this service was started without.
    NotConfigured = "not_configured", 501, "This needs a part that is not configured", ["setting"];
    /// The request, or one of its statements, took longer than a setting allows.
    TimedOut = "timed_out", 503, "The request asks for more than the time allowed", ["setting"];
    /// The service, its database or its model is away for the moment; the same request may succeed later.
    Unavailable = "unavailable", 503, "The service cannot answer now",
        ["setting", "document_id", "task_id", "frontier", "blocked_by", "checks", "models", "reranker", "sampled_seconds_ago"];
    /// The disk of the data folder or of the database is full; nothing was changed. A read may need room there too.
    StorageFull = "storage_full", 507, "Nothing more can be stored";
    /// The client could not reach the service, or could not read its answer.
    Unreachable = "unreachable", 0, "The service could not be reached", ["sent", "only_reads"];
}

// Written by hand: utoipa's derive cannot read a name that a macro passes on, and would list the Rust names instead.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Code {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let sent = Code::ALL.iter().filter(|code| code.status() != 0).map(|code| code.as_str());
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::Type::String)
            .description(Some("Why a call failed. A code is stable, and is always sent with the same status."))
            .enum_values(Some(sent))
            .into()
    }
}
#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Code {}

/// The answer to every failed call, over HTTP and in process alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// A URN that names the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title of the code.
    pub title: String,
    /// HTTP status; 0 if no answer came.
    pub status: u16,
    /// What happened, in a sentence that names the thing and the remedy.
    pub detail: String,
    /// The path that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The stable reason, for programs.
    pub code: Code,
    /// Identifies the request in the service's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Further members, by name; [`Code::members`] lists those of each code.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl Failure {
    /// Makes a failure with this code and a detail for people.
    pub fn new(code: Code, detail: impl std::fmt::Display) -> Failure {
        Failure {
            kind: format!("urn:svc:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.to_string(),
            instance: None,
            code,
            request_id: None,
            members: Map::new(),
        }
    }

    /// Adds a member, which must be one of [`Code::members`], `remedy` or `retry_after`.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Failure {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// Makes the 422 for a field that breaks a constraint.
    pub fn field(field: &str, detail: impl std::fmt::Display) -> Failure {
        Failure::new(Code::InvalidField, format!("{field}: {detail}")).with("field", field)
    }

    /// The same, where what holds the field is a part of something larger.
    pub(crate) fn within(mut self, part: &str) -> Failure {
        if let Some(Value::String(field)) = self.members.get_mut("field") {
            *field = format!("{part}.{field}");
            self.detail = format!("{part}.{}", self.detail);
        }
        self
    }

    /// Makes the 404 for a document. The bytes are the same whether it is absent or the caller may not read it.
    pub fn no_document(id: i64) -> Failure {
        Failure::new(Code::NotFound, format!("there is no document {id}"))
    }

    pub(crate) fn unreachable(error: impl std::fmt::Display) -> Failure {
        Failure::new(Code::Unreachable, error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.detail, self.code.as_str())?;
        if let Some(remedy) = self.members.get("remedy").and_then(Value::as_str) {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests;
