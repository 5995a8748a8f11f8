//! The bulk feed: how fast `svc bulk` has folders accepted over a broker, beside uploads over HTTP, and what memory that takes.
use crate::{
    figure::{BoxError, Figure, Peer},
    sandbox::{Sandbox, TOKEN, interruptible},
    service_process::{ServiceProcess, peak_memory},
    uploads,
};
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use sha2::{Digest, Sha256};
use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use svc_client::{
    Client, Json, Remote,
    wire::{CheckedPart, NewPrincipal, PrincipalChange, PrincipalKind, PrincipalPath, ReadinessCheck},
};

/// The sizes of files, and how many of each for one that was asked for.
const SIZES: [(&str, usize, usize); 2] = [("100 KiB", 100 << 10, 1), ("1 MiB", 1 << 20, 10)];
/// What the names of the feed's exchanges and queues begin with.
const PREFIX: &str = "svc.ingest";
/// The time between two looks at what changes.
const LOOK: Duration = Duration::from_millis(100);
/// How long the broker and the feed may take to start.
const STARTS: Duration = Duration::from_secs(120);

/// A broker that ends with the bench.
struct Broker {
    child: Child,
    folder: PathBuf,
    port: u16,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/broker.sh")
}

impl Broker {
    fn start(folder: PathBuf) -> Result<Broker, BoxError> {
        if !Command::new(script()).arg("find").stdout(Stdio::null()).status()?.success() {
            return Err("there is no message broker here: config/setup.sh broker fetches one".into());
        }
        std::fs::create_dir_all(&folder)?;
        let free = |first: &u16| (*first..first + 3).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
        let port = (21_000..32_000).step_by(7).find(free).ok_or("no port is free")?;
        let mut command = Command::new(script());
        command.arg("run").arg(&folder).arg(port.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Broker { child, folder, port })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let id = std::fs::read_to_string(self.folder.join("pid")).ok();
        let id = id.and_then(|id| rustix::process::Pid::from_raw(id.trim().parse().ok()?));
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = Command::new(script()).arg("end").arg(self.port.to_string()).stdout(Stdio::null()).status();
    }
}

pub async fn run(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let broker = Broker::start(sandbox.path().join("broker"))?;
    let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", broker.port);
    for (name, size, divisor) in SIZES {
        let mut by_http = None;
        for by_broker in [false, true] {
            // A service of its own each time, so that its peak is of this work alone.
            let settings = [
                ("SVC_AMQP_URL", url.as_str()),
                ("SVC_INGEST_WORKER_ENABLED", "false"),
                ("SVC_BULK_HIGH_WATER", "10000000"),
            ];
            let mut service = ServiceProcess::start_with(&sandbox, &settings)?;
            let measured =
                interruptible(measure(&mut service, &sandbox, by_broker.then_some(&url), files / divisor, size)).await;
            let memory = service.memory()?;
            service.stop().await?;
            let Measured { rate, command } = measured?;
            let (way, n) = (if by_broker { "over the broker" } else { "over HTTP" }, files / divisor);
            let figure = format!("feed, files of {name} {way}");
            out(match by_http {
                Some(value) => {
                    Figure::beside(&figure, n, "files/s", rate, Peer { name: "over HTTP", version: "".into(), value })
                }
                None => Figure::alone(&figure, n, "files/s", rate),
            });
            by_http = Some(rate);
            out(Figure::alone(&format!("feed, peak of the service, files of {name} {way}"), n, "bytes", memory.peak));
            out(Figure::alone(&format!("feed, peak of svc bulk, files of {name} {way}"), n, "bytes", command));
        }
    }
    Ok(())
}

struct Measured {
    rate: f64,
    /// The peak of the command's memory in bytes.
    command: f64,
}

async fn measure(
    service: &mut ServiceProcess,
    sandbox: &Sandbox,
    broker: Option<&String>,
    files: usize,
    size: usize,
) -> Result<Measured, BoxError> {
    let base = service.base().await?;
    let client = uploads::client(&base)?;
    if broker.is_some() {
        answer_for_guest(&client).await?;
        started(&client).await?;
    }
    let work = tempfile::Builder::new().prefix("svc-bench-feed.").tempdir()?;
    let folder = work.path().join("files");
    std::fs::create_dir(&folder)?;
    for number in 0..files {
        std::fs::write(folder.join(format!("{number}.txt")), text(number, size, broker.is_some()))?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bulk", "--json", "--journal"]).arg(work.path().join("journal")).arg(&folder);
    command.envs(sandbox.variables()).env("SVC_URL", &base).env("SVC_TOKEN", TOKEN);
    match broker {
        Some(url) => command.env("SVC_AMQP_URL", url),
        None => command.env_remove("SVC_AMQP_URL"),
    };
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut peak = 0.0;
    while child.try_wait()?.is_none() {
        peak = peak_memory(child.id()).unwrap_or(peak);
        tokio::time::sleep(LOOK / 10).await;
    }
    let took = begun.elapsed();
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(
            format!("svc bulk ended with {}: {}", output.status, String::from_utf8_lossy(&output.stdout)).into()
        );
    }
    Ok(Measured { rate: files as f64 / took.as_secs_f64(), command: peak })
}

