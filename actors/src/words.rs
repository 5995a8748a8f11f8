//! Words that the queue stores for the values of this crate.

/// A word that names no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {word:?}: use {known}")]
pub struct UnknownWord {
    what: &'static str,
    word: String,
    known: &'static str,
}

impl UnknownWord {
    pub(crate) fn new(what: &'static str, word: &str, known: &'static str) -> Self {
        // The word comes from outside, so only its beginning is shown.
        UnknownWord { what, word: word.chars().take(64).collect(), known }
    }
}
