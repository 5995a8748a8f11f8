//! Requests to the hub. This code and not reqwest follows redirects, because the hash of a large file is in the hub's
//! own answer, which redirects to the store that has the bytes.

use super::{FetchError, HubSettings, checksum::Checksum};
use crate::location::HubId;
use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{ACCEPT_ENCODING, ETAG, HeaderMap, LOCATION, RANGE},
    redirect::Policy,
};
use std::{fmt::Write as _, time::Duration};

/// The default of `hf-hub` and similar tools.
const PUBLIC_HUB: &str = "https://huggingface.co";
const MAX_REDIRECTS: usize = 8;

pub(super) struct HubClient {
    client: Client,
    endpoint: Url,
    hub: HubId,
    /// The commit that the revision resolved to. All files come from it.
    commit: Option<String>,
    silence: Duration,
}

/// What the hub says of a file before it is fetched.
#[derive(Debug, Clone, Default)]
pub(super) struct RemoteFile {
    pub checksum: Option<Checksum>,
    /// The ETag as the hub sent it. A part that was fetched under another ETag belongs to another file.
    pub etag: Option<String>,
    pub size: Option<u64>,
}

impl HubClient {
    pub fn new(settings: &HubSettings, hub: HubId) -> Result<Self, FetchError> {
        let from_environment = || std::env::var("HF_ENDPOINT").ok().filter(|endpoint| !endpoint.is_empty());
        let text = settings.endpoint.clone().or_else(from_environment).unwrap_or_else(|| PUBLIC_HUB.to_owned());
        let unusable = |problem: String| FetchError::Endpoint { endpoint: text.clone(), problem };
        let mut endpoint = Url::parse(&text).map_err(|error| unusable(error.to_string()))?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.cannot_be_a_base() {
            return Err(unusable("it is not an http or https address".to_owned()));
        }
        // Paths are joined to it below; without the slash, the join would replace the last part of its path.
        if !endpoint.path().ends_with('/') {
            endpoint.set_path(&format!("{}/", endpoint.path()));
        }
        // reqwest needs a provider in the process; one that is installed already stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(Policy::none())
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.silence)
            .build()
            .map_err(|error| unusable(causes(&error)))?;
        Ok(Self { client, endpoint, hub, commit: None, silence: settings.silence })
    }

    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Asks for the hash and the size of `file`.
    pub async fn look_up(&mut self, file: &str) -> Result<RemoteFile, FetchError> {
        let (_, told) = self.send(Method::HEAD, file, 0).await?;
        if let Some(commit) = told.commit.filter(|_| self.commit.is_none()) {
            self.commit = Some(commit);
        }
        Ok(told.file)
    }

    /// Requests the bytes of `file` from `start` on. The answer may have all of them; its status tells.
    pub async fn get(&self, file: &str, start: u64) -> Result<Response, FetchError> {
        Ok(self.send(Method::GET, file, start).await?.0)
    }

    async fn send(&self, method: Method, file: &str, start: u64) -> Result<(Response, Told), FetchError> {
        let revision = self.commit.as_deref().unwrap_or(&self.hub.revision);
        let path = format!("{}/resolve/{revision}/{file}", self.hub.repository);
        let mut address = self
            .endpoint
            .join(&path)
            .map_err(|error| FetchError::Endpoint { endpoint: shown(&self.endpoint), problem: error.to_string() })?;
        let mut told = Told::default();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.client.request(method.clone(), address.clone()).header(ACCEPT_ENCODING, "identity");
            if start > 0 {
                request = request.header(RANGE, format!("bytes={start}-"));
            }
            let response = tokio::time::timeout(self.silence, request.send())
                .await
                .map_err(|_| self.silent(&address))?
                .map_err(|error| FetchError::Unreachable { address: shown(&address), problem: causes(&error) })?;
            told.learn(response.headers(), response.status());
            if !response.status().is_redirection() {
                return self.judge(response, &address, file).map(|response| (response, told));
            }
            let next = self.next(&address, &response)?;
            // Addresses in a store often allow only GET, and the hub has already answered what was asked.
            if method == Method::HEAD && next.origin() != address.origin() && told.file.etag.is_some() {
                return Ok((response, told));
            }
            address = next;
        }
        Err(FetchError::Redirect { address: shown(&address), problem: format!("over {MAX_REDIRECTS} times") })
    }

    fn next(&self, address: &Url, response: &Response) -> Result<Url, FetchError> {
        let redirect = |problem: &str| FetchError::Redirect { address: shown(address), problem: problem.to_owned() };
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| redirect("to nowhere"))?;
        let next = address.join(location).map_err(|_| redirect("to something that is not an address"))?;
        match (address.scheme(), next.scheme()) {
            (_, "https") | ("http", "http") => Ok(next),
            _ => Err(redirect("away from https")),
        }
    }

    fn judge(&self, response: Response, address: &Url, file: &str) -> Result<Response, FetchError> {
        let status = response.status();
        let said = response.headers().get("x-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
        let (repository, revision) = (self.hub.repository.clone(), self.hub.revision.clone());
        match status.as_u16() {
            200 | 206 | 416 => Ok(response),
            401 | 404 if matches!(said, "RepoNotFound" | "RevisionNotFound") => {
                Err(FetchError::RepositoryMissing { address: shown(&self.endpoint), repository, revision })
            }
            404 => Err(FetchError::FileMissing { repository, revision, file: file.to_owned() }),
            401 | 403 => Err(FetchError::Refused { address: shown(address), status: status.as_u16() }),
            status => Err(FetchError::Status { address: shown(address), status }),
        }
    }

    fn silent(&self, address: &Url) -> FetchError {
        FetchError::Silent { address: shown(address), seconds: self.silence.as_secs_f64() }
    }
}

/// What the answers say on the way from the hub to the store.
#[derive(Default)]
struct Told {
    file: RemoteFile,
    commit: Option<String>,
}

impl Told {
    /// The hub's own values are kept, because a store further on has its own ETag for the same bytes.
    fn learn(&mut self, headers: &HeaderMap, status: StatusCode) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let is_last = !status.is_redirection();
        let etag = text("x-linked-etag").or_else(|| text(ETAG.as_str()).filter(|_| is_last));
        if self.file.etag.is_none() && etag.is_some() {
            self.file.checksum = etag.as_deref().and_then(Checksum::from_etag);
            self.file.etag = etag;
        }
        let size = text("x-linked-size").or_else(|| text("content-length").filter(|_| is_last));
        self.file.size = self.file.size.or_else(|| size?.parse().ok());
        let is_commit = |commit: &String| commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.commit = self.commit.take().or_else(|| text("x-repo-commit").filter(is_commit));
    }
}

/// Without the query, because a store's addresses carry signatures in it.
fn shown(address: &Url) -> String {
    let mut address = address.clone();
    address.set_query(None);
    address.set_fragment(None);
    // Neither call fails for an http address.
    let _ = address.set_password(None);
    let _ = address.set_username("");
    address.to_string()
}

/// An error and its causes in one line. reqwest's own text would contain the address with its query.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let separator = if text.is_empty() { "" } else { ": " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{error}");
        cause = error.source();
    }
    if text.is_empty() { "the answer is not HTTP".to_owned() } else { text }
}
