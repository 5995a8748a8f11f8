use super::*;
use crate::{Limit, detect, sections};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::Cursor;

const HERONS: &str = include_str!("../../tests/files/heron-counts.ipynb");

fn of(notebook: impl ToString) -> Extraction {
    extract(Cursor::new(notebook.to_string()), &Limits::default()).unwrap()
}

fn notebook(cells: Value) -> Value {
    json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
}

#[test]
fn cells_are_read_in_order_with_the_language_of_their_code() {
    assert_eq!(detect(&mut Cursor::new(HERONS)).unwrap().format, Some(Format::Ipynb));
    let read = of(HERONS);
    let parts = [
        "# Heron counts at the weir\n\nEach morning of **April** somebody",
        "```python\ncounts = [12, 17, 15, 13]\nprint(",
        "```text\nmean of the mornings: 14.25\n```",
        "```text\n   day  herons\n0    7      17\n```",
        "## What went wrong\n\n```\na fence that nobody closes\n```\n\n```python\nsum(counts) / 0\n```",
        "ZeroDivisionError: division by zero",
        "## Outlook\n\nThe osprey",
    ];
    let place = |part: &&str| read.text.find(part).unwrap_or_else(|| panic!("{part}: {}", read.text));
    assert!(parts.iter().map(place).is_sorted(), "{}", read.text);
    for gone in ["iVBOR", "Figure size", "<table", "\u{1b}", "Traceback", "cell_type"] {
        assert!(!read.text.contains(gone), "{gone}: {}", read.text);
    }
    let titles: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect();
    assert_eq!(titles, [(1, "Heron counts at the weir"), (2, "What went wrong"), (2, "Outlook")]);
    assert!(read.headings.iter().all(|heading| read.text[heading.start..].starts_with('#')));
    assert_eq!((&read.facts["language"], &read.facts["cells"]), (&"python".into(), &5.into()));
    assert_eq!(sections(&read).len(), 3);
}

#[test]
fn a_notebook_of_the_old_format_is_read_too() {
    let old = json!({"metadata": {"name": "x"}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": [
        {"cell_type": "heading", "level": 2, "source": ["Old ponds"]},
        {"cell_type": "code", "input": ["1 + 1"], "language": "python", "outputs": [
            {"output_type": "pyout", "text": ["2"], "png": "iVBOR"}, {"output_type": "pyerr", "ename": "E", "evalue": "v"}]},
    ], "metadata": {}}]});
    assert_eq!(detect(&mut Cursor::new(old.to_string())).unwrap().format, Some(Format::Ipynb));
    assert_eq!(of(old).text, "## Old ponds\n\n```\n1 + 1\n```\n\n```text\n2\n```\n\nE: v");
}

#[test]
fn what_code_prints_is_bounded_and_counted() {
    let lines: Vec<_> = (0..10_000).map(|line| format!("line {line}\n")).collect();
    let read = of(notebook(json!([
        {"cell_type": "code", "source": "loop()", "outputs": [{"output_type": "stream", "text": lines}]},
        {"cell_type": "markdown", "source": "After it."},
    ])));
    assert!(read.text.len() < 5000 && read.text.contains("line 300\n") && read.text.ends_with("After it."));
    let all: usize = (0..10_000).map(|line| format!("line {line}\n").len()).sum();
    let more = read.text.split("(and ").nth(1).unwrap().split(' ').next().unwrap();
    // A line end at the end of what is kept goes with the others.
    assert!((all - 4001..=all - 4000).contains(&more.parse().unwrap()), "{more} of {all}");
}

#[test]
fn code_with_fences_in_it_stays_code() {
    let read = of(notebook(json!([{"cell_type": "code", "source": "a = '''\n```\n# no heading\n````\n'''"}])));
    assert!(read.text.starts_with("`````\n") && read.text.ends_with("\n`````"), "{}", read.text);
    assert_eq!(text::headings(&read.text).count(), 0);
}

#[test]
fn what_is_not_as_the_format_says_is_skipped_or_refused() {
    for cells in [
        json!(null),
        json!({}),
        json!([1, "x", [[]], null]),
        json!([{}]),
        json!([{"source": {"a": [1]}}]),
        json!([{"cell_type": [], "source": [1, {"b": 2}], "outputs": {"a": [1]}}]),
        json!([{"cell_type": "code", "outputs": [1, [{}], {"data": [1], "text": {}}]}]),
    ] {
        assert_eq!(of(notebook(cells.clone())).text, "", "{cells}");
        if let Value::Array(mut cells) = cells {
            cells.push(json!({"cell_type": "markdown", "source": "The next cell."}));
            assert_eq!(of(notebook(cells.into())).text, "The next cell.");
        }
    }
    let error = extract(Cursor::new("{\"cells\": ["), &Limits::default()).unwrap_err();
    assert_eq!(error.code(), "corrupt");
    let limits = Limits { text_bytes: 100, ..Limits::default() };
    assert_eq!(extract(Cursor::new(HERONS), &limits).unwrap_err().limit(), Some(Limit::TextBytes));
}

#[test]
fn a_cell_that_leaves_a_block_open_ends_with_the_cell_however_its_fences_are_indented() {
    for source in ["```\n      ```\n```\n~~~~\n", "~~~~~\n~~~\n", "`````\n```\n    `````\n", "<!-- c\n```\n"] {
        let cells = json!([{"cell_type": "markdown", "source": source}, {"cell_type": "markdown", "source": "# Next"}]);
        let read = of(notebook(cells));
        assert_eq!(text::headings(&read.text).count(), 1, "{}", read.text);
    }
}

