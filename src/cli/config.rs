//! `svc config` and `svc migrate`.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use crate::{app::Backend, settings::Settings, store::schema};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub struct ConfigArguments {
    /// Prints a settings file with every setting at its default, commented out.
    #[arg(long)]
    template: bool,
}

#[derive(Args)]
pub struct MigrateArguments {
    /// Only says what would be applied.
    #[arg(long)]
    plan: bool,
}

pub fn config(settings: &Settings, output: Output, arguments: &ConfigArguments) -> Result<ExitCode, CliError> {
    if arguments.template {
        say!("{}", settings.template().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let rows = settings.rows();
    match output {
        Output::Json => rows.iter().try_for_each(|row| {
            Output::line(&json!({"name": row.name, "value": row.value, "origin": row.origin.to_string(), "meaning": row.meaning}))
        })?,
        Output::Table => {
            let rows: Vec<Vec<String>> =
                rows.iter().map(|row| vec![row.name.to_owned(), one_line(&row.value, 60), row.origin.to_string()]).collect();
            Output::table(&["setting", "value", "from"], &rows)?;
        }
    }
    for warning in settings.warnings() {
        crate::cli::output::tell!("svc: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn migrate(settings: &Settings, arguments: &MigrateArguments) -> Result<ExitCode, CliError> {
    if settings.database_url.is_blank() {
        return Err(CliError::Other(
            "the embedded database migrates itself when the service starts; set SVC_DATABASE_URL to migrate another"
                .to_owned(),
        ));
    }
    let backend = Backend::join(settings).await?;
    let found = schema::read(&backend.pool).await.map_err(crate::app::AppError::from)?;
    let verb = if arguments.plan { "would apply" } else { "applying" };
    for (number, name) in &found.missing {
        say!("{verb} {number:04} {name}");
    }
    for name in &found.stale {
        say!("{verb} the function or view {name}");
    }
    if !arguments.plan {
        schema::migrate(&backend.pool).await.map_err(crate::app::AppError::from)?;
    }
    let is_current = found.missing.is_empty() && found.stale.is_empty();
    say!("{}", if is_current { "nothing to apply" } else { "done" });
    backend.stop().await;
    Ok(ExitCode::SUCCESS)
}
