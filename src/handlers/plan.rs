//! Plans: what an upload of a file would queue, and why.
use crate::{
    access::Caller,
    ingest::plan::{analyze, explain},
    registry::Handle,
    service::Service,
    spool::SpooledUpload,
};
use svc_client::{
    Call, Failure, ops,
    wire::{AnalyzeResponse, Plan},
};

impl Handle<ops::explain_ingest> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::explain_ingest>) -> Result<Plan, Failure> {
        explain(&self.task_types, call.body.0)
    }
}

impl Handle<ops::analyze_file> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::analyze_file, SpooledUpload>,
    ) -> Result<AnalyzeResponse, Failure> {
        analyze(self, self.intake(), caller, call.body).await
    }
}
