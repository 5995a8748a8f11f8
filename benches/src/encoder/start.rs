//! How long a model takes from its start to its first vector: from the published file, and from the pack that the first
//! start leaves. In both cases the file is in the system's cache.
use super::peer::Peers;
use crate::figure::{BoxError, Figure, median};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use svc_models::{Engine, ModelSettings};

/// A pack is made of a file that has not changed for a second.
const RESTED: Duration = Duration::from_secs(2);

pub async fn run(rounds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let peers = Peers::prepare()?;
    for (name, folder) in [("minilm", peers.minilm()), ("modernbert", peers.modernbert())] {
        // The packs are in a folder of this run, so that the first start of each round finds none.
        let models = tempfile::tempdir_in(peers.folder())?;
        let packs = models.path().join(".packed");
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        rest(&folder).await?;
        for _ in 0..rounds {
            if packs.exists() {
                fs::remove_dir_all(&packs)?;
            }
            cold.push(first_vector(&folder, models.path()).await?);
            if fs::read_dir(&packs)?.next().is_none() {
                return Err(format!("{name}: the first start left no pack").into());
            }
            warm.push(first_vector(&folder, models.path()).await?);
        }
        out(Figure::alone(&format!("encoder/start/{name}/from the published file"), rounds, "s", median(&mut cold)));
        out(Figure::alone(&format!("encoder/start/{name}/from its pack"), rounds, "s", median(&mut warm)));
    }
    Ok(())
}

/// Waits until the weights have been unchanged for long enough.
async fn rest(folder: &Path) -> Result<(), BoxError> {
    let written = folder.join("model.safetensors").metadata()?.modified()?;
    let age = SystemTime::now().duration_since(written).unwrap_or_default();
    tokio::time::sleep(RESTED.saturating_sub(age)).await;
    Ok(())
}

async fn first_vector(folder: &Path, models_dir: &Path) -> Result<f64, BoxError> {
    let model = folder.to_str().ok_or("the cache folder's name is no UTF-8")?.to_owned();
    let settings = ModelSettings {
        model,
        models_dir: Some(PathBuf::from(models_dir)),
        threads: super::THREADS,
        ..ModelSettings::default()
    };
    let start = Instant::now();
    let engine = Engine::load(&settings)?;
    engine.embed_query("what is asked first".to_owned()).await?;
    Ok(start.elapsed().as_secs_f64())
}
