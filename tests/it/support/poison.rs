//! The small model with one word that it has no numbers for, or with none for any text.
use super::{model_settings, server, settings};
use serde_json::Value;
use std::{fs, path::Path, sync::OnceLock};
use svc_models::{Engine, ModelSettings, default_models_dir};

/// A text with this word has no direction.
pub const WORD: &str = "obsidian";
/// So large that the sum over a row of them is no number.
const HUGE: f32 = 1.7e38;

const WEIGHT: &str = "embeddings.word_embeddings.weight";

/// The model, loaded once per run.
pub fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| load("poisoned", Some(WORD))).clone()
}

/// The model as if its device were broken, so that no text has a direction; loaded once per run.
pub fn broken() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| load("broken", None)).clone()
}

fn load(name: &str, word: Option<&str>) -> Engine {
    let folder = server::work_dir().join(name);
    copy(&default_models_dir().unwrap().join("all-MiniLM-L6-v2"), &folder, word);
    let settings = ModelSettings {
        model: folder.display().to_string(),
        models_dir: Some(folder.join("models")),
        ..model_settings(&settings(&[]))
    };
    Engine::load(&settings).expect("a model with other embeddings")
}

/// Copies a model's files and makes the word's row of its embeddings huge, or all of them.
fn copy(from: &Path, to: &Path, word: Option<&str>) {
    fs::create_dir_all(to.join("1_Pooling")).unwrap();
    for name in ["config.json", "tokenizer.json", "config_sentence_transformers.json", "1_Pooling/config.json"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let tokenizer: Value = serde_json::from_slice(&fs::read(from.join("tokenizer.json")).unwrap()).unwrap();
    let token = |word: &str| tokenizer["model"]["vocab"][word].as_u64().expect("the word is one token") as usize;
    let mut weights = fs::read(from.join("model.safetensors")).unwrap();
    let length = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&weights[8..8 + length]).unwrap();
    let number = |path: &str| header[WEIGHT].pointer(path).and_then(Value::as_u64).unwrap() as usize;
    let (start, width) = (8 + length + number("/data_offsets/0"), number("/shape/1"));
    let rows = word.map_or(0..number("/shape/0"), |word| token(word)..token(word) + 1);
    for value in weights[start + rows.start * width * 4..start + rows.end * width * 4].chunks_exact_mut(4) {
        value.copy_from_slice(&HUGE.to_le_bytes());
    }
    fs::write(to.join("model.safetensors"), weights).unwrap();
}
