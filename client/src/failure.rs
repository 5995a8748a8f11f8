//! The one error of the wire: RFC 9457 `application/problem+json`.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes { ($( $(#[doc = $doc:literal])* $name:ident = $text:literal, $status:literal, $title:literal; )*) => {
    /// Why a call failed; stable, and with exactly one status each.
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
    }
} }

codes! {
    MalformedRequest = "malformed_request", 400, "The request cannot be read";
    UnknownOption = "unknown_option", 400, "An option key is not known";
    StoredWithOtherOptions = "stored_with_other_options", 400, "The same bytes are stored with other options";
    Unauthenticated = "unauthenticated", 401, "A valid bearer token is needed";
    Forbidden = "forbidden", 403, "The caller may read this but not change it";
    NotFound = "not_found", 404, "No such resource";
    MethodNotAllowed = "method_not_allowed", 405, "The resource does not take this method";
    RequestTimeout = "request_timeout", 408, "The request did not come in time";
    Conflict = "conflict", 409, "The request conflicts with the present state";
    TooLarge = "too_large", 413, "The request is too large";
    UnsupportedMediaType = "unsupported_media_type", 415, "The media type is not accepted here";
    InvalidField = "invalid_field", 422, "A field breaks a constraint";
    NotAWorkbook = "not_a_workbook", 422, "The document lies in no workbook";
    WrongPassword = "wrong_password", 422, "The password does not open the file";
    TextTooLong = "text_too_long", 422, "The text is longer than the model's window";
    VersionMismatch = "version_mismatch", 426, "Client and service are of different versions";
    TooManyRequests = "too_many_requests", 429, "Too much is waiting";
    Internal = "internal", 500, "The service failed";
    NotConfigured = "not_configured", 501, "This needs a part that is not configured";
    TimedOut = "timed_out", 503, "The request asks for more than the time allowed";
    Unavailable = "unavailable", 503, "The service cannot answer now";
    StorageFull = "storage_full", 507, "Nothing more can be stored";
    /// The client could not reach the service or not read its answer.
    Unreachable = "unreachable", 0, "The service could not be reached";
}

// Written by hand: utoipa's derive does not read a name that a macro hands over, and would list the names of Rust.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Code {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let sent = Code::ALL.iter().filter(|code| code.status() != 0).map(|code| code.as_str());
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::Type::String)
            .description(Some("Why a call failed; stable, and each is always sent with the same status."))
            .enum_values(Some(sent))
            .into()
    }
}
#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Code {}

/// What every failed call answers, over HTTP and in process alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// A URN that names the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title of the code.
    pub title: String,
    /// HTTP status; 0 where no answer came.
    pub status: u16,
    /// What happened, naming the thing and the remedy.
    pub detail: String,
    /// The path that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Stable reason, for programs.
    pub code: Code,
    /// Identifies the request in the service's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What the code promises beside: `limit`, `token_count`, `key`, `remedy`, ...
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl Failure {
    /// A failure of this code with a detail for people.
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

    /// Adds a member that the code promises.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Failure {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// A field that breaks a constraint: 422 naming it.
    pub fn field(field: &str, detail: impl std::fmt::Display) -> Failure {
        Failure::new(Code::InvalidField, format!("{field}: {detail}")).with("field", field)
    }

    /// Nothing here that the caller may read; the same bytes for absent and for forbidden.
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
