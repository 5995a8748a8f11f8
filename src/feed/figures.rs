//! Tells the sampler what lies in the queues, while somebody looks.
use super::{
    broker::{Broker, BrokerError},
    dead::Dead,
};
use crate::{sampler::feed::Figures, service::Service};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use svc_client::wire::DeadLetter;
use tokio::time::Instant;

/// How many of the messages that were given up are looked at.
const SHOWN: usize = 25;
/// How many bytes of them, since a look fetches whole messages.
const BYTES: u64 = 16 << 20;
/// How long a look may take.
const LOOK: Duration = Duration::from_secs(2);
/// The time between two looks while their number changes, and while it stays. The broker counts each look as a delivery.
const SOONEST: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_secs(60);
/// The longest text of a message that is told; its publisher wrote it.
const CHARACTERS: usize = 1_000;
/// The time between two looks whether the queue has back what was looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// What was seen of the messages that were given up.
struct Seen {
    at: Instant,
    depth: u32,
    letters: Vec<DeadLetter>,
    failure: Option<String>,
}

/// Tells figures until the broker cannot be used.
pub(super) async fn tell(service: &Arc<Service>, broker: &Broker) -> BrokerError {
    let feed = &service.sampler.feed;
    let mut seen: Option<Seen> = None;
    loop {
        feed.wanted().await;
        match figures(service, broker, &mut seen).await {
            Ok(figures) => feed.tell(figures),
            Err(error) => return error,
        }
    }
}

async fn figures(service: &Service, broker: &Broker, seen: &mut Option<Seen>) -> Result<Figures, BrokerError> {
    let turn = service.sampler.feed.turn().await;
    let queues = broker.queues().await?;
    let depth = queues.last().map_or(0, |queue| queue.ready);
    // That a queue has become empty, or is it no more, is seen at once.
    let is_known = !service.sampler.feed.was_changed()
        && seen.as_ref().is_some_and(|seen| {
            let is_same = seen.depth == depth;
            (is_same || (seen.depth > 0 && depth > 0)) && seen.at.elapsed() < if is_same { LATEST } else { SOONEST }
        });
    if !is_known {
        let mut letters = Vec::new();
        let failure = look(service, depth, &mut letters).await.err().map(|error| error.to_string());
        // What was looked at is the queue's again when this is done.
        let back = async {
            while broker.depth("dead").await? < depth {
                tokio::time::sleep(PAUSE).await;
            }
            Ok::<_, BrokerError>(())
        };
        if let Ok(lost) = tokio::time::timeout(LOOK, back).await {
            lost?;
        }
        *seen = Some(Seen { at: Instant::now(), depth, letters, failure });
    }
    drop(turn);
    let (dead, dead_failure) =
        seen.as_ref().map(|seen| (seen.letters.clone(), seen.failure.clone())).unwrap_or_default();
    let at_work = broker.at_work.load(Ordering::Relaxed) as u64;
    Ok(Figures { at: chrono::Utc::now(), queues, at_work, dead, dead_failure })
}

/// Looks at the first messages that were given up. They stay where they are.
async fn look(service: &Service, depth: u32, letters: &mut Vec<DeadLetter>) -> Result<(), BrokerError> {
    if depth == 0 {
        return Ok(());
    }
    let mut dead = Dead::open(&service.settings).await?;
    let looked = tokio::time::timeout(LOOK, async {
        let mut bytes = 0;
        while letters.len() < SHOWN && bytes < BYTES {
            let Some(letter) = dead.next().await? else { break };
            bytes += letter.about.bytes;
            letters.push(short(letter.about));
        }
        Ok(())
    });
    let looked = looked.await;
    let is_lost = !dead.is_connected();
    dead.close().await;
    // What was seen in time is shown.
    looked.unwrap_or(if is_lost { Err(BrokerError::Lost) } else { Ok(()) })
}

/// A message without its long texts.
fn short(mut letter: DeadLetter) -> DeadLetter {
    let texts = [
        &mut letter.user,
        &mut letter.code,
        &mut letter.detail,
        &mut letter.filename,
        &mut letter.sha256,
        &mut letter.source,
    ];
    for text in texts.into_iter().flatten() {
        if let Some((end, _)) = text.char_indices().nth(CHARACTERS) {
            text.truncate(end);
        }
    }
    letter
}
