//! Pictures: bars, a sparkline, squares of lanes, a timeline, the regions of a file. Sizes are attributes, since the pages allow no styles.
use super::say;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use svc_client::wire::{AttemptOutcome, LaneUse, MinuteCount, RegionBox, RegionFile, StoryEntry, TypeOverview};

fn at(number: f64) -> String {
    format!("{number:.1}")
}

/// What the colours of a picture mean.
pub fn legend(entries: &[(&str, &str)]) -> Markup {
    html! {
        div .legend {
            @for (class, label) in entries {
                span { svg viewBox="0 0 10 10" aria-hidden="true" { rect width="10" height="10" rx="2" class=(class) {} } (label) }
            }
        }
    }
}

/// The share of each state of a type's tasks. Shares and not lengths, or one type of thousands would hide all others.
pub fn shares(row: &TypeOverview) -> Markup {
    let mut parts = vec![("f-run", "running", row.running)];
    parts.extend(
        row.blocked_by.iter().map(|(reason, tasks)| (say::reason_class(*reason), say::reason(*reason), *tasks)),
    );
    parts.retain(|(.., tasks)| *tasks > 0);
    let whole: i64 = parts.iter().map(|(.., tasks)| tasks).sum();
    let label: Vec<String> = parts.iter().map(|(_, label, tasks)| format!("{} {label}", say::count(*tasks))).collect();
    let mut x = 0.0;
    let room = 1000.0 - 8.0 * parts.len() as f64;
    let boxes: Vec<(f64, f64, &str, String)> = parts
        .iter()
        .zip(&label)
        .map(|((class, _, tasks), label)| {
            let width = 6.0 + room * *tasks as f64 / whole.max(1) as f64;
            let left = x;
            x += width + 2.0;
            (left, width, *class, label.clone())
        })
        .collect();
    html! {
        svg .bar viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label=(if label.is_empty() { "nothing waits".to_owned() } else { label.join(", ") }) {
            @if boxes.is_empty() { rect width="1000" height="14" class="f-hover" {} }
            @for (left, width, class, label) in boxes {
                rect x=(at(left)) width=(at(width)) height="14" class=(class) { title { (label) } }
            }
        }
    }
}

/// The minutes of the last hour: failed attempts on top of completed ones, and the tasks that arrived as a line. Where the line is above the bars,
/// the queue grows.
pub fn throughput(minutes: &[MinuteCount], now: DateTime<Utc>) -> Markup {
    const HEIGHT: f64 = 52.0;
    let most = minutes.iter().map(|minute| minute.arrived.max(minute.completed + minute.failed + minute.lost));
    let most = most.max().unwrap_or(0).max(1);
    let failed: i64 = minutes.iter().map(|minute| minute.failed + minute.lost).sum();
    let scale = |count: i64| HEIGHT * count as f64 / most as f64;
    let bars = minutes.iter().filter_map(|minute| {
        let ago = (now - minute.minute).num_minutes();
        let place = 59 - ago;
        (0..60).contains(&place).then(|| {
            let bad = minute.failed + minute.lost;
            // What failed is seen, however little it is.
            let red = if bad > 0 { scale(bad).max(2.5) } else { 0.0 };
            let green = if minute.completed > 0 { scale(minute.completed).max(1.5) } else { 0.0 };
            let arrived = minute.arrived;
            let line = if arrived > 0 { scale(arrived).max(1.5) } else { 0.0 };
            let label = format!(
                "{}: {} done, {} failed, {arrived} arrived",
                minute.minute.format("%H:%M"),
                minute.completed,
                bad
            );
            (place as f64 * 1000.0 / 60.0, green.min(HEIGHT + 2.0 - red), red, line, label)
        })
    });
    let arrived: i64 = minutes.iter().map(|minute| minute.arrived).sum();
    html! {
        svg .spark viewBox="0 0 1000 56" preserveAspectRatio="none" role="img"
            aria-label={ "Attempts that ended and tasks that arrived in each minute of the last hour: at most " (say::count(most)) "; in all " (say::count(failed)) " failed and " (say::count(arrived)) " arrived" } {
            rect x="0" y="55" width="1000" height="1" class="f-line" {}
            @for (x, green, red, line, label) in bars {
                rect x=(at(x)) y=(at(55.0 - green)) width="13.7" height=(at(green)) class="f-done" { title { (label) } }
                @if red > 0.0 { rect x=(at(x)) y=(at(55.0 - green - red)) width="13.7" height=(at(red)) class="f-bad" { title { (label) } } }
                @if line > 0.0 { rect x=(at(x - 1.5)) y=(at(55.0 - line)) width="16.7" height="1.6" class="f-arrive" { title { (label) } } }
            }
        }
    }
}

