//! The metrics, by name. Counters and histograms are recorded where things happen; gauges of the database show what the
//! sampler measured.
use crate::{
    load::{BM25_SECONDS, ENCODE_SECONDS, SEARCH_SECONDS},
    otlp,
    replicas::{BEHIND_SECONDS, READS, UP},
    sampler::{Numbers, Sample, Sampler},
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use svc_client::wire::TaskStatus;

pub const REQUESTS: &str = "svc_requests_total";
pub const REQUEST_SECONDS: &str = "svc_request_seconds";
pub const STREAMS: &str = "svc_streams";
pub const TASKS_ENDED: &str = "svc_tasks_ended_total";
pub const HANDLER_SECONDS: &str = "svc_task_handler_seconds";
pub const CLAIM_SECONDS: &str = "svc_claim_seconds";
pub const CLAIMED: &str = "svc_tasks_claimed_total";
pub const SPOOL_COPIES: &str = "svc_spool_copies_total";
pub const SPOOL_BYTES: &str = "svc_spool_bytes";
pub const LLM_CALLS: &str = "svc_llm_calls_total";
pub const LLM_TOKENS: &str = "svc_llm_tokens_total";
pub const LLM_BATCHES: &str = "svc_llm_batches_total";
pub const LLM_SECONDS: &str = "svc_llm_seconds";
pub const FEED_CONSUMED: &str = "svc_feed_consumed_total";
pub const FEED_ACKED: &str = "svc_feed_acked_total";
pub const FEED_REJECTED: &str = "svc_feed_rejected_total";
pub const FEED_RETRIED: &str = "svc_feed_retried_total";
pub const FEED_CONNECTED: &str = "svc_feed_connected";
pub const FEED_BODIES: &str = "svc_feed_bodies";
pub const FEED_BODY_BYTES: &str = "svc_feed_body_bytes";
pub const FEED_READY: &str = "svc_feed_ready_messages";
const TASKS: &str = "svc_tasks";
const QUEUE_DEPTH: &str = "svc_queue_depth";
const OLDEST_SECONDS: &str = "svc_queue_oldest_seconds";
const UNSERVED: &str = "svc_tasks_unserved";
const UNSERVED_TYPES: &str = "svc_tasks_without_handler";
const BLOCKED: &str = "svc_tasks_blocked";
const WORKERS: &str = "svc_workers";
const LARGE_OBJECT_BYTES: &str = "svc_large_object_bytes";
const VECTOR_INDEX_BYTES: &str = "svc_vector_index_bytes";
const CACHE_BYTES: &str = "svc_database_cache_bytes";
const SAMPLE_AGE: &str = "svc_sample_age_seconds";

/// The upper ends of the buckets of durations.
const SECONDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// The time between two settings of the gauges for a collector, which does not ask for them.
const SHOWN_EVERY: Duration = Duration::from_secs(5);
/// The time between two moves of recorded durations into their buckets.
const MOVED_EVERY: Duration = Duration::from_secs(5);

/// The recorder of this process, made once because the metrics crate keeps one per process.
pub fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER
        .get_or_init(|| {
            let builder = PrometheusBuilder::new();
            let builder = match builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS) {
                Ok(builder) => builder,
                Err(_) => PrometheusBuilder::new(),
            };
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            // If somebody else (a test) has installed a recorder, it stays, and ours shows nothing.
            let _ = match otlp::meter() {
                None => metrics::set_global_recorder(recorder).is_ok(),
                Some(meter) => metrics::set_global_recorder(otlp::Mirrored::new(recorder, meter, &SECONDS)).is_ok(),
            };
            describe();
            keep_small(handle.clone());
            handle
        })
        .clone()
}

/// Moves what histograms recorded into their buckets again and again. Until then each value takes memory of its own, and nobody asks most
/// workers for their metrics. A thread does it, because the recorder outlives every runtime.
fn keep_small(metrics: PrometheusHandle) {
    let moving = move || {
        loop {
            std::thread::park_timeout(MOVED_EVERY);
            metrics.run_upkeep();
        }
    };
    if let Err(error) = std::thread::Builder::new().name("metrics".to_owned()).spawn(moving) {
        tracing::warn!(%error, "no thread moves durations into buckets, so memory grows until somebody asks for the metrics");
    }
}

