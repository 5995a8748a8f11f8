//! Real and hostile files against what agreeing reference readers say of them. The corpus lies beside the repository and may
//! be absent; the samples the project ships are always read.

#![expect(clippy::unwrap_used, reason = "a test may end where it stands")]

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use serde_json::Value;
use svc_formats::{
    DetectedBy, Detection, Extraction, Format, FormatError, Limits, Pattern, Patterns, detect, extract, probe, sections,
};
use unicode_normalization::UnicodeNormalization;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sample(name: &str) -> File {
    File::open(repository().join("tests/samples").join(name)).unwrap()
}

struct Entry {
    name: String,
    detector: String,
    expect: Value,
    path: PathBuf,
}

impl Entry {
    fn open(&self) -> File {
        File::open(&self.path).unwrap()
    }

    fn detection(&self) -> Detection {
        detect(&mut self.open()).unwrap()
    }

    fn probe(&self) -> Result<Patterns, FormatError> {
        probe(self.detection().format.unwrap(), self.open(), &Limits::default())
    }

    fn extract(&self) -> Result<Extraction, FormatError> {
        extract(self.detection().format.unwrap(), self.open(), &Limits::default())
    }
}

/// The corpus' entries under a folder; none where the corpus is absent.
fn corpus(folder: &str) -> Vec<Entry> {
    let root = repository().join("../shared/corpus");
    let Ok(manifest) = std::fs::read(root.join("manifest.json")) else {
        println!("left out: the corpus is not here, so no file of {folder:?} was read");
        return Vec::new();
    };
    let manifest: Vec<Value> = serde_json::from_slice(&manifest).unwrap();
    manifest
        .into_iter()
        .filter(|entry| entry["file"].as_str().unwrap().starts_with(folder))
        .map(|entry| Entry {
            name: entry["file"].as_str().unwrap().to_owned(),
            detector: entry["detector"].as_str().unwrap().to_owned(),
            path: root.join(entry["file"].as_str().unwrap()),
            expect: entry["expect"].clone(),
        })
        .collect()
}

/// Texts compare after NFKC, without white space and soft hyphens.
fn bare(text: &str) -> String {
    text.nfkc().filter(|character| !character.is_whitespace() && *character != '\u{AD}').collect()
}

#[test]
fn every_file_is_detected() {
    for entry in corpus("") {
        let detection = entry.detection();
        let found = detection.format.map_or("unknown", Format::as_str);
        // Some of the damaged ones allow more than one answer.
        assert!(
            entry.detector.split_whitespace().any(|word| word == found),
            "{}: {found}, not {}",
            entry.name,
            entry.detector
        );
        let by = match detection.format {
            Some(Format::Docx | Format::Pptx | Format::Xlsx) => DetectedBy::ZipManifest,
            Some(Format::Text) => DetectedBy::ContentSniff,
            _ => DetectedBy::MagicBytes,
        };
        assert_eq!(detection.by, Some(by), "{}", entry.name);
    }
}

#[test]
fn probes_measure_what_the_references_measure() {
    // Measured for other formats too one day; today these.
    let measured = [
        Pattern::HasTextLayer,
        Pattern::HasHeadings,
        Pattern::HasOutline,
        Pattern::IsScanned,
        Pattern::HasImages,
        Pattern::HasHeadingStyles,
        Pattern::HasSlides,
        Pattern::HasSheets,
        Pattern::SheetCount,
        Pattern::HasComments,
        Pattern::IsLegacyBinary,
        Pattern::IsEncrypted,
    ];
    for entry in corpus("") {
        let Ok(patterns) = entry.probe() else { continue };
        for pattern in measured {
            let (Some(found), expected) = (patterns.get(pattern), &entry.expect[pattern.as_str()]) else { continue };
            if !expected.is_null() {
                assert_eq!(found, expected, "{}: {pattern}", entry.name);
            }
        }
        if entry.expect["is_encrypted_openable_with_empty_password"] == true {
            assert!(patterns.holds(Pattern::IsEncrypted), "{}", entry.name);
        }
    }
}

