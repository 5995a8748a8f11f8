//! The models known by name: `config/models.toml`, compiled in.

use std::{path::PathBuf, sync::LazyLock};

use serde::Deserialize;

use crate::{Architecture, Pooling};

/// One model of `config/models.toml`, which says what the fields mean.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CatalogEntry {
    pub name: String,
    pub folder: String,
    pub architecture: Architecture,
    pub pooling: Pooling,
    pub width: usize,
    pub positions: usize,
    pub query_prefix: String,
    pub document_prefix: String,
    pub matryoshka_widths: Vec<usize>,
    pub files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    model: Vec<CatalogEntry>,
}

static CATALOG: LazyLock<Vec<CatalogEntry>> = LazyLock::new(|| {
    let catalog: Catalog = toml::from_str(include_str!("../../config/models.toml"))
        .expect("config/models.toml is compiled in and held by a test");
    catalog.model
});

/// The models known by name.
pub fn catalog() -> &'static [CatalogEntry] {
    &CATALOG
}

/// Where the folders of named models lie unless a setting says otherwise: `${SVC_CACHE_DIR:-$HOME/.cache/svc}/models`.
/// `None` when neither variable is set.
pub fn default_models_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("SVC_CACHE_DIR").or_else(|| Some(set("HOME")?.join(".cache/svc")))?;
    Some(cache.join("models"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_whole_and_named_once() {
        for (at, entry) in catalog().iter().enumerate() {
            assert!(entry.width <= crate::VECTOR_WIDTH, "{} is too wide to be stored", entry.name);
            assert!(entry.files.iter().any(|file| file == "model.safetensors"), "{} has no weights", entry.name);
            assert!(catalog()[..at].iter().all(|other| other.name != entry.name), "{} stands twice", entry.name);
        }
        assert!(
            catalog().iter().any(|entry| entry.name == "all-MiniLM-L6-v2" && entry.architecture == Architecture::Bert)
        );
    }
}
