//! extract:images: the pictures of a file, each as a node with its bytes under the file, and its charts, as tables of their values.
//!
//! All are made in one transaction, so a task that dies makes none. They lie directly under the file, because the sections of its text
//! may have settled already; where each stands is in its anchor. Pictures are found by their captions and by the text beside them,
//! charts by their cells, and no rollup reads them. What cannot be had fails nothing: the evidence says why it is missing.
mod charts;

use super::{
    Apply, OrTaskFailure, another_answer,
    apply::Transaction,
    embed::{self, Leaves},
    members::put_ahead,
    probe::input,
};
use crate::{
    blobs::Ahead,
    ingest::{Tools, tree},
    reader::limits,
    spool::{Bundle, Part},
    store::{
        self,
        blobs::BlobRow,
        evidence::Evidence,
        images::FIRST_POSITION,
        ingest_nodes::Frontier,
        nodes::{NewNode, ROWS},
        places::Place,
        word::Word,
    },
    usetype::Usetype,
};
use charts::Chart;
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};
use svc_actors::{LeafRange, Outcome, TaskFailure};
use svc_client::wire::DetectedBy;
use svc_formats::{
    ChartTable, Format, FormatError, ImageHead, ImageLeftOut, ImagePart, MOST_CHART_TABLES,
    isolated::{Answer, Request, Step},
};
use svc_ids::DocumentId;

/// How many pictures that were left out are named, and how many that are the same as others.
const NAMED: usize = 100;
/// How many pages are named of one picture.
const PAGES: usize = 100;
/// How many pictures are found by the same text beside them. A page may show many, and would be found as often.
const BESIDE: usize = 3;
/// The bytes of texts that are embedded together, unless one alone has more, and those that the text of a picture counts for: it has a
/// few hundred tokens at most.
const TOGETHER: usize = 64 << 10;
const OF_PICTURE: usize = 1 << 10;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let (format, options, title) = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let blob = store::blobs::of_document(&mut conn, id).await.classified()?;
        let blob = blob.ok_or(FormatError::UnknownFormat).classified()?;
        let format = blob.format.as_deref().and_then(|format| format.parse::<Format>().ok());
        let rows = store::nodes::texts(&mut conn, &[blob.document_id]).await.classified()?;
        let title = rows.into_iter().next().map(|row| row.title).unwrap_or_default();
        (format.ok_or(FormatError::UnknownFormat).classified()?, blob.options, title)
    };
    let mut found = read(tools, id, format).await?;
    let Found { bundle, images, .. } = &mut found;
    put_ahead(tools, bundle, images.iter_mut().map(|image| (&image.part, &mut image.ahead)).collect()).await?;
    let of_charts = std::mem::take(&mut found.charts);
    let count = of_charts.chunk_by(|one, next| one.chart == next.chart).count();
    let charts = charts::prepare(of_charts).await?;

    let mut tx = apply.begin_creating().await?;
    let made = make(tools, &mut tx, &found, charts, &options, &Told { format, title: &title }).await?;
    let Found { images, same, left_out, .. } = &found;
    let shape = json!({"images": images.len(), "same": same, "charts": count, "left_out": left_out.count});
    store::evidence::record(tx.conn(), id, Evidence::Images, &shape).await.classified()?;
    let left_out = match left_out.count {
        0 => Value::Null,
        count => json!({"count": count, "reasons": left_out.reasons, "first": left_out.first}),
    };
    store::evidence::record(tx.conn(), id, Evidence::ImagesLeftOut, &left_out).await.classified()?;
    if count > 0 {
        // The tables of charts are content, whatever else the file has.
        store::evidence::record(tx.conn(), id, Evidence::ExtractEmpty, &Value::Null).await.classified()?;
    }
    // The task of the text also writes its evidence before the counts of the file, so the two never wait for each other.
    grow(&mut tx, made).await?;
    let mut detail = Map::new();
    detail.insert("images".to_owned(), images.len().into());
    detail.insert("charts".to_owned(), count.into());
    detail.insert("left_out".to_owned(), found.left_out.count.into());
    found.images.into_iter().for_each(|image| image.ahead.keep());
    tx.complete(detail).await
}

