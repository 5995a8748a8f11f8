//! What language models cost, and the batches that wait at providers.
use super::documents::{id_cursor, page_by_id};
use crate::{access::Caller, error::OrFail, registry::Handle, service::Service, store};
use svc_client::{
    Call, Failure, ops,
    wire::{LlmBatchPage, LlmUsageResponse},
};

impl Handle<ops::list_llm_batches> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_llm_batches>) -> Result<LlmBatchPage, Failure> {
        let limit = call.query.rows();
        let before = match call.query.cursor.as_deref() {
            Some(cursor) => id_cursor(Some(cursor))?,
            None => i64::MAX,
        };
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = store::llm_batches::list(&mut conn, before, limit + 1, self.settings.batch_stall).await.or_fail()?;
        let (batches, next_cursor) = page_by_id(rows, limit, |row| row.id);
        Ok(LlmBatchPage { batches, next_cursor })
    }
}

impl Handle<ops::read_llm_usage> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_llm_usage>) -> Result<LlmUsageResponse, Failure> {
        let days = call.query.days.unwrap_or(30);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let (since, usage) =
            store::llm_usage::read(&mut conn, i32::try_from(days).unwrap_or(i32::MAX)).await.or_fail()?;
        Ok(LlmUsageResponse { since, usage })
    }
}
