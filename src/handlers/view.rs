//! Documents as people read them, made of what other operations read: so a view shows nothing that they do not.
use super::{
    bytes::UNKNOWN,
    documents::{etag_of, id_cursor, read},
    frontier::warnings,
    lists::{must_exist, reading},
    presentations::rules,
};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        documents::{Shape, SiblingCursor},
        scope::Readable,
        view::{FileRow, Sibling, Side},
    },
    usetype::Usetype,
    view::{Maker, Node, Rules, fields, finish, markup},
};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::{
    Call, Code, Failure, Meta, Nothing, Validated, ops,
    wire::{
        BackReference, BackReferencePage, BreadcrumbList, ChildrenMode, Crumb, DocumentPath, DocumentResponse,
        FactQuery, LinksRule, PageBox, PageQuery, PresentationResponse, ReferenceKind, ViewBlock, ViewChildren,
        ViewLink, ViewLinks, ViewResponse, ViewSource,
    },
};
use svc_ids::DocumentId;

/// The most links of a view, and how many are looked at for those of the types that the rule names.
const LINKS: usize = 100;
const LOOKED_AT: u32 = 1000;
/// How many rows stand before and behind the one that is viewed.
const NEIGHBOURS: usize = 2;
/// How often a view looks for what is beside a document, from segment to segment.
const LOOKS: usize = 32;
/// The most boxes that are shown of a text.
const MOST_BOXES: usize = 64;
/// Texts of fewer bytes become HTML at once, others on a thread of their own.
const INLINE: usize = 32 << 10;

/// How names of files in Markdown end.
const MARKDOWN: [&str; 4] = [".md", ".markdown", ".mdown", ".mkd"];

impl Handle<ops::view_document> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::view_document>,
    ) -> Result<Validated<ViewResponse>, Failure> {
        let value = view(self, caller, DocumentId(call.path.id)).await?;
        let etag = etag_of(&value)?;
        Ok(match call.meta.knows(&etag) {
            true => Validated::NotModified { etag },
            false => Validated::Modified { etag, value },
        })
    }
}

impl Handle<ops::view_page> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::view_page>) -> Result<Validated<String>, Failure> {
        let value = markup::page(&view(self, caller, DocumentId(call.path.id)).await?);
        let etag = etag_of(&value)?;
        Ok(match call.meta.knows(&etag) {
            true => Validated::NotModified { etag },
            false => Validated::Modified { etag, value },
        })
    }
}

async fn view(service: &Service, caller: &Caller, id: DocumentId) -> Result<ViewResponse, Failure> {
    let mut document = read(service, caller, id, false).await?;
    let scope = caller.readable();
    let mut conn = service.pool.acquire().await.or_fail()?;
    let rules = rules(&mut conn).await?;
    let rule = rule(&rules, &document)?;
    let file = file(&mut conn, &scope, &document).await?;
    let maker = Maker { rules: &rules, is_plain: is_plain(file.as_ref()) };
    let breadcrumbs = breadcrumbs(&mut conn, &scope, &document.path).await?;
    let links = links(&mut conn, &scope, id, &rule.links).await?;
    let (before, behind) = beside(&mut conn, &scope, &document).await?;
    let node = nodes(&mut conn, vec![document.clone()]).await?.pop();
    let node = node.ok_or_else(|| Failure::no_document(id.0))?;
    let mut blocks = maker.own(&node);
    if document.usetype == Usetype::Record.as_str() {
        let is_record = |row: &&DocumentResponse| row.usetype == document.usetype;
        let rows = before.iter().rev().chain([&document]).chain(&behind).filter(is_record).cloned().collect();
        blocks.extend(maker.table(&nodes(&mut conn, rows).await?));
    }
    let crumb = |row: Option<&DocumentResponse>| {
        row.map(|row| Crumb { id: Some(row.id), title: Some(row.title.clone()), usetype: Some(row.usetype.clone()) })
    };
    let (previous, next) = (crumb(before.first()), crumb(behind.first()));
    let source = file.map(|file| source(file, &node));
    let warnings = warnings(&mut conn, caller, id).await?;
    drop(conn);
    let children = match rule.children.mode {
        mode @ (ChildrenMode::Collapsed | ChildrenMode::Hidden) => {
            ViewChildren { document_id: id.0, mode, blocks: Vec::new(), next_cursor: None }
        }
        _ => children(service, caller, &document, &rule, &maker, None, rule.children.limit).await?,
    };
    let fields = fields(&document, &rule.show);
    if !document.content.is_empty() {
        document.content.clear();
        document.omitted.push("content".to_owned());
    }
    let blocks = finished(blocks).await?;
    Ok(ViewResponse {
        document,
        presentation: rule,
        breadcrumbs,
        source,
        warnings,
        fields,
        blocks,
        children,
        links,
        previous,
        next,
    })
}

