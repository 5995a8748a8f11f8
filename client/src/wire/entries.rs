//! The entries of `POST /ingest`: texts, conversations and addresses, which become files as uploads do.
use crate::{
    Code, Failure, Located,
    constraint::{Constraint, Form, NAME, TITLE, constrain},
    operation::{Params, Wire},
    wire::{Attempt, DocumentResponse, FrontierResponse, Settled},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

wire_words! {
    /// An entry of `POST /ingest`.
    Entry {
        Markdown = "markdown",
        Raw = "raw",
        Conversation = "conversation",
        Transcript = "transcript",
        WikiUrl = "wiki:url",
        WikiArxiv = "wiki:arxiv",
        WikiPdf = "wiki:pdf",
    }
    /// The field of a request that an entry's content comes from.
    EntrySource { Content = "content", Turns = "turns", Url = "url", Id = "id", }
}

/// The most turns of one conversation.
pub const TURNS: usize = 10_000;
const SPEAKER: Constraint = Constraint::Text(1, 200, Form::NotBlank);

/// When to answer, and what to show of the document.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct IngestQuery {
    /// Answer when it is ingested, true by default; with false when it is stored, and the frontier tells how far it is.
    #[cfg_attr(feature = "openapi", param(default = true))]
    pub wait: bool,
    /// Whether to include the 768-dimension vector.
    pub include_embed: bool,
}
impl Default for IngestQuery {
    fn default() -> Self {
        Self { wait: true, include_embed: false }
    }
}
impl Params for IngestQuery {}

/// An entry takes one of `content`, `turns`, `url` and `id`; `GET /ingest/pipelines` says which.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIngestion {
    pub entry: Entry,
    /// A text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What was said, in its order.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 10_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Vec<Turn>>,
    /// An http or https address outside of private networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A paper, such as `2301.00001v2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// By default the title that the content has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The node to put it under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Makes it an access root that only the caller may read.
    #[serde(default)]
    pub private: bool,
    /// The time that the content is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<DateTime<Utc>>,
    /// Ingest options, by group.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::value")]
    pub options: Option<Value>,
}

impl NewIngestion {
    /// An ingestion of an entry that has nothing else yet.
    pub fn of(entry: Entry) -> NewIngestion {
        NewIngestion {
            entry,
            content: None,
            turns: None,
            url: None,
            id: None,
            title: None,
            parent_id: None,
            private: false,
            event_time: None,
            options: None,
        }
    }

    fn check_more(&self) -> Result<(), Failure> {
        self.turns.as_deref().map_or(Ok(()), check_turns)
    }
}
impl Wire for NewIngestion {
    constrain! {
        content: Constraint::Text(1, 1 << 23, Form::NotBlank),
        url: Constraint::Text(1, 4096, Form::NotBlank),
        id: Constraint::Text(1, 100, Form::NotBlank),
        title: TITLE,
        event_time: Constraint::Moment;
        NewIngestion::check_more
    }

    fn retired(field: &str) -> Option<Failure> {
        let detail = "`pipeline_config` is not known; give ingest options by group as `options`";
        (field == "pipeline_config").then(|| {
            Failure::new(Code::UnknownOption, detail)
                .with("key", field)
                .with("remedy", "move what it held to `options`; GET /ingest/pipelines shows them with their defaults")
        })
    }
}

/// What one speaker said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// One line.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200))]
    pub speaker: String,
    pub text: String,
    /// When it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<DateTime<Utc>>,
    /// Such as `user`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[a-zA-Z0-9_:.-]{1,100}$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The caller's own.
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "super::structured::object")]
    pub metadata: Map<String, Value>,
}

impl Turn {
    /// A turn that has a speaker and a text.
    pub fn new(speaker: &str, text: &str) -> Turn {
        Turn { speaker: speaker.to_owned(), text: text.to_owned(), time: None, role: None, metadata: Map::new() }
    }
}

/// Refuses turns by the place and the name of what is wrong.
pub(super) fn check_turns(turns: &[Turn]) -> Result<(), Failure> {
    if turns.is_empty() || turns.len() > TURNS {
        return Err(Failure::field("turns", format!("takes 1 to {TURNS} turns, got {}", turns.len())));
    }
    for (place, turn) in turns.iter().enumerate() {
        SPEAKER.check(&format!("turns[{place}].speaker"), &turn.speaker)?;
        if turn.speaker.chars().any(char::is_control) {
            return Err(Failure::field(&format!("turns[{place}].speaker"), "takes one line"));
        }
        Constraint::Moment.check(&format!("turns[{place}].time"), &turn.time)?;
        NAME.check(&format!("turns[{place}].role"), &turn.role)?;
    }
    Ok(())
}

