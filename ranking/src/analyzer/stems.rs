//! Stems, by the language of an index or of each text.
use super::{Language, normal::fold};
use rust_stemmers::Stemmer;
use std::borrow::Cow;
use whatlang::{Lang, detect};

/// Whose terms are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A text in this language.
    Text(Language),
    /// A query, which may be meant for texts in any of the languages.
    Query,
}

/// How much of a text its language is told by.
const TELLING: usize = 4_096;

/// The stemmers of an index.
pub struct Stems {
    language: Language,
    /// That of the language, or those of all.
    stemmers: Vec<(Language, Stemmer)>,
}

impl Stems {
    pub fn new(language: Language) -> Stems {
        let all = || Language::NAMES.iter().map(|(_, language)| *language);
        let wanted = |of: &Language| language == Language::Detect || *of == language;
        let stemmer = |of: Language| Some((of, Stemmer::create(of.algorithm()?)));
        Stems { language, stemmers: all().filter(wanted).filter_map(stemmer).collect() }
    }

    /// How a text is read.
    pub fn read(&self, text: &str) -> Reading {
        Reading::Text(match self.language {
            Language::Detect => language_of(text),
            language => language,
        })
    }

    /// Calls `emit` with the term of a word in lower case, and then with its other forms.
    ///
    /// If each text has a language of its own, a stem bears the name of its language: the same letters mean something else in another one.
    /// A query has the stems of every language that is written with the word's letters, and finds in each text what it would in an index of
    /// that language.
    pub fn forms(&self, lower: &str, reading: Reading, mut emit: impl FnMut(&str, bool)) {
        let folded = fold(lower);
        if self.language != Language::Detect {
            match self.stemmers.first() {
                None => emit(&folded, true),
                Some((language, stemmer)) => stemmed(*language, stemmer, lower, &folded, emit),
            }
            return;
        }
        let script = Script::of(lower);
        let is_meant = |language: Language| {
            Some(Script::of_language(language)) == script
                && matches!(reading, Reading::Query | Reading::Text(_))
                && (reading == Reading::Query || reading == Reading::Text(language))
        };
        let mut is_first = true;
        // A text in another language, or in none that can be told, has words as they are written.
        if reading == Reading::Query || !self.stemmers.iter().any(|(language, _)| is_meant(*language)) {
            emit(&folded, true);
            is_first = false;
        }
        for (language, stemmer) in self.stemmers.iter().filter(|(language, _)| is_meant(*language)) {
            stemmed(*language, stemmer, lower, &folded, |stem, is_main| {
                emit(&format!("{stem}/{}", language.name()), is_first && is_main);
            });
            is_first = false;
        }
    }
}

fn stemmed(language: Language, stemmer: &Stemmer, lower: &str, folded: &str, mut emit: impl FnMut(&str, bool)) {
    let bare = stem(stemmer, folded);
    // English has no accents, and Russian has none once `й` is a letter. Other stemmers know their accents; the form without them is
    // for those who type none.
    if matches!(language, Language::English | Language::Russian) || lower.is_ascii() {
        return emit(&bare, true);
    }
    let accented = stem(stemmer, lower);
    let accented = fold(&accented);
    emit(&accented, true);
    if accented != bare {
        emit(&bare, false);
    }
}

/// A stemmer may remove a whole word; then the word is its own stem.
fn stem<'a>(stemmer: &Stemmer, word: &'a str) -> Cow<'a, str> {
    match stemmer.stem(word) {
        stem if stem.is_empty() => Cow::Borrowed(word),
        stem => stem,
    }
}

/// The language of a text; `None` if that cannot be told, or if there is no stemmer for it.
fn language_of(text: &str) -> Language {
    let Some(told) = detect(&text[..text.floor_char_boundary(TELLING)]) else { return Language::None };
    if !told.is_reliable() {
        // Where letters have one stemmer alone, that does for a neighbour too.
        return match told.script() {
            whatlang::Script::Arabic => Language::Arabic,
            whatlang::Script::Cyrillic => Language::Russian,
            whatlang::Script::Greek => Language::Greek,
            whatlang::Script::Tamil => Language::Tamil,
            _ => Language::None,
        };
    }
    match told.lang() {
        Lang::Ara => Language::Arabic,
        Lang::Dan => Language::Danish,
        Lang::Nld => Language::Dutch,
        Lang::Eng => Language::English,
        Lang::Fin => Language::Finnish,
        Lang::Fra => Language::French,
        Lang::Deu => Language::German,
        Lang::Ell => Language::Greek,
        Lang::Hun => Language::Hungarian,
        Lang::Ita => Language::Italian,
        Lang::Nob => Language::Norwegian,
        Lang::Por => Language::Portuguese,
        Lang::Ron => Language::Romanian,
        Lang::Rus => Language::Russian,
        Lang::Spa => Language::Spanish,
        Lang::Swe => Language::Swedish,
        Lang::Tam => Language::Tamil,
        Lang::Tur => Language::Turkish,
        _ => Language::None,
    }
}

/// The letters of a language that has a stemmer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Arabic,
    Cyrillic,
    Greek,
    Latin,
    Tamil,
}

impl Script {
    /// That of a word's first letter.
    fn of(word: &str) -> Option<Script> {
        word.chars().find(|ch| ch.is_alphabetic()).and_then(|ch| match u32::from(ch) {
            0x41..=0x24F | 0x1E00..=0x1EFF => Some(Script::Latin),
            0x370..=0x3FF | 0x1F00..=0x1FFF => Some(Script::Greek),
            0x400..=0x52F => Some(Script::Cyrillic),
            0x600..=0x6FF => Some(Script::Arabic),
            0xB80..=0xBFF => Some(Script::Tamil),
            _ => None,
        })
    }

    fn of_language(language: Language) -> Script {
        match language {
            Language::Arabic => Script::Arabic,
            Language::Greek => Script::Greek,
            Language::Russian => Script::Cyrillic,
            Language::Tamil => Script::Tamil,
            _ => Script::Latin,
        }
    }
}
