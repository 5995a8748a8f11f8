//! Many files at once through the whole service: when half of them are settled, as a share of the time until all are.
use crate::{
    figure::{BoxError, Figure},
    sandbox::with_app,
    uploads,
};
use std::time::{Duration, Instant};
use svc::app::App;
use svc_client::{
    FileUpload,
    wire::{TaskTypePath, UploadQuery},
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

pub async fn run(files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, files, out).await).await
}

async fn measure(app: &App, files: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    // All are there before the first one is begun.
    let probe = || TaskTypePath { task_type: "probe".to_owned() };
    client.pause_task_type(probe()).await?;
    for number in 0..files {
        let text = format!("The gauge at weir {number} was read twice and written down. ").repeat(8);
        let file = FileUpload::from_bytes(&format!("reading-{number}.txt"), text, None);
        client.upload_file(UploadQuery::default(), file).await?;
    }
    client.resume_task_type(probe()).await?;
    let start = Instant::now();
    let mut half = None;
    loop {
        let settled: i64 =
            sqlx::query_scalar("SELECT count(*) FROM documents WHERE usetype = 'file' AND settled = 'settled'")
                .fetch_one(&app.service.pool)
                .await?;
        let settled = usize::try_from(settled)?;
        if half.is_none() && settled * 2 >= files {
            half = Some(start.elapsed());
        }
        if settled >= files {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let (whole, half) = (start.elapsed().as_secs_f64(), half.unwrap_or_default().as_secs_f64());
    out(Figure::alone(&format!("queue/backlog/files={files}/half_settled"), files, "of the time", half / whole));
    out(Figure::alone(&format!("queue/backlog/files={files}/settled"), files, "files/s", files as f64 / whole));
    Ok(())
}
