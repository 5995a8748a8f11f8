//! Principals, their tokens and grants, and the audit, as the owner manages them and as a principal meets them.
use crate::{
    crash::{Process, url},
    support::{self, PATIENCE, TOKEN, TestApp, Wish, document, http, sample, until},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, OptionalJson, Remote,
    wire::{
        ApiTokenPath, ApiTokenResponse, ApiTokenRotation, AuditAct, AuditQuery, Bm25Search, DocumentPath,
        DocumentResponse, EmbedQuery, GrantPath, GrantResponse, GrantRight, IssuedApiToken, NewApiToken, NewDocument,
        NewGrant, NewPrincipal, PageQuery, PrincipalChange, PrincipalKind, PrincipalPath, PrincipalQuery, TaskTypePath,
        UploadQuery, UploadResponse, WaitQuery,
    },
};

/// A principal with a token, and a client that shows it.
pub struct Someone {
    pub id: i64,
    pub token_id: i64,
    pub secret: String,
    pub client: Client<Remote>,
}

impl Someone {
    fn with(app: &TestApp, id: i64, issued: &IssuedApiToken) -> Someone {
        let client = Client(Remote::new(&app.base, &issued.secret, http()));
        Someone { id, token_id: issued.token.id, secret: issued.secret.clone(), client }
    }

    async fn reads(&self, id: i64) -> Result<DocumentResponse, Code> {
        let read = self.client.read_document(DocumentPath { id }, EmbedQuery::default()).await;
        read.map_err(|failure| failure.code).map(|read| read.value().unwrap())
    }

    async fn deletes(&self, id: i64) -> Result<(), Code> {
        self.client.delete_document(DocumentPath { id }).await.map_err(|failure| failure.code)
    }

    async fn creates(&self, new: NewDocument) -> Result<DocumentResponse, Failure> {
        self.client.create_document(WaitQuery::default(), Json(new)).await.map(|created| created.document)
    }

    async fn uploads(&self, query: UploadQuery, bytes: &str) -> Result<UploadResponse, Failure> {
        self.client.upload_file(query, FileUpload::from_bytes("note.txt", bytes.to_owned(), None)).await
    }
}

pub async fn someone(app: &TestApp, name: &str) -> Someone {
    let new = NewPrincipal { name: name.to_owned(), kind: PrincipalKind::User };
    let id = app.client.create_principal(Json(new)).await.unwrap().id;
    let issued = app.client.issue_api_token(PrincipalPath { id }, Json(new_token("test"))).await.unwrap();
    Someone::with(app, id, &issued)
}

pub async fn grant(app: &TestApp, someone: &Someone, id: i64, right: GrantRight) -> GrantResponse {
    app.client.put_grant(GrantPath { id, principal_id: someone.id }, Json(NewGrant { right })).await.unwrap()
}

fn new_token(name: &str) -> NewApiToken {
    NewApiToken { name: name.to_owned(), expires_at: None }
}

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Wish::default() }).await
}

