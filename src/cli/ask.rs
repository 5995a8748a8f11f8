//! `svc ask`.
use super::{
    CliError,
    output::{Output, one_line, say},
    search::{place_of, tell_missing},
};
use clap::Args;
use futures_util::StreamExt;
use std::{
    io::{self, Write},
    process::ExitCode,
};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{AnswerPart, AnswerSentence, DocumentPath, NoAnswer, SynthesizeResponse, SynthesizeSearch},
};

#[derive(Args)]
pub struct AskArguments {
    /// The question.
    question: String,
    /// A search context: its values stand for what is not said here.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Answers only from what is under this document.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// The most texts that the language model reads, 1 to 20.
    #[arg(long, value_name = "N")]
    sources: Option<u32>,
    /// Ranks the texts again by the cross-encoder before the model reads the best.
    #[arg(long)]
    rerank: bool,
}

pub async fn ask(client: &Client<Remote>, output: Output, arguments: AskArguments) -> Result<ExitCode, CliError> {
    let body = SynthesizeSearch {
        context: arguments.context,
        parent_id: arguments.under,
        max_sources: arguments.sources,
        rerank: arguments.rerank.then_some(true),
        ..SynthesizeSearch::new(&arguments.question)
    };
    let mut parts = client.follow_synthesis(Json(body)).await?;
    let mut done = None;
    while let Some(part) = parts.next().await {
        match part?.data {
            AnswerPart::Delta(sentence) if output == Output::Table => show(&sentence)?,
            AnswerPart::Done(whole) => done = Some(whole),
            AnswerPart::Sources(_) | AnswerPart::Delta(_) | AnswerPart::Citations(_) => {}
        }
    }
    let done = done.ok_or_else(|| Failure::new(Code::Unreachable, "the answer broke off: ask again"))?;
    match output {
        Output::Json => Output::line(&done)?,
        Output::Table => sources(client, &done).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A sentence as soon as it is checked.
fn show(sentence: &AnswerSentence) -> io::Result<()> {
    let markers: String = sentence.markers.iter().map(|marker| format!("[{marker}]")).collect();
    let markers = if sentence.unsupported { "[no source]".to_owned() } else { markers };
    let mut out = io::stdout().lock();
    writeln!(out, "{} {markers}", one_line(&sentence.text, 2_000))?;
    out.flush()
}

/// What the answer is taken from, below it.
async fn sources(client: &Client<Remote>, done: &SynthesizeResponse) -> Result<(), CliError> {
    match done.reason {
        Some(NoAnswer::NotInSources) => say!("The {} texts that were read do not answer this.", done.sources.len()),
        Some(NoAnswer::NoSources) => say!("Nothing was found, so the language model was not asked."),
        None => {}
    }
    if done.truncated {
        say!("(The answer was broken off: it was as long as it may be, or a filter ended it.)");
    }
    say!("");
    for source in &done.sources {
        let mut quotes = done.citations.iter().filter(|citation| citation.marker == source.marker).peekable();
        if quotes.peek().is_none() {
            continue;
        }
        let place = match client.read_document(DocumentPath { id: source.document_id }, Default::default()).await {
            Ok(document) => match document.value() {
                Ok(document) => place_of(client, &document).await,
                Err(_) => one_line(&source.title, 60),
            },
            Err(_) => one_line(&source.title, 60),
        };
        say!("[{}] {place}  (document {})", source.marker, source.document_id);
        for citation in quotes {
            say!("    “{}”", one_line(&citation.quote, 240));
        }
    }
    tell_missing(done.scope_state)
}
