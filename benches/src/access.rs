//! What access costs a search: the same queries by the owner and by a principal who reads a tenth of the store.
use crate::{
    figure::{BoxError, Figure, Peer, median},
    markdown::Prose,
    sandbox::{Sandbox, interruptible},
    service_process::ServiceProcess,
    uploads,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use sqlx::PgPool;
use std::{fmt::Write as _, time::Instant};
use svc::{
    app::Backend,
    search::bm25::{self, Text},
    store::transaction,
};
use svc_client::{
    Client, Json, Remote,
    wire::{
        Bm25Search, DocumentPath, FulltextSearch, GrantPath, GrantRight, HybridSearch, NewApiToken, NewDocument,
        NewGrant, NewPrincipal, PrincipalKind, PrincipalPath, SearchResponse, VectorSearch, WaitQuery,
    },
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::Cache;

/// The access roots, which cover the whole store, and how many of them the principal is granted.
const ROOTS: usize = 500;
const GRANTS: usize = 50;
/// The width of the vectors of the model that `make setup` brings.
const WIDTH: usize = 384;
const BATCH: usize = 1_000;
/// How many searches of each method run for each caller; the first ones, which warm it up, do not count.
const SEARCHES: usize = 60;
const WARMING: usize = 10;

pub async fn run(nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    // The first start makes what a store has before its nodes: the indexes, the roots and the principal.
    let mut service = ServiceProcess::start(&sandbox)?;
    let prepared = interruptible(prepare(&mut service)).await;
    let stopped = service.stop().await;
    let (token, roots) = prepared?;
    stopped?;

    let backend = Backend::start(&sandbox.settings()?).await?;
    let filled = interruptible(fill(&backend.pool, &roots, nodes)).await;
    backend.stop().await;
    filled?;

    let mut service = ServiceProcess::start(&sandbox)?;
    let measured = interruptible(measure(&mut service, &token, nodes, out)).await;
    let stopped = service.stop().await;
    measured.and(stopped)
}

/// Makes the folders, protects them, and grants some to a principal, whose token it returns.
async fn prepare(service: &mut ServiceProcess) -> Result<(String, Vec<i64>), BoxError> {
    let client = uploads::client(&service.base().await?)?;
    let mut roots = Vec::with_capacity(ROOTS);
    for number in 0..ROOTS {
        let folder = serde_json::json!({"title": format!("folder {number}"), "content": "a folder"});
        let folder: NewDocument = serde_json::from_value(folder)?;
        // The first vector makes the model's index.
        let query = WaitQuery { wait: number == 0, ..WaitQuery::default() };
        let id = client.create_document(query, Json(folder)).await?.document.id;
        client.protect_document(DocumentPath { id }).await?;
        roots.push(id);
    }
    let reader = NewPrincipal { name: "reader".to_owned(), kind: PrincipalKind::User };
    let reader = client.create_principal(Json(reader)).await?.id;
    for id in roots.iter().step_by(ROOTS / GRANTS) {
        let path = GrantPath { id: *id, principal_id: reader };
        client.put_grant(path, Json(NewGrant { right: GrantRight::Read })).await?;
    }
    let issued = client
        .issue_api_token(PrincipalPath { id: reader }, Json(NewApiToken { name: "bench".to_owned(), expires_at: None }))
        .await?;
    Ok((issued.secret, roots))
}

/// Stores the nodes under the folders as ingestion would: with words, a vector and postings.
async fn fill(pool: &PgPool, roots: &[i64], nodes: usize) -> Result<(), BoxError> {
    let (model,): (String,) =
        sqlx::query_as("SELECT embed_model FROM document_vectors LIMIT 1").fetch_one(pool).await?;
    let (index_id, name): (IndexId, String) =
        sqlx::query_as("SELECT id, name FROM search_indexes ORDER BY id LIMIT 1").fetch_one(pool).await?;
    let hnsw: Vec<(String, String)> = sqlx::query_as(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'document_vectors' AND indexdef LIKE '%hnsw%'",
    )
    .fetch_all(pool)
    .await?;
    let (drop, create) = hnsw
        .first()
        .map(|(name, make)| (format!("DROP INDEX {name}"), make.clone()))
        .ok_or("the model has no index")?;
    // An index that is made at the end is made faster.
    sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(pool).await?;
    let cache = Cache::new(256 << 20);
    let mut prose = Prose::new(3);
    let mut random = SmallRng::seed_from_u64(5);
    let centres: Vec<Vec<f32>> =
        (0..400).map(|_| (0..WIDTH).map(|_| random.random_range(-1.0..1.0)).collect()).collect();
    for from in (0..nodes).step_by(BATCH) {
        let count = BATCH.min(nodes - from);
        let parents: Vec<i64> = (from..from + count).map(|number| roots[number * roots.len() / nodes]).collect();
        let texts: Vec<String> = (0..count).map(|_| prose.words(40)).collect();
        let vectors: Vec<String> = (0..count)
            .map(|_| {
                let centre = &centres[random.random_range(0..centres.len())];
                let mut text = String::with_capacity(WIDTH * 6);
                for (at, x) in centre.iter().enumerate() {
                    // Writing to a String cannot fail.
                    let _ = write!(
                        text,
                        "{}{:.2}",
                        if at == 0 { "[" } else { "," },
                        x + random.random_range(-0.7..0.7_f32)
                    );
                }
                text + "]"
            })
            .collect();
        let ids: Vec<i64> = sqlx::query_scalar(
            "WITH made AS (
                 INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
                 SELECT parent, ARRAY[parent], 'part', content, 'chunk', 'sha256:' || md5(content), parent
                   FROM unnest($1::bigint[], $2::text[]) AS n(parent, content) RETURNING id, parent_id, title, content),
             words AS (
                 INSERT INTO document_words (document_id, words)
                 SELECT id, to_tsvector('english', title || E'\\n' || content) FROM made)
             SELECT id FROM made ORDER BY id",
        )
        .bind(&parents)
        .bind(&texts)
        .fetch_all(pool)
        .await?;
        sqlx::query(
            "INSERT INTO document_vectors (document_id, embed_model, embed)
             SELECT v.id, $3, v.embed::halfvec FROM unnest($1::bigint[], $2::text[]) AS v(id, embed)",
        )
        .bind(&ids)
        .bind(&vectors)
        .bind(&model)
        .execute(pool)
        .await?;
        let texts = ids.iter().zip(texts).map(|(&id, text)| Text { document_id: DocumentId(id), text }).collect();
        let prepared = bm25::prepare(pool, &cache, index_id, texts).await?;
        let mut tx = transaction::begin(pool).await?;
        bm25::append(&mut tx, &prepared).await?;
        tx.commit().await?;
        if (from / BATCH + 1).is_multiple_of(50) {
            eprintln!("bench: {} of {nodes} nodes", from + count);
        }
    }
    eprintln!("bench: the index `{name}` is compacted, and the vectors get theirs");
    bm25::compact(pool, index_id).await?;
    let mut conn = pool.acquire().await?;
    sqlx::raw_sql(
        "SET maintenance_work_mem = '3GB'; SET max_parallel_maintenance_workers = 2; SET statement_timeout = 0",
    )
    .execute(&mut *conn)
    .await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut *conn).await?;
    sqlx::raw_sql("VACUUM ANALYZE").execute(&mut *conn).await?;
    // The settings above are not for whoever takes this connection next.
    conn.close().await?;
    Ok(())
}

