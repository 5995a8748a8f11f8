//! A language model of a test: it answers chat completions with what the test gave it, byte by byte, and remembers what it was asked.
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Says what is answered to a call.
type Script = Arc<Mutex<Box<dyn FnMut(&Asked) -> Reply + Send>>>;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// A server that speaks the wire form of chat completions.
pub struct Llm {
    /// The address for SVC_LLM_BASE_URL.
    pub base: String,
    script: Script,
    asked: Arc<Mutex<Vec<Asked>>>,
    hung_up: Arc<Notify>,
}

/// A call as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The line and the headers, in small letters.
    pub head: String,
    pub body: Value,
}

/// What the server does with a call.
#[derive(Clone)]
pub enum Reply {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends these bytes and waits until the caller hangs up.
    Hold(Vec<u8>),
    /// Thinks for a while before it answers.
    Late(Duration, Box<Reply>),
    /// Answers once the test lets it.
    Held(Arc<Notify>, Box<Reply>),
}

impl Asked {
    /// What the user of the chat says.
    pub fn message(&self) -> &str {
        self.body["messages"][1]["content"].as_str().unwrap()
    }
}

impl Reply {
    /// The same reply, this much later.
    pub fn after(self, time: Duration) -> Reply {
        Reply::Late(time, Box::new(self))
    }

    /// The same reply, once the test lets it go.
    pub fn held(self, released: &Arc<Notify>) -> Reply {
        Reply::Held(released.clone(), Box::new(self))
    }

    /// A text whose end the endpoint cut off.
    pub fn cut(text: &str) -> Reply {
        Reply::ended(text, "length")
    }

    /// A text that a filter of the endpoint broke off.
    pub fn filtered(text: &str) -> Reply {
        Reply::ended(text, "content_filter")
    }

    fn ended(text: &str, finish: &str) -> Reply {
        let end = END.replace("stop", finish);
        Reply::Bytes([STREAM, &pieces(text), &end].concat().into_bytes())
    }

    /// An answer with a status.
    pub fn status(status: &str, header: &str, body: &str) -> Reply {
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{header}\r\n",
            body.len()
        );
        Reply::Bytes([head.as_bytes(), body.as_bytes()].concat())
    }

    /// A text in events of a few letters, as servers stream it.
    pub fn said(text: &str) -> Reply {
        Reply::Bytes([STREAM.as_bytes(), pieces(text).as_bytes(), END.as_bytes()].concat())
    }

    /// A text in one piece, from a server that does not stream.
    pub fn whole(text: &str) -> Reply {
        let body =
            json!({"model": "whole-model", "choices": [{"message": {"content": text}, "finish_reason": "stop"}]});
        Reply::status("200 OK", "", &body.to_string())
    }
}

pub const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hello\n\n";
pub const END: &str = "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\ndata: {\"model\": \"scripted\", \"choices\": [], \"usage\": {\"prompt_tokens\": 70, \"completion_tokens\": 7}}\n\ndata: [DONE]\n\n";

/// The events of a text.
pub fn pieces(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let event = |piece: &[char]| {
        let piece: String = piece.iter().collect();
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": null}]}))
    };
    letters.chunks(5).map(event).collect()
}

impl Llm {
    pub async fn start() -> Llm {
        Llm::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// Starts where this listens.
    pub fn on(listener: TcpListener) -> Llm {
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let llm = Llm {
            base,
            script: Arc::new(Mutex::new(Box::new(|_| panic!("no script")))),
            asked: Arc::default(),
            hung_up: Arc::default(),
        };
        let (script, asked, hung_up) = (llm.script.clone(), llm.asked.clone(), llm.hung_up.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, script.clone(), asked.clone(), hung_up.clone()));
            }
        });
        llm
    }

    /// Answers the next calls so, one after the other; the last reply answers all further calls.
    pub fn will(&self, replies: impl IntoIterator<Item = Reply>) {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        self.will_say(move |_| if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }.unwrap());
    }

    /// Answers the next calls as this says.
    pub fn will_say(&self, script: impl FnMut(&Asked) -> Reply + Send + 'static) {
        self.asked.lock().unwrap().clear();
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// The calls since [`will`](Self::will).
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until the caller of a held answer has hung up.
    pub async fn hung_up(&self) {
        self.hung_up.notified().await;
    }
}

async fn answer(mut stream: TcpStream, script: Script, asked: Arc<Mutex<Vec<Asked>>>, hung_up: Arc<Notify>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|read| read > 0) {
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let call = Asked { head, body: serde_json::from_slice(&body).unwrap() };
    let mut reply = (script.lock().unwrap())(&call);
    asked.lock().unwrap().push(call);
    let reply = loop {
        match reply {
            Reply::Late(time, then) => {
                tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
                reply = *then;
            }
            Reply::Held(released, then) => {
                released.notified().await;
                reply = *then;
            }
            now => break now,
        }
    };
    match reply {
        Reply::Late(..) | Reply::Held(..) => unreachable!("it was waited for"),
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Hold(bytes) => {
            stream.write_all(&bytes).await.unwrap();
            while stream.read(&mut byte).await.is_ok_and(|read| read > 0) {}
            hung_up.notify_one();
        }
    }
}
