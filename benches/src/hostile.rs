//! An ordinary client, first alone and then beside rude ones: what answers it gets, and how fast.
use crate::{
    figure::{BoxError, Figure},
    rude::{Experience, RudeClients, ordinary},
    sandbox::{Sandbox, TOKEN, interruptible},
    service_process::ServiceProcess,
};
use std::time::{Duration, Instant};

/// How long the ordinary client is alone.
const QUIET: Duration = Duration::from_secs(15);
const RUDE_CLIENTS: u64 = 6;
const SEED: u64 = 20_261_122;

pub async fn run(seconds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let mut service = ServiceProcess::start(&sandbox)?;
    let measured = interruptible(measure(&mut service, Duration::from_secs(seconds as u64), out)).await;
    service.stop().await?;
    measured
}

async fn measure(service: &mut ServiceProcess, time: Duration, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let base = service.base().await?;
    let address = base.trim_start_matches("http://").to_owned();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let quiet = for_so_long(QUIET, &base, &http).await;
    let memory = service.memory()?;
    let rude = RudeClients::start(&address, TOKEN, true, RUDE_CLIENTS, SEED);
    let mixed = for_so_long(time, &base, &http).await;
    let misdeeds = rude.stop().await;
    let peak = service.memory()?;
    let after = for_so_long(QUIET / 3, &base, &http).await;

    eprintln!("bench: rude clients did {:?}", misdeeds.counts);
    for (name, seen) in [("quiet", &quiet), ("mixed", &mixed), ("after", &after)] {
        for trouble in seen.troubles.iter().take(20) {
            eprintln!("bench: {name}: {trouble}");
        }
        let figure =
            |what: &str, unit, value| Figure::alone(&format!("hostile/{name}/{what}"), seen.good(), unit, value);
        out(figure("p50", "ms", quantile(seen, 0.5) * 1e3));
        out(figure("p95", "ms", quantile(seen, 0.95) * 1e3));
        out(figure("busy", "answers of 429", f64::from(seen.busy)));
        out(figure("troubles", "answers", seen.troubles.len() as f64));
    }
    for error in misdeeds.internal_errors.iter().take(20) {
        eprintln!("bench: 500: {error}");
    }
    let slower = |share| quantile(&mixed, share) / quantile(&quiet, share);
    out(Figure::alone("hostile/slower_p50", mixed.good(), "times the quiet latency", slower(0.5)));
    out(Figure::alone("hostile/slower_p95", mixed.good(), "times the quiet latency", slower(0.95)));
    out(Figure::alone(
        "hostile/internal_errors",
        RUDE_CLIENTS as usize,
        "answers",
        misdeeds.internal_errors.len() as f64,
    ));
    out(Figure::alone("hostile/memory_before", 1, "bytes", memory.now));
    out(Figure::alone("hostile/memory_peak", 1, "bytes", peak.peak));
    let troubles = quiet.troubles.len() + mixed.troubles.len() + after.troubles.len();
    if troubles + misdeeds.internal_errors.len() > 0 {
        return Err(format!(
            "{troubles} troubles of the ordinary client, {} answers of 500",
            misdeeds.internal_errors.len()
        )
        .into());
    }
    Ok(())
}

async fn for_so_long(time: Duration, base: &str, http: &reqwest::Client) -> Experience {
    let start = Instant::now();
    ordinary(base, TOKEN, http, |_| start.elapsed() >= time).await
}

/// The time in seconds within which this share of the good answers came.
fn quantile(seen: &Experience, share: f64) -> f64 {
    let mut all: Vec<f64> = seen.seconds.values().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let last = all.len().saturating_sub(1);
    all.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}
