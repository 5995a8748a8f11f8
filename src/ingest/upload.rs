//! Receives a file: spools, hashes and recognises it, then stores it with its node and its first task in one short
//! transaction.
use crate::{
    access::Caller,
    admission::Admission,
    blobs::Ahead,
    core::Core,
    error::OrFail,
    ingest::{
        copies::Copies,
        options::{Options, Requested, stored_with_others},
        parent,
        queueing::{Queueing, Work},
        tasks::types::{PROBE, TaskTypes},
        unlock::{self, Opened},
    },
    spool::{self, Spooled, SpooledUpload},
    store::{
        self,
        audit::Entry,
        blobs::{BlobPlace, BlobRow},
        bulk::Receipt,
        documents::NewRow,
        evidence::Evidence,
        ingest_nodes::{Frontier, IngestNode},
        places::Place,
        scope::Readable,
        word::Word,
    },
    usetype::Usetype,
    words,
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::{
    Code, Failure,
    constraint::as_media_type,
    wire::{AuditAct, EventKind, Settled, UploadQuery, UploadResponse},
};
use svc_formats::{Detection, FormatError};
use svc_ids::DocumentId;

/// A longer name is cut: nobody reads it, and titles are indexed.
const TITLE_CHARACTERS: usize = 255;
/// How often an arrival is tried whose bytes are found and deleted before it has them.
const TRIES: usize = 5;

/// What taking in a file needs: the limits on files that are read and stored at a time, and the task types that they may get.
#[derive(Clone, Copy)]
pub struct Intake<'a> {
    pub admission: &'a Admission,
    pub copies: &'a Copies,
    pub types: &'a TaskTypes,
}

/// Stores an upload, or finds the node that already holds its bytes.
pub async fn upload(
    core: &Core,
    intake: Intake<'_>,
    caller: &Caller,
    query: UploadQuery,
    upload: SpooledUpload,
) -> Result<UploadResponse, Failure> {
    let SpooledUpload { filename, declared_mime, file, options } = upload;
    let requested = Requested::read(options, intake.types.groups())?;
    let (file, detection) = recognise(file, filename.as_deref()).await?;
    let incoming = Incoming {
        title: title(filename.as_deref()),
        declared_mime,
        file,
        detection,
        usetype: Usetype::File,
        requested,
        prepared: None,
        evidence: Vec::new(),
        receipt: None,
    };
    arrive(core, intake, caller, query, incoming).await
}

/// A file that has arrived, with what is known of it.
pub struct Incoming {
    pub title: String,
    pub declared_mime: Option<String>,
    pub file: Spooled,
    pub detection: Detection,
    /// The usetype of the node. Bytes are found again among nodes of the same usetype.
    pub usetype: Usetype,
    pub requested: Requested,
    /// The text, if the request itself made it of the bytes.
    pub prepared: Option<Opened>,
    /// What else is known of a new node.
    pub evidence: Vec<(Evidence, Value)>,
    /// The message of the bulk feed that brought it, whose outcome is recorded with it.
    pub receipt: Option<Receipt>,
}

/// Stores a file, or finds the node that already holds its bytes.
pub async fn arrive(
    core: &Core,
    intake: Intake<'_>,
    caller: &Caller,
    query: UploadQuery,
    incoming: Incoming,
) -> Result<UploadResponse, Failure> {
    let Incoming { title, declared_mime, file: spooled, detection, usetype, requested, prepared, evidence, receipt } =
        incoming;
    let Requested { options, password } = requested;
    let opened = match (password, detection.format) {
        (Some(password), Some(format)) => {
            unlock::unlock(core, intake.admission, caller, &spooled.file, format, password).await?
        }
        _ => None,
    };
    let arrival = Arrival {
        title,
        // A message or a page may say anything of a file.
        declared_mime: declared_mime.as_deref().and_then(as_media_type),
        detection,
        usetype,
        event_time: query.event_time,
        options,
        opened,
        prepared,
        evidence,
        receipt,
        content_hash: spooled.content_hash.clone(),
        byte_size: spooled.byte_size,
    };

    for _ in 0..TRIES {
        if let Some(response) = take_in(core, intake, caller, &query, &arrival, &spooled).await? {
            core.spool.keep(DocumentId(response.document_id), spooled);
            core.wake.notify(Lanes::of(Lane::Cpu));
            return Ok(response);
        }
    }
    Err(Failure::new(Code::Unavailable, "each file with these bytes was deleted while this upload was to share it")
        .with("remedy", "upload it again")
        .with("retry_after", 1))
}

