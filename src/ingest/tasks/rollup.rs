//! summarize: gives a container a vector derived from what is under it. If the text under it does not fit the model's window, a language
//! model is to paraphrase it; until then the container has the mean of its children's vectors.
use super::{Apply, OrTaskFailure, structure::model, types::SUMMARIZE_LLM};
use crate::{
    embedding::{EmbedError, Model},
    ingest::{
        Tools,
        queueing::{Queueing, Work},
    },
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::{Contents, Rollup},
        places::Place,
        vectors::Stored,
    },
};
use pgvector::HalfVector;
use serde_json::{Map, Value, json};
use svc_actors::{Outcome, TaskFailure};
use svc_ids::DocumentId;
use svc_models::ModelError;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let place = Place::of_claim(apply.grant);
    let id = place.id();
    let model = model(tools).await?;
    let window = model.document_window();
    let Contents { tokens, failed_children } = {
        let mut conn = tools.pool.acquire().await.classified()?;
        store::ingest_nodes::contents(&mut conn, id).await.classified()?.unwrap_or_default()
    };
    let concatenated = if tokens <= window as i64 { concatenate(tools, &model, id).await? } else { None };

    let mut tx = apply.begin().await?;
    let model = model.identity();
    let (children, mean) = store::vectors::children_mean(tx.conn(), id, model).await.classified()?;
    let mut rollup = json!({"failed_children": failed_children});
    let (effective, vector) = match concatenated {
        Some(text) => {
            let effective = json!({"method": "concatenated", "source_children": children, "tokens": text.tokens, "window": window, "characters": text.characters});
            if text.has_no_direction {
                rollup["no_direction"] = json!({"embedding": "mean of the children's vectors"});
            }
            // Embedding a single child's text again would give the vector that the child has.
            (effective, text.vector.or(mean))
        }
        None => {
            rollup["not_concatenated"] =
                json!({"tokens": tokens, "window": window, "embedding": "mean of the children's vectors"});
            (Value::Null, mean)
        }
    };
    match vector {
        Some(vector) => store::vectors::set(tx.conn(), &place, &[id], &[vector], model).await.classified()?,
        None => rollup["without_vector"] = "nothing under this node has a vector".into(),
    }
    store::evidence::record(tx.conn(), id, Evidence::EffectiveContent, &effective).await.classified()?;
    store::evidence::record(tx.conn(), id, Evidence::Rollup, &rollup).await.classified()?;
    if effective.is_null() {
        let grant = tx.grant();
        let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
        let work = Work::of(&SUMMARIZE_LLM).params(grant.params.clone());
        queueing.add(tx.conn(), &place, work).await.classified()?;
        store::ingest_nodes::grow(tx.conn(), id, 1, 0, 0).await.classified()?;
    } else {
        store::ingest_nodes::set_rollup(tx.conn(), id, Rollup::Done).await.classified()?;
    }
    let mut detail = Map::new();
    detail.insert("effective_content".to_owned(), effective);
    tx.complete(detail).await
}

struct Concatenated {
    tokens: usize,
    characters: usize,
    /// `None` if the text is that of a single chunk, whose vector is the mean already, or if it has no direction.
    vector: Option<HalfVector>,
    /// A chunk without a direction leaves its containers without one.
    has_no_direction: bool,
}

/// The joined and embedded text under a container; `None` if it is longer than the window after all.
async fn concatenate(tools: &Tools, model: &Model, id: DocumentId) -> Result<Option<Concatenated>, TaskFailure> {
    let texts = {
        let mut conn = tools.pool.acquire().await.classified()?;
        store::nodes::settled_leaf_texts(&mut conn, id).await.classified()?
    };
    let single = texts.len() == 1;
    let text = texts.join("\n\n");
    let characters = text.chars().count();
    let tokens = model.count_tokens(&text).classified()?;
    if tokens > model.document_window() {
        return Ok(None);
    }
    let stored = |vector| Stored::new(model.identity(), model.native_width(), vector).vector;
    let embedded = if single { Ok(Vec::new()) } else { model.embed_documents(vec![text]).await };
    let has_no_direction = matches!(embedded, Err(EmbedError::Model(ModelError::NoDirection { .. })));
    let vector = if has_no_direction { None } else { embedded.classified()?.pop().map(stored) };
    Ok(Some(Concatenated { tokens, characters, vector, has_no_direction }))
}
