//! The tokens of principals: issued, refused, rotated, revoked and kept out of the log.
use crate::{
    crash::{Process, serve_command},
    principals::{Someone, answer, idle, new_token, someone},
    support::{PATIENCE, TOKEN, http, sample, until},
};
use futures_util::StreamExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};
use svc_client::{
    Client, Code, Json, OptionalJson, Remote,
    wire::{
        ApiTokenPath, ApiTokenResponse, ApiTokenRotation, AuditAct, AuditQuery, Bm25Search, DocumentPath,
        IssuedApiToken, NewApiToken, NewPrincipal, PageQuery, PrincipalChange, PrincipalKind, PrincipalPath,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_opens_until_it_ends_and_every_bad_one_is_refused_alike() {
    let app = idle().await;
    let [expired, revoked, deleted, disabled] = [
        someone(&app, "expired").await,
        someone(&app, "revoked").await,
        someone(&app, "deleted").await,
        someone(&app, "disabled").await,
    ];
    let roots = |secret: &str| http().get(format!("{}/documents/roots", app.base)).bearer_auth(secret);
    for one in [&expired, &revoked, &deleted, &disabled] {
        assert_eq!(answer(roots(&one.secret)).await.0, 200);
    }
    sqlx::query("UPDATE api_tokens SET expires_at = now() WHERE id = $1")
        .bind(expired.token_id)
        .execute(&app.pool)
        .await
        .unwrap();
    app.client.revoke_api_token(ApiTokenPath { id: revoked.token_id }).await.unwrap();
    app.client.delete_principal(PrincipalPath { id: deleted.id }).await.unwrap();
    let disable = |disabled| PrincipalChange { disabled: Some(disabled), ..PrincipalChange::default() };
    let path = PrincipalPath { id: disabled.id };
    assert!(app.client.update_principal(path, Json(disable(true))).await.unwrap().disabled);

    let refused = answer(http().get(format!("{}/documents/roots", app.base))).await;
    assert_eq!((refused.0, refused.2.contains("\"unauthenticated\"")), (401, true), "{}", refused.2);
    let unknown = format!("svc_{}", "0".repeat(64));
    for secret in [&expired.secret, &revoked.secret, &deleted.secret, &disabled.secret, &unknown, "no token", ""] {
        assert_eq!(answer(roots(secret)).await, refused, "a bad token tells what it was");
    }
    // Disabling only suspends a principal's tokens: once it is enabled again, they open.
    app.client.update_principal(path, Json(disable(false))).await.unwrap();
    assert_eq!(answer(roots(&disabled.secret)).await.0, 200);
    // What is public stays open whatever is shown, and what has a key of its own does not open.
    assert_eq!(http().get(format!("{}/health", app.base)).bearer_auth(&unknown).send().await.unwrap().status(), 200);
    let runner = http().get(format!("{}/runner/model", app.base)).bearer_auth(&disabled.secret);
    assert_eq!(answer(runner).await.0, 501);
    app.end().await;
}

#[tokio::test]
async fn a_secret_is_shown_once_and_only_its_hash_is_stored() {
    let app = idle().await;
    let end = chrono::Utc::now() + chrono::TimeDelta::hours(1);
    let one = someone(&app, "one").await;
    let path = PrincipalPath { id: one.id };
    let new = NewApiToken { name: "for an hour".into(), expires_at: Some(end) };
    let created = app.raw("POST", &format!("/access/principals/{}/tokens", one.id)).json(&new).send().await.unwrap();
    assert_eq!(created.status(), 201);
    let location = created.headers()["location"].to_str().unwrap().to_owned();
    let issued: IssuedApiToken = created.json().await.unwrap();
    assert!(issued.secret.starts_with(&issued.token.prefix) && issued.token.prefix.len() < 16, "{issued:?}");
    assert!(!format!("{issued:?}").contains(&issued.secret));
    let read: Value = app.raw("GET", &location).send().await.unwrap().json().await.unwrap();
    assert_eq!((read["id"].as_i64(), read["name"].as_str()), (Some(issued.token.id), Some("for an hour")));
    assert_eq!(issued.token.expires_at.unwrap().timestamp(), end.timestamp());

    let two = PageQuery { limit: Some(1), ..PageQuery::default() };
    let first = app.client.list_api_tokens(path, two.clone()).await.unwrap();
    let rest = PageQuery { cursor: first.next_cursor.clone(), ..two };
    let rest = app.client.list_api_tokens(path, rest).await.unwrap();
    let listed = [first.tokens, rest.tokens].concat();
    assert_eq!(listed.iter().map(|token| token.id).collect::<Vec<_>>(), [one.token_id, issued.token.id]);
    let hash: Vec<u8> = sqlx::query_scalar("SELECT hash FROM api_tokens WHERE id = $1")
        .bind(issued.token.id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(hash, Sha256::digest(&issued.secret).to_vec());
    let audit = app.client.list_audit(AuditQuery::default()).await.unwrap();
    let stored: Vec<String> = sqlx::query_scalar(
        "SELECT t::text FROM api_tokens t UNION ALL SELECT a::text FROM access_audit a UNION ALL SELECT p::text FROM principals p",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let told = [serde_json::to_string(&(&listed, &audit, &read)).unwrap(), stored.join("\n")].concat();
    assert!(!told.contains(&issued.secret[12..]) && !told.contains(&one.secret[12..]), "a secret is kept: {told}");

    let past = NewApiToken { name: "x".into(), expires_at: Some(end - chrono::TimeDelta::hours(2)) };
    let refused = app.client.issue_api_token(path, Json(past)).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &"expires_at".into()));
    for (failure, of) in [
        (app.client.issue_api_token(PrincipalPath { id: 99 }, Json(new_token("x"))).await.unwrap_err(), "principal 99"),
        (app.client.list_api_tokens(PrincipalPath { id: 99 }, PageQuery::default()).await.unwrap_err(), "principal 99"),
        (app.client.read_api_token(ApiTokenPath { id: 99 }).await.unwrap_err(), "token 99"),
        (app.client.revoke_api_token(ApiTokenPath { id: 99 }).await.unwrap_err(), "token 99"),
        (app.client.rotate_api_token(ApiTokenPath { id: 99 }, OptionalJson(None)).await.unwrap_err(), "token 99"),
    ] {
        assert!(failure.code == Code::NotFound && failure.detail.contains(of), "{failure}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_rotated_token_goes_on_for_its_grace_time() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let path = ApiTokenPath { id: one.token_id };
    let rotate = async |id, grace_seconds| {
        let rotation = ApiTokenRotation { grace_seconds, expires_at: None };
        app.client.rotate_api_token(ApiTokenPath { id }, OptionalJson(Some(rotation))).await
    };
    let by_default = app.client.rotate_api_token(path, OptionalJson(None)).await.unwrap();
    let second = Someone::with(&app, one.id, &by_default);
    assert_eq!((by_default.token.name.as_str(), by_default.token.expires_at), ("test", None));
    let old = app.client.read_api_token(path).await.unwrap();
    let grace = (old.expires_at.unwrap() - by_default.token.created_at).num_seconds();
    assert_eq!(grace, 24 * 3600);
    one.client.read_caller().await.expect("the old token goes on");
    second.client.read_caller().await.unwrap();
    let twice = rotate(one.token_id, Some(7 * 24 * 3600)).await.unwrap_err();
    assert!(twice.code == Code::Conflict && twice.members["remedy"] == "issue a new token", "{twice}");
    // A token that ends sooner than its grace time ends then, and its successor lasts as long as it was to last.
    let soon = NewApiToken { name: "brief".into(), expires_at: Some(chrono::Utc::now() + chrono::TimeDelta::hours(1)) };
    let brief = app.client.issue_api_token(PrincipalPath { id: one.id }, Json(soon)).await.unwrap().token;
    let successor = rotate(brief.id, Some(7 * 24 * 3600)).await.unwrap().token;
    let rotated = app.client.read_api_token(ApiTokenPath { id: brief.id }).await.unwrap();
    assert_eq!((rotated.expires_at, rotated.rotated_at), (brief.expires_at, Some(successor.created_at)));
    let lasts = |token: &ApiTokenResponse| token.expires_at.unwrap() - token.created_at;
    assert_eq!(lasts(&successor), lasts(&brief));

    let fourth = rotate(by_default.token.id, Some(0)).await.unwrap();
    assert_eq!(
        second.client.read_caller().await.unwrap_err().code,
        Code::Unauthenticated,
        "without grace it ends at once"
    );
    assert_eq!(rotate(by_default.token.id, None).await.unwrap_err().code, Code::Conflict);
    let revoked = app.client.revoke_api_token(ApiTokenPath { id: fourth.token.id }).await.unwrap();
    let again = app.client.revoke_api_token(ApiTokenPath { id: fourth.token.id }).await.unwrap();
    assert!(revoked.revoked_at.is_some() && again == revoked, "{again:?}");
    assert_eq!(rotate(fourth.token.id, None).await.unwrap_err().code, Code::Conflict);
    assert_eq!(rotate(one.token_id, Some(7 * 24 * 3600 + 1)).await.unwrap_err().code, Code::InvalidField);
    let acts = |act| {
        let query = AuditQuery { principal_id: Some(one.id), ..AuditQuery::default() };
        let client = app.client.clone();
        async move { client.list_audit(query).await.unwrap().entries.iter().filter(|entry| entry.act == act).count() }
    };
    assert_eq!((acts(AuditAct::TokenRotate).await, acts(AuditAct::TokenRevoke).await), (3, 1));
    app.end().await;
}

#[tokio::test]
async fn the_successor_of_a_token_that_lasts_to_the_end_of_time_ends_then_too() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let end = "9999-12-31T23:59:59Z".parse().ok();
    let new = NewApiToken { name: "for good".into(), expires_at: end };
    let token = app.client.issue_api_token(PrincipalPath { id: one.id }, Json(new)).await.unwrap().token;
    sqlx::query("UPDATE api_tokens SET created_at = created_at - interval '1 day' WHERE id = $1")
        .bind(token.id)
        .execute(&app.pool)
        .await
        .unwrap();
    let rotated = app.client.rotate_api_token(ApiTokenPath { id: token.id }, OptionalJson(None)).await.unwrap();
    assert_eq!(rotated.token.expires_at, end);
    app.end().await;
}

#[tokio::test]
async fn the_use_of_a_token_is_recorded_at_most_once_a_minute() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let last_used = async || app.client.read_api_token(ApiTokenPath { id: one.token_id }).await.unwrap().last_used_at;
    assert_eq!(last_used().await, None);
    one.client.read_caller().await.unwrap();
    let first = last_used().await.expect("it was used");
    one.client.read_caller().await.unwrap();
    assert_eq!(last_used().await, Some(first), "within a minute nothing is written");
    sqlx::query("UPDATE api_tokens SET last_used_at = last_used_at - interval '61 seconds'")
        .execute(&app.pool)
        .await
        .unwrap();
    one.client.read_caller().await.unwrap();
    assert!(last_used().await.unwrap() >= first);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_revoked_during_a_search_ends_after_it_and_ends_a_stream() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let mut events = one.client.follow_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data.tasks_unfinished, 1);

    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK search_indexes").execute(&mut *held).await.unwrap();
    let searching = tokio::spawn({
        let client = one.client.clone();
        async move { client.search_bm25(Json(Bm25Search::new("heron"))).await }
    });
    let waits = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'search_indexes'::regclass AND NOT granted
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    until("the search to wait", async || {
        sqlx::query_scalar::<_, bool>(waits).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
    app.client.revoke_api_token(ApiTokenPath { id: one.token_id }).await.unwrap();
    held.rollback().await.unwrap();
    searching.await.unwrap().expect("a search goes on with the rights that it began with");
    let refused = one.client.search_bm25(Json(Bm25Search::new("heron"))).await.unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated);
    let ended = tokio::time::timeout(PATIENCE, events.next()).await.expect("the stream ends").unwrap().unwrap_err();
    assert_eq!(ended.code, Code::Unauthenticated);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_reaches_the_log() {
    let app = idle().await;
    let mut command = serve_command(&app);
    command.env("SVC_LOG_LEVEL", "trace").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut log = process.0.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        log.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let address = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        lines.find_map(|line| Some(line.split_once(" serves ")?.1.split_whitespace().next()?.to_owned()))
    });
    let address = tokio::time::timeout(PATIENCE, address).await.unwrap().unwrap().expect("it serves");
    let owner = Client(Remote::new(&address, TOKEN, http()));
    let new = NewPrincipal { name: "one".to_owned(), kind: PrincipalKind::User };
    let id = owner.create_principal(Json(new)).await.unwrap().id;
    let first = owner.issue_api_token(PrincipalPath { id }, Json(new_token("test"))).await.unwrap();
    let second = owner.rotate_api_token(ApiTokenPath { id: first.token.id }, OptionalJson(None)).await.unwrap();
    let wrong = format!("svc_{}", "0123456789abcdef".repeat(4));
    for secret in [&first.secret, &second.secret, &wrong] {
        let _ = Client(Remote::new(&address, secret, http())).read_caller().await;
    }
    drop(process);
    let log = reader.join().unwrap();
    assert!(log.contains("issue_api_token") && log.contains("/access/me"), "the log tells of them: {log}");
    for secret in [&first.secret[12..], &second.secret[12..], &wrong[12..], TOKEN] {
        assert!(!log.contains(secret), "a secret stands in the log");
    }
    app.end().await;
}
