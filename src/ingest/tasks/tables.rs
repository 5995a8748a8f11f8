//! extract:tables: which tables the text of a file has. Readers find those that are drawn, and write others into the text; the
//! nodes are made with those of the text, in the place of the chunks that would hold the same.
use super::{Apply, OrTaskFailure, structure::extracted};
use crate::{
    ingest::Tools,
    store::{self, evidence::Evidence},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use svc_actors::{Outcome, TaskFailure};
use svc_formats::{Extraction, PageKind, Table, Tables};

/// How many tables are listed one by one.
const LISTED: usize = 100;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let extraction = {
        let mut conn = tools.pool.acquire().await.classified()?;
        extracted(&mut conn, id).await?
    };
    let found = tokio::task::spawn_blocking(move || {
        let found = svc_formats::tables(&extraction);
        evidence(&extraction, &found)
    });
    let found = found.await.classified()?;
    let mut detail = Map::new();
    for name in ["tables", "left_out"] {
        detail.insert(name.to_owned(), found.get(name).cloned().unwrap_or_else(|| json!(0)));
    }

    let mut tx = apply.begin().await?;
    store::evidence::record(tx.conn(), id, Evidence::ExtractTables, &found).await.classified()?;
    tx.complete(detail).await
}

/// What is recorded of the tables; null if nothing was found.
fn evidence(extraction: &Extraction, found: &Tables) -> Value {
    let Tables { tables, left_out } = found;
    if tables.is_empty() && left_out.is_empty() {
        return Value::Null;
    }
    let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
    for table in tables {
        *rules.entry(table.rule.as_str()).or_default() += 1;
    }
    let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
    let cells: usize = tables.iter().flat_map(|table| &table.rows).map(Vec::len).sum();
    let listed: Vec<Value> = tables.iter().take(LISTED).map(|table| listed(extraction, table)).collect();
    json!({
        "tables": tables.len(),
        "rows": rows,
        "cells": cells,
        "rules": rules,
        "left_out": left_out.values().sum::<usize>(),
        "reasons": left_out,
        "first": listed,
    })
}

fn listed(extraction: &Extraction, table: &Table) -> Value {
    let mut listed = json!({
        "rows": table.rows.len(),
        "columns": table.rows.first().map_or(0, Vec::len),
        "header": table.has_header,
        "rule": table.rule.as_str(),
        "parts": table.parts,
    });
    let span = table.span();
    let last = span.end.saturating_sub(1).max(span.start);
    if let (Some(first), Some(last)) = (extraction.page_at(span.start), extraction.page_at(last)) {
        let kind = match extraction.page_kind {
            PageKind::Page => "pages",
            PageKind::Slide => "slides",
        };
        listed[kind] = json!([first, last]);
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_and_what_stays_text_are_counted() {
        let table = "| Pond | Ducks |\n| --- | --- |\n| Mill | 14 |\n";
        let wide = format!("|{}\n|{}\n|{}\n", " a |".repeat(300), " - |".repeat(300), " b |".repeat(300));
        let text = format!("{table}\n{wide}\n{table}");
        let extraction = Extraction { text, ..Extraction::default() };
        let value = evidence(&extraction, &svc_formats::tables(&extraction));
        assert_eq!((&value["tables"], &value["rows"], &value["cells"]), (&json!(2), &json!(4), &json!(8)));
        assert_eq!((&value["rules"], &value["left_out"]), (&json!({"markdown": 2}), &json!(1)));
        assert_eq!(value["reasons"], json!({"columns": 1}));
        let expected = json!({"rows": 2, "columns": 2, "header": true, "rule": "markdown", "parts": 1});
        assert_eq!(value["first"], json!([expected, expected]));
        assert_eq!(evidence(&Extraction::default(), &Tables::default()), Value::Null);
    }
}
