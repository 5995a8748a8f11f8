//! The peers: Python packages with pinned versions, in a folder of the cache.
use super::{job::Job, worker::Worker};
use crate::figure::BoxError;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The pinned versions. A copy in the folder says what it holds.
const REQUIREMENTS: &str = include_str!("../../peers/requirements.txt");
const UNSTRUCTURED: &str = include_str!("../../peers/unstructured-requirements.txt");

pub struct Peers {
    packages: PathBuf,
}

impl Peers {
    /// Installs them if necessary.
    pub fn install() -> Result<Self, BoxError> {
        Ok(Self { packages: installed("peers", "requirements.txt", REQUIREMENTS)? })
    }

    /// Installs unstructured if necessary. A folder of its own has it, because it takes an older pandas than markitdown gets without it.
    pub fn install_unstructured() -> Result<Self, BoxError> {
        Ok(Self { packages: installed("peers-unstructured", "unstructured-requirements.txt", UNSTRUCTURED)? })
    }

    /// Starts the peers' side of a job.
    pub fn start(&self, job: &Job) -> Result<Worker, BoxError> {
        let mut command = script();
        command.arg("read").env("PYTHONPATH", &self.packages).env("PYTHONWARNINGS", "ignore");
        Worker::spawn(command, job)
    }

    /// What a peer finds in files, in JSON: `what` are the first arguments of the script.
    pub fn found(&self, what: &[&str], files: &[PathBuf]) -> Result<Vec<u8>, BoxError> {
        let mut command = script();
        command.args(what).args(files).env("PYTHONPATH", &self.packages).env("PYTHONWARNINGS", "ignore");
        let output = command.stderr(std::process::Stdio::inherit()).output()?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(format!("the peer did not tell its {}; its message above says why", what.join(" of ")).into())
        }
    }
}

/// Installs the packages of a file of requirements into a folder of the cache, unless they are there.
pub fn installed(name: &str, requirements: &str, text: &str) -> Result<PathBuf, BoxError> {
    let cache = std::env::var_os("SVC_CACHE_DIR").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/svc"));
    let packages = cache.or_else(home).ok_or("HOME is not set: set it, or SVC_CACHE_DIR")?.join(name);
    let installed = packages.join("requirements.txt");
    if std::fs::read_to_string(&installed).ok().as_deref() != Some(text) {
        eprintln!("bench: installing the peers into {}", packages.display());
        if packages.exists() {
            std::fs::remove_dir_all(&packages)?;
        }
        let status = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--target"])
            .arg(&packages)
            .arg("--requirement")
            .arg(folder().join(requirements))
            .stdout(std::io::stderr())
            .status()
            .map_err(|error| format!("python3, which the peers need with pip, cannot be started: {error}"))?;
        if !status.success() {
            return Err("pip could not install the peers; its message above says why".into());
        }
        std::fs::write(&installed, text)?;
    }
    Ok(packages)
}

/// Writes a large file of a kind that the script knows; this needs no package.
pub fn make(kind: &str, size: usize, folder: &Path) -> Result<PathBuf, BoxError> {
    let path = folder.join(format!("{kind}-{size}"));
    let status = script().args(["make", kind, &size.to_string()]).arg(&path).status()?;
    if status.success() { Ok(path) } else { Err(format!("no {kind} was made").into()) }
}

/// Writes files in markup into a new folder, and beside each the words that a reader sees; this needs no package.
pub fn make_markup(size: usize, into: &Path) -> Result<(), BoxError> {
    std::fs::create_dir(into)?;
    let status =
        Command::new("python3").arg("-B").arg(folder().join("markup.py")).arg(size.to_string()).arg(into).status()?;
    if status.success() { Ok(()) } else { Err("no files in markup were made".into()) }
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(folder().join("formats.py"));
    command
}
