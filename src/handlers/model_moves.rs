//! Moves of all vectors from one embedding model to another.
use crate::{
    access::Caller,
    embedding::{EmbedError, Model},
    error::OrFail,
    ingest::tasks::types::REEMBED,
    registry::Handle,
    service::Service,
    store::{self, audit::Entry, model_moves},
};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, ModelMove, ModelMoveResponse, ModelMoveState},
};

impl Handle<ops::read_model_move> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_model_move>) -> Result<ModelMoveResponse, Failure> {
        shown(self).await
    }
}

impl Handle<ops::start_model_move> for Service {
    async fn handle(&self, caller: &Caller, _: Call<ops::start_model_move>) -> Result<ModelMoveResponse, Failure> {
        let own = self.embedder()?;
        let to = coming(self).await?.ok_or_else(|| {
            Failure::new(Code::NotConfigured, "no model is named to which vectors could be moved")
                .with("setting", "SVC_EMBEDDING_COMING_MODEL")
        })?;
        // Where the settings name one model as both, nobody may have the one that serves any more.
        let is_alone = own.known().await.is_some_and(|own| own.identity() == to.identity());
        let from = if is_alone { to.clone() } else { self.model().await? };
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if model_moves::start(&mut tx, from.identity(), to.identity()).await.or_fail()? {
            let entry = Entry::new(AuditAct::ModelMoveStart).with("from_model", from.identity());
            caller.record(&mut tx, entry.with("to_model", to.identity())).await.or_fail()?;
        } else if let Some(other) = model_moves::read(&mut tx).await.or_fail()?
            && (other.to_model != to.identity() || other.state.0 == ModelMoveState::Cancelling)
        {
            let (state, other) = (other.state.0, other.to_model);
            let detail = format!("a move to {other} is {state}: wait for its end, or call it off");
            return Err(Failure::new(Code::Conflict, detail).with("to_model", other));
        }
        tx.commit().await.or_fail()?;
        shown(self).await
    }
}

impl Handle<ops::cancel_model_move> for Service {
    async fn handle(&self, caller: &Caller, _: Call<ops::cancel_model_move>) -> Result<(), Failure> {
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if !model_moves::cancel(&mut tx).await.or_fail()? {
            let state = model_moves::read(&mut tx).await.or_fail()?.map(|moved| moved.state.0);
            let detail = match state {
                None => "no move to another model was ever begun".to_owned(),
                Some(state) => format!("the last move to another model is {state}, so there is nothing to call off"),
            };
            return Err(Failure::new(Code::Conflict, detail));
        }
        let to = model_moves::read(&mut tx).await.or_fail()?.map(|moved| moved.to_model);
        caller.record(&mut tx, Entry::new(AuditAct::ModelMoveCancel).with("to_model", to)).await.or_fail()?;
        tx.commit().await.or_fail()
    }
}

/// The model to which vectors are moved, if the settings name one.
async fn coming(service: &Service) -> Result<Option<Model>, Failure> {
    match &service.coming {
        Some(coming) => coming.model().await.map(Some).or_fail(),
        None => Ok(None),
    }
}

async fn shown(service: &Service) -> Result<ModelMoveResponse, Failure> {
    let model = service.model_of(service.embedder()?).await;
    // A runner that is away for a moment does not keep anybody from reading how far the move is.
    let coming_model = coming(service).await.ok().flatten().map(|coming| coming.identity().to_owned());
    let mut conn = service.pool.acquire().await.or_fail()?;
    let moved = model_moves::read(&mut conn).await.or_fail()?;
    let model = match (model, &moved) {
        // Whoever looks, or has called the move off, may do so because of this.
        (Err(EmbedError::NotServing { .. }), Some(moved)) => moved.serving.clone(),
        (model, _) => model.or_fail()?.identity().to_owned(),
    };
    let last = match moved {
        None => None,
        Some(moved) => Some(ModelMove {
            from_model: moved.from_model,
            to_model: moved.to_model,
            state: moved.state.0,
            done: moved.done.min(moved.wanted),
            of: moved.wanted,
            refused: model_moves::refusals(&mut conn).await.or_fail()?,
            passes: moved.passes,
            tasks: model_moves::unfinished(&mut conn, REEMBED.name).await.or_fail()?,
            started_at: moved.started_at,
            served_at: moved.served_at,
            ended_at: moved.ended_at,
        }),
    };
    Ok(ModelMoveResponse { model, coming_model, last })
}
