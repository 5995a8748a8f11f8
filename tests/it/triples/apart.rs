//! Believed facts of one statement do not overlap, whoever writes them and however many there are.
use super::{day, doc, fact, predicate};
use crate::{principals::idle, support::TestApp};
use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;
use svc_client::{
    Json,
    wire::{DocumentPath, FactOutcome, FactQuery, NewFact, NewFacts, OnOverlap, ValidAt},
};

/// How many facts one statement has.
const MANY: i32 = 3_000;

/// Plants facts behind the service's back: copies of a fact at other times, recorded when the pen says or a moment before.
async fn plant(conn: &mut PgConnection, of: i64, times: &[(u32, u32)], is_late: bool) -> Result<(), String> {
    let planted = sqlx::query(
        "INSERT INTO triples (zone, subject_id, predicate_id, object_id, statement, valid_from, valid_until, created_at, recorded_at, fact_type)
         SELECT t.zone, t.subject_id, t.predicate_id, t.object_id, t.statement, n.valid_from, n.valid_until, p.at, p.at, 'dynamic'
           FROM triples t CROSS JOIN unnest($2::timestamptz[], $3::timestamptz[]) n(valid_from, valid_until)
          CROSS JOIN (SELECT take_pen() - CASE WHEN $4 THEN interval '1 second' ELSE interval '0' END AS at) p WHERE t.id = $1",
    )
    .bind(of)
    .bind(times.iter().map(|(from, _)| day(*from)).collect::<Vec<_>>())
    .bind(times.iter().map(|(_, until)| day(*until)).collect::<Vec<_>>())
    .bind(is_late)
    .execute(conn)
    .await;
    match planted {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = error.into_database_error().expect("a refusal");
            Err(format!("{} {}", error.code().unwrap_or_default(), error.message()))
        }
    }
}

fn during(fact: NewFact, from: DateTime<Utc>, until: DateTime<Utc>) -> NewFact {
    NewFact { valid_from: Some(from), valid_until: Some(until), ..fact }
}

#[tokio::test]
async fn the_database_refuses_what_overlaps_and_what_is_recorded_at_another_moment() {
    let app = idle().await;
    let [a, b] = [doc(&app, "a").await, doc(&app, "b").await];
    predicate(&app, "leads").await;
    let mut ids = Vec::new();
    for (from, until) in [(3, 5), (7, 20)] {
        let made = app.client.assert_fact(Json(during(fact(a, "leads", b), day(from), day(until)))).await.unwrap();
        ids.push(made.fact.id);
    }
    let mut conn = app.pool.acquire().await.unwrap();
    for (times, overlaps) in [
        (vec![(1, 2), (2, 3), (5, 7), (20, 30)], false),
        // What begins before and reaches in, what lies within, what covers, and what begins within and reaches out.
        (vec![(1, 4)], true),
        (vec![(9, 10)], true),
        (vec![(2, 6)], true),
        (vec![(4, 6)], true),
        (vec![(1, 31)], true),
        // Two new ones, of which other new ones lie between.
        (vec![(20, 29), (21, 22)], true),
        (vec![(20, 21), (22, 24), (23, 25)], true),
    ] {
        let planted = plant(&mut conn, ids[0], &times, false).await;
        match overlaps {
            false => {
                planted.unwrap();
                sqlx::query(
                    "UPDATE triples SET invalidated_at = take_pen(), invalidation = 'withdrawn' WHERE id <> ALL($1)",
                )
                .bind(&ids)
                .execute(&mut *conn)
                .await
                .unwrap();
            }
            true => {
                let refused = planted.expect_err(&format!("{times:?} overlap"));
                assert!(refused.starts_with("23P01") && refused.ends_with("overlap"), "{refused}");
            }
        }
    }
    let refused = plant(&mut conn, ids[0], &[(1, 2)], true).await.unwrap_err();
    assert!(refused.starts_with("23514") && refused.contains("moment of the pen"), "{refused}");
    // Nor does a fact come to overlap by another zone.
    sqlx::query("UPDATE triples SET zone = 99 WHERE id = $1").bind(ids[1]).execute(&mut *conn).await.unwrap();
    plant(&mut conn, ids[0], &[(8, 9)], false).await.unwrap();
    let moved = sqlx::query("UPDATE triples SET zone = 0 WHERE id = $1").bind(ids[1]).execute(&mut *conn).await;
    assert!(moved.unwrap_err().to_string().contains("overlap"));
    for mend in [
        "UPDATE triples SET invalidated_at = take_pen(), invalidation = 'withdrawn' WHERE zone = 0 AND id > $1 AND invalidated_at IS NULL",
        "UPDATE triples SET zone = 0 WHERE id = $1",
    ] {
        sqlx::query(mend).bind(ids[1]).execute(&mut *conn).await.unwrap();
    }
    drop(conn);
    app.end().await;
}

