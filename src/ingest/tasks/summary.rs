//! summarize:llm: the paraphrase of a container whose text does not fit the model's window. No language model is called
//! yet, so the task fails as a missing dependency, and the container settles with the weighted sum of its children's vectors.
use super::{Apply, OrTaskFailure, rollup::EMBEDDING};
use crate::{
    ingest::Tools,
    store::{self, evidence::Evidence},
};
use serde_json::json;
use svc_actors::{ErrorClass, Outcome, TaskFailure};

const MESSAGE: &str = "there is no language model to summarize the text: this version of the service does not summarize with the one that SVC_LLM_BASE_URL names";

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let mut conn = tools.pool.acquire().await.classified()?;
    let rollup = store::evidence::read_one(&mut conn, id, Evidence::Rollup).await.classified()?;
    let mut rollup = rollup.unwrap_or_else(|| json!({}));
    rollup["not_summarized"] = json!({"reason": MESSAGE, "embedding": EMBEDDING});
    let mut failure = TaskFailure::new(ErrorClass::Dependency, "no_language_model", MESSAGE);
    failure.evidence.insert(Evidence::Rollup.as_str().to_owned(), rollup);
    Err(failure)
}
