//! The tokens of BERT's tokenizers, for the words that need none of the rules for other scripts: printable ASCII, which is nearly all of most texts.
//! Their library keeps the origin of each character through each of its steps, and so takes many times as long (`make bench BENCH=encoder/tokens`).

use rustc_hash::FxHashMap;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// A tokenizer with more added tokens is left to its library, because each of them is looked for by itself here.
const MOST_ADDED: usize = 32;

/// The vocabulary of a tokenizer that cuts a text at white space and punctuation, and each word into the longest pieces that it knows.
pub(crate) struct WordPiece {
    /// The pieces that begin a word.
    first: FxHashMap<Box<[u8]>, u32>,
    /// Those that continue one.
    further: FxHashMap<Box<[u8]>, u32>,
    /// The bytes of the longest piece.
    longest_piece: usize,
    /// Of a word with more characters nothing is known.
    longest_word: usize,
    unknown: u32,
    lowercases: bool,
    /// What the library takes out of a text before it looks at words, such as `[MASK]`.
    added: Vec<String>,
}

impl WordPiece {
    /// `None` if the tokenizer does anything else with such words.
    pub fn of(tokenizer: &Tokenizer) -> Option<WordPiece> {
        let Some(NormalizerWrapper::BertNormalizer(normalizer)) = tokenizer.get_normalizer() else { return None };
        let Some(PreTokenizerWrapper::BertPreTokenizer(_)) = tokenizer.get_pre_tokenizer() else { return None };
        let ModelWrapper::WordPiece(model) = tokenizer.get_model() else { return None };
        let vocabulary = tokenizer.get_vocab(false);
        let unknown = *vocabulary.get(&model.unk_token)?;
        let added = tokenizer.get_added_tokens_decoder();
        // Those that are normalised would be looked for in another form of the text.
        if added.len() > MOST_ADDED || added.values().any(|token| token.normalized || token.content.is_empty()) {
            return None;
        }
        let added = added.into_values().map(|token| token.content).collect();
        let longest_piece = vocabulary.keys().map(String::len).max().unwrap_or(0);
        let (mut first, mut further) = (FxHashMap::default(), FxHashMap::default());
        for (piece, id) in vocabulary {
            if let Some(rest) = piece.strip_prefix(&model.continuing_subword_prefix) {
                further.insert(rest.as_bytes().into(), id);
            }
            first.insert(piece.into_bytes().into_boxed_slice(), id);
        }
        let longest_word = model.max_input_chars_per_word;
        let lowercases = normalizer.lowercase;
        Some(WordPiece { first, further, longest_piece, longest_word, unknown, lowercases, added })
    }

