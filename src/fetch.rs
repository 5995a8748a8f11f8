//! Fetches from and posts to addresses that callers name. Nobody reaches the service's own network through it: every
//! address is checked before it is connected to, and again after each redirect.
use crate::settings::{AllowedTarget, Settings};
use addresses::{Lookup, SystemLookup};
pub use body::Answer;
use bytes::Bytes;
use chrono::{DateTime, Utc};
pub use error::FetchError;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
pub use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls_platform_verifier::BuilderVerifierExt;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

mod addresses;
mod body;
mod error;
#[cfg(test)]
mod tests;

/// A longer address is refused.
const URL_BYTES: usize = 4096;
/// The most bytes of an answer's header.
const HEADER_BYTES: usize = 64 << 10;
const CONNECT: Duration = Duration::from_secs(10);
/// Within this time an answer must bring [`body::PROGRESS`] bytes, or its end.
const STALL: Duration = Duration::from_secs(10);
const REDIRECTS: usize = 5;
const USER_AGENT: &str = concat!("svc/", env!("CARGO_PKG_VERSION"));

/// How long a fetch may take, and how much it may bring.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most redirects that are followed; with 0 a redirect is an answer like any other.
    pub redirects: usize,
    pub connect: Duration,
    /// The whole fetch, from the lookup of the name to the end of the body.
    pub total: Duration,
    pub stall: Duration,
    /// The most bytes of the body, as they arrive and unpacked.
    pub bytes: u64,
}

impl Limits {
    /// The limits of pages and files.
    pub fn of(settings: &Settings) -> Limits {
        Limits {
            redirects: REDIRECTS,
            connect: CONNECT,
            total: settings.fetch_timeout,
            stall: STALL,
            bytes: settings.fetch_max_bytes,
        }
    }
}

/// A call to a foreign address.
#[derive(Clone, Debug)]
pub struct Request {
    /// Only a GET follows redirects.
    pub method: Method,
    pub url: Url,
    /// Sent only to the origin of `url`; after a redirect to another origin, `Accept` alone is sent.
    pub headers: HeaderMap,
    pub body: Bytes,
    pub limits: Limits,
}

impl Request {
    pub fn get(url: Url, limits: Limits) -> Request {
        Request { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new(), limits }
    }

    /// A POST. A redirect is not followed, but returned as the answer.
    pub fn post(url: Url, body: impl Into<Bytes>, limits: Limits) -> Request {
        Request { method: Method::POST, body: body.into(), ..Request::get(url, limits) }
    }

    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Request {
        self.headers.insert(name, value);
        self
    }
}

/// Reads an address that may be fetched: http or https, with a host and without a password.
pub fn parse(text: &str) -> Result<Url, FetchError> {
    let refused = |reason: &'static str| FetchError::Address { reason };
    if text.len() > URL_BYTES {
        return Err(refused("it is longer than 4096 bytes"));
    }
    let text = text.trim();
    // The parser leaves such characters out, so that another address would be called than the one that is shown.
    if text.contains(char::is_control) {
        return Err(refused("it has a line break or another control character"));
    }
    checked(Url::parse(text).map_err(|_| refused("it is not a whole address such as https://example.org/page"))?)
}

fn checked(mut url: Url) -> Result<Url, FetchError> {
    let refused = |reason: &'static str| Err(FetchError::Address { reason });
    if !matches!(url.scheme(), "http" | "https") {
        return refused("only http and https are fetched");
    }
    if url.host_str().is_none_or(str::is_empty) {
        return refused("it names no host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refused("it holds a user name or a password, which would be stored with the page: leave it out");
    }
    url.set_fragment(None);
    Ok(url)
}

/// Whether the URL names an address by its number that is not public. A name may have such an address too, which is
/// known only when it is looked up.
pub fn is_inside(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| !addresses::is_public(address))
}

/// How long the sender of an answer asks to be left alone, which it says in seconds or by a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = DateTime::parse_from_rfc2822(asked).ok()?;
    // One that is over says that the clocks differ, and not for how long to wait.
    (until.to_utc() - Utc::now()).to_std().ok()
}

/// The client of foreign addresses. It uses no proxy, because a proxy would connect to what this program cannot check.
#[derive(Clone)]
pub struct Fetcher {
    allowed: Arc<[AllowedTarget]>,
    lookup: Arc<dyn Lookup>,
}

/// With the machine's root certificates, which a process reads once; `None` if TLS does not start here.
static TLS: LazyLock<Option<rustls::ClientConfig>> = LazyLock::new(|| {
    tls().inspect_err(|error| tracing::warn!(%error, "nothing can be fetched, because TLS does not start")).ok()
});

