//! How texts become the words by which full text finds them: as in a BM25 index, by the same analyzer.
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    sync::Arc,
};
use svc_ranking::{Analyzer, AnalyzerConfig, Language};

/// How many characters of a text are found by full text.
pub(super) const CHARACTERS: i32 = 1_000_000;
/// A tsvector takes a megabyte at most; what comes after this many bytes is left out.
const BYTES: usize = 900_000;
/// After so many words their places begin anew, because a tsvector tells no more than 16,383 apart. Two words of different stretches may then look like
/// neighbours, and be taken for a phrase that the text does not have; otherwise every phrase behind the first 16,000 words would be missed.
const STRETCH: u32 = 16_000;
/// So many words of a stretch also have the places behind the one before it, so that a phrase across both is found.
const OVERLAP: u32 = 300;
/// The places that a tsvector keeps of one word.
const OF_A_WORD: usize = 255;
/// From this number of bytes on, texts are analysed on a blocking thread.
const INLINE: usize = 64 << 10;

/// The analyzer of full text.
#[derive(Clone)]
pub struct Lexicon(Arc<Analyzer>);

impl fmt::Debug for Lexicon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lexicon").finish_non_exhaustive()
    }
}

impl Lexicon {
    pub fn new(config: AnalyzerConfig) -> Lexicon {
        Lexicon(Arc::new(Analyzer::new(config)))
    }

    /// The lexicon of texts in a language.
    pub fn of(language: Language) -> Lexicon {
        Lexicon::new(AnalyzerConfig { language, ..AnalyzerConfig::default() })
    }

    pub fn analyzer(&self) -> &Analyzer {
        &self.0
    }

    /// The words of each title with its text, as the text form of a tsvector.
    pub(super) async fn words(&self, texts: Vec<(&str, &str)>) -> Vec<String> {
        let joined: Vec<String> =
            texts.into_iter().map(|(title, content)| format!("{title}\n{}", beginning(content))).collect();
        let read = {
            let lexicon = self.clone();
            move |joined: &[String]| joined.iter().map(|text| lexicon.vector(text)).collect()
        };
        if joined.iter().map(String::len).sum::<usize>() <= INLINE {
            return read(&joined);
        }
        // A runtime that ends takes the caller with it.
        tokio::task::spawn_blocking(move || read(&joined)).await.unwrap_or_default()
    }

    fn vector(&self, text: &str) -> String {
        let mut words: BTreeMap<Box<str>, Vec<u32>> = BTreeMap::new();
        let mut bytes = 0;
        self.0.tokens_with_ranges(text, |token| {
            let (term, place) = (token.term, token.position % STRETCH + 1);
            let again = (token.position >= STRETCH && place <= OVERLAP).then_some(STRETCH + place);
            for place in [Some(place), again].into_iter().flatten() {
                if bytes > BYTES {
                    return;
                }
                match words.get_mut(term) {
                    Some(places) if places.len() >= OF_A_WORD || places.contains(&place) => {}
                    Some(places) => {
                        places.push(place);
                        bytes += 2;
                    }
                    None => {
                        words.insert(term.into(), vec![place]);
                        bytes += term.len() + 8;
                    }
                }
            }
        });
        let mut vector = String::with_capacity(2 * bytes);
        for (word, places) in words {
            vector.push_str(&lexeme(&word));
            for (at, place) in places.into_iter().enumerate() {
                // Writing to a String cannot fail.
                let _ = write!(vector, "{}{place}", if at == 0 { ':' } else { ',' });
            }
            vector.push(' ');
        }
        vector
    }
}

fn beginning(content: &str) -> &str {
    content.char_indices().nth(CHARACTERS as usize).map_or(content, |(end, _)| &content[..end])
}

/// A term as PostgreSQL reads it in a tsvector and in a tsquery.
pub fn lexeme(term: &str) -> String {
    format!("'{}'", term.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_words_with_their_places() {
        let lexicon = Lexicon::new(AnalyzerConfig::default());
        assert_eq!(lexicon.vector("The cat's cats, O'Neill"), r"'cat':2,3 'neill':4 'o''neil':4 ");
        let long: String = (0..300_000).map(|at| format!("w{at} ")).collect();
        assert!(lexicon.vector(&long).len() < 2 * BYTES);
        let filled = format!("{} purple elephant", "filler ".repeat(STRETCH as usize - 1));
        assert!(lexicon.vector(&filled).contains("'eleph':1,16001 "), "it is the first word of the next stretch");
        assert!(lexicon.vector(&filled).contains("'purpl':16000 "));
    }
}