async fn measure(
    service: &mut ServiceProcess,
    token: &str,
    nodes: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let base = service.base().await?;
    let owner = uploads::client(&base)?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let reader = Client(Remote::new(&base, token, http));
    for method in ["vector", "fulltext", "bm25", "hybrid"] {
        let mut prose = Prose::new(7);
        let (mut owners, mut readers) = (Vec::new(), Vec::new());
        for number in 0..SEARCHES {
            // Full text leaves out the shortest words, and wants all others in one text.
            let query: Vec<String> =
                std::iter::repeat_with(|| prose.words(1)).filter(|word| word.len() > 5).take(2).collect();
            let query = query.join(" ");
            for (client, times) in [(&owner, &mut owners), (&reader, &mut readers)] {
                let start = Instant::now();
                let found = search(client, method, &query).await?.results.len();
                if number >= WARMING {
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                if found == 0 {
                    return Err(format!("{method} search for `{query}` finds nothing").into());
                }
            }
        }
        let peer = Peer { name: "the owner", version: env!("CARGO_PKG_VERSION").into(), value: median(&mut owners) };
        let name = format!("access/{method}, {GRANTS} of {ROOTS} roots");
        out(Figure::beside(&name, nodes, "ms", median(&mut readers), peer));
    }
    Ok(())
}

async fn search(client: &Client<Remote>, method: &str, query: &str) -> Result<SearchResponse, BoxError> {
    Ok(match method {
        "vector" => client.search_vector(Json(VectorSearch::new(query))).await?,
        "fulltext" => client.search_fulltext(Json(FulltextSearch::new(query))).await?,
        "bm25" => client.search_bm25(Json(Bm25Search::new(query))).await?,
        _ => client.search_hybrid(Json(HybridSearch::new(query))).await?,
    })
}
