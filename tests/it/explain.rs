//! How a search says that it came to its answer.
use crate::{
    cli::svc,
    principals::{grant, someone},
    support::{TestApp, searches::ask},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Json,
    wire::{
        DocumentPath, Fusion, GrantRight, LegPlan, LegWay, SearchExplanation, SearchMethod, SynthesizeSearch, TotalIs,
    },
};

async fn notes(app: &TestApp) -> Vec<i64> {
    let mut ids = Vec::new();
    for n in 0..6 {
        let text = format!("The heron of day {n} stands in the reeds.");
        ids.push(app.create(&format!("Note {n}"), &text, None).await.id);
    }
    ids
}

fn stages(explanation: &SearchExplanation) -> BTreeSet<&'static str> {
    explanation.stages.iter().map(|time| time.stage.as_str()).collect()
}

#[tokio::test]
async fn each_method_says_its_legs_and_their_ways() {
    let app = TestApp::start().await;
    let ids = notes(&app).await;
    sqlx::raw_sql("ANALYZE documents").execute(&app.pool).await.unwrap();
    let (vector, bm25, fulltext) = (SearchMethod::Vector, SearchMethod::Bm25, SearchMethod::Fulltext);
    for (method, weights, expected) in [
        ("vector", Value::Null, vec![(vector, None, LegWay::Exact)]),
        ("bm25", Value::Null, vec![(bm25, None, LegWay::Verified)]),
        ("fulltext", Value::Null, vec![(fulltext, None, LegWay::SomeWords)]),
        (
            "hybrid",
            json!({"vector": 0.25, "bm25": 0.75}),
            vec![(vector, Some(0.25), LegWay::Exact), (bm25, Some(0.75), LegWay::Verified)],
        ),
        ("auto", json!({}), vec![(vector, Some(1.0), LegWay::Exact), (bm25, Some(1.0), LegWay::Verified)]),
        ("maxsim", Value::Null, vec![(vector, Some(0.86), LegWay::Exact), (bm25, Some(0.14), LegWay::Verified)]),
    ] {
        let mut body = json!({"query": "the heron in the reeds"});
        if !weights.is_null() {
            body["weights"] = weights;
        }
        assert_eq!(ask(&app.client, method, &body).await.unwrap().explanation, None, "nobody asked: {method}");
        body["explain"] = json!(true);
        let found = ask(&app.client, method, &body).await.unwrap();
        let explanation = found.explanation.unwrap();
        let fusion = match method {
            "hybrid" | "auto" => Some(Fusion::Rank),
            _ => None,
        };
        assert_eq!(explanation.fusion, fusion, "{method}");
        let legs: Vec<_> =
            explanation.legs.iter().map(|leg| (leg.leg, leg.weight, leg.plan.as_ref().unwrap().way)).collect();
        assert_eq!(legs, expected, "{method}");
        for leg in &explanation.legs {
            let expected = (ids.len() as u64, leg.leg == vector);
            assert_eq!((leg.returned, leg.embed_ms.is_some()), expected, "{method} {leg:?}");
            assert!(leg.depth >= 10 && leg.ms >= 0.0, "{method} {leg:?}");
            let LegPlan { eligible, documents, candidates, verified, .. } = leg.plan.clone().unwrap();
            match leg.leg {
                SearchMethod::Vector => {
                    assert!(eligible.is_some() && eligible <= documents && candidates.is_none(), "{leg:?}");
                }
                SearchMethod::Bm25 => assert_eq!((eligible, verified), (None, Some(6)), "all may be found"),
                _ => assert_eq!((eligible, verified), (None, None)),
            }
        }
        assert!(explanation.rounds >= 1);
        let named = stages(&explanation);
        assert!(["prepare", "rank", "show"].iter().all(|stage| named.contains(stage)), "{named:?}");
        assert!(!named.contains("rerank") && !named.contains("facets"), "that did not happen: {named:?}");
        let sum: f64 = explanation.stages.iter().map(|time| time.ms).sum();
        assert!(sum <= found.latency_ms, "the stages are parts of the whole: {sum} {}", found.latency_ms);
    }
    let body = json!({"query": "the heron in the reeds", "explain": true, "limit": 3});
    let explanation = ask(&app.client, "fulltext", &body).await.unwrap().explanation.unwrap();
    assert_eq!(explanation.legs[0].plan.as_ref().unwrap().way, LegWay::AllWords, "so many are enough");
    let filter = json!({"created_at_from": "2000-01-01T00:00:00Z"});
    let body = json!({"query": "heron", "explain": true, "filter": filter, "facets": [{"by": "usetype"}],
                      "recency_half_life_days": 3.0, "group_by": "file"});
    let explanation = ask(&app.client, "bm25", &body).await.unwrap().explanation.unwrap();
    assert!(explanation.legs[0].plan.as_ref().unwrap().eligible.is_some(), "a filter has the planner asked");
    let named = stages(&explanation);
    assert!(["rank", "group", "facets", "reorder", "snippets"].iter().all(|stage| named.contains(stage)), "{named:?}");
    let shown = svc(&app, &["--table", "search", "heron in the reeds", "--explain"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("vector, weight 1: 6 of ") && shown.contains("1 round: prepare "), "{shown}");
    app.end().await;
}

/// A plan follows from what the reader may not read, and the time of the embedding from what others asked.
#[tokio::test]
async fn who_may_not_read_everything_is_told_of_no_plan() {
    let app = TestApp::start().await;
    let ids = notes(&app).await;
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, ids[0], GrantRight::Read).await;
    for id in &ids[1..] {
        app.client.protect_document(DocumentPath { id: *id }).await.unwrap();
    }
    for method in ["vector", "bm25", "fulltext", "hybrid", "maxsim", "auto"] {
        let body = json!({"query": "the heron in the reeds", "explain": true});
        let legs = ask(&reader.client, method, &body).await.unwrap().explanation.unwrap().legs;
        assert!(!legs.is_empty());
        for leg in legs {
            assert_eq!((leg.plan, leg.embed_ms, leg.returned), (None, None, 1), "{method}");
        }
    }
    let answer = SynthesizeSearch { explain: true, ..SynthesizeSearch::new("heron") };
    assert_eq!(app.client.synthesize(Json(answer)).await.unwrap_err().members["field"], "explain");
    app.end().await;
}

