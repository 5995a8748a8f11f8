//! Conversations in the forms in which programs export them: messages in JSON or JSON lines, and subtitles.
use crate::admission::amount::Amount;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use svc_client::{
    Failure,
    constraint::Constraint,
    wire::{TURNS, Turn},
};

/// The longest speaker; a longer name is cut.
const SPEAKER: usize = 200;
/// What nobody in particular says.
const NOBODY: &str = "Speaker";
/// Subtitles of one speaker are one turn up to so many characters.
const TURN: usize = 1_500;
/// The JSON of an export holds no more than that of a body of so many bytes.
const EXPORT_BYTES: u64 = 16 << 20;
/// The longest name before a colon that is taken as a speaker.
const NAME: usize = 40;

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
        _ => subtitles(text, begun)?,
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

fn first<'a>(message: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| message.get(*name)).filter(|value| !value.is_null())
}

/// What a message says: a text, or the texts of its parts.
fn said(message: &Map<String, Value>) -> Option<String> {
    let content = ["content", "text", "message", "body"].iter().find_map(|name| message.get(*name))?;
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

/// One subtitle: when it is shown, in milliseconds, and what is said by whom.
struct Cue {
    start: i64,
    end: i64,
    speaker: Option<String>,
    text: String,
}

/// The turns of subtitles in WebVTT or SubRip, if a text has such. Subtitles that follow each other and are of one speaker make one turn.
fn subtitles(text: &str, begun: Option<DateTime<Utc>>) -> Option<Result<Vec<Turn>, Failure>> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let is_web = text.strip_prefix("WEBVTT").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n']));
    let mut lines = text.lines();
    let number = |line: &str| !line.trim().is_empty() && line.trim().bytes().all(|byte| byte.is_ascii_digit());
    let is_subrip = lines.next().is_some_and(number) && lines.next().is_some_and(|line| timing(line).is_some());
    if !is_web && !is_subrip {
        return None;
    }
    let mut cues: Vec<Cue> = Vec::new();
    let mut now: Option<(i64, i64)> = None;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            now = None;
        } else if let Some(shown) = (now.is_none()).then(|| timing(line)).flatten() {
            // Without its time what the subtitle says would be lost.
            let shown = match shown {
                Ok(shown) => shown,
                Err(clock) => {
                    let detail = format!("`{clock}` is no time of a subtitle: minutes and seconds end at 59");
                    return Some(Err(Failure::field("content", detail).with("remedy", "mend the time")));
                }
            };
            now = Some(shown);
            cues.push(Cue { start: shown.0, end: shown.1, speaker: None, text: String::new() });
        } else if now.is_some() && at > 0 {
            say(&mut cues, line);
        }
    }
    name_speakers(&mut cues);
    let mut turns: Vec<(Cue, usize)> = Vec::new();
    for cue in cues.into_iter().filter(|cue| !cue.text.trim().is_empty()) {
        let length = cue.text.chars().count();
        match turns.last_mut() {
            Some((last, long)) if last.speaker == cue.speaker && *long + length < TURN => {
                last.text.push(' ');
                last.text.push_str(cue.text.trim());
                *long += length + 1;
                last.end = last.end.max(cue.end);
            }
            _ => turns.push((Cue { text: cue.text.trim().to_owned(), ..cue }, length)),
        }
    }
    let turn = |(cue, _): (Cue, usize)| {
        let metadata = json!({"start": cue.start as f64 / 1_000.0, "end": cue.end as f64 / 1_000.0});
        Turn {
            time: begun.and_then(|begun| begun.checked_add_signed(TimeDelta::milliseconds(cue.start))).and_then(held),
            metadata: metadata.as_object().cloned().unwrap_or_default(),
            ..Turn::new(cue.speaker.as_deref().unwrap_or(NOBODY), &cue.text)
        }
    };
    Some(Ok(turns.into_iter().map(turn).collect()))
}

