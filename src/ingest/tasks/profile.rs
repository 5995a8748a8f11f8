//! profile:sheet: the range that a sheet uses and what its columns hold, as evidence and as a node to be found.
use super::{
    Apply, OrTaskFailure, another_answer,
    apply::Transaction,
    embed::{self, Leaves},
    sheets,
    structure::model,
};
use crate::{
    embedding::{EmbedError, Model},
    ingest::{Tools, options::Profile, profile, tree},
    reader::limits,
    store::{self, evidence::Evidence, ingest_nodes::Frontier, nodes::NewNode, places::Place},
    usetype::Usetype,
};
use serde_json::{Map, Value, json};
use svc_actors::{LeafRange, Outcome, TaskFailure};
use svc_formats::{
    isolated::{Answer, Request, Step},
    xlsx::{Reference, SheetProfile},
};
use svc_ids::DocumentId;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let sheet = sheets::sheet_index(grant)?;
    let Profile { sketch_columns, .. } = serde_json::from_value(grant.params["profile"].clone()).unwrap_or_default();
    let request = Request::new(Step::ProfileSheet { sheet, sketch_columns }, limits(&tools.settings));
    let file = sheets::file_of(tools, grant).await?;
    let workbook = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let rows = store::nodes::texts(&mut conn, &[file]).await.classified()?;
        rows.into_iter().next().map(|row| row.title).unwrap_or_default()
    };
    // A worker that lacks the model must not read the whole sheet first.
    let model = model(tools).await?;
    let input = sheets::workbook_of_sheet(tools, grant).await?;
    let Answer::SheetProfile(profile) = tools.reader.read(input, &request).await.classified()?.0 else {
        return Err(another_answer());
    };
    let evidence = profile::evidence(&profile).classified()?;
    let text = match profile.used_range {
        // There is nothing to find, and the evidence says so.
        None => None,
        Some(_) => Some(fitting_text(tools, model, &workbook, profile.clone()).await?),
    };
    let detail = detail(&profile);

    let mut tx = apply.begin_creating().await?;
    if let Some((content, tokens)) = text {
        let cells = cells(&profile);
        let anchor = json!({"sheet": profile.sheet.name, "index": sheet, "cells": cells});
        store::evidence::set_anchor(tx.conn(), grant.document_id, &anchor).await.classified()?;
        insert(tools, &mut tx, &profile, content, tokens, &json!({"cells": cells})).await?;
    }
    store::evidence::record(tx.conn(), grant.document_id, Evidence::ProfileSheet, &evidence).await.classified()?;
    tx.complete(detail).await
}

/// The used range with the sheet's name, for example `'My Sheet'!A1:C9`.
fn cells(profile: &SheetProfile) -> Value {
    let name = profile.sheet.name.clone();
    profile.used_range.map_or(Value::Null, |range| Reference { sheet: Some(name), range }.to_string().into())
}

/// The profile's text and its tokens: as much of it as fits one chunk and the model's window.
async fn fitting_text(
    tools: &Tools,
    model: Model,
    workbook: &str,
    profile: SheetProfile,
) -> Result<(String, i64), TaskFailure> {
    let (workbook, most) = (workbook.to_owned(), tools.settings.chunk_max_chars);
    let fitted = tokio::task::spawn_blocking(move || {
        let mut room = most;
        loop {
            let text = profile::text(&workbook, &profile, room);
            // The smallest text is the sheet's name and its range, which fits every window.
            if model.count_tokens(&text)? <= model.document_window() || room < 100 {
                // The tokens of all parts are added up, so no part counts the special tokens, which come once for the whole.
                let tokens = model.count_content_tokens(&text)?;
                return Ok::<_, EmbedError>((text, i64::try_from(tokens).unwrap_or(i64::MAX)));
            }
            room = room * 3 / 4;
        }
    });
    fitted.await.classified()?.classified()
}

async fn insert(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    profile: &SheetProfile,
    content: String,
    tokens: i64,
    anchor: &Value,
) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    let place = Place::of_claim(grant);
    let ids = store::nodes::reserve_ids(tx.conn(), 1).await.classified()?;
    let node = |id: &DocumentId| NewNode {
        id: *id,
        parent_id: grant.document_id,
        path: grant.region.path.clone(),
        title: tree::title(&format!("Profile of {}", profile.sheet.name)),
        content: content.clone(),
        usetype: Usetype::Profile,
        // Records follow, from 1.
        position: 0,
        structured_content: json!({}),
        anchor: anchor.clone(),
    };
    let nodes: Vec<NewNode> = ids.iter().map(node).collect();
    store::nodes::insert(tx.conn(), &tools.lexicon, &place, &grant.task_type, &nodes).await.classified()?;
    store::ingest_nodes::grow(tx.conn(), grant.document_id, 1, 1, tokens).await.classified()?;
    let change = Frontier { total: 1, in_flight: 1, ..Frontier::default() };
    store::ingest_nodes::count(tx.conn(), grant.root_id.document(), change).await.classified()?;
    for id in ids {
        let leaf: Vec<i64> = grant.region.path.iter().copied().chain([id.0]).collect();
        let range = LeafRange { first: leaf.clone(), last: leaf };
        let leaves = Leaves { under: place.clone(), range, runs: vec![(id, id)] };
        embed::enqueue(tools, tx.conn(), grant.root_id, leaves).await?;
    }
    Ok(())
}

/// What the attempt log says.
fn detail(profile: &SheetProfile) -> Map<String, Value> {
    let mut detail = Map::new();
    detail.insert("used_range".to_owned(), json!(profile.used_range));
    detail.insert("nonempty_cells".to_owned(), profile.nonempty_cells.into());
    detail.insert("columns".to_owned(), profile.columns.len().into());
    detail
}
