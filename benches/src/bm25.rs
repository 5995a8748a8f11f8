//! BM25 through PostgreSQL beside tantivy, over the same synthetic chunks: a Zipfian background with topics in it.

use crate::{
    figure::{BoxError, Figure, Peer, median},
    sealed::{self, Counted},
};
use sqlx::PgPool;
use std::{collections::BTreeMap, time::Instant};
use svc::{
    search::bm25::{self, Allowed, Text},
    store::transaction,
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Analyzer, Cache, Config};
use tantivy::{
    collector::TopDocs,
    query::{BooleanQuery, Occur, Query, TermQuery},
    schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions},
};

/// Among fewer documents hardly a term is as rare as the queries want it.
const LEAST: usize = 5_000;
const VOCABULARY: usize = 200_000;
const TOPICS: u64 = 400;
const TOPIC_WORDS: usize = 3_000;
const QUERIES: usize = 200;
/// How many results the searches want.
const LIMITS: [usize; 2] = [10, 100];
/// How many are appended at the end, a hundred at a time, while the clock runs.
const TIMED: usize = 2_000;
/// Further documents are written sealed, because appending them would show nothing new.
const APPENDED: usize = 100_000;
/// The most memory for the lists that a process keeps, as in the service.
const CACHE_BYTES: usize = 256 << 20;

/// The medians of one size, by what was searched: ours and the peer's.
type Medians = BTreeMap<String, (f64, f64)>;

pub async fn run(pool: &PgPool, sizes: &[usize], out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    if let Some(size) = sizes.iter().find(|size| **size < LEAST) {
        return Err(format!("the size is {size}; this bench takes at least {LEAST} documents").into());
    }
    let mut before: Option<(usize, Medians)> = None;
    for &size in sizes {
        eprintln!("bench: {size} documents");
        let now = measure(pool, size, out).await?;
        if let Some((smaller, medians)) = &before {
            for (what, (ours, theirs)) in &now {
                let Some((ours_before, theirs_before)) = medians.get(what) else { continue };
                let name = format!("bm25/growth from {smaller}, {what}");
                out(Figure::beside(&name, size, "times", ours / ours_before, tantivy(theirs / theirs_before)));
            }
        }
        before = Some((size, now));
    }
    Ok(())
}

async fn measure(pool: &PgPool, size: usize, out: &mut dyn FnMut(Figure)) -> Result<Medians, BoxError> {
    let corpus = Corpus::generate(size, 7);
    let cache = Cache::new(CACHE_BYTES);
    let config: Config = serde_json::from_str(r#"{"analyzer": {"language": "none", "version": 2}}"#)?;
    let name = format!("bench-{size}");
    let index: IndexId = sqlx::query_scalar("INSERT INTO search_indexes (name, config) VALUES ($1, $2) RETURNING id")
        .bind(&name)
        .bind(sqlx::types::Json(config))
        .fetch_one(pool)
        .await?;
    match size <= APPENDED {
        true => append(pool, &cache, index, &corpus, out).await?,
        false => seal(pool, index, &corpus, &Analyzer::new(config.analyzer), out).await?,
    }

    let start = Instant::now();
    let peer = Tantivy::build(&corpus)?;
    eprintln!("bench: tantivy was built in {:.0} s", start.elapsed().as_secs_f64());
    let (postings, all): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT sum(octet_length(data)) FROM search_term_postings WHERE index_id = $1)::bigint,
                (pg_total_relation_size('search_term_postings') + pg_total_relation_size('search_term_stats')
                 + pg_total_relation_size('search_index_entries'))::bigint",
    )
    .bind(index)
    .fetch_one(pool)
    .await?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    out(Figure::alone("bm25/packed postings", size, "MB", megabytes(postings as u64)));
    if size <= APPENDED {
        // The tables hold nothing else yet.
        out(Figure::beside("bm25/index on disk", size, "MB", megabytes(all as u64), tantivy(megabytes(peer.bytes()?))));
    }

    let mut medians = Medians::new();
    for limit in LIMITS {
        for (class, queries) in corpus.queries(QUERIES, 11) {
            let (mut ours, mut theirs) = (vec![], vec![]);
            for round in 0..3 {
                for query in &queries {
                    let text: String = query.iter().map(|term| format!("t{term} ")).collect();
                    let start = Instant::now();
                    let found = bm25::search(pool, &cache, &name, text.as_str().into(), limit, Allowed::All).await?;
                    let mine = start.elapsed().as_secs_f64() * 1e3;
                    let start = Instant::now();
                    let other = peer.search(query, limit)?;
                    let other_ms = start.elapsed().as_secs_f64() * 1e3;
                    let found = found.map_or(0, |hits| hits.len());
                    if found != other {
                        return Err(format!("{class}: {found} results here, {other} there").into());
                    }
                    // The first round warms both sides.
                    if round > 0 {
                        ours.push(mine);
                        theirs.push(other_ms);
                    }
                }
            }
            let (p50, other) = (median(&mut ours), median(&mut theirs));
            let what = match limit {
                10 => format!("{class} terms"),
                _ => format!("{class} terms, k={limit}"),
            };
            out(Figure::beside(&format!("bm25/search p50, {what}"), size, "ms", p50, tantivy(other)));
            medians.insert(what, (p50, other));
        }
    }
    Ok(medians)
}

