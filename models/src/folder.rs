//! A model's folder: which files exist, and what they say apart from the weights.

use crate::{
    Architecture, ModelError, ModelSettings, Pooling, Precision,
    location::{LONGEST_TEXT, Location},
};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// The file that says what is put before queries and documents.
pub(crate) const PROMPTS: &str = "config_sentence_transformers.json";
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
const MAX_TOKENIZER_BYTES: u64 = 64 * 1024 * 1024;

/// A folder that exists, with its small files read.
pub(crate) struct ModelFolder {
    pub name: String,
    pub path: PathBuf,
    pub architecture: Architecture,
    /// The class of a model that has a classification head, which makes it a cross-encoder.
    pub classifier: Option<String>,
    pub config: Vec<u8>,
    pub tokenizer: Vec<u8>,
    pub pooling: Pooling,
    pub query_prefix: String,
    pub document_prefix: String,
    pub catalog_width: Option<usize>,
    pub is_centred: bool,
    /// The most tokens of a text by the folder's own word.
    pub max_length: Option<usize>,
}

impl ModelFolder {
    pub fn open(settings: &ModelSettings) -> Result<Self, ModelError> {
        let Location { name, folder: path, entry, hub } =
            Location::of(&settings.model, settings.models_dir.as_deref())?;
        if !path.is_dir() {
            return Err(ModelError::FolderMissing {
                name,
                folder: path,
                remedy: match hub {
                    Some(_) => "fetch it with `svc models fetch`, or put its files there",
                    None => "set SVC_EMBEDDING_MODEL to a folder that holds the model's files",
                },
            });
        }
        for file in entry.map(|entry| entry.files.as_slice()).unwrap_or_default() {
            let file = path.join(file);
            if let Err(source) = file.metadata() {
                return Err(ModelError::Unreadable { path: file, source });
            }
        }
        let config_path = path.join("config.json");
        let config = read_file(&config_path, MAX_CONFIG_BYTES)?;
        let (architecture, classifier) = architecture(&config, &config_path)?;
        let tokenizer = read_file(&path.join("tokenizer.json"), MAX_TOKENIZER_BYTES)?;
        // What the catalogue says of a named model holds on every machine, whatever else lies in its folder there.
        let (pooling, query_prefix, document_prefix, max_length) = match entry {
            Some(entry) => (entry.pooling, entry.query_prefix.clone(), entry.document_prefix.clone(), None),
            None => {
                let prompts = prompts(&path)?;
                check_modules(&path)?;
                let has_prompt = !prompts.query.is_empty() || !prompts.document.is_empty();
                (pooling(&path, has_prompt)?, prompts.query, prompts.document, max_length(&path)?)
            }
        };
        let catalog_width = entry.map(|entry| entry.width);
        let is_centred = entry.is_some_and(|entry| entry.is_centred);
        Ok(Self {
            name,
            path,
            architecture,
            classifier,
            config,
            tokenizer,
            pooling,
            query_prefix,
            document_prefix,
            catalog_width,
            is_centred,
            max_length,
        })
    }

    /// The identity that each vector carries. Two identities are equal if and only if the same text gives the same
    /// vector, but for what processors round differently. A precision below f32 is part of it, so that vectors of two
    /// precisions are never compared.
    pub fn identity(&self, weights: [u8; 32], precision: Precision) -> String {
        let mut hash = Sha256::new();
        for part in [&self.config, &self.tokenizer, self.query_prefix.as_bytes(), self.document_prefix.as_bytes()] {
            // The length separates neighbouring parts.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(self.pooling.to_string());
        hash.update(weights);
        let hash = hash.finalize();
        let short: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        match precision {
            Precision::F32 => format!("{}@{short}", self.name),
            Precision::Bf16 | Precision::Int8 => format!("{}@{short}-{precision}", self.name),
        }
    }
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(limit + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        return Err(ModelError::Corrupt { path: path.to_owned(), problem: format!("it has more than {limit} bytes") });
    }
    Ok(bytes)
}

/// Returns `None` if there is no such file.
pub(crate) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, ModelError> {
    if !path.exists() {
        return Ok(None);
    }
    let json = read_file(path, MAX_CONFIG_BYTES)?;
    match serde_json::from_slice(&json) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(ModelError::Corrupt { path: path.to_owned(), problem: error.to_string() }),
    }
}

