//! The table of settings: name, field, type, default, what it takes and what it means. Everything else is derived from
//! it.

use super::{
    AllowedTarget, BlobStore, Device, LogFormat, LogLevel, Migrate, Secret, SettingRow, SettingsError, VectorIndex,
    Visibility, kind,
    source::{Origin, Source},
};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};
use svc_client::Tool;
use svc_formats::isolated::Policy;
use svc_models::Precision;
use svc_ranking::Language;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const DAY: f64 = 86_400.0;
const DEVICES: &[(&str, Device)] =
    &[("cpu", Device::Cpu), ("ndarray", Device::Ndarray), ("wgpu", Device::Wgpu), ("cuda", Device::Cuda)];
const LANGUAGES: &[(&str, Language)] = &Language::NAMES;
const MCP_TOOLS: &[(&str, Tool)] = &[("read", Tool::Read), ("write", Tool::Write), ("all", Tool::Destructive)];
const PRECISIONS: &[(&str, Precision)] = &Precision::NAMES;
const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("off", LogLevel::Off),
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

macro_rules! settings {
    ($($section:literal {
        $($(#[doc = $meaning:literal])+ $name:ident $field:ident: $type:ty = $default:literal, $kind:expr;)+
    })+) => {
        /// Every setting, read and checked. Each field is the setting named `SVC_` and the field's name in capitals.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $($($(#[doc = $meaning])+ pub $field: $type,)+)+
            /// The variables of the environment by which object stores usually get their credentials.
            pub(crate) of_stores: BTreeMap<String, Secret>,
            pub(super) origins: BTreeMap<&'static str, Origin>,
            pub(super) warnings: Vec<String>,
            pub(super) file: Option<PathBuf>,
        }

        /// The names of all settings, in the order of the table.
        pub(super) const NAMES: &[&str] = &[$($(stringify!($name),)+)+];

        /// The field of each setting.
        #[cfg(test)]
        pub(super) const FIELDS: &[&str] = &[$($(stringify!($field),)+)+];

        impl Settings {
            /// Reads each setting from its source; all bad values are reported at once.
            pub(super) fn read(mut source: Source) -> Result<Self, SettingsError> {
                $($(let $field = source.take(stringify!($name), $default, &$kind);)+)+
                let of_stores = source.of_stores();
                let (origins, warnings) = source.finish()?;
                // If there was no problem, every value exists; the fallback is the same error without a problem to
                // report. One way out for all values compiles in a fraction of the time that one for each of them takes.
                let ($($(Some($field),)+)+) = ($($($field,)+)+) else {
                    return Err(SettingsError::Invalid(Vec::new()));
                };
                Ok(Self { $($($field,)+)+ of_stores, origins, warnings, file: None })
            }

            /// The names of the settings that hold a secret.
            pub fn secret_names() -> Vec<&'static str> {
                let names = [$($((stringify!($name), $kind.secret),)+)+];
                names.into_iter().filter(|(_, is_secret)| *is_secret).map(|(name, _)| name).collect()
            }

            /// Each setting with its value, in the order of the table; secrets are masked.
            pub fn rows(&self) -> Vec<SettingRow> {
                vec![$($({
                    let kind = $kind;
                    SettingRow {
                        section: $section,
                        name: stringify!($name),
                        value: kind.write(&self.$field),
                        origin: self.origins.get(stringify!($name)).cloned().unwrap_or_default(),
                        default: $default,
                        bare: kind.bare,
                        secret: kind.secret,
                        takes: kind.takes,
                        meaning: concat!($($meaning),+).trim(),
                    }
                }),+),+]
            }
        }
    };
}