/// Appends the documents as ingestion does, and compacts them.
async fn append(
    pool: &PgPool,
    cache: &Cache,
    index: IndexId,
    corpus: &Corpus,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let append = async |from: usize, to: usize| -> Result<(), BoxError> {
        let texts = (from..to).map(|i| Text::new(DocumentId(i as i64), "chunk", "", &corpus.text(i), &[])).collect();
        let prepared = bm25::prepare(pool, cache, index, texts).await?;
        let mut tx = transaction::begin(pool).await?;
        bm25::append(&mut tx, &prepared).await?;
        tx.commit().await?;
        Ok(())
    };
    let size = corpus.documents.len();
    let bulk = size.saturating_sub(TIMED);
    let start = Instant::now();
    for from in (0..bulk).step_by(1_000) {
        append(from, (from + 1_000).min(bulk)).await?;
    }
    let loaded = start.elapsed().as_secs_f64();
    out(Figure::alone("bm25/bulk append, 1,000 a transaction", bulk, "documents/s", bulk as f64 / loaded));
    let start = Instant::now();
    bm25::compact(pool, index).await?;
    out(Figure::alone("bm25/compaction of everything", bulk, "s", start.elapsed().as_secs_f64()));
    let timed = size - bulk;
    let start = Instant::now();
    for from in (bulk..size).step_by(100) {
        append(from, (from + 100).min(size)).await?;
    }
    let appended = start.elapsed().as_secs_f64();
    out(Figure::alone("bm25/append, 100 a transaction", timed, "documents/s", timed as f64 / appended));
    let start = Instant::now();
    bm25::compact(pool, index).await?;
    out(Figure::alone("bm25/compaction of new documents", timed, "s", start.elapsed().as_secs_f64()));
    // The remains of the tails are free space for new ones, and not a part of an index's size.
    sqlx::raw_sql("VACUUM (FULL, ANALYZE) search_term_postings, search_term_stats, search_index_entries")
        .execute(pool)
        .await?;
    Ok(())
}

/// Writes all documents at once, in the form that compacting them would give them.
async fn seal(
    pool: &PgPool,
    index: IndexId,
    corpus: &Corpus,
    analyzer: &Analyzer,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    // The index gets these words as terms, which is right only as long as the analyzer leaves such words alone.
    let mut terms: Vec<Box<str>> = analyzer.bag(&corpus.text(0)).terms.into_keys().collect();
    let mut words: Vec<Box<str>> =
        distinct(&corpus.documents[0]).iter().map(|word| format!("t{word}").into()).collect();
    terms.sort_unstable();
    words.sort_unstable();
    if terms != words {
        return Err("the analyzer makes other terms of the words of this bench".into());
    }
    let start = Instant::now();
    let names: Vec<String> = (0..VOCABULARY).map(|word| format!("t{word}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let count = |(number, words): (usize, &Vec<u32>)| {
        let mut sorted = words.clone();
        sorted.sort_unstable();
        let terms = sorted.chunk_by(|left, right| left == right).map(|same| (same[0], same.len() as u32)).collect();
        Counted { id: DocumentId(number as i64), length: words.len() as u32, terms }
    };
    let texts: Vec<Counted> = corpus.documents.iter().enumerate().map(count).collect();
    sealed::append(pool, index, &names, &texts).await?;
    sqlx::raw_sql("VACUUM (ANALYZE) search_term_postings, search_term_stats, search_index_entries")
        .execute(pool)
        .await?;
    let seconds = start.elapsed().as_secs_f64();
    out(Figure::alone("bm25/written sealed", texts.len(), "documents/s", texts.len() as f64 / seconds));
    Ok(())
}

fn tantivy(value: f64) -> Peer {
    Peer { name: "tantivy", version: "0.25".into(), value }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn some(&mut self, from: &[u32], count: usize) -> Vec<u32> {
        let mut from = from.to_vec();
        (0..count.min(from.len())).map(|_| from.swap_remove(self.below(from.len()))).collect()
    }
}

/// Ranks 0, 1, ... with a probability proportional to `1 / rank^exponent`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        Self((1..=n).map(|rank| (sum += (rank as f64).powf(-exponent), sum).1).collect())
    }

    fn sample(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.0[self.0.len() - 1];
        self.0.partition_point(|&sum| sum < at).min(self.0.len() - 1)
    }
}

