//! What summaries and portfolios gain a reader with a budget of tokens, over search and over reading on: on Cranfield, or,
//! where that is absent, on the samples of the project and without questions.
use crate::{
    encoder::cranfield::Cranfield,
    figure::{BoxError, Figure, median},
    sandbox::with_app,
    uploads,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    time::Instant,
};
use svc::app::App;
use svc_client::{
    Client, FileUpload, Json, OptionalJson, Remote,
    wire::{
        DocumentPath, DocumentResponse, PageQuery, PortfolioRequest, PortfolioResponse, RaptorRequest, UploadQuery,
        VectorSearch, WaitQuery,
    },
};
use svc_models::Engine;
use svc_ranking::{Analyzer, AnalyzerConfig, dot};

/// The budgets of one answer, and of an overview.
const ANSWER: [u32; 3] = [500, 1_000, 2_000];
const OVERVIEW: [u32; 3] = [1_000, 4_000, 16_000];

/// A text that may be read.
struct Text {
    id: i64,
    tokens: u64,
    terms: HashSet<Box<str>>,
    embed: Vec<f32>,
    /// The number of the abstract or file; `None` for a summary.
    source: Option<usize>,
}

/// What was chosen to read, in the order of the choice.
type Reading<'a> = Vec<&'a Text>;

pub async fn run(questions: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, questions, out).await).await
}

async fn measure(app: &App, questions: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    let engine =
        app.service.embedder.as_ref().and_then(svc::embedding::Embedder::engine).ok_or("the service has no model")?;
    let collection = Cranfield::read();
    let sources = match &collection {
        Ok(collection) => collection.documents.clone(),
        Err(error) => {
            eprintln!("bench: left out, the questions: {error}");
            samples()?
        }
    };
    let id = store(&client, &sources).await?;
    let start = Instant::now();
    let body = OptionalJson(Some(RaptorRequest::default()));
    let made = client.make_raptor(DocumentPath { id }, WaitQuery::default(), body).await?;
    uploads::settled(&client, id).await?;
    let leaves = usize::try_from(made.leaves)?;
    out(Figure::alone("raptor/make", leaves, "s", start.elapsed().as_secs_f64()));
    let texts = read(&client, engine, id).await?;
    let summaries = texts.iter().filter(|text| text.source.is_none()).count();
    out(Figure::alone("raptor/summaries", leaves, "summaries", summaries as f64));
    let library = Library::new(&texts);
    overview(&client, id, &library, out).await?;
    if let Ok(collection) = collection {
        answers(&client, id, &library, &collection, questions, out).await?;
    }
    Ok(())
}

fn samples() -> Result<Vec<String>, BoxError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    Ok(paths.iter().map(std::fs::read_to_string).collect::<Result<_, _>>()?)
}

/// Stores each source as a section of one file, and returns the file's id.
async fn store(client: &Client<Remote>, sources: &[String]) -> Result<i64, BoxError> {
    let plain =
        |text: &str| text.lines().map(|line| line.trim_start_matches(['#', '=', '-'])).collect::<Vec<_>>().join("\n");
    let section = |(number, text): (usize, &String)| format!("# Source {number}\n\n{}\n\n", plain(text));
    let file: String = sources.iter().enumerate().map(section).collect();
    // One chunk for each abstract, as far as they fit.
    let options = serde_json::json!({"structure": {"max_tokens": 400}});
    let file = FileUpload::from_bytes("sources.md", file, Some(options));
    let id = client.upload_file(UploadQuery::default(), file).await?.document_id;
    uploads::settled(client, id).await?;
    Ok(id)
}

