//! Embed tasks of single short documents that are done in the pass and the transaction of another one: a task costs the same however little it embeds.
//!
//! Each keeps its claim, with a region and a token of its own. Whatever goes wrong in a pass that is shared, its tasks go back into the queue, and the
//! first one embeds its document alone.
use super::{Apply, types::EMBED};
use crate::{
    ingest::{Tools, held},
    telemetry, words,
};
use svc_actors::{Grant, Lane, Lanes, Outcome};
use tokio::runtime::Handle;
use uuid::Uuid;

/// The most tasks that one takes along.
const MOST: usize = 63;
/// The most bytes of the texts of a pass. No heartbeat renews the leases of those that are taken along, so a pass takes seconds at most.
const MOST_BYTES: usize = 32 * 1024;

/// The claims of those that are taken along. If this is dropped before they have ended, they are given back.
pub(super) struct Beside<'a> {
    tools: &'a Tools,
    grants: Vec<Grant>,
}

impl<'a> Beside<'a> {
    /// No claims.
    pub fn none(tools: &'a Tools) -> Beside<'a> {
        Beside { tools, grants: Vec::new() }
    }

    /// Claims what a task can take along.
    pub async fn claim(tools: &'a Tools, apply: &Apply<'_>) -> Beside<'a> {
        let grant = apply.grant;
        let is_plain = grant.params.as_object().is_some_and(|params| params.is_empty());
        if !is_plain || grant.root_id.document() != grant.document_id {
            return Beside::none(tools);
        }
        let grants = apply.claim_beside((MOST, MOST_BYTES)).await.unwrap_or_else(|error| {
            // What is really wrong meets the task itself too.
            tracing::debug!(%error, "no tasks could be claimed beside this one");
            Vec::new()
        });
        Beside { tools, grants }
    }

    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Says that they have ended with the task that took them along.
    pub fn have_ended(mut self) {
        let ended = std::mem::take(&mut self.grants).len() as u64;
        if ended > 0 {
            let outcome = words::attempt_outcome(&Outcome::Completed).as_str();
            metrics::counter!(telemetry::CLAIMED).increment(ended);
            metrics::counter!(telemetry::TASKS_ENDED, "task_type" => EMBED.name, "outcome" => outcome).increment(ended);
            // Anything may have waited for their regions.
            self.tools.wake.notify(Lanes::ALL);
        }
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let tokens: Vec<Uuid> = self.grants.iter().map(|grant| grant.token).collect();
        // Outside a runtime they are left to their leases.
        let (false, Ok(runtime)) = (tokens.is_empty(), Handle::try_current()) else { return };
        let tools = self.tools.clone();
        let give_back = async move {
            if let Err(error) = held::give_back(&tools, &tokens).await {
                tracing::warn!(%error, "tasks that shared a pass could not be given back; they are left to their leases");
            }
            tools.wake.notify(Lanes::of(Lane::Model));
        };
        self.tools.settling.spawn_on(give_back, &runtime);
    }
}
