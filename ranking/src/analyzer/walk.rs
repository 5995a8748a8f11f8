//! The walk over a text that finds its words.
use super::{
    Analyzer, Kind, Language, Token,
    normal::{Normal, fold, is_emoji, is_skin},
    stems::Reading,
};
use icu_segmenter::{WordSegmenter, options::WordBreakInvariantOptions};
use unicode_segmentation::UnicodeSegmentation;

/// Longer words are encodings and noise; they are neither terms nor counted in a document's length.
pub const MAX_TERM_CHARS: usize = 64;
/// A long text is normalised in pieces of about this many bytes, which end at white space.
const PIECE: usize = 64 << 10;
/// Where no white space comes, a piece ends after this many bytes anyway.
const LONGEST_PIECE: usize = 1 << 20;
/// How much of a run without spaces is cut into words at once.
const RUN: usize = 4 << 10;
/// What an apostrophe joins to an English word and is no word itself.
const CONTRACTIONS: [&str; 8] = ["d", "ll", "m", "n", "re", "s", "t", "ve"];
/// What joins the parts of a name.
const JOINTS: [char; 3] = ['_', '.', ':'];

/// Calls `emit` with every token of a text.
pub fn walk(analyzer: &Analyzer, reading: Reading, text: &str, emit: impl FnMut(Token<'_>)) {
    let mut counts = Counts::default();
    let mut emit = emit;
    let mut rest = text;
    let mut base = 0;
    while !rest.is_empty() {
        let (piece, next) = rest.split_at(end_of_piece(rest));
        let normal = Normal::new(piece);
        let mut walk = Walk { analyzer, reading, normal: &normal, base, counts, emit: &mut emit };
        walk.piece();
        counts = walk.counts;
        base += piece.len();
        rest = next;
    }
}

fn end_of_piece(rest: &str) -> usize {
    if rest.len() <= PIECE {
        return rest.len();
    }
    let (from, to) = (rest.floor_char_boundary(PIECE), rest.floor_char_boundary(LONGEST_PIECE));
    rest[from..to].find(char::is_whitespace).map_or(to, |space| from + space)
}

#[derive(Clone, Copy, Default)]
struct Counts {
    word: u32,
    position: u32,
}

struct Walk<'w, 't, F> {
    analyzer: &'w Analyzer,
    reading: Reading,
    normal: &'w Normal<'t>,
    /// Where the piece begins in the text.
    base: usize,
    counts: Counts,
    emit: &'w mut F,
}

impl<F: FnMut(Token<'_>)> Walk<'_, '_, F> {
    fn piece(&mut self) {
        let text: &str = &self.normal.text;
        let mut run = Run::default();
        let mut unspaced = 0..0;
        for (start, segment) in text.split_word_bound_indices() {
            let end = start + segment.len();
            if segment.starts_with(is_unspaced) {
                run.end(self);
                if unspaced.end != start {
                    self.unspaced(std::mem::replace(&mut unspaced, start..start));
                }
                unspaced.end = end;
                continue;
            }
            if segment.chars().any(char::is_alphanumeric) {
                // The words before this one come first.
                self.unspaced(std::mem::replace(&mut unspaced, end..end));
                // A word may hold both kinds: to the word rules Hangul is a letter like any other.
                let mut from = start;
                for (at, ch) in segment.char_indices().map(|(at, ch)| (start + at, ch)).filter(|(_, ch)| is_cjk(*ch)) {
                    self.word(from..at, &mut run);
                    from = at + ch.len_utf8();
                    run.push(self, ch, at);
                }
                self.word(from..end, &mut run);
            } else if segment.chars().any(is_emoji) {
                self.unspaced(std::mem::replace(&mut unspaced, end..end));
                run.end(self);
                self.emoji(start, segment);
            }
        }
        self.unspaced(unspaced);
        run.end(self);
    }

    fn token(&mut self, term: &str, from: usize, to: usize, position: u32, kind: Kind) {
        let range = self.normal.original(from..to);
        let range = self.base + range.start..self.base + range.end;
        (self.emit)(Token { term, range, word: self.counts.word, position, kind });
    }

    /// Begins the next word, this many places further on.
    fn next(&mut self, places: usize) {
        self.counts.word = self.counts.word.saturating_add(1);
        self.counts.position = self.counts.position.saturating_add(u32::try_from(places.max(1)).unwrap_or(u32::MAX));
    }

    fn word(&mut self, range: std::ops::Range<usize>, run: &mut Run) {
        let whole = &self.normal.text[range.clone()];
        if !whole.chars().any(char::is_alphanumeric) {
            return;
        }
        run.end(self);
        // Underscores at the ends are markup.
        let name = whole.trim_matches(JOINTS);
        let start = range.start + (whole.len() - whole.trim_start_matches(JOINTS).len());
        if name.contains(JOINTS) && !name.chars().all(|ch| ch.is_numeric() || ch == '.' || ch == ',') {
            self.name(name, start);
        } else if self.terms(name, start, self.counts.position, Kind::Word) {
            self.next(1);
        }
    }

    /// Emits a name that has parts.
    fn name(&mut self, name: &str, start: usize) {
        if name.split(JOINTS).all(|part| part.chars().nth(1).is_none()) {
            // An abbreviation such as `U.S.A.` is written without its points too.
            let bare: String = name.chars().filter(|ch| !JOINTS.contains(ch)).collect();
            if self.terms_of(&bare, start..start + name.len(), self.counts.position, Kind::Word) {
                self.next(1);
            }
            return;
        }
        let (first, end) = (self.counts.position, start + name.len());
        let fits = is_short(name);
        if fits {
            let folded = name.to_lowercase();
            let folded = fold(&folded);
            self.token(&folded, start, end, first, Kind::Word);
            // The number in `v1.2.3` is often written alone.
            let number = folded.trim_start_matches(char::is_alphabetic);
            if number.len() < folded.len() && number.contains('.') && number.starts_with(char::is_numeric) {
                let number = number.to_owned();
                self.token(&number, start, end, first, Kind::Form);
            }
        }
        let mut at = start;
        let mut parts = 0;
        for part in name.split(JOINTS) {
            if !part.is_empty() {
                let kind = if fits { Kind::Part } else { Kind::Word };
                self.terms(part, at, first.saturating_add(parts), kind);
                parts = parts.saturating_add(1);
            }
            // Each joint takes one byte.
            at += part.len() + 1;
        }
        self.next(parts as usize);
    }

    fn terms(&mut self, word: &str, start: usize, position: u32, kind: Kind) -> bool {
        self.terms_of(word, start..start + word.len(), position, kind)
    }

    /// Emits the terms of a word that stands at `range`; false if it has none.
    fn terms_of(&mut self, word: &str, range: std::ops::Range<usize>, position: u32, kind: Kind) -> bool {
        if !is_short(word) {
            return false;
        }
        let lower = word.to_lowercase().replace('\u{2019}', "'");
        // What stands in a text of another language is no stop word of English.
        let may_stop = matches!(self.reading, Reading::Query | Reading::Text(Language::English));
        if may_stop && self.analyzer.stop_words.binary_search(&lower.as_str()).is_ok() {
            // Whoever searches for a phrase leaves it out too.
            self.counts.position = self.counts.position.saturating_add(u32::from(kind == Kind::Word));
            return false;
        }
        let (analyzer, reading) = (self.analyzer, self.reading);
        let other = if kind == Kind::Word { Kind::Form } else { kind };
        let mut any = false;
        let mut forms = |lower: &str, is_form: bool| {
            analyzer.stems.forms(lower, reading, |term, is_first| {
                if !term.is_empty() {
                    let kind = if is_first && !is_form { kind } else { other };
                    self.token(term, range.start, range.end, position, kind);
                    any = true;
                }
            });
        };
        forms(&lower, false);
        // `l'école` is found by `école`.
        if let Some((_, joined)) = lower.rsplit_once('\'')
            && joined.chars().nth(1).is_some()
            && !CONTRACTIONS.contains(&joined)
        {
            forms(joined, true);
        }
        any
    }

    /// Emits the words of a run that is written without spaces.
    fn unspaced(&mut self, run: std::ops::Range<usize>) {
        let text: &str = &self.normal.text;
        let mut from = run.start;
        while from < run.end {
            let to = if run.end - from <= RUN { run.end } else { text.floor_char_boundary(from + RUN) };
            let mut start = 0;
            for end in WordSegmenter::new_dictionary(WordBreakInvariantOptions::default()).segment_str(&text[from..to])
            {
                let word = &text[from + start..from + end];
                if word.chars().any(char::is_alphanumeric)
                    && self.terms(word, from + start, self.counts.position, Kind::Word)
                {
                    self.next(1);
                }
                start = end;
            }
            from = to;
        }
    }

    /// Emits a picture, and those that it is joined from.
    fn emoji(&mut self, start: usize, segment: &str) {
        let term: String = segment.chars().filter(|ch| !is_skin(*ch)).collect();
        let (first, end) = (self.counts.position, start + segment.len());
        // The colours alone are a picture too.
        let term = if term.is_empty() { segment.to_owned() } else { term };
        let fits = is_short(&term);
        if fits {
            self.token(&term, start, end, first, Kind::Word);
        }
        let mut parts = 0;
        if term.contains('\u{200d}') {
            for part in term.split('\u{200d}').filter(|part| !part.is_empty() && is_short(part)) {
                let kind = if fits { Kind::Part } else { Kind::Word };
                self.token(part, start, end, first.saturating_add(parts), kind);
                parts = parts.saturating_add(1);
            }
        }
        self.next(parts as usize);
    }
}

/// Whether a word is short enough for a term. The count stops at the limit, so that a huge word is not walked through.
fn is_short(word: &str) -> bool {
    word.chars().nth(MAX_TERM_CHARS).is_none()
}

/// A run of adjacent CJK characters; a single one is a term by itself.
#[derive(Default)]
struct Run {
    last: Option<(usize, char)>,
    end: usize,
    places: u32,
}

impl Run {
    fn push<F: FnMut(Token<'_>)>(&mut self, walk: &mut Walk<'_, '_, F>, ch: char, at: usize) {
        if at != self.end {
            self.end(walk);
        }
        let end = at + ch.len_utf8();
        if let Some((start, last)) = self.last {
            let position = walk.counts.position.saturating_add(self.places);
            let mut pair = String::with_capacity(8);
            pair.extend([last, ch]);
            walk.token(&pair, start, end, position, Kind::Word);
            walk.token(last.encode_utf8(&mut [0; 4]), start, at, position, Kind::Character);
            self.places = self.places.saturating_add(1);
        }
        self.last = Some((at, ch));
        self.end = end;
    }

    fn end<F: FnMut(Token<'_>)>(&mut self, walk: &mut Walk<'_, '_, F>) {
        if let Some((start, last)) = self.last {
            let position = walk.counts.position.saturating_add(self.places);
            let kind = if self.places == 0 { Kind::Word } else { Kind::Character };
            walk.token(last.encode_utf8(&mut [0; 4]), start, self.end, position, kind);
            walk.next(self.places as usize + 1);
        }
        *self = Self::default();
    }
}

/// Thai, Lao, Burmese and Khmer, which have no spaces between words.
fn is_unspaced(ch: char) -> bool {
    matches!(u32::from(ch), 0xE00..=0xEFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0xA9E0..=0xA9FF | 0xAA60..=0xAA7F)
}

fn is_cjk(ch: char) -> bool {
    matches!(u32::from(ch),
        0x1100..=0x11FF          // Hangul Jamo
        | 0x3005..=0x3007        // Han iteration mark and zero
        | 0x3041..=0x3096 | 0x309D..=0x309F // Hiragana
        | 0x30A1..=0x30FA | 0x30FC..=0x30FF // Katakana
        | 0x3130..=0x318F        // Hangul compatibility Jamo
        | 0x31F0..=0x31FF        // Katakana extensions
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF // Han
        | 0xAC00..=0xD7A3        // Hangul syllables
        | 0xFF66..=0xFF9F        // half-width Katakana
        | 0x20000..=0x3FFFF)
}
