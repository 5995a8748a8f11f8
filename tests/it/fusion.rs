//! What two legs of a search find, put together by their ranks or by their scores.
use crate::{
    cli::svc,
    support::{TestApp, Wish, document, searches::ask},
};
use serde_json::{Value, json};
use svc_client::{
    Code, Json,
    wire::{
        ContextConfig, Fusion, HybridWeights, MethodSearch, NewContext, SearchBatch, SearchMethod, SearchQuery,
        SearchResponse, SearchResult, WaitQuery,
    },
};

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

/// How the scores of one leg are brought between 0 and 1, where it lists all that it has.
fn scaled(results: &[SearchResult], score: impl Fn(&SearchResult) -> Option<f64>) -> impl Fn(f64) -> f64 {
    let scores: Vec<f64> = results.iter().filter_map(score).collect();
    let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = scores.iter().copied().fold(0.0, f64::min);
    move |score| if high > low { (score - low) / (high - low) } else { 1.0 }
}

/// Many texts are nearer to the query, and have nearly all of its words.
#[tokio::test]
async fn the_one_text_with_all_words_of_the_query_is_first_though_its_vector_is_far() {
    let app = TestApp::start().await;
    app.create("Pump", "The pump service plan.", None).await;
    for n in 1..24 {
        let text = format!("Service of the pump by plan {n}: who looks after the pump, and when its service is due.");
        app.create(&format!("Pump {n}"), &text, None).await;
    }
    let text = "Grind the almonds with sugar, roll the marzipan in foil and let it rest overnight. The baker has a plan for each \
                day, a pump for the glaze, and good service at the counter. The dough rises in a warm place, and the loaf \
                bakes until it is golden brown.";
    let wanted = app.create("Sweet bread", text, None).await.id;
    let query = "pump service plan marzipan";
    // Terms of other texts would change the order a second time.
    let mut body = json!({"query": query, "group_by": "none", "limit": 100, "weights": {}, "fusion": "score", "explain": true, "expand": false});
    let found = ask(&app.client, "auto", &body).await.unwrap();
    assert_eq!((found.method, ids(&found)[0]), (SearchMethod::Hybrid, wanted));
    assert_eq!(found.explanation.as_ref().unwrap().fusion, Some(Fusion::Score));
    let legs = found.results[0].legs.unwrap();
    assert!(legs.vector.unwrap().rank > 12 && legs.bm25.unwrap().rank == 1, "{legs:?}");
    // Ranks say nothing of how far the first one is before the second.
    body.as_object_mut().unwrap().remove("fusion");
    let by_rank = ask(&app.client, "auto", &body).await.unwrap();
    assert_ne!(ids(&by_rank)[0], wanted);
    assert_eq!(by_rank.explanation.as_ref().unwrap().fusion, Some(Fusion::Rank));
    let plain = ask(&app.client, "hybrid", &json!({"query": query, "limit": 100, "weights": {}})).await.unwrap();
    assert_eq!(ids(&plain), ids(&by_rank), "all count ranks unless told otherwise");
    body["fusion"] = json!("score");
    let by_score = ask(&app.client, "hybrid", &body).await.unwrap();
    assert_eq!(ids(&by_score), ids(&found));

    // Whoever searches by a context, from an address line or at a terminal may say so too.
    let config = ContextConfig { fusion: Some(Fusion::Score), expand: Some(false), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "scores".to_owned(), config })).await.unwrap();
    let named = json!({"query": query, "group_by": "none", "limit": 100, "context": "scores"});
    assert_eq!(ids(&ask(&app.client, "auto", &named).await.unwrap()), ids(&found));
    for (fusion, first) in
        [(None, ids(&by_rank)[0]), (Some(Fusion::Score), wanted), (Some(Fusion::Rank), ids(&by_rank)[0])]
    {
        let asked = SearchQuery { fusion, expand: Some(false), ..SearchQuery::new(query) };
        let found = app.client.search(asked).await.unwrap();
        assert_eq!(ids(&found)[0], first, "{fusion:?}");
    }
    let first = async |arguments: &[&str]| {
        let asked = ["search", query, "--fields", "id", "--limit", "1", "--expand=false"];
        let shown = svc(&app, &[&asked[..], arguments].concat()).await;
        let line: Value = serde_json::from_slice(&shown.stdout).unwrap();
        line["id"].as_i64().unwrap()
    };
    assert_eq!(first(&["--fusion", "score"]).await, wanted);
    assert_eq!(first(&[]).await, ids(&by_rank)[0]);
    let refused = svc(&app, &["search", query, "--method", "bm25", "--fusion", "rank"]).await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--fusion"), "{refused:?}");
    let told = svc(&app, &["--table", "search", query, "--fusion", "score", "--explain"]).await;
    assert!(String::from_utf8_lossy(&told.stdout).contains("together by score"), "{told:?}");
    for (method, is_known) in [
        (None, true),
        (Some(SearchMethod::Hybrid), true),
        (Some(SearchMethod::Bm25), false),
        (Some(SearchMethod::Vector), false),
    ] {
        let (fusion, weights) = (Some(Fusion::Score), is_known.then(HybridWeights::default));
        let search = MethodSearch { method, fusion, weights, expand: Some(false), ..MethodSearch::new(query) };
        match app.client.search_batch(Json(SearchBatch { searches: vec![search] })).await {
            Ok(batch) => {
                let found = batch.answers[0].found.as_ref().unwrap();
                assert!(is_known && ids(found)[0] == wanted, "{method:?}: {found:?}");
            }
            Err(refused) => {
                assert!(!is_known, "{method:?}: {refused}");
                let expected = (Code::InvalidField, &json!("searches[0].fusion"));
                assert_eq!((refused.code, &refused.members["field"]), expected);
            }
        }
    }
    app.end().await;
}

