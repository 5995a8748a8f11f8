//! What requests and tasks both work with.
mod wake;

use crate::{
    blobs::Blobs,
    disk::Disk,
    embedding::{CrossEncoder, Embedder, Model, QueryVectors},
    error::OrFail,
    fetch::Fetcher,
    llm::LanguageModel,
    llm_batches::Batching,
    load::Load,
    ocr,
    reader::Reader,
    settings::Settings,
    spool::SpoolCache,
    store::{lexicon::Lexicon, search::Expectations},
};
use sqlx::PgPool;
use std::sync::Arc;
use svc_client::{Code, Failure};
use svc_models::Engine;
use svc_ranking::Cache;
pub use wake::Wake;

/// The parts of a process that ingestion and search need; cheap to clone.
#[derive(Clone)]
pub struct Core {
    pub settings: Arc<Settings>,
    /// Requests and tasks have separate connections, so that neither side starves the other.
    pub pool: PgPool,
    /// `None` if this process embeds nothing.
    pub embedder: Option<Embedder>,
    pub cross_encoder: Arc<CrossEncoder>,
    /// The vectors of the last queries.
    pub queries: Arc<QueryVectors>,
    pub postings: Arc<Cache>,
    /// How texts become the words of full text.
    pub lexicon: Lexicon,
    /// What the planner expects of the filters of searches.
    pub expectations: Arc<Expectations>,
    pub reader: Reader,
    /// What reads scanned pages; `None` if no engine is configured.
    pub ocr: Option<Arc<ocr::Engine>>,
    /// Calls addresses that callers name.
    pub fetcher: Fetcher,
    pub language_model: Arc<LanguageModel>,
    /// How this process asks by batches; `None` if it calls the language model.
    pub batching: Option<Arc<Batching>>,
    /// The bytes of files.
    pub blobs: Arc<Blobs>,
    pub spool: Arc<SpoolCache>,
    /// Learns of every write that was refused because the disk is full.
    pub disk: Arc<Disk>,
    /// Learns what searches and tasks take.
    pub load: Arc<Load>,
    /// Learns when tasks were queued; this process's worker listens to it.
    pub wake: Wake,
}

impl Core {
    /// The model, here or at a runner, or the error that there is none.
    pub async fn model(&self) -> Result<Model, Failure> {
        self.embedder.as_ref().ok_or_else(no_model)?.model().await.or_fail()
    }

    /// The engine whose threads other models of this process share.
    pub fn beside(&self) -> Option<&Engine> {
        self.embedder.as_ref().and_then(Embedder::engine)
    }
}

/// 501: nothing can be embedded here.
pub(crate) fn no_model() -> Failure {
    Failure::new(Code::NotConfigured, "this process has no embedding model").with("setting", "SVC_EMBEDDING_MODEL")
}
