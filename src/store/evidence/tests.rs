//! Holds docs/evidence.md to the table of evidence.
use super::Evidence;
use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

/// docs/evidence.md, from the table.
fn page() -> String {
    let mut page = "\
# Evidence

<!-- Generated from src/store/evidence/names.rs; a test beside that file compares the two. -->

`GET /documents/{id}/evidence` answers with everything that the pipeline recorded about a node, by name:
`{\"document_id\": 7, \"evidence\": {...}}`.

* A name with null: a task ran and produced nothing. The column \"Null\" says what that means; a name without an entry is never
  null.
* A name that is absent: nothing has run, or what the column \"Absent\" says.
* A task of another crate may record further names.

| Name | Holds | Null | Absent | Recorded by |
|---|---|---|---|---|
"
    .to_owned();
    for evidence in Evidence::ALL {
        let (null, absent) = (evidence.null_means().unwrap_or_default(), evidence.absent_means().unwrap_or_default());
        writeln!(
            page,
            "| `{}` | {} | {null} | {absent} | {} |",
            evidence.as_str(),
            evidence.holds(),
            evidence.written_by()
        )
        .unwrap();
    }
    page
}

#[test]
fn the_page_of_evidence_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/evidence.md");
    let (kept, page) = (fs::read_to_string(&file).unwrap_or_default(), page());
    if kept != page {
        fs::write(file.with_extension("md.new"), page).unwrap();
        panic!(
            "docs/evidence.md is out of date: read docs/evidence.md.new, then mv docs/evidence.md.new docs/evidence.md"
        );
    }
}

#[test]
fn a_name_stands_for_one_evidence_and_says_what_it_holds() {
    let names: BTreeSet<&str> = Evidence::ALL.iter().map(|evidence| evidence.as_str()).collect();
    assert_eq!(names.len(), Evidence::ALL.len(), "two rows share a name");
    for evidence in Evidence::ALL {
        assert!(evidence.holds().ends_with('.'), "{evidence:?} needs a doc comment that is a sentence");
        // A reader that finds nothing is recorded as null.
        assert_eq!(evidence.format().is_some(), evidence.null_means() == Some("there are none"), "{evidence:?}");
    }
}
