//! Counts the records of the workbooks in a folder, by the rule of the first row alone and with tables found anywhere:
//! `cargo run -p svc-formats --example tables -- ../shared/corpus`.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
};
use svc_formats::{
    Limits,
    xlsx::{self, RecordsPart, SheetKind},
};

type Failure = Box<dyn std::error::Error>;

/// What one sheet gave.
#[derive(Default)]
struct Sheet {
    tables: usize,
    records: u64,
    /// Cells in no record.
    loose: usize,
    reason: String,
}

fn main() -> Result<(), Failure> {
    let folder = env::args_os().nth(1).ok_or("name a folder with workbooks")?;
    let mut files = Vec::new();
    workbooks(Path::new(&folder), &mut files)?;
    files.sort();
    let (mut sheets, mut books) = ([0; 3], [0; 3]);
    for file in files {
        let limits = Limits::default();
        let Ok(workbook) = xlsx::workbook(File::open(&file)?, &limits) else { continue };
        let mut of_book = [0, 0];
        for sheet in workbook.sheets.iter().filter(|sheet| sheet.kind == SheetKind::Worksheet) {
            let (Ok(before), Ok(after)) = (read(&file, sheet.index, false)?, read(&file, sheet.index, true)?) else {
                continue;
            };
            println!(
                "{} {:?}: {} records, with tables {} in {}, {} cells beside them; {}",
                file.display(),
                sheet.name,
                before.records,
                after.records,
                after.tables,
                after.loose,
                after.reason
            );
            of_book = [of_book[0] + before.records, of_book[1] + after.records];
            if after.loose + after.tables > 0 {
                sheets[0] += 1;
                sheets[1] += usize::from(before.records > 0);
                sheets[2] += usize::from(after.records > 0);
            }
        }
        books[0] += 1;
        books[1] += usize::from(of_book[0] > 0);
        books[2] += usize::from(of_book[1] > 0);
    }
    let [all, before, after] = sheets;
    println!("of {all} sheets with cells, {before} give records by the first row alone, {after} with tables");
    let [all, before, after] = books;
    println!("of {all} workbooks, {before} give records by the first row alone, {after} with tables");
    Ok(())
}

fn workbooks(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            workbooks(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "xlsx" || extension == "xlsm") {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads a sheet; a file that cannot be read is the inner error.
fn read(file: &Path, sheet: u32, tables: bool) -> Result<Result<Sheet, String>, Failure> {
    let mut found = Sheet::default();
    let source = File::open(file)?.into();
    let read = xlsx::records(source, sheet, tables, &Limits::default(), &mut |part| {
        match part {
            RecordsPart::Head(head) => {
                found.tables = head.tables.len();
                let reasons = head.others.iter().map(|other| format!("{}: {}", other.range, other.reason));
                found.reason = reasons.take(3).collect::<Vec<_>>().join("; ");
            }
            RecordsPart::Loose(rows) => found.loose += rows.iter().map(|row| row.cells.len()).sum::<usize>(),
            RecordsPart::End { records } => found.records = records,
            RecordsPart::Batch(_) => {}
        }
        Ok(())
    });
    Ok(read.map(|()| found).map_err(|error| error.to_string()))
}
