//! The bulk feed, as its operator sees it: its state, its queues and outcomes, and what it gave up.
use crate::{
    access::Caller,
    error::OrFail,
    feed::{
        broker::{self, BrokerError},
        dead::Dead,
    },
    registry::Handle,
    sampler::feed::Work,
    service::Service,
    store::{self, audit::Entry},
};
use std::time::{Duration, Instant};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, DeadChoice, DeadTaken, FeedResponse, FeedState},
};

/// How many messages one call takes.
const TAKEN_AT_ONCE: i64 = 1_000;
/// How long a call may take messages before it answers.
const TIME: Duration = Duration::from_secs(10);
/// What helps where there is no broker.
const TURN_ON: &str = "set SVC_AMQP_URL to the address of a RabbitMQ and start the service again: docs/feed.md";

impl Handle<ops::read_feed> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_feed>) -> Result<FeedResponse, Failure> {
        let known = self.sampler.feed.state();
        let figures = self.sampler.feed.figures().await;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let default = &self.settings.amqp_principal;
        let (last_minute, last_hour) = store::bulk::rates(&mut conn).await.or_fail()?;
        let uploaders = store::bulk::uploaders(&mut conn, default).await.or_fail()?;
        let outcomes = store::bulk::latest(&mut conn).await.or_fail()?;
        drop(conn);
        let (state, detail, remedy) = match known.as_ref().map(|(state, _)| state) {
            None => (FeedState::NotConfigured, "there is no bulk feed here".to_owned(), Some(TURN_ON)),
            Some(Err(why)) => (FeedState::Away, why.clone(), Some(store::admin::FEED_REMEDY)),
            Some(Ok(Work::Takes)) => (FeedState::Takes, Work::Takes.says().to_owned(), None),
            Some(Ok(Work::Pauses)) => (FeedState::Pauses, Work::Pauses.says().to_owned(), None),
        };
        let place = known.is_some().then(|| broker::place(&self.settings).ok()).flatten();
        let figures = figures.as_deref();
        Ok(FeedResponse {
            state,
            detail,
            remedy: remedy.map(str::to_owned),
            since: known.map(|(_, since)| since),
            place,
            measured_at: figures.map(|figures| figures.at),
            queues: figures.map(|figures| figures.queues.clone()).unwrap_or_default(),
            at_work: figures.map_or(0, |figures| figures.at_work),
            last_minute,
            last_hour,
            uploaders,
            outcomes,
            dead: figures.map(|figures| figures.dead.clone()).unwrap_or_default(),
            dead_failure: figures.and_then(|figures| figures.dead_failure.clone()),
        })
    }
}

impl Handle<ops::replay_dead> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::replay_dead>) -> Result<DeadTaken, Failure> {
        take(self, caller, &call.body.0, AuditAct::FeedReplay).await
    }
}

impl Handle<ops::drop_dead> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::drop_dead>) -> Result<DeadTaken, Failure> {
        take(self, caller, &call.body.0, AuditAct::FeedDrop).await
    }
}

/// 503 for a broker that cannot be used.
fn away(error: BrokerError) -> Failure {
    Failure::new(Code::Unavailable, error).with("retry_after", 2)
}

/// Has messages tried once more, or drops them. Each act is on record before the message leaves its queue, so that none is done unrecorded.
async fn take(service: &Service, caller: &Caller, choice: &DeadChoice, act: AuditAct) -> Result<DeadTaken, Failure> {
    if service.settings.amqp_url.is_blank() {
        let failure = Failure::new(Code::NotConfigured, "there is no bulk feed here");
        return Err(failure.with("setting", "SVC_AMQP_URL").with("remedy", TURN_ON));
    }
    let _turn = service.sampler.feed.turn().await;
    let mut dead = Dead::open(&service.settings).await.map_err(away)?;
    let taken = take_from(service, caller, choice, act, &mut dead).await;
    dead.close().await;
    service.sampler.feed.forget();
    taken
}

async fn take_from(
    service: &Service,
    caller: &Caller,
    choice: &DeadChoice,
    act: AuditAct,
    dead: &mut Dead,
) -> Result<DeadTaken, Failure> {
    let begun = Instant::now();
    let mut done = DeadTaken { taken: 0, refused: 0, more: false };
    while let Some(letter) = dead.next().await.map_err(away)? {
        if begun.elapsed() > TIME || done.taken + done.refused >= TAKEN_AT_ONCE {
            done.more = true;
            break;
        }
        if !choice.has(&letter.about) {
            continue;
        }
        let entry = Entry::new(act).with("message_id", letter.about.message_id.clone());
        let entry = entry.with("code", letter.about.code.clone()).with("user", letter.about.user.clone());
        let mut tx = store::transaction::begin(&service.pool).await.or_fail()?;
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        let ended = match act {
            AuditAct::FeedReplay => dead.replay(letter).await,
            _ => dead.drop(letter).await,
        };
        match ended {
            Ok(()) => done.taken += 1,
            Err(error) if error.is_of_message() => done.refused += 1,
            Err(error) => return Err(away(error)),
        }
        if choice.message_id.is_some() {
            break;
        }
    }
    Ok(done)
}
