//! Clients that behave badly at random, and an ordinary one beside them whose answers and times are recorded.
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

/// How long a rude client waits for an answer that it reads.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a rude client holds a request that it does not finish.
const HELD: Duration = Duration::from_secs(3);

/// Ways to misbehave, with how often each is drawn.
const WAYS: &[(Way, u32)] = &[
    (Way::HangUp, 12),
    (Way::HostileRequest, 8),
    (Way::HalfHeader, 2),
    (Way::HalfBody, 2),
    (Way::CutUpload, 3),
    (Way::EndlessPartHeader, 1),
    (Way::ManyNumbers, 1),
    (Way::LargeUpload, 1),
    (Way::Flood, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Resets the connection up to 30 ms after a valid request.
    HangUp,
    HostileRequest,
    HalfHeader,
    HalfBody,
    CutUpload,
    EndlessPartHeader,
    /// Sends a body of numbers, each of which takes many times its bytes once it is read.
    ManyNumbers,
    LargeUpload,
    /// Makes many calls of the pages that need no token.
    Flood,
}

/// What the rude clients did, and which answers of the service were wrong.
#[derive(Debug, Default)]
pub struct Misdeeds {
    pub counts: BTreeMap<Way, u32>,
    /// Answers of 500, with the request that caused each.
    pub internal_errors: Vec<String>,
}

/// Rude clients that run until they are told to stop.
pub struct RudeClients {
    done: Arc<AtomicBool>,
    misdeeds: Arc<Mutex<Misdeeds>>,
    clients: Vec<JoinHandle<()>>,
}

impl RudeClients {
    /// Starts this many of them against `address` (`host:port`). They only upload whole files if `stores_files` is set.
    pub fn start(address: &str, token: &str, stores_files: bool, number: u64, seed: u64) -> RudeClients {
        let done = Arc::new(AtomicBool::new(false));
        let misdeeds = Arc::<Mutex<Misdeeds>>::default();
        let clients = (0..number)
            .map(|client| {
                let target = Target { address: address.to_owned(), token: token.to_owned() };
                let random = SmallRng::seed_from_u64(seed.wrapping_add(client).wrapping_mul(0x9e37_79b9));
                tokio::spawn(misbehave(target, stores_files, random, done.clone(), misdeeds.clone()))
            })
            .collect();
        RudeClients { done, misdeeds, clients }
    }

    pub async fn stop(self) -> Misdeeds {
        self.done.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.expect("a rude client does not panic");
        }
        std::mem::take(&mut self.misdeeds.lock().expect("nobody panics with the lock"))
    }
}

async fn misbehave(
    target: Target,
    stores_files: bool,
    mut random: SmallRng,
    done: Arc<AtomicBool>,
    misdeeds: Arc<Mutex<Misdeeds>>,
) {
    while !done.load(Ordering::SeqCst) {
        let way = draw(stores_files, &mut random);
        let answered = tokio::time::timeout(PATIENCE, target.act(way, &mut random)).await;
        let mut misdeeds = misdeeds.lock().expect("nobody panics with the lock");
        *misdeeds.counts.entry(way).or_default() += 1;
        // Closing the connection is an answer too.
        if let Ok(Ok(Some((500, request)))) = answered {
            misdeeds.internal_errors.push(request);
        }
    }
}

fn draw(stores_files: bool, random: &mut SmallRng) -> Way {
    let ways = WAYS.iter().filter(|(way, _)| stores_files || *way != Way::LargeUpload);
    let mut at = random.random_range(0..ways.clone().map(|(_, weight)| weight).sum());
    for (way, weight) in ways {
        if at < *weight {
            return *way;
        }
        at -= weight;
    }
    Way::HangUp
}

/// The service to misbehave against.
struct Target {
    address: String,
    token: String,
}

/// The status of an answer and its request; `None` if nobody read an answer.
type Answered = Option<(u16, String)>;

