//! Subtrees on their way out of this store, and into it from another one.
mod bytes;
mod facts;
mod importing;
mod rows;
mod tokens;

use super::{documents::id_cursor, lists::must_exist};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        archive::{self, Exported, Start},
        evidence::Evidence,
        indexes, members,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use pgvector::HalfVector;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::{
    Call, Failure, ops,
    wire::{
        ArchiveGrantPage, ArchiveLinkPage, ArchivePage, ArchivedContainer, ArchivedDocument, ArchivedEntity,
        ArchivedFile, ArchivedGrant, ArchivedLink, ArchivedVector, GrantRight,
    },
};
use svc_ids::{DocumentId, PrincipalId};

/// An estimate of the bytes that a document takes in an answer besides its texts and its evidence.
const ROW_BYTES: u64 = 4 * 1024;
/// Evidence that names other documents, facts or tasks of its store by their ids, or that stands in columns of its own.
const NOT_CARRIED: [Evidence; 7] = [
    Evidence::Facts,
    Evidence::FactsDryRun,
    Evidence::FailedParts,
    Evidence::Reprocess,
    Evidence::Rule,
    Evidence::Anchor,
    Evidence::Attempts,
];

/// The evidence that goes along with a document.
fn carried() -> impl Iterator<Item = Evidence> {
    Evidence::ALL.iter().copied().filter(|evidence| !NOT_CARRIED.contains(evidence))
}

impl Handle<ops::export_documents> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::export_documents>) -> Result<ArchivePage, Failure> {
        let (query, scope) = (call.query, caller.readable());
        let cursor = query.cursor.as_deref().map(line_cursor).transpose()?;
        let root = query.parent_id.map(DocumentId);
        // The whole page is of one moment.
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        let (begin, end) = match root {
            None => (vec![0], None),
            Some(id) => {
                let path = store::documents::path(&mut tx, &scope, id).await.or_fail()?;
                let mut line = path.ok_or_else(|| Failure::no_document(id.0))?;
                let end = [&line[..], &[id.0.saturating_add(1)]].concat();
                line.push(id.0);
                (line, Some(end))
            }
        };
        let from = Start { is_behind: cursor.is_some(), line: cursor.as_deref().unwrap_or(&begin) };
        // A cursor from before the document moved may stand behind it: an empty page would say that everything was read.
        if from.line < &begin[..] || end.as_deref().is_some_and(|end| from.line >= end) {
            return Err(not_a_cursor());
        }
        let mut lines = archive::lines(&mut tx, &scope, from, end.as_deref(), query.rows() + 1).await.or_fail()?;
        let (found, mut room) = (lines.len(), self.settings.page_bytes);
        lines.truncate(query.rows() as usize);
        let fitting = lines.iter().take_while(|line| {
            let (bytes, left) = (ROW_BYTES + line.bytes.unsigned_abs(), room);
            room = room.saturating_sub(bytes);
            bytes <= left
        });
        lines.truncate(fitting.count().max(1));
        let next_cursor = lines
            .last()
            .filter(|_| lines.len() < found)
            .map(|last| last.line.iter().map(i64::to_string).collect::<Vec<_>>().join("."));
        let ids: Vec<DocumentId> = lines.iter().map(|line| line.id).collect();
        let names: Vec<&str> = carried().map(Evidence::as_str).collect();
        let index = indexes::by_name(&mut tx, indexes::DEFAULT).await.or_fail()?.map(|index| index.id);
        let rows = archive::read(&mut tx, &scope, &ids, &names, index, root).await.or_fail()?;
        let mut rows: HashMap<DocumentId, Exported> = rows.into_iter().map(|row| (row.id, row)).collect();
        let rows = ids.iter().filter_map(|id| rows.remove(id));
        Ok(ArchivePage { documents: rows.map(|row| archived(row, root)).collect(), next_cursor })
    }
}

/// A place in the order of the tree: the ids on the way down to a document.
fn line_cursor(text: &str) -> Result<Vec<i64>, Failure> {
    text.split('.').map(|id| id.parse().map_err(|_| not_a_cursor())).collect()
}

fn not_a_cursor() -> Failure {
    Failure::field("cursor", "takes a next_cursor from this list")
}

