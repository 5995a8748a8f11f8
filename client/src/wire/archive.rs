//! Subtrees on their way out of one store and into another (docs/backup.md).
use crate::{
    Failure,
    constraint::{CURSOR, Constrained, Constraint, Form, NAME, PAGE, constrain},
    operation::{Params, Wire},
    wire::{DetectedBy, GrantRight, Settled, batch::KEY},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::HashSet, ops::RangeInclusive};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The name that an archive gave itself.
const ARCHIVE: Constraint = Constraint::Text(8, 64, Form::Word);
/// The name of a principal.
const PRINCIPAL: Constraint = Constraint::Text(1, 200, Form::Any);
/// The most rows of one call.
const ROWS: Constraint = Constraint::List(1, ArchivePart::MOST, None);

/// The most bytes of an anchor as JSON. The service writes far smaller ones, and shows them with whatever is at them.
const ANCHOR_BYTES: usize = 64 << 10;

/// Which part of an archive to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveQuery {
    /// This document and what is under it; everything if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default. A page of large documents or links ends earlier, at `SVC_PAGE_BYTES`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for ArchiveQuery {
    constrain! { cursor: CURSOR, limit: PAGE }
}
impl ArchiveQuery {
    /// The number of rows per page.
    pub fn rows(&self) -> u32 {
        self.limit.unwrap_or(100)
    }
}

/// A document as an archive holds it. Ids are those of the store that it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedDocument {
    pub id: i64,
    /// The parent, if the archive has it. It comes before the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<i64>,
    /// The document has a parent, which the archive has not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    pub title: String,
    pub content: String,
    #[serde(
        default,
        skip_serializing_if = "Map::is_empty",
        deserialize_with = "super::structured::object_of_ingestion"
    )]
    pub structured_content: Map<String, Value>,
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 100, pattern = "^[a-zA-Z0-9_:.-]+$"))]
    pub usetype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub content_hash: String,
    pub settled: Settled,
    /// The document was closed to others. An import makes it an access root.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// The private document above it that closes it, if it is not private itself and the archive has that document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<i64>,
    /// The keys that callers gave it, by which they find it again; only in the owner's archives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<ArchivedKey>,
    /// The name by which texts mean it; only in the owner's archives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<ArchivedEntity>,
    /// What made it, if no caller did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Where in its file it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub anchor: Option<Value>,
    /// What the pipeline recorded about it, by name, without what names other documents.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub evidence: Map<String, Value>,
    /// The IRI that it stands for in graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 2048))]
    pub iri: Option<String>,
    /// It stands for a node without a name; its IRI was made for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blank: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<ArchivedVector>,
    /// BM25 found it in the store that it comes from. An import goes by the settings of its own store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indexed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ArchivedFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ArchivedContainer>,
}

/// A key that a caller gave a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedKey {
    /// The principal by its name; absent for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200))]
    pub principal: Option<String>,
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub key: String,
}

/// The name of an entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedEntity {
    /// As names are compared: in small letters, without marks.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 4000))]
    pub name: String,
    /// The type, compared in the same way; empty if nobody said one.
    #[cfg_attr(feature = "openapi", schema(max_length = 4000))]
    pub kind: String,
    /// The vector of the name, by which similar names are found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<ArchivedVector>,
}

/// A vector, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedVector {
    /// The model that made it: its name and hash.
    pub model: String,
    /// How much it counts in the vector of what it is under: 1e-15 to 1e15.
    pub weight: f32,
    /// Half-precision numbers, little-endian, in base64.
    pub halves: String,
}

/// The stored bytes of a file, without the bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedFile {
    pub byte_size: i64,
    /// `sha256:<hex>`.
    pub content_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_mime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detected_by: Option<DetectedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The options that it was ingested with.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options: Value,
}

/// What ingestion keeps of a container of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedContainer {
    /// The file that it belongs to.
    pub root: i64,
    /// The tokens of the text under it.
    pub tokens: i64,
    pub failed_children: i32,
}

/// One page of documents, each before what is under it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ArchivePage {
    pub documents: Vec<ArchivedDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
impl Wire for ArchivePage {}

/// A link as an archive holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedLink {
    pub source: i64,
    pub target: i64,
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 100))]
    pub link_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "super::structured::object")]
    pub metadata: Map<String, Value>,
    /// One of its ends is not in the archive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

/// One page of links. It may be short or empty before the last one, where few of many links are wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ArchiveLinkPage {
    pub links: Vec<ArchivedLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
impl Wire for ArchiveLinkPage {}

/// A grant as an archive holds it: the principal by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivedGrant {
    pub document: i64,
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200))]
    pub principal: String,
    pub right: GrantRight,
}

