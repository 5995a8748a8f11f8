use std::path::PathBuf;

use crate::{Architecture, ModelError, Pooling, Precision};

/// What to load, and how it is to run.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// A name from `config/models.toml`, or the path of a folder with the model's files.
    pub model: String,
    /// Where the folders of named models lie; `None`: [`crate::default_models_dir`].
    pub models_dir: Option<PathBuf>,
    /// See [`crate::Device`].
    pub device: String,
    /// Of the weights; other than f32 only on the device `cpu`.
    pub precision: Precision,
    /// Threads that run the model; 0: as many as the machine has.
    pub threads: usize,
    /// Texts in one pass at most, document vectors.
    pub batch_size: usize,
    /// Texts in one pass at most, token vectors.
    pub token_batch_size: usize,
    /// Tokens of a text at most, document vectors; the model's own positions are a second limit.
    pub doc_window: usize,
    /// Tokens of a text at most, token vectors; the model's own positions are a second limit.
    pub token_window: usize,
    /// Passes that may wait for their turn; further callers wait before they are queued.
    pub queue_capacity: usize,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            model: "all-MiniLM-L6-v2".to_owned(),
            models_dir: None,
            device: "cpu".to_owned(),
            precision: Precision::F32,
            threads: 0,
            batch_size: 32,
            token_batch_size: 32,
            doc_window: 8192,
            token_window: 512,
            queue_capacity: 256,
        }
    }
}

/// More threads than any machine has are a slip of the pen, and each costs memory.
const MAX_THREADS: usize = 1024;
/// Room for more passes than this would be memory without a use.
const MAX_QUEUE_CAPACITY: usize = 65_536;

impl ModelSettings {
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let bad =
            |setting, value: usize, problem| Err(ModelError::Setting { setting, value: value.to_string(), problem });
        for (setting, value) in [
            ("batch_size", self.batch_size),
            ("token_batch_size", self.token_batch_size),
            ("doc_window", self.doc_window),
            ("token_window", self.token_window),
            ("queue_capacity", self.queue_capacity),
        ] {
            if value == 0 {
                return bad(setting, value, "it must be at least 1");
            }
        }
        if self.threads > MAX_THREADS {
            return bad("threads", self.threads, "it must be at most 1024; 0 takes all there are");
        }
        if self.queue_capacity > MAX_QUEUE_CAPACITY {
            return bad("queue_capacity", self.queue_capacity, "it must be at most 65536");
        }
        Ok(())
    }
}

/// What was loaded.
#[derive(Debug, Clone)]
pub struct ModelInfo {
    pub name: String,
    /// Name and hash of all that decides what a text's vector is. Stable over restarts and machines; two vectors may
    /// be compared only when theirs are equal.
    pub identity: String,
    pub architecture: Architecture,
    pub pooling: Pooling,
    /// Components that the model itself gives, and the width of token vectors.
    pub native_width: usize,
    /// Components of a vector: [`crate::VECTOR_WIDTH`].
    pub width: usize,
    /// Tokens that the model has positions for.
    pub max_positions: usize,
    /// Tokens of a text at most, document vectors, special tokens included.
    pub doc_window: usize,
    /// Tokens of a text at most, token vectors, special tokens included.
    pub token_window: usize,
    pub query_prefix: String,
    pub document_prefix: String,
    /// Whether the mean is taken away before a vector is cut shorter, as [`Self::shorten`] does.
    pub is_centred: bool,
    pub device: String,
    pub precision: Precision,
    /// Threads that run the model.
    pub threads: usize,
}