/// The owner's document under this parent.
async fn place(app: &TestApp, parent_id: Option<i64>) -> i64 {
    let new = NewDocument { parent_id, ..document("A place", "A text about herons.") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

/// A whole answer, without what tells the time.
async fn answer(request: reqwest::RequestBuilder) -> (u16, Vec<(String, String)>, String) {
    let answer = request.header("x-request-id", "the-same").send().await.unwrap();
    let header =
        |(name, value): (&http::HeaderName, &http::HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
    let mut headers: Vec<_> = answer.headers().iter().map(header).filter(|(name, _)| name != "date").collect();
    headers.sort();
    (answer.status().as_u16(), headers, answer.text().await.unwrap())
}

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
    // It is the owner's choice alone that closes: the disabled one opens again.
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

#[tokio::test]
async fn principals_are_created_changed_and_deleted_and_their_documents_stay() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let two = someone(&app, "two").await;
    let create = async |name: &str| {
        let new = NewPrincipal { name: name.to_owned(), kind: PrincipalKind::Service };
        app.client.create_principal(Json(new)).await.map_err(|failure| failure.code)
    };
    let change = async |id, change: Value| {
        let change: PrincipalChange = serde_json::from_value(change).unwrap();
        app.client.update_principal(PrincipalPath { id }, Json(change)).await.map_err(|failure| failure.code)
    };
    assert_eq!(create("two").await.unwrap_err(), Code::Conflict);
    assert_eq!(create("owner").await.unwrap_err(), Code::InvalidField);
    assert_eq!(create(" ").await.unwrap_err(), Code::InvalidField);
    assert_eq!(change(one.id, json!({"name": "two"})).await.unwrap_err(), Code::Conflict);
    assert_eq!(change(one.id, json!({"name": "owner"})).await.unwrap_err(), Code::InvalidField);
    assert_eq!(change(99, json!({"name": "x"})).await.unwrap_err(), Code::NotFound);
    let changed = change(one.id, json!({"name": "eins", "kind": "service"})).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.kind, changed.disabled), ("eins", PrincipalKind::Service, false));
    assert_eq!(app.client.read_principal(PrincipalPath { id: one.id }).await.unwrap(), changed);
    let mut listed = Vec::new();
    let mut query = PrincipalQuery { limit: Some(1), ..PrincipalQuery::default() };
    loop {
        let page = app.client.list_principals(query.clone()).await.unwrap();
        listed.extend(page.principals.iter().map(|principal| principal.id));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, [one.id, two.id]);
    let named = PrincipalQuery { name: Some("eins".into()), ..PrincipalQuery::default() };
    assert_eq!(app.client.list_principals(named).await.unwrap().principals, [changed]);

    let own = one.creates(NewDocument { private: true, ..document("Mine", "A private text.") }).await.unwrap().id;
    let shared = place(&app, None).await;
    grant(&app, &one, shared, GrantRight::Read).await;
    grant(&app, &two, shared, GrantRight::Read).await;
    app.client.delete_principal(PrincipalPath { id: one.id }).await.unwrap();
    for path in [PrincipalPath { id: one.id }, PrincipalPath { id: 99 }] {
        assert_eq!(app.client.delete_principal(path).await.unwrap_err().code, Code::NotFound);
        assert_eq!(app.client.read_principal(path).await.unwrap_err().code, Code::NotFound);
    }
    let left: (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM api_tokens), (SELECT count(*) FROM access_grants)")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(left, (1, 1), "those of the other");
    app.client.read_document(DocumentPath { id: own }, EmbedQuery::default()).await.expect("its documents stay");
    assert_eq!(two.reads(own).await.unwrap_err(), Code::NotFound, "and stay closed");
    let query = AuditQuery { principal_id: Some(one.id), ..AuditQuery::default() };
    let told = app.client.list_audit(query).await.unwrap().entries;
    let last = told.first().unwrap();
    assert_eq!(
        (last.act, last.principal.as_deref(), last.actor.as_str()),
        (AuditAct::PrincipalDelete, Some("eins"), "owner")
    );
    let by_itself = told.iter().find(|entry| entry.actor_id == Some(one.id)).unwrap();
    assert_eq!(
        (by_itself.actor.as_str(), by_itself.act, by_itself.document_id),
        ("eins", AuditAct::GrantPut, Some(own))
    );
    let renamed = told.iter().find(|entry| entry.act == AuditAct::PrincipalUpdate).unwrap();
    assert_eq!((renamed.principal.as_deref(), &renamed.detail["name"]), (Some("one"), &"eins".into()));
    app.end().await;
}

