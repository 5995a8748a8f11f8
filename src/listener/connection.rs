//! One connection, from its first byte to its close.
use super::{
    Limits,
    activity::Activity,
    body::{Answer, Paced, lend},
};
use crate::registry;
use axum::Router;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, Version, header, uri::Authority};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use svc_client::{Code, Failure};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    sync::watch,
    time::Instant,
};
use tower::ServiceExt;

/// The longest header of a request: it has room for a query of 8,000 characters, each escaped.
const HEADER_BYTES: usize = 128 * 1024;
/// How long a closed connection is still read, so that a client which is sending its body gets the answer and not a
/// reset; and for how long of that the client may send nothing.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Connection {
    stream: TcpStream,
    router: Router,
    limits: Limits,
    activity: Arc<Activity>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, router: Router, limits: Limits, activity: Arc<Activity>) -> Connection {
        Connection { stream, router, limits, activity }
    }

    /// Serves the connection to its end; once `stop` becomes true, only the request under way.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let Connection { stream, router, limits, activity } = self;
        // Answers are written whole, so waiting for more to send gains nothing.
        drop(stream.set_nodelay(true));
        let peer = stream.peer_addr().ok().map(|address| Peer(address.ip()));
        let watched = Watched { stream, activity: activity.clone() };
        let requests = Requests { router, limits, activity: activity.clone(), peer };
        let mut http =
            http1::Builder::new().max_header_size(HEADER_BYTES).serve_connection(TokioIo::new(watched), requests);
        let mut stopped = None;
        let mut closed = pin!(activity.closed());
        let mut sleep = pin!(tokio::time::sleep(limits.idle));
        let mut stopping = stop.clone();
        let mut asked_to_stop = pin!(stopping.wait_for(|stop| *stop));
        let ended = poll_fn(|cx| {
            if stopped.is_none() && asked_to_stop.as_mut().poll(cx).is_ready() {
                stopped = Some(Instant::now());
                Pin::new(&mut http).graceful_shutdown();
            }
            if http.poll_without_shutdown(cx).is_ready() {
                return Poll::Ready(true);
            }
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            let Some(deadline) = activity.deadline(&limits, stopped) else { return Poll::Pending };
            if deadline < sleep.deadline() {
                sleep.as_mut().reset(deadline);
            }
            while sleep.as_mut().poll(cx).is_ready() {
                if deadline <= Instant::now() {
                    return Poll::Ready(false);
                }
                // The deadline was for a state that has changed since.
                sleep.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await;
        if ended && stopped.is_none() {
            let stream = http.into_parts().io.into_inner().stream;
            tokio::select! {
                _ = tokio::time::timeout(LINGER, linger(stream)) => {}
                () = activity.closed() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
    }
}

/// Announces that nothing more is sent, and reads until the client does the same.
async fn linger(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = vec![0; 16 * 1024];
    while tokio::time::timeout(LINGER_PAUSE, stream.read(&mut rest)).await?? > 0 {}
    Ok(())
}

/// Passes requests to the router.
struct Requests {
    router: Router,
    limits: Limits,
    activity: Arc<Activity>,
    peer: Option<Peer>,
}

/// The address that a request comes from, among its extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Answer>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut under_way = self.activity.request();
        let (router, limit, peer) = (self.router.clone(), self.limits.body, self.peer);
        Box::pin(async move {
            // Who waits to be asked for its body would be asked by a look at it.
            let may_look = !request.headers().contains_key(header::EXPECT);
            let (parts, body) = request.into_parts();
            let (body, rest) = lend(body);
            let mut request = Request::from_parts(parts, axum::body::Body::new(Paced::new(body, limit)));
            let mut response = match check(request.version(), request.headers()) {
                Ok(()) => {
                    if let Some(peer) = peer {
                        request.extensions_mut().insert(peer);
                    }
                    router.oneshot(request).await?
                }
                Err(failure) => {
                    let refusal = registry::refusal(failure, &request);
                    drop(request);
                    refusal
                }
            };
            // What is still to come of the body stands before the next request, which the client must not send here then.
            if !rest.is_over(may_look).await {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            under_way.holds(response.extensions_mut().remove());
            Ok(response.map(|body| Answer { body, _request: under_way }))
        })
    }
}

/// Refuses what two servers in a row could interpret differently.
fn check(version: Version, headers: &HeaderMap) -> Result<(), Failure> {
    let malformed = |reason: &str| Err(Failure::new(Code::MalformedRequest, reason));
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()));
    match host {
        _ if hosts.next().is_some() => malformed("the request has more than one header `Host`"),
        Some(None) => malformed("the header `Host` names no host"),
        None if version >= Version::HTTP_11 => malformed("the request has no header `Host`"),
        _ => Ok(()),
    }
}

/// A socket that records what comes and goes.
struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl Watched {
    fn note(&self, sent: &Poll<io::Result<usize>>) {
        match sent {
            Poll::Ready(Ok(_)) => self.activity.sent(true),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.activity.sent(false),
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.received();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&sent);
        sent
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.note(&sent);
        sent
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // Nothing is flushed before all that was written is sent.
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.activity.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