/// Records why a file has no text or no sheets, unless its charts became tables. Another task reads the charts at the same time, and the
/// task that writes second sees what the first one wrote.
pub(super) async fn record_empty(
    conn: &mut PgConnection,
    id: DocumentId,
    reason: Option<&str>,
) -> Result<(), TaskFailure> {
    store::evidence::record(conn, id, Evidence::ExtractEmpty, &json!(reason)).await.classified()?;
    if reason.is_none() {
        return Ok(());
    }
    let found = store::evidence::read_one(conn, id, Evidence::Images).await.classified()?;
    if found.is_some_and(|found| found["charts"].as_u64() > Some(0)) {
        store::evidence::record(conn, id, Evidence::ExtractEmpty, &Value::Null).await.classified()?;
    }
    Ok(())
}

/// A picture whose bytes are whole.
struct Image {
    head: ImageHead,
    part: Part,
    /// Its object, if its bytes do not go into the database.
    ahead: Ahead,
}

/// The pictures and charts of a file.
struct Found {
    bundle: Bundle,
    images: Vec<Image>,
    /// The tables of the charts, those of one chart one after the other.
    charts: Vec<ChartTable>,
    /// Names of pictures with the bytes of others, each with the name of the first of these.
    same: Vec<Value>,
    left_out: Missing,
}

#[derive(Default)]
struct Missing {
    count: u64,
    reasons: BTreeMap<String, u64>,
    first: Vec<Value>,
}

impl Missing {
    fn add(&mut self, name: &str, count: u64, reason: ImageLeftOut) {
        self.count += count;
        *self.reasons.entry(reason.to_string()).or_default() += count;
        if self.first.len() < NAMED {
            self.first.push(json!({"name": name, "reason": reason.as_str()}));
        }
    }
}

/// Reads every picture into one working file. A file that only its password opens has none that can be had: the password came with its
/// text, and is stored nowhere.
async fn read(tools: &Tools, id: DocumentId, format: Format) -> Result<Found, TaskFailure> {
    let file = input(tools, id).await?;
    let request = Request::new(Step::Images(format), limits(&tools.settings));
    let mut reading = tools.reader.stream(file, &request).classified()?;
    let mut filling = Filling::new(tools.spool.folder(), request.limits.images).classified()?;
    loop {
        match reading.next().await {
            Ok(None) => return Ok(filling.found),
            Ok(Some(Answer::Image(part))) => {
                filling = tokio::task::spawn_blocking(move || filling.take(part)).await.classified()?.classified()?;
            }
            Ok(Some(_)) => return Err(another_answer()),
            Err(FormatError::Encrypted { .. } | FormatError::Sealed { .. } | FormatError::Compound { .. }) => {
                filling.found.left_out.add("", 1, ImageLeftOut::Encrypted);
                return Ok(filling.found);
            }
            Err(error) => return Err(error).classified(),
        }
    }
}

/// Takes in what the reader gives.
struct Filling {
    found: Found,
    open: Option<ImageHead>,
    /// Where the first picture with these bytes is.
    seen: HashMap<String, usize>,
    /// The most pictures, whatever the reader gives.
    most: u32,
}

impl Filling {
    fn new(folder: &Path, most: u32) -> io::Result<Filling> {
        let bundle = Bundle::new(folder)?;
        let (images, charts, same, left_out) = (Vec::new(), Vec::new(), Vec::new(), Missing::default());
        let found = Found { bundle, images, charts, same, left_out };
        Ok(Filling { found, open: None, seen: HashMap::new(), most })
    }

