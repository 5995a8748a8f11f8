//! The models to choose from: the catalogue, other models in the models folder, and those that came with the program.

use crate::{ModelKind, bundled_models_dir, catalog, folder::read_json, location::Location};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A known model, whether or not it is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryModel {
    /// The name that the setting takes.
    pub name: String,
    pub kind: ModelKind,
    /// The number of components in its own vectors; `None` if its config.json does not say.
    pub width: Option<usize>,
    /// The number of tokens in its longest text.
    pub positions: Option<usize>,
    pub folder: PathBuf,
    /// Whether all its files are on this machine.
    pub is_here: bool,
}

/// The catalogue's models in its order, then by name those that were fetched by their hub id.
pub fn library(models_dir: &Path) -> Vec<LibraryModel> {
    library_of(models_dir, bundled_models_dir().as_deref())
}

fn library_of(models_dir: &Path, bundled: Option<&Path>) -> Vec<LibraryModel> {
    let located = |name: &str| Location::in_either(name, Some(models_dir), bundled).ok();
    let known = catalog().iter().filter_map(|entry| {
        let location = located(&entry.name)?;
        Some(LibraryModel {
            name: entry.name.clone(),
            kind: entry.kind,
            width: Some(entry.width),
            positions: Some(entry.positions),
            is_here: location.is_complete(),
            folder: location.folder,
        })
    });
    let mut models: Vec<LibraryModel> = known.collect();
    let places = [Some(models_dir), bundled.filter(|bundled| *bundled != models_dir)];
    let folders = places.into_iter().flatten().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    let mut fetched: Vec<LibraryModel> = folders
        .filter_map(|folder| {
            let name = folder.file_name().into_string().ok()?;
            // These are unfinished fetches and their locks.
            if name.ends_with(".part") || name.ends_with(".lock") {
                return None;
            }
            let name = name.replacen("--", "/", 1);
            let location = located(&name).filter(|location| location.folder == folder.path())?;
            let shape = Shape::of(&location.folder);
            let (kind, width, positions) = (shape.kind(), shape.width(), shape.positions());
            Some(LibraryModel {
                name,
                kind,
                width,
                positions,
                is_here: location.is_complete(),
                folder: location.folder,
            })
        })
        .filter(|model| models.iter().all(|known| known.folder != model.folder))
        .collect();
    fetched.sort_by(|left, right| left.name.cmp(&right.name));
    models.append(&mut fetched);
    models
}

/// What a config.json says of a model's size; the names differ between families.
#[derive(Default, Deserialize)]
struct Shape {
    #[serde(alias = "n_embd")]
    hidden_size: Option<usize>,
    #[serde(alias = "n_positions")]
    max_position_embeddings: Option<usize>,
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
}

impl Shape {
    fn of(folder: &Path) -> Self {
        read_json(&folder.join("config.json")).ok().flatten().unwrap_or_default()
    }

    fn kind(&self) -> ModelKind {
        match self.architectures.iter().flatten().any(|name| name.ends_with("ForSequenceClassification")) {
            true => ModelKind::CrossEncoder,
            false => ModelKind::Embedding,
        }
    }

    fn width(&self) -> Option<usize> {
        self.hidden_size
    }

    fn positions(&self) -> Option<usize> {
        // MPNet's first two positions belong to no token.
        let unused = if self.model_type.as_deref() == Some("mpnet") { 2 } else { 0 };
        Some(self.max_position_embeddings?.saturating_sub(unused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_library_says_what_is_here_and_how_large_it_is() {
        let models = tempfile::tempdir().unwrap();
        let is_here =
            |name: &str| library(models.path()).into_iter().find(|model| model.name == name).map(|model| model.is_here);
        assert_eq!((is_here("all-MiniLM-L6-v2"), is_here("owner/tiny")), (Some(false), None));
        for folder in ["all-MiniLM-L6-v2", "owner--tiny", "half--done"] {
            std::fs::create_dir(models.path().join(folder)).unwrap();
            sample::write_model(&models.path().join(folder));
        }
        std::fs::remove_file(models.path().join("half--done/model.safetensors")).unwrap();
        // What says nothing of its class still says how large it is.
        let mut config = sample::config();
        config["architectures"] = serde_json::Value::Null;
        std::fs::write(models.path().join("owner--tiny/config.json"), config.to_string()).unwrap();
        for stray in ["notes", "owner--tiny.part", "x--y.lock"] {
            std::fs::create_dir(models.path().join(stray)).unwrap();
        }
        assert_eq!(
            (is_here("all-MiniLM-L6-v2"), is_here("owner/tiny"), is_here("half/done")),
            (Some(true), Some(true), Some(false))
        );
        let all = library(models.path());
        assert_eq!(all.len(), catalog().len() + 2, "{all:?}");
        let tiny = all.last().unwrap();
        assert_eq!(
            (tiny.width, tiny.positions, tiny.kind),
            (Some(sample::HIDDEN), Some(sample::POSITIONS), ModelKind::Embedding)
        );
    }

    #[test]
    fn the_library_has_what_came_with_the_program() {
        let (models, bundled) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |folder: PathBuf| {
            std::fs::create_dir(&folder).unwrap();
            sample::write_model(&folder);
        };
        for name in ["all-MiniLM-L6-v2", "owner--tiny", "owner--both"] {
            put(bundled.path().join(name));
        }
        put(models.path().join("owner--both"));
        let all = library_of(models.path(), Some(bundled.path()));
        let here: Vec<(&str, &Path)> =
            all.iter().filter(|model| model.is_here).map(|model| (&*model.name, &*model.folder)).collect();
        let (mini, tiny) = (bundled.path().join("all-MiniLM-L6-v2"), bundled.path().join("owner--tiny"));
        let both = models.path().join("owner--both");
        assert_eq!(here, [("all-MiniLM-L6-v2", &*mini), ("owner/both", &*both), ("owner/tiny", &*tiny)]);
        assert_eq!(library_of(bundled.path(), Some(bundled.path())).len(), catalog().len() + 2);
    }
}
