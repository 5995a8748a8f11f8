//! How much markup is left in the chunks of a file in markup: tags, control words, encoded bytes, and whatever else only programs read.
//! The file itself and the shape of a text tell what counts as markup; none of the code of the readers does.
use super::with_made;
use crate::figure::{Bound, BoxError, Figure};
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::BufReader,
    ops::Range,
    path::Path,
};
use svc_formats::{ChunkOptions, FormatError, Limits, chunk, detect, extract};

/// The share of markup in the chunks of each kind, in percent, should be under this.
const GOAL: f64 = 2.0;
/// The extensions of the files.
const KINDS: [&str; 7] = ["html", "rtf", "eml", "mbox", "xml", "ipynb", "json"];
/// A text in angle brackets that is longer than this is no tag.
const LONGEST_TAG: usize = 4096;
/// A longer run of letters and digits, large and small, is no word.
const ENCODED: usize = 60;
/// Headers that no mail program shows, in lower case.
const HEADERS: [&str; 7] =
    ["content-", "dkim-signature:", "message-id:", "mime-version:", "received:", "return-path:", "x-"];

/// How many characters there are, and how many of them are markup.
#[derive(Default)]
struct Share {
    characters: usize,
    markup: usize,
}

impl Share {
    fn add(&mut self, marks: &Marks<'_>, text: &str) {
        self.characters += text.chars().count();
        self.markup += marks.count(text);
    }

    fn percent(&self) -> f64 {
        if self.characters == 0 { f64::NAN } else { 100.0 * self.markup as f64 / self.characters as f64 }
    }
}

/// For each kind of file, the share of markup in its chunks beside the share in the raw file. For the files that are made for the run,
/// also the share of their words that are in chunks.
pub fn run(made: &Path, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let mut all = Share::default();
    for kind in KINDS {
        let (mut chunks, mut files_as_text) = (Share::default(), Share::default());
        let (mut found, mut said) = (0, 0);
        for file in with_made(kind, made)? {
            let bytes = std::fs::read(&file)?;
            let source = String::from_utf8_lossy(&bytes);
            let marks = Marks::of(kind, &source);
            let read = match chunks_of(&file) {
                Ok(read) => read,
                Err(error) => {
                    eprintln!("bench: formats/markup: {} counts for nothing: {error}", file.display());
                    continue;
                }
            };
            files_as_text.add(&marks, &source);
            let mut of_file = Share::default();
            read.iter().for_each(|chunk| of_file.add(&marks, chunk));
            eprintln!("bench: formats/markup: {:.2} % of {}", of_file.percent(), file.display());
            for sum in [&mut chunks, &mut all] {
                sum.characters += of_file.characters;
                sum.markup += of_file.markup;
            }
            let mut words = file.into_os_string();
            words.push(".words");
            if let Ok(words) = std::fs::read_to_string(words) {
                let (read, words) = (counts(&read.join("\n")), counts(&words));
                said += words.values().sum::<usize>();
                let common = |(word, count): (&String, &usize)| read.get(word).copied().unwrap_or(0).min(*count);
                found += words.iter().map(common).sum::<usize>();
            }
        }
        let name = format!("formats/markup/{kind}");
        out(Figure::alone(&name, chunks.characters, "% markup", chunks.percent()).meant_to_be(Bound::OursAtMost(GOAL)));
        let as_text = files_as_text.percent();
        out(Figure::alone(&format!("{name}/as_text"), files_as_text.characters, "% markup", as_text));
        out(Figure::alone(&format!("{name}/words"), said, "% found", 100.0 * found as f64 / said as f64));
    }
    out(Figure::alone("formats/markup", all.characters, "% markup", all.percent()).meant_to_be(Bound::OursAtMost(GOAL)));
    Ok(())
}

/// What readers and models get of a file.
fn chunks_of(file: &Path) -> Result<Vec<String>, FormatError> {
    let format = detect(&mut BufReader::new(File::open(file)?))?.format.ok_or(FormatError::UnknownFormat)?;
    let text = extract(format, File::open(file)?, &Limits::default())?.text;
    let words = |unit: &str| unit.split_whitespace().count();
    let chunks = chunk(&text, 0..text.len(), &ChunkOptions::default(), &words);
    Ok(chunks.iter().map(|chunk| chunk.content(&text).into_owned()).collect())
}

/// How often each word comes, without regard to case and punctuation.
pub fn counts(text: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    let text = text.to_lowercase();
    for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    counts
}

/// The markup of a file.
struct Marks<'a> {
    kind: &'a str,
    /// Tags, references, control words and keys, as the file has them.
    tokens: HashSet<&'a str>,
    /// Lines of scripts and styles, headers and borders of messages.
    lines: HashSet<&'a str>,
}

impl<'a> Marks<'a> {
    fn of(kind: &'a str, source: &'a str) -> Self {
        let tokens = tokens(kind, source).into_iter().map(|range| &source[range]).collect();
        let lines = match kind {
            "html" => {
                let of_programs = lines_within(source, "<script").chain(lines_within(source, "<style"));
                of_programs.map(str::trim).filter(|line| line.len() > 8).collect()
            }
            "eml" | "mbox" => source.lines().map(str::trim).filter(|line| is_of_mail(line)).collect(),
            _ => HashSet::new(),
        };
        Self { kind, tokens, lines }
    }

