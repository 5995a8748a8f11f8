//! Compares all-MiniLM-L6-v2 with its real weights to transformers in float64 (`reference/make_minilm.py`).

use serde::Deserialize;
use std::path::PathBuf;
use svc_models::{Embedding, Engine, ModelError, ModelSettings, Precision, VECTOR_WIDTH, default_models_dir};

/// The model's folder: SVC_TEST_MODEL_DIR, or where `make demo` puts it. If it is missing, prints a line that says so
/// and returns `None`.
fn model_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("SVC_TEST_MODEL_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(default_models_dir()?.join("all-MiniLM-L6-v2")))
        .filter(|folder| folder.join("model.safetensors").is_file());
    if folder.is_none() {
        println!("left out: all-MiniLM-L6-v2 is not there; set SVC_TEST_MODEL_DIR to its folder");
    }
    folder
}

/// Loads the model without the file that bounds its window, because the reference has longer texts too.
fn load(device: &str, doc_window: usize) -> Option<Engine> {
    let folder = model_folder()?.canonicalize().expect("the folder is there");
    let place = tempfile::tempdir().expect("a temporary folder");
    let unbound = place.path().join(folder.file_name().expect("a folder has a name"));
    std::fs::create_dir(&unbound).expect("a new folder");
    for file in std::fs::read_dir(&folder).expect("the folder can be read") {
        let file = file.expect("the folder can be read");
        if file.file_name() != "sentence_bert_config.json" {
            std::os::unix::fs::symlink(file.path(), unbound.join(file.file_name())).expect("a link");
        }
    }
    let model = unbound.to_str().expect("a folder's name in UTF-8").to_owned();
    let (device, precision) = (device.to_owned(), Some(Precision::F32));
    let settings = ModelSettings { model, device, precision, doc_window, ..ModelSettings::default() };
    Some(Engine::load(&settings).expect("the model loads"))
}

#[derive(Deserialize)]
struct Reference {
    /// One of this many components is kept.
    step: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    tokens: usize,
    components: Vec<f64>,
    sum: f64,
    first_token: Option<Vec<f64>>,
    last_token: Option<Vec<f64>>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("reference/minilm.json")).expect("the reference is JSON")
}

fn difference(vector: &[f32], components: &[f64], step: usize) -> f64 {
    let kept = vector.iter().step_by(step).zip(components);
    kept.map(|(got, want)| (f64::from(*got) - want).abs()).fold(0.0, f64::max)
}

async fn is_the_reference(engine: &Engine, tolerance: f64) {
    let Reference { step, mut cases } = reference();
    cases.retain(|case| case.tokens <= engine.info().doc_window);
    let width = engine.info().native_width;
    let texts: Vec<String> = cases.iter().map(|case| case.text.clone()).collect();
    let vectors = engine.embed_documents(texts.clone()).await.expect("the engine answers");
    let tokens = engine.token_vectors(texts).await.expect("the engine answers");
    let mut worst = 0f64;
    for ((case, Embedding { vector, .. }), tokens) in cases.iter().zip(&vectors).zip(&tokens) {
        let text: String = case.text.chars().take(40).collect();
        assert_eq!(case.components.len(), width.div_ceil(step));
        assert_eq!(engine.count_tokens(&case.text).expect("the engine answers"), case.tokens, "{text:?}");
        assert_eq!(engine.count_content_tokens(&case.text).expect("the engine answers"), case.tokens - 2, "{text:?}");
        assert_eq!(tokens.len(), case.tokens - 2, "{text:?}");
        assert!(tokens.offsets.iter().all(|range| case.text.get(range.clone()).is_some()), "{text:?}");
        assert!(vector.len() == VECTOR_WIDTH && vector[width..].iter().all(|&value| value == 0.0));
        let norm: f64 = vector.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        let sum: f64 = vector.iter().map(|&value| f64::from(value)).sum();
        // The sum adds up 384 differences.
        let mut off = difference(&vector[..width], &case.components, step)
            .max((norm - 1.0).abs())
            .max((sum - case.sum).abs() / 384.0);
        for (row, want) in [(tokens.rows().next(), &case.first_token), (tokens.rows().next_back(), &case.last_token)] {
            if let (Some(row), Some(want)) = (row, want) {
                off = off.max(difference(row, want, step));
            }
        }
        assert!(off < tolerance, "{text:?} is off by {off:e}");
        worst = worst.max(off);
    }
    println!("{}: off by at most {worst:e}", engine.info().device);
}