    /// Adds the tokens of a text. What it cannot do itself it leaves to `other`, in stretches between white space.
    pub fn tokenize<E>(
        &self,
        text: &str,
        ids: &mut Vec<u32>,
        mut other: impl FnMut(&str, &mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.added.iter().any(|token| text.contains(token.as_str())) {
            return other(text, ids);
        }
        let mut lowered = Vec::new();
        // Where the text begins that is left to the other one, and where the next stretch does.
        let (mut left, mut at) = (None, 0);
        for stretch in text.split([' ', '\t', '\n', '\r']) {
            let begins = at;
            at += stretch.len() + 1;
            if !stretch.bytes().all(|byte| byte.is_ascii_graphic()) {
                left.get_or_insert(begins);
                continue;
            }
            if stretch.is_empty() {
                continue;
            }
            if let Some(from) = left.take() {
                other(&text[from..begins], ids)?;
            }
            let mut bytes = stretch.as_bytes();
            if self.lowercases && bytes.iter().any(u8::is_ascii_uppercase) {
                lowered.clear();
                lowered.extend(bytes.iter().map(u8::to_ascii_lowercase));
                bytes = &lowered;
            }
            while !bytes.is_empty() {
                // Each punctuation mark is a word.
                let end = bytes.iter().position(u8::is_ascii_punctuation).map_or(bytes.len(), |at| at.max(1));
                let (word, rest) = bytes.split_at(end);
                self.cut(word, ids);
                bytes = rest;
            }
        }
        left.map_or(Ok(()), |from| other(&text[from..], ids))
    }

    /// Adds the tokens of a word, or the one that stands for an unknown word.
    fn cut(&self, word: &[u8], ids: &mut Vec<u32>) {
        let before = ids.len();
        let mut start = 0;
        while start < word.len() {
            let pieces = if start == 0 { &self.first } else { &self.further };
            let longest =
                if word.len() > self.longest_word { start } else { word.len().min(start + self.longest_piece) };
            let found = (start + 1..=longest).rev().find_map(|end| Some((end, *pieces.get(&word[start..end])?)));
            let Some((end, id)) = found else {
                ids.truncate(before);
                ids.push(self.unknown);
                return;
            };
            ids.push(id);
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    /// The library's tokens of a text, and ours.
    fn both(tokenizer: &Tokenizer, text: &str) -> (Vec<u32>, Vec<u32>) {
        let library = |text: &str| tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
        let mut ours = Vec::new();
        let words = WordPiece::of(tokenizer).unwrap();
        let other = |stretch: &str, ids: &mut Vec<u32>| {
            ids.extend(library(stretch));
            Ok::<(), ()>(())
        };
        words.tokenize(text, &mut ours, other).unwrap();
        (library(text), ours)
    }

    /// The sample's tokenizer, with pieces of words and with capitals if they are to be kept.
    fn tokenizer(lowercases: bool) -> Tokenizer {
        let mut json: serde_json::Value = serde_json::from_str(sample::TOKENIZER_JSON).unwrap();
        (json["truncation"], json["padding"]) = (serde_json::Value::Null, serde_json::Value::Null);
        json["normalizer"]["lowercase"] = lowercases.into();
        let vocabulary = json["model"]["vocab"].as_object_mut().unwrap();
        for piece in [
            "##a", "##at", "##ts", "##t", "c", "ca", "The", "T", "##C", "!", "'", "##-", "é", "e", "##e", "[", "]",
            "##日",
        ] {
            let id = vocabulary.len();
            vocabulary.entry(piece).or_insert(id.into());
        }
        Tokenizer::from_bytes(json.to_string()).unwrap()
    }

    #[test]
    fn words_are_cut_into_the_longest_known_pieces() {
        let tokenizer = tokenizer(true);
        let pieces = |text: &str| {
            let (library, ours) = both(&tokenizer, text);
            assert_eq!(library, ours, "{text}");
            ours.into_iter().map(|id| tokenizer.id_to_token(id).unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(pieces("The cats, cat's\tCATAT"), "the cat ##s , cat ' [UNK] cat ##at");
        assert_eq!(pieces("[mask] \u{0}cat\u{b}s"), "[ [UNK] ] cat ##s");
        // The longest word that is looked at, and one that is longer.
        assert_eq!(pieces(&format!("c{}", "a".repeat(99))).len(), "ca".len() + 98 * " ##a".len());
        assert_eq!(pieces(&format!("c{}", "a".repeat(100))), "[UNK]");
    }

    #[test]
    fn a_tokenizer_that_does_anything_else_is_left_to_its_library() {
        let changed = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut json: serde_json::Value = serde_json::from_str(sample::TOKENIZER_JSON).unwrap();
            change(&mut json);
            WordPiece::of(&Tokenizer::from_bytes(json.to_string()).unwrap()).is_none()
        };
        assert!(!changed(&|_| ()));
        assert!(changed(&|json| json["normalizer"] = serde_json::json!({"type": "Lowercase"})));
        assert!(changed(&|json| json["pre_tokenizer"] = serde_json::json!({"type": "Whitespace"})));
        assert!(changed(&|json| json["added_tokens"][0]["normalized"] = true.into()));
        assert!(changed(&|json| json["model"]["unk_token"] = "[NONE]".into()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn tokens_are_those_of_the_library(
            text in "(the|The|cat|CATS|at|s|ing|mat|[!-~]{1,4}|\\[MASK\\]|\\[SEP\\]|[ \\t\\n\\r]{1,2}|é|e\u{301}|\u{301}|日本|ﬁ|İ|\u{85}|\u{a0}|\u{b}|\u{7f}|\\PC|\\s|\0){0,30}",
            lowercases: bool,
        ) {
            let (library, ours) = both(&tokenizer(lowercases), &text);
            prop_assert_eq!(library, ours);
        }
    }
}
