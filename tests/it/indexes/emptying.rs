//! Indexes from which everything is taken out, because they go or read their texts in another language.
use super::index;
use crate::support::{TestApp, Wish};
use serde_json::json;
use svc_client::{
    Code, Json,
    wire::{IndexAnalyzer, IndexChange, IndexLanguage, IndexPath, NewMembers},
};

/// Has the database do this, in PL/pgSQL, whenever an entry of an index is deleted.
async fn at_each_entry(app: &TestApp, index: i64, body: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "CREATE FUNCTION at_entry() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} RETURN NULL; END$$;
         CREATE TRIGGER at_entry AFTER DELETE ON search_index_entries FOR EACH ROW WHEN (OLD.index_id = {index}) EXECUTE FUNCTION at_entry()"
    )))
    .execute(&app.pool)
    .await
    .unwrap();
}

fn german() -> Json<IndexChange> {
    let analyzer = Some(IndexAnalyzer { language: IndexLanguage::German, stop_words: None });
    Json(IndexChange { analyzer, ..IndexChange::default() })
}

#[tokio::test]
async fn a_statement_that_empties_an_index_has_the_longer_of_two_limits() {
    for (request, limit) in [("700", "700s"), ("200", "5min")] {
        let settings = &[("SVC_STATEMENT_TIMEOUT_SECONDS", "300"), ("SVC_REQUEST_TIMEOUT_SECONDS", request)];
        let app = TestApp::with(Wish { settings, ..Wish::default() }).await;
        app.create("heron", "A heron stands there.", None).await;
        let path = IndexPath { id: index(&app, "herons", json!({})).await.id };
        let has_limit =
            format!("ASSERT current_setting('statement_timeout') = '{limit}', current_setting('statement_timeout');");
        at_each_entry(&app, path.id, &has_limit).await;
        assert_eq!(app.client.update_index(path, german()).await.unwrap().documents, 1);
        app.client.delete_index(path).await.unwrap();
        assert_eq!(app.client.read_index(path).await.unwrap_err().code, Code::NotFound);
        app.end().await;
    }
}

#[tokio::test]
async fn an_index_that_takes_too_long_to_be_emptied_stays_and_its_refusal_says_what_to_do() {
    let app = TestApp::start().await;
    app.create("heron", "A heron stands there.", None).await;
    let path = IndexPath { id: index(&app, "herons", json!({})).await.id };
    at_each_entry(&app, path.id, "RAISE EXCEPTION USING ERRCODE = 'query_canceled';").await;
    for refused in
        [app.client.delete_index(path).await.unwrap_err(), app.client.update_index(path, german()).await.unwrap_err()]
    {
        assert_eq!(refused.code, Code::TimedOut, "{refused}");
        assert_eq!(refused.members["setting"], "SVC_REQUEST_TIMEOUT_SECONDS", "{refused:?}");
    }
    let kept = app.client.read_index(path).await.unwrap();
    assert_eq!((kept.documents, kept.analyzer.language), (1, IndexLanguage::English));
    app.end().await;
}

#[tokio::test]
async fn a_statement_that_adds_members_has_the_usual_limit_because_everybody_waits_for_it() {
    let settings = &[("SVC_STATEMENT_TIMEOUT_SECONDS", "300"), ("SVC_REQUEST_TIMEOUT_SECONDS", "700")];
    let app = TestApp::with(Wish { settings, ..Wish::default() }).await;
    let (one, other) =
        (app.create("heron", "A heron.", None).await.id, app.create("other", "A heron too.", None).await.id);
    let id = index(&app, "herons", json!({"members": [one]})).await.id;
    sqlx::raw_sql(
        "CREATE FUNCTION at_build() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
             ASSERT current_setting('statement_timeout') = '5min', current_setting('statement_timeout'); RETURN NULL; END$$;
         CREATE TRIGGER at_build AFTER UPDATE ON search_indexes FOR EACH ROW WHEN (NEW.builds > OLD.builds) EXECUTE FUNCTION at_build()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let members = Json(NewMembers { members: vec![other] });
    assert_eq!(app.client.add_index_members(IndexPath { id }, members).await.unwrap().members, 2);
    app.end().await;
}