/// How many rows of facts the statements of this transaction have read.
async fn read(conn: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'triples'",
    )
    .fetch_one(conn)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_fact_is_compared_with_its_neighbours_and_not_with_all_of_its_statement() {
    let app = idle().await;
    let [a, b] = [doc(&app, "a").await, doc(&app, "b").await];
    predicate(&app, "leads").await;
    let first = app.client.assert_fact(Json(during(fact(a, "leads", b), day(1), day(2)))).await.unwrap().fact.id;
    let mut tx = svc::store::transaction::begin(&app.pool).await.unwrap();
    let insert = "INSERT INTO triples (zone, subject_id, predicate_id, object_id, statement, valid_from, valid_until, created_at, recorded_at, fact_type)
         SELECT t.zone, t.subject_id, t.predicate_id, t.object_id, t.statement, t.valid_until + n * interval '1 hour', t.valid_until + (n + 1) * interval '1 hour',
                take_pen(), take_pen(), 'dynamic' FROM triples t, generate_series($2, $3) n WHERE t.id = $1";
    for (from, until) in [(1, MANY), (MANY + 1, 2 * MANY)] {
        let before = read(&mut tx).await;
        sqlx::query(insert).bind(first).bind(from).bind(until).execute(&mut *tx).await.unwrap();
        let rows = read(&mut tx).await - before;
        assert!(rows < i64::from(MANY) * 30, "{rows} rows were read for {MANY} new ones");
    }
    let before = read(&mut tx).await;
    sqlx::query("UPDATE triples SET zone = 99").execute(&mut *tx).await.unwrap();
    let rows = read(&mut tx).await - before;
    assert!(rows < i64::from(MANY) * 60, "{rows} rows were read for {} that move", 2 * MANY);
    tx.rollback().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn what_is_asserted_is_not_compared_with_all_that_is_derived() {
    let app = idle().await;
    let [a, b] = [doc(&app, "a").await, doc(&app, "b").await];
    let id = predicate(&app, "in").await.id;
    let first = app.client.assert_fact(Json(fact(a, "in", b))).await.unwrap().fact.id;
    let mut tx = svc::store::transaction::begin(&app.pool).await.unwrap();
    let insert = "INSERT INTO triples (zone, subject_id, predicate_id, object_id, statement, created_at, recorded_at, fact_type, derived_by)
         SELECT 0, t.subject_id, t.predicate_id, t.object_id, gen_random_uuid(), take_pen(), take_pen(), 'dynamic', $2
           FROM triples t, generate_series(1, $3) WHERE t.id = $1";
    let rule = format!("rule:transitive:{id}");
    // The first statements of a session decide how later ones are carried out.
    for (derived_by, count) in [(None, 1), (Some(&rule), MANY), (None, MANY)] {
        let before = read(&mut tx).await;
        sqlx::query(insert).bind(first).bind(derived_by).bind(count).execute(&mut *tx).await.unwrap();
        let rows = read(&mut tx).await - before;
        assert!(rows < i64::from(count) * 30 + 30, "{rows} rows were read for {count} new ones");
    }
    tx.rollback().await.unwrap();
    app.end().await;
}

/// The times of the believed facts, in their order.
async fn times(app: &TestApp) -> Vec<(DateTime<Utc>, DateTime<Utc>)> {
    let mut query = FactQuery { valid_at: Some(ValidAt::Any), limit: Some(1000), ..FactQuery::default() };
    let mut all = Vec::new();
    loop {
        let page = app.client.list_facts(query.clone()).await.unwrap();
        all.extend(page.facts.iter().map(|fact| (fact.valid_from.unwrap(), fact.valid_until.unwrap())));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            all.sort_unstable();
            return all;
        }
    }
}

#[tokio::test]
async fn many_times_of_one_statement_are_asserted_united_and_moved_together() {
    let app = idle().await;
    let [a, b] = [doc(&app, "a").await, doc(&app, "b").await];
    let [open, closed] = [doc(&app, "open").await, doc(&app, "closed").await];
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    predicate(&app, "leads").await;
    let hour = |number: i64| day(1) + TimeDelta::hours(number);
    let state = async |source: i64, times: Vec<(i64, i64)>, on_overlap| {
        let facts = times.into_iter().map(|(from, until)| NewFact {
            source_id: Some(source),
            ..during(fact(a, "leads", b), hour(from), hour(until))
        });
        app.client.assert_facts(Json(NewFacts { facts: facts.collect(), on_overlap: Some(on_overlap) })).await
    };
    // Every tenth hour begins a fact of four hours; the other source says so two hours later.
    let every = |begin: i64, length: i64, step: i64| {
        (0..1_000).step_by(step as usize).map(|n| (n * 10 + begin, n * 10 + begin + length)).collect::<Vec<_>>()
    };
    let first = state(open, every(0, 4, 1), OnOverlap::Reject).await.unwrap();
    assert!(first.facts.iter().all(|fact| fact.outcome == FactOutcome::Created));
    let again = state(open, every(1, 2, 1), OnOverlap::Merge).await.unwrap();
    assert!(again.facts.iter().all(|fact| fact.outcome == FactOutcome::Existing));
    let refused = state(open, vec![(4, 10), (23, 24)], OnOverlap::Reject).await.unwrap_err();
    assert_eq!(refused.members["index"], 1, "{refused:?}");
    state(closed, every(2, 4, 2), OnOverlap::Reject).await.unwrap();
    assert_eq!(times(&app).await.len(), 1_500);
    // What the closed source says comes beside what the open one says: what both say is said once.
    app.client.unprotect_document(DocumentPath { id: closed }).await.unwrap();
    let together = times(&app).await;
    let right: Vec<_> = (0..1_000)
        .flat_map(|n| {
            let rest = (n % 2 == 0).then(|| (hour(n * 10 + 4), hour(n * 10 + 6)));
            [Some((hour(n * 10), hour(n * 10 + 4))), rest]
        })
        .flatten()
        .collect();
    assert_eq!(together, right);
    // One that covers ten of them takes them in.
    let covering = state(open, vec![(1, 94)], OnOverlap::Merge).await.unwrap();
    assert_eq!(covering.facts[0].outcome, FactOutcome::Merged);
    let united = times(&app).await;
    assert_eq!((united.len(), united[0]), (1_500 - 14, (hour(0), hour(94))));
    app.end().await;
}
