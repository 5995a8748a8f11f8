//! Finding documents.
use crate::{
    access::Caller,
    admission,
    registry::{Handle, within},
    search::{
        self,
        synthesize::{self, Answer},
    },
    service::Service,
};
use futures_util::stream;
use svc_client::{
    Call, Event, EventStream, Failure, Sent, ops,
    wire::{
        AnswerPart, AutoSearch, SearchBatchResponse, SearchQuery, SearchResponse, SynthesizeResponse, SynthesizeSearch,
        document_fields,
    },
};
use svc_ids::DocumentId;

impl Handle<ops::search_vector> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_vector>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::vector(self, caller, call.body.0).await
    }
}

impl Handle<ops::find_similar> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::find_similar>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::similar(self, caller, DocumentId(call.path.id), call.query).await
    }
}

impl Handle<ops::search_fulltext> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_fulltext>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::fulltext(self, caller, call.body.0).await
    }
}

impl Handle<ops::search_bm25> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_bm25>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::bm25(self, caller, call.body.0).await
    }
}

impl Handle<ops::search_maxsim> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_maxsim>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::maxsim(self, caller, call.body.0).await
    }
}

impl Handle<ops::search_hybrid> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_hybrid>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::hybrid(self, caller, call.body.0).await
    }
}

impl Handle<ops::search_auto> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_auto>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::auto(self, caller, call.body.0).await
    }
}

impl Handle<ops::search_batch> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_batch>) -> Result<SearchBatchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        Ok(Box::pin(search::batch(self, caller, call.body.0)).await)
    }
}

impl Service {
    /// Searches for sources, and then waits for the language model to begin its answer.
    async fn begin_answer(
        &self,
        caller: &Caller,
        body: SynthesizeSearch,
    ) -> Result<(Answer, Option<admission::Place>), Failure> {
        let place = self.admission.search(caller.principal_id()).await?;
        let synthesis = within(self.settings.request_timeout, synthesize::prepare(self, caller, body)).await?;
        drop(place);
        let place = match synthesis.has_sources() {
            true => Some(self.admission.synthesis(caller.principal_id()).await?),
            false => None,
        };
        Ok((synthesis.answer(self).await?, place))
    }
}

impl Handle<ops::synthesize> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::synthesize>) -> Result<SynthesizeResponse, Failure> {
        let (answer, _place) = Box::pin(self.begin_answer(caller, call.body.0)).await?;
        answer.whole().await
    }
}

impl Handle<ops::follow_synthesis> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::follow_synthesis>,
    ) -> Result<EventStream<AnswerPart>, Failure> {
        let begun = Box::pin(self.begin_answer(caller, call.body.0)).await?;
        let ending = self.ending.clone();
        // What is dropped with the stream ends the call of the model.
        Ok(EventStream::new(stream::unfold(Some(begun), move |begun| {
            let ending = ending.clone();
            async move {
                let (mut answer, place) = begun?;
                let part = tokio::select! {
                    part = answer.next() => part,
                    () = ending.cancelled() => return None,
                };
                match part {
                    Ok(Some(part)) => {
                        let event = Event { id: None, name: part.name().into(), data: part };
                        Some((Ok(Sent::Event(event)), Some((answer, place))))
                    }
                    Ok(None) => None,
                    Err(failure) => Some((Err(failure), None)),
                }
            }
        })))
    }
}

impl Handle<ops::search> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        let SearchQuery {
            q,
            context,
            parent_id,
            limit,
            sort,
            sort_order,
            sort_top,
            include_content,
            include_embed,
            fields,
            group_by,
            with_whole,
            per_group,
            snippets,
            cursor,
            forgiving,
            expand,
            fusion,
        } = call.query;
        let body = AutoSearch {
            context,
            parent_id,
            limit,
            sort,
            sort_order,
            sort_top,
            include_content,
            include_embed,
            fields: fields.as_deref().map(document_fields).transpose()?,
            group_by,
            with_whole,
            per_group,
            snippets,
            cursor,
            forgiving,
            expand,
            fusion,
            ..AutoSearch::new(&q)
        };
        search::auto(self, caller, body).await
    }
}
