//! The table of task types. Dispatch, rules, queueing, requeueing and the types that a worker announces derive from it.
//! The order of an ingestion is in `actors/src/stage.rs`.
use super::{
    Apply, Run, embed, extract, facts, ocr, probe, profile, raptor, records, reembed, registered, rollup, semantic,
    sheets, structure, summary, tables, titles,
};
use crate::{
    ingest::{
        extension::{TaskDeclaration, TaskHandler},
        options::{self, OptionGroup},
    },
    store::{extraction, images, ingest_nodes::Rollup, members, model_moves, raptor::RULE},
};
use serde_json::{Map, Value};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::Failure;
use svc_ids::DocumentId;

/// One task type.
pub struct TaskType {
    pub name: &'static str,
    pub lane: Lane,
    /// The region that it reserves, unless the code that queues it says otherwise.
    pub write_mode: WriteMode,
    /// The groups of the file's options that its parameters carry.
    pub options: &'static [&'static str],
    run: Runner,
    pub final_failure: FinalFailure,
    /// The lanes of the tasks that it queues, or that can start when it ends.
    leads_to: Lanes,
}

/// Who runs a task type.
enum Runner {
    Here(Run),
    /// It runs where an OCR engine is configured; elsewhere a due task is deferred.
    WithOcr(Run),
    /// It runs where there is a model to which vectors may be moved; other workers leave it to those.
    WithComing(Run),
    Registered(Arc<dyn TaskHandler>),
}

/// The nodes that fail together with a task that does not run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalFailure {
    /// The task's node.
    Node,
    /// The leaves that the parameters name, under the node; the node if they name none.
    Leaves,
    /// The containers that the parameters name.
    Containers,
    /// None: the task only adds to what is there. A container waits for no such task of the service's own, only for those of other crates.
    Nothing,
    /// None: the node settles without the children that the task would have made. It waits for them if the task is put back.
    Addition,
    /// None: the container settles with what it has. Its rollup goes on from here.
    Container(Rollup),
}

/// Why scanned pages are not read.
pub const NO_ENGINE: &str = "there is no OCR engine: set SVC_OCR_ENGINE, and reprocess the file";

const CPU: Lanes = Lanes::of(Lane::Cpu);
const MODEL: Lanes = Lanes::of(Lane::Model);
const LLM: Lanes = Lanes::of(Lane::Llm);

