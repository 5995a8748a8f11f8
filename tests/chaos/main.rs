//! Workers, database, network and, where there is one, the message broker are hurt at random for a while. Then everything must be done once, and nothing lost.
//!
//! Run it with `make chaos SECONDS=600 SEED=7`; `make test` includes a minute of it. It prints the seed: the same seed
//! hurts the same things in the same order.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod faults;
mod feed;
#[path = "../it/support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the integration tests use the rest")]
mod support;
mod work;

use std::{process::ExitCode, time::Duration};

struct Arguments {
    seed: u64,
    time: Duration,
}

impl Arguments {
    /// Returns `None` if a filter of `cargo test` names other tests.
    fn parse(arguments: impl Iterator<Item = String>) -> Option<Arguments> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |text: String| text.parse::<u64>().expect("takes a whole number");
        let mut seed = variable("SEED").map(number);
        let mut seconds = variable("SECONDS_OF_CHAOS").map_or(60, number);
        let mut arguments = arguments.skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seed" => seed = arguments.next().map(number),
                "--seconds" => seconds = arguments.next().map_or(seconds, number),
                "--list" => return None,
                flag if flag.starts_with('-') => {}
                filter if "chaos".contains(filter) => {}
                _ => return None,
            }
        }
        Some(Arguments { seed: seed.unwrap_or_else(rand::random), time: Duration::from_secs(seconds) })
    }
}

fn main() -> ExitCode {
    let Some(Arguments { seed, time }) = Arguments::parse(std::env::args()) else { return ExitCode::SUCCESS };
    println!("chaos: seed {seed}, {} s", time.as_secs());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // A panic in here is a failure; the seed is printed above it.
    runtime.block_on(work::run(seed, time));
    ExitCode::SUCCESS
}
