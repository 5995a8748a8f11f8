//! Pages for people, on a listener of their own: the operator's console, and a reader.
//!
//! A page shows what operations answer, asked in process with the viewer's rights. So any process of the service shows the
//! whole fleet, and whatever a page knows, a program can ask too. A page works without a script; with one it stays live:
//! `/live` says that there is news, and the page fetches its own address again.
mod actors;
mod acts;
mod assets;
mod audit;
mod auth;
mod document;
mod documents;
mod draw;
mod failed;
mod feed;
mod layout;
mod live;
mod now;
mod reader;
mod regions;
mod say;
mod shown;
mod sign_in;
mod tasks;
#[cfg(test)]
mod tests;
mod workers;

use crate::{registry::InProcess, service::Service};
use auth::Viewer;
use axum::{
    Router,
    extract::{Path, Query, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use layout::Page;
use shown::{Asker, Shown, Version};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use svc_client::{
    Client, Code, Failure,
    wire::{DocumentPath, OverviewResponse, TaskPath},
};
use tokio::time::timeout;
use tower_http::catch_panic::CatchPanicLayer;

/// How long the reading of a page may take.
const READ_TIME: Duration = Duration::from_secs(10);

/// The console of one process.
pub struct Console {
    service: Arc<Service>,
    address: SocketAddr,
    attempts: auth::Attempts,
    sessions: auth::RecentSessions,
    shown: Shown,
    /// How often somebody changed something here.
    acts: AtomicU64,
}

type Parameters = HashMap<String, String>;
type Calls = Client<InProcess>;

/// Every route of the console, which listens on this address.
pub fn router(service: Arc<Service>, address: SocketAddr) -> Router {
    service.sampler.start();
    let console = Arc::new(Console {
        service,
        address,
        attempts: auth::Attempts::default(),
        sessions: auth::RecentSessions::default(),
        shown: Shown::default(),
        acts: AtomicU64::new(0),
    });
    let acts: Router<Arc<Console>> = Router::new()
        .route("/tasks/{id}/{act}", post(acts::on_task))
        .route("/failed/retry", post(acts::retry_group))
        .route("/task-types/{task_type}/{act}", post(acts::on_task_type))
        .route("/documents/{id}/{act}", post(acts::on_document))
        .route("/feed/dead/{act}", post(acts::on_dead))
        .route_layer(middleware::from_fn_with_state(console.clone(), acts::carry_out));
    let pages = Router::new()
        .merge(acts)
        .route("/", get(now_page))
        .route("/actors", get(actors_page))
        .route("/regions", get(regions_page))
        .route("/tasks", get(tasks_page))
        .route("/tasks/{id}", get(task_page))
        .route("/failed", get(failed_page))
        .route("/documents", get(documents_page))
        .route("/documents/{id}", get(document_page))
        .route("/workers", get(workers_page))
        .route("/workers/{id}", get(worker_page))
        .route("/feed", get(feed_page))
        .route("/view", get(reader_page))
        .route("/view/upload", post(reader::upload))
        .route("/view/{id}", get(view_page))
        .route("/view/{id}/references", get(references_page))
        .route("/view/{id}/bytes", get(reader::bytes))
        .route("/find", get(find))
        .route("/live", get(live::follow))
        .route("/assets/{name}", get(assets::read))
        .route("/login", get(sign_in::ask).post(sign_in::sign_in))
        .route("/logout", post(sign_in::sign_out))
        .route("/theme", post(sign_in::change_theme))
        .fallback(nothing_there)
        .layer(middleware::from_fn_with_state(console.clone(), auth::guard))
        .with_state(console);
    caught(pages)
}

/// Answers also where a defect ends the making of a page, whose cause the log has.
fn caught(pages: Router) -> Router {
    pages.layer(CatchPanicLayer::custom(|_| {
        let detail = "this page could not be made; the service's log has the cause as a panic";
        layout::bare_refusal(&Failure::new(Code::Internal, detail))
    }))
}

impl Console {
    fn calls(&self, viewer: &Viewer) -> Calls {
        Client(InProcess { service: self.service.clone(), caller: viewer.caller.clone() })
    }

    /// Notes that somebody changed something, so that no page is shown again as it was before.
    fn acted(&self) {
        self.acts.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers with a page. Viewers with the same rights who ask for the same address within a second share one reading, and pages that read
    /// themselves again share one for longer.
    async fn answer(
        &self,
        viewer: Viewer,
        place: &'static str,
        read: impl AsyncFnOnce(&Calls, Option<&OverviewResponse>) -> Result<Page, Failure>,
    ) -> Response {
        let version =
            Version { acts: self.acts.load(Ordering::Relaxed), overviews: *self.service.sampler.follow().borrow() };
        let asker = if viewer.wants_fragment { Asker::LivePage } else { Asker::Person };
        let key = viewer.shares_pages().then(|| viewer.address.clone());
        let rendered = self.shown.read(key, asker, version, async || {
            let overview = match viewer.is_owner() {
                true => self.service.sampler.overview().await,
                false => None,
            };
            let page = async {
                let _place = self.service.admission.page(viewer.caller.principal_id()).await?;
                let page = timeout(READ_TIME, Box::pin(read(&self.calls(&viewer), overview.as_deref()))).await;
                page.unwrap_or_else(|_| Err(slow()))
            };
            let (status, page) = match page.await {
                Ok(page) => (StatusCode::OK, page),
                Err(failure) => layout::refusal(&failure),
            };
            (status, page.title.clone(), layout::frame(&viewer, place, overview.as_deref(), page).into_string())
        });
        let rendered = rendered.await;
        let (status, title, frame) = &*rendered;
        layout::respond(&viewer, *status, title, frame)
    }
}

/// 503 for a page whose reading takes too long.
fn slow() -> Failure {
    let detail = format!("the database did not answer within {} s, so this page cannot be shown", READ_TIME.as_secs());
    Failure::new(Code::Unavailable, detail).with(
        "remedy",
        "load the page again; if that does not help, see what keeps the database busy: svc-worker doctor",
    )
}

async fn now_page(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    if !viewer.is_owner() {
        // Who is no operator has documents and nothing else.
        return axum::response::Redirect::to("/view").into_response();
    }
    console.answer(viewer, "/", now::read).await
}

async fn actors_page(State(console): State<Arc<Console>>, Query(query): Query<Parameters>, viewer: Viewer) -> Response {
    console.answer(viewer, "/actors", async |calls, _| actors::read(calls, &query).await).await
}

async fn regions_page(
    State(console): State<Arc<Console>>,
    Query(query): Query<Parameters>,
    viewer: Viewer,
) -> Response {
    console.answer(viewer, "/regions", async |calls, _| regions::read(calls, &query).await).await
}

async fn tasks_page(State(console): State<Arc<Console>>, Query(query): Query<Parameters>, viewer: Viewer) -> Response {
    console.answer(viewer, "/tasks", async |calls, overview| tasks::list(calls, overview, &query).await).await
}

async fn task_page(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Query(query): Query<Parameters>,
    viewer: Viewer,
) -> Response {
    console.answer(viewer, "/tasks", async |calls, _| tasks::one(calls, number(&id)?, &query).await).await
}

async fn failed_page(State(console): State<Arc<Console>>, Query(query): Query<Parameters>, viewer: Viewer) -> Response {
    console.answer(viewer, "/failed", async |calls, _| failed::read(calls, &query).await).await
}

async fn documents_page(
    State(console): State<Arc<Console>>,
    Query(query): Query<Parameters>,
    viewer: Viewer,
) -> Response {
    console.answer(viewer, "/documents", async |calls, _| documents::read(calls, &query).await).await
}

async fn document_page(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Query(query): Query<Parameters>,
    viewer: Viewer,
) -> Response {
    let is_owner = viewer.is_owner();
    let read = async |calls: &_, _: Option<&_>| document::read(calls, is_owner, number(&id)?, &query).await;
    console.answer(viewer, "/documents", read).await
}

async fn workers_page(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    console.answer(viewer, "/workers", async |calls, overview| workers::list(calls, overview).await).await
}

async fn worker_page(State(console): State<Arc<Console>>, Path(id): Path<String>, viewer: Viewer) -> Response {
    console.answer(viewer, "/workers", async |calls, _| workers::one(calls, id).await).await
}

async fn feed_page(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    console.answer(viewer, "/feed", async |calls, _| feed::read(calls).await).await
}

async fn reader_page(State(console): State<Arc<Console>>, Query(query): Query<Parameters>, viewer: Viewer) -> Response {
    console.answer(viewer, "/view", async |calls, _| reader::read(calls, &query).await).await
}

async fn view_page(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Query(query): Query<Parameters>,
    viewer: Viewer,
) -> Response {
    console.answer(viewer, "/view", async |calls, _| reader::document(calls, number(&id)?, &query).await).await
}

async fn references_page(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Query(query): Query<Parameters>,
    viewer: Viewer,
) -> Response {
    console.answer(viewer, "/view", async |calls, _| reader::references(calls, number(&id)?, &query).await).await
}

/// Leads to a document or a task by its id, `#7` to a task first, else to the files of that name.
async fn find(State(console): State<Arc<Console>>, Query(query): Query<Parameters>, viewer: Viewer) -> Response {
    let wanted = query.get("q").map(String::as_str).unwrap_or_default().trim();
    let calls = console.calls(&viewer);
    let (document, task) = (
        async |id| calls.read_evidence(DocumentPath { id }).await.is_ok().then(|| format!("/documents/{id}")),
        async |id| calls.read_task(TaskPath { id }).await.is_ok().then(|| format!("/tasks/{id}")),
    );
    let to = match (wanted.strip_prefix('#').map(str::parse::<i64>), wanted.parse::<i64>()) {
        (Some(Ok(id)), _) => match task(id).await {
            Some(to) => Some(to),
            None => document(id).await,
        },
        (_, Ok(id)) => match document(id).await {
            Some(to) => Some(to),
            None => task(id).await,
        },
        _ => None,
    };
    let to = to.unwrap_or_else(|| format!("/documents?{}", layout::query(&[("name", wanted)])));
    axum::response::Redirect::to(&to).into_response()
}

async fn nothing_there(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    let missing = Failure::new(Code::NotFound, "there is no such page");
    console.answer(viewer, "", async |_, _| Err(missing)).await
}

/// The number in an address.
fn number(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| Failure::new(Code::NotFound, "there is no such page: its address takes a whole number"))
}
