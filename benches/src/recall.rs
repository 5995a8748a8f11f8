//! What a vector search finds of the exact answer, in parts of the store that are about something else than the question; and the same once the
//! table of vectors is in parts, and under indexes of bits.
use crate::{
    encoder::cranfield::Cranfield,
    figure::{Bound, BoxError, Figure, Peer, p95},
    sandbox::with_app,
    sentences::{Node, Sentences},
    set_aside::SetAside,
    uploads,
};
use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    time::Instant,
};
use svc::{
    app::App,
    embedding::Embedder,
    store::{
        reindex::{self, Wanted},
        scope::Readable,
        search::Eligible,
        transaction,
        vectors::{self, Index, Layout, Stored},
    },
};
use svc_client::{
    Client, Json, Remote,
    wire::{BatchItem, NewBatch, VectorSearch},
};
use svc_ids::DocumentId;

/// The parts of the store that are searched, by their shares of it; what is left is in a folder of its own.
const SHARES: [f64; 4] = [0.26, 0.1, 0.01, 0.001];
const NEAREST: u32 = 10;
/// The most questions for each part; the first ones, which warm it up, are not timed.
const QUESTIONS: usize = 60;
const WARMING: usize = 10;
const BATCH: usize = 5_000;

/// The nodes above which an index finds a little less of the exact answer.
const LARGE: usize = 100_000;
/// The forms of the table that are measured, in how many parts it is then, and what its indexes are made of. A store of files is measured in the
/// first one alone.
const FORMS: [(&str, usize, Index); 3] =
    [("", 1, Index::Halves), ("/parts", 8, Index::Halves), ("/bits", 1, Index::Bits)];

/// A folder, and the abstracts that its nodes are made from.
struct Part {
    share: f64,
    folder: i64,
    abstracts: HashSet<usize>,
}

/// What each form is held against.
#[derive(Default)]
struct Known {
    /// The exact answers by folder and question, which are the same in each form.
    exact: HashMap<(i64, usize), Vec<DocumentId>>,
    /// The milliseconds of the first form by folder.
    first: HashMap<i64, f64>,
}

/// Measures in a store whose files have `file` nodes each, which are about one abstract and stored one after the other.
pub async fn run(nodes: usize, file: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let cranfield = Cranfield::read()?;
    with_app(
        |_| {},
        async |app| {
            let client = uploads::client(&format!("http://{}", app.address))?;
            let parts = parts(&client, cranfield.documents.len()).await?;
            fill(app, &cranfield, &parts, (nodes, file)).await?;
            // An index takes longer than a request may.
            let options = PgConnectOptions::clone(&app.service.pool.connect_options());
            let options = options.options([("statement_timeout", "0"), ("maintenance_work_mem", "1GB")]);
            let pool = PgPool::connect_with(options).await?;
            let forms = if file > 1 { 1 } else { FORMS.len() };
            let mut known = Known::default();
            for (number, (form, parts_of_table, index)) in FORMS.into_iter().take(forms).enumerate() {
                if number > 0 {
                    let wanted =
                        Wanted { parts: parts_of_table, index, batch: BATCH as i64, sample: 50, least_recall: 0.0 };
                    reindex::vectors(&pool, &wanted, |step| eprintln!("bench: {step:?}")).await?;
                }
                let form = if file > 1 { "/files" } else { form };
                weigh(&pool, form, index, out).await?;
                measure(app, &client, &cranfield, (&parts[..], &mut known), (form, nodes), out).await?;
            }
            Ok(())
        },
    )
    .await
}

/// Makes the folders, of which the last one has what is in no other.
async fn parts(client: &Client<Remote>, abstracts: usize) -> Result<Vec<Part>, BoxError> {
    let folder =
        |number| BatchItem { title: format!("Folder {number}"), content: "A part.".into(), ..BatchItem::default() };
    let documents = (0..=SHARES.len()).map(folder).collect();
    let made = client.create_documents(Json(NewBatch { documents, priority: 0 })).await?.documents;
    let mut order: Vec<usize> = (0..abstracts).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(1));
    let mut parts = Vec::new();
    for (number, stored) in made.iter().enumerate() {
        uploads::settled(client, stored.document_id).await?;
        let share = SHARES.get(number).copied();
        let count = share.map_or(order.len(), |share| (share * abstracts as f64).ceil() as usize);
        let abstracts = order.drain(..count.min(order.len())).collect();
        parts.push(Part { share: share.unwrap_or_default(), folder: stored.document_id, abstracts });
    }
    Ok(parts)
}

async fn fill(app: &App, cranfield: &Cranfield, parts: &[Part], (nodes, file): (usize, usize)) -> Result<(), BoxError> {
    let pool = &app.service.pool;
    let mut sentences = Sentences::embed(app, cranfield).await?;
    let mut folder_of = vec![0; cranfield.documents.len()];
    for part in parts {
        part.abstracts.iter().for_each(|&at| folder_of[at] = part.folder);
    }
    let set_aside = SetAside::take(pool, &[]).await?;
    for from in (0..nodes).step_by(BATCH) {
        let made: Vec<Node> = (from..nodes.min(from + BATCH))
            .map(|number| {
                let at = sentences.about(number / file);
                sentences.node(at, folder_of[at])
            })
            .collect();
        sentences.store(pool, &made).await?;
        if (from / BATCH + 1).is_multiple_of(10) {
            eprintln!("bench: {} of {nodes} nodes", from + BATCH);
        }
    }
    eprintln!("bench: the vectors get their index");
    set_aside.restore(pool).await
}

