//! Checks that what a language model says stands in its sources.
use crate::llm::after_thoughts;
use serde_json::Value;

/// The fewest letters and digits of a quote: fewer stand in every text.
const LEAST: usize = 4;
/// The most sentences that are kept.
const SENTENCES: usize = 200;
/// The most bytes of a sentence with its quotes: what is longer is not read again with each piece that comes.
const SENTENCE_BYTES: usize = 64 << 10;

/// What the model says in one sentence, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub text: String,
    /// The number of the source that is named, if any, and the quote.
    pub quotes: Vec<(Option<usize>, String)>,
}

impl Claim {
    fn of(value: &Value) -> Option<Claim> {
        let text = value["text"].as_str().or_else(|| value["sentence"].as_str()).or_else(|| value.as_str())?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let quotes = value["citations"].as_array().into_iter().flatten();
        let quotes = quotes.filter_map(|citation| {
            let number = match &citation["source"] {
                Value::Number(number) => number.as_u64().and_then(|number| usize::try_from(number).ok()),
                Value::String(text) => text.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok(),
                _ => None,
            };
            Some((number, citation["quote"].as_str()?.to_owned()))
        });
        (!text.is_empty()).then(|| Claim { text, quotes: quotes.collect() })
    }
}

/// Reads the sentences out of an answer while it comes.
#[derive(Debug, Default)]
pub struct Sentences {
    all: String,
    /// Where the next sentence begins; 0 before the list was found.
    at: usize,
    found: usize,
    is_over: bool,
}

impl Sentences {
    /// Takes a piece of the answer; returns the sentences that it completes. Those of an answer that begins with words come at its end, because the words may
    /// be thoughts that are still going on, with sentences that the model only considers.
    pub fn take(&mut self, piece: &str) -> Vec<Claim> {
        self.all.push_str(piece);
        // Only these end a sentence.
        if self.is_over || !piece.contains(['}', ']', '[']) || !self.has_begun() {
            return Vec::new();
        }
        self.read()
    }

    fn has_begun(&self) -> bool {
        // Long thoughts are not searched for their end with each piece that comes.
        let may_end = self.all.len() <= SENTENCE_BYTES;
        let begun = self.all.trim_start();
        let is_answer = begun.starts_with('{') || begun.starts_with("```");
        self.at > 0 || is_answer || (may_end && after_thoughts(&self.all) > 0)
    }

    /// The sentences that are whole by now.
    fn read(&mut self) -> Vec<Claim> {
        let mut claims = Vec::new();
        if self.at == 0 {
            let from = after_thoughts(&self.all);
            let key = self.all[from..].find("\"sentences\"").map(|key| from + key);
            let Some(list) = key.and_then(|key| Some(key + self.all[key..].find('[')? + 1)) else {
                self.is_over = self.all.len() > SENTENCE_BYTES;
                return claims;
            };
            self.at = list;
        }
        loop {
            let rest = &self.all[self.at..];
            let next = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            if next.starts_with(']') || self.found >= SENTENCES {
                self.is_over = true;
                return claims;
            }
            let skipped = rest.len() - next.len();
            let mut values = serde_json::Deserializer::from_str(next).into_iter::<Value>();
            let Some(Ok(value)) = values.next() else {
                self.is_over = next.len() > SENTENCE_BYTES;
                return claims;
            };
            self.at += skipped + values.byte_offset();
            self.found += 1;
            claims.extend(Claim::of(&value));
        }
    }

    /// The whole answer once it is over: whether the model says that the sources answer, and the sentences that were not read as they came.
    pub fn end(mut self) -> (bool, Vec<Claim>) {
        let claims = if self.at == 0 && !self.is_over { self.read() } else { Vec::new() };
        let said = &self.all[after_thoughts(&self.all)..];
        let whole = said.find('{').and_then(|from| Some(&said[from..=said.rfind('}').filter(|to| *to > from)?]));
        let value: Option<Value> = whole.and_then(|whole| serde_json::from_str(whole).ok());
        let says_no = value.as_ref().is_some_and(|value| value["answered"] == Value::Bool(false));
        if self.found > 0 || says_no {
            return (!says_no, claims);
        }
        // It may have answered in words alone.
        let text = value.as_ref().and_then(|value| value["answer"].as_str()).unwrap_or(said).trim();
        let is_empty_list = value.as_ref().is_some_and(|value| value["sentences"].is_array());
        let claim = Claim { text: text.chars().take(2_000).collect(), quotes: Vec::new() };
        (true, if is_empty_list || text.is_empty() { Vec::new() } else { vec![claim] })
    }
}

/// A text whose quotes are looked up.
pub struct Quotable {
    text: String,
    /// The letters that count, and where each stands in the text.
    letters: Vec<char>,
    places: Vec<usize>,
}

