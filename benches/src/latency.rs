//! What eight clients at a time wait for searches, over HTTP and in process, beside bare SQL of pgvector on the same store, by the same index
//! and with the same parameters; and how that grows from a tenth of the store to the whole of it.
use crate::{
    encoder::cranfield::Cranfield,
    figure::{BoxError, Figure, Peer, median, p95},
    sandbox::with_app,
    sealed::{self, Counted},
    sentences::{Node, Sentences},
    set_aside::SetAside,
    uploads,
};
use futures_util::{FutureExt, future::BoxFuture};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgConnectOptions};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use svc::{
    access::Caller,
    app::App,
    embedding::Embedder,
    registry::InProcess,
    store::{indexes, vectors::Stored},
};
use svc_client::{
    Client, Json, Remote, Transport, ops,
    wire::{BatchItem, Bm25Search, HybridSearch, LegPlan, LegWay, NewBatch, SearchMethod, VectorSearch},
};
use svc_ids::DocumentId;
use svc_ranking::Analyzer;

const CLIENTS: usize = 8;
/// How often each question is asked in each way. The ways take turns, so that other work of the machine affects all of them.
const ROUNDS: usize = 5;
const FOLDERS: usize = 20;
const BATCH: usize = 5_000;
const RESULTS: usize = 10;
/// How long the service still uses what the planner expected of the smaller store.
const EXPECTED: Duration = Duration::from_secs(31);

struct Question {
    text: String,
    vector: Vec<f32>,
}

/// Asks the question of this number, and fails if nothing is found.
type Ask = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// The value of each figure in the smaller store.
type Values = HashMap<String, f64>;

pub async fn run(nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    // The clients ask as fast as the service answers, so it must not limit their rate.
    with_app(|settings| settings.rate_costly = 0, async |app: &App| both(app, nodes, out).await).await
}

async fn both(app: &App, nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let cranfield = Cranfield::read()?;
    let client = uploads::client(&format!("http://{}", app.address))?;
    let folder =
        |number| BatchItem { title: format!("Folder {number}"), content: "A part.".into(), ..BatchItem::default() };
    let documents = (0..FOLDERS).map(folder).collect();
    // The first vector makes the model's index.
    let mut folders = Vec::new();
    for stored in client.create_documents(Json(NewBatch { documents, priority: 0 })).await?.documents {
        uploads::settled(&client, stored.document_id).await?;
        folders.push(stored.document_id);
    }
    let mut sentences = Sentences::embed(app, &cranfield).await?;
    let engine = app.service.embedder.as_ref().and_then(Embedder::engine).ok_or("the service has no model")?;
    let mut questions = Vec::new();
    for text in &cranfield.questions {
        questions.push(Question { text: text.clone(), vector: engine.embed_query(text.clone()).await? });
    }
    let questions: Arc<[Question]> = questions.into();

    let tenth = nodes / 10;
    fill(app, &mut sentences, &folders, (0, tenth)).await?;
    let before = measure(app, &sentences, &questions, tenth, out).await?;
    let measured = Instant::now();
    fill(app, &mut sentences, &folders, (tenth, nodes)).await?;
    tokio::time::sleep(EXPECTED.saturating_sub(measured.elapsed())).await;
    let after = measure(app, &sentences, &questions, nodes, out).await?;
    let mut growth: Vec<(&String, f64)> =
        after.iter().filter_map(|(name, value)| Some((name, value / before.get(name)?))).collect();
    growth.sort_unstable_by_key(|(name, _)| *name);
    for (name, times) in growth {
        out(Figure::alone(&format!("{name}, growth from {tenth}"), nodes, "times", times));
    }
    Ok(())
}