#[tokio::test]
async fn a_grant_opens_what_is_under_it_and_closes_it_to_all_others() {
    let app = idle().await;
    let (one, two) = (someone(&app, "one").await, someone(&app, "two").await);
    let top = place(&app, None).await;
    let outer = place(&app, Some(top)).await;
    let inner = place(&app, Some(outer)).await;
    let leaf = place(&app, Some(inner)).await;
    let reads = async |who: &Someone| {
        let mut read = Vec::new();
        for id in [top, outer, inner, leaf] {
            read.extend(who.reads(id).await.is_ok().then_some(id));
        }
        read
    };
    assert_eq!(reads(&one).await, [top, outer, inner, leaf], "what is under no root is open to all");
    let root = app.client.protect_document(DocumentPath { id: outer }).await.unwrap();
    assert_eq!((root.document_id, root.above), (outer, None));
    assert_eq!(app.client.protect_document(DocumentPath { id: outer }).await.unwrap(), root, "twice is once");
    assert_eq!(reads(&one).await, [top]);
    // A grant on a node under another root makes a root of it, and opens nothing above.
    let granted = grant(&app, &one, inner, GrantRight::Read).await;
    assert_eq!((granted.principal.as_str(), granted.right), ("one", GrantRight::Read));
    assert_eq!(app.client.protect_document(DocumentPath { id: inner }).await.unwrap().above, Some(outer));
    assert_eq!((reads(&one).await, reads(&two).await), (vec![top, inner, leaf], vec![top]));
    assert_eq!(one.deletes(leaf).await.unwrap_err(), Code::Forbidden);
    assert_eq!(one.deletes(outer).await.unwrap_err(), Code::NotFound);
    // A grant above reaches nested roots, and the higher right counts.
    grant(&app, &two, outer, GrantRight::Write).await;
    assert_eq!(reads(&two).await, [top, outer, inner, leaf]);
    grant(&app, &two, inner, GrantRight::Read).await;
    two.creates(NewDocument { parent_id: Some(leaf), ..document("t", "c") }).await.expect("the outer grant writes");

    let me = two.client.read_caller().await.unwrap();
    let grants: Vec<(i64, GrantRight)> = me.grants.iter().map(|grant| (grant.document_id, grant.right)).collect();
    assert_eq!(grants, [(outer, GrantRight::Write), (inner, GrantRight::Read)]);
    assert_eq!((me.owner, me.more_grants, me.principal.unwrap().name.as_str()), (false, false, "two"));
    assert_eq!(me.token.unwrap().id, two.token_id);
    let owner = app.client.read_caller().await.unwrap();
    assert!(owner.owner && owner.principal.is_none() && owner.grants.is_empty());
    let page = PageQuery { limit: Some(1), ..PageQuery::default() };
    let first = app.client.list_document_grants(DocumentPath { id: inner }, page.clone()).await.unwrap();
    let rest = PageQuery { cursor: first.next_cursor.clone(), ..page.clone() };
    let rest = app.client.list_document_grants(DocumentPath { id: inner }, rest).await.unwrap();
    assert_eq!((first.grants[0].principal_id, rest.grants[0].principal_id, rest.next_cursor), (one.id, two.id, None));
    let first = app.client.list_principal_grants(PrincipalPath { id: two.id }, page.clone()).await.unwrap();
    let rest = PageQuery { cursor: first.next_cursor.clone(), ..page };
    let rest = app.client.list_principal_grants(PrincipalPath { id: two.id }, rest).await.unwrap();
    assert_eq!((first.grants[0].document_id, rest.grants[0].document_id, rest.next_cursor), (outer, inner, None));

    // The last grant leaves a closed root; only unprotecting opens it, and nested roots stay.
    app.client.delete_grant(GrantPath { id: inner, principal_id: one.id }).await.unwrap();
    assert_eq!(reads(&one).await, [top]);
    app.client.unprotect_document(DocumentPath { id: outer }).await.unwrap();
    assert_eq!((reads(&one).await, reads(&two).await), (vec![top, outer], vec![top, outer, inner, leaf]));
    assert_eq!(two.deletes(leaf).await.unwrap_err(), Code::Forbidden, "the grant to write went with its root");
    app.client.unprotect_document(DocumentPath { id: inner }).await.unwrap();
    assert_eq!(reads(&one).await, [top, outer, inner, leaf]);

    for (failure, says) in [
        (app.client.delete_grant(GrantPath { id: inner, principal_id: one.id }).await.unwrap_err(), "has no grant"),
        (app.client.delete_grant(GrantPath { id: inner, principal_id: 99 }).await.unwrap_err(), "principal 99"),
        (app.client.unprotect_document(DocumentPath { id: top }).await.unwrap_err(), "no access root"),
        (app.client.unprotect_document(DocumentPath { id: 9999 }).await.unwrap_err(), "no document 9999"),
        (app.client.protect_document(DocumentPath { id: 9999 }).await.unwrap_err(), "no document 9999"),
        (app.client.list_document_grants(DocumentPath { id: 9999 }, PageQuery::default()).await.unwrap_err(), "9999"),
        (app.client.list_principal_grants(PrincipalPath { id: 99 }, PageQuery::default()).await.unwrap_err(), "99"),
    ] {
        assert!(failure.code == Code::NotFound && failure.detail.contains(says), "{failure}");
    }
    let right = Json(NewGrant { right: GrantRight::Read });
    let nobody = app.client.put_grant(GrantPath { id: top, principal_id: 99 }, right).await.unwrap_err();
    assert!(nobody.code == Code::NotFound && nobody.detail.contains("principal 99"), "{nobody}");
    assert_eq!(reads(&one).await, [top, outer, inner, leaf], "a grant to nobody closes nothing");
    let right = Json(NewGrant { right: GrantRight::Read });
    let nowhere = app.client.put_grant(GrantPath { id: 9999, principal_id: one.id }, right).await.unwrap_err();
    assert!(nowhere.code == Code::NotFound && nowhere.detail.contains("document 9999"), "{nowhere}");
    app.end().await;
}

