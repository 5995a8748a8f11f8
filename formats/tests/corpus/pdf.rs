//! PDF: pages, words, images, tags, outlines and passwords.

use super::{seen::SEEN, *};

/// The number of characters on a page may differ by this share of the reference's, or by this many: the reference keeps
/// the hyphens of line ends and ligatures, which are resolved here.
const CHARACTERS: (f64, u64) = (0.01, 3);
/// Shares of a page are given to two digits.
const COVERAGE: f64 = 0.011;
/// Word F1 against the reference's text: the mean, and the lowest allowed.
const MEAN_F1: f64 = 0.97;
const LEAST_F1: f64 = 0.95;

/// The least share of the headings that a reader sees that is found, and of what is found that is one of them.
const LEAST_SEEN: f64 = 0.7;

fn pdfs() -> impl Iterator<Item = Entry> {
    corpus("").into_iter().filter(|entry| entry.detector == "pdf")
}

/// The files that open, with what is read of them; hostile files say nothing about opening.
fn readable() -> Vec<(Entry, Extraction)> {
    let opens = pdfs().filter(|entry| entry.expect["opens"] == true);
    let read = |entry: Entry| {
        let read = entry.extract().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        (entry, read)
    };
    opens.map(read).collect()
}

/// The values of a list that has one for each page.
fn by_page<'e>(entry: &'e Entry, key: &str) -> &'e [Value] {
    entry.expect[key].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn what_does_not_open_is_refused_for_good() {
    for entry in pdfs().filter(|entry| entry.expect["opens"] == false) {
        let error = entry.extract().unwrap_err();
        let code = if entry.expect["is_encrypted"] == true { "encrypted" } else { "corrupt" };
        assert!(error.is_permanent() && error.code() == code, "{}: {error}", entry.name);
        if code == "encrypted" {
            assert!(entry.probe().unwrap().holds(Pattern::IsEncrypted), "{}", entry.name);
            assert!(error.to_string().contains("extract.password"), "{}: {error}", entry.name);
        }
    }
}

#[test]
fn a_password_opens_and_is_not_needed_where_any_reader_opens() {
    for entry in pdfs().filter(|entry| entry.name.contains("-password")) {
        let limits = Limits::default();
        let with = |password: &str| {
            extract(
                Format::Pdf,
                entry.open(),
                Access { limits: &limits, password: Some(&Secret::new(password)), pages: None },
            )
        };
        assert!(with("asdfzxcv").unwrap().text.contains("encryption test"), "{}", entry.name);
        assert_eq!(with("wrong").is_ok(), entry.expect["opens"] == true, "{}", entry.name);
    }
}

#[test]
fn pages_show_what_the_reference_shows() {
    let mut missing = Vec::new();
    for (entry, read) in readable() {
        assert_eq!(read.pages.len() as u64, entry.expect["page_count"], "{}", entry.name);
        assert_eq!(read.facts["page_count"], entry.expect["page_count"], "{}", entry.name);
        let texts: Vec<&str> = read.pages.iter().map(|page| &read.text[page.start..page.end]).collect();
        for (number, (text, expected)) in texts.iter().zip(by_page(&entry, "chars_per_page_nonspace")).enumerate() {
            let found = text.chars().filter(|character| !character.is_whitespace()).count() as u64;
            let expected = expected.as_u64().unwrap();
            let allowed = CHARACTERS.1.max((expected as f64 * CHARACTERS.0) as u64);
            assert!(found.abs_diff(expected) <= allowed, "{} page {}: {found}, not {expected}", entry.name, number + 1);
        }
        for (number, (text, snippets)) in texts.iter().zip(by_page(&entry, "snippets_per_page")).enumerate() {
            let text = bare(text);
            for snippet in snippets.as_array().unwrap() {
                let snippet = snippet.as_str().unwrap();
                if !text.contains(&bare(snippet)) {
                    missing.push((entry.name.clone(), number + 1, snippet.to_owned()));
                }
            }
        }
    }
    assert_eq!(missing, [], "file, page and words that should stand in a row");
}

#[test]
fn images_cover_what_they_cover() {
    for (entry, read) in readable() {
        let empty = Vec::new();
        let noted = read.facts.get("page_images").and_then(Value::as_array).unwrap_or(&empty);
        for (number, expected) in by_page(&entry, "largest_image_coverage_per_page").iter().enumerate() {
            let page = noted.iter().find(|page| page["page"] == number + 1);
            let found = page.map_or(0.0, |page| page["largest_coverage"].as_f64().unwrap());
            let expected = expected.as_f64().unwrap();
            assert!((found - expected).abs() < COVERAGE, "{} page {}: {found}, not {expected}", entry.name, number + 1);
        }
        let scanned = read.facts.get("scanned_pages").and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!(scanned * 2 > read.pages.len(), entry.expect["is_scanned"] == true, "{}", entry.name);
    }
}

