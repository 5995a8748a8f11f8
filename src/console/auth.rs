//! Who looks at the console, and whether a request is what it claims to be.
use super::{Console, layout};
use crate::{
    access::Caller,
    error::OrFail,
    listener::Peer,
    store::sessions::{self, Shown},
};
use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts, uri::Authority};
use lru::LruCache;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;
use svc_client::{Access, Code, Failure};

/// The cookie that holds the secret of a session.
const SESSION: &str = "svc_console";
/// The cookie that holds the colours that somebody chose.
pub const THEME: &str = "svc_theme";
/// The cookie that carries a sentence from an act to the page after it.
pub const NOTICE: &str = "svc_notice";
/// How many wrong tokens an address may show in [`ATTEMPTS_IN`].
const WRONG_TOKENS: u32 = 5;
const ATTEMPTS_IN: Duration = Duration::from_secs(60);
/// How long what was read of a session counts as true for pages that fetch themselves again.
const RECENT: Duration = Duration::from_secs(2);
/// How many sessions are remembered.
const RECENT_SESSIONS: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");
/// The longest address that a sign-in leads back to, so that it fits into the form and into another address.
const LONGEST_ADDRESS: usize = 2_000;
/// How many addresses are remembered.
const MOST_ADDRESSES: usize = 10_000;
/// The header by which a live page asks for its content alone.
const FRAGMENT: HeaderName = HeaderName::from_static("x-fragment");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Somebody who is signed in, and the page that is asked for.
pub struct Viewer {
    pub caller: Caller,
    pub csrf: String,
    /// Path and query of the page.
    pub address: String,
    pub theme: Option<&'static str>,
    /// What the last act came to.
    pub notice: Option<String>,
    /// A live page asks for its content alone.
    pub wants_fragment: bool,
    session: [u8; 32],
}

impl Viewer {
    pub fn is_owner(&self) -> bool {
        matches!(self.caller, Caller::Owner)
    }

    /// Whether others see the same at the same address.
    pub fn shares_pages(&self) -> bool {
        self.is_owner() && self.notice.is_none()
    }

    /// Whether the session goes on. While the database is away it does.
    pub async fn session_state(&mut self, console: &Console) -> SessionState {
        match caller_of(console, &self.session, false).await {
            Ok(Some((caller, _))) if caller.principal_id() == self.caller.principal_id() => {
                let is_same = caller.is_as(&self.caller);
                self.caller = caller;
                if is_same { SessionState::Lasts } else { SessionState::HasOtherRights }
            }
            Ok(_) => SessionState::Ended,
            Err(_) => SessionState::Lasts,
        }
    }

    /// Whether a form of this session holds the right token.
    pub fn owns_form(&self, csrf: Option<&String>) -> bool {
        csrf.is_some_and(|csrf| bool::from(csrf.as_bytes().ct_eq(self.csrf.as_bytes())))
    }

    /// Ends the session.
    pub async fn sign_out(&self, console: &Console) -> Result<(), Failure> {
        let mut conn = console.service.pool.acquire().await.or_fail()?;
        sessions::end(&mut conn, &self.session).await.or_fail()?;
        console.service.rights_changed();
        Ok(())
    }
}

/// What has become of a viewer's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    Lasts,
    /// The viewer may see or do something else than before.
    HasOtherRights,
    Ended,
}

/// Sessions as they were read a moment ago, so that live pages do not each ask the database who looks.
pub struct RecentSessions(Mutex<LruCache<[u8; 32], Recent>>);

struct Recent {
    at: tokio::time::Instant,
    /// What [`crate::service::Service::rights_version`] was before the session was read.
    rights: u64,
    caller: Caller,
    csrf: String,
}

impl Default for RecentSessions {
    fn default() -> RecentSessions {
        RecentSessions(Mutex::new(LruCache::new(RECENT_SESSIONS)))
    }
}

