//! Many summaries at once, in a process that asks by batches. A summary that takes one question, as nearly all do, is asked for together with others, and
//! applied together with others once its answer has come: what a task of its own would read and write is read and written in one statement for all.
//!
//! Whatever needs more is left to tasks of their own: parts and levels, an answer that was cut off or is too long, what a provider said against a
//! question, and everything of a group that fails.
use super::{
    Classify, OrTaskFailure,
    asking::{Calls, took},
    structure::model,
    summary::{self, Groups, PROMPT, Told},
    trace,
    types::SUMMARIZE_LLM,
    windows,
};
use crate::{
    embedding::Model,
    ingest::{Tools, postings::AsRead, segments::outdate_sums, settle},
    llm::Refused,
    llm_batches::Batching,
    otlp::Attribute,
    store::{
        self,
        evidence::Evidence,
        llm_batches::{Parked, Parking, Request},
        summaries::{LlmAnswer, Source},
        tasks::AttemptRow,
        vectors::Weighted,
    },
    telemetry,
};
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use svc_actors::{Grant, Lanes, TaskFailure};
use svc_client::wire::AttemptOutcome;
use svc_ids::{DocumentId, RootId, TaskId};
use tokio::sync::mpsc;

/// How many tasks are ended in one transaction.
const APPLIED: usize = 250;
/// How many groups are written at once, each by a process of the server with a core of its own.
const WRITTEN: usize = 2;
/// The most bytes of the texts of a group, which is in memory as a whole.
const BYTES: usize = 8 << 20;
/// The most bytes of an answer for each token of the window, so that the answers of a group fit the memory. A longer one is left to a task of its own,
/// since it hardly fits the window.
const TOKEN_BYTES: usize = 16;

/// About the most bytes of a summary below a container, whose size is not known before it is read.
const SUMMARY_BYTES: usize = 4096;

/// A task with the sources of its summary.
type Member = (Grant, Vec<Source>);

/// The question of a summary that takes only one.
struct Question {
    grant: Grant,
    /// The documents that it asks of, each with the hash of its text.
    sources: Vec<(DocumentId, String)>,
    /// The language model of the file's options.
    llm: Option<String>,
    text: String,
    hash: Vec<u8>,
}

/// A summary whose answer has come.
struct Summary {
    question: Question,
    told: Told,
    /// The answer, whose text is in `told`.
    answer: LlmAnswer,
}

impl Summary {
    fn id(&self) -> DocumentId {
        self.question.grant.document_id
    }
}

/// Summaries that only have to be written.
struct Ready {
    begun: Instant,
    started_at: DateTime<Utc>,
    summaries: Vec<Summary>,
    vectors: HashMap<DocumentId, Weighted>,
}

/// What all summaries have in common.
struct Common<'a> {
    tools: &'a Tools,
    batching: &'a Batching,
    model: Model,
    /// The most bytes of a text that takes one question.
    most: usize,
    words: usize,
}

/// Puts the questions of claimed tasks into batches. Returns the tasks that wait there; the others are left to the caller, who gives back those that are
/// still claimed and ends those of which somebody wants the end.
pub(crate) async fn ask(tools: &Tools, worker: &str, grants: Vec<Grant>) -> HashSet<TaskId> {
    let (mut asked, tasks) = (HashSet::new(), grants.len());
    let ended = async {
        let Some(common) = Common::new(tools).await? else { return Ok::<_, TaskFailure>(()) };
        for group in common.groups(grants).await? {
            let (tasks, files) = (group.len(), files_of(group.iter().map(|(grant, _)| grant)));
            match common.park(worker, group).await {
                Ok(parked) => asked.extend(parked),
                Err(failure) => left(&failure, tasks),
            }
            if settle_around(tools, &files).await.classified()? {
                tools.wake.notify(settle::QUEUES);
            }
        }
        Ok(())
    };
    if let Err(failure) = ended.await {
        left(&failure, tasks);
    }
    asked
}

/// Applies the answers to tasks that wait in batches which have ended, until somebody stops it; those to which nothing fits stay there. While the
/// database writes some groups, this process embeds the answers to the next one.
pub(crate) async fn apply(tools: &Tools, worker: &str, stops: &AtomicBool) -> sqlx::Result<()> {
    let common = match Common::new(tools).await {
        Ok(Some(common)) => common,
        Ok(None) => return Ok(()),
        Err(failure) => {
            left(&failure, 0);
            return Ok(());
        }
    };
    let (send, ready) = mpsc::channel(1);
    let (read, ()) = tokio::join!(common.prepare_all(stops, send), common.write_all(worker, ready));
    read
}