/// The rule of a document. The service brings one for every usetype.
fn rule(rules: &Rules, document: &DocumentResponse) -> Result<PresentationResponse, Failure> {
    rules.of(&document.usetype).cloned().ok_or_else(|| Failure::new(Code::Internal, "no rule shows this usetype"))
}

/// The file that a document is, or comes from.
async fn file(
    conn: &mut PgConnection,
    scope: &Readable,
    document: &DocumentResponse,
) -> Result<Option<FileRow>, Failure> {
    let line: Vec<i64> = document.path.iter().copied().chain([document.id]).collect();
    store::view::file(conn, scope, &line).await.or_fail()
}

/// Whether the texts of a file are shown as they are written: those of a PDF and of a plain text that is not named as Markdown.
/// Other readers write Markdown.
fn is_plain(file: Option<&FileRow>) -> bool {
    file.is_some_and(|file| match (file.mime_type.as_deref(), Usetype::named(&file.usetype)) {
        (Some("application/pdf"), _) | (Some("text/plain"), Some(Usetype::Raw)) => true,
        (Some("text/plain"), Some(Usetype::File)) => {
            let name = file.title.to_lowercase();
            !MARKDOWN.iter().any(|extension| name.ends_with(extension))
        }
        _ => false,
    })
}

/// Documents with their places in their file.
async fn nodes(conn: &mut PgConnection, documents: Vec<DocumentResponse>) -> Result<Vec<Node>, Failure> {
    let ids: Vec<DocumentId> = documents.iter().map(|document| DocumentId(document.id)).collect();
    let mut anchors = store::view::anchors(conn, &ids).await.or_fail()?;
    let sections = documents.iter().filter(|document| document.usetype == Usetype::Section.as_str());
    let sections: Vec<DocumentId> = sections.map(|section| DocumentId(section.id)).collect();
    let segments = store::view::segments(conn, &sections).await.or_fail()?;
    let node = |document: DocumentResponse| {
        let anchor = anchors.remove(&document.id).unwrap_or_default();
        let is_segment = segments.contains(&DocumentId(document.id));
        Node { document, anchor, is_segment }
    };
    Ok(documents.into_iter().map(node).collect())
}

fn source(file: FileRow, node: &Node) -> ViewSource {
    let short = |name: &str| {
        let [first, last] = node.span(name)?;
        Some([u32::try_from(first).ok()?, u32::try_from(last).ok()?])
    };
    let pages = short("pages");
    let mime_type = file.mime_type.unwrap_or_else(|| UNKNOWN.to_owned());
    let page = pages.filter(|_| mime_type == "application/pdf").map(|[first, _]| format!("#page={first}"));
    ViewSource {
        document_id: file.document_id.0,
        title: file.title,
        mime_type,
        byte_size: file.byte_size,
        href: format!("/documents/{}/bytes{}", file.document_id, page.unwrap_or_default()),
        pages,
        slides: short("slides"),
        boxes: boxes(&node.anchor),
        cells: node.anchor["cells"].as_str().map(str::to_owned),
        characters: node.span("characters"),
    }
}

/// The boxes of an anchor, which may have come in with an archive and hold anything.
fn boxes(anchor: &Value) -> Vec<PageBox> {
    let listed = anchor["boxes"].as_array().into_iter().flatten();
    listed.take(MOST_BOXES).filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
}

/// The names of those of these documents that the caller may read.
async fn names(conn: &mut PgConnection, scope: &Readable, ids: &[DocumentId]) -> Result<HashMap<i64, Crumb>, Failure> {
    let rows = store::documents::beginnings(conn, scope, ids, 0).await.or_fail()?;
    let name = |row: store::documents::Beginning| {
        (row.id.0, Crumb { id: Some(row.id.0), title: Some(row.title), usetype: Some(row.usetype) })
    };
    Ok(rows.into_iter().map(name).collect())
}

