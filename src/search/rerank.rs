//! The second stage ranks the candidates of the first by a closer look. If that is impossible, the request fails.
use super::{Ranked, maxsim};
use crate::{
    core::Core,
    error::OrFail,
    store::{self, scope::Readable},
};
use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
};
use svc_client::{Code, Failure, wire::RerankMethod};
use svc_ids::DocumentId;
use svc_models::ModelError;

/// How many characters of a candidate are read: more than fit the window of any cross-encoder.
const BEGINNING: i32 = 1 << 16;

/// The 501 with its remedy. Where the model's files are is only for the log.
fn not_there(error: &ModelError) -> Failure {
    tracing::warn!(error = %error, "the reranker cannot run");
    let (detail, remedy) = match error {
        ModelError::FolderMissing { name, .. } => {
            (format!("the reranker `{name}` is not on this machine"), Some(format!("svc models fetch {name}")))
        }
        _ => ("the reranker cannot run; the log has the cause under this request's id".to_owned(), None),
    };
    let failure = Failure::new(Code::NotConfigured, detail).with("setting", "SVC_RERANKER_MODEL");
    match remedy {
        Some(remedy) => failure.with("remedy", remedy),
        None => failure,
    }
}

/// The candidates in their new order, the best first, and those that could not be compared because they have no token
/// vectors.
pub(super) async fn run(
    core: &Core,
    scope: &Readable,
    method: RerankMethod,
    query: &str,
    ids: &[DocumentId],
) -> Result<(Ranked, HashSet<DocumentId>), Failure> {
    match method {
        RerankMethod::CrossEncoder => {
            let reranker = core.cross_encoder.get(core.beside()).await.map_err(|error| not_there(&error))?;
            let mut conn = core.pool.acquire().await.or_fail()?;
            let read = store::documents::beginnings(&mut conn, scope, ids, BEGINNING).await.or_fail()?;
            drop(conn);
            let mut read: HashMap<DocumentId, String> =
                read.iter().map(|read| (read.id, super::text(&read.usetype, &read.title, &read.text))).collect();
            // They are in the order of the first stage, without those deleted meanwhile.
            let (ids, texts): (Vec<DocumentId>, Vec<String>) =
                ids.iter().filter_map(|id| Some((*id, read.remove(id)?))).unzip();
            let scores = reranker.score(query, texts).await.or_fail()?;
            let scored = ids.into_iter().zip(scores.into_iter().map(f64::from)).collect();
            Ok((best_first(scored, &HashSet::new()), HashSet::new()))
        }
        RerankMethod::Maxsim => by_tokens(core, query, ids).await.map_err(|failure| match failure.code {
            Code::TextTooLong => failure.with("remedy", "ask in fewer words, or rank again by the cross-encoder"),
            _ => failure,
        }),
    }
}

/// Ranks by late interaction; documents without token vectors come last, in the order of the first stage.
pub(super) async fn by_tokens(
    core: &Core,
    query: &str,
    ids: &[DocumentId],
) -> Result<(Ranked, HashSet<DocumentId>), Failure> {
    let scores = maxsim::scores(core, query, ids).await?;
    let no_tokens: HashSet<DocumentId> = ids.iter().copied().filter(|id| !scores.contains_key(id)).collect();
    let scored = ids.iter().map(|id| (*id, scores.get(id).copied().unwrap_or(0.0))).collect();
    Ok((best_first(scored, &no_tokens), no_tokens))
}

/// The sort is stable, so equals keep the order of the first stage.
fn best_first(mut scored: Ranked, last: &HashSet<DocumentId>) -> Ranked {
    scored.sort_by(|left, right| match last.contains(&left.0).cmp(&last.contains(&right.0)) {
        Ordering::Equal => right.1.total_cmp(&left.1),
        other => other,
    });
    scored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_equals_as_they_came_and_what_has_no_tokens_last() {
        let scored =
            [(1, 0.0), (2, -0.5), (3, 0.7), (4, 0.0), (5, 0.7)].map(|(id, score)| (DocumentId(id), score)).to_vec();
        let places = |last: &[i64]| -> Vec<i64> {
            let last = last.iter().copied().map(DocumentId).collect();
            best_first(scored.clone(), &last).into_iter().map(|(id, _)| id.0).collect()
        };
        assert_eq!(places(&[]), [3, 5, 1, 4, 2]);
        assert_eq!(places(&[1, 4]), [3, 5, 2, 1, 4], "a bad score is better than none");
    }
}