fn left(failure: &TaskFailure, tasks: usize) {
    tracing::warn!(
        code = failure.code,
        error = failure.message,
        tasks,
        "summaries cannot be made together; each is made alone"
    );
}

/// Shows what came of tasks, as each would by itself.
fn show<'a>(worker: &str, tasks: impl ExactSizeIterator<Item = &'a Grant>, outcome: AttemptOutcome) {
    let count = tasks.len() as u64;
    for grant in tasks {
        trace(grant, worker).end([Attribute::new("task.outcome", outcome.as_str())], None);
    }
    metrics::counter!(telemetry::TASKS_ENDED, "task_type" => SUMMARIZE_LLM.name, "outcome" => outcome.as_str())
        .increment(count);
}

/// Takes what is left to settle in the trees of these files, which were kept from the settler: the events of what was written, and those that tasks of
/// other files have left meanwhile. What a crash keeps from here, the sweep of the settler does. Returns true if tasks may have been queued.
async fn settle_around(tools: &Tools, files: &[RootId]) -> sqlx::Result<bool> {
    let mut conn = tools.pool.acquire().await?;
    let roots = store::ingest_nodes::with_something_left(&mut conn, files).await?;
    drop(conn);
    Ok(settle::settle_all_or_leave(tools, &roots).await)
}

fn files_of<'a>(tasks: impl Iterator<Item = &'a Grant>) -> Vec<RootId> {
    let files: BTreeSet<RootId> = tasks.map(|grant| grant.root_id).collect();
    Vec::from_iter(files)
}

