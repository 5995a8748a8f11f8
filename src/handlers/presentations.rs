//! The rules by which views show documents.
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{self, audit::Entry, presentations},
    view::{Rules, complete, seed},
};
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, NewPresentation, PresentationList, PresentationResponse},
};

fn no_rule(usetype: &str) -> Failure {
    Failure::new(Code::NotFound, format!("there is no rule for `{usetype}`"))
        .with("remedy", "GET /usetype-presentations lists the rules")
}

/// Every rule, those of the service included.
pub(super) async fn rules(conn: &mut PgConnection) -> Result<Rules, Failure> {
    let rows = presentations::all(conn).await.or_fail()?;
    let made = rows.into_iter().map(|(rule, at)| PresentationResponse { changed_at: Some(at), ..complete(rule) });
    Ok(Rules::new(made.collect()))
}

/// Stores a rule whole, so that no later default changes it.
async fn put(conn: &mut PgConnection, rule: PresentationResponse) -> Result<PresentationResponse, Failure> {
    let PresentationResponse { usetype, renderer, children, links, show, title, .. } = rule.clone();
    let stored =
        NewPresentation { usetype, renderer, children: Some(children), links: Some(links), show, title: Some(title) };
    let changed_at = presentations::put(conn, &stored).await.or_fail()?;
    Ok(PresentationResponse { changed_at: Some(changed_at), ..rule })
}

/// Records what the owner does with a rule.
async fn record(conn: &mut PgConnection, caller: &Caller, act: AuditAct, usetype: &str) -> Result<(), Failure> {
    caller.record(conn, Entry::new(act).with("usetype", usetype)).await.or_fail()
}

impl Handle<ops::list_presentations> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::list_presentations>) -> Result<PresentationList, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        Ok(PresentationList { presentations: rules(&mut conn).await?.all() })
    }
}

impl Handle<ops::read_presentation> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_presentation>) -> Result<PresentationResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        let usetype = &call.path.usetype;
        rules(&mut conn).await?.named(usetype).cloned().ok_or_else(|| no_rule(usetype))
    }
}

impl Handle<ops::create_presentation> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::create_presentation>,
    ) -> Result<PresentationResponse, Failure> {
        let new = call.body.0;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        presentations::alone(&mut tx).await.or_fail()?;
        let rules = rules(&mut tx).await?;
        if rules.named(&new.usetype).is_some() {
            let detail = format!("there is a rule for `{}` already", new.usetype);
            return Err(Failure::new(Code::Conflict, detail).with("remedy", "change that rule"));
        }
        if rules.all().len() >= presentations::MOST {
            let detail = format!("there are {} rules, which is as many as there may be", presentations::MOST);
            return Err(Failure::new(Code::TooLarge, detail)
                .with("limit", presentations::MOST)
                .with("remedy", "give the usetypes a common beginning, and the beginning one rule"));
        }
        let made = put(&mut tx, complete(new)).await?;
        record(&mut tx, caller, AuditAct::PresentationCreate, &made.usetype).await?;
        tx.commit().await.or_fail()?;
        Ok(made)
    }
}

impl Handle<ops::update_presentation> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::update_presentation>,
    ) -> Result<PresentationResponse, Failure> {
        let (usetype, change) = (call.path.usetype, call.body.0);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        presentations::alone(&mut tx).await.or_fail()?;
        let rule = rules(&mut tx).await?.named(&usetype).cloned().ok_or_else(|| no_rule(&usetype))?;
        let changed = PresentationResponse {
            renderer: change.renderer.unwrap_or(rule.renderer),
            children: change.children.unwrap_or(rule.children),
            links: change.links.unwrap_or(rule.links),
            show: change.show.unwrap_or(rule.show),
            title: change.title.unwrap_or(rule.title),
            ..rule
        };
        let changed = put(&mut tx, changed).await?;
        record(&mut tx, caller, AuditAct::PresentationUpdate, &changed.usetype).await?;
        tx.commit().await.or_fail()?;
        Ok(changed)
    }
}

impl Handle<ops::delete_presentation> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_presentation>) -> Result<(), Failure> {
        let usetype = &call.path.usetype;
        if seed(usetype).is_some() {
            let detail = format!("the service brings the rule for `{usetype}`, so it cannot be deleted");
            let remedy = format!("POST /usetype-presentations/{usetype}/reset gives it its first form again");
            return Err(Failure::new(Code::Conflict, detail).with("remedy", remedy));
        }
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        presentations::delete(&mut tx, usetype).await.or_fail()?.then_some(()).ok_or_else(|| no_rule(usetype))?;
        record(&mut tx, caller, AuditAct::PresentationDelete, usetype).await?;
        tx.commit().await.or_fail()
    }
}

impl Handle<ops::reset_presentation> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::reset_presentation>,
    ) -> Result<PresentationResponse, Failure> {
        let usetype = &call.path.usetype;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let Some(first) = seed(usetype) else {
            return Err(match rules(&mut tx).await?.named(usetype) {
                Some(_) => Failure::field("usetype", format!("the rule for `{usetype}` has no other form"))
                    .with("remedy", "delete it, or change it"),
                None => no_rule(usetype),
            });
        };
        presentations::delete(&mut tx, usetype).await.or_fail()?;
        record(&mut tx, caller, AuditAct::PresentationReset, usetype).await?;
        tx.commit().await.or_fail()?;
        Ok(first)
    }
}
