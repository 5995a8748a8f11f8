//! A tiny model with random weights, so that tests need no download.

use crate::{ModelSettings, Precision};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;
use std::{collections::BTreeMap, path::Path};
use tempfile::TempDir;

pub(crate) const VOCABULARY: usize = 20;
pub(crate) const HIDDEN: usize = 48;
pub(crate) const POSITIONS: usize = 700;

/// WordPiece as in BERT. Its truncation and padding must be ignored.
pub(crate) const TOKENIZER_JSON: &str = r###"{
  "version": "1.0",
  "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0},
  "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
  "added_tokens": [
    {"id": 0, "special": true, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
    {"id": 1, "special": true, "content": "[UNK]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
    {"id": 2, "special": true, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
    {"id": 3, "special": true, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}
  ],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
      {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}
  },
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {
    "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
    "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "the": 4, "cat": 5, "sat": 6, "on": 7, "mat": 8, "dog": 9,
      "ran": 10, "far": 11, ".": 12, ",": 13, "##s": 14, "##ing": 15, "a": 16, "e": 17, "日": 18, "本": 19}
  }
}"###;

pub(crate) fn config() -> serde_json::Value {
    json!({
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu",
        "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 88, "num_attention_heads": 4,
        "num_hidden_layers": 2, "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "layer_norm_eps": 1e-12
    })
}

/// Writes the model's three files into `folder`.
pub(crate) fn write_model(folder: &Path) {
    std::fs::write(folder.join("config.json"), config().to_string()).unwrap();
    write_weights(folder, shapes(""));
}

/// Writes the same model with the given number of positions.
pub(crate) fn write_long_model(folder: &Path, positions: usize) {
    let mut config = config();
    config["max_position_embeddings"] = positions.into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut shapes = shapes("");
    shapes.insert("embeddings.position_embeddings.weight".into(), vec![positions, HIDDEN]);
    write_weights(folder, shapes);
}

/// Writes the same weights as a cross-encoder, below a classifier.
pub(crate) fn write_cross_encoder(folder: &Path) {
    let mut config = config();
    config["architectures"] = json!(["BertForSequenceClassification"]);
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut shapes = shapes("bert.");
    shapes.insert("bert.pooler.dense.weight".into(), vec![HIDDEN, HIDDEN]);
    shapes.insert("bert.pooler.dense.bias".into(), vec![HIDDEN]);
    shapes.insert("classifier.weight".into(), vec![1, HIDDEN]);
    shapes.insert("classifier.bias".into(), vec![1]);
    write_weights(folder, shapes);
}

fn shapes(root: &str) -> BTreeMap<String, Vec<usize>> {
    let (hidden, wide) = (HIDDEN, 88);
    let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut add = |name: &str, shape: &[usize]| shapes.insert(format!("{root}{name}"), shape.to_vec());
    add("embeddings.word_embeddings.weight", &[VOCABULARY, hidden]);
    add("embeddings.position_embeddings.weight", &[POSITIONS, hidden]);
    add("embeddings.token_type_embeddings.weight", &[2, hidden]);
    add("embeddings.LayerNorm.weight", &[hidden]);
    add("embeddings.LayerNorm.bias", &[hidden]);
    for layer in 0..2 {
        for (part, inputs, outputs) in [
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", hidden, wide),
            ("output.dense", wide, hidden),
        ] {
            add(&format!("encoder.layer.{layer}.{part}.weight"), &[outputs, inputs]);
            add(&format!("encoder.layer.{layer}.{part}.bias"), &[outputs]);
        }
        for part in ["attention.output.LayerNorm", "output.LayerNorm"] {
            add(&format!("encoder.layer.{layer}.{part}.weight"), &[hidden]);
            add(&format!("encoder.layer.{layer}.{part}.bias"), &[hidden]);
        }
    }
    shapes
}

/// Writes random weights of these shapes, and the tokenizer.
fn write_weights(folder: &Path, shapes: BTreeMap<String, Vec<usize>>) {
    std::fs::write(folder.join("tokenizer.json"), TOKENIZER_JSON).unwrap();
    let mut state = 1u32;
    let data: BTreeMap<String, Vec<u8>> = shapes
        .iter()
        .map(|(name, shape)| {
            let values = (0..shape.iter().product::<usize>()).flat_map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                (if name.ends_with("LayerNorm.weight") { 1.0 + value / 4.0 } else { value / 4.0 }).to_le_bytes()
            });
            (name.clone(), values.collect())
        })
        .collect();
    let tensors = shapes.iter().map(|(name, shape)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), &data[name]).unwrap();
        (name.as_str(), view)
    });
    safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors")).unwrap();
}

/// Makes a folder with the model in it.
pub(crate) fn sample_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    folder
}

/// Settings that load it.
pub(crate) fn settings(folder: &TempDir) -> ModelSettings {
    let model = folder.path().to_str().unwrap().to_owned();
    ModelSettings { model, precision: Some(Precision::F32), threads: 2, ..ModelSettings::default() }
}
