//! Finding documents: ranking is pure, SQL stays in the store, and every leg holds the same filter.
pub mod bm25;
pub mod fusion;

use crate::{
    access::Caller,
    error::OrFail,
    service::Service,
    store::{
        self,
        search::{EXACT_LIMIT, Eligible},
    },
};
use bm25::{Allowed, Verified, Verify};
use pgvector::Vector;
use sqlx::{Connection, PgConnection};
use std::{collections::HashMap, time::Instant};
use svc_client::{
    Code, Failure,
    wire::{
        Bm25Search, FulltextSearch, HybridSearch, Legs, ScopeState, SearchFilter, SearchResponse, SearchResult,
        VectorSearch,
    },
};

/// Results that a leg of a hybrid search contributes, at least.
const LEG_DEPTH: u32 = 100;

/// Documents by score, best first.
type Ranked = Vec<(i64, f64)>;

/// By cosine similarity.
pub async fn vector(service: &Service, caller: &Caller, body: VectorSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(service, caller, body.parent_id, body.usetype, body.filter);
    let mut ranked = vector_leg(service, &eligible, &body.query, body.limit).await?;
    if let Some(least) = body.min_similarity {
        ranked.retain(|(_, score)| *score >= least);
    }
    respond(service, &eligible, "vector", started, ranked, HashMap::new()).await
}

/// By PostgreSQL full text.
pub async fn fulltext(service: &Service, caller: &Caller, body: FulltextSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(service, caller, body.parent_id, body.usetype, body.filter);
    let mut tx = service.pool.begin().await.or_fail()?;
    store::search::prepare(&mut tx).await.or_fail()?;
    let ranked = store::search::fulltext(&mut tx, &eligible, &without_nul(&body.query), i64::from(body.limit))
        .await
        .or_fail()?;
    tx.commit().await.or_fail()?;
    respond(service, &eligible, "fulltext", started, ranked, HashMap::new()).await
}

/// By BM25.
pub async fn bm25(service: &Service, caller: &Caller, body: Bm25Search) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(service, caller, body.parent_id, body.usetype, body.filter);
    let ranked = bm25_leg(service, &eligible, body.index.as_deref(), &body.query, body.limit).await?;
    respond(service, &eligible, "bm25", started, ranked, HashMap::new()).await
}

/// By rank fusion of both.
pub async fn hybrid(service: &Service, caller: &Caller, body: HybridSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(service, caller, body.parent_id, body.usetype, body.filter);
    let depth = LEG_DEPTH.max(body.limit);
    let (vector, bm25) = tokio::try_join!(
        vector_leg(service, &eligible, &body.query, depth),
        bm25_leg(service, &eligible, body.index.as_deref(), &body.query, depth)
    )?;
    let fused = fusion::fuse(&vector, &bm25, fusion::weights(body.weights), body.limit as usize);
    let legs = fused.iter().map(|result| (result.document_id, result.legs)).collect();
    let ranked = fused.iter().map(|result| (result.document_id, result.score)).collect();
    respond(service, &eligible, "hybrid", started, ranked, legs).await
}

fn eligible(
    service: &Service,
    caller: &Caller,
    parent_id: Option<i64>,
    usetypes: Option<Vec<String>>,
    filter: Option<SearchFilter>,
) -> Eligible {
    let filter = filter.unwrap_or_default();
    Eligible {
        scope: caller.scope(),
        parent_id,
        usetypes,
        excluded_usetypes: service.settings.search_exclude_usetypes.clone(),
        event_time: (filter.event_time_from, filter.event_time_until),
        created_at: (filter.created_at_from, filter.created_at_until),
        structured_content: filter.structured_content.map(serde_json::Value::Object),
    }
}

/// PostgreSQL's text takes no NUL, and no word has one.
fn without_nul(query: &str) -> String {
    query.replace('\0', " ")
}

