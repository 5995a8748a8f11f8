//! Blocks as HTML. What a text says comes as HTML that is safe to show (`ViewBlock::html`); everything else is escaped here.
use super::super::draw;
use chrono::{DateTime, NaiveDateTime, NaiveTime, Utc};
use maud::{Markup, PreEscaped, html};
use serde_json::Value;
use svc_client::wire::{BlockKind, ViewBlock, ViewRow, ViewSource};

/// The longest value of a cell that a table shows.
const LONGEST: usize = 500;

/// Blocks in the order of reading. Where a new page or slide begins, its number is beside the text and leads to it.
pub fn shown(blocks: &[ViewBlock], source: Option<&ViewSource>) -> Markup {
    let mut place = None;
    let mut markup = Vec::with_capacity(blocks.len());
    let mut rest = blocks;
    while let Some(block) = rest.first() {
        // Names that follow each other are one list.
        let names = rest.iter().take_while(|block| block.kind == BlockKind::Document).count();
        if names > 0 {
            let (list, others) = rest.split_at(names);
            markup.push(html! { ul .names { @for block in list { (name(block)) } } });
            rest = others;
            continue;
        }
        let here = block.page.map(|page| ("page", page)).or_else(|| block.slide.map(|slide| ("slide", slide)));
        let begins = here.filter(|here| place.replace(*here) != Some(*here));
        markup.push(html! { @if let Some((word, number)) = begins { (mark(word, number, source)) } (one(block)) });
        rest = &rest[1..];
    }
    html! { @for block in &markup { (block) } }
}

/// The number of a page or slide; that of a PDF's page opens the file there.
fn mark(word: &str, number: u32, source: Option<&ViewSource>) -> Markup {
    let pdf = source.filter(|source| source.mime_type == "application/pdf" && word == "page");
    html! {
        p .place {
            @match pdf {
                Some(source) => a href={ "/view/" (source.document_id) "/bytes#page=" (number) } { (word) " " (number) },
                None => span { (word) " " (number) },
            }
        }
    }
}

fn one(block: &ViewBlock) -> Markup {
    let title = block.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or("without a title");
    let to = format!("/view/{}", block.document_id);
    match block.kind {
        BlockKind::Heading => heading(block.level.unwrap_or(2), block.document_id, title),
        BlockKind::Turn => html! {
            h3 .turn id={ "d" (block.document_id) } {
                a href=(to) { bdi { (block.speaker.as_deref().unwrap_or_default()) } }
                @if let Some(role) = &block.role { " " small { (role) } }
                @if let Some(time) = block.time { " " small { (time.format("%Y-%m-%d %H:%M:%S")) } }
            }
        },
        BlockKind::Table => table(block),
        BlockKind::Record => html! { @for row in &block.rows { dl .kv {
            @for (column, value) in block.columns.iter().zip(&row.values) { dt { bdi { (column) } } dd { bdi { (said(value)) } } }
        } } },
        BlockKind::Image => html! { p { img src={ (to) "/bytes" } alt=(title) loading="lazy"; } },
        BlockKind::Document => name(block),
        BlockKind::Markdown | BlockKind::Plain | BlockKind::Code => html! {
            div .said .plain[block.kind == BlockKind::Plain] id={ "d" (block.document_id) } {
                (PreEscaped(block.html.as_deref().unwrap_or_default()))
                @if block.cut { p .dim { "The text goes on; it is too long for a page." } }
            }
        },
    }
}

fn heading(level: u8, id: i64, title: &str) -> Markup {
    let id_of = format!("d{id}");
    let text = html! { a href={ "/view/" (id) } { bdi { (title) } } };
    match level {
        ..=2 => html! { h2 id=(id_of) { (text) } },
        3 => html! { h3 id=(id_of) { (text) } },
        4 => html! { h4 id=(id_of) { (text) } },
        5 => html! { h5 id=(id_of) { (text) } },
        _ => html! { h6 id=(id_of) { (text) } },
    }
}

/// A document by its name.
fn name(block: &ViewBlock) -> Markup {
    let title = block.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or("without a title");
    html! { li { a href={ "/view/" (block.document_id) } { bdi { (title) } } @if let Some(usetype) = &block.usetype { " " small .dim { (usetype) } } } }
}

fn table(block: &ViewBlock) -> Markup {
    html! {
        div .wide tabindex="0" role="group" aria-label="Table" { table {
            thead { tr { th { "Row" } @for column in &block.columns { th { bdi { (column) } } } } }
            tbody { @for row in &block.rows { tr id={ "d" (row.document_id) } {
                td .w1 .dim { a href={ "/view/" (row.document_id) } { (place(row)) } }
                @for value in &row.values { td .num[value.is_number()] { bdi { (draw::short(&said(value), LONGEST)) } } }
            } } }
        } }
    }
}

/// Where a row stands in its sheet; its id if it comes from no sheet.
fn place(row: &ViewRow) -> String {
    let cells = row.cells.as_deref().map(|cells| cells.rsplit_once('!').map_or(cells, |(_, cells)| cells));
    cells.map_or_else(|| row.document_id.to_string(), str::to_owned)
}

/// A value as a person writes it: a time without what nobody reads of it.
pub fn said(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => time(text).unwrap_or_else(|| text.clone()),
        other => other.to_string(),
    }
}

/// A time as a day, or as a day with hours and minutes.
fn time(text: &str) -> Option<String> {
    let (at, zone) = match text.parse::<DateTime<Utc>>() {
        Ok(at) => (at.naive_utc(), " UTC"),
        Err(_) => (text.parse::<NaiveDateTime>().ok()?, ""),
    };
    Some(match at.time() == NaiveTime::MIN && zone.is_empty() {
        true => at.format("%Y-%m-%d").to_string(),
        false => format!("{}{zone}", at.format("%Y-%m-%d %H:%M")),
    })
}