impl RecentSessions {
    /// Whose session this is, if it was read a moment ago and nobody's rights have changed here since.
    fn find(&self, hash: &[u8; 32], rights: u64) -> Option<(Caller, String)> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = sessions.get(hash).filter(|recent| recent.rights == rights && recent.at.elapsed() < RECENT)?;
        Some((recent.caller.clone(), recent.csrf.clone()))
    }

    fn keep(&self, hash: [u8; 32], rights: u64, caller: &Caller, csrf: &str) {
        let recent = Recent { at: tokio::time::Instant::now(), rights, caller: caller.clone(), csrf: csrf.to_owned() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(hash, recent);
    }
}

impl FromRequestParts<Arc<Console>> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Viewer, Response> {
        let wants_fragment = parts.headers.contains_key(FRAGMENT);
        let is_live = wants_fragment || parts.uri.path() == "/live";
        match viewer(parts, console, wants_fragment, !is_live).await {
            Ok(Some(viewer)) => Ok(viewer),
            Ok(None) if is_live => Err(StatusCode::UNAUTHORIZED.into_response()),
            Ok(None) => Err(Redirect::to(&sign_in_address(parts)).into_response()),
            Err(failure) => Err(layout::bare_refusal(&failure)),
        }
    }
}

/// The address of the sign-in page, which leads back to the page that was asked for.
fn sign_in_address(parts: &Parts) -> String {
    let asked = match parts.uri.path().strip_suffix("/bytes") {
        // A browser that saves a file would stay on the sign-in page.
        Some(document) => document,
        None => parts.uri.path_and_query().map_or("/", |address| address.as_str()),
    };
    match parts.method == Method::GET && asked != "/" && asked.len() <= LONGEST_ADDRESS {
        true => format!("/login?{}", layout::query(&[("to", asked)])),
        false => "/login".to_owned(),
    }
}

/// Who is signed in. Only what a person asks for keeps a session from becoming idle.
async fn viewer(
    parts: &Parts,
    console: &Console,
    wants_fragment: bool,
    is_used: bool,
) -> Result<Option<Viewer>, Failure> {
    let Some(secret) = cookie(&parts.headers, SESSION) else { return Ok(None) };
    let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
    Ok(caller_of(console, &hash, is_used).await?.map(|(caller, csrf)| Viewer {
        caller,
        csrf,
        address: parts.uri.path_and_query().map_or("/", |address| address.as_str()).to_owned(),
        theme: theme(&parts.headers),
        notice: cookie(&parts.headers, NOTICE).filter(|_| !wants_fragment).map(|text| layout::decoded(&text)),
        wants_fragment,
        session: hash,
    }))
}

/// Whose session this is, and the token of its forms; `None` if it has ended. What nobody asked for in person is answered by what was read a
/// moment ago.
async fn caller_of(console: &Console, hash: &[u8; 32], is_used: bool) -> Result<Option<(Caller, String)>, Failure> {
    let rights = console.service.rights_version();
    if !is_used && let Some(known) = console.sessions.find(hash, rights) {
        return Ok(Some(known));
    }
    let mut conn = console.service.pool.acquire().await.or_fail()?;
    let Some(session) = sessions::read(&mut conn, hash).await.or_fail()? else { return Ok(None) };
    if is_used && session.is_use_due {
        sessions::record_use(&mut conn, hash).await.or_fail()?;
    }
    drop(conn);
    let caller = match (session.token_id, session.owner_mark) {
        (Some(token_id), _) => Caller::of_token(&console.service.pool, token_id).await?,
        (None, mark) => (mark.as_deref() == Some(&console.service.keys.owner_mark())).then_some(Caller::Owner),
    };
    if let Some(caller) = &caller {
        console.sessions.keep(*hash, rights, caller, &session.csrf);
    }
    Ok(caller.map(|caller| (caller, session.csrf)))
}

/// The colours that somebody chose; `None` for those of the system.
pub fn theme(headers: &HeaderMap) -> Option<&'static str> {
    match cookie(headers, THEME)?.as_str() {
        "light" => Some("light"),
        "dark" => Some("dark"),
        _ => None,
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
}