/// Else each document of the store would be looked at, to see that it lies in no such file.
#[tokio::test]
async fn a_format_of_few_files_is_looked_for_in_these_alone() {
    let app = TestApp::start().await;
    let file = app.upload_bytes("herons.md", "# Herons\n\nA heron stands here.\n").await.unwrap().document_id;
    app.settled(file).await;
    sqlx::raw_sql(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 'note', 'heron', 'note', 'sha256:' || n, 0 FROM generate_series(1, 4000) n RETURNING id)
         INSERT INTO document_words SELECT id, 'heron:1'::tsvector FROM made",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE documents").execute(&app.pool).await.unwrap();
    for (filter, is_found) in [
        (json!({"format": ["pdf", "no-format"]}), false),
        (json!({"format": ["text", "pdf"]}), true),
        (json!({"all": [{"any": [{"format": ["text"]}, {"format": ["pdf"]}]}]}), true),
    ] {
        let body = json!({"query": "heron", "explain": true, "filter": filter});
        let found = ask(&app.client, "bm25", &body).await.unwrap();
        let plan = found.explanation.unwrap().legs.remove(0).plan.unwrap();
        assert!(plan.eligible.is_some_and(|eligible| eligible < 10), "a hundredth part is a mere guess: {plan:?}");
        assert_eq!(found.total > 0, is_found, "{filter}");
    }
    app.end().await;
}

/// To compare thousands of vectors with every query takes longer than the index does.
#[tokio::test]
async fn a_search_of_everything_asks_the_index_from_a_few_thousand_documents_on() {
    let app = TestApp::start().await;
    let heron = app.create("Heron", "The heron stands in the reeds.", None).await.id;
    sqlx::query(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 'note', 'note', CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, 'sha256:' || n, 0
                         FROM generate_series(1, 3500) n RETURNING id)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT made.id, v.embed_model,
                (ARRAY(SELECT random() - 0.5 FROM generate_series(1, vector_dims(v.embed)) WHERE made.id > 0))::halfvec, 1
           FROM made, document_vectors v WHERE v.document_id = $1",
    )
    .bind(heron)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE documents").execute(&app.pool).await.unwrap();
    app.index_vectors().await;
    for (filter, limit, way, total_is) in [
        (json!({}), 10, LegWay::Hnsw, TotalIs::AtLeast),
        // So many entries of the index take as long.
        (json!({}), 100, LegWay::Exact, TotalIs::Exact),
        (json!({"usetype": ["odd", "markdown", "raw"]}), 10, LegWay::Exact, TotalIs::Exact),
    ] {
        let mut body = json!({"query": "heron in the reeds", "explain": true, "limit": limit});
        body.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        let found = ask(&app.client, "vector", &body).await.unwrap();
        let plan = found.explanation.unwrap().legs.remove(0).plan.unwrap();
        assert_eq!((plan.way, found.total_is), (way, total_is), "{body} {plan:?}");
        assert_eq!((plan.candidates.is_some(), found.results.len()), (way == LegWay::Hnsw, limit), "{body} {plan:?}");
        assert!(way == LegWay::Hnsw || found.results[0].document.id == heron, "nothing else is like that: {body}");
    }
    app.end().await;
}
