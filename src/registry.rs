//! Mounts the operation table: one route and one OpenAPI entry per row, and the calls in process.
use crate::{access::Caller, admission::rates::Class, otlp, service::Service};
use axum::{
    Router,
    body::Body as HttpBody,
    extract::Request,
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, StatusCode, header};
use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};
use svc_client::{
    AFTER_HEADER, Call, Code, Conditional, Described, Download, Failure, FileBytes, Meta, Operation, OperationInfo,
    Outcome, POSITION_HEADER, Params, Reply, Transport, VERSION, VERSION_HEADER, Validated, constraint::Constraint,
    operation_table, ops, wire::EmbedQuery,
};
use utoipa::openapi::{
    self,
    path::{OperationBuilder, ParameterIn},
};

mod contract;
mod decode;
mod encode;
mod form;
mod lifetime;
mod mcp;
mod multipart;
mod numbers;
mod reading;
mod serving;
mod streamed;
mod strict;
mod surface;
pub use contract::contract;
pub(crate) use contract::contract_of;
pub use decode::{BodyStalled, Decode};
pub use encode::Encode;
pub(crate) use form::FormBody;
pub use lifetime::within;
pub(crate) use multipart::Head as FormHead;
use serving::Arrive;
pub use surface::refusal;

/// The behaviour of an operation; one impl per row, under `src/handlers`.
#[diagnostic::on_unimplemented(
    message = "operation `{O}` has no handler",
    label = "add `impl Handle<{O}> for Service` under src/handlers"
)]
pub trait Handle<O: Operation>
where
    O::Body: Decode,
{
    fn handle(&self, caller: &Caller, call: Call<O, Received<O>>) -> impl Future<Output = Outcome<O>> + Send;
}

/// The body of an operation as its handler receives it.
pub type Received<O> = <<O as Operation>::Body as Decode>::Received;

type Schemas = Vec<(String, openapi::RefOr<openapi::Schema>)>;

/// A row with its types erased, so that routing is compiled once and not once per row.
struct Mounted {
    form: Form,
    /// The second form of the row, which answers a caller that prefers its media type.
    other: Option<Form>,
    describe: fn(&mut Schemas) -> OperationBuilder,
    constraints: Constraints,
}

/// One form that a row may answer in.
#[derive(Clone)]
struct Form {
    info: OperationInfo,
    arrive: Arrive,
    media_type: &'static str,
    heeds: fn() -> Vec<&'static str>,
    describe: fn(&mut Schemas) -> Vec<Described>,
}

