//! The settling walk. When everything under a container is done, the container is rolled up and settles too.
//!
//! Tasks append events; only this module takes them and moves containers. Each edge of the tree is walked once.
use crate::{
    core::Core,
    ingest::{
        cancel,
        options::Options,
        postings::{AsRead, Unread},
        queueing::{Queueing, Work, add_to_files},
        reprocess,
        segments::outdate_sums,
        tasks::{
            rollup,
            types::{STRUCTURE_SEMANTIC, SUMMARIZE, TaskType, TaskTypes},
        },
    },
    search::bm25,
    store::{
        self,
        away::{away, sql_state},
        evidence::Evidence,
        ingest_nodes::{Belongs, ChildrenDone, Frontier, Left, Rollup, Touched},
        nodes::Landed,
        places::Place,
        rollups::Finished,
    },
};
use serde_json::{Map, Value, json};
use sqlx::{PgConnection, PgPool};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use svc_actors::{Lane, Lanes};
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId};

/// The lanes of the tasks that settling queues.
pub const QUEUES: Lanes = Lanes::of(Lane::Model).with(Lanes::of(Lane::Cpu));
/// How many failed parts of a file are named in its warning.
const NAMED_PARTS: i64 = 5;
/// How many files are settled in one transaction.
const FILES: usize = 500;

/// Takes all settle events of a root, unless somebody else is doing so: they will see ours too, or the sweep will.
/// Returns true if tasks were queued.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn settle(core: &Core, root_id: RootId) -> Result<bool, bm25::Error> {
    settle_together(core, vec![root_id], AsRead::default()).await
}

/// Takes all settle events of roots, as many statements for all of them as for one. Returns true if tasks were queued. With postings of what settles it is
/// done once; otherwise they are made when it is known what settles.
async fn settle_together(core: &Core, mut roots: Vec<RootId>, mut postings: AsRead) -> Result<bool, bm25::Error> {
    let mut queued = false;
    loop {
        // What a crash of the server takes back is made again from the events, which the tasks have committed.
        let (mut tx, taken) = store::transaction::begin_settling(&core.pool, &roots).await?;
        roots = taken;
        if roots.is_empty() {
            tx.rollback().await?;
            return Ok(queued);
        }
        let applied = match store::ingest_nodes::apply_events(&mut tx, &roots).await {
            Ok(touched) => apply(core, &mut tx, touched, std::mem::take(&mut postings)).await,
            Err(error) => Err(error.into()),
        };
        match applied {
            Ok(Ok(more)) => queued |= more,
            Err(error) => {
                // Whoever recounts the root must find its lock free. The error itself says more than that of a rollback.
                let _ = tx.rollback().await;
                return Err(error);
            }
            Ok(Err(unread)) => {
                tx.rollback().await?;
                postings = AsRead::prepare(core, &unread).await?;
                continue;
            }
        }
        // What was settled has events for what is above it. And since we looked, somebody may have committed one and left because we held the lock.
        let left = store::ingest_nodes::commit_and_look(tx, &roots).await?;
        let (again, over): (Vec<Left>, Vec<Left>) = left.into_iter().partition(|left| left.has_events);
        for generation in over.into_iter().flat_map(|left| left.ended) {
            reprocess::end_or_leave(core, generation).await;
        }
        roots = again.into_iter().map(|left| left.root_id).collect();
        if roots.is_empty() {
            return Ok(queued);
        }
    }
}

/// Settles containers under which nothing is open any more, or queues their rollups. Returns true if it queued some.
async fn apply(
    core: &Core,
    conn: &mut PgConnection,
    touched: Vec<Touched>,
    postings: AsRead,
) -> Result<Result<bool, Unread>, bm25::Error> {
    let is_done = |node: &Touched| {
        // A queued rollup has no task of its own that is open at the node: one task rolls up many containers.
        let is_open = node.open_tasks > 0 || node.open_children > 0 || node.rollup.0 == Rollup::Queued;
        node.settled.0 == Settled::InFlight && !is_open && !node.is_cancelled
    };
    let (mut rollups, mut settled): (Vec<Touched>, Vec<Touched>) =
        touched.into_iter().filter(is_done).partition(has_no_rollup);
    // A container is rolled up once, if something settled under it.
    if !rollups.is_empty() {
        let settled_under = store::rollups::with_settled_child(conn, &ids(&rollups)).await?;
        settled.extend(rollups.extract_if(.., |node| !settled_under.contains(&node.document_id)));
    }
    if let Err(unread) = finish_nodes(core, conn, &settled, postings).await? {
        return Ok(Err(unread));
    }
    if !rollups.is_empty() {
        queue_rollups(conn, &core.settings.task_badges, &rollups).await?;
    }
    Ok(Ok(!rollups.is_empty()))
}