    fn take(mut self, part: ImagePart) -> io::Result<Filling> {
        let Found { bundle, images, charts, same, left_out } = &mut self.found;
        match part {
            ImagePart::Begin(head) => self.open = Some(head),
            ImagePart::Bytes(piece) => bundle.write(&piece)?,
            ImagePart::End => {
                let part = bundle.end();
                let Some(head) = self.open.take() else { return Ok(self) };
                if let Some(first) = self.seen.get(&part.content_hash).and_then(|first| images.get_mut(*first)) {
                    if same.len() < NAMED {
                        same.push(json!({"name": head.name, "as": first.head.name}));
                    }
                    merge(&mut first.head, head);
                    return Ok(self);
                }
                if images.len() >= self.most as usize {
                    left_out.add(&head.name, 1, ImageLeftOut::Images);
                    return Ok(self);
                }
                self.seen.insert(part.content_hash.clone(), images.len());
                images.push(Image { head, part, ahead: Ahead::default() });
            }
            ImagePart::Chart(table) if charts.len() < MOST_CHART_TABLES => charts.push(table),
            ImagePart::Chart(table) => left_out.add(&table.name, 1, ImageLeftOut::Charts),
            ImagePart::LeftOut { name, count, reason } => left_out.add(&name, count, reason),
        }
        Ok(self)
    }
}

/// Notes of a picture where it comes again, and what was not said of it yet.
fn merge(first: &mut ImageHead, again: ImageHead) {
    for page in again.pages {
        if first.pages.len() < PAGES && !first.pages.contains(&page) {
            first.pages.push(page);
        }
    }
    for (known, new) in
        [(&mut first.caption, again.caption), (&mut first.alt, again.alt), (&mut first.nearby, again.nearby)]
    {
        if known.is_empty() {
            *known = new;
        }
    }
}

/// What is known of the file besides its pictures.
struct Told<'a> {
    format: Format,
    title: &'a str,
}

impl Told<'_> {
    /// What its numbered parts are called in anchors, if it has any.
    fn pages(&self) -> &'static str {
        match self.format {
            Format::Pptx | Format::Odp => "slides",
            // Of what is locked, only a workbook that Excel opens without asking has pictures that are read.
            Format::Ole2 => "sheets",
            format if format.has_sheets() => "sheets",
            _ => "pages",
        }
    }

    /// The text by which a picture is found, with the text beside it or without.
    fn content(&self, head: &ImageHead, with_nearby: bool) -> String {
        let mut lines: Vec<&str> = Vec::new();
        let nearby = if with_nearby { head.nearby.as_str() } else { "" };
        for line in [head.caption.as_str(), head.alt.as_str(), nearby] {
            if !line.is_empty() && !lines.contains(&line) {
                lines.push(line);
            }
        }
        match lines.is_empty() {
            true => format!("{} of {}", name(head), self.title),
            false => lines.join("\n"),
        }
    }

    fn node(&self, path: &[i64], file: DocumentId, made: &Made<'_>) -> NewNode {
        let Made { image: Image { head, part, .. }, id, position, with_nearby } = *made;
        let heading = [&head.caption, &head.alt].into_iter().find(|text| !text.is_empty());
        let mut anchor = json!({"image": head.index, "sha256": part.content_hash});
        if let Some(page) = head.pages.first() {
            anchor[self.pages()] = json!([page, page]);
        }
        NewNode {
            id,
            parent_id: file,
            path: path.to_vec(),
            title: tree::title(&heading.cloned().unwrap_or_else(|| name(head))),
            content: self.content(head, with_nearby),
            usetype: Usetype::Image,
            position,
            structured_content: described(head, part),
            anchor,
        }
    }
}

/// A picture with its node.
struct Made<'a> {
    image: &'a Image,
    id: DocumentId,
    position: i32,
    /// It is found by the text beside it too.
    with_nearby: bool,
}

/// What a picture without a caption is called.
fn name(head: &ImageHead) -> String {
    format!("Picture {}", head.index + 1)
}