/// To have no vector, or to be in no index, is not to be worse than what has both.
#[tokio::test]
async fn what_a_leg_cannot_hold_has_what_the_other_gives_it() {
    let app = TestApp::with(Wish { settings: &[("SVC_BM25_EXCLUDE_USETYPES", "memo")], ..Wish::default() }).await;
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    for (title, text) in [
        ("Tides", "The moon pulls the oceans, and twice a day the water rises along the coast."),
        ("Bread", "Yeast eats the sugar in the dough, so the loaf rises in the oven."),
        ("Volcanoes", "Molten rock called magma rises through cracks in the crust and becomes lava."),
    ] {
        app.create(title, text, None).await;
    }
    let away = app.create("Ebb", "The water rises and falls with the moon.", None).await.id;
    let mut memo = document("Memo", "Why the water of the sea goes up and down along the coast every day.");
    memo.usetype = Some("memo".into());
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let memo = app.client.create_document(wait, Json(memo)).await.unwrap().document.id;
    sqlx::query("UPDATE document_vectors SET embed_model = 'another' WHERE document_id = $1")
        .bind(away)
        .execute(&app.pool)
        .await
        .unwrap();
    let body =
        json!({"query": "the water rises with the moon", "fusion": "score", "weights": {"vector": 3, "bm25": 1}});
    let found = ask(&app.client, "hybrid", &body).await.unwrap().results;
    assert_eq!(found.len(), 5);
    let near = scaled(&found, |result| Some(result.legs?.vector?.score));
    let worded = scaled(&found, |result| Some(result.legs?.bm25?.score));
    for result in &found {
        let legs = result.legs.unwrap();
        let (meaning, letters) = (legs.vector.map(|leg| near(leg.score)), legs.bm25.map(|leg| worded(leg.score)));
        let expected = match result.document.id {
            id if id == memo => {
                assert_eq!(letters, None);
                meaning.unwrap()
            }
            id if id == away => {
                assert_eq!(meaning, None);
                letters.unwrap()
            }
            _ => (3.0 * meaning.unwrap() + letters.unwrap_or_default()) / 4.0,
        };
        assert!((result.score - expected).abs() < 1e-9, "{expected} {result:?}");
        assert!((0.0..=1.0).contains(&result.score), "{result:?}");
    }
    assert_eq!(found[0].document.id, away, "it has all of the words, and nothing is better by both");
    app.end().await;
}

#[tokio::test]
async fn what_one_leg_alone_finds_is_found_to_the_last_text() {
    let app = TestApp::start().await;
    let mut all = Vec::new();
    for (title, text) in [
        ("Tides", "The moon pulls the oceans."),
        ("Bread", "Yeast eats the sugar in the dough."),
        ("Glaciers", "A glacier is a river of ice."),
    ] {
        all.push(app.create(title, text, None).await.id);
    }
    // No text has any of these words.
    let by_meaning =
        ask(&app.client, "auto", &json!({"query": "why seawater recedes", "fusion": "score"})).await.unwrap();
    assert_eq!((by_meaning.method, by_meaning.results.len()), (SearchMethod::Hybrid, all.len()));
    assert!((by_meaning.results[0].score - 0.5).abs() < 1e-12, "half of the weights found nothing");
    assert!(by_meaning.results.iter().all(|result| result.legs.unwrap().bm25.is_none() && result.score >= 0.0));
    // Nor is a vector left that the query could be compared with.
    sqlx::raw_sql("UPDATE document_vectors SET embed_model = 'another'").execute(&app.pool).await.unwrap();
    let by_letters =
        ask(&app.client, "auto", &json!({"query": "sugar in the dough", "fusion": "score"})).await.unwrap();
    assert_eq!((by_letters.method, ids(&by_letters)[0]), (SearchMethod::Hybrid, all[1]));
    assert!((by_letters.results[0].score - 0.5).abs() < 1e-12);
    // What counts for nothing finds nothing, and the other leg has the whole weight.
    let body = json!({"query": "sugar in the dough", "fusion": "score", "weights": {"vector": 0, "bm25": 2}});
    let words_alone = ask(&app.client, "hybrid", &body).await.unwrap();
    assert_eq!((ids(&words_alone)[0], words_alone.results[0].score), (all[1], 1.0));
    app.end().await;
}
