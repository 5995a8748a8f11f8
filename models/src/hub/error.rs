use std::path::PathBuf;

/// Why a model could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error(
        "the folder lacks {}, and fetching is switched off; put what it lacks there, or switch fetching on",
        missing.join(", ")
    )]
    Offline { missing: Vec<String> },

    #[error("the folder lacks {}, and nothing can be fetched there: {}: {source}", missing.join(", "), path.display())]
    NoPlace { missing: Vec<String>, path: PathBuf, source: std::io::Error },

    #[error(
        "the hub's address {endpoint:?} is not usable: {problem}; set HF_ENDPOINT to one like https://hub.example.org"
    )]
    Endpoint { endpoint: String, problem: String },

    #[error(
        "{address} says that there is no {repository} at revision {revision}, or that it is not public; check the name"
    )]
    RepositoryMissing { address: String, repository: String, revision: String },

    #[error(
        "{repository} at revision {revision} has no {file}; only models with config.json, tokenizer.json and model.safetensors can be used"
    )]
    FileMissing { repository: String, revision: String, file: String },

    #[error("{address} refused with status {status}; a model behind a login must be put into its folder by hand")]
    Refused { address: String, status: u16 },

    #[error("{address} answered with status {status}; try again later")]
    Status { address: String, status: u16 },

    #[error("{address} could not be reached: {problem}; check the network, or HF_ENDPOINT")]
    Unreachable { address: String, problem: String },

    #[error("{address} was silent for {seconds} s; try again: what has arrived is kept")]
    Silent { address: String, seconds: f64 },

    #[error("{file} broke off at {bytes} bytes again and again ({problem}); try again: what has arrived is kept")]
    BrokenOff { file: String, bytes: u64, problem: String },

    #[error("{address} redirects {problem}")]
    Redirect { address: String, problem: String },

    #[error(
        "{file} has the hash {got}, but {expected} was expected; the download was discarded: check the hub, or HF_ENDPOINT"
    )]
    Checksum { file: String, expected: String, got: String },

    #[error("{file} has {bytes} bytes or more, over the limit of {limit}; no usable model is that large")]
    TooLarge { file: String, bytes: u64, limit: u64 },

    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl FetchError {
    /// The same error, if it kept these files from being fetched because their place could not be taken.
    pub(super) fn of_place(self, missing: Vec<String>) -> Self {
        match self {
            Self::Io { path, source } => Self::NoPlace { missing, path, source },
            other => other,
        }
    }

    /// Whether the same request may succeed in a moment.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Unreachable { .. } | Self::Silent { .. } | Self::BrokenOff { .. } => true,
            _ => false,
        }
    }
}