    /// How many characters of a text are markup.
    fn count(&self, text: &str) -> usize {
        let mut is_markup = vec![false; text.len()];
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if self.lines.contains(line.trim()) {
                is_markup[at..at + line.len()].fill(true);
            }
            at += line.len();
        }
        for range in tokens(self.kind, text) {
            let token = &text[range.clone()];
            // The parts of a message may be encoded, and tags in a value have escapes, so these tags do not stand in the file as they are.
            let is_of_part = matches!(self.kind, "eml" | "mbox" | "json") && token.starts_with(['<', '&']);
            if is_of_part || token.len() >= ENCODED || self.tokens.contains(token) {
                is_markup[range].fill(true);
            }
        }
        text.char_indices().filter(|(at, _)| is_markup[*at]).count()
    }
}

/// The lines of an element, without the one on which it begins.
fn lines_within<'a>(page: &'a str, element: &'static str) -> impl Iterator<Item = &'a str> {
    page.split(element).skip(1).flat_map(|rest| rest.split("</").next().unwrap_or_default().lines().skip(1))
}

/// Whether a line is a header that programs read, or a border between parts.
fn is_of_mail(line: &str) -> bool {
    let is_border = line.len() > 10 && line.starts_with("--") && !line.contains(' ');
    let line = line.to_ascii_lowercase();
    is_border || (line.contains(':') && HEADERS.iter().any(|header| line.starts_with(header)))
}

/// What has the shape of markup of a kind, in the order of the text.
fn tokens(kind: &str, text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let length = match (rest[0], kind) {
            (b'<', "html" | "xml" | "eml" | "mbox" | "json") => tag(rest),
            (b'&', "html" | "xml" | "eml" | "mbox" | "json") => reference(rest),
            (b'\\', "rtf") => control_word(rest),
            (b'=', "eml" | "mbox") => quoted(rest),
            (b'"', "json" | "ipynb") => key(rest),
            _ => 0,
        };
        let length = if length > 0 { length } else { encoded(rest) };
        if length > 0 {
            found.push(at..at + length);
        }
        // No other token begins within the characters that are skipped.
        at += length.max(letters_and_digits(rest)).max(1);
        at = text.ceil_char_boundary(at);
    }
    found
}

/// The length of the run of letters and digits at the beginning.
fn letters_and_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')).count()
}

/// The length of bytes in base64, or in hexadecimal digits.
fn encoded(text: &[u8]) -> usize {
    let run = &text[..letters_and_digits(text)];
    let has = |is: fn(&u8) -> bool| run.iter().any(is);
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let is_hexadecimal = run.iter().all(u8::is_ascii_hexdigit);
    if run.len() >= ENCODED && has(u8::is_ascii_digit) && (is_mixed || is_hexadecimal) { run.len() } else { 0 }
}

/// The length of a tag, a comment or a declaration. An address in angle brackets is none.
fn tag(text: &[u8]) -> usize {
    let name = match text.get(1) {
        Some(b'!' | b'?' | b'/') => 2,
        _ => 1,
    };
    let length = text[name..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b":-_.[".contains(byte)).count();
    let is_named = text.get(name).is_some_and(|first| first.is_ascii_alphabetic() || b"-[".contains(first));
    let after = text.get(name + length..).unwrap_or_default();
    let is_tag =
        after.first().is_some_and(|next| next.is_ascii_whitespace() || *next == b'>') || after.starts_with(b"/>");
    let window = &text[1..text.len().min(LONGEST_TAG)];
    match window.iter().position(|byte| matches!(byte, b'<' | b'>')) {
        Some(end) if window[end] == b'>' && is_named && is_tag => end + 2,
        _ => 0,
    }
}

/// The length of a reference to a character, such as `&nbsp;`.
fn reference(text: &[u8]) -> usize {
    let name = 1 + usize::from(text.get(1) == Some(&b'#'));
    let length = text[name.min(text.len())..].iter().take(12).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    if length > 0 && text.get(name + length) == Some(&b';') { name + length + 1 } else { 0 }
}

/// The length of a control word or symbol with its number.
fn control_word(text: &[u8]) -> usize {
    match text.get(1) {
        Some(b'\'') => match text[2..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count() {
            0 => 0,
            digits => 2 + digits,
        },
        Some(b'*') => 2,
        _ => {
            let letters = text[1..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
            let number = &text[1 + letters..];
            let sign = usize::from(number.first() == Some(&b'-'));
            let digits = number[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if letters == 0 { 0 } else { 1 + letters + if digits > 0 { sign + digits } else { 0 } }
        }
    }
}

/// The length of a byte as quoted-printable writes it.
fn quoted(text: &[u8]) -> usize {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'A'..=b'F');
    if text.get(1..3).is_some_and(|digits| digits.iter().all(is_digit)) { 3 } else { 0 }
}

/// The length of the key of a member with its quotes and its colon.
fn key(text: &[u8]) -> usize {
    let length = text[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"_- ./".contains(byte)).count();
    if length > 0 && text.get(1 + length..3 + length) == Some(b"\":".as_slice()) { length + 3 } else { 0 }
}
