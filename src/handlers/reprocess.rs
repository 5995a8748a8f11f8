//! Reprocesses of files.
use super::{admin::announce_cancel, documents::must_match};
use crate::{
    access::Caller,
    ingest::reprocess::{self, GivenUp},
    registry::Handle,
    service::Service,
};
use svc_actors::Lanes;
use svc_client::{Call, Failure, ops, wire::ReprocessResponse};
use svc_ids::DocumentId;

impl Handle<ops::reprocess_file> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::reprocess_file>) -> Result<ReprocessResponse, Failure> {
        let (id, request) = (DocumentId(call.path.id), call.body.0.unwrap_or_default());
        let may_change = |file| must_match(&call.meta, file);
        let begun = reprocess::begin(self, &self.admission, &self.task_types, caller, id, request, may_change).await?;
        let (response, given_up) = begun;
        after_giving_up(self, given_up).await;
        Ok(response)
    }
}

/// Tells the workers to stop the tasks of generations that were given up, and removes the generations of which no
/// worker holds a task. The others go when their stopped tasks have ended.
pub(super) async fn after_giving_up(service: &Service, given_up: GivenUp) {
    announce_cancel(service, given_up.stopping).await;
    for id in given_up.generations {
        reprocess::end_or_leave(service, id).await;
    }
    service.wake.notify(Lanes::ALL);
}
