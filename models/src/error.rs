use crate::{FetchError, VECTOR_WIDTH};
use std::{any::Any, path::PathBuf, time::Duration};

/// Why a model could not be loaded or a text could not be embedded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The name is neither in the catalogue nor a folder.
    #[error(
        "unknown model {name:?}: it is no folder, no hub id (owner/name) and none of the known names ({known}); \
         take one of these names, or a folder with config.json, tokenizer.json and model.safetensors"
    )]
    UnknownModel { name: String, known: String },

    /// A known model's folder does not exist.
    #[error("the folder {} of model {name:?} does not exist; {remedy}", folder.display())]
    FolderMissing { name: String, folder: PathBuf, remedy: &'static str },

    /// A model's files are not here and could not be fetched.
    #[error("model {name:?} could not be fetched into {}: {source}", folder.display())]
    NotFetched { name: String, folder: PathBuf, source: FetchError },

    /// A file of the model is missing or cannot be read.
    #[error(
        "cannot read {}: {source}; the folder must hold config.json, tokenizer.json and model.safetensors, and `svc models fetch` \
         fetches what it lacks of a model that is known by its name",
        path.display()
    )]
    Unreadable { path: PathBuf, source: std::io::Error },

    /// A file of the model has content that it must not have.
    #[error(
        "{} is not usable: {problem}; put a sound file there (of a model that is known by its name, delete its folder, and \
         `svc models fetch` fetches it again), or choose another model",
        path.display()
    )]
    Corrupt { path: PathBuf, problem: String },

    /// A file was changed while it was being read.
    #[error("{} changed while it was read; load the model again once its files are in place", path.display())]
    Changed { path: PathBuf },

    /// The model is complete, but of a kind that is not supported.
    #[error("{}: {what} is not supported; {supported}", path.display())]
    Unsupported { path: PathBuf, what: String, supported: &'static str },

    /// The model's own vectors are wider than stored vectors can be.
    #[error(
        "model {model:?} gives vectors of {native_width} components; at most {VECTOR_WIDTH} can be stored, choose a narrower model"
    )]
    TooWide { model: String, native_width: usize },

    /// The device's name is unknown.
    #[error("unknown device {device:?}; SVC_EMBEDDING_DEVICE takes cpu, cpu-plain, ndarray, wgpu or cuda")]
    DeviceUnknown { device: String },

    /// The device is known, but this build has no code for it.
    #[error("this build has no code for device {device:?}: build with the feature `{feature}`, or use cpu")]
    DeviceNotBuilt { device: String, feature: &'static str },

    /// The device is built in but did not accept the model.
    #[error("device {device:?} cannot be used: {message}; check its driver, or use cpu")]
    DeviceFailed { device: String, message: String },

    /// A setting has an unusable value.
    #[error("the setting {setting} is {value}: {problem}")]
    Setting { setting: &'static str, value: String, problem: &'static str },

    /// A text has more tokens than the window. Texts are never truncated.
    #[error(
        "text {index} has {token_count} tokens ({chars_total} characters), the limit is {limit}; split it into smaller chunks first"
    )]
    TextTooLong {
        /// The text's position in the call, from 0.
        index: usize,
        /// What the model would see, including special tokens and the prefix.
        token_count: usize,
        limit: usize,
        /// The number of Unicode scalar values in the text itself.
        chars_total: usize,
    },

    /// The tokenizer refused a text.
    #[error("the text could not be tokenised: {message}")]
    Tokenize { message: String },

    /// A panic while this batch ran. The engine goes on.
    #[error("the model failed on this batch: {message}")]
    ForwardPanicked { message: String },

    /// Several batches in a row panicked, so the device counts as lost and is opened again.
    #[error("the model's device is lost and being opened again: {message}")]
    DeviceLost { message: String, retry_after: Duration },

    /// The model's output for these texts has no direction: it is not finite, or all zeros.
    #[error("the model gave a vector without a direction (not finite, or zero) for {} text(s)", texts.len().max(1))]
    NoDirection {
        /// The texts' positions in the call, from 0; each of the other texts has a vector.
        texts: Vec<usize>,
    },

    /// A score that is not a number.
    #[error("the model gave a score that is not finite; its weights are probably damaged")]
    NoScore,

    /// The engine was shut down before the text's turn came.
    #[error("the model's engine has stopped")]
    Stopped,
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
