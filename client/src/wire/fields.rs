//! Which fields the answer of a search shows of its documents.
use super::{DocumentResponse, Settled};
use crate::{
    Failure,
    constraint::{Constrained, Constraint, Form},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

wire_words! {
    /// A field of a document.
    DocumentField {
        Id = "id",
        ParentId = "parent_id",
        Title = "title",
        Content = "content",
        StructuredContent = "structured_content",
        Path = "path",
        Usetype = "usetype",
        Position = "position",
        EventTime = "event_time",
        CreatedAt = "created_at",
        UpdatedAt = "updated_at",
        ContentHash = "content_hash",
        Settled = "settled",
        Embed = "embed",
    }
}

/// The fields that an answer shows.
pub(super) const FIELDS: Constraint = Constraint::List(1, DocumentField::WORDS.len(), None);
/// The same with commas between them.
pub(super) const FIELD_LIST: Constraint = Constraint::Text(1, 1_000, Form::NotBlank);

/// A word is checked when it is read.
impl Constrained for DocumentField {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Ok(())
    }
}

/// Reads fields with commas between them.
pub fn document_fields(list: &str) -> Result<Vec<DocumentField>, Failure> {
    let field = |word: &str| word.trim().parse::<DocumentField>().map_err(|error| Failure::field("fields", error));
    list.split(',').map(field).collect()
}

/// What `fields` says, nothing else says as well.
pub(super) fn check_alone(is_given: bool, include_content: bool, include_embed: bool) -> Result<(), Failure> {
    for (other, differs) in [("include_content", !include_content), ("include_embed", include_embed)] {
        if is_given && differs {
            return Err(Failure::field(other, "is not for a search that has `fields`")
                .with("remedy", "name in `fields` all that is to be shown, also `content` and `embed`"));
        }
    }
    Ok(())
}

/// The same for a query string, in which they have commas between them.
pub(super) fn check_list(fields: Option<&str>, include_content: bool, include_embed: bool) -> Result<(), Failure> {
    fields.map(document_fields).transpose()?;
    check_alone(fields.is_some(), include_content, include_embed)
}

impl DocumentResponse {
    /// Has the answer of a search show these fields alone.
    pub fn show_only(&mut self, fields: &[DocumentField]) {
        let mut shown = fields.to_vec();
        shown.sort();
        shown.dedup();
        self.omitted.retain(|name| shown.iter().any(|field| field.as_str() == name));
        self.shown = Some(shown);
    }
}

/// A document in the answer of a search: with all of its fields, or with those that `fields` names.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FoundDocument {
    #[cfg_attr(feature = "openapi", schema(value_type = i64, required = false))]
    id: Option<i64>,
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    parent_id: Option<Option<i64>>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    title: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    content: Option<String>,
    /// Exactly what a caller wrote.
    #[cfg_attr(feature = "openapi", schema(value_type = Object, required = false))]
    structured_content: Option<Map<String, Value>>,
    /// The ids of its ancestors, root first, without its own id.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<i64>, required = false))]
    path: Option<Vec<i64>>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    usetype: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i32>))]
    position: Option<Option<i32>>,
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<DateTime<Utc>>))]
    event_time: Option<Option<DateTime<Utc>>>,
    #[cfg_attr(feature = "openapi", schema(value_type = DateTime<Utc>, required = false))]
    created_at: Option<DateTime<Utc>>,
    #[cfg_attr(feature = "openapi", schema(value_type = DateTime<Utc>, required = false))]
    updated_at: Option<DateTime<Utc>>,
    /// `sha256:<hex>` of the content, or of the bytes for a file.
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    content_hash: Option<String>,
    /// `in_flight`, `settled` or `failed`.
    #[cfg_attr(feature = "openapi", schema(value_type = Settled, required = false))]
    settled: Option<Settled>,
    /// 768 numbers, only on request. Absent too if the document has no vector; its evidence says why not.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<f32>, required = false))]
    embed: Option<Vec<f32>>,
    /// Which of `content` and `structured_content` are empty here although they were asked for or are shown by default, because `include_content` says so
    /// or the answer had no room. Absent if nothing is left out.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>, required = false))]
    omitted: Vec<String>,
}

