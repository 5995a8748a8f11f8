//! Sends files through the message broker, and reads what becomes of them.
use super::{
    Ended, Read, Ready, Run, found,
    journal::{Key, Outcome},
    walk::{Candidate, Content, Found, Sources},
};
use crate::{
    cli::{CliError, output::one_line},
    feed::{
        broker::BrokerError,
        producer::{Message, Place, Producer, Told},
    },
    settings::Settings,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::mpsc::Receiver, task::JoinHandle, time::Instant};

/// How many messages, and bytes of them, are sent before the broker has the first.
const UNCONFIRMED: usize = 256;
const UNCONFIRMED_BYTES: u64 = 32 << 20;
/// The wait after the broker refused a message because a queue is full.
const FULL: Duration = Duration::from_secs(1);
/// The time between two tries to reach the broker, first and later.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(5);
/// How often is looked whether there is still patience.
const LOOK: Duration = Duration::from_millis(500);

/// What is under way, across connections.
struct Flight {
    found: Receiver<Found>,
    is_found: bool,
    reading: FuturesUnordered<JoinHandle<Read>>,
    /// What was sent and is not confirmed, by number, with its size.
    unconfirmed: BTreeMap<usize, (Candidate, u64)>,
    bytes: u64,
    /// What is to be sent once more.
    again: Vec<Candidate>,
}

impl Flight {
    /// How many files are not sent, or not known to have arrived, when the run gives up; what is still to be found counts as one.
    fn left(&self) -> usize {
        self.again.len() + self.unconfirmed.len() + self.reading.len() + usize::from(!self.is_found)
    }
}

enum Lost {
    Broker(BrokerError),
    Cli(CliError),
}

impl From<BrokerError> for Lost {
    fn from(error: BrokerError) -> Lost {
        Lost::Broker(error)
    }
}

impl From<CliError> for Lost {
    fn from(error: CliError) -> Lost {
        Lost::Cli(error)
    }
}

/// Sends everything, over one connection after another, until all is answered or there is no more patience.
pub async fn send(
    run: &mut Run,
    settings: &Settings,
    keys: Vec<Key>,
    sources: Sources,
    anew: bool,
) -> Result<(), CliError> {
    let other = |error: BrokerError| CliError::Other(error.to_string());
    let answers = format!("{}{}", settings.amqp_prefix, run.journal.answers);
    // The first connection shows whether the settings are right.
    let mut producer = Producer::connect(settings, &answers).await.map_err(other)?;
    if anew || !producer.was_kept {
        run.journal.lost()?;
    }
    run.known = Arc::new(run.journal.known(keys));
    let root = root(settings);
    let mut flight = Flight {
        found: found(sources),
        is_found: false,
        reading: FuturesUnordered::new(),
        unconfirmed: BTreeMap::new(),
        bytes: 0,
        again: Vec::new(),
    };
    let mut pause = SOONEST;
    loop {
        let error = match connected(run, &mut flight, &mut producer, root.as_deref()).await {
            Ok(is_complete) => {
                producer.end(is_complete).await;
                run.account.left += flight.left();
                return Ok(());
            }
            Err(Lost::Cli(error)) => return Err(error),
            Err(Lost::Broker(error)) => error,
        };
        // Whether these have arrived is not known. Under the same message ids they are stored once.
        for (n, (candidate, _)) in std::mem::take(&mut flight.unconfirmed) {
            if run.journal.abandon(n) {
                flight.again.push(candidate);
            }
        }
        flight.bytes = 0;
        producer = loop {
            if !run.has_patience() {
                return Err(other(error));
            }
            run.bar.set_message(format!("the broker is away: {}", one_line(&error.to_string(), 200)));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATEST);
            if let Ok(producer) = Producer::connect(settings, &answers).await {
                pause = SOONEST;
                break producer;
            }
        };
        if !producer.was_kept {
            // These files are not found a second time by this run.
            run.account.left += run.journal.lost()?;
        }
    }
}

/// The folder that the service reads too. One that does not exist here says nothing.
pub fn root(settings: &Settings) -> Option<PathBuf> {
    let root = Some(&settings.bulk_root).filter(|root| !root.as_os_str().is_empty());
    root.and_then(|root| root.canonicalize().ok())
}

