//! Many searches in one call.
use super::{auto::auto_by, bm25, fulltext, hybrid, maxsim, vector};
use crate::{access::Caller, core::Core, store};
use std::{sync::Arc, time::Instant};
use svc_client::{
    Code, Failure,
    wire::{
        AutoSearch, Bm25Search, FulltextSearch, GroupBy, HybridSearch, MaxsimSearch, SearchBatch, SearchBatchResponse,
        SearchMethod, SearchResponse, VectorSearch,
    },
};

/// Searches by the method that is named, or by one that suits the query and then groups by `unnamed` unless the body or its context says otherwise.
/// `body` has what the method knows.
pub async fn by_any(
    core: &Core,
    caller: &Caller,
    method: Option<SearchMethod>,
    unnamed: GroupBy,
    min_similarity: Option<f64>,
    body: AutoSearch,
) -> Result<SearchResponse, Failure> {
    let (context, group_by) = (body.context.clone(), body.group_by);
    // Each search is large, so it lies apart from this one.
    match method {
        None => Box::pin(auto_by(core, caller, body, unnamed)).await,
        Some(SearchMethod::Vector) => {
            let body = VectorSearch { context, group_by, min_similarity, ..body.into() };
            Box::pin(vector(core, caller, body)).await
        }
        Some(SearchMethod::Fulltext) => {
            Box::pin(fulltext(core, caller, FulltextSearch { context, group_by, ..body.into() })).await
        }
        Some(SearchMethod::Bm25) => Box::pin(bm25(core, caller, Bm25Search { context, group_by, ..body.into() })).await,
        Some(SearchMethod::Maxsim) => {
            Box::pin(maxsim(core, caller, MaxsimSearch { context, group_by, ..body.into() })).await
        }
        Some(SearchMethod::Hybrid) => {
            Box::pin(hybrid(core, caller, HybridSearch { context, group_by, ..body.into() })).await
        }
    }
}

/// Answers each search as if it were asked alone, one after the other.
pub async fn batch(core: &Core, caller: &Caller, body: SearchBatch) -> SearchBatchResponse {
    let started = Instant::now();
    let by_words = |method| matches!(method, Some(SearchMethod::Fulltext | SearchMethod::Bm25));
    let queries: Vec<&str> =
        body.searches.iter().filter(|search| !by_words(search.method)).map(|search| search.query.as_str()).collect();
    // If one of them cannot be embedded, each search embeds its own, and that one alone fails.
    if let Ok(model) = core.model().await
        && let Err(error) = core.queries.learn(&model, &queries).await
    {
        tracing::debug!(%error, "the queries of a batch are embedded one by one");
    }
    let mut settings = (*core.settings).clone();
    settings.page_bytes /= body.searches.len().max(1) as u64;
    let core = Core { settings: Arc::new(settings), ..core.clone() };
    let mut answers = Vec::with_capacity(body.searches.len());
    for search in body.searches {
        let (method, min_similarity) = (search.method, search.min_similarity);
        let answer = Box::pin(by_any(&core, caller, method, GroupBy::File, min_similarity, search.into())).await;
        // What a standby lacks the primary may have, as where the search is asked alone.
        if answer.as_ref().is_err_and(|failure| failure.code != Code::TooManyRequests) {
            store::replicas::note_failure();
        }
        answers.push(answer.into());
    }
    SearchBatchResponse { answers, latency_ms: started.elapsed().as_secs_f64() * 1e3 }
}
