//! `svc extract-facts` and `svc merges`.
use super::{
    CliError, INTERRUPTED, SOME_FAILED, finite,
    output::{Output, count, say},
    unless_interrupted,
};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{
        DocumentPath, ExtractFactsRequest, MergeMethod, MergePath, MergeQuery, NewMerge, NewPredicates, ResolveNames,
        SupersedeFacts, WaitQuery,
    },
};

#[derive(Args)]
pub struct ExtractFactsArguments {
    /// The document whose texts, its own and those under it, are read.
    id: i64,
    /// Waits for what comes of it, for at most a minute; the exit code is 3 if a text could not be read.
    #[arg(long)]
    wait: bool,
    /// The most facts of one text [default: as SVC_EXTRACTION_MAX_FACTS says].
    #[arg(long, value_name = "NUMBER")]
    max_facts: Option<u32>,
    /// Drops facts of which the model is less sure, 0 to 1 [default: as SVC_EXTRACTION_CONFIDENCE_THRESHOLD says].
    #[arg(long, value_name = "CONFIDENCE", value_parser = finite)]
    threshold: Option<f64>,
    /// What becomes of facts with predicates that nobody has made: allow or closed [default: allow].
    #[arg(long, value_name = "POLICY")]
    new_predicates: Option<NewPredicates>,
    /// How names are taken for entities that are there: exact, similar or off [default: similar].
    #[arg(long, value_name = "HOW")]
    resolve: Option<ResolveNames>,
    /// Whether older facts of functional predicates give way: auto or never [default: never].
    #[arg(long, value_name = "WHETHER")]
    supersede: Option<SupersedeFacts>,
    /// Closes what the texts no longer state.
    #[arg(long)]
    replace: bool,
    /// Writes no fact; the evidence of the documents shows what would be written.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub struct MergesArguments {
    #[command(subcommand)]
    command: Option<MergesCommand>,
    /// Only merges of this document with another.
    #[arg(long, value_name = "ID")]
    of: Option<i64>,
    /// Only merges by this method: exact, similarity or manual.
    #[arg(long)]
    method: Option<MergeMethod>,
    /// Those that were undone.
    #[arg(long)]
    undone: bool,
}

#[derive(Subcommand)]
enum MergesCommand {
    /// Takes two documents for one; answers name both by the first.
    Add { kept: i64, merged: i64 },
    /// Undoes a merge.
    Undo {
        /// The merge's id.
        id: i64,
    },
}

fn number(number: i64, one: &str, many: &str) -> String {
    count(usize::try_from(number).unwrap_or_default(), one, many)
}

pub async fn extract_facts(
    client: &Client<Remote>,
    output: Output,
    arguments: ExtractFactsArguments,
) -> Result<ExitCode, CliError> {
    let ExtractFactsArguments { id, wait, max_facts, threshold, new_predicates, resolve, supersede, replace, dry_run } =
        arguments;
    let request = ExtractFactsRequest {
        max_facts,
        confidence_threshold: threshold,
        new_predicates,
        resolve,
        supersede,
        replace,
        dry_run,
    };
    let query = WaitQuery { wait, ..WaitQuery::default() };
    let goes_on = "facts are extracted in the background from the texts that are queued: `svc status` shows the queue, and the same command \
                   again queues none of them twice";
    let answer = client.extract_facts(DocumentPath { id }, query, OptionalJson(Some(request)));
    let Some(answer) = unless_interrupted(answer, goes_on).await? else { return Ok(ExitCode::from(INTERRUPTED)) };
    match (output, &answer.done) {
        (Output::Json, _) => Output::line(&answer)?,
        (Output::Table, Some(done)) => {
            say!(
                "{} of {}, {} and {} made",
                number(done.facts, "fact", "facts"),
                number(answer.tasks, "text", "texts"),
                number(done.entities, "entity", "entities"),
                number(done.merges, "merge", "merges")
            );
            for (reason, dropped) in &done.dropped {
                say!("  dropped {dropped}: {reason}");
            }
            if done.failed > 0 {
                say!("  {} could not be read; svc status says more", number(done.failed, "text", "texts"));
            }
        }
        (Output::Table, None) => say!("{} at work", number(answer.tasks, "task is", "tasks are")),
    }
    let failed = answer.done.is_some_and(|done| done.failed > 0);
    Ok(if failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

pub async fn merges(client: &Client<Remote>, output: Output, arguments: MergesArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        Some(MergesCommand::Undo { id }) => {
            client.undo_merge(MergePath { id }).await?;
        }
        Some(MergesCommand::Add { kept, merged }) => {
            let made = client.merge_entities(Json(NewMerge { kept_id: kept, merged_id: merged })).await?;
            match output {
                Output::Json => Output::line(&made)?,
                Output::Table => say!("merge {}", made.id),
            }
        }
        None => {
            let mut query = MergeQuery {
                document_id: arguments.of,
                method: arguments.method,
                undone: arguments.undone,
                ..MergeQuery::default()
            };
            loop {
                let page = client.list_merges(query.clone()).await?;
                for merge in &page.merges {
                    match output {
                        Output::Json => Output::line(merge)?,
                        Output::Table => say!(
                            "{:>6}  {} {}  is taken for  {} {}  ({}{})",
                            merge.id,
                            merge.merged_id,
                            merge.merged_title,
                            merge.kept_id,
                            merge.kept_title,
                            merge.method.as_str(),
                            merge.score.map(|score| format!(" {score:.2}")).unwrap_or_default()
                        ),
                    }
                }
                query.cursor = page.next_cursor;
                if query.cursor.is_none() {
                    break;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
