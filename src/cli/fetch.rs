//! `svc fetch`: has the service fetch addresses and papers, and ingest them.
use super::{
    CliError, INTERRUPTED, SOME_FAILED,
    output::{Output, one_line, say},
    own_json,
    patience::{Presence, is_out_of_reach},
};
use clap::Args;
use serde_json::json;
use std::{pin::pin, process::ExitCode};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{Entry, IngestQuery, IngestedTree, NewIngestion, Settled},
};

#[derive(Args)]
pub struct FetchArguments {
    /// Addresses of pages, PDF files and papers, and ids of papers such as 2301.00001.
    #[arg(required = true)]
    addresses: Vec<String>,
    /// wiki:url, wiki:pdf or wiki:arxiv [default: what the address looks like].
    #[arg(long, value_name = "NAME")]
    entry: Option<Entry>,
    /// The document under which they are put.
    #[arg(long = "under", alias = "parent", value_name = "ID")]
    parent: Option<i64>,
    /// Lets only the owner, and callers with a grant, read them.
    #[arg(long)]
    private: bool,
    /// Ingest options as JSON, for example '{"structure": {"max_tokens": 200}}'.
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
}

pub async fn fetch(client: &Client<Remote>, output: Output, arguments: FetchArguments) -> Result<ExitCode, CliError> {
    let options = own_json("--options", arguments.options.as_deref())?;
    let (mut bad, service) = (false, Presence::default());
    // One listener for all addresses, because one that is made anew for each hears nothing of a Ctrl-C between two.
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    for (asked, address) in arguments.addresses.iter().enumerate() {
        let entry = arguments.entry.unwrap_or_else(|| entry_of(address));
        let (url, id) = match address.contains("://") {
            true => (Some(address.clone()), None),
            false => (None, Some(address.clone())),
        };
        let (parent_id, private, options) = (arguments.parent, arguments.private, options.clone());
        let new = NewIngestion { url, id, parent_id, private, options, ..NewIngestion::of(entry) };
        // What was stored is found again by a second call.
        let call = async || client.ingest(IngestQuery::default(), Json(new.clone())).await;
        let outcome = tokio::select! {
            outcome = service.patient(call) => outcome,
            _ = &mut interrupted => {
                let left = arguments.addresses.len() - asked - 1;
                crate::cli::output::tell!("the service goes on with {address}: `svc status` shows the queue; {left} addresses were not asked for");
                return Ok(ExitCode::from(INTERRUPTED));
            }
        };
        bad |= outcome.as_ref().map_or(true, |tree| tree.document.settled == Settled::Failed);
        match outcome {
            Err(failure) if failure.code == Code::Unauthenticated || is_out_of_reach(&failure) => {
                return Err(failure.into());
            }
            outcome => show(output, address, outcome)?,
        }
    }
    Ok(if bad { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// The entry for an address: a paper, a PDF file, or a page.
fn entry_of(address: &str) -> Entry {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    let host = path.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    let is_arxiv = |host: &str| host == "arxiv.org" || host.ends_with(".arxiv.org");
    match host {
        None => Entry::WikiArxiv,
        Some(host) if is_arxiv(host) => Entry::WikiArxiv,
        Some(_) if path.to_ascii_lowercase().ends_with(".pdf") => Entry::WikiPdf,
        Some(_) => Entry::WikiUrl,
    }
}

fn show(output: Output, address: &str, outcome: Result<IngestedTree, Failure>) -> Result<(), CliError> {
    match (output, outcome) {
        (Output::Json, Ok(tree)) => Output::line(&json!({
            "address": address, "document_id": tree.document_id, "state": tree.document.settled, "title": tree.document.title,
            "was_existing": tree.was_existing, "nodes": tree.frontier.nodes_total, "warnings": tree.frontier.warnings,
        }))?,
        (Output::Json, Err(failure)) => Output::line(&json!({"address": address, "error": failure}))?,
        (Output::Table, Ok(tree)) => {
            let (title, nodes) = (one_line(&tree.document.title, 80), tree.frontier.nodes_total);
            say!("{} {}: {title}, {nodes} nodes", tree.document_id, tree.document.settled);
            for warning in &tree.frontier.warnings {
                say!("  {}", one_line(warning, 400));
            }
        }
        (Output::Table, Err(failure)) => say!("{address}: {failure}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_by_its_form_what_it_is() {
        for (address, entry) in [
            ("https://example.org/wiki/Heron", Entry::WikiUrl),
            ("https://example.org/a.PDF?x=1", Entry::WikiPdf),
            ("https://arxiv.org/pdf/2301.00001.pdf", Entry::WikiArxiv),
            ("https://export.arxiv.org/abs/2301.00001", Entry::WikiArxiv),
            ("https://notarxiv.org/abs/2301.00001", Entry::WikiUrl),
            ("2301.00001v2", Entry::WikiArxiv),
            ("hep-th/9901001", Entry::WikiArxiv),
        ] {
            assert_eq!(entry_of(address), entry, "{address}");
        }
    }
}
