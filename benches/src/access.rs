//! What access costs a search: the same queries by the owner and by a principal who reads a tenth of the store.
use crate::{
    figure::{BoxError, Figure, Peer, median},
    markdown::Prose,
    sandbox::{Sandbox, TOKEN, interruptible},
    set_aside::SetAside,
    uploads,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use std::{path::Path, sync::Arc, time::Instant};
use svc::{
    app::App,
    embedding::Embedder,
    reader::Reader,
    search::bm25::{self, Text},
    store::{
        scope::Readable,
        search::Eligible,
        transaction,
        vectors::{self, Layout, Stored},
    },
};
use svc_client::{
    Client, Json, Remote,
    wire::{
        BatchItem, Bm25Search, DocumentPath, FulltextSearch, GrantPath, GrantRight, HybridSearch, NewApiToken,
        NewBatch, NewGrant, NewPrincipal, PrincipalKind, PrincipalPath, SearchResponse, VectorSearch,
    },
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::Cache;

/// The access roots, which cover the whole store, and how many of them the principal is granted.
const ROOTS: usize = 500;
const GRANTS: usize = 50;
const BATCH: usize = 2_000;
/// How many searches of each method run for each caller. Those that warm it up do not count: after a start the pages that the callers need are not in
/// the server's memory, and whoever reads a tenth of them looks at ten times as many for one result.
const SEARCHES: usize = 500;
const WARMING: usize = 150;
/// How many searches are compared with the exact answer, and how many results of each.
const COMPARED: usize = 30;
const NEAREST: u32 = 10;

/// What a filled store is searched with. A kept folder has it as a file, so that a store is filled once.
#[derive(Serialize, Deserialize)]
struct Filled {
    nodes: usize,
    /// The principal's token.
    token: String,
    /// The roots that the principal is granted.
    granted: Vec<DocumentId>,
}

pub async fn run(nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let mut settings = sandbox.settings()?;
    // The principal asks as fast as it is answered.
    settings.rate_costly = 0;
    let app = App::start(Arc::new(settings), TOKEN, Reader::of_this_program()).await?;
    let measured = interruptible(async {
        let client = uploads::client(&format!("http://{}", app.address))?;
        let filled = filled(&app, &client, sandbox.path(), nodes).await?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let reader = Client(Remote::new(&format!("http://{}", app.address), &filled.token, http));
        measure(&client, &reader, filled.nodes, out).await?;
        compare(&app, &client, &reader, &filled, out).await
    })
    .await;
    app.stop(std::future::pending()).await;
    measured
}

/// Fills the store, unless a run before has.
async fn filled(app: &App, client: &Client<Remote>, folder: &Path, nodes: usize) -> Result<Filled, BoxError> {
    let note = folder.join("access.json");
    if let Ok(known) = std::fs::read(&note) {
        return Ok(serde_json::from_slice(&known)?);
    }
    let (token, roots) = prepare(client).await?;
    let granted = roots.iter().step_by(ROOTS / GRANTS).map(|&id| DocumentId(id)).collect();
    fill(&app.service.pool, &roots, nodes).await?;
    let filled = Filled { nodes, token, granted };
    std::fs::write(note, serde_json::to_vec(&filled)?)?;
    Ok(filled)
}

/// Makes the folders, protects them, and grants some to a principal, whose token it returns.
async fn prepare(client: &Client<Remote>) -> Result<(String, Vec<i64>), BoxError> {
    let mut prose = Prose::new(2);
    // The first vector makes the model's index; the folders' vectors are what those of the nodes are made from.
    let folder =
        |number| BatchItem { title: format!("folder {number}"), content: prose.words(40), ..BatchItem::default() };
    let documents = (0..ROOTS).map(folder).collect();
    let batch = client.create_documents(Json(NewBatch { documents, priority: 0 })).await?;
    let roots: Vec<i64> = batch.documents.iter().map(|stored| stored.document_id).collect();
    for &id in &roots {
        client.protect_document(DocumentPath { id }).await?;
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
    for &id in &roots {
        uploads::settled(client, id).await?;
    }
    Ok((issued.secret, roots))
}

/// Stores the nodes under the folders as ingestion would: with words, a vector and postings.
async fn fill(pool: &PgPool, roots: &[i64], nodes: usize) -> Result<(), BoxError> {
    let folders: Vec<(String, Vec<f32>)> =
        sqlx::query_as("SELECT embed_model, embed::vector::real[] FROM document_vectors ORDER BY document_id")
            .fetch_all(pool)
            .await?;
    let (model, width) = folders.first().map(|(model, vector)| (model.clone(), vector.len())).ok_or("no vectors")?;
    let (index_id, name): (IndexId, String) =
        sqlx::query_as("SELECT id, name FROM search_indexes ORDER BY id LIMIT 1").fetch_one(pool).await?;
    let set_aside = SetAside::take(pool, &["document_words_words"]).await?;
    let cache = Cache::new(256 << 20);
    let space = Space::between(folders.into_iter().map(|(_, vector)| vector).collect());
    let mut prose = Prose::new(3);
    let mut random = SmallRng::seed_from_u64(5);
    for from in (0..nodes).step_by(BATCH) {
        let count = BATCH.min(nodes - from);
        let parents: Vec<i64> = (from..from + count).map(|number| roots[number * roots.len() / nodes]).collect();
        // Texts of one length would tie by the thousand, and a search looks at each text that ties with its last result.
        let texts: Vec<String> = (0..count).map(|_| prose.words(random.random_range(20..=60))).collect();
        let vectors: Vec<_> = (0..count).map(|_| Stored::new(&model, width, &space.draw(&mut random)).vector).collect();
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
            "INSERT INTO document_vectors (document_id, embed_model, embed, weight)
             SELECT v.id, $3, v.embed, 1 FROM unnest($1::bigint[], $2::halfvec[]) AS v(id, embed)",
        )
        .bind(&ids)
        .bind(&vectors)
        .bind(&model)
        .execute(pool)
        .await?;
        let text = |(&id, text): (&i64, String)| Text::new(DocumentId(id), "chunk", "", &text, &[]);
        let texts = ids.iter().zip(texts).map(text).collect();
        let prepared = bm25::prepare(pool, &cache, index_id, texts).await?;
        let mut tx = transaction::begin(pool).await?;
        bm25::append(&mut tx, &prepared).await?;
        tx.commit().await?;
        if (from / BATCH + 1).is_multiple_of(25) {
            eprintln!("bench: {} of {nodes} nodes", from + count);
        }
    }
    eprintln!("bench: the index `{name}` is compacted, and the words and vectors get theirs");
    bm25::compact(pool, index_id).await?;
    set_aside.restore(pool).await?;
    // Autovacuum has been at a store that nobody fills any more.
    sqlx::raw_sql("VACUUM (ANALYZE) documents, document_words, document_vectors, search_index_entries")
        .execute(pool)
        .await?;
    Ok(())
}

/// Where the vectors of the nodes lie. Those of real texts vary in ten to thirty directions and hardly in the others, and an HNSW index
/// finds its way among them; among vectors that vary evenly in all directions it does not.
struct Space {
    middle: Vec<f32>,
    directions: Vec<Vec<f32>>,
}

impl Space {
    const DIRECTIONS: usize = 20;

    /// The space around real vectors, in the directions from one to another.
    fn between(vectors: Vec<Vec<f32>>) -> Space {
        let mut middle = vec![0.0; vectors[0].len()];
        for vector in &vectors {
            middle.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x / vectors.len() as f32);
        }
        let from_to = |pair: &[Vec<f32>]| pair[0].iter().zip(&pair[1]).map(|(from, to)| to - from).collect();
        Space { middle, directions: vectors.chunks_exact(2).take(Space::DIRECTIONS).map(from_to).collect() }
    }

    fn draw(&self, random: &mut SmallRng) -> Vec<f32> {
        let mut vector = self.middle.clone();
        for direction in &self.directions {
            // The sum of three is nearly normal.
            let share: f32 = (0..3).map(|_| random.random_range(-0.3..0.3_f32)).sum();
            vector.iter_mut().zip(direction).for_each(|(x, step)| *x += share * step);
        }
        vector
    }
}

async fn measure(
    owner: &Client<Remote>,
    reader: &Client<Remote>,
    nodes: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    for method in ["vector", "bm25", "hybrid", "fulltext"] {
        let mut queries = Prose::new(7);
        let (mut owners, mut readers) = (Vec::new(), Vec::new());
        for number in 0..SEARCHES {
            let query = query(&mut queries);
            // The service keeps the vector of a query, so that neither waits for it.
            owner.search_vector(Json(VectorSearch { limit: 1, ..VectorSearch::new(&query) })).await?;
            // Whoever is first reads what the second finds in memory.
            let mut turns = [(owner, &mut owners), (reader, &mut readers)];
            if number % 2 == 1 {
                turns.swap(0, 1);
            }
            for (client, times) in turns {
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

/// Two words. Full text leaves out the shortest words, and wants all others in one text.
fn query(prose: &mut Prose) -> String {
    let words: Vec<String> = std::iter::repeat_with(|| prose.words(1)).filter(|word| word.len() > 5).take(2).collect();
    words.join(" ")
}

/// How much of the exact answer each caller's vector search finds.
async fn compare(
    app: &App,
    owner: &Client<Remote>,
    reader: &Client<Remote>,
    filled: &Filled,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let engine = app.service.embedder.as_ref().and_then(Embedder::engine).ok_or("the service has no model")?;
    let (model, width): (String, i32) =
        sqlx::query_as("SELECT embed_model, vector_dims(embed::vector) FROM document_vectors LIMIT 1")
            .fetch_one(&app.service.pool)
            .await?;
    let width = usize::try_from(width)?;
    let callers =
        [("the owner", owner, Readable::everything()), ("the principal", reader, Readable::under(&filled.granted))];
    for (name, client, scope) in callers {
        let eligible = Eligible { scope, ..Eligible::default() };
        let mut queries = Prose::new(11);
        let mut found = 0;
        for _ in 0..COMPARED {
            let query = query(&mut queries);
            let vector = engine.embed_query(query.clone()).await?;
            let results = search(client, "vector", &query).await?.results;
            let mut tx = transaction::begin_search(&app.service.pool).await?;
            let stored = Stored::new(&model, width, &vector);
            let layout = Layout::default();
            let nearest = vectors::exact(&mut tx, &eligible, &stored, i64::from(NEAREST), i64::MAX, &layout).await?;
            let nearest = nearest.ok_or("an exact search without a bound found a bound")?.ranked;
            tx.commit().await?;
            found += nearest.iter().filter(|(id, _)| results.iter().any(|result| result.document.id == id.0)).count();
        }
        let recall = found as f64 / (COMPARED * NEAREST as usize) as f64;
        out(Figure::alone(&format!("access/recall@{NEAREST} of {name}"), filled.nodes, "share", recall));
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
