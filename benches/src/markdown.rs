//! Markdown that looks like prose to a tokenizer and a chunker: the same for the same number, and different for
//! different numbers.
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::fmt::Write as _;

/// Plain words, so that tokens are about as long as in real text.
const WORDS: &str = "the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they \
    you were their one all we can has there been if more when will would who so no about after river harbour engine signal garden \
    winter letter market window bridge copper weather village captain library journey station mountain harvest kitchen council \
    company teacher student problem science history theory picture machine surface pressure current material structure system \
    network service document section chapter report meeting decision question answer evidence record measure value result \
    change growth supply demand price trade money bank law court police army border island forest desert ocean storm cloud \
    light sound colour shape weight speed force energy water stone metal paper glass cotton leather bread sugar coffee tea \
    early later often never always almost quite rather large small heavy quick quiet bright narrow distant ancient modern \
    carry build repair collect deliver examine describe compare discover protect remember arrive depart return follow";

/// Words drawn with a bias to the first of the list, because in real text common words dominate.
pub struct Prose {
    words: Vec<&'static str>,
    random: SmallRng,
}

impl Prose {
    pub fn new(seed: u64) -> Self {
        Self { words: WORDS.split_whitespace().collect(), random: SmallRng::seed_from_u64(seed) }
    }

    pub fn words(&mut self, count: usize) -> String {
        let last = self.words.len();
        let mut draw = || self.random.random_range(0..last);
        (0..count).map(|_| self.words[draw().min(draw())]).collect::<Vec<_>>().join(" ")
    }

    fn sentence(&mut self) -> String {
        let count = self.random.random_range(8..20);
        let words = self.words(count);
        format!("{}{}. ", words[..1].to_uppercase(), &words[1..])
    }

    fn paragraph(&mut self) -> String {
        (0..5).map(|_| self.sentence()).collect()
    }
}

/// A document of 25 sections on three levels, with about 130 words of text in each.
pub fn handbook(number: usize) -> String {
    let mut prose = Prose::new(number as u64);
    let mut text = String::new();
    let mut section = |text: &mut String, level: usize| {
        let title = prose.words(4);
        // Writing to a String cannot fail.
        let _ = write!(text, "{} {title}\n\n{}\n\n{}\n\n", "#".repeat(level), prose.paragraph(), prose.paragraph());
    };
    let _ = write!(text, "# Handbook {number}\n\n");
    for _ in 0..8 {
        section(&mut text, 2);
        section(&mut text, 3);
        section(&mut text, 3);
    }
    text
}

/// A document with this many sections, each a heading and one sentence: two nodes per section, and one for the file.
pub fn ledger(number: usize, sections: usize) -> String {
    let mut prose = Prose::new(1_000_000 + number as u64);
    let mut text = String::new();
    for section in 0..sections {
        let title = prose.words(2);
        let _ = write!(text, "## Entry {number}-{section}: {title}\n\n{}\n\n", prose.sentence());
    }
    text
}
