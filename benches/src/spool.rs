//! Measures a workbook of many sheets from its upload until it is settled, in a service that keeps no stored files on
//! its disk and in one that does.
use crate::{
    figure::{BoxError, Figure, Peer, median},
    sandbox::with_app,
    uploads,
    workbook::workbook_of_sheets,
};
use std::time::Instant;
use svc::{app::App, settings::Settings};
use svc_client::{FileUpload, wire::UploadQuery};

/// The number of texts in the table that all sheets share.
const TEXTS: u64 = 100_000;
/// There are few rows, because both sides spend the same time on the encoder.
const ROWS: usize = 2;
const ROUNDS: usize = 4;

pub async fn run(sheets: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let names = ["Place".to_owned(), "Bird".to_owned()].into_iter();
    let texts = (0..TEXTS).map(|n| format!("{n} {:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let workbook = workbook_of_sheets(sheets, ROWS, &names.chain(texts).collect::<Vec<_>>());
    eprintln!("bench: a workbook of {} bytes", workbook.len());
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // What one side has warmed helps the other too, so they take turns in being first.
        let is_even = round.is_multiple_of(2);
        for is_without in [is_even, !is_even] {
            match is_without {
                true => without.push(seconds(&workbook, Some(0)).await?),
                false => with.push(seconds(&workbook, None).await?),
            }
        }
    }
    let (value, ours) = (median(&mut without), median(&mut with));
    let peer = Peer { name: "SVC_SPOOL_MAX_BYTES=0", version: svc_client::VERSION.into(), value };
    out(Figure::beside("spool/workbook", sheets, "s", ours, peer));
    Ok(())
}

async fn seconds(workbook: &[u8], spool_max_bytes: Option<u64>) -> Result<f64, BoxError> {
    let change = |settings: &mut Settings| {
        if let Some(bytes) = spool_max_bytes {
            settings.spool_max = bytes;
        }
    };
    with_app(change, async |app: &App| {
        let client = uploads::client(&format!("http://{}", app.address))?;
        // A file that is not counted warms up connections, statements and the model's threads.
        uploads::ingest(&client, std::iter::once(("warm.md".to_owned(), "Warm.".to_owned()))).await?;
        let start = Instant::now();
        let upload = FileUpload::from_bytes("sheets.xlsx", workbook.to_vec(), None);
        let stored = client.upload_file(UploadQuery::default(), upload).await?;
        uploads::settled(&client, stored.document_id).await?;
        Ok(start.elapsed().as_secs_f64())
    })
    .await
}