#[test]
fn pdf_pages_and_outlines_are_those_of_the_references() {
    for entry in corpus("pdf/") {
        if entry.expect["opens"] == false {
            assert!(entry.extract().unwrap_err().is_permanent(), "{}", entry.name);
            continue;
        }
        let read = entry.extract().unwrap();
        assert_eq!(read.pages.len() as u64, entry.expect["page_count"], "{}", entry.name);
        for (page, snippets) in read.pages.iter().zip(entry.expect["snippets_per_page"].as_array().unwrap()) {
            let text = bare(&read.text[page.start..page.end]);
            for snippet in snippets.as_array().unwrap() {
                let snippet = snippet.as_str().unwrap();
                assert!(text.contains(&bare(snippet)), "{} page {}: {snippet:?} in {text}", entry.name, page.number);
            }
        }
        let outline: Vec<_> = read
            .headings
            .iter()
            .map(|heading| {
                (u64::from(heading.level), heading.title.clone(), u64::from(read.page_at(heading.start).unwrap()))
            })
            .collect();
        let expected = entry.expect["outline"].as_array().unwrap().iter().map(|entry| {
            (
                entry["level"].as_u64().unwrap(),
                entry["title"].as_str().unwrap().to_owned(),
                entry["page"].as_u64().unwrap(),
            )
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(outline, expected, "{}", entry.name);
    }
}

#[test]
fn pdf_words_are_those_of_the_reference() {
    for entry in corpus("pdf/") {
        let Some(reference) = entry.expect["reference_text"].as_str() else { continue };
        let reference =
            std::fs::read_to_string(entry.path.parent().unwrap().parent().unwrap().join(reference)).unwrap();
        let score = word_f1(&entry.extract().unwrap().text, &reference);
        println!("{}: word F1 {score:.3}", entry.name);
        // The lowest of the corpus today is far above; this catches a layout gone wrong.
        assert!(score > 0.9, "{}: word F1 {score}", entry.name);
    }
}

fn word_f1(found: &str, expected: &str) -> f64 {
    let count = |text: &str| {
        let mut counts = std::collections::HashMap::new();
        for word in text.nfkc().collect::<String>().replace('\u{AD}', "").split_whitespace() {
            *counts.entry(word.to_owned()).or_insert(0usize) += 1;
        }
        counts
    };
    let (found, expected) = (count(found), count(expected));
    let common: usize = found.iter().map(|(word, &count)| count.min(expected.get(word).copied().unwrap_or(0))).sum();
    let total: usize = found.values().chain(expected.values()).sum();
    if total == 0 { 1.0 } else { 2.0 * common as f64 / total as f64 }
}

#[test]
fn docx_structure_is_that_of_the_references() {
    for entry in corpus("").into_iter().filter(|entry| entry.detector == "docx" && entry.expect["headings"].is_array())
    {
        let read = entry.extract().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let expect = &entry.expect;
        let headings: Vec<_> =
            read.headings.iter().map(|heading| (u64::from(heading.level), heading.title.clone())).collect();
        let expected: Vec<_> = expect["headings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|heading| (heading["level"].as_u64().unwrap(), heading["text"].as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(headings, expected, "{}", entry.name);
        for (heading, expected) in read.headings.iter().zip(expect["headings"].as_array().unwrap()) {
            let marks = "#".repeat(expected["atx"].as_u64().unwrap() as usize);
            assert!(read.text[heading.start..].starts_with(&format!("{marks} {}", heading.title)), "{}", entry.name);
        }
        let lines =
            |starts: &str| read.text.lines().filter(|line| line.trim_start().starts_with(starts)).count() as u64;
        if let Some(list_paragraphs) = expect["list_paragraphs"].as_u64() {
            println!("{}: {} list items, reference {list_paragraphs}", entry.name, lines("- "));
        }
        if let Some(tables) = expect["top_level_tables"].as_array() {
            let delimiters: Vec<_> = read
                .text
                .lines()
                .filter(|line| line.starts_with("| ---"))
                .map(|line| line.matches("---").count() as u64)
                .collect();
            let columns: Vec<_> = tables.iter().map(|table| table["grid_cols"].as_u64().unwrap()).collect();
            assert_eq!(delimiters, columns, "{}", entry.name);
            let rows: u64 = tables.iter().map(|table| table["rows"].as_u64().unwrap()).sum();
            assert_eq!(lines("|"), rows + tables.len() as u64, "{}", entry.name);
        }
        let text = bare(&read.text);
        let contains = |wanted: &Value| text.contains(&bare(wanted.as_str().unwrap()));
        for key in ["tracked_insertions_must_appear", "must_contain"] {
            assert!(expect[key].as_array().into_iter().flatten().all(contains), "{}: {key}", entry.name);
        }
        assert!(
            !expect["tracked_deletions_must_not_appear"].as_array().into_iter().flatten().any(contains),
            "{}",
            entry.name
        );
    }
}

#[test]
fn texts_decode_and_declare_their_headings() {
    for entry in corpus("made/").into_iter().filter(|entry| entry.detector == "text") {
        let (read, expect) = (entry.extract().unwrap(), &entry.expect);
        if let Some(text) = expect["text"].as_str() {
            assert_eq!(read.text.trim(), text, "{}", entry.name);
        }
        if let Some(part) = expect["text_contains"].as_str() {
            assert!(read.text.contains(part), "{}: {}", entry.name, read.text);
        }
        if let Some(charset) = expect["charset"].as_str() {
            assert_eq!(read.charset.as_deref(), Some(charset), "{}", entry.name);
        }
        if expect["headings"].is_array() {
            let headings: Vec<_> =
                read.headings.iter().map(|heading| serde_json::json!([heading.level, heading.title])).collect();
            assert_eq!(Value::Array(headings), expect["headings"], "{}", entry.name);
        }
    }
}

#[test]
fn samples_read_whole() {
    let read = |name: &str| {
        let format = detect(&mut sample(name)).unwrap().format.unwrap();
        extract(format, sample(name), &Limits::default())
    };
    let handbook = read("handbook.md").unwrap();
    assert!(handbook.headings.len() > 5 && sections(&handbook).iter().any(|section| section.parent.is_some()));
    let pdf = read("quarterly-review.pdf").unwrap();
    assert_eq!(pdf.pages.len(), 3);
    let outline: Vec<_> = sections(&pdf).into_iter().map(|section| (section.title, section.level)).collect();
    assert_eq!(outline.iter().map(|(_, level)| *level).collect::<Vec<_>>(), [1, 1, 2, 1], "{outline:?}");
    let docx = read("onboarding-checklist.docx").unwrap();
    assert!(docx.text.contains("\n| ---") && docx.text.contains("\n- "), "{}", docx.text);
    assert_eq!(docx.headings_from.as_deref(), Some("styles"));
    assert_eq!(read("empty.txt").unwrap().text, "");
    for broken in ["corrupt.pdf", "corrupt.docx"] {
        let error = read(broken).unwrap_err();
        assert!(error.code() == "corrupt" && error.is_permanent(), "{broken}: {error}");
    }
}
