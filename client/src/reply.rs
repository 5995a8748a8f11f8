//! What a call may answer.
use crate::{Failure, Incoming, Json, operation::Wire};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header;
use std::{marker::PhantomData, ops::Range};

/// The form of a successful answer.
pub trait Reply: Send + 'static {
    type Value: Send;
    /// Whether the status means success.
    fn is_success(status: u16) -> bool;
    /// What this client sends in `Accept`.
    fn accept() -> &'static str;
    /// The names of the request headers that the reply uses.
    fn heeds() -> Vec<&'static str> {
        Vec::new()
    }
    /// Reads a successful answer. A streamed one is returned before its body has arrived.
    fn receive(answer: Incoming) -> impl Future<Output = Result<Self::Value, Failure>> + Send;
    /// Describes the answer for each successful status and names the schemas that it refers to.
    #[cfg(feature = "openapi")]
    fn describe(schemas: &mut Schemas) -> Vec<Described>;
}

#[cfg(feature = "openapi")]
pub(crate) type Schemas = Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>;

/// One answer of an operation, for the contract.
#[cfg(feature = "openapi")]
pub struct Described {
    pub status: u16,
    pub response: utoipa::openapi::Response,
    /// The names of its headers, besides those of every answer.
    pub headers: Vec<&'static str>,
}

#[cfg(feature = "openapi")]
impl Described {
    /// An answer in one of these media types, or without a body.
    pub fn new(
        status: u16,
        description: &str,
        content: &[(&str, utoipa::openapi::RefOr<utoipa::openapi::Schema>)],
    ) -> Described {
        let mut response = utoipa::openapi::ResponseBuilder::new().description(description);
        for (media_type, schema) in content {
            let content = utoipa::openapi::ContentBuilder::new().schema(Some(schema.clone())).build();
            response = response.content(*media_type, content);
        }
        Described { status, response: response.build(), headers: Vec::new() }
    }

    /// Adds headers to the answer.
    #[must_use]
    pub fn with(mut self, headers: &[&'static str]) -> Described {
        self.headers.extend(headers);
        self
    }
}

/// A reference to the named schema of `T`, which is added to `schemas` with everything that it uses.
#[cfg(feature = "openapi")]
pub(crate) fn reference<T: utoipa::ToSchema>(schemas: &mut Schemas) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
    utoipa::openapi::Ref::from_schema_name(T::name()).into()
}

macro_rules! json_reply {
    ($name:ident, $status:literal, $description:literal $(, $header:literal)?) => {
        impl<T: Wire> Reply for $name<T> {
            type Value = T;
            fn is_success(status: u16) -> bool {
                status == $status
            }
            fn accept() -> &'static str {
                "application/json"
            }
            async fn receive(answer: Incoming) -> Result<T, Failure> {
                serde_json::from_slice(&answer.bytes().await?)
                    .map_err(|e| Failure::unreachable(format!("the answer does not have the form of this version: {e}")))
            }
            #[cfg(feature = "openapi")]
            fn describe(schemas: &mut Schemas) -> Vec<Described> {
                let content = [("application/json", reference::<T>(schemas))];
                vec![Described::new($status, $description, &content).with(&[$($header)?])]
            }
        }
    };
}

/// 201 with the new resource and its Location.
pub struct Created<T>(pub T);
/// 202: the request is stored, and work on it continues.
pub struct Accepted<T>(pub T);
json_reply!(Json, 200, "Success");
json_reply!(Created, 201, "Created", "Location");
json_reply!(Accepted, 202, "Accepted");

/// Where a new resource can be read.
pub trait Located {
    /// An absolute path of this service.
    fn location(&self) -> String;
}

/// 204, without a body.
pub struct NoContent;
impl Reply for NoContent {
    type Value = ();
    fn is_success(status: u16) -> bool {
        status == 204
    }
    fn accept() -> &'static str {
        "*/*"
    }
    async fn receive(_: Incoming) -> Result<(), Failure> {
        Ok(())
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut Schemas) -> Vec<Described> {
        vec![Described::new(204, "Done", &[])]
    }
}

/// A media type of text.
pub trait MediaType: Send + 'static {
    /// The value of `Content-Type`, with its parameters.
    const NAME: &'static str;
    /// What a browser may do with it (`Content-Security-Policy`).
    const POLICY: Option<&'static str> = None;
}

