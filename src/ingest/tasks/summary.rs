//! summarize:llm: the paraphrase of a container whose text does not fit the model's window. No language model is called yet, so the task
//! fails as a missing dependency, and the container settles with the mean of its children's vectors.
use super::{Apply, OrTaskFailure};
use crate::{
    ingest::Tools,
    store::{self, evidence::Evidence},
};
use serde_json::json;
use svc_actors::{ErrorClass, Outcome, TaskFailure};

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let settings = &tools.settings;
    let missing = [("SVC_LLM_BASE_URL", &settings.llm_base_url), ("SVC_LLM_MODEL", &settings.llm_model)];
    let message = match missing.iter().find(|(_, value)| value.is_empty()) {
        Some((setting, _)) => format!("no language model is configured: {setting} is not set"),
        None => "this version of the service does not call the language model of SVC_LLM_BASE_URL yet".to_owned(),
    };
    let mut conn = tools.pool.acquire().await.classified()?;
    let mut rollup =
        store::evidence::read_one(&mut conn, id, Evidence::Rollup).await.classified()?.unwrap_or(json!({}));
    rollup["not_summarized"] = json!({"reason": message, "embedding": "mean of the children's vectors"});
    let mut failure = TaskFailure::new(ErrorClass::Dependency, "no_language_model", message);
    failure.evidence.insert(Evidence::Rollup.as_str().to_owned(), rollup);
    Err(failure)
}
