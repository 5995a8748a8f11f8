//! `svc search`.
use super::{
    CliError, finite,
    output::{Output, one_line, say},
};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::{io::Write, process::ExitCode, str::FromStr};
use svc_client::{
    Client, Failure, Json, Remote, UnknownWord, Validated,
    wire::{
        AutoSearch, Bm25Search, DocumentField, DocumentPath, DocumentResponse, Facet, FacetBy, FacetsResponse,
        FulltextSearch, Fusion, GroupBy, HybridSearch, MaxsimSearch, OwnJson, PageQuery, RerankMethod, ScopeState,
        SearchExplanation, SearchFilter, SearchResponse, SimilarQuery, Snippet, SnippetOf, SortBy, SortOrder,
        SortedResponse, TotalIs, VectorSearch,
    },
};

#[derive(Args)]
pub struct SearchArguments {
    /// The words or the question to search for.
    query: String,
    /// The ranking method; `auto` takes the one that suits the query, or that of the context.
    #[arg(long, value_enum, default_value_t = Method::Auto)]
    method: Method,
    /// A search context: its values stand for what is not said here.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The number of results, 1 to 100.
    #[arg(long, default_value_t = 5)]
    limit: u32,
    /// Searches only under this document.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// Leaves out this document and everything under it; may be given several times. It takes the place of a context's filter.
    #[arg(long, value_name = "ID")]
    exclude: Vec<i64>,
    /// What else must hold, as the `filter` of a search has it: {"any": [{"usetype": ["note"]}, {"under": [7]}]}. It takes the place of a context's filter.
    #[arg(long, value_name = "JSON", value_parser = filter)]
    filter: Option<SearchFilter>,
    /// Ranks the best candidates again, by the cross-encoder or by stored token vectors.
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "cross-encoder")]
    rerank: Option<Rerank>,
    /// How much relevance counts against likeness to the results before, 0 to 1: with less, fewer results repeat each other.
    #[arg(long, value_name = "SHARE", value_parser = finite)]
    mmr_lambda: Option<f64>,
    /// Ranks newer results before older ones: with each span of so many days a result counts half.
    #[arg(long, value_name = "DAYS", value_parser = finite)]
    half_life: Option<f64>,
    /// Sorts the best results by `created_at`, `updated_at`, `event_time` or `title`, and not by their scores.
    #[arg(long, value_name = "BY", value_parser = word::<SortBy>)]
    sort: Option<SortBy>,
    /// `asc` or `desc`; by default the latest times or the first titles come first.
    #[arg(long, value_name = "ORDER", value_parser = word::<SortOrder>, requires = "sort")]
    sort_order: Option<SortOrder>,
    /// How many of the best results are sorted, 1 to 1,000; 100 by default.
    #[arg(long, value_name = "N", requires = "sort")]
    sort_top: Option<u32>,
    /// Prints JSON lines that hold these fields of the documents alone, with commas between them, such as `id,title`.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = word::<DocumentField>)]
    fields: Vec<DocumentField>,
    /// Counts all that matches: by `usetype`, `format`, `parent`, `root`, `event_time` or `created_at` (with `:day`, `:week`, `:month`, `:quarter` or `:year`), or
    /// `structured_content:KEY`; may be given several times.
    #[arg(long, value_name = "BY", value_parser = facet)]
    facet: Vec<Facet>,
    /// What stands for the texts that are found: `none` shows each text and each container by itself. By default `file`, or what the context says.
    #[arg(long, value_enum, value_name = "WHAT")]
    group_by: Option<Group>,
    /// Orders files or sections by their whole and their best text together, in a search by `vector` or `hybrid`.
    #[arg(long)]
    with_whole: bool,
    /// The most texts that a file or section shows, 1 to 10.
    #[arg(long, value_name = "N", default_value_t = 1)]
    per_group: u32,
    /// Goes on behind an earlier page of the same search, which printed this.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Says how the search came to its answer: its legs, their ways, and what took how long.
    #[arg(long)]
    explain: bool,
    /// Searches for the nearest word instead of each that no text has, and says so; of the last word also for what it is the beginning of.
    #[arg(long)]
    forgiving: bool,
    /// Adds terms of the best texts to the query of `bm25` or `hybrid`, and ranks again, or with `--expand=false` does not. By default `auto` does so where both legs of
    /// `hybrid` find some of the same texts first.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    expand: Option<bool>,
    /// By what the legs of `hybrid` count together: `rank` or `score`. By default `rank`, or what the context says.
    #[arg(long, value_name = "BY", value_parser = word::<Fusion>)]
    fusion: Option<Fusion>,
}