/// Stores an arrival, or finds the node that holds its bytes; `None` if that node was deleted meanwhile.
async fn take_in(
    core: &Core,
    intake: Intake<'_>,
    caller: &Caller,
    query: &UploadQuery,
    arrival: &Arrival,
    spooled: &Spooled,
) -> Result<Option<UploadResponse>, Failure> {
    let usetype = arrival.usetype;
    // The file may have taken long to arrive.
    let caller = &caller.again(&core.pool).await?;
    let ahead = put_ahead(core, &caller.readable(), arrival, query.private, spooled).await?;
    let (copies, _turn) = intake.copies.turn().await;
    let mut tx = store::transaction::begin_creating(copies).await.or_fail()?;
    store::blobs::lock_hash(&mut tx, &arrival.content_hash).await.or_fail()?;
    // An upload of the same bytes that this one waited for may have made a file that only its caller reads.
    let caller = &caller.again_on(&mut tx).await?;
    let scope = caller.readable();
    let found = store::blobs::find(&mut tx, &scope, usetype, &arrival.content_hash, query.private).await.or_fail()?;
    // The bytes come before any lock on the tree, because copying them takes long.
    let place = match &found {
        Some(_) => None,
        None => Some(ahead.place(&mut tx, || spool::reopen(&spooled.file)).await.or_fail()?),
    };
    if let (Some(blob), Some(_)) = (&found, &arrival.opened) {
        // What was read with the password may have the probe run again, which takes the file's lock; that comes before rows.
        store::locks::files_around(&mut tx, blob.document_id).await.or_fail()?;
    }
    let parent = match query.parent_id {
        Some(id) => Some(parent::lock(&mut tx, caller, DocumentId(id), 0).await?),
        None => None,
    };
    let is_new = place.is_some();
    let response = match (found, place) {
        (Some(blob), _) => match existing(&mut tx, intake.types, caller, blob, arrival, parent.as_ref()).await? {
            Some(response) => response,
            None => {
                tx.rollback().await.or_fail()?;
                return Ok(None);
            }
        },
        (None, Some(place)) => store_new(core, &mut tx, caller, arrival, place, parent.as_ref(), query).await?,
        (None, None) => return Err(Failure::new(Code::Internal, "the upload was neither found nor stored")),
    };
    if let Some(receipt) = &arrival.receipt {
        let (id, hash) = (DocumentId(response.document_id), &response.content_hash);
        if !store::bulk::record(&mut tx, receipt, id, hash, !response.was_existing).await.or_fail()? {
            return Err(Failure::new(Code::Conflict, "another delivery of this message was stored meanwhile"));
        }
    }
    if is_new {
        ahead.keep();
    }
    tx.commit().await.or_fail()?;
    Ok(Some(response))
}

/// Puts the bytes into the object store, if there is one and they are not stored already. Whether they are is looked up again under a lock;
/// should the file be deleted in between, its bytes go into the database, which is no worse.
async fn put_ahead(
    core: &Core,
    scope: &Readable,
    arrival: &Arrival,
    private: bool,
    spooled: &Spooled,
) -> Result<Ahead, Failure> {
    if !core.blobs.are_outside() {
        return Ok(Ahead::default());
    }
    let found = {
        let mut conn = core.pool.acquire().await.or_fail()?;
        store::blobs::find(&mut conn, scope, arrival.usetype, &arrival.content_hash, private).await.or_fail()?
    };
    match found {
        Some(_) => Ok(Ahead::default()),
        None => core.blobs.put(&core.pool, || spool::reopen(&spooled.file), spooled.byte_size).await.or_fail(),
    }
}

/// What is known of a file before it is stored.
struct Arrival {
    title: String,
    declared_mime: Option<String>,
    detection: Detection,
    usetype: Usetype,
    event_time: Option<DateTime<Utc>>,
    options: Options,
    /// What its password opened.
    opened: Option<Opened>,
    prepared: Option<Opened>,
    evidence: Vec<(Evidence, Value)>,
    receipt: Option<Receipt>,
    content_hash: String,
    byte_size: u64,
}

impl Arrival {
    /// What is told of this arrival, with the message that brought it.
    fn told(&self, mut facts: Value) -> Value {
        if let Some(receipt) = &self.receipt {
            facts["message_id"] = json!(receipt.message_id);
        }
        facts
    }
}