/// A conversation to ingest: exactly one of `turns`, `messages` and `content`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewConversation {
    /// What was said, in its order: 1 to 10,000 turns.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 10_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Vec<Turn>>,
    /// The same as chats have it: objects with `role` or a speaker, and `content`, which is a text or a list of parts with a `text`.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 10_000, value_type = Option<Vec<Object>>))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::objects")]
    pub messages: Option<Vec<Map<String, Value>>>,
    /// The same as programs export it: messages in JSON or as JSON lines, or subtitles in WebVTT or SubRip, whose times count from `event_time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// By default the names of the first speakers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The node under which the conversation is put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Makes the conversation an access root that only the caller may read.
    #[serde(default)]
    pub private: bool,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<DateTime<Utc>>,
    /// Ingest options, by group.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::value")]
    pub options: Option<Value>,
}
impl Wire for NewConversation {
    constrain! {
        content: Constraint::Text(1, 1 << 23, Form::NotBlank),
        title: TITLE,
        event_time: Constraint::Moment;
        |new| {
            if let Some(count) = new.messages.as_ref().map(Vec::len).filter(|count| !(1..=TURNS).contains(count)) {
                return Err(Failure::field("messages", format!("takes 1 to {TURNS} messages, got {count}")));
            }
            new.turns.as_deref().map_or(Ok(()), check_turns)
        }
    }
}

/// A conversation that is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ConversationResponse {
    /// The conversation's node, of the usetype `conversation`. Each turn becomes a section under it, with its speaker, role, place and time.
    pub document_id: i64,
    pub title: String,
    /// Whether it is found already: `in_flight` until its turns are embedded.
    pub settled: Settled,
    pub turns: u32,
    /// Who spoke, in the order of their first turns; at most 100.
    pub speakers: Vec<String>,
    /// True if the same turns were stored already; then `document_id` is the node that holds them.
    pub was_existing: bool,
    /// True if the existing node was attached to the requested parent by a `contains` link.
    pub linked_into_parent: bool,
    /// The sections of the turns in their order, the first 1,000, once they are made: always with `wait`.
    pub sections: Vec<DocumentResponse>,
}
impl Wire for ConversationResponse {}
impl Located for ConversationResponse {
    fn location(&self) -> String {
        format!("/documents/{}", self.document_id)
    }
}

/// A document that was ingested to its end, with what was made of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct IngestedTree {
    /// The file node, which is the root of the tree.
    pub document_id: i64,
    /// True if the same bytes were stored through this entry already; then `document_id` is the node that holds them.
    pub was_existing: bool,
    /// True if the existing node was attached to the requested parent by a `contains` link.
    pub linked_into_parent: bool,
    /// The file node. If it is `failed`, the last of the `attempts` says why.
    pub document: DocumentResponse,
    /// The nodes under it in the order of `GET /documents/{id}/subtree`: the first page of that list.
    pub nodes: Vec<DocumentResponse>,
    /// The rest is read by `GET /documents/{id}/subtree` with this cursor; null if all nodes are here.
    pub next_cursor: Option<String>,
    /// The counts, and what a reader of the tree should know.
    pub frontier: FrontierResponse,
    /// The file node's attempt log, newest last.
    pub attempts: Vec<Attempt>,
}
impl Wire for IngestedTree {}
impl Located for IngestedTree {
    fn location(&self) -> String {
        format!("/documents/{}", self.document_id)
    }
}

/// One entry of `POST /ingest`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Pipeline {
    pub entry: Entry,
    /// The usetype of the file node that the entry makes.
    pub usetype: String,
    /// What the entry does, in a sentence.
    pub about: String,
    /// The fields of the request that may hold the content or say where it is; a request has exactly one.
    pub sources: Vec<EntrySource>,
    /// Whether the server fetches the content.
    pub fetched: bool,
    /// The media types that a fetched answer may have; empty if nothing is fetched.
    pub accepts: Vec<String>,
    /// The options that a request without `options` gets.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options: Value,
}

/// The entries of `POST /ingest`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PipelineList {
    pub pipelines: Vec<Pipeline>,
}
impl Wire for PipelineList {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(body: Value) -> Failure {
        serde_json::from_value::<NewIngestion>(body).unwrap().check().unwrap_err()
    }

    #[test]
    fn a_speaker_is_one_line() {
        let turns = |turns: Value| json!({"entry": "conversation", "turns": turns});
        for bad in [
            json!([]),
            json!([{"speaker": "", "text": "x"}]),
            json!([{"speaker": "Ann", "text": "x"}, {"speaker": "A\nB", "text": "x"}]),
            json!([{"speaker": "x".repeat(201), "text": "x"}]),
        ] {
            assert!(refusal(turns(bad.clone())).detail.starts_with("turns"), "{bad}");
        }
        let many = vec![json!({"speaker": "Ann", "text": "x"}); TURNS + 1];
        assert!(refusal(turns(json!(many))).detail.contains("10000"));
    }
}
