//! Token vectors on their way out of one store and into another (docs/backup.md).
use super::is_content_hash;
use crate::{
    Failure,
    constraint::{Constrained, Constraint, constrain},
    operation::Wire,
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The token vectors of a document as an archive holds them. Its lists have an entry for each token that is kept, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedTokens {
    /// The document, by its id in the store that it came from.
    pub document: i64,
    /// `sha256:<hex>` of the text that they were made of: the content, with the title before it where the document has one of its own.
    pub text_hash: String,
    /// The model that made them: its name and hash.
    pub model: String,
    /// Which tokens of the text they are, counted from 0.
    pub places: Vec<i32>,
    /// What the model's vocabulary calls them.
    pub token_ids: Vec<i32>,
    /// How important each is: which percent of the text's most important tokens it is still among, 10 to 100.
    pub tiers: Vec<i32>,
    /// The vectors, once for each width that is kept, from narrow to wide.
    pub widths: Vec<ArchivedWidth>,
}

/// Token vectors of one width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedWidth {
    /// How many numbers a vector has.
    pub width: u32,
    /// Half-precision numbers, little-endian, token after token, in base64.
    pub halves: String,
}

impl ArchivedTokens {
    /// Names the first field that breaks a constraint, with the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.document < 1 {
            return Err(("document", "must be above 0".to_owned()));
        }
        if !is_content_hash(&self.text_hash) {
            return Err(("text_hash", "must have the form sha256:<hex>".to_owned()));
        }
        if self.places.first().is_some_and(|first| *first < 0) || !self.places.is_sorted_by(|one, next| one < next) {
            return Err(("places", "must rise, from 0 or more".to_owned()));
        }
        if self.token_ids.len() != self.places.len() || self.token_ids.iter().any(|id| *id < 0) {
            return Err(("token_ids", "needs a number of 0 or more for each place".to_owned()));
        }
        if self.tiers.len() != self.places.len() || self.tiers.iter().any(|tier| !(10..=100).contains(tier)) {
            return Err(("tiers", "needs a number from 10 to 100 for each place".to_owned()));
        }
        if !self.widths.is_sorted_by(|one, next| one.width < next.width) {
            return Err(("widths", "must rise".to_owned()));
        }
        Ok(())
    }
}

/// A list checks only how many there are; [`ArchiveTokens`] checks each.
impl Constrained for ArchivedTokens {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Err("takes no constraint of a single value".to_owned())
    }
}

/// One page of token vectors, by the ids of their documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ArchiveTokenPage {
    pub tokens: Vec<ArchivedTokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
impl Wire for ArchiveTokenPage {}

/// Token vectors of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchiveTokens {
    /// Those of 1 to 1,000 documents.
    pub tokens: Vec<ArchivedTokens>,
}
impl Wire for ArchiveTokens {
    /// Those of one text are much larger than the text.
    fn most_bytes(usual: u64) -> u64 {
        usual.saturating_mul(2).saturating_add(8 << 20)
    }
    constrain! { tokens: Constraint::List(1, 1000, None); |part: &ArchiveTokens| {
        let mut documents = HashSet::new();
        for (index, tokens) in part.tokens.iter().enumerate() {
            tokens.check().map_err(|(field, reason)| {
                Failure::field(&format!("tokens[{index}].{field}"), reason).with("index", index)
            })?;
            if !documents.insert(tokens.document) {
                let reason = format!("an earlier entry of this call is of the document {} too", tokens.document);
                return Err(Failure::field(&format!("tokens[{index}].document"), reason).with("index", index));
            }
        }
        Ok(())
    } }
}

/// What became of token vectors of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedTokens {
    /// Documents that got their token vectors from the archive.
    pub created: u32,
    /// Documents that have token vectors of the model already.
    pub existing: u32,
    /// Documents that were not imported.
    pub outside: u32,
    /// Documents whose token vectors are of another model, of widths that this store does not keep, of more tokens than its model gives such, or of a
    /// text that they have no more.
    pub left_out: u32,
}
impl Wire for ImportedTokens {}
