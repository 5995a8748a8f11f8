//! The log: text for people, JSON for machines.
use crate::settings::{LogFormat, LogLevel};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// Starts logging to standard error; a second call in one process changes nothing.
pub fn start(level: LogLevel, format: LogFormat) {
    // rmcp logs whole requests, and a warning for each one that it refuses.
    let quieter = "sqlx=warn,hyper=warn,reqwest=warn,ractor=warn,rmcp=error";
    let filter = EnvFilter::new(format!("{},{quieter}", level.as_str()));
    let registry = tracing_subscriber::registry().with(filter);
    // Only a test starts it twice; the first start stays.
    let _ = match format {
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
        }
        LogFormat::Text => {
            use std::io::IsTerminal;
            registry
                .with(
                    fmt::layer()
                        .with_ansi(std::io::stderr().is_terminal())
                        .with_target(false)
                        .with_writer(std::io::stderr),
                )
                .try_init()
        }
    };
}
