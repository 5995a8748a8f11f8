//! Typed links between documents.
use super::id_cursor;
use crate::{
    access::Caller,
    error::OrFail,
    handlers::lists::must_exist,
    registry::Handle,
    service::Service,
    store::{self, links::CONTAINS, triples::write},
};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{LinkPage, LinkResponse},
};
use svc_ids::DocumentId;

impl Handle<ops::list_links> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_links>) -> Result<LinkPage, Failure> {
        let (id, limit, after) =
            (DocumentId(call.path.id), call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        must_exist(&mut conn, caller, id).await?;
        let room = self.settings.page_bytes;
        let page = store::links::of_document(&mut conn, &caller.readable(), id, after, limit, room).await.or_fail()?;
        let next_cursor = page.rows.last().filter(|_| page.has_more).map(|link| link.id.to_string());
        Ok(LinkPage { links: page.rows, next_cursor })
    }
}

impl Handle<ops::create_link> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_link>) -> Result<LinkResponse, Failure> {
        let (id, new) = (DocumentId(call.path.id), call.body.0);
        let target = DocumentId(new.target_id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let source = caller.writes(&mut tx, id).await.or_fail()??;
        if target == id {
            return Err(Failure::field("target_id", "a document is not linked to itself"));
        }
        // Whoever deletes one of them is waited for here, and not while this keeps all others from adding a link `contains`.
        let ends = write::lock_ends(&mut tx, &caller.readable(), &[id, target]).await.or_fail()?;
        if let Some(gone) = [id, target].into_iter().find(|end| ends.iter().all(|(there, _)| there != end)) {
            return Err(Failure::no_document(gone.0));
        }
        if new.link_type == CONTAINS
            && store::links::contains(&mut tx, &caller.readable(), target, id).await.or_fail()?
        {
            let detail = format!("document {target} is above document {id}, which cannot contain it");
            return Err(Failure::field("target_id", detail).with("remedy", "link them with another type"));
        }
        let Some(made) = store::links::create(&mut tx, &source, &new).await.or_fail()? else {
            let known = store::links::find(&mut tx, id, target, &new.link_type).await.or_fail()?;
            let detail = format!("document {id} has a link `{}` to document {target} already", new.link_type);
            return Err(Failure::new(Code::Conflict, detail)
                .with("link_id", known)
                .with("remedy", "delete that link first"));
        };
        tx.commit().await.or_fail()?;
        Ok(made)
    }
}

impl Handle<ops::delete_link> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_link>) -> Result<(), Failure> {
        let (id, link_id) = (DocumentId(call.path.id), call.path.link_id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let source = caller.writes(&mut tx, id).await.or_fail()??;
        if store::raptor::is_of_summary(&mut tx, &source, link_id).await.or_fail()? {
            let detail = format!("link {link_id} says what document {id} summarises, which the service must know");
            return Err(
                Failure::field("link_id", detail).with("remedy", "delete the document that holds the summaries")
            );
        }
        if !store::links::delete(&mut tx, &caller.readable(), &source, link_id).await.or_fail()? {
            return Err(Failure::new(Code::NotFound, format!("no link {link_id} leads from document {id}")));
        }
        tx.commit().await.or_fail()
    }
}
