//! What a vector search finds of the exact answer, in parts of the store that are about something else than the question; and the same once the
//! table of vectors is in parts, and under indexes of bits.
//!
//! The vectors are those of real sentences: each node's is the sum of two sentences of one abstract and a little of another one.
use crate::{
    encoder::cranfield::Cranfield,
    figure::{BoxError, Figure, Peer},
    sandbox::with_app,
    set_aside::SetAside,
    uploads,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{collections::HashSet, time::Instant};
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

/// The forms of the table that are measured, in how many parts it is then, and what its indexes are made of.
const FORMS: [(&str, usize, Index); 3] =
    [("", 1, Index::Halves), ("/parts", 8, Index::Halves), ("/bits", 1, Index::Bits)];

/// A folder, and the abstracts that its nodes are made from.
struct Part {
    share: f64,
    folder: i64,
    abstracts: HashSet<usize>,
}

pub async fn run(nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let cranfield = Cranfield::read()?;
    with_app(
        |_| {},
        async |app| {
            let client = uploads::client(&format!("http://{}", app.address))?;
            let parts = parts(&client, cranfield.documents.len()).await?;
            fill(app, &cranfield, &parts, nodes).await?;
            // An index takes longer than a request may.
            let options = PgConnectOptions::clone(&app.service.pool.connect_options());
            let options = options.options([("statement_timeout", "0"), ("maintenance_work_mem", "1GB")]);
            let pool = PgPool::connect_with(options).await?;
            for (form, parts_of_table, index) in FORMS {
                let wanted =
                    Wanted { parts: parts_of_table, index, batch: BATCH as i64, sample: 50, least_recall: 0.0 };
                reindex::vectors(&pool, &wanted, |step| eprintln!("bench: {step:?}")).await?;
                measure(app, &client, &cranfield, &parts, (form, nodes), out).await?;
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

async fn fill(app: &App, cranfield: &Cranfield, parts: &[Part], nodes: usize) -> Result<(), BoxError> {
    let pool = &app.service.pool;
    let engine = app.service.embedder.as_ref().and_then(Embedder::engine).ok_or("the service has no model")?;
    let (model, width) = (engine.info().identity.clone(), engine.info().native_width);
    let sentences: Vec<Vec<String>> = cranfield.documents.iter().map(|text| sentences(text)).collect();
    eprintln!("bench: {} sentences are embedded", sentences.iter().map(Vec::len).sum::<usize>());
    let mut vectors = engine.embed_documents(sentences.concat()).await?.into_iter().map(|embedding| embedding.vector);
    let vectors: Vec<Vec<Vec<f32>>> =
        sentences.iter().map(|sentences| vectors.by_ref().take(sentences.len()).collect()).collect();
    let mut folder_of = vec![0; sentences.len()];
    for part in parts {
        part.abstracts.iter().for_each(|&at| folder_of[at] = part.folder);
    }
    let set_aside = SetAside::take(pool, &["USING hnsw"]).await?;
    let mut random = SmallRng::seed_from_u64(2);
    for from in (0..nodes).step_by(BATCH) {
        let (mut folders, mut texts, mut stored) = (Vec::new(), Vec::new(), Vec::new());
        for number in from..nodes.min(from + BATCH) {
            let (at, other) = (number % sentences.len(), random.random_range(0..sentences.len()));
            let mut any = |at: usize| random.random_range(0..sentences[at].len());
            let (first, second, third) = (any(at), any(at), any(other));
            let (much, little) = (random.random_range(0.2..1.0_f32), random.random_range(0.0..0.5_f32));
            let (a, b, c) = (&vectors[at][first], &vectors[at][second], &vectors[other][third]);
            let mut sum: Vec<f32> = (0..width).map(|i| a[i] + much * b[i] + little * c[i]).collect();
            let length = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
            sum.iter_mut().for_each(|x| *x /= length);
            folders.push(folder_of[at]);
            texts.push([sentences[at][first].as_str(), &sentences[at][second], &sentences[other][third]].join(". "));
            stored.push(Stored::new(&model, width, &sum).vector);
        }
        sqlx::query(
            "WITH n AS (SELECT * FROM unnest($1::bigint[], $2::text[], $3::halfvec[]) WITH ORDINALITY AS n(parent, content, embed, place)),
             made AS (
                 INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard, position)
                 SELECT parent, ARRAY[parent], 'part', content, 'chunk', 'sha256:' || md5(content), 0, place FROM n RETURNING id, position)
             INSERT INTO document_vectors (document_id, embed_model, embed, weight)
             SELECT made.id, $4, n.embed, 1 FROM made JOIN n ON n.place = made.position",
        )
        .bind(&folders)
        .bind(&texts)
        .bind(&stored)
        .bind(&model)
        .execute(pool)
        .await?;
        if (from / BATCH + 1).is_multiple_of(10) {
            eprintln!("bench: {} of {nodes} nodes", from + BATCH);
        }
    }
    eprintln!("bench: the vectors get their index");
    set_aside.restore(pool).await
}

/// The sentences of a text; a short one belongs to the one before it.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in text.split(['.', '\n']).map(str::trim).filter(|sentence| !sentence.is_empty()) {
        match sentences.last_mut() {
            Some(last) if sentence.len() < 30 => {
                last.push(' ');
                last.push_str(sentence);
            }
            _ => sentences.push(sentence.to_owned()),
        }
    }
    if sentences.is_empty() {
        sentences.push("nothing".to_owned());
    }
    sentences
}

async fn measure(
    app: &App,
    client: &Client<Remote>,
    cranfield: &Cranfield,
    parts: &[Part],
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
        let (mut found, mut wanted, mut times) = (0, 0, Vec::new());
        for (number, (&question, _)) in questions.enumerate() {
            let query = &cranfield.questions[question];
            let vector = engine.embed_query(query.clone()).await?;
            // The service embeds it too, but keeps that: what is timed is the search.
            let search = VectorSearch { parent_id, ..VectorSearch::new(query) };
            client.search_vector(Json(VectorSearch { limit: 1, ..search.clone() })).await?;
            let start = Instant::now();
            let results = client.search_vector(Json(search)).await?.results;
            if number >= WARMING {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            let mut tx = transaction::begin_search(&app.service.pool).await?;
            let stored = Stored::new(&engine.info().identity, engine.info().native_width, &vector);
            let layout = Layout::default();
            let nearest = vectors::exact(&mut tx, &eligible, &stored, i64::from(NEAREST), i64::MAX, &layout).await?;
            tx.commit().await?;
            let nearest = nearest.ok_or("an exact search without a bound found a bound")?.ranked;
            wanted += nearest.len();
            found += nearest.iter().filter(|(id, _)| results.iter().any(|result| result.document.id == id.0)).count();
        }
        let name = format!("{}% of the store", part.share * 100.0);
        let recall = found as f64 / wanted as f64;
        out(Figure::alone(&format!("recall{form}/recall@{NEAREST} in {name}"), nodes, "share", recall));
        times.sort_unstable_by(f64::total_cmp);
        let p95 = times.get(times.len() * 95 / 100).copied().unwrap_or(f64::NAN);
        let name = format!("recall{form}/p95 in {name}");
        out(match *unfiltered.get_or_insert(p95) {
            _ if parent_id.is_none() => Figure::alone(&name, nodes, "ms", p95),
            value => Figure::beside(
                &name,
                nodes,
                "ms",
                p95,
                Peer { name: "the whole store", version: env!("CARGO_PKG_VERSION").into(), value },
            ),
        });
    }
    Ok(())
}
