//! What a call may carry besides its path and query.
use crate::{
    Failure,
    constraint::{Constraint, as_media_type},
    operation::{Params, Wire},
    reply::{MediaType, NTriples, Turtle, essence},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use serde::{Deserialize, Serialize};

/// A request body as the remote client sends it.
pub trait Body: Send + 'static {
    /// Whether the query of the request may have `include_embed`, which the body takes over.
    const SHOWS_EMBED: bool = false;
    /// Constraints on the body's fields beyond their types.
    fn constraints() -> Vec<(&'static str, Constraint)> {
        Vec::new()
    }
    /// The most bytes of the body that a service holds in memory, where it takes others of so many. What is streamed is not held.
    fn most_bytes(_usual: u64) -> u64 {
        0
    }
    /// Attaches the body to a request that is about to be sent.
    fn attach(
        self,
        request: reqwest::RequestBuilder,
    ) -> impl Future<Output = Result<reqwest::RequestBuilder, Failure>> + Send;
    /// Describes the body and names the schemas that it refers to.
    #[cfg(feature = "openapi")]
    fn describe(
        schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody>;
}

/// No parameters, or no body.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[cfg(feature = "openapi")]
impl utoipa::IntoParams for Nothing {
    fn into_params(
        _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
    ) -> Vec<utoipa::openapi::path::Parameter> {
        Vec::new()
    }
}
impl Params for Nothing {}
impl Body for Nothing {
    async fn attach(self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, Failure> {
        Ok(request)
    }
    #[cfg(feature = "openapi")]
    fn describe(
        _: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody> {
        None
    }
}

/// `application/json`, as a body and as a reply.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: Wire> Body for Json<T> {
    const SHOWS_EMBED: bool = T::SHOWS_EMBED;
    fn constraints() -> Vec<(&'static str, Constraint)> {
        T::constraints()
    }
    fn most_bytes(usual: u64) -> u64 {
        T::most_bytes(usual)
    }
    async fn attach(self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, Failure> {
        Ok(request.json(&self.0))
    }
    #[cfg(feature = "openapi")]
    fn describe(
        schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody> {
        use utoipa::openapi::{ContentBuilder, Required, request_body::RequestBodyBuilder};
        let content = ContentBuilder::new().schema(Some(crate::reply::reference::<T>(schemas))).build();
        Some(RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True)).build())
    }
}

/// `application/json`, or no body at all.
#[derive(Debug)]
pub struct OptionalJson<T>(pub Option<T>);

impl<T: Wire> Body for OptionalJson<T> {
    fn constraints() -> Vec<(&'static str, Constraint)> {
        T::constraints()
    }
    fn most_bytes(usual: u64) -> u64 {
        T::most_bytes(usual)
    }
    async fn attach(self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, Failure> {
        Ok(match self.0 {
            Some(value) => request.json(&value),
            None => request,
        })
    }
    #[cfg(feature = "openapi")]
    fn describe(
        schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody> {
        let mut body = Json::<T>::describe(schemas)?;
        body.required = None;
        Some(body)
    }
}

/// A graph as a text, in one of the forms of RDF that the service reads.
#[derive(Clone, Debug)]
pub struct RdfText {
    pub syntax: RdfSyntax,
    pub text: String,
}

/// A form of RDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdfSyntax {
    Turtle,
    NTriples,
}

impl RdfSyntax {
    pub const ALL: [RdfSyntax; 2] = [RdfSyntax::Turtle, RdfSyntax::NTriples];

    /// Its media type, without parameters.
    pub fn media_type(self) -> &'static str {
        match self {
            RdfSyntax::Turtle => essence(Turtle::NAME),
            RdfSyntax::NTriples => essence(NTriples::NAME),
        }
    }
}

impl Body for RdfText {
    fn most_bytes(usual: u64) -> u64 {
        usual
    }
    async fn attach(self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, Failure> {
        Ok(request.header(http::header::CONTENT_TYPE, self.syntax.media_type()).body(self.text))
    }
    #[cfg(feature = "openapi")]
    fn describe(
        _: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody> {
        Some(texts_of(&RdfSyntax::ALL))
    }
}

/// A text in Turtle, and in no other form of RDF: it is kept to the letter.
#[derive(Clone, Debug)]
pub struct TurtleText(pub String);

impl TurtleText {
    /// Its media type, without parameters.
    pub fn media_type() -> &'static str {
        RdfSyntax::Turtle.media_type()
    }
}

impl Body for TurtleText {
    fn most_bytes(usual: u64) -> u64 {
        usual
    }
    async fn attach(self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, Failure> {
        Ok(request.header(http::header::CONTENT_TYPE, TurtleText::media_type()).body(self.0))
    }
    #[cfg(feature = "openapi")]
    fn describe(
        _: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody> {
        Some(texts_of(&[RdfSyntax::Turtle]))
    }
}

/// A body that is a text in one of these forms.
#[cfg(feature = "openapi")]
fn texts_of(forms: &[RdfSyntax]) -> utoipa::openapi::request_body::RequestBody {
    use utoipa::openapi::{ContentBuilder, ObjectBuilder, Required, Type, request_body::RequestBodyBuilder};
    let mut body = RequestBodyBuilder::new().required(Some(Required::True));
    for syntax in forms {
        let text = ObjectBuilder::new().schema_type(Type::String);
        body = body.content(syntax.media_type(), ContentBuilder::new().schema(Some(text)).build());
    }
    body.build()
}

/// One file and its ingest options, as `multipart/form-data`. The bytes are streamed and never held whole.
pub struct FileUpload {
    pub filename: Option<String>,
    /// The media type that the client claims.
    pub declared_mime: Option<String>,
    /// The total number of bytes, if known beforehand.
    pub length: Option<u64>,
    pub bytes: BoxStream<'static, std::io::Result<Bytes>>,
    /// The ingest options, by group.
    pub options: Option<serde_json::Value>,
}

impl FileUpload {
    /// A file on this machine, streamed from disk.
    pub async fn from_path(path: &std::path::Path, options: Option<serde_json::Value>) -> std::io::Result<FileUpload> {
        let file = tokio::fs::File::open(path).await?;
        let facts = file.metadata().await?;
        // A pipe does not say how much will come out of it.
        let length = facts.is_file().then_some(facts.len());
        // A file that grows meanwhile ends where it ended when it was opened, because its length is sent before it.
        let bytes = tokio::io::AsyncReadExt::take(file, length.unwrap_or(u64::MAX));
        Ok(FileUpload {
            filename: path.file_name().map(|name| name.to_string_lossy().into_owned()),
            declared_mime: None,
            length,
            bytes: tokio_util::io::ReaderStream::with_capacity(bytes, 256 * 1024).boxed(),
            options,
        })
    }

    /// Bytes that are already in memory.
    pub fn from_bytes(filename: &str, bytes: impl Into<Bytes>, options: Option<serde_json::Value>) -> FileUpload {
        let bytes = bytes.into();
        FileUpload {
            filename: Some(filename.to_owned()),
            declared_mime: None,
            length: Some(bytes.len() as u64),
            bytes: futures_util::stream::once(std::future::ready(Ok(bytes))).boxed(),
            options,
        }
    }
}

impl Body for FileUpload {
    async fn attach(self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, Failure> {
        let body = reqwest::Body::wrap_stream(self.bytes);
        let mut part = match self.length {
            Some(length) => reqwest::multipart::Part::stream_with_length(body, length),
            None => reqwest::multipart::Part::stream(body),
        };
        if let Some(filename) = self.filename {
            part = part.file_name(filename);
        }
        if let Some(mime) = self.declared_mime.as_deref().and_then(as_media_type) {
            // A file may come with what is no media type; the service says what it makes of that, and keeps as much of it.
            let mime = reqwest::header::HeaderValue::from_bytes(mime.as_bytes());
            let mime = mime.map_err(|error| Failure::field("declared_mime", error))?;
            part = part.headers([(reqwest::header::CONTENT_TYPE, mime)].into_iter().collect());
        }
        let mut form = reqwest::multipart::Form::new();
        if let Some(options) = self.options {
            form = form.text("options", options.to_string());
        }
        Ok(request.multipart(form.part("file", part)))
    }
    #[cfg(feature = "openapi")]
    fn describe(
        _: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
    ) -> Option<utoipa::openapi::request_body::RequestBody> {
        use utoipa::openapi::{
            ContentBuilder, KnownFormat, ObjectBuilder, Required, SchemaFormat, Type, request_body::RequestBodyBuilder,
        };
        let file =
            ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
        let options = ObjectBuilder::new().schema_type(Type::Object).description(Some("ingest options by group"));
        let form = ObjectBuilder::new()
            .schema_type(Type::Object)
            .property("file", file)
            .required("file")
            .property("options", options)
            .additional_properties(Some(
                utoipa::openapi::schema::AdditionalProperties::<utoipa::openapi::Schema>::FreeForm(false),
            ));
        let content = ContentBuilder::new().schema(Some(form)).build();
        Some(RequestBodyBuilder::new().content("multipart/form-data", content).required(Some(Required::True)).build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;
    use std::io::Write;

    #[tokio::test]
    async fn a_file_that_grows_is_sent_as_it_was_when_it_was_opened() {
        let path = std::env::temp_dir().join(format!("svc-client-grows-{}.log", std::process::id()));
        std::fs::write(&path, "one line\n").unwrap();
        let upload = FileUpload::from_path(&path, None).await.unwrap();
        let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(b"and another one\n").unwrap();
        let sent = upload.bytes.try_collect::<Vec<Bytes>>().await.unwrap().concat();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((sent, upload.length), (b"one line\n".to_vec(), Some(9)));
    }

    #[tokio::test]
    async fn what_is_no_plain_file_has_no_length() {
        let upload = FileUpload::from_path(std::path::Path::new("/dev/null"), None).await.unwrap();
        assert_eq!(upload.length, None);
    }
}