/// Stores the nodes of these numbers as ingestion would: with vectors and postings.
async fn fill(
    app: &App,
    sentences: &mut Sentences,
    folders: &[i64],
    (from, to): (usize, usize),
) -> Result<(), BoxError> {
    let pool = &app.service.pool;
    let mut conn = pool.acquire().await?;
    let index = indexes::by_name(&mut conn, indexes::DEFAULT).await?.ok_or("the service has no index of words")?;
    drop(conn);
    let analyzer = Analyzer::new(index.config.0.analyzer);
    let set_aside = SetAside::take(pool, &[]).await?;
    let mut places: HashMap<Box<str>, u32> = HashMap::new();
    let mut texts = Vec::with_capacity(to - from);
    for (batch, start) in (from..to).step_by(BATCH).enumerate() {
        let mut made: Vec<Node> = Vec::with_capacity(BATCH);
        for number in start..to.min(start + BATCH) {
            made.push(sentences.node(sentences.about(number), folders[number % folders.len()]));
        }
        let ids = sentences.store(pool, &made).await?;
        for (id, node) in ids.into_iter().zip(&made) {
            let bag = analyzer.bag(&node.text);
            let mut terms = Vec::with_capacity(bag.terms.len());
            for (term, tf) in bag.terms {
                let next = u32::try_from(places.len())?;
                terms.push((*places.entry(term).or_insert(next), tf));
            }
            texts.push(Counted { id: DocumentId(id), length: bag.length, terms });
        }
        if (batch + 1).is_multiple_of(10) {
            eprintln!("bench: {} of {to} nodes", start + made.len());
        }
    }
    eprintln!("bench: the postings are written");
    let mut names = vec![""; places.len()];
    for (name, place) in &places {
        names[*place as usize] = name;
    }
    sealed::append(pool, index.id, &names, &texts).await?;
    eprintln!("bench: the vectors get their index");
    set_aside.restore(pool).await
}

