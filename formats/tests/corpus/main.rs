//! Compares real and hostile files with what agreeing reference readers say of them. The corpus is beside the
//! repository and may be absent; the samples that the project ships are always read.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod docx;
mod images;
mod pdf;
mod pptx;
mod seen;
mod text;
mod xlsx;

use serde_json::Value;
use std::{
    fs::File,
    path::{Path, PathBuf},
};
use svc_formats::{
    Access, DetectedBy, Detection, Extraction, Format, FormatError, Limit, Limits, PageKind, Pattern, Patterns, Secret,
    detect, extract, probe, sections,
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

/// The corpus' entries under a folder; none if the corpus is absent.
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

/// Texts are compared after NFKC, without white space and soft hyphens. References keep the bullet that fonts of symbols have in a
/// private area.
fn bare(text: &str) -> String {
    let text = text.replace('\u{F0B7}', "•");
    text.nfkc().filter(|character| !character.is_whitespace() && *character != '\u{AD}').collect()
}

#[test]
fn every_file_is_detected() {
    for entry in corpus("") {
        let detection = entry.detection();
        let found = detection.format.map_or("unknown", Format::as_str);
        // Legacy files are told from other compound files. Some of the damaged files allow more than one answer.
        let detector = match entry.expect["kind"].as_str() {
            Some(kind @ ("xls" | "doc" | "ppt")) => kind,
            _ => &entry.detector,
        };
        assert!(detector.split_whitespace().any(|word| word == found), "{}: {found}, not {detector}", entry.name);
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
    // Other patterns may be measured one day; these are today's.
    let measured = [
        Pattern::HasTextLayer,
        Pattern::HasHeadings,
        Pattern::HasOutline,
        Pattern::IsScanned,
        Pattern::HasImages,
        Pattern::HasHeadingStyles,
        Pattern::HasSlides,
        Pattern::HasSmartart,
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
fn a_legacy_presentation_has_its_slides_and_notes() {
    for entry in corpus("ole2/").into_iter().filter(|entry| entry.name.ends_with(".ppt")) {
        let read = extract(Format::Ppt, entry.open(), &Limits::default()).unwrap();
        assert_eq!(
            read.text,
            "# This is a test title\n\nThis is a test subtitle\n\nThis is on page 1\n\n## Notes\n\n\
             These are the notes for page 1\n\n# This is the title on page 2\n\n- This is page two\n\
             - It has several blocks of text\n- None of them have formatting\n\n## Notes\n\n\
             These are the notes on page two, again lacking formatting"
        );
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
