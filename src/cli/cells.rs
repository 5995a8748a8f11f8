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
    /// The id of a workbook, of one of its sheets, or of one of their records.
    id: i64,
    /// The range, for example A1:C9 [default: the cells of the record, or everything that the sheet uses].
    #[arg(value_name = "RANGE")]
    reference: Option<String>,
    /// The sheet's name.
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