struct Corpus {
    documents: Vec<Vec<u32>>,
    df: Vec<usize>,
}

impl Corpus {
    fn generate(n: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let (background, topical) = (Zipf::new(VOCABULARY, 1.05), Zipf::new(TOPIC_WORDS, 0.9));
        let mut df = vec![0; VOCABULARY];
        let documents = (0..n)
            .map(|_| {
                let length = (4.5 + 0.45 * random.normal()).exp().clamp(8.0, 400.0) as usize;
                let topic = random.next() % TOPICS;
                let words: Vec<u32> = (0..length)
                    .map(|_| {
                        if random.unit() < 0.35 {
                            let word = topical.sample(&mut random) as u64;
                            (300 + (topic * 2_654_435_761 + word * 40_503) % (VOCABULARY as u64 - 300)) as u32
                        } else {
                            background.sample(&mut random) as u32
                        }
                    })
                    .collect();
                distinct(&words).into_iter().for_each(|word| df[word as usize] += 1);
                words
            })
            .collect();
        Self { documents, df }
    }

    fn text(&self, i: usize) -> String {
        self.documents[i].iter().map(|word| format!("t{word} ")).collect()
    }

    /// `mid`: terms of one document, each in under 1% of all documents; `mixed`: the same and one term in over 10%;
    /// `common`: each term in over 4%.
    fn queries(&self, each: usize, seed: u64) -> Vec<(&'static str, Vec<Vec<u32>>)> {
        let mut random = Random(seed);
        let n = self.documents.len();
        ["mid", "mixed", "common"]
            .map(|class| {
                let mut queries = vec![];
                while queries.len() < each {
                    let words = distinct(&self.documents[random.below(n)]);
                    let count = 2 + random.below(4);
                    let within = |low: usize, high: usize| -> Vec<u32> {
                        words.iter().copied().filter(|&word| (low..high).contains(&self.df[word as usize])).collect()
                    };
                    let query = match class {
                        "mid" => random.some(&within(5, n / 100), count),
                        "mixed" => {
                            let mut query = random.some(&within(5, n / 100), count - 1);
                            query.extend(random.some(&within(n / 10, n + 1), 1));
                            query
                        }
                        _ => random.some(&within(n / 25, n + 1), count),
                    };
                    if query.len() == count {
                        queries.push(query);
                    }
                }
                (class, queries)
            })
            .into()
    }
}

fn distinct(words: &[u32]) -> Vec<u32> {
    let mut words = words.to_vec();
    words.sort_unstable();
    words.dedup();
    words
}

struct Tantivy {
    searcher: tantivy::Searcher,
    field: Field,
}

impl Tantivy {
    fn build(corpus: &Corpus) -> tantivy::Result<Self> {
        let mut schema = Schema::builder();
        let indexing =
            TextFieldIndexing::default().set_tokenizer("whitespace").set_index_option(IndexRecordOption::WithFreqs);
        let field = schema.add_text_field("text", TextOptions::default().set_indexing_options(indexing));
        let index = tantivy::Index::create_in_ram(schema.build());
        let mut writer = index.writer_with_num_threads(1, 1_000_000_000)?;
        for i in 0..corpus.documents.len() {
            let mut document = tantivy::TantivyDocument::default();
            document.add_text(field, corpus.text(i));
            writer.add_document(document)?;
        }
        writer.commit()?;
        // One segment is its best case, and ours.
        let segments = index.searchable_segment_ids()?;
        if segments.len() > 1 {
            writer.merge(&segments).wait()?;
        }
        writer.wait_merging_threads()?;
        Ok(Self { searcher: index.reader()?.searcher(), field })
    }

    fn bytes(&self) -> tantivy::Result<u64> {
        Ok(self.searcher.space_usage()?.total().get_bytes())
    }

    fn search(&self, terms: &[u32], limit: usize) -> tantivy::Result<usize> {
        let clauses: Vec<(Occur, Box<dyn Query>)> = terms
            .iter()
            .map(|term| {
                let term = tantivy::Term::from_field_text(self.field, &format!("t{term}"));
                let query: Box<dyn Query> = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
                (Occur::Should, query)
            })
            .collect();
        Ok(self.searcher.search(&BooleanQuery::new(clauses), &TopDocs::with_limit(limit))?.len())
    }
}
