//! `svc raptor` and `svc portfolio`.
use super::{
    CliError, INTERRUPTED,
    output::{Output, count, one_line, say},
    unless_interrupted,
};
use clap::Args;
use std::process::ExitCode;
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{DocumentPath, PortfolioRequest, RaptorRequest, WaitQuery},
};

#[derive(Args)]
pub struct RaptorArguments {
    /// The document whose leaves are summarised.
    id: i64,
    /// The same seed makes the same summaries of the same leaves.
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// The most levels of summaries, 1 to 10.
    #[arg(long, default_value_t = RaptorRequest::default().max_levels)]
    levels: u32,
    /// Whether a language model writes the summaries; by default where there is one.
    #[arg(long)]
    by_model: Option<bool>,
}

#[derive(Args)]
pub struct PortfolioArguments {
    /// The document under which to choose.
    id: i64,
    /// The most tokens of all chosen texts together.
    #[arg(long)]
    tokens: u32,
    /// What the reader wants to know.
    #[arg(long)]
    query: Option<String>,
    /// Chooses no summaries.
    #[arg(long)]
    leaves: bool,
}

pub async fn raptor(client: &Client<Remote>, output: Output, arguments: RaptorArguments) -> Result<ExitCode, CliError> {
    let request = RaptorRequest {
        seed: arguments.seed,
        max_levels: arguments.levels,
        by_model: arguments.by_model,
        ..RaptorRequest::default()
    };
    let path = DocumentPath { id: arguments.id };
    let query = WaitQuery { wait: true, ..WaitQuery::default() };
    let goes_on = format!(
        "the summaries of document {} are made in the background: `svc status` shows the queue, and the same command again waits for them",
        arguments.id
    );
    let answer = client.make_raptor(path, query, OptionalJson(Some(request)));
    let Some(made) = unless_interrupted(answer, &goes_on).await? else { return Ok(ExitCode::from(INTERRUPTED)) };
    match (output, &made.tree) {
        (Output::Json, _) => Output::line(&made)?,
        (Output::Table, Some(tree)) => {
            let (summaries, leaves) =
                (count(tree.summaries, "summary", "summaries"), count(tree.leaves, "leaf", "leaves"));
            say!("document {}: {summaries} of {leaves}", tree.raptor_id);
            for level in &tree.levels {
                let (summaries, texts) =
                    (count(level.summaries, "summary", "summaries"), count(level.nodes, "text", "texts"));
                say!("  level {}: {summaries} of {texts}", level.level);
            }
        }
        (Output::Table, None) => say!("task {} goes on with {} leaves", made.task_id, made.leaves),
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn portfolio(
    client: &Client<Remote>,
    output: Output,
    arguments: PortfolioArguments,
) -> Result<ExitCode, CliError> {
    let PortfolioArguments { id, tokens, query, leaves } = arguments;
    let request = PortfolioRequest { query, summaries: !leaves, ..PortfolioRequest::new(tokens) };
    let chosen = client.choose_portfolio(DocumentPath { id }, Json(request)).await?;
    match output {
        Output::Json => Output::line(&chosen)?,
        Output::Table => {
            say!(
                "{} of {} texts with {} tokens cover {:.3}, at least {:.0} % of what is possible",
                chosen.nodes.len(),
                chosen.candidates,
                chosen.tokens,
                chosen.coverage,
                100.0 * chosen.coverage / chosen.bound.max(f64::MIN_POSITIVE)
            );
            for node in &chosen.nodes {
                let document = &node.document;
                say!("{:>3}. {} {} ({} tokens)", node.turn, document.usetype, document.id, node.tokens);
                say!("     {}", one_line(&document.content, 220));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