impl Fetcher {
    /// Reads the machine's root certificates. Without them, only http can be fetched.
    pub fn new(settings: &Settings) -> Fetcher {
        Fetcher::looking_up(&settings.fetch_allow, Arc::new(SystemLookup))
    }

    /// The client of webhooks, which also calls addresses that are not public if SVC_WEBHOOK_PRIVATE is on.
    pub fn of_webhooks(settings: &Settings) -> Fetcher {
        let everywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok());
        let allowed: Vec<_> = everywhere.filter(|_| settings.webhook_private).map(AllowedTarget::Network).collect();
        Fetcher::looking_up(&allowed, Arc::new(SystemLookup))
    }

    fn looking_up(allowed: &[AllowedTarget], lookup: Arc<dyn Lookup>) -> Fetcher {
        // The log says at the start, and not at the first fetch, what is missing here.
        LazyLock::force(&TLS);
        Fetcher { allowed: allowed.into(), lookup }
    }

    /// Sends a request and returns the answer when its header has arrived, whatever its status.
    pub async fn send(&self, request: Request) -> Result<Answer, FetchError> {
        let limits = request.limits;
        let deadline = Instant::now() + limits.total;
        let mut url = checked(request.url.clone())?;
        let follows = if request.method == Method::GET { limits.redirects } else { 0 };
        for left in (0..=follows).rev() {
            let response = timeout_at(deadline, self.hop(&request, &url)).await;
            let response = response.map_err(|_| FetchError::timeout(&url))??;
            let answer = Answer::new(response, url, limits, deadline)?;
            tracing::debug!(host = answer.host(), status = answer.status.as_u16(), "a foreign address answered");
            if follows == 0 {
                return Ok(answer);
            }
            let Some(next) = next(&answer)? else { return Ok(answer) };
            url = next;
            if left == 0 {
                return Err(FetchError::Redirects { host: answer.host().to_owned(), limit: follows });
            }
        }
        Err(FetchError::timeout(&url))
    }

    /// Looks the host up once, checks the addresses, and connects to those alone.
    async fn hop(&self, request: &Request, url: &Url) -> Result<reqwest::Response, FetchError> {
        let tls = TLS.clone().ok_or_else(|| FetchError::broken(url, "TLS does not start on this machine"))?;
        let addresses = addresses::checked(&*self.lookup, &self.allowed, url).await?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(request.limits.connect)
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Pinned(addresses.clone())))
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| FetchError::of(url, error))?;
        let mut call = client.request(request.method.clone(), url.clone());
        if url.origin() == request.url.origin() {
            call = call.headers(request.headers.clone());
        } else if let Some(accept) = request.headers.get(header::ACCEPT) {
            call = call.header(header::ACCEPT, accept);
        }
        call = call.header(header::USER_AGENT, USER_AGENT).header(header::ACCEPT_ENCODING, "gzip");
        if !request.body.is_empty() {
            call = call.body(request.body.clone());
        }
        let response = call.send().await.map_err(|error| FetchError::of(url, error))?;
        if response.remote_addr().is_some_and(|at| !addresses.iter().any(|address| address.ip() == at.ip())) {
            return Err(FetchError::forbidden(url));
        }
        Ok(response)
    }
}

fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let builder = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
    };
    Ok(match builder()?.with_platform_verifier() {
        Ok(tls) => tls.with_no_client_auth(),
        Err(error) => {
            tracing::warn!(%error, "this machine has no usable root certificates, so nothing is fetched by https");
            builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
        }
    })
}

/// Where a redirect leads; `None` if the answer is not one.
fn next(answer: &Answer) -> Result<Option<Url>, FetchError> {
    use StatusCode as Status;
    let redirects = [
        Status::MOVED_PERMANENTLY,
        Status::FOUND,
        Status::SEE_OTHER,
        Status::TEMPORARY_REDIRECT,
        Status::PERMANENT_REDIRECT,
    ];
    if !redirects.contains(&answer.status) {
        return Ok(None);
    }
    let Some(location) = answer.headers.get(header::LOCATION) else { return Ok(None) };
    let location = std::str::from_utf8(location.as_bytes()).ok().filter(|location| location.len() <= URL_BYTES);
    let url = location.and_then(|location| answer.url.join(location).ok());
    let broken = || FetchError::broken(&answer.url, "it redirects to what is not an address");
    checked(url.ok_or_else(broken)?).map(Some)
}

/// Knows no addresses but those that were checked, whatever it is asked for.
struct Pinned(Vec<SocketAddr>);

impl Resolve for Pinned {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}