async fn measure(
    app: &App,
    client: &Client<Remote>,
    cranfield: &Cranfield,
    (parts, known): (&[Part], &mut Known),
    (form, nodes): (&str, usize),
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let engine = app.service.embedder.as_ref().and_then(Embedder::engine).ok_or("the service has no model")?;
    let everything = Part { share: 1.0, folder: 0, abstracts: HashSet::new() };
    let mut unfiltered = None;
    for part in std::iter::once(&everything).chain(parts).filter(|part| part.share > 0.0) {
        let parent_id = (part.folder > 0).then_some(part.folder);
        let eligible =
            Eligible { scope: Readable::everything(), parent_id: parent_id.map(DocumentId), ..Eligible::default() };
        // What a question is about lies elsewhere.
        let is_foreign = |relevant: &HashSet<usize>| relevant.is_disjoint(&part.abstracts);
        let questions = cranfield.relevant().iter().filter(|(_, relevant)| is_foreign(relevant)).take(QUESTIONS);
        let questions: Vec<usize> = questions.map(|(&question, _)| question).collect();
        // The exact answers come before anything is timed, because they read every vector and push everything else out of memory.
        for &question in &questions {
            if let Entry::Vacant(unknown) = known.exact.entry((part.folder, question)) {
                let vector = engine.embed_query(cranfield.questions[question].clone()).await?;
                let stored = Stored::new(&engine.info().identity, engine.info().native_width, &vector);
                unknown.insert(compare(app, &eligible, &stored).await?);
            }
        }
        let (mut found, mut wanted, mut times) = (0, 0, Vec::new());
        for (number, &question) in questions.iter().enumerate() {
            // The service keeps the vector of a query, so the time is that of the search alone.
            let search = VectorSearch { parent_id, ..VectorSearch::new(&cranfield.questions[question]) };
            client.search_vector(Json(VectorSearch { limit: 1, ..search.clone() })).await?;
            let start = Instant::now();
            let results = client.search_vector(Json(search)).await?.results;
            if number >= WARMING {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            let nearest = &known.exact[&(part.folder, question)];
            wanted += nearest.len();
            found += nearest.iter().filter(|id| results.iter().any(|result| result.document.id == id.0)).count();
        }
        let place = format!("{}% of the store", part.share * 100.0);
        let recall = found as f64 / wanted as f64;
        let figure = Figure::alone(&format!("recall{form}/recall@{NEAREST} in {place}"), nodes, "share", recall);
        out(figure.meant_to_be(Bound::OursAtLeast(match (form, parent_id) {
            ("/bits", _) => 0.97,
            (_, Some(_)) if nodes > LARGE => 0.98,
            _ => 0.99,
        })));
        let p95 = p95(&mut times);
        let name = format!("recall{form}/p95 in {place}");
        out(match *unfiltered.get_or_insert(p95) {
            _ if parent_id.is_none() => Figure::alone(&name, nodes, "ms", p95),
            value => Figure::beside(
                &name,
                nodes,
                "ms",
                p95,
                Peer { name: "the whole store", version: env!("CARGO_PKG_VERSION").into(), value },
            )
            .meant_to_be(Bound::RatioAtLeast(1.0 / 3.0)),
        });
        let Some(&value) = known.first.get(&part.folder) else {
            known.first.insert(part.folder, p95);
            continue;
        };
        let peer = Peer { name: "one table of halves", version: env!("CARGO_PKG_VERSION").into(), value };
        let figure = Figure::beside(&format!("recall{form}/form/p95 in {place}"), nodes, "ms", p95, peer);
        out(figure.meant_to_be(Bound::RatioAtLeast(match (form, parent_id) {
            // One root takes a quarter of the time.
            ("/parts", Some(_)) => 4.0,
            ("/parts", None) => 1.0 / 1.6,
            _ => 1.0 / 3.0,
        })));
    }
    Ok(())
}

/// What a vector takes in the table and in the memory of its index; the goals are those of a width of 384. Nine rows fill a page of 8 KB: for ten to
/// fit, a row would have to do with 40 bytes beside its 768 bytes of halves.
async fn weigh(pool: &PgPool, form: &str, index: Index, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let (vectors, table, graph): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM document_vectors),
                (SELECT coalesce(sum(pg_table_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' AND relname ~ '^document_vectors(_[0-9]+_[0-9]+)?$'),
                (SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_am a ON a.oid = c.relam
                  WHERE a.amname = 'hnsw' AND c.relkind = 'i')",
    )
    .fetch_one(pool)
    .await?;
    let mut figure = |name: &str, bytes: i64, goal: f64| {
        let each = bytes as f64 / vectors.max(1) as f64;
        let name = format!("recall{form}/bytes/{name}");
        out(Figure::alone(&name, usize::try_from(vectors).unwrap_or_default(), "bytes/vector", each)
            .meant_to_be(Bound::OursAbout(goal)));
    };
    figure("table", table, 910.0);
    figure(
        "hnsw",
        graph,
        match index {
            Index::Halves => 1171.0,
            Index::Bits => 349.0,
        },
    );
    Ok(())
}

/// The nearest, by comparing each vector.
async fn compare(app: &App, eligible: &Eligible, query: &Stored<'_>) -> Result<Vec<DocumentId>, BoxError> {
    let mut tx = transaction::begin_search(&app.service.pool).await?;
    let nearest = vectors::exact(&mut tx, eligible, query, i64::from(NEAREST), i64::MAX, &Layout::default()).await?;
    tx.commit().await?;
    let nearest = nearest.ok_or("an exact search without a bound found a bound")?;
    Ok(nearest.ranked.into_iter().map(|(id, _)| id).collect())
}
