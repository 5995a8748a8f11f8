//! Clients that hold connections and send little, beside one that works normally.
use crate::{
    principals::someone,
    support::{PATIENCE, TOKEN, TestApp, Wish, document, until},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use std::{io, time::Duration};
use svc_client::{
    Json,
    wire::{DocumentPath, PageQuery, WaitQuery},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The waits are short, so that a test ends soon; each is long for a working client.
const SHORT: &[(&str, &str)] = &[
    ("SVC_HEADER_TIMEOUT_SECONDS", "1"),
    ("SVC_IDLE_TIMEOUT_SECONDS", "2"),
    ("SVC_BODY_TIMEOUT_SECONDS", "1"),
    ("SVC_UPLOADS_AT_ONCE", "100"),
];

async fn connect(app: &TestApp) -> TcpStream {
    TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap()
}

/// Opens a connection and sends this on it.
async fn sent(app: &TestApp, text: &str) -> TcpStream {
    let mut stream = connect(app).await;
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Reads everything until the service closes the connection; a reset ends it too.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let end = async {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            bytes.extend_from_slice(&piece[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, end).await.expect("the service closes the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn post(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n")
}

/// The beginning of a document's body, after which nothing more comes.
fn half_a_document() -> String {
    post("/documents", "Content-Type: application/json\r\nContent-Length: 1000\r\n") + "{\"title\": \"half"
}

/// The beginning of a file's bytes.
fn half_a_file() -> String {
    post("/ingest/file", "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: 100000\r\n")
        + "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"half.txt\"\r\n\r\nhalf"
}

/// Does what an ordinary client does; it must see no error, whatever others do.
async fn works(app: &TestApp) {
    let made = app.client.create_document(WaitQuery::default(), Json(document("ordinary", "work"))).await.unwrap();
    app.client.list_roots(PageQuery::default()).await.unwrap();
    app.client.delete_document(DocumentPath { id: made.id }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_begins_and_does_not_end_is_let_go_and_nobody_else_notices() {
    let app = TestApp::with(Wish { settings: SHORT, no_worker: true, ..Wish::default() }).await;
    let mut headers = Vec::new();
    let mut bodies = Vec::new();
    for _ in 0..100 {
        headers.push(sent(&app, "GET /documents/roots HTTP/1.1\r\nHost: svc\r\nAccept: a").await);
        bodies.push(sent(&app, &half_a_document()).await);
        bodies.push(sent(&app, &half_a_file()).await);
    }
    let slow = tokio::spawn({
        let mut stream = sent(&app, &half_a_document()).await;
        async move {
            // A byte now and then does not count as movement.
            while stream.write_all(b" ").await.is_ok() {
                if let Ok(answer) = tokio::time::timeout(Duration::from_millis(300), rest(&mut stream)).await {
                    return answer;
                }
            }
            String::new()
        }
    });
    let work = async {
        loop {
            works(&app).await;
        }
    };
    let closed = async {
        for stream in &mut headers {
            assert_eq!(rest(stream).await, "", "a header that never ends has no answer");
        }
        for stream in &mut bodies {
            let answer = rest(stream).await;
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
            assert!(answer.contains("\"request_timeout\"") && answer.contains("SVC_BODY_TIMEOUT_SECONDS"), "{answer}");
        }
        let answer = slow.await.unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert_eq!(rest(&mut connect(&app).await).await, "", "a connection without a request");
    };
    tokio::select! {
        () = closed => {}
        () = work => {}
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_without_number_make_room_for_a_client_that_works() {
    let settings = [("SVC_MAX_CONNECTIONS", "500")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    works(&app).await;
    let mut idle = Vec::new();
    for round in 0..15 {
        for _ in 0..100 {
            idle.push(connect(&app).await);
        }
        works(&app).await;
        // Some of them have had a request before, and one of them half of one.
        idle.push(sent(&app, "GET /health HTTP/1.1\r\nHost: svc\r\n\r\n").await);
        idle.push(sent(&app, &format!("GET /{round} HTT")).await);
    }
    works(&app).await;
    // Those that had waited longest had to go.
    for stream in &mut idle[..1000] {
        rest(stream).await;
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_every_connection_is_at_work_is_told_so() {
    let settings = [("SVC_MAX_CONNECTIONS", "16")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let mut at_work = Vec::new();
    for _ in 0..16 {
        let mut stream = sent(
            &app,
            &post("/documents", "Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n"),
        )
        .await;
        let mut asked = [0; 25];
        stream.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
        at_work.push(stream);
    }
    let answer = rest(&mut sent(&app, "GET /health HTTP/1.1\r\nHost: svc\r\n\r\n").await).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"), "{answer}");
    assert!(answer.contains("SVC_MAX_CONNECTIONS"), "{answer}");
    drop(at_work);
    until("a place", async || app.raw("GET", "/health").send().await.ok().filter(|answer| answer.status() == 200))
        .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_reads_is_given_up() {
    let app = TestApp::with(Wish { settings: SHORT, no_worker: true, ..Wish::default() }).await;
    let long = document("long", &"many words ".repeat(1 << 20));
    let id = app.client.create_document(WaitQuery::default(), Json(long)).await.unwrap().id;
    let request = format!("GET /documents/{id} HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let mut stream = sent(&app, &request).await;
    // A write to a closed connection returns as an error.
    until("the end of the connection", async || stream.write_all(b"GET").await.err()).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_slowly_and_steadily_gets_the_whole_answer() {
    let settings = [("SVC_IDLE_TIMEOUT_SECONDS", "1"), ("SVC_MAX_CONNECTIONS", "16")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let text = "many words ".repeat(1 << 20);
    let id = app.client.create_document(WaitQuery::default(), Json(document("long", &text))).await.unwrap().id;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut stream = socket.connect(app.base.strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap();
    let request = format!("GET /documents/{id} HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    // While it reads, others want its place.
    let mut others = Vec::new();
    let (mut read, mut piece) = (0, vec![0; 64 * 1024]);
    while read < text.len() {
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the answer broke off after {read} bytes");
        read += count;
        if others.len() < 40 {
            others.push(connect(&app).await);
        }
        tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.unwrap_err();
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_wants_holds_no_connection() {
    // A body may stall for longer than the test has patience.
    let settings = [("SVC_BODY_TIMEOUT_SECONDS", "3600"), ("SVC_IDLE_TIMEOUT_SECONDS", "3600")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    for announced in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut stream = sent(&app, &format!("GET /health HTTP/1.1\r\nHost: svc\r\n{announced}\r\n\r\n")).await;
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 415 "), "{announced}: {answer}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_whose_bodies_are_slow_leaves_connections_to_others() {
    let settings = [("SVC_MAX_CONNECTIONS", "16"), ("SVC_BODY_TIMEOUT_SECONDS", "3600")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let one = someone(&app, "one").await;
    let request = half_a_document().replace(TOKEN, &one.secret);
    let mut slow = Vec::new();
    for _ in 0..12 {
        slow.push(sent(&app, &request).await);
    }
    works(&app).await;
    let begins = slow.iter_mut().map(|stream| async move {
        let mut begin = [0; 13];
        stream.read_exact(&mut begin).await.unwrap();
        begin
    });
    let mut begins: FuturesUnordered<_> = begins.collect();
    for _ in 0..4 {
        let begin = tokio::time::timeout(PATIENCE, begins.next()).await.expect("a refusal").unwrap();
        assert!(begin.starts_with(b"HTTP/1.1 429 "), "{begin:?}");
    }
    works(&app).await;
    assert!(begins.next().now_or_never().is_none(), "half of the connections are one principal's");
    drop(begins);
    works(&app).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_one_host() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let health = |version: &str, more: &str| format!("GET /health HTTP/{version}\r\n{more}Connection: close\r\n\r\n");
    for (request, status) in [
        (health("1.1", "Host: svc\r\n"), 200),
        (health("1.1", "Host: [::1]:8000\r\n"), 200),
        (health("1.0", ""), 200),
        (health("1.1", ""), 400),
        (health("1.1", "Host: svc\r\nHost: svc\r\n"), 400),
        (health("1.1", "Host: svc\r\nhost: other\r\n"), 400),
        (health("1.1", "Host: a b\r\n"), 400),
        (health("1.1", "Host: \r\n"), 400),
    ] {
        let answer = rest(&mut sent(&app, &request).await).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.{} {status} ", &request[request.find("HTTP/1.").unwrap() + 7..][..1])),
            "{request}{answer}"
        );
        assert!(status == 200 || answer.contains("application/problem+json"), "{answer}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_requests_and_for_nothing_else() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut half = sent(&app, "GET /documents/roots HTTP/1.1\r\nHost: svc\r\nAccept: a").await;
    let mut silent = connect(&app).await;
    let mut idle = sent(&app, "GET /health HTTP/1.1\r\nHost: svc\r\n\r\n").await;
    idle.readable().await.unwrap();
    let body = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"half.txt\"\r\n\r\nhalf";
    let end = "of it\r\n--XX--\r\n";
    let more = format!(
        "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: {}\r\nExpect: 100-continue\r\n",
        body.len() + end.len()
    );
    let mut upload = sent(&app, &post("/ingest/file", &more)).await;
    let mut asked = [0; 25];
    upload.read_exact(&mut asked).await.unwrap();
    upload.write_all(body.as_bytes()).await.unwrap();

    app.stop_listening();
    assert_eq!(rest(&mut half).await, "");
    assert_eq!(rest(&mut silent).await, "");
    assert!(rest(&mut idle).await.starts_with("HTTP/1.1 200 "), "an answer that was given comes whole");
    until("the end of the listening", async || {
        TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.err()
    })
    .await;
    assert!(!app.has_stopped_listening(), "an upload is under way");
    upload.write_all(end.as_bytes()).await.unwrap();
    let answer = rest(&mut upload).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    until("the end of the service", async || app.has_stopped_listening().then_some(())).await;
    app.end().await;
}

/// Reads one answer: its head and its body.
async fn one_answer(stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes: Vec<u8> = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        bytes.push(stream.read_u8().await?);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await?;
    Ok(head + &String::from_utf8_lossy(&body))
}

/// Who is refused before its body is read learns whether the connection goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_the_body_says_that_the_connection_ends_or_lets_it_go_on() -> io::Result<()> {
    let settings = [("SVC_MAX_BODY_BYTES", "1048576")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let length = 5 << 20;
    let json = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    let form = format!("Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: {length}\r\n");
    for (path, more, token, status) in [
        ("/documents", &json, TOKEN, "HTTP/1.1 413 "),
        ("/documents", &json, "wrong", "HTTP/1.1 401 "),
        ("/ingest/file", &form, "wrong", "HTTP/1.1 401 "),
        ("/nowhere", &json, TOKEN, "HTTP/1.1 404 "),
    ] {
        let mut stream = sent(&app, &post(path, more).replace(TOKEN, token)).await;
        // It sends all of it before it reads, as many clients do.
        stream.write_all(&vec![b' '; length]).await?;
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with(status) && answer.contains("connection: close\r\n"), "{path}: {answer}");
    }
    // Who waits to be asked for the body is not asked.
    let waits = post("/documents", &format!("{json}Expect: 100-continue\r\n")).replace(TOKEN, "wrong");
    let answer = rest(&mut sent(&app, &waits).await).await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("connection: close\r\n"), "{answer}");
    // A short body is read, also if it comes a little later, and the next request is answered on the same connection.
    let mut stream = connect(&app).await;
    let short = post("/documents", "Content-Type: application/json\r\nContent-Length: 20\r\n").replace(TOKEN, "wrong");
    for _ in 0..3 {
        stream.write_all(short.as_bytes()).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
        stream.write_all(b"{\"title\": \"a title\"}").await?;
        let refused = one_answer(&mut stream).await?;
        assert!(refused.starts_with("HTTP/1.1 401 ") && !refused.contains("connection: close"), "{refused}");
    }
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: svc\r\n\r\n").await?;
    let health = one_answer(&mut stream).await?;
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    app.end().await;
    Ok(())
}

/// The service reads a connection to its end even if the answer came early.
#[tokio::test(flavor = "multi_thread")]
async fn who_still_sends_gets_the_answer_and_no_reset() -> io::Result<()> {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let length = 64 << 20;
    let more = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    for _ in 0..5 {
        let stream = sent(&app, &post("/documents", &more)).await;
        let (mut read, mut write) = stream.into_split();
        let sending = tokio::spawn(async move {
            let piece = vec![b' '; 1 << 20];
            for _ in 0..length >> 20 {
                write.write_all(&piece).await?;
            }
            Ok::<_, io::Error>(())
        });
        let mut answer = [0; 12];
        read.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"HTTP/1.1 413");
        sending.await.unwrap()?;
    }
    app.end().await;
    Ok(())
}
