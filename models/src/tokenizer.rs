use crate::{ModelError, error::panic_message, wordpiece::WordPiece};
use serde::Deserialize;
use std::{
    borrow::Cow,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};
use tokenizers::{Encoding, Tokenizer};

/// Longer texts are tokenised piece by piece, so that memory does not grow with the text. Pieces end before white
/// space, where words end anyway; only a longer run without white space is cut elsewhere.
const PIECE_BYTES: usize = 64 * 1024;

/// So much of a text nearly always has a token that the vocabulary has, if any of it does. It is short, because whoever asks has the whole text
/// tokenised afterwards.
const HEAD_BYTES: usize = 64;

/// What a tokenizer.json says of tokens that are unknown: the token itself, or its id.
#[derive(Deserialize)]
struct UnknownOf {
    model: UnknownToken,
}

#[derive(Deserialize)]
struct UnknownToken {
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

/// A text's tokens as the model sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub ids: Vec<u32>,
    /// The range of the text's own tokens in `ids`: between the special tokens, after the prefix.
    pub content: Range<usize>,
    /// For each of the content tokens, the bytes of the text that it stands for; empty unless asked for.
    pub offsets: Vec<Range<usize>>,
}

/// The text has more tokens than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OverLimit {
    pub token_count: usize,
}

/// A tokenizer that never truncates and never pads.
pub(crate) struct TextTokenizer {
    tokenizer: Tokenizer,
    /// This finds the tokens of most words sooner; `None` if it might find others.
    words: Option<WordPiece>,
    json: Box<[u8]>,
    /// Special tokens before and after each text.
    before: Vec<u32>,
    after: Vec<u32>,
    /// What stands for whatever the vocabulary lacks; some tokenizers lack nothing.
    unknown: Option<u32>,
    /// What some tokenizers put before each word, known or not.
    space: Option<u32>,
}

