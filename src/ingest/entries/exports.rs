//! Conversations in the forms in which programs export them: messages in JSON or JSON lines, and subtitles.
use crate::admission::amount::Amount;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value, json};
use svc_client::{
    Failure,
    constraint::Constraint,
    wire::{TURNS, Turn},
};
use svc_formats::{Cue, subtitles};

/// The longest speaker; a longer name is cut.
const SPEAKER: usize = 200;
/// What nobody in particular says.
const NOBODY: &str = "Speaker";
/// The JSON of an export holds no more than that of a body of so many bytes.
const EXPORT_BYTES: u64 = 16 << 20;

/// The turns of a text, if it has a form of an export. `begun` is the time at which a recording begins.
pub(crate) fn turns(text: &str, begun: Option<DateTime<Utc>>) -> Option<Result<Vec<Turn>, Failure>> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let turns = match text.chars().next()? {
        '[' | '{' => {
            if let Err(refusal) = check_amount(text) {
                return Some(Err(refusal));
            }
            let messages = messages(text)?;
            messages.iter().enumerate().map(|(at, message)| turn(message, at)).collect::<Result<Vec<_>, _>>()
        }
        _ => of_subtitles(text, begun)?,
    };
    Some(turns.and_then(|turns| {
        match turns.len() {
            0 => Err(Failure::field("content", "has no turn")),
            count if count > TURNS => {
                Err(Failure::field("content", format!("has {count} turns, and at most {TURNS} are taken"))
                    .with("remedy", "import it in parts"))
            }
            _ => Ok(turns),
        }
    }))
}

/// Messages as they stand in the list of a chat.
pub(crate) fn of_messages(messages: &[Map<String, Value>]) -> Result<Vec<Turn>, Failure> {
    messages.iter().enumerate().map(|(at, message)| turn(message, at)).collect()
}

/// Refuses a text, or lines, of JSON that hold too much to be read at once.
fn check_amount(text: &str) -> Result<(), Failure> {
    let over = |amount: &Amount, json: &str| amount.check(json.as_bytes()).err().filter(serde_json::Error::is_data);
    let (whole, lines) = (Amount::of_bytes(EXPORT_BYTES), Amount::of_bytes(EXPORT_BYTES));
    let found = over(&whole, text).or_else(|| text.lines().find_map(|line| over(&lines, line)));
    found.map_or(Ok(()), |error| {
        Err(Failure::field("content", error).with("remedy", "leave out what is no message, or import it in parts"))
    })
}

/// The messages of a JSON text: a list, an object with a list, or an object a line.
fn messages(text: &str) -> Option<Vec<Map<String, Value>>> {
    let list = match serde_json::from_str(text) {
        Ok(Value::Array(list)) => list,
        Ok(Value::Object(mut object)) => {
            let list = ["messages", "chat_messages", "turns"].iter().find_map(|name| object.remove(*name));
            match list {
                Some(Value::Array(list)) => list,
                _ => vec![Value::Object(object)],
            }
        }
        Ok(_) => return None,
        Err(_) => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>().ok()?
        }
    };
    let messages: Option<Vec<Map<String, Value>>> = list
        .into_iter()
        .map(|message| match message {
            Value::Object(message) if said(&message).is_some() => Some(message),
            _ => None,
        })
        .collect();
    messages.filter(|messages| !messages.is_empty())
}

/// The first of these fields that says something: a message may have some of them empty.
fn first<'a>(message: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    names.iter().filter_map(|name| message.get(*name)).find(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(parts) => !parts.is_empty(),
        _ => true,
    })
}

/// The fields with what a message says.
const SAID: [&str; 4] = ["content", "text", "message", "body"];

