//! Tests what is loaded and what is refused.

use super::*;
use crate::{
    Precision, sample,
    sample::{sample_folder, settings},
    weights::WeightFile,
};
use proptest::prelude::*;

#[test]
fn the_identity_follows_the_weights_and_not_the_path() {
    let folder = sample_folder();
    let one = Engine::load(&settings(&folder)).unwrap().info().identity.clone();
    let dotted = format!("{}/.", folder.path().display());
    assert_eq!(
        Engine::load(&ModelSettings { model: dotted, threads: 1, ..settings(&folder) }).unwrap().info().identity,
        one
    );
    let weights = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    assert_ne!(Engine::load(&settings(&folder)).unwrap().info().identity, one);
}

#[test]
fn the_identity_follows_the_precision_which_follows_the_device() {
    let folder = sample_folder();
    let identity = |device: &str, asked, precision| {
        let engine =
            Engine::load(&ModelSettings { device: device.into(), precision: asked, ..settings(&folder) }).unwrap();
        assert_eq!(engine.info().precision, precision);
        engine.info().identity.clone()
    };
    let whole = identity("cpu", Some(Precision::F32), Precision::F32);
    assert!(!whole.ends_with("-f32"));
    assert_eq!(identity("cpu", Some(Precision::Int8), Precision::Int8), format!("{whole}-int8"));
    assert_eq!(identity("cpu", None, Precision::Bf16), format!("{whole}-bf16"));
    assert_eq!(identity("cpu-plain", None, Precision::F32), whole);
}

#[test]
fn a_model_that_cannot_be_used_is_refused_by_name() {
    let refused = |change: &dyn Fn(&std::path::Path), wanted: &[&str]| {
        let folder = sample_folder();
        change(folder.path());
        let error = Engine::load(&settings(&folder)).unwrap_err().to_string();
        for wanted in wanted {
            assert!(error.contains(wanted), "{wanted:?} is not said in: {error}");
        }
    };
    let with = |key: &'static str, value: serde_json::Value| {
        move |folder: &std::path::Path| {
            let mut config = sample::config();
            config[key] = value.clone();
            std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        }
    };
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        refused(&|folder| std::fs::remove_file(folder.join(file)).unwrap(), &["cannot read", file]);
        refused(
            &|folder| std::fs::write(folder.join(file), "garbage, and enough of it").unwrap(),
            &["not usable", file],
        );
        refused(&|folder| std::fs::write(folder.join(file), "").unwrap(), &["not usable", file]);
    }
    let cut = |folder: &std::path::Path| {
        let path = folder.join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 10]).unwrap();
    };
    refused(&cut, &["model.safetensors", "cut short"]);
    refused(&with("model_type", "modernbert".into()), &["no tensor embeddings.tok_embeddings.weight"]);
    refused(&with("model_type", "mpnet".into()), &["no tensor encoder.relative_attention_bias.weight"]);
    refused(&with("model_type", "nomic_bert".into()), &["activation \"gelu\"", "supported: swiglu"]);
    refused(&with("model_type", "gpt2".into()), &["model_type \"gpt2\""]);
    refused(&with("architectures", serde_json::json!(["BertForSequenceClassification"])), &["reranker"]);
    refused(&with("hidden_act", "relu".into()), &["hidden_act \"relu\""]);
    refused(&with("position_embedding_type", "relative_key".into()), &["relative_key"]);
    refused(&with("hidden_size", 1024.into()), &["1024", "at most 768"]);
    refused(&with("hidden_size", 52.into()), &["model.safetensors", "shape [20, 48]", "[20, 52]"]);
    refused(&with("num_attention_heads", 7.into()), &["not a multiple"]);
    refused(&with("num_attention_heads", 0.into()), &["num_attention_heads is 0"]);
    refused(&with("num_hidden_layers", 3.into()), &["no tensor encoder.layer.2.attention.self.query.weight"]);
    refused(&with("vocab_size", 19.into()), &["tokenizer.json", "19 tokens"]);
    refused(&with("intermediate_size", u64::MAX.into()), &["intermediate_size"]);
    refused(&with("intermediate_size", 9_999_999.into()), &["shape", "[9999999, 48]"]);
    refused(&with("max_position_embeddings", 9_000_000.into()), &["max_position_embeddings is 9000000"]);
    refused(&with("type_vocab_size", 0.into()), &["type_vocab_size is 0"]);
}

