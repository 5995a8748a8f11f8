//! Terms that are added to a query.
use super::{find, plain_index, put};
use svc::search::bm25::{self, Allowed, Query};
use svc_ranking::{Cache, Weighted};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn added_terms_count_their_share_of_what_the_words_count() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "added").await;
    let texts = [(1, "alpha beta gamma"), (2, "alpha alpha"), (3, "beta beta delta"), (4, "gamma")];
    put(&pool, &cache, index, &texts.map(|(id, text)| (id, text.to_owned()))).await;
    let with = async |text: &str, added: &[(&str, f64)]| {
        let added: Vec<Weighted> = added.iter().map(|(term, share)| ((*term).into(), *share)).collect();
        let query = Query { text, added: &added };
        bm25::search(&pool, &cache, "added", query, 9, Allowed::All).await.expect("searched").expect("there")
    };
    let plain = async |text: &str| find(&pool, &cache, index, text, 9, Allowed::All).await;
    let nothing: &[(&str, f64)] = &[];
    for (text, added, same) in [
        ("alpha", nothing, "alpha"),
        ("alpha", &[("beta", 1.0)][..], "alpha beta"),
        ("alpha beta", &[("alpha", 0.5), ("gamma", 0.5)][..], "alpha alpha beta gamma"),
        ("beta", &[("delta", 2.0), ("nowhere", 1.0)][..], "beta delta delta"),
    ] {
        let found = with(text, added).await;
        assert!(!found.is_empty());
        assert_eq!(found, plain(same).await, "{text} {added:?}");
    }
    let (whole, quarter) = (plain("delta").await, with("alpha", &[("delta", 0.25)]).await);
    let least = quarter.last().expect("found by what was added");
    assert_eq!(least.document_id, whole[0].document_id);
    assert!((least.score - whole[0].score / 4.0).abs() < 1e-9, "{quarter:?}");
    assert!(with("!!!", &[("beta", 1.0)]).await.is_empty(), "where no word counts anything, nothing has a share of it");
}