async fn vector_leg(service: &Service, eligible: &Eligible, query: &str, limit: u32) -> Result<Ranked, Failure> {
    let engine = service.engine()?;
    let embedded = Vector::from(engine.embed_query(query.to_owned()).await.or_fail()?);
    let (model, limit) = (&engine.info().identity, i64::from(limit));
    let mut tx = service.pool.begin().await.or_fail()?;
    store::search::prepare(&mut tx).await.or_fail()?;
    let count = store::search::count(&mut tx, eligible).await.or_fail()?;
    let mut ranked = Vec::new();
    if count > EXACT_LIMIT {
        ranked = store::search::vector_approximate(&mut tx, eligible, model, &embedded, limit).await.or_fail()?;
    }
    // The index may come back short behind a filter: a search returns `limit` results whenever that many exist.
    if (ranked.len() as i64) < limit.min(count) {
        ranked = store::search::vector_exact(&mut tx, eligible, model, &embedded, limit).await.or_fail()?;
    }
    tx.commit().await.or_fail()?;
    Ok(ranked)
}

struct StillEligible<'a>(&'a Eligible);
impl Verify for StillEligible<'_> {
    fn verify<'a>(&'a self, conn: &'a mut PgConnection, ids: &'a [i64]) -> Verified<'a> {
        Box::pin(store::search::verify(conn, self.0, ids))
    }
}

async fn bm25_leg(
    service: &Service,
    eligible: &Eligible,
    index: Option<&str>,
    query: &str,
    limit: u32,
) -> Result<Ranked, Failure> {
    let name = index.unwrap_or("default");
    let mut conn = service.pool.acquire().await.or_fail()?;
    let index = store::indexes::by_name(&mut conn, name).await.or_fail()?;
    let index =
        index.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no index `{name}`")).with("index", name))?;
    let narrow = narrow(&mut conn, eligible).await.or_fail()?;
    let verify = StillEligible(eligible);
    let allowed = match narrow {
        Some(ids) => Allowed::Ids(ids),
        None => Allowed::Verify(&verify),
    };
    let hits = bm25::search(&mut conn, &service.postings, index.id, query, limit as usize, allowed).await.or_fail()?;
    Ok(hits.into_iter().map(|hit| (hit.document_id, hit.score)).collect())
}

/// The eligible ids where a filter leaves few; a filter that leaves many is checked on the results instead.
async fn narrow(conn: &mut PgConnection, eligible: &Eligible) -> sqlx::Result<Option<Vec<i64>>> {
    let filtered = !eligible.scope.everything
        || eligible.parent_id.is_some()
        || eligible.usetypes.is_some()
        || eligible.structured_content.is_some();
    if !filtered {
        return Ok(None);
    }
    let mut tx = conn.begin().await?;
    store::search::prepare(&mut tx).await?;
    let few = store::search::count(&mut tx, eligible).await? <= EXACT_LIMIT;
    let ids = if few { Some(store::search::ids(&mut tx, eligible).await?) } else { None };
    tx.commit().await?;
    Ok(ids)
}

async fn respond(
    service: &Service,
    eligible: &Eligible,
    method: &str,
    started: Instant,
    ranked: Ranked,
    legs: HashMap<i64, Legs>,
) -> Result<SearchResponse, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let ids: Vec<i64> = ranked.iter().map(|(id, _)| *id).collect();
    let rows = store::documents::read_many(&mut conn, &eligible.scope, &ids, false).await.or_fail()?;
    let (in_flight, failed) =
        store::documents::unsettled(&mut conn, &eligible.scope, eligible.parent_id).await.or_fail()?;
    let mut documents: HashMap<i64, _> = rows.into_iter().map(|row| (row.id, row)).collect();
    let results: Vec<SearchResult> = ranked
        .into_iter()
        .filter_map(|(id, score)| {
            Some(SearchResult { document: documents.remove(&id)?.into(), score, legs: legs.get(&id).copied() })
        })
        .collect();
    Ok(SearchResponse {
        total: results.len() as u64,
        results,
        latency_ms: started.elapsed().as_secs_f64() * 1e3,
        method: method.to_owned(),
        scope_state: ScopeState { in_flight, failed },
    })
}
