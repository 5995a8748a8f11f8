//! The objects of a presentation: its document, slides and pages of notes. Each time that it is saved, those that changed
//! are appended, with a directory of where they are now.

use super::records::{Record, Records, kind};
use crate::{Format, FormatError, Secret, binary_lock::Lock, compound::long};
use std::collections::HashMap;

/// How often the bytes of the file may be read as bytes of objects.
const TIMES: usize = 4;

pub(super) struct Objects<'a> {
    stream: &'a [u8],
    /// Where each object is, by its number.
    places: HashMap<u32, u32>,
    document: u32,
    /// How many more bytes of objects are read, because many slides may claim the same object.
    left: usize,
}

impl<'a> Objects<'a> {
    /// Follows the edits from the last one, which the current user's stream names; `None` if there is none.
    pub(super) fn open(stream: &'a [u8], last: Option<u32>) -> Result<Option<Self>, FormatError> {
        let Some(saved) = Saved::read(stream, last)? else { return Ok(None) };
        let Saved { places, document, .. } = saved;
        let left = stream.len().saturating_mul(TIMES);
        Ok(document.map(|document| Self { stream, places, document, left }))
    }

    pub(super) fn document(&mut self) -> Result<Option<&'a [u8]>, FormatError> {
        self.get(self.document, kind::DOCUMENT)
    }

    /// The records of the object with this number; `None` if there is none of this kind.
    pub(super) fn get(&mut self, number: u32, kind: u16) -> Result<Option<&'a [u8]>, FormatError> {
        let record = self.places.get(&number).and_then(|at| Record::at(self.stream, *at as usize));
        let Some(record) = record.filter(|record| record.kind == kind) else { return Ok(None) };
        self.left = self.left.checked_sub(record.body.len()).ok_or_else(again)?;
        Ok(Some(record.body))
    }
}

/// What the edits of a presentation say.
struct Saved {
    /// Where each object is, by its number.
    places: HashMap<u32, u32>,
    document: Option<u32>,
    /// The object that says how the others are locked.
    lock: Option<u32>,
}

impl Saved {
    /// Follows the edits from the last one, which the current user's stream names; `None` if there is none.
    fn read(stream: &[u8], last: Option<u32>) -> Result<Option<Self>, FormatError> {
        let edit = |at: u32| Record::at(stream, at as usize).filter(|record| record.kind == kind::EDIT);
        let Some(last) = last.filter(|at| edit(*at).is_some()).or_else(|| last_edit(stream)) else { return Ok(None) };
        let (mut places, mut document, mut lock, mut next) = (HashMap::new(), None, None, Some(last));
        // The directories of several edits may claim the same bytes.
        let mut left = stream.len();
        while let Some((at, edit)) = next.and_then(|at| Some((at, edit(at)?))) {
            document = document.or(long(edit.body, 16));
            lock = lock.or(long(edit.body, 28));
            let directory = long(edit.body, 12).and_then(|at| Record::at(stream, at as usize));
            if let Some(directory) = directory.filter(|record| record.kind == kind::DIRECTORY) {
                left = left.checked_sub(directory.body.len()).ok_or_else(again)?;
                let mut words = directory.body.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
                while let Some(head) = words.next() {
                    // A run of objects has the number of the first one and their count.
                    let (first, count) = (head & 0x000F_FFFF, (head >> 20) as usize);
                    for (number, place) in (first..).zip(words.by_ref().take(count)) {
                        // What a later edit has saved holds.
                        places.entry(number).or_insert(place);
                    }
                }
            }
            next = long(edit.body, 8).filter(|before| *before < at);
        }
        Ok(Some(Self { places, document, lock }))
    }
}

/// Opens the objects of a locked presentation in place. Each object has a key of its own, and the edits are plain. Returns whether
/// the presentation says how it is locked. A wrong password changes nothing.
pub(super) fn unlock(stream: &mut [u8], last: Option<u32>, password: Option<&Secret>) -> Result<bool, FormatError> {
    const HEAD: usize = 8;
    let plain: &[u8] = stream;
    let Some(Saved { places, lock: lock_number, .. }) = Saved::read(plain, last)? else { return Ok(false) };
    let lock = lock_number.and_then(|number| Record::at(plain, *places.get(&number)? as usize));
    let Some(lock) = lock.filter(|record| record.kind == kind::LOCK) else { return Ok(false) };
    let keys = Lock::read(Format::Ppt, lock.body)?.keys(password)?;
    // In the order of their places, so that no byte is opened twice, whatever the directories claim.
    let mut objects: Vec<(u32, u32)> = places.into_iter().map(|(number, at)| (at, number)).collect();
    objects.retain(|(_, number)| Some(*number) != lock_number);
    objects.sort_unstable();
    let mut opened = 0;
    for (at, number) in objects {
        let at = at as usize;
        if at < opened {
            continue;
        }
        let Some(object) = stream.get_mut(at..).filter(|object| object.len() >= HEAD) else { continue };
        let (head, body) = object.split_at_mut(HEAD);
        let mut cipher = keys.cipher(number);
        cipher.apply(head);
        let length = long(head, 4).unwrap_or_default() as usize;
        let end = length.min(body.len());
        cipher.apply(&mut body[..end]);
        opened = at + HEAD + end;
    }
    Ok(true)
}

fn again() -> FormatError {
    FormatError::corrupt(Format::Ppt, "many of its objects claim the same bytes")
}

/// Where the last edit is that stands among the objects, for a file whose current user is lost.
fn last_edit(stream: &[u8]) -> Option<u32> {
    let mut records = Records::of(stream);
    let (mut at, mut last) = (0, None);
    while let Some(record) = records.next() {
        if record.kind == kind::EDIT {
            last = u32::try_from(at).ok();
        }
        at = records.at;
    }
    last
}
