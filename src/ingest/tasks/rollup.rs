//! summarize: gives containers a vector: the weighted sum of their children's vectors, which is that of all the tokens under a container,
//! so no text is embedded twice. If the text under a container does not fit the model's window, a language model is to paraphrase it.
//!
//! One task at the root of a file rolls up many containers, and then those above them, level by level, as far as nothing else under them is open: a task
//! for each level would make the file wait for each. The task reads and writes in its one transaction, which locks them: so it meets no
//! edit half done, and leaves out what was edited, deleted or cancelled since it was queued. Where the file is being settled meanwhile, the task leaves
//! what is above to the settler.
use super::{Apply, OrTaskFailure, apply::Transaction, structure::model, types::SUMMARIZE_LLM};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        postings::AsRead,
        queueing::{Queueing, Work},
        segments::outdate_sums,
        settle, sums,
    },
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::Rollup,
        places::Place,
        rollups::{Container, Finished, Open},
    },
};
use serde_json::{Map, Value, json};
use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};
use svc_actors::{Outcome, TaskFailure};
use svc_ids::DocumentId;

/// The parameter that lists the containers of a task.
pub const PARAM: &str = "containers";
/// The most containers of one task, which bounds how long it holds their locks.
pub const CONTAINERS: usize = 500;
/// How many containers have their texts in memory at once: each has at most a window of text.
const TEXTS: usize = 64;
/// The most bytes of a text for each token of the window, because a tokenizer may take a long word for one token. What has more is not read.
const TOKEN_BYTES: usize = 64;

/// The containers that a task's parameters name.
pub fn containers_of(params: &Value) -> Vec<DocumentId> {
    params.get(PARAM).and_then(|ids| serde_json::from_value(ids.clone()).ok()).unwrap_or_default()
}

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let model = model(tools).await?;
    let root_id = apply.grant.root_id;
    let postings = may_settle(tools, &apply).await?;
    let (mut tx, keeps_settler_away) = apply.begin_settling().await?;
    let failure = match roll_up(tools, &mut tx, &model, keeps_settler_away, postings).await {
        Ok(detail) => return tx.complete(detail).await,
        Err(failure) => failure,
    };
    tx.undo().await?;
    // Whoever was kept away meanwhile has left its events to this task.
    if keeps_settler_away && settle::settle_or_leave(tools, root_id).await {
        tools.wake.notify(settle::QUEUES);
    }
    Err(failure)
}

/// The postings of the containers of a task and of those above them, which settle with it if nothing else under them is open; the one where the task stands
/// settles after it.
async fn may_settle(tools: &Tools, apply: &Apply<'_>) -> Result<AsRead, TaskFailure> {
    let wanted = containers_of(&apply.grant.params);
    let found = {
        let mut conn = tools.pool.acquire().await.classified()?;
        store::rollups::with_above(&mut conn, apply.grant.root_id, &wanted).await.classified()?
    };
    let ids = found.iter().map(|container| container.id).filter(|id| *id != apply.grant.document_id);
    let ids: Vec<DocumentId> = ids.collect();
    AsRead::prepare(tools, &ids).await.classified()
}

