//! Where a request is carried out: at the primary, or, if it only reads, at a standby that has what its caller knows.
use super::serving::Work;
use crate::{
    access::Caller,
    replicas::{self, Needed, Replicas},
    service::Service,
    store,
};
use axum::response::Response;
use http::HeaderMap;
use svc_client::{AFTER_HEADER, Access, Code, Failure, NOW, On, OperationInfo, Position};

/// How old the store may be that a caller is answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The caller knows nothing that the answer could lack.
    Anything,
    Position(Position),
    /// The answer has everything that was committed before the request.
    Now,
}

impl After {
    /// Reads what a request demands.
    pub(super) fn of(headers: &HeaderMap) -> Result<After, Failure> {
        let mut values = headers.get_all(AFTER_HEADER).iter();
        let Some(value) = values.next() else { return Ok(After::Anything) };
        let refused = || Failure::field(AFTER_HEADER, "takes the `SVC-Position` of an earlier answer, or `now`, once");
        match (value.to_str().unwrap_or_default(), values.next()) {
            // Whichever were heeded, the answer might lack what the other one demands.
            (_, Some(_)) => Err(refused()),
            (NOW, None) => Ok(After::Now),
            (text, None) => text.parse().map(After::Position).map_err(|_| refused()),
        }
    }
}

/// An answer, and how far its caller knows the store from then on.
pub(super) type Answered = (Response, Option<Position>);

/// Whether the answers of an operation are of the store, and so name a position.
pub(super) fn names_position(info: &OperationInfo) -> bool {
    matches!(info.access, Access::Read | Access::Write | Access::Owner)
}

/// Carries out a call where standbys may answer. What fails at a standby is carried out again at the primary.
pub(super) async fn carry_out(
    service: &Service,
    replicas: &Replicas,
    caller: &Caller,
    info: &OperationInfo,
    after: After,
    work: Box<dyn Work>,
) -> Result<Answered, Failure> {
    if info.on == On::Replica {
        let again = work.again();
        if let Some(again) = again
            && let Some(answered) = at_a_standby(service, replicas, caller, after, again).await
        {
            return answered;
        }
        count("primary");
    }
    let response = work.carry_out(service, caller).await?;
    let position = match replicas.written().await {
        Ok(written) => Some(written.position),
        Err(error) => {
            tracing::warn!(%error, "an answer names no position, because the primary does not say how far it is");
            None
        }
    };
    Ok((response, position))
}

/// Carries out a read at a standby; `None` if the primary has to do it.
async fn at_a_standby(
    service: &Service,
    replicas: &Replicas,
    caller: &Caller,
    after: After,
    work: Box<dyn Work>,
) -> Option<Result<Answered, Failure>> {
    let turn = replicas.find(needed(replicas, caller, after).await?).await?;
    let there = service.reading_at(turn.pool());
    // The primary has as long again, if this takes too long.
    let limit = service.settings.request_timeout / 2;
    let read = tokio::time::timeout(limit, work.carry_out(&there, caller));
    let (outcome, has_failed) = store::replicas::reading(read).await;
    match outcome {
        Ok(Ok(response)) if !has_failed => {
            let position = turn.end().await?;
            count(turn.name());
            Some(Ok((response, Some(position))))
        }
        // The service has no slot for it, wherever it reads.
        Ok(Err(failure)) if failure.code == Code::TooManyRequests => Some(Err(failure)),
        // Also what is not there: it may be so new that this standby has not replayed it.
        _ => {
            tracing::debug!(standby = turn.name(), "the primary answers what a standby did not");
            None
        }
    }
}

/// What a standby must have replayed; `None` if the primary does not say what that is.
async fn needed(replicas: &Replicas, caller: &Caller, after: After) -> Option<Needed> {
    let position = match after {
        After::Position(position) => Some(position),
        After::Anything | After::Now => None,
    };
    let is_bounded = caller.principal().is_some();
    if !is_bounded && after != After::Now {
        return Some(Needed { timeline: None, position, rights: None });
    }
    // The caller's rights were looked up before this, so that what they rest on is counted here.
    let written = replicas.written().await.ok()?;
    let position = if after == After::Now { Some(written.position) } else { position };
    Some(Needed { timeline: Some(written.timeline), position, rights: is_bounded.then_some(written.rights) })
}

fn count(server: &str) {
    metrics::counter!(replicas::READS, "server" => server.to_owned()).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use svc_client::OPERATIONS;

    #[test]
    fn a_request_demands_nothing_a_position_or_the_moment() {
        let of = |value: &'static str| {
            let name = http::HeaderName::from_static(AFTER_HEADER);
            After::of(&HeaderMap::from_iter([(name, HeaderValue::from_static(value))]))
        };
        assert_eq!(After::of(&HeaderMap::new()).ok(), Some(After::Anything));
        assert_eq!(of("now").ok(), Some(After::Now));
        assert_eq!(of("0/16B3748").ok(), Some(After::Position(Position(0x16B_3748))));
        for other in ["", "later", "0/16B3748, 0/16B3749"] {
            let failure = of(other).expect_err("refused");
            assert_eq!(failure.code, Code::InvalidField, "{other}");
            assert_eq!(failure.members["field"], AFTER_HEADER, "{other}");
        }
        let name = http::HeaderName::from_static(AFTER_HEADER);
        let mut twice = HeaderMap::new();
        for value in ["0/16B3748", "0/16B3749"] {
            twice.append(name.clone(), HeaderValue::from_static(value));
        }
        assert_eq!(After::of(&twice).expect_err("refused").code, Code::InvalidField);
    }

    #[test]
    fn only_what_needs_no_right_to_write_is_answered_by_a_standby() {
        for row in OPERATIONS.iter().filter(|row| row.on == On::Replica) {
            assert!(super::super::lifetime::only_reads(row) && names_position(row), "{}", row.name);
        }
        for name in ["read_frontier", "list_tasks", "read_bytes", "export_turtle", "synthesize", "read_caller"] {
            let row = OPERATIONS.iter().find(|row| row.name == name).expect(name);
            assert_eq!(row.on, On::Primary, "{name}");
        }
    }
}
