//! Where a model's files are, or would be once fetched.

use crate::{CatalogEntry, ModelError, bundled_models_dir, catalog, default_models_dir};
use std::path::{Path, PathBuf};

/// The files that a model outside the catalogue must have.
const REQUIRED: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors"];
/// Files that are read if they exist: they say how rows become one vector, the prefixes, and the longest text.
const OPTIONAL: [&str; 4] =
    ["modules.json", "1_Pooling/config.json", "config_sentence_transformers.json", LONGEST_TEXT];
/// The file that says how long the texts were on which the model was trained.
pub(crate) const LONGEST_TEXT: &str = "sentence_bert_config.json";

/// A model that was named, whether or not it exists.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    /// A part of the identity of its vectors.
    pub name: String,
    pub folder: PathBuf,
    pub entry: Option<&'static CatalogEntry>,
    /// Where it can be fetched from; `None` for a folder of the user's own.
    pub hub: Option<HubId>,
}

impl Location {
    /// Resolves `model`: a name of the catalogue (or its hub id), a folder, or a hub id, in this order. A named model
    /// that `models_dir` lacks, or has only a part of, is looked for among those that came with the program.
    pub fn of(model: &str, models_dir: Option<&Path>) -> Result<Self, ModelError> {
        Self::in_either(model, models_dir, bundled_models_dir().as_deref())
    }

    /// The same with a folder in place of that of the program.
    pub fn in_either(model: &str, models_dir: Option<&Path>, bundled: Option<&Path>) -> Result<Self, ModelError> {
        let models_dir = || {
            models_dir.map(Path::to_owned).or_else(default_models_dir).ok_or(ModelError::Setting {
                setting: "models_dir",
                value: "unset".to_owned(),
                problem: "neither SVC_CACHE_DIR nor HOME is set, so there is no folder to look for models in",
            })
        };
        if let Some(entry) = catalog().iter().find(|entry| entry.name == model || entry.hub == model) {
            let hub = HubId { repository: entry.hub.clone(), revision: entry.revision.clone() };
            let folder = models_dir()?.join(&entry.folder);
            let named = Self { name: entry.name.clone(), folder, entry: Some(entry), hub: Some(hub) };
            return Ok(named.or_in(bundled));
        }
        let path = PathBuf::from(model);
        if !model.is_empty() && path.is_dir() {
            // This is the folder's own name, even if the path is `.`: an identity must not depend on how the path was
            // written.
            let whole = path.canonicalize().map_err(|source| ModelError::Unreadable { path: path.clone(), source })?;
            let name = whole.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
            return Ok(Self { name: name.into_owned(), folder: path, entry: None, hub: None });
        }
        if let Some(hub) = HubId::parse(model) {
            let folder = models_dir()?.join(hub.folder_name());
            let named = Self { name: model.to_owned(), folder, entry: None, hub: Some(hub) };
            return Ok(named.or_in(bundled));
        }
        let known = catalog().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ");
        Err(ModelError::UnknownModel { name: model.to_owned(), known })
    }

    /// The same model in `bundled`, if it is whole there and not in the models folder.
    fn or_in(self, bundled: Option<&Path>) -> Self {
        let Some((bundled, name)) = bundled.zip(self.folder.file_name()).filter(|_| !self.is_complete()) else {
            return self;
        };
        let there = Self { folder: bundled.join(name), ..self.clone() };
        if there.is_complete() { there } else { self }
    }

    /// Whether each file that the model needs exists.
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The files that the model needs and its folder lacks.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let needed = self.files().filter(|(_, required)| *required).map(|(file, _)| file);
        needed.filter(|file| !self.folder.join(file).is_file())
    }

    /// The model's files by their path in the folder, and whether each is required.
    pub fn files(&self) -> impl Iterator<Item = (&str, bool)> {
        let named = self.entry.into_iter().flat_map(|entry| entry.files.iter().map(|file| (file.as_str(), true)));
        let usual = REQUIRED.map(|file| (file, true)).into_iter().chain(OPTIONAL.map(|file| (file, false)));
        named.chain(usual.filter(|_| self.entry.is_none()))
    }
}