#[tokio::test(flavor = "multi_thread")]
async fn kernels_give_the_reference_vectors() {
    let Some(engine) = load("cpu", 512) else { return };
    is_the_reference(&engine, 1e-5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_operations_give_the_reference_vectors() {
    // Burn's own operations are slow in a development build.
    let Some(engine) = load("cpu-plain", 64) else { return };
    is_the_reference(&engine, 1e-5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn like_meanings_are_nearer_than_unlike_ones() {
    let Some(engine) = load("cpu", 512) else { return };
    let texts = ["The cat sleeps on the sofa.", "Interest rates were raised by the central bank."];
    let documents = engine.embed_documents(texts.map(String::from).to_vec()).await.unwrap();
    let query = engine.embed_query("a sleeping pet".into()).await.unwrap();
    let cosines = documents
        .iter()
        .map(|document| document.vector.iter().zip(&query).map(|(a, b)| a * b).sum::<f32>())
        .collect::<Vec<_>>();
    assert!(cosines[0] > cosines[1] + 0.3, "{cosines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_that_of_the_model() {
    let Some(engine) = load("cpu", 512) else { return };
    assert_eq!((engine.info().doc_window, engine.info().token_window, engine.info().max_positions), (512, 512, 512));
    assert!(engine.embed_query("word ".repeat(510)).await.is_ok());
    let error = engine.embed_documents(vec!["short".into(), "word ".repeat(511)]).await.unwrap_err();
    assert!(
        matches!(error, ModelError::TextTooLong { index: 1, token_count: 513, limit: 512, chars_total: 2555 }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_in_the_catalogue_is_the_same_model_as_its_folder() {
    let Some(folder) = model_folder() else { return };
    if folder.file_name().is_none_or(|name| name != "all-MiniLM-L6-v2") {
        println!("left out: the folder has another name than the catalogue's");
        return;
    }
    let models_dir = folder.parent().map(PathBuf::from);
    let by_name = ModelSettings { models_dir, precision: Some(Precision::F32), ..ModelSettings::default() };
    let by_name = Engine::load(&by_name).unwrap();
    assert!(by_name.info().identity.starts_with("all-MiniLM-L6-v2@"));
    assert_eq!(load("cpu", 512).unwrap().info().identity, by_name.info().identity);
}

#[test]
fn tokens_are_counted_as_the_library_counts_them() {
    let Some(engine) = load("cpu", 512) else { return };
    let mut library = tokenizers::Tokenizer::from_bytes(engine.tokenizer_json()).expect("a tokenizer");
    library.with_padding(None).with_truncation(None).expect("no bounds");
    let samples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    let read = |name: &str| std::fs::read_to_string(samples.join(name)).expect("a sample");
    let handbook = read("handbook.md");
    let others = "Der Fluß fließt, naïve café; e\u{301}tude. 日本語のテキスト 2,5 % [MASK] don't re-entry\tTRAÎNEAU ... \u{7f}antidisestablishmentarianism";
    for text in [&handbook, &read("incident-report.md"), &read("release-notes.txt"), &handbook.to_uppercase(), others] {
        for line in text.lines().chain([text]) {
            let counted = engine.count_content_tokens(line).expect("a count");
            assert_eq!(counted, library.encode_fast(line, false).expect("tokens").len(), "{line}");
        }
    }
}