/// Sends and reads over one connection; returns whether all is answered.
async fn connected(
    run: &mut Run,
    flight: &mut Flight,
    producer: &mut Producer,
    root: Option<&Path>,
) -> Result<bool, Lost> {
    let mut confirms = FuturesUnordered::new();
    let mut look = tokio::time::interval(LOOK);
    let (mut full_until, mut full_for) = (Instant::now(), FULL);
    loop {
        let is_sent =
            flight.is_found && flight.reading.is_empty() && flight.again.is_empty() && flight.unconfirmed.is_empty();
        if is_sent && run.journal.waiting() == 0 && run.still_ingesting() == 0 {
            return Ok(true);
        }
        // The patience is for the answers of others, and not for what is still being found and read here.
        let waits_for_others = !flight.unconfirmed.is_empty()
            || run.journal.waiting() + run.still_ingesting() > 0
            || !flight.again.is_empty();
        if waits_for_others && !run.has_patience() {
            return Ok(false);
        }
        let has_room = flight.unconfirmed.len() < UNCONFIRMED
            && flight.bytes < UNCONFIRMED_BYTES
            && flight.reading.len() < super::READS
            && Instant::now() >= full_until;
        if has_room && let Some(candidate) = flight.again.pop() {
            flight.reading.push(run.read(candidate));
            continue;
        }
        tokio::select! {
            Some((n, confirmed)) = confirms.next(), if !confirms.is_empty() => {
                let confirmed: Result<(), BrokerError> = confirmed;
                match confirmed {
                    Ok(()) => {
                        run.journal.sent(n)?;
                        run.moved = std::time::Instant::now();
                        full_for = FULL;
                        run.show();
                    }
                    Err(BrokerError::Refused(_)) => {
                        // Each try reads the file again and adds a line to the journal.
                        full_until = Instant::now() + full_for;
                        full_for = (full_for * 2).min(LATEST);
                    }
                    Err(error) => return Err(error.into()),
                }
                if let Some((candidate, size)) = flight.unconfirmed.remove(&n) {
                    flight.bytes -= size;
                    if run.journal.abandon(n) {
                        flight.again.push(candidate);
                    }
                }
            }
            told = producer.outcome() => hear(run, told?).await?,
            Some(read) = flight.reading.next(), if !flight.reading.is_empty() => {
                let Some(ready) = run.ready(read)? else { continue };
                let Ready { candidate, n, mark, id, sha256, size, content } = ready;
                let (path, name) = (candidate.shown(), candidate.name());
                let beneath = match &content {
                    Content::Bytes(_) | Content::Url(_) => None,
                    Content::Large(_) => match beneath(root, candidate.path()) {
                        Some(path) => Some(path),
                        None => {
                            run.ended(n, &path, too_large(size, run.most))?;
                            continue;
                        }
                    },
                };
                let place = match (&content, &beneath) {
                    (Content::Bytes(bytes), _) => Place::Here(bytes),
                    (Content::Large(_), path) => Place::Path(path.as_deref().unwrap_or_default()),
                    (Content::Url(url), _) => Place::Url(url),
                };
                let sha256 = Some(sha256.as_str()).filter(|hash| !hash.is_empty());
                let of_manifest = candidate.clone();
                let declared_mime = of_manifest.declared_mime();
                let message = Message { id: &id, mark: &mark, filename: &name, declared_mime, sha256, place };
                // What is in a message is held until it is confirmed.
                let held = if beneath.is_none() { size } else { 0 };
                flight.unconfirmed.insert(n, (candidate, held));
                flight.bytes += held;
                let sent = producer.send(of_manifest.target(&run.target), &message).await?;
                confirms.push(async move { (n, sent.confirmed().await) });
            }
            next = flight.found.recv(), if has_room && !flight.is_found => match next {
                Some(next) => flight.reading.extend(run.looked_at(next)?),
                None => flight.is_found = true,
            },
            _ = look.tick() => run.show(),
        }
    }
}

/// Takes an outcome, and lets the broker forget it once it is in the journal.
async fn hear(run: &mut Run, told: Told) -> Result<(), Lost> {
    let of = told.mark.as_deref().and_then(|mark| run.journal.find(mark));
    if let (Some((n, entry)), Some(outcome)) = (of, &told.outcome)
        && outcome.message_id.as_deref() == Some(entry.message_id.as_str())
        && matches!(outcome.outcome.as_str(), "accepted" | "duplicate" | "rejected")
    {
        let (word, code, detail) = (outcome.outcome.clone(), outcome.code.clone(), outcome.detail.clone());
        run.ended(n, &entry.path, Outcome { word, document_id: outcome.document_id, code, detail })?;
    }
    if let Some(outcome) = &told.outcome
        && matches!(outcome.outcome.as_str(), "settled" | "failed" | "cancelled")
        && let Some(id) = outcome.document_id
    {
        let (word, code, detail) = (outcome.outcome.clone(), outcome.code.clone(), outcome.detail.clone());
        run.ingested(id, Ended { word, code, detail })?;
    }
    Ok(told.heard().await?)
}

/// The path of a file under the folder that the service reads too.
pub fn beneath(root: Option<&Path>, path: &Path) -> Option<String> {
    let path: PathBuf = path.canonicalize().ok()?;
    Some(path.strip_prefix(root?).ok()?.to_str()?.to_owned())
}

pub fn too_large(size: u64, most: u64) -> Outcome {
    let detail = format!(
        "it has {size} bytes, and a message holds {most} (SVC_BULK_INLINE_BYTES): put it under SVC_BULK_ROOT, or use svc ingest"
    );
    Outcome {
        word: "rejected".to_owned(),
        document_id: None,
        code: Some(svc_client::Code::TooLarge.as_str().to_owned()),
        detail: Some(detail),
    }
}
