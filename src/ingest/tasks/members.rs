//! extract:members: the files within an archive, or the attachments of a message, each as a file node that is ingested from its
//! probe on like an upload.
//!
//! All members of a container are made in one transaction, so a task that dies makes none. They belong to the root of their
//! container, which settles when they have, and they go with it: a reprocess makes them anew.
use super::{Apply, OrTaskFailure, another_answer, apply::Transaction, probe::input, types::PROBE};
use crate::{
    blobs::{Ahead, BlobError},
    ingest::{
        Tools,
        queueing::{Queueing, Work},
        upload::title,
    },
    reader::limits,
    spool::{Bundle, Part},
    store::{
        self,
        blobs::{BlobPlace, BlobRow},
        evidence::Evidence,
        ingest_nodes::{Frontier, IngestNode},
        members::Taken,
        nodes::{NewNode, ROWS},
        places::Place,
        word::Word,
    },
    usetype::Usetype,
    words,
};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufReader},
};
use svc_actors::{Grant, Outcome, TaskFailure};
use svc_client::constraint::as_media_type;
use svc_formats::{
    Detection, Format, FormatError, LeftOut, Limits, MemberHead, MemberPart,
    isolated::{Answer, Request, Step},
};
use svc_ids::DocumentId;

/// How many members that were left out are named, and how many that are the same as others.
const NAMED: usize = 100;
/// How many members are on their way to the object store at a time.
const PUTS_AT_ONCE: usize = 8;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let (format, options, taken) = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let blob = store::blobs::of_document(&mut conn, grant.document_id).await.classified()?;
        let blob = blob.ok_or(FormatError::UnknownFormat).classified()?;
        let format = blob.format.as_deref().and_then(|format| format.parse::<Format>().ok());
        let taken = store::members::taken(&mut conn, grant.root_id).await.classified()?;
        (format.ok_or(FormatError::UnknownFormat).classified()?, blob.options, taken)
    };
    let is_too_deep = depth(grant) >= tools.settings.parser_member_depth;
    let mut limits = within(limits(&tools.settings), taken);
    if is_too_deep {
        limits.members = 0;
    }
    let mut found = read(tools, grant, format, limits).await?;
    if is_too_deep {
        found.left_out.reasons = BTreeMap::from([(LeftOut::MemberDepth.to_string(), found.left_out.count)]);
        found.left_out.first.iter_mut().for_each(|left| left["reason"] = LeftOut::MemberDepth.as_str().into());
    }
    let Found { bundle, members, .. } = &mut found;
    put_ahead(tools, bundle, members.iter_mut().map(|member| (&member.part, &mut member.ahead)).collect()).await?;

    let mut tx = apply.begin_creating().await?;
    store::members::lock(tx.conn(), grant.root_id).await.classified()?;
    // Other containers of the root may have taken some since.
    let taken = store::members::taken(tx.conn(), grant.root_id).await.classified()?;
    found.fit(&within(crate::reader::limits(&tools.settings), taken));
    make(tools, &mut tx, &found, &options).await?;
    let Found { members, same, left_out, .. } = &found;
    let shape = json!({"members": members.len(), "same": same, "left_out": left_out.count});
    store::evidence::record(tx.conn(), grant.document_id, Evidence::Members, &shape).await.classified()?;
    if left_out.count > 0 {
        let left_out = json!({"count": left_out.count, "reasons": left_out.reasons, "first": left_out.first});
        store::evidence::record(tx.conn(), grant.document_id, Evidence::MembersLeftOut, &left_out)
            .await
            .classified()?;
    }
    if !format.has_text_extractor() {
        let empty = json!(members.is_empty().then_some("no_members"));
        store::evidence::record(tx.conn(), grant.document_id, Evidence::ExtractEmpty, &empty).await.classified()?;
    }
    let mut detail = Map::new();
    detail.insert("members".to_owned(), members.len().into());
    detail.insert("left_out".to_owned(), left_out.count.into());
    found.members.into_iter().for_each(|member| member.ahead.keep());
    tx.complete(detail).await
}

/// Puts the bytes of files within a file into the object store, if there is one.
pub(super) async fn put_ahead(
    tools: &Tools,
    bundle: &Bundle,
    parts: Vec<(&Part, &mut Ahead)>,
) -> Result<(), TaskFailure> {
    let puts: Vec<_> = parts.into_iter().map(|(part, ahead)| put_one(tools, bundle, part, ahead).boxed()).collect();
    stream::iter(puts).buffer_unordered(PUTS_AT_ONCE).try_collect().await.classified()
}

