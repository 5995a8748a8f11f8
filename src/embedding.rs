//! The embedding model as the service sees it: loaded in this process, or at a runner behind its `/runner` routes.
//!
//! A runner's tokenizer is fetched once with its description, and tokens are counted here, because chunking counts
//! every sentence and a call for each would be a thousand times slower than the counting.
mod cross_encoder;
mod error;
mod queries;
mod runner;
mod serving;

use crate::words::precision;
pub use cross_encoder::CrossEncoder;
pub use error::{EmbedError, QueryError};
pub use queries::QueryVectors;
pub use runner::Runner;
pub use serving::{Served, Serving};
use std::sync::Arc;
use svc_client::wire::{ModelState, RunnerTextKind};
use svc_models::{Embedding, Engine, Heard, TokenCounter, TokenVectors};

/// Where the model is.
#[derive(Clone, Debug)]
pub enum Embedder {
    Here(Engine),
    There(Arc<Runner>),
}

impl From<Engine> for Embedder {
    fn from(engine: Engine) -> Embedder {
        Embedder::Here(engine)
    }
}

impl Embedder {
    /// A handle pinned to the current model, even if the runner loads another one later.
    pub async fn model(&self) -> Result<Model, EmbedError> {
        match self {
            Embedder::Here(engine) => Ok(Model::Here(engine.clone())),
            Embedder::There(runner) => runner.model().await.map(Model::There),
        }
    }

    /// The model, if it need not be asked for.
    pub async fn known(&self) -> Option<Model> {
        match self {
            Embedder::Here(engine) => Some(Model::Here(engine.clone())),
            Embedder::There(runner) => runner.known_model().await.map(Model::There),
        }
    }

    /// The model in this process, if there is one.
    pub fn engine(&self) -> Option<&Engine> {
        match self {
            Embedder::Here(engine) => Some(engine),
            Embedder::There(_) => None,
        }
    }

    /// The model's name and hash; `told` is what its runner said last, if it is at one.
    pub fn identity<'a>(&'a self, told: Option<&'a Result<ModelState, String>>) -> Option<&'a str> {
        match self {
            Embedder::Here(engine) => Some(&engine.info().identity),
            Embedder::There(_) => told?.as_ref().ok().map(|state| state.identity.as_str()),
        }
    }

    /// The state of the model; this always asks the runner.
    pub async fn state(&self) -> Result<ModelState, EmbedError> {
        match self {
            Embedder::Here(engine) => {
                engine.ready()?;
                Ok(state(engine))
            }
            Embedder::There(runner) => runner.state().await,
        }
    }
}

/// One model, which embeds and counts tokens.
#[derive(Clone, Debug)]
pub enum Model {
    Here(Engine),
    There(RemoteModel),
}

/// A runner's model as the runner described it.
#[derive(Clone, Debug)]
pub struct RemoteModel {
    state: Arc<ModelState>,
    counter: TokenCounter,
    runner: Arc<Runner>,
}

impl Model {
    /// The model's name and the hash of everything that decides a text's vector.
    pub fn identity(&self) -> &str {
        match self {
            Model::Here(engine) => &engine.info().identity,
            Model::There(model) => &model.state.identity,
        }
    }

    /// Only the model's name.
    pub fn name(&self) -> &str {
        self.identity().rsplit_once('@').map_or(self.identity(), |(name, _)| name)
    }

    /// The most tokens of a text that gets a document vector.
    pub fn document_window(&self) -> usize {
        match self {
            Model::Here(engine) => engine.info().doc_window,
            Model::There(model) => model.state.document_window,
        }
    }

    /// The most tokens of a text that gets token vectors.
    pub fn token_window(&self) -> usize {
        match self {
            Model::Here(engine) => engine.info().token_window,
            Model::There(model) => model.state.token_window,
        }
    }

    /// The number of components that the model itself gives.
    pub fn native_width(&self) -> usize {
        match self {
            Model::Here(engine) => engine.info().native_width,
            Model::There(model) => model.state.width,
        }
    }

    /// Embeds as [`Engine::embed_documents`] does.
    pub async fn embed_documents(&self, texts: Vec<String>) -> Result<Vec<Embedding>, EmbedError> {
        self.embed_documents_heard(texts, &|_| ()).await
    }