/// What is known of a picture, without what is not.
fn described(head: &ImageHead, part: &Part) -> Value {
    let text = |text: &String| (!text.is_empty()).then(|| json!(text));
    let fields = [
        ("mime", Some(json!(head.mime))),
        ("width", head.width.map(Value::from)),
        ("height", head.height.map(Value::from)),
        ("byte_size", Some(part.byte_size.into())),
        ("sha256", Some(json!(part.content_hash))),
        ("name", text(&head.name)),
        ("page", head.pages.first().map(|page| json!(page))),
        ("pages", (head.pages.len() > 1).then(|| json!(head.pages))),
        ("caption", text(&head.caption)),
        ("alt", text(&head.alt)),
        ("nearby", text(&head.nearby)),
    ];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>().into()
}

/// Stores the pictures with their bytes and the charts after them, and queues what embeds their texts. Returns how many tasks and nodes
/// these are.
async fn make(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    found: &Found,
    charts: Vec<Chart>,
    options: &Value,
    told: &Told<'_>,
) -> Result<(i32, i32), TaskFailure> {
    let grant = tx.grant();
    let file = Place::of_claim(grant);
    let count = found.images.len() + charts.len();
    let ids = store::nodes::reserve_ids(tx.conn(), count).await.classified()?;
    let mut places = ids.iter().copied().zip(FIRST_POSITION..);
    let mut beside: HashMap<&str, usize> = HashMap::new();
    let mut made: Vec<Made<'_>> = Vec::with_capacity(found.images.len());
    for (image, (id, position)) in found.images.iter().zip(&mut places) {
        let count = beside.entry(image.head.nearby.as_str()).or_default();
        *count += 1;
        made.push(Made { image, id, position, with_nearby: *count <= BESIDE });
    }
    for part in made.chunks(ROWS) {
        let node = |made: &Made<'_>| told.node(&grant.region.path, file.id(), made);
        let nodes: Vec<NewNode> = part.iter().map(node).collect();
        store::nodes::insert(tx.conn(), &tools.lexicon, &file, &grant.task_type, &nodes).await.classified()?;
    }
    let sizes: Vec<usize> = made.iter().map(|_| OF_PICTURE).chain(charts.iter().map(Chart::bytes)).collect();
    let mut nodes = Vec::with_capacity(charts.len());
    // The tables of a file may have megabytes, which are not held twice.
    for (chart, (id, position)) in charts.into_iter().zip(places) {
        nodes.push(chart.node(id, &grant.region.path, file.id(), position, told.pages()));
    }
    for nodes in nodes.chunks(ROWS) {
        store::nodes::insert(tx.conn(), &tools.lexicon, &file, &grant.task_type, nodes).await.classified()?;
    }
    for Made { image, id, .. } in &made {
        let place = file.of_new(*id, grant.region.path.clone());
        let bytes_at = image.ahead.place(tx.conn(), || found.bundle.open(&image.part)).await.classified()?;
        let blob = BlobRow {
            document_id: *id,
            place: bytes_at,
            mime_type: Some(image.head.mime.clone()),
            declared_mime: None,
            detected_by: Some(Word(DetectedBy::MagicBytes)),
            format: None,
            byte_size: i64::try_from(image.part.byte_size).unwrap_or(i64::MAX),
            content_hash: image.part.content_hash.clone(),
            options: options.clone(),
        };
        store::blobs::insert(tx.conn(), &place, &blob).await.classified()?;
    }
    let batches = batches(ids.iter().copied().zip(sizes));
    let children = i32::try_from(ids.len()).unwrap_or(i32::MAX);
    let tasks = i32::try_from(batches.len()).unwrap_or(i32::MAX);
    for batch in batches {
        let leaf = |id: &DocumentId| grant.region.path.iter().copied().chain([id.0]).collect::<Vec<_>>();
        let Some((first, last)) = batch.first().zip(batch.last()) else { continue };
        let range = LeafRange { first: leaf(first), last: leaf(last) };
        let leaves = Leaves { under: file.clone(), range, runs: runs(&batch) };
        embed::enqueue(tools, tx.conn(), grant.root_id, leaves).await?;
    }
    Ok((tasks, children))
}

