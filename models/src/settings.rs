use crate::{Architecture, ModelError, Pooling, Precision};
use std::path::PathBuf;

/// What to load, and how to run it.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// A name from `config/models.toml`, or the path of a folder with the model's files.
    pub model: String,
    /// Where the folders of named models are; `None`: [`crate::default_models_dir`].
    pub models_dir: Option<PathBuf>,
    /// See [`crate::Device`].
    pub device: String,
    /// The precision of the weights. All devices have f32, `cpu` has all, and `wgpu` and `cuda` have bf16 where the processor computes in it.
    /// `None`: bf16 on `cpu`, f32 on other devices.
    pub precision: Option<Precision>,
    /// How many threads run the model; 0: as many as the machine has.
    pub threads: usize,
    /// The most texts in one pass for document vectors.
    pub batch_size: usize,
    /// The most texts in one pass for token vectors.
    pub token_batch_size: usize,
    /// The most tokens of a text for document vectors; the model's own positions are a second limit, and what its folder says of the longest
    /// text is a third.
    pub doc_window: usize,
    /// The most tokens of a text for token vectors; the other limits are the same.
    pub token_window: usize,
    /// How many passes may wait for their turn; further callers wait before their passes are queued.
    pub queue_capacity: usize,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            model: "all-MiniLM-L6-v2".to_owned(),
            models_dir: None,
            device: "cpu".to_owned(),
            precision: None,
            threads: 0,
            batch_size: 32,
            token_batch_size: 32,
            doc_window: 8192,
            token_window: 512,
            queue_capacity: 256,
        }
    }
}

/// No machine has more threads than this, so a greater number is a mistake, and each thread costs memory.
const MAX_THREADS: usize = 1024;
/// Room for more passes than this would waste memory.
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
            return bad("threads", self.threads, "it must be at most 1024; 0 uses as many as the machine has");
        }
        if self.queue_capacity > MAX_QUEUE_CAPACITY {
            return bad("queue_capacity", self.queue_capacity, "it must be at most 65536");
        }
        Ok(())
    }
}

/// Describes what was loaded.
#[derive(Debug, Clone)]
pub struct ModelInfo {
    pub name: String,
    /// Name and hash of everything that decides a text's vector. It is stable over restarts and machines. Two vectors
    /// may be compared only if their identities are equal.
    pub identity: String,
    pub architecture: Architecture,
    pub pooling: Pooling,
    /// The number of components that the model itself gives, and the width of token vectors.
    pub native_width: usize,
    /// The number of components in a vector: [`crate::VECTOR_WIDTH`].
    pub width: usize,
    /// How many tokens the model has positions for.
    pub max_positions: usize,
    /// The most tokens of a text for document vectors, including special tokens.
    pub doc_window: usize,
    /// The most tokens of a text for token vectors, including special tokens.
    pub token_window: usize,
    pub query_prefix: String,
    pub document_prefix: String,
    /// Whether the mean is subtracted before a vector is cut shorter, as [`Self::shorten`] does.
    pub is_centred: bool,
    pub device: String,
    pub precision: Precision,
    /// How many threads run the model.
    pub threads: usize,
}