/// Rolls up what a task was asked for and what is above. Returns the detail of the attempt.
async fn roll_up(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    model: &Model,
    keeps_settler_away: bool,
    postings: AsRead,
) -> Result<Map<String, Value>, TaskFailure> {
    let grant = tx.grant();
    let wanted = containers_of(&grant.params);
    let above = if keeps_settler_away { find_above(tx, &wanted).await? } else { Vec::new() };
    let locked = store::rollups::lock_with(tx.conn(), grant.document_id, &wanted, &above).await;
    let (mut next, mut above) = locked.classified()?;
    let asked_for: HashSet<DocumentId> = wanted.into_iter().collect();

    let mut rolled_up = RolledUp::default();
    let (mut landed, mut done_under) = (Vec::new(), HashMap::new());
    above.sort_by_key(|container| (Reverse(container.depth), container.id));
    let mut levels = above.chunk_by(|one, other| one.depth == other.depth);
    loop {
        let ids: Vec<DocumentId> = next.iter().map(|container| container.id).collect();
        let mut containers = store::rollups::read(tx.conn(), &ids).await.classified()?;
        // Whether something settled under a container that nobody asked for is the settler's question.
        containers.retain(|container| container.children > 0 || asked_for.contains(&container.place.id()));
        let undercounted: Vec<&Container> = containers.iter().filter(|container| container.is_undercounted).collect();
        if !undercounted.is_empty() {
            store::rollups::count_tokens(tx.conn(), &undercounted).await.classified()?;
        }
        let done = rolled_up.add(tx, model, containers).await?;
        if !keeps_settler_away {
            break;
        }
        // The task itself is still open where it stands.
        let ended = next.iter().filter(|container| done.contains(&container.id) && container.open_tasks == 0);
        let ended: Vec<Finished> = ended
            .map(|container| Finished { id: container.id, parent_id: container.parent_id, root_id: grant.root_id })
            .collect();
        let ids: Vec<DocumentId> = ended.iter().map(|container| container.id).collect();
        let left = settle::leave_flight(tx.conn(), &ids).await.classified()?;
        for container in ended.into_iter().filter(|container| left.contains(&container.id)) {
            if let Some(parent_id) = container.parent_id {
                *done_under.entry(parent_id).or_default() += 1;
            }
            landed.push(container);
        }
        let is_ready = |container: &&Open| waits_only_for(container, grant.document_id, &done_under);
        let Some(ready) = levels.find_map(|level| {
            let ready: Vec<Open> = level.iter().filter(is_ready).cloned().collect();
            (!ready.is_empty()).then_some(ready)
        }) else {
            break;
        };
        next = ready;
    }

    let RolledUp { all, evidence, done, long } = rolled_up;
    store::evidence::record_all(tx.conn(), &evidence).await.classified()?;
    if all.contains(&grant.root_id.document()) {
        let file = [grant.root_id.document()];
        outdate_sums(&tools.settings.task_badges, tx.conn(), &file).await.classified()?;
    }
    if keeps_settler_away {
        let waiting: Vec<DocumentId> = long.iter().map(Place::id).collect();
        let ids: Vec<DocumentId> = all.iter().copied().collect();
        store::rollups::ended(tx.conn(), &ids, &waiting).await.classified()?;
        let ids: Vec<DocumentId> = landed.iter().map(|container| container.id).collect();
        if postings.write(tools, tx.conn(), &ids).await.classified()?.is_err() {
            let message = "a title, or which indexes there are, changed while containers were rolled up";
            // However often somebody changes it, no container fails.
            return Err(TaskFailure { counts: false, ..TaskFailure::retryable("titles_changed", message) });
        }
        settle::tell(tx.conn(), &landed, &all).await.classified()?;
    } else {
        store::rollups::done(tx.conn(), grant.root_id, &done).await.classified()?;
    }
    let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
    let mut params = grant.params.clone();
    params.as_object_mut().map(|params| params.remove(PARAM));
    for place in &long {
        let work = Work::of(&SUMMARIZE_LLM).params(params.clone());
        queueing.add(tx.conn(), place, work).await.classified()?;
        store::ingest_nodes::grow(tx.conn(), place.id(), 1, 0, 0).await.classified()?;
    }
    let mut detail = Map::new();
    detail.insert("containers".to_owned(), all.len().into());
    detail.insert("concatenated".to_owned(), done.len().into());
    Ok(detail)
}

/// The containers above those of a task that the task can roll up too, because nothing else under them is open. A container with so many children that
/// it is cut into segments first is not among them, and nothing above it.
async fn find_above(tx: &mut Transaction<'_>, wanted: &[DocumentId]) -> Result<Vec<DocumentId>, TaskFailure> {
    let grant = tx.grant();
    let Some(most) = grant.params["rollup"]["max_children"].as_u64() else { return Ok(Vec::new()) };
    let found = store::rollups::with_above(tx.conn(), grant.root_id, wanted).await.classified()?;
    let wanted: HashSet<DocumentId> = wanted.iter().copied().collect();
    let reached: HashSet<DocumentId> = reachable(&found, &wanted, grant.document_id).into_iter().collect();
    let uncut = found.iter().filter(|container| reached.contains(&container.id) && container.rollup.0 == Rollup::None);
    let uncut: Vec<(DocumentId, usize)> =
        uncut.map(|container| (container.id, usize::try_from(most).unwrap_or(usize::MAX))).collect();
    if uncut.is_empty() {
        return Ok(Vec::from_iter(reached));
    }
    let long = store::segments::with_more_children(tx.conn(), &uncut).await.classified()?;
    let short: Vec<Open> = found.into_iter().filter(|container| !long.contains(&container.id)).collect();
    Ok(reachable(&short, &wanted, grant.document_id))
}