impl Target {
    async fn act(&self, way: Way, random: &mut SmallRng) -> std::io::Result<Answered> {
        match way {
            Way::HangUp => self.hang_up(random).await.map(|()| None),
            Way::HostileRequest => {
                let (method, path, body) = hostile_request(random);
                let status = self.ask(method, &path, &body).await?;
                let start: String = String::from_utf8_lossy(&body).chars().take(120).collect();
                Ok(Some((status, format!("{method} {path} {start}"))))
            }
            Way::HalfHeader => {
                let mut stream = self.connect().await?;
                stream.write_all(b"POST /search/hybrid HTTP/1.1\r\nHost: svc\r\nAuthoriz").await?;
                self.hold(stream).await
            }
            Way::HalfBody => {
                let mut stream = self.connect().await?;
                stream.write_all(self.head("POST", "/search/hybrid", "application/json", 500).as_bytes()).await?;
                stream.write_all(b"{\"query\": \"half a").await?;
                self.hold(stream).await
            }
            Way::CutUpload => {
                let pieces = random.random_range(0..40);
                let mut stream = self.begin_upload(5_000_000).await?;
                for _ in 0..pieces {
                    stream.write_all(&[b'x'; 16 * 1024]).await?;
                }
                stream.set_zero_linger()?;
                Ok(None)
            }
            Way::EndlessPartHeader => {
                let mut stream = self.connect().await?;
                let head = self.head("POST", "/ingest/file", "multipart/form-data; boundary=cut", 100_000_000);
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(b"--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"").await?;
                for _ in 0..64 {
                    stream.write_all(&[b'x'; 16 * 1024]).await?;
                }
                stream.set_zero_linger()?;
                Ok(None)
            }
            Way::ManyNumbers => {
                let zeros = vec!["0"; 400_000].join(",");
                let body = format!(r#"{{"title": "t", "content": "c", "structured_content": {{"a": [{zeros}]}}}}"#);
                let status = self.ask("POST", "/documents", body.as_bytes()).await?;
                Ok(Some((status, "POST /documents with many numbers".to_owned())))
            }
            Way::LargeUpload => {
                let size = 4_000_000;
                let number: u64 = random.random();
                // The bytes are new each time, and no reader knows their format.
                let end = format!("{number:020}\r\n--cut--\r\n");
                let mut stream = self.begin_upload(size + end.len()).await?;
                stream.write_all(&vec![1; size]).await?;
                stream.write_all(end.as_bytes()).await?;
                Ok(Some((status(&mut stream).await?, "POST /ingest/file of 4 MB".to_owned())))
            }
            Way::Flood => {
                for path in ["/health", "/ready"].repeat(20) {
                    let mut stream = self.connect().await?;
                    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: svc\r\n\r\n").as_bytes()).await?;
                    if random.random_bool(0.5) {
                        status(&mut stream).await?;
                    }
                }
                Ok(None)
            }
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(&self.address).await
    }

    fn head(&self, method: &str, path: &str, content_type: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n",
            self.token
        )
    }

    /// Sends a whole request and reads the answer's status.
    async fn ask(&self, method: &str, path: &str, body: &[u8]) -> std::io::Result<u16> {
        let mut stream = self.connect().await?;
        stream.write_all(self.head(method, path, "application/json", body.len()).as_bytes()).await?;
        // A service that refuses a body by its length does not read it.
        let _ = stream.write_all(body).await;
        status(&mut stream).await
    }

    /// Sends a form whose only part has this many bytes, up to the part's first byte; the end of the form counts as
    /// part of the bytes.
    async fn begin_upload(&self, bytes: usize) -> std::io::Result<TcpStream> {
        let part = "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"large.bin\"\r\n\r\n";
        let head = self.head("POST", "/ingest/file", "multipart/form-data; boundary=cut", part.len() + bytes);
        let mut stream = self.connect().await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(part.as_bytes()).await?;
        Ok(stream)
    }

    /// Sends nothing more, and leaves when the service closes the connection or after a while.
    async fn hold(&self, mut stream: TcpStream) -> std::io::Result<Answered> {
        let _ = tokio::time::timeout(HELD, stream.read(&mut [0; 256])).await;
        stream.set_zero_linger()?;
        Ok(None)
    }

    async fn hang_up(&self, random: &mut SmallRng) -> std::io::Result<()> {
        let word = ["radar", "gauge", "river", "duck", "wind"][random.random_range(0..5)];
        let query = serde_json::json!({"query": format!("{word} of the {word}"), "limit": 20}).to_string();
        let new =
            serde_json::json!({"title": word, "content": format!("A {word} that nobody waited for.")}).to_string();
        let (method, path, body) = match random.random_range(0..8) {
            0..=2 => ("POST", "/search/hybrid", query),
            3 => ("POST", "/search/fulltext", query),
            4 => ("POST", "/search/vector", query),
            5 => ("GET", "/documents/roots?limit=100", String::new()),
            6 => ("POST", "/documents", new),
            _ => ("GET", "/admin/tasks", String::new()),
        };
        let mut stream = self.connect().await?;
        stream.write_all(self.head(method, path, "application/json", body.len()).as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..30))).await;
        stream.set_zero_linger()
    }
}

