//! Streams of events, as a client follows them.
use crate::support::{self, TOKEN, TestApp, Wish, sample, until};
use futures_util::StreamExt;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use svc_client::{
    Client, Code, Event, EventStream, Meta, Remote,
    wire::{DocumentPath, FrontierResponse, Settled},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The events of a stream up to its end.
async fn all(mut events: EventStream<FrontierResponse>) -> Vec<Event<FrontierResponse>> {
    let gather = async {
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event.unwrap());
        }
        all
    };
    tokio::time::timeout(support::PATIENCE, gather).await.expect("the stream ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontier_is_followed_to_its_end() {
    let app = TestApp::start().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let (remote, local) =
        tokio::join!(async { all(app.client.follow_frontier(DocumentPath { id }).await.unwrap()).await }, async {
            all(app.in_process.follow_frontier(DocumentPath { id }).await.unwrap()).await
        },);
    for events in [&remote, &local] {
        let (last, before) = events.split_last().expect("at least the end");
        assert_eq!((last.name.as_ref(), last.data.settled, last.data.tasks_unfinished), ("end", Settled::Settled, 0));
        assert_eq!((last.data.nodes_in_flight, last.data.nodes_failed), (0, 0));
        assert!(last.data.nodes_settled > 3, "{last:?}");
        for pair in before.windows(2) {
            assert_ne!(pair[0].id, pair[1].id, "nothing is told twice");
        }
        assert!(before.iter().all(|event| event.name == "frontier" && event.id.is_some()));
    }
    // The stream of a finished file has only its end, and so has a stream whose end was sent before.
    let again = all(app.client.follow_frontier(DocumentPath { id }).await.unwrap()).await;
    assert_eq!(again.iter().map(|event| event.name.as_ref()).collect::<Vec<_>>(), ["end"]);
    assert_eq!(again[0].id, remote.last().unwrap().id);
    let meta = Meta { last_event_id: again[0].id.clone(), ..Meta::default() };
    let last = all(app.client.given(meta).follow_frontier(DocumentPath { id }).await.unwrap()).await;
    assert_eq!(last.len(), 1, "or a browser would ask for ever");
    app.end().await;
}

#[tokio::test]
async fn what_a_caller_has_seen_is_not_told_again() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let mut events = app.client.follow_frontier(DocumentPath { id }).await.unwrap();
    let first = events.next().await.unwrap().unwrap();
    assert_eq!((first.name.as_ref(), first.data.tasks_unfinished), ("frontier", 1));
    drop(events);
    let meta = Meta { last_event_id: first.id.clone(), ..Meta::default() };
    let mut events = app.client.given(meta).follow_frontier(DocumentPath { id }).await.unwrap();
    // The next event is the deletion and not the one that was sent before.
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    let failure = events.next().await.unwrap().unwrap_err();
    assert_eq!(failure.code, Code::NotFound);
    assert!(events.next().await.is_none(), "a failure is the end");
    let refused = app.client.follow_frontier(DocumentPath { id }).await.err().expect("a plain answer");
    assert_eq!((refused.code, refused.status), (Code::NotFound, 404));
    app.end().await;
}

#[tokio::test]
async fn the_form_is_the_callers_choice_and_as_the_standard_writes_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let path = format!("/ingest/file/{id}/frontier");
    for accept in ["*/*", "application/json", "application/json, text/event-stream;q=0.5", "text/html"] {
        let answer = app.raw("GET", &path).header("accept", accept).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
    }
    let answer = app.raw("GET", &path).header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let mut text = String::new();
    let mut pieces = answer.bytes_stream();
    while !text.contains("\n\nid: ") || !text.ends_with("\n\n") {
        text.push_str(std::str::from_utf8(&pieces.next().await.unwrap().unwrap()).unwrap());
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("retry: 2000", "", "event: frontier"), "{text}");
    let data: FrontierResponse = serde_json::from_str(lines[4].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(data.document_id, id);
    app.end().await;
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_their_clients_and_with_the_service() {
    let app = TestApp::with(Wish { no_worker: true, settings: &[("SVC_EVENT_STREAMS", "2")], ..Wish::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let follow = async || app.client.follow_frontier(DocumentPath { id }).await;
    let (mut first, second) = (follow().await.unwrap(), follow().await.unwrap());
    let refused = follow().await.err().expect("two are all that may be open");
    assert_eq!((refused.code, refused.members["setting"].as_str()), (Code::TooManyRequests, Some("SVC_EVENT_STREAMS")));
    app.client.read_frontier(DocumentPath { id }).await.unwrap();
    // No connection is held between two looks.
    until("the pool to be free", async || {
        (app.service.pool.num_idle() as u32 == app.service.pool.size()).then_some(())
    })
    .await;
    drop(second);
    let mut third = until("a place", async || follow().await.ok()).await;
    app.stop_listening();
    for events in [&mut first, &mut third] {
        assert_eq!(events.next().await.unwrap().unwrap().name, "frontier");
        assert!(events.next().await.is_none(), "the stream ends in order, and not in the middle");
    }
    until("the listener to end", async || app.has_stopped_listening().then_some(())).await;
    app.end().await;
}

/// Has the command line ingest a file to its end at the service of this address.
async fn ingest(base: &str) {
    let path = sample("handbook.md").display().to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(["ingest", &path]).env("SVC_URL", base).env("SVC_API_TOKEN", TOKEN).env("SVC_CONFIG", "/dev/null");
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((report["state"].as_str(), report["nodes_failed"].as_i64()), (Some("settled"), Some(0)));
}

/// Passes connections on to a service, and keeps what its clients say.
async fn overhear(service: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let heard = heard.clone();
            tokio::spawn(async move {
                let (mut from, mut back) = client.into_split();
                let (mut answers, mut to) = TcpStream::connect(service).await?.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
                let mut piece = vec![0; 64 * 1024];
                loop {
                    let read = from.read(&mut piece).await?;
                    if read == 0 {
                        return to.shutdown().await;
                    }
                    heard.lock().unwrap().extend_from_slice(&piece[..read]);
                    to.write_all(&piece[..read]).await?;
                }
            });
        }
    });
    (address, said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_follows_the_stream_and_asks_no_more() {
    let app = TestApp::start().await;
    let (address, said) = overhear(app.base.trim_start_matches("http://").parse().unwrap()).await;
    ingest(&format!("http://{address}")).await;
    let said = String::from_utf8_lossy(&said.lock().unwrap()).into_owned();
    let asked: Vec<bool> = said
        .split("GET /ingest/file/")
        .skip(1)
        .map(|request| request.split("\r\n\r\n").next().unwrap().contains("text/event-stream"))
        .collect();
    assert_eq!(asked, [true], "one request for the frontier, and it prefers the stream: {said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_goes_on_without_a_stream() {
    // No stream of events is available; the file is followed all the same.
    let app = TestApp::with(Wish { settings: &[("SVC_EVENT_STREAMS", "1")], ..Wish::default() }).await;
    let waiting = app.service.admission.event_stream(None).unwrap();
    ingest(&app.base).await;
    drop(waiting);
    let unknown: Client<Remote> = Client(Remote::new(&app.base, "another token", support::http()));
    let refused = unknown.follow_frontier(DocumentPath { id: 1 }).await.err().expect("no token");
    assert_eq!(refused.code, Code::Unauthenticated);
    app.end().await;
}