/// A cookie of the console. Without seconds it lasts as long as the browser is open.
pub fn set_cookie(headers: &HeaderMap, name: &str, value: &str, seconds: Option<u32>) -> Option<HeaderValue> {
    let age = seconds.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
    // A proxy that speaks TLS says so; then the cookie never leaves without it.
    let is_secure = headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes() == b"https");
    let secure = if is_secure { "; Secure" } else { "" };
    HeaderValue::try_from(format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{age}{secure}")).ok()
}

/// Opens a session for whoever holds the token; `None` if nobody does. Returns the cookie.
pub async fn open(console: &Console, headers: &HeaderMap, token: &str) -> Result<Option<HeaderValue>, Failure> {
    let Ok(bearer) = HeaderValue::try_from(format!("Bearer {}", token.trim())) else { return Ok(None) };
    let shown = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
    let service = &console.service;
    let caller = match service.keys.authenticate(&service.pool, Access::Read, &shown).await {
        Ok(caller) => caller,
        Err(failure) if failure.code == Code::Unauthenticated => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let of = match caller.principal().map(|principal| principal.token_id) {
        Some(Some(token_id)) => Shown::Token(token_id),
        Some(None) => return Ok(None),
        None => Shown::Owner(service.keys.owner_mark()),
    };
    let secret = hex::encode(rand::random::<[u8; 32]>());
    let csrf = hex::encode(rand::random::<[u8; 32]>());
    let mut conn = service.pool.acquire().await.or_fail()?;
    sessions::begin(&mut conn, &Sha256::digest(secret.as_bytes()).into(), of, &csrf).await.or_fail()?;
    Ok(set_cookie(headers, SESSION, &secret, None))
}

/// How often each address showed a token lately that was wrong, or is not known to be right yet.
///
/// Behind a proxy all people have one address. Whoever tries tokens there uses up what the address may try, and then what each kind of tokens
/// may that is tried: the others, whose tokens are of other kinds, still sign in.
#[derive(Default)]
pub struct Attempts(Mutex<HashMap<IpAddr, Tries>>);

/// The tries of one address.
struct Tries {
    since: Instant,
    all: u32,
    /// Those with each kind of tokens.
    of_kind: [u32; 256],
}

/// A try that was counted.
#[derive(Clone, Copy)]
pub struct Try(IpAddr, u8);

/// What counts as one address: one of IPv6 is one of the many that its network has.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

impl Attempts {
    /// Counts a try of an address, before its token is looked for, so that many tries at once are not one. `None` if it may not try now.
    pub fn count(&self, address: IpAddr, token: &str) -> Option<Try> {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|_, tries| tries.since.elapsed() < ATTEMPTS_IN);
        let address = counted(address);
        if attempts.len() >= MOST_ADDRESSES && !attempts.contains_key(&address) {
            return None;
        }
        // Nobody who does not know a token knows of what kind it is.
        let kind = Sha256::digest(token.as_bytes())[0];
        let new = || Tries { since: Instant::now(), all: 0, of_kind: [0; 256] };
        let Tries { all, of_kind, .. } = attempts.entry(address).or_insert_with(new);
        let of_kind = &mut of_kind[usize::from(kind)];
        if *all >= WRONG_TOKENS && *of_kind >= WRONG_TOKENS {
            return None;
        }
        (*all, *of_kind) = (*all + 1, *of_kind + 1);
        Some(Try(address, kind))
    }

    /// The token was right, or nothing was learned of it.
    pub fn forgive(&self, Try(address, kind): Try) {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Tries { all, of_kind, .. }) = attempts.get_mut(&address) {
            let of_kind = &mut of_kind[usize::from(kind)];
            (*all, *of_kind) = (all.saturating_sub(1), of_kind.saturating_sub(1));
        }
    }
}

/// The address that a request comes from. Without a listener, as in a test of the router, it is this machine.
pub fn peer(request: &http::Extensions) -> IpAddr {
    request.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0)
}

