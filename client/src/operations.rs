//! The operations of the service, one row each. Everything else is derived from this table.
use crate::{body::*, operation::*, reply::*, wire::*};

/// Hands the table to a macro: `operation_table!(mount_all)`.
#[macro_export]
macro_rules! operation_table { ($expand:ident) => { $expand! {
    /// Stores one file and queues its ingestion; returns before that work is done.
    POST   "/ingest/file"                 upload_file(query: UploadQuery, body: FileUpload) -> Accepted<UploadResponse>;
    /// Counts what is still to be done under an ingested file.
    GET    "/ingest/file/{id}/frontier"   read_frontier(path: DocumentPath) -> Json<FrontierResponse>;

    /// Creates a document; with `wait` it answers once the document can be found.
    POST   "/documents"                   create_document(query: WaitQuery, body: Json<NewDocument>) -> Created<DocumentResponse>;
    /// Lists the documents without a parent, page by page.
    GET    "/documents/roots"             list_roots(query: PageQuery) -> Json<DocumentPage>;
    /// Reads one document; its vector only on request.
    GET    "/documents/{id}"              read_document(path: DocumentPath, query: EmbedQuery) -> Json<DocumentResponse>;
    /// Deletes a document, all under it, and their stored bytes.
    DELETE "/documents/{id}"              delete_document(path: DocumentPath) -> NoContent;
    /// Lists a document's children in their order, page by page.
    GET    "/documents/{id}/children"     list_children(path: DocumentPath, query: PageQuery) -> Json<DocumentPage>;
    /// Lists all under a document, parents before children, page by page.
    GET    "/documents/{id}/subtree"      list_subtree(path: DocumentPath, query: PageQuery) -> Json<DocumentPage>;
    /// Lists a document's typed links, in both directions.
    GET    "/documents/{id}/links"        list_links(path: DocumentPath, query: PageQuery) -> Json<LinkPage>;
    /// Reads all that the pipeline recorded about a document.
    GET    "/documents/{id}/evidence"     read_evidence(path: DocumentPath) -> Json<EvidenceResponse>;

    /// Searches by the cosine similarity of document vectors.
    POST   "/search/vector"               search_vector(body: Json<VectorSearch>) -> Json<SearchResponse>, needs Model;
    /// Searches by PostgreSQL full text.
    POST   "/search/fulltext"             search_fulltext(body: Json<FulltextSearch>) -> Json<SearchResponse>;
    /// Searches by BM25 over an index.
    POST   "/search/bm25"                 search_bm25(body: Json<Bm25Search>) -> Json<SearchResponse>;
    /// Searches by rank fusion of vector and BM25.
    POST   "/search/hybrid"               search_hybrid(body: Json<HybridSearch>) -> Json<SearchResponse>, needs Model;
    /// Searches with the defaults, for a browser's address line.
    GET    "/search/"                     search(query: SearchQuery) -> Json<SearchResponse>, needs Model;

    /// Says that the process is alive.
    GET    "/health"                      read_health() -> Json<HealthResponse>, access Public;
    /// Says whether the service can do its work, and what is missing.
    GET    "/ready"                       read_readiness() -> Json<ReadinessResponse>, access Public;
    /// Reads the metrics in Prometheus' text form.
    GET    "/metrics"                     read_metrics() -> Text, access Metrics;
    /// Reads this contract.
    GET    "/openapi.json"                read_openapi() -> Json<OpenApiDocument>, access Public;
} } }

/// Picks the named part out of an argument list, `Nothing` where it is absent.
macro_rules! part {
    (path  [path: $x:ty $(, $($rest:tt)*)?]) => { $x };
    (query [query: $x:ty $(, $($rest:tt)*)?]) => { $x };
    (body  [body: $x:ty $(, $($rest:tt)*)?]) => { $x };
    ($want:ident [$other:ident: $x:ty $(, $($rest:tt)*)?]) => { part!($want [$($($rest)*)?]) };
    ($want:ident []) => { Nothing };
}
macro_rules! value {
    (path  [path: $x:ident $(, $($rest:tt)*)?]) => { $x };
    (query [query: $x:ident $(, $($rest:tt)*)?]) => { $x };
    (body  [body: $x:ident $(, $($rest:tt)*)?]) => { $x };
    ($want:ident [$other:ident: $x:ident $(, $($rest:tt)*)?]) => { value!($want [$($($rest)*)?]) };
    ($want:ident []) => { Nothing {} };
}
macro_rules! access {
    () => {
        Access::Token
    };
    ($access:ident) => {
        Access::$access
    };
}
macro_rules! needs {
    () => {
        None
    };
    ($need:ident) => {
        Some(Need::$need)
    };
}

macro_rules! define_operations { ($(
    #[doc = $doc:literal] $method:ident $path:literal $name:ident( $($arg:ident: $T:ty),* ) -> $reply:ty
        $(, access $access:ident)? $(, needs $need:ident)?;
)*) => {
    /// One marker type per operation, named as its row is.
    #[expect(non_camel_case_types, reason = "one snake_case name is marker, handler, method, operationId and label")]
    pub mod ops { $( #[doc = $doc] pub enum $name {} )* }

    $( impl Operation for ops::$name {
        const INFO: OperationInfo = OperationInfo {
            name: stringify!($name), method: http::Method::$method, path: $path,
            access: access!($($access)?), needs: needs!($($need)?), summary: $doc.trim_ascii(),
        };
        type Path = part!(path [$($arg: $T),*]);
        type Query = part!(query [$($arg: $T),*]);
        type Body = part!(body [$($arg: $T),*]);
        type Reply = $reply;
    } )*

    /// Every operation of the service.
    pub const OPERATIONS: &[OperationInfo] = &[$( <ops::$name as Operation>::INFO ),*];

    /// The same methods over any transport.
    #[derive(Clone)]
    pub struct Client<T>(pub T);
    impl<T> Client<T> { $(
        #[doc = $doc]
        pub async fn $name(&self $(, $arg: $T)*) -> Outcome<ops::$name> where T: Transport<ops::$name> {
            self.0.send(Call { path: value!(path [$($arg: $arg),*]), query: value!(query [$($arg: $arg),*]), body: value!(body [$($arg: $arg),*]) }).await
        }
    )* }
} }
operation_table!(define_operations);