/// Adds a line to the last subtitle. A voice tag of WebVTT begins what another speaker says at the same time.
fn say(cues: &mut Vec<Cue>, line: &str) {
    if let Some(cue) = cues.last_mut().filter(|cue| !cue.text.is_empty()) {
        cue.text.push(' ');
    }
    let mut rest = line;
    while let Some(cue) = cues.last_mut() {
        let (before, tag) = rest.split_at(rest.find(['<', '{']).unwrap_or(rest.len()));
        cue.text.push_str(&unescaped(before));
        if tag.starts_with('{') && !tag.starts_with("{\\") {
            // Only `{\an8}` and its like are marks.
            cue.text.push('{');
            rest = &tag[1..];
            continue;
        }
        let Some(end) = tag.find(if tag.starts_with('<') { '>' } else { '}' }) else {
            cue.text.push_str(&unescaped(tag));
            return;
        };
        let inside = &tag[1..end];
        rest = &tag[end + 1..];
        if let Some(voice) = inside.strip_prefix('v').filter(|voice| voice.starts_with([' ', '.', '\t'])) {
            let voice = voice.split_once([' ', '\t']).map_or("", |(_, name)| name);
            let speaker = Some(name(&unescaped(voice)));
            if cue.text.trim().is_empty() {
                cue.speaker = speaker;
            } else if cue.speaker != speaker {
                let (start, end) = (cue.start, cue.end);
                cues.push(Cue { start, end, speaker, text: String::new() });
            }
        }
    }
}

fn unescaped(text: &str) -> String {
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&lrm;", ""), ("&rlm;", ""), ("&amp;", "&")];
    escapes.iter().fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

/// Takes the name before a colon as the speaker, if it is in capitals, or if it comes more than once.
fn name_speakers(cues: &mut [Cue]) {
    let before = |text: &str| -> Option<(String, usize)> {
        let text = text.trim_start_matches(['-', ' ', '>']);
        let (name, said) = text.split_once(": ").or_else(|| text.split_once(":\n"))?;
        let fits = name.starts_with(char::is_uppercase) && name.chars().count() <= NAME && name.split(' ').count() <= 4;
        fits.then(|| (name.to_owned(), said.len()))
    };
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (name, _) in cues.iter().filter(|cue| cue.speaker.is_none()).filter_map(|cue| before(&cue.text)) {
        *counts.entry(name).or_default() += 1;
    }
    for cue in cues.iter_mut().filter(|cue| cue.speaker.is_none()) {
        let Some((named, length)) = before(&cue.text) else { continue };
        let is_loud = named.chars().filter(|c| c.is_alphabetic()).count() > 1 && !named.chars().any(char::is_lowercase);
        if is_loud || counts.get(&named).is_some_and(|count| *count > 1) {
            cue.text = cue.text[cue.text.len() - length..].trim().to_owned();
            cue.speaker = Some(name(&named));
        }
    }
}

/// The milliseconds from and to which a subtitle is shown; an error is the one that is no time.
fn timing(line: &str) -> Option<Result<(i64, i64), &str>> {
    let (start, rest) = line.split_once("-->")?;
    let end = rest.split_whitespace().next()?;
    let (start, end) = (clock(start.trim())?, clock(end)?);
    Some(start.and_then(|start| Ok((start, end?))))
}

/// Milliseconds of `hours:minutes:seconds.fraction`, if a text has this form; WebVTT may leave out the hours. An error is the text, if it is no time.
fn clock(text: &str) -> Option<Result<i64, &str>> {
    let (whole, fraction) = text.split_once(['.', ','])?;
    let is_number = |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = whole.split(':').collect();
    if !(2..=3).contains(&parts.len())
        || !parts.iter().all(|part| is_number(part))
        || fraction.len() != 3
        || !is_number(fraction)
    {
        return None;
    }
    let parts = parts.iter().map(|part| part.parse()).collect::<Result<Vec<i64>, _>>().ok()?;
    if parts.iter().rev().take(2).any(|part| *part > 59) {
        return Some(Err(text));
    }
    let seconds = parts.iter().fold(0_i64, |sum, part| sum * 60 + part);
    Some(Ok(seconds * 1_000 + fraction.parse::<i64>().ok()?))
}

#[cfg(test)]
mod tests;
