//! A web server of a test: it answers paths with what the test gave it, and remembers what it was asked.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A server on this machine, which the service may call only if a setting allows it.
pub struct Web {
    /// Its host and port.
    pub at: String,
    pages: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    pub async fn start() -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let web = Web { at, pages: Arc::default(), asked: Arc::default() };
        let (pages, asked) = (web.pages.clone(), web.asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, pages.clone(), asked.clone()));
            }
        });
        web
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// Answers a path from now on; `header` has whole lines.
    pub fn put(&self, path: &str, status: &str, header: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{header}\r\n", body.len());
        self.pages.lock().unwrap().insert(path.to_owned(), [head.as_bytes(), body].concat());
    }

    /// The paths that were asked for, in their order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn answer(mut stream: TcpStream, pages: Arc<Mutex<BTreeMap<String, Vec<u8>>>>, asked: Arc<Mutex<Vec<String>>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|read| read > 0) {
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    asked.lock().unwrap().push(path.clone());
    let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret".to_vec();
    let bytes = pages.lock().unwrap().get(&path).cloned().unwrap_or(missing);
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}