/// One square for each place of a lane; a lane of many is told in numbers alone.
pub fn lanes(lanes: &[LaneUse]) -> Markup {
    html! {
        span .lanes title=(lanes_text(lanes)) {
            @for lane in lanes {
                @let permits = lane.permits.min(24);
                @let width = permits * 7;
                svg viewBox={ "0 0 " (width) " 10" } width=(width) height="10" role="img" aria-label={ (lane.lane) ": " (lane.busy) " of " (lane.permits) " busy" } {
                    @for place in 0..permits {
                        rect x=(place * 7) width="5" height="10" rx="1" class=(if place < lane.busy { "f-run" } else { "f-wait" }) {}
                    }
                }
            }
        }
    }
}

pub fn lanes_text(lanes: &[LaneUse]) -> String {
    lanes.iter().map(|lane| format!("{} {}/{}", lane.lane, lane.busy, lane.permits)).collect::<Vec<_>>().join(" · ")
}

/// How a file was worked on: a line for each task type; bars are attempts, thin lines the time before them.
pub fn timeline(entries: &[StoryEntry], created: DateTime<Utc>) -> Markup {
    const LEFT: f64 = 160.0;
    const WIDTH: f64 = 820.0;
    const ROW: f64 = 24.0;
    let now = Utc::now();
    let last = entries.iter().map(|entry| entry.ended_at.unwrap_or(now)).max().unwrap_or(created);
    let first =
        entries.iter().map(|entry| entry.queued_at.unwrap_or(entry.started_at)).min().unwrap_or(created).min(created);
    let span = (last - first).as_seconds_f64().max(0.001);
    let place = |time: DateTime<Utc>| LEFT + WIDTH * ((time - first).as_seconds_f64() / span).clamp(0.0, 1.0);
    let mut types: Vec<&str> = Vec::new();
    for entry in entries {
        if !types.contains(&entry.task_type.as_str()) {
            types.push(&entry.task_type);
        }
    }
    let height = ROW * types.len() as f64;
    let ticks: Vec<f64> = (0..=5).map(|tick| f64::from(tick) / 5.0).collect();
    html! {
        svg .timeline viewBox={ "0 0 1000 " (at(height + 22.0)) } role="img"
            aria-label={ "Timeline of " (types.len()) " kinds of tasks over " (say::took(span)) "; the table below says the same in words" } {
            @for tick in ticks {
                @let x = LEFT + WIDTH * tick;
                rect x=(at(x)) y="0" width="1" height=(at(height)) class="f-line" {}
                text x=(at(x)) y=(at(height + 16.0)) class="td" text-anchor=(if tick < 0.99 { "start" } else { "end" }) { @if tick < 0.01 { "0 s" } @else { (say::took(span * tick)) } }
            }
            @for (row, name) in types.iter().enumerate() {
                @let y = ROW * row as f64;
                text x="0" y=(at(y + 16.0)) class="t" { (name) }
                @for entry in entries.iter().filter(|entry| entry.task_type == **name) {
                    @let (from, to) = (place(entry.started_at), place(entry.ended_at.unwrap_or(now)));
                    @let queued = entry.queued_at.map_or(from, place);
                    @let label = format!("{} ×{}, attempt {}: {}", entry.task_type, entry.attempts, entry.attempt, say::took((entry.ended_at.unwrap_or(now) - entry.started_at).as_seconds_f64()));
                    @if from - queued > 1.0 {
                        rect x=(at(queued)) y=(at(y + 10.0)) width=(at(from - queued)) height="4" class=(if entry.attempt > 1 { "f-back" } else { "f-wait" }) {
                            title { (if entry.attempt > 1 { "backed off and waited " } else { "waited " }) (say::took(entry.queued_at.map_or(0.0, |queued| (entry.started_at - queued).as_seconds_f64()))) }
                        }
                    }
                    rect x=(at(from)) y=(at(y + 4.0)) width=(at((to - from).max(3.0))) height="16" rx="3" class=(attempt_class(entry.outcome)) { title { (label) } }
                }
            }
        }
    }
}

