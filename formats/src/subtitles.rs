//! Reads subtitles (WebVTT, SubRip) as what is said: a passage for each speaker, with the time at which it begins.

use crate::{
    Extraction, Format, FormatError, Limits, Patterns, charset,
    markdown::{Block, Writer, one_line},
    text,
};
use std::{
    borrow::Cow,
    collections::HashMap,
    io::{Read, Seek},
};

/// Subtitles of one speaker are one passage up to so many characters.
const PASSAGE: usize = 1_500;
/// A longer name of a speaker is cut.
const SPEAKER: usize = 200;
/// The longest name before a colon that is taken as a speaker.
const NAME: usize = 40;
/// What is shown for no longer than so many milliseconds is not for reading.
const BLINK: i64 = 50;
/// Automatic captions have no line of more bytes.
const LINE: usize = 1_000;
/// So many speakers are counted at most.
const SPEAKERS: usize = 100;
/// The longest time has so many bytes.
const TIME: usize = 24;
/// The longest reference to a character has so many bytes between `&` and `;`.
const REFERENCE: usize = 10;
/// What the blocks of WebVTT begin with that are no subtitles.
const NOTES: [&str; 3] = ["NOTE", "STYLE", "REGION"];

/// What somebody says, and the milliseconds of the recording from and to which it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    pub start: i64,
    pub end: i64,
    /// `None` if the file does not say who speaks.
    pub speaker: Option<String>,
    /// On one line, without marks.
    pub text: String,
}

/// The subtitles of a text. Those that follow each other and are of one speaker are one passage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subtitles {
    pub passages: Vec<Cue>,
    /// How many subtitles say something.
    pub count: usize,
    /// The first time that is none, because its minutes or seconds are over 59. It is read as if it were one.
    pub bad_time: Option<String>,
}

/// The format of a text that begins as subtitles do, and whose first block behind the header and the notes is one. Markdown may begin
/// with the same word and quote subtitles.
pub(crate) fn format(text: &str) -> Option<Format> {
    kind(text).filter(|format| *format == Format::Srt || begins_with_one(text.trim_start_matches(is_before)))
}

/// Whether the first block of WebVTT that is no header and no note is a subtitle: its time, or its name above its time.
fn begins_with_one(text: &str) -> bool {
    let (mut is_note, mut above) = (true, 0);
    for line in text.lines().skip(1) {
        if timing(line).is_some() {
            return is_note || above < 2;
        }
        if !line.trim().is_empty() {
            is_note |= above == 0 && NOTES.iter().any(|mark| line.starts_with(mark));
            above += 1;
        } else if is_note || above == 0 {
            (is_note, above) = (false, 0);
        } else {
            return false;
        }
    }
    false
}

pub(crate) fn probe<R: Read + Seek>(format: Format, source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    extract(format, source, limits).map(|read| read.patterns())
}

pub(crate) fn extract<R: Read + Seek>(format: Format, source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let decoded = charset::decode(&text::read_all(source, limits)?);
    let subtitles = read(&decoded.text)
        .ok_or_else(|| FormatError::corrupt(format, "it does not begin as subtitles of WebVTT or SubRip do"))?;
    let mut writer = Writer::default();
    let mut speakers: Vec<&str> = Vec::new();
    for passage in &subtitles.passages {
        let speaker = passage.speaker.as_deref();
        let said = speaker.map_or_else(|| passage.text.clone(), |name| format!("{name}: {}", passage.text));
        writer.write(Block::Paragraph(format!("{} {said}", time(passage.start))), limits)?;
        if let Some(name) = speaker.filter(|name| speakers.len() < SPEAKERS && !speakers.contains(name)) {
            speakers.push(name);
        }
    }
    let mut read = writer.finish("subtitles");
    read.facts.insert("subtitles".to_owned(), subtitles.count.into());
    read.facts.insert("speakers".to_owned(), speakers.len().into());
    if let Some(end) = subtitles.passages.iter().map(|passage| passage.end).max() {
        read.facts.insert("seconds".to_owned(), (end / 1_000).into());
    }
    if let Some(clock) = subtitles.bad_time {
        read.facts.insert("bad_time".to_owned(), clock.into());
    }
    read.charset = Some(decoded.charset.to_owned());
    read.within(limits)
}

