//! Another runtime in its own process, driven through pipes.
use crate::figure::BoxError;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// The peers in f32, and the one in int8.
pub const IN_F32: [&str; 2] = ["onnxruntime", "torch"];
pub const IN_INT8: &str = "onnxruntime int8";
const REQUIREMENTS: &str = include_str!("../../encoder/requirements.txt");

/// By text and token, how much attention is received in the last layer, and in the last three.
pub type Attention = [Vec<Vec<f32>>; 2];

/// What `benches/encoder/setup.sh` made.
pub struct Peers {
    folder: PathBuf,
    cache: PathBuf,
}

impl Peers {
    pub fn prepare() -> Result<Self, BoxError> {
        let script = scripts().join("setup.sh");
        let made = Command::new(&script).stderr(Stdio::inherit()).output()?;
        if !made.status.success() {
            return Err(format!("{} failed; its messages above say why", script.display()).into());
        }
        let folder = PathBuf::from(String::from_utf8(made.stdout)?.trim());
        let cache = folder.ancestors().nth(2).ok_or("the peers lie under no cache folder")?.to_owned();
        Ok(Self { folder, cache })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn minilm(&self) -> PathBuf {
        self.cache.join("models/all-MiniLM-L6-v2")
    }

    pub fn modernbert(&self) -> PathBuf {
        self.folder.join("models/modernbert")
    }

    pub fn start(&self, name: &'static str, model: &str, folder: &Path, threads: usize) -> Result<Process, BoxError> {
        let (runtime, file) = match name.split_once(' ') {
            Some((runtime, precision)) => (runtime, format!("{model}.{precision}.onnx")),
            None => (name, format!("{model}.onnx")),
        };
        let onnx = self.folder.join("models").join(file);
        let mut command = self.python("peer.py");
        Process::start(name, command.arg(runtime).args([folder, &onnx]).arg(threads.to_string()))
    }

    /// Starts the process that computes how much attention the tokens of texts receive.
    pub fn start_attention(&self, folder: &Path, threads: usize) -> Result<Process, BoxError> {
        let mut command = self.python("attention.py");
        Process::start("torch", command.arg(folder).arg(threads.to_string()))
    }

    fn python(&self, script: &str) -> Command {
        let mut command = Command::new(self.folder.join("venv/bin/python"));
        command.arg(scripts().join(script));
        command
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("encoder")
}

/// A peer's process, which ends with its handle.
pub struct Process {
    name: &'static str,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(name: &'static str, command: &mut Command) -> Result<Self, BoxError> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let (Some(requests), Some(answers)) = (requests, answers) else { return Err("a peer without pipes".into()) };
        let mut process = Process { name, child, requests, answers };
        process.line()?;
        Ok(process)
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn version(&self) -> &'static str {
        let runtime = self.name.split(' ').next().unwrap_or_default();
        let pinned = REQUIREMENTS.lines().filter_map(|line| line.split_once("=="));
        pinned.filter(|(name, _)| *name == runtime).map(|(_, version)| version).next().unwrap_or("unknown")
    }

    /// The median time in seconds, and the first text's vector.
    pub fn embed(&mut self, texts: &[String], times: usize) -> Result<(f64, Vec<f32>), BoxError> {
        #[derive(Deserialize)]
        struct Answer {
            seconds: f64,
            first: Vec<f32>,
        }
        let answer: Answer = self.ask(&json!({"texts": texts, "times": times}))?;
        Ok((answer.seconds, answer.first))
    }

    /// How much attention each token of each text receives.
    pub fn attention(&mut self, texts: &[&[u32]]) -> Result<Attention, BoxError> {
        #[derive(Deserialize)]
        struct Answer {
            last: Vec<Vec<f32>>,
            #[serde(rename = "last three")]
            last_three: Vec<Vec<f32>>,
        }
        let answer: Answer = self.ask(&json!(texts))?;
        Ok([answer.last, answer.last_three])
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &serde_json::Value) -> Result<T, BoxError> {
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn line(&mut self) -> Result<String, BoxError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(format!("{} ended; its messages above say why", self.name).into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If neither call succeeds, the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
