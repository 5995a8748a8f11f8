//! Holds docs/errors.md to the table of codes.
use super::Code;
use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

/// The members that any code may carry.
const EVERYWHERE: [&str; 2] = ["remedy", "retry_after"];

/// The members that problems may carry, and what each holds. Any code may come with the first two.
const MEMBERS: &[(&str, &str)] = &[
    ("remedy", "what the caller can do about it, as a sentence"),
    ("retry_after", "seconds after which another try may succeed, as in the header `Retry-After`"),
    ("blocked_by", "how many unfinished tasks are not running, by the reason"),
    ("cells", "the number of cells in the requested area"),
    ("checks", "every check of `/ready` with its outcome"),
    (
        "chars_total",
        "the length of what is embedded, in characters: of a document its title, a line feed and its content",
    ),
    ("client_version", "the version that the client named"),
    ("column", "the column at which the text breaks the grammar, from 1"),
    ("document_id", "the document in question"),
    ("document_ids", "the documents that are in the way"),
    ("field", "the field of the request, as a path"),
    ("file_id", "the file that the document belongs to; send the request there"),
    ("frontier", "the route that tells how far the ingestion has come"),
    (
        "index",
        "the name of the missing index (404), or the position of the text, document or fact in the request, from 0",
    ),
    ("invalidated_by", "the fact that took the place of the one in question"),
    ("key", "the unknown option key, as a path"),
    ("limit", "the largest allowed value, in the unit of the detail, or the name of the limit"),
    ("line", "the line at which the text breaks the grammar, from 1"),
    ("link_id", "the link that exists already"),
    ("model", "the identity of the model that is loaded"),
    ("models", "the state of the models"),
    ("oldest_seq", "the number of the oldest event that is kept"),
    ("only_reads", "whether the call changes nothing, so that it can be made again in any case"),
    ("predicate_id", "the predicate that has the name or IRI already"),
    ("premises", "the facts that a derived one follows from, as far as the caller may read them"),
    ("reason", "a stable word for why the workbook cannot be read, or why the fact cannot be written"),
    ("ref", "the cell reference that was asked for or is meant"),
    ("requested_options", "the options of this upload"),
    ("reranker", "the state of the cross-encoder"),
    ("results", "what breaks the shapes, as in the results of a validation, the first hundred"),
    ("running_options", "the options of the reprocess that runs"),
    ("sampled_seconds_ago", "the age of the measurements behind the answer, in seconds"),
    ("sentences", "what the language model said, sentence by sentence"),
    ("sent", "whether the request may have reached the service"),
    ("service_version", "the version of the service"),
    ("setting", "the setting that decides"),
    ("sheets", "the names of the sheets that exist"),
    ("size", "the size of the file, in bytes"),
    ("started_at", "when the reprocess that runs was asked for"),
    ("stored_options", "the options that the stored file was ingested with"),
    ("task_id", "the task in question"),
    ("task_status", "the status of the task"),
    ("task_type", "the type of the task that holds the region"),
    ("to_model", "the model to which the last move takes all vectors"),
    ("triple_id", "the fact that is in the way"),
    ("token_count", "the length of the text, in tokens of the model"),
    ("upstream_status", "the status with which the fetched address answered"),
    ("without_direction", "the positions of the texts for which the model gave no vector, from 0"),
    ("worker", "the worker that runs the task"),
];

/// docs/errors.md, from the table.
fn page() -> String {
    let mut page = "\
# Errors

<!-- Generated from client/src/failure.rs; a test of that file compares the two. -->

Every failed call is answered with an RFC 9457 problem of the media type `application/problem+json`. Decide by `code`,
which is stable; `detail` is for people and may change. Each code is always sent with the same status.

```json
{
  \"type\": \"urn:svc:problem:not_found\",
  \"title\": \"No such resource\",
  \"status\": 404,
  \"detail\": \"there is no document 7\",
  \"instance\": \"/documents/7\",
  \"code\": \"not_found\",
  \"request_id\": \"7f9d2c1e7d1c4c549f2a3a1f6c2b9d10\"
}
```

`request_id` is also the header `X-Request-Id` and identifies the request in the service's log. A problem with
`retry_after` carries the header `Retry-After` too.

## Codes

| Status | Code | When | Members |
|---|---|---|---|
"
    .to_owned();
    for code in Code::ALL {
        let status = if code.status() == 0 { "none".to_owned() } else { code.status().to_string() };
        let members: Vec<String> = code.members().iter().map(|name| format!("`{name}`")).collect();
        let (name, meaning) = (code.as_str(), code.meaning());
        writeln!(page, "| {status} | `{name}` | {meaning} | {} |", members.join(", ")).unwrap();
    }
    page.push_str(
        "\nA client reports `unreachable` by itself; no server sends it.\n\n## Members\n\n\
         `remedy` and `retry_after` may come with any code, the others with the codes above.\n\n\
         | Member | Holds |\n|---|---|\n",
    );
    for (name, holds) in MEMBERS {
        writeln!(page, "| `{name}` | {holds} |").unwrap();
    }
    page
}

#[test]
fn the_page_of_errors_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    let (kept, page) = (fs::read_to_string(&file).unwrap_or_default(), page());
    if kept != page {
        fs::write(file.with_extension("md.new"), page).unwrap();
        panic!("docs/errors.md is out of date: read docs/errors.md.new, then mv docs/errors.md.new docs/errors.md");
    }
}

#[test]
fn every_code_says_when_it_is_sent_and_every_member_is_explained() {
    let explained: BTreeSet<&str> = MEMBERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(explained.len(), MEMBERS.len(), "a member is explained twice");
    let mut used = BTreeSet::from(EVERYWHERE);
    for code in Code::ALL {
        assert!(code.meaning().ends_with('.'), "{code:?} needs a doc comment that is a sentence");
        used.extend(code.members());
    }
    assert_eq!(used, explained);
}