fn attempt_class(outcome: Option<AttemptOutcome>) -> &'static str {
    match outcome {
        None => "f-run",
        Some(AttemptOutcome::Completed | AttemptOutcome::Skipped) => "f-done",
        Some(AttemptOutcome::Failed | AttemptOutcome::LeaseLost) => "f-bad",
        Some(AttemptOutcome::Batched) => "f-wait",
    }
}

/// Rectangles in the picture of one file.
const MOST_BOXES: usize = 300;
/// The height of one level of the tree.
const LEVEL: f64 = 26.0;
const LEVELS: i32 = 3;

/// A file as its tree, left to right in the order of its nodes and downwards by depth; a region is a box in it.
pub fn regions(file: &RegionFile) -> Markup {
    let width = |column: &svc_client::wire::RegionColumn| (column.to - column.from) * 1000.0;
    let mut left = MOST_BOXES.saturating_sub(file.columns.len());
    let mut cells: Vec<(f64, f64)> = Vec::new();
    for column in &file.columns {
        let children = usize::try_from(column.children).unwrap_or(usize::MAX);
        // Nodes of less than 3 pixels are drawn as one.
        let drawn = children.min((width(column) / 3.0) as usize).max(usize::from(children > 0)).min(left);
        left -= drawn;
        let each = width(column) / drawn.max(1) as f64;
        cells.extend((0..drawn).map(|cell| (column.from * 1000.0 + each * cell as f64, each)));
    }
    let held: Vec<String> = file.held.iter().map(|held| format!("{} holds {}", held.task_type, extent(held))).collect();
    html! {
        svg viewBox="0 0 1000 78" role="img" aria-label={ (if held.is_empty() { "nothing is held".to_owned() } else { held.iter().take(6).cloned().collect::<Vec<_>>().join("; ") }) "; " (say::many(file.tasks_waiting, "task")) " waiting" } {
            rect x="0.6" y="1" width="998.8" height="24" rx="2" class="f-hover" { title { (file.title) } }
            text x="7" y="17" class="td" { (short(&file.title, 120)) }
            @for column in &file.columns {
                rect x=(at(column.from * 1000.0 + 0.6)) y=(at(LEVEL + 1.0)) width=(at((width(column) - 1.2).max(0.4))) height="24" rx="2" class="f-hover" { title { (column.title) } }
                @let room = (width(column) / 7.5) as usize;
                @if room > 4 { text x=(at(column.from * 1000.0 + 6.0)) y=(at(LEVEL + 17.0)) class="td" { (short(&column.title, room)) } }
            }
            @for (x, width) in cells { rect x=(at(x + 0.5)) y=(at(2.0 * LEVEL + 1.0)) width=(at((width - 1.0).max(0.4))) height="24" rx="1" class="f-hover" {} }
            @for waiting in file.waiting.iter().rev() { (region(waiting, "region-waits")) }
            @for held in &file.held { (region(held, if held.lapsed { "region-lapsed" } else { "region-held" })) }
        }
    }
}

fn region(region: &RegionBox, class: &str) -> Markup {
    let top = f64::from(region.top.min(LEVELS - 1)) * LEVEL;
    let bottom = f64::from(region.bottom.unwrap_or(LEVELS).clamp(region.top.min(LEVELS - 1) + 1, LEVELS)) * LEVEL;
    let (from, to) = (region.from * 1000.0, region.to * 1000.0);
    html! {
        rect x=(at(from + 0.8)) y=(at(top + 1.0)) width=(at((to - from - 1.6).max(3.0))) height=(at(bottom - top - 2.0)) rx="3" class=(class) {
            title { "#" (region.task_id) " " (region.task_type) " · " (extent(region)) }
        }
    }
}

/// What a region covers, in words.
pub fn extent(region: &RegionBox) -> String {
    let name = region.title.as_deref().map_or_else(|| region.document_id.to_string(), |title| short(title, 40));
    match (region.top, region.bottom) {
        _ if region.some_leaves => format!("some leaves of {name}"),
        (0, None) => "the whole file".to_owned(),
        (top, Some(bottom)) if bottom == top + 1 => format!("{name} alone"),
        (_, Some(_)) => format!("{name} and its children"),
        (_, None) => format!("{name} and all under it"),
    }
}

/// The beginning of a text.
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