fn archived(row: Exported, root: Option<DocumentId>) -> ArchivedDocument {
    let is_top = root == Some(row.id);
    let has_parent = row.parent_id.is_some() && !is_top;
    let stored = |model: Option<String>, weight: Option<f32>, embed: Option<HalfVector>| {
        let halves: Vec<u8> = embed?.as_slice().iter().flat_map(|half| half.to_le_bytes()).collect();
        Some(ArchivedVector { model: model?, weight: weight?, halves: STANDARD.encode(halves) })
    };
    let vector = stored(row.embed_model, row.weight, row.embed);
    let of_name = stored(row.name_model, Some(1.0), row.name_embed);
    let entity = row.name_key.zip(row.type_key).map(|(name, kind)| ArchivedEntity { name, kind, vector: of_name });
    let file = match (row.byte_size, row.blob_hash, row.options) {
        (Some(byte_size), Some(content_hash), Some(options)) => Some(ArchivedFile {
            byte_size,
            content_hash,
            mime_type: row.mime_type,
            declared_mime: row.declared_mime,
            detected_by: row.detected_by.map(|by| by.0),
            format: row.format,
            options,
        }),
        _ => None,
    };
    let container = match (row.root_id, row.tokens, row.failed_children) {
        (Some(root), Some(tokens), Some(failed_children)) => {
            Some(ArchivedContainer { root: root.0, tokens, failed_children })
        }
        _ => None,
    };
    // A file within a file that stays behind is one by itself, as if it had been uploaded.
    let is_alone = row.rule.as_deref() == Some(members::RULE) && container.is_some_and(|of| of.root == row.id.0);
    let (rule, anchor) = if is_alone { (Some("upload".to_owned()), None) } else { (row.rule, row.anchor) };
    // What is closed by something that stays behind closes itself where it goes.
    let private = row.guard == row.id || (row.guard.0 > 0 && (is_top || (has_parent && !row.is_parent_readable)));
    ArchivedDocument {
        id: row.id.0,
        parent: row.parent_id.map(|id| id.0).filter(|_| has_parent && row.is_parent_readable),
        detached: has_parent && !row.is_parent_readable,
        title: row.title,
        content: row.content,
        structured_content: row.structured_content.0,
        usetype: row.usetype,
        position: row.position,
        event_time: row.event_time,
        created_at: row.created_at,
        updated_at: row.updated_at,
        content_hash: row.content_hash,
        settled: row.settled.0,
        private,
        guard: (row.guard.0 > 0 && row.is_guard_inside && !private).then_some(row.guard.0),
        keys: row.keys.map(|keys| keys.0).unwrap_or_default(),
        entity,
        rule,
        anchor,
        evidence: row.evidence.map(|evidence| evidence.0).unwrap_or_default(),
        iri: row.iri,
        blank: row.blank.unwrap_or_default(),
        vector,
        indexed: row.is_indexed,
        file,
        container,
    }
}

impl Handle<ops::export_links> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::export_links>) -> Result<ArchiveLinkPage, Failure> {
        let (query, after) = (&call.query, id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let under = root(&mut conn, caller, query.parent_id).await?;
        let room = self.settings.page_bytes;
        let scope = caller.readable();
        let (rows, next) = archive::links(&mut conn, &scope, under, after, query.rows(), room).await.or_fail()?;
        let links = rows.into_iter().map(|row| ArchivedLink {
            source: row.source_id.0,
            target: row.target_id.0,
            link_type: row.link_type,
            score: row.score,
            metadata: row.metadata.0,
            outside: row.is_outside,
        });
        Ok(ArchiveLinkPage { links: links.collect(), next_cursor: next.map(|id| id.to_string()) })
    }
}

impl Handle<ops::export_grants> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::export_grants>) -> Result<ArchiveGrantPage, Failure> {
        let query = &call.query;
        let after = match query.cursor.as_deref().map(line_cursor).transpose()?.as_deref() {
            None => (DocumentId(0), PrincipalId(0)),
            Some(&[document, principal]) => (DocumentId(document), PrincipalId(principal)),
            Some(_) => return Err(not_a_cursor()),
        };
        let mut conn = self.pool.acquire().await.or_fail()?;
        let under = root(&mut conn, caller, query.parent_id).await?;
        let mut rows = archive::grants(&mut conn, under, after, query.rows() + 1).await.or_fail()?;
        let has_more = rows.len() > query.rows() as usize;
        rows.truncate(query.rows() as usize);
        let next = rows.last().filter(|_| has_more).map(|row| format!("{}.{}", row.document_id, row.principal_id));
        let grants = rows.into_iter().map(|row| ArchivedGrant {
            document: row.document_id.0,
            principal: row.principal,
            right: if row.can_write { GrantRight::Write } else { GrantRight::Read },
        });
        Ok(ArchiveGrantPage { grants: grants.collect(), next_cursor: next })
    }
}

/// The document that an export is of, which its caller must be allowed to read.
async fn root(conn: &mut PgConnection, caller: &Caller, id: Option<i64>) -> Result<Option<DocumentId>, Failure> {
    let Some(id) = id.map(DocumentId) else { return Ok(None) };
    must_exist(conn, caller, id).await?;
    Ok(Some(id))
}