async fn measure(
    app: &App,
    sentences: &Sentences,
    questions: &Arc<[Question]>,
    size: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<Values, BoxError> {
    let far: Arc<Client<Remote>> = Arc::new(uploads::client(&format!("http://{}", app.address))?);
    let near = Arc::new(Client(InProcess { service: app.service.clone(), caller: Caller::Owner }));
    let version: String = sqlx::query_scalar("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        .fetch_one(&app.service.pool)
        .await?;
    let mut values = Values::new();
    let mut tell = |name: String, value: f64, peer: Option<f64>| {
        let peer = peer.map(|value| Peer { name: "pgvector in bare SQL", version: version.clone().into(), value });
        out(match peer {
            Some(peer) => Figure::beside(&name, size, "ms", value, peer),
            None => Figure::alone(&name, size, "ms", value),
        });
        values.insert(name, value);
    };
    for (method, name) in [(SearchMethod::Vector, "vector"), (SearchMethod::Hybrid, "hybrid")] {
        let (plan, depth) = plan(&near, method, &questions[0].text).await?;
        let asks = [
            ask(far.clone(), questions.clone(), method),
            ask(near.clone(), questions.clone(), method),
            bare(&app.service.pool, sentences, questions.clone(), &plan, depth).await?,
        ];
        let mut times: [Vec<f64>; 3] = Default::default();
        for round in 0..=ROUNDS {
            for (ask, times) in asks.iter().zip(&mut times) {
                let waited = by_clients(ask, questions.len()).await?;
                // The first round warms up everything, and embeds the questions, which the service keeps.
                if round > 0 {
                    times.extend(waited);
                }
            }
        }
        let [mut over_http, mut in_process, mut bare] = times;
        let peer = p95(&mut bare);
        tell(format!("latency/{name}/p95 of {CLIENTS} clients, over HTTP"), p95(&mut over_http), Some(peer));
        tell(format!("latency/{name}/p95 of {CLIENTS} clients, in process"), p95(&mut in_process), Some(peer));
        let peer = median(&mut bare);
        tell(format!("latency/{name}/p50 of {CLIENTS} clients, over HTTP"), median(&mut over_http), Some(peer));
        tell(format!("latency/{name}/p50 of {CLIENTS} clients, in process"), median(&mut in_process), Some(peer));
    }
    let bm25 = ask(near.clone(), questions.clone(), SearchMethod::Bm25);
    let mut alone = Vec::new();
    for round in 0..=ROUNDS {
        for number in 0..questions.len() {
            let start = Instant::now();
            bm25(number).await?;
            if round > 0 {
                alone.push(milliseconds(start));
            }
        }
    }
    tell("latency/bm25/p50 of 1 client, in process".to_owned(), median(&mut alone), None);
    Ok(values)
}

/// How the index is asked for the nearest vectors, and how many of them are wanted.
async fn plan(client: &Client<InProcess>, method: SearchMethod, query: &str) -> Result<(LegPlan, u32), BoxError> {
    let answer = match method {
        SearchMethod::Vector => {
            client.search_vector(Json(VectorSearch { explain: true, ..VectorSearch::new(query) })).await?
        }
        _ => client.search_hybrid(Json(HybridSearch { explain: true, ..HybridSearch::new(query) })).await?,
    };
    let legs = answer.explanation.map(|explanation| explanation.legs).unwrap_or_default();
    let leg = legs.into_iter().find(|leg| leg.leg == SearchMethod::Vector).ok_or("the search explains no vectors")?;
    let plan = leg.plan.ok_or("the search explains no plan")?;
    match plan.way {
        LegWay::Hnsw => Ok((plan, leg.depth)),
        way => Err(format!("the vectors are found by {way:?} and not by their index alone; name a larger size").into()),
    }
}

/// The same search by a client of the service.
fn ask<T>(client: Arc<Client<T>>, questions: Arc<[Question]>, method: SearchMethod) -> Ask
where
    T: Transport<ops::search_vector>
        + Transport<ops::search_bm25>
        + Transport<ops::search_hybrid>
        + Send
        + Sync
        + 'static,
{
    Arc::new(move |number: usize| {
        let (client, questions) = (client.clone(), questions.clone());
        async move {
            let query = questions[number].text.as_str();
            let found = match method {
                SearchMethod::Vector => client.search_vector(Json(VectorSearch::new(query))).await?,
                SearchMethod::Bm25 => client.search_bm25(Json(Bm25Search::new(query))).await?,
                _ => client.search_hybrid(Json(HybridSearch::new(query))).await?,
            };
            is_found(found.results.len())
        }
        .boxed()
    })
}

/// The statement that somebody with nothing but PostgreSQL and pgvector would write: the nearest nodes, with their texts. It has the index look at as many
/// entries as the leg of the service does, and reads as many nodes as that leg ranks. Beside a hybrid search it searches no words; it knows neither rights nor
/// usetypes, and its server plans it once for each connection.
async fn bare(
    pool: &PgPool,
    sentences: &Sentences,
    questions: Arc<[Question]>,
    plan: &LegPlan,
    depth: u32,
) -> Result<Ask, BoxError> {
    let entries = plan.entries.ok_or("the plan names no entries")?.to_string();
    let options = PgConnectOptions::clone(&pool.connect_options()).options([
        ("hnsw.ef_search", entries.as_str()),
        ("hnsw.iterative_scan", "relaxed_order"),
        ("hnsw.max_scan_tuples", "200000"),
        ("hnsw.scan_mem_multiplier", "4"),
    ]);
    let pool = PgPool::connect_with(options).await?;
    let (width, model) = (sentences.width, sentences.model.replace('\'', "''"));
    let statement: Arc<str> = format!(
        "SELECT d.id, d.title, d.content, n.score
           FROM (SELECT document_id, 1 - (embed::halfvec({width}) <=> $1::halfvec({width})) AS score FROM document_vectors
                  WHERE embed_model = '{model}' ORDER BY embed::halfvec({width}) <=> $1::halfvec({width}) LIMIT {depth}) n
           JOIN documents d ON d.id = n.document_id ORDER BY n.score DESC LIMIT {RESULTS}"
    )
    .into();
    Ok(Arc::new(move |number: usize| {
        let (pool, statement, questions) = (pool.clone(), statement.clone(), questions.clone());
        async move {
            let vector = Stored::new("", width, &questions[number].vector).vector;
            let found: Vec<(i64, String, String, f64)> =
                sqlx::query_as(AssertSqlSafe(statement)).bind(vector).fetch_all(&pool).await?;
            is_found(found.len())
        }
        .boxed()
    }))
}

fn is_found(results: usize) -> Result<(), BoxError> {
    if results < RESULTS {
        return Err(format!("a search finds {results} of {RESULTS}").into());
    }
    Ok(())
}

/// The milliseconds that each question takes. Each client takes the next question as soon as it is free.
async fn by_clients(ask: &Ask, questions: usize) -> Result<Vec<f64>, BoxError> {
    let next = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (ask, next) = (ask.clone(), next.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= questions {
                        return Ok::<_, BoxError>(times);
                    }
                    let start = Instant::now();
                    ask(number).await?;
                    times.push(milliseconds(start));
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    Ok(times)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
