//! A hub on this machine in raw HTTP/1.1, so that it can break off, lie and be silent.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub method: String,
    pub path: String,
    /// The first byte that is asked for.
    pub start: Option<u64>,
}

#[derive(Default, Clone)]
pub(super) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Closes the connection after this many bytes of the body.
    pub cut_after: Option<usize>,
    /// Falls silent after sending, and does not close.
    pub hangs: bool,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The requested part, as a store returns it.
    pub fn ranged(self, request: &Request) -> Self {
        let whole = self.body.len();
        match request.start.map(|start| start as usize) {
            Some(start) if start < whole => Self {
                status: 206,
                body: self.body[start..].to_vec(),
                headers: [self.headers, vec![("content-range", format!("bytes {start}-{}/{whole}", whole - 1))]]
                    .concat(),
                ..self
            },
            Some(_) => Self::status(416),
            None => self,
        }
    }
}

type Answer = dyn Fn(&Request, usize) -> Reply + Send + Sync;

pub(super) struct TestServer {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    _stop: watch::Sender<()>,
}

impl TestServer {
    /// Starts a server. `answer` gets a request and how often its method and path came before.
    pub async fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = watch::channel(());
        let (answer, seen): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&requests));
        tokio::spawn(async move {
            let counts = Arc::new(Mutex::new(BTreeMap::new()));
            loop {
                let mut ended = stopped.clone();
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    _ = ended.changed() => return,
                };
                let (answer, seen, counts) = (Arc::clone(&answer), Arc::clone(&seen), Arc::clone(&counts));
                tokio::spawn(async move {
                    tokio::select! {
                        // Some tests have a client that goes away in the middle.
                        _ = serve(stream, &*answer, &seen, &counts) => {}
                        _ = ended.changed() => {}
                    }
                });
            }
        });
        Self { address, requests, _stop: stop }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &Answer,
    seen: &Mutex<Vec<Request>>,
    counts: &Mutex<BTreeMap<(String, String), usize>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let range =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let start = range.map(|range| range.trim_end_matches('-').parse().unwrap());
    let request = Request { method: method.clone(), path: path.clone(), start };
    let count = {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry((method.clone(), path)).or_insert(0);
        *count += 1;
        *count - 1
    };
    seen.lock().unwrap().push(request.clone());
    let reply = answer(&request, count);
    let mut text =
        format!("HTTP/1.1 {} x\r\ncontent-length: {}\r\nconnection: close\r\n", reply.status, reply.body.len());
    for (name, value) in &reply.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    if !(reply.hangs && reply.body.is_empty()) {
        stream.write_all(text.as_bytes()).await?;
        if method != "HEAD" {
            let end = reply.cut_after.unwrap_or(reply.body.len()).min(reply.body.len());
            stream.write_all(&reply.body[..end]).await?;
        }
        stream.flush().await?;
    }
    if reply.hangs {
        std::future::pending::<()>().await;
    }
    stream.shutdown().await
}
