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

#[tokio::test(start_paused = true)]
async fn the_time_of_a_slow_reader_is_not_the_clients() {
    let mut frames = HttpBody::new(body(vec![(10, 1), (10, 1), (0, 1)])).into_data_stream();
    for _ in 0..3 {
        assert!(frames.next().await.expect("a frame").is_ok());
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
}
