//! A check of a whole run of these tests.
use crate::support::{PATIENCE, TestApp, say, statements};
use std::time::{Duration, Instant};

/// Where no statement was sent for so long, no test without a service runs any more.
const QUIET: Duration = Duration::from_secs(60);

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
        // Where another test has failed, nothing more comes.
        if TestApp::running() == 0 && statements::quiet_for() >= QUIET {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let unseen = statements::unseen();
    if unseen.is_empty() {
        return;
    }
    let advice = "no test ran these: write one that does so for certain, or delete them; where another test has failed, it may be the one";
    // They are told at once and again at the end, and no backtrace comes between, so that a log that was cut has them.
    for line in unseen.iter().map(String::as_str).chain([advice]) {
        say(line);
        println!("{line}");
    }
    std::panic::resume_unwind(Box::new(advice));
}
