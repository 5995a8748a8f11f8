//! `svc embed`: vectors with the model of the settings, in this process; no service need be running.
use super::{
    CliError,
    output::{Output, say},
};
use crate::{
    app::{AppError, load_engine},
    settings::Settings,
};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

/// Components that a person is shown.
const SHOWN: usize = 8;

#[derive(Args)]
pub struct EmbedArguments {
    /// What is embedded.
    text: String,
    /// As what a search asks for, with the model's prefix of queries; else as a document.
    #[arg(long)]
    query: bool,
}

pub async fn embed(settings: &Settings, output: Output, arguments: EmbedArguments) -> Result<ExitCode, CliError> {
    let engine = load_engine(settings).await?;
    let text = arguments.text;
    let vector = match arguments.query {
        true => engine.embed_query(text.clone()).await,
        false => engine.embed_documents(vec![text.clone()]).await.map(|mut vectors| vectors.swap_remove(0)),
    };
    let vector = vector.map_err(AppError::from)?;
    let (model, tokens) = (&engine.info().identity, engine.count_tokens(&text).map_err(AppError::from)?);
    match output {
        Output::Json => Output::line(&json!({"model": model, "tokens": tokens, "vector": vector}))?,
        Output::Table => {
            say!("{model}: {tokens} tokens, {} components of {}", engine.info().native_width, vector.len());
            say!("{}", start_of(&vector));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start_of(vector: &[f32]) -> String {
    let shown: Vec<String> = vector.iter().take(SHOWN).map(|value| format!("{value:+.4}")).collect();
    format!("{} …", shown.join(" "))
}