/// A file's name as a title: without folders and control characters, not too long, and never empty.
pub(crate) fn title(filename: Option<&str>) -> String {
    let name = filename.unwrap_or_default();
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(TITLE_CHARACTERS).collect();
    let name = name.trim();
    if name.is_empty() { "untitled".to_owned() } else { name.to_owned() }
}

/// Finds out what the bytes are. The name of their file is asked only whether a text is a table.
pub(crate) async fn recognise(spooled: Spooled, name: Option<&str>) -> Result<(Spooled, Detection), Failure> {
    let name = name.map(ToOwned::to_owned);
    let work = move || {
        let mut source = std::io::BufReader::new(&spooled.file);
        let detection = svc_formats::detect_named(&mut source, name.as_deref())?;
        Ok((spooled, detection))
    };
    let done: std::io::Result<_> =
        tokio::task::spawn_blocking(work).await.map_err(|e| Failure::new(Code::Internal, e))?;
    done.or_fail()
}

/// Answers with the node that holds the bytes, and makes the parent contain it; `None` if the node was deleted meanwhile.
async fn existing(
    conn: &mut PgConnection,
    types: &TaskTypes,
    caller: &Caller,
    blob: BlobRow,
    arrival: &Arrival,
    parent: Option<&Place>,
) -> Result<Option<UploadResponse>, Failure> {
    let id = blob.document_id;
    if let Some(parent) = parent.filter(|parent| parent.is_within(id)) {
        // The file is not locked after what is under it, because a deletion locks the two the other way round.
        return Err(contained(parent.id()));
    }
    if !store::documents::keep(conn, &caller.readable(), id).await.or_fail()? {
        return Ok(None);
    }
    if !arrival.options.agree_with(&blob.options, types.groups()) {
        let asked = arrival.options.to_value();
        return Err(stored_with_others(id.0, &blob.options, &asked));
    }
    let Some(mut found) = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()? else {
        return Ok(None);
    };
    if let Some(opened) = &arrival.opened
        && let Some(file) = to_open(conn, caller, id, &arrival.content_hash).await.or_fail()?
        && opened.hand_in(conn, types, &file).await?
    {
        let entry = Entry::new(AuditAct::TaskRetry).document(id);
        caller.record(conn, entry.with("task_type", PROBE.name).with("with_password", true)).await.or_fail()?;
        found.settled = Word(Settled::InFlight);
    }
    let mut linked_into_parent = false;
    if let Some(parent) = parent.filter(|parent| found.parent_id != Some(parent.id())) {
        if store::links::contains(conn, &caller.readable(), id, parent.id()).await.or_fail()? {
            return Err(contained(parent.id()));
        }
        store::links::contain(conn, parent, id).await.or_fail()?;
        linked_into_parent = true;
    }
    let told = arrival.told(json!({"content_hash": blob.content_hash, "linked": linked_into_parent}));
    store::events::record(conn, EventKind::IngestDuplicate, &[id], &told).await.or_fail()?;
    Ok(Some(UploadResponse {
        document_id: id.0,
        settled: found.settled.0,
        content_hash: blob.content_hash,
        blob_ref: blob.place.to_string(),
        detected_mime: blob.mime_type,
        detected_by: blob.detected_by.map(|Word(by)| by),
        declared_mime: arrival.declared_mime.clone(),
        attempts: caller.told(store::evidence::attempts(conn, id).await.or_fail()?),
        was_existing: true,
        linked_into_parent,
    }))
}

/// The place of a file that is stored already, for a caller that sent its bytes with their password; `None` if nothing that the caller may add is
/// missing.
async fn to_open(
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
    content_hash: &str,
) -> sqlx::Result<Option<Place>> {
    match store::places::find(conn, &caller.writable(), id).await? {
        Some(file) => Ok(Some(file)),
        None => {
            let refused_as = &FormatError::CODES_OF_LOCKED;
            store::places::find_locked_file(conn, &caller.readable(), id, content_hash, PROBE.name, refused_as).await
        }
    }
}

/// 422 for a parent that the file with the same bytes contains already.
fn contained(parent: DocumentId) -> Failure {
    Failure::field("parent_id", format!("document {parent} is under the file that holds these bytes"))
        .with("remedy", "choose a document outside of that file")
}

