//! `svc graph`.
use super::{
    CliError, finite,
    output::{Output, count, one_line, say},
};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use svc_client::{
    Client, Remote,
    wire::{
        AuthorityQuery, CentralityMetric, CentralityQuery, ChangedFact, CommunityQuery, DiffQuery, Direction, EdgeKind,
        FactChange, FactResponse, GraphDocument, GraphQuery, NeighborQuery, SpineQuery,
    },
};

#[derive(Args)]
pub struct GraphArguments {
    #[command(subcommand)]
    command: GraphCommand,
}

#[derive(Subcommand)]
enum GraphCommand {
    /// Shows the most central documents.
    Centrality {
        /// By what: pagerank, degree or betweenness [default: pagerank].
        #[arg(long)]
        metric: Option<CentralityMetric>,
        /// Of how many documents the paths are looked at in a large graph, for betweenness [default: 256].
        #[arg(long)]
        pivots: Option<u32>,
        #[command(flatten)]
        which: WhichArguments,
        #[command(flatten)]
        graph: EdgeArguments,
    },
    /// Shows the subtrees that the rest of the graph leads to.
    Authority {
        #[command(flatten)]
        which: WhichArguments,
        #[command(flatten)]
        graph: EdgeArguments,
    },
    /// Shows the chains of the heaviest documents that a tree hangs on.
    Spines {
        /// The root of the tree.
        id: i64,
        #[command(flatten)]
        graph: EdgeArguments,
    },
    /// Shows groups of documents with more edges among them than to others.
    Communities {
        /// A higher one gives more and smaller groups [default: 1].
        #[arg(long, value_parser = finite)]
        resolution: Option<f64>,
        /// Leaves out smaller groups [default: 2].
        #[arg(long, value_name = "COUNT")]
        least: Option<u32>,
        /// Only documents at and under this one.
        #[arg(long, value_name = "ID")]
        under: Option<i64>,
        #[command(flatten)]
        graph: EdgeArguments,
    },
    /// Shows the documents around one, along facts.
    Neighbors {
        /// The document.
        id: i64,
        /// How many facts away, 1 to 4 [default: 1].
        #[arg(long)]
        depth: Option<u32>,
        /// Which way along facts: any, out or in [default: any].
        #[arg(long)]
        direction: Option<Direction>,
        /// Only along facts with this predicate; may be given several times.
        #[arg(long)]
        predicate: Vec<String>,
        /// The most documents, 1 to 1,000 [default: 100].
        #[arg(long)]
        limit: Option<u32>,
        #[command(flatten)]
        moment: MomentArguments,
    },
    /// Shows which facts changed between two moments.
    Diff {
        /// Since when, as in 2021-02-03T04:05:06Z.
        from: DateTime<Utc>,
        /// Until when [default: now].
        to: Option<DateTime<Utc>>,
        /// Compares what holds in the world at both moments, in place of what the store believed.
        #[arg(long)]
        valid: bool,
        /// Only changes of this kind: added, removed or superseded.
        #[arg(long)]
        kind: Option<FactChange>,
        /// Only facts about this document and what is under it.
        #[arg(long, value_name = "ID")]
        under: Option<i64>,
        /// Leaves out what rules derived.
        #[arg(long)]
        asserted: bool,
    },
    /// Counts facts, documents with edges and the parts that they fall into.
    Stats {
        /// Only documents at and under this one, and facts about them.
        #[arg(long, value_name = "ID")]
        under: Option<i64>,
        #[command(flatten)]
        graph: EdgeArguments,
    },
}

#[derive(Args)]
struct WhichArguments {
    /// Only the graph of this document and what is under it.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// Shows documents of this usetype only.
    #[arg(long)]
    usetype: Option<String>,
}

#[derive(Args)]
struct EdgeArguments {
    /// What leads from one document to another: triples, links or both [default: both].
    #[arg(long)]
    edges: Option<EdgeKind>,
    #[command(flatten)]
    moment: MomentArguments,
    /// The most results, 1 to 1,000 [default: 100].
    #[arg(long)]
    limit: Option<u32>,
}