/// Metrics in Prometheus' text form.
pub struct Prometheus;
impl MediaType for Prometheus {
    const NAME: &'static str = "text/plain; version=0.0.4; charset=utf-8";
}
/// A page without style and script.
pub struct Html;
impl MediaType for Html {
    const NAME: &'static str = "text/html; charset=utf-8";
    const POLICY: Option<&'static str> =
        Some("default-src 'none'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}
/// RDF as Turtle, its readable form.
pub struct Turtle;
impl MediaType for Turtle {
    const NAME: &'static str = "text/turtle; charset=utf-8";
}

/// RDF as N-Triples, one triple a line.
pub struct NTriples;
impl MediaType for NTriples {
    const NAME: &'static str = "application/n-triples; charset=utf-8";
}

/// The media type without its parameters.
pub(crate) fn essence(name: &'static str) -> &'static str {
    name.split(';').next().unwrap_or(name)
}

#[cfg(feature = "openapi")]
fn text_response(media_type: &'static str) -> Vec<Described> {
    let text = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::Type::String);
    vec![Described::new(200, "Success", &[(essence(media_type), text.into())])]
}

/// 200 with a text that is complete before it is sent.
pub struct Text<M>(PhantomData<M>);
impl<M: MediaType> Reply for Text<M> {
    type Value = String;
    fn is_success(status: u16) -> bool {
        status == 200
    }
    fn accept() -> &'static str {
        essence(M::NAME)
    }
    async fn receive(answer: Incoming) -> Result<String, Failure> {
        let bytes = answer.bytes().await?;
        String::from_utf8(bytes).map_err(|e| Failure::unreachable(format!("the answer is not UTF-8: {e}")))
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut Schemas) -> Vec<Described> {
        text_response(M::NAME)
    }
}

/// Bytes of a body, as they arrive. A failure is always the last item.
pub type Pieces = BoxStream<'static, Result<Bytes, Failure>>;

/// 200 with a text of any length that is sent while it is produced.
pub struct TextStream<M>(PhantomData<M>);
impl<M: MediaType> Reply for TextStream<M> {
    type Value = Pieces;
    fn is_success(status: u16) -> bool {
        status == 200
    }
    fn accept() -> &'static str {
        essence(M::NAME)
    }
    async fn receive(answer: Incoming) -> Result<Pieces, Failure> {
        Ok(answer.pieces())
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut Schemas) -> Vec<Described> {
        text_response(M::NAME)
    }
}

/// A file, or one range of it.
pub struct Download {
    pub media_type: String,
    /// A plain name without folders.
    pub file_name: Option<String>,
    /// The size of the whole file, in bytes.
    pub size: u64,
    /// The range that is sent; `None` if it is the whole file.
    pub part: Option<Range<u64>>,
    pub bytes: Pieces,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} ({}), {:?} of {} bytes", self.file_name, self.media_type, self.part, self.size)
    }
}

/// 200 with the bytes of a file, or 206 with one range of them; 416 is a failure.
pub struct FileBytes;
impl Reply for FileBytes {
    type Value = Download;
    fn is_success(status: u16) -> bool {
        matches!(status, 200 | 206)
    }
    fn accept() -> &'static str {
        "*/*"
    }
    fn heeds() -> Vec<&'static str> {
        vec!["range", "if-range"]
    }
    async fn receive(answer: Incoming) -> Result<Download, Failure> {
        let misread = |name: &str| Failure::unreachable(format!("the answer has no readable `{name}`"));
        let media_type = answer.header(header::CONTENT_TYPE).unwrap_or("application/octet-stream").to_owned();
        let file_name = answer.header(header::CONTENT_DISPOSITION).and_then(file_name);
        let (part, size) = match answer.status {
            206 => {
                let text = answer.header(header::CONTENT_RANGE);
                let (part, size) = text.and_then(content_range).ok_or_else(|| misread("Content-Range"))?;
                (Some(part), size)
            }
            _ => {
                let length = answer.header(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
                (None, length.ok_or_else(|| misread("Content-Length"))?)
            }
        };
        Ok(Download { media_type, file_name, size, part, bytes: answer.pieces() })
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut Schemas) -> Vec<Described> {
        use utoipa::openapi::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        let bytes = || {
            let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
            ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
        };
        // The media type is that of the file; generators of clients know `application/octet-stream`.
        let content = [("application/octet-stream", bytes()), ("*/*", bytes())];
        let headers = ["Accept-Ranges", "Content-Disposition", "Content-Length"];
        vec![
            Described::new(200, "The whole file", &content).with(&headers),
            Described::new(206, "The requested range", &content).with(&headers).with(&["Content-Range"]),
        ]
    }
}

/// Reads `bytes 0-9/100` as a range and the size of the whole.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?, size.parse().ok()?))
}

