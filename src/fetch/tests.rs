use super::{addresses::Lookup, *};
use async_trait::async_trait;
use flate2::{Compression, write::GzEncoder};
use std::{
    collections::VecDeque,
    io::{self, Write},
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What a server of a test does: it sends these bytes, and perhaps more of them for ever.
#[derive(Clone)]
enum Script {
    Send(Vec<u8>),
    /// After the first part the second one, again and again, with a pause between.
    Drip(Vec<u8>, Vec<u8>, Duration),
}

/// A server that answers every connection by its script.
struct Server {
    port: u16,
    /// The requests so far.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(at: &str, script: Script) -> Server {
        let listener = TcpListener::bind((at, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let requests = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(play(stream, script.clone(), requests.clone()));
            }
        });
        Server { port, asked }
    }

    async fn sending(answer: impl Into<Vec<u8>>) -> Server {
        Server::start("127.0.0.1", Script::Send(answer.into())).await
    }

    fn url(&self, path: &str) -> Url {
        parse(&format!("http://127.0.0.1:{}{path}", self.port)).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn play(mut stream: TcpStream, script: Script, requests: Arc<Mutex<Vec<String>>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    // The first byte of TLS is enough to know that nothing else comes.
    while !head.ends_with(b"\r\n\r\n")
        && head.first() != Some(&0x16)
        && stream.read(&mut byte).await.is_ok_and(|read| read > 0)
    {
        head.extend(byte);
    }
    requests.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    match script {
        Script::Send(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Script::Drip(first, again, pause) => {
            let _ = stream.write_all(&first).await;
            while stream.write_all(&again).await.is_ok() {
                tokio::time::sleep(pause).await;
            }
        }
    }
    let _ = stream.shutdown().await;
}

const GENEROUS: Limits = Limits {
    redirects: 3,
    connect: Duration::from_secs(30),
    total: Duration::from_secs(60),
    stall: Duration::from_secs(60),
    bytes: 1 << 20,
};

fn fetcher(allowed: &[&str]) -> Fetcher {
    looking_up(allowed, Arc::new(SystemLookup))
}

fn looking_up(allowed: &[&str], lookup: Arc<dyn Lookup>) -> Fetcher {
    let list = allowed.iter().map(|target| format!("{target:?}")).collect::<Vec<_>>().join(",");
    let env = [("SVC_FETCH_ALLOW", format!("[{list}]")), ("HOME", "/home/reader".to_owned())];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value));
    let settings = Settings::load(Some(std::path::Path::new("/dev/null")), env).unwrap();
    Fetcher::looking_up(&settings.fetch_allow, lookup)
}

async fn get(fetcher: &Fetcher, url: Url, limits: Limits) -> Result<Vec<u8>, FetchError> {
    fetcher.send(Request::get(url, limits)).await?.collect().await
}