fn describe() {
    metrics::describe_counter!(REQUESTS, "Requests answered, by operation and status");
    metrics::describe_histogram!(REQUEST_SECONDS, "Time to answer a request, by operation");
    metrics::describe_gauge!(STREAMS, "Answers that are being streamed, by operation");
    metrics::describe_counter!(TASKS_ENDED, "Tasks ended by this process, by type and outcome");
    metrics::describe_histogram!(HANDLER_SECONDS, "Time in a task's handler, by type");
    metrics::describe_histogram!(CLAIM_SECONDS, "Time of a claim");
    metrics::describe_counter!(CLAIMED, "Tasks claimed by this process");
    metrics::describe_counter!(SPOOL_COPIES, "Files copied out of the database to be read");
    metrics::describe_gauge!(SPOOL_BYTES, "Bytes of stored files that this process keeps on its disk");
    metrics::describe_counter!(LLM_CALLS, "Calls of the language model, by purpose and outcome");
    metrics::describe_counter!(LLM_TOKENS, "Tokens that the language model counted, by purpose, model and direction");
    metrics::describe_counter!(LLM_BATCHES, "Batches that ended, by provider and outcome");
    metrics::describe_histogram!(LLM_SECONDS, "Time of a call of the language model with its whole answer, by purpose");
    metrics::describe_counter!(FEED_CONSUMED, "Messages that the bulk feed took from its broker");
    metrics::describe_counter!(FEED_ACKED, "Messages that are stored, or were before, and are acknowledged");
    metrics::describe_counter!(FEED_REJECTED, "Messages that were given up, by the code of the reason");
    metrics::describe_counter!(
        FEED_RETRIED,
        "Messages that were put aside to be tried later, by the queue they wait in"
    );
    metrics::describe_gauge!(FEED_CONNECTED, "Whether this process has the broker of its bulk feed: 1 or 0");
    metrics::describe_gauge!(FEED_BODIES, "Messages of the bulk feed that this process works on");
    metrics::describe_gauge!(FEED_BODY_BYTES, "Bytes of the bodies of these messages");
    metrics::describe_gauge!(
        FEED_READY,
        "Messages that lie in the queues of the bulk feed, by queue; read every 20 seconds"
    );
    metrics::describe_gauge!(SAMPLE_AGE, "Age of the gauges that were read from the database");
    metrics::describe_gauge!(TASKS, "Tasks in the queue, by type and status; counted up to 10,000");
    metrics::describe_gauge!(QUEUE_DEPTH, "Tasks that still owe work; counted up to 10,000 of a type and badge");
    metrics::describe_gauge!(OLDEST_SECONDS, "Age of the oldest task that still owes work");
    metrics::describe_gauge!(UNSERVED, "Ready tasks that no living worker answers to, by badge");
    metrics::describe_gauge!(UNSERVED_TYPES, "Tasks whose type no living worker can run, by type");
    metrics::describe_gauge!(BLOCKED, "Unfinished tasks that are not running, by the reason");
    metrics::describe_histogram!(SEARCH_SECONDS, "Time of vectors or full text of a search in the database");
    metrics::describe_histogram!(BM25_SECONDS, "Time of the BM25 of a search");
    metrics::describe_histogram!(ENCODE_SECONDS, "Time that models take of an embed task");
    metrics::describe_gauge!(LARGE_OBJECT_BYTES, "Bytes of the database's table of large objects; read every minute");
    metrics::describe_gauge!(VECTOR_INDEX_BYTES, "Bytes of the HNSW indexes; read every minute");
    metrics::describe_gauge!(CACHE_BYTES, "Memory that the database has for pages, by its effective_cache_size");
    metrics::describe_counter!(READS, "Reads that a standby may answer, by the server that did");
    metrics::describe_gauge!(UP, "Whether a standby answers reads, by standby: 1 or 0");
    metrics::describe_gauge!(BEHIND_SECONDS, "How far a standby is behind the primary, to the second, by standby");
    metrics::describe_gauge!(WORKERS, "Workers with a heartbeat within their lease");
}

/// Sets the gauges again and again where a collector gets them, until the service is gone.
pub fn keep_shown(sampler: &Arc<Sampler>) {
    if otlp::meter().is_none() {
        return;
    }
    let sampler = Arc::downgrade(sampler);
    tokio::spawn(async move {
        while let Some(sampler) = sampler.upgrade() {
            if let Some(sample) = sampler.known().sample {
                show(&sample, &mut lock());
            }
            drop(sampler);
            tokio::time::sleep(SHOWN_EVERY).await;
        }
    });
}

/// The metrics as text, with the gauges of this sample. Whoever asks at the same time does not change the gauges before they
/// are written down.
pub fn render(sample: Option<&Sample>, metrics: &PrometheusHandle) -> String {
    let mut shown = lock();
    if let Some(sample) = sample {
        show(sample, &mut shown);
    }
    metrics.render()
}