impl TextTokenizer {
    /// Reads a tokenizer.json. `vocabulary` is the number of tokens that the model has weights for.
    pub fn from_json(json: &[u8], vocabulary: usize) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|error| error.to_string())?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
        if let Some((token, id)) = tokenizer.get_vocab(true).into_iter().find(|&(_, id)| id as usize >= vocabulary) {
            return Err(format!("token {token:?} has id {id}, but the model has weights for only {vocabulary} tokens"));
        }
        // These are a word and a character that no vocabulary holds. Both must give tokens, or some later text would
        // fail.
        let ids = |text: &str, special| {
            tokenizer
                .encode_fast(text, special)
                .map(|encoding| encoding.get_ids().to_vec())
                .map_err(|error| error.to_string())
        };
        ids("\u{10fffd}", true)?;
        let (bare, whole) = (ids("a", false)?, ids("a", true)?);
        let at = whole
            .windows(bare.len().max(1))
            .position(|window| window == bare)
            .ok_or("its post-processor changes a text's own tokens")?;
        if let Some(id) = whole.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(format!("special token {id} is none of the model's {vocabulary} tokens"));
        }
        let (before, after) = (whole[..at].to_vec(), whole[at + bare.len()..].to_vec());
        if before.is_empty() && after.is_empty() {
            return Err("it adds no special tokens, so an empty text would have no vector".to_owned());
        }
        let told = serde_json::from_slice::<UnknownOf>(json).ok();
        let unknown = told.and_then(|UnknownOf { model }| match model.unk_token {
            Some(token) => tokenizer.token_to_id(&token),
            None => model.unk_id,
        });
        let space = tokenizer.token_to_id("\u{2581}");
        // A post-processor may give a text twice.
        let words = WordPiece::of(&tokenizer).filter(|words| {
            let mut ids = Vec::new();
            words.tokenize("a", &mut ids, |_, _| Err(())).is_ok() && ids == bare
        });
        Ok(Self { tokenizer, words, json: json.into(), before, after, unknown, space })
    }

    /// Does the same as [`Self::from_json`], but a panic of the tokenizer's own code is an error, because the file
    /// comes from outside.
    pub fn from_untrusted_json(json: &[u8], vocabulary: usize) -> Result<Self, String> {
        catch_unwind(|| Self::from_json(json, vocabulary)).unwrap_or_else(|panic| Err(panic_message(&*panic)))
    }

    /// The tokenizer.json that it was made from.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Does the same as [`Self::from_json`] for a model that reads two texts at once. The special tokens must be those
    /// of BERT, `[CLS] first [SEP] second [SEP]`, with the second text and its end as type 1.
    pub fn of_pairs(json: &[u8], vocabulary: usize) -> Result<Self, String> {
        let this = Self::from_json(json, vocabulary)?;
        let encoding = this.tokenizer.encode_fast(("a", "a"), true).map_err(|error| error.to_string())?;
        let text = this.tokenizer.encode_fast("a", false).map_err(|error| error.to_string())?;
        let (ids, first) = this.pair(text.get_ids(), text.get_ids());
        let types: Vec<u32> = (0..ids.len()).map(|token| u32::from(token >= first)).collect();
        if encoding.get_ids() != ids || encoding.get_type_ids() != types {
            return Err("its post-processor joins two texts in another way than BERT's does".to_owned());
        }
        Ok(this)
    }

    /// Joins two texts' tokens to one sequence, and says how many of its tokens are of type 0.
    pub fn pair(&self, first: &[u32], second: &[u32]) -> (Vec<u32>, usize) {
        let ids = [&self.before, first, &self.after, second, &self.after].concat();
        (ids, self.before.len() + first.len() + self.after.len())
    }

    /// The number of special tokens in a pair.
    pub fn special_count_of_pairs(&self) -> usize {
        self.before.len() + 2 * self.after.len()
    }

    /// The first tokens of a text, at most `limit`, without special tokens.
    pub fn beginning(&self, text: &str, limit: usize) -> Result<Vec<u32>, ModelError> {
        let mut ids = Vec::new();
        for piece in pieces(text) {
            self.add_ids(piece, &mut ids)?;
            if ids.len() >= limit {
                break;
            }
        }
        ids.truncate(limit);
        Ok(ids)
    }

    /// Returns the tokens of `prefix` and `text` with special tokens, unless there are more than `limit`. The outer
    /// error is the tokenizer's own refusal.
    pub fn tokenize(
        &self,
        prefix: &str,
        text: &str,
        limit: usize,
        with_offsets: bool,
    ) -> Result<Result<Tokens, OverLimit>, ModelError> {
        let mut ids = self.before.clone();
        let mut offsets = Vec::new();
        let mut content_start = ids.len();
        let mut token_count = self.before.len() + self.after.len();
        let mut base = 0;
        let whole: Cow<'_, str> = if prefix.is_empty() { text.into() } else { [prefix, text].concat().into() };
        for piece in pieces(&whole) {
            if with_offsets {
                let encoding = self.encode(piece, true)?;
                token_count += encoding.get_ids().len();
                // Once over the limit, only the count matters.
                if token_count <= limit {
                    ids.extend_from_slice(encoding.get_ids());
                    for &(start, end) in encoding.get_offsets() {
                        let (start, end) = (base + start, base + end);
                        if end <= prefix.len() {
                            content_start += 1;
                        } else {
                            offsets.push(start.saturating_sub(prefix.len())..end - prefix.len());
                        }
                    }
                }
            } else {
                let before = ids.len();
                self.add_ids(piece, &mut ids)?;
                token_count += ids.len() - before;
                if token_count > limit {
                    ids.clear();
                }
            }
            base += piece.len();
        }
        if token_count > limit {
            return Ok(Err(OverLimit { token_count }));
        }
        let content = content_start..ids.len();
        ids.extend_from_slice(&self.after);
        Ok(Ok(Tokens { ids, content, offsets }))
    }

    /// Adds the tokens of a text without special tokens.
    fn add_ids(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), ModelError> {
        let library = |text: &str, ids: &mut Vec<u32>| {
            ids.extend_from_slice(self.encode(text, false)?.get_ids());
            Ok(())
        };
        match &self.words {
            Some(words) => words.tokenize(text, ids, library),
            None => library(text, ids),
        }
    }

    fn encode(&self, piece: &str, with_offsets: bool) -> Result<Encoding, ModelError> {
        // Many normalisers and patterns run in here over bytes from outside, so a panic is a failure of this text.
        let encoding = catch_unwind(AssertUnwindSafe(|| match with_offsets {
            true => self.tokenizer.encode(piece, false),
            false => self.tokenizer.encode_fast(piece, false),
        }));
        match encoding {
            Ok(Ok(encoding)) => Ok(encoding),
            Ok(Err(error)) => Err(ModelError::Tokenize { message: error.to_string() }),
            Err(panic) => Err(ModelError::Tokenize { message: panic_message(&*panic) }),
        }
    }

    /// The number of tokens that [`Self::tokenize`] would return.
    pub fn count(&self, prefix: &str, text: &str) -> Result<usize, ModelError> {
        Ok(match self.tokenize(prefix, text, 0, false)? {
            Ok(tokens) => tokens.ids.len(),
            Err(over) => over.token_count,
        })
    }

    /// Whether the text has no token that the vocabulary has, be it that these lack or that it has none at all.
    pub fn is_unknown(&self, text: &str) -> Result<bool, ModelError> {
        // A word that is cut in two may be known in its parts, so a text without spaces has no head.
        let head = match text.len() > HEAD_BYTES {
            true => &text[..text[..text.floor_char_boundary(HEAD_BYTES)].rfind(char::is_whitespace).unwrap_or(0)],
            false => "",
        };
        for piece in std::iter::once(head).filter(|head| !head.is_empty()).chain(pieces(text)) {
            let mut ids = Vec::new();
            self.add_ids(piece, &mut ids)?;
            if ids.iter().any(|id| Some(*id) != self.unknown && Some(*id) != self.space) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of special tokens around each text.
    pub fn special_count(&self) -> usize {
        self.before.len() + self.after.len()
    }
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if end > PIECE_BYTES {
            end = rest.floor_char_boundary(PIECE_BYTES);
            end = rest.as_bytes()[..end].iter().rposition(u8::is_ascii_whitespace).filter(|&at| at > 0).unwrap_or(end);
        }
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    fn tokenizer() -> TextTokenizer {
        TextTokenizer::from_json(sample::TOKENIZER_JSON.as_bytes(), sample::VOCABULARY).unwrap()
    }

    #[test]
    fn truncation_and_padding_of_the_file_are_switched_off() {
        // The sample's file asks for 8 tokens, truncated and padded.
        let text = "the cat sat on the mat ".repeat(10);
        let tokens = tokenizer().tokenize("", &text, 100, false).unwrap().unwrap();
        assert_eq!(tokens.ids.len(), 62);
        assert_eq!(tokenizer().tokenize("", "", 100, false).unwrap().unwrap().ids, [2, 3]);
    }

    #[test]
    fn a_text_over_the_limit_is_counted_to_its_end() {
        let text = "cat ".repeat(100_000);
        assert_eq!(tokenizer().tokenize("", &text, 8, false).unwrap(), Err(OverLimit { token_count: 100_002 }));
        assert_eq!(tokenizer().count("", &text).unwrap(), 100_002);
    }

    #[test]
    fn a_long_text_without_white_space_is_counted() {
        assert!(tokenizer().count("", &"é".repeat(PIECE_BYTES * 2)).unwrap() > 2);
        assert_eq!(tokenizer().count("", &" ".repeat(PIECE_BYTES * 3)).unwrap(), 2);
    }

    #[test]
    fn a_text_is_unknown_if_the_vocabulary_has_none_of_its_tokens() {
        let [spaced, unspaced] = ["zebra ", "zebra"].map(|word| word.repeat(PIECE_BYTES));
        let (known_at_last, known_behind_the_head) = (format!("{spaced}cat"), format!("{} cat", "zebra ".repeat(20)));
        for (text, is_unknown) in [
            ("", true),
            (" \n", true),
            ("\u{200b}\u{fffd}\u{ad}\u{1}", true),
            ("\u{200b}cat", false),
            ("the cat", false),
            ("\u{1f9a9}", true),
            ("zebra \u{1f9a9}\u{1f9a9}\nquagga", true),
            ("zebra .", false),
            ("zebra cat", false),
            (spaced.as_str(), true),
            (known_at_last.as_str(), false),
            (known_behind_the_head.as_str(), false),
            (unspaced.as_str(), true),
        ] {
            assert_eq!(tokenizer().is_unknown(text).unwrap(), is_unknown, "{text:.40}");
        }
    }

    #[test]
    fn offsets_are_bytes_of_the_text_without_the_prefix() {
        let text = "the  cat — sat";
        let tokens = tokenizer().tokenize("mat on ", text, 100, true).unwrap().unwrap();
        let words: Vec<&str> = tokens.offsets.iter().map(|range| &text[range.clone()]).collect();
        assert_eq!(words, ["the", "cat", "—", "sat"]);
        assert_eq!(tokens.content, 3..7);
    }

    #[test]
    fn a_post_processor_that_gives_a_text_twice_is_left_to_the_library() {
        let mut json: serde_json::Value = serde_json::from_str(sample::TOKENIZER_JSON).unwrap();
        let parts = json["post_processor"]["single"].as_array_mut().unwrap();
        parts.insert(2, parts[1].clone());
        let twice = TextTokenizer::from_json(json.to_string().as_bytes(), sample::VOCABULARY).unwrap();
        assert_eq!(twice.tokenize("", "cat", 100, false).unwrap().unwrap().ids, [2, 5, 5, 3]);
        assert!(twice.words.is_none() && tokenizer().words.is_some());
    }

    #[test]
    fn ids_that_the_model_has_no_weights_for_are_refused() {
        let error = TextTokenizer::from_json(sample::TOKENIZER_JSON.as_bytes(), sample::VOCABULARY - 1).err().unwrap();
        assert!(error.contains("weights for"), "{error}");
    }

    proptest! {
        // Each case is some hundred kilobytes of text.
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn pieces_are_the_whole_text(text in "(\\PC|\\s){0,40}", times in 0usize..4000) {
            let text = text.repeat(times);
            let mut joined = String::new();
            for piece in pieces(&text) {
                prop_assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
                joined.push_str(piece);
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn a_text_in_pieces_has_the_tokens_of_the_whole(words in prop::collection::vec("(the|cat|sat|\\.|é|日本|\\PC{1,3}) ", 1..8)) {
            let text = words.concat().repeat(PIECE_BYTES / 8);
            let tokenizer = tokenizer();
            let whole = tokenizer.tokenizer.encode_fast(text.as_str(), true).unwrap().get_ids().to_vec();
            let tokens = tokenizer.tokenize("", &text, usize::MAX, false).unwrap().unwrap();
            prop_assert_eq!(tokens.ids, whole);
        }

        #[test]
        fn offsets_are_slices_of_the_text_in_order(prefix in "(the |é|\\PC{0,4})", text in "(the|cat|é|e\u{301}|日本|ﬁ|İ|\\PC|\\s|\0){0,60}") {
            let tokens = tokenizer().tokenize(&prefix, &text, usize::MAX, true).unwrap().unwrap();
            prop_assert_eq!(tokens.content.len(), tokens.offsets.len());
            let without = tokenizer().tokenize(&prefix, &text, usize::MAX, false).unwrap().unwrap();
            prop_assert_eq!(&tokens.ids, &without.ids);
            let mut last = 0;
            for range in tokens.offsets {
                prop_assert!(text.get(range.clone()).is_some(), "{:?} is no slice", range);
                prop_assert!(range.start >= last);
                last = range.start;
            }
        }
    }
}
