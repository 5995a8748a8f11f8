//! How closely the words of a PDF match those of its reference text.
use crate::figure::{BoxError, Figure};
use std::{collections::HashMap, fs::File, path::Path};
use svc_formats::{Format, Limits, extract};
use unicode_normalization::UnicodeNormalization;

/// The mean over the files that have a reference; the lowest goes to standard error.
pub fn run(out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    if !corpus.join("ref").is_dir() {
        eprintln!("bench: formats/pdf_words is left out: no reference texts lie beside the repository");
        return Ok(());
    }
    let mut scores = Vec::new();
    for entry in corpus.join("ref").read_dir()? {
        let reference = entry?.path();
        let Some(name) = reference.file_name().and_then(|name| name.to_str()?.strip_suffix(".pdfium.txt")) else {
            continue;
        };
        let found = extract(Format::Pdf, File::open(corpus.join("pdf").join(name))?, &Limits::default())?.text;
        scores.push((f1(&found, &std::fs::read_to_string(&reference)?), name.to_owned()));
    }
    let (lowest, name) = scores.iter().min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no reference text")?;
    eprintln!("bench: the lowest word F1 is {lowest:.3}, of {name}");
    let mean = scores.iter().map(|(score, _)| score).sum::<f64>() / scores.len() as f64;
    out(Figure::alone("formats/pdf_words", scores.len(), "word F1", mean));
    Ok(())
}

/// F1 of the words as a multiset, after NFKC and without soft hyphens.
pub fn f1(found: &str, expected: &str) -> f64 {
    let (found, expected) = (counts(found), counts(expected));
    let common: usize = found.iter().map(|(word, &count)| count.min(expected.get(word).copied().unwrap_or(0))).sum();
    let total: usize = found.values().chain(expected.values()).sum();
    if total == 0 { 1.0 } else { 2.0 * common as f64 / total as f64 }
}

fn counts(text: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in text.nfkc().filter(|&character| character != '\u{AD}').collect::<String>().split_whitespace() {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    counts
}