#[derive(Args)]
pub struct MomentArguments {
    /// Along facts that hold at this time, as in 2021-02-03T04:05:06Z [default: now].
    #[arg(long, value_name = "TIME")]
    pub at: Option<DateTime<Utc>>,
    /// And that the store believed at this time [default: now].
    #[arg(long, value_name = "TIME")]
    pub known: Option<DateTime<Utc>>,
    /// Leaves out what rules derived.
    #[arg(long)]
    pub asserted: bool,
}

/// A query for a graph, from the arguments that all of them have.
macro_rules! query {
    ($name:ident, $graph:expr, { $($field:ident $(: $value:expr)?),* $(,)? }) => {{
        let EdgeArguments { edges, moment: MomentArguments { at, known, asserted }, limit } = $graph;
        $name { edges, valid_at: at, known_at: known, asserted_only: asserted, limit, $($field $(: $value)?,)* }
    }};
}

/// A row of a table that begins with a document.
fn row(document: &GraphDocument, more: Vec<String>) -> Vec<String> {
    let id = document.document_id.to_string();
    let mut row = vec![id, document.usetype.clone()];
    row.extend(more);
    row.push(one_line(&document.title, 60));
    row
}

/// Prints each result on a line of its own, or all as a table.
fn print<T: serde::Serialize>(
    output: Output,
    results: &[T],
    headings: &[&str],
    cells: impl Fn(&T) -> Vec<String>,
) -> Result<(), CliError> {
    match output {
        Output::Json => results.iter().try_for_each(Output::line)?,
        Output::Table => Output::table(headings, &results.iter().map(cells).collect::<Vec<_>>())?,
    }
    Ok(())
}

