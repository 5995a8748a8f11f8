//! Signing in with a token, signing out, and the choice of colours.
use super::{
    Console, Parameters, acts,
    auth::{self, THEME, Viewer},
    layout,
};
use axum::{
    body::Bytes,
    extract::{Query, Request, State},
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::html;
use std::sync::Arc;
use svc_client::{Code, Failure};

/// The longest form of a sign-in.
const LONGEST: usize = 8 * 1024;

pub async fn ask(Query(query): Query<Parameters>, headers: HeaderMap) -> Response {
    page(&headers, StatusCode::OK, None, acts::own(query.get("to")))
}

/// The page that asks for a token, and then leads to the address `to`.
fn page(headers: &HeaderMap, status: StatusCode, problem: Option<&str>, to: Option<&str>) -> Response {
    let body = html! {
        main .alone #main {
            h1 { "svc" }
            p .dim { "Sign in with the owner's token to see and operate the service, or with a token of your own to see your documents." }
            @if let Some(problem) = problem { div .finding .bad role="alert" { span .g aria-hidden="true" { "✕" } div { (problem) } } }
            form .sign-in method="post" action="/login" {
                @if let Some(to) = to { input type="hidden" name="to" value=(to); }
                label for="token" { "Token" }
                input #token name="token" type="password" autocomplete="current-password" required;
                button .main { "Sign in" }
            }
            // A browser sends the cookie of the session with a link of this page, and with none of another site.
            @if let Some(to) = to { p .dim { "If you have signed in before, " a href=(to) { "go on to the page" } "." } }
            p .dim { "The owner's token is " code { "SVC_API_TOKEN" } "; without one, each start of the service makes a token and prints it." }
        }
    };
    (status, layout::whole("Sign in", auth::theme(headers), body, false)).into_response()
}

pub async fn sign_in(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let peer = auth::peer(&parts.extensions);
    let Ok(body) = axum::body::to_bytes(body, LONGEST).await else {
        return page(&parts.headers, StatusCode::PAYLOAD_TOO_LARGE, Some("This is too long for a token."), None);
    };
    let form = acts::fields(&body);
    let to = acts::own(form.get("to"));
    let token = form.get("token").map(String::as_str).unwrap_or_default();
    let Some(tried) = console.attempts.count(peer, token) else {
        let problem = "Too many wrong tokens came from your address. Try again in a minute.";
        return page(&parts.headers, StatusCode::TOO_MANY_REQUESTS, Some(problem), to);
    };
    match auth::open(&console, &parts.headers, token).await {
        Ok(Some(cookie)) => {
            console.attempts.forgive(tried);
            redirect(to.unwrap_or("/"), [cookie])
        }
        Ok(None) => {
            tracing::info!(%peer, "a wrong token was shown to the console");
            page(
                &parts.headers,
                StatusCode::FORBIDDEN,
                Some("This token opens nothing. It may have been revoked or replaced."),
                to,
            )
        }
        Err(failure) => {
            console.attempts.forgive(tried);
            layout::bare_refusal(&failure)
        }
    }
}

pub async fn sign_out(State(console): State<Arc<Console>>, viewer: Viewer, body: Bytes) -> Response {
    if !viewer.owns_form(acts::fields(&body).get("csrf")) {
        return foreign();
    }
    match viewer.sign_out(&console).await {
        Ok(()) => Redirect::to("/login").into_response(),
        Err(failure) => layout::bare_refusal(&failure),
    }
}

/// Takes the next choice of colours: those of the system, dark, light.
pub async fn change_theme(headers: HeaderMap, viewer: Viewer, body: Bytes) -> Response {
    let form = acts::fields(&body);
    if !viewer.owns_form(form.get("csrf")) {
        return foreign();
    }
    let next = match viewer.theme {
        None => "dark",
        Some("dark") => "light",
        Some(_) => "system",
    };
    redirect(acts::back(&form), auth::set_cookie(&headers, THEME, next, Some(365 * 86_400)))
}

/// The answer to a form that is not this session's.
pub fn foreign() -> Response {
    let detail = "this form is not of your session: load the page again, and send it from there";
    layout::bare_refusal(&Failure::new(Code::Forbidden, detail))
}

/// Leads to a page with these cookies.
pub fn redirect(to: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> Response {
    let mut response = Redirect::to(to).into_response();
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
