//! Fetches models from a hub: by the paths and headers of the Hugging Face Hub, which its mirrors have too.
//!
//! Own code and not the `hf-hub` crate: that neither checks a hash nor bounds a silence, its 0.5 brings a second reqwest, and its
//! 1.0 a second TLS stack and starts a broken file from its beginning.
//!
//! A model comes into a folder beside its own, which is renamed once all is there: a model's folder is whole or not there.

mod checksum;
mod client;
mod download;
mod error;
mod place;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

pub use error::FetchError;

use crate::{ModelError, location::Location};
use client::HubClient;
use place::Place;

/// Where models come from, and how patiently.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// Address of the hub; `None`: the one that HF_ENDPOINT names, else the public one.
    pub endpoint: Option<String>,
    /// Goes nowhere: a model that is not here is refused.
    pub offline: bool,
    /// How long the hub may be silent, before an answer and in the middle of a file.
    pub silence: Duration,
    /// Tries in a row that bring nothing new.
    pub attempts: u32,
    /// Before the second of these tries; doubled before each further one.
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
    /// Bytes of the whole file, where the hub says so.
    pub total: Option<u64>,
}

/// Brings the files of `model` (see [`crate::ModelSettings::model`]) to this machine, unless they are there, and gives the
/// folder. What was fetched before a break is kept, and fetched no second time. Dropping the future breaks off in the same
/// way.
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
    // A folder that is there is the user's or whole; loading it says what it lacks.
    let Some(hub) = location.hub.as_ref().filter(|_| !location.folder.exists()) else { return Ok(()) };
    if settings.offline {
        return Err(FetchError::Offline);
    }
    let mut client = HubClient::new(settings, hub.clone())?;
    let place = Place::take(&location.folder).await?;
    // Whoever held the place may have finished.
    if location.folder.exists() {
        return Ok(());
    }
    for (file, is_required) in location.files() {
        let pinned = location.entry.and_then(|entry| entry.sha256.get(file)).map(String::as_str);
        match download::download(&mut client, &place, file, pinned, settings, progress).await {
            Err(FetchError::FileMissing { .. }) if !is_required => {}
            done => done?,
        }
    }
    place.finish()
}
