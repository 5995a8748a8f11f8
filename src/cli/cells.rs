//! `svc cells`.
use super::{
    CliError,
    output::{Output, say},
};
use clap::Args;
use std::process::ExitCode;
use svc_client::{
    Client, Remote,
    wire::{CellsQuery, DocumentPath},
};

#[derive(Args)]
pub struct CellsArguments {
    /// A workbook, one of its sheets, or one of their records.
    id: i64,
    /// The range, for example A1:C9; else the cells of the record, or all that the sheet uses.
    #[arg(value_name = "RANGE")]
    reference: Option<String>,
    /// The sheet, by its name.
    #[arg(long, value_name = "NAME")]
    sheet: Option<String>,
}

pub async fn cells(client: &Client<Remote>, output: Output, arguments: CellsArguments) -> Result<ExitCode, CliError> {
    let query = CellsQuery { reference: arguments.reference, sheet: arguments.sheet };
    let cells = client.read_cells(DocumentPath { id: arguments.id }, query).await?;
    match output {
        Output::Json => Output::line(&cells)?,
        Output::Table => {
            let range = cells.reference.as_deref().unwrap_or("nothing: the sheet is empty");
            say!("{}, {range}", cells.sheet.replace(char::is_control, ""));
            for line in cells.grid.lines() {
                say!("{}", line.replace(char::is_control, ""));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