/// The leaves and summaries under a file, as they are read.
async fn read(client: &Client<Remote>, engine: &Engine, id: i64) -> Result<Vec<Text>, BoxError> {
    let (mut documents, mut cursor): (Vec<DocumentResponse>, _) = (Vec::new(), None);
    loop {
        let query = PageQuery { cursor, limit: Some(1_000), include_embed: true, ..PageQuery::default() };
        let page = client.list_subtree(DocumentPath { id }, query).await?;
        documents.extend(page.documents);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let number = |title: &str| title.strip_prefix("Source ").and_then(|number| number.parse().ok());
    let sources: HashMap<i64, usize> =
        documents.iter().filter_map(|document| Some((document.id, number(&document.title)?))).collect();
    let analyzer = Analyzer::new(AnalyzerConfig::default());
    let mut texts = Vec::new();
    for document in documents.iter().filter(|document| ["chunk", "summary"].contains(&document.usetype.as_str())) {
        let is_leaf = document.usetype == "chunk";
        texts.push(Text {
            id: document.id,
            tokens: engine.count_content_tokens(&document.content)? as u64,
            terms: analyzer.bag(&document.content).terms.into_keys().collect(),
            embed: document.embed.clone().ok_or("a text has no vector")?,
            source: if is_leaf { document.path.iter().find_map(|above| sources.get(above).copied()) } else { None },
        });
    }
    Ok(texts)
}

/// All texts, and how rare each term is among the leaves.
struct Library<'a> {
    texts: &'a [Text],
    by_id: HashMap<i64, &'a Text>,
    rarity: HashMap<&'a str, f64>,
}

impl<'a> Library<'a> {
    fn new(texts: &'a [Text]) -> Library<'a> {
        let mut having: HashMap<&str, usize> = HashMap::new();
        let leaves = || texts.iter().filter(|text| text.source.is_some());
        leaves().flat_map(|text| &text.terms).for_each(|term| *having.entry(term).or_default() += 1);
        let n = leaves().count() as f64;
        let rarity = having.into_iter().map(|(term, having)| (term, (1.0 + n / having as f64).ln())).collect();
        Library { texts, by_id: texts.iter().map(|text| (text.id, text)).collect(), rarity }
    }

    fn leaves(&self) -> impl Iterator<Item = &'a Text> {
        self.texts.iter().filter(|text| text.source.is_some())
    }

    /// The share of what the wanted texts say that the reading says too: of their terms, the rare ones counting more.
    fn terms_read(&self, wanted: impl Iterator<Item = &'a Text>, reading: &Reading<'_>) -> f64 {
        let wanted: HashSet<&str> = wanted.flat_map(|text| &text.terms).map(|term| &**term).collect();
        let is_read = |term: &&&str| reading.iter().any(|text| text.terms.contains(**term));
        // A hash set has no order, and sums of floats depend on it.
        let mut wanted: Vec<&str> = wanted.into_iter().collect();
        wanted.sort_unstable();
        let weight = |term: &&str| self.rarity.get(*term).copied().unwrap_or(0.0);
        wanted.iter().filter(is_read).map(weight).sum::<f64>() / wanted.iter().map(weight).sum::<f64>()
    }

    /// The mean cosine of each leaf to the nearest text of the reading.
    fn nearest(&self, reading: &Reading<'_>) -> f64 {
        let nearest = |leaf: &Text| reading.iter().map(|text| dot(&leaf.embed, &text.embed)).fold(0.0, f32::max);
        self.leaves().map(|leaf| f64::from(nearest(leaf))).sum::<f64>() / self.leaves().count() as f64
    }

    fn chosen(&self, portfolio: &PortfolioResponse) -> Reading<'a> {
        let mut nodes: Vec<_> = portfolio.nodes.iter().collect();
        nodes.sort_by_key(|node| node.turn);
        nodes.iter().filter_map(|node| self.by_id.get(&node.document.id).copied()).collect()
    }
}

/// As many texts as fit the budget, one after another; one that does not fit is left out.
fn fill<'a>(texts: impl Iterator<Item = &'a Text>, budget: u32) -> Reading<'a> {
    let mut left = u64::from(budget);
    let fits = |text: &&Text| {
        let fits = text.tokens <= left;
        left -= if fits { text.tokens } else { 0 };
        fits
    };
    texts.filter(fits).collect()
}

