//! The settings as the crate of models takes them.
use super::Settings;
use svc_models::{HubSettings, ModelSettings, RerankerSettings};

/// What the settings say of the model.
pub fn model_settings(settings: &Settings) -> ModelSettings {
    ModelSettings {
        model: settings.embedding_model.clone(),
        models_dir: Some(settings.models_dir()),
        device: settings.embedding_device.name().to_owned(),
        precision: settings.embedding_precision,
        threads: settings.embedding_threads,
        batch_size: settings.embedding_batch_size,
        token_batch_size: settings.token_batch_size,
        doc_window: settings.embedding_doc_window,
        token_window: settings.embedding_token_window,
        ..ModelSettings::default()
    }
}

impl Settings {
    /// The same settings with the coming model in place of the one that serves, if they name one.
    pub fn coming(&self) -> Option<Settings> {
        if self.embedding_coming_model.is_empty() && self.runner_coming_url.is_empty() {
            return None;
        }
        let mut coming = self.clone();
        if !self.embedding_coming_model.is_empty() {
            coming.embedding_model = self.embedding_coming_model.clone();
        }
        coming.embedding_precision = self.embedding_coming_precision;
        coming.runner_url = self.runner_coming_url.clone();
        Some(coming)
    }

    /// Whether these settings name the same model as those.
    pub fn has_model_of(&self, other: &Settings) -> bool {
        (&self.embedding_model, self.embedding_precision, &self.runner_url)
            == (&other.embedding_model, other.embedding_precision, &other.runner_url)
    }
}

/// What the settings say of the reranker.
pub fn reranker_settings(settings: &Settings) -> RerankerSettings {
    RerankerSettings {
        model: settings.reranker_model.clone(),
        models_dir: Some(settings.models_dir()),
        device: settings.reranker_device().name().to_owned(),
        threads: settings.embedding_threads,
        batch_size: settings.reranker_batch_size,
        max_length: settings.reranker_max_length,
        ..RerankerSettings::default()
    }
}

/// What the settings say of fetching models.
pub fn hub_settings(settings: &Settings) -> HubSettings {
    HubSettings {
        endpoint: (!settings.hub_endpoint.is_empty()).then(|| settings.hub_endpoint.clone()),
        offline: settings.hub_offline,
        silence: settings.hub_timeout,
        ..HubSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, time::Duration};
    use svc_models::Precision;

    #[test]
    fn what_is_set_reaches_the_models() {
        let set = [
            ("HOME", "/home/reader"),
            ("SVC_EMBEDDING_MODEL", "owner/model@v1"),
            ("SVC_EMBEDDING_DEVICE", "ndarray"),
            ("SVC_EMBEDDING_THREADS", "3"),
            ("SVC_EMBEDDING_BATCH_SIZE", "7"),
            ("SVC_TOKEN_BATCH_SIZE", "5"),
            ("SVC_EMBEDDING_DOC_WINDOW", "4000"),
            ("SVC_EMBEDDING_TOKEN_WINDOW", "300"),
            ("SVC_RERANKER_MODEL", "/models/other"),
            ("SVC_RERANKER_MAX_LENGTH", "200"),
            ("SVC_RERANKER_BATCH_SIZE", "9"),
            ("SVC_HUB_ENDPOINT", "http://hub.example.org"),
            ("SVC_HUB_OFFLINE", "true"),
            ("SVC_HUB_TIMEOUT_SECONDS", "2.5"),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::load(Some(Path::new("/dev/null")), set.into_iter()).unwrap();
        let model = model_settings(&settings);
        assert_eq!((model.model.as_str(), model.device.as_str(), model.threads), ("owner/model@v1", "ndarray", 3));
        assert_eq!((model.batch_size, model.token_batch_size), (7, 5));
        assert_eq!((model.doc_window, model.token_window), (4000, 300));
        assert_eq!(model.models_dir.as_deref(), Some(Path::new("/home/reader/.cache/svc/models")));
        let reranker = reranker_settings(&settings);
        // A blank device follows the other's.
        assert_eq!((reranker.model.as_str(), reranker.device.as_str()), ("/models/other", "ndarray"));
        assert_eq!((reranker.max_length, reranker.batch_size, reranker.threads), (200, 9, 3));
        assert_eq!(model.precision, None);
        let in_bf16 = [("HOME", "/home/reader"), ("SVC_EMBEDDING_PRECISION", "bf16")];
        let in_bf16 = in_bf16.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let in_bf16 = Settings::load(Some(Path::new("/dev/null")), in_bf16.into_iter()).unwrap();
        assert_eq!(model_settings(&in_bf16).precision, Some(Precision::Bf16));
        assert!(settings.coming().is_none());
        let coming = [
            ("HOME", "/home/reader"),
            ("SVC_EMBEDDING_MODEL", "owner/model"),
            ("SVC_EMBEDDING_COMING_MODEL", "owner/model"),
            ("SVC_EMBEDDING_COMING_PRECISION", "int8"),
        ];
        let coming = coming.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let named = Settings::load(Some(Path::new("/dev/null")), coming.into_iter()).unwrap();
        let coming = named.coming().unwrap();
        assert_eq!(model_settings(&coming).precision, Some(Precision::Int8));
        assert!(!coming.has_model_of(&named) && named.has_model_of(&named));
        let hub = hub_settings(&settings);
        assert_eq!((hub.endpoint.as_deref(), hub.offline), (Some("http://hub.example.org"), true));
        assert_eq!(hub.silence, Duration::from_millis(2500));
    }
}