/// One page of grants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ArchiveGrantPage {
    pub grants: Vec<ArchivedGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
impl Wire for ArchiveGrantPage {}

/// Which archive is imported, and where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct ImportedArchive {
    /// The name that the archive gave itself, 8 to 64 of the characters a-z A-Z 0-9 _ - and the full stop. By it and by where it goes, a
    /// repeated call finds what an earlier one stored.
    pub archive: String,
    /// The document that its topmost documents are put under; at the top if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
}
impl Params for ImportedArchive {
    constrain! { archive: ARCHIVE }
}

/// Which archive facts are of, where its documents went, and what the IRIs of the other store begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct ImportedFactsQuery {
    /// The name that the archive gave itself.
    pub archive: String,
    /// What its documents were put under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// The `SVC_RDF_BASE` of the store that the archive came from.
    pub base: String,
}
impl Params for ImportedFactsQuery {
    constrain! { archive: ARCHIVE, base: Constraint::Text(1, 2048, Form::Iri) }
}

/// What is known of the bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct ImportedBytesQuery {
    /// What they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// How that was found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detected_by: Option<DetectedBy>,
    /// The format, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}
impl Params for ImportedBytesQuery {
    constrain! { mime_type: Constraint::Text(1, 255, Form::NotBlank), format: NAME }
}

/// Documents of an archive that are stored together, or not at all.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchivePart {
    /// 1 to 1,000 documents, parents before their children.
    pub documents: Vec<ArchivedDocument>,
}

impl ArchivePart {
    /// The most rows of one call.
    pub const MOST: usize = 1000;
}

impl Wire for ArchivePart {
    /// A document that came in parts, or with less said of it, is larger on its way back.
    fn most_bytes(usual: u64) -> u64 {
        usual.saturating_mul(2).saturating_add(1 << 20)
    }
    constrain! { documents: ROWS; |part: &ArchivePart| {
        let mut ids = HashSet::new();
        for (index, document) in part.documents.iter().enumerate() {
            document.check().map_err(|(field, reason)| {
                Failure::field(&format!("documents[{index}].{field}"), reason).with("index", index)
            })?;
            if !ids.insert(document.id) {
                let reason = format!("an earlier document of this call has the id {} too", document.id);
                return Err(Failure::field(&format!("documents[{index}].id"), reason).with("index", index));
            }
        }
        Ok(())
    } }
}

/// A list checks only how many there are; [`ArchivePart`] checks each.
impl Constrained for ArchivedDocument {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Err("takes no constraint of a single value".to_owned())
    }
}
impl Constrained for ArchivedLink {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Err("takes no constraint of a single value".to_owned())
    }
}
impl Constrained for ArchivedGrant {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Err("takes no constraint of a single value".to_owned())
    }
}

/// Whether a text is `sha256:` and 64 small hexadecimal digits.
pub fn is_content_hash(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// What a document's vector may count in those of what it is under. A text of 32,768 tokens has some millions, and a sum as much as all that it is made of;
/// a sum of vectors that count more or less than this may be no number any more.
const WEIGHTS: RangeInclusive<f32> = 1e-15..=1e15;

/// What makes the pictures of files, which have a text beside their bytes.
const PICTURES: &str = "extract:images";

impl ArchivedDocument {
    /// Whether it is a picture of a file, whose bytes are no file.
    pub fn is_picture(&self) -> bool {
        self.rule.as_deref() == Some(PICTURES)
    }

    /// Names the first field that breaks a constraint, with the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let named = |field: &'static str| move |reason: String| (field, reason);
        // A title may be empty: a section without a heading has none.
        self.title.meets(&Constraint::Text(0, 1000, Form::Any)).map_err(named("title"))?;
        self.usetype.meets(&NAME).map_err(named("usetype"))?;
        self.rule.meets(&NAME).map_err(named("rule"))?;
        self.iri.meets(&Constraint::Text(1, 2048, Form::Iri)).map_err(named("iri"))?;
        self.event_time.meets(&Constraint::Moment).map_err(named("event_time"))?;
        self.created_at.meets(&Constraint::Moment).map_err(named("created_at"))?;
        self.updated_at.meets(&Constraint::Moment).map_err(named("updated_at"))?;
        for key in &self.keys {
            key.principal.meets(&PRINCIPAL).map_err(named("keys.principal"))?;
            key.key.meets(&KEY).map_err(named("keys.key"))?;
        }
        if let Some(entity) = &self.entity {
            entity.name.meets(&Constraint::Text(1, 4000, Form::Any)).map_err(named("entity.name"))?;
            entity.kind.meets(&Constraint::Text(0, 4000, Form::Any)).map_err(named("entity.kind"))?;
        }
        if self.id < 1 {
            return Err(("id", "must be above 0".to_owned()));
        }
        if self.parent == Some(self.id) {
            return Err(("parent", "is the document itself".to_owned()));
        }
        if self.anchor.as_ref().is_some_and(|anchor| anchor.to_string().len() > ANCHOR_BYTES) {
            return Err(("anchor", format!("must have at most {ANCHOR_BYTES} bytes")));
        }
        if let Some(vector) = &self.vector
            && !WEIGHTS.contains(&vector.weight)
        {
            return Err(("vector.weight", format!("must be from {:e} to {:e}", WEIGHTS.start(), WEIGHTS.end())));
        }
        if let Some(file) = &self.file
            && (!is_content_hash(&file.content_hash) || file.byte_size < 0)
        {
            return Err(("file", "needs a size, and a hash of the form sha256:<hex>".to_owned()));
        }
        if let Some(file) = &self.file {
            file.mime_type.meets(&Constraint::Text(1, 255, Form::NotBlank)).map_err(named("file.mime_type"))?;
            file.format.meets(&NAME).map_err(named("file.format"))?;
            if !file.options.is_object() {
                return Err(("file.options", "must be an object".to_owned()));
            }
            if !self.content.is_empty() && !self.is_picture() {
                return Err(("content", "is that of the file's bytes, so that a file has none".to_owned()));
            }
        }
        Ok(())
    }
}

