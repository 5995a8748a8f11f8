//! How a request is served: it arrives as a call, which is carried out and answered. Only what needs the types of a row is compiled once for
//! each row.
use super::{
    Form, Handle, Received,
    decode::{Decode, is_empty, misfit, unpacked},
    encode::Encode,
    lifetime,
    reading::{self, After},
    refuse_version,
    strict::Strict,
};
use crate::{
    access::Caller,
    admission::{self, Place},
    service::Service,
};
use axum::{
    extract::{FromRequestParts, Path, Request, path::ErrorKind, rejection::PathRejection},
    response::Response,
};
use futures_util::future::BoxFuture;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{Body, Call, Code, Failure, Meta, Operation, POSITION_HEADER, Params, wire::EmbedQuery};
use svc_ids::PrincipalId;

/// A call whose types are erased.
pub(super) trait Work: Send {
    /// The same call once more, for a second try; `None` if its body is received only once.
    fn again(&self) -> Option<Box<dyn Work>>;
    /// Carries the call out, and makes a response of what it returns.
    fn carry_out<'a>(
        self: Box<Self>,
        service: &'a Service,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Response, Failure>>;
}

impl<O: Operation> Work for Call<O, Received<O>>
where
    Service: Handle<O>,
    O::Body: Decode,
    O::Reply: Encode,
{
    fn again(&self) -> Option<Box<dyn Work>> {
        let body = O::Body::again(&self.body)?;
        let call: Call<O, Received<O>> =
            Call { meta: self.meta.clone(), path: self.path.clone(), query: self.query.clone(), body };
        Some(Box::new(call))
    }

    fn carry_out<'a>(
        self: Box<Self>,
        service: &'a Service,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Response, Failure>> {
        Box::pin(async move { service.handle(caller, *self).await.map(O::Reply::encode) })
    }
}

/// A request that has arrived: the slot that its body takes, and what it asks for.
pub(super) type Arrived = (Option<Place>, Box<dyn Work>);

/// Receives a request of a row.
pub(super) type Arrive =
    for<'a> fn(&'a Service, Option<PrincipalId>, Meta, Request) -> BoxFuture<'a, Result<Arrived, Failure>>;

/// Receives a request of the row `O`, whose types say what its path, query and body hold.
pub(super) fn arrive<O: Operation>(
    service: &Service,
    principal: Option<PrincipalId>,
    meta: Meta,
    request: Request,
) -> BoxFuture<'_, Result<Arrived, Failure>>
where
    Service: Handle<O>,
    O::Body: Decode,
    O::Reply: Encode,
{
    Box::pin(async move {
        let (mut parts, body) = request.into_parts();
        let path: O::Path = path(&mut parts).await?;
        let asked = parts.uri.query();
        if O::Body::SHOWS_EMBED {
            // The body takes it over, and whoever errs in it learns so before the body is read.
            query::<EmbedQuery>(asked)?;
        }
        let query: O::Query = query(if O::Body::SHOWS_EMBED { None } else { asked })?;
        // A request without a body announces no length, and would take the room of the largest body.
        let is_empty = is_empty(&body);
        let admitted = match is_empty {
            true => None,
            false => O::Body::admit(service, principal, &parts.headers).await?,
        };
        let body = O::Body::decode(service, Request::from_parts(parts, body)).await?;
        let call: Call<O, Received<O>> = Call { meta, path, query, body };
        let work: Box<dyn Work> = Box::new(call);
        Ok((admitted, work))
    })
}

/// How long the rights of a caller hold while its body arrives and its request waits; after that they are looked up again.
const RIGHTS_HOLD: Duration = Duration::from_secs(1);