impl Quotable {
    pub fn new(text: String) -> Quotable {
        let (letters, places) = normal(&text).unzip();
        Quotable { text, letters, places }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The piece of the text that the quote is, as it stands here.
    pub fn find(&self, quote: &str) -> Option<&str> {
        let ends: &[char] = &['"', '\u{27}', '.', '…', ' '];
        let quote: Vec<char> = normal(quote.trim_matches(ends)).map(|(letter, _)| letter).collect();
        if quote.iter().filter(|letter| letter.is_alphanumeric()).count() < LEAST {
            return None;
        }
        let needle: String = quote.iter().collect();
        let hay: String = self.letters.iter().collect();
        // The search of strings is linear; places are counted in letters.
        let at = hay[..hay.find(&needle)?].chars().count();
        let from = self.places[at];
        let last = self.places[at + quote.len() - 1];
        let end = last + self.text[last..].chars().next().map_or(0, char::len_utf8);
        Some(&self.text[from..end])
    }
}

/// The letters of a text as readers take them: one blank for all white space, plain quotes and dashes, nothing that is not seen.
fn normal(text: &str) -> impl Iterator<Item = (char, usize)> {
    let mut after_blank = true;
    text.char_indices().filter_map(move |(at, letter)| {
        let letter = match letter {
            '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{feff}' | '*' | '`' => return None,
            '‘' | '’' | '‚' | '‛' | '′' => '\u{27}',
            '“' | '”' | '„' | '‟' | '«' | '»' | '″' => '"',
            '‐'..='―' | '−' => '-',
            letter if letter.is_whitespace() => ' ',
            letter => letter,
        };
        let is_blank = letter == ' ';
        if is_blank && std::mem::replace(&mut after_blank, is_blank) {
            return None;
        }
        after_blank = is_blank;
        Some((letter, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(text: &str, quotes: &[(Option<usize>, &str)]) -> Claim {
        let quotes = quotes.iter().map(|(number, quote)| (*number, (*quote).to_owned())).collect();
        Claim { text: text.to_owned(), quotes }
    }

    #[test]
    fn sentences_are_read_as_they_come_however_the_answer_is_cut() {
        let answer = r#"```json
{"answered": true, "sentences": [
  {"text": "Ducks  dive [really].", "citations": [{"source": 1, "quote": "a \"dive\" ]} of ducks"}]},
  {"text": "Geese do not.", "citations": [{"source": "[2]", "quote": "geese"}, {"quote": "é"}]}, {"text": " "}, "Loose."
]}
```"#;
        let want = [
            claim("Ducks dive [really].", &[(Some(1), "a \"dive\" ]} of ducks")]),
            claim("Geese do not.", &[(Some(2), "geese"), (None, "é")]),
            claim("Loose.", &[]),
        ];
        // The sentences of thoughts are not those of the answer, and words before the answer may be thoughts.
        let thoughts = "I may say:\n{\"answered\": true, \"sentences\": [{\"text\": \"Ducks fly.\"}]}\n</think>\n\n";
        for (before, comes_at_once) in [("", true), (thoughts, true), ("Sure:\n", false), ("`ducks` is:\n", false)] {
            let letters: Vec<char> = before.chars().chain(answer.chars()).collect();
            for size in 1..40 {
                let mut sentences = Sentences::default();
                let pieces = letters.chunks(size).map(|piece| piece.iter().collect::<String>());
                let mut read: Vec<Claim> = pieces.flat_map(|piece| sentences.take(&piece)).collect();
                assert_eq!(read.len(), if comes_at_once { want.len() } else { 0 }, "{before} in pieces of {size}");
                let (answered, rest) = sentences.end();
                read.extend(rest);
                assert_eq!((answered, read.as_slice()), (true, want.as_slice()), "{before} in pieces of {size}");
            }
        }
    }

    #[test]
    fn an_answer_that_ends_early_or_is_of_another_form_is_read_as_far_as_it_goes() {
        let read = |answer: &str| {
            let mut sentences = Sentences::default();
            let mut read = sentences.take(answer);
            let (answered, rest) = sentences.end();
            read.extend(rest);
            (answered, read)
        };
        let cut = r#"{"answered": true, "sentences": [{"text": "A.", "citations": []}, {"text": "B"#;
        assert_eq!(read(cut), (true, vec![claim("A.", &[])]));
        assert_eq!(read(r#"{"answered": false, "sentences": []}"#), (false, vec![]));
        assert_eq!(read(r#"{"sentences": [], "answered": false}"#), (false, vec![]));
        assert_eq!(read(r#"{"sentences": []}"#), (true, vec![]));
        assert_eq!(read("Ducks dive."), (true, vec![claim("Ducks dive.", &[])]));
        assert_eq!(read(r#"{"answer": "Ducks dive."}"#), (true, vec![claim("Ducks dive.", &[])]));
        assert_eq!(read(""), (true, vec![]));
        assert_eq!(read("}{"), (true, vec![claim("}{", &[])]));
        let mut endless = Sentences::default();
        endless.take("{\"sentences\": [{\"text\": \"");
        assert!((0..1 << 17).all(|_| endless.take("]").is_empty()), "a sentence without an end is read only so often");
        assert!(endless.is_over);
    }

    #[test]
    fn a_quote_is_found_as_it_stands_in_its_source() {
        let source = Quotable::new("The  “grey\u{ad} heron” –\nArdea cinerea – eats   *fish*,\tfrogs.".to_owned());
        for (quote, found) in [
            ("\"grey heron\" - Ardea cinerea", Some("grey\u{ad} heron” –\nArdea cinerea")),
            ("eats fish, frogs.", Some("eats   *fish*,\tfrogs")),
            ("Grey heron", None),
            ("eats frogs", None),
            ("eat", None),
            ("...", None),
            ("", None),
        ] {
            assert_eq!(source.find(quote), found, "{quote}");
        }
    }

    proptest! {
        #[test]
        fn any_piece_of_a_text_is_found_in_it(text in "[a-zé \n“”’–*x\u{ad}]{0,60}", from in 0usize..60, length in 1usize..60) {
            let letters: Vec<char> = text.chars().collect();
            let from = from.min(letters.len());
            let piece: String = letters[from..(from + length).min(letters.len())].iter().collect();
            let source = Quotable::new(text.clone());
            match source.find(&piece) {
                Some(found) => prop_assert!(text.contains(found)),
                None => prop_assert!(piece.chars().filter(|c| c.is_alphanumeric()).count() < LEAST, "{piece:?} of {text:?}"),
            }
        }
    }
}
