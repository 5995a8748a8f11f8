//! Bytes to a settled tree: upload, plan, tasks, settling. A stage sees the value of the stage before, never its actor.
pub mod cancel;
pub mod copies;
pub mod options;
pub mod profile;
pub mod queueing;
pub mod reader;
pub mod records;
pub mod requeue;
pub mod rules;
pub mod settle;
pub mod spool;
pub mod tasks;
pub mod tree;
pub mod unlock;
pub mod upload;

use crate::{disk::Disk, embedding::Embedder, settings::Settings, store::kept::KeptConnections};
use reader::Reader;
use sqlx::PgPool;
use std::sync::Arc;
use svc_formats::Limits;
use tokio_util::task::TaskTracker;

/// What tasks work with.
#[derive(Clone)]
pub struct Tools {
    pub settings: Arc<Settings>,
    pub pool: PgPool,
    /// For claims, starts and the ends of tasks.
    pub kept: KeptConnections,
    pub embedder: Option<Embedder>,
    pub postings: Arc<svc_ranking::Cache>,
    pub reader: Reader,
    pub disk: Arc<Disk>,
    /// Told when tasks were queued.
    pub wake: crate::worker::wakeup::Wake,
    /// The settling that tasks left behind them: a worker that drains must not end before it.
    pub settling: TaskTracker,
}

/// What a reader may cost, by the settings.
pub fn limits(settings: &Settings) -> Limits {
    let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Limits {
        input_bytes: settings.max_upload_bytes,
        pages: count(settings.parser_pages),
        zip_members: count(settings.parser_zip_members),
        zip_ratio: count(settings.parser_zip_ratio),
        unpacked_bytes: settings.parser_unpacked_bytes,
        xml_depth: count(settings.parser_xml_depth),
        cells: settings.parser_cells as u64,
        text_bytes: settings.parser_text_bytes,
        headings: count(settings.parser_headings),
        answer_bytes: settings.parser_answer_bytes,
        memory: settings.parser_memory,
        cpu_time: settings.parser_cpu_time,
        wall_time: settings.parser_wall_time,
    }
}
