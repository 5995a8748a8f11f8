//! Conversations: their turns as Markdown, and the nodes of the turns with speaker and time.
use super::{Made, lines, prepared, spooled_as_text};
use crate::{
    core::Core,
    store::{self, evidence::Evidence, nodes::TurnNode, places::Place},
};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use std::collections::BTreeSet;
use svc_client::{Code, Failure, wire::Turn};
use svc_formats::{Extraction, Heading};
use svc_ids::DocumentId;

/// A conversation without a title is named after this many speakers.
const NAMED: usize = 3;

/// Where a turn begins in the text, and whose it is; the evidence `turns` is a list of them.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Begin {
    /// The byte at which its heading begins.
    start: usize,
    speaker: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
}

/// The turns as a file in Markdown, which the tasks read by the places of the turns and not by its marks: what a
/// speaker says may contain headings of its own.
pub(super) async fn made(core: &Core, turns: Vec<Turn>) -> Result<Made, Failure> {
    let title = title(&turns);
    let (text, begins) = render(&turns);
    let heading = |begin: &Begin| Heading { level: 2, title: begin.speaker.clone(), start: begin.start };
    let extraction = Extraction {
        headings: begins.iter().map(heading).collect(),
        headings_from: Some("turns".to_owned()),
        charset: Some("UTF-8".to_owned()),
        text: text.clone(),
        ..Extraction::default()
    };
    let places = serde_json::to_value(&begins).map_err(|error| Failure::new(Code::Internal, error))?;
    let (file, detection) = spooled_as_text(core, text).await?;
    Ok(Made {
        title: Some(title),
        file,
        detection,
        declared_mime: Some("text/markdown".to_owned()),
        prepared: Some(prepared(extraction)),
        evidence: vec![(Evidence::Turns, places)],
    })
}

fn title(turns: &[Turn]) -> String {
    let (mut seen, mut speakers) = (BTreeSet::new(), Vec::new());
    for turn in turns {
        if seen.insert(turn.speaker.trim()) {
            speakers.push(turn.speaker.trim());
        }
    }
    let more = if speakers.len() > NAMED { " and others" } else { "" };
    speakers.truncate(NAMED);
    format!("Conversation of {}{more}", speakers.join(", "))
}

/// A heading with speaker and time for each turn, and under it what was said.
fn render(turns: &[Turn]) -> (String, Vec<Begin>) {
    let (mut text, mut begins) = (String::new(), Vec::with_capacity(turns.len()));
    for turn in turns {
        let speaker = turn.speaker.trim();
        let (role, metadata) = (turn.role.clone(), turn.metadata.clone());
        begins.push(Begin { start: text.len(), speaker: speaker.to_owned(), time: turn.time, role, metadata });
        text.push_str("## ");
        text.push_str(speaker);
        if let Some(time) = turn.time {
            text.push_str(&format!(" ({})", time.to_rfc3339_opts(SecondsFormat::AutoSi, true)));
        }
        text.push_str("\n\n");
        text.push_str(lines(&turn.text).trim_end());
        text.push_str("\n\n");
    }
    (text, begins)
}

/// Gives each node of a conversation the speaker and the time of its turn. `nodes` are the new nodes of `file`, each with the byte at which it begins.
pub async fn mark(conn: &mut PgConnection, file: &Place, nodes: &[(DocumentId, usize)]) -> sqlx::Result<()> {
    let Some(begins) = store::evidence::read_one(conn, file.id(), Evidence::Turns).await? else { return Ok(()) };
    let begins: Vec<Begin> = serde_json::from_value(begins).unwrap_or_default();
    let turn = |(id, start): &(DocumentId, usize)| {
        let index = begins.partition_point(|begin| begin.start <= *start).checked_sub(1)?;
        let begin = &begins[index];
        let mut structured = json!({"speaker": begin.speaker, "index": index});
        if let Some(role) = &begin.role {
            structured["role"] = json!(role);
        }
        if !begin.metadata.is_empty() {
            structured["metadata"] = json!(begin.metadata);
        }
        Some(TurnNode { id: *id, event_time: begin.time, structured_content: structured })
    };
    let turns: Vec<TurnNode> = nodes.iter().filter_map(turn).collect();
    store::nodes::set_turns(conn, file, &turns).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(speaker: &str, text: &str, time: Option<&str>) -> Turn {
        let time = time.map(|time| time.parse().expect("a time"));
        Turn { time, ..Turn::new(speaker, text) }
    }

    #[test]
    fn a_turn_is_a_heading_and_what_was_said() {
        let turns = [
            turn("Ann ", "Hello.\r\n# No heading\n\n", Some("2024-05-01T10:00:00Z")),
            turn("Ben", "", None),
            turn("Ann", "Bye.", Some("2024-05-01T12:00:00.5+02:00")),
        ];
        let (text, begins) = render(&turns);
        assert_eq!(
            text,
            "## Ann (2024-05-01T10:00:00Z)\n\nHello.\n# No heading\n\n## Ben\n\n\n\n## Ann (2024-05-01T10:00:00.500Z)\n\nBye.\n\n"
        );
        assert!(begins.iter().all(|begin| text[begin.start..].starts_with(&format!("## {}", begin.speaker))));
        assert_eq!(title(&turns), "Conversation of Ann, Ben");
        let many: Vec<_> = ["A", "B", "C", "D"].into_iter().map(|speaker| turn(speaker, "x", None)).collect();
        assert_eq!(title(&many), "Conversation of A, B, C and others");
    }
}
