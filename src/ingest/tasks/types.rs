//! The table of task types. Dispatch, rules, queueing, requeueing and the types that a worker announces derive from it.
//! The order of an ingestion is in `actors/src/stage.rs`.
use super::{Apply, Run, embed, extract, probe, profile, records, rollup, sheets, structure};
use crate::ingest::extension::{TaskHandler, run_registered};
use serde_json::{Map, Value};
use std::sync::Arc;
use svc_actors::{Lane, Lanes, WriteMode};
use svc_ids::DocumentId;

/// One task type.
#[derive(Debug)]
pub struct TaskType {
    pub name: &'static str,
    pub lane: Lane,
    /// The region that it reserves, unless the code that queues it says otherwise.
    pub write_mode: WriteMode,
    /// The groups of the file's options that its parameters carry.
    pub options: &'static [&'static str],
    /// `None` if this crate has no handler; a due task of this type is then deferred.
    run: Option<Run>,
    pub final_failure: FinalFailure,
    /// The lanes of the tasks that it queues, or that can start when it ends.
    leads_to: Lanes,
}

/// The nodes that fail together with a task that does not run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalFailure {
    /// The task's node.
    Node,
    /// The leaves that the parameters name, under the node; the node if they name none.
    Leaves,
}

const CPU: Lanes = Lanes::of(Lane::Cpu);
const MODEL: Lanes = Lanes::of(Lane::Model);

const fn deferred(name: &'static str, write_mode: WriteMode) -> TaskType {
    TaskType {
        name,
        lane: Lane::Cpu,
        write_mode,
        options: &[],
        run: None,
        final_failure: FinalFailure::Node,
        leads_to: Lanes::NONE,
    }
}

