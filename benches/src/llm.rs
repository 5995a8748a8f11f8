//! Language models: what the service adds to a call, and how fast summaries go into a batch and come out of it.
use crate::{
    figure::{BoxError, Figure},
    llm_endpoint::{Llm, Reply},
    sandbox::{Sandbox, TOKEN, interruptible},
    service_process::{ServiceProcess, peak_memory},
    uploads,
};
use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use svc_client::{
    Client, Remote,
    wire::{PageQuery, TaskQuery, TaskStatus},
};

/// How long the endpoint takes for an answer when what the service adds is measured, and when it is counted how many calls are under way.
const THINKS: Duration = Duration::from_millis(20);
const THINKS_LONG: Duration = Duration::from_secs(1);
/// The time between two looks at what changes.
const LOOK: Duration = Duration::from_millis(200);

/// The tokens that the model takes here at once, so that short files need a summary.
const WINDOW: &str = "64";

/// A file that does not fit the window.
fn file(number: usize) -> (String, String) {
    let lines = (0..8).map(|line| format!("The oven {number} of number {line} is described here in a few words.\n"));
    (format!("ovens-{number}.md"), lines.collect())
}

/// The first layer of the small model alone: what is measured here begins where files have been read and embedded.
fn shallow_model(sandbox: &Sandbox) -> Result<String, BoxError> {
    let models = svc_models::default_models_dir().ok_or("HOME is not set: set it, or SVC_CACHE_DIR")?;
    let whole = models.join("all-MiniLM-L6-v2");
    let folder = sandbox.path().join("shallow");
    std::fs::create_dir_all(&folder)?;
    for name in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(whole.join(name), folder.join(name))?;
    }
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(whole.join("config.json"))?)?;
    config["num_hidden_layers"] = 1.into();
    std::fs::write(folder.join("config.json"), config.to_string())?;
    Ok(folder.display().to_string())
}

/// What the service adds to a call of a language model, and how many calls are under way at once if they take long.
pub async fn calls(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let (overhead, _) = called(files, THINKS).await?;
    out(Figure::alone("llm/calls, added to an answer of 20 ms", files, "ms", overhead));
    let (_, most) = called(files.min(40), THINKS_LONG).await?;
    out(Figure::alone("llm/calls, at once", files.min(40), "calls", most as f64));
    Ok(())
}