#[tokio::test]
async fn a_writer_of_a_subtree_changes_it_and_touches_nothing_above() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let top = place(&app, None).await;
    let closed = place(&app, None).await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let (under_top, under_closed) = (place(&app, Some(top)).await, place(&app, Some(closed)).await);
    for root in [under_top, under_closed] {
        grant(&app, &one, root, GrantRight::Write).await;
        let child = one.creates(NewDocument { parent_id: Some(root), ..document("t", "c") }).await.unwrap();
        let grandchild = one.creates(NewDocument { parent_id: Some(child.id), ..document("t", "c") }).await.unwrap();
        let query = UploadQuery { parent_id: Some(child.id), ..UploadQuery::default() };
        one.uploads(query, &format!("A note under {root}.")).await.unwrap();
        one.deletes(grandchild.id).await.unwrap();
        one.deletes(child.id).await.unwrap();
        assert_eq!(one.reads(child.id).await.unwrap_err(), Code::NotFound);
    }
    for (above, code) in [(top, Code::Forbidden), (closed, Code::NotFound)] {
        let new = NewDocument { parent_id: Some(above), ..document("t", "c") };
        assert_eq!(one.creates(new).await.unwrap_err().code, code);
        let query = UploadQuery { parent_id: Some(above), ..UploadQuery::default() };
        assert_eq!(one.uploads(query, "Another note.").await.unwrap_err().code, code);
        assert_eq!(one.deletes(above).await.unwrap_err(), code);
    }
    one.deletes(under_closed).await.expect("the root of a grant to write is its to delete");
    // What is the owner's alone is nobody else's, whatever it names.
    let refused = one.client.list_workers().await.unwrap_err();
    assert!(refused.code == Code::Forbidden && refused.members.contains_key("remedy"), "{refused}");
    assert_eq!(one.client.delete_principal(PrincipalPath { id: 99 }).await.unwrap_err().code, Code::Forbidden);
    app.end().await;
}