#[test]
fn prompts_that_make_other_vectors_or_none_are_refused_by_name() {
    let folder = sample_folder();
    let loaded = |document: &str, include_prompt: bool| {
        let prompts = serde_json::json!({"prompts": {"query": "", "document": document}});
        std::fs::write(folder.path().join(PROMPTS), prompts.to_string()).unwrap();
        std::fs::create_dir_all(folder.path().join("1_Pooling")).unwrap();
        let pooling = serde_json::json!({"pooling_mode_mean_tokens": true, "include_prompt": include_prompt});
        std::fs::write(folder.path().join("1_Pooling/config.json"), pooling.to_string()).unwrap();
        Engine::load(&settings(&folder)).map(|_| ()).map_err(|error| error.to_string())
    };
    let room = "cat ".repeat(sample::POSITIONS - 3);
    assert_eq!((loaded(&room, true), loaded("", false)), (Ok(()), Ok(())));
    let error = loaded(&format!("{room}cat "), true).unwrap_err();
    assert!(error.contains(PROMPTS) && error.contains("leaves no room: it has 700 tokens"), "{error}");
    let error = loaded("cat ", false).unwrap_err();
    assert!(error.contains("1_Pooling") && error.contains("pooling without the prompt"), "{error}");
}

#[test]
fn the_longest_text_of_the_folder_bounds_both_windows() {
    let folder = sample_folder();
    let path = folder.path().join("sentence_bert_config.json");
    let loaded = |says: &str| {
        std::fs::write(&path, says).unwrap();
        Engine::load(&settings(&folder))
    };
    let windows = |says: &str| {
        let info = loaded(says).unwrap().info().clone();
        (info.doc_window, info.token_window, info.max_positions)
    };
    let unbound = (sample::POSITIONS, 512, sample::POSITIONS);
    assert_eq!(windows(r#"{"max_seq_length": 256, "do_lower_case": false}"#), (256, 256, sample::POSITIONS));
    assert_eq!(windows(r#"{"max_seq_length": 600}"#), (600, 512, sample::POSITIONS));
    assert_eq!(windows(r#"{"max_seq_length": 9000}"#), unbound, "the model has no more positions");
    assert_eq!(windows(r#"{"max_seq_length": null}"#), unbound);
    assert_eq!(windows("{}"), unbound);
    for (says, wanted) in [
        (r#"{"max_seq_length": 0}"#, "max_seq_length is 0, too few for any text"),
        (r#"{"max_seq_length": 2}"#, "max_seq_length is 2, too few for any text"),
        (r#"{"max_seq_length": -1}"#, "-1"),
        (r#"{"max_seq_length": "long"}"#, "long"),
        ("garbage", "not usable"),
    ] {
        let error = loaded(says).unwrap_err().to_string();
        assert!(error.contains("sentence_bert_config.json") && error.contains(wanted), "{says}: {error}");
    }
}

#[test]
fn a_text_over_the_longest_one_is_refused_although_the_model_has_positions_for_it() {
    let folder = sample_folder();
    std::fs::write(folder.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 20}"#).unwrap();
    let engine = Engine::load(&settings(&folder)).unwrap();
    let embed = |words: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(engine.embed_documents(vec!["cat ".repeat(words)]))
    };
    assert!(embed(18).is_ok());
    let error = embed(19).unwrap_err();
    assert!(matches!(error, ModelError::TextTooLong { token_count: 21, limit: 20, .. }), "{error}");
}

#[test]
fn settings_that_mean_nothing_are_refused_by_name() {
    let folder = sample_folder();
    let error = |settings: ModelSettings| Engine::load(&settings).unwrap_err().to_string();
    assert!(error(ModelSettings { batch_size: 0, ..settings(&folder) }).contains("batch_size is 0"));
    assert!(error(ModelSettings { threads: 5000, ..settings(&folder) }).contains("threads is 5000"));
    assert!(error(ModelSettings { device: "cuda".into(), ..settings(&folder) }).contains("feature `cuda`"));
    assert!(error(ModelSettings { device: "tpu".into(), ..settings(&folder) }).contains("unknown device \"tpu\""));
    let plain =
        |precision| ModelSettings { device: "cpu-plain".into(), precision: Some(precision), ..settings(&folder) };
    assert!(error(plain(Precision::Int8)).contains("precision is int8: only the device cpu has it"));
    assert!(error(plain(Precision::Bf16)).contains("precision is bf16: only the devices cpu, wgpu and cuda have it"));
    assert!(Engine::load(&plain(Precision::F32)).is_ok());
    assert!(error(ModelSettings { model: "no/such model".into(), ..settings(&folder) }).contains("all-MiniLM-L6-v2"));
    let named =
        ModelSettings { model: "all-MiniLM-L6-v2".into(), models_dir: Some(folder.path().into()), ..settings(&folder) };
    assert!(error(named).contains("does not exist"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_weights_file_makes_the_loader_panic(header in "\\PC{0,60}", tail in prop::collection::vec(any::<u8>(), 0..60), length in prop_oneof![any::<u64>(), 0u64..100]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let bytes = [&length.to_le_bytes()[..], header.as_bytes(), &tail].concat();
        std::fs::write(&path, bytes).unwrap();
        if let Ok(mut file) = WeightFile::open(&path) {
            prop_assert!(file.tensor("embeddings.word_embeddings.weight", &[1, 1]).is_err());
        }
    }
}