/// Does the same for callers that cannot report an error: the events stay, and the sweep takes what is left. Returns
/// true if tasks may have been queued.
pub async fn settle_or_leave(core: &Core, root_id: RootId) -> bool {
    or_leave(root_id, settle(core, root_id).await)
}

/// Does the same after a task whose end most likely settles these containers of the root.
pub async fn settle_likely_or_leave(core: &Core, root_id: RootId, likely: &[DocumentId]) -> bool {
    let settled = async { settle_together(core, vec![root_id], AsRead::prepare(core, likely).await?).await };
    or_leave(root_id, settled.await)
}

fn or_leave(root_id: RootId, settled: Result<bool, bm25::Error>) -> bool {
    settled.unwrap_or_else(|error| {
        tracing::warn!(root.id = root_id.0, error = %error, "settling failed; the sweep will do it");
        true
    })
}

/// Does the same for many roots, hundreds of them in one transaction.
pub async fn settle_all_or_leave(core: &Core, roots: &[RootId]) -> bool {
    let mut queued = false;
    for part in roots.chunks(FILES) {
        match settle_together(core, part.to_vec(), AsRead::default()).await {
            Ok(more) => queued |= more,
            Err(error) => {
                tracing::warn!(files = part.len(), error = %error, "files could not be settled together; each is settled alone");
                // What was committed before the error may have queued some.
                queued = true;
                for root_id in part {
                    settle_or_leave(core, *root_id).await;
                }
            }
        }
    }
    queued
}

fn has_no_rollup(node: &Touched) -> bool {
    matches!(node.rollup.0, Rollup::None | Rollup::Segmented)
}

fn ids<'a>(nodes: impl IntoIterator<Item = &'a Touched>) -> Vec<DocumentId> {
    nodes.into_iter().map(|node| node.document_id).collect()
}

/// Queues the next task of the rollups of containers. A container with too many children is cut into segments first, by a task of its own.
/// The others are rolled up by a task at the root of each file for many of them: at a few milliseconds for each task, those of a
/// file of a thousand sections would take longer than the rollups.
async fn queue_rollups(
    conn: &mut PgConnection,
    badges: &BTreeMap<String, String>,
    nodes: &[Touched],
) -> sqlx::Result<()> {
    let files: BTreeSet<RootId> = nodes.iter().map(|node| node.root_id).collect();
    let options = options_of(conn, &files).await?;
    let most = |node: &Touched| {
        let options = options.get(&node.root_id).map(|(options, _)| options.rollup.max_children);
        options.unwrap_or(usize::MAX)
    };
    let params = |task: &TaskType, root_id: RootId| {
        options.get(&root_id).map(|(_, value)| task.params(value)).unwrap_or_default()
    };
    let whole = nodes.iter().filter(|node| node.rollup.0 == Rollup::None);
    let whole: Vec<(DocumentId, usize)> = whole.map(|node| (node.document_id, most(node))).collect();
    let long = store::segments::with_more_children(conn, &whole).await?;
    let (long, short): (Vec<&Touched>, Vec<&Touched>) = nodes.iter().partition(|node| long.contains(&node.document_id));
    let (mut at, mut waiting) = (ids(long.iter().copied()), ids(long.iter().copied()));
    for node in long {
        let work = Work::of(&STRUCTURE_SEMANTIC).params(Value::Object(params(&STRUCTURE_SEMANTIC, node.root_id)));
        Queueing::of_file(node.root_id, badges).add(conn, &node.place(), work).await?;
    }
    let mut by_file: BTreeMap<RootId, Vec<&Touched>> = BTreeMap::new();
    for node in short {
        by_file.entry(node.root_id).or_default().push(node);
    }
    let mut tasks = Vec::new();
    for (root_id, nodes) in by_file {
        for part in nodes.chunks(rollup::CONTAINERS) {
            let Some(root) = part.first().and_then(|node| root_of(node)) else { continue };
            let containers = ids(part.iter().copied());
            let mut params = params(&SUMMARIZE, root_id);
            params.insert(rollup::PARAM.to_owned(), json!(containers));
            at.push(root.id());
            waiting.extend(containers);
            tasks.push((root_id, root, Value::Object(params)));
        }
    }
    add_to_files(badges, conn, &SUMMARIZE, &tasks).await?;
    store::rollups::queue(conn, &at, &waiting).await
}

