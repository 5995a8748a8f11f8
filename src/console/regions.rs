//! Who holds what: each file as a picture of its tree, and regions as boxes in it.
use super::{
    Calls, Parameters, draw,
    layout::{Page, card, form, more, part, query},
    say,
};
use crate::store::regions::BOXES;
use maud::{Markup, html};
use svc_client::{
    Failure,
    wire::{RegionBox, RegionFile, RegionMapQuery},
};

/// How many regions of a file are told in words.
const TOLD: usize = 6;

pub async fn read(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    let here = match query(&[("file", text("file")), ("cursor", text("cursor"))]) {
        all if all.is_empty() => "/regions".to_owned(),
        some => format!("/regions?{some}"),
    };
    let root_id = match given.get("file") {
        Some(file) => Some(file.parse().map_err(|_| Failure::field("file", "takes the id of a file"))?),
        None => None,
    };
    let map = calls.draw_regions(RegionMapQuery { root_id, cursor: given.get("cursor").cloned(), limit: None }).await?;
    let say = match map.files_total {
        0 => "No region is held.".to_owned(),
        files => format!(
            "{} held in {}; {} for one.",
            are(map.held, "region"),
            say::many(files, "file"),
            if map.tasks_waiting == 1 {
                "1 task waits".to_owned()
            } else {
                format!("{} tasks wait", say::count(map.tasks_waiting))
            }
        ),
    };
    let legend = draw::legend(&[("f-run", "held"), ("f-block", "waits"), ("f-bad", "lease over")]);
    let remark = "left to right the nodes in their order, downwards their depth; a box is what one task reserves, and no two held boxes meet";
    let body = card(
        "Held, by file",
        remark,
        legend,
        html! {
            @if map.files.is_empty() { p .body .dim { "No task holds or awaits a region" @if root_id.is_some() { " in this file" } "." } }
            @for file in &map.files { (region_file(file, &here)) }
            (more(map.next_cursor.map(|cursor| format!("/regions?cursor={}", part(&cursor)))))
        },
    );
    Ok(Page { title: "Regions".to_owned(), say: html! { (say) }, body, is_live: true, as_of: None })
}

fn are(number: i64, thing: &str) -> String {
    format!("{} {}", say::many(number, thing), if number == 1 { "is" } else { "are" })
}

fn region_file(file: &RegionFile, here: &str) -> Markup {
    // Only so many of them are read.
    let is_more = file.held.len() as i64 >= BOXES;
    let held = match is_more {
        true => format!("{} regions", say::at_least(BOXES, true)),
        false => say::many(file.held.len() as i64, "region"),
    };
    let hidden = file.held.len().saturating_sub(TOLD) as i64;
    let waiting = file.tasks_waiting - file.waiting.len().min(TOLD) as i64;
    html! {
        div .region id={ "r-" (file.root_id) } {
            div {
                div .caption {
                    a href={ "/documents/" (file.root_id) } { b { (file.title) } }
                    span .dim { " " (held) " held" @if file.tasks_waiting > 0 { " · " (say::count(file.tasks_waiting)) " wait" } @if file.more_columns { " · the first 400 of its children" } }
                }
                (draw::regions(file))
            }
            ul {
                @for held in file.held.iter().take(TOLD) { (told(held, here)) }
                @if hidden > 0 { li .dim { "and " (say::at_least(hidden, is_more)) " more held" } }
                @for waits in file.waiting.iter().take(TOLD) { (told(waits, here)) }
                @if waiting > 0 { li .dim { a .lnk href={ "/tasks?blocked_by=reservation&file=" (file.root_id) } { (say::count(waiting)) " more wait" } } }
            }
        }
    }
}

fn told(region: &RegionBox, here: &str) -> Markup {
    let glyph = match (&region.worker, region.lapsed) {
        (Some(_), true) => say::state("bad", "✕", "lease over"),
        (Some(_), false) => say::state("run", "●", "held"),
        (None, _) => say::state("block", "◐", "waits"),
    };
    let ask = format!("Cancel task {}? It fails as cancelled, and with it whatever waits for it.", region.task_id);
    html! {
        li id={ "g-" (region.task_id) (if region.worker.is_some() { "" } else { "-w" }) } {
            (glyph) " " a .mono href={ "/tasks/" (region.task_id) } { "#" (region.task_id) } " " (region.task_type) " · " (draw::extent(region))
            @if let Some(worker) = &region.worker { " · " (worker) }
            @if let Some(behind) = region.behind { " · behind " a .mono href={ "/tasks/" (behind) } { "#" (behind) } }
            @if let Some(since) = region.since { " · " (say::time(say::since(since))) }
            @if region.tasks_waiting > 0 {
                " · " (say::count(region.tasks_waiting)) (if region.tasks_waiting == 1 { " waits for it " } else { " wait for it " })
                (form(&format!("/tasks/{}/cancel", region.task_id), &[], "Cancel", "danger", Some(&ask), here))
            }
        }
    }
}