/// The architecture, and the model's class if it has a classifier.
fn architecture(config: &[u8], path: &Path) -> Result<(Architecture, Option<String>), ModelError> {
    #[derive(Deserialize)]
    struct Kind {
        model_type: String,
        #[serde(default)]
        architectures: Option<Vec<String>>,
    }
    let kind: Kind = serde_json::from_slice(config)
        .map_err(|error| ModelError::Corrupt { path: path.to_owned(), problem: error.to_string() })?;
    let classifier = kind.architectures.into_iter().flatten().find(|name| name.ends_with("ForSequenceClassification"));
    match Architecture::from_model_type(&kind.model_type) {
        Some(architecture) => Ok((architecture, classifier)),
        None => Err(ModelError::Unsupported {
            path: path.to_owned(),
            what: format!("model_type {:?}", kind.model_type),
            supported: "supported: BERT, MPNet, NomicBERT and ModernBERT",
        }),
    }
}

/// What sentence-transformers may do with a text here: a module that would be left out makes other vectors.
const MODULES: [&str; 3] = ["Transformer", "Pooling", "Normalize"];

/// Refuses a model whose `modules.json` names a module that is not run here, such as a dense layer after the pooling.
fn check_modules(folder: &Path) -> Result<(), ModelError> {
    #[derive(Deserialize)]
    struct Module {
        r#type: String,
    }
    let path = folder.join("modules.json");
    let modules = read_json::<Vec<Module>>(&path)?.unwrap_or_default();
    let name = |module: &Module| module.r#type.rsplit('.').next().unwrap_or_default().to_owned();
    match modules.iter().map(name).find(|name| !MODULES.contains(&name.as_str())) {
        Some(name) => Err(ModelError::Unsupported {
            path,
            what: format!("the module {name}"),
            supported: "supported: Transformer, Pooling and Normalize",
        }),
        None => Ok(()),
    }
}

/// Read from `1_Pooling/config.json` as sentence-transformers writes it; without that file, its default, the mean.
fn pooling(folder: &Path, has_prompt: bool) -> Result<Pooling, ModelError> {
    #[derive(Deserialize)]
    struct Modes {
        #[serde(flatten)]
        fields: serde_json::Map<String, serde_json::Value>,
    }
    let path = folder.join("1_Pooling/config.json");
    let Some(modes) = read_json::<Modes>(&path)? else { return Ok(Pooling::Mean) };
    let chosen: Vec<&str> = modes
        .fields
        .iter()
        .filter(|(name, value)| name.starts_with("pooling_mode_") && value.as_bool() == Some(true))
        .map(|(name, _)| name.as_str())
        .collect();
    if has_prompt && modes.fields.get("include_prompt").and_then(serde_json::Value::as_bool) == Some(false) {
        return Err(ModelError::Unsupported {
            path,
            what: "pooling without the prompt".to_owned(),
            supported: "supported: include_prompt true, or a model without prompts",
        });
    }
    match chosen.as_slice() {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::Cls),
        _ => Err(ModelError::Unsupported {
            path,
            what: format!("pooling by [{}]", chosen.join(", ")),
            supported: "supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone",
        }),
    }
}

#[derive(Default, Deserialize)]
struct Prompts {
    #[serde(default)]
    query: String,
    #[serde(default)]
    document: String,
}

/// Read from [`PROMPTS`], where newer models have them.
fn prompts(folder: &Path) -> Result<Prompts, ModelError> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        prompts: Option<Prompts>,
    }
    let file = read_json::<File>(&folder.join(PROMPTS))?;
    Ok(file.and_then(|file| file.prompts).unwrap_or_default())
}

/// Read from `sentence_bert_config.json`. A model gives a vector of a longer text too, but was not trained to.
fn max_length(folder: &Path) -> Result<Option<usize>, ModelError> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        max_seq_length: Option<usize>,
    }
    Ok(read_json::<File>(&folder.join(LONGEST_TEXT))?.and_then(|file| file.max_seq_length))
}
