//! Packs units into chunks.

mod closing;

use super::{
    Chunk, ChunkOptions, TokenCounter, content, lines,
    split::{Room, first_grapheme, first_piece},
    trim,
};
use std::ops::Range;

/// Whether a unit stays with what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    No,
    /// An introduction, which stays with what follows if both fit one chunk.
    WhereItFits,
    /// A heading, which stays with what follows even if that must be cut.
    Always,
}

/// A piece that is not cut unless it is too large for a chunk.
#[derive(Debug, Clone)]
struct Unit {
    range: Range<usize>,
    /// `None` if the number of characters alone exceeds a cap, so that nobody counted.
    tokens: Option<usize>,
    leads: Leads,
    /// The header of the table that the unit is a row of.
    prefix: Range<usize>,
}

/// Units that make a chunk.
#[derive(Debug, Default)]
struct Draft {
    units: Vec<Unit>,
    /// How many units at the beginning are headings or introductions.
    leading: usize,
    /// The sum over units and prefix, or an exact count if `counted` is true.
    tokens: usize,
    characters: usize,
    counted: bool,
}

pub(super) struct Packer<'a> {
    text: &'a str,
    options: ChunkOptions,
    counter: &'a dyn TokenCounter,
    done: Vec<Chunk>,
    /// The last closed chunk; a short neighbour may still change it.
    last: Option<Draft>,
    open: Draft,
    /// Tokens and characters of the last prefix that was asked for.
    prefix: (Range<usize>, usize, usize),
    /// How many characters a piece of a cut unit is expected to have.
    guess: usize,
}

impl<'a> Packer<'a> {
    pub(super) fn new(text: &'a str, options: &ChunkOptions, counter: &'a dyn TokenCounter) -> Self {
        let options = ChunkOptions {
            max_tokens: options.max_tokens.max(1),
            max_chars: options.max_chars.max(1),
            ..options.clone()
        };
        let guess = options.max_chars;
        Self {
            text,
            options,
            counter,
            done: Vec::new(),
            last: None,
            open: Draft::default(),
            prefix: (0..0, 0, 0),
            guess,
        }
    }

    /// Adds a sentence, or another unit that may be cut between words if necessary.
    pub(super) fn push(&mut self, range: Range<usize>) {
        if let Some(unit) = self.unit(range) {
            self.place(unit);
        }
    }

    /// Adds a unit that stays with the next one.
    pub(super) fn push_leading(&mut self, range: Range<usize>, leads: Leads) {
        let Some(unit) = self.unit(range) else { return };
        // A unit that takes most of a chunk would leave no room for what it leads.
        let small = unit.tokens.is_some_and(|tokens| tokens * 2 <= self.options.max_tokens)
            && self.characters(&unit.range) * 2 <= self.options.max_chars;
        let leads = if small { leads } else { Leads::No };
        if leads == Leads::Always && !self.open.units.is_empty() && !self.open.only_leads() {
            self.close_all();
        }
        self.place(Unit { leads, ..unit });
    }

    /// Adds a unit that stays whole if it fits a chunk and is divided into its parts otherwise.
    pub(super) fn push_whole(&mut self, range: Range<usize>, parts: fn(&str, Range<usize>) -> Vec<Range<usize>>) {
        let Some(unit) = self.unit(range) else { return };
        if self.has_place_whole(&unit) {
            self.place(unit);
        } else {
            parts(self.text, unit.range).into_iter().for_each(|part| self.push(part));
        }
    }

