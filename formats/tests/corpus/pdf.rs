//! PDF: pages, outline and words.

use super::*;

#[test]
fn pages_and_outlines_are_those_of_the_references() {
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
fn words_are_those_of_the_reference() {
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