async fn store_new(
    core: &Core,
    conn: &mut PgConnection,
    caller: &Caller,
    arrival: &Arrival,
    bytes_at: BlobPlace,
    parent: Option<&Place>,
    query: &UploadQuery,
) -> Result<UploadResponse, Failure> {
    let row = NewRow {
        parent,
        title: &arrival.title,
        content: "",
        structured_content: &Map::new(),
        usetype: arrival.usetype.as_str(),
        position: None,
        event_time: arrival.event_time,
        content_hash: &arrival.content_hash,
        settled: Settled::InFlight,
    };
    let (place, _) = store::documents::insert(conn, &core.lexicon, &row).await.or_fail()?;
    let id = place.id();
    if parent.is_some() {
        store::reservations::hold_for_edit(conn, &place, WriteMode::Itself).await.or_fail()?;
    }
    let blob = BlobRow {
        document_id: id,
        place: bytes_at,
        mime_type: arrival.detection.mime.clone(),
        declared_mime: arrival.declared_mime.clone(),
        detected_by: arrival.detection.by.map(words::detected_by).map(Word),
        format: arrival.detection.format.map(|format| format.as_str().to_owned()),
        byte_size: i64::try_from(arrival.byte_size).unwrap_or(i64::MAX),
        content_hash: arrival.content_hash.clone(),
        options: arrival.options.to_value(),
    };
    store::blobs::insert(conn, &place, &blob).await.or_fail()?;
    if query.private || core.settings.is_enclosed(query.parent_id) {
        caller.enclose(conn, &place).await.or_fail()??;
    }
    let detected = json!({
        "format": blob.format, "mime": blob.mime_type, "by": arrival.detection.by, "declared_mime": blob.declared_mime, "byte_size": blob.byte_size,
    });
    store::evidence::record(conn, id, Evidence::Detected, &detected).await.or_fail()?;
    store::evidence::record(conn, id, Evidence::Options, &blob.options).await.or_fail()?;
    if let Some(opened) = &arrival.opened {
        opened.store(conn, &place).await?;
    }
    if let Some(prepared) = &arrival.prepared {
        prepared.store_as(conn, &place, Evidence::Prepared).await?;
    }
    for (name, value) in &arrival.evidence {
        store::evidence::record(conn, id, *name, value).await.or_fail()?;
    }
    store::evidence::record_origin(conn, id, "upload", None).await.or_fail()?;
    begin(core, conn, &place, query.priority).await.or_fail()?;
    let told =
        arrival.told(json!({"content_hash": blob.content_hash, "byte_size": blob.byte_size, "format": blob.format}));
    store::events::record(conn, EventKind::IngestAccepted, &[id], &told).await.or_fail()?;
    Ok(UploadResponse {
        document_id: id.0,
        settled: Settled::InFlight,
        content_hash: blob.content_hash,
        blob_ref: blob.place.to_string(),
        detected_mime: blob.mime_type,
        detected_by: blob.detected_by.map(|Word(by)| by),
        declared_mime: blob.declared_mime,
        attempts: Vec::new(),
        was_existing: false,
        linked_into_parent: false,
    })
}

/// Starts the counts and queues the probe.
pub(super) async fn begin(core: &Core, conn: &mut PgConnection, file: &Place, priority: i32) -> sqlx::Result<()> {
    let id = file.id();
    let node = IngestNode { document_id: id, parent_id: None, open_tasks: 1, open_children: 0, tokens: 0 };
    let root_id = id.as_root();
    store::ingest_nodes::insert(conn, root_id, &[node]).await?;
    if priority != 0 {
        store::ingest_nodes::set_priority(conn, file, priority).await?;
    }
    store::ingest_nodes::count(conn, id, Frontier { total: 1, in_flight: 1, ..Frontier::default() }).await?;
    Queueing::of_file(root_id, &core.settings.task_badges).add(conn, file, Work::of(&PROBE)).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn a_title_is_always_a_plain_name() {
        assert_eq!(title(Some("../../etc/passwd")), "passwd");
        assert_eq!(title(Some(r"C:\docs\plan.docx")), "plan.docx");
        assert_eq!(title(Some("a\u{0}\nb.txt")), "ab.txt");
        for nothing in [None, Some(""), Some("   "), Some("folder/")] {
            assert_eq!(title(nothing), "untitled");
        }
        assert_eq!(title(Some(&"ü".repeat(300))).chars().count(), 255);
    }
}