/// Every principal may upload and create at the top of the tree, as the specification says, and reads what it put there. What is
/// open to all is the owner's to change.
#[tokio::test]
async fn what_principals_upload_is_stored_once_where_they_may_read_it() {
    let app = idle().await;
    let (one, two) = (someone(&app, "one").await, someone(&app, "two").await);
    let private = UploadQuery { private: true, ..UploadQuery::default() };
    let text = "The same bytes for both.";
    let (ones, twos) = (one.uploads(private, text).await.unwrap(), two.uploads(private, text).await.unwrap());
    assert!(!ones.was_existing && !twos.was_existing && ones.document_id != twos.document_id);
    assert_eq!(one.reads(twos.document_id).await.unwrap_err(), Code::NotFound);
    let me = one.client.read_caller().await.unwrap();
    let granted: Vec<_> = me.grants.iter().map(|grant| (grant.document_id, grant.right)).collect();
    assert_eq!(granted, [(ones.document_id, GrantRight::Write)], "it is the only grantee, to write");
    for (who, file) in [(&one, &ones), (&two, &twos)] {
        for query in [private, UploadQuery::default()] {
            let again = who.uploads(query, text).await.unwrap();
            assert_eq!((again.was_existing, again.document_id), (true, file.document_id));
        }
    }
    // A file that is open to all is found by all, but not by a private upload.
    let open = one.uploads(UploadQuery::default(), "Bytes for everybody.").await.unwrap();
    assert_eq!(
        two.uploads(UploadQuery::default(), "Bytes for everybody.").await.unwrap().document_id,
        open.document_id
    );
    assert_eq!(one.deletes(open.document_id).await.unwrap_err(), Code::Forbidden, "it is the owner's to change");
    let hidden = two.uploads(private, "Bytes for everybody.").await.unwrap();
    assert!(!hidden.was_existing && hidden.document_id != open.document_id);
    // Adoption by a link: each sees it where it may read both ends.
    let place_of_two = place(&app, None).await;
    grant(&app, &two, place_of_two, GrantRight::Write).await;
    let under = UploadQuery { parent_id: Some(place_of_two), ..UploadQuery::default() };
    let adopted = two.uploads(under, text).await.unwrap();
    assert!(adopted.was_existing && adopted.linked_into_parent && adopted.document_id == twos.document_id);
    let links = async |who: &Client<Remote>, id| {
        let page = who.list_links(DocumentPath { id }, PageQuery::default()).await;
        page.map(|page| page.links.len()).map_err(|failure| failure.code)
    };
    assert_eq!((links(&two.client, place_of_two).await, links(&two.client, twos.document_id).await), (Ok(1), Ok(1)));
    assert_eq!(links(&one.client, place_of_two).await, Err(Code::NotFound));
    grant(&app, &one, place_of_two, GrantRight::Read).await;
    assert_eq!(links(&one.client, place_of_two).await, Ok(0), "the other end is not its to read");
    // A private document under a parent is its creator's, and that of the grantees above.
    let new = NewDocument { private: true, parent_id: Some(place_of_two), ..document("t", "c") };
    let nested = two.creates(new).await.unwrap();
    assert!(one.reads(nested.id).await.is_ok() && two.deletes(nested.id).await.is_ok());
    let owners = app.upload_bytes("note.txt", text.to_owned()).await.unwrap();
    assert_eq!(owners.document_id, ones.document_id.min(twos.document_id), "the owner finds the oldest");
    app.end().await;
}

