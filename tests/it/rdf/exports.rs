//! How much an export takes at a time, and how many there are.
use super::{canonical, import};
use crate::principals::idle;
use futures_util::TryStreamExt;
use svc_client::wire::{ImportQuery, TurtleQuery};

#[tokio::test]
async fn an_export_of_long_literals_comes_in_pieces_of_bounded_size() {
    let app = idle().await;
    let long = "x".repeat(60_000);
    let text: String = (0..200).map(|n| format!("<http://e/{}> <http://e/p> \"{n} {long}\" .\n", n % 3)).collect();
    assert_eq!(import(&app.client, ImportQuery::default(), &text).await.unwrap().created, 200);
    let pieces: Vec<bytes::Bytes> =
        app.in_process.export_turtle(TurtleQuery::default()).await.unwrap().try_collect().await.unwrap();
    let largest = pieces.iter().map(bytes::Bytes::len).max().unwrap();
    assert!(pieces.len() >= 3 && largest < 5 << 20, "{} pieces, the largest of {largest} bytes", pieces.len());
    assert_eq!(canonical(&String::from_utf8(pieces.concat()).unwrap()), canonical(&text));
    app.end().await;
}

#[tokio::test]
async fn two_exports_run_at_once_and_the_third_is_told_to_come_again() {
    let app = idle().await;
    import(&app.client, ImportQuery::default(), "<http://e/a> <http://e/p> 1 .").await.unwrap();
    // An export in process goes on as far as it is read.
    let begin = async || app.in_process.export_turtle(TurtleQuery::default()).await.unwrap();
    let mut held = vec![begin().await, begin().await];
    let ask = async || app.raw("GET", "/rdf/turtle").send().await.unwrap();
    let refused = ask().await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "5"));
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(problem["code"], "too_many_requests", "{problem}");
    // One that was read to its end makes room, and so does one that nobody reads any more.
    let pieces: Vec<bytes::Bytes> = held.remove(0).try_collect().await.unwrap();
    assert!(!pieces.is_empty());
    assert_eq!(ask().await.status(), 200);
    drop(held);
    let all = [begin().await, begin().await];
    assert_eq!(ask().await.status(), 429);
    drop(all);
    app.end().await;
}
