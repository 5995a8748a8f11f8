//! The log: text for people, JSON for machines.
use crate::{
    otlp::{Exporter, Statements},
    settings::{LogFormat, LogLevel, Settings},
};
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, Layer, Registry, filter::filter_fn, fmt, prelude::*};

/// Starts logging to standard error; a second call in one process changes nothing. If traces are sent, statements become a part of them.
pub fn start(level: LogLevel, format: LogFormat, exporter: Option<&Exporter>) {
    // rmcp logs whole requests, and a warning for each one that it refuses.
    let quieter = "sqlx=warn,hyper=warn,reqwest=warn,ractor=warn,rmcp=error";
    let filter = EnvFilter::new(format!("{},{quieter}", level.as_str()));
    let log: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed(),
        LogFormat::Text => {
            let is_terminal = std::io::stderr().is_terminal();
            fmt::layer().with_ansi(is_terminal).with_target(false).with_writer(std::io::stderr).boxed()
        }
    };
    // Only a test starts it twice; the first start stays.
    let _ = match exporter {
        // A filter of everything is quicker than one of each listener.
        None => tracing_subscriber::registry().with(log.and_then(filter)).try_init(),
        Some(_) => {
            let statements = Statements.with_filter(filter_fn(Statements::heeds));
            tracing_subscriber::registry().with(log.with_filter(filter)).with(statements).try_init()
        }
    };
}

/// Says which file the settings come from, because nothing else tells that a copy in another folder was not read.
pub fn tell_of_file(settings: &Settings) {
    let Some(file) = settings.file() else {
        tracing::info!("no settings file was read: none is named, and the working directory has no svc.toml");
        return;
    };
    // Whoever reads the log may not know the working directory.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    tracing::info!(file = %file.display(), "the settings file was read");
}