async fn breadcrumbs(conn: &mut PgConnection, scope: &Readable, path: &[i64]) -> Result<Vec<Crumb>, Failure> {
    let ids: Vec<DocumentId> = path.iter().copied().map(DocumentId).collect();
    let mut named = names(conn, scope, &ids).await?;
    let gap = Crumb { id: None, title: None, usetype: None };
    Ok(path.iter().map(|id| named.remove(id).unwrap_or_else(|| gap.clone())).collect())
}

/// The documents before and behind a document, nearest first. All of a record's text is needed, of others the names.
async fn beside(
    conn: &mut PgConnection,
    scope: &Readable,
    document: &DocumentResponse,
) -> Result<(Vec<DocumentResponse>, Vec<DocumentResponse>), Failure> {
    let is_record = document.usetype == Usetype::Record.as_str();
    let count = if is_record { NEIGHBOURS } else { 1 };
    let line: Vec<DocumentId> = document.path.iter().chain([&document.id]).copied().map(DocumentId).collect();
    let line = store::view::line(conn, &line).await.or_fail()?;
    let before = along(conn, scope, &line, Side::Before, count).await?;
    let behind = along(conn, scope, &line, Side::Behind, count).await?;
    let shape = Shape { embed: false, content: is_record, structured_content: is_record };
    let ids = [before.as_slice(), behind.as_slice()].concat();
    let rows = store::documents::read_many(conn, scope, &ids, shape).await.or_fail()?;
    let mut rows: HashMap<DocumentId, DocumentResponse> = rows.into_iter().map(|row| (row.id, row.into())).collect();
    let mut take = |ids: Vec<DocumentId>| ids.iter().filter_map(|id| rows.remove(id)).collect();
    Ok((take(before), take(behind)))
}

/// The nearest documents on one side of the last document of a line, which has all those above it. Nobody wrote where a segment begins or ends, so what is
/// in the next one follows; a segment alone stands beside segments.
async fn along(
    conn: &mut PgConnection,
    scope: &Readable,
    line: &[Sibling],
    side: Side,
    count: usize,
) -> Result<Vec<DocumentId>, Failure> {
    let Some((own, above)) = line.split_last() else { return Ok(Vec::new()) };
    let segments = above.iter().rev().take_while(|holder| holder.is_segment && !own.is_segment).count();
    let Some(first) = above.len().checked_sub(segments + 1) else { return Ok(Vec::new()) };
    // The container and the segments down to the document, each with the place under it that was reached.
    let mut levels: Vec<(DocumentId, SiblingCursor)> =
        line[first..].windows(2).map(|pair| (pair[0].id, pair[1].place())).collect();
    let mut found = Vec::new();
    for _ in 0..LOOKS {
        let room = count - found.len();
        let Some((parent, place)) = levels.last_mut().filter(|_| room > 0) else { break };
        let next = store::view::beside(conn, scope, *parent, *place, side, room as i64).await.or_fail()?;
        let mut entered = None;
        for sibling in next {
            *place = sibling.place();
            if sibling.is_segment && !own.is_segment {
                entered = Some(sibling.id);
                break;
            }
            found.push(sibling.id);
        }
        match entered {
            Some(segment) => levels.push((segment, side.start())),
            None => {
                levels.pop();
            }
        }
    }
    Ok(found)
}

async fn links(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    rule: &LinksRule,
) -> Result<ViewLinks, Failure> {
    if rule.mode == svc_client::wire::LinksMode::Hidden {
        return Ok(ViewLinks { mode: rule.mode, links: Vec::new() });
    }
    let mut rows = store::links::ends(conn, scope, id, LOOKED_AT).await.or_fail()?;
    rows.retain(|row| rule.types.is_empty() || rule.types.contains(&row.link_type));
    rows.truncate(LINKS);
    let other = |source: i64, target: i64| if source == id.0 { target } else { source };
    let ids: Vec<DocumentId> = rows.iter().map(|row| DocumentId(other(row.source_id, row.target_id))).collect();
    let named = names(conn, scope, &ids).await?;
    let link = |row: store::links::LinkEnds| {
        let document = named.get(&other(row.source_id, row.target_id))?.clone();
        Some(ViewLink { id: row.id, link_type: row.link_type, outgoing: row.source_id == id.0, document })
    };
    Ok(ViewLinks { mode: rule.mode, links: rows.into_iter().filter_map(link).collect() })
}

