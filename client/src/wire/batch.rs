//! Many documents in one call.
use crate::{
    Failure,
    constraint::{Constrained, Constraint, Form, NAME, PRIORITY, TITLE, constrain},
    operation::Wire,
    wire::documents::document_to_create,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashSet;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// A key of a document in imports.
/// What a caller calls a document.
pub(super) const KEY: Constraint = Constraint::Text(1, 255, Form::NotBlank);

/// Documents that are created together, or not at all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewBatch {
    /// 1 to 1,000 documents, parents before their children.
    pub documents: Vec<BatchItem>,
    /// A priority from -100 to 100: documents with a higher one are embedded first.
    #[serde(default)]
    pub priority: i32,
}

impl NewBatch {
    /// The most documents of one call.
    pub const MOST: usize = 1000;
}

impl Wire for NewBatch {
    constrain! { documents: Constraint::List(1, NewBatch::MOST, None), priority: PRIORITY; |batch: &NewBatch| {
        let mut keys = HashSet::new();
        for (index, item) in batch.documents.iter().enumerate() {
            item.check_as(&format!("documents[{index}].")).map_err(|failure| failure.with("index", index))?;
            if let Some(key) = item.key.as_deref().filter(|key| !keys.insert(*key)) {
                let reason = format!("an earlier document of this call has the key `{key}` too");
                return Err(Failure::field(&format!("documents[{index}].key"), reason).with("index", index));
            }
        }
        Ok(())
    } }
}

document_to_create! {
/// One document to create together with others.
BatchItem {
    /// The caller's own name for the document, 1 to 255 characters. If the caller has created a document with this key
    /// before, that one is answered and stays as it is, so a call or an import may be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"\S"))]
    key: Option<String>,
    /// The key of the parent, instead of `parent_id`: of an earlier document of this call, or of an earlier call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"\S"))]
    parent_key: Option<String>,
} }

/// A list checks only how many there are; [`NewBatch`] checks each.
impl Constrained for BatchItem {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Err("takes no constraint of a single value".to_owned())
    }
}

impl BatchItem {
    /// Names the first field that breaks a constraint, with `before` in front of its name.
    pub fn check_as(&self, before: &str) -> Result<(), Failure> {
        TITLE.check(&format!("{before}title"), &self.title)?;
        KEY.check(&format!("{before}key"), &self.key)?;
        KEY.check(&format!("{before}parent_key"), &self.parent_key)?;
        NAME.check(&format!("{before}usetype"), &self.usetype)?;
        Constraint::Moment.check(&format!("{before}event_time"), &self.event_time)?;
        match (self.parent_id, &self.parent_key) {
            (Some(_), Some(_)) => {
                Err(Failure::field(&format!("{before}parent_key"), "takes the place of `parent_id`: give one of them"))
            }
            _ => Ok(()),
        }
    }
}

/// What became of the documents of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BatchResponse {
    /// One answer for each document of the call, in the order of the call.
    pub documents: Vec<BatchedDocument>,
}
impl Wire for BatchResponse {}

/// One document of a batch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BatchedDocument {
    /// Its place in the call, from 0.
    pub index: u32,
    pub document_id: i64,
    /// True if the caller had created a document with its key before; then nothing was stored.
    pub was_existing: bool,
}
