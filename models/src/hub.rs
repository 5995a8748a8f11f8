//! Fetches models from a hub, using the paths and headers of the Hugging Face Hub, which its mirrors share.
//!
//! This is our own code because the `hf-hub` crate neither checks a hash nor limits a silence. Its 0.5 brings a second
//! reqwest, and its 1.0 brings a second TLS stack and restarts a broken file from the beginning.
//!
//! A model is fetched into a folder next to its own, which is renamed once it is complete. So a model's folder is
//! either complete or absent, unless somebody took files out of it or put only some there: then what is missing, or is
//! not as the hub has it, comes into it once all of that is here.

mod checksum;
mod client;
mod download;
mod error;
mod place;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;

use crate::{ModelError, location::Location};
use client::HubClient;
pub use error::FetchError;
use place::Place;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Where models come from, and how patiently they are fetched.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// The hub's address; `None` means the one that HF_ENDPOINT names, or else the public one.
    pub endpoint: Option<String>,
    /// Fetch nothing: a model that is not on this machine is refused.
    pub offline: bool,
    /// How long the hub may be silent, before an answer and in the middle of a file.
    pub silence: Duration,
    /// How many tries in a row may bring nothing new.
    pub attempts: u32,
    /// The pause before the second of these tries; it doubles before each further one.
    pub pause: Duration,
}

impl Default for HubSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            offline: false,
            silence: Duration::from_secs(30),
            attempts: 5,
            pause: Duration::from_secs(1),
        }
    }
}

/// How far a file has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    pub file: &'a str,
    pub bytes: u64,
    /// The size of the whole file, if the hub says so.
    pub total: Option<u64>,
}

/// Fetches the files of `model` (see [`crate::ModelSettings::model`]) unless they are on this machine, and returns the
/// folder. What was fetched before an interruption is kept and not fetched again. Dropping the future is such an
/// interruption.
pub async fn fetch_model(
    model: &str,
    models_dir: Option<&Path>,
    settings: &HubSettings,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<PathBuf, ModelError> {
    let location = Location::of(model, models_dir)?;
    match fetch(&location, settings, progress).await {
        Ok(()) => Ok(location.folder),
        Err(source) => Err(ModelError::NotFetched { name: location.name, folder: location.folder, source }),
    }
}

async fn fetch(
    location: &Location,
    settings: &HubSettings,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<(), FetchError> {
    // Of a complete folder nobody is asked whether it is still as the hub has it: other files would make other vectors.
    let Some(hub) = location.hub.as_ref().filter(|_| !location.is_complete()) else { return Ok(()) };
    let missing = || -> Vec<String> { location.missing().map(str::to_owned).collect() };
    if settings.offline {
        return Err(FetchError::Offline { missing: missing() });
    }
    let mut client = HubClient::new(settings, hub.clone())?;
    let place = Place::take(&location.folder).await.map_err(|error| error.of_place(missing()))?;
    // The process that held the place may have finished the fetch.
    if location.is_complete() {
        return Ok(());
    }
    for (file, is_required) in location.files() {
        let pinned = location.entry.and_then(|entry| entry.sha256.get(file)).map(String::as_str);
        match download::download(&mut client, &place, file, pinned, settings, progress).await {
            Err(FetchError::FileMissing { .. }) if !is_required => {}
            done => done?,
        }
    }
    place.finish(location.files().map(|(file, _)| file))
}
