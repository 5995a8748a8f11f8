//! `svc split`, `svc chunk` and `svc segment`.
use super::{
    CliError, finite,
    output::{Output, one_line, say},
};
use clap::{ArgGroup, Args};
use std::process::ExitCode;
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{ChunkRequest, DocumentPath, PiecesQuery, PiecesResponse, SegmentRequest, SplitRequest},
};

#[derive(Args)]
#[command(group(ArgGroup::new("places").args(["at", "headings"]).required(true)))]
pub struct SplitArguments {
    /// The document whose text is split.
    id: i64,
    /// Where each piece but the first begins, in characters of the text; may be repeated.
    #[arg(long, value_name = "CHARACTER", value_delimiter = ',')]
    at: Vec<u32>,
    /// Begins a piece at each Markdown heading.
    #[arg(long)]
    headings: bool,
    #[command(flatten)]
    pieces: PiecesArguments,
}

#[derive(Args)]
pub struct ChunkArguments {
    /// The document whose text is cut into chunks.
    id: i64,
    /// How many tokens a chunk is filled up to [default: 120].
    #[arg(long)]
    max_tokens: Option<u32>,
    /// A shorter chunk joins its neighbour, in characters [default: 20].
    #[arg(long, value_name = "CHARACTERS")]
    min_chunk_length: Option<u32>,
    #[command(flatten)]
    pieces: PiecesArguments,
}

#[derive(Args)]
struct PiecesArguments {
    /// Deletes what an earlier call made.
    #[arg(long)]
    replace: bool,
    /// Answers once the pieces can be found by their meaning.
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct SegmentArguments {
    /// The document whose children are segmented.
    id: i64,
    /// What a boundary costs: a higher penalty makes fewer segments [default: 1.0].
    #[arg(long, value_parser = finite)]
    penalty: Option<f64>,
    /// The fewest children of a segment [default: 3].
    #[arg(long, value_name = "CHILDREN")]
    min_segment: Option<u32>,
    /// More segments than this are segmented in turn [default: 16].
    #[arg(long, value_name = "SEGMENTS")]
    max_children: Option<u32>,
    /// Takes the segments of an earlier call away and keeps what is in them.
    #[arg(long)]
    replace: bool,
}

pub async fn split(client: &Client<Remote>, output: Output, arguments: SplitArguments) -> Result<ExitCode, CliError> {
    let SplitArguments { id, at, headings, pieces: PiecesArguments { replace, wait } } = arguments;
    let request = SplitRequest { at: (!headings).then_some(at), by_headings: headings, replace };
    let made = client.split_document(DocumentPath { id }, PiecesQuery { wait }, Json(request)).await?;
    show(output, "pieces", &made)
}

pub async fn chunk(client: &Client<Remote>, output: Output, arguments: ChunkArguments) -> Result<ExitCode, CliError> {
    let ChunkArguments { id, max_tokens, min_chunk_length, pieces: PiecesArguments { replace, wait } } = arguments;
    let request = ChunkRequest { max_tokens, min_chunk_length, replace, ..ChunkRequest::default() };
    let made = client.chunk_document(DocumentPath { id }, PiecesQuery { wait }, OptionalJson(Some(request))).await?;
    show(output, "chunks", &made)
}

fn show(output: Output, what: &str, made: &PiecesResponse) -> Result<ExitCode, CliError> {
    match output {
        Output::Json => Output::line(made)?,
        Output::Table => say!("cut document {} into {} {what}", made.document_id, made.created.len()),
    }
    for warning in &made.warnings {
        crate::cli::output::tell!("svc: {}", one_line(warning, 400));
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn segment(
    client: &Client<Remote>,
    output: Output,
    arguments: SegmentArguments,
) -> Result<ExitCode, CliError> {
    let SegmentArguments { id, penalty, min_segment, max_children, replace } = arguments;
    let request = SegmentRequest { max_children, penalty, min_segment, replace };
    let made = client.segment_document(DocumentPath { id }, OptionalJson(Some(request))).await?;
    match output {
        Output::Json => Output::line(&made)?,
        Output::Table if made.segments.is_empty() => {
            say!("document {id}: the subject of its {} children does not change", made.children);
        }
        Output::Table => {
            say!("document {id}: {} children in {} segments", made.children, made.segments.len());
            for segment in &made.segments {
                say!("  document {}: {} ({})", segment.id, one_line(&segment.title, 80), segment.children);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
