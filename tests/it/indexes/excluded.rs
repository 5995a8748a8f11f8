//! Usetypes that are kept out of the indexes.
use super::{built, find, index, numbers};
use crate::support::{TestApp, document, settings, until};
use serde_json::json;
use svc_client::{Json, wire::WaitQuery};

/// Creates a document of a usetype, by which it is also called.
async fn create(app: &TestApp, usetype: &str) -> i64 {
    let mut new = document(usetype, "A heron stands there.");
    new.usetype = Some(usetype.to_owned());
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.create_document(wait, Json(new)).await.unwrap().document.id
}

#[tokio::test]
async fn a_change_of_the_usetypes_that_are_kept_out_reaches_indexes_that_are_there_whatever_a_worker_was_told() {
    // The worker goes on with the settings that it began with, as one does that is started again after the service.
    let app = TestApp::start().await;
    create(&app, "log").await;
    let note = create(&app, "note").await;
    let other = index(&app, "other", json!({})).await.id;
    let first = numbers(&app, other).await[&note];
    let started = async |usetypes: &str| {
        let settings = settings(&[("SVC_BM25_EXCLUDE_USETYPES", usetypes)]);
        svc::app::weigh_indexes(&app.pool, &settings).await.unwrap();
        let mut found = Vec::new();
        for (id, name) in [(1, "default"), (other, "other")] {
            let held = built(&app, id).await.documents;
            let mut titles = find(&app, name, "heron").await;
            titles.sort();
            assert_eq!(usize::try_from(held).unwrap(), titles.len(), "{name}: {titles:?}");
            found.push(titles);
        }
        assert_eq!(found[0], found[1]);
        found.remove(0)
    };
    assert_eq!(started("note").await, ["log"]);
    assert_eq!(started("log,summary").await, ["note"]);
    create(&app, "log").await;
    assert_eq!(started("summary,log").await, ["note"], "what comes later is kept out too");
    let second = numbers(&app, other).await[&note];
    assert!(second > first, "it was taken out and came again");
    assert_eq!(started("[]").await, ["log", "log", "note"]);
    assert_eq!(numbers(&app, other).await[&note], second, "what stays is not written again");
    // Where nobody sets any, an index keeps what it has.
    svc::app::weigh_indexes(&app.pool, &settings(&[])).await.unwrap();
    assert_eq!(find(&app, "other", "heron").await.len(), 3);
    app.end().await;
}

#[tokio::test]
async fn where_no_usetypes_are_set_a_new_index_keeps_out_what_the_default_one_does() {
    let app = TestApp::start().await;
    create(&app, "log").await;
    create(&app, "note").await;
    svc::app::weigh_indexes(&app.pool, &settings(&[("SVC_BM25_EXCLUDE_USETYPES", "log,summary")])).await.unwrap();
    built(&app, 1).await;
    let new = index(&app, "new", json!({})).await.id;
    built(&app, new).await;
    assert_eq!(find(&app, "new", "heron").await, ["note"]);
    app.end().await;
}

#[tokio::test]
async fn a_process_beside_the_services_can_tell_which_indexes_keep_out_other_usetypes() {
    let app = TestApp::start().await;
    let excluding_others =
        async |set: &[(&str, &str)]| svc::app::excluding_others(&app.pool, &settings(set)).await.unwrap();
    assert_eq!(excluding_others(&[("SVC_BM25_EXCLUDE_USETYPES", "entity,summary,log")]).await, ["default"]);
    assert!(excluding_others(&[("SVC_BM25_EXCLUDE_USETYPES", "summary,entity")]).await.is_empty());
    assert!(excluding_others(&[]).await.is_empty());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_does_not_wait_for_those_who_create_nodes_until_usetypes_are_kept_out() {
    let app = TestApp::start().await;
    let mut creating = svc::store::transaction::begin_creating(&app.pool).await.unwrap();
    svc::app::weigh_indexes(&app.pool, &settings(&[("SVC_BM25_EXCLUDE_USETYPES", "log")])).await.unwrap();
    let excluded = "SELECT excluded FROM search_indexes WHERE id = 1";
    let before: Vec<String> = sqlx::query_scalar(excluded).fetch_one(&mut *creating).await.unwrap();
    assert_eq!(before, ["entity", "summary"]);
    creating.commit().await.unwrap();
    until("the usetypes to be kept out", async || {
        let now: Vec<String> = sqlx::query_scalar(excluded).fetch_one(&app.pool).await.unwrap();
        (now == ["log"]).then_some(())
    })
    .await;
    built(&app, 1).await;
    app.end().await;
}
