//! Closes a chunk: counts it, balances it with the one before it, and hands it out.

use super::{Chunk, Draft, Leads, Packer, Unit};

impl Packer<'_> {
    pub(super) fn close_all(&mut self) {
        while !self.open.units.is_empty() {
            self.close(None);
        }
    }

    /// Closes the open chunk. Its end stays open if it fits better with the next unit or is too much for this chunk.
    pub(super) fn close(&mut self, next: Option<&Unit>) {
        let mut open = std::mem::take(&mut self.open);
        let mut rest = Vec::new();
        let text = open.units.iter().rposition(|unit| unit.leads != Leads::WhereItFits).map_or(0, |last| last + 1);
        if let Some(next) = next
            && (1..open.units.len()).contains(&text)
        {
            let introduction = self.draft(open.units[text..].to_vec());
            if self.with(&introduction, next).is_some() {
                rest = open.units.split_off(text);
                open = self.draft(open.units);
            }
        }
        if !open.counted {
            let over = self.settle(&mut open);
            rest.splice(0..0, over);
        }
        self.retire(open);
        self.open = self.draft(rest);
    }

    /// Counts a draft. If its units have more tokens together than separately, returns those that are too many.
    fn settle(&mut self, draft: &mut Draft) -> Vec<Unit> {
        let mut over = Vec::new();
        let range = |units: &[Unit]| units[0].range.start..units[units.len() - 1].range.end;
        loop {
            draft.tokens = self.count(range(&draft.units), &draft.units[0].prefix);
            draft.counted = true;
            if draft.tokens <= self.options.max_tokens && draft.characters <= self.options.max_chars {
                return over;
            }
            // A heading stays with its first sentence if possible.
            let first = if draft.units[0].leads == Leads::Always { draft.leading + 1 } else { 1 };
            let least = if first < draft.units.len() { first } else { 1 };
            if draft.units.len() > least {
                // This removes about as many as are too many, and at least one, so that few rounds are needed even for
                // many units.
                let units = draft.units.len();
                let fit = (units * self.options.max_tokens / draft.tokens.max(1)).clamp(least, units - 1);
                over.splice(0..0, draft.units.split_off(fit));
                *draft = self.draft(std::mem::take(&mut draft.units));
            } else if !draft.units[0].prefix.is_empty() {
                draft.units[0].prefix = 0..0;
                *draft = self.draft(std::mem::take(&mut draft.units));
            } else {
                return over;
            }
        }
    }

    /// Takes in a closed chunk; joins it with its neighbour if it is short.
    pub(super) fn retire(&mut self, mut draft: Draft) {
        let Some(mut last) = self.last.take() else {
            self.last = Some(draft);
            return;
        };
        let short = |draft: &Draft| draft.characters < self.options.min_chunk_length;
        let lonely = short(&draft) && !draft.only_leads();
        if lonely || short(&last) {
            last = match self.join(last, draft) {
                Ok(both) => {
                    self.last = Some(both);
                    return;
                }
                Err((before, after)) => {
                    draft = after;
                    before
                }
            };
        }
        if lonely {
            self.even_out(&mut last, &mut draft);
        }
        self.emit(last);
        self.last = Some(draft);
    }

    /// Joins two drafts, or returns both if that exceeds a cap.
    fn join(&mut self, mut before: Draft, after: Draft) -> Result<Draft, (Draft, Draft)> {
        let (first, last) = (&after.units[0], &before.units[before.units.len() - 1]);
        let gap = self.characters(&(last.range.end..first.range.start));
        let (prefix_tokens, prefix_characters) = self.prefix_size(&first.prefix.clone());
        let tokens = (before.tokens + after.tokens).saturating_sub(prefix_tokens);
        let characters = before.characters + gap + after.characters - prefix_characters;
        if tokens > self.options.max_tokens || characters > self.options.max_chars {
            return Err((before, after));
        }
        if before.leading == before.units.len() {
            before.leading += after.leading;
        }
        before.units.extend(after.units);
        Ok(Draft { tokens, characters, counted: false, ..before })
    }

    /// Moves sentences from the end of one draft to the short one after it, as long as neither becomes short or exceeds
    /// a cap.
    fn even_out(&mut self, before: &mut Draft, after: &mut Draft) {
        let least = self.options.min_chunk_length;
        while after.characters < least && after.leading == 0 && before.units.len() > 1 {
            let at = before.units.len() - 1;
            let stays = self.draft(before.units[..at].to_vec());
            let mut units = vec![before.units[at].clone()];
            units.extend_from_slice(&after.units);
            let moved = self.draft(units);
            let ends_well = stays.leading < at && stays.units[at - 1].leads == Leads::No;
            let fits = moved.tokens <= self.options.max_tokens && moved.characters <= self.options.max_chars;
            if !ends_well || !fits || stays.characters < least {
                return;
            }
            (*before, *after) = (stays, moved);
        }
    }

    pub(super) fn emit(&mut self, draft: Draft) {
        let mut next = Some(draft);
        while let Some(mut draft) = next {
            let over = if draft.counted { Vec::new() } else { self.settle(&mut draft) };
            let (first, last) = (&draft.units[0], &draft.units[draft.units.len() - 1]);
            self.done.push(Chunk {
                start: first.range.start,
                end: last.range.end,
                prefix: first.prefix.clone(),
                tokens: draft.tokens,
                characters: draft.characters,
            });
            next = (!over.is_empty()).then(|| self.draft(over));
        }
    }
}