/// Tells null from absent.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl From<FoundDocument> for DocumentResponse {
    fn from(found: FoundDocument) -> DocumentResponse {
        let given = [
            (DocumentField::Id, found.id.is_some()),
            (DocumentField::ParentId, found.parent_id.is_some()),
            (DocumentField::Title, found.title.is_some()),
            (DocumentField::Content, found.content.is_some()),
            (DocumentField::StructuredContent, found.structured_content.is_some()),
            (DocumentField::Path, found.path.is_some()),
            (DocumentField::Usetype, found.usetype.is_some()),
            (DocumentField::Position, found.position.is_some()),
            (DocumentField::EventTime, found.event_time.is_some()),
            (DocumentField::CreatedAt, found.created_at.is_some()),
            (DocumentField::UpdatedAt, found.updated_at.is_some()),
            (DocumentField::ContentHash, found.content_hash.is_some()),
            (DocumentField::Settled, found.settled.is_some()),
        ];
        let is_whole = given.iter().all(|(_, is_given)| *is_given);
        let mut shown: Vec<DocumentField> =
            given.into_iter().filter(|(_, is_given)| *is_given).map(|(field, _)| field).collect();
        shown.extend(found.embed.is_some().then_some(DocumentField::Embed));
        DocumentResponse {
            id: found.id.unwrap_or_default(),
            parent_id: found.parent_id.flatten(),
            title: found.title.unwrap_or_default(),
            content: found.content.unwrap_or_default(),
            structured_content: found.structured_content.unwrap_or_default(),
            path: found.path.unwrap_or_default(),
            usetype: found.usetype.unwrap_or_default(),
            position: found.position.flatten(),
            event_time: found.event_time.flatten(),
            created_at: found.created_at.unwrap_or_default(),
            updated_at: found.updated_at.unwrap_or_default(),
            content_hash: found.content_hash.unwrap_or_default(),
            settled: found.settled.unwrap_or(Settled::Settled),
            embed: found.embed,
            omitted: found.omitted,
            shown: (!is_whole).then_some(shown),
        }
    }
}

/// Writes a document into the answer of a search.
pub(super) fn serialize<S: Serializer>(document: &DocumentResponse, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(fields) = &document.shown else { return document.serialize(serializer) };
    let mut members = serializer.serialize_map(None)?;
    for field in fields {
        let name = field.as_str();
        match field {
            DocumentField::Id => members.serialize_entry(name, &document.id)?,
            DocumentField::ParentId => members.serialize_entry(name, &document.parent_id)?,
            DocumentField::Title => members.serialize_entry(name, &document.title)?,
            DocumentField::Content => members.serialize_entry(name, &document.content)?,
            DocumentField::StructuredContent => members.serialize_entry(name, &document.structured_content)?,
            DocumentField::Path => members.serialize_entry(name, &document.path)?,
            DocumentField::Usetype => members.serialize_entry(name, &document.usetype)?,
            DocumentField::Position => members.serialize_entry(name, &document.position)?,
            DocumentField::EventTime => members.serialize_entry(name, &document.event_time)?,
            DocumentField::CreatedAt => members.serialize_entry(name, &document.created_at)?,
            DocumentField::UpdatedAt => members.serialize_entry(name, &document.updated_at)?,
            DocumentField::ContentHash => members.serialize_entry(name, &document.content_hash)?,
            DocumentField::Settled => members.serialize_entry(name, &document.settled)?,
            DocumentField::Embed => {
                if let Some(embed) = &document.embed {
                    members.serialize_entry(name, embed)?;
                }
            }
        }
    }
    if !document.omitted.is_empty() {
        members.serialize_entry("omitted", &document.omitted)?;
    }
    members.end()
}

/// Reads a document of the answer of a search: what the answer does not show has its default.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DocumentResponse, D::Error> {
    FoundDocument::deserialize(deserializer).map(DocumentResponse::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::SearchResult;
    use serde_json::json;

    #[test]
    fn a_result_is_written_and_read_with_the_fields_that_it_has() {
        let whole = json!({
            "id": 7, "parent_id": null, "title": "A", "content": "a", "structured_content": {"b": 1}, "path": [1], "usetype": "note", "position": null,
            "event_time": null, "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z", "content_hash": "sha256:", "settled": "settled",
            "embed": [0.5], "score": 0.5,
        });
        let some = json!({"id": 7, "parent_id": null, "score": 0.5});
        let none_of_it = json!({"score": 0.5});
        for written in [whole.clone(), some.clone(), none_of_it] {
            let read: SearchResult = serde_json::from_value(written.clone()).expect("a result");
            assert_eq!(serde_json::to_value(&read).expect("JSON"), written);
        }
        let mut result: SearchResult = serde_json::from_value(whole).expect("a result");
        result.document.show_only(&[DocumentField::ParentId, DocumentField::Id, DocumentField::Id]);
        assert_eq!(serde_json::to_value(&result).expect("JSON"), some);
    }

    #[test]
    fn an_unknown_field_is_named_with_those_that_are_known() {
        assert_eq!(document_fields("id, title").expect("two fields"), [DocumentField::Id, DocumentField::Title]);
        for list in ["id,,title", "id,titel", ""] {
            let refused = document_fields(list).expect_err("not a field");
            assert_eq!(refused.members["field"], "fields");
            assert!(refused.detail.contains("content_hash"), "{}", refused.detail);
        }
    }
}
