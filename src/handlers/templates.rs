//! Templates of prompts: documents whose text is in the syntax of Jinja. The operations of documents store them; here they are read and rendered.
mod rendering;

use super::{
    documents::{etag_of, id_cursor},
    lists::page,
};
use crate::{access::Caller, error::OrFail, registry::Handle, search, service::Service, store, usetype::Usetype};
use rendering::{Templates, declaration, of};
use serde_json::{Map, Value};
use svc_client::{
    Call, Code, Failure, Json, Meta, Nothing, Validated, Version, ops,
    wire::{
        CreatedDocument, DocumentChange, DocumentPage, DocumentResponse, GroupBy, NewDocument, RenderedTemplate,
        SearchMethod, SearchResponse, TemplateChange, TemplateDeclaration, UpdatedDocument,
    },
};
use svc_ids::DocumentId;

/// How often a change is tried that others get ahead of.
const TRIES: usize = 5;

/// What a template declares, as its document has it.
fn written(declared: &TemplateDeclaration) -> Result<Map<String, Value>, Failure> {
    match serde_json::to_value(declared) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(Failure::new(Code::Internal, "the declaration of a template is no object")),
    }
}

impl Handle<ops::create_template> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_template>) -> Result<CreatedDocument, Failure> {
        let new = call.body.0;
        let declared = TemplateDeclaration { variables: new.variables, partials: new.partials };
        let structured_content = written(&declared)?;
        Templates::gather(self, caller, None, &new.content, declared).await?.check(self).await?;
        let document = NewDocument {
            title: new.title,
            content: new.content,
            parent_id: new.parent_id,
            usetype: Some(Usetype::Template.as_str().to_owned()),
            structured_content,
            private: new.private,
            ..NewDocument::default()
        };
        let call = Call { meta: call.meta, path: Nothing {}, query: call.query, body: Json(document) };
        Handle::<ops::create_document>::handle(self, caller, call).await
    }
}

impl Handle<ops::list_templates> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_templates>) -> Result<DocumentPage, Failure> {
        let after = DocumentId(id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let (scope, limit, usetype) = (caller.readable(), call.query.rows() + 1, Usetype::Template.as_str());
        let listed = store::documents::of_usetype(&mut conn, &scope, usetype, after, limit).await.or_fail()?;
        page(self, &mut conn, caller, &call.query, listed, |last| last.id.to_string()).await
    }
}

impl Handle<ops::read_template> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::read_template>,
    ) -> Result<Validated<DocumentResponse>, Failure> {
        of(self, caller, call.path.id).await?;
        let call = Call { meta: call.meta, path: call.path, query: call.query, body: Nothing {} };
        Handle::<ops::read_document>::handle(self, caller, call).await
    }
}

impl Handle<ops::update_template> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::update_template>,
    ) -> Result<Version<UpdatedDocument>, Failure> {
        let (path, query, meta, change) = (call.path, call.query, call.meta, call.body.0);
        // What is checked is what is written: if somebody else changes the template meanwhile, it is read and checked once more. `*` takes any
        // version, and names none to compare with.
        let named = meta.if_match.clone().filter(|list| list.trim() != "*");
        let mut tries = if named.is_none() { TRIES } else { 1 };
        loop {
            tries -= 1;
            let template = of(self, caller, path.id).await?;
            let written = checked(self, caller, &template, &change).await?;
            let read = etag_of(&template)?;
            // Of several versions that the caller names, only the one that was read here has been checked.
            let if_match = named.clone().filter(|_| !meta.may_change(&read)).unwrap_or(read);
            let meta = Meta { if_match: Some(if_match), ..meta.clone() };
            let done = Call { meta, path, query, body: Json(written) };
            match Handle::<ops::update_document>::handle(self, caller, done).await {
                Err(failure) if failure.code == Code::PreconditionFailed && tries > 0 => {}
                done => return done,
            }
        }
    }
}

/// The change of a template's document, if the template is sound with it.
async fn checked(
    service: &Service,
    caller: &Caller,
    template: &DocumentResponse,
    change: &TemplateChange,
) -> Result<DocumentChange, Failure> {
    let mut written_as = None;
    if change.content.is_some() || change.variables.is_some() || change.partials.is_some() {
        let had = declaration(template)?;
        let declared = TemplateDeclaration {
            variables: change.variables.clone().unwrap_or(had.variables),
            partials: change.partials.clone().unwrap_or(had.partials),
        };
        written_as = Some(written(&declared)?);
        let content = change.content.as_ref().unwrap_or(&template.content);
        let templates = Templates::gather(service, caller, Some(template.id), content, declared).await?;
        templates.check(service).await?;
    }
    let (title, content) = (change.title.clone(), change.content.clone());
    Ok(DocumentChange { title, content, structured_content: written_as, ..DocumentChange::default() })
}

impl Handle<ops::delete_template> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_template>) -> Result<(), Failure> {
        of(self, caller, call.path.id).await?;
        let call = Call { meta: call.meta, path: call.path, query: Nothing {}, body: Nothing {} };
        Handle::<ops::delete_document>::handle(self, caller, call).await
    }
}

impl Handle<ops::render_template> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::render_template>) -> Result<RenderedTemplate, Failure> {
        let asked = call.body.0.unwrap_or_default();
        let template = of(self, caller, call.path.id).await?;
        let declared = declaration(&template)?;
        let templates = Templates::gather(self, caller, Some(template.id), &template.content, declared).await?;
        let values = templates.values(self, caller, asked).await?;
        let (text, used_variables) = templates.render(self, values).await?;
        let tokens = match self.model().await {
            Ok(model) => {
                let counted = text.clone();
                let count = tokio::task::spawn_blocking(move || model.count_tokens(&counted)).await;
                count
                    .map_err(|error| Failure::new(Code::Internal, error))?
                    .ok()
                    .and_then(|count| u64::try_from(count).ok())
            }
            Err(_) => None,
        };
        Ok(RenderedTemplate {
            template_id: template.id,
            text,
            tokens,
            used_variables,
            content_hash: template.content_hash,
        })
    }
}

impl Handle<ops::search_templates> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::search_templates>) -> Result<SearchResponse, Failure> {
        let mut body = call.body.0;
        if body.usetype.is_some() {
            return Err(Failure::field("usetype", "this search finds templates alone")
                .with("remedy", "leave it out, or search by POST /search/auto"));
        }
        body.usetype = Some(vec![Usetype::Template.as_str().to_owned()]);
        let (method, min_similarity) = (body.method, body.min_similarity);
        let _place = self.admission.search(caller.principal_id()).await?;
        // The weights of `hybrid` are the same whether the body names it or not.
        if method == Some(SearchMethod::Hybrid) && body.weights.is_none() {
            let context = search::preset(self, caller, body.context.clone()).await?;
            body.weights = Some(context.weights.unwrap_or_default());
        }
        search::by_any(self, caller, method, GroupBy::None, min_similarity, body.into()).await
    }
}