/// The root of ingestion at or above a container.
fn root_of(node: &Touched) -> Option<Place> {
    let place = node.place();
    match node.document_id == node.root_id.document() {
        true => Some(place),
        false => place.containers(node.root_id.document()).into_iter().next(),
    }
}

/// The options of each of these files, also as they are written; the defaults for what is no file.
async fn options_of(
    conn: &mut PgConnection,
    files: &BTreeSet<RootId>,
) -> sqlx::Result<BTreeMap<RootId, (Options, Value)>> {
    let documents: Vec<DocumentId> = files.iter().map(|file| file.document()).collect();
    let mut stored = store::blobs::options(conn, &documents).await?;
    let each = files.iter().map(|file| {
        let stored = stored.remove(&file.document());
        let options: Options = stored.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
        let value = options.to_value();
        (*file, (options, value))
    });
    Ok(each.collect())
}

async fn finish_nodes(
    core: &Core,
    conn: &mut PgConnection,
    nodes: &[Touched],
    postings: AsRead,
) -> Result<Result<(), Unread>, bm25::Error> {
    if nodes.is_empty() {
        return Ok(Ok(()));
    }
    for node in nodes.iter().filter(|node| has_no_rollup(node)) {
        let id = node.document_id;
        // Nothing settled under it, so the rollup counts as done without a result, and what an earlier one made is outdated.
        store::evidence::record(conn, id, Evidence::EffectiveContent, &Value::Null).await?;
        match node.failed_children {
            0 => store::evidence::remove(conn, id, Evidence::Rollup).await?,
            failed => store::evidence::record(conn, id, Evidence::Rollup, &json!({"failed_children": failed})).await?,
        }
    }
    let empty = ids(nodes.iter().filter(|node| has_no_rollup(node)));
    store::rollups::forget_vectors(conn, &empty).await?;
    let is_empty_file = |node: &&Touched| has_no_rollup(node) && node.document_id == node.root_id.document();
    let files = ids(nodes.iter().filter(is_empty_file));
    if !files.is_empty() {
        outdate_sums(&core.settings.task_badges, conn, &files).await?;
    }
    let finished = |node: &Touched| Finished { id: node.document_id, parent_id: node.parent_id, root_id: node.root_id };
    finish(core, conn, &nodes.iter().map(finished).collect::<Vec<_>>(), postings).await
}

/// Settles containers of any files under which nothing is open, with these postings, and tells those that wait for them. The caller keeps the settler away from
/// them until its transaction ends, and undoes it if some are unread.
pub(super) async fn finish(
    core: &Core,
    conn: &mut PgConnection,
    nodes: &[Finished],
    postings: AsRead,
) -> Result<Result<(), Unread>, bm25::Error> {
    let left = leave_flight(conn, &ids_of(nodes)).await?;
    let landed: Vec<Finished> = nodes.iter().copied().filter(|node| left.contains(&node.id)).collect();
    if let Err(unread) = postings.write(core, conn, &ids_of(&landed)).await? {
        return Ok(Err(unread));
    }
    tell(conn, &landed, &HashSet::new()).await?;
    let roots: Vec<RootId> =
        nodes.iter().filter(|node| node.id == node.root_id.document()).map(|node| node.root_id).collect();
    if roots.is_empty() {
        return Ok(Ok(()));
    }
    let folded = store::ingest_nodes::fold_frontiers(conn, &roots).await?;
    let failed = |root_id: &RootId| folded.get(root_id).map_or(0, |frontier| frontier.failed);
    let (hurt, whole): (Vec<RootId>, Vec<RootId>) = roots.iter().copied().partition(|root_id| failed(root_id) > 0);
    for root_id in hurt {
        // Without this, a file without any readable text would look like any other settled file.
        let reasons: Map<String, Value> = store::evidence::reasons_of_failures(conn, root_id)
            .await?
            .into_iter()
            .map(|(reason, tasks)| (reason, tasks.into()))
            .collect();
        let parts = store::evidence::first_failed(conn, root_id, NAMED_PARTS).await?;
        let evidence = json!({"nodes": failed(&root_id), "tasks_by_reason": reasons, "parts": parts});
        store::evidence::record(conn, root_id.document(), Evidence::FailedParts, &evidence).await?;
    }
    // What failed before may have been tried again.
    let whole: Vec<DocumentId> = whole.into_iter().map(RootId::document).collect();
    store::evidence::remove_all(conn, &whole, Evidence::FailedParts).await?;
    let settled: Vec<RootId> = roots.into_iter().filter(|root_id| left.contains(&root_id.document())).collect();
    Ok(Ok(store::events::settled(conn, &settled).await?))
}