/// Constraints on fields beyond their types, by their names.
struct Constraints {
    parameters: fn() -> Vec<(&'static str, Constraint)>,
    body: fn() -> Vec<(&'static str, Constraint)>,
}

impl Form {
    fn of<O: Operation>() -> Form
    where
        Service: Handle<O>,
        O::Body: Decode,
        O::Reply: Encode,
    {
        Form {
            info: O::INFO,
            arrive: serving::arrive::<O>,
            media_type: O::Reply::accept(),
            heeds: O::Reply::heeds,
            describe: O::Reply::describe,
        }
    }
}

impl Mounted {
    fn of<O: Operation>() -> Mounted
    where
        Service: Handle<O>,
        O::Body: Decode,
        O::Reply: Encode,
    {
        Mounted {
            form: Form::of::<O>(),
            other: None,
            describe: |schemas| {
                let path = <O::Path as utoipa::IntoParams>::into_params(in_path);
                let mut query = <O::Query as utoipa::IntoParams>::into_params(in_query);
                if <O::Body as svc_client::Body>::SHOWS_EMBED {
                    query.extend(<EmbedQuery as utoipa::IntoParams>::into_params(in_query));
                }
                let body = <O::Body as svc_client::Body>::describe(schemas);
                OperationBuilder::new().parameters(Some(path.into_iter().chain(query))).request_body(body)
            },
            constraints: Constraints {
                parameters: || O::Path::constraints().into_iter().chain(O::Query::constraints()).collect(),
                body: <O::Body as svc_client::Body>::constraints,
            },
        }
    }

    fn or(self, other: Form) -> Mounted {
        Mounted { other: Some(other), ..self }
    }

    fn forms(&self) -> impl Iterator<Item = &Form> {
        std::iter::once(&self.form).chain(&self.other)
    }
}

// These are no closures, because a closure in `Mounted::of` has another type for each row, and each description of parameters would be
// compiled once for each row that has it.
fn in_path() -> Option<ParameterIn> {
    Some(ParameterIn::Path)
}

fn in_query() -> Option<ParameterIn> {
    Some(ParameterIn::Query)
}

macro_rules! mount_all { ($(
    $(#[doc = $doc:literal])+ $method:ident $path:literal $name:ident $args:tt -> $reply:ty
        $(, or $other:ident -> $other_reply:ty)? $(, access $access:ident)? $(, needs $need:ident)? $(, fails $codes:tt)? $(, tool $tool:ident)? $(, on $on:ident)?;
)*) => {
    fn registry() -> Vec<Mounted> { vec![$( Mounted::of::<ops::$name>()$( .or(Form::of::<ops::$other>()) )? ),*] }
} }
operation_table!(mount_all);

/// The headers that say what a principal has left of its requests, and how many it may make.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Pages that are not operations; everything else that is mounted is a row of the table.
pub const PAGES: &[&str] = &["/docs", "/", "/mcp"];

/// Every route of the service.
pub fn router(service: Arc<Service>) -> Router {
    service.sampler.start();
    service.follow_moves();
    mount(service, registry())
}

fn mount(service: Arc<Service>, rows: Vec<Mounted>) -> Router {
    let mut router = Router::new();
    for Mounted { form, other, .. } in rows {
        let service = service.clone();
        let method = MethodFilter::try_from(form.info.method.clone()).unwrap_or(MethodFilter::GET);
        let path = form.info.path;
        let serve = move |request: Request| {
            let preferred =
                other.filter(|other| Meta::read(request.headers()).prefers(other.media_type, form.media_type));
            answer(service, preferred.unwrap_or(form), request)
        };
        router = router.route(path, on(method, serve));
    }
    if let Some(mcp) = mcp::route(&service, &router) {
        router = router.route(PAGES[2], mcp);
    }
    router
        .merge(utoipa_swagger_ui::SwaggerUi::new(PAGES[0]).config(utoipa_swagger_ui::Config::from("/openapi.json")))
        .route("/", axum::routing::get(surface::front_door))
        .fallback(surface::nothing_there)
        .method_not_allowed_fallback(surface::wrong_method)
        .layer(cors(&service.settings.cors_origins))
        .layer(axum::middleware::from_fn(surface::guard))
}

fn cors(origins: &[String]) -> tower_http::cors::CorsLayer {
    use tower_http::cors::{AllowOrigin, CorsLayer};
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let own = [
        header::AUTHORIZATION,
        header::CONTENT_TYPE,
        HeaderName::from_static(VERSION_HEADER),
        HeaderName::from_static(AFTER_HEADER),
    ];
    let meta = Meta::headers().into_iter().map(|meta| meta.name);
    let headers: Vec<HeaderName> = own.into_iter().chain(mcp::HEADERS).chain(otlp::HEADERS).chain(meta).collect();
    let shown = [
        header::ETAG,
        header::CONTENT_RANGE,
        header::CONTENT_DISPOSITION,
        header::LOCATION,
        header::RETRY_AFTER,
        RATE_LIMIT,
        RATE_LIMIT_POLICY,
        HeaderName::from_static(POSITION_HEADER),
    ];
    let methods = [http::Method::GET, http::Method::POST, http::Method::PATCH, http::Method::PUT, http::Method::DELETE];
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_headers(headers)
        .allow_methods(methods)
        .expose_headers(shown)
}

/// Authenticates, serves, survives a panic, and logs; every operation is answered through this function.
async fn answer(service: Arc<Service>, form: Form, request: Request) -> Response {
    let info = form.info.clone();
    let started = Instant::now();
    let id = request_id(request.headers());
    let path = request.uri().path().to_owned();
    let span = tracing::info_span!("request", "request.id" = %id, operation = info.name);
    let trace = surface::trace(&info, request.headers(), &id);
    let of_answer = trace.clone();
    let (tasks, operation) = (service.requests.clone(), info.clone());
    let cut_off = (path.clone(), id.clone());
    let work = async move {
        let mut standing = None;
        let outcome = async {
            check_version(&request)?;
            let caller = service.keys.authenticate(&service.pool, info.access, request.headers()).await?;
            let limited = caller.principal().zip(Class::of(&info));
            let taken = limited.and_then(|(caller, class)| service.admission.rates.take(caller.id, class, started));
            standing = taken.map(|taken| taken.unwrap_or_else(|refused| refused));
            if let Some(Err(refused)) = taken {
                return Err(refused.refusal());
            }
            caller.admit(info.access)?;
            let served = Box::pin(serving::serve(form, service.clone(), caller, request));
            let served = AssertUnwindSafe(served).catch_unwind().await;
            let served = served.unwrap_or_else(|_| {
                tracing::error!("the handler panicked");
                Err(Failure::new(
                    Code::Internal,
                    "the request could not be carried out; the log has the cause under this request's id",
                ))
            });
            service.disk.heed(&served);
            served
        };
        let mut response = outcome.await.unwrap_or_else(|failure| problem(failure, &path, &id));
        identify(&mut response, &id);
        if let Some(standing) = standing {
            surface::rate(&mut response, &standing);
        }
        let (status, elapsed) = (response.status().as_u16(), started.elapsed());
        metrics::counter!(crate::telemetry::REQUESTS, "operation" => info.name, "status" => status.to_string())
            .increment(1);
        metrics::histogram!(crate::telemetry::REQUEST_SECONDS, "operation" => info.name).record(elapsed.as_secs_f64());
        surface::log(&info, &path, status, elapsed);
        surface::end_trace(&of_answer, &response);
        streamed::watch(response, info.name, started)
    };
    lifetime::carry_out(&tasks, &operation, span, trace.carry(work)).await.unwrap_or_else(|| {
        let (path, id) = cut_off;
        problem(Failure::new(Code::Unavailable, "the service is stopping").with("retry_after", 2), &path, &id)
    })
}

fn request_id(headers: &http::HeaderMap) -> String {
    if let Some(given) = surface::given_id(headers) {
        return given.to_owned();
    }
    uuid::Uuid::new_v4().simple().to_string()
}

fn check_version(request: &Request) -> Result<(), Failure> {
    match request.headers().get(VERSION_HEADER).map(HeaderValue::to_str) {
        Some(Ok(theirs)) if theirs != VERSION => Err(Failure::new(
            Code::VersionMismatch,
            format!("this client has version {theirs}, but the service has version {VERSION}"),
        )
        .with("client_version", theirs)
        .with("service_version", VERSION)
        .with("remedy", format!("install client version {VERSION}"))),
        _ => Ok(()),
    }
}

fn identify(response: &mut Response, request_id: &str) {
    let headers = response.headers_mut();
    headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert("x-request-id", id);
    }
}

/// A failure as `application/problem+json`.
fn problem(mut failure: Failure, path: &str, request_id: &str) -> Response {
    failure.instance = Some(path.to_owned());
    failure.request_id = Some(request_id.to_owned());
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(&failure).unwrap_or_default();
    let mut response =
        (status, [(header::CONTENT_TYPE, "application/problem+json")], HttpBody::from(body)).into_response();
    identify(&mut response, request_id);
    if failure.code == Code::Unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let number = |member: &str| failure.members.get(member).and_then(serde_json::Value::as_u64);
    if let Some(seconds) = number("retry_after") {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(size) = number("size").filter(|_| failure.code == Code::RangeNotSatisfiable)
        && let Ok(range) = HeaderValue::try_from(format!("bytes */{size}"))
    {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

/// Refuses a version that an operation would not compare. Whoever names one relies on it that no change of another's is overwritten.
fn refuse_version(info: &OperationInfo, heeds: fn() -> Vec<&'static str>, meta: &Meta) -> Result<(), Failure> {
    let is_named = meta.if_match.as_deref().is_some_and(|list| list.trim() != "*");
    if !is_named || lifetime::only_reads(info) || heeds().contains(&"if-match") {
        return Ok(());
    }
    let detail = format!("`{}` compares no versions, so it might overwrite a change of another's", info.name);
    Err(Failure::field("If-Match", detail).with("remedy", "send the request without `If-Match`"))
}

/// The answer with a file's bytes, for a page that leads to them.
pub fn file(read: Validated<Download>) -> Response {
    Conditional::<FileBytes>::encode(read)
}

/// The client that never leaves the process.
#[derive(Clone)]
pub struct InProcess {
    pub service: Arc<Service>,
    pub caller: Caller,
}

impl<O: Operation> Transport<O> for InProcess
where
    Service: Handle<O>,
    O::Body: Decode,
{
    async fn send(&self, call: Call<O>) -> Outcome<O> {
        let limited = self.caller.principal().zip(Class::of(&O::INFO));
        let rates = &self.service.admission.rates;
        if let Some(Err(refused)) = limited.and_then(|(caller, class)| rates.take(caller.id, class, Instant::now())) {
            return Err(refused.refusal());
        }
        self.caller.admit(O::INFO.access)?;
        self.service.provide(O::INFO.needs)?;
        refuse_version(&O::INFO, O::Reply::heeds, &call.meta)?;
        call.path.check()?;
        call.query.check()?;
        let Call { meta, path, query, body } = call;
        let body = body.receive(&self.service).await?;
        let outcome = self.service.handle(&self.caller, Call { meta, path, query, body }).await;
        self.service.disk.heed(&outcome);
        outcome.map_err(|failure| self.caller.told_failure(failure))
    }
}

#[cfg(test)]
mod tests;