pub static PROBE: TaskType = TaskType {
    name: "probe",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Some(|tools, apply| Box::pin(probe::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
pub static EXTRACT_TEXT: TaskType = TaskType {
    name: "extract:text",
    lane: Lane::Cpu,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Some(|tools, apply| Box::pin(extract::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
pub static EXTRACT_TABLES: TaskType = deferred("extract:tables", WriteMode::Children);
pub static EXTRACT_IMAGES: TaskType = deferred("extract:images", WriteMode::Children);
pub static OCR: TaskType = deferred("ocr", WriteMode::Itself);
pub static STRUCTURE_DECLARED: TaskType = TaskType {
    name: "structure:declared",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["structure"],
    run: Some(|tools, apply| Box::pin(structure::run(tools, apply, true))),
    final_failure: FinalFailure::Node,
    leads_to: MODEL,
};
pub static STRUCTURE_INFERRED: TaskType = TaskType {
    name: "structure:inferred",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["structure"],
    run: Some(|tools, apply| Box::pin(structure::run(tools, apply, false))),
    final_failure: FinalFailure::Node,
    leads_to: MODEL,
};
pub static STRUCTURE_SHEETS: TaskType = TaskType {
    name: "structure:sheets",
    lane: Lane::Cpu,
    write_mode: WriteMode::Children,
    options: &["structure", "profile"],
    run: Some(|tools, apply| Box::pin(sheets::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU,
};
pub static PROFILE_SHEET: TaskType = TaskType {
    name: "profile:sheet",
    lane: Lane::Cpu,
    write_mode: WriteMode::Children,
    options: &["profile"],
    run: Some(|tools, apply| Box::pin(profile::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: CPU.with(MODEL),
};
pub static EXTRACT_SHEET: TaskType = TaskType {
    name: "extract:sheet",
    lane: Lane::Cpu,
    write_mode: WriteMode::Subtree,
    options: &["structure"],
    run: Some(|tools, apply| Box::pin(records::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: MODEL,
};
pub static EMBED: TaskType = TaskType {
    name: "embed",
    lane: Lane::Model,
    write_mode: WriteMode::Subtree,
    options: &[],
    run: Some(|tools, apply| Box::pin(embed::run(tools, apply))),
    final_failure: FinalFailure::Leaves,
    leads_to: Lanes::NONE,
};
pub static SUMMARIZE: TaskType = TaskType {
    name: "summarize",
    lane: Lane::Model,
    write_mode: WriteMode::Itself,
    options: &[],
    run: Some(|tools, apply| Box::pin(rollup::run(tools, apply))),
    final_failure: FinalFailure::Node,
    leads_to: Lanes::NONE,
};

/// Every task type of an ingestion.
static TABLE: &[&TaskType] = &[
    &PROBE,
    &EXTRACT_TEXT,
    &EXTRACT_TABLES,
    &EXTRACT_IMAGES,
    &OCR,
    &STRUCTURE_DECLARED,
    &STRUCTURE_INFERRED,
    &STRUCTURE_SHEETS,
    &PROFILE_SHEET,
    &EXTRACT_SHEET,
    &EMBED,
    &SUMMARIZE,
];

fn find(name: &str) -> Option<&'static TaskType> {
    TABLE.iter().copied().find(|known| known.name == name)
}

/// Whether a handler of this crate runs this task type.
pub fn is_built_in(name: &str) -> bool {
    find(name).is_some_and(TaskType::has_handler)
}

/// The lanes that may have more work once a task of this type has ended.
pub(super) fn leads_to(name: &str) -> Lanes {
    find(name).map_or(Lanes::ALL, |known| known.leads_to)
}

/// The runs of ids of the leaves that fail together with this task; `None` if its node does.
pub fn leaves_of_failure(name: &str, params: &Value) -> Option<Vec<(DocumentId, DocumentId)>> {
    find(name).filter(|known| known.final_failure == FinalFailure::Leaves)?;
    embed::leaves_of(params)
}

impl TaskType {
    /// Without a handler a due task is deferred, not queued.
    pub fn has_handler(&self) -> bool {
        self.run.is_some()
    }

    /// The parameters that it takes from a file's options.
    pub fn params(&self, options: &Value) -> Map<String, Value> {
        self.options.iter().map(|group| ((*group).to_owned(), options[*group].clone())).collect()
    }
}

/// The task types that a worker runs: those of the table with a handler, and those that were registered.
#[derive(Clone, Default)]
pub struct TaskTypes {
    registered: Vec<Registered>,
}

#[derive(Clone)]
struct Registered {
    name: &'static str,
    lane: Lane,
    handler: Arc<dyn TaskHandler>,
}

/// The name already has a handler.
#[derive(Debug, thiserror::Error)]
#[error("the task type `{0}` already has a handler; register this one under another name")]
pub struct DuplicateTaskType(pub &'static str);

impl TaskTypes {
    /// Adds a task type whose handler is in another crate. A type of the table without a handler may get one this way.
    pub(crate) fn register(
        &mut self,
        name: &'static str,
        lane: Lane,
        handler: Arc<dyn TaskHandler>,
    ) -> Result<(), DuplicateTaskType> {
        if self.names().any(|taken| taken == name) {
            return Err(DuplicateTaskType(name));
        }
        self.registered.push(Registered { name, lane, handler });
        Ok(())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let built_in = TABLE.iter().filter(|known| known.has_handler()).map(|known| known.name);
        built_in.chain(self.registered.iter().map(|known| known.name))
    }

    /// Whether any of them runs in this lane.
    pub(crate) fn use_lane(&self, lane: Lane) -> bool {
        TABLE.iter().any(|known| known.has_handler() && known.lane == lane)
            || self.registered.iter().any(|known| known.lane == lane)
    }

    /// Runs a task; `None` if no handler here runs its type.
    pub(super) async fn run(
        &self,
        tools: &crate::ingest::Tools,
        apply: Apply<'_>,
    ) -> Option<Result<svc_actors::Outcome, svc_actors::TaskFailure>> {
        let name = apply.grant.task_type.as_str();
        if let Some(run) = find(name).and_then(|known| known.run) {
            return Some(run(tools, apply).await);
        }
        let registered = self.registered.iter().find(|known| known.name == name)?;
        Some(run_registered(registered.handler.as_ref(), apply).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn parameters_are_the_groups_of_the_table() {
        let options = json!({"structure": {"max_tokens": 9}, "profile": {"sketch": true}, "extract": {}});
        assert_eq!(Value::Object(PROFILE_SHEET.params(&options)), json!({"profile": {"sketch": true}}));
        assert!(EMBED.params(&options).is_empty());
        assert_eq!(
            leaves_of_failure("embed", &json!({"leaves": [[3, 5], [8, 8]]})),
            Some([(3, 5), (8, 8)].map(|(first, last)| (DocumentId(first), DocumentId(last))).to_vec())
        );
        assert_eq!(leaves_of_failure("embed", &json!({})), None);
        assert_eq!(leaves_of_failure("probe", &json!({"leaves": [[3, 5]]})), None);
    }
}