#[test]
fn headings_come_from_the_outline_or_the_tags_where_there_are_any() {
    for (entry, read) in readable() {
        let Some(expected) = entry.expect["outline"].as_array() else { continue };
        let of = |entry: &Value| {
            (entry["level"].as_u64(), entry["title"].as_str().map(str::to_owned), entry["page"].as_u64())
        };
        let expected: Vec<_> = expected.iter().map(of).collect();
        if !expected.is_empty() {
            let found = read.headings.iter().map(|heading| {
                let page = read.page_at(heading.start).map(u64::from);
                (Some(u64::from(heading.level)), Some(heading.title.clone()), page)
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{}", entry.name);
            assert_eq!(read.headings_from.as_deref(), Some("outline"), "{}", entry.name);
        } else {
            assert_ne!(read.headings_from.as_deref(), Some("outline"), "{}", entry.name);
        }
        assert_eq!(read.facts["tagged"], entry.expect["tagged"], "{}", entry.name);
        let probed = entry.probe().unwrap();
        assert_eq!(
            probed.holds(Pattern::HasHeadings),
            !read.headings.is_empty(),
            "{}: probe and text agree",
            entry.name
        );
        for heading in &read.headings {
            let line = read.text[heading.start..].lines().next().unwrap_or_default();
            println!("{}: {} {:?} at {line:?}", entry.name, heading.level, heading.title);
        }
        if read.headings_from.as_deref() == Some("tags") {
            let starts =
                |heading: &svc_formats::Heading| bare(&read.text[heading.start..]).starts_with(&bare(&heading.title));
            assert!(read.headings.iter().all(starts), "{}: tagged headings stand where they begin", entry.name);
        }
    }
}

#[test]
fn headings_that_nothing_declares_are_those_that_a_reader_sees() {
    let (mut common, mut found, mut seen) = (0, 0, 0);
    for (entry, read) in readable() {
        let Some((_, titles)) = SEEN.iter().find(|(name, _)| entry.name == format!("pdf/{name}")) else { continue };
        assert_eq!(read.headings_from.as_deref(), Some("font_sizes"), "{}", entry.name);
        let of_file: Vec<String> = read.headings.iter().map(|heading| bare(&heading.title)).collect();
        println!("{}: {:?}", entry.name, read.headings);
        common += titles.iter().filter(|title| of_file.contains(&bare(title))).count();
        (found, seen) = (found + of_file.len(), seen + titles.len());
    }
    if seen > 0 {
        let (recall, precision) = (common as f64 / seen as f64, common as f64 / found.max(1) as f64);
        println!("headings by type: recall {recall:.2}, precision {precision:.2}");
        assert!(recall >= LEAST_SEEN && precision >= LEAST_SEEN, "recall {recall}, precision {precision}");
    }
}

#[test]
fn words_are_those_of_the_reference() {
    let mut scores = Vec::new();
    for (entry, read) in readable() {
        let Some(reference) = entry.expect["reference_text"].as_str() else { continue };
        let reference =
            std::fs::read_to_string(entry.path.parent().unwrap().parent().unwrap().join(reference)).unwrap();
        let score = word_f1(&read.text, &reference);
        println!("{}: word F1 {score:.3}", entry.name);
        assert!(score >= LEAST_F1, "{}: word F1 {score}", entry.name);
        scores.push(score);
    }
    if !scores.is_empty() {
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        println!("mean word F1 {mean:.3} of {} files", scores.len());
        assert!(mean >= MEAN_F1, "mean word F1 {mean}");
    }
}

fn word_f1(found: &str, expected: &str) -> f64 {
    let count = |text: &str| {
        let mut counts = std::collections::HashMap::new();
        // The reference marks the hyphen at the end of a line, which does not belong to the word, by U+FFFE.
        let text = text.nfkc().collect::<String>().replace(['\u{AD}', '\u{FFFE}'], "");
        for word in text.split_whitespace() {
            *counts.entry(word.to_owned()).or_insert(0usize) += 1;
        }
        counts
    };
    let (found, expected) = (count(found), count(expected));
    let common: usize = found.iter().map(|(word, &count)| count.min(expected.get(word).copied().unwrap_or(0))).sum();
    let total: usize = found.values().chain(expected.values()).sum();
    if total == 0 { 1.0 } else { 2.0 * common as f64 / total as f64 }
}
