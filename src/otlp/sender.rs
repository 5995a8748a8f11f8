//! How batches reach the collector: with the HTTP client of the service, on its runtime. The crates of OpenTelemetry send from threads of their
//! own, which have none.
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Handle;

/// How long the collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of its answer.
const ANSWER_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct Sender {
    http: reqwest::Client,
    runtime: Handle,
    /// The last batch was not taken, and that was said.
    is_away: Arc<AtomicBool>,
}

impl Sender {
    pub fn new() -> reqwest::Result<Sender> {
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            // The headers may hold a key, which is for this address alone.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Sender { http, runtime: Handle::current(), is_away: Arc::default() })
    }

    /// Says once that the collector is away, and once that it is back.
    fn note(&self, problem: Option<String>) {
        let was_away = self.is_away.swap(problem.is_some(), Ordering::Relaxed);
        match (problem, was_away) {
            (Some(problem), false) => {
                tracing::warn!(
                    problem,
                    "the collector of SVC_OTLP_ENDPOINT takes nothing; what it should have got is dropped until it does"
                );
            }
            (None, true) => tracing::info!("the collector of SVC_OTLP_ENDPOINT takes traces and metrics again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let http = self.http.clone();
        let sent = self.runtime.spawn(async move { send(&http, request).await });
        let answer = match sent.await {
            Ok(answer) => answer.map_err(|error| reason(&error.without_url())),
            Err(error) => Err(error.to_string()),
        };
        self.note(match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(problem) => Some(problem.clone()),
        });
        answer.map_err(HttpError::from)
    }
}

/// What an error says, with what is behind it.
fn reason(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

async fn send(http: &reqwest::Client, request: Request<Bytes>) -> reqwest::Result<Response<Bytes>> {
    let mut answer = http.execute(request.try_into()?).await?;
    let mut body = BytesMut::new();
    while let Some(piece) = answer.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_BYTES {
            break;
        }
    }
    body.truncate(ANSWER_BYTES);
    let mut response = Response::new(body.freeze());
    *response.status_mut() = answer.status();
    Ok(response)
}
