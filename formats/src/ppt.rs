//! Reads presentations of PowerPoint 97 to 2003 as Markdown, as those of later versions are: each slide is a `#` section,
//! with its notes. The facts are `promoted_title_count`, `ppt.slides`, `ppt.hidden_slides`, `ppt.missing_slides` and
//! `ppt.slides_without_text`.

mod looks;
mod objects;
mod records;
mod text;

use crate::{
    Access, CompoundKind, Extraction, Format, FormatError, Limit, Limits, Patterns, Secret,
    compound::{self, Opened, long, short},
    markdown::Block,
    pptx::{Deck, Slide},
};
use objects::Objects;
use records::{Records, kind};
use std::{
    collections::HashMap,
    io::{Read, Seek},
    path::Path,
};
use text::{Text, listed, texts};

/// Presentations that PowerPoint 95 can open, too, have what later versions read in a storage of its own.
const DUAL: &str = "/PP97_DUALSTORAGE";
/// What stands in the stream of the current user if the presentation is encrypted.
const ENCRYPTED: u32 = 0xF3D1_C4DF;
const USER_BYTES: u64 = 4096;
/// The lists of a document.
const SLIDES: u16 = 0;
const NOTES: u16 = 2;

pub(crate) fn probe<'a, R: Read + Seek>(source: R, access: impl Into<Access<'a>>) -> Result<Patterns, FormatError> {
    let access = access.into();
    compound::patterns(read(source, access), access)
}

pub(crate) fn extract<'a, R: Read + Seek>(source: R, access: impl Into<Access<'a>>) -> Result<Extraction, FormatError> {
    read(source, access.into()).map(|opened| opened.text)
}

/// The password that PowerPoint itself sets for a presentation that is only protected from changes. It never asks for this password.
fn known() -> Secret {
    Secret::new("/01Hannes Ruescher/01")
}

fn read<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Opened, FormatError> {
    let limits = access.limits;
    let mut file = compound::open(source, Format::Ppt, limits)?;
    let at = Path::new(if file.is_storage(DUAL) { DUAL } else { "/" });
    let user = compound::read(&mut file, &at.join("Current User"), USER_BYTES)?.unwrap_or_default();
    let refused = |encrypted| FormatError::Compound { kind: CompoundKind::LegacyPowerpoint, encrypted };
    let last = long(&user, 16);
    let is_locked = long(&user, 12) == Some(ENCRYPTED) || file.exists("/EncryptedSummary");
    let document = &at.join("PowerPoint Document");
    let mut stream = compound::read(&mut file, document, limits.input_bytes)?.unwrap_or_default();
    let mut was_locked = false;
    if is_locked {
        let opened = match objects::unlock(&mut stream, last, Some(&known())) {
            Err(FormatError::Encrypted { .. }) => {
                was_locked = true;
                objects::unlock(&mut stream, last, access.password)?
            }
            opened => opened?,
        };
        if !opened {
            return Err(refused(true));
        }
    }
    // Older versions have another form.
    let mut objects = Objects::open(&stream, last)?.ok_or_else(|| refused(false))?;
    let Some(document) = objects.document()? else {
        return Err(FormatError::corrupt(Format::Ppt, "its document is not there"));
    };
    let list = |wanted: u16| {
        let lists = Records::of(document).filter(move |record| record.kind == kind::LIST && record.instance == wanted);
        lists.flat_map(|list| listed(list.body))
    };
    let mut notes = HashMap::new();
    for page in list(NOTES) {
        if let Some(body) = objects.get(page.object, kind::NOTES)? {
            notes.extend(notes_of(body, limits)?);
        }
    }
    let mut deck = Deck::default();
    for (entry, number) in list(SLIDES).zip(1..) {
        if number > limits.pages {
            return Err(FormatError::over(Limit::Pages, format_args!("over {} slides", limits.pages)));
        }
        let notes = notes.remove(&entry.slide).unwrap_or_default();
        match objects.get(entry.object, kind::SLIDE)? {
            Some(body) => deck.write(slide(body, entry.texts, notes, limits)?, number, limits)?,
            None => deck.lack(number),
        }
    }
    Ok(Opened { text: deck.finish(Format::Ppt)?.within(limits)?, was_locked })
}

/// The notes on a page of them, and the slide that they belong to.
fn notes_of(page: &[u8], limits: &Limits) -> Result<Option<(u32, Vec<Block>)>, FormatError> {
    let slide = Records::of(page).find(|record| record.kind == kind::NOTES_ATOM).and_then(|atom| long(atom.body, 0));
    let Some(slide) = slide else { return Ok(None) };
    let mut blocks = Vec::new();
    for text in texts(page, Vec::new(), limits)? {
        // The other texts are those of its header and footer.
        if text.kind == Text::NOTES {
            text.write(&mut blocks);
        }
    }
    Ok(Some((slide, blocks)))
}

/// A slide with the texts that the outline has of it.
fn slide(body: &[u8], outline: Vec<Text>, notes: Vec<Block>, limits: &Limits) -> Result<Slide, FormatError> {
    /// The bit of a slide that is left out when the presentation is shown.
    const HIDDEN: u16 = 4;
    let show = Records::of(body).find(|record| record.kind == kind::SHOW).and_then(|show| short(show.body, 10));
    let is_hidden = show.is_some_and(|flags| flags & HIDDEN != 0);
    let mut slide = Slide { notes, is_hidden, ..Slide::default() };
    for text in texts(body, outline, limits)? {
        if slide.title.is_none() && text.is_title() {
            slide.title = text.line();
        } else {
            text.write(&mut slide.blocks);
        }
    }
    Ok(slide)
}

#[cfg(test)]
mod tests;
