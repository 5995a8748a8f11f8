use super::*;
use crate::sample;
use proptest::prelude::*;

fn settings(folder: &tempfile::TempDir) -> RerankerSettings {
    RerankerSettings { model: folder.path().to_str().unwrap().to_owned(), threads: 2, ..RerankerSettings::default() }
}

fn cross_encoder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    sample::write_cross_encoder(folder.path());
    folder
}

fn documents(count: usize) -> Vec<String> {
    let words = ["the", "cats", "sat", "on", "mat", "dog", "ran", "far", "日本", "zebra!"];
    (0..count)
        .map(|at| (0..at * at % 83).map(|word| words[(word * 7 + at) % words.len()]).collect::<Vec<_>>().join(" "))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_come_in_the_order_of_the_documents_and_do_not_depend_on_company() {
    let reranker = Reranker::load(&settings(&cross_encoder()), None).unwrap();
    let documents = documents(70);
    let together = reranker.score("the cat ran", documents.clone()).await.unwrap();
    assert_eq!(together.len(), documents.len());
    for (document, score) in documents.iter().zip(&together) {
        let alone = reranker.score("the cat ran", vec![document.clone()]).await.unwrap();
        assert!((alone[0] - score).abs() < 1e-5, "{alone:?} and {score}");
    }
    let other = reranker.score("dog", documents).await.unwrap();
    assert!(
        together.iter().zip(&other).any(|(one, other)| (one - other).abs() > 1e-3),
        "the query makes no difference"
    );
    assert!(reranker.score("the cat ran", Vec::new()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_device_is_opened_again_and_scores_as_before() {
    let folder = cross_encoder();
    let reranker = Reranker::load(&settings(&folder), None).unwrap();
    let ask = || reranker.score("the cat ran", documents(3));
    let before = ask().await.unwrap();
    reranker.shared.device.give_up("no device");
    let refused = ask().await.unwrap_err();
    assert!(matches!(&refused, ModelError::DeviceLost { message, .. } if message == "no device"), "{refused}");
    let again = loop {
        match ask().await {
            Err(ModelError::DeviceLost { .. }) => tokio::task::yield_now().await,
            other => break other.unwrap(),
        }
    };
    assert_eq!(again, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn query_and_document_are_told_apart() {
    let reranker = Reranker::load(&settings(&cross_encoder()), None).unwrap();
    // The same tokens are in the same places; only their types differ.
    let one = reranker.score("cat [SEP] mat", vec!["dog".into()]).await.unwrap();
    let other = reranker.score("cat", vec!["mat [SEP] dog".into()]).await.unwrap();
    assert!((one[0] - other[0]).abs() > 1e-4, "{one:?} and {other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_is_too_long_loses_the_end_of_the_document() {
    let reranker = Reranker::load(&RerankerSettings { max_length: 20, ..settings(&cross_encoder()) }, None).unwrap();
    assert_eq!(reranker.info().max_length, 20);
    // Three special tokens and two of the query leave room for 15.
    let (kept, lost) = ("cat ".repeat(15), "dog ".repeat(100_000));
    let scores =
        reranker.score("the mat", vec![kept.clone(), kept.clone() + &lost, "dog ".to_owned() + &kept]).await.unwrap();
    assert!((scores[0] - scores[1]).abs() < 1e-6, "{scores:?}");
    assert!((scores[0] - scores[2]).abs() > 1e-4, "{scores:?}");
}

#[test]
fn what_is_no_cross_encoder_is_refused() {
    let folder = sample::sample_folder();
    let error = Reranker::load(&settings(&folder), None).unwrap_err().to_string();
    assert!(error.contains("without a classifier") && error.contains("BertForSequenceClassification"), "{error}");
    let folder = cross_encoder();
    let error = Reranker::load(&RerankerSettings { max_length: 4, ..settings(&folder) }, None).unwrap_err().to_string();
    assert!(error.contains("max_length is 4"), "{error}");
    let tokenizer = sample::TOKENIZER_JSON.replace(r#""id": "B", "type_id": 1"#, r#""id": "B", "type_id": 0"#);
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
    let error = Reranker::load(&settings(&folder), None).unwrap_err().to_string();
    assert!(error.contains("joins two texts"), "{error}");
    let config = folder.path().join("config.json");
    let mut of_one_type: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    of_one_type["type_vocab_size"] = 1.into();
    std::fs::write(&config, of_one_type.to_string()).unwrap();
    let error = Reranker::load(&settings(&folder), None).unwrap_err().to_string();
    assert!(error.contains("type_vocab_size is 1"), "{error}");
}

/// Takes tokens away one by one: from the longer text, or from the first if both are equally long. This is the
/// definition of "longest first".
fn token_by_token(mut first: usize, mut second: usize, room: usize) -> (usize, usize) {
    while first + second > room {
        if first > second { first -= 1 } else { second -= 1 }
    }
    (first, second)
}

proptest! {
    #[test]
    fn the_longer_text_is_cut_first(first in 0usize..200, second in 0usize..200, room in 0usize..150) {
        let (of_first, of_second) = longest_first(first, second, room);
        prop_assert!(of_first <= first && of_second <= second);
        prop_assert_eq!(of_first + of_second, room.min(first + second));
        let (want_first, want_second) = token_by_token(first, second, room);
        // They may differ by one if both are cut to the same length and one token is left over.
        prop_assert!(of_first.abs_diff(want_first) <= 1 && of_second.abs_diff(want_second) <= 1);
    }
}