/// Refuses requests under a foreign name and changes from foreign pages, and adds the headers that bind the browser.
pub async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let refused = if !is_own_name(&console, request.headers()) {
        let detail = "the console does not answer under this name: add it to SVC_CONSOLE_HOSTS";
        Some(Failure::new(Code::Forbidden, detail))
    } else if request.method() == Method::POST && !is_from_own_page(request.headers()) {
        Some(Failure::new(Code::Forbidden, "this form was not sent by a page of the console"))
    } else {
        None
    };
    let mut response = match refused {
        Some(failure) => layout::bare_refusal(&failure),
        None => next.run(request).await,
    };
    // With what has not changed, a browser would take the policy that comes here for that of what it has.
    let is_whole = response.status() != StatusCode::NOT_MODIFIED;
    let headers = response.headers_mut();
    if is_whole {
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // A form whose page sends no referrer has the origin `null`, by which it could not be told from a foreign one.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether a request names this listener. Otherwise a page of another name that leads here could read the console.
fn is_own_name(console: &Console, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    let listed = |known: &String| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name);
    if console.service.settings.console_hosts.iter().any(listed) {
        return true;
    }
    match name.parse::<IpAddr>() {
        // No foreign page has an address of numbers for its name.
        Ok(_) => true,
        Err(_) => name.eq_ignore_ascii_case("localhost") && console.address.ip().is_loopback(),
    }
}

/// Whether a page of the console sends this form.
fn is_from_own_page(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site.as_bytes() == b"same-origin";
    }
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(&header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    origin.is_some() && origin == text(&header::HOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tries_tokens_behind_a_proxy_keeps_nobody_else_out() {
        let (attempts, proxy) = (Attempts::default(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tried = |token: &str| attempts.count(proxy, token);
        let kind = |token: &str| Sha256::digest(token.as_bytes())[0];
        for _ in 0..WRONG_TOKENS {
            assert!(tried("wrong").is_some());
        }
        assert!(tried("wrong").is_none(), "one token is tried so often and no more");
        let right = "the token of somebody else";
        assert_ne!(kind("wrong"), kind(right));
        for _ in 0..100 {
            attempts.forgive(tried(right).expect("it may be tried"));
        }
        // A hundred tokens more are of some of the 256 kinds, and those of other kinds are still free.
        let more: Vec<String> = (0..100).map(|number| format!("guess {number}")).collect();
        for guess in more.iter().filter(|guess| kind(guess) != kind(right)) {
            let _ = tried(guess);
        }
        assert!(tried(right).is_some());
        assert!(attempts.count(IpAddr::V4(Ipv4Addr::BROADCAST), "wrong").is_some(), "another address");
    }

    #[test]
    fn who_tries_many_tokens_from_some_addresses_keeps_out_nobody_at_another() {
        let attempts = Attempts::default();
        for host in 0..50 {
            for number in 0..1_000 {
                let _ = attempts.count(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), &format!("guess {number}"));
            }
        }
        assert!(attempts.count(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), "guess 0").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_known_for_a_moment_and_not_once_rights_have_changed() {
        let sessions = RecentSessions::default();
        let is_known = |rights| {
            sessions.find(&[1; 32], rights).is_some_and(|(caller, csrf)| caller.is_as(&Caller::Owner) && csrf == "c")
        };
        assert!(!is_known(7));
        sessions.keep([1; 32], 7, &Caller::Owner, "c");
        assert!(is_known(7) && sessions.find(&[2; 32], 7).is_none());
        assert!(!is_known(8), "a session or a right has ended here");
        tokio::time::advance(RECENT - Duration::from_millis(1)).await;
        assert!(is_known(7));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!is_known(7), "another process may have ended it");
        for number in 0..2_000_u64 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_be_bytes());
            sessions.keep(hash, 7, &Caller::Nobody, "");
        }
        assert_eq!(sessions.0.lock().unwrap_or_else(PoisonError::into_inner).len(), RECENT_SESSIONS.get());
    }
}
