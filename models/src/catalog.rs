//! The models known by name: `config/models.toml`, compiled in.

use crate::{Architecture, Pooling};
use serde::Deserialize;
use std::{collections::BTreeMap, path::PathBuf, sync::LazyLock};

/// One model of `config/models.toml`; that file says what the fields mean.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CatalogEntry {
    pub name: String,
    pub hub: String,
    pub revision: String,
    pub folder: String,
    pub kind: ModelKind,
    pub architecture: Architecture,
    pub pooling: Pooling,
    pub width: usize,
    pub positions: usize,
    pub query_prefix: String,
    pub document_prefix: String,
    pub matryoshka_widths: Vec<usize>,
    #[serde(default)]
    pub is_centred: bool,
    pub files: Vec<String>,
    /// SHA-256 in hex by file, only for files whose hash is known for certain.
    #[serde(default)]
    pub sha256: BTreeMap<String, String>,
}

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelKind {
    /// It gives vectors.
    Embedding,
    /// It scores pairs of texts.
    CrossEncoder,
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

/// Where the folders of named models are unless a setting says otherwise: `${SVC_CACHE_DIR:-$HOME/.cache/svc}/models`.
/// `None` if neither variable is set.
pub fn default_models_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("SVC_CACHE_DIR").or_else(|| Some(set("HOME")?.join(".cache/svc")))?;
    Some(cache.join("models"))
}

/// Where the models are that came with the program: the folder `models` beside it, which an unpacked release has.
pub fn bundled_models_dir() -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(std::fs::canonicalize).ok()?;
    Some(program.parent()?.join("models")).filter(|models| models.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::HubId;

    #[test]
    fn every_entry_is_whole_and_named_once() {
        for (at, entry) in catalog().iter().enumerate() {
            let name = &entry.name;
            assert!(entry.width <= crate::VECTOR_WIDTH, "{name} is too wide to be stored");
            assert!(entry.matryoshka_widths.iter().all(|&width| width < entry.width), "{name} has parts of its width");
            for file in ["config.json", "tokenizer.json", "model.safetensors"] {
                assert!(entry.files.iter().any(|known| known == file), "{name} has no {file}");
            }
            for (file, hash) in &entry.sha256 {
                assert!(entry.files.contains(file), "{name}: {file} has a hash and is none of its files");
                assert!(
                    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
                    "{name}"
                );
            }
            assert!(HubId::parse(&format!("{}@{}", entry.hub, entry.revision)).is_some(), "{name}: {}", entry.hub);
            for other in &catalog()[..at] {
                assert!(
                    other.name != *name && other.hub != entry.hub && other.folder != entry.folder,
                    "{name} stands twice"
                );
            }
        }
        let kind = |name: &str| catalog().iter().find(|entry| entry.name == name).map(|entry| entry.kind);
        let centred: Vec<&str> =
            catalog().iter().filter(|entry| entry.is_centred).map(|entry| entry.name.as_str()).collect();
        assert_eq!(centred, ["nomic-ai/nomic-embed-text-v1.5"]);
        assert_eq!(kind("all-MiniLM-L6-v2"), Some(ModelKind::Embedding));
        assert_eq!(kind("cross-encoder/ms-marco-MiniLM-L6-v2"), Some(ModelKind::CrossEncoder));
    }
}