fn ids_of(nodes: &[Finished]) -> Vec<DocumentId> {
    nodes.iter().map(|node| node.id).collect()
}

/// Settles documents; returns those that were in flight.
pub(super) async fn leave_flight(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<HashSet<DocumentId>> {
    let moved = store::nodes::leave_flight(conn, ids, Settled::Settled).await?;
    Ok(moved.into_iter().map(|node| node.id).collect())
}

/// Tells of containers that settled: those that wait for them, but for the containers whose counts the caller sets itself, and whoever follows the
/// file's events.
pub(super) async fn tell(
    conn: &mut PgConnection,
    landed: &[Finished],
    counted: &HashSet<DocumentId>,
) -> sqlx::Result<()> {
    let waiting = landed.iter().filter_map(|node| Some((node.root_id, node.parent_id?)));
    let events = children_done(waiting.filter(|(_, parent)| !counted.contains(parent)), Settled::Settled);
    store::ingest_nodes::children_done(conn, &events).await?;
    let mut counts: BTreeMap<RootId, i64> = BTreeMap::new();
    for node in landed {
        *counts.entry(node.root_id).or_default() += 1;
    }
    let change = |count: i64| Frontier { in_flight: -count, settled: count, ..Frontier::default() };
    let changes: Vec<_> = counts.into_iter().map(|(root_id, count)| (root_id.document(), change(count))).collect();
    store::ingest_nodes::count_all(conn, &changes).await?;
    let told: Vec<(RootId, DocumentId)> = landed.iter().map(|node| (node.root_id, node.id)).collect();
    store::events::nodes(conn, &told).await
}

/// Records that leaves settled or failed together, and notifies their parents and the frontier.
pub async fn leaves_done(conn: &mut PgConnection, root_id: RootId, moved: &[Landed], to: Settled) -> sqlx::Result<()> {
    let events = children_done(moved.iter().filter_map(|node| Some((root_id, node.parent_id?))), to);
    store::ingest_nodes::children_done(conn, &events).await?;
    let count = moved.len() as i64;
    let change = if to == Settled::Failed {
        Frontier { in_flight: -count, failed: count, ..Frontier::default() }
    } else {
        Frontier { in_flight: -count, settled: count, ..Frontier::default() }
    };
    store::ingest_nodes::count(conn, root_id.document(), change).await
}

/// Builds the settle events for children that left flight together, from each child's root of ingestion and parent.
fn children_done(parents: impl Iterator<Item = (RootId, DocumentId)>, to: Settled) -> Vec<ChildrenDone> {
    let mut by_parent: BTreeMap<(RootId, DocumentId), i32> = BTreeMap::new();
    for parent in parents {
        *by_parent.entry(parent).or_default() += 1;
    }
    let failed = |done| if to == Settled::Failed { done } else { 0 };
    let event = |((root_id, parent_id), done)| ChildrenDone { root_id, parent_id, done, failed: failed(done) };
    by_parent.into_iter().map(event).collect()
}

/// Records that a task was cancelled, as [`task_failed`] does; what fails with it counts as failed by the file's cancel.
pub async fn task_cancelled(
    conn: &mut PgConnection,
    types: &TaskTypes,
    task_type: &str,
    document_id: DocumentId,
    params: &Value,
) -> sqlx::Result<Option<RootId>> {
    let Some((root_id, failed)) = fail_with_task(conn, types, task_type, document_id, params).await? else {
        return Ok(None);
    };
    if failed > 0 {
        store::cancelled::add_to_evidence(conn, root_id, failed).await?;
    }
    Ok(Some(root_id))
}

/// Records that a task will not run again: its node fails, or the leaves that it should have embedded do, and their
/// parents are notified.
pub async fn task_failed(
    conn: &mut PgConnection,
    types: &TaskTypes,
    task_type: &str,
    document_id: DocumentId,
    params: &Value,
) -> sqlx::Result<Option<RootId>> {
    Ok(fail_with_task(conn, types, task_type, document_id, params).await?.map(|(root_id, _)| root_id))
}

/// Fails what fails with a task; returns the root and the number of nodes.
async fn fail_with_task(
    conn: &mut PgConnection,
    types: &TaskTypes,
    task_type: &str,
    document_id: DocumentId,
    params: &Value,
) -> sqlx::Result<Option<(RootId, i64)>> {
    let Some(Belongs { root_id, parent_id }) = store::ingest_nodes::belongs(conn, document_id).await? else {
        return Ok(None);
    };
    if let Some(runs) = types.leaves_of_failure(task_type, params) {
        let rows = store::nodes::leaves(conn, document_id, &runs).await?;
        let ids: Vec<DocumentId> = rows.iter().map(|row| row.id).collect();
        let moved = store::nodes::leave_flight(conn, &ids, Settled::Failed).await?;
        leaves_done(conn, root_id, &moved, Settled::Failed).await?;
        if !moved.is_empty() {
            store::events::part_failed(conn, document_id, root_id).await?;
        }
        if store::ingest_nodes::is_counted(task_type) {
            store::ingest_nodes::task_over(conn, document_id).await?;
        }
        return Ok(Some((root_id, moved.len() as i64)));
    }
    if let Some(containers) = types.containers_of_failure(task_type, params) {
        let failed = fail_containers(conn, root_id, document_id, &containers).await?;
        return Ok(Some((root_id, failed)));
    }
    if let Some(rollup) = types.rollup_after_failure(task_type) {
        store::ingest_nodes::end_rollup(conn, document_id, rollup).await?;
        store::ingest_nodes::task_over(conn, document_id).await?;
        return Ok(Some((root_id, 0)));
    }
    let moved = store::nodes::leave_flight(conn, &[document_id], Settled::Failed).await?;
    if !moved.is_empty() {
        let change = Frontier { in_flight: -1, failed: 1, ..Frontier::default() };
        store::ingest_nodes::count(conn, root_id.document(), change).await?;
        if let Some(parent_id) = parent_id {
            let done = ChildrenDone { root_id, parent_id, done: 1, failed: 1 };
            store::ingest_nodes::children_done(conn, &[done]).await?;
        }
        store::events::failed(conn, document_id, root_id).await?;
    }
    store::ingest_nodes::close(conn, document_id).await?;
    Ok(Some((root_id, moved.len() as i64)))
}

/// Fails the containers that a task at their root was to roll up and that still wait for it; returns how many.
async fn fail_containers(
    conn: &mut PgConnection,
    root_id: RootId,
    at: DocumentId,
    containers: &[DocumentId],
) -> sqlx::Result<i64> {
    let waiting = store::rollups::lock(conn, at, containers).await?;
    let waiting: Vec<DocumentId> = waiting.iter().map(|container| container.place.id()).collect();
    let moved = store::nodes::leave_flight(conn, &waiting, Settled::Failed).await?;
    // What the file lies in does not wait for it.
    let parts: Vec<Landed> = moved.iter().copied().filter(|node| node.id != root_id.document()).collect();
    leaves_done(conn, root_id, &parts, Settled::Failed).await?;
    let alone = (moved.len() - parts.len()) as i64;
    let change = Frontier { in_flight: -alone, failed: alone, ..Frontier::default() };
    store::ingest_nodes::count(conn, root_id.document(), change).await?;
    for node in &moved {
        store::ingest_nodes::close(conn, node.id).await?;
    }
    match moved.is_empty() {
        true => {}
        false if alone > 0 => store::events::failed(conn, at, root_id).await?,
        false => store::events::part_failed(conn, at, root_id).await?,
    }
    if alone == 0 {
        store::ingest_nodes::task_over(conn, at).await?;
    }
    Ok(moved.len() as i64)
}

/// Locks what [`task_failed`] changes. Call this before locking a task in order to fail it for good.
pub async fn lock_for_failure(
    conn: &mut PgConnection,
    types: &TaskTypes,
    task_type: &str,
    document_id: DocumentId,
    params: &Value,
) -> sqlx::Result<()> {
    if let Some(containers) = types.containers_of_failure(task_type, params) {
        return store::rollups::lock(conn, document_id, &containers).await.map(|_| ());
    }
    let ids = match types.leaves_of_failure(task_type, params) {
        Some(runs) => {
            let rows = store::nodes::leaves(conn, document_id, &runs).await?;
            rows.into_iter().map(|row| row.id).collect()
        }
        None => vec![document_id],
    };
    store::locks::documents(conn, &ids).await?;
    store::locks::node(conn, document_id).await
}

/// Takes events that were left over. Returns true if tasks were queued.
pub async fn take_left(core: &Core) -> sqlx::Result<bool> {
    let roots = store::ingest_nodes::roots_with_events(&mut *core.pool.acquire().await?).await?;
    let mut queued = false;
    for root_id in roots {
        // A root that cannot be settled must not keep the others waiting.
        match settle(core, root_id).await {
            Ok(more) => queued |= more,
            // Without the database the others cannot be settled either.
            Err(bm25::Error::Database(error)) if away(&error).is_some() => return Err(error),
            Err(bm25::Error::Database(error)) if is_miscounted(&error) => {
                tracing::error!(root.id = root_id.0, error = %error, "this root could not be settled; recounting its nodes, which repairs the effect of a defect");
                recount_or_leave(&core.pool, root_id).await?;
            }
            Err(error) => {
                tracing::warn!(root.id = root_id.0, error = %error, "this root could not be settled; the next sweep tries again");
            }
        }
    }
    Ok(queued)
}

/// Whether counts do not fit what is there: only they break a constraint where tasks end and nodes settle (class 23 of PostgreSQL's errors).
pub(crate) fn is_miscounted(error: &sqlx::Error) -> bool {
    sql_state(error).starts_with("23")
}

/// Counts the tasks of a node anew, because one of them could not be ended for the count.
pub(crate) async fn recount_tasks(pool: &PgPool, document_id: DocumentId, error: &sqlx::Error) -> sqlx::Result<()> {
    tracing::error!(document.id = document_id.0, %error, "a task could not be ended; recounting those of its node, which repairs the effect of a defect");
    let mut tx = store::transaction::begin(pool).await?;
    store::locks::node(&mut tx, document_id).await?;
    store::cancelled::recount_tasks(&mut tx, &[document_id]).await?;
    tx.commit().await
}

/// Recounts the nodes of a root. One that cannot be recounted must not keep the others waiting either, so only a database that is away is an error.
async fn recount_or_leave(pool: &PgPool, root_id: RootId) -> sqlx::Result<()> {
    match recount(pool, root_id).await {
        Err(error) if away(&error).is_none() => {
            tracing::error!(root.id = root_id.0, error = %error, "the nodes of this root could not be recounted; the next sweep tries again");
            Ok(())
        }
        recounted => recounted,
    }
}

async fn recount(pool: &PgPool, root_id: RootId) -> sqlx::Result<()> {
    // If a crash takes this back, the next look at every root finds it again.
    let (mut tx, taken) = store::transaction::begin_settling(pool, &[root_id]).await?;
    if taken.is_empty() {
        return tx.rollback().await;
    }
    // A task that ends while this counts would be counted on top of it.
    store::locks::nodes(&mut tx, root_id).await?;
    store::ingest_nodes::recount(&mut tx, root_id).await?;
    tx.commit().await
}

/// Does what was left over: marks the remaining nodes of cancelled files, and takes the remaining events.
pub async fn sweep(core: &Core) -> sqlx::Result<bool> {
    let cancelled = store::cancelled::roots(&mut *core.pool.acquire().await?).await?;
    for root_id in cancelled {
        if let Err(error) = cancel::fail_rest(&core.pool, root_id, root_id.document()).await {
            tracing::error!(root.id = root_id.0, error = %error, "could not mark the nodes of a cancelled file; the next sweep tries again");
        }
    }
    take_left(core).await
}

/// Repairs roots that would wait for ever; the next sweep settles them. This looks at every root in flight.
pub async fn repair(pool: &PgPool) -> sqlx::Result<()> {
    let stalled = store::ingest_nodes::stalled_roots(&mut *pool.acquire().await?).await?;
    for root_id in stalled {
        tracing::error!(
            root.id = root_id.0,
            "nodes are in flight with nothing left to do; recounting them, which repairs the effect of a defect"
        );
        recount_or_leave(pool, root_id).await?;
    }
    Ok(())
}