    /// Embeds as [`Engine::embed_documents_heard`] does.
    pub async fn embed_documents_heard(
        &self,
        texts: Vec<String>,
        done: &Heard<'_>,
    ) -> Result<Vec<Embedding>, EmbedError> {
        match self {
            Model::Here(engine) => Ok(engine.embed_documents_heard(texts, done).await?),
            Model::There(model) => model.runner.embed_documents(model, texts, done).await,
        }
    }

    /// Embeds as [`Engine::embed_waited_for`] does; at a runner the texts stand among its documents.
    pub async fn embed_waited_for(&self, texts: Vec<String>) -> Result<Vec<Embedding>, EmbedError> {
        match self {
            Model::Here(engine) => Ok(engine.embed_waited_for(texts).await?),
            Model::There(model) => model.runner.embed_documents(model, texts, &|_| ()).await,
        }
    }

    /// Embeds as [`Engine::embed_query`] does.
    pub async fn embed_query(&self, text: String) -> Result<Vec<f32>, EmbedError> {
        match self {
            Model::Here(engine) => Ok(engine.embed_query(text).await?),
            Model::There(model) => model.runner.embed_query(model, text).await,
        }
    }

    /// Embeds as [`Engine::query_token_vectors`] does.
    pub async fn query_token_vectors(&self, text: String) -> Result<TokenVectors, EmbedError> {
        let mut vectors = self.token_vectors(vec![text], RunnerTextKind::Query).await?;
        vectors.pop().ok_or_else(|| EmbedError::Broken("the runner gave no vectors".to_owned()))
    }

    /// Embeds as [`Engine::embed_queries`] does.
    pub async fn embed_queries(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        match self {
            Model::Here(engine) => Ok(engine.embed_queries(texts).await?),
            Model::There(model) => model.runner.embed_queries(model, texts).await,
        }
    }

    /// Embeds as [`Engine::token_vectors`] does, or for queries as [`Engine::query_token_vectors`] does.
    pub async fn token_vectors(
        &self,
        texts: Vec<String>,
        kind: RunnerTextKind,
    ) -> Result<Vec<TokenVectors>, EmbedError> {
        match self {
            Model::Here(engine) => token_vectors(engine, texts, kind).await,
            Model::There(model) => model.runner.tokens(model, texts, kind).await,
        }
    }

    /// Counts as [`Engine::count_tokens`] does, always in this process.
    pub fn count_tokens(&self, text: &str) -> Result<usize, EmbedError> {
        Ok(match self {
            Model::Here(engine) => engine.count_tokens(text)?,
            Model::There(model) => model.counter.count_tokens(text)?,
        })
    }

    /// Counts as [`Engine::count_content_tokens`] does, always in this process.
    pub fn count_content_tokens(&self, text: &str) -> Result<usize, EmbedError> {
        Ok(match self {
            Model::Here(engine) => engine.count_content_tokens(text)?,
            Model::There(model) => model.counter.count_content_tokens(text)?,
        })
    }

    /// Tells as [`Engine::is_unknown`] does, always in this process.
    pub fn is_unknown(&self, text: &str) -> Result<bool, EmbedError> {
        Ok(match self {
            Model::Here(engine) => engine.is_unknown(text)?,
            Model::There(model) => model.counter.is_unknown(text)?,
        })
    }
}

/// How a loaded model describes itself.
pub fn state(engine: &Engine) -> ModelState {
    let info = engine.info();
    ModelState {
        identity: info.identity.clone(),
        device: info.device.clone(),
        precision: precision(info.precision),
        width: info.native_width,
        document_window: info.doc_window,
        token_window: info.token_window,
        queue_depth: engine.queue_depth(),
    }
}

/// The token vectors of texts of either kind.
pub async fn token_vectors(
    engine: &Engine,
    texts: Vec<String>,
    kind: RunnerTextKind,
) -> Result<Vec<TokenVectors>, EmbedError> {
    match kind {
        RunnerTextKind::Document => Ok(engine.token_vectors(texts).await?),
        RunnerTextKind::Query => {
            let mut vectors = Vec::with_capacity(texts.len());
            for text in texts {
                vectors.push(engine.query_token_vectors(text).await?);
            }
            Ok(vectors)
        }
    }
}