settings! {
    "The service" {
        /// Folder for everything the service keeps; blank: $XDG_DATA_HOME/svc or ~/.local/share/svc, for root
        /// /var/lib/svc.
        SVC_DATA_DIR data_dir: PathBuf = "", kind::folder();
        /// Free space on the data folder's disk below which /ready, which stays ready, and the doctor report a full disk.
        SVC_DISK_LEAST_FREE_BYTES disk_least_free: u64 = "256 MiB", kind::bytes(0..=1024 * GIB);
        /// Most bytes of stored files that a process keeps in its data folder for later tasks, besides the files in
        /// use; 0: none.
        SVC_SPOOL_MAX_BYTES spool_max: u64 = "2 GiB", kind::bytes(0..=1024 * GIB);
        /// Folder for what can be fetched again: models and the PostgreSQL server; blank: the program's own folder if
        /// models lie in it, as in a release, or ~/.cache/svc.
        SVC_CACHE_DIR cache_dir: PathBuf = "", kind::folder();
        /// Address and port on which the API listens.
        SVC_LISTEN listen: SocketAddr = "127.0.0.1:8000", kind::listener();
        /// Address and port on which the operator console listens; blank: no console.
        SVC_CONSOLE_LISTEN console_listen: Option<SocketAddr> = "127.0.0.1:8001", kind::optional(kind::listener());
        /// Names under which browsers may call the console, besides addresses of numbers and, if it listens on this machine alone, localhost.
        SVC_CONSOLE_HOSTS console_hosts: Vec<String> = "[]", kind::words();
        /// Address of the service that the command line calls; blank: this machine at the port of SVC_LISTEN.
        SVC_URL url: String = "", kind::web_address();
        /// Least severity that is logged.
        SVC_LOG_LEVEL log_level: LogLevel = "info", kind::choice(LOG_LEVELS);
        /// Form of the log: text for people, json (one object per line) for machines.
        SVC_LOG_FORMAT log_format: LogFormat = "text", kind::choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
        /// Whether /metrics answers without the owner token; blank: only on a loopback listener.
        SVC_PUBLIC_METRICS public_metrics: Option<bool> = "", kind::optional(kind::flag());
        /// Collector of OpenTelemetry that gets traces and metrics by OTLP over HTTP, such as http://127.0.0.1:4318; blank:
        /// none are sent.
        SVC_OTLP_ENDPOINT otlp_endpoint: String = "", kind::web_address();
        /// Headers that are sent to it, as name=value with commas between them.
        SVC_OTLP_HEADERS otlp_headers: Secret = "", kind::secret();
        /// Share of the traces that is sent. A caller that sends a traceparent decides for its own.
        SVC_OTLP_TRACES_SHARE otlp_traces_share: f64 = "1.0", kind::number(0.0..=1.0);
    }
    "Access" {
        /// Owner token, which passes every access check; blank: each start makes one and prints it.
        SVC_API_TOKEN api_token: Secret = "", kind::secret();
        /// Token that the command line sends, the owner's or a principal's; blank: SVC_API_TOKEN.
        SVC_TOKEN token: Secret = "", kind::secret();
        /// Who reads a new document at the top of the tree that is not private: everyone; or owner: it becomes an access
        /// root, which the owner reads, and the principal that made it.
        SVC_DEFAULT_VISIBILITY default_visibility: Visibility = "everyone", kind::choice(&[("everyone", Visibility::Everyone), ("owner", Visibility::Owner)]);
        /// Browser origins that may call the API; empty: none, only servers call it.
        SVC_CORS_ORIGINS cors_origins: Vec<String> = "[]", kind::origins();
        /// What language models may do by the Model Context Protocol: read; write: also add and cancel; all: also delete. Blank: there is
        /// no /mcp.
        SVC_MCP_TOOLS mcp_tools: Option<Tool> = "write", kind::optional(kind::choice(MCP_TOOLS));
        /// Names under which clients may call /mcp, with or without a port, besides addresses of numbers and localhost.
        SVC_PUBLIC_HOSTS public_hosts: Vec<String> = "[]", kind::words();
    }
    "Database" {
        /// A PostgreSQL with pgvector, as postgres://user:password@host/name; blank: the embedded one in the data
        /// folder.
        SVC_DATABASE_URL database_url: Secret = "", kind::secret_address(&["postgres", "postgresql"]);
        /// Standbys of this database that may answer reads, as such addresses with commas between them, each of one server;
        /// blank: the primary answers all.
        SVC_DATABASE_READ_URL database_read_url: Vec<Secret> = "", kind::secret_addresses(&["postgres", "postgresql"]);
        /// Longest time that a read waits for a standby to have what its caller knows, before the primary answers it.
        SVC_READ_WAIT_SECONDS read_wait: Duration = "0.05", kind::seconds(0.0..=60.0);
        /// Most connections that the requests of a process share; its tasks share as many of their own. At most half as many tasks, but two in any
        /// case, use the embedding model at a time.
        SVC_DATABASE_POOL_SIZE database_pool_size: usize = "16", kind::integer(2..=1000);
        /// When migrations are applied at the start: blank: only on the embedded database; auto: on any database.
        SVC_MIGRATE migrate: Migrate = "", kind::choice(&[("", Migrate::Embedded), ("auto", Migrate::Auto)]);
        /// Folder of the embedded PostgreSQL server (it holds bin/postgres); blank: postgres in the cache folder, or in the release if that has none.
        SVC_POSTGRES_HOME postgres_home: PathBuf = "", kind::folder();
    }
    "Stored bytes" {
        /// Where the bytes of new files are kept: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder; blank: in the
        /// database, as large objects.
        SVC_BLOB_STORE blob_store: Option<BlobStore> = "", kind::blob_store();
        /// Address of the server of the bucket; blank: AWS_ENDPOINT_URL, GOOGLE_BASE_URL or AZURE_STORAGE_ENDPOINT, or that of Amazon, Google or
        /// Microsoft.
        SVC_BLOB_ENDPOINT blob_endpoint: String = "", kind::web_address();
        /// Whether that address may begin with http://, over which bytes are not encrypted.
        SVC_BLOB_ALLOW_HTTP blob_allow_http: bool = "false", kind::flag();
        /// Region of a bucket of S3; blank: AWS_REGION, or us-east-1.
        SVC_BLOB_REGION blob_region: String = "", kind::text();
        /// Id of the key for a bucket of S3; blank: AWS_ACCESS_KEY_ID and what belongs to it, or the role of the machine.
        SVC_BLOB_ACCESS_KEY_ID blob_access_key_id: String = "", kind::text();
        /// The key itself.
        SVC_BLOB_SECRET_ACCESS_KEY blob_secret_access_key: Secret = "", kind::secret();
        /// Days for which the object of a deleted file is kept. A database that is restored to an earlier moment needs them, so
        /// choose no fewer than its backups go back.
        SVC_BLOB_KEEP_DAYS blob_keep_days: f64 = "7.0", kind::number(0.0..=3650.0);
    }
    "Vectors" {
        /// In how many parts the table of vectors is to be, by the root of a document; 1: one table. svc reindex --vectors brings
        /// it into this form.
        SVC_VECTOR_PARTITIONS vector_partitions: usize = "1", kind::integer(1..=64);
        /// What the indexes of vectors are to be made of. bit takes a third of the memory or less, and finds less. svc reindex
        /// --vectors builds them.
        SVC_VECTOR_INDEX vector_index: VectorIndex = "halfvec", kind::choice(&[("halfvec", VectorIndex::Halfvec), ("bit", VectorIndex::Bit)]);
    }
    "Growth" {
        /// Bytes of files in the database above which findings advise an object store.
        SVC_GROWTH_FILE_BYTES growth_file_bytes: u64 = "500 GiB", kind::bytes(1..=1024 * 1024 * GIB);
        /// Time that 95 of 100 searches may take in the database before findings tell of it.
        SVC_GROWTH_SEARCH_SECONDS growth_search: Duration = "0.3", kind::seconds(0.000_001..=60.0);
        /// Time that 95 of 100 claims of tasks may take before findings tell of it; unset, 0.25 on the embedded server.
        SVC_GROWTH_CLAIM_SECONDS growth_claim: Duration = "0.05", kind::seconds(0.000_001..=60.0);
    }
    "Requests" {
        /// Largest file that an upload may have; a larger one is refused with 413.
        SVC_MAX_UPLOAD_BYTES max_upload_bytes: u64 = "256 MiB", kind::bytes(1..=1024 * GIB);
        /// Largest body that any other request may have; a larger one is refused with 413.
        SVC_MAX_BODY_BYTES max_body_bytes: u64 = "16 MiB", kind::bytes(1024..=GIB);
        /// Most bytes of documents' texts, of links or of facts in one answer: a page of a list ends there, and a search leaves
        /// out further texts.
        SVC_PAGE_BYTES page_bytes: u64 = "8 MiB", kind::bytes(64 * 1024..=GIB);
        /// Reads that a principal may make in a second, on average over ten seconds; further ones are refused with 429. The
        /// owner has no limit. 0: no limit.
        SVC_RATE_READS rate_reads: usize = "100", kind::integer(0..=1_000_000);
        /// Writes that a principal may make in a second, on average over ten seconds; 0: no limit.
        SVC_RATE_WRITES rate_writes: usize = "50", kind::integer(0..=1_000_000);
        /// Searches, embeddings and analyses that a principal may ask for in a second, on average over ten seconds; 0: no
        /// limit.
        SVC_RATE_COSTLY rate_costly: usize = "20", kind::integer(0..=1_000_000);
        /// Largest part of the uploads, downloads, exports of graphs, streams of events, fetches, large bodies and answers, waiting requests,
        /// searches, embeddings, and connections with requests that still arrive, of a process that one principal may have under
        /// way, at least one of each; further ones are refused with 429, after a short wait where the service has such a wait.
        /// The owner may have all.
        SVC_PRINCIPAL_SHARE principal_share: f64 = "0.5", kind::number(0.01..=1.0);
        /// Most requests that a process works on at a time, besides probes and the calls of a runner; further ones wait
        /// briefly and are then refused with 429.
        SVC_REQUESTS_AT_ONCE requests_at_once: usize = "256", kind::integer(1..=100_000);
        /// Most requests that wait for tasks at a time, with `?wait=true`, by POST /ingest, or to delete or move what a task
        /// holds. While they wait, they do not count as at work. Further ones are refused at once: with 429, and such deletes
        /// and moves with the 409 that they would else get at the end.
        SVC_WAITS_AT_ONCE waits_at_once: usize = "256", kind::integer(1..=100_000);
        /// Most documents that are embedded or cut on request at a time; further ones wait briefly and are then refused with 429.
        SVC_EMBEDS_AT_ONCE embeds_at_once: usize = "4", kind::integer(1..=1000);
        /// Most files that are received and stored at a time; further ones wait briefly and are then refused with
        /// 429.
        SVC_UPLOADS_AT_ONCE uploads_at_once: usize = "16", kind::integer(1..=1000);
        /// Most downloads of stored bytes at once; further ones wait briefly and are then refused with 429.
        SVC_DOWNLOADS_AT_ONCE downloads_at_once: usize = "64", kind::integer(1..=10_000);
        /// Most streams of events that a process keeps open; further ones are refused with 429.
        SVC_EVENT_STREAMS event_streams: usize = "500", kind::integer(1..=100_000);
        /// Hours for which events are kept: a reader that is away for longer misses some, and is told so with 410.
        SVC_EVENT_RETENTION_HOURS event_retention_hours: f64 = "168.0", kind::number(0.01..=87_600.0);
        /// Whether webhooks may have addresses that are not public, and http: anyone with a token can then have the service call into
        /// its own network.
        SVC_WEBHOOK_PRIVATE webhook_private: bool = "false", kind::flag();
        /// Most connections of clients, and never more than the limit of open files allows; the one that was idle
        /// longest makes room.
        SVC_MAX_CONNECTIONS max_connections: usize = "4096", kind::integer(16..=1_000_000);
        /// Longest time from the first byte of a request to the end of its header.
        SVC_HEADER_TIMEOUT_SECONDS header_timeout: Duration = "10.0", kind::seconds(0.1..=3600.0);
        /// Longest time that a connection may wait for its next request.
        SVC_IDLE_TIMEOUT_SECONDS idle_timeout: Duration = "75.0", kind::seconds(0.1..=DAY);
        /// Longest time that a body may stall: 16 KiB of it, or its end, must arrive in this time, or the answer is
        /// 408. The client must also read from its answer within this time.
        SVC_BODY_TIMEOUT_SECONDS body_timeout: Duration = "30.0", kind::seconds(0.1..=3600.0);
        /// Longest time for a read, a search or the analysis of a file, after which the answer is 503. Reading cells of
        /// a large workbook takes longest.
        SVC_REQUEST_TIMEOUT_SECONDS request_timeout: Duration = "120.0", kind::seconds(0.01..=3600.0);
        /// Time between a signal to stop and the end of listening, in which /ready answers 503, so that a proxy sends
        /// its callers elsewhere.
        SVC_SHUTDOWN_DELAY_SECONDS shutdown_delay: Duration = "0.0", kind::seconds(0.0..=600.0);
        /// Most searches that run at a time; further ones wait briefly and are then refused with 429. A search
        /// takes up to two connections.
        SVC_SEARCHES_AT_ONCE searches_at_once: usize = "6", kind::integer(1..=1000);
        /// Longest time that the database may take for one statement of a request, after which the answer is 503. A statement that deletes documents or
        /// empties an index may take SVC_REQUEST_TIMEOUT_SECONDS where that is longer, and tasks have limits of their own.
        SVC_STATEMENT_TIMEOUT_SECONDS statement_timeout: Duration = "30.0", kind::seconds(0.01..=3600.0);
        /// Largest page or file that the server fetches for a wiki: entry.
        SVC_FETCH_MAX_BYTES fetch_max_bytes: u64 = "64 MiB", kind::bytes(1..=16 * GIB);
        /// Address of arXiv, or of a mirror with the same paths, for the entry wiki:arxiv; blank: no papers are fetched.
        SVC_ARXIV_URL arxiv_url: String = "https://arxiv.org", kind::web_address();
        /// Longest time that POST /ingest waits for the ingestion that it has started; after it the answer is 503, and the
        /// ingestion goes on.
        SVC_INGEST_WAIT_SECONDS ingest_wait: Duration = "120.0", kind::seconds(0.1..=3600.0);
        /// Longest time for the fetch of a wiki: entry, including redirects.
        SVC_FETCH_TIMEOUT_SECONDS fetch_timeout: Duration = "30.0", kind::seconds(0.1..=3600.0);
        /// Addresses that are not public but may be called nevertheless, each as host:port, an IP address or a network
        /// such as 10.1.0.0/16. The server calls public addresses only, because callers name them.
        SVC_FETCH_ALLOW fetch_allow: Vec<AllowedTarget> = "[]", kind::targets();
    }
    "Embedding" {
        /// Model for document and token vectors: a name from config/models.toml, a hub id or a folder. The default is
        /// in the cache folder after `make setup`; nomic-ai/modernbert-embed-base (768 wide, 8192 tokens) is the choice
        /// for quality.
        SVC_EMBEDDING_MODEL embedding_model: String = "all-MiniLM-L6-v2", kind::required_text();
        /// Device that the model runs on.
        SVC_EMBEDDING_DEVICE embedding_device: Device = "cpu", kind::choice(DEVICES);
        /// Precision of the model's weights; blank: bf16 on the device cpu, f32 on others. wgpu and cuda also have bf16, where the processor
        /// computes in it. bf16 and int8 take a half and a quarter of the memory and are faster. Vectors of two precisions are never compared:
        /// `svc reembed` moves all documents from one to another.
        SVC_EMBEDDING_PRECISION embedding_precision: Option<Precision> = "", kind::optional(kind::choice(PRECISIONS));
        /// A second model, to which `svc reembed` moves all vectors while that of SVC_EMBEDDING_MODEL answers; it answers when the move is done.
        /// The same name moves them to another precision, or those that another model made before. Blank: none.
        SVC_EMBEDDING_COMING_MODEL embedding_coming_model: String = "", kind::text();
        /// Precision of the coming model's weights; blank as for SVC_EMBEDDING_PRECISION.
        SVC_EMBEDDING_COMING_PRECISION embedding_coming_precision: Option<Precision> = "", kind::optional(kind::choice(PRECISIONS));
        /// Threads that embed on the processor; 0: one per core.
        SVC_EMBEDDING_THREADS embedding_threads: usize = "0", kind::integer(0..=1024);
        /// Most texts in one pass for document vectors.
        SVC_EMBEDDING_BATCH_SIZE embedding_batch_size: usize = "32", kind::integer(1..=4096);
        /// Most texts in one pass for token vectors.
        SVC_TOKEN_BATCH_SIZE token_batch_size: usize = "32", kind::integer(1..=4096);
        /// Most tokens of a text that gets token vectors; a longer text is refused, never cut.
        SVC_EMBEDDING_TOKEN_WINDOW embedding_token_window: usize = "512", kind::integer(8..=131_072);
        /// Most tokens of a text that only gets a document vector.
        SVC_EMBEDDING_DOC_WINDOW embedding_doc_window: usize = "8192", kind::integer(8..=131_072);
        /// Share of a document's tokens that is kept for late interaction.
        SVC_TOKEN_TOP_PERCENT token_top_percent: f64 = "0.50", kind::fraction();
        /// Widths of the token vectors that are stored.
        SVC_TOKEN_EMBED_DIMS token_embed_dims: Vec<usize> = "[256]", kind::some_of(&[256, 384, 512]);
        /// Most characters of a chunk, whatever the strategy.
        SVC_CHUNK_MAX_CHARS chunk_max_chars: usize = "1800", kind::integer(100..=1_000_000);
        /// Address from which models are fetched; blank: the one in HF_ENDPOINT, else the public hub.
        SVC_HUB_ENDPOINT hub_endpoint: String = "", kind::web_address();
        /// Whether fetching models is forbidden; then a model that is neither in the cache folder nor in the release stops the start.
        SVC_HUB_OFFLINE hub_offline: bool = "false", kind::flag();
        /// Longest time that the hub may be silent.
        SVC_HUB_TIMEOUT_SECONDS hub_timeout: Duration = "30.0", kind::seconds(0.1..=3600.0);
        /// Address of a service that computes vectors over its /runner routes; blank: this process loads the model.
        SVC_RUNNER_URL runner_url: String = "", kind::web_address();
        /// Address of the service that computes vectors of the coming model; blank: this process loads it, if
        /// SVC_EMBEDDING_COMING_MODEL names one.
        SVC_RUNNER_COMING_URL runner_coming_url: String = "", kind::web_address();
        /// Key for the /runner routes, whether served or called; blank: they are closed.
        SVC_RUNNER_KEY runner_key: Secret = "", kind::secret();
        /// Longest wait for one answer of a runner; for a query at most 10 seconds, because a caller waits.
        SVC_RUNNER_TIMEOUT_SECONDS runner_timeout: Duration = "300.0", kind::seconds(0.1..=3600.0);
    }
    "Facts" {
        /// What the IRIs of documents and predicates begin with that have none of their own; `urn:svc:`, or an http address that ends with a
        /// slash.
        SVC_RDF_BASE rdf_base: String = "urn:svc:", kind::iri_base();
        /// Most triples of one import of RDF; `svc rdf import` sends a larger text in parts.
        SVC_RDF_MAX_TRIPLES rdf_max_triples: usize = "50000", kind::integer(1..=1_000_000);
        /// Most facts of one access zone that rules derive from a group of predicates which depend on each other; if there are more, none of that zone is written.
        SVC_RULES_MAX_DERIVED rules_max_derived: usize = "100000", kind::integer(0..=10_000_000);
        /// Most documents that a search for paths comes to before it gives up and says so.
        SVC_PATH_MAX_DOCUMENTS path_max_documents: usize = "100000", kind::integer(2..=10_000_000);
        /// Longest time that a search for paths takes before it gives up and says so.
        SVC_PATH_TIMEOUT_SECONDS path_timeout: Duration = "5.0", kind::seconds(0.01..=600.0);
        /// Most documents, and most facts and links between them, that an analysis of a graph takes; two million of each take 200 MB of memory.
        SVC_GRAPH_MAX_EDGES graph_max_edges: usize = "2000000", kind::integer(1..=20_000_000);
    }
    "Search" {
        /// Language whose stems full text and the index `default` use; detect finds out that of each document, and none leaves words as they
        /// are written. After a change both are built anew by a worker, and find what is built. Not set: the language that the store has.
        SVC_LANGUAGE language: Language = "english", kind::choice(LANGUAGES);
        /// BM25 parameter k1: how much each further occurrence of a term adds to the score; with 0 only the first one
        /// counts. Not set: the index `default` keeps what it has.
        SVC_BM25_K1 bm25_k1: f64 = "1.2", kind::number(0.0..=10.0);
        /// BM25 parameter b: how much a document's length counts. Not set: the index `default` keeps what it has.
        SVC_BM25_B bm25_b: f64 = "0.75", kind::number(0.0..=1.0);
        /// How often each word of a title counts in the index `default`; with 0 titles are not searched for. After a change a worker builds the
        /// index anew. Not set: it keeps what it has.
        SVC_BM25_TITLE_WEIGHT bm25_title_weight: usize = "1", kind::integer(0..=10);
        /// Whether chunks are embedded, and found by the words of the index `default`, with the titles above them. After a change a worker
        /// builds the index anew; a vector follows when its text is embedded again. Not set: the index keeps what it has.
        SVC_TITLE_PATHS title_paths: bool = "true", kind::flag();
        /// Usetypes that are kept out of the BM25 indexes. After a change a worker adds to the indexes what they lack, and takes out what is to be kept
        /// out. The services see to that, and a process beside them goes by the indexes. Not set: each index keeps out what it did before, and a new one what
        /// the index `default` does.
        SVC_BM25_EXCLUDE_USETYPES bm25_exclude_usetypes: Vec<String> = r#"["entity", "summary"]"#, kind::words();
        /// Usetypes that are kept out of results, except in a search that names them in `usetype`.
        SVC_SEARCH_EXCLUDE_USETYPES search_exclude_usetypes: Vec<String> = r#"["entity", "summary"]"#, kind::words();
        /// Cross-encoder of the second stage.
        SVC_RERANKER_MODEL reranker_model: String = "cross-encoder/ms-marco-MiniLM-L6-v2", kind::required_text();
        /// Device that the cross-encoder runs on; blank: that of SVC_EMBEDDING_DEVICE.
        SVC_RERANKER_DEVICE reranker_device: Option<Device> = "", kind::optional(kind::choice(DEVICES));
        /// Most tokens of a pair of query and text in the cross-encoder.
        SVC_RERANKER_MAX_LENGTH reranker_max_length: usize = "512", kind::integer(8..=131_072);
        /// Most pairs in one pass of the cross-encoder.
        SVC_RERANKER_BATCH_SIZE reranker_batch_size: usize = "32", kind::integer(1..=4096);
    }
    "Language model" {
        /// OpenAI-compatible endpoint, including its /v1; blank: SVC_FALLBACK_LLM_URL.
        SVC_LLM_BASE_URL llm_base_url: String = "", kind::web_address();
        /// Model that the endpoint is asked for; blank: SVC_FALLBACK_LLM_MODEL.
        SVC_LLM_MODEL llm_model: String = "", kind::text();
        /// Longest time for a call, in seconds; 0: SVC_FALLBACK_LLM_TIMEOUT.
        SVC_LLM_TIMEOUT llm_timeout: Duration = "0.0", kind::seconds(0.0..=DAY);
        /// Bearer token for the endpoint, sent only if it is set.
        SVC_LLM_API_KEY llm_api_key: Secret = "", kind::secret();
        /// Endpoint if SVC_LLM_BASE_URL is blank; if this is blank too, there is no language model.
        SVC_FALLBACK_LLM_URL fallback_llm_url: String = "http://127.0.0.1:11434/v1", kind::web_address();
        /// Model if SVC_LLM_MODEL is blank.
        SVC_FALLBACK_LLM_MODEL fallback_llm_model: String = "llama3.2", kind::text();
        /// Longest time for a call if SVC_LLM_TIMEOUT is 0.
        SVC_FALLBACK_LLM_TIMEOUT fallback_llm_timeout: Duration = "180.0", kind::seconds(0.1..=DAY);
        /// Most calls of the language model that this process has under way.
        SVC_LLM_CONCURRENCY llm_concurrency: usize = "4", kind::integer(1..=1000);
        /// Tokens that the model takes, with those of its answer; a third of the bytes of a text counts as its tokens.
        SVC_LLM_CONTEXT_TOKENS llm_context_tokens: usize = "8192", kind::integer(2048..=10_000_000);
        /// Whether to ask the model not to reason before it answers, be it a summary, an answer or facts; set it to
        /// true for a reasoning model, which may otherwise return a fragment.
        SVC_SUMMARIZATION_DISABLE_THINKING summarization_disable_thinking: Option<bool> = "", kind::optional(kind::flag());
        /// Most facts that are taken from one text.
        SVC_EXTRACTION_MAX_FACTS extraction_max_facts: usize = "5", kind::integer(1..=1000);
        /// Confidence below which facts are dropped.
        SVC_EXTRACTION_CONFIDENCE_THRESHOLD extraction_confidence_threshold: f64 = "0.5", kind::number(0.0..=1.0);
        /// Least similarity at which two names are one entity.
        SVC_EXTRACTION_ENTITY_SIMILARITY_THRESHOLD extraction_entity_similarity_threshold: f64 = "0.8", kind::number(0.0..=1.0);
        /// Temperature for the extraction of facts.
        SVC_EXTRACTION_TEMPERATURE extraction_temperature: f64 = "0.1", kind::number(0.0..=2.0);
        /// Most tokens of an extraction's answer.
        SVC_EXTRACTION_MAX_TOKENS extraction_max_tokens: usize = "4096", kind::integer(16..=1_000_000);
    }
    "Workers" {
        /// Whether the API process also runs a worker.
        SVC_INGEST_WORKER_ENABLED ingest_worker_enabled: bool = "true", kind::flag();
        /// Time that a worker waits before it looks again at a queue that was empty.
        SVC_INGEST_WORKER_POLL_SECONDS ingest_worker_poll: Duration = "1.0", kind::seconds(0.01..=3600.0);
        /// Time between two heartbeats of a worker.
        SVC_WORKER_HEARTBEAT_SECONDS worker_heartbeat: Duration = "10.0", kind::seconds(0.05..=3600.0);
        /// Silence after which a worker's tasks go to others; at least 3 heartbeats.
        SVC_WORKER_LEASE_SECONDS worker_lease: Duration = "90.0", kind::seconds(0.15..=DAY);
        /// Time between two looks for expired leases, by one worker for all.
        SVC_WORKER_REAP_SECONDS worker_reap: Duration = "30.0", kind::seconds(0.05..=DAY);
        /// Badge of each task type, as JSON; empty: any worker runs any task.
        SVC_TASK_BADGES task_badges: BTreeMap<String, String> = "{}", kind::text_map();
        /// Days for which ended tasks stay in the queue's table; 0: for ever. What they did is in the documents'
        /// evidence.
        SVC_TASK_RETENTION_DAYS task_retention_days: f64 = "7.0", kind::number(0.0..=36500.0);
        /// Badges that a worker answers to; blank: it takes every task.
        SVC_WORKER_BADGE worker_badge: Vec<String> = "[]", kind::words();
        /// Name under which a worker claims; blank: host name and process id.
        SVC_WORKER_ID worker_id: String = "", kind::text();
    }
    "Parsers" {
        /// Most pages of a file.
        SVC_PARSER_PAGES parser_pages: usize = "10000", kind::integer(1..=1_000_000);
        /// Most members of a zip package, and most recipients, attachments and messages within a message of Outlook.
        SVC_PARSER_ZIP_MEMBERS parser_zip_members: usize = "10000", kind::integer(1..=1_000_000);
        /// Most files within one upload, such as members of an archive and attachments, that become files of their own.
        SVC_PARSER_MEMBERS parser_members: usize = "1000", kind::integer(0..=10_000);
        /// Most bytes of these files together.
        SVC_PARSER_MEMBER_BYTES parser_member_bytes: u64 = "1 GiB", kind::bytes(0..=1024 * GIB);
        /// How deep files may lie within each other, such as an archive in an archive.
        SVC_PARSER_MEMBER_DEPTH parser_member_depth: usize = "3", kind::integer(0..=32);
        /// Most pictures of a file that are taken out of it.
        SVC_PARSER_IMAGES parser_images: usize = "500", kind::integer(0..=10_000);
        /// Most bytes of these pictures together.
        SVC_PARSER_IMAGE_BYTES parser_image_bytes: u64 = "256 MiB", kind::bytes(0..=1024 * GIB);
        /// Most unpacked bytes per packed byte, beyond the first 10 MiB.
        SVC_PARSER_ZIP_RATIO parser_zip_ratio: usize = "100", kind::integer(2..=1_000_000);
        /// Most unpacked bytes of a file.
        SVC_PARSER_UNPACKED_BYTES parser_unpacked_bytes: u64 = "1 GiB", kind::bytes(MIB..=1024 * GIB);
        /// Deepest nesting of XML elements, JSON values and groups of RTF.
        SVC_PARSER_XML_DEPTH parser_xml_depth: usize = "256", kind::integer(16..=10_000);
        /// Most cells of a sheet.
        SVC_PARSER_CELLS parser_cells: usize = "5000000", kind::integer(1..=1_000_000_000);
        /// Most bytes of text taken from a file.
        SVC_PARSER_TEXT_BYTES parser_text_bytes: u64 = "128 MiB", kind::bytes(1024..=16 * GIB);
        /// Most headings, or outline entries, of a file.
        SVC_PARSER_HEADINGS parser_headings: usize = "100000", kind::integer(1..=10_000_000);
        /// Most bytes in the answer of a reader process.
        SVC_PARSER_ANSWER_BYTES parser_answer_bytes: u64 = "512 MiB", kind::bytes(1024..=16 * GIB);
        /// Most memory of a reader process, beyond the program's own, and of an OCR engine.
        SVC_PARSER_MEMORY parser_memory: u64 = "1 GiB", kind::bytes(64 * MIB..=1024 * GIB);
        /// Most processor time of a reader process, in seconds.
        SVC_PARSER_CPU_TIME parser_cpu_time: Duration = "300.0", kind::seconds(1.0..=DAY);
        /// Time after which a reader process is killed, in seconds.
        SVC_PARSER_WALL_TIME parser_wall_time: Duration = "600.0", kind::seconds(1.0..=DAY);
        /// What to do if the kernel cannot confine a reader process (seccomp): require stops the start; best_effort
        /// reads files behind the walls that are available, and logs the missing ones at the start.
        SVC_PARSER_SANDBOX parser_sandbox: Policy = "require", kind::choice(&[("require", Policy::Require), ("best_effort", Policy::BestEffort)]);
        /// User and group that a reader process becomes if the service runs as root; neither should own anything.
        SVC_PARSER_UID parser_uid: usize = "65533", kind::integer(1..=4_294_967_294);
    }
    "Scanned pages" {
        /// Program that reads the text of scanned pages and pictures: tesseract, or its path; blank: none, and they stay without text. Every process of
        /// the service takes the same.
        SVC_OCR_ENGINE ocr_engine: String = "", kind::text();
        /// Languages that it reads, by Tesseract's names; its data for them must be installed.
        SVC_OCR_LANGUAGES ocr_languages: Vec<String> = r#"["eng"]"#, kind::words();
        /// Most pages of a file that it reads; a warning names the others.
        SVC_OCR_PAGES ocr_pages: usize = "500", kind::integer(1..=100_000);
        /// Longest time for drawing a page, and for reading it; a page that takes longer is left out, with a warning.
        SVC_OCR_PAGE_SECONDS ocr_page_time: Duration = "60.0", kind::seconds(1.0..=3600.0);
        /// Pixels in an inch of the pictures of pages.
        SVC_OCR_DPI ocr_dpi: usize = "300", kind::integer(70..=1200);
        /// Most pixels of such a picture; a larger page is drawn at a lower resolution, and a larger file left out.
        SVC_OCR_PIXELS ocr_pixels: usize = "20000000", kind::integer(10_000..=400_000_000);
    }
    "Bulk feed" {
        /// RabbitMQ, as amqp://user:password@host/vhost; blank: no feed.
        SVC_AMQP_URL amqp_url: Secret = "", kind::secret_address(&["amqp", "amqps"]);
        /// What the names of the feed's exchanges and queues begin with.
        SVC_AMQP_PREFIX amqp_prefix: String = "svc.ingest", kind::broker_name();
        /// Name of the principal that uploads what a message without a user brings; blank: such messages are rejected.
        SVC_AMQP_PRINCIPAL amqp_principal: String = "", kind::text();
        /// Name of the principal by whose rights events are chosen that are published to the exchange {prefix}.events; owner:
        /// all are; blank: none.
        SVC_AMQP_EVENTS_PRINCIPAL amqp_events_principal: String = "", kind::text();
        /// Folder under which a message may name files; blank: messages must contain the bytes.
        SVC_BULK_ROOT bulk_root: PathBuf = "", kind::folder();
        /// Most bytes of a file inside a message.
        SVC_BULK_INLINE_BYTES bulk_inline_bytes: u64 = "1 MiB", kind::bytes(1..=16 * MIB);
        /// How long a message waits for a file that is not there yet, or an address that is away: twice for each of these, and then it is dead.
        SVC_BULK_RETRY_SECONDS bulk_retry: Vec<Duration> = "[5.0, 60.0, 600.0]", kind::growing_seconds(5, 0.05..=DAY);
        /// With more ready tasks than this, no message is taken until half of them are done.
        SVC_BULK_HIGH_WATER bulk_high_water: usize = "10000", kind::integer(1..=10_000_000);
    }
    "Batch providers" {
        /// Folder of the mock provider; blank: batches in the data folder.
        SVC_BATCH_STORE batch_store: PathBuf = "", kind::folder();
        /// Age after which an unfinished batch counts as stalled.
        SVC_BATCH_STALL_SECONDS batch_stall: Duration = "93600.0", kind::seconds(1.0..=30.0 * DAY);
        /// Days that svc-batch-worker keeps ended batches, and the files of its --store.
        SVC_BATCH_KEEP_DAYS batch_keep_days: f64 = "7.0", kind::number(1.0..=3650.0);
        /// Base address of the OpenAI batch provider.
        SVC_BATCH_OPENAI_URL batch_openai_url: String = "https://api.openai.com/v1", kind::web_address();
        /// Key of the OpenAI batch provider.
        SVC_BATCH_OPENAI_KEY batch_openai_key: Secret = "", kind::secret();
        /// Base address of the Anthropic batch provider.
        SVC_BATCH_ANTHROPIC_URL batch_anthropic_url: String = "https://api.anthropic.com/v1", kind::web_address();
        /// Key of the Anthropic batch provider.
        SVC_BATCH_ANTHROPIC_KEY batch_anthropic_key: Secret = "", kind::secret();
    }
}
