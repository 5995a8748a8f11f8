//! A text that is sent while it is produced, which no row of the table answers with yet. It is served, described and
//! called here as a row would be.
use super::*;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};
use svc_client::{Access, Nothing, Pieces, TextStream, Turtle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Reads the graph that is being written under the call's `Idempotency-Key`.
#[expect(non_camel_case_types, reason = "an operation has one snake_case name everywhere")]
enum read_graph {}

impl Operation for read_graph {
    const INFO: OperationInfo = OperationInfo {
        name: "read_graph",
        method: http::Method::GET,
        path: "/graph",
        access: Access::Read,
        needs: None,
        tool: None,
        on: svc_client::On::Primary,
        most_bytes: <Nothing as svc_client::Body>::most_bytes,
        fails: &[Code::NotFound],
        docs: &[" Reads a graph."],
    };
    type Path = Nothing;
    type Query = Nothing;
    type Body = Nothing;
    type Reply = TextStream<Turtle>;
}

type Piece = Result<Bytes, Failure>;

/// The graphs that are being written, by the key of the call that reads them.
fn graphs() -> MutexGuard<'static, BTreeMap<String, UnboundedReceiver<Piece>>> {
    static GRAPHS: Mutex<BTreeMap<String, UnboundedReceiver<Piece>>> = Mutex::new(BTreeMap::new());
    GRAPHS.lock().expect("a lock")
}

impl Handle<read_graph> for Service {
    async fn handle(&self, _: &Caller, call: Call<read_graph>) -> Result<Pieces, Failure> {
        let key = call.meta.idempotency_key.unwrap_or_default();
        let pieces = graphs().remove(&key);
        let pieces = pieces.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no graph `{key}`")))?;
        Ok(stream::unfold(pieces, async |mut pieces| Some((pieces.recv().await?, pieces))).boxed())
    }
}

/// Opens a graph that the test writes piece by piece.
async fn open<T: Transport<read_graph>>(transport: &T, key: &str) -> (UnboundedSender<Piece>, Pieces) {
    let (write, read) = unbounded_channel();
    graphs().insert(key.to_owned(), read);
    let meta = Meta { idempotency_key: Some(key.to_owned()), ..Meta::default() };
    let call = Call { meta, path: Nothing {}, query: Nothing {}, body: Nothing {} };
    (write, transport.send(call).await.expect("a stream"))
}

/// The address of a service with this one operation.
async fn serve() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = mount(service(), vec![Mounted::of::<read_graph>()]);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn remote(base: &str) -> Remote {
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Remote::new(base, "owner", reqwest::Client::builder().no_proxy().build().expect("a client"))
}

fn in_process() -> InProcess {
    InProcess { service: service(), caller: Caller::Owner }
}

async fn next(pieces: &mut Pieces) -> Option<Piece> {
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, pieces.next()).await.expect("the next piece comes")
}

async fn arrives_while_it_is_produced<T: Transport<read_graph>>(transport: T, key: &str) {
    let (write, mut read) = open(&transport, key).await;
    for piece in ["<urn:a> <urn:b> \"zwei 🎈", " Zeilen\" .\n"] {
        // The next piece is only produced once this one has arrived.
        write.send(Ok(Bytes::from(piece))).expect("a reader");
        assert_eq!(next(&mut read).await.expect("a piece").expect("bytes"), piece);
    }
    drop(write);
    assert!(next(&mut read).await.is_none(), "the text ends when it is complete");
}

#[tokio::test]
async fn a_text_arrives_at_both_clients_while_it_is_produced() {
    arrives_while_it_is_produced(remote(&serve().await), "remote").await;
    arrives_while_it_is_produced(in_process(), "in process").await;
}

async fn failure_of<T: Transport<read_graph>>(transport: T, key: &str) -> Failure {
    let (write, mut read) = open(&transport, key).await;
    write.send(Ok(Bytes::from("<urn:a> "))).expect("a reader");
    assert!(next(&mut read).await.expect("a piece").is_ok());
    write.send(Err(Failure::new(Code::Unavailable, "the database is away"))).expect("a reader");
    drop(write);
    let failure = next(&mut read).await.expect("not an end").expect_err("a text that breaks off is not complete");
    assert!(next(&mut read).await.is_none(), "a failure is the last item");
    failure
}

#[tokio::test]
async fn a_text_that_breaks_off_does_not_look_complete() {
    assert_eq!(failure_of(remote(&serve().await), "remote, broken").await.code, Code::Unreachable);
    assert_eq!(failure_of(in_process(), "in process, broken").await.code, Code::Unavailable);
}

async fn refused<T: Transport<read_graph>>(transport: T) -> Failure {
    let call = Call { meta: Meta::default(), path: Nothing {}, query: Nothing {}, body: Nothing {} };
    transport.send(call).await.err().expect("a refusal")
}

#[tokio::test]
async fn a_call_that_is_refused_gets_a_problem_and_not_a_stream() {
    for failure in [refused(remote(&serve().await)).await, refused(in_process()).await] {
        assert_eq!((failure.code, failure.status), (Code::NotFound, 404));
    }
}

#[tokio::test]
async fn the_contract_and_the_answer_name_the_media_type() {
    let document = contract::build(&[Mounted::of::<read_graph>()], &[]);
    let entry = &document["paths"]["/graph"]["get"];
    let content = &entry["responses"]["200"]["content"];
    let media_types: Vec<&String> = content.as_object().expect("media types").keys().collect();
    assert_eq!(media_types, ["text/turtle"], "{entry}");
    assert_eq!(content["text/turtle"]["schema"]["type"], "string");

    let (write, read) = unbounded_channel();
    graphs().insert("plain".to_owned(), read);
    drop(write);
    let request = Request::builder().uri("/graph").header("authorization", "Bearer owner");
    let router = mount(service(), vec![Mounted::of::<read_graph>()]);
    let (status, headers, _) = call(&router, request.header("idempotency-key", "plain"), "").await;
    assert_eq!((status, headers["content-type"].as_bytes()), (200, &b"text/turtle; charset=utf-8"[..]));
}