/// A page of what is under a document: with its texts where the rule says so, else by name.
async fn children(
    service: &Service,
    caller: &Caller,
    document: &DocumentResponse,
    rule: &PresentationResponse,
    maker: &Maker<'_>,
    cursor: Option<String>,
    limit: u32,
) -> Result<ViewChildren, Failure> {
    let mode = rule.children.mode;
    let is_inline = mode == ChildrenMode::Inline;
    let query = PageQuery { cursor, limit: Some(limit), include_embed: false, include_content: is_inline };
    let page = match is_inline {
        true => reading(service, caller, DocumentId(document.id), &query, false).await?,
        false => {
            let (path, meta) = (DocumentPath { id: document.id }, Meta::default());
            let call = Call { meta, path, query, body: Nothing {} };
            Handle::<ops::list_children>::handle(service, caller, call).await?
        }
    };
    let mut conn = service.pool.acquire().await.or_fail()?;
    let nodes = nodes(&mut conn, page.documents).await?;
    let above = nodes.first().map_or(&[][..], |node| node.document.path.as_slice());
    let above = breadcrumbs(&mut conn, &caller.readable(), above).await?;
    let is_table = |above: &Crumb| above.usetype.as_deref() == Some(Usetype::Table.as_str());
    let table = above.into_iter().rfind(is_table).and_then(|table| table.id);
    drop(conn);
    let blocks = match is_inline {
        true => finished(maker.flow(document.path.len(), &nodes, table)).await?,
        false => maker.names(&nodes),
    };
    Ok(ViewChildren { document_id: document.id, mode, blocks, next_cursor: page.next_cursor })
}

/// Blocks with their HTML.
async fn finished(mut blocks: Vec<ViewBlock>) -> Result<Vec<ViewBlock>, Failure> {
    let bytes: usize = blocks.iter().filter_map(|block| block.text.as_ref()).map(String::len).sum();
    let work = move || {
        finish(&mut blocks);
        blocks
    };
    if bytes <= INLINE {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new(Code::Internal, error))
}

impl Handle<ops::expand_children> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::expand_children>) -> Result<ViewChildren, Failure> {
        let asked = call.body.0.unwrap_or_default();
        let document = read(self, caller, DocumentId(call.path.id), false).await?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rules = rules(&mut conn).await?;
        let rule = rule(&rules, &document)?;
        let file = file(&mut conn, &caller.readable(), &document).await?;
        drop(conn);
        let maker = Maker { rules: &rules, is_plain: is_plain(file.as_ref()) };
        let limit = asked.limit.unwrap_or(rule.children.limit);
        children(self, caller, &document, &rule, &maker, asked.cursor, limit).await
    }
}

impl Handle<ops::list_breadcrumbs> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_breadcrumbs>) -> Result<BreadcrumbList, Failure> {
        let (id, scope) = (DocumentId(call.path.id), caller.readable());
        let mut conn = self.pool.acquire().await.or_fail()?;
        let path = store::documents::path(&mut conn, &scope, id).await.or_fail()?;
        let path = path.ok_or_else(|| Failure::no_document(id.0))?;
        Ok(BreadcrumbList { breadcrumbs: breadcrumbs(&mut conn, &scope, &path).await? })
    }
}

/// The kinds of references, in the order in which they are listed.
const KINDS: [ReferenceKind; 3] = [ReferenceKind::Link, ReferenceKind::Fact, ReferenceKind::Text];

/// A reference before its document has a name.
struct Found {
    kind: ReferenceKind,
    document_id: i64,
    relation: Option<String>,
    id: Option<i64>,
}

