//! Messages of the protocol over a pipe, one a line. What is no message is refused, so that nobody waits for its answer, and ends nothing.
use rmcp::{
    RoleServer,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Value, json};
use std::{io, mem, sync::Arc};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::Mutex,
    task::JoinHandle,
};

/// The errors of JSON-RPC for what is no JSON, and for what is no request.
const NO_JSON: i32 = -32700;
const NO_REQUEST: i32 = -32600;

pub struct Lines<R, W> {
    read: BufReader<R>,
    write: Arc<Mutex<W>>,
    /// The most bytes of a line.
    most: usize,
    /// What has come of the next line.
    line: Vec<u8>,
    /// Whether that line is too long, and the rest of it is left out.
    skips: bool,
    /// A refusal on its way out.
    refusal: Option<JoinHandle<io::Result<()>>>,
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    pub fn new(read: R, write: W, most: usize) -> Lines<R, W> {
        let (read, write) = (BufReader::new(read), Arc::new(Mutex::new(write)));
        Lines { read, write, most, line: Vec::new(), skips: false, refusal: None }
    }

    /// Reads on to the end of the next line, and says whether it is whole; `None` at the end of the input. If the wait is given up, the next
    /// call goes on where this one was.
    async fn next_line(&mut self) -> Option<bool> {
        loop {
            let read = match self.read.fill_buf().await {
                Ok(read) => read,
                Err(error) => {
                    tracing::error!(%error, "the input cannot be read");
                    return None;
                }
            };
            if read.is_empty() {
                return None;
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            let taken = part.len() + usize::from(end.is_some());
            if self.line.len() + part.len() > self.most {
                (self.line, self.skips) = (Vec::new(), true);
            }
            if !self.skips {
                self.line.extend_from_slice(part);
            }
            self.read.consume(taken);
            if end.is_some() {
                return Some(!mem::take(&mut self.skips));
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (line, write) = (serde_json::to_vec(&item), self.write.clone());
        // A line that has begun is written to its end, whatever becomes of the one that waits for it.
        async move { tokio::spawn(put(write, line?)).await.map_err(io::Error::other)? }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // Whoever sends what is no message and reads no refusal sends no more of it.
            if let Some(refusal) = &mut self.refusal {
                let sent = refusal.await;
                self.refusal = None;
                if !matches!(sent, Ok(Ok(()))) {
                    return None;
                }
            }
            let is_whole = self.next_line().await?;
            let line = mem::take(&mut self.line);
            let refusal = match is_whole.then(|| message(&line)) {
                Some(Ok(message)) => return Some(message),
                Some(Err(refusal)) => refusal,
                None => {
                    let reason = format!("a line has at most {} bytes (SVC_MAX_BODY_BYTES)", self.most);
                    Some(refused(Value::Null, NO_REQUEST, &reason))
                }
            };
            let send = |refusal: Value| tokio::spawn(put(self.write.clone(), refusal.to_string().into_bytes()));
            self.refusal = refusal.map(send);
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.lock().await.shutdown().await
    }
}

/// Writes a line.
async fn put<W: AsyncWrite + Unpin>(write: Arc<Mutex<W>>, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    let mut write = write.lock().await;
    write.write_all(&line).await?;
    write.flush().await
}

/// What can be told of a text that is no message.
#[derive(Deserialize)]
struct Head {
    #[serde(default, deserialize_with = "given")]
    id: Option<Value>,
    method: Option<String>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// A value that is there, also if it is null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The message of a line; where it has none, its refusal, if anybody waits for one.
fn message(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Option<Value>> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Err(None);
    }
    let no_json = |reason: &str| Err(Some(refused(Value::Null, NO_JSON, reason)));
    let Ok(text) = std::str::from_utf8(line) else { return no_json("the line is not UTF-8") };
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return no_json(&format!("the line is not JSON: {error}"));
    }
    if let Ok(message) = serde_json::from_str(text) {
        return Ok(message);
    }
    // A list would be read as the fields of the head, one after another.
    let head = text.starts_with('{').then(|| serde_json::from_str::<Head>(text).ok()).flatten();
    let id = match head {
        // Nobody waits for an answer to a notification, and an answer to an answer would go to and fro for ever.
        Some(
            Head { id: None, method: Some(_), .. }
            | Head { method: None, result: Some(_), .. }
            | Head { method: None, error: Some(_), .. },
        ) => return Err(None),
        Some(Head { id: Some(id), .. }) if id.is_string() || id.is_i64() || id.is_u64() => id,
        _ => Value::Null,
    };
    let reason = match text.starts_with('[') {
        true => "several messages at once are not taken: send each on a line of its own",
        false => "the line is no message of JSON-RPC 2.0, or too deep",
    };
    Err(Some(refused(id, NO_REQUEST, reason)))
}

fn refused(id: Value, code: i32, reason: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": reason}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use tokio::io::AsyncReadExt;

    const PING: &str = r#"{"jsonrpc": "2.0", "id": 7, "method": "ping"}"#;

    /// What comes of lines of at most 200 bytes: the ids of the messages, and the refusals.
    async fn read(lines: &[&[u8]]) -> (Vec<Value>, Vec<(Value, i64)>) {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut lines = Lines::new(Cursor::new(lines.join(&b'\n')), ours, 200);
        let mut ids = Vec::new();
        while let Some(message) = lines.receive().await {
            ids.push(serde_json::to_value(&message).expect("JSON")["id"].take());
        }
        lines.close().await.expect("closed");
        drop(lines);
        let mut said = String::new();
        theirs.read_to_string(&mut said).await.expect("text");
        let refusals = said.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).expect("JSON");
            (line["id"].take(), line["error"]["code"].as_i64().expect("a code"))
        });
        (ids, refusals.collect())
    }

    #[tokio::test]
    async fn what_is_no_message_is_refused_and_the_next_one_is_read() {
        let (no_json, no_request) = (i64::from(NO_JSON), i64::from(NO_REQUEST));
        let deep = format!("{}{}", "[".repeat(99), "]".repeat(99));
        let long = " ".repeat(300) + PING;
        let batch = format!("[{PING}]");
        let cases: &[(&[u8], Value, i64)] = &[
            (b"not json", Value::Null, no_json),
            (&PING.as_bytes()[..20], Value::Null, no_json),
            (b"\xff\xfe", Value::Null, no_json),
            (b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"\xff\"}", Value::Null, no_json),
            (b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"other\": \"\xff\"}", Value::Null, no_json),
            (batch.as_bytes(), Value::Null, no_request),
            (b"[]", Value::Null, no_request),
            (b"[1, \"ping\"]", Value::Null, no_request),
            (b"7", Value::Null, no_request),
            (b"{}", Value::Null, no_request),
            (deep.as_bytes(), Value::Null, no_request),
            (long.as_bytes(), Value::Null, no_request),
            (b"{\"jsonrpc\": \"1.0\", \"id\": 1, \"method\": \"ping\"}", json!(1), no_request),
            (b"{\"jsonrpc\": \"1.0\", \"id\": \"a\", \"method\": \"ping\"}", json!("a"), no_request),
            (b"{\"jsonrpc\": \"2.0\", \"id\": 1.5, \"method\": \"ping\"}", Value::Null, no_request),
            (b"{\"jsonrpc\": \"1.0\", \"id\": null, \"method\": \"ping\"}", Value::Null, no_request),
        ];
        for (line, id, code) in cases {
            let (ids, refusals) = read(&[line, PING.as_bytes(), b""]).await;
            let shown = String::from_utf8_lossy(line);
            assert_eq!((ids, refusals), (vec![json!(7)], vec![(id.clone(), *code)]), "{shown}");
        }
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_refused() {
        for line in [
            &b""[..],
            b"  \r",
            b"{\"jsonrpc\": \"1.0\", \"method\": \"ping\"}",
            b"{\"jsonrpc\": \"1.0\", \"id\": null, \"error\": {\"code\": -32600, \"message\": \"m\"}}",
            b"{\"jsonrpc\": \"1.0\", \"id\": 3, \"result\": {}}",
        ] {
            let with_mark = [&b"\xef\xbb\xbf"[..], PING.as_bytes(), b"\r"].concat();
            let (ids, refusals) = read(&[line, &with_mark, b""]).await;
            assert_eq!((ids, refusals), (vec![json!(7)], Vec::new()), "{}", String::from_utf8_lossy(line));
        }
    }
}
