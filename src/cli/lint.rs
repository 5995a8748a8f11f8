//! `svc lint`.
use super::{
    CliError, finite,
    output::{Output, count, one_line, say},
};
use clap::Args;
use std::process::ExitCode;
use svc_client::{
    Client, Json, Remote,
    wire::{AllowedFindings, CoverageThresholds, LintAudit, LintFinding, LintRequest, StalenessThresholds},
};

#[derive(Args)]
pub struct LintArguments {
    /// Only this audit: orphan, contradiction, staleness, coverage, unprotected or rules; may be given several times [default: all].
    #[arg(long)]
    audit: Vec<LintAudit>,
    /// Only documents at and under this one, and facts about them.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// The age at which a dynamic fact without new support is stale [default: 180].
    #[arg(long, value_name = "DAYS")]
    max_age: Option<u32>,
    /// The share of documents that should have a vector and be in a BM25 index, 0 to 1 [default: 1].
    #[arg(long, value_parser = finite)]
    min_share: Option<f64>,
    /// The share of documents that should have token vectors, 0 to 1 [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = finite)]
    min_tokens: Option<f64>,
    /// The share of documents that believed facts should cite, 0 to 1 [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = finite)]
    min_facts: Option<f64>,
    /// Accepts so many findings of an audit, as in orphan=20; may be given several times [default: none of any].
    #[arg(long, value_name = "AUDIT=COUNT", value_parser = allowed)]
    allow: Vec<(LintAudit, u32)>,
    /// The most findings of each kind that are shown, 1 to 1,000 [default: 100].
    #[arg(long)]
    limit: Option<u32>,
}

fn allowed(text: &str) -> Result<(LintAudit, u32), String> {
    let (audit, count) = text.split_once('=').ok_or("takes an audit and a number, such as orphan=20")?;
    let count = count.parse().map_err(|_| format!("takes a whole number after the =, got `{count}`"))?;
    Ok((audit.parse::<LintAudit>().map_err(|unknown| unknown.to_string())?, count))
}

/// Shows what is wrong; the exit code is 1 if it is more than is accepted.
pub async fn lint(client: &Client<Remote>, output: Output, arguments: LintArguments) -> Result<ExitCode, CliError> {
    let LintArguments { audit, under, max_age, min_share, min_tokens, min_facts, allow, limit } = arguments;
    let mut accepted = AllowedFindings::default();
    for (audit, count) in allow {
        *accepted.of(audit) = Some(count);
    }
    let asked = LintRequest {
        audits: (!audit.is_empty()).then_some(audit),
        parent_id: under,
        staleness: StalenessThresholds { max_age_days: max_age },
        coverage: CoverageThresholds { vectors: min_share, bm25: min_share, tokens: min_tokens, facts: min_facts },
        allowed: accepted,
        limit,
    };
    let found = client.lint_graph(Json(asked)).await?;
    for audit in &found.audits {
        match output {
            Output::Json => Output::line(audit)?,
            Output::Table => {
                let number = usize::try_from(audit.count).unwrap_or(usize::MAX);
                let accepted = if audit.count > 0 && !audit.exceeded { ", no more than are accepted" } else { "" };
                say!("{}: {}{accepted}", audit.audit, count(number, "finding", "findings"));
                for finding in &audit.findings {
                    say!("  {}", line(finding));
                }
                if audit.truncated {
                    say!("  not all was looked at: bound shapes take too long, or there are too many merges");
                }
            }
        }
    }
    let is_fine = found.audits.iter().all(|audit| !audit.exceeded);
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A finding on one line.
fn line(finding: &LintFinding) -> String {
    let mut line = finding.kind.to_string();
    if let Some(id) = finding.document_id {
        line.push_str(&format!("  document {id}"));
    }
    if let Some(name) = finding.predicate.as_ref().or(finding.usetype.as_ref()) {
        line.push_str(&format!("  {}", one_line(name, 60)));
    }
    if !finding.triple_ids.is_empty() {
        let ids: Vec<String> = finding.triple_ids.iter().map(i64::to_string).collect();
        line.push_str(&format!("  facts {}", ids.join(", ")));
    }
    if let Some(share) = finding.share {
        line.push_str(&format!("  {:.1} % covered", share * 100.0));
    }
    if let Some(since) = finding.since {
        line.push_str(&format!("  since {}", since.format("%Y-%m-%d")));
    }
    line
}