pub async fn graph(client: &Client<Remote>, output: Output, arguments: GraphArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        GraphCommand::Centrality { metric, pivots, which, graph } => {
            let WhichArguments { under, usetype } = which;
            let query = query!(CentralityQuery, graph, { metric, pivots, parent_id: under, usetype });
            let found = client.rank_documents(query).await?;
            print(output, &found.results, &["ID", "USETYPE", "SCORE", "ERROR", "IN", "OUT", "TITLE"], |found| {
                let error = found.standard_error.map_or(String::new(), |error| format!("{error:.6}"));
                let (into, out) = (found.in_degree.to_string(), found.out_degree.to_string());
                row(&found.document, vec![format!("{:.6}", found.score), error, into, out])
            })?;
        }
        GraphCommand::Authority { which, graph } => {
            let WhichArguments { under, usetype } = which;
            let query = query!(AuthorityQuery, graph, { parent_id: under, usetype });
            let found = client.rank_subtrees(query).await?;
            print(output, &found.results, &["ID", "USETYPE", "INFLOW", "AUTHORITY", "SIZE", "TITLE"], |found| {
                let (inflow, authority) = (format!("{:.6}", found.inflow), format!("{:.6}", found.authority));
                row(&found.document, vec![inflow, authority, found.size.to_string()])
            })?;
        }
        GraphCommand::Spines { id, graph } => {
            let found = client.find_spines(query!(SpineQuery, graph, { document_id: id })).await?;
            for spine in &found.spines {
                match output {
                    Output::Json => Output::line(spine)?,
                    Output::Table => {
                        let on = spine.documents.iter();
                        let on = on.map(|on| format!("{} {}", on.document_id, one_line(&on.title, 40)));
                        say!("{:.6}  {}", spine.weight, on.collect::<Vec<_>>().join("  >  "));
                    }
                }
            }
        }
        GraphCommand::Communities { resolution, least, under, graph } => {
            let query = query!(CommunityQuery, graph, { resolution, min_size: least, parent_id: under, members: None });
            let found = client.find_communities(query).await?;
            for group in &found.communities {
                match output {
                    Output::Json => Output::line(group)?,
                    Output::Table => {
                        say!("{}", count(group.size as usize, "document", "documents"));
                        for member in &group.members {
                            let title = one_line(&member.document.title, 60);
                            say!("  {}  {title}", member.document.document_id);
                        }
                    }
                }
            }
            if output == Output::Table {
                let groups = count(found.count as usize, "group", "groups");
                say!("{groups} with a modularity of {:.3}", found.modularity);
            }
        }
        GraphCommand::Neighbors { id, depth, direction, predicate, limit, moment } => {
            let query = NeighborQuery {
                document_id: id,
                depth,
                direction,
                predicates: (!predicate.is_empty()).then(|| predicate.join(",")),
                limit,
                valid_at: moment.at,
                known_at: moment.known,
                asserted_only: moment.asserted,
            };
            let found = client.find_neighbors(query).await?;
            match output {
                Output::Json => Output::line(&found)?,
                Output::Table => {
                    print(output, &found.documents, &["ID", "USETYPE", "AWAY", "TITLE"], |near| {
                        row(&near.document, vec![near.distance.to_string()])
                    })?;
                    for fact in &found.facts {
                        say!("{} -{}-> {}", fact.subject_id, one_line(&fact.predicate, 60), fact.object_id);
                    }
                    if found.truncated {
                        say!(
                            "there is more than is shown: narrow it by --depth, --direction or --predicate, or raise --limit"
                        );
                    }
                }
            }
        }
        GraphCommand::Diff { from, to, valid, kind, under, asserted } => {
            let mut query = DiffQuery {
                kind,
                parent_id: under,
                asserted_only: asserted,
                limit: Some(1000),
                ..DiffQuery::default()
            };
            match valid {
                true => (query.valid_from, query.valid_to) = (Some(from), to),
                false => (query.known_from, query.known_to) = (Some(from), to),
            }
            loop {
                let page = client.compare_facts(query.clone()).await?;
                for change in &page.changes {
                    match output {
                        Output::Json => Output::line(change)?,
                        Output::Table => say!("{}", changed(change)),
                    }
                }
                query.cursor = page.next_cursor;
                if query.cursor.is_none() {
                    break;
                }
                // All pages are of the same moments.
                match valid {
                    true => query.valid_to = Some(page.to),
                    false => query.known_to = Some(page.to),
                }
            }
        }
        GraphCommand::Stats { under, graph } => {
            let found = client.read_graph_stats(query!(GraphQuery, graph, { parent_id: under })).await?;
            match output {
                Output::Json => Output::line(&found)?,
                Output::Table => {
                    say!("{} facts, {} to literals, {} derived", found.facts, found.literals, found.derived);
                    say!("{} dynamic, {} static, {} atemporal", found.dynamic, found.r#static, found.atemporal);
                    say!(
                        "{} documents, {} with edges in {}",
                        found.documents,
                        found.connected,
                        count(found.components as usize, "part", "parts")
                    );
                    for counted in &found.by_predicate {
                        say!("{:>10}  {}", counted.facts, one_line(&counted.predicate, 80));
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A change on one line, with its object and, if another took its place, that.
fn changed(change: &ChangedFact) -> String {
    let object = |fact: &FactResponse| match (&fact.object_id, &fact.object_literal) {
        (Some(id), _) => id.to_string(),
        (None, literal) => format!("\"{}\"", one_line(literal.as_deref().unwrap_or_default(), 60)),
    };
    let fact = &change.fact;
    let mark = match change.kind {
        FactChange::Added => "+",
        FactChange::Removed => "-",
        FactChange::Superseded => "~",
    };
    let by = change.by.as_ref().map_or(String::new(), |by| format!("  now {}", object(by)));
    format!("{mark} {} {} -{}-> {}{by}", fact.id, fact.subject_id, one_line(&fact.predicate, 60), object(fact))
}