#[tokio::test]
async fn new_documents_at_the_top_are_closed_if_the_setting_says_so() {
    let settings = [("SVC_DEFAULT_VISIBILITY", "owner")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let (one, two) = (someone(&app, "one").await, someone(&app, "two").await);
    let (owners, ones) = (place(&app, None).await, one.creates(document("t", "c")).await.unwrap().id);
    let file = one.uploads(UploadQuery::default(), "A note.").await.unwrap().document_id;
    assert_eq!(one.reads(owners).await.unwrap_err(), Code::NotFound);
    for id in [ones, file] {
        assert!(one.reads(id).await.is_ok());
        assert_eq!(two.reads(id).await.unwrap_err(), Code::NotFound);
    }
    // What is under something is as open as that.
    let child = one.creates(NewDocument { parent_id: Some(ones), ..document("t", "c") }).await.unwrap().id;
    let roots: Vec<i64> =
        sqlx::query_scalar("SELECT document_id FROM access_roots ORDER BY 1").fetch_all(&app.pool).await.unwrap();
    assert_eq!(roots, [owners, ones, file]);
    assert!(one.deletes(child).await.is_ok());
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
    let waits = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'search_indexes'::regclass AND NOT granted)";
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

#[tokio::test]
async fn the_audit_is_only_added_to() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let id = place(&app, None).await;
    grant(&app, &one, id, GrantRight::Read).await;
    app.client.delete_grant(GrantPath { id, principal_id: one.id }).await.unwrap();
    app.client.unprotect_document(DocumentPath { id }).await.unwrap();
    let task_type = || TaskTypePath { task_type: "embed".into() };
    app.client.pause_task_type(task_type()).await.unwrap();
    app.client.resume_task_type(task_type()).await.unwrap();
    let task: i64 = sqlx::query_scalar("SELECT id FROM task_queue").fetch_one(&app.pool).await.unwrap();
    app.client.cancel_task(svc_client::wire::TaskPath { id: task }).await.unwrap();
    app.client.retry_task(svc_client::wire::TaskPath { id: task }).await.unwrap();
    let mut told = Vec::new();
    let mut query = AuditQuery { limit: Some(2), ..AuditQuery::default() };
    loop {
        let page = app.client.list_audit(query.clone()).await.unwrap();
        told.extend(page.entries);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    let acts: Vec<&str> = told.iter().rev().map(|entry| entry.act.as_str()).collect();
    let expected = [
        "principal.create",
        "token.issue",
        "document.protect",
        "grant.put",
        "grant.delete",
        "document.unprotect",
        "task_type.pause",
        "task_type.resume",
        "task.cancel",
        "task.retry",
    ];
    assert_eq!(acts, expected);
    assert!(told.iter().all(|entry| entry.actor == "owner" && entry.actor_id.is_none()));
    let of_document = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
    let of_document = app.client.list_audit(of_document).await.unwrap().entries;
    assert_eq!(of_document.iter().filter(|entry| entry.act.as_str().starts_with("document")).count(), 2);
    let put = of_document.iter().find(|entry| entry.act == AuditAct::GrantPut).unwrap();
    assert_eq!((put.principal.as_deref(), &put.detail["right"]), (Some("one"), &"read".into()));

    for change in ["UPDATE access_audit SET actor = 'x'", "DELETE FROM access_audit", "TRUNCATE access_audit"] {
        let refused = sqlx::query(change).execute(&app.pool).await.unwrap_err();
        assert!(refused.to_string().contains("the audit is only added to"), "{change}: {refused}");
    }
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM access_audit").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, expected.len() as i64);
    // A refused change leaves no trace of having happened.
    let taken = NewPrincipal { name: "one".into(), kind: PrincipalKind::User };
    app.client.create_principal(Json(taken)).await.unwrap_err();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM access_audit").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, expected.len() as i64);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_reaches_the_log() {
    let app = idle().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["serve", "--config", "/dev/null"])
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
        .env("SVC_INGEST_WORKER_ENABLED", "false")
        .env("SVC_LISTEN", "127.0.0.1:0")
        .env("SVC_CONSOLE_LISTEN", "127.0.0.1:0")
        .env("SVC_API_TOKEN", TOKEN)
        .env("SVC_LOG_LEVEL", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_is_managed_by_the_command_line() {
    let app = idle().await;
    let id = place(&app, None).await.to_string();
    let svc = async |secret: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).env("SVC_URL", &app.base).env("SVC_TOKEN", secret).env("SVC_CONFIG", "/dev/null");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let owner = async |arguments: &[&str]| {
        let (ok, out, err) = svc(TOKEN, &[&["access"], arguments].concat()).await;
        assert!(ok, "{arguments:?}: {err}");
        out
    };
    let json = |text: String| -> Value { serde_json::from_str(text.lines().next().unwrap()).unwrap() };
    let made = json(owner(&["principals", "add", "alice@example.org", "--kind", "service"]).await);
    assert_eq!((made["name"].as_str(), made["kind"].as_str()), (Some("alice@example.org"), Some("service")));
    let issued = json(owner(&["tokens", "issue", "alice@example.org", "--name", "laptop", "--days", "30"]).await);
    let secret = issued["secret"].as_str().unwrap();
    let whoami = json(svc(secret, &["access", "whoami"]).await.1);
    assert_eq!((whoami["principal"]["id"].as_i64(), whoami["owner"].as_bool()), (made["id"].as_i64(), Some(false)));
    let put = json(owner(&["grants", "put", &id, "alice@example.org", "write"]).await);
    assert_eq!(put["right"], "write");
    let shown = svc(secret, &["--table", "access", "whoami"]).await.1;
    assert!(shown.contains("alice@example.org (service)") && shown.contains("write"), "{shown}");
    // --token wins over the environment.
    let shown = svc(secret, &["--token", TOKEN, "--table", "access", "whoami"]).await.1;
    assert!(shown.contains("the owner"), "{shown}");
    for (arguments, says) in [
        (&["principals", "list"][..], "alice@example.org"),
        (&["tokens", "list", "alice@example.org"], "laptop"),
        (&["grants", "list", "--document", &id], "alice@example.org"),
        (&["grants", "list", "--principal", "alice@example.org"], "write"),
        (&["principals", "edit", "alice@example.org", "--kind", "user"], "user"),
        (&["principals", "disable", "alice@example.org"], "disabled"),
        (&["principals", "enable", "alice@example.org"], "enabled"),
        (&["grants", "rm", &id, "alice@example.org"], "stays closed"),
        (&["grants", "unprotect", &id], "as open as"),
        (&["grants", "protect", &id], "is closed"),
        (&["audit", "--principal", "alice@example.org", "--most", "3"], "grant.delete"),
        (&["audit", "--document", &id], "document.protect"),
    ] {
        let shown = owner(&[&["--table"], arguments].concat()).await;
        assert!(shown.contains(says) && !shown.contains(secret), "{arguments:?}: {shown}");
    }
    let token = issued["token"]["id"].to_string();
    let rotated = owner(&["--table", "tokens", "rotate", &token, "--grace-seconds", "60"]).await;
    let rotated = rotated.split("shown only now: ").nth(1).unwrap().trim().to_owned();
    assert!(svc(&rotated, &["access", "whoami"]).await.0 && svc(secret, &["access", "whoami"]).await.0);
    owner(&["tokens", "revoke", &token]).await;
    let (ok, _, said) = svc(secret, &["ls"]).await;
    assert!(!ok && said.contains("set SVC_TOKEN, or --token"), "{said}");
    let (ok, _, said) = svc(&rotated, &["access", "principals", "list"]).await;
    assert!(!ok && said.contains("the owner's alone"), "{said}");
    let (ok, _, said) = svc(TOKEN, &["access", "tokens", "list", "bob"]).await;
    assert!(!ok && said.contains("there is no principal `bob`"), "{said}");
    owner(&["principals", "rm", "alice@example.org"]).await;
    assert!(!svc(&rotated, &["access", "whoami"]).await.0);
    app.end().await;
}
