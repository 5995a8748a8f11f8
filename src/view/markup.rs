//! Views as HTML, for the pages of the console and for `GET /view/{id}`. What a text says comes as HTML that is safe to show
//! (`ViewBlock::html`); everything else is escaped here.
use chrono::{DateTime, NaiveDateTime, NaiveTime, Timelike, Utc};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use svc_client::wire::{
    BlockKind, Crumb, LinksMode, ShownField, ViewBlock, ViewField, ViewLink, ViewResponse, ViewRow, ViewSource,
};

/// The longest value of a cell that a table shows.
const LONGEST: usize = 500;

/// The address of a file's bytes, which is another for a browser that is signed in than for a program.
pub type Bytes = fn(i64) -> String;

/// Blocks in the order of reading. Where a new page or slide begins, its number is beside the text and leads to it.
pub fn shown(blocks: &[ViewBlock], source: Option<&ViewSource>, bytes: Bytes) -> Markup {
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
        markup.push(
            html! { @if let Some((word, number)) = begins { (mark(word, number, source, bytes)) } (one(block, bytes)) },
        );
        rest = &rest[1..];
    }
    html! { @for block in &markup { (block) } }
}

/// The number of a page or slide; that of a PDF's page opens the file there.
fn mark(word: &str, number: u32, source: Option<&ViewSource>, bytes: Bytes) -> Markup {
    let pdf = source.filter(|source| source.mime_type == "application/pdf" && word == "page");
    html! {
        p .place {
            @match pdf {
                Some(source) => a href={ (bytes(source.document_id)) "#page=" (number) } { (word) " " (number) },
                None => span { (word) " " (number) },
            }
        }
    }
}

fn one(block: &ViewBlock, bytes: Bytes) -> Markup {
    let title = block.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or("without a title");
    let to = format!("/view/{}", block.document_id);
    match block.kind {
        BlockKind::Heading => heading(block.level.unwrap_or(2), block.document_id, title),
        BlockKind::Turn => html! {
            h3 .turn id={ "d" (block.document_id) } {
                a href=(to) { bdi { (block.speaker.as_deref().unwrap_or_default()) } }
                @if let Some(role) = &block.role { " " small { (role) } }
                @if let Some(time) = block.time { " " small { (time.format("%Y-%m-%d %H:%M:%S UTC")) } }
            }
        },
        BlockKind::Table => table(block),
        BlockKind::Record => html! { @for row in &block.rows { dl .kv {
            @for (column, value) in block.columns.iter().zip(&row.values) { dt { bdi { (column) } } dd { bdi { (said(value)) } } }
        } } },
        BlockKind::Image => html! { p { img src=(bytes(block.document_id)) alt=(title) loading="lazy"; } },
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
                @for value in &row.values { td .num[value.is_number()] { bdi { (short(&said(value), LONGEST)) } } }
            } } }
        } }
        @if block.cut { p .dim { "The rows have more columns; the page of a row has all of its fields." } }
    }
}

/// Where a row stands in its sheet; its id if it comes from no sheet.
fn place(row: &ViewRow) -> String {
    let cells = row.cells.as_deref().map(|cells| cells.rsplit_once('!').map_or(cells, |(_, cells)| cells));
    cells.map_or_else(|| row.document_id.to_string(), str::to_owned)
}

/// What a field of a document says. Of the service's own times nobody reads the seconds.
pub fn field(field: &ViewField) -> String {
    let is_own = matches!(field.name.parse(), Ok(ShownField::CreatedAt | ShownField::UpdatedAt));
    match field.value.as_str().filter(|_| is_own).and_then(|text| text.parse::<DateTime<Utc>>().ok()) {
        Some(at) => at.format("%Y-%m-%d %H:%M UTC").to_string(),
        None => said(&field.value),
    }
}

/// A value as a person writes it.
fn said(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => time(text).unwrap_or_else(|| text.clone()),
        other => other.to_string(),
    }
}

/// A time as a day, or as a day with hours and minutes, and with seconds if it has any.
fn time(text: &str) -> Option<String> {
    let (at, zone) = match text.parse::<DateTime<Utc>>() {
        Ok(at) => (at.naive_utc(), " UTC"),
        Err(_) => (text.parse::<NaiveDateTime>().ok()?, ""),
    };
    let format = match at.time() {
        time if time == NaiveTime::MIN && zone.is_empty() => "%Y-%m-%d",
        time if time.second() == 0 && time.nanosecond() == 0 => "%Y-%m-%d %H:%M",
        _ => "%Y-%m-%d %H:%M:%S%.f",
    };
    Some(format!("{}{zone}", at.format(format)))
}

/// A text of at most so many characters.
fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What a document is called.
pub fn title(crumb: &Crumb) -> &str {
    crumb.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or("without a title")
}

