//! The cross-encoder that reranks, in this process.
use crate::settings::{Settings, reranker_settings};
use svc_models::{Engine, ModelError, Reranker, RerankerSettings};
use tokio::sync::OnceCell;

/// The cross-encoder of a process. It is loaded from its folder, at the start or on first use; no request fetches it.
pub struct CrossEncoder {
    settings: RerankerSettings,
    loaded: OnceCell<Reranker>,
}

impl CrossEncoder {
    pub fn new(settings: &Settings) -> CrossEncoder {
        CrossEncoder { settings: reranker_settings(settings), loaded: OnceCell::new() }
    }

    /// Returns the cross-encoder, loaded if necessary. It runs on the threads of `engine` if both use the same device.
    pub async fn get(&self, engine: Option<&Engine>) -> Result<&Reranker, ModelError> {
        let load = || async {
            let (settings, engine) = (self.settings.clone(), engine.cloned());
            let loaded = tokio::task::spawn_blocking(move || Reranker::load(&settings, engine.as_ref()));
            loaded.await.map_err(|_| ModelError::Stopped)?
        };
        self.loaded.get_or_try_init(load).await
    }

    pub fn loaded(&self) -> Option<&Reranker> {
        self.loaded.get()
    }
}
