//! Why a file could not be read.

use crate::{CompoundKind, Format, Limit};
use serde::{Deserialize, Serialize};
use std::io;

/// A reader's refusal. It crosses the border of the child process, so it carries text instead of source errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum FormatError {
    #[error("the {format} file is damaged: {reason}")]
    Corrupt { format: Format, reason: String },
    #[error("limit {limit} exceeded: {detail}; split the file, or raise {}", limit.setting())]
    LimitExceeded { limit: Limit, detail: String },
    #[error(
        "the {format} file is encrypted, and its password is missing or wrong; give it as the option `extract.password`, or upload the file without one"
    )]
    Encrypted { format: Format },
    #[error(
        "the {format} file is encrypted for the holders of certificates, or in an unknown way, and no password opens it here; upload it without encryption"
    )]
    Sealed { format: Format },
    #[error("{format} is not supported here: {reason}")]
    Unsupported { format: Format, reason: String },
    #[error("{kind}{} is not read: {}", which(kind, encrypted), kind.remedy())]
    Compound { kind: CompoundKind, encrypted: bool },
    #[error("the bytes are of no known format")]
    UnknownFormat,
    #[error("the reader ended without an answer: {reason}")]
    Crashed { reason: String },
    #[error("reading failed: {reason}")]
    Io { reason: String },
}

impl FormatError {
    /// The codes of the refusals that a password may lift.
    pub const CODES_OF_LOCKED: [&'static str; 2] = ["encrypted", "encrypted_package"];

    /// A stable name for logs and the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Corrupt { .. } => "corrupt",
            Self::LimitExceeded { .. } => "limit_exceeded",
            Self::Encrypted { .. } | Self::Sealed { .. } => "encrypted",
            Self::Unsupported { .. } => "unsupported",
            Self::Compound { kind, .. } => kind.as_str(),
            Self::UnknownFormat => "unknown_format",
            Self::Crashed { .. } => "crashed",
            Self::Io { .. } => "io",
        }
    }

    /// Whether the same bytes will fail in the same way again. Only an I/O error can have a cause outside the bytes.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }

    /// The limit that was exceeded, if that is the cause.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::LimitExceeded { limit, .. } => Some(*limit),
            _ => None,
        }
    }

    /// Whether the password of the file would open it.
    pub fn takes_password(&self) -> bool {
        Self::CODES_OF_LOCKED.contains(&self.code()) && !matches!(self, Self::Sealed { .. })
    }

    pub(crate) fn corrupt(format: Format, reason: impl ToString) -> Self {
        Self::Corrupt { format, reason: bounded(reason) }
    }

    pub(crate) fn unsupported(format: Format, reason: impl ToString) -> Self {
        Self::Unsupported { format, reason: bounded(reason) }
    }

    pub(crate) fn crashed(reason: impl ToString) -> Self {
        Self::Crashed { reason: bounded(reason) }
    }

    pub(crate) fn over(limit: Limit, detail: impl ToString) -> Self {
        Self::LimitExceeded { limit, detail: bounded(detail) }
    }
}

/// Which files of a kind are not read, where it is not all of them.
fn which(kind: &CompoundKind, encrypted: &bool) -> &'static str {
    match (kind, encrypted) {
        // Its own name says it already.
        (CompoundKind::EncryptedPackage, _) => "",
        (_, true) => " with a password",
        (CompoundKind::LegacyWord | CompoundKind::LegacyPowerpoint, false) => " older than Office 97",
        (_, false) => "",
    }
}

/// Shortens a message of an engine, which may quote the file at any length.
fn bounded(reason: impl ToString) -> String {
    let mut reason = reason.to_string();
    reason.truncate(reason.floor_char_boundary(500));
    reason
}

impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        // Readers that only know io::Error carry our own refusal as the payload of their error.
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            Some(ours) => ours.clone(),
            None => Self::Io { reason: bounded(error) },
        }
    }
}

impl From<FormatError> for io::Error {
    fn from(error: FormatError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_opens_what_is_locked_with_one_and_nothing_else() {
        let of = |kind| FormatError::Compound { kind, encrypted: true };
        assert!(FormatError::Encrypted { format: Format::Pdf }.takes_password());
        assert!(of(CompoundKind::EncryptedPackage).takes_password());
        let sealed = FormatError::Sealed { format: Format::Pdf };
        for other in [sealed, of(CompoundKind::LegacyWord), FormatError::UnknownFormat] {
            assert!(!other.takes_password(), "{other}");
        }
    }
}
