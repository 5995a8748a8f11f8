//! Late interaction: the tokens of a query against those of a hundred documents, scored in process, in SQL, and by a search.
use crate::{
    figure::{BoxError, Figure, Peer, median},
    sandbox::with_app,
    uploads,
};
use sqlx::PgPool;
use std::time::{Duration, Instant};
use svc::app::App;
use svc_client::{
    Json,
    wire::{BatchItem, IndexCapabilities, MaxsimSearch, NewBatch, NewIndex},
};
use svc_models::{sum_of_nearest, unpack};

/// The widths that are stored and compared. The model needs at least as many components.
const WIDTHS: [usize; 2] = [256, 384];
/// The words of a document, each of which is a token, and the tokens of a query.
const WORDS: usize = 100;
const ASKED: usize = 32;
const ROUNDS: usize = 40;
/// The first ones warm up.
const WARMING: usize = 10;
/// How long the workers may take to make the token vectors.
const PATIENCE: Duration = Duration::from_secs(600);
const VOCABULARY: [&str; 24] = [
    "water", "bird", "river", "stone", "light", "house", "field", "winter", "ship", "iron", "paper", "bread", "music",
    "glass", "horse", "cloud", "garden", "market", "engine", "island", "letter", "summer", "window", "school",
];

pub async fn run(documents: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    for width in WIDTHS {
        let change = |settings: &mut svc::settings::Settings| {
            settings.token_top_percent = 1.0;
            settings.token_embed_dims = vec![width];
        };
        with_app(change, async |app| measure(app, documents, width, out).await).await?;
    }
    Ok(())
}

async fn measure(app: &App, documents: usize, width: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let (client, pool) = (uploads::client(&format!("http://{}", app.address))?, &app.service.pool);
    let index = NewIndex {
        name: "late".into(),
        k1: None,
        b: None,
        analyzer: None,
        title_weight: None,
        title_paths: None,
        capabilities: Some(IndexCapabilities { bm25: false, maxsim: true }),
        members: None,
    };
    client.create_index(Json(index)).await?;
    let text = |number: usize| {
        let words: Vec<&str> = (0..WORDS).map(|at| word(number * 31 + at * (number % 7 + 1))).collect();
        format!("{} {number}", words.join(" "))
    };
    let item = |number| BatchItem { title: "Bird".into(), content: text(number), ..BatchItem::default() };
    let batch = NewBatch { documents: (0..documents).map(item).collect(), priority: 0 };
    for stored in client.create_documents(Json(batch)).await?.documents {
        uploads::settled(&client, stored.document_id).await?;
    }
    let packs = packs(pool, documents).await?;
    let tokens = packs.iter().map(|(_, pack)| pack.len() / 2 / width).sum::<usize>() / packs.len().max(1);
    eprintln!("bench: {} documents with {tokens} tokens of {width} numbers each", packs.len());
    let query: Vec<f32> = packs.first().map(|(_, pack)| unpack(pack)).unwrap_or_default();
    let query = query.get(..ASKED * width).ok_or("the first document has too few tokens")?;
    let ids: Vec<i64> = packs.iter().map(|(id, _)| *id).collect();
    let rows: Vec<String> = query.chunks_exact(width).map(|row| format!("{row:?}")).collect();

    let (mut scored, mut fetched, mut in_sql, mut searched) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let best = best(packs.iter().map(|(id, pack)| (*id, sum_of_nearest(query, &unpack(pack), width))));
        let score = milliseconds(begun);
        let begun = Instant::now();
        let read: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT document_id, vectors FROM token_packs WHERE document_id = ANY($1)")
                .bind(&ids)
                .fetch_all(pool)
                .await?;
        let again = self::best(read.iter().map(|(id, pack)| (*id, sum_of_nearest(query, &unpack(pack), width))));
        let fetch = milliseconds(begun);
        let begun = Instant::now();
        let theirs = by_sql(pool, width, &ids, &rows).await?;
        let sql = milliseconds(begun);
        if (best, again) != (theirs, theirs) {
            return Err(format!("the best is {best}, {again}, and in SQL {theirs}").into());
        }
        let begun = Instant::now();
        let body = MaxsimSearch {
            include_content: false,
            ..MaxsimSearch::new(&text(round).chars().take(200).collect::<String>())
        };
        let found = client.search_maxsim(Json(body)).await?;
        let search = milliseconds(begun);
        if found.results.is_empty() || found.results.iter().any(|result| result.no_tokens) {
            return Err("a search found nothing, or a document without token vectors".into());
        }
        if round >= WARMING {
            scored.push(score);
            fetched.push(fetch);
            in_sql.push(sql);
            searched.push(search);
        }
    }
    let version: String =
        sqlx::query_scalar("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetch_one(pool).await?;
    let sql = median(&mut in_sql);
    let peer = || Peer { name: "pgvector in SQL", version: version.clone().into(), value: sql };
    let name = |what: &str| format!("maxsim/{what} p50, {ASKED} tokens against {tokens} of each, {width} wide");
    out(Figure::beside(&name("score"), packs.len(), "ms", median(&mut scored), peer()));
    out(Figure::beside(&name("fetch and score"), packs.len(), "ms", median(&mut fetched), peer()));
    out(Figure::beside(&name("search over HTTP"), packs.len(), "ms", median(&mut searched), peer()));
    Ok(())
}

fn word(at: usize) -> &'static str {
    VOCABULARY[at % VOCABULARY.len()]
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The document with the highest score. The query is a part of one document, so no other document is as near.
fn best(scores: impl Iterator<Item = (i64, f64)>) -> i64 {
    scores.max_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(id, _)| id)
}

/// The token vectors of all documents, as soon as this many documents have them.
async fn packs(pool: &PgPool, documents: usize) -> Result<Vec<(i64, Vec<u8>)>, BoxError> {
    let begun = Instant::now();
    loop {
        let packs: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT document_id, vectors FROM token_packs ORDER BY document_id").fetch_all(pool).await?;
        if packs.len() >= documents {
            return Ok(packs);
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{} of {documents} documents have token vectors", packs.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The same in SQL, from the rows of tokens.
async fn by_sql(pool: &PgPool, width: usize, ids: &[i64], query: &[String]) -> Result<i64, BoxError> {
    let statement = "WITH q AS MATERIALIZED (SELECT u.n, u.v::halfvec AS v FROM unnest($2::text[]) WITH ORDINALITY AS u(v, n))
                     SELECT s.document_id FROM (
                         SELECT t.document_id, q.n, max(-(t.embed_{width} <#> q.v)) AS best
                           FROM token_embeddings t CROSS JOIN q WHERE t.document_id = ANY($1) GROUP BY t.document_id, q.n) s
                      GROUP BY s.document_id ORDER BY sum(s.best) DESC LIMIT 1"
        .replace("{width}", &width.to_string());
    Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).bind(ids).bind(query).fetch_one(pool).await?)
}
