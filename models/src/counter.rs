//! Token counts without the model, for processes that let a runner embed: a tokenizer is small, and a call for each
//! text would be slow.

use crate::{ModelError, tokenizer::TextTokenizer};
use std::sync::Arc;

/// Counts tokens exactly as the engine with the same tokenizer does. It is a handle: cloning is cheap.
#[derive(Clone)]
pub struct TokenCounter {
    tokenizer: Arc<TextTokenizer>,
    document_prefix: Arc<str>,
}

impl std::fmt::Debug for TokenCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCounter").field("document_prefix", &self.document_prefix).finish_non_exhaustive()
    }
}

impl TokenCounter {
    /// Reads a model's tokenizer.json, as [`crate::Engine::tokenizer_json`] returns it. This blocks for some tenths of
    /// a second.
    pub fn from_json(json: &[u8], document_prefix: &str) -> Result<Self, ModelError> {
        let tokenizer = TextTokenizer::from_untrusted_json(json, usize::MAX)
            .map_err(|message| ModelError::Tokenize { message: format!("tokenizer.json is not usable: {message}") })?;
        Ok(Self { tokenizer: Arc::new(tokenizer), document_prefix: document_prefix.into() })
    }

    /// Counts as [`crate::Engine::count_tokens`] does.
    pub fn count_tokens(&self, text: &str) -> Result<usize, ModelError> {
        self.tokenizer.count(&self.document_prefix, text)
    }

    /// Counts as [`crate::Engine::count_content_tokens`] does.
    pub fn count_content_tokens(&self, text: &str) -> Result<usize, ModelError> {
        Ok(self.tokenizer.count("", text)? - self.tokenizer.special_count())
    }

    /// Tells as [`crate::Engine::is_unknown`] does.
    pub fn is_unknown(&self, text: &str) -> Result<bool, ModelError> {
        self.tokenizer.is_unknown(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, ModelSettings, sample};

    #[test]
    fn it_counts_as_the_engine_does() {
        let folder = tempfile::tempdir().unwrap();
        sample::write_model(folder.path());
        let settings = ModelSettings { model: folder.path().display().to_string(), ..ModelSettings::default() };
        let engine = Engine::load(&settings).unwrap();
        let counter = TokenCounter::from_json(engine.tokenizer_json(), &engine.info().document_prefix).unwrap();
        for text in ["", "the cat", "the cat sat. \u{10fffd} é 日本", &"the cat sat ".repeat(9000)] {
            assert_eq!(counter.count_tokens(text).unwrap(), engine.count_tokens(text).unwrap(), "{text:.40}");
            assert_eq!(counter.count_content_tokens(text).unwrap(), engine.count_content_tokens(text).unwrap());
            assert_eq!(counter.is_unknown(text).unwrap(), engine.is_unknown(text).unwrap(), "{text:.40}");
        }
        let prefixed = TokenCounter::from_json(engine.tokenizer_json(), "the cat ").unwrap();
        assert_eq!(prefixed.count_tokens("sat").unwrap(), counter.count_tokens("the cat sat").unwrap());
    }

    #[test]
    fn what_is_no_tokenizer_is_refused() {
        for nonsense in [&b""[..], b"{}", b"<html>", b"{\"model\": {}}"] {
            let error = TokenCounter::from_json(nonsense, "").unwrap_err();
            assert!(error.to_string().contains("tokenizer.json"), "{error}");
        }
    }
}
