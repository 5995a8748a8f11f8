//! The worker for external batch providers.
use clap::Parser;

/// Submits summaries to a batch provider and applies its results.
///
/// This release has no batch provider yet. The subcommands run, status, stalled, finalize and cancel come with the
/// first one.
#[derive(Parser)]
#[command(name = "svc-batch-worker", version, arg_required_else_help = true)]
struct Arguments {}

fn main() {
    Arguments::parse();
}
