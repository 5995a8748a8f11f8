//! Cuts a stretch of text into chunks a model can embed.
//!
//! Text falls into blocks, blocks into units (sentences, list items, headings, whole tables and code blocks), and units are
//! packed into chunks. A unit is counted once; one that does not fit a chunk of its own is cut further.

mod blocks;
mod sentences;
mod split;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use blocks::Kind;

/// Counts the tokens a model would see. Calls get a unit of text each, never the whole.
pub trait TokenCounter {
    /// The number of tokens of `text`, special ones not included.
    fn count(&self, text: &str) -> usize;
}

impl<F: Fn(&str) -> usize> TokenCounter for F {
    fn count(&self, text: &str) -> usize {
        self(text)
    }
}

/// How text is cut; the only one today packs whole sentences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkStrategy {
    #[default]
    SentencePacked,
}

/// What a chunk may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChunkOptions {
    pub strategy: ChunkStrategy,
    /// Tokens a chunk is filled up to.
    pub max_tokens: usize,
    /// Characters; a shorter chunk joins its neighbour where the cap allows, even if that goes over `max_tokens`.
    pub min_chunk_length: usize,
    /// Characters a chunk never exceeds, whatever the strategy.
    pub max_chars: usize,
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self { strategy: ChunkStrategy::SentencePacked, max_tokens: 120, min_chunk_length: 20, max_chars: 1800 }
    }
}

/// A piece of text: `text[start..end]` is the chunk, free of white space around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub start: usize,
    pub end: usize,
    /// The sum of its units' counts.
    pub tokens: usize,
    pub characters: usize,
}

/// A piece that is not cut unless it is too large for a chunk of its own.
#[derive(Debug, Clone)]
struct Unit {
    range: Range<usize>,
    tokens: usize,
    /// A heading: it stays with what follows it.
    leads: bool,
}

/// Cuts `text[range]` into chunks: in order, without overlap, together holding everything but white space between them.
/// Takes time linear in the text. A range that is off the text or off its character boundaries is drawn in to them.
pub fn chunk(text: &str, range: Range<usize>, options: &ChunkOptions, tokens: &dyn TokenCounter) -> Vec<Chunk> {
    let end = text.floor_char_boundary(range.end.min(text.len()));
    let start = text.ceil_char_boundary(range.start.min(end)).min(end);
    let mut packer = Packer { text, options: &sane(options), tokens, done: Vec::new(), open: None };
    for block in blocks::blocks(text, start..end) {
        match block.kind {
            Kind::Heading => packer.push(block.range, true),
            Kind::Prose => {
                for sentence in sentences::sentences(text, block.range) {
                    packer.push(sentence, false);
                }
            }
            Kind::Whole => packer.push(block.range, false),
        }
    }
    packer.finish()
}

fn sane(options: &ChunkOptions) -> ChunkOptions {
    ChunkOptions { max_tokens: options.max_tokens.max(1), max_chars: options.max_chars.max(1), ..options.clone() }
}

struct Packer<'a> {
    text: &'a str,
    options: &'a ChunkOptions,
    tokens: &'a dyn TokenCounter,
    done: Vec<Chunk>,
    open: Option<Open>,
}

struct Open {
    chunk: Chunk,
    /// It holds headings only so far.
    leads: bool,
}

impl Packer<'_> {
    fn push(&mut self, range: Range<usize>, leads: bool) {
        let Some(range) = trim(self.text, range) else { return };
        let unit = Unit { tokens: self.tokens.count(&self.text[range.clone()]), range, leads };
        if leads && self.open.as_ref().is_some_and(|open| !open.leads) {
            self.close();
        }
        if self.fits(&unit) {
            return self.append(&unit);
        }
        if self.open.as_ref().is_some_and(|open| !open.leads) {
            self.close();
        }
        if self.fits(&unit) {
            return self.append(&unit);
        }
        // Too large for a chunk of its own, or for one that a heading has begun: fill up what is left, then go on.
        let pieces = split::pieces(self.text, unit.range, self.room(), self.options, self.tokens);
        for (range, tokens) in pieces {
            let piece = Unit { range, tokens, leads };
            if !self.fits(&piece) {
                self.close();
            }
            self.append(&piece);
        }
    }

    /// Tokens and characters left in the open chunk.
    fn room(&self) -> (usize, usize) {
        let (tokens, characters) = self.open.as_ref().map_or((0, 0), |open| (open.chunk.tokens, open.chunk.characters));
        // One character is the gap before the next piece; a wider one makes the piece start a chunk.
        (self.options.max_tokens.saturating_sub(tokens), self.options.max_chars.saturating_sub(characters + 2))
    }

    fn fits(&self, unit: &Unit) -> bool {
        let (tokens, characters) = match &self.open {
            Some(open) => (open.chunk.tokens, open.chunk.characters + self.characters(open.chunk.end..unit.range.end)),
            None => (0, self.characters(unit.range.clone())),
        };
        tokens + unit.tokens <= self.options.max_tokens && characters <= self.options.max_chars
    }

    /// Characters of a range, as far as the cap is interested: a range of twice as many bytes is over it anyway.
    fn characters(&self, range: Range<usize>) -> usize {
        let bytes = range.len();
        if bytes > self.options.max_chars.saturating_mul(4) { bytes / 4 + 1 } else { self.text[range].chars().count() }
    }

    fn append(&mut self, unit: &Unit) {
        match &mut self.open {
            Some(open) => {
                open.chunk.characters += self.text[open.chunk.end..unit.range.end].chars().count();
                open.chunk.end = unit.range.end;
                open.chunk.tokens += unit.tokens;
                open.leads &= unit.leads;
            }
            None => {
                let characters = self.text[unit.range.clone()].chars().count();
                let chunk = Chunk { start: unit.range.start, end: unit.range.end, tokens: unit.tokens, characters };
                self.open = Some(Open { chunk, leads: unit.leads });
            }
        }
    }

    fn close(&mut self) {
        let Some(Open { chunk, leads }) = self.open.take() else { return };
        match self.done.last_mut() {
            // A short one joins the one before, or the one before, being short, takes this one in.
            Some(before)
                if ((chunk.characters < self.options.min_chunk_length && !leads)
                    || before.characters < self.options.min_chunk_length)
                    && joined(self.text, before, &chunk, self.options.max_chars).is_some() =>
            {
                if let Some(both) = joined(self.text, before, &chunk, self.options.max_chars) {
                    *before = both;
                }
            }
            _ => self.done.push(chunk),
        }
    }

    fn finish(mut self) -> Vec<Chunk> {
        self.close();
        self.done
    }
}

fn joined(text: &str, before: &Chunk, after: &Chunk, max_chars: usize) -> Option<Chunk> {
    let gap = &text[before.end..after.start];
    if gap.len() > max_chars.saturating_mul(4) {
        return None;
    }
    let characters = before.characters + gap.chars().count() + after.characters;
    let tokens = before.tokens + after.tokens;
    (characters <= max_chars).then_some(Chunk { start: before.start, end: after.end, tokens, characters })
}

/// The range without white space around it; `None` if there is nothing else.
fn trim(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let slice = &text[range.clone()];
    let start = range.start + (slice.len() - slice.trim_start().len());
    let end = range.start + slice.trim_end().len();
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests;