/// Serves a request of a caller who may call the operation.
pub(super) async fn serve(
    form: Form,
    service: Arc<Service>,
    mut caller: Caller,
    request: Request,
) -> Result<Response, Failure> {
    let Form { info, arrive, heeds, .. } = form;
    let begun = Instant::now();
    service.provide(info.needs)?;
    let meta = meta(&request);
    refuse_version(&info, heeds, &meta)?;
    // Without standbys too, so that a caller learns of its mistake before there is one.
    let after = match reading::names_position(&info) {
        true => After::of(request.headers())?,
        false => After::Anything,
    };
    let replicas = service.replicas().filter(|_| reading::names_position(&info));
    if !http_body::Body::is_end_stream(request.body()) {
        unpacked(request.headers())?;
    }
    let arriving = service.admission.arriving(caller.principal_id())?;
    let (admitted, work) = arrive(&service, caller.principal_id(), meta, request).await?;
    drop(arriving);
    // Not before the body has arrived, or slow clients would keep others waiting.
    let slot = lifetime::slot(&service.admission, &info).await?;
    if begun.elapsed() > RIGHTS_HOLD {
        caller = caller.again(&service.pool).await?;
    }
    // Whatever wraps a handler moves a pointer, or each layer would take the handler's size from the thread's stack.
    let answer = Box::pin(async {
        let (mut response, position) = match replicas {
            Some(replicas) => reading::carry_out(&service, replicas, &caller, &info, after, work).await?,
            None => (work.carry_out(&service, &caller).await?, None),
        };
        if let Some(position) = position.and_then(|at| HeaderValue::try_from(at.to_string()).ok()) {
            response.headers_mut().insert(POSITION_HEADER, position);
        }
        // The request keeps its slots until there is room for the answer.
        let bytes = http_body::Body::size_hint(response.body()).exact().unwrap_or_default();
        let room = service.admission.answer(caller.principal_id(), bytes).await;
        // What has been changed cannot be refused any more.
        let room = if lifetime::only_reads(&info) { room? } else { room.unwrap_or_default() };
        if let Some(room) = room {
            response.extensions_mut().insert(Arc::new(room));
        }
        Ok(response)
    });
    let slots = admitted.into_iter().chain(slot).collect();
    let answer = admission::holding(slots, answer);
    let outcome = lifetime::in_time(&info, service.settings.request_timeout, answer).await;
    outcome.map_err(|failure| caller.told_failure(failure))
}

async fn path<P: Params>(parts: &mut http::request::Parts) -> Result<P, Failure> {
    match Path::<P>::from_request_parts(parts, &()).await {
        Ok(Path(path)) => path.check().map(|()| path),
        Err(PathRejection::FailedToDeserializePathParams(error)) => Err(match error.kind() {
            // Each parameter of a path that is not text is an id.
            ErrorKind::ParseErrorAtKey { key, value, .. } => {
                Failure::field(key, format!("takes a whole number, got `{value}`"))
            }
            ErrorKind::InvalidUtf8InPathParam { key } => Failure::field(key, "is not UTF-8"),
            other => Failure::new(Code::InvalidField, format!("the path: {other}")),
        }),
        Err(rejection) => Err(Failure::new(Code::InvalidField, format!("the path: {}", rejection.body_text()))),
    }
}

pub(super) fn query<Q: Params>(text: Option<&str>) -> Result<Q, Failure> {
    let text = text.unwrap_or_default();
    // The decoder would put another character in the place of what is not UTF-8.
    let is_no_text = |(_, value): &(&str, &str)| percent_decode_str(value).decode_utf8().is_err();
    if let Some((name, _)) = text.split('&').filter_map(|pair| pair.split_once('=')).find(is_no_text) {
        return Err(Failure::field(&percent_decode_str(name).decode_utf8_lossy(), "is not UTF-8"));
    }
    let deserializer = serde_html_form::Deserializer::from_bytes(text.as_bytes());
    match serde_path_to_error::deserialize::<_, Q>(Strict::text(deserializer)) {
        Ok(query) => query.check().map(|()| query),
        Err(error) => {
            // The decoder says `unsupported value` of a second value where it takes only one.
            let reason = error.inner().to_string().replace("unsupported value", "may be given only once");
            Err(misfit("the query", &error.path().to_string(), &reason, Q::constraints))
        }
    }
}

/// Reads the metadata of a request. Ranges apply only to `GET`.
fn meta(request: &Request) -> Meta {
    let meta = Meta::read(request.headers());
    if request.method() == http::Method::GET { meta } else { Meta { range: None, ..meta } }
}
