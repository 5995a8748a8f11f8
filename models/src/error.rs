use std::{path::PathBuf, time::Duration};

use crate::{FetchError, VECTOR_WIDTH};

/// Why a model could not be loaded, or a text not be embedded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The name stands in no catalogue and names no folder.
    #[error(
        "unknown model {name:?}: it is no folder, no hub id (owner/name) and none of the known names ({known}); \
         take one of these names, or a folder with config.json, tokenizer.json and model.safetensors"
    )]
    UnknownModel { name: String, known: String },

    /// A known model's folder is not there.
    #[error("the folder {} of model {name:?} does not exist; {remedy}", folder.display())]
    FolderMissing { name: String, folder: PathBuf, remedy: &'static str },

    /// A model's files are not here and could not be fetched.
    #[error("model {name:?} could not be fetched into {}: {source}", folder.display())]
    NotFetched { name: String, folder: PathBuf, source: FetchError },

    /// A file of the model is missing or cannot be read.
    #[error("cannot read {}: {source}; the folder must hold config.json, tokenizer.json and model.safetensors", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },

    /// A file of the model says what it must not.
    #[error("{} is not usable: {problem}; fetch the model's files again or choose another model", path.display())]
    Corrupt { path: PathBuf, problem: String },

    /// A file was written to while it was read.
    #[error("{} changed while it was read; load the model again once its files are in place", path.display())]
    Changed { path: PathBuf },

    /// The model is whole, but is of no kind known here.
    #[error("{}: {what} is not supported; {supported}", path.display())]
    Unsupported { path: PathBuf, what: String, supported: &'static str },

    /// The model's own vectors are wider than those that are stored.
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

    /// The device is built in, but did not take the model.
    #[error("device {device:?} cannot be used: {message}; check its driver, or use cpu")]
    DeviceFailed { device: String, message: String },

    /// A setting has a value that nothing can be done with.
    #[error("the setting {setting} is {value}: {problem}")]
    Setting { setting: &'static str, value: String, problem: &'static str },

    /// A text has more tokens than the window. Nothing is ever cut.
    #[error(
        "text {index} has {token_count} tokens ({chars_total} characters), the limit is {limit}; split it into smaller chunks first"
    )]
    TextTooLong {
        /// Which of the texts, from 0.
        index: usize,
        /// What the model would see: special tokens and prefix included.
        token_count: usize,
        limit: usize,
        /// Unicode scalar values of the text itself.
        chars_total: usize,
    },

    /// The tokenizer refused a text.
    #[error("the text could not be tokenised: {message}")]
    Tokenize { message: String },

    /// A panic while this batch was run. The engine goes on.
    #[error("the model failed on this batch: {message}")]
    ForwardPanicked { message: String },

    /// Several batches in a row ended by a panic: the device is taken for lost, and opened again.
    #[error("the model's device is lost and being opened again: {message}")]
    DeviceLost { message: String, retry_after: Duration },

    /// The model's output for these texts has no direction: not finite, or all zeros.
    #[error("the model gave a vector without a direction (not finite, or zero) for {} text(s)", texts.len().max(1))]
    NoDirection {
        /// Which of the texts, from 0; the others of the call have a vector each.
        texts: Vec<usize>,
    },

    /// A score that is not a number.
    #[error("the model gave a score that is not finite; its weights are probably damaged")]
    NoScore,

    /// The engine was shut down before the text's turn came.
    #[error("the model's engine has stopped")]
    Stopped,
}
