//! How many headings of PDFs are found by size and weight of type alone: in files that declare headings, once the declaration is
//! taken away, and in files that declare none, where a reader sees them.
#[path = "../../../formats/tests/corpus/seen.rs"]
mod seen;

use super::files;
use crate::figure::{Bound, BoxError, Figure};
use seen::SEEN;
use std::{collections::HashMap, io::Cursor, path::Path};
use svc_formats::{Extraction, Format, Limits, extract};

/// What both shares should be over.
const GOAL: f64 = 0.7;
/// The names by which a file declares its headings, and names of the same length that mean nothing.
const DECLARATIONS: [(&[u8], &[u8]); 2] = [(b"/Outlines", b"/Outlinez"), (b"/StructTreeRoot", b"/StructTreeRooz")];

/// Headings by their pages, where these are known, and their letters.
type Titles = HashMap<(u32, String), usize>;

pub fn run(out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let (mut common, mut found, mut expected) = (0, 0, 0);
    let mut pdfs = files("pdf")?;
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples/quarterly-review.pdf").canonicalize()?;
    if !pdfs.contains(&sample) {
        pdfs.push(sample);
    }
    for file in pdfs {
        let bytes = std::fs::read(&file)?;
        // Some files of the corpus cannot be read.
        let Ok(declared) = read(&bytes) else { continue };
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let seen = SEEN.iter().find(|(seen, _)| *seen == name).map(|(_, titles)| *titles);
        let (truth, ours) = match seen {
            Some(titles) => (counted(titles.iter().map(|title| (0, key(title)))), titles_of(&declared, false)),
            None if declares(&declared) => {
                let bare = match read(&without_declarations(bytes)) {
                    Ok(bare) if declares(&bare) => {
                        eprintln!("bench: formats/pdf_headings: {name} is left out: what it declares is packed");
                        continue;
                    }
                    Ok(bare) => bare,
                    Err(error) => {
                        eprintln!("bench: formats/pdf_headings: {name} is left out: without what it declares, {error}");
                        continue;
                    }
                };
                (counted(shown(&declared)), titles_of(&bare, true))
            }
            None => continue,
        };
        let both: usize = truth.iter().map(|(title, count)| ours.get(title).copied().unwrap_or(0).min(*count)).sum();
        let (of_ours, of_truth) = (ours.values().sum::<usize>(), truth.values().sum::<usize>());
        eprintln!("bench: formats/pdf_headings: {name}: {both} common of {of_ours} found and {of_truth} expected");
        (common, found, expected) = (common + both, found + of_ours, expected + of_truth);
    }
    let share = |of: usize| if of == 0 { f64::NAN } else { common as f64 / of as f64 };
    out(Figure::alone("formats/pdf_headings_recall", expected, "share", share(expected))
        .meant_to_be(Bound::OursAtLeast(GOAL)));
    out(Figure::alone("formats/pdf_headings_precision", found, "share", share(found))
        .meant_to_be(Bound::OursAtLeast(GOAL)));
    Ok(())
}

fn read(bytes: &[u8]) -> Result<Extraction, BoxError> {
    Ok(extract(Format::Pdf, Cursor::new(bytes), &Limits::default())?)
}

fn declares(read: &Extraction) -> bool {
    matches!(read.headings_from.as_deref(), Some("outline" | "tags"))
}

/// The file with meaningless names in the place of those by which it declares headings. Nothing in it moves.
fn without_declarations(mut bytes: Vec<u8>) -> Vec<u8> {
    for (name, other) in DECLARATIONS {
        let mut at = 0;
        while let Some(next) = bytes[at..].windows(name.len()).position(|window| window == name) {
            at += next;
            bytes[at..at + name.len()].copy_from_slice(other);
        }
    }
    bytes
}

/// The declared headings that stand on their pages. Nobody can find a heading that the outline words differently.
fn shown(read: &Extraction) -> impl Iterator<Item = (u32, String)> {
    let on_page = move |(number, title): &(u32, String)| {
        let page = read.pages.iter().find(|page| page.number == *number);
        page.is_some_and(|page| letters(&read.text[page.start..page.end]).contains(title.as_str()))
    };
    located(read).filter(on_page)
}

fn located(read: &Extraction) -> impl Iterator<Item = (u32, String)> {
    read.headings.iter().map(move |heading| (read.page_at(heading.start).unwrap_or(0), key(&heading.title)))
}

fn titles_of(read: &Extraction, has_pages: bool) -> Titles {
    counted(located(read).map(move |(page, title)| (if has_pages { page } else { 0 }, title)))
}

fn counted(titles: impl Iterator<Item = (u32, String)>) -> Titles {
    let mut counts = Titles::new();
    titles.for_each(|title| *counts.entry(title).or_insert(0) += 1);
    counts
}

/// A title without its number, which an outline may add or leave out.
fn key(title: &str) -> String {
    let bare =
        letters(title.trim_start_matches(|character: char| character.is_ascii_digit() || ". ".contains(character)));
    if bare.is_empty() { letters(title) } else { bare }
}

fn letters(text: &str) -> String {
    text.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
