//! What the database keeps of messages, without a broker.
use crate::{
    feed::{answering, count},
    principals::{idle, someone},
    support::document,
};
use serde_json::json;
use std::time::Duration;
use svc::{
    access::Caller,
    store::{
        advisory::{self, AdvisoryLock},
        bulk::{self, Receipt},
        event_feed, events, transaction,
    },
};
use svc_client::{
    Code, Failure, Json,
    wire::{DocumentPath, EventKind, PrincipalChange, PrincipalKind, PrincipalPath, WaitQuery},
};
use svc_ids::{DocumentId, PrincipalId};

fn receipt(message_id: &str, principal_id: Option<i64>) -> Receipt {
    Receipt {
        principal_id: principal_id.map(PrincipalId),
        message_id: message_id.to_owned(),
        reply_to: None,
        correlation_id: Some("mark".to_owned()),
    }
}

#[tokio::test]
async fn a_message_has_one_outcome_and_what_is_told_is_told_once() {
    let app = idle().await;
    drop(svc::events::sequencer::start(app.pool.clone()));
    let uploader = answering(&app, "producer", "broker-user").await;
    let stored = app.upload_bytes("a.md", "# A\n\nText.").await.unwrap();
    let (id, hash) = (DocumentId(stored.document_id), stored.content_hash.as_str());
    let (one, nobodys) = (receipt("one", Some(uploader.id)), receipt("one", None));
    let mut conn = app.pool.acquire().await.unwrap();
    let refused = Failure::new(Code::InvalidField, "sha256: is wrong");
    bulk::reject(&mut conn, &one, Some("sha256:00"), &refused).await.unwrap();
    assert!(bulk::stored(&mut conn, &one).await.unwrap().is_none(), "it may be mended");
    assert!(bulk::record(&mut conn, &one, id, hash, true).await.unwrap());
    assert!(!bulk::record(&mut conn, &one, id, hash, true).await.unwrap(), "another delivery was first");
    bulk::reject(&mut conn, &one, Some("sha256:00"), &refused).await.unwrap();
    let known = bulk::stored(&mut conn, &one).await.unwrap().unwrap();
    assert_eq!((known.outcome.as_str(), known.document_id), ("accepted", Some(id)), "the first outcome stands");
    assert!(bulk::stored(&mut conn, &nobodys).await.unwrap().is_none(), "ids belong to an uploader");
    bulk::reject(&mut conn, &nobodys, None, &refused).await.unwrap();
    bulk::dead(&mut conn, None, None, &refused).await.unwrap();
    assert_eq!(bulk::ready_tasks(&mut conn, 10).await.unwrap(), 1);
    assert!(!bulk::sweep(&mut conn, Duration::from_secs(3600)).await.unwrap());
    assert_eq!(count(&app.pool, "bulk_message").await, 2);
    bulk::sweep(&mut conn, Duration::ZERO).await.unwrap();
    assert_eq!(count(&app.pool, "bulk_message").await, 1, "only what was rejected is forgotten");
    drop(conn);

    let mut teller = advisory::alone(&app.pool, AdvisoryLock::Outcomes).await.unwrap().unwrap();
    assert!(advisory::alone(&app.pool, AdvisoryLock::Outcomes).await.unwrap().is_none(), "one tells");
    let told = crate::support::until("all are numbered", async || {
        let told = bulk::untold(&mut teller, 100).await.unwrap();
        let dead = told.iter().filter(|event| event.kind.is_some()).count();
        (dead == 4).then_some(told)
    })
    .await;
    let dead = told.iter().find(|event| event.message_id.as_deref() == Some("one")).unwrap();
    assert_eq!((&dead.data["code"], dead.correlation_id.as_deref()), (&json!("invalid_field"), Some("mark")));
    event_feed::moved(&mut teller, bulk::READER, told.last().unwrap().seq).await.unwrap();
    event_feed::moved(&mut teller, bulk::READER, told.last().unwrap().seq).await.unwrap();
    assert!(bulk::untold(&mut teller, 100).await.unwrap().iter().all(|event| event.kind.is_none()));
    // A reader that is new begins with what happens next, and another one goes on where it was.
    let newest = event_feed::kept(&mut teller).await.unwrap().newest;
    assert_eq!(event_feed::position(&mut teller, "new").await.unwrap(), newest);
    event_feed::moved(&mut teller, "new", 1).await.unwrap();
    assert_eq!(event_feed::position(&mut teller, "new").await.unwrap(), 1);
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("DELETE FROM documents WHERE id = $1").bind(id).execute(&mut *tx).await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM bulk_message").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(left, 0, "it goes with its document");
    tx.rollback().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn what_a_message_brought_is_told_to_its_end_though_it_is_deleted_before() {
    let app = idle().await;
    let uploader = answering(&app, "producer", "broker-user").await;
    // Without a worker a file stays in flight, and a document that a caller writes has no ingestion that could be.
    let open = app.upload_bytes("a.md", "# A\n\nText.").await.unwrap().document_id;
    let new = Json(document("Done", "Text."));
    let done = app.client.create_document(WaitQuery::default(), new).await.unwrap().document.id;
    let mut conn = app.pool.acquire().await.unwrap();
    for (message, id) in [("open", open), ("done", done)] {
        let receipt = Receipt { reply_to: Some("answers".to_owned()), ..receipt(message, Some(uploader.id)) };
        assert!(bulk::record(&mut conn, &receipt, DocumentId(id), "sha256:00", true).await.unwrap());
        let event = "INSERT INTO event_outbox (kind, document_id, root_id, data, owner_only)
                     VALUES ($1, $2, $2, jsonb_build_object('message_id', $3::text), false)";
        let kinds = ["ingest.accepted", "ingest.settled"];
        for kind in &kinds[..1 + usize::from(message == "done")] {
            sqlx::query(event).bind(*kind).bind(id).bind(message).execute(&mut *conn).await.unwrap();
        }
    }
    // The broker was away meanwhile, so that nothing of it is told yet.
    for id in [open, done] {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    assert_eq!(count(&app.pool, "bulk_message").await, 0);
    while event_feed::number(&mut conn).await.unwrap() > 0 {}
    let told = bulk::untold(&mut conn, 100).await.unwrap();
    let told: Vec<(&str, &str, &str)> = told
        .iter()
        .filter_map(|event| {
            let kind = event.kind.as_ref()?.0.as_str();
            Some((kind, event.message_id.as_deref()?, event.reply_to.as_deref()?))
        })
        .collect();
    let expected = [
        ("ingest.accepted", "open", "answers"),
        ("ingest.accepted", "done", "answers"),
        ("ingest.settled", "done", "answers"),
        ("document.deleted", "open", "answers"),
    ];
    assert_eq!(told, expected);
    assert!(!bulk::sweep(&mut conn, Duration::from_secs(3600)).await.unwrap());
    assert_eq!(count(&app.pool, "bulk_gone").await, 2);
    bulk::sweep(&mut conn, Duration::ZERO).await.unwrap();
    assert_eq!(count(&app.pool, "bulk_gone").await, 0);
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn a_file_that_settled_and_is_deleted_while_an_edit_has_it_in_flight_has_one_end() {
    let app = idle().await;
    let uploader = answering(&app, "producer", "broker-user").await;
    let new = Json(document("Done", "Text."));
    let id = app.client.create_document(WaitQuery::default(), new).await.unwrap().document.id;
    let mut conn = app.pool.acquire().await.unwrap();
    let message = receipt("done", Some(uploader.id));
    assert!(bulk::record(&mut conn, &message, DocumentId(id), "sha256:00", true).await.unwrap());
    events::settled(&mut conn, &[DocumentId(id).as_root()]).await.unwrap();
    sqlx::query("UPDATE documents SET settled = 'in_flight' WHERE id = $1").bind(id).execute(&mut *conn).await.unwrap();
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    while event_feed::number(&mut conn).await.unwrap() > 0 {}
    let told = bulk::untold(&mut conn, 100).await.unwrap();
    let told: Vec<&str> = told.iter().filter_map(|event| Some(event.kind.as_ref()?.0.as_str())).collect();
    assert_eq!(told, ["ingest.settled"]);
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn a_message_that_comes_again_while_its_file_is_deleted_has_an_end() {
    let app = idle().await;
    let uploader = answering(&app, "producer", "broker-user").await;
    let id = app.upload_bytes("a.md", "# A\n\nText.").await.unwrap().document_id;
    let mut conn = app.pool.acquire().await.unwrap();
    let message = receipt("one", Some(uploader.id));
    assert!(bulk::record(&mut conn, &message, DocumentId(id), "sha256:00", true).await.unwrap());
    assert!(bulk::follow(&mut conn, &message, DocumentId(id)).await.unwrap().is_none(), "its end is told later");
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    let end = bulk::follow(&mut conn, &message, DocumentId(id)).await.unwrap().unwrap();
    assert_eq!(end.kind.0, EventKind::DocumentDeleted);
    drop(conn);
    app.end().await;
}

/// Many messages may bring the same bytes: the outcome of each is found without reading the others.
#[tokio::test]
async fn what_is_told_of_equal_files_is_read_once() {
    const EQUAL: i64 = 20_000;
    const PAGE: i64 = 500;
    let app = idle().await;
    let id = app.upload_bytes("a.md", "# A\n\nText.").await.unwrap().document_id;
    let mut conn = app.pool.acquire().await.unwrap();
    for statement in [
        "INSERT INTO bulk_message (message_id, sha256, document_id, outcome)
         SELECT 'm' || n, 'sha256:00', $1, CASE n WHEN 1 THEN 'accepted' ELSE 'duplicate' END FROM generate_series(1, $2) n",
        "INSERT INTO event_outbox (kind, document_id, root_id, data, owner_only)
         SELECT CASE n WHEN 1 THEN 'ingest.accepted' ELSE 'ingest.duplicate' END, $1, $1, jsonb_build_object('message_id', 'm' || n), false
           FROM generate_series(1, $2) n",
        "INSERT INTO event_outbox (kind, document_id, root_id, owner_only) SELECT 'ingest.settled', $1, $1, $2 < 0 FROM generate_series(1, 100)",
    ] {
        sqlx::query(statement).bind(id).bind(EQUAL).execute(&mut *conn).await.unwrap();
    }
    sqlx::query("ANALYZE bulk_message, event_outbox").execute(&mut *conn).await.unwrap();
    while event_feed::number(&mut conn).await.unwrap() > 0 {}
    let read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'bulk_message'";
    let (mut told, mut settled, mut after) = (0, 0, 0);
    loop {
        let mut tx = transaction::begin(&app.pool).await.unwrap();
        event_feed::moved(&mut tx, bulk::READER, after).await.unwrap();
        let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
        let page = bulk::untold(&mut tx, PAGE).await.unwrap();
        let rows: i64 = sqlx::query_scalar::<_, i64>(read).fetch_one(&mut *tx).await.unwrap() - before;
        tx.commit().await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(rows <= 2 * PAGE, "{} events of equal files read {rows} messages", page.len());
        after = last.seq;
        told += page.iter().filter(|event| event.message_id.is_some()).count() as i64;
        settled += page
            .iter()
            .filter(|event| event.kind.as_ref().is_some_and(|kind| kind.0 == EventKind::IngestSettled))
            .count();
    }
    // The document settles once for each time that it did, and only who stored it is told.
    assert_eq!((told, settled), (EQUAL + 100, 100));
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn only_an_enabled_service_answers_for_a_user_of_the_broker() {
    let app = idle().await;
    let (pool, uploader) = (&app.pool, answering(&app, "producer", "broker-user").await);
    let by_user = async || Caller::of_message(pool, Some("broker-user"), "fallback").await.unwrap();
    let caller = by_user().await.unwrap();
    assert_eq!(caller.principal_id(), Some(PrincipalId(uploader.id)));
    assert_eq!(caller.again(pool).await.unwrap().principal_id(), Some(PrincipalId(uploader.id)));
    assert!(
        Caller::of_message(pool, Some("fallback"), "fallback").await.unwrap().is_none(),
        "a known user answers for itself"
    );
    assert!(Caller::of_message(pool, None, "fallback").await.unwrap().is_none());
    assert!(Caller::of_message(pool, None, "").await.unwrap().is_none());
    let fallback = someone(&app, "fallback").await;
    let nameless = Caller::of_message(pool, None, "fallback").await.unwrap().unwrap();
    assert_eq!(nameless.principal_id(), Some(PrincipalId(fallback.id)));
    let taken = PrincipalChange { amqp_user: Some("broker-user".to_owned()), ..PrincipalChange::default() };
    let taken = app.client.update_principal(PrincipalPath { id: fallback.id }, Json(taken)).await.unwrap_err();
    assert!(taken.code == Code::Conflict && taken.detail.contains("broker-user"), "{taken}");

    let change = async |change: PrincipalChange| {
        app.client.update_principal(PrincipalPath { id: uploader.id }, Json(change)).await.unwrap()
    };
    change(PrincipalChange { disabled: Some(true), ..PrincipalChange::default() }).await;
    assert!(by_user().await.is_none() && caller.again(pool).await.is_err(), "a disabled one answers for nobody");
    change(PrincipalChange { disabled: Some(false), kind: Some(PrincipalKind::User), ..PrincipalChange::default() })
        .await;
    assert!(by_user().await.is_none(), "nor does a person");
    let kind = Some(PrincipalKind::Service);
    let none = change(PrincipalChange { kind, amqp_user: Some(String::new()), ..PrincipalChange::default() }).await;
    assert_eq!(none.amqp_user, None);
    assert!(by_user().await.is_none());
    app.end().await;
}

#[tokio::test]
async fn only_a_service_is_given_a_user_of_the_broker() {
    let app = idle().await;
    let importer = someone(&app, "importer").await;
    let path = PrincipalPath { id: importer.id };
    let change = async |kind: Option<PrincipalKind>, user: Option<&str>| {
        let change = PrincipalChange { kind, amqp_user: user.map(str::to_owned), ..PrincipalChange::default() };
        app.client.update_principal(path, Json(change)).await
    };
    let uploaders = async |default: &str| {
        let mut conn = app.pool.acquire().await.unwrap();
        let all = bulk::uploaders(&mut conn, default).await.unwrap();
        all.into_iter().map(|uploader| uploader.amqp_user).collect::<Vec<_>>()
    };
    let user = Some("broker-user");
    for kind in [None, Some(PrincipalKind::User)] {
        let refused = change(kind, user).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("amqp_user")));
        assert!(refused.members["remedy"].as_str().unwrap().contains("--kind service"), "{refused}");
        assert_eq!(app.client.read_principal(path).await.unwrap().amqp_user, None);
    }
    assert_eq!(change(Some(PrincipalKind::Service), user).await.unwrap().amqp_user.as_deref(), user);
    assert_eq!(uploaders("").await, [user.map(str::to_owned)]);
    change(Some(PrincipalKind::User), None).await.unwrap();
    assert!(uploaders("").await.is_empty(), "a person answers for nobody's messages");
    assert_eq!(uploaders("importer").await, [None::<String>], "but for those without a user, if the settings name it");
    app.end().await;
}
