//! How well each method answers the questions of a judged collection: through the service, with the abstracts as documents, and again as
//! files that are cut into sections and chunks, with the titles above the chunks and without. A cross-encoder, where there is one, ranks the documents again.
use crate::{encoder::cranfield::Cranfield, figure::BoxError, sandbox::with_app, uploads};
use futures_util::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, Remote,
    wire::{
        BatchItem, Bm25Search, FulltextSearch, Fusion, GroupBy, HybridSearch, HybridWeights, NewBatch, SearchQuery,
        SearchResponse, UploadQuery, VectorSearch,
    },
};

/// How many results are asked for: recall is of so many.
const LIMIT: u32 = 100;
/// How many count for nDCG.
const COUNTED: usize = 10;
/// The most documents and bytes of text in one call.
const BATCH: usize = 200;
const BATCH_BYTES: usize = 1 << 20;
const UPLOADS_AT_ONCE: usize = 8;
/// The questions that warm a method up; they are judged, but not timed.
const WARMING: usize = 5;
/// The time between two looks at what cannot be found yet.
const LOOK: Duration = Duration::from_millis(100);

/// How the service got the collection.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    Documents,
    Files,
    /// Chunks are found by what they say alone.
    FilesWithoutTitles,
}

/// What one method came to.
#[derive(Serialize)]
struct Judged {
    form: Form,
    method: &'static str,
    ndcg10: f64,
    recall100: f64,
    queries: usize,
    p50_ms: f64,
}

/// A method, and what is asked for beside it.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    method: &'static str,
    /// Fuses the scores of the legs, and not their ranks.
    score: bool,
    expand: bool,
    /// This makes a difference only to groups.
    with_whole: bool,
    rerank: bool,
}

const fn way(name: &'static str, method: &'static str) -> Way {
    Way { name, method, score: false, expand: false, with_whole: false, rerank: false }
}

const WAYS: [Way; 16] = [
    way("bm25", "bm25"),
    Way { expand: true, ..way("bm25, expand", "bm25") },
    way("fulltext", "fulltext"),
    way("vector", "vector"),
    Way { with_whole: true, ..way("vector, with whole", "vector") },
    way("hybrid", "hybrid"),
    Way { expand: true, ..way("hybrid, expand", "hybrid") },
    way("hybrid, equal weights", "equal"),
    Way { expand: true, ..way("hybrid, equal weights, expand", "equal") },
    Way { score: true, ..way("hybrid, equal weights, score", "equal") },
    Way { score: true, expand: true, ..way("hybrid, equal weights, score, expand", "equal") },
    way("auto", "auto"),
    Way { expand: true, ..way("auto, expand", "auto") },
    Way { with_whole: true, ..way("auto, with whole", "auto") },
    Way { expand: true, with_whole: true, ..way("auto, expand, with whole", "auto") },
    Way { rerank: true, ..way("hybrid, equal weights, rerank", "equal") },
];

/// Judges the collection in this folder, or the one beside the repository.
pub async fn run(folder: Option<&Path>) -> Result<(), BoxError> {
    let collection = match folder {
        Some(folder) => Cranfield::read_from(folder)?,
        None => Cranfield::read()?,
    };
    for form in [Form::Documents, Form::Files, Form::FilesWithoutTitles] {
        with_app(
            |settings| settings.title_paths = form != Form::FilesWithoutTitles,
            async |app| {
                let client = uploads::client(&format!("http://{}", app.address))?;
                let places = load(&client, &collection, form).await?;
                for way in WAYS {
                    // Documents alone have no groups, and a cross-encoder takes too long to read everything three times.
                    let is_for_form = if form == Form::Documents { !way.with_whole } else { !way.rerank };
                    if !is_for_form {
                        continue;
                    }
                    let judged = match judge(&client, &collection, &places, form, way).await {
                        Err(error) if way.rerank && is_without(&error) => {
                            eprintln!("bench: no line for `{}`: {error}", way.name);
                            continue;
                        }
                        judged => judged?,
                    };
                    let mut out = std::io::stdout().lock();
                    serde_json::to_writer(&mut out, &judged)?;
                    out.write_all(b"\n")?;
                    out.flush()?;
                }
                Ok(())
            },
        )
        .await?;
    }
    Ok(())
}

/// Whether the service lacks what a method needs.
fn is_without(error: &BoxError) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.code == Code::NotConfigured)
}

/// The places in the collection of each document. Files with the same bytes are one document.
type Places = HashMap<i64, Vec<usize>>;