/// What became of a document of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedDocument {
    /// Its id in the archive.
    pub id: i64,
    pub document_id: i64,
    /// True if an earlier call had stored it; then nothing was.
    pub was_existing: bool,
}

/// What became of a part of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedPart {
    /// One answer for each document of the call, in the order of the call.
    pub documents: Vec<ImportedDocument>,
    /// How many got their vectors from the archive.
    pub vectors: u32,
    /// How many are to be embedded anew, because their vectors are of another model or missing.
    pub queued: u32,
    /// How many containers have no vector, because theirs is of another model: a reprocess of the file makes it.
    pub without_vector: u32,
    /// How many were in flight when they were exported. They are failed.
    pub in_flight: u32,
    /// The IRIs that another document has already, which keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iris_taken: Vec<String>,
}
impl Wire for ImportedPart {}

/// Ids of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchiveIds {
    /// 1 to 1,000 ids.
    pub ids: Vec<i64>,
}
impl Wire for ArchiveIds {
    constrain! { ids: ROWS }
}

/// The documents that an import made of ids of an archive. What is not stored is left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedIds {
    pub documents: Vec<ImportedDocument>,
}
impl Wire for ImportedIds {}

/// Links of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchiveLinks {
    /// 1 to 1,000 links.
    pub links: Vec<ArchivedLink>,
}
impl Wire for ArchiveLinks {
    /// An archive says more of a link than the call that made it.
    fn most_bytes(usual: u64) -> u64 {
        usual.saturating_mul(2).saturating_add(1 << 20)
    }
    constrain! { links: ROWS; |part: &ArchiveLinks| {
        for (index, link) in part.links.iter().enumerate() {
            NAME.check(&format!("links[{index}].link_type"), &link.link_type)?;
        }
        Ok(())
    } }
}

/// What became of rows of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedRows {
    pub created: u32,
    /// Those that were there already.
    pub existing: u32,
    /// Those that name a document which was not imported, or a principal that is not here.
    pub outside: u32,
}
impl Wire for ImportedRows {}

/// Grants of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchiveGrants {
    /// 1 to 1,000 grants.
    pub grants: Vec<ArchivedGrant>,
}
impl Wire for ArchiveGrants {
    constrain! { grants: ROWS; |part: &ArchiveGrants| {
        for (index, grant) in part.grants.iter().enumerate() {
            PRINCIPAL.check(&format!("grants[{index}].principal"), &grant.principal)?;
        }
        Ok(())
    } }
}

/// What became of the bytes of a file of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedBytes {
    pub document_id: i64,
    pub was_existing: bool,
    /// The document that has the same bytes where the same callers read them; then nothing was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<i64>,
}
impl Wire for ImportedBytes {}

/// What became of facts of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedFacts {
    /// Facts that the store did not believe before.
    pub created: u32,
    /// Facts whose time became longer.
    pub merged: u32,
    /// Facts that the store believed already.
    pub existing: u32,
    /// Facts with an end or a source that was not imported, or about a document that the caller may not change. They are not asserted.
    pub outside: u32,
    /// Facts that the other store no longer believed, or had derived. They stay in the archive.
    pub left_out: u32,
}
impl Wire for ImportedFacts {}
