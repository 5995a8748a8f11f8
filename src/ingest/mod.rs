//! From bytes to a settled tree: upload, plan, tasks, settling. A stage sees the value of the stage before it, never
//! its actor.
pub(crate) mod cancel;
pub(crate) mod copies;
pub(crate) mod creating;
pub(crate) mod edit;
pub(crate) mod entries;
pub mod extension;
pub(crate) mod held;
pub(crate) mod options;
pub(crate) mod parent;
pub(crate) mod plan;
pub(crate) mod postings;
pub(crate) mod profile;
pub(crate) mod queueing;
pub(crate) mod raptor;
pub(crate) mod records;
pub(crate) mod reprocess;
pub(crate) mod requeue;
pub(crate) mod rules;
pub(crate) mod segments;
pub mod settle;
pub(crate) mod sums;
pub(crate) mod tasks;
pub(crate) mod titles;
pub(crate) mod tree;
pub(crate) mod unlock;
pub(crate) mod upload;

use crate::{core::Core, rdf::shapes::kept::KeptShapes, store::kept::KeptConnections};
use std::{ops::Deref, sync::Arc};
use tasks::{beside::Sharing, types::TaskTypes};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// What tasks work with.
#[derive(Clone)]
pub struct Tools {
    /// Uses the connections of tasks.
    core: Core,
    /// For claims, starts and the ends of tasks, and for what is read of many tasks at once.
    pub kept: KeptConnections,
    /// The settling that tasks left behind; a draining worker must wait for it before it ends.
    pub settling: TaskTracker,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) types: TaskTypes,
    pub(crate) shapes: Arc<KeptShapes>,
    /// How many trees of summaries a language model may be writing at once. Without it they are as many as tasks of their lane.
    pub(crate) writing: Option<Arc<Semaphore>>,
}

impl Tools {
    pub fn new(core: Core, types: TaskTypes) -> Tools {
        let kept = KeptConnections::new(core.pool.clone());
        let settling = TaskTracker::new();
        Tools { kept, settling, sharing: Arc::default(), types, shapes: Arc::default(), writing: None, core }
    }

    /// Leaves one of these permits of the lane `model` to what is embedded, however many trees of summaries wait for a language model.
    pub(crate) fn with_model_permits(self, permits: usize) -> Tools {
        Tools { writing: Some(Arc::new(Semaphore::new(permits.saturating_sub(1).max(1)))), ..self }
    }
}

/// Tools are a core, with what only tasks need.
impl Deref for Tools {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