#[derive(Args)]
pub struct SimilarArguments {
    /// The document that others are compared with.
    id: i64,
    /// The number of results, 1 to 100.
    #[arg(long, default_value_t = 5)]
    limit: u32,
    /// Looks only under this document.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// Finds only documents of this usetype, such as `chunk`.
    #[arg(long)]
    usetype: Option<String>,
    /// Leaves out less similar documents; -1 to 1.
    #[arg(long, value_name = "COSINE", allow_negative_numbers = true, value_parser = finite)]
    min_similarity: Option<f64>,
    /// What stands for the texts that are found: `none` shows each text and each container by itself.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Group::None)]
    group_by: Group,
    /// Goes on behind an earlier page, which printed this.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Group {
    File,
    Section,
    None,
}

impl From<Group> for GroupBy {
    fn from(group: Group) -> Self {
        match group {
            Group::File => Self::File,
            Group::Section => Self::Section,
            Group::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Rerank {
    CrossEncoder,
    Maxsim,
}

impl From<Rerank> for RerankMethod {
    fn from(rerank: Rerank) -> Self {
        match rerank {
            Rerank::CrossEncoder => Self::CrossEncoder,
            Rerank::Maxsim => Self::Maxsim,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    Auto,
    Hybrid,
    Vector,
    Bm25,
    Fulltext,
    Maxsim,
}

impl SearchArguments {
    /// What a context says of a filter holds where nothing is said of one here.
    fn filter(&self) -> Option<SearchFilter> {
        if self.exclude.is_empty() {
            return self.filter.clone();
        }
        let mut filter = self.filter.clone().unwrap_or_default();
        filter.exclude.get_or_insert_default().extend(&self.exclude);
        Some(filter)
    }
}

/// What a context says of groups holds where nothing is said here, and files where neither says anything.
async fn grouping(client: &Client<Remote>, arguments: &SearchArguments) -> Result<Option<GroupBy>, Failure> {
    let Some(name) = arguments.context.as_deref().filter(|_| arguments.group_by.is_none()) else {
        return Ok(Some(arguments.group_by.map_or(GroupBy::File, GroupBy::from)));
    };
    // This one has files itself where its context says nothing.
    if matches!(arguments.method, Method::Auto) {
        return Ok(None);
    }
    let mut query = PageQuery::default();
    loop {
        let page = client.list_contexts(query.clone()).await?;
        if let Some(context) = page.contexts.iter().find(|context| context.name == name) {
            return Ok(context.config.group_by.is_none().then_some(GroupBy::File));
        }
        query.cursor = page.next_cursor;
        // The search says that there is no such context.
        if query.cursor.is_none() {
            return Ok(None);
        }
    }
}

fn filter(text: &str) -> Result<SearchFilter, String> {
    // A key that stands twice is refused, because only one of the values could hold.
    let read = serde_json::from_str::<OwnJson>(text).and_then(|_| serde_json::from_str(text));
    read.map_err(|error| format!("takes a filter in JSON: {error}"))
}

/// A word of a closed set.
fn word<T: FromStr<Err = UnknownWord>>(text: &str) -> Result<T, UnknownWord> {
    text.parse()
}

/// What is counted, and behind a colon its key or its span of time.
fn facet(text: &str) -> Result<Facet, String> {
    let (by, rest) = text.split_once(':').map_or((text, None), |(by, rest)| (by, Some(rest)));
    let by = by.parse::<FacetBy>().map_err(|error| error.to_string())?;
    let mut facet = Facet::by(by);
    match by {
        FacetBy::StructuredContent => facet.key = rest.map(str::to_owned),
        _ => facet.bucket = rest.map(str::parse).transpose().map_err(|error: UnknownWord| error.to_string())?,
    }
    Ok(facet)
}

macro_rules! body {
    ($type:ident, $arguments:ident, $group_by:expr $(, $own:ident)*) => {
        Json($type {
            parent_id: $arguments.under,
            filter: $arguments.filter(),
            limit: $arguments.limit,
            context: $arguments.context.clone(),
            rerank: $arguments.rerank.map(|_| true),
            rerank_method: $arguments.rerank.map(RerankMethod::from),
            mmr_lambda: $arguments.mmr_lambda,
            recency_half_life_days: $arguments.half_life,
            sort: $arguments.sort,
            sort_order: $arguments.sort_order,
            sort_top: $arguments.sort_top,
            fields: (!$arguments.fields.is_empty()).then(|| $arguments.fields.clone()),
            facets: (!$arguments.facet.is_empty()).then(|| $arguments.facet.clone()),
            group_by: $group_by,
            with_whole: $arguments.with_whole.then_some(true),
            per_group: $arguments.per_group,
            snippets: Some(true),
            cursor: $arguments.cursor.clone(),
            explain: $arguments.explain,
            forgiving: $arguments.forgiving,
            $( $own: $arguments.$own, )*
            ..$type::new(&$arguments.query)
        })
    };
}

pub async fn search(client: &Client<Remote>, output: Output, arguments: SearchArguments) -> Result<ExitCode, CliError> {
    if arguments.expand.is_some() && !matches!(arguments.method, Method::Auto | Method::Bm25 | Method::Hybrid) {
        return Err(CliError::Other("--expand is for --method auto, bm25 and hybrid".to_owned()));
    }
    if arguments.fusion.is_some() && !matches!(arguments.method, Method::Auto | Method::Hybrid) {
        return Err(CliError::Other("--fusion is for --method auto and hybrid".to_owned()));
    }
    let group_by = grouping(client, &arguments).await?;
    let found = match arguments.method {
        Method::Auto => client.search_auto(body!(AutoSearch, arguments, group_by, expand, fusion)).await,
        Method::Hybrid => client.search_hybrid(body!(HybridSearch, arguments, group_by, expand, fusion)).await,
        Method::Vector => client.search_vector(body!(VectorSearch, arguments, group_by)).await,
        Method::Bm25 => client.search_bm25(body!(Bm25Search, arguments, group_by, expand)).await,
        Method::Fulltext => client.search_fulltext(body!(FulltextSearch, arguments, group_by)).await,
        Method::Maxsim => client.search_maxsim(body!(MaxsimSearch, arguments, group_by)).await,
    }?;
    // A table shows what may not be among the fields.
    let output = if arguments.fields.is_empty() { output } else { Output::Json };
    print(client, output, &format!("“{}”", one_line(&arguments.query, 80)), &found).await
}

pub async fn similar(
    client: &Client<Remote>,
    output: Output,
    arguments: SimilarArguments,
) -> Result<ExitCode, CliError> {
    let query = SimilarQuery {
        parent_id: arguments.under,
        usetype: arguments.usetype,
        min_similarity: arguments.min_similarity,
        limit: arguments.limit,
        group_by: Some(arguments.group_by.into()),
        cursor: arguments.cursor,
        ..SimilarQuery::default()
    };
    let found = client.find_similar(DocumentPath { id: arguments.id }, query).await?;
    print(client, output, &format!("what is like document {}", arguments.id), &found).await
}

async fn print(
    client: &Client<Remote>,
    output: Output,
    asked: &str,
    found: &SearchResponse,
) -> Result<ExitCode, CliError> {
    match output {
        Output::Json => {
            found.results.iter().try_for_each(Output::line)?;
            found.facets.iter().try_for_each(Output::line)?;
            found.explanation.iter().try_for_each(Output::line)?;
            // Standard output has the results alone.
            if let Some(sorted) = &found.sorted {
                writeln!(std::io::stderr(), "{}", sorted_by(sorted))?;
            }
            if let Some(reason) = &found.no_vector {
                writeln!(std::io::stderr(), "note: {reason}")?;
            }
            for line in missing(found.scope_state) {
                writeln!(std::io::stderr(), "{line}")?;
            }
        }
        Output::Table => show(client, asked, found).await?,
    }
    if let Some(instead) = &found.searched_instead {
        writeln!(std::io::stderr(), "searched for “{}” instead", one_line(&instead.query, 80))?;
    }
    if let Some(terms) = found.expanded_by.as_ref().filter(|terms| !terms.is_empty()) {
        writeln!(std::io::stderr(), "also searched for {}", one_line(&terms.join(", "), 200))?;
    }
    if let Some(cursor) = &found.next_cursor {
        writeln!(std::io::stderr(), "more results: --cursor {cursor}")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &Client<Remote>, asked: &str, found: &SearchResponse) -> Result<(), CliError> {
    say!("{} results by {} in {:.0} ms for {asked}", found.results.len(), found.method, found.latency_ms);
    if let Some(sorted) = &found.sorted {
        say!("{}", sorted_by(sorted));
    }
    for (place, result) in found.results.iter().enumerate() {
        let score = if result.no_tokens { "no tokens".to_owned() } else { format!("score {:.4}", result.score) };
        let hits = result.hits.as_deref().unwrap_or_default();
        // A lone text says where in its file it stands, so the file needs no line.
        let document = if let [hit] = hits { &hit.document } else { &result.document };
        say!("{:>3}. {}  (document {}, {score})", place + 1, place_of(client, document).await, document.id);
        if hits.len() < 2 {
            say!("     {}", shown(result.snippet.as_ref(), hits.first().map_or(&result.document, |hit| &hit.document)));
        }
        for hit in hits.iter().filter(|_| hits.len() > 1) {
            say!("     {}  (document {})", place_of(client, &hit.document).await, hit.document.id);
            say!("       {}", shown(hit.snippet.as_ref(), &hit.document));
        }
    }
    if let Some(facets) = &found.facets {
        counts(facets)?;
    }
    if let Some(explanation) = &found.explanation {
        explained(explanation)?;
    }
    if let Some(reason) = &found.no_vector {
        say!("Note: {reason}.");
    }
    tell_missing(found.scope_state)
}

/// How results were sorted, and whether these are all.
fn sorted_by(SortedResponse { by, order, count, count_is }: &SortedResponse) -> String {
    let best = if *count_is == TotalIs::AtLeast { "the best" } else { "all" };
    format!("Sorted by {by} {order}: {best} {count} that match.")
}

/// Says what of the scope a search could not show.
pub fn tell_missing(state: ScopeState) -> Result<(), CliError> {
    for line in missing(state) {
        say!("{line}");
    }
    Ok(())
}

/// What of the scope a search could not show, a sentence each.
fn missing(state: ScopeState) -> Vec<String> {
    let mut lines = Vec::new();
    if state.in_flight + state.failed > 0 {
        lines.push(format!(
            "Not searchable: {} nodes are still being ingested, {} failed.",
            state.in_flight, state.failed
        ));
    }
    if state.other_model > 0 {
        lines.push(format!(
            "Not found by meaning: {} documents, whose vectors are of another model; svc reembed makes them anew.",
            state.other_model
        ));
    }
    lines
}

/// Says how a search came to its answer.
fn explained(explanation: &SearchExplanation) -> Result<(), CliError> {
    for leg in &explanation.legs {
        let weight = leg.weight.map(|weight| format!(", weight {weight}")).unwrap_or_default();
        let embedded = leg.embed_ms.map(|ms| format!(", after {ms:.1} ms for the query's vector")).unwrap_or_default();
        say!("{}{weight}: {} of {} wanted in {:.1} ms{embedded}", leg.leg, leg.returned, leg.depth, leg.ms);
        if let Some(plan) = &leg.plan {
            let figures = [
                ("expected to be eligible", plan.eligible),
                ("documents in all", plan.documents),
                ("candidates", plan.candidates),
                ("entries at a time", plan.entries),
                ("looked up", plan.verified),
                ("parts read", plan.parts),
            ];
            let figures = figures.into_iter().filter_map(|(what, number)| Some(format!(", {} {what}", number?)));
            say!("  {}{}", plan.way, figures.collect::<String>());
        }
    }
    let stages = explanation.stages.iter().map(|time| format!("{} {:.1} ms", time.stage, time.ms));
    if let Some(fusion) = explanation.fusion {
        say!("together by {fusion}");
    }
    let rounds = if explanation.rounds == 1 { "round" } else { "rounds" };
    say!("{} {rounds}: {}", explanation.rounds, stages.collect::<Vec<_>>().join(", "));
    Ok(())
}

/// Says how many matches have which value.
fn counts(facets: &FacetsResponse) -> Result<(), CliError> {
    let at_least = if facets.counted_is == TotalIs::AtLeast { "at least " } else { "" };
    for facet in &facets.facets {
        let key = facet.key.as_deref().map(|key| format!(" {}", one_line(key, 60))).unwrap_or_default();
        say!("{}{key}, of {at_least}{}:", facet.by, facets.counted);
        for value in &facet.values {
            let shown = match (&value.title, value.value.as_str()) {
                (Some(title), _) => format!("{} (document {})", one_line(title, 60), value.value),
                (None, Some(text)) => one_line(text, 60),
                (None, None) => value.value.to_string(),
            };
            say!("{:>9}  {shown}", value.count);
        }
        for (count, what) in [(facet.more, "further values"), (facet.without, "without a value")] {
            if count > 0 {
                say!("           {count} {what}");
            }
        }
    }
    Ok(())
}

/// The piece of a text that shows why it was found; without one, its beginning.
fn shown(snippet: Option<&Snippet>, document: &DocumentResponse) -> String {
    match snippet {
        None if !document.content.trim().is_empty() => one_line(&document.content, 240),
        Some(Snippet { of: SnippetOf::Content, start, text, .. }) => {
            format!("{}{}", if *start > 0 { "… " } else { "" }, one_line(text, 240))
        }
        _ => "(no text)".to_owned(),
    }
}

/// Where a result comes from: its file and page, if known.
pub async fn place_of(client: &Client<Remote>, document: &DocumentResponse) -> String {
    let title = one_line(&document.title, 60);
    let mut place = match document.path.first() {
        Some(root) => {
            match client.read_document(DocumentPath { id: *root }, Default::default()).await.and_then(Validated::value)
            {
                Ok(file) if file.title != document.title => format!("{} › {title}", one_line(&file.title, 60)),
                _ => title,
            }
        }
        None => title,
    };
    if let Ok(evidence) = client.read_evidence(DocumentPath { id: document.id }).await
        && let Some(anchor) = evidence.evidence.get("anchor")
    {
        for (name, one) in [("pages", "page"), ("slides", "slide")] {
            if let Some([first, last]) = anchor.get(name).and_then(Value::as_array).map(Vec::as_slice) {
                place +=
                    &if first == last { format!(", {one} {first}") } else { format!(", {name} {first} to {last}") };
            }
        }
        if let Some(cells) = anchor["cells"].as_str() {
            place += &format!(", {}", one_line(cells, 60));
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        search: SearchArguments,
    }

    #[test]
    fn the_words_behind_rerank_are_the_query() {
        let parsed = |line: [&str; 3]| Line::try_parse_from(line).unwrap().search;
        let usual = parsed(["svc", "--rerank", "radar gauge"]);
        assert!(matches!(usual.rerank, Some(Rerank::CrossEncoder)) && usual.query == "radar gauge");
        let named = parsed(["svc", "--rerank=maxsim", "radar gauge"]);
        assert!(matches!(named.rerank, Some(Rerank::Maxsim)) && named.query == "radar gauge");
    }

    #[test]
    fn no_condition_of_a_filter_is_dropped_unsaid() {
        assert!(filter(r#"{"any": [{"usetype": ["note"]}, {"under": [7]}]}"#).is_ok());
        let twice = filter(r#"{"structured_content": {"kind": "a", "kind": "b"}}"#).unwrap_err();
        assert!(twice.starts_with("takes a filter in JSON: ") && twice.contains("`kind`"), "{twice}");
        assert!(filter("null").is_err());
    }
}
