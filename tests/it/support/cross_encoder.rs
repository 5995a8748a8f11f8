//! A cross-encoder with random weights, so that no test needs a download. Its scores mean nothing and are always the
//! same.
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

const HIDDEN: usize = 16;
const WIDE: usize = 32;
const POSITIONS: usize = 128;

/// Writes `config.json`, `tokenizer.json` and `model.safetensors` into `folder`.
pub fn write(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let tokenizer = tokenizer();
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap().len();
    let config = json!({
        "architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_act": "gelu", "vocab_size": vocabulary,
        "hidden_size": HIDDEN, "intermediate_size": WIDE, "num_attention_heads": 2, "num_hidden_layers": 1,
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "layer_norm_eps": 1e-12
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, shape) in [
        ("bert.embeddings.word_embeddings.weight", vec![vocabulary, HIDDEN]),
        ("bert.embeddings.position_embeddings.weight", vec![POSITIONS, HIDDEN]),
        ("bert.embeddings.token_type_embeddings.weight", vec![2, HIDDEN]),
        ("classifier.weight", vec![1, HIDDEN]),
        ("classifier.bias", vec![1]),
    ] {
        shapes.insert(name.to_owned(), shape);
    }
    for (name, inputs, outputs) in [
        ("bert.encoder.layer.0.attention.self.query", HIDDEN, HIDDEN),
        ("bert.encoder.layer.0.attention.self.key", HIDDEN, HIDDEN),
        ("bert.encoder.layer.0.attention.self.value", HIDDEN, HIDDEN),
        ("bert.encoder.layer.0.attention.output.dense", HIDDEN, HIDDEN),
        ("bert.encoder.layer.0.intermediate.dense", HIDDEN, WIDE),
        ("bert.encoder.layer.0.output.dense", WIDE, HIDDEN),
        ("bert.pooler.dense", HIDDEN, HIDDEN),
    ] {
        shapes.insert(format!("{name}.weight"), vec![outputs, inputs]);
        shapes.insert(format!("{name}.bias"), vec![outputs]);
    }
    for name in ["embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"] {
        for part in ["weight", "bias"] {
            shapes.insert(format!("bert.{name}.LayerNorm.{part}"), vec![HIDDEN]);
        }
    }
    let mut state = 7u32;
    let mut next = |name: &str| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
        if name.ends_with("LayerNorm.weight") { 1.0 + value / 4.0 } else { value }
    };
    let data: BTreeMap<&String, Vec<u8>> = shapes
        .iter()
        .map(|(name, shape)| {
            (name, (0..shape.iter().product()).flat_map(|_: usize| next(name).to_le_bytes()).collect())
        })
        .collect();
    let tensors = shapes
        .iter()
        .map(|(name, shape)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), &data[name]).unwrap()));
    safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors")).unwrap();
}

/// WordPiece over single letters, which is enough to distinguish texts.
fn tokenizer() -> Value {
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(str::to_owned).into_iter().chain(letters);
    let vocab: serde_json::Map<String, Value> = tokens.enumerate().map(|(id, token)| (token, id.into())).collect();
    let special = |id: usize, content: &str| json!({"id": id, "special": true, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    let (cls, sep, sep_of_second) = (
        json!({"SpecialToken": {"id": "[CLS]", "type_id": 0}}),
        json!({"SpecialToken": {"id": "[SEP]", "type_id": 0}}),
        json!({"SpecialToken": {"id": "[SEP]", "type_id": 1}}),
    );
    let (first, second) =
        (json!({"Sequence": {"id": "A", "type_id": 0}}), json!({"Sequence": {"id": "B", "type_id": 1}}));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "decoder": null,
        "added_tokens": [special(0, "[PAD]"), special(1, "[UNK]"), special(2, "[CLS]"), special(3, "[SEP]")],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [cls, first, sep], "pair": [cls, first, sep, second, sep_of_second],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}
        },
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}
    })
}
