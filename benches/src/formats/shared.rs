//! How many of the words that other readers find in a file ours finds, and how many of ours they find.
use super::{markup::counts, peers::Peers, said::said, with_made};
use crate::figure::{BoxError, Figure, Peer};
use serde::Deserialize;
use std::{collections::HashMap, ffi::OsStr, fs::File, io::BufReader, path::Path};
use svc_formats::{
    FormatError, ImagePart, Limits, detect_named, extract, images,
    xlsx::{RecordsPart, SheetKind, Source, records, workbook},
};

/// What is left out, because what the other makes of it is no measure: the other, the kind of file, and why.
const LEFT_OUT: [(&str, &str, &str); 3] = [
    ("markitdown", "eml", "it gives the source of messages as it is, with base64 and headers of transport"),
    ("markitdown", "rtf", "it gives the source as it is, with control words and pictures in hexadecimal digits"),
    ("docling.rs", "ppt", "it gives what the file still holds of earlier saves, beside what the last one shows"),
];
/// Of a file of which we miss a larger share of the other's words, some of the missing ones are named.
const NAMED_BELOW: f64 = 0.9;
const NAMED: usize = 12;

/// What another reader makes of files, in their order.
#[derive(Deserialize)]
struct Texts {
    version: String,
    texts: Vec<Option<String>>,
}

/// How many words both sides have, and how many each has. Of what the other adds to the words of a file, theirs are only those that
/// we have too.
#[derive(Default)]
struct Words {
    both: usize,
    ours: usize,
    theirs: usize,
}

impl Words {
    fn add(&mut self, other: &Self) {
        self.both += other.both;
        self.ours += other.ours;
        self.theirs += other.theirs;
    }

    /// The share of their words that are among ours, and of ours that are among theirs.
    fn shares(&self) -> (f64, f64) {
        let share = |of: usize| if of == 0 { f64::NAN } else { self.both as f64 / of as f64 };
        (share(self.theirs), share(self.ours))
    }
}

/// For each of the kinds of file and for all of them, beside another reader: what the script calls it, and what it is called.
pub fn run(
    (work, peer): (&str, &'static str),
    kinds: impl IntoIterator<Item = &'static str>,
    made: &Path,
    peers: &Peers,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let mut all = Words::default();
    let mut version = String::new();
    for kind in kinds {
        if let Some((_, _, why)) = LEFT_OUT.iter().find(|(of, left_out, _)| *of == peer && *left_out == kind) {
            eprintln!("bench: formats/words/{peer}/{kind} is left out: {why}");
            continue;
        }
        let files = with_made(kind, made)?;
        if files.is_empty() {
            continue;
        }
        let read: Texts = serde_json::from_slice(&peers.found(&["texts", work], &files)?)?;
        version = read.version;
        let mut of_kind = Words::default();
        for (file, theirs) in files.iter().zip(read.texts) {
            // A file that one side does not read counts for neither.
            if let (Ok(ours), Some(theirs)) = (text_of(file), theirs) {
                of_kind.add(&compared(file, peer, &ours, &theirs));
            }
        }
        if of_kind.theirs > 0 {
            out(figure(&format!("formats/words/{peer}/{kind}"), peer, &version, &of_kind));
        }
        all.add(&of_kind);
    }
    out(figure(&format!("formats/words/{peer}"), peer, &version, &all));
    Ok(())
}

fn figure(name: &str, peer: &'static str, version: &str, words: &Words) -> Figure {
    let (ours, value) = words.shares();
    let peer = Peer { name: peer, version: version.to_owned().into(), value };
    let figure = Figure::beside(name, words.theirs, "share of the other's words", ours, peer);
    // Of shares, more is better.
    Figure { ratio: Some(ours / value), ..figure }
}

/// Counts the words of a file by both sides.
fn compared(file: &Path, peer: &str, ours: &str, theirs: &str) -> Words {
    let (ours, required, theirs) = (counts(ours), counts(&said(theirs)), counts(theirs));
    let among = |words: &HashMap<String, usize>, word: &str| words.get(word).copied().unwrap_or(0);
    let mut words = Words { ours: ours.values().sum(), ..Words::default() };
    let mut missing = Vec::new();
    for (word, count) in &theirs {
        let both = among(&ours, word).min(*count);
        let needed = among(&required, word).min(*count);
        words.both += both;
        words.theirs += both.max(needed);
        if both < needed {
            missing.push(word.as_str());
        }
    }
    let (share, _) = words.shares();
    if share < NAMED_BELOW {
        missing.sort_unstable();
        missing.truncate(NAMED);
        eprintln!("bench: {share:.3} of the words of {peer} in {}; not, for example, {missing:?}", file.display());
    }
    words
}

/// All that we find in a file: its text, what its pictures show, and the tables of its charts.
fn text_of(file: &Path) -> Result<String, FormatError> {
    let name = file.file_name().and_then(OsStr::to_str);
    let format = detect_named(&mut BufReader::new(File::open(file)?), name)?.format;
    let format = format.ok_or(FormatError::UnknownFormat)?;
    let limits = Limits::default();
    let mut text = match format.has_sheets() {
        true => text_of_sheets(file, &limits)?,
        false => extract(format, File::open(file)?, &limits)?.text,
    };
    if format.has_images() {
        images(format, File::open(file)?, &limits, &mut |part| {
            match part {
                // Some formats have it in their text, too.
                ImagePart::Begin(head) if !text.contains(&head.alt) => add(&mut text, &head.alt),
                ImagePart::Chart(chart) => chart.table.rows.iter().flatten().for_each(|cell| add(&mut text, cell)),
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(text)
}

fn text_of_sheets(file: &Path, limits: &Limits) -> Result<String, FormatError> {
    let mut text = String::new();
    for sheet in workbook(BufReader::new(File::open(file)?), limits)?.sheets {
        if sheet.kind != SheetKind::Worksheet {
            continue;
        }
        add(&mut text, &sheet.name);
        let source = Source::from(BufReader::new(File::open(file)?));
        records(source, sheet.index, true, limits, &mut |part| {
            match part {
                RecordsPart::Head(head) => {
                    head.tables
                        .iter()
                        .flat_map(|table| &table.columns)
                        .for_each(|column| add(&mut text, &column.header));
                }
                RecordsPart::Batch(batch) => {
                    batch.iter().flat_map(|record| &record.cells).for_each(|cell| add(&mut text, cell.shown()));
                }
                RecordsPart::Loose(rows) => {
                    rows.iter().flat_map(|row| &row.cells).for_each(|cell| add(&mut text, &cell.text));
                }
                RecordsPart::End { .. } => {}
            }
            Ok(())
        })?;
    }
    Ok(text)
}

fn add(text: &mut String, words: &str) {
    text.push_str(words);
    text.push('\n');
}
