//! The files within a file: members of an archive, attachments of a message. They come as a stream, so that nobody holds
//! one in memory.

use crate::{Format, FormatError, Limits, archive, mail, msg};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    io::{Read, Seek},
};

/// How many bytes of a member are given at once.
const PIECE: usize = 256 << 10;

/// A step of the way through a container. A member begins, gives its bytes, and ends, or it is left out, perhaps after
/// some of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberPart {
    Begin(MemberHead),
    Bytes(Vec<u8>),
    End,
    /// What came of it so far is worthless.
    LeftOut {
        name: String,
        reason: LeftOut,
    },
}

/// What a container says of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberHead {
    /// Its place among all members of its container, folders included.
    pub index: u64,
    /// Its name, with the folders in it. It is a label: nothing is ever opened by it.
    pub name: String,
    pub declared_mime: Option<String>,
}

/// Why a member is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// It needs a password.
    Encrypted,
    /// It is compressed by a method that is not read.
    Compression,
    /// Its bytes are damaged.
    Damaged,
    /// Its bytes are those of another member, too.
    Overlap,
    /// It is a link to another file.
    Link,
    /// It unpacks to too many bytes for its size.
    ZipRatio,
    /// It is larger than a file may be.
    InputBytes,
    /// It comes after as many members as are read.
    Members,
    /// The members before it have as many bytes as are read.
    MemberBytes,
    /// It lies within more files than are opened.
    MemberDepth,
    /// It is a part of its program's own kind, and no file.
    Object,
}

impl LeftOut {
    /// The name as used in evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Compression => "compression",
            Self::Damaged => "damaged",
            Self::Overlap => "overlap",
            Self::Link => "link",
            Self::ZipRatio => "zip_ratio",
            Self::InputBytes => "input_bytes",
            Self::Members => "members",
            Self::MemberBytes => "member_bytes",
            Self::MemberDepth => "member_depth",
            Self::Object => "object",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Takes the parts of a container one by one. A reader that gets an error from it ends with that error.
pub type TakePart<'a> = dyn FnMut(MemberPart) -> Result<(), FormatError> + 'a;

/// Reads every member of a container of a format that [has members](Format::has_members). A member that cannot be read is
/// left out, and the others are read.
///
/// # Errors
/// What the reader met, or what `take` returned. [`FormatError::Unsupported`] for a format without members.
pub fn members<R: Read + Seek>(
    format: Format,
    source: R,
    limits: &Limits,
    take: &mut TakePart<'_>,
) -> Result<(), FormatError> {
    let mut budget = Budget { members: limits.members, bytes: limits.member_bytes };
    match format {
        Format::Zip => archive::members(source, limits, &mut budget, take),
        Format::Eml => mail::members(source, limits, &mut budget, take),
        Format::Msg => msg::members(source, limits, &mut budget, take),
        _ => Err(FormatError::unsupported(format, "it is no container of files")),
    }
}

/// What is left of what the members of a container may take together. What was read of a member that was left out counts, too.
pub(crate) struct Budget {
    pub members: u32,
    pub bytes: u64,
}

impl Budget {
    /// Why no other member is read, if so.
    pub(crate) fn spent(&self) -> Option<LeftOut> {
        match self {
            Self { members: 0, .. } => Some(LeftOut::Members),
            Self { bytes: 0, .. } => Some(LeftOut::MemberBytes),
            _ => None,
        }
    }

    /// Gives a member whose bytes are at hand, if there is room for it.
    pub(crate) fn give(&mut self, head: MemberHead, bytes: &[u8], take: &mut TakePart<'_>) -> Result<(), FormatError> {
        match (self.spent(), self.bytes.checked_sub(bytes.len() as u64)) {
            (Some(reason), _) => take(MemberPart::LeftOut { name: head.name, reason }),
            (None, None) => {
                self.bytes = 0;
                take(MemberPart::LeftOut { name: head.name, reason: LeftOut::MemberBytes })
            }
            (None, Some(left)) => {
                (self.bytes, self.members) = (left, self.members - 1);
                take(MemberPart::Begin(head))?;
                for piece in bytes.chunks(PIECE) {
                    take(MemberPart::Bytes(piece.to_vec()))?;
                }
                take(MemberPart::End)
            }
        }
    }
}