pub static PROBE: TaskType = TaskType {
    name: "probe",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(probe::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
pub static EXTRACT_TEXT: TaskType = TaskType {
    name: "extract:text",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(extract::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
/// It says which tables there are; their nodes are made with those of the text.
pub static EXTRACT_TABLES: TaskType = TaskType {
    name: "extract:tables",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(tables::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
/// It adds pictures and charts to the file, which is as whole without them.
pub static EXTRACT_IMAGES: TaskType = TaskType {
    name: images::RULE,
    lane: Lane::Cpu,
    write_mode: WriteMode::Children,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(super::images::run(tools, apply))),
    final_failure: FinalFailure::Addition,
    leads_to: MODEL,
};
pub static OCR: TaskType = TaskType {
    name: "ocr",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::WithOcr(|tools, apply| Box::pin(ocr::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
pub static STRUCTURE_DECLARED: TaskType = TaskType {
    name: "structure:declared",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["structure"],
    run: Runner::Here(|tools, apply| Box::pin(structure::run(tools, apply, true))),
    final_failure: FinalFailure::Node,
    leads_to: MODEL,
};
pub static STRUCTURE_INFERRED: TaskType = TaskType {
    name: "structure:inferred",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["structure"],
    run: Runner::Here(|tools, apply| Box::pin(structure::run(tools, apply, false))),
    final_failure: FinalFailure::Node,
    leads_to: MODEL,
};
pub static STRUCTURE_SHEETS: TaskType = TaskType {
    name: "structure:sheets",
    lane: Lane::Cpu,
    write_mode: WriteMode::Children,
    options: &["structure", "profile"],
    run: Runner::Here(|tools, apply| Box::pin(sheets::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
/// The nodes that it makes are files, whose probes go on from there.
pub static EXTRACT_MEMBERS: TaskType = TaskType {
    name: members::RULE,
    lane: Lane::Cpu,
    write_mode: WriteMode::Children,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(super::members::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
pub static PROFILE_SHEET: TaskType = TaskType {
    name: "profile:sheet",
    lane: Lane::Cpu,
    write_mode: WriteMode::Children,
    options: &["profile"],
    run: Runner::Here(|tools, apply| Box::pin(profile::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU.with(MODEL),
};
pub static EXTRACT_SHEET: TaskType = TaskType {
    name: "extract:sheet",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["structure", "profile"],
    run: Runner::Here(|tools, apply| Box::pin(records::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: MODEL,
};
pub static EMBED: TaskType = TaskType {
    name: "embed",
    lane: Lane::Model,
    write_mode: WriteMode::Subtree,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(embed::run(tools, apply))),
    final_failure: FinalFailure::Leaves,
    leads_to: Lanes::NONE,
};
/// It embeds chunks anew because titles above them changed, some at a time, and keeps nobody from changing them.
pub static EMBED_TITLES: TaskType = TaskType {
    name: "embed:titles",
    lane: Lane::Model,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(titles::run(tools, apply))),
    final_failure: FinalFailure::Nothing,
    leads_to: MODEL,
};
/// It makes vectors of the coming model for some documents, beside those that serve. It reserves only the one at which it stands.
pub static REEMBED: TaskType = TaskType {
    name: model_moves::TASK,
    lane: Lane::Model,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::WithComing(|tools, apply| Box::pin(reembed::run(tools, apply))),
    final_failure: FinalFailure::Nothing,
    leads_to: Lanes::NONE,
};
/// It moves the children under segments, so it writes the paths of everything under its node.
pub static STRUCTURE_SEMANTIC: TaskType = TaskType {
    name: "structure:semantic",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["rollup"],
    run: Runner::Here(|tools, apply| Box::pin(semantic::run(tools, apply))),
    final_failure: FinalFailure::Container(Rollup::Segmented),
    leads_to: Lanes::NONE,
};
/// It stands at the root for many containers under it, and needs no pass of the model.
pub static SUMMARIZE: TaskType = TaskType {
    name: "summarize",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &["rollup"],
    run: Runner::Here(|tools, apply| Box::pin(rollup::run(tools, apply))),
    final_failure: FinalFailure::Containers,
    leads_to: LLM,
};
pub static SUMMARIZE_LLM: TaskType = TaskType {
    name: "summarize:llm",
    lane: Lane::Llm,
    write_mode: WriteMode::Itself,
    options: &["rollup"],
    run: Runner::Here(|tools, apply| Box::pin(summary::run(tools, apply))),
    final_failure: FinalFailure::Container(Rollup::Done),
    leads_to: Lanes::NONE,
};
pub static RAPTOR: TaskType = TaskType {
    name: RULE,
    lane: Lane::Model,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(raptor::run(tools, apply))),
    final_failure: FinalFailure::Nothing,
    leads_to: Lanes::NONE,
};

/// It adds facts and entities, and changes nothing of its node.
pub static EXTRACT_FACTS: TaskType = TaskType {
    name: extraction::TASK,
    lane: Lane::Llm,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Runner::Here(|tools, apply| Box::pin(facts::run(tools, apply))),
    final_failure: FinalFailure::Nothing,
    leads_to: MODEL,
};

/// Every task type of the service.
static TABLE: &[&TaskType] = &[
    &PROBE,
    &EXTRACT_TEXT,
    &EXTRACT_TABLES,
    &EXTRACT_IMAGES,
    &OCR,
    &STRUCTURE_DECLARED,
    &STRUCTURE_INFERRED,
    &STRUCTURE_SHEETS,
    &EXTRACT_MEMBERS,
    &PROFILE_SHEET,
    &EXTRACT_SHEET,
    &EMBED,
    &EMBED_TITLES,
    &REEMBED,
    &STRUCTURE_SEMANTIC,
    &SUMMARIZE,
    &SUMMARIZE_LLM,
    &RAPTOR,
    &EXTRACT_FACTS,
];

fn find(name: &str) -> Option<&'static TaskType> {
    TABLE.iter().copied().find(|known| known.name == name)
}

impl TaskType {
    /// The parameters that it takes from a file's options.
    pub fn params(&self, options: &Value) -> Map<String, Value> {
        self.options.iter().map(|group| ((*group).to_owned(), options[*group].clone())).collect()
    }
}

/// The task types of a process: those of the table, and those that another crate registered.
#[derive(Clone, Default)]
pub struct TaskTypes {
    registered: Vec<Arc<TaskType>>,
    /// Whether this process has an OCR engine.
    has_ocr: bool,
    /// Whether this process has a model to which vectors may be moved, which a runner may tell later.
    has_coming: Arc<AtomicBool>,
    groups: Vec<&'static OptionGroup>,
}

/// Why a task type cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("the task type `{0}` already has another handler; register this one under another name")]
    Duplicate(&'static str),
    #[error(
        "the task type `{0}` declares the option group `{1}`, which another task type has; name the group differently"
    )]
    DuplicateGroup(&'static str, &'static str),
    #[error("the options of the task type `{0}` are not usable: {1}")]
    Options(&'static str, Failure),
}

impl TaskTypes {
    /// Adds a task type whose handler is in another crate. The type `ocr` may get another one this way;
    /// it then has the lane and the region that are declared here. To register the same handler again changes nothing.
    pub fn register(&mut self, declared: TaskDeclaration) -> Result<(), RegisterError> {
        let TaskDeclaration { name, lane, write_mode, options, final_failure, handler } = declared;
        match self.get(name).map(|known| &known.run) {
            Some(Runner::Registered(known)) if Arc::ptr_eq(known, &handler) => return Ok(()),
            Some(Runner::Registered(_) | Runner::Here(_) | Runner::WithComing(_)) => {
                return Err(RegisterError::Duplicate(name));
            }
            Some(Runner::WithOcr(_)) | None => {}
        }
        if let Some(group) = options {
            if self.groups.iter().any(|known| known.name == group.name) {
                return Err(RegisterError::DuplicateGroup(name, group.name));
            }
            group.check_declared().map_err(|failure| RegisterError::Options(name, failure))?;
            self.groups.push(group);
        }
        self.registered.push(Arc::new(TaskType {
            name,
            lane,
            write_mode,
            options: options.map_or(&[], |group| std::slice::from_ref(&group.name)),
            run: Runner::Registered(handler),
            final_failure,
            leads_to: Lanes::ALL,
        }));
        Ok(())
    }

    /// The task type of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&TaskType> {
        self.registered.iter().map(Arc::as_ref).find(|known| known.name == name).or_else(|| find(name))
    }

    /// The task type in the form in which this process knows it, with its registered handler if it has one.
    pub(crate) fn current<'a>(&'a self, declared: &'a TaskType) -> &'a TaskType {
        self.get(declared.name).unwrap_or(declared)
    }

    /// Says whether this process has an OCR engine. A handler for `ocr` that another crate registered does without it.
    pub(crate) fn set_ocr(&mut self, has_ocr: bool) {
        self.has_ocr = has_ocr;
    }

    /// Says whether this process has a model to which vectors may be moved.
    pub(crate) fn set_coming(&self, has_coming: bool) {
        self.has_coming.store(has_coming, Ordering::Relaxed);
    }

    /// Whether a due task of this type is queued; without a handler it is deferred.
    pub(crate) fn has_handler(&self, declared: &TaskType) -> bool {
        match self.current(declared).run {
            Runner::WithOcr(_) => self.has_ocr,
            Runner::WithComing(_) => self.has_coming.load(Ordering::Relaxed),
            Runner::Here(_) | Runner::Registered(_) => true,
        }
    }

    /// Whether what `ocr` reads becomes the text of its file, as the engine's does; what a handler of another crate does is its own affair.
    pub(crate) fn ocr_gives_text(&self) -> bool {
        self.has_ocr && matches!(self.current(&OCR).run, Runner::WithOcr(_))
    }

    /// What would give a task of this type its handler, if there is such a remedy.
    pub(crate) fn remedy(&self, declared: &TaskType) -> Option<&'static str> {
        (matches!(self.current(declared).run, Runner::WithOcr(_)) && !self.has_ocr).then_some(NO_ENGINE)
    }

    /// The option groups of the registered types.
    pub(crate) fn groups(&self) -> &[&'static OptionGroup] {
        &self.groups
    }

    /// A file's stored options, with the groups that were registered since.
    pub(crate) fn complete(&self, mut options: Value) -> Value {
        options::complete(&mut options, &self.groups);
        options
    }

    /// The names of all types, also of those that have no handler here.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|known| known.name).chain(self.registered.iter().map(|known| known.name))
    }

    fn with_handler(&self) -> impl Iterator<Item = &TaskType> {
        let is_registered = |name| self.registered.iter().any(|known| known.name == name);
        let built_in = TABLE.iter().copied().filter(move |known| self.has_handler(known) && !is_registered(known.name));
        built_in.chain(self.registered.iter().map(Arc::as_ref))
    }

    /// The names of the types that have a handler, or of those in one lane.
    pub(crate) fn names_in(&self, lane: Option<Lane>) -> impl Iterator<Item = &'static str> {
        self.with_handler().filter(move |known| lane.is_none_or(|lane| known.lane == lane)).map(|known| known.name)
    }

    /// Whether any of them runs in this lane.
    pub(crate) fn use_lane(&self, lane: Lane) -> bool {
        self.with_handler().any(|known| known.lane == lane)
    }

    /// The lanes that may have more work once a task of this type has ended.
    pub(super) fn leads_to(&self, name: &str) -> Lanes {
        self.get(name).map_or(Lanes::ALL, |known| known.leads_to)
    }

    /// The runs of ids of the leaves that fail together with this task; `None` if its node does.
    pub(crate) fn leaves_of_failure(&self, name: &str, params: &Value) -> Option<Vec<(DocumentId, DocumentId)>> {
        match self.get(name)?.final_failure {
            FinalFailure::Node | FinalFailure::Container(_) | FinalFailure::Containers => None,
            FinalFailure::Leaves => embed::leaves_of(params),
            FinalFailure::Nothing | FinalFailure::Addition => Some(Vec::new()),
        }
    }

    /// The containers that fail together with this task; `None` if others do.
    pub(crate) fn containers_of_failure(&self, name: &str, params: &Value) -> Option<Vec<DocumentId>> {
        matches!(self.get(name)?.final_failure, FinalFailure::Containers).then(|| rollup::containers_of(params))
    }

    /// Whether the node of a task waits for it although it does not fail with it.
    pub(crate) fn is_addition(&self, name: &str) -> bool {
        self.get(name).is_some_and(|known| known.final_failure == FinalFailure::Addition)
    }

    /// The state in which a container's rollup goes on after this task has failed for good; `None` if the task is not a part of a
    /// rollup, or if its node fails with it.
    pub(crate) fn rollup_after_failure(&self, name: &str) -> Option<Rollup> {
        match self.get(name)?.final_failure {
            FinalFailure::Container(rollup) => Some(rollup),
            FinalFailure::Node
            | FinalFailure::Leaves
            | FinalFailure::Containers
            | FinalFailure::Nothing
            | FinalFailure::Addition => None,
        }
    }

    /// Runs a task; `None` if no handler here runs its type.
    pub(super) async fn run(
        &self,
        tools: &crate::ingest::Tools,
        apply: Apply<'_>,
    ) -> Option<Result<svc_actors::Outcome, svc_actors::TaskFailure>> {
        let known = self.get(&apply.grant.task_type)?;
        match &known.run {
            Runner::WithOcr(_) | Runner::WithComing(_) if !self.has_handler(known) => None,
            Runner::Here(run) | Runner::WithOcr(run) | Runner::WithComing(run) => Some(run(tools, apply).await),
            Runner::Registered(handler) => Some(registered::run(handler.as_ref(), tools, apply).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        ingest_nodes::{UNCOUNTED, is_counted},
        llm_batches::{SEARCHED, SEARCHED_ANEW},
    };
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn each_type_stands_once_in_the_table_and_has_a_stage() {
        let names: BTreeSet<&str> = TABLE.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for name in names.into_iter().filter(|name| *name != PROBE.name) {
            assert!(svc_actors::stage::stage(name) > 0, "{name} has no row in actors/src/stage.rs");
        }
    }

    #[test]
    fn a_container_waits_for_every_type_but_those_that_only_add_to_what_is_there() {
        let adding = TABLE.iter().filter(|known| known.final_failure == FinalFailure::Nothing).map(|known| known.name);
        assert_eq!(adding.collect::<BTreeSet<&str>>(), BTreeSet::from(UNCOUNTED));
    }

    #[test]
    fn no_batch_keeps_the_types_waiting_by_which_texts_are_found() {
        assert_eq!(SEARCHED, [EMBED.name, EMBED_TITLES.name, REEMBED.name]);
    }

    #[test]
    fn a_cancel_of_what_is_in_flight_leaves_no_task_that_a_container_waits_for() {
        let anew = SEARCHED.into_iter().filter(|name| !is_counted(name));
        assert_eq!(anew.collect::<Vec<&str>>(), SEARCHED_ANEW);
    }

    #[test]
    fn the_guide_binds_to_a_card_every_type_that_needs_the_model_and_no_other() {
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
        let section = guide.split("\n## ").find(|section| section.starts_with("Badges\n")).unwrap();
        let badges = section.split_once("SVC_TASK_BADGES='").and_then(|(_, rest)| rest.split_once('\'')).unwrap().0;
        let badges: Map<String, Value> = serde_json::from_str(badges).unwrap();
        let bound: BTreeSet<&str> = badges.keys().map(String::as_str).collect();
        let need: BTreeSet<&str> =
            TABLE.iter().filter(|known| known.lane == Lane::Model).map(|known| known.name).collect();
        assert_eq!(bound, need);
        for setting in ["SVC_WORKER_BADGE=", "SVC_EMBEDDING_PRECISION="] {
            assert!(section.contains(setting), "{setting}");
        }
    }

    #[test]
    fn parameters_are_the_groups_of_the_table() {
        let options = json!({"structure": {"max_tokens": 9}, "profile": {"sketch": true}, "extract": {}});
        assert_eq!(Value::Object(PROFILE_SHEET.params(&options)), json!({"profile": {"sketch": true}}));
        assert!(EMBED.params(&options).is_empty());
        let types = TaskTypes::default();
        assert_eq!(
            types.leaves_of_failure("embed", &json!({"leaves": [[3, 5], [8, 8]]})),
            Some([(3, 5), (8, 8)].map(|(first, last)| (DocumentId(first), DocumentId(last))).to_vec())
        );
        assert_eq!(types.leaves_of_failure("embed", &json!({})), None);
        assert_eq!(types.leaves_of_failure("probe", &json!({"leaves": [[3, 5]]})), None);
        assert_eq!(types.leaves_of_failure("raptor", &json!({})), Some(Vec::new()));
        let containers = json!({"containers": [4, 6]});
        assert_eq!(types.leaves_of_failure("summarize", &containers), None);
        assert_eq!(types.containers_of_failure("summarize", &containers), Some([4, 6].map(DocumentId).to_vec()));
        assert_eq!(types.containers_of_failure("embed", &containers), None);
    }
}