/// Hours, minutes and seconds of a recording.
fn time(milliseconds: i64) -> String {
    let seconds = milliseconds / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The subtitles of a text in WebVTT or SubRip; `None` if its first lines are of neither.
pub fn subtitles(text: &str) -> Option<Subtitles> {
    read(&charset::clean(text))
}

/// The same of a text whose lines end in `\n`.
fn read(text: &str) -> Option<Subtitles> {
    let text = text.trim_start_matches(is_before);
    let is_web = kind(text)? == Format::Vtt;
    let mut cues: Vec<Cue> = Vec::new();
    let (mut shown, mut lines, mut last, mut bad_time) = (None, Vec::new(), String::new(), None);
    // The first line is a mark or a number, and the empty one ends what is open.
    for line in text.lines().skip(1).chain([""]) {
        // WebVTT has lines of blanks within a subtitle.
        let is_end = if is_web { line.is_empty() } else { line.trim().is_empty() };
        let begun = timing(line);
        if begun.is_none() && !is_end {
            lines.push(line);
            continue;
        }
        // Right above a time stands the number of its subtitle in SubRip, also if no empty line parts it from what is said before, and its name in WebVTT.
        if begun.is_some() && lines.last().is_some_and(|line| if is_web { shown.is_none() } else { is_number(line) }) {
            lines.pop();
        }
        let is_note = |first: &&str| is_web && NOTES.iter().any(|mark| first.starts_with(mark));
        match shown.take() {
            Some(times) => add(&mut cues, times, &lines, &mut last),
            None if lines.first().is_some_and(is_note) => {}
            None => go_on(&mut cues, &lines),
        }
        lines.clear();
        if let Some(begun) = begun {
            shown = Some((begun.start, begun.end));
            bad_time = bad_time.or_else(|| begun.bad.map(str::to_owned));
        }
    }
    name_speakers(&mut cues);
    cues.retain(|cue| !cue.text.trim().is_empty());
    let count = cues.len();
    Some(Subtitles { passages: passages(cues), count, bad_time })
}

/// The format whose first lines a text has.
fn kind(text: &str) -> Option<Format> {
    let text = text.trim_start_matches(is_before);
    if let Some(rest) = text.strip_prefix("WEBVTT") {
        return (rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r'])).then_some(Format::Vtt);
    }
    let mut lines = text.lines();
    let is_subrip = lines.next().is_some_and(is_number) && lines.next().is_some_and(|line| timing(line).is_some());
    is_subrip.then_some(Format::Srt)
}

/// Whether a line is the number of a subtitle.
fn is_number(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a character may stand before the first line.
fn is_before(character: char) -> bool {
    character.is_whitespace() || character == '\u{FEFF}'
}

/// Adds a subtitle. Automatic captions show the last line of the subtitle before once more, above a new one or for a blink; it is said once.
fn add(cues: &mut Vec<Cue>, (start, end): (i64, i64), lines: &[&str], last: &mut String) {
    let mut lines = lines.iter().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else { return };
    let (above, rest): (_, Vec<_>) = (words(first), lines.collect());
    let follows = cues.last().is_some_and(|before| (0..=BLINK).contains(&(start - before.end)));
    let is_again = follows && !above.is_empty() && above == *last && (!rest.is_empty() || end - start <= BLINK);
    cues.push(Cue { start, end, speaker: None, text: String::new() });
    if !is_again {
        say(cues, first);
    }
    for line in &rest {
        say(cues, line);
    }
    *last = rest.last().map_or(above, |line| words(line));
}

/// Adds to the last subtitle what stands behind an empty line in it, or below a time that cannot be read, so that no words are lost.
fn go_on(cues: &mut Vec<Cue>, lines: &[&str]) {
    for line in lines {
        if !line.trim().is_empty() && !is_number(line) && !line.contains("-->") {
            say(cues, line);
        }
    }
}

/// What a line of a caption says; nothing if it is too long for one, so that it is not held twice.
fn words(line: &str) -> String {
    if line.len() > LINE {
        return String::new();
    }
    let mut cues = vec![Cue { start: 0, end: 0, speaker: None, text: String::new() }];
    say(&mut cues, line);
    one_line(&cues.iter().map(|cue| cue.text.as_str()).collect::<String>())
}

/// Adds a line to the last subtitle. A voice tag of WebVTT begins what another speaker says at the same time.
fn say(cues: &mut Vec<Cue>, line: &str) {
    if let Some(cue) = cues.last_mut().filter(|cue| !cue.text.is_empty()) {
        cue.text.push(' ');
    }
    let mut rest = line;
    while let Some(cue) = cues.last_mut() {
        let (before, tag) = rest.split_at(rest.find(['<', '{']).unwrap_or(rest.len()));
        let piece = unescaped(before);
        // A subtitle does not begin with blanks, so that whether it says something is known at once.
        let is_begun = !cue.text.is_empty();
        cue.text.push_str(if is_begun { &piece } else { piece.trim_start() });
        if let Some(behind) = tag.strip_prefix(['<', '{'])
            && !begins_with_mark(tag)
        {
            cue.text.push_str(&tag[..1]);
            rest = behind;
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
            let speaker = named(&unescaped(voice));
            if cue.text.is_empty() {
                cue.speaker = speaker;
            } else if cue.speaker != speaker {
                let (start, end) = (cue.start, cue.end);
                cues.push(Cue { start, end, speaker, text: String::new() });
            }
        }
    }
}

/// Whether a text that begins with a bracket begins with a mark: one such as `{\an8}`, a tag with a name, the end of one, or a time.
/// `5 < 6 and 7 > 3` has none, and what is in between is said.
fn begins_with_mark(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('<') else { return text.starts_with("{\\") };
    // No time is longer, and looking for the end of each bracket would take the square of the line.
    let end = || inside.bytes().take(TIME + 1).position(|byte| byte == b'>');
    inside.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        || end().is_some_and(|end| clock(&inside[..end]).is_some())
}

/// A text with the characters that its references stand for.
fn unescaped(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.split_once('&') else { return text.into() };
    let mut read = before.to_owned();
    for piece in rest.split('&') {
        let end = piece.bytes().take(REFERENCE + 1).position(|byte| byte == b';');
        if let Some((character, behind)) = end.and_then(|end| Some((referred(&piece[..end])?, &piece[end + 1..]))) {
            read.push_str(&character);
            read.push_str(behind);
        } else {
            read.push('&');
            read.push_str(piece);
        }
    }
    read.into()
}

/// What a reference stands for: a character by its number, or one of those that captions name. Marks of direction are left out.
fn referred(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(number) => u32::from_str_radix(number, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?).filter(|character| !character.is_control()).map(String::from);
    }
    let character = match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        "nbsp" => " ",
        "lrm" | "rlm" => "",
        _ => return None,
    };
    Some(character.to_owned())
}

/// A name on one line; `None` if it is empty.
fn named(text: &str) -> Option<String> {
    let name: String = one_line(text).chars().take(SPEAKER).collect();
    (!name.is_empty()).then_some(name)
}

/// Takes the name before a colon as the speaker, if it is in capitals, or if it comes more than once.
fn name_speakers(cues: &mut [Cue]) {
    let before = |text: &str| -> Option<(String, usize)> {
        let text = text.trim_start_matches(['-', ' ', '>']);
        let (name, said) = text.split_once(": ")?;
        let fits = name.starts_with(char::is_uppercase) && name.chars().count() <= NAME && name.split(' ').count() <= 4;
        fits.then(|| (name.to_owned(), said.len()))
    };
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (name, _) in cues.iter().filter(|cue| cue.speaker.is_none()).filter_map(|cue| before(&cue.text)) {
        *counts.entry(name).or_default() += 1;
    }
    for cue in cues.iter_mut().filter(|cue| cue.speaker.is_none()) {
        let Some((name, length)) = before(&cue.text) else { continue };
        let is_loud = name.chars().filter(|c| c.is_alphabetic()).count() > 1 && !name.chars().any(char::is_lowercase);
        if is_loud || counts.get(&name).is_some_and(|count| *count > 1) {
            cue.text = cue.text[cue.text.len() - length..].trim().to_owned();
            cue.speaker = named(&name);
        }
    }
}

/// Joins subtitles that follow each other and are of one speaker.
fn passages(cues: Vec<Cue>) -> Vec<Cue> {
    let mut passages: Vec<(Cue, usize)> = Vec::new();
    for cue in cues {
        let length = cue.text.chars().count();
        match passages.last_mut() {
            Some((last, long)) if last.speaker == cue.speaker && *long + length < PASSAGE => {
                last.text.push(' ');
                last.text.push_str(cue.text.trim());
                *long += length + 1;
                last.end = last.end.max(cue.end);
            }
            _ => passages.push((Cue { text: cue.text.trim().to_owned(), ..cue }, length)),
        }
    }
    passages.into_iter().map(|(cue, _)| cue).collect()
}

/// The milliseconds from and to which a subtitle is shown.
struct Timing<'a> {
    start: i64,
    end: i64,
    /// The one that is no time.
    bad: Option<&'a str>,
}