async fn put_one(tools: &Tools, bundle: &Bundle, part: &Part, ahead: &mut Ahead) -> Result<(), BlobError> {
    *ahead = tools.blobs.put(&tools.pool, || bundle.open(part), part.byte_size).await?;
    Ok(())
}

/// How many files lie around a container within its upload.
fn depth(grant: &Grant) -> usize {
    let path = &grant.region.path;
    let root = path.iter().position(|id| *id == grant.root_id.0).unwrap_or_default();
    path.len().saturating_sub(root + 1)
}

/// The limits, less what other members of the same root took.
fn within(limits: Limits, taken: Taken) -> Limits {
    let members = u32::try_from(taken.members).unwrap_or(u32::MAX);
    Limits {
        members: limits.members.saturating_sub(members),
        member_bytes: limits.member_bytes.saturating_sub(taken.bytes.unsigned_abs()),
        ..limits
    }
}

/// A member whose bytes are whole.
struct Member {
    head: MemberHead,
    part: Part,
    detection: Detection,
    /// Its object, if its bytes do not go into the database.
    ahead: Ahead,
}

/// What a container holds.
struct Found {
    bundle: Bundle,
    members: Vec<Member>,
    /// Names of members with the bytes of others, each with the name of the first of these.
    same: Vec<Value>,
    left_out: Unread,
}

#[derive(Default)]
struct Unread {
    count: u64,
    reasons: BTreeMap<String, u64>,
    first: Vec<Value>,
}

impl Unread {
    fn add(&mut self, name: &str, reason: &str) {
        self.count += 1;
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
        if self.first.len() < NAMED {
            self.first.push(json!({"name": name, "reason": reason}));
        }
    }
}

impl Found {
    /// Leaves out what is over the limits.
    fn fit(&mut self, limits: &Limits) {
        let mut room = (limits.members, limits.member_bytes);
        for member in std::mem::take(&mut self.members) {
            match (room.0.checked_sub(1), room.1.checked_sub(member.part.byte_size)) {
                (Some(members), Some(bytes)) => {
                    room = (members, bytes);
                    self.members.push(member);
                }
                (None, _) => self.left_out.add(&member.head.name, LeftOut::Members.as_str()),
                (_, None) => self.left_out.add(&member.head.name, LeftOut::MemberBytes.as_str()),
            }
        }
    }
}

/// Reads every member into one working file, and recognises it.
async fn read(tools: &Tools, grant: &Grant, format: Format, limits: Limits) -> Result<Found, TaskFailure> {
    let file = input(tools, grant.document_id).await?;
    let mut reading = tools.reader.stream(file, &Request::new(Step::Members(format), limits)).classified()?;
    let mut filling = Filling::new(tools.spool.folder()).classified()?;
    while let Some(answer) = reading.next().await.classified()? {
        let Answer::Member(part) = answer else { return Err(another_answer()) };
        filling = tokio::task::spawn_blocking(move || filling.take(part)).await.classified()?.classified()?;
    }
    Ok(filling.found)
}

/// Takes in what the reader gives.
struct Filling {
    found: Found,
    open: Option<MemberHead>,
    /// The name of the first member with these bytes.
    seen: HashMap<String, String>,
}

impl Filling {
    fn new(folder: &std::path::Path) -> io::Result<Filling> {
        let bundle = Bundle::new(folder)?;
        let found = Found { bundle, members: Vec::new(), same: Vec::new(), left_out: Unread::default() };
        Ok(Filling { found, open: None, seen: HashMap::new() })
    }

    fn take(mut self, part: MemberPart) -> io::Result<Filling> {
        let Found { bundle, members, same, left_out } = &mut self.found;
        match part {
            MemberPart::Begin(head) => self.open = Some(head),
            MemberPart::Bytes(piece) => bundle.write(&piece)?,
            MemberPart::End => {
                let part = bundle.end();
                let Some(head) = self.open.take() else { return Ok(self) };
                if let Some(first) = self.seen.get(&part.content_hash) {
                    if same.len() < NAMED {
                        same.push(json!({"name": head.name, "as": first}));
                    }
                    return Ok(self);
                }
                self.seen.insert(part.content_hash.clone(), head.name.clone());
                let mut source = BufReader::new(bundle.open(&part)?);
                let detection = svc_formats::detect_named(&mut source, Some(&head.name))?;
                members.push(Member { head, part, detection, ahead: Ahead::default() });
            }
            MemberPart::LeftOut { name, reason } => {
                self.open = None;
                bundle.forget()?;
                left_out.add(&name, reason.as_str());
            }
        }
        Ok(self)
    }
}