/// Counts the tasks and the nodes of pictures and charts for the file and its root.
async fn grow(tx: &mut Transaction<'_>, (tasks, children): (i32, i32)) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    store::ingest_nodes::grow(tx.conn(), grant.document_id, tasks, children, 0).await.classified()?;
    let total = i64::from(children);
    let change = Frontier { total, in_flight: total, ..Frontier::default() };
    store::ingest_nodes::count(tx.conn(), grant.root_id.document(), change).await.classified()
}

/// Nodes that are embedded together, each given with the bytes of its text. Their keys sort as numbers only if their ids have the same
/// number of digits.
fn batches(nodes: impl Iterator<Item = (DocumentId, usize)>) -> Vec<Vec<DocumentId>> {
    let digits = |id: DocumentId| id.0.checked_ilog10();
    let mut batches: Vec<Vec<DocumentId>> = Vec::new();
    let mut room = 0;
    for (id, bytes) in nodes {
        if let Some(batch) = batches.last_mut()
            && bytes <= room
            && batch.last().is_some_and(|last| digits(*last) == digits(id))
        {
            room -= bytes;
            batch.push(id);
        } else {
            room = TOGETHER.saturating_sub(bytes);
            batches.push(vec![id]);
        }
    }
    batches
}

/// The stretches of ids between which there is no other: the first and the last of each.
fn runs(ids: &[DocumentId]) -> Vec<(DocumentId, DocumentId)> {
    let runs = ids.chunk_by(|one, next| one.0 + 1 == next.0);
    runs.filter_map(|run| Some((*run.first()?, *run.last()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(caption: &str, alt: &str, nearby: &str) -> ImageHead {
        ImageHead {
            index: 2,
            caption: caption.to_owned(),
            alt: alt.to_owned(),
            nearby: nearby.to_owned(),
            ..ImageHead::default()
        }
    }

    #[test]
    fn a_picture_is_found_by_all_that_is_said_of_it_and_nothing_twice() {
        let told = Told { format: Format::Docx, title: "ponds.docx" };
        assert_eq!(told.content(&head("Figure 1", "A heron", "By the weir"), true), "Figure 1\nA heron\nBy the weir");
        assert_eq!(told.content(&head("Figure 1", "Figure 1", ""), true), "Figure 1");
        assert_eq!(told.content(&head("", "", ""), true), "Picture 3 of ponds.docx");
        assert_eq!(told.content(&head("", "A heron", "By the weir"), false), "A heron");
    }

    #[test]
    fn the_same_picture_again_adds_its_pages_and_what_was_not_said() {
        let mut first = ImageHead { pages: vec![2], ..head("", "A heron", "") };
        merge(&mut first, ImageHead { pages: vec![2, 5], ..head("Figure 4", "Another", "Below") });
        assert_eq!(first, ImageHead { pages: vec![2, 5], ..head("Figure 4", "A heron", "Below") });
    }

    #[test]
    fn batches_hold_every_node_once_and_their_runs_no_other() {
        let cut_of = |ids: &[i64], bytes| batches(ids.iter().map(|id| (DocumentId(*id), bytes)));
        let ids: Vec<i64> = (95..99).chain(100..110).chain([200]).collect();
        let cut = cut_of(&ids, OF_PICTURE);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [4, 11]);
        let [_, second] = cut.as_slice() else { panic!("{cut:?}") };
        let of = |first, last| (DocumentId(first), DocumentId(last));
        assert_eq!(runs(second), [of(100, 109), of(200, 200)]);
        let many: Vec<i64> = (1000..1200).collect();
        assert_eq!(cut_of(&many, OF_PICTURE).len(), 4);
        assert_eq!(cut_of(&many, TOGETHER / 2).len(), 100);
        assert_eq!(cut_of(&many, TOGETHER + 1).len(), 200);
    }
}