/// Words that no other file has.
fn text(number: usize, size: usize, by_broker: bool) -> String {
    let mut text = String::with_capacity(size + 100);
    let way = if by_broker { "broker" } else { "server" };
    for line in 0.. {
        text += &format!("File {number} for the {way} tells in line {line} what the heron saw on the pond.\n");
        if text.len() >= size {
            break;
        }
    }
    text.truncate(size);
    text
}

/// What a service takes that finds so many files of 1 MiB in the queue.
pub async fn queued(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let broker = Broker::start(sandbox.path().join("broker"))?;
    let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", broker.port);
    let settings =
        [("SVC_AMQP_URL", url.as_str()), ("SVC_INGEST_WORKER_ENABLED", "false"), ("SVC_BULK_HIGH_WATER", "10000000")];
    // The first service makes the queue, and is away while files come.
    let mut service = ServiceProcess::start_with(&sandbox, &settings)?;
    let made = interruptible(async {
        let client = uploads::client(&service.base().await?)?;
        answer_for_guest(&client).await?;
        started(&client).await
    })
    .await;
    service.stop().await?;
    made?;
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let outcomes = channel.queue_declare("".into(), own, FieldTable::default()).await?.name().clone();
    let (events, table) = (format!("{PREFIX}.events"), FieldTable::default());
    channel
        .queue_bind(outcomes.clone(), events.into(), "result.accepted".into(), QueueBindOptions::default(), table)
        .await?;
    for number in 0..files {
        publish(&channel, number).await?;
    }
    let mut service = ServiceProcess::start_with(&sandbox, &settings)?;
    let measured = interruptible(async {
        service.base().await?;
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let mut outcomes = channel.basic_consume(outcomes, "".into(), options, FieldTable::default()).await?;
        let begun = Instant::now();
        for _ in 0..files {
            let outcome = tokio::time::timeout(STARTS, outcomes.next()).await?;
            outcome.ok_or("the broker ended")??;
        }
        Ok(files as f64 / begun.elapsed().as_secs_f64())
    })
    .await;
    let memory = service.memory()?;
    service.stop().await?;
    out(Figure::alone("feed/queued", files, "files/s", measured?));
    out(Figure::alone("feed/queued, peak of the service", files, "MiB", memory.peak / f64::from(1 << 20)));
    Ok(())
}

/// Publishes a file of 1 MiB, and returns when the broker has it.
async fn publish(channel: &Channel, number: usize) -> Result<(), BoxError> {
    let body = text(number, 1 << 20, true);
    let mut headers = FieldTable::default();
    for (name, value) in [("svc-sha256", hex::encode(Sha256::digest(&body))), ("svc-filename", format!("{number}.txt"))]
    {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let properties = BasicProperties::default()
        .with_message_id(format!("file-{number}").into())
        .with_user_id("guest".into())
        .with_content_type("text/plain".into())
        .with_delivery_mode(2)
        .with_headers(headers);
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let published = channel.basic_publish(PREFIX.into(), "upload.file".into(), options, body.as_bytes(), properties);
    match published.await?.await? {
        Confirmation::Ack(None) => Ok(()),
        other => Err(format!("the broker did not take file {number}: {other:?}").into()),
    }
}

async fn answer_for_guest(client: &Client<Remote>) -> Result<(), BoxError> {
    // The database outlasts a service, and has the principal of an earlier round.
    let new = NewPrincipal { name: "producer".to_owned(), kind: PrincipalKind::Service };
    let Ok(made) = client.create_principal(Json(new)).await else { return Ok(()) };
    let change = PrincipalChange { amqp_user: Some("guest".to_owned()), ..PrincipalChange::default() };
    client.update_principal(PrincipalPath { id: made.id }, Json(change)).await?;
    Ok(())
}

/// Waits until the feed takes messages.
async fn started(client: &Client<Remote>) -> Result<(), BoxError> {
    let begun = Instant::now();
    while !takes_messages(client).await? {
        if begun.elapsed() > STARTS {
            return Err("the feed does not start".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn takes_messages(client: &Client<Remote>) -> Result<bool, BoxError> {
    let checks: Vec<ReadinessCheck> = match client.read_readiness().await {
        Ok(ready) => ready.checks,
        // Without a worker the service is not ready, and says the rest all the same.
        Err(failure) => match failure.members.get("checks") {
            Some(checks) => serde_json::from_value(checks.clone())?,
            None => return Ok(false),
        },
    };
    Ok(checks.iter().any(|check| check.name == CheckedPart::Feed && check.ok))
}