/// Has files summarised by an endpoint that takes so long for an answer; returns the milliseconds that the service adds to it, and the most calls
/// that were under way at once.
async fn called(files: usize, thinks: Duration) -> Result<(f64, usize), BoxError> {
    let llm = Llm::start().await;
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (under_way.clone(), most.clone());
    llm.will_say(move |_| {
        highest.fetch_max(counted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let counted = counted.clone();
        tokio::spawn(async move {
            tokio::time::sleep(thinks).await;
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        Reply::said("The text describes ovens.").after(thinks)
    });
    let sandbox = Sandbox::new()?;
    let model = shallow_model(&sandbox)?;
    let mut settings = short_windows(&model);
    settings.push(("SVC_LLM_BASE_URL", llm.base.as_str()));
    let mut service = ServiceProcess::start_with(&sandbox, &settings)?;
    let measured = interruptible(async {
        let base = service.base().await?;
        let client = uploads::client(&base)?;
        uploads::ingest(&client, (0..files).map(file)).await?;
        let metrics =
            reqwest::Client::new().get(format!("{base}/metrics")).bearer_auth(TOKEN).send().await?.text().await?;
        let value = |name: &str| -> Result<f64, BoxError> {
            let line = metrics.lines().find(|line| line.starts_with(name) && line.contains("summarize"));
            let line = line.ok_or_else(|| format!("/metrics has no {name}"))?;
            Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
        };
        Ok((value("svc_llm_seconds_sum")?, value("svc_llm_seconds_count")?))
    })
    .await;
    service.stop().await?;
    let (seconds, count) = measured?;
    if count as usize != files {
        return Err(format!("{count} calls were made for {files} files").into());
    }
    Ok(((seconds / count - thinks.as_secs_f64()) * 1e3, most.load(Ordering::Relaxed)))
}

/// Settings of a service with this model, of which short files are more than it takes at once.
fn short_windows(model: &str) -> Vec<(&'static str, &str)> {
    let windows = ["SVC_EMBEDDING_TOKEN_WINDOW", "SVC_EMBEDDING_DOC_WINDOW"].map(|name| (name, WINDOW));
    windows.into_iter().chain([("SVC_EMBEDDING_MODEL", model)]).collect()
}

/// How fast summaries go into a batch of the mock provider, and come out of it.
pub async fn batch(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let model = shallow_model(&sandbox)?;
    let mut settings = short_windows(&model);
    settings.extend([("SVC_TASK_BADGES", "{\"summarize:llm\": \"batch\"}"), ("SVC_WORKER_BADGE", "here")]);
    let mut service = ServiceProcess::start_with(&sandbox, &settings)?;
    let measured = interruptible(async {
        let base = service.base().await?;
        let client = uploads::client(&base)?;
        for number in 0..files {
            let (name, text) = file(number);
            let file = svc_client::FileUpload::from_bytes(&name, text, None);
            client.upload_file(svc_client::wire::UploadQuery::default(), file).await?;
        }
        waiting(&client, files).await?;
        let store = sandbox.path().join("mock").display().to_string();
        let run = ["run", "--provider", "mock", "--badge", "batch", "--once", "--store", &store];
        let (submit, memory) = timed(&sandbox, &run, &short_windows(&model)).await?;
        out(Figure::alone("llm/batch, tasks submitted", files, "tasks/s", files as f64 / submit));
        out(Figure::alone("llm/batch, memory of a submission", files, "MiB", memory / 1048576.0));
        timed(&sandbox, &["finalize", "--store", &store], &[]).await?;
        let (apply, memory) = timed(&sandbox, &run, &short_windows(&model)).await?;
        out(Figure::alone("llm/batch, tasks applied", files, "tasks/s", files as f64 / apply));
        out(Figure::alone("llm/batch, memory of the results", files, "MiB", memory / 1048576.0));
        let batches = client.list_llm_batches(PageQuery::default()).await?.batches;
        let answered: i32 = batches.iter().map(|batch| batch.answered).sum();
        if answered as usize != files {
            return Err(format!("{answered} of {files} summaries were answered").into());
        }
        Ok(())
    })
    .await;
    service.stop().await?;
    measured
}

/// Waits until all summaries wait for a batch.
async fn waiting(client: &Client<Remote>, files: usize) -> Result<(), BoxError> {
    loop {
        let types = client.list_task_types().await?.task_types;
        let pending = types.iter().find(|known| known.task_type == "summarize:llm").map_or(0, |known| known.pending);
        let query = TaskQuery { status: Some(TaskStatus::Pending), limit: Some(1), ..TaskQuery::default() };
        let others = client.list_tasks(TaskQuery { task_type: Some("embed".to_owned()), ..query }).await?;
        if pending as usize >= files.min(10_000) && others.tasks.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs the batch worker to its end; returns the seconds that it took, and its peak of memory in bytes.
async fn timed(sandbox: &Sandbox, arguments: &[&str], settings: &[(&str, &str)]) -> Result<(f64, f64), BoxError> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command
        .args(arguments)
        .envs(sandbox.variables())
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let mut peak: f64 = 0.0;
    loop {
        if let Some(id) = child.id() {
            peak = peak.max(peak_memory(id).unwrap_or_default());
        }
        tokio::select! {
            status = child.wait() => {
                let status = status?;
                let seconds = begun.elapsed().as_secs_f64();
                return if status.success() { Ok((seconds, peak)) } else { Err(format!("svc-batch-worker ended with {status}").into()) };
            }
            () = tokio::time::sleep(LOOK / 4) => {}
        }
    }
}