/// Stores the members with their bytes, and queues their probes.
async fn make(tools: &Tools, tx: &mut Transaction<'_>, found: &Found, options: &Value) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    let container = Place::of_claim(grant);
    let position = store::members::next_position(tx.conn(), container.id(), found.members.len()).await.classified()?;
    let ids = store::nodes::reserve_ids(tx.conn(), found.members.len()).await.classified()?;
    let made: Vec<(&Member, DocumentId)> = found.members.iter().zip(ids).collect();
    for (part, position) in made.chunks(ROWS).zip((position..).step_by(ROWS)) {
        let nodes: Vec<NewNode> = part
            .iter()
            .zip(position..)
            .map(|((member, id), position)| NewNode {
                id: *id,
                parent_id: container.id(),
                path: grant.region.path.clone(),
                title: title(Some(&member.head.name)),
                content: String::new(),
                usetype: Usetype::File,
                position,
                structured_content: json!({}),
                anchor: json!({"member": member.head.name, "index": member.head.index}),
            })
            .collect();
        store::nodes::insert(tx.conn(), &tools.lexicon, &container, &grant.task_type, &nodes).await.classified()?;
        let hashes: Vec<&str> = part.iter().map(|(member, _)| member.part.content_hash.as_str()).collect();
        store::members::set_hashes(tx.conn(), &container, &nodes, &hashes).await.classified()?;
    }
    count(tx, &made).await?;
    let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
    let mut evidence = Vec::with_capacity(2 * made.len());
    for (member, id) in made {
        let place = container.of_new(id, grant.region.path.clone());
        let bytes_at = member.ahead.place(tx.conn(), || found.bundle.open(&member.part)).await.classified()?;
        let blob = blob(member, id, bytes_at, options);
        store::blobs::insert(tx.conn(), &place, &blob).await.classified()?;
        let detected = json!({
            "format": blob.format, "mime": blob.mime_type, "by": member.detection.by, "declared_mime": blob.declared_mime, "byte_size": blob.byte_size,
        });
        evidence.push((id, Evidence::Detected, detected));
        evidence.push((id, Evidence::Options, blob.options));
        queueing.add(tx.conn(), &place, Work::of(&PROBE)).await.classified()?;
    }
    store::evidence::record_all(tx.conn(), &evidence).await.classified()
}

fn blob(member: &Member, document_id: DocumentId, bytes_at: BlobPlace, options: &Value) -> BlobRow {
    let Member { head, part, detection, .. } = member;
    BlobRow {
        document_id,
        place: bytes_at,
        mime_type: detection.mime.clone(),
        declared_mime: head.declared_mime.as_deref().and_then(as_media_type),
        detected_by: detection.by.map(words::detected_by).map(Word),
        format: detection.format.map(|format| format.as_str().to_owned()),
        byte_size: i64::try_from(part.byte_size).unwrap_or(i64::MAX),
        content_hash: part.content_hash.clone(),
        options: options.clone(),
    }
}

async fn count(tx: &mut Transaction<'_>, made: &[(&Member, DocumentId)]) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    let row = |(_, id): &(&Member, DocumentId)| IngestNode {
        document_id: *id,
        parent_id: Some(grant.document_id),
        open_tasks: 1,
        open_children: 0,
        tokens: 0,
    };
    let rows: Vec<IngestNode> = made.iter().map(row).collect();
    store::ingest_nodes::insert(tx.conn(), grant.root_id, &rows).await.classified()?;
    let children = i32::try_from(made.len()).unwrap_or(i32::MAX);
    store::ingest_nodes::grow(tx.conn(), grant.document_id, 0, children, 0).await.classified()?;
    let total = i64::from(children);
    let change = Frontier { total, in_flight: total, ..Frontier::default() };
    store::ingest_nodes::count(tx.conn(), grant.root_id.document(), change).await.classified()
}
