//! Numbers, times and states in words for people.
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use svc_client::wire::{ActorState, AttemptOutcome, BlockedBy, Settled, TaskProgress, TaskResponse, TaskStatus};

/// A task that has run for less is not long.
const LONG_SECONDS: f64 = 5.0;

/// A whole number with its thousands apart: `4,433`.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut said = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            said.push(',');
        }
        said.push(digit);
    }
    if number < 0 { format!("-{said}") } else { said }
}

/// A number that may be higher, because counting ended there: `10,000+`.
pub fn at_least(number: i64, is_more: bool) -> String {
    count(number) + if is_more { "+" } else { "" }
}

/// A number of things: `1 task`, `4,433 tasks`.
pub fn many(number: i64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A length of time, as short as a table needs it: `44 s`, `12 min`, `1 h 31`, `3 d`.
pub fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..172_800 => format!("{} h {:02}", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d", whole / 86_400),
    }
}

/// How long something took: `0.4 s`, `9.8 s`, `12 min`.
pub fn took(seconds: f64) -> String {
    match seconds {
        ..0.0995 => format!("{:.0} ms", seconds.max(0.0) * 1e3),
        ..59.95 => format!("{seconds:.1} s"),
        _ => time(seconds),
    }
}

pub fn since(at: DateTime<Utc>) -> f64 {
    (Utc::now() - at).as_seconds_f64()
}

/// A size: `48.2 MiB`.
pub fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut size = bytes as f64;
    if size < 1024.0 {
        return format!("{bytes} B");
    }
    let mut unit = "B";
    for larger in UNITS {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, larger);
    }
    format!("{size:.1} {unit}")
}

/// A state as a glyph, a word and a colour.
pub fn state(class: &str, glyph: &str, word: &str) -> Markup {
    html! { span class={ "st " (class) } { i aria-hidden="true" { (glyph) } (word) } }
}

pub fn settled(state_of: Settled) -> Markup {
    match state_of {
        Settled::InFlight => state("run", "●", "in flight"),
        Settled::Settled => state("done", "✓", "settled"),
        Settled::Failed => state("bad", "✕", "failed"),
    }
}

pub fn task(task: &TaskResponse) -> Markup {
    match (task.status, &task.blocked_by) {
        (TaskStatus::Completed, _) => state("done", "✓", "completed"),
        (TaskStatus::Failed, _) if task.finished => state("bad", "✕", "failed"),
        (_, Some(blockage)) => reason_state(blockage.reason),
        (status, None) => state("run", "●", status.as_str()),
    }
}

fn reason_state(reason: BlockedBy) -> Markup {
    match reason {
        BlockedBy::WorkersBusy => state("wait", "○", self::reason(reason)),
        BlockedBy::LeaseLapsed | BlockedBy::NoWorker | BlockedBy::NoWorkerForBadge | BlockedBy::NoHandler => {
            state("bad", "✕", self::reason(reason))
        }
        _ => state("block", "◐", self::reason(reason)),
    }
}

/// How far a task is: `30 of 100 pages`.
pub fn progress(progress: &TaskProgress) -> String {
    let number = |number: u64| count(i64::try_from(number).unwrap_or(i64::MAX));
    format!("{} of {} {}", number(progress.done), number(progress.of), progress.unit)
}

/// How many times as long as usual a task has run, from twice on; `None` for one that is not long, or while nothing is known to be usual. A task
/// that takes moments is no matter for anybody.
pub fn times_usual(since_at: DateTime<Utc>, usual_ms: Option<u64>) -> Option<u64> {
    let seconds = since(since_at);
    let times = seconds * 1e3 / usual_ms? as f64;
    (seconds > LONG_SECONDS && times >= 2.0).then_some(times as u64)
}

/// What a task waits for.
pub fn reason(reason: BlockedBy) -> &'static str {
    match reason {
        BlockedBy::NoWorker => "no worker is alive",
        BlockedBy::NoWorkerForBadge => "nobody serves its badge",
        BlockedBy::NoHandler => "nobody can run its type",
        BlockedBy::Paused => "paused",
        BlockedBy::Reservation => "behind a held region",
        BlockedBy::Dependency => "behind a task before it",
        BlockedBy::Backoff => "backs off after a failure",
        BlockedBy::LeaseLapsed => "lease over",
        BlockedBy::BatchParked => "parked in a batch",
        BlockedBy::WorkersBusy => "workers busy",
    }
}

/// The colour of a reason in pictures.
pub fn reason_class(reason: BlockedBy) -> &'static str {
    match reason {
        BlockedBy::WorkersBusy => "f-ready",
        BlockedBy::Reservation => "f-block",
        BlockedBy::Dependency => "f-dep",
        BlockedBy::Backoff => "f-back",
        BlockedBy::Paused | BlockedBy::BatchParked => "f-wait",
        BlockedBy::NoWorker | BlockedBy::NoWorkerForBadge | BlockedBy::NoHandler | BlockedBy::LeaseLapsed => "f-bad",
    }
}

pub fn outcome(outcome: Option<AttemptOutcome>) -> Markup {
    match outcome {
        None => state("run", "●", "running"),
        Some(AttemptOutcome::Completed) => state("done", "✓", "completed"),
        Some(AttemptOutcome::Skipped) => state("done", "✓", "skipped"),
        Some(AttemptOutcome::Failed) => state("bad", "✕", "failed"),
        Some(AttemptOutcome::LeaseLost) => state("bad", "✕", "worker lost"),
        Some(AttemptOutcome::Batched) => state("wait", "◌", "in a batch"),
    }
}

pub fn actor(state_of: ActorState) -> Markup {
    match state_of {
        ActorState::Running => html! { span .dim { "running" } },
        other => state("block", "◐", other.as_str()),
    }
}