/// Those of the containers of a file that can be rolled up after the wanted ones, if all of these can be, and no more than one task may have with them. A task
/// stands at one of the containers.
fn reachable(containers: &[Open], wanted: &HashSet<DocumentId>, task_at: DocumentId) -> Vec<DocumentId> {
    let (mut reached, mut done_under) = (Vec::new(), HashMap::new());
    let mut containers: Vec<&Open> = containers.iter().collect();
    containers.sort_by_key(|container| Reverse(container.depth));
    for container in containers {
        let is_wanted = wanted.contains(&container.id);
        if !is_wanted && !waits_only_for(container, task_at, &done_under) {
            continue;
        }
        if let Some(parent_id) = container.parent_id {
            *done_under.entry(parent_id).or_default() += 1;
        }
        if !is_wanted {
            reached.push(container.id);
        }
    }
    // The deepest come first, so those that remain wait for none of those that are left to the settler.
    reached.truncate(CONTAINERS.saturating_sub(wanted.len()));
    reached
}

/// Whether a container is not rolled up yet and waits only for children that are done, and perhaps for the task that stands there.
fn waits_only_for(container: &Open, task_at: DocumentId, done_under: &HashMap<DocumentId, i32>) -> bool {
    let done = done_under.get(&container.id).copied().unwrap_or_default();
    let is_new = matches!(container.rollup.0, Rollup::None | Rollup::Segmented);
    is_new && done > 0 && container.open_children == done && container.open_tasks == i32::from(container.id == task_at)
}

/// What a task has rolled up.
#[derive(Default)]
struct RolledUp {
    all: HashSet<DocumentId>,
    evidence: Vec<(DocumentId, Evidence, Value)>,
    done: Vec<DocumentId>,
    /// Those whose text does not fit the window.
    long: Vec<Place>,
}

impl RolledUp {
    /// Gives containers their vectors, and notes what is to be said of them. Returns those that are done.
    async fn add(
        &mut self,
        tx: &mut Transaction<'_>,
        model: &Model,
        containers: Vec<Container>,
    ) -> Result<HashSet<DocumentId>, TaskFailure> {
        let ids: Vec<DocumentId> = containers.iter().map(|container| container.place.id()).collect();
        let texts = texts(tx, model, &containers).await?;
        let vectors = store::rollups::set_vectors(tx.conn(), &ids, model.identity()).await.classified()?;
        let window = model.document_window();
        let mut ended = HashSet::new();
        for container in containers {
            let id = container.place.id();
            let mut rollup = json!({"failed_children": container.failed_children});
            sums::tell(&mut rollup, vectors.get(&id).copied(), container.children);
            let effective = match texts.get(&id) {
                Some(text) => {
                    self.done.push(id);
                    ended.insert(id);
                    json!({"method": "concatenated", "source_children": container.children, "tokens": text.tokens, "window": window, "characters": text.characters})
                }
                None => {
                    rollup["not_concatenated"] = json!({"tokens": container.tokens, "window": window});
                    self.long.push(container.place);
                    Value::Null
                }
            };
            self.all.insert(id);
            self.evidence.push((id, Evidence::EffectiveContent, effective));
            self.evidence.push((id, Evidence::Rollup, rollup));
        }
        Ok(ended)
    }
}

/// The joined text under a container, which fits the window.
struct Text {
    tokens: usize,
    characters: usize,
}

