//! `svc embed`: vectors from the model of the settings, in this process or at its runner; no service needs to run.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use crate::{
    app::{AppError, load_embedder},
    settings::Settings,
};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use svc_client::wire::RunnerTextKind;
use svc_models::TokenVectors;

/// How many components a table shows.
const SHOWN: usize = 8;

#[derive(Args)]
pub struct EmbedArguments {
    /// The text to embed.
    text: String,
    /// Embeds the text as a query, with the model's prefix for queries, instead of as a document.
    #[arg(long)]
    query: bool,
    /// Prints one vector per token and how much each token matters, as late interaction uses them.
    #[arg(long)]
    tokens: bool,
}

pub async fn embed(settings: &Settings, output: Output, arguments: EmbedArguments) -> Result<ExitCode, CliError> {
    let model = load_embedder(settings).await?.model().await.map_err(AppError::from)?;
    let text = arguments.text;
    if arguments.tokens {
        let kind = if arguments.query { RunnerTextKind::Query } else { RunnerTextKind::Document };
        for vectors in model.token_vectors(vec![text.clone()], kind).await.map_err(AppError::from)? {
            show_tokens(output, &text, &vectors)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let vector = match arguments.query {
        true => model.embed_query(text.clone()).await,
        false => model.embed_documents(vec![text.clone()]).await.map(|mut embeddings| embeddings.swap_remove(0).vector),
    };
    let vector = vector.map_err(AppError::from)?;
    let (identity, tokens) = (model.identity(), model.count_tokens(&text).map_err(AppError::from)?);
    match output {
        Output::Json => Output::line(&json!({"model": identity, "tokens": tokens, "vector": vector}))?,
        Output::Table => {
            say!("{identity}: {tokens} tokens, {} components of {}", model.native_width(), vector.len());
            say!("{}", start_of(&vector));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start_of(vector: &[f32]) -> String {
    let shown: Vec<String> = vector.iter().take(SHOWN).map(|value| format!("{value:+.4}")).collect();
    format!("{} …", shown.join(" "))
}

/// Prints a line per token: its text, how much it matters and the start of its vector.
fn show_tokens(output: Output, text: &str, vectors: &TokenVectors) -> Result<(), CliError> {
    let words = vectors.offsets.iter().map(|range| text.get(range.clone()).unwrap_or_default());
    let tokens = words.zip(vectors.rows()).zip(vectors.importance.iter().zip(&vectors.tiers));
    match output {
        Output::Json => {
            for ((word, vector), (importance, tier)) in tokens {
                Output::line(&json!({"token": word, "importance": importance, "tier": tier, "vector": vector}))?;
            }
        }
        Output::Table => {
            let cells = |((word, vector), (importance, tier)): ((&str, &[f32]), (&f32, &u8))| {
                vec![one_line(word, 30), format!("{importance:.2}"), tier.to_string(), start_of(vector)]
            };
            Output::table(&["token", "importance", "tier", "vector"], &tokens.map(cells).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}