/// A repository on the hub at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubId {
    /// `owner/name`.
    pub repository: String,
    pub revision: String,
}

impl HubId {
    /// Parses `owner/name` or `owner/name@revision`; without one the revision is `main`. It refuses anything that could
    /// leave a folder or change an address.
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (owner, name) = repository.split_once('/')?;
        let is_plain = |part: &str| {
            (1..=96).contains(&part.len())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
                && part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && !part.contains("..")
        };
        [owner, name, revision]
            .into_iter()
            .all(is_plain)
            .then(|| Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }

    fn folder_name(&self) -> String {
        let repository = self.repository.replace('/', "--");
        if self.revision == "main" { repository } else { format!("{repository}@{}", self.revision) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn what_came_with_the_program_stands_in_for_what_the_models_folder_lacks() {
        let (models, bundled) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder =
            |model: &str| Location::in_either(model, Some(models.path()), Some(bundled.path())).unwrap().folder;
        let put = |folder: PathBuf| {
            std::fs::create_dir(&folder).unwrap();
            sample::write_model(&folder);
        };
        for (model, name) in [("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"), ("owner/tiny@v1", "owner--tiny@v1")] {
            let (own, there) = (models.path().join(name), bundled.path().join(name));
            assert_eq!(folder(model), own, "it is nowhere, and would be fetched into the models folder");
            put(there.clone());
            assert_eq!(folder(model), there);
            std::fs::remove_file(there.join("model.safetensors")).unwrap();
            assert_eq!(folder(model), own, "what came with the program is not whole");
            sample::write_model(&there);
            put(own.clone());
            assert_eq!(folder(model), own, "the models folder goes first");
            std::fs::remove_file(own.join("model.safetensors")).unwrap();
            assert_eq!(folder(model), there, "what is in the models folder is not whole");
        }
    }

    #[test]
    fn a_model_is_a_name_a_folder_or_a_hub_id() {
        let models = Path::new("/models");
        let of = |model: &str| Location::of(model, Some(models));
        let named = of("all-MiniLM-L6-v2").unwrap();
        assert_eq!(
            (named.name.as_str(), named.folder.as_path()),
            ("all-MiniLM-L6-v2", Path::new("/models/all-MiniLM-L6-v2"))
        );
        // The hub's own id is the same model, with the same identity.
        assert_eq!(of("sentence-transformers/all-MiniLM-L6-v2").unwrap().name, "all-MiniLM-L6-v2");
        assert_eq!(of("owner/some-model").unwrap().folder, Path::new("/models/owner--some-model"));
        assert_eq!(of("owner/some-model@v1.0").unwrap().folder, Path::new("/models/owner--some-model@v1.0"));
        let folder = tempfile::tempdir().unwrap();
        let own = of(folder.path().to_str().unwrap()).unwrap();
        assert!(own.hub.is_none() && own.folder == folder.path());
        assert!(of("no such model").unwrap_err().to_string().contains("all-MiniLM-L6-v2"));
    }

    #[test]
    fn no_hub_id_leaves_the_models_folder_or_its_place_in_an_address() {
        for text in [
            "../x", "a/..", "a/b/c", "a/b@../c", ".a/b", "a/b?c", "a/b#c", "a b/c", "a/", "/b", "a/b@", "a//b",
            "a%2e/b", "a/b\0",
        ] {
            assert_eq!(HubId::parse(text), None, "{text:?}");
        }
        assert!(HubId::parse(&format!("a/{}", "b".repeat(97))).is_none());
        let parsed = HubId::parse("BAAI/bge-small-en-v1.5@0123abc").unwrap();
        assert_eq!((parsed.repository.as_str(), parsed.revision.as_str()), ("BAAI/bge-small-en-v1.5", "0123abc"));
    }
}