    /// Adds a table: whole if it fits, else by rows, with its header before rows that begin a chunk.
    pub(super) fn push_table(&mut self, range: Range<usize>, header: Range<usize>) {
        let Some(unit) = self.unit(range.clone()) else { return };
        if self.has_place_whole(&unit) {
            return self.place(unit);
        }
        let header = trim(self.text, header).unwrap_or(0..0);
        if !header.is_empty() {
            self.push_leading(header.clone(), Leads::WhereItFits);
        }
        let (tokens, characters) = self.prefix_size(&header);
        // A header that takes most of a chunk is not repeated.
        let fits = tokens * 2 <= self.options.max_tokens && characters * 2 <= self.options.max_chars;
        let prefix = if fits { header.clone() } else { 0..0 };
        for row in lines(self.text, unit.range.start.max(header.end)..unit.range.end) {
            if let Some(unit) = self.unit(row) {
                self.place(Unit { prefix: prefix.clone(), ..unit });
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<Chunk> {
        self.close_all();
        if let Some(last) = self.last.take() {
            self.emit(last);
        }
        self.done
    }

    fn unit(&self, range: Range<usize>) -> Option<Unit> {
        let range = trim(self.text, range)?;
        let small = self.characters(&range) <= self.options.max_chars;
        let tokens = small.then(|| self.counter.count(&self.text[range.clone()]));
        Some(Unit { range, tokens, leads: Leads::No, prefix: 0..0 })
    }

    /// The characters of a range, as far as a cap is concerned: a range with four times as many bytes exceeds it
    /// anyway.
    fn characters(&self, range: &Range<usize>) -> usize {
        let bytes = range.len();
        if bytes > self.options.max_chars.saturating_mul(4) {
            bytes / 4 + 1
        } else {
            self.text[range.clone()].chars().count()
        }
    }

    /// The tokens and characters that a prefix adds.
    fn prefix_size(&mut self, prefix: &Range<usize>) -> (usize, usize) {
        if prefix.is_empty() {
            return (0, 0);
        }
        if self.prefix.0 != *prefix {
            let characters = self.characters(prefix);
            let small = characters <= self.options.max_chars;
            let tokens = if small { self.counter.count(&self.text[prefix.clone()]) } else { usize::MAX / 4 };
            // One more for the line end after it.
            self.prefix = (prefix.clone(), tokens, characters + 1);
        }
        (self.prefix.1, self.prefix.2)
    }

    /// The tokens and characters of a draft with one more unit; `None` if that exceeds a cap.
    fn with(&mut self, draft: &Draft, unit: &Unit) -> Option<(usize, usize)> {
        let (tokens, characters) = match draft.units.last() {
            Some(last) => (draft.tokens, draft.characters + self.characters(&(last.range.end..unit.range.end))),
            None => {
                let (tokens, characters) = self.prefix_size(&unit.prefix);
                (tokens, characters + self.characters(&unit.range))
            }
        };
        let tokens = tokens + unit.tokens?;
        (tokens <= self.options.max_tokens && characters <= self.options.max_chars).then_some((tokens, characters))
    }

    /// Adds the unit to the open chunk if it fits.
    fn append(&mut self, unit: &Unit) -> bool {
        let open = std::mem::take(&mut self.open);
        let size = self.with(&open, unit);
        self.open = open;
        let Some((mut tokens, characters)) = size else { return false };
        let mut counted = self.open.units.is_empty() && unit.prefix.is_empty();
        if self.open.only_leads() && unit.leads == Leads::No {
            // These units stay together, so their common size must be counted, not guessed.
            tokens = self.count(self.open.units[0].range.start..unit.range.end, &(0..0));
            counted = true;
            if tokens > self.options.max_tokens {
                return false;
            }
        }
        let open = &mut self.open;
        if unit.leads != Leads::No && open.leading == open.units.len() {
            open.leading += 1;
        }
        open.units.push(unit.clone());
        (open.tokens, open.characters, open.counted) = (tokens, characters, counted);
        true
    }

    fn count(&self, range: Range<usize>, prefix: &Range<usize>) -> usize {
        self.counter.count(&content(self.text, prefix, range))
    }

    /// Whether the unit could be placed whole without separating it from a heading.
    fn has_place_whole(&mut self, unit: &Unit) -> bool {
        let open = std::mem::take(&mut self.open);
        let fits =
            self.with(&open, unit).is_some() || (!open.only_leads() && self.with(&Draft::default(), unit).is_some());
        self.open = open;
        fits
    }

    fn place(&mut self, unit: Unit) {
        loop {
            if self.append(&unit) {
                return;
            }
            if self.open.units.is_empty() || self.open.only_leads() {
                break;
            }
            self.close(Some(&unit));
        }
        if !self.open.units.is_empty() {
            self.shed();
        }
        if !self.append(&unit) {
            self.fill(unit);
        }
    }

    /// Of many headings in a row, keeps only the last ones open, so that at least half of the chunk is left for their
    /// text, and closes the others.
    fn shed(&mut self) {
        let units = std::mem::take(&mut self.open.units);
        let (mut tokens, mut characters) = (0, 0);
        let light = |unit: &&Unit| {
            tokens += unit.tokens.unwrap_or(0);
            characters += self.characters(&unit.range);
            tokens * 2 <= self.options.max_tokens && characters * 2 <= self.options.max_chars
        };
        let kept = units.iter().rev().take_while(light).count().max(1);
        let (above, kept) = units.split_at(units.len().saturating_sub(kept));
        if !above.is_empty() {
            let above = self.draft(above.to_vec());
            self.retire(above);
        }
        self.open = self.draft(kept.to_vec());
    }

    /// Places a unit that fits no chunk whole. The room that a heading leaves is filled first.
    fn fill(&mut self, mut unit: Unit) {
        let mut rest = unit.range.clone();
        while let Some(range) = trim(self.text, rest.clone()) {
            rest = range;
            let (tokens, characters) = match self.open.units.last() {
                Some(last) => (self.open.tokens, self.open.characters + self.characters(&(last.range.end..rest.start))),
                None => self.prefix_size(&unit.prefix),
            };
            let mut room = Room {
                tokens: self.options.max_tokens.saturating_sub(tokens).max(1),
                characters: self.options.max_chars.saturating_sub(characters).max(1),
            };
            let least = first_grapheme(self.text, &rest, self.options.max_chars);
            if self.characters(&(rest.start..least)) > room.characters {
                self.close_all();
                unit.prefix = 0..0;
                room = Room { tokens: self.options.max_tokens, characters: self.options.max_chars };
            }
            let mut next = None;
            // The piece may have more tokens together with what is open than by itself, so this may take several tries.
            for _ in 0..4 {
                let piece = first_piece(self.text, &rest, room, &mut self.guess, self.counter);
                let Some(range) = piece.range else {
                    next = Some(piece.next);
                    break;
                };
                let part = Unit { range, tokens: Some(piece.tokens), leads: Leads::No, ..unit.clone() };
                let alone = self.open.units.is_empty();
                if self.append(&part) || alone {
                    if alone {
                        // The piece is as small as possible, whatever its count.
                        self.open = self.draft(vec![part]);
                    }
                    next = Some(piece.next);
                    break;
                }
                room.tokens = (room.tokens * 3 / 4).max(1);
            }
            match next {
                Some(next) => rest.start = next,
                // The heading leaves no room.
                None => self.close_all(),
            }
            if next.is_some() && trim(self.text, rest.clone()).is_some() {
                self.close_all();
            }
        }
    }

    fn draft(&mut self, units: Vec<Unit>) -> Draft {
        let (Some(first), Some(last)) = (units.first(), units.last()) else { return Draft::default() };
        let (tokens, characters) = self.prefix_size(&first.prefix.clone());
        let characters = characters + self.characters(&(first.range.start..last.range.end));
        let tokens = units.iter().fold(tokens, |sum, unit| sum + unit.tokens.unwrap_or(self.options.max_tokens));
        let leading = units.iter().take_while(|unit| unit.leads != Leads::No).count();
        Draft { units, leading, tokens, characters, counted: false }
    }
}

impl Draft {
    /// Whether it begins with a heading and holds only headings and introductions.
    fn only_leads(&self) -> bool {
        self.leading == self.units.len() && self.units.first().is_some_and(|unit| unit.leads == Leads::Always)
    }
}
