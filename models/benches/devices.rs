//! The encoder on each graphics processor's device that is built in, in each precision that the device has, beside torch in bf16 on the same
//! processor. It is no part of benches/, so that it is built without the service and small enough to be carried to a machine that has such a
//! processor (`config/devices-bench.sh`). Prints a line of JSON for each figure, as the other benches do.
//!
//!     devices FOLDER [PEER.py|- [DEVICE...]]

use serde::Deserialize;
use serde_json::json;
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};
use svc_models::{Engine, ModelSettings, Precision};

type BoxError = Box<dyn Error + Send + Sync>;

const ROUNDS: usize = 5;
/// The most texts of a pass; those of 100 tokens fill one before.
const BATCH: usize = 256;
/// Words that are one token each in the tokenizer of MiniLM.
const WORDS: [&str; 10] = ["tree", "of", "documents", "store", "the", "query", "finds", "what", "was", "asked"];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Cargo adds an option of its own.
    let mut arguments = env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let folder =
        arguments.next().ok_or("name a model's folder, and after it peer.py if torch is to be measured too")?;
    let script = arguments.next().filter(|script| script != "-");
    let mut torch = script.map(|script| Torch::start(&script, &folder)).transpose()?;
    let works = [
        ("tokens/s", "1024 x 100 tokens", (0..1024).map(|seed| text(100, seed)).collect()),
        ("tokens/s", "1024 x 10 to 256 tokens", (0..1024).map(|seed| text(10 + seed * 37 % 247, seed)).collect()),
        ("ms", "query of 9 tokens", vec![text(9, 0)]),
    ];
    let asked: Vec<String> = arguments.collect();
    let built = [("wgpu", cfg!(feature = "wgpu")), ("cuda", cfg!(feature = "cuda"))];
    let is_wanted = |device: &str| asked.is_empty() || asked.iter().any(|asked| asked == device);
    let devices: Vec<&str> =
        built.into_iter().filter(|&(name, built)| built && is_wanted(name)).map(|of| of.0).collect();
    if devices.is_empty() {
        return Err("no such device is built in: build it with the feature wgpu or cuda".into());
    }
    let reference = load(&folder, "cpu", Precision::F32)?;
    let precisions = [(Precision::F32, 0.9999), (Precision::Bf16, 0.99)];
    for (device, (precision, least)) in devices.iter().flat_map(|&device| precisions.map(|of| (device, of))) {
        let engine = match load(&folder, device, precision) {
            Ok(engine) => engine,
            // Many drivers of Vulkan have no bf16.
            Err(error) if precision != Precision::F32 => {
                eprintln!("{device} in {precision}: {error}");
                continue;
            }
            Err(error) => return Err(error),
        };
        let name = format!("{device}/{precision}");
        for (unit, work, texts) in &works {
            // This warms everything up, and checks the numbers, because speed with wrong numbers would be worthless.
            let (_, want) = embed(&reference, &texts[..1]).await?;
            let (seconds, got) = embed(&engine, texts).await?;
            alike(&name, &got, &want, least)?;
            eprintln!("{name}: the first time took {seconds:.2} s, with compiling and choosing kernels: {work}");
            if let Some(torch) = &mut torch {
                alike("torch", &torch.embed(texts)?.1, &want, 0.99)?;
            }
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(embed(&engine, texts).await?.0);
                if let Some(torch) = &mut torch {
                    theirs.push(torch.embed(texts)?.0);
                }
            }
            let tokens = texts.iter().try_fold(0, |sum, text| engine.count_tokens(text).map(|count| sum + count))?;
            let value = |seconds: f64| if *unit == "ms" { seconds * 1e3 } else { tokens as f64 / seconds };
            let (ours, theirs) = (median(ours), (!theirs.is_empty()).then(|| median(theirs)));
            let figure = json!({
                "name": format!("encoder/devices/{name}/{work}"), "n": texts.len() * ROUNDS, "unit": unit, "ours": value(ours),
                "peer": theirs.map(|theirs| json!({"name": "torch in bf16", "value": value(theirs)})),
                "ratio": theirs.map(|theirs| theirs / ours),
            });
            println!("{figure}");
        }
    }
    Ok(())
}

fn load(folder: &str, device: &str, precision: Precision) -> Result<Engine, BoxError> {
    Ok(Engine::load(&ModelSettings {
        model: folder.to_owned(),
        device: device.to_owned(),
        precision: Some(precision),
        batch_size: BATCH,
        ..ModelSettings::default()
    })?)
}

/// The time in seconds, and the first vector.
async fn embed(engine: &Engine, texts: &[String]) -> Result<(f64, Vec<f32>), BoxError> {
    let texts = texts.to_vec();
    let start = Instant::now();
    let vectors = engine.embed_documents(texts).await?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((seconds, vectors.into_iter().next().ok_or("there are no texts")?.vector))
}

/// Refuses a vector whose cosine with that of the processor's kernels is too small.
fn alike(name: &str, vector: &[f32], want: &[f32], least: f32) -> Result<(), BoxError> {
    let cosine: f32 = vector.iter().zip(want).map(|(left, right)| left * right).sum();
    match cosine >= least {
        true => Ok(()),
        false => Err(format!("the vector of {name} has cosine {cosine} with that of the device cpu in f32").into()),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A text with this many tokens, including special tokens.
fn text(tokens: usize, seed: usize) -> String {
    (0..tokens - 2).map(|word| WORDS[(word * 7 + seed) % WORDS.len()]).collect::<Vec<_>>().join(" ")
}

/// `peer.py` on the graphics processor, in the Python that SVC_BENCH_PYTHON names. The process ends when this is dropped.
struct Torch {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    fn start(script: &str, folder: &str) -> Result<Self, BoxError> {
        let python = env::var("SVC_BENCH_PYTHON").unwrap_or("python3".to_owned());
        let mut command = Command::new(python);
        command.args([script, "torch", folder, "", "1", "cuda"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take().map(BufReader::new)) else {
            return Err("torch has no pipes".into());
        };
        let mut torch = Self { child, requests, answers };
        torch.line()?;
        Ok(torch)
    }

    fn embed(&mut self, texts: &[String]) -> Result<(f64, Vec<f32>), BoxError> {
        #[derive(Deserialize)]
        struct Answer {
            seconds: f64,
            first: Vec<f32>,
        }
        writeln!(self.requests, "{}", json!({"texts": texts, "times": 1}))?;
        self.requests.flush()?;
        let Answer { seconds, first } = serde_json::from_str(&self.line()?)?;
        Ok((seconds, first))
    }

    fn line(&mut self) -> Result<String, BoxError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err("torch ended; its messages above say why".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // If neither call succeeds, the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
