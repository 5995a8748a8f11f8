use super::*;
use axum::body::Body as HttpBody;
use futures_util::{StreamExt, stream};

const LIMIT: Duration = Duration::from_secs(30);

/// A body in pieces; each has a number of bytes and comes after a number of seconds on the test's clock.
fn body(pieces: Vec<(u64, usize)>) -> Paced<HttpBody> {
    let pieces = stream::iter(pieces).then(|(seconds, bytes)| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok::<_, std::io::Error>(Bytes::from(vec![0; bytes]))
    });
    Paced::new(HttpBody::from_stream(pieces), LIMIT)
}

async fn read(body: Paced<HttpBody>) -> Result<usize, String> {
    let mut frames = HttpBody::new(body).into_data_stream();
    let mut bytes = 0;
    while let Some(frame) = frames.next().await {
        bytes += frame.map_err(|error| error.to_string())?.len();
    }
    Ok(bytes)
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_that_moves_is_not_cut() {
    assert_eq!(read(body(vec![(25, 16 * 1024); 100])).await, Ok(100 * 16 * 1024));
    assert_eq!(read(body(vec![(29, 5)])).await, Ok(5), "a short body has the same time as a step of a long one");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stands_still_or_only_drips_fails() {
    for pieces in [vec![(31, 5)], vec![(1, 5), (31, 5)], vec![(1, 1); 3600]] {
        let error = read(body(pieces)).await.expect_err("it does not move");
        assert!(error.contains("the body stalled"), "{error}");
    }
}

/// Lends a body of pieces to a reader that reads so many frames of it, and tells whether nothing is still to come then.
async fn is_over(pieces: Vec<(u64, usize)>, frames: usize, may_look: bool) -> bool {
    let pieces = stream::iter(pieces).then(|(milliseconds, bytes)| async move {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        Ok::<_, std::io::Error>(Bytes::from(vec![0; bytes]))
    });
    let (lent, rest) = lend(HttpBody::from_stream(pieces));
    assert!(!rest.is_over(true).await, "it is read still");
    let read: Vec<_> = HttpBody::new(lent).into_data_stream().take(frames).collect().await;
    assert!(read.iter().all(Result::is_ok));
    rest.is_over(may_look).await
}

#[tokio::test(start_paused = true)]
async fn a_short_rest_of_a_body_is_read_and_a_long_one_is_not() {
    let kib = 1024;
    assert!(is_over(vec![(0, kib), (900, kib)], usize::MAX, false).await, "it was read to its end");
    assert!(is_over(vec![(0, kib), (50, kib)], 1, true).await, "the rest is short, and soon there");
    assert!(!is_over(vec![(0, kib), (50, kib)], 1, false).await, "nobody may look");
    assert!(!is_over(vec![(0, kib), (900, kib)], 1, true).await, "the rest takes its time");
    assert!(!is_over(vec![(0, 48 * kib); 3], 1, true).await, "the rest is long");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_slow_reader_is_not_the_clients() {
    let mut frames = HttpBody::new(body(vec![(10, 1), (10, 1), (0, 1)])).into_data_stream();
    for _ in 0..3 {
        assert!(frames.next().await.expect("a frame").is_ok());
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
}
