//! Cuts a range of text into chunks that a model can embed.
//!
//! Text is divided into blocks, blocks into units (sentences, list items, headings, whole tables and code blocks), and
//! units are packed into chunks. A unit that is too large for a chunk is cut further: a table by its rows, code by its
//! lines, a sentence between words. Tokens are only counted of pieces no larger than a chunk, and of each a bounded
//! number of times.

mod blocks;
mod pack;
mod sentences;
mod split;

pub(crate) use blocks::cells;
use blocks::{Block, Kind};
use pack::{Leads, Packer};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, ops::Range};

/// Counts the tokens that a model would see. Each call gets about as much text as a chunk holds at most.
pub trait TokenCounter {
    /// The number of tokens in `text`, without special ones.
    fn count(&self, text: &str) -> usize;
}

impl<F: Fn(&str) -> usize> TokenCounter for F {
    fn count(&self, text: &str) -> usize {
        self(text)
    }
}

/// How text is cut. The only strategy today packs whole sentences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkStrategy {
    #[default]
    SentencePacked,
}

/// The bounds of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChunkOptions {
    pub strategy: ChunkStrategy,
    /// The most tokens of a chunk. Only a single grapheme cluster that has more may exceed it.
    pub max_tokens: usize,
    /// A length in characters. A shorter chunk joins its neighbour or takes a sentence from it if the caps allow that.
    pub min_chunk_length: usize,
    /// The most characters of a chunk, whatever the strategy.
    pub max_chars: usize,
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self { strategy: ChunkStrategy::SentencePacked, max_tokens: 120, min_chunk_length: 20, max_chars: 1800 }
    }
}

/// A piece of text: `text[start..end]` is the chunk, without white space around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub start: usize,
    pub end: usize,
    /// The header of the table that the chunk continues; empty if it continues none.
    pub prefix: Range<usize>,
    /// The number of tokens in the content, including the prefix.
    pub tokens: usize,
    /// The number of characters in the content, including the prefix.
    pub characters: usize,
}

impl Chunk {
    /// What a reader or a model gets: the prefix on lines of its own, then the slice.
    pub fn content<'a>(&self, text: &'a str) -> Cow<'a, str> {
        content(text, &self.prefix, self.start..self.end)
    }
}

fn content<'a>(text: &'a str, prefix: &Range<usize>, slice: Range<usize>) -> Cow<'a, str> {
    match &text[prefix.clone()] {
        "" => Cow::Borrowed(&text[slice]),
        prefix => Cow::Owned(format!("{prefix}\n{}", &text[slice])),
    }
}

/// Cuts `text[range]` into chunks. They are in order and do not overlap, and together they hold everything but white
/// space between them. No chunk begins or ends within a character as a reader sees it (a grapheme cluster), unless that
/// alone exceeds a cap or is longer than 64 characters. The time is linear in the text. A range beyond the text or off
/// its character boundaries is shortened to fit.
pub fn chunk(text: &str, range: Range<usize>, options: &ChunkOptions, tokens: &dyn TokenCounter) -> Vec<Chunk> {
    let end = text.floor_char_boundary(range.end.min(text.len()));
    let start = text.ceil_char_boundary(range.start.min(end)).min(end);
    let text = &text[..end];
    let mut packer = Packer::new(text, options, tokens);
    let mut blocks = blocks::blocks(text, start..end).into_iter().peekable();
    while let Some(Block { kind, range }) = blocks.next() {
        let introduces = blocks.peek().is_some_and(|next| !matches!(next.kind, Kind::Heading | Kind::Prose));
        match kind {
            Kind::Heading => packer.push_leading(range, Leads::Always),
            Kind::Prose => {
                let mut sentences = sentences::sentences(text, range);
                let colon = |range: &mut Range<usize>| text[range.clone()].trim_end().ends_with([':', '：']);
                let introduction = sentences.pop_if(|last| introduces && colon(last));
                sentences.into_iter().for_each(|sentence| packer.push(sentence));
                introduction.into_iter().for_each(|range| packer.push_leading(range, Leads::WhereItFits));
            }
            Kind::Item => packer.push_whole(range, sentences::sentences),
            Kind::Code => packer.push_whole(range, lines),
            Kind::Table { header } => packer.push_table(range, header),
        }
    }
    packer.finish()
}

/// The tables with a header, each with the range of its header: the first row and the row of dashes.
pub(crate) fn tables(text: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let table = |block: Block| match block.kind {
        Kind::Table { header } if !header.is_empty() => Some((block.range, header)),
        _ => None,
    };
    blocks::blocks(text, 0..text.len()).into_iter().filter_map(table).collect()
}

fn lines(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let mut at = range.start;
    let line = |line: &str| {
        let start = at;
        at += line.len();
        start..at
    };
    text[range].split_inclusive('\n').map(line).collect()
}

/// The range without white space around it; `None` if there is nothing else. A blank with a combining mark is text.
fn trim(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let slice = &text[range.clone()];
    let mut start = range.start + (slice.len() - slice.trim_start().len());
    let end = range.start + slice.trim_end().len();
    if start >= end {
        return None;
    }
    if start > range.start && !split::is_boundary(text, start) {
        start = text.floor_char_boundary(start - 1);
    }
    Some(start..end)
}

#[cfg(test)]
mod tests;
