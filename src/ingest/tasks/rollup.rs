//! summarize: gives containers a vector: the weighted sum of their children's vectors, which is that of all the tokens under a container,
//! so no text is embedded twice. If the text under a container does not fit the model's window, a language model is to paraphrase it.
//!
//! One task at the root of a file rolls up many containers. It reads and writes in its one transaction, which locks them: so it meets no
//! edit half done, and leaves out what was edited, deleted or cancelled since it was queued.
use super::{Apply, OrTaskFailure, apply::Transaction, structure::model, types::SUMMARIZE_LLM};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        queueing::{Queueing, Work},
        segments::outdate_sums,
    },
    store::{self, evidence::Evidence, rollups::Container},
};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use svc_actors::{Outcome, TaskFailure};
use svc_ids::DocumentId;

/// The parameter that lists the containers of a task.
pub const PARAM: &str = "containers";
/// The most containers of one task, which bounds how long it holds their locks.
pub const CONTAINERS: usize = 500;
/// How many containers have their texts in memory at once: each has at most a window of text.
const TEXTS: usize = 64;
/// How the evidence describes the vector of a container.
pub(super) const EMBEDDING: &str = "weighted sum of the children's vectors";

/// The containers that a task's parameters name.
pub fn containers_of(params: &Value) -> Vec<DocumentId> {
    params.get(PARAM).and_then(|ids| serde_json::from_value(ids.clone()).ok()).unwrap_or_default()
}

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let model = model(tools).await?;
    let mut tx = apply.begin_by_keys().await?;
    let containers = store::rollups::lock(tx.conn(), grant.document_id, &containers_of(&grant.params)).await;
    let containers = containers.classified()?;
    let ids: Vec<DocumentId> = containers.iter().map(|container| container.place.id()).collect();
    let texts = texts(&mut tx, &model, &containers).await?;
    let vectors = store::rollups::set_vectors(tx.conn(), &ids, model.identity()).await.classified()?;

    let window = model.document_window();
    let mut evidence = Vec::with_capacity(containers.len() * 2);
    let (mut done, mut long) = (Vec::new(), Vec::new());
    for container in containers {
        let id = container.place.id();
        let mut rollup = json!({"failed_children": container.failed_children});
        match vectors.get(&id) {
            None => rollup["without_vector"] = "nothing under this node has a vector".into(),
            Some(vectors) => {
                rollup["embedding"] = EMBEDDING.into();
                if *vectors < container.children {
                    rollup["children_without_vector"] = (container.children - vectors).into();
                }
            }
        }
        let effective = match texts.get(&id) {
            Some(text) => {
                done.push(id);
                json!({"method": "concatenated", "source_children": container.children, "tokens": text.tokens, "window": window, "characters": text.characters})
            }
            None => {
                rollup["not_concatenated"] = json!({"tokens": container.tokens, "window": window});
                long.push(container.place);
                Value::Null
            }
        };
        evidence.push((id, Evidence::EffectiveContent, effective));
        evidence.push((id, Evidence::Rollup, rollup));
    }
    store::evidence::record_all(tx.conn(), &evidence).await.classified()?;
    if ids.contains(&grant.root_id.document()) {
        let file = [grant.root_id.document()];
        outdate_sums(&tools.settings.task_badges, tx.conn(), &file).await.classified()?;
    }
    store::rollups::done(tx.conn(), grant.root_id, &done).await.classified()?;
    let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
    let mut params = grant.params.clone();
    params.as_object_mut().map(|params| params.remove(PARAM));
    for place in &long {
        let work = Work::of(&SUMMARIZE_LLM).params(params.clone());
        queueing.add(tx.conn(), place, work).await.classified()?;
        store::ingest_nodes::grow(tx.conn(), place.id(), 1, 0, 0).await.classified()?;
    }
    let mut detail = Map::new();
    detail.insert("containers".to_owned(), ids.len().into());
    detail.insert("concatenated".to_owned(), done.len().into());
    tx.complete(detail).await
}

/// The joined text under a container, which fits the window.
struct Text {
    tokens: usize,
    characters: usize,
}

/// The texts of those containers whose text fits the window.
async fn texts(
    tx: &mut Transaction<'_>,
    model: &Model,
    containers: &[Container],
) -> Result<HashMap<DocumentId, Text>, TaskFailure> {
    let window = model.document_window();
    let fitting = containers.iter().filter(|container| container.tokens <= window as i64);
    let fitting: Vec<DocumentId> = fitting.map(|container| container.place.id()).collect();
    let mut texts = HashMap::with_capacity(fitting.len());
    for part in fitting.chunks(TEXTS) {
        let mut parts: HashMap<DocumentId, Vec<String>> = part.iter().map(|id| (*id, Vec::new())).collect();
        for (id, text) in store::rollups::texts(tx.conn(), part).await.classified()? {
            parts.entry(id).or_default().push(text);
        }
        let model = model.clone();
        let counted = tokio::task::spawn_blocking(move || {
            let count = |(id, texts): (DocumentId, Vec<String>)| {
                let text = texts.join("\n\n");
                // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
                let tokens = model.count_tokens(&text).unwrap_or(text.len());
                (tokens <= window).then(|| (id, Text { tokens, characters: text.chars().count() }))
            };
            parts.into_iter().filter_map(count).collect::<Vec<_>>()
        });
        texts.extend(counted.await.classified()?);
    }
    Ok(texts)
}
