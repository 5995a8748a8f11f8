//! How much an export takes at a time, and how many there are.
use super::{canonical, import};
use crate::{principals::idle, support::until};
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use svc_client::{
    Json,
    wire::{GraphQuery, ImportQuery, NewBatch, NewPredicate, TurtleQuery},
};

#[tokio::test]
async fn an_export_of_long_literals_comes_in_pieces_of_bounded_size() {
    let app = idle().await;
    let long = "x".repeat(60_000);
    let text: String = (0..200).map(|n| format!("<http://e/{}> <http://e/p> \"{n} {long}\" .\n", n % 3)).collect();
    assert_eq!(import(&app.client, ImportQuery::default(), &text).await.unwrap().created, 200);
    let pieces: Vec<bytes::Bytes> =
        app.in_process.export_turtle(TurtleQuery::default()).await.unwrap().try_collect().await.unwrap();
    let largest = pieces.iter().map(bytes::Bytes::len).max().unwrap();
    assert!(pieces.len() >= 3 && largest < 5 << 20, "{} pieces, the largest of {largest} bytes", pieces.len());
    assert_eq!(canonical(&String::from_utf8(pieces.concat()).unwrap()), canonical(&text));
    app.end().await;
}

#[tokio::test]
async fn few_facts_among_many_are_found_though_no_piece_reads_all() {
    let app = idle().await;
    let documents = json!([{"title": "top", "content": "", "key": "top"}, {"title": "first", "content": "", "parent_key": "top"},
        {"title": "crowd", "content": ""}, {"title": "last", "content": "", "parent_key": "top"}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap().documents;
    let new = NewPredicate { name: "says".to_owned(), ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    for (at, says) in [(1, "it begins"), (2, "one of many"), (3, "it ends")] {
        let fact = json!({"subject_id": made[at].document_id, "predicate": "says", "object_literal": says});
        app.client.assert_fact(Json(serde_json::from_value(fact).unwrap())).await.unwrap();
    }
    sqlx::query(
        "WITH pen AS MATERIALIZED (SELECT take_pen() AS at)
         INSERT INTO triples (zone, subject_id, predicate_id, object_literal, object_datatype, statement, created_at, recorded_at, fact_type)
         SELECT t.zone, t.subject_id, t.predicate_id, n::text, t.object_datatype, gen_random_uuid(), pen.at, pen.at, 'dynamic'
           FROM pen CROSS JOIN triples t CROSS JOIN generate_series(1, 50000) n WHERE t.object_literal = 'one of many'",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    // The last fact of the crowd is stated under the top.
    let (subject, source) = (made[2].document_id, made[1].document_id);
    let cited =
        json!({"subject_id": subject, "predicate": "says", "object_literal": "it is cited", "source_id": source});
    app.client.assert_fact(Json(serde_json::from_value(cited).unwrap())).await.unwrap();
    let query = TurtleQuery { parent_id: Some(made[0].document_id), ..TurtleQuery::default() };
    let pieces: Vec<bytes::Bytes> = app.in_process.export_turtle(query).await.unwrap().try_collect().await.unwrap();
    let pieces: Vec<String> = pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect();
    let has = |text: &str| (pieces[0].contains(text), pieces.concat().contains(text));
    assert_eq!(has("it begins"), (true, true), "{pieces:?}");
    assert_eq!((has("it is cited"), has("it ends")), ((false, true), (false, true)), "{pieces:?}");
    assert_eq!(canonical(&pieces.concat()).len(), 3, "{pieces:?}");
    app.end().await;
}

#[tokio::test]
async fn an_export_that_cannot_go_on_breaks_off_and_does_not_end_well() {
    let app = idle().await;
    import(&app.client, ImportQuery::default(), "<http://e/a> <http://e/p> 'one' .").await.unwrap();
    // More than what service, network and reader hold back, so that the export waits for its reader.
    sqlx::query(
        "INSERT INTO triples (zone, subject_id, predicate_id, object_literal, object_datatype, statement, created_at, recorded_at, fact_type)
         SELECT t.zone, t.subject_id, t.predicate_id, n::text || repeat('x', 60000), t.object_datatype, gen_random_uuid(), take_pen(), take_pen(), 'dynamic'
           FROM triples t, generate_series(1, 2000) n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let mut answer = app.raw("GET", "/rdf/turtle").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let first = answer.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b"# valid_at"));
    sqlx::raw_sql("ALTER TABLE triples RENAME TO triples_elsewhere").execute(&app.pool).await.unwrap();
    let end = loop {
        match answer.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    sqlx::raw_sql("ALTER TABLE triples_elsewhere RENAME TO triples").execute(&app.pool).await.unwrap();
    assert!(end.is_err(), "what was cut off looks whole");
    // The place of the one that broke off is free.
    let count = app.client.read_graph_stats(GraphQuery::default()).await.unwrap().facts;
    assert_eq!(count, 2001);
    let places = until("two places", async || {
        let first = app.in_process.export_turtle(TurtleQuery::default()).await.ok()?;
        let second = app.in_process.export_turtle(TurtleQuery::default()).await.ok()?;
        Some((first, second))
    });
    drop(places.await);
    app.end().await;
}

#[tokio::test]
async fn two_exports_run_at_once_and_the_third_is_told_to_come_again() {
    let app = idle().await;
    import(&app.client, ImportQuery::default(), "<http://e/a> <http://e/p> 1 .").await.unwrap();
    // An export in process goes on as far as it is read.
    let begin =
        async || until("a place", async || app.in_process.export_turtle(TurtleQuery::default()).await.ok()).await;
    let mut held = vec![begin().await, begin().await];
    let ask = async || app.raw("GET", "/rdf/turtle").send().await.unwrap();
    let refused = ask().await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "5"));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["code"], "too_many_requests", "{problem}");
    // One that was read to its end makes room, and so does one that nobody reads any more.
    let pieces: Vec<bytes::Bytes> = held.remove(0).try_collect().await.unwrap();
    assert!(!pieces.is_empty());
    until("the place of one that was read", async || ask().await.status().is_success().then_some(())).await;
    drop(held);
    let all = [begin().await, begin().await];
    assert_eq!(ask().await.status(), 429);
    drop(all);
    app.end().await;
}

#[tokio::test]
async fn a_time_that_the_store_cannot_hold_is_refused_before_an_export_begins() {
    let app = idle().await;
    import(&app.client, ImportQuery::default(), "<http://e/a> <http://e/p> 1 .").await.unwrap();
    for time in ["-010000-01-01T00:00:00Z", "%2B262000-01-01T00:00:00Z"] {
        for (path, field) in [
            ("/rdf/turtle?", "known_at"),
            ("/rdf/turtle?", "valid_at"),
            ("/rdf/turtle?history=true&", "known_at"),
            ("/rdf/turtle?history=true&", "valid_at"),
            ("/triples?", "known_at"),
            ("/triples?", "valid_at"),
            ("/graph/diff?", "known_from"),
        ] {
            let answer = app.raw("GET", &format!("{path}{field}={time}")).send().await.unwrap();
            assert_eq!(answer.status(), 422, "{path}{field}={time}");
            let problem: Value = answer.json().await.unwrap();
            assert_eq!(problem["field"], field, "{path}{field}={time}: {problem}");
        }
    }
    // The edges of what it can hold are read.
    for time in ["-4711-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
        let answer = app.raw("GET", &format!("/rdf/turtle?valid_at={time}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{time}");
        assert!(answer.text().await.unwrap().starts_with("# valid_at"), "{time}");
    }
    let text = "@prefix e: <http://e/> . @prefix svc: <urn:svc:history#> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
        [] a rdf:Statement ; svc:validFrom '+10000-01-01T00:00:00Z' ; rdf:subject e:a ; rdf:predicate e:p ; rdf:object 2 .";
    let refused = import(&app.client, ImportQuery::default(), text).await.unwrap_err();
    assert!(refused.status == 422 && refused.detail.contains("-4711 to 9999"), "{}", refused.detail);
    app.end().await;
}
