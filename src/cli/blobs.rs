//! `svc blobs`: where the stored bytes of files are. It works on the database itself: on the embedded one beside a running service, on another also
//! without one.
mod moving;

use super::{
    CliError, INTERRUPTED, SOME_FAILED,
    output::{Output, say},
};
use crate::{
    app::{Backend, asked_to_stop},
    blobs::{
        Blobs,
        upkeep::{Finding, Verified},
    },
    settings::Settings,
    spool::SpoolCache,
};
use clap::{Args, Subcommand, ValueEnum};
use moving::{Mover, Tally};
use serde_json::json;
use std::{process::ExitCode, sync::Arc};

#[derive(Args)]
pub struct BlobsArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Moves the bytes of all files to the object store of SVC_BLOB_STORE, or back into the database, while the service runs. It may be
    /// stopped at any time, and goes on where it was with the same command. The exit code is 3 if bytes of some files stay where they were.
    Move {
        #[arg(long, value_enum)]
        to: To,
    },
    /// Holds the object store against the database: finds bytes that are missing or have another size, and objects that nothing names.
    /// The exit code is 3 if there are any.
    Verify {
        /// Reads all bytes, also those in the database, and compares their hashes.
        #[arg(long)]
        read: bool,
    },
}

/// Where bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    Object,
    Database,
}

pub async fn blobs(settings: Settings, output: Output, arguments: BlobsArguments) -> Result<ExitCode, CliError> {
    let settings = Arc::new(settings);
    let backend = Backend::join(&settings).await?;
    let work = async {
        backend.check_schema().await?;
        let blobs = Arc::new(Blobs::new(&settings));
        match arguments.command {
            Command::Move { to } => {
                let spool = SpoolCache::new(blobs.clone(), &settings.data_dir, 0);
                let tally = Mover { blobs, spool, pool: backend.pool.clone(), to }.run().await?;
                told(output, to, tally)
            }
            Command::Verify { read } => {
                let mut failed = Ok(());
                let note = |finding: &Finding| {
                    if let Err(error) = tell(output, finding) {
                        failed = Err(error);
                    }
                };
                let verified = blobs.verify(&backend.pool, read, note).await?;
                failed?;
                summed_up(output, verified)
            }
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        () = asked_to_stop() => {
            crate::cli::output::tell!("stopped: what was moved stays moved, and the same command goes on from here");
            Ok(ExitCode::from(INTERRUPTED))
        }
    };
    backend.stop().await;
    ended
}

fn told(output: Output, to: To, tally: Tally) -> Result<ExitCode, CliError> {
    let place = match to {
        To::Object => "object",
        To::Database => "database",
    };
    let Tally { files, bytes, failed, left } = tally;
    let failed = failed.len();
    match output {
        Output::Json => {
            Output::line(&json!({"moved": files, "bytes": bytes, "to": place, "failed": failed, "left": left}))?;
        }
        Output::Table => {
            say!("moved the bytes of {files} files, {} MiB, and {failed} could not be read", bytes >> 20);
            if left > 0 {
                say!("{left} more files have their bytes where they were: run the same command again");
            }
        }
    }
    Ok(if failed == 0 && left == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

fn tell(output: Output, finding: &Finding) -> Result<(), CliError> {
    match (output, finding) {
        (Output::Json, Finding::Lost(error)) => Output::line(&json!({"finding": "lost", "about": error.to_string()}))?,
        (Output::Json, Finding::Orphan { key, byte_size }) => {
            Output::line(&json!({"finding": "orphan", "about": key, "bytes": byte_size}))?;
        }
        (Output::Table, Finding::Lost(error)) => say!("{error}"),
        (Output::Table, Finding::Orphan { key, byte_size }) => {
            say!(
                "the object {key}, {byte_size} bytes, belongs to no file; the weekly look notes it, and it is removed later"
            );
        }
    }
    Ok(())
}

fn summed_up(output: Output, verified: Verified) -> Result<ExitCode, CliError> {
    let Verified { files, bytes, lost, orphans } = verified;
    match output {
        Output::Json => Output::line(&json!({"files": files, "bytes": bytes, "lost": lost, "orphans": orphans}))?,
        Output::Table => {
            say!(
                "looked at {files} files, {} MiB: {lost} are missing or damaged, {orphans} objects belong to none",
                bytes >> 20
            );
        }
    }
    Ok(if lost + orphans == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}
