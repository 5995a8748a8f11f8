//! `svc bulk --dry-run`: what would be sent, without a broker, a service or a line in the journal.
use super::{
    Refused, found,
    journal::Known,
    walk::{self, Candidate, Content, Found, Reading, Sources},
};
use crate::{
    cli::{
        CliError, SOME_FAILED,
        output::{Output, count, one_line, say},
    },
    feed::producer::Target,
};
use serde_json::json;
use std::{path::Path, process::ExitCode, sync::Arc};

/// What the command would do, by its settings.
pub struct Plan<'a> {
    pub known: Known,
    pub whereto: Arc<str>,
    pub target: Target,
    /// How many bytes of a file go into a message, or are held.
    pub most: u64,
    /// The folder that a broker's service reads too; `None` over REST, which takes files of any size.
    pub broker: Option<Option<&'a Path>>,
}

/// Reads everything, says of each file what would become of it, and ends with 3 if some would not be sent.
pub async fn run(plan: Plan<'_>, sources: Sources, output: Output) -> Result<ExitCode, CliError> {
    let known = Arc::new(plan.known);
    let mut found = found(sources);
    let (mut sent, mut before, mut refused) = (0_usize, 0_usize, 0_usize);
    while let Some(next) = found.recv().await {
        let candidate = match next {
            Found::File(candidate) => candidate,
            Found::Skipped => continue,
            Found::Unreadable { path, reason } => {
                refused += 1;
                refuse(output, &path, &reason)?;
                continue;
            }
        };
        let (whereto, known, most) = (plan.whereto.clone(), known.clone(), plan.most);
        let read = tokio::task::spawn_blocking(move || {
            let read = walk::read(&candidate, &whereto, most, &known);
            (candidate, read)
        });
        let (candidate, read) = read.await.map_err(|error| CliError::Other(error.to_string()))?;
        let (size, sha256, content) = match read {
            Reading::Known => {
                before += 1;
                continue;
            }
            Reading::Unreadable(reason) => {
                refused += 1;
                refuse(output, &candidate.shown(), &reason)?;
                continue;
            }
            Reading::File { size, sha256, content, .. } => (size, sha256, content),
        };
        if let (Content::Large(_), Some(root)) = (&content, plan.broker)
            && super::broker::beneath(root, candidate.path()).is_none()
        {
            refused += 1;
            let outcome = super::broker::too_large(size, most);
            refuse(output, &candidate.shown(), outcome.detail.as_deref().unwrap_or_default())?;
            continue;
        }
        sent += 1;
        tell(output, &candidate, &plan.target, (size, &sha256, &content))?;
    }
    match output {
        Output::Json => Output::line(&json!({"would_send": sent, "left": refused, "before": before}))?,
        Output::Table => {
            say!("{} would be sent, {refused} left, {before} sent before", count(sent, "file", "files"));
        }
    }
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

fn refuse(output: Output, file: &str, reason: &str) -> Result<(), CliError> {
    match output {
        Output::Json => Output::line(&Refused { file, outcome: "left", code: None, reason })?,
        Output::Table => say!("{} is left: {}", one_line(file, 200), one_line(reason, 300)),
    }
    Ok(())
}

fn tell(
    output: Output,
    candidate: &Candidate,
    otherwise: &Target,
    (size, sha256, content): (u64, &str, &Content),
) -> Result<(), CliError> {
    let file = candidate.shown();
    let target = candidate.target(otherwise);
    let is_url = matches!(content, Content::Url(_));
    match output {
        Output::Json => Output::line(&json!({
            "file": file, "outcome": "would_send", "bytes": (!is_url).then_some(size), "sha256": (!sha256.is_empty()).then_some(sha256),
            "filename": candidate.name(), "declared_mime": candidate.declared_mime(), "parent_id": target.query.parent_id,
            "private": target.query.private, "priority": target.query.priority, "event_time": target.query.event_time,
            "options": target.options,
        }))?,
        Output::Table if is_url => say!("{} would be fetched", one_line(&file, 200)),
        Output::Table => say!("{} would be sent, {size} bytes", one_line(&file, 200)),
    }
    Ok(())
}