/// Stores the collection and waits until all of it can be found.
async fn load(client: &Client<Remote>, collection: &Cranfield, form: Form) -> Result<Places, BoxError> {
    let texts = collection.documents.iter().map(|text| text.split_once('\n').unwrap_or(("", text)));
    let mut places = Places::new();
    match form {
        Form::Documents => {
            let (mut documents, mut bytes) = (Vec::new(), 0);
            for (title, content) in texts {
                if documents.len() == BATCH || bytes > BATCH_BYTES {
                    store(client, std::mem::take(&mut documents), &mut places).await?;
                    bytes = 0;
                }
                bytes += content.len();
                documents.push(BatchItem { title: named(title), content: content.into(), ..BatchItem::default() });
            }
            store(client, documents, &mut places).await?;
        }
        Form::Files | Form::FilesWithoutTitles => {
            let stored = texts.enumerate().map(async |(place, (title, content))| {
                let text = format!("# {}\n\n{}\n", named(title), content.trim());
                let file = FileUpload::from_bytes(&format!("{place}.md"), text, None);
                Ok::<_, BoxError>((client.upload_file(UploadQuery::default(), file).await?.document_id, place))
            });
            let stored = futures_util::stream::iter(stored).buffer_unordered(UPLOADS_AT_ONCE);
            for (document_id, place) in stored.try_collect::<Vec<_>>().await? {
                places.entry(document_id).or_default().push(place);
            }
        }
    }
    eprintln!("bench: {} texts are stored", collection.documents.len());
    loop {
        let state = client.search_fulltext(Json(FulltextSearch::new("anything"))).await?.scope_state;
        if state.failed > 0 {
            return Err(format!("{} nodes failed", state.failed).into());
        }
        if state.in_flight == 0 {
            return Ok(places);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A text needs a title.
fn named(title: &str) -> String {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.is_empty() { "untitled".to_owned() } else { title }
}

async fn store(client: &Client<Remote>, documents: Vec<BatchItem>, places: &mut Places) -> Result<(), BoxError> {
    if documents.is_empty() {
        return Ok(());
    }
    for stored in client.create_documents(Json(NewBatch { documents, priority: 0 })).await?.documents {
        places.insert(stored.document_id, vec![places.len()]);
    }
    Ok(())
}

async fn judge(
    client: &Client<Remote>,
    collection: &Cranfield,
    places: &Places,
    form: Form,
    way: Way,
) -> Result<Judged, BoxError> {
    let (mut gained, mut recalled, mut times, mut queries) = (0.0, 0.0, Vec::new(), 0);
    for (&question, relevant) in collection.relevant() {
        let text = &collection.questions[question];
        // The service keeps the vector of a query, so the time is that of the search alone, whichever way asks first.
        client.search_vector(Json(VectorSearch { limit: 1, ..VectorSearch::new(text) })).await?;
        let start = Instant::now();
        let found = search(client, form, way, text).await?.results;
        if queries >= WARMING {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let found = found.iter().filter_map(|result| places.get(&result.document.id));
        let found: Vec<usize> = found.flatten().copied().collect();
        gained += ndcg(&found, relevant);
        recalled += found.iter().filter(|place| relevant.contains(place)).count() as f64 / relevant.len() as f64;
        queries += 1;
    }
    if queries == 0 {
        return Err("no question of the collection has a judgement".into());
    }
    let mean = |sum: f64| sum / queries as f64;
    Ok(Judged {
        form,
        method: way.name,
        ndcg10: mean(gained),
        recall100: mean(recalled),
        queries,
        p50_ms: crate::figure::median(&mut times),
    })
}

/// What the ranking gains of what could be gained, with binary relevance.
fn ndcg(found: &[usize], relevant: &HashSet<usize>) -> f64 {
    let discount = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
    let hits = found.iter().take(COUNTED).enumerate().filter(|(_, place)| relevant.contains(place));
    hits.map(|(rank, _)| discount(rank)).sum::<f64>() / (0..relevant.len().min(COUNTED)).map(discount).sum::<f64>()
}

fn asked(is_asked: bool) -> Option<bool> {
    is_asked.then_some(true)
}

async fn search(client: &Client<Remote>, form: Form, way: Way, query: &str) -> Result<SearchResponse, BoxError> {
    // A file is found by its texts.
    let group_by = Some(if form == Form::Documents { GroupBy::None } else { GroupBy::File });
    let (limit, include_content, snippets) = (LIMIT, false, Some(false));
    let (expand, with_whole, rerank) = (asked(way.expand), asked(way.with_whole), asked(way.rerank));
    let hybrid = |weights| HybridSearch {
        weights,
        fusion: way.score.then_some(Fusion::Score),
        limit,
        include_content,
        group_by,
        snippets,
        expand,
        with_whole,
        rerank,
        ..HybridSearch::new(query)
    };
    Ok(match way.method {
        "bm25" => {
            let search = Bm25Search { limit, include_content, group_by, snippets, expand, ..Bm25Search::new(query) };
            client.search_bm25(Json(search)).await?
        }
        "fulltext" => {
            let search = FulltextSearch { limit, include_content, group_by, snippets, ..FulltextSearch::new(query) };
            client.search_fulltext(Json(search)).await?
        }
        "vector" => {
            let search =
                VectorSearch { limit, include_content, group_by, snippets, with_whole, ..VectorSearch::new(query) };
            client.search_vector(Json(search)).await?
        }
        "hybrid" => client.search_hybrid(Json(hybrid(None))).await?,
        "equal" => client.search_hybrid(Json(hybrid(Some(HybridWeights { vector: None, bm25: None })))).await?,
        _ => {
            let search = SearchQuery {
                limit,
                include_content,
                group_by,
                snippets,
                expand,
                with_whole,
                ..SearchQuery::new(query)
            };
            client.search(search).await?
        }
    })
}