/// The `filename*` of a `Content-Disposition`, as RFC 8187 writes it.
fn file_name(disposition: &str) -> Option<String> {
    let encoded = disposition.split(';').find_map(|part| part.trim().strip_prefix("filename*=UTF-8''"))?;
    percent_encoding::percent_decode_str(encoded).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The answer to a caller who may already have it.
#[derive(Clone, Debug)]
pub enum Validated<V> {
    /// The caller has the current version.
    NotModified { etag: String },
    Modified {
        /// The version, as an entity tag of RFC 9110; empty if the service gave none.
        etag: String,
        value: V,
    },
}

impl<V> Validated<V> {
    /// The value. Fails if the caller named a version and that version is current.
    pub fn value(self) -> Result<V, Failure> {
        match self {
            Validated::Modified { value, .. } => Ok(value),
            Validated::NotModified { .. } => Err(Failure::unreachable("the answer is 304, so it has no body")),
        }
    }

    /// The entity tag of the current version.
    pub fn etag(&self) -> &str {
        match self {
            Validated::NotModified { etag } | Validated::Modified { etag, .. } => etag,
        }
    }
}

/// The answer of `R` with an `ETag`, or 304 for a caller whose `If-None-Match` names the current version.
pub struct Conditional<R>(PhantomData<R>);
impl<R: Reply> Reply for Conditional<R> {
    type Value = Validated<R::Value>;
    fn is_success(status: u16) -> bool {
        status == 304 || R::is_success(status)
    }
    fn accept() -> &'static str {
        R::accept()
    }
    fn heeds() -> Vec<&'static str> {
        [vec!["if-none-match"], R::heeds()].concat()
    }
    async fn receive(answer: Incoming) -> Result<Self::Value, Failure> {
        let etag = answer.header(header::ETAG).unwrap_or_default().to_owned();
        Ok(match answer.status {
            304 => Validated::NotModified { etag },
            _ => Validated::Modified { etag, value: R::receive(answer).await? },
        })
    }
    #[cfg(feature = "openapi")]
    fn describe(schemas: &mut Schemas) -> Vec<Described> {
        let mut all: Vec<_> =
            R::describe(schemas).into_iter().map(|one| one.with(&["ETag", "Cache-Control"])).collect();
        all.push(Described::new(304, "The caller has the current version", &[]).with(&["ETag", "Cache-Control"]));
        all
    }
}

/// A value with the version that it has now.
#[derive(Clone, Debug)]
pub struct Version<V> {
    /// The entity tag by which a later change may name this version; empty if the service gave none.
    pub etag: String,
    pub value: V,
}

/// The answer of `R` with an `ETag`. A caller whose `If-Match` names only other versions gets 412, and nothing is changed.
pub struct Versioned<R>(PhantomData<R>);
impl<R: Reply> Reply for Versioned<R> {
    type Value = Version<R::Value>;
    fn is_success(status: u16) -> bool {
        R::is_success(status)
    }
    fn accept() -> &'static str {
        R::accept()
    }
    fn heeds() -> Vec<&'static str> {
        [vec!["if-match"], R::heeds()].concat()
    }
    async fn receive(answer: Incoming) -> Result<Self::Value, Failure> {
        let etag = answer.header(header::ETAG).unwrap_or_default().to_owned();
        Ok(Version { etag, value: R::receive(answer).await? })
    }
    #[cfg(feature = "openapi")]
    fn describe(schemas: &mut Schemas) -> Vec<Described> {
        R::describe(schemas).into_iter().map(|one| one.with(&["ETag"])).collect()
    }
}

/// The answer of `R`, without an `ETag`, to a change that heeds `If-Match`, such as a deletion.
pub struct Guarded<R>(PhantomData<R>);
impl<R: Reply> Reply for Guarded<R> {
    type Value = R::Value;
    fn is_success(status: u16) -> bool {
        R::is_success(status)
    }
    fn accept() -> &'static str {
        R::accept()
    }
    fn heeds() -> Vec<&'static str> {
        [vec!["if-match"], R::heeds()].concat()
    }
    async fn receive(answer: Incoming) -> Result<Self::Value, Failure> {
        R::receive(answer).await
    }
    #[cfg(feature = "openapi")]
    fn describe(schemas: &mut Schemas) -> Vec<Described> {
        R::describe(schemas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_part_says_which_it_is() {
        assert_eq!(content_range("bytes 0-9/100"), Some((0..10, 100)));
        for other in ["bytes */100", "bytes 0-9/*", "bytes 0-9", "lines 0-9/100", "bytes 0-18446744073709551615/1"] {
            assert_eq!(content_range(other), None, "{other}");
        }
        let name = r#"attachment; filename="na_ve.txt"; filename*=UTF-8''na%C3%AFve%3B.txt"#;
        assert_eq!(file_name(name).as_deref(), Some("naïve;.txt"));
        assert_eq!(file_name("attachment"), None);
    }
}