/// What a reader without a question learns of all there is.
async fn overview(
    client: &Client<Remote>,
    id: i64,
    library: &Library<'_>,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let n = library.leaves().count();
    let leaves: Vec<&Text> = library.leaves().collect();
    for budget in OVERVIEW {
        let mean = (leaves.iter().map(|text| text.tokens).sum::<u64>() / n.max(1) as u64).max(1);
        let step = (n / usize::try_from(u64::from(budget) / mean)?.max(1)).max(1);
        let request =
            |summaries| PortfolioRequest { summaries, include_content: false, ..PortfolioRequest::new(budget) };
        let with = client.choose_portfolio(DocumentPath { id }, Json(request(true))).await?;
        let without = client.choose_portfolio(DocumentPath { id }, Json(request(false))).await?;
        // The highest summaries were made last.
        let top = library.texts.iter().rev().filter(|text| text.source.is_none());
        for (name, reading) in [
            ("from_the_beginning", fill(leaves.iter().copied(), budget)),
            ("evenly_spaced", fill(leaves.iter().copied().step_by(step), budget)),
            ("summaries_from_the_top", fill(top, budget)),
            ("portfolio_of_leaves", library.chosen(&without)),
            ("portfolio", library.chosen(&with)),
        ] {
            let figure = |what| format!("raptor/overview/{budget}/{name}/{what}");
            out(Figure::alone(&figure("terms"), n, "share", library.terms_read(library.leaves(), &reading)));
            out(Figure::alone(&figure("nearest"), n, "cosine", library.nearest(&reading)));
        }
        out(Figure::alone(
            &format!("raptor/overview/{budget}/portfolio/of_bound"),
            n,
            "share",
            with.coverage / with.bound,
        ));
    }
    Ok(())
}

/// How well what is read answers the questions.
async fn answers(
    client: &Client<Remote>,
    id: i64,
    library: &Library<'_>,
    collection: &Cranfield,
    most: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let asked = collection.relevant();
    let every = (asked.len() / most.max(1)).max(1);
    let mut measured: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut latencies = Vec::new();
    let mut questions = 0;
    for (number, relevant) in asked.iter().step_by(every).take(most) {
        questions += 1;
        let question = &collection.questions[*number];
        let wanted = || library.leaves().filter(|text| text.source.is_some_and(|source| relevant.contains(&source)));
        let search = |usetypes: &[&str]| VectorSearch {
            parent_id: Some(id),
            limit: 100,
            include_content: false,
            usetype: Some(usetypes.iter().map(|usetype| (*usetype).to_owned()).collect()),
            ..VectorSearch::new(question)
        };
        let mut ranked = Vec::new();
        for usetypes in [&["chunk"][..], &["chunk", "summary"]] {
            let found = client.search_vector(Json(search(usetypes))).await?;
            let texts: Reading<'_> =
                found.results.iter().filter_map(|result| library.by_id.get(&result.document.id).copied()).collect();
            ranked.push(texts);
        }
        for budget in ANSWER {
            let mut readings = vec![
                ("search", fill(ranked[0].iter().copied(), budget)),
                ("collapsed_tree", fill(ranked[1].iter().copied(), budget)),
            ];
            for (name, summaries) in [("portfolio_of_leaves", false), ("portfolio", true)] {
                let query = Some(question.clone());
                let request =
                    PortfolioRequest { summaries, query, include_content: false, ..PortfolioRequest::new(budget) };
                let portfolio = client.choose_portfolio(DocumentPath { id }, Json(request)).await?;
                latencies.push(portfolio.latency_ms);
                readings.push((name, library.chosen(&portfolio)));
            }
            for (name, reading) in readings {
                let mut figure = |what, value| {
                    measured.entry(format!("raptor/answer/{budget}/{name}/{what}")).or_default().push(value)
                };
                figure("terms", library.terms_read(wanted(), &reading));
                figure("recall", recall(relevant, &reading));
                figure("ndcg", ndcg(relevant, &reading));
            }
        }
    }
    for (name, values) in measured {
        out(Figure::alone(&name, questions, "share", values.iter().sum::<f64>() / values.len() as f64));
    }
    out(Figure::alone("raptor/portfolio/latency", latencies.len(), "ms", median(&mut latencies)));
    Ok(())
}

/// The share of the relevant sources of which a leaf was read.
fn recall(relevant: &HashSet<usize>, reading: &Reading<'_>) -> f64 {
    let read: HashSet<usize> = reading.iter().filter_map(|text| text.source).collect();
    relevant.intersection(&read).count() as f64 / relevant.len() as f64
}

/// nDCG of the sources in the order in which they were chosen, each counted once; a summary is a place without gain.
fn ndcg(relevant: &HashSet<usize>, reading: &Reading<'_>) -> f64 {
    let discount = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let mut seen = HashSet::new();
    let places = reading.iter().filter(|text| text.source.is_none_or(|source| seen.insert(source))).enumerate();
    let gains = places.filter(|(_, text)| text.source.is_some_and(|source| relevant.contains(&source)));
    let gain: f64 = gains.map(|(place, _)| discount(place)).sum();
    gain / (0..relevant.len().min(reading.len()).max(1)).map(discount).sum::<f64>()
}