/// What a message says: a text, or the texts of its parts.
fn said(message: &Map<String, Value>) -> Option<String> {
    let content = first(message, &SAID).or_else(|| SAID.iter().find_map(|name| message.get(*name)))?;
    let part = |part: &Value| match part {
        Value::String(text) => Some(text.clone()),
        Value::Object(part) => part.get("text").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    let joined = |parts: &[Value]| parts.iter().filter_map(part).collect::<Vec<_>>().join("\n\n");
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(joined(parts)),
        Value::Object(content) => match content.get("parts") {
            Some(Value::Array(parts)) => Some(joined(parts)),
            _ => content.get("text").and_then(Value::as_str).map(str::to_owned),
        },
        // A message that only calls a tool says nothing.
        Value::Null => Some(String::new()),
        _ => None,
    }
}

fn turn(message: &Map<String, Value>, at: usize) -> Result<Turn, Failure> {
    let text = said(message).ok_or_else(|| {
        Failure::field(
            "messages",
            format!("message {at} says nothing: it has no `content`, `text`, `message` or `body`"),
        )
    })?;
    let word = |value: &Value| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    let author = message.get("author").and_then(Value::as_object);
    let within = |name: &str| author.and_then(|author| author.get(name)).and_then(word);
    let role = message.get("role").and_then(word).or_else(|| within("role"));
    let named = first(message, &["speaker", "name", "sender", "author", "from", "user"]).and_then(word);
    let speaker = named.or_else(|| within("name")).or_else(|| role.clone()).ok_or_else(|| {
        Failure::field("messages", format!("message {at} has no speaker: it has none of `role`, `speaker`, `name`, `sender`, `author`, `from` and `user`"))
    })?;
    let time = first(message, &["time", "timestamp", "created_at", "create_time", "date", "ts"]).and_then(moment);
    let is_name = |role: &String| {
        role.len() <= 100 && role.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-:.".contains(&byte))
    };
    Ok(Turn { time, role: role.filter(is_name), ..Turn::new(&name(&speaker), &text) })
}

/// A name on one line.
fn name(text: &str) -> String {
    let line = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty());
    let name: String = line.collect::<Vec<_>>().join(" ").chars().take(SPEAKER).collect();
    if name.is_empty() { NOBODY.to_owned() } else { name }
}

/// A time that the store can hold.
fn held(time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    Constraint::Moment.check("time", &time).is_ok().then_some(time)
}

/// A time by RFC 3339, or in seconds or milliseconds since 1970.
fn moment(value: &Value) -> Option<DateTime<Utc>> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.parse() {
            Ok(time) => return held(time),
            Err(_) => text.parse().ok(),
        },
        _ => None,
    };
    let number = number.filter(|number| number.is_finite() && (0.0..4e12).contains(number))?;
    let milliseconds = if number > 1e11 { number } else { number * 1_000.0 };
    #[expect(clippy::cast_possible_truncation, reason = "the number is in range")]
    DateTime::from_timestamp_millis(milliseconds as i64)
}

/// The turns of subtitles in WebVTT or SubRip, if a text has such. Subtitles that follow each other and are of one speaker make one turn.
fn of_subtitles(text: &str, begun: Option<DateTime<Utc>>) -> Option<Result<Vec<Turn>, Failure>> {
    let read = subtitles(text)?;
    if let Some(clock) = read.bad_time {
        let detail = format!("`{clock}` is no time of a subtitle: minutes and seconds end at 59");
        return Some(Err(Failure::field("content", detail).with("remedy", "mend the time")));
    }
    let turn = |cue: Cue| {
        let metadata = json!({"start": cue.start as f64 / 1_000.0, "end": cue.end as f64 / 1_000.0});
        Turn {
            time: begun.and_then(|begun| begun.checked_add_signed(TimeDelta::milliseconds(cue.start))).and_then(held),
            metadata: metadata.as_object().cloned().unwrap_or_default(),
            ..Turn::new(&name(cue.speaker.as_deref().unwrap_or_default()), &cue.text)
        }
    };
    Some(Ok(read.passages.into_iter().map(turn).collect()))
}

#[cfg(test)]
mod tests;
