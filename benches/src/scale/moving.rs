//! What it takes to move a store: out by `svc export`, and into an empty one by `svc import`, without embedding anything again.
use crate::{
    figure::{BoxError, Figure},
    sandbox::{Sandbox, TOKEN},
    service_process::{ServiceProcess, peak_memory},
};
use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use svc_client::{Client, FileUpload, Remote, wire::UploadQuery};

/// The bytes of a large file on its way out and in.
const FILE_BYTES: usize = 192 << 20;
const PIECE: usize = 1 << 20;
/// How often to look whether a command has ended.
const LOOK: Duration = Duration::from_millis(20);

pub async fn measure(
    client: &Client<Remote>,
    base: &str,
    sandbox: &Sandbox,
    nodes: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let work = tempfile::Builder::new().prefix("svc-bench-moving.").tempdir()?;
    let archive = work.path().join("archive");
    let exported = command(base, sandbox, "export", &archive, &[]).await?;
    out(Figure::alone("scale/export", nodes, "nodes/s", nodes as f64 / exported.seconds));
    out(Figure::alone("scale/export/memory_peak", nodes, "MB", exported.peak / 1e6));
    let (rows, all) = (size(&archive.join("documents.ndjson"))?, size(&archive)?);
    out(Figure::alone("scale/export/documents", nodes, "bytes/node", rows / nodes as f64));
    out(Figure::alone("scale/export/all", nodes, "bytes/node", all / nodes as f64));

    let large = work.path().join("large");
    let id = upload(client, &work.path().join("large.bin")).await?.to_string();
    let exported_large = command(base, sandbox, "export", &large, &["--under", &id]).await?;
    out(Figure::alone("scale/export/large_file", FILE_BYTES, "MB/s", FILE_BYTES as f64 / 1e6 / exported_large.seconds));
    out(Figure::alone("scale/export/large_file/memory_peak", FILE_BYTES, "MB", exported_large.peak / 1e6));

    let data = tempfile::Builder::new().prefix("svc-bench-moved.").tempdir()?;
    let folder = data.path().join("data").display().to_string();
    let settings = [("SVC_DATA_DIR", folder.as_str())];
    let mut service = ServiceProcess::start_with(sandbox, &settings)?;
    let imported = async {
        let base = service.base().await?;
        let before = size(Path::new(&folder))?;
        let imported = command(&base, sandbox, "import", &archive, &[]).await?;
        let grown = size(Path::new(&folder))? - before;
        Ok::<_, BoxError>((imported, grown, command(&base, sandbox, "import", &large, &[]).await?))
    };
    let imported = imported.await;
    service.stop().await?;
    let (imported, grown, imported_large) = imported?;
    out(Figure::alone("scale/import/large_file", FILE_BYTES, "MB/s", FILE_BYTES as f64 / 1e6 / imported_large.seconds));
    out(Figure::alone("scale/import/large_file/memory_peak", FILE_BYTES, "MB", imported_large.peak / 1e6));
    out(Figure::alone("scale/import", nodes, "nodes/s", nodes as f64 / imported.seconds));
    out(Figure::alone("scale/import/memory_peak", nodes, "MB", imported.peak / 1e6));
    // The write-ahead log is among it.
    out(Figure::alone("scale/import/on_disk", nodes, "bytes/node", grown / nodes as f64));
    Ok(())
}

/// Stores a file that is of no known format; returns its document.
async fn upload(client: &Client<Remote>, path: &Path) -> Result<i64, BoxError> {
    let mut file = std::fs::File::create(path)?;
    let piece: Vec<u8> = (0..PIECE).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
    for _ in 0..FILE_BYTES / PIECE {
        file.write_all(&piece)?;
    }
    drop(file);
    let upload = FileUpload::from_path(path, None).await?;
    Ok(client.upload_file(UploadQuery::default(), upload).await?.document_id)
}

struct Ran {
    seconds: f64,
    /// The peak of the command's memory in bytes.
    peak: f64,
}

async fn command(base: &str, sandbox: &Sandbox, name: &str, archive: &Path, more: &[&str]) -> Result<Ran, BoxError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--json").arg(name).arg(archive).args(more);
    command.envs(sandbox.variables()).env("SVC_URL", base).env("SVC_TOKEN", TOKEN);
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut peak = 0.0;
    while child.try_wait()?.is_none() {
        peak = peak_memory(child.id()).unwrap_or(peak);
        tokio::time::sleep(LOOK).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let status = child.wait()?;
    if status.success() { Ok(Ran { seconds, peak }) } else { Err(format!("svc {name} ended with {status}").into()) }
}

/// The bytes of a file, or of all files in a folder.
fn size(path: &Path) -> Result<f64, BoxError> {
    let metadata = match std::fs::symlink_metadata(path) {
        // The server removes files of its own at any time.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0.0),
        metadata => metadata?,
    };
    if !metadata.is_dir() {
        return Ok(metadata.len() as f64);
    }
    let mut sum = 0.0;
    for entry in std::fs::read_dir(path)? {
        sum += size(&entry?.path())?;
    }
    Ok(sum)
}