/// The texts of those containers whose text fits the window.
async fn texts(
    tx: &mut Transaction<'_>,
    model: &Model,
    containers: &[Container],
) -> Result<HashMap<DocumentId, Text>, TaskFailure> {
    let window = model.document_window();
    let fitting = containers.iter().filter(|container| container.tokens <= window as i64);
    let fitting: Vec<DocumentId> = fitting.map(|container| container.place.id()).collect();
    let mut texts = HashMap::with_capacity(fitting.len());
    for part in fitting.chunks(TEXTS) {
        let mut parts: HashMap<DocumentId, Vec<String>> = part.iter().map(|id| (*id, Vec::new())).collect();
        for (id, text) in store::rollups::texts(tx.conn(), part, window * TOKEN_BYTES).await.classified()? {
            match text {
                Some(text) => parts.entry(id).or_default().push(text),
                None => drop(parts.remove(&id)),
            }
        }
        let model = model.clone();
        let counted = tokio::task::spawn_blocking(move || {
            let count = |(id, texts): (DocumentId, Vec<String>)| {
                let text = texts.join("\n\n");
                // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
                let tokens = model.count_tokens(&text).unwrap_or(text.len());
                (tokens <= window).then(|| (id, Text { tokens, characters: text.chars().count() }))
            };
            parts.into_iter().filter_map(count).collect::<Vec<_>>()
        });
        texts.extend(counted.await.classified()?);
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::word::Word;

    /// Containers 1 to 6 of a file: 2 and 3 are in 1, 4 and 5 in 2, 6 in 3.
    fn file() -> Vec<Open> {
        let node = |id: i64, parent: Option<i64>, depth, open_children| Open {
            id: DocumentId(id),
            parent_id: parent.map(DocumentId),
            open_tasks: i32::from(id == 1),
            open_children,
            rollup: Word(if open_children == 0 { Rollup::Queued } else { Rollup::None }),
            depth,
        };
        vec![
            node(1, None, 0, 2),
            node(2, Some(1), 1, 2),
            node(3, Some(1), 1, 1),
            node(4, Some(2), 2, 0),
            node(5, Some(2), 2, 0),
            node(6, Some(3), 2, 0),
        ]
    }

    fn above(containers: Vec<Open>, wanted: &[i64]) -> Vec<i64> {
        let wanted = wanted.iter().map(|id| DocumentId(*id)).collect();
        reachable(&containers, &wanted, DocumentId(1)).into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn what_waits_only_for_the_wanted_is_reached_level_by_level() {
        assert_eq!(above(file(), &[4, 5, 6]), [2, 3, 1]);
        assert_eq!(above(file(), &[4, 5]), [2], "6 is open under 1");
        assert_eq!(above(file(), &[4, 6]), [3], "5 is open under 2");
        assert!(above(file(), &[]).is_empty());
    }

    #[test]
    fn a_task_has_no_more_containers_than_bound_how_long_it_takes() {
        let many = 2 * CONTAINERS as i64;
        let chain = (1..=many).map(|id| Open {
            id: DocumentId(id),
            parent_id: (id > 1).then_some(DocumentId(id - 1)),
            open_tasks: i32::from(id == 1),
            open_children: i32::from(id < many),
            rollup: Word(if id < many { Rollup::None } else { Rollup::Queued }),
            depth: id as i32,
        });
        let reached = above(chain.collect(), &[many]);
        assert_eq!((reached.len(), reached[0]), (CONTAINERS - 1, many - 1), "the deepest come first");
    }

    #[test]
    fn what_waits_for_something_else_is_not_reached_and_nothing_above_it() {
        let change = |at: usize, change: fn(&mut Open)| {
            let mut containers = file();
            change(&mut containers[at]);
            above(containers, &[4, 5, 6])
        };
        assert_eq!(change(1, |two| two.open_tasks = 1), [3]);
        assert_eq!(change(1, |two| two.open_children += 1), [3]);
        assert_eq!(change(1, |two| two.rollup = Word(Rollup::Done)), [3]);
        assert_eq!(change(1, |two| two.rollup = Word(Rollup::Queued)), [3]);
        assert_eq!(change(1, |two| two.rollup = Word(Rollup::Segmented)), [2, 3, 1]);
        // Another task than the one that asks stands at the file.
        assert_eq!(change(0, |one| one.open_tasks = 2), [2, 3]);
    }
}