type Labels = Vec<(&'static str, String)>;
type Series = BTreeSet<(&'static str, Labels)>;

/// The series that have been set so far. The gauges belong to the process, so whoever sets them holds this.
fn lock() -> MutexGuard<'static, Series> {
    static SHOWN: Mutex<Series> = Mutex::new(BTreeSet::new());
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the gauges for what was read from the database.
fn show(sample: &Sample, shown: &mut Series) {
    let Numbers { unfinished, failed, workers, unserved_badges, unserved_types, sizes, .. } = &sample.numbers;
    metrics::gauge!(SAMPLE_AGE).set(sample.taken.elapsed().as_secs_f64());
    let state = sample.numbers.queue();
    metrics::gauge!(QUEUE_DEPTH).set((state.pending + state.held + state.waiting_for_retry) as f64);
    metrics::gauge!(OLDEST_SECONDS).set(state.oldest_seconds.unwrap_or(0.0));
    let labels =
        |task_type: &String, status: TaskStatus| vec![("task_type", task_type.clone()), ("status", status.to_string())];
    let mut tasks: BTreeMap<Labels, i64> = BTreeMap::new();
    let mut blocked: BTreeMap<Labels, i64> = BTreeMap::new();
    for row in unfinished {
        *tasks.entry(labels(&row.task_type, row.status.0)).or_default() += row.tasks;
        if let Some(reason) = row.blocked_by.map(|word| word.0) {
            *blocked.entry(vec![("blocked_by", reason.to_string())]).or_default() += row.tasks;
        }
    }
    for row in failed {
        *tasks.entry(labels(&row.task_type, TaskStatus::Failed)).or_default() += row.tasks;
    }
    fresh(shown, TASKS, tasks.into_iter());
    fresh(shown, UNSERVED, unserved_badges.iter().map(|(badge, count, _)| (vec![("badge", badge.clone())], *count)));
    fresh(
        shown,
        UNSERVED_TYPES,
        unserved_types.iter().map(|(name, count, _)| (vec![("task_type", name.clone())], *count)),
    );
    fresh(shown, BLOCKED, blocked.into_iter());
    metrics::gauge!(WORKERS).set(workers.len() as f64);
    metrics::gauge!(LARGE_OBJECT_BYTES).set(sizes.large_objects as f64);
    metrics::gauge!(VECTOR_INDEX_BYTES).set(sizes.vector_indexes as f64);
    metrics::gauge!(CACHE_BYTES).set(sizes.cache as f64);
}

/// Sets a gauge's series, and sets series that have disappeared to zero, because an alarm must clear.
fn fresh(shown: &mut Series, name: &'static str, series: impl Iterator<Item = (Labels, i64)>) {
    let mut now = BTreeMap::new();
    for (labels, count) in series {
        shown.insert((name, labels.clone()));
        now.insert(labels, count);
    }
    for (_, labels) in shown.iter().filter(|(shown, _)| *shown == name) {
        let count = now.get(labels).copied().unwrap_or(0);
        metrics::gauge!(name, labels).set(count as f64);
    }
}

/// Records a duration by name and label.
pub fn seconds(name: &'static str, label: &'static str, value: String, time: Duration) {
    metrics::histogram!(name, label => value).record(time.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sample(badge: &str, tasks: i64) -> Sample {
        let numbers = Numbers {
            schema: Ok(()),
            writes: Ok(()),
            sizes: Default::default(),
            unfinished: vec![],
            failed: vec![],
            workers: vec![],
            unserved_badges: vec![(badge.to_owned(), tasks, 0.0)],
            unserved_types: vec![],
        };
        Sample { taken: Instant::now(), numbers }
    }

    #[tokio::test]
    async fn durations_are_moved_into_buckets_though_nobody_asks_for_the_metrics() {
        const NAME: &str = "svc_unasked_seconds";
        let metrics = recorder();
        seconds(NAME, "of", "a test".to_owned(), Duration::from_secs(1));
        // Only what was moved is among the distributions; the text of the metrics would move it.
        let is_moved =
            || format!("{metrics:?}").split_once("distributions: ").is_some_and(|(_, moved)| moved.contains(NAME));
        let mut looks = tokio::time::interval(Duration::from_millis(50));
        let moved = async {
            while !is_moved() {
                looks.tick().await;
            }
        };
        tokio::time::timeout(12 * MOVED_EVERY, moved).await.expect("the duration in a bucket");
    }

    #[test]
    fn who_asks_at_the_same_time_sees_the_gauges_of_the_own_sample() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let ask = |badge: &str, tasks: i64| {
            let sample = sample(badge, tasks);
            metrics::with_local_recorder(&recorder, || {
                for _ in 0..500 {
                    let text = render(Some(&sample), &recorder.handle());
                    assert!(text.contains(&format!("{UNSERVED}{{badge=\"{badge}\"}} {tasks}\n")), "{text}");
                }
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(|| ask("gpu", 1));
            scope.spawn(|| ask("cpu", 2));
        });
    }
}
