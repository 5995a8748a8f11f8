//! `svc backup` and `svc restore`: the whole embedded database, by PostgreSQL's own programs.
use super::{
    CliError, INTERRUPTED,
    output::{Output, one_line, say},
};
use crate::{
    app::{AppError, Backend, asked_to_stop},
    embedded::backup::{self, BackupError, Label},
    settings::Settings,
    store::{self, database::DatabaseError},
};
use clap::Args;
use std::{path::PathBuf, process::ExitCode};

#[derive(Args)]
pub struct BackupArguments {
    /// The folder for the backup, which must be empty or not there yet.
    folder: PathBuf,
}

#[derive(Args)]
pub struct RestoreArguments {
    /// The folder that `svc backup` made.
    folder: PathBuf,
}

pub async fn backup(settings: &Settings, output: Output, arguments: &BackupArguments) -> Result<ExitCode, CliError> {
    check_embedded(settings, "backup")?;
    let before = files_elsewhere(settings).await;
    let elsewhere = async {
        let after = files_elsewhere(settings).await;
        let most = before.and_then(|before| Ok(before.max(after?)));
        // A backup that does not say how much it lacks is better than none.
        most.inspect_err(|error| {
            crate::cli::output::tell!(
                "svc: the files in an object store cannot be counted: {}",
                one_line(&error.to_string(), 400)
            );
        })
        .ok()
    };
    let made = backup::backup(&settings.data_dir, &settings.postgres_home, &arguments.folder, elsewhere);
    let said = |label: &Label| {
        let (bytes, path) = (size(label.bytes), arguments.folder.display());
        let without = without(label, "are not in it, but in the object store: see that its own copies go back as far");
        format!(
            "backed up and verified: {bytes} in {path}; it holds secrets, so keep it as closed as the data folder{without}"
        )
    };
    ended(output, made, said, "stopped: nothing is done").await
}

pub async fn restore(settings: &Settings, output: Output, arguments: &RestoreArguments) -> Result<ExitCode, CliError> {
    check_embedded(settings, "restore")?;
    let made = backup::restore(&settings.data_dir, &settings.postgres_home, &arguments.folder);
    let said = |label: &Label| {
        let (begun, path) = (label.begun_at.to_rfc3339(), settings.data_dir.display());
        // The write-ahead log of the whole copy is played back.
        let at = match label.ended_at {
            Some(ended) => format!("shortly before {}", ended.to_rfc3339()),
            None => format!("the end of a copy that began at {begun}"),
        };
        let without = without(label, "are in the object store: name it in SVC_BLOB_STORE, and run `svc blobs verify`");
        format!(
            "restored and verified in {path}, as of {at}: start `svc serve`; tokens are valid as they were then, so revoke again what was revoked since {begun}{without}"
        )
    };
    let path = settings.data_dir.display();
    let stopped = format!(
        "stopped: {path} holds a part of the backup, and no service starts there; run the same command again, or empty the folder"
    );
    ended(output, made, said, &stopped).await
}

/// How many files have their bytes in an object store, which a backup of the database does not hold. If no service runs, the backup says so.
async fn files_elsewhere(settings: &Settings) -> Result<i64, AppError> {
    let backend = Backend::join(settings).await?;
    let counted = async { store::blobs::count_places(&mut *backend.pool.acquire().await?).await };
    let counted = counted.await;
    backend.stop().await;
    let (_, elsewhere) = counted.map_err(DatabaseError::from)?;
    Ok(elsewhere)
}

/// What is said of the files whose bytes a backup lacks, unless there are none.
fn without(label: &Label, what: &str) -> String {
    match label.files_elsewhere {
        Some(0) => String::new(),
        Some(files) => format!("; the bytes of {files} files {what}"),
        None => format!("; it is not known of how many files the bytes {what}"),
    }
}

fn check_embedded(settings: &Settings, command: &str) -> Result<(), CliError> {
    if settings.database_url.is_blank() {
        return Ok(());
    }
    Err(CliError::Other(format!(
        "`svc {command}` is for the embedded server, and SVC_DATABASE_URL names another: docs/backup.md says how to back that one up"
    )))
}

/// Waits for the end, or for a signal, after which nothing is left that looks whole.
async fn ended(
    output: Output,
    work: impl Future<Output = Result<Label, BackupError>>,
    said: impl Fn(&Label) -> String,
    stopped: &str,
) -> Result<ExitCode, CliError> {
    let label = tokio::select! {
        done = work => done?,
        () = asked_to_stop() => {
            crate::cli::output::tell!("{stopped}");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    match output {
        Output::Json => Output::line(&label)?,
        Output::Table => say!("{}", said(&label)),
    }
    Ok(ExitCode::SUCCESS)
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    }
}
