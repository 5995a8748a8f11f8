//! `svc path`.
use super::{
    CliError,
    graph::MomentArguments,
    output::{Output, one_line, say},
};
use clap::Args;
use std::process::ExitCode;
use svc_client::{
    Client, Json, Remote,
    wire::{Direction, PathSearch},
};

#[derive(Args)]
pub struct PathArguments {
    /// The document that the path begins at.
    from: i64,
    /// The document that it ends at.
    to: i64,
    /// The longest path, in facts, 1 to 8 [default: 4].
    #[arg(long)]
    depth: Option<u32>,
    /// Which way along facts: any, out or in [default: any].
    #[arg(long)]
    direction: Option<Direction>,
    /// Only along facts with this predicate; may be given several times.
    #[arg(long)]
    predicate: Vec<String>,
    /// How many of the shortest paths, 1 to 10 [default: 1].
    #[arg(long)]
    limit: Option<u32>,
    #[command(flatten)]
    moment: MomentArguments,
}

/// Shows paths; the exit code is 1 if there is none.
pub async fn path(client: &Client<Remote>, output: Output, arguments: PathArguments) -> Result<ExitCode, CliError> {
    let PathArguments { from, to, depth, direction, predicate, limit, moment } = arguments;
    let asked = PathSearch {
        from_id: from,
        to_id: to,
        max_depth: depth,
        direction,
        predicates: predicate,
        limit,
        valid_at: moment.at,
        known_at: moment.known,
        asserted_only: moment.asserted,
        include_embed: false,
    };
    let found = client.find_paths(Json(asked)).await?;
    if output == Output::Json {
        Output::line(&found)?;
    } else {
        let title = |id: i64| {
            found
                .documents
                .iter()
                .find(|document| document.id == id)
                .map_or(String::new(), |document| one_line(&document.title, 60))
        };
        for path in &found.paths {
            let mut line = format!("{from} {}", title(from));
            for step in &path.steps {
                let predicate = one_line(&step.predicate, 40);
                let (arrow, next) = match step.forward {
                    true => (format!("-{predicate}->"), step.object_id),
                    false => (format!("<-{predicate}-"), step.subject_id),
                };
                line.push_str(&format!("  {arrow}  {next} {}", title(next)));
            }
            say!("{line}");
        }
        match found.truncated {
            Some(limit) => say!("the search gave up after {} documents, by its limit of {limit}", found.visited),
            None if found.paths.is_empty() => say!("no path"),
            None => {}
        }
    }
    Ok(if found.paths.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
