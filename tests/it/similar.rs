//! Documents that are like another one.
use crate::{
    cli::svc,
    principals::someone,
    rollup,
    support::{TestApp, Wish, document},
};
use svc_client::{
    Code, Json,
    wire::{DocumentPath, EmbedOptions, GroupBy, SearchMethod, SearchResponse, SimilarQuery, TotalIs, WaitQuery},
};

const TEXTS: [(&str, &str); 6] = [
    ("Tides", "The sea rises and falls twice a day, because the moon pulls at the water."),
    ("Moon", "The moon goes around the earth, and its pull lifts the water of the sea."),
    ("Waves", "Wind over the sea makes waves, which roll to the shore."),
    ("Bread", "Knead the dough, let it rise for an hour, and bake it in a hot oven."),
    ("Cakes", "Stir butter and sugar, add eggs and flour, and bake the cake in the oven."),
    ("Invoices", "The invoice is to be paid within thirty days, without a discount."),
];

fn titles(found: &SearchResponse) -> Vec<&str> {
    found.results.iter().map(|result| result.document.title.as_str()).collect()
}

#[tokio::test]
async fn what_is_like_a_document_is_found_by_its_vector() {
    let app = TestApp::start().await;
    let mut all = Vec::new();
    for (title, content) in TEXTS {
        all.push(app.create(title, content, None).await.id);
    }
    let like = async |id: i64, query: SimilarQuery| app.client.find_similar(DocumentPath { id }, query).await;
    let found = like(all[0], SimilarQuery::default()).await.unwrap();
    assert_eq!((found.method, found.total, found.total_is), (SearchMethod::Vector, 5, TotalIs::Exact));
    assert_eq!(titles(&found)[0], "Moon");
    assert!(!titles(&found).contains(&"Tides"), "a document is not like itself");
    assert!(found.results.windows(2).all(|two| two[0].score >= two[1].score));
    assert_eq!(titles(&like(all[3], SimilarQuery { limit: 1, ..SimilarQuery::default() }).await.unwrap()), ["Cakes"]);
    // The second page goes on, and a cursor is of one document alone.
    let first = like(all[0], SimilarQuery { limit: 2, ..SimilarQuery::default() }).await.unwrap();
    let next = SimilarQuery { cursor: first.next_cursor.clone(), ..SimilarQuery::default() };
    let second = like(all[0], next.clone()).await.unwrap();
    assert_eq!([titles(&first), titles(&second)].concat(), titles(&found));
    assert_eq!(like(all[1], next).await.unwrap_err().members["field"], "cursor");
    // What is far away is left out.
    let near = SimilarQuery { min_similarity: Some(found.results[0].score - 1e-6), ..SimilarQuery::default() };
    assert_eq!(titles(&like(all[0], near).await.unwrap()), ["Moon"]);
    let fifth = SimilarQuery { min_similarity: Some(found.results[3].score), ..SimilarQuery::default() };
    let cut = like(all[0], fifth).await.unwrap();
    assert_eq!((cut.results.len(), cut.total, cut.total_is, cut.next_cursor), (4, 4, TotalIs::Exact, None));
    // Each caller finds what it may read.
    app.client.protect_document(DocumentPath { id: all[1] }).await.unwrap();
    let p = someone(&app, "p").await;
    let theirs = p.client.find_similar(DocumentPath { id: all[0] }, SimilarQuery::default()).await.unwrap();
    assert_eq!((titles(&theirs)[0], theirs.total), ("Waves", 4));
    let refused = p.client.find_similar(DocumentPath { id: all[1] }, SimilarQuery::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    let shown = svc(&app, &["--table", "similar", &all[0].to_string(), "--limit", "1"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("Moon") && shown.contains("The moon goes around the earth"), "{shown}");
    app.end().await;
}

#[tokio::test]
async fn neither_what_is_in_a_document_nor_what_it_is_in_is_like_it() {
    let app = TestApp::start().await;
    let text = "# Sea\n\nThe sea rises and falls twice a day.\n\n# Oven\n\nBake the dough in a hot oven.\n";
    let file = app.upload_bytes("both.md", text).await.unwrap().document_id;
    let other = app.upload_bytes("other.md", "# Tides\n\nTwice a day the water of the sea rises.\n").await.unwrap();
    app.settled(file).await;
    app.settled(other.document_id).await;
    let ids = |found: &SearchResponse| found.results.iter().map(|result| result.document.id).collect::<Vec<_>>();
    let all = SimilarQuery { limit: 100, ..SimilarQuery::default() };
    let found = app.client.find_similar(DocumentPath { id: file }, all.clone()).await.unwrap();
    assert!(!found.results.is_empty());
    assert!(found.results.iter().all(|result| result.document.id != file && !result.document.path.contains(&file)));
    let chunks = SimilarQuery { usetype: Some("chunk".to_owned()), ..all.clone() };
    let chunks = app.client.find_similar(DocumentPath { id: other.document_id }, chunks).await.unwrap();
    let sea = chunks.results.iter().find(|result| result.document.content.contains("sea")).unwrap().document.clone();
    let found = app.client.find_similar(DocumentPath { id: sea.id }, all.clone()).await.unwrap();
    assert!(sea.path.len() > 1 && sea.path.iter().all(|above| !ids(&found).contains(above)));
    assert!(
        found.results[0].document.path.contains(&other.document_id)
            || found.results[0].document.id == other.document_id
    );
    // Files stand for their texts if they are asked to.
    let files = SimilarQuery { group_by: Some(GroupBy::File), ..all };
    let found = app.client.find_similar(DocumentPath { id: sea.id }, files).await.unwrap();
    assert_eq!(ids(&found)[0], other.document_id);
    assert!(found.results[0].hits.as_ref().is_some_and(|hits| !hits.is_empty()));
    app.end().await;
}

#[tokio::test]
async fn a_document_without_a_vector_is_like_no_other_and_that_is_said() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("Tides", TEXTS[0].1))).await.unwrap().id;
    let path = || DocumentPath { id };
    let refused = app.client.find_similar(path(), SimilarQuery::default()).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (409, Code::Conflict));
    assert!(refused.members["remedy"].as_str().unwrap().contains("settled"), "{refused:?}");
    app.client.embed_document(path(), EmbedOptions::default(), svc_client::OptionalJson(None)).await.unwrap();
    let found = app.client.find_similar(path(), SimilarQuery::default()).await.unwrap();
    assert_eq!((found.results.len(), found.total), (0, 0));
    app.end().await;
}

