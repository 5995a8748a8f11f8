//! A check of a whole run of these tests.
use crate::support::{PATIENCE, statements};
use std::time::Instant;

/// Starts last because of its name, and waits for the tests that still run.
#[tokio::test]
async fn every_statement_of_the_store_runs_in_some_test() {
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-')) {
        println!("left out: whether every statement of the store runs, which only a whole run of the tests can tell");
        return;
    }
    let begun = Instant::now();
    // The others may be several tests, each of which has this patience.
    while !statements::unseen().is_empty() && begun.elapsed() < 3 * PATIENCE {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let unseen = statements::unseen();
    assert!(unseen.is_empty(), "no test runs these: write one, or delete them\n{}", unseen.join("\n"));
}
