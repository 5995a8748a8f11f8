//! `svc serve`.
use super::{CliError, token_file};
use crate::{
    app::{App, AppError, asked_to_stop},
    ingest::extension::TaskTypes,
    logging, otlp,
    reader::Reader,
    settings::Settings,
};
use std::{io::Write, pin::pin, process::ExitCode, sync::Arc};

/// Prints a line for the person who started the service; it does not matter if nobody reads it.
macro_rules! announce {
    ($($text:tt)*) => {
        drop(writeln!(std::io::stdout(), $($text)*))
    };
}

pub async fn serve(settings: Settings, types: TaskTypes) -> Result<ExitCode, CliError> {
    let mut stop = pin!(asked_to_stop());
    let exporter = otlp::start(&settings, "svc")?;
    logging::start(settings.log_level, settings.log_format, exporter.as_ref());
    logging::tell_of_file(&settings);
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    let token = match settings.api_token.is_blank() {
        true => ephemeral_token(),
        false => settings.api_token.expose().to_owned(),
    };
    let ephemeral = settings.api_token.is_blank();
    let data_dir = settings.data_dir.clone();
    let reader = Reader::of_this_program();
    let mut app = match App::start_with(Arc::new(settings), &token, reader, types, stop.as_mut()).await {
        Err(AppError::Stopped) => {
            if let Some(exporter) = exporter {
                exporter.stop().await;
            }
            announce!("stopped before it served");
            return Ok(ExitCode::SUCCESS);
        }
        started => started?,
    };
    if ephemeral {
        if let Err(error) = token_file::keep(&data_dir, &token) {
            tracing::warn!(error = %error, "the token could not be stored: set SVC_API_TOKEN for the command line");
        }
        announce!("owner token of this start (set SVC_API_TOKEN to keep one): {token}");
    } else {
        token_file::forget(&data_dir);
    }
    announce!("svc {} serves http://{}/ (documentation: /docs)", env!("CARGO_PKG_VERSION"), app.address);
    if let Some(console) = app.console {
        announce!("operator console: http://{console}/ (sign in with the owner token)");
    }
    let address = app.address;
    let shown = if ephemeral { token.as_str() } else { "$SVC_API_TOKEN" };
    announce!("try: svc ingest FILE");
    announce!("     curl -H \"Authorization: Bearer {shown}\" \"http://{address}/search/?q=words\"");
    let ended = app.run(stop).await;
    // A second signal means that nobody wants to wait.
    app.stop(asked_to_stop()).await;
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
    ended?;
    announce!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// A token of 32 random bytes.
fn ephemeral_token() -> String {
    let bytes: [u8; 32] = rand::random();
    hex::encode(bytes)
}