/// The nearest texts are all of one file, more of them than a first look returns.
#[tokio::test]
async fn a_bound_that_leaves_out_nothing_hides_no_group() {
    let app = TestApp::start().await;
    let lines: String = (0..150).map(|n| format!("The tide of day {n} lifts the water of the sea.\n")).collect();
    let file = rollup::upload(&app, lines, rollup::one_sentence_each()).await;
    app.settled(file).await;
    for (title, content) in &TEXTS[3..] {
        app.create(title, content, None).await;
    }
    let id = app.create("Tide", "The tide lifts the water of the sea.", None).await.id;
    for min_similarity in [None, Some(-1.0)] {
        let mut query =
            SimilarQuery { group_by: Some(GroupBy::File), limit: 2, min_similarity, ..SimilarQuery::default() };
        let mut paged = Vec::new();
        for page in 1..=2 {
            let found = app.client.find_similar(DocumentPath { id }, query.clone()).await.unwrap();
            paged.extend(titles(&found).into_iter().map(str::to_owned));
            assert_eq!(found.next_cursor.is_some(), page == 1, "{min_similarity:?}: {paged:?}");
            query.cursor = found.next_cursor;
        }
        paged.sort_unstable();
        assert_eq!(paged, ["Bread", "Cakes", "Invoices", "subjects.txt"], "{min_similarity:?}");
    }
    app.end().await;
}