impl Handle<ops::list_back_references> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::list_back_references>,
    ) -> Result<BackReferencePage, Failure> {
        let (id, limit) = (DocumentId(call.path.id), call.query.rows() as usize);
        let (mut kind, mut after) = place(call.query.cursor.as_deref())?;
        let scope = caller.readable();
        let mut conn = self.pool.acquire().await.or_fail()?;
        must_exist(&mut conn, caller, id).await?;
        drop(conn);
        let mut found: Vec<Found> = Vec::new();
        let next_cursor = loop {
            let Some(of) = KINDS.get(kind) else { break None };
            let room = limit - found.len();
            let (more, next) = self.references(caller, &scope, id, *of, after, room).await?;
            let is_empty = more.is_empty();
            found.extend(more);
            match next {
                Some(next) if found.len() >= limit || is_empty => break Some(format!("{kind}.{next}")),
                Some(next) => after = next,
                None => (kind, after) = (kind + 1, 0),
            }
            if found.len() >= limit {
                break Some(format!("{kind}.{after}")).filter(|_| kind < KINDS.len());
            }
        };
        let ids: Vec<DocumentId> = found.iter().map(|found| DocumentId(found.document_id)).collect();
        let mut conn = self.pool.acquire().await.or_fail()?;
        let named = names(&mut conn, &scope, &ids).await?;
        let reference = |found: Found| {
            let document = named.get(&found.document_id)?.clone();
            Some(BackReference { kind: found.kind, document, relation: found.relation, id: found.id })
        };
        Ok(BackReferencePage { references: found.into_iter().filter_map(reference).collect(), next_cursor })
    }
}

/// The kind with which a page begins, and the last id of it on the page before.
fn place(cursor: Option<&str>) -> Result<(usize, i64), Failure> {
    let Some(cursor) = cursor else { return Ok((0, 0)) };
    let parts = cursor.split_once('.').and_then(|(kind, after)| Some((kind.parse().ok()?, after.parse().ok()?)));
    parts
        .filter(|(kind, _)| *kind < KINDS.len())
        .ok_or_else(|| Failure::field("cursor", "takes a next_cursor from this list"))
}

impl Service {
    /// References of one kind after a place, and where the next page of them begins if there may be more.
    async fn references(
        &self,
        caller: &Caller,
        scope: &Readable,
        id: DocumentId,
        kind: ReferenceKind,
        after: i64,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<i64>), Failure> {
        match kind {
            ReferenceKind::Link => {
                let mut conn = self.pool.acquire().await.or_fail()?;
                let count = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
                let mut rows = store::view::links_to(&mut conn, scope, id, after, count).await.or_fail()?;
                let is_more = rows.len() > limit;
                rows.truncate(limit);
                let next = rows.last().filter(|_| is_more).map(|(id, ..)| *id);
                let found = rows.into_iter().map(|(link, link_type, source)| Found {
                    kind,
                    document_id: source.0,
                    relation: Some(link_type),
                    id: Some(link),
                });
                Ok((found.collect(), next))
            }
            ReferenceKind::Fact => {
                let cursor = (after > 0).then(|| after.to_string());
                let limit = u32::try_from(limit).ok();
                let query = FactQuery { object_id: Some(id.0), cursor, limit, ..FactQuery::default() };
                let facts = Call { meta: Meta::default(), path: Nothing {}, query, body: Nothing {} };
                let page = Handle::<ops::list_facts>::handle(self, caller, facts).await?;
                let next = page.next_cursor.as_deref().map(|cursor| id_cursor(Some(cursor))).transpose()?;
                let found = page.facts.into_iter().map(|fact| Found {
                    kind,
                    document_id: fact.subject_id,
                    relation: Some(fact.predicate),
                    id: Some(fact.id),
                });
                Ok((found.collect(), next))
            }
            ReferenceKind::Text => {
                let mut conn = self.pool.acquire().await.or_fail()?;
                let (ids, next) = store::view::texts_naming(&mut conn, scope, id, after, limit).await.or_fail()?;
                let found =
                    ids.into_iter().map(|source| Found { kind, document_id: source.0, relation: None, id: None });
                Ok((found.collect(), next))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_anchor_shows_its_first_boxes_and_nothing_that_is_none() {
        let one = json!({"page": 2, "left": 30.0, "top": 60.5, "width": 120.0, "height": 30.0});
        let shown = PageBox { page: 2, left: 30.0, top: 60.5, width: 120.0, height: 30.0 };
        let of = |listed: Value| boxes(&json!({ "boxes": listed }));
        assert_eq!(of(json!([one, {"page": "2"}, 7, one])), [shown, shown]);
        assert_eq!(of(vec![one; 1000].into()).len(), MOST_BOXES);
        for none in [Value::Null, json!("boxes"), json!([])] {
            assert!(of(none.clone()).is_empty(), "{none}");
        }
    }
}