fn answer(header: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    [format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{header}\r\n").as_bytes(), body].concat()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// A lookup that gives these addresses, one after the other, and the last one again and again.
struct Changing {
    answers: Mutex<VecDeque<IpAddr>>,
    asked: AtomicUsize,
}

impl Changing {
    fn of(answers: &[&str]) -> Arc<Changing> {
        let answers = answers.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Changing { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Lookup for Changing {
    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        Ok(next.into_iter().collect())
    }
}

#[test]
fn an_address_is_http_with_a_host_and_without_a_password() {
    assert_eq!(parse(" https://example.org/a?b=c#d ").unwrap().as_str(), "https://example.org/a?b=c");
    for bad in [
        "",
        "example.org",
        "//example.org",
        "ftp://example.org",
        "file:///etc/passwd",
        "gopher://example.org",
        "javascript:alert(1)",
        "http://",
        "http://user@example.org",
        "http://user:secret@example.org",
        "https://:secret@example.org",
        "http://[::1",
        "http://exa\nmple.org/",
        "https://example.org/\r\nX: y",
        "https://example.org/a\tb",
    ] {
        let error = parse(bad).expect_err(bad);
        assert!(error.is_refusal() && !error.to_string().contains("secret"), "{error}");
    }
    assert!(parse(&format!("http://example.org/{}", "x".repeat(5000))).is_err());
}

#[tokio::test]
async fn only_what_the_setting_names_is_reached_on_this_machine() {
    let server = Server::sending(answer("", b"inside")).await;
    let port = server.port;
    // All of these are this machine, however they are written.
    for host in
        ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
    {
        let url = parse(&format!("http://{host}:{port}/?key=secret")).unwrap();
        let error = get(&fetcher(&["10.0.0.0/8", "127.0.0.1:1"]), url, GENEROUS).await.expect_err(host);
        assert!(matches!(error, FetchError::Forbidden { .. }) && error.is_refusal(), "{host}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(server.asked(), [""; 0]);
    for allowed in ["127.0.0.0/8".to_owned(), "127.0.0.1".to_owned(), format!("127.0.0.1:{port}")] {
        assert_eq!(get(&fetcher(&[&allowed]), server.url("/"), GENEROUS).await.unwrap(), b"inside", "{allowed}");
    }
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_address() {
    let inside = Server::start("127.0.0.2", Script::Send(answer("", b"inside"))).await;
    for target in [format!("http://127.0.0.2:{}/", inside.port), format!("http://localhost:{}/", inside.port)] {
        let head = format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let outside = Server::sending(head).await;
        let error = get(&fetcher(&["127.0.0.1"]), outside.url("/"), GENEROUS).await;
        // The name of this machine leads to the allowed address, at which nobody listens on that port.
        assert!(error.is_err() && inside.asked().is_empty(), "{target}");
        assert_eq!(outside.asked().len(), 1);
    }
    for target in ["file:///etc/passwd", "ftp://127.0.0.1/", "http://user:pw@127.0.0.1/"] {
        let head = format!("HTTP/1.1 301 Moved\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let error = get(&fetcher(&["127.0.0.1"]), Server::sending(head).await.url("/"), GENEROUS).await.unwrap_err();
        assert!(matches!(error, FetchError::Address { .. }), "{target}: {error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_a_few_times_and_headers_stay_at_their_origin() {
    let end = Server::sending(answer("content-type: Text/HTML; charset=x\r\n", b"the end")).await;
    let head = format!("HTTP/1.1 308 Permanent\r\nlocation: {}\r\ncontent-length: 3\r\n\r\nabc", end.url("/end"));
    let start = Server::sending(head).await;
    let fetcher = fetcher(&["127.0.0.1"]);
    let request = Request::get(start.url("/"), GENEROUS)
        .with(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))
        .with(header::ACCEPT, HeaderValue::from_static("text/html"));
    let answer = fetcher.send(request).await.unwrap();
    assert_eq!((answer.url.path(), answer.media_type().as_deref()), ("/end", Some("text/html")));
    assert_eq!(answer.collect().await.unwrap(), b"the end");
    assert!(start.asked()[0].contains("Bearer x"), "{:?}", start.asked());
    assert!(!end.asked()[0].contains("Bearer x") && end.asked()[0].contains("text/html"), "{:?}", end.asked());

    let circle = Server::sending("HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n").await;
    let error = get(&fetcher, circle.url("/"), GENEROUS).await.unwrap_err();
    assert!(matches!(error, FetchError::Redirects { limit: 3, .. }), "{error}");
    assert_eq!(circle.asked().len(), 4);
    // A post is not repeated elsewhere.
    let posted = fetcher.send(Request::post(circle.url("/hook?n=1"), "{}", GENEROUS)).await.unwrap();
    assert_eq!(posted.status, StatusCode::FOUND);
    assert!(circle.asked()[4].starts_with("POST /hook?n=1 ") && circle.asked()[4].contains("content-length: 2"));
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let outside = Server::start("127.0.0.1", Script::Send(answer("", b"outside"))).await;
    let inside = TcpListener::bind(("127.0.0.2", outside.port)).await;
    // Another program may have the port at the other address; then it must not be called either.
    drop(inside);
    let lookup = Changing::of(&["127.0.0.1", "127.0.0.2"]);
    let fetcher = looking_up(&["127.0.0.1"], lookup.clone());
    let url = parse(&format!("http://pages.example.org:{}/", outside.port)).unwrap();
    assert_eq!(get(&fetcher, url.clone(), GENEROUS).await.unwrap(), b"outside");
    assert_eq!(lookup.asked.load(Ordering::SeqCst), 1, "a second lookup could give another address");
    let error = get(&fetcher, url, GENEROUS).await.unwrap_err();
    assert!(matches!(error, FetchError::Forbidden { .. }), "{error}");
    assert_eq!(outside.asked().len(), 1);
    assert!(outside.asked()[0].contains("host: pages.example.org"), "{:?}", outside.asked());
}

#[tokio::test]
async fn too_much_is_refused_before_and_while_it_arrives() {
    let fetcher = fetcher(&["127.0.0.1"]);
    let declared = Server::sending("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n").await;
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
    let endless = Server::start("127.0.0.1", Script::Drip(head, vec![b'x'; 64 << 10], Duration::ZERO)).await;
    let zeros = packed(&vec![0; 8 << 20]);
    assert!(zeros.len() < 64 << 10);
    let bomb = Server::sending(answer("content-encoding: gzip\r\n", &zeros)).await;
    for server in [declared, endless, bomb] {
        let error = get(&fetcher, server.url("/"), GENEROUS).await.unwrap_err();
        assert!(matches!(error, FetchError::TooLarge { limit: 1_048_576, .. }), "{error}");
        assert!(error.to_string().contains("SVC_FETCH_MAX_BYTES"), "{error}");
    }
    let zeros = packed(&vec![0; 32 << 20]);
    let bomb = Server::sending(answer("content-encoding: gzip\r\n", &zeros)).await;
    let error = get(&fetcher, bomb.url("/"), Limits { bytes: 1 << 30, ..GENEROUS }).await.unwrap_err();
    assert!(error.to_string().contains("100 times its size"), "{error}");
    let header = format!("x-long: {}\r\n", "x".repeat(HEADER_BYTES));
    let error = get(&fetcher, Server::sending(answer(&header, b"")).await.url("/"), GENEROUS).await.unwrap_err();
    assert!(error.to_string().contains("header"), "{error}");
    let header = format!("x-long: {}\r\n", "x".repeat(1 << 20));
    get(&fetcher, Server::sending(answer(&header, b"")).await.url("/"), GENEROUS).await.unwrap_err();
}

#[tokio::test]
async fn who_sends_slowly_is_left() {
    let fetcher = fetcher(&["127.0.0.1"]);
    let short = Duration::from_millis(200);
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
    let drip = Server::start("127.0.0.1", Script::Drip(head, b"x".to_vec(), Duration::from_millis(5))).await;
    let error = get(&fetcher, drip.url("/"), Limits { stall: short, ..GENEROUS }).await.unwrap_err();
    assert!(matches!(error, FetchError::Stalled { .. }), "{error}");
    let error = get(&fetcher, drip.url("/"), Limits { total: short, ..GENEROUS }).await.unwrap_err();
    assert!(matches!(error, FetchError::Timeout { .. }), "{error}");
    let drip = Script::Drip(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x-more: 1\r\n".to_vec(), Duration::from_millis(5));
    let header = Server::start("127.0.0.1", drip).await;
    let error = get(&fetcher, header.url("/"), Limits { total: short, ..GENEROUS }).await.unwrap_err();
    assert!(matches!(error, FetchError::Timeout { .. } | FetchError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn what_is_packed_arrives_whole_or_not_at_all() {
    let fetcher = fetcher(&["127.0.0.1"]);
    let text = "a line of a page\n".repeat(10_000);
    let gzip = packed(text.as_bytes());
    let whole = Server::sending(answer("content-encoding: gzip\r\n", &gzip)).await;
    assert_eq!(get(&fetcher, whole.url("/"), GENEROUS).await.unwrap(), text.as_bytes());
    let two = Server::sending(answer("content-encoding: gzip\r\n", &[gzip.clone(), gzip.clone()].concat())).await;
    assert_eq!(get(&fetcher, two.url("/"), GENEROUS).await.unwrap(), text.repeat(2).as_bytes());
    let empty = Server::sending(answer("content-encoding: gzip\r\n", b"")).await;
    assert_eq!(get(&fetcher, empty.url("/"), GENEROUS).await.unwrap(), b"");
    for (what, header, body) in [
        ("cut", "content-encoding: gzip\r\n", &gzip[..gzip.len() / 2]),
        ("no gzip", "content-encoding: gzip\r\n", b"plain text"),
        ("another packing", "content-encoding: br\r\n", b"xx"),
        ("packed twice", "content-encoding: gzip, gzip\r\n", &gzip),
        ("too short", "content-length: 100\r\n", b"xx"),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{header}connection: close\r\n\r\n");
        let server = Server::sending([head.as_bytes(), body].concat()).await;
        let error = get(&fetcher, server.url("/"), GENEROUS).await.expect_err(what);
        assert!(matches!(error, FetchError::Broken { .. }), "{what}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_tls_and_a_closed_port_are_named_without_the_path() {
    let fetcher = fetcher(&["127.0.0.1"]);
    let plain = Server::sending("HTTP/1.1 200 OK\r\n\r\n").await;
    let url = parse(&format!("https://127.0.0.1:{}/page?key=secret", plain.port)).unwrap();
    let error = get(&fetcher, url, GENEROUS).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && error.contains("TLS") && !error.contains("secret"), "{error}");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = get(&fetcher, parse(&format!("http://{closed}/page?key=secret")).unwrap(), GENEROUS).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("connection refused") && !error.contains("secret"), "{error}");
    let gone = looking_up(&[], Changing::of(&[]));
    let error = get(&gone, parse("http://gone.example.org/").unwrap(), GENEROUS).await.unwrap_err();
    assert!(matches!(error, FetchError::Unresolved { .. }), "{error}");
}

#[test]
fn a_pause_is_asked_for_in_seconds_or_by_a_date() {
    let asked = |value: &'static str| {
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(value))]);
        retry_after(&headers)
    };
    assert_eq!(asked(" 7"), Some(Duration::from_secs(7)));
    assert!(asked("Wed, 21 Oct 2499 07:28:00 GMT") > Some(Duration::from_secs(3600)));
    for nothing in ["soon", "-1", "", "Wed, 21 Oct 2015 07:28:00 GMT"] {
        assert_eq!(asked(nothing), None, "{nothing}");
    }
    assert_eq!(retry_after(&HeaderMap::new()), None);
}