/// The times of a line that begins a subtitle.
fn timing(line: &str) -> Option<Timing<'_>> {
    let (start, rest) = line.split_once("-->")?;
    let (start, end) = (start.trim(), rest.split_whitespace().next()?);
    let ((from, is_good), (to, is_good_too)) = (clock(start)?, clock(end)?);
    let bad = if !is_good { Some(start) } else { (!is_good_too).then_some(end) };
    Some(Timing { start: from, end: to, bad })
}

/// Milliseconds of `hours:minutes:seconds.fraction`, if a text has this form, and whether it is a time. WebVTT may leave out the hours.
fn clock(text: &str) -> Option<(i64, bool)> {
    let (whole, fraction) = text.split_once(['.', ','])?;
    let is_number = |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = whole.split(':').take(4).collect();
    if !(2..=3).contains(&parts.len())
        || !parts.iter().all(|part| is_number(part))
        || fraction.len() != 3
        || !is_number(fraction)
    {
        return None;
    }
    let parts = parts.iter().map(|part| part.parse()).collect::<Result<Vec<i64>, _>>().ok()?;
    let is_time = parts.iter().rev().take(2).all(|part| *part <= 59);
    let seconds = parts.iter().fold(0_i64, |sum, part| sum * 60 + part);
    Some((seconds * 1_000 + fraction.parse::<i64>().ok()?, is_time))
}

#[cfg(test)]
mod tests;
