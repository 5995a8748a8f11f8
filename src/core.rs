//! What requests and tasks both work with.
mod wake;

use crate::{
    blobs::Blobs,
    disk::Disk,
    embedding::{CrossEncoder, EmbedError, Embedder, Model, QueryVectors, Served, Serving},
    error::OrFail,
    fetch::Fetcher,
    llm::LanguageModel,
    llm_batches::Batching,
    load::Load,
    ocr,
    reader::Reader,
    settings::Settings,
    spool::SpoolCache,
    store::{lexicon::Lexicon, model_moves, search::Expectations},
};
use sqlx::{PgConnection, PgPool};
use std::{sync::Arc, time::Duration};
use svc_client::{Code, Failure};
use svc_models::Engine;
use svc_ranking::Cache;
pub use wake::Wake;

/// The time between two looks at which model serves. What it replaced stays for longer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The parts of a process that ingestion and search need; cheap to clone.
#[derive(Clone)]
pub struct Core {
    pub settings: Arc<Settings>,
    /// Requests and tasks have separate connections, so that neither side starves the other.
    pub pool: PgPool,
    /// `None` if this process embeds nothing.
    pub embedder: Option<Embedder>,
    /// The model to which all vectors may be moved, which then serves in place of the other.
    pub coming: Option<Embedder>,
    /// Which of the two serves, as this process saw it last.
    pub serving: Arc<Serving>,
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
    /// The model whose vectors serve, here or at a runner, or the error that there is none.
    pub async fn model(&self) -> Result<Model, Failure> {
        self.model_of(self.embedder()?).await.or_fail()
    }

    /// Where the model of the settings is, or 501: nothing can be embedded here.
    pub fn embedder(&self) -> Result<&Embedder, Failure> {
        self.embedder.as_ref().ok_or_else(|| {
            Failure::new(Code::NotConfigured, "this process has no embedding model")
                .with("setting", "SVC_EMBEDDING_MODEL")
        })
    }

    /// The model whose vectors serve, in a process that has this one: it, or the coming one.
    pub async fn model_of(&self, embedder: &Embedder) -> Result<Model, EmbedError> {
        // What is written with a model that was replaced is found by nobody.
        if !self.serving.is_known() {
            Box::pin(self.look_at_moves()).await;
        }
        let Some(served) = self.serving.served() else { return embedder.model().await };
        // The runner of the other one may not be there yet, or no longer, and nobody waits for it.
        for embedder in std::iter::once(embedder).chain(&self.coming) {
            if let Some(model) = embedder.known().await.filter(|model| model.identity() == served.model) {
                return Ok(model);
            }
        }
        let coming = match &self.coming {
            Some(coming) => Some(coming.model().await),
            None => None,
        };
        if let Some(Ok(coming)) = &coming
            && coming.identity() == served.model
        {
            return Ok(coming.clone());
        }
        let model = embedder.model().await?;
        if served.refuses(model.identity()) {
            return match coming {
                // It may be away for a moment.
                Some(Err(error)) => Err(error),
                _ => Err(EmbedError::NotServing { serving: served.model }),
            };
        }
        Ok(model)
    }

    /// The model of this name, if the settings name it as the one or as the coming one; a runner is asked.
    pub async fn model_named(&self, name: &str) -> Option<Model> {
        for embedder in self.coming.iter().chain(&self.embedder) {
            if let Ok(model) = embedder.model().await
                && model.identity() == name
            {
                return Some(model);
            }
        }
        None
    }

    /// Looks again and again which model serves, until the connections of this process are closed; further calls do nothing.
    pub fn follow_moves(&self) {
        if self.serving.is_to_be_followed() {
            let core = self.clone();
            tokio::spawn(async move {
                while !core.pool.is_closed() {
                    core.look_at_moves().await;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
        }
    }

    /// Looks now which model serves.
    pub async fn look_at_moves(&self) {
        if let Err(error) = self.try_look_at_moves().await {
            tracing::debug!(%error, "which model serves could not be read; what was read before goes on holding");
        }
    }

    /// Whether others took the place of this model's vectors by now. Whoever stores, outside of a task, what the model made asks at the end of its transaction:
    /// a move waits for no request, and what a request wrote after its end would stand in the place of what is found. From here on this process knows it too.
    pub async fn is_replaced(&self, conn: &mut PgConnection, model: &str) -> sqlx::Result<bool> {
        let now = served(conn).await?;
        let is_replaced = now.as_ref().is_some_and(|now| now.refuses(model));
        if is_replaced {
            self.serving.set_served(now);
        }
        Ok(is_replaced)
    }

    async fn try_look_at_moves(&self) -> sqlx::Result<()> {
        let now = served(&mut *self.pool.acquire().await?).await?;
        let moves = now.as_ref().is_some_and(|now| now.moves);
        self.serving.set_served(now);
        // While somebody asks a runner for its model, this waits, and holds no connection.
        let model = if moves { None } else { self.known_model().await };
        let mut mixed = None;
        if let Some(model) = model
            && model_moves::has_others(&mut *self.pool.acquire().await?, model.identity()).await?
        {
            mixed = Some(model.identity().to_owned());
        }
        self.serving.set_mixed(mixed);
        Ok(())
    }

    /// The model whose vectors serve, if this process has it and need not ask a runner for it.
    async fn known_model(&self) -> Option<Model> {
        let served = self.serving.served();
        let mut known = None;
        for embedder in self.embedder.iter().chain(&self.coming) {
            let model = embedder.known().await;
            let serves = |model: &Model| served.as_ref().is_some_and(|served| served.model == model.identity());
            if model.as_ref().is_some_and(serves) {
                return model;
            }
            known = known.or(model);
        }
        known.filter(|model| served.is_none_or(|served| !served.refuses(model.identity())))
    }

    /// The engine whose threads other models of this process share.
    pub fn beside(&self) -> Option<&Engine> {
        self.embedder.as_ref().and_then(Embedder::engine)
    }
}

/// Which model serves, as the database says now.
async fn served(conn: &mut PgConnection) -> sqlx::Result<Option<Served>> {
    let of =
        |model_moves::Served { serving, replaced, coming, moves }| Served { model: serving, replaced, coming, moves };
    Ok(model_moves::served(conn).await?.map(of))
}
