//! What a reader may cost. Every limit is a setting; exceeding one is a permanent error that names it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, time::Duration};

/// The name of a limit: the field of [`Limits`] it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    InputBytes,
    Pages,
    ZipMembers,
    Members,
    MemberBytes,
    ZipRatio,
    UnpackedBytes,
    XmlDepth,
    Cells,
    TextBytes,
    Headings,
    AnswerBytes,
    Memory,
    Stack,
    CpuTime,
    WallTime,
}

impl Limit {
    /// The setting that an operator raises.
    pub fn setting(self) -> String {
        match self {
            Self::InputBytes => "SVC_MAX_UPLOAD_BYTES".to_owned(),
            // The stack is a part of the memory.
            Self::Stack => "SVC_PARSER_MEMORY".to_owned(),
            limit => format!("SVC_PARSER_{}", limit.as_str().to_ascii_uppercase()),
        }
    }

    /// The name as used in settings and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InputBytes => "input_bytes",
            Self::Pages => "pages",
            Self::ZipMembers => "zip_members",
            Self::Members => "members",
            Self::MemberBytes => "member_bytes",
            Self::ZipRatio => "zip_ratio",
            Self::UnpackedBytes => "unpacked_bytes",
            Self::XmlDepth => "xml_depth",
            Self::Cells => "cells",
            Self::TextBytes => "text_bytes",
            Self::Headings => "headings",
            Self::AnswerBytes => "answer_bytes",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::CpuTime => "cpu_time",
            Self::WallTime => "wall_time",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one reading may cost; a field that the settings omit keeps its default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of the file itself.
    pub input_bytes: u64,
    /// Pages of a PDF, slides of a presentation, and pictures of a TIFF.
    pub pages: u32,
    /// Members of a zip package; also storages of a message of Outlook.
    pub zip_members: u32,
    /// Members of a container that become files of their own.
    pub members: u32,
    /// Bytes of these members together.
    pub member_bytes: u64,
    /// Pictures of a file that are taken out of it.
    pub images: u32,
    /// Bytes of these pictures together.
    pub image_bytes: u64,
    /// Unpacked bytes per packed byte of a zip member or a PDF stream, beyond [`Limits::RATIO_FREE_BYTES`].
    pub zip_ratio: u32,
    /// Unpacked bytes of everything that is read in one file.
    pub unpacked_bytes: u64,
    /// Nesting of XML elements, JSON values, groups of RTF and shapes of legacy presentations.
    pub xml_depth: u32,
    /// Cells of one sheet; also its rows and its merged ranges.
    pub cells: u64,
    /// Bytes of the returned text.
    pub text_bytes: u64,
    /// Headings, or outline entries.
    pub headings: u32,
    /// Bytes of a child's answer.
    pub answer_bytes: u64,
    /// Address space in bytes that the child may use for the file, beyond the program's own.
    pub memory: u64,
    /// Processor time of the child, in seconds in the settings.
    #[serde(serialize_with = "to_seconds", deserialize_with = "from_seconds")]
    pub cpu_time: Duration,
    /// Time until the parent kills the child, in seconds in the settings.
    #[serde(serialize_with = "to_seconds", deserialize_with = "from_seconds")]
    pub wall_time: Duration,
}

impl Limits {
    /// Small members may compress to any degree: a kilobyte of spaces is not a bomb.
    pub const RATIO_FREE_BYTES: u64 = 10 << 20;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes: 256 << 20,
            pages: 10_000,
            zip_members: 10_000,
            members: 1_000,
            member_bytes: 1 << 30,
            images: 500,
            image_bytes: 256 << 20,
            zip_ratio: 100,
            unpacked_bytes: 1 << 30,
            xml_depth: 256,
            cells: 5_000_000,
            text_bytes: 128 << 20,
            headings: 100_000,
            answer_bytes: 512 << 20,
            memory: 1 << 30,
            cpu_time: Duration::from_secs(300),
            wall_time: Duration::from_secs(600),
        }
    }
}

fn to_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_overrides_its_default_alone() {
        let limits: Limits = serde_json::from_str(r#"{"pages": 3, "wall_time": 7}"#).unwrap();
        assert_eq!(limits, Limits { pages: 3, wall_time: Duration::from_secs(7), ..Limits::default() });
        let error = serde_json::from_str::<Limits>(r#"{"page": 3}"#).unwrap_err();
        assert!(error.to_string().contains("`page`"), "{error}");
    }
}