/// The status in the first line of an answer.
async fn status(stream: &mut TcpStream) -> std::io::Result<u16> {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    let digits = std::str::from_utf8(&line[9..]).ok().and_then(|digits| digits.parse().ok());
    digits.ok_or_else(|| std::io::Error::other("no status line"))
}

/// A request that is refused or expensive.
fn hostile_request(random: &mut SmallRng) -> (&'static str, String, Vec<u8>) {
    let searches = ["/search/fulltext", "/search/bm25", "/search/hybrid", "/search/vector", "/search/maxsim"];
    let search = searches[random.random_range(0..searches.len())];
    let query = |query: &str| serde_json::json!({ "query": query }).to_string().into_bytes();
    let post = |body: Vec<u8>| ("POST", search.to_owned(), body);
    let text = |body: &str| ("POST", search.to_owned(), body.as_bytes().to_vec());
    let nested = |depth: usize| format!("{}0{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    match random.random_range(0..30) {
        0 => post(query(&"-fox ".repeat(1500))),
        1 => post(query(&"ab ".repeat(2000))),
        2 => post(query(&"radar or ".repeat(800))),
        3 => post(query(&"\"wind \"".repeat(900))),
        4 => post(query("( & | ! <-> :* ' \\ \" ) -- /* */ ; $1 %s")),
        5 => post(query("")),
        6 => post(query(" \t\n ")),
        7 => post(query("a\u{0}b")),
        8 => post(query(&"\u{1f986}\u{202e}\u{301}".repeat(2000))),
        9 => post(query(&"x".repeat(1_000_000))),
        10 => text(r#"{"query": "duck", "limit": 101}"#),
        11 => text(r#"{"query": "duck", "limit": -9223372036854775808}"#),
        12 => text(r#"{"query": "duck", "limit": 1e400}"#),
        13 => text(r#"{"query": "duck", "parent_id": 9223372036854775807}"#),
        14 => text(r#"{"query": "duck", "usetype": []}"#),
        15 => {
            let usetypes: Vec<String> = (0..10_000).map(|number| format!("u{number}")).collect();
            post(serde_json::json!({"query": "duck", "usetype": usetypes}).to_string().into_bytes())
        }
        16 => text(&format!(r#"{{"query": "duck", "filter": {{"structured_content": {}}}}}"#, nested(100))),
        17 => text(&format!(r#"{{"query": "duck", "filter": {{"structured_content": {}}}}}"#, nested(50_000))),
        18 => text(r#"["duck", 5]"#),
        19 => text(r#"{"query": "duck", "query": "goose"}"#),
        20 => post(b"{\"query\": \"\xff\xfe\"}".to_vec()),
        21 => text("{\"query\": "),
        22 => text(r#"{"query": "duck", "rerank": true, "rerank_method": "maxsim", "rerank_top": 100}"#),
        23 => ("GET", "/documents/99999999999999999999999".to_owned(), Vec::new()),
        24 => ("GET", "/documents/%00".to_owned(), Vec::new()),
        25 => ("GET", "/documents/roots?limit=1000&cursor=zzzz".to_owned(), Vec::new()),
        26 => ("GET", format!("/search/?q={}", "%22-duck%20".repeat(500)), Vec::new()),
        27 => ("GET", "/search/?q=%00".to_owned(), Vec::new()),
        28 => ("GET", "/admin/tasks?status=%27%20or%201%3d1&task_type=%00".to_owned(), Vec::new()),
        _ => ("POST", "/documents".to_owned(), br#"{"title": "\u0000", "content": "c", "usetype": "\u0000"}"#.to_vec()),
    }
}

/// What an ordinary client saw.
#[derive(Debug, Default)]
pub struct Experience {
    /// The seconds that each good answer took, by request.
    pub seconds: BTreeMap<&'static str, Vec<f64>>,
    /// Answers of 429 that said when to come again.
    pub busy: u32,
    /// What such a client should not see.
    pub troubles: Vec<String>,
}

impl Experience {
    /// How many requests were answered as they should be.
    pub fn good(&self) -> usize {
        self.seconds.values().map(Vec::len).sum()
    }
}

/// Creates, reads, lists and searches, one request after the other, until it has seen enough.
pub async fn ordinary(
    base: &str,
    token: &str,
    http: &reqwest::Client,
    enough: impl Fn(&Experience) -> bool,
) -> Experience {
    let mut seen = Experience::default();
    let mut number = 0;
    while !enough(&seen) {
        number += 1;
        let new = serde_json::json!({"title": format!("Note {number}"), "content": format!("An ordinary note, the {number}th of a quiet client.")});
        let request = http.post(format!("{base}/documents")).json(&new);
        let created = ask(&mut seen, "create", request.bearer_auth(token)).await;
        if let Some(id) = created.and_then(|created| created["id"].as_i64()) {
            let read = http.get(format!("{base}/documents/{id}")).bearer_auth(token);
            let read = ask(&mut seen, "read", read).await;
            if read.is_some_and(|read| read["title"] != new["title"]) {
                seen.troubles.push(format!("document {id} was read as another one"));
            }
        }
        let query = serde_json::json!({"query": "an ordinary note", "limit": 5});
        for (name, path) in [("bm25", "/search/bm25"), ("hybrid", "/search/hybrid")] {
            ask(&mut seen, name, http.post(format!("{base}{path}")).json(&query).bearer_auth(token)).await;
        }
        let roots = http.get(format!("{base}/documents/roots?limit=5")).bearer_auth(token);
        ask(&mut seen, "roots", roots).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen
}

async fn ask(seen: &mut Experience, name: &'static str, request: reqwest::RequestBuilder) -> Option<serde_json::Value> {
    let start = Instant::now();
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) => {
            seen.troubles.push(format!("{name}: {error:?}"));
            return None;
        }
    };
    let (status, retry) = (answer.status(), answer.headers().contains_key("retry-after"));
    let text = match answer.text().await {
        Ok(text) => text,
        Err(error) => {
            seen.troubles.push(format!("{name}: {status}, then {error:?}"));
            return None;
        }
    };
    if status.is_success() {
        seen.seconds.entry(name).or_default().push(start.elapsed().as_secs_f64());
        return serde_json::from_str(&text).ok();
    }
    if status.as_u16() == 429 && retry {
        seen.busy += 1;
    } else {
        seen.troubles.push(format!("{name}: {status} {text}"));
    }
    None
}
