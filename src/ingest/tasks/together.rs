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
    ingest::{Tools, segments::outdate_sums, settle},
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
const APPLIED: usize = 500;
/// The most bytes of the texts of a group, which is in memory as a whole.
const BYTES: usize = 8 << 20;

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
/// database writes one group, this process embeds the answers to the next one.
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
    Ok(settle::settle_all_or_leave(&tools.pool, &tools.settings.task_badges, &roots).await)
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
        // A task that may have ended its worker runs alone, so that it takes no other with it.
        let is_ours = |grant: &Grant| grant.task_type == SUMMARIZE_LLM.name && !grant.runs_alone;
        let summaries: Vec<Grant> = grants.into_iter().filter(is_ours).collect();
        let ids: Vec<DocumentId> = summaries.iter().map(|grant| grant.document_id).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut conn = self.tools.pool.acquire().await.classified()?;
        // A text that surely takes more questions is read by a task of its own; here the texts of hundreds of tasks are read at once.
        let mut sources = summary::sources(&mut conn, &ids, Some(self.most)).await.classified()?;
        drop(conn);
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
        Ok(groups)
    }

    /// The questions of a group, without those of tasks that take several.
    async fn questions(&self, group: Vec<Member>) -> Result<Vec<Question>, TaskFailure> {
        let ids: Vec<DocumentId> =
            group.iter().flat_map(|(_, sources)| sources.iter().map(|source| source.id)).collect();
        let mut conn = self.tools.pool.acquire().await.classified()?;
        let texts = store::summaries::texts(&mut conn, &ids).await.classified()?;
        drop(conn);
        let question = |(grant, sources): Member| {
            let text = self.whole(&sources, &texts)?;
            let llm = summary::llm_of(&grant);
            let hash = summary::question(llm.as_deref().unwrap_or(&self.batching.model), &text, self.words);
            Some(Question { sources: summary::hashes(&sources), grant, llm, text, hash })
        };
        Ok(group.into_iter().filter_map(question).collect())
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
        let questions = self.needed(self.questions(group).await?).await?;
        let hashes: Vec<Vec<u8>> = questions.iter().map(|question| question.hash.clone()).collect();
        let tasks: Vec<TaskId> = questions.iter().map(|question| question.grant.task_id).collect();
        let mut conn = self.tools.pool.acquire().await.classified()?;
        let answered = store::summaries::answered(&mut conn, &hashes).await.classified()?;
        let with_errors = store::llm_batches::with_errors(&mut conn, &tasks).await.classified()?;
        drop(conn);
        let is_new = |one: &Question| !answered.contains(&one.hash) && !with_errors.contains(&one.grant.task_id);
        let tasks: Vec<Parking> = questions.into_iter().filter(is_new).map(|question| self.parking(question)).collect();
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let became = self.batching.park_all(&self.tools.pool, &tasks).await.classified()?;
        let waiting = tasks.iter().zip(became).filter(|(_, became)| *became == Parked::Waits);
        let waiting: Vec<&Grant> = waiting.map(|(task, _)| &task.grant).collect();
        show(worker, waiting.iter().copied(), AttemptOutcome::Batched);
        Ok(waiting.iter().map(|grant| grant.task_id).collect())
    }

    fn parking(&self, question: Question) -> Parking {
        let Question { grant, sources, llm, text, hash } = question;
        let custom_id = format!("task-{}", grant.task_id);
        let model = llm.clone().unwrap_or_else(|| self.batching.model.clone());
        let line = self.batching.line(&custom_id, &summary::asked_for(self.tools, llm, &text, self.words));
        let requests = vec![Request { custom_id, asked: hash, line }];
        Parking { grant, model, requests, sources }
    }

    /// Prepares all answers to be written, a group at a time.
    async fn prepare_all(&self, stops: &AtomicBool, send: mpsc::Sender<Ready>) -> sqlx::Result<()> {
        let pool = &self.tools.pool;
        let mut conn = pool.acquire().await?;
        let batches = store::llm_batches::ended(&mut conn, self.batching.provider.as_str()).await?;
        drop(conn);
        for batch_id in batches {
            let mut after = 0;
            while !stops.load(Ordering::Relaxed) {
                let mut conn = pool.acquire().await?;
                let page = (after, APPLIED);
                let page = store::llm_batches::waiting(&mut conn, batch_id, SUMMARIZE_LLM.name, page).await?;
                drop(conn);
                let Some((grants, last)) = page else { break };
                after = last;
                self.prepare_page(grants, &send).await;
            }
        }
        Ok(())
    }

    async fn prepare_page(&self, grants: Vec<Grant>, send: &mpsc::Sender<Ready>) {
        let tasks = grants.len();
        let groups = match self.groups(grants).await {
            Ok(groups) => groups,
            Err(failure) => {
                left(&failure, tasks);
                return;
            }
        };
        for group in groups {
            // Beside the group that is written, only one is in memory with its texts and vectors.
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
        let mut questions = self.questions(group).await?;
        for question in &mut questions {
            // Only its hash is still needed.
            question.text = String::new();
        }
        let documents: Vec<DocumentId> = questions.iter().map(|question| question.grant.document_id).collect();
        let hashes: Vec<Vec<u8>> = questions.iter().map(|question| question.hash.clone()).collect();
        let mut conn = self.tools.pool.acquire().await.classified()?;
        let mut answers = store::summaries::answers(&mut conn, &documents, &hashes).await.classified()?;
        drop(conn);
        let mut answered: Vec<(Question, LlmAnswer)> = questions
            .into_iter()
            .filter_map(|question| answers.remove(&question.grant.document_id).map(|answer| (question, answer)))
            .filter(|(_, answer)| !answer.is_cut)
            .collect();
        let texts: Vec<String> = answered.iter_mut().map(|(_, answer)| std::mem::take(&mut answer.answer)).collect();
        let fitting = answered.into_iter().zip(self.fitting(texts).await?).filter(|(_, (_, fits))| *fits);
        let told = |text: String| Told { text, truncated_at: None };
        let summaries: Vec<Summary> =
            fitting.map(|((question, answer), (text, _))| Summary { question, told: told(text), answer }).collect();
        if summaries.is_empty() {
            return Ok(None);
        }
        let rows: Vec<_> = summaries.iter().map(|summary| summary::row(summary.id(), &summary.told.text)).collect();
        let embedded = windows::embed(&self.model, &rows).await?;
        let vectors = embedded.ids.into_iter().zip(embedded.vectors).collect();
        let (pool, width) = (&self.tools.pool, self.model.native_width());
        store::vectors::ensure_index(pool, self.model.identity(), width).await.classified()?;
        Ok(Some(Ready { begun, started_at, summaries, vectors }))
    }

    /// Writes what has been prepared, until nothing more comes.
    async fn write_all(&self, worker: &str, mut prepared: mpsc::Receiver<Ready>) {
        while let Some(ready) = prepared.recv().await {
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
        }
    }

    /// Writes summaries and ends their tasks, in one transaction. A task whose container, texts or claim is another by now is left out.
    async fn write(&self, worker: &str, ready: Ready) -> Result<Vec<Grant>, TaskFailure> {
        let Ready { begun, started_at, summaries, mut vectors } = ready;
        let badges = &self.tools.settings.task_badges;
        let mut tx = store::transaction::begin(&self.tools.pool).await.classified()?;
        // Who deletes, moves or closes something in one of these trees is not waited for.
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
        settle::finish(&mut tx, &finished).await.classified()?;
        let attempts: Vec<AttemptRow<'_>> = summaries
            .iter()
            .zip(&details)
            .map(|(summary, detail)| attempt(&summary.question.grant, worker, started_at, detail))
            .collect();
        if store::tasks::finish_all(&mut tx, &attempts).await.classified()? < attempts.len() as i64 {
            let message = "a task was not ours any more although its row was locked, which is a defect";
            return Err(TaskFailure::retryable("stale", message));
        }
        tx.commit().await.classified()?;
        Ok(summaries.into_iter().map(|summary| summary.question.grant).collect())
    }
}

/// About how many bytes the texts of sources have.
fn size(sources: &[Source]) -> usize {
    let size = |source: &Source| match usize::try_from(source.bytes) {
        Ok(bytes) if bytes > 0 => bytes,
        _ => SUMMARY_BYTES,
    };
    sources.iter().map(size).sum()
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