impl<'a> Common<'a> {
    async fn new(tools: &'a Tools) -> Result<Option<Common<'a>>, TaskFailure> {
        let Some(batching) = tools.batching.as_deref() else { return Ok(None) };
        let (model, most) = (model(tools).await?, summary::most_bytes(tools));
        let words = summary::words(&model, most);
        Ok(Some(Common { tools, batching, model, most, words }))
    }

    /// The summaries among tasks whose texts may take one question, in groups that fit the memory.
    async fn groups(&self, grants: Vec<Grant>) -> Result<Vec<Vec<Member>>, TaskFailure> {
        let summaries = summaries_among(grants);
        let ids: Vec<DocumentId> = summaries.iter().map(|grant| grant.document_id).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut conn = self.tools.pool.acquire().await.classified()?;
        // The tasks of containers that are rolled up anew are skipped, each by itself.
        let ids = Vec::from_iter(store::rollups::waiting(&mut conn, &ids).await.classified()?);
        // A text that surely takes more questions is read by a task of its own; here the texts of hundreds of tasks are read at once.
        let sources = summary::sources(&mut conn, &ids, Some(self.most)).await.classified()?;
        drop(conn);
        Ok(in_groups(summaries, sources))
    }

    /// The same of tasks that wait in a batch. Who changes what is under their containers takes them out of it, so the texts that were asked of are those
    /// that are there; only where they were not kept with the question are they looked for.
    async fn groups_of(&self, batch_id: i64, grants: Vec<Grant>) -> Result<Vec<Vec<Member>>, TaskFailure> {
        let (kept, summaries) = (&self.tools.kept, summaries_among(grants));
        let tasks: Vec<TaskId> = summaries.iter().map(|grant| grant.task_id).collect();
        let mut sources: HashMap<DocumentId, Vec<Source>> = HashMap::new();
        let found = kept.run(async |conn| store::llm_batches::sources(conn, batch_id, &tasks).await).await;
        for source in found.classified()? {
            sources.entry(source.container).or_default().push(source);
        }
        let ids = summaries.iter().map(|grant| grant.document_id);
        let others: Vec<DocumentId> = ids.filter(|id| !sources.contains_key(id)).collect();
        if !others.is_empty() {
            let most = Some(self.most);
            let found = kept.run(async |conn| summary::sources(conn, &others, most).await).await;
            sources.extend(found.classified()?);
        }
        Ok(in_groups(summaries, sources))
    }

    /// The language model that is asked where a file's options name this one, or none.
    fn asked<'m>(&'m self, named: Option<&'m str>) -> &'m str {
        named.unwrap_or(&self.batching.model)
    }

    /// The questions of a group about these texts, without those of tasks that take several.
    fn questions(&self, group: Vec<Member>, texts: &HashMap<DocumentId, String>) -> Vec<Question> {
        let question = |(grant, sources): Member| {
            let text = self.whole(&sources, texts)?;
            let llm = summary::llm_of(&grant);
            let hash = summary::question(self.asked(llm.as_deref()), &text, self.words);
            Some(Question { sources: summary::hashes(&sources), grant, llm, text, hash })
        };
        group.into_iter().filter_map(question).collect()
    }

    /// Those of these questions that somebody has to be asked: a text that fits the window is its own summary.
    async fn needed(&self, mut questions: Vec<Question>) -> Result<Vec<Question>, TaskFailure> {
        let texts = questions.iter_mut().map(|question| std::mem::take(&mut question.text)).collect();
        let counted = self.fitting(texts).await?;
        let long = questions.into_iter().zip(counted).filter(|(_, (_, fits))| !fits);
        Ok(long.map(|(question, (text, _))| Question { text, ..question }).collect())
    }

    /// The texts of sources as one, if the language model can read them at once.
    fn whole(&self, sources: &[Source], texts: &HashMap<DocumentId, String>) -> Option<String> {
        let mut groups = Groups::new(self.most);
        for source in sources {
            let text = texts.get(&source.id).map_or("", String::as_str);
            if !groups.add(&source.title, text).is_empty() {
                return None;
            }
        }
        groups.end()
    }

    /// Says of texts whether each fits the window of the embedding model.
    async fn fitting(&self, texts: Vec<String>) -> Result<Vec<(String, bool)>, TaskFailure> {
        let model = self.model.clone();
        let counted = tokio::task::spawn_blocking(move || {
            let window = model.document_window();
            // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
            let counted = texts.into_iter().map(|text| {
                let tokens = model.count_tokens(&text).unwrap_or(text.len());
                (text, tokens <= window)
            });
            counted.collect::<Vec<_>>()
        });
        counted.await.classified()
    }

    async fn park(&self, worker: &str, group: Vec<Member>) -> Result<Vec<TaskId>, TaskFailure> {
        let ids = texts_of(&group);
        let mut conn = self.tools.pool.acquire().await.classified()?;
        let texts = store::summaries::texts(&mut conn, &ids).await.classified()?;
        drop(conn);
        let questions = self.needed(self.questions(group, &texts)).await?;
        drop(texts);
        let hashes: Vec<Vec<u8>> = questions.iter().map(|question| question.hash.clone()).collect();
        let tasks: Vec<TaskId> = questions.iter().map(|question| question.grant.task_id).collect();
        let mut conn = self.tools.pool.acquire().await.classified()?;
        let answered = store::summaries::answered(&mut conn, &hashes).await.classified()?;
        let with_errors = store::llm_batches::with_errors(&mut conn, &tasks).await.classified()?;
        drop(conn);
        let is_new = |one: &Question| !answered.contains(&one.hash) && !with_errors.contains(&one.grant.task_id);
        let questions: Vec<Question> = questions.into_iter().filter(is_new).collect();
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let models: BTreeSet<&str> = questions.iter().map(|question| self.asked(question.llm.as_deref())).collect();
        let refused = self.batching.refused(&self.tools.pool, &Vec::from_iter(models)).await.classified()?;
        let tasks: Vec<Parking> = questions.into_iter().map(|question| self.parking(question, &refused)).collect();
        let became = self.batching.park_all(&self.tools.pool, &tasks).await.classified()?;
        let waiting = tasks.iter().zip(became).filter(|(_, became)| *became == Parked::Waits);
        let waiting: Vec<&Grant> = waiting.map(|(task, _)| &task.grant).collect();
        show(worker, waiting.iter().copied(), AttemptOutcome::Batched);
        Ok(waiting.iter().map(|grant| grant.task_id).collect())
    }

    fn parking(&self, question: Question, refused: &HashMap<String, Refused>) -> Parking {
        let Question { grant, sources, llm, text, hash } = question;
        let custom_id = format!("task-{}", grant.task_id);
        let model = self.asked(llm.as_deref()).to_owned();
        let line = self.batching.line(&custom_id, &summary::asked_for(self.tools, llm, &text, self.words), refused);
        let asked_of = sources.iter().map(|(id, _)| *id).collect();
        let requests = vec![Request { custom_id, asked: hash, sources: asked_of, line }];
        Parking { grant, model, requests, sources }
    }

    /// Prepares all answers to be written, a group at a time. What it reads has a connection of its own, on which each statement is planned once.
    async fn prepare_all(&self, stops: &AtomicBool, send: mpsc::Sender<Ready>) -> sqlx::Result<()> {
        let kept = &self.tools.kept;
        let provider = self.batching.provider.as_str();
        let batches = kept.run(async |conn| store::llm_batches::ended(conn, provider).await).await?;
        for batch_id in batches {
            let mut after = 0;
            while !stops.load(Ordering::Relaxed) {
                let (name, page) = (SUMMARIZE_LLM.name, (after, APPLIED));
                let page = kept.run(async |conn| store::llm_batches::waiting(conn, batch_id, name, page).await).await?;
                let Some((grants, last)) = page else { break };
                after = last;
                self.prepare_page(batch_id, grants, &send).await;
            }
        }
        Ok(())
    }

    async fn prepare_page(&self, batch_id: i64, grants: Vec<Grant>, send: &mpsc::Sender<Ready>) {
        let tasks = grants.len();
        let groups = match self.groups_of(batch_id, grants).await {
            Ok(groups) => groups,
            Err(failure) => {
                left(&failure, tasks);
                return;
            }
        };
        for group in groups {
            // Beside the groups that are written, only one is in memory with its texts and vectors.
            let Ok(room) = send.reserve().await else { return };
            let tasks = group.len();
            match self.prepare(group).await {
                Ok(Some(ready)) => room.send(ready),
                Ok(None) => {}
                Err(failure) => left(&failure, tasks),
            }
        }
    }

    /// Embeds the answers to the questions of a group; `None` if there are none.
    async fn prepare(&self, group: Vec<Member>) -> Result<Option<Ready>, TaskFailure> {
        let (begun, started_at) = (Instant::now(), Utc::now());
        let (kept, ids) = (&self.tools.kept, texts_of(&group));
        let texts = kept.run(async |conn| store::summaries::texts(conn, &ids).await).await.classified()?;
        let mut questions = self.questions(group, &texts);
        drop(texts);
        for question in &mut questions {
            // Only its hash is still needed.
            question.text = String::new();
        }
        let documents: Vec<DocumentId> = questions.iter().map(|question| question.grant.document_id).collect();
        let hashes: Vec<Vec<u8>> = questions.iter().map(|question| question.hash.clone()).collect();
        let most = i64::try_from(TOKEN_BYTES * self.model.document_window()).unwrap_or(i64::MAX);
        let answers = kept.run(async |conn| store::summaries::answers(conn, &documents, &hashes, most).await).await;
        let mut answers = answers.classified()?;
        let summary = |question: Question| {
            let mut answer = answers.remove(&question.grant.document_id)?;
            let told = Told { text: std::mem::take(&mut answer.answer), truncated_at: None };
            Some(Summary { question, told, answer })
        };
        let mut summaries: Vec<Summary> = questions.into_iter().filter_map(summary).collect();
        if summaries.is_empty() {
            return Ok(None);
        }
        let rows: Vec<_> = summaries.iter().map(|summary| summary::row(summary.id(), &summary.told.text)).collect();
        let embedded = windows::embed(&self.model, &rows).await?;
        // Whoever embeds a text has counted its tokens.
        summaries.retain(|summary| !embedded.too_long.contains(&summary.id()));
        if summaries.is_empty() {
            return Ok(None);
        }
        let vectors = embedded.ids.into_iter().zip(embedded.vectors).collect();
        Ok(Some(Ready { begun, started_at, summaries, vectors }))
    }

    /// Writes what has been prepared, until nothing more comes. Groups in the same tree are written one after the other, because whoever writes locks
    /// the trees of a group.
    async fn write_all(&self, worker: &str, mut prepared: mpsc::Receiver<Ready>) {
        let mut written = FuturesUnordered::new();
        let mut locked: HashSet<i64> = HashSet::new();
        loop {
            let ready = tokio::select! {
                ready = prepared.recv(), if written.len() < WRITTEN => ready,
                Some(trees) = written.next() => {
                    release(&mut locked, &trees);
                    continue;
                }
            };
            let Some(ready) = ready else { break };
            let trees = trees_of(&ready.summaries);
            while !locked.is_disjoint(&trees) {
                let Some(others) = written.next().await else { break };
                release(&mut locked, &others);
            }
            locked.extend(&trees);
            written.push(self.write_group(worker, ready, trees));
        }
        while written.next().await.is_some() {}
    }

    /// Writes a group, and settles what is around it; returns the trees that it is in.
    async fn write_group(&self, worker: &str, ready: Ready, trees: HashSet<i64>) -> HashSet<i64> {
        let tasks = ready.summaries.len();
        let files = files_of(ready.summaries.iter().map(|summary| &summary.question.grant));
        match self.write(worker, ready).await {
            Ok(applied) => show(worker, applied.iter(), AttemptOutcome::Completed),
            Err(failure) => left(&failure, tasks),
        }
        if let Err(error) = settle_around(self.tools, &files).await {
            left(&error.classify(), tasks);
        }
        // Others may wait for the regions, and settling may have queued tasks.
        self.tools.wake.notify(Lanes::ALL);
        trees
    }

    /// Writes summaries and ends their tasks, in one transaction. A task whose container, texts or claim is another by now is left out.
    async fn write(&self, worker: &str, ready: Ready) -> Result<Vec<Grant>, TaskFailure> {
        let Ready { begun, started_at, summaries, mut vectors } = ready;
        let badges = &self.tools.settings.task_badges;
        // What a crash of the server takes back is applied again: the tasks wait in their batch then, and the answers are kept.
        // Whoever closes or moves a document waits, and then removes these summaries, or came before this look.
        let postings = AsRead::prepare(self.tools, &documents_of(&summaries)).await.classified()?;
        let mut tx = store::transaction::begin_creating_unflushed(&self.tools.pool).await.classified()?;
        // Nobody here waits for a delete in one of these trees.
        let free = store::locks::try_trees(&mut tx, &documents_of(&summaries)).await.classified()?;
        let summaries = only(summaries, free);
        let ids = documents_of(&summaries);
        let Some(first) = ids.first() else {
            tx.rollback().await.classified()?;
            return Ok(Vec::new());
        };
        let containers = store::rollups::lock(&mut tx, *first, &ids).await.classified()?;
        let containers: HashMap<DocumentId, _> =
            containers.into_iter().map(|container| (container.place.id(), container)).collect();
        let claims: Vec<(DocumentId, &[(DocumentId, String)])> =
            summaries.iter().map(|summary| (summary.id(), summary.question.sources.as_slice())).collect();
        let unchanged = store::raptor::all_unchanged(&mut tx, &claims).await.classified()?;
        let mut summaries = only(summaries, unchanged);
        summaries.retain(|summary| containers.contains_key(&summary.id()));
        let held = {
            let grants: Vec<&Grant> = summaries.iter().map(|summary| &summary.question.grant).collect();
            store::llm_batches::lock(&mut tx, &grants).await.classified()?
        };
        summaries.retain(|summary| held.contains(&summary.question.grant.task_id));
        if summaries.is_empty() {
            tx.rollback().await.classified()?;
            return Ok(Vec::new());
        }

        let ids = documents_of(&summaries);
        let mut rollups = store::evidence::read_each(&mut tx, &ids, Evidence::Rollup).await.classified()?;
        let (with_vector, weighted): (Vec<DocumentId>, Vec<Weighted>) =
            ids.iter().filter_map(|id| Some((*id, vectors.remove(id)?))).unzip();
        let have_vectors: HashSet<DocumentId> = with_vector.iter().copied().collect();
        let window = self.model.document_window();
        let (mut evidence, mut details) = (Vec::with_capacity(3 * ids.len()), Vec::with_capacity(ids.len()));
        for summary in &summaries {
            let (id, answer) = (summary.id(), &summary.answer);
            let effective = summary::effective(&containers[&id], window, &summary.told, 0);
            let calls = Calls { all: 1, kept: 1, batched: usize::from(answer.batch_id.is_some()) };
            let tokens = (answer.prompt_tokens, answer.completion_tokens);
            let took = took(PROMPT, &answer.model, calls, tokens, begun);
            details.push(took.as_object().cloned().unwrap_or_default());
            evidence.push((id, Evidence::EffectiveContent, effective));
            evidence.push((id, Evidence::Rollup, summary::rolled_up(rollups.remove(&id), have_vectors.contains(&id))));
            evidence.push((id, Evidence::LlmSummarize, took));
        }
        let model = self.model.identity();
        store::summaries::set_vectors(&mut tx, &with_vector, &weighted, model).await.classified()?;
        store::evidence::record_all(&mut tx, &evidence).await.classified()?;
        let tasks: Vec<TaskId> = summaries.iter().map(|summary| summary.question.grant.task_id).collect();
        let hashes: Vec<Vec<u8>> = summaries.iter().map(|summary| summary.question.hash.clone()).collect();
        let name = SUMMARIZE_LLM.name;
        store::summaries::keep_only_one(&mut tx, name, &ids, &tasks, &hashes).await.classified()?;
        let is_file = |summary: &&Summary| summary.id() == summary.question.grant.root_id.document();
        let files: Vec<DocumentId> = summaries.iter().filter(is_file).map(Summary::id).collect();
        outdate_sums(badges, &mut tx, &files).await.classified()?;
        let finished = store::rollups::end(&mut tx, &ids).await.classified()?;
        if settle::finish(self.tools, &mut tx, &finished, postings).await.classified()?.is_err() {
            let message = "a title, or which indexes there are, changed while summaries were written";
            return Err(TaskFailure { counts: false, ..TaskFailure::retryable("titles_changed", message) });
        }
        let attempts: Vec<AttemptRow<'_>> = summaries
            .iter()
            .zip(&details)
            .map(|(summary, detail)| attempt(&summary.question.grant, worker, started_at, detail))
            .collect();
        if store::tasks::finish_all(&mut tx, &attempts, None).await.classified()? < attempts.len() as i64 {
            let message = "a task was not ours any more although its row was locked, which is a defect";
            return Err(TaskFailure::retryable("stale", message));
        }
        tx.commit().await.classified()?;
        Ok(summaries.into_iter().map(|summary| summary.question.grant).collect())
    }
}

/// The summaries among tasks, without those that may have ended their worker: these run alone, so that they take no other with them.
fn summaries_among(grants: Vec<Grant>) -> Vec<Grant> {
    let is_ours = |grant: &Grant| grant.task_type == SUMMARIZE_LLM.name && !grant.runs_alone;
    grants.into_iter().filter(is_ours).collect()
}

/// Summaries with their sources, in groups that fit the memory; those without any are left out.
fn in_groups(summaries: Vec<Grant>, mut sources: HashMap<DocumentId, Vec<Source>>) -> Vec<Vec<Member>> {
    let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0);
    for grant in summaries {
        let Some(sources) = sources.remove(&grant.document_id) else { continue };
        let about = size(&sources);
        if bytes + about > BYTES && !group.is_empty() {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
        bytes += about;
        group.push((grant, sources));
    }
    groups.extend(Some(group).filter(|group| !group.is_empty()));
    groups
}

/// About how many bytes the texts of sources have.
fn size(sources: &[Source]) -> usize {
    let size = |source: &Source| match usize::try_from(source.bytes) {
        Ok(bytes) if bytes > 0 => bytes,
        _ => SUMMARY_BYTES,
    };
    sources.iter().map(size).sum()
}

/// The documents whose texts a group asks of.
fn texts_of(group: &[Member]) -> Vec<DocumentId> {
    group.iter().flat_map(|(_, sources)| sources.iter().map(|source| source.id)).collect()
}

/// The topmost documents of the trees that summaries are in.
fn trees_of(summaries: &[Summary]) -> HashSet<i64> {
    let grants = summaries.iter().map(|summary| &summary.question.grant);
    grants.map(|grant| grant.region.path.first().copied().unwrap_or(grant.document_id.0)).collect()
}

fn release(locked: &mut HashSet<i64>, trees: &HashSet<i64>) {
    locked.retain(|tree| !trees.contains(tree));
}

fn attempt<'a>(
    grant: &'a Grant,
    worker: &'a str,
    started_at: DateTime<Utc>,
    detail: &'a Map<String, Value>,
) -> AttemptRow<'a> {
    AttemptRow { grant, worker, started_at, outcome: AttemptOutcome::Completed, detail }
}

fn documents_of(summaries: &[Summary]) -> Vec<DocumentId> {
    summaries.iter().map(Summary::id).collect()
}

/// Those of these summaries of which it is true.
fn only(summaries: Vec<Summary>, are: Vec<bool>) -> Vec<Summary> {
    summaries.into_iter().zip(are).filter(|(_, is)| *is).map(|(summary, _)| summary).collect()
}
