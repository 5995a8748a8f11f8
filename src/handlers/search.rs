//! Finding documents.
use crate::{access::Caller, registry::Handle, search, service::Service};
use svc_client::{
    Call, Failure, ops,
    wire::{AutoSearch, SearchQuery, SearchResponse},
};

impl Handle<ops::search_vector> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_vector>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        search::vector(self, caller, call.body.0).await
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

impl Handle<ops::search> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search>) -> Result<SearchResponse, Failure> {
        let _place = self.admission.search(caller.principal_id()).await?;
        let SearchQuery { q, context, parent_id, limit, include_content, include_embed, group_by, per_group, snippets } =
            call.query;
        let body = AutoSearch {
            context,
            parent_id,
            limit,
            include_content,
            include_embed,
            group_by,
            per_group,
            snippets,
            ..AutoSearch::new(&q)
        };
        search::auto(self, caller, body).await
    }
}