#[test]
fn only_the_first_cell_has_metadata() {
    let cells = ["---\ntitle: <b>x</b>\n---\n\n# A", "---\n## B\n\nHerons.\n\n---"];
    let read = of(notebook(json!(cells.map(|source| json!({"cell_type": "markdown", "source": source})))));
    let found: Vec<_> = read.headings.iter().map(|one| (one.title.as_str(), &read.text[one.start..])).collect();
    let [("A", first), ("B", second)] = found[..] else { panic!("{found:?}") };
    assert!(first.starts_with("# A\n") && second.starts_with("## B\n"), "{found:?}");
    assert!(read.text.starts_with("---\ntitle: <b>x</b>\n---\n"), "{}", read.text);
}

#[test]
fn cells_of_markdown_have_what_their_html_shows() {
    let source = "<h1 align=\"center\">Herons</h1>\n<a href=\"https://example.org/x\"><img src=\"badge.svg\"/></a>\n\n\
        They eat <font color=\"red\">fish</font>,<br/>and H<sub>2</sub>O is `<b>` where `a < b`.\n\n<!-- not yet -->\n\n- one\n";
    let read = of(notebook(json!([{"cell_type": "markdown", "source": source}])));
    assert!(read.text.starts_with("# Herons\n"), "{}", read.text);
    assert!(read.text.contains("They eat fish, and H2O is `<b>` where `a < b`."), "{}", read.text);
    assert!(read.text.ends_with("- one"), "{}", read.text);
    for gone in ["align", "badge", "color", "not yet", "</"] {
        assert!(!read.text.contains(gone), "{gone}: {}", read.text);
    }
    assert_eq!(read.headings.iter().map(|heading| heading.title.as_str()).collect::<Vec<_>>(), ["Herons"]);
}

#[test]
fn html_in_cells_neither_joins_words_nor_takes_any_that_are_no_tags() {
    let shown = |source: &str| of(notebook(json!([{"cell_type": "markdown", "source": source}]))).text;
    for (source, expected) in [
        ("one<BR>two<br/>three", "one two three"),
        ("a <td>b</td><td>c</td>", "a  b  c "),
        ("Give it a Vec<String> or the <p-value> of yours.", "Give it a Vec<String> or the <p-value> of yours."),
        ("<place>\n\nis here", "<place>\n\nis here"),
        ("See <img src='a.png' alt='A heron'> here.", "See ![A heron](a.png) here."),
        ("If $p <q and r> s$, <b>then</b>.", "If $p <q and r> s$, then."),
        ("Above\n<hr>\n\nbelow", "Above\n\n---\n\nbelow"),
        ("<table>\n\n<tr><td>Mill</td><td>12</td></tr>\n\n</table>", "|   |   |\n| - | - |\n| Mill | 12 |"),
    ] {
        assert_eq!(shown(source), expected.trim(), "{source}");
    }
    let deep = format!("{}x{}", "<div>".repeat(5_000), "</div>".repeat(5_000));
    assert_eq!(shown(&deep), deep);
}

proptest! {
    #[test]
    fn any_cells_are_read_and_their_headings_are_where_they_say(
        cells in prop::collection::vec(("(markdown|code|raw|heading)", prop::collection::vec(prop::sample::select(LINES.to_vec()), 0..6), "[a-z`\n]{0,40}"), 0..8),
    ) {
        let cells: Vec<_> = cells.into_iter().map(|(kind, source, printed)| json!({
            "cell_type": kind, "source": source.concat(), "outputs": [{"output_type": "stream", "text": [printed]}],
        })).collect();
        let read = of(notebook(cells.into()));
        for heading in &read.headings {
            prop_assert!(read.text.is_char_boundary(heading.start));
        }
        // No cell opens a block of code that holds the next cell: between them the whole reads as its cells do.
        let whole: Vec<_> = text::headings(&read.text).map(|heading| heading.start).collect();
        for heading in read.headings.iter().filter(|heading| read.text[heading.start..].starts_with("# ")) {
            let is_at_margin = heading.start == 0 || read.text[..heading.start].ends_with('\n');
            prop_assert!(!is_at_margin || whole.contains(&heading.start), "{}", read.text);
        }
    }
}

const LINES: [&str; 10] =
    ["# a\n", "```\n", "~~~~\n", "words\n", "> ```\n", "- b\n", "  ```x\n", "      ```\n", "<!-- c\n", "\n"];

#[test]
fn what_is_shown_as_markdown_or_as_a_page_is_read_as_that() {
    let shown = |kind: &str, text: &str| json!({"output_type": "display_data", "data": {"text/plain": ["<IPython.core.display.X object>"], kind: [text]}});
    let frame = json!({"output_type": "execute_result", "data": {"text/plain": ["   a\n0  1"], "text/html": ["<table><tr><td>1</table>"]}});
    let outputs =
        [shown("text/markdown", "## Found\n\n**12** herons"), shown("text/html", "<p>Seen <b>twice</b></p>"), frame];
    let read = of(notebook(json!([{"cell_type": "code", "source": "show()", "outputs": outputs}])));
    assert!(read.text.contains("## Found\n\n**12** herons\n\nSeen **twice**"), "{}", read.text);
    assert!(read.text.ends_with("```text\n   a\n0  1\n```") && !read.text.contains("IPython"), "{}", read.text);
    assert_eq!(read.headings.iter().map(|heading| &*heading.title).collect::<Vec<_>>(), ["Found"]);
}