/// The way to a document, root first. What its reader may not read is a gap without a name.
pub fn crumbs(crumbs: &[Crumb]) -> Markup {
    html! {
        @for crumb in crumbs {
            @match crumb.id {
                Some(id) => a href={ "/view/" (id) } { bdi { (title(crumb)) } },
                None => span title="a document that you may not read" { "…" },
            }
            span aria-hidden="true" { " › " }
        }
    }
}

/// The place in a file, with the way to its bytes.
pub fn anchor(source: &ViewSource, bytes: Bytes) -> Markup {
    let (_, fragment) = source.href.split_once('#').unwrap_or_default();
    let hash = if fragment.is_empty() { "" } else { "#" };
    let range = |word: &str, [first, last]: [u32; 2]| match first == last {
        true => format!("{word} {first}"),
        false => format!("{word}s {first}–{last}"),
    };
    let place = source.pages.map(|pages| range("page", pages));
    let place = place.or_else(|| source.slides.map(|slides| range("slide", slides))).or_else(|| source.cells.clone());
    html! { a .anchor href={ (bytes(source.document_id)) (hash) (fragment) } { (place.as_deref().unwrap_or("the file")) } }
}

/// The links of a document.
pub fn links(links: &[ViewLink]) -> Markup {
    html! { @if !links.is_empty() { section .links { h2 { "Links" } ul { @for link in links { li {
        span .dim { (link.link_type) @if !link.outgoing { " of" } ": " }
        @match link.document.id { Some(id) => a href={ "/view/" (id) } { bdi { (title(&link.document)) } }, None => span { "…" } }
    } } } } } }
}

/// The documents before and behind a document.
pub fn neighbours(shown: &ViewResponse) -> Markup {
    html! { @if shown.previous.is_some() || shown.next.is_some() { nav .around aria-label="Neighbours" {
        @if let Some(crumb) = &shown.previous && let Some(id) = crumb.id { a rel="prev" href={ "/view/" (id) } { "← " bdi { (title(crumb)) } } }
        @if let Some(crumb) = &shown.next && let Some(id) = crumb.id { a .next rel="next" href={ "/view/" (id) } { bdi { (title(crumb)) } " →" } }
    } } }
}

/// A whole page of a view, with no style or script.
pub fn page(shown: &ViewResponse) -> String {
    let bytes: Bytes = |id| format!("/documents/{id}/bytes");
    let (document, source) = (&shown.document, shown.source.as_ref());
    let title =
        if document.title.trim().is_empty() { format!("Document {}", document.id) } else { document.title.clone() };
    let links = |mode| html! { @if shown.links.mode == mode { (links(&shown.links.links)) } };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
            }
            body { main {
                nav aria-label="Breadcrumbs" { (crumbs(&shown.breadcrumbs)) }
                h1 { bdi { (title) } }
                @for warning in &shown.warnings { p role="status" { bdi { (warning) } } }
                dl {
                    @if let Some(source) = source { dt { "From" } dd { bdi { (source.title) } ", " (anchor(source, bytes)) } }
                    @for field in &shown.fields { dt { (field.name.replace('_', " ")) } dd { bdi { (self::field(field)) } } }
                }
                article {
                    (self::shown(&shown.blocks, source, bytes))
                    (links(LinksMode::Inline))
                    (self::shown(&shown.children.blocks, source, bytes))
                    @if shown.children.next_cursor.is_some() { p { "More is under it than this page shows." } }
                    (links(LinksMode::Footnotes))
                }
                (neighbours(shown))
            } }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_time_is_said_with_all_that_tells_it_from_others() {
        for (value, expected) in [
            (json!("2026-03-01T10:00:05"), "2026-03-01 10:00:05"),
            (json!("2026-03-01T10:00:00"), "2026-03-01 10:00"),
            (json!("2026-03-01T00:00:00"), "2026-03-01"),
            (json!("2026-03-01T00:00:01"), "2026-03-01 00:00:01"),
            (json!("2026-03-01T10:00:05.25Z"), "2026-03-01 10:00:05.250 UTC"),
            (json!("2026-03-01T10:00:00.5"), "2026-03-01 10:00:00.500"),
            (json!("2026-03-01T00:00:00Z"), "2026-03-01 00:00 UTC"),
            (json!("on 2026-03-01"), "on 2026-03-01"),
            (json!(5), "5"),
            (json!(null), ""),
        ] {
            assert_eq!(said(&value), expected, "{value}");
        }
        let of = |name: &str| field(&ViewField { name: name.to_owned(), value: json!("2026-03-01T10:00:05.25Z") });
        assert_eq!(
            ["created_at", "updated_at", "event_time"].map(of),
            ["2026-03-01 10:00 UTC", "2026-03-01 10:00 UTC", "2026-03-01 10:00:05.250 UTC"]
        );
    }
}
