//! Tests the output with the sample model.

use super::*;
use crate::{
    Pooling, sample,
    sample::{sample_folder, settings},
};

const CAT: u32 = 5;

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

const WORDS: [&str; 10] = ["the", "cats", "sat", "on", "mat", "dog", "ran", "far", "日本", "zebra!"];

/// Texts of many lengths, the same in each run.
fn texts(count: usize) -> Vec<String> {
    (0..count)
        .map(|text| {
            (0..text * text % 97).map(|word| WORDS[(word * 7 + text * 3) % WORDS.len()]).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_come_in_the_order_of_the_texts_and_do_not_depend_on_company() {
    let engine = Engine::load(&settings(&sample_folder())).unwrap();
    let texts = texts(80);
    let together = engine.embed_documents(texts.clone()).await.unwrap();
    for (text, Embedding { vector, weight }) in texts.into_iter().zip(&together) {
        assert!(*weight > 0.0, "{weight}");
        assert_eq!(vector.len(), VECTOR_WIDTH);
        assert!(vector[sample::HIDDEN..].iter().all(|&value| value == 0.0));
        let norm: f32 = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((norm - 1.0).abs() < 1e-5, "{norm}");
        let alone = engine.embed_query(text).await.unwrap();
        assert!(largest_difference(&alone, vector) < 1e-5);
    }
    assert!(engine.embed_documents(Vec::new()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fast_path_is_the_plain_path() {
    let folder = sample_folder();
    let fast = Engine::load(&settings(&folder)).unwrap();
    let plain = Engine::load(&ModelSettings { device: "cpu-plain".into(), ..settings(&folder) }).unwrap();
    assert_eq!(fast.info().identity, plain.info().identity);
    let texts = texts(60);
    let (left, right) =
        (fast.embed_documents(texts.clone()).await.unwrap(), plain.embed_documents(texts.clone()).await.unwrap());
    for (left, right) in left.iter().zip(&right) {
        assert!(largest_difference(&left.vector, &right.vector) < 1e-5);
        assert!((left.weight / right.weight - 1.0).abs() < 1e-5, "{} and {}", left.weight, right.weight);
    }
    let (left, right) = (fast.token_vectors(texts.clone()).await.unwrap(), plain.token_vectors(texts).await.unwrap());
    for (left, right) in left.iter().zip(&right) {
        assert_eq!(left.token_ids, right.token_ids);
        assert!(left.is_empty() || largest_difference(&left.values, &right.values) < 1e-5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_vectors_are_of_the_text_s_own_tokens() {
    let engine = Engine::load(&settings(&sample_folder())).unwrap();
    let text = "The cats, 日本";
    let got = engine.token_vectors(vec![text.into(), String::new()]).await.unwrap();
    let words: Vec<&str> = got[0].offsets.iter().map(|range| &text[range.clone()]).collect();
    assert_eq!(words, ["The", "cat", "s", ",", "日", "本"]);
    assert_eq!(got[0].token_ids, [4, 5, 14, 13, 18, 19]);
    assert_eq!(got[0].rows().len(), 6);
    for row in got[0].rows() {
        assert!((row.iter().map(|value| value * value).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    assert!(got[1].is_empty() && got[1].values.is_empty());
    assert_eq!(engine.query_token_vectors(text.into()).await.unwrap(), got[0]);
    assert_eq!((engine.count_tokens(text).unwrap(), engine.count_content_tokens(text).unwrap()), (8, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_without_tokens_have_the_vector_of_the_empty_text() {
    let engine = Engine::load(&settings(&sample_folder())).unwrap();
    let vectors = engine.embed_documents(["", "\0\0", " \n\t ", "\u{200b}"].map(String::from).to_vec()).await.unwrap();
    assert!(vectors[0].vector.iter().all(|value| value.is_finite()));
    assert_eq!(vectors[0], vectors[1]);
    assert_eq!(vectors[0], vectors[2]);
    assert_eq!(vectors[0], vectors[3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_over_the_window_is_refused_with_exact_numbers() {
    let engine =
        Engine::load(&ModelSettings { doc_window: 100, token_window: 50, ..settings(&sample_folder()) }).unwrap();
    let text = |words: usize| "é cat ".repeat(words / 2);
    assert!(engine.embed_documents(vec![text(98)]).await.is_ok());
    let error = engine.embed_documents(vec!["cat".into(), text(100)]).await.unwrap_err();
    assert!(
        matches!(error, ModelError::TextTooLong { index: 1, token_count: 102, limit: 100, chars_total: 300 }),
        "{error}"
    );
    let error = engine.token_vectors(vec![text(50)]).await.unwrap_err();
    assert!(
        matches!(error, ModelError::TextTooLong { index: 0, token_count: 52, limit: 50, chars_total: 150 }),
        "{error}"
    );
    let info = Engine::load(&settings(&sample_folder())).unwrap().info().clone();
    assert_eq!((info.doc_window, info.token_window), (sample::POSITIONS, 512));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_windows_hold_to_their_last_token_and_not_one_more() {
    let folder = tempfile::tempdir().unwrap();
    sample::write_long_model(folder.path(), 8192);
    let engine = Engine::load(&settings(&folder)).unwrap();
    assert_eq!((engine.info().doc_window, engine.info().token_window), (8192, 512));
    // Two of the tokens are special.
    let text = |tokens: usize| "cat ".repeat(tokens - 2);
    for (tokens, window) in [(8192, 8192), (512, 512)] {
        assert_eq!(engine.count_tokens(&text(tokens)).unwrap(), window);
    }
    assert_eq!(engine.embed_documents(vec![text(8192)]).await.unwrap().len(), 1);
    assert_eq!(engine.embed_query(text(8192)).await.unwrap().len(), VECTOR_WIDTH);
    let over = |token_count, limit, chars_total| {
        move |error: ModelError| match error {
            ModelError::TextTooLong { index: 0, token_count: count, limit: window, chars_total: chars } => {
                assert_eq!((count, window, chars), (token_count, limit, chars_total));
            }
            other => panic!("{other}"),
        }
    };
    engine.embed_documents(vec![text(8193)]).await.map(|_| ()).map_err(over(8193, 8192, 32_764)).unwrap_err();
    engine.embed_query(text(8193)).await.map(|_| ()).map_err(over(8193, 8192, 32_764)).unwrap_err();
    assert_eq!(engine.token_vectors(vec![text(512)]).await.unwrap()[0].len(), 510);
    engine.token_vectors(vec![text(513)]).await.map(|_| ()).map_err(over(513, 512, 2044)).unwrap_err();
    // These have one token, and none.
    assert_eq!(
        engine
            .token_vectors(vec!["cat".into(), "\u{0}".into()])
            .await
            .unwrap()
            .iter()
            .map(|t| t.len())
            .collect::<Vec<_>>(),
        [1, 0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_and_pooling_are_read_from_the_folder() {
    let folder = sample_folder();
    let bare = Engine::load(&settings(&folder)).unwrap();
    std::fs::write(
        folder.path().join("config_sentence_transformers.json"),
        r#"{"prompts": {"query": "dog ran ", "document": "mat "}}"#,
    )
    .unwrap();
    let prefixed = Engine::load(&settings(&folder)).unwrap();
    let want = bare.embed_documents(vec!["dog ran cat".into(), "mat cat".into()]).await.unwrap();
    assert_eq!(prefixed.embed_query("cat".into()).await.unwrap(), want[0].vector);
    assert_eq!(prefixed.embed_documents(vec!["cat".into()]).await.unwrap()[0], want[1]);
    assert_eq!(prefixed.count_tokens("cat").unwrap(), 4);
    let tokens = prefixed.token_vectors(vec!["cat".into()]).await.unwrap();
    assert_eq!((tokens[0].token_ids.as_slice(), tokens[0].offsets.first()), (&[CAT][..], Some(&(0..3))));

    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let modes = folder.path().join("1_Pooling/config.json");
    std::fs::write(
        &modes,
        r#"{"word_embedding_dimension": 48, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#,
    )
    .unwrap();
    let first = Engine::load(&settings(&folder)).unwrap();
    assert_eq!(first.info().pooling, Pooling::Cls);
    assert_ne!(first.embed_query("cat".into()).await.unwrap(), want[0].vector);
    let identities = [bare, prefixed, first].map(|engine| engine.info().identity.clone());
    assert!(identities[0] != identities[1] && identities[1] != identities[2], "{identities:?}");
    let modules = |last: &str| {
        let module = |name: &str| serde_json::json!({"idx": 0, "path": "", "type": format!("sentence_transformers.models.{name}")});
        let all = serde_json::json!([module("Transformer"), module("Pooling"), module(last)]);
        std::fs::write(folder.path().join("modules.json"), all.to_string()).unwrap();
        Engine::load(&settings(&folder)).map(|_| ())
    };
    let error = modules("Dense").unwrap_err().to_string();
    assert!(error.contains("the module Dense") && error.contains("modules.json"), "{error}");
    modules("Normalize").unwrap();
    std::fs::write(&modes, r#"{"pooling_mode_max_tokens": true}"#).unwrap();
    let error = Engine::load(&settings(&folder)).unwrap_err().to_string();
    assert!(error.contains("pooling_mode_max_tokens") && error.contains("1_Pooling"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_weighs_as_much_as_the_rows_of_its_tokens_sum_up_to() {
    let engine = Engine::load(&settings(&sample_folder())).unwrap();
    let texts = texts(20);
    let embeddings = engine.embed_documents(texts.clone()).await.unwrap();
    let tokens = engine.tokenize(texts, &engine.info().document_prefix, 512, false).await.unwrap();
    let rows = engine.run(&tokens, Lane::Document, Wanted::Rows, 8, &|_| ()).await.unwrap();
    for (Embedding { vector, weight }, rows) in embeddings.iter().zip(&rows) {
        let mut sum = vec![0f32; sample::HIDDEN];
        for row in rows.chunks_exact(sample::HIDDEN) {
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        let scaled: Vec<f32> = vector[..sample::HIDDEN].iter().map(|value| value * weight).collect();
        assert!(largest_difference(&scaled, &sum) < 1e-3 * weight, "{weight}");
    }
}
