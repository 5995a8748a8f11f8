//! What a probe measured.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fmt, str::FromStr};

/// The name of a pattern: something a probe can measure and a rule can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    HasTextLayer,
    HasHeadings,
    HasOutline,
    IsScanned,
    HasScannedPages,
    HasUnusablePages,
    HasHeadingStyles,
    HasSlides,
    HasSheets,
    SheetCount,
    HasComments,
    HasMarkup,
    HasImages,
    HasTables,
    HasSmartart,
    IsEncrypted,
    IsLegacyBinary,
    HasMembers,
}

impl Pattern {
    pub const ALL: [Self; 18] = [
        Self::HasTextLayer,
        Self::HasHeadings,
        Self::HasOutline,
        Self::IsScanned,
        Self::HasScannedPages,
        Self::HasUnusablePages,
        Self::HasHeadingStyles,
        Self::HasSlides,
        Self::HasSheets,
        Self::SheetCount,
        Self::HasComments,
        Self::HasMarkup,
        Self::HasImages,
        Self::HasTables,
        Self::HasSmartart,
        Self::IsEncrypted,
        Self::IsLegacyBinary,
        Self::HasMembers,
    ];

    /// The name as used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HasTextLayer => "has_text_layer",
            Self::HasHeadings => "has_headings",
            Self::HasOutline => "has_outline",
            Self::IsScanned => "is_scanned",
            Self::HasScannedPages => "has_scanned_pages",
            Self::HasUnusablePages => "has_unusable_pages",
            Self::HasHeadingStyles => "has_heading_styles",
            Self::HasSlides => "has_slides",
            Self::HasSheets => "has_sheets",
            Self::SheetCount => "sheet_count",
            Self::HasComments => "has_comments",
            Self::HasMarkup => "has_markup",
            Self::HasImages => "has_images",
            Self::HasTables => "has_tables",
            Self::HasSmartart => "has_smartart",
            Self::IsEncrypted => "is_encrypted",
            Self::IsLegacyBinary => "is_legacy_binary",
            Self::HasMembers => "has_members",
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name belongs to no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown pattern `{0}`")]
pub struct UnknownPattern(pub String);

impl FromStr for Pattern {
    type Err = UnknownPattern;

    fn from_str(name: &str) -> Result<Self, UnknownPattern> {
        Self::ALL.into_iter().find(|pattern| pattern.as_str() == name).ok_or_else(|| UnknownPattern(name.to_owned()))
    }
}

/// The measured patterns. A pattern that was not measured is absent, which is not the same as false.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Patterns(pub BTreeMap<Pattern, Value>);

impl Patterns {
    /// Adds a measurement.
    #[must_use]
    pub fn with(mut self, pattern: Pattern, value: impl Into<Value>) -> Self {
        self.0.insert(pattern, value.into());
        self
    }

    /// The measured value, if any.
    pub fn get(&self, pattern: Pattern) -> Option<&Value> {
        self.0.get(&pattern)
    }

    /// Whether the pattern was measured and found true.
    pub fn holds(&self, pattern: Pattern) -> bool {
        self.get(pattern).and_then(Value::as_bool).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_key_the_object() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.as_str().parse(), Ok(pattern));
        }
        let patterns = Patterns::default().with(Pattern::SheetCount, 2).with(Pattern::HasSheets, true);
        let json = serde_json::to_string(&patterns).unwrap();
        assert_eq!(json, r#"{"has_sheets":true,"sheet_count":2}"#);
        assert_eq!(serde_json::from_str::<Patterns>(&json).unwrap(), patterns);
        assert!(patterns.holds(Pattern::HasSheets) && !patterns.holds(Pattern::HasComments));
    }
}
