//! Principals, their tokens and grants, and the audit, as the owner manages them and as a principal meets them.
mod deleted;
mod enclosed;
mod many;

use crate::support::{TOKEN, TestApp, Wish, document, http};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    process::Command,
    time::{Duration, Instant},
};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, Remote,
    wire::{
        AuditAct, AuditQuery, DocumentPath, DocumentResponse, EmbedQuery, GrantPath, GrantResponse, GrantRight,
        IssuedApiToken, LinkPath, NewApiToken, NewDocument, NewGrant, NewPrincipal, PageQuery, PrincipalChange,
        PrincipalKind, PrincipalPath, PrincipalQuery, TaskTypePath, UploadQuery, UploadResponse, WaitQuery,
        WorkerQuery,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A principal with a token, and a client that shows it.
pub struct Someone {
    pub id: i64,
    pub token_id: i64,
    pub secret: String,
    pub client: Client<Remote>,
}

impl Someone {
    pub fn with(app: &TestApp, id: i64, issued: &IssuedApiToken) -> Someone {
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

pub fn new_token(name: &str) -> NewApiToken {
    NewApiToken { name: name.to_owned(), expires_at: None }
}

pub async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Wish::default() }).await
}

/// The owner's document under this parent.
async fn place(app: &TestApp, parent_id: Option<i64>) -> i64 {
    let new = NewDocument { parent_id, ..document("A place", "A text about herons.") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

/// A whole answer, without what tells the time.
pub async fn answer(request: reqwest::RequestBuilder) -> (u16, Vec<(String, String)>, String) {
    let answer = request.header("x-request-id", "the-same").send().await.unwrap();
    let header =
        |(name, value): (&http::HeaderName, &http::HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
    let mut headers: Vec<_> = answer.headers().iter().map(header).filter(|(name, _)| name != "date").collect();
    headers.sort();
    (answer.status().as_u16(), headers, answer.text().await.unwrap())
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
    let refused = one.client.list_workers(WorkerQuery::default()).await.unwrap_err();
    assert!(refused.code == Code::Forbidden && refused.members.contains_key("remedy"), "{refused}");
    assert_eq!(one.client.delete_principal(PrincipalPath { id: 99 }).await.unwrap_err().code, Code::Forbidden);
    app.end().await;
}

/// Every principal may upload and create at the top of the tree, and reads what it put there. What is open to all is the owner's to
/// change.
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

#[tokio::test]
async fn who_moves_a_document_takes_it_from_nobody_and_opens_nothing() {
    let app = idle().await;
    let (one, two, three) = (someone(&app, "one").await, someone(&app, "two").await, someone(&app, "three").await);
    let folder = place(&app, None).await;
    let (inside, part) = (place(&app, Some(folder)).await, place(&app, Some(folder)).await);
    let (root, other) = (place(&app, Some(folder)).await, place(&app, Some(folder)).await);
    grant(&app, &two, folder, GrantRight::Read).await;
    grant(&app, &three, folder, GrantRight::Write).await;
    grant(&app, &one, inside, GrantRight::Write).await;
    app.client.protect_document(DocumentPath { id: root }).await.unwrap();
    // Its grant on the root itself is to read; to write it has that on the folder.
    grant(&app, &three, other, GrantRight::Read).await;
    let to_the_top = || Json(serde_json::from_value(json!({"parent_id": null})).unwrap());
    let moves = async |who: &Someone, id: i64| {
        who.client.update_document(DocumentPath { id }, WaitQuery::default(), to_the_top()).await
    };
    let reads = async |who: &Someone, id: i64| {
        who.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.is_ok()
    };
    let refused = moves(&one, inside).await.unwrap_err();
    assert!(refused.code == Code::Forbidden && !refused.detail.contains(&folder.to_string()), "{refused}");
    assert!(reads(&two, inside).await);

    moves(&three, part).await.unwrap();
    assert!(reads(&three, part).await && !reads(&one, part).await, "it stays closed");
    // So does an access root, which whoever moves it still writes.
    moves(&three, root).await.unwrap();
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    three.client.update_document(DocumentPath { id: other }, wait, to_the_top()).await.unwrap();
    for id in [root, other] {
        three.creates(NewDocument { parent_id: Some(id), ..document("t", "c") }).await.unwrap();
        assert!(!reads(&one, id).await && !reads(&two, id).await);
        let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
        let mut told = app.client.list_audit(query).await.unwrap().entries;
        told.retain(|entry| entry.actor_id == Some(three.id));
        let acts: Vec<_> = told.iter().map(|entry| entry.act).collect();
        assert_eq!(acts, [AuditAct::GrantPut, AuditAct::DocumentMove], "nothing was protected anew");
    }
    let moved = app.client.update_document(DocumentPath { id: inside }, WaitQuery::default(), to_the_top()).await;
    assert!(moved.is_ok() && reads(&one, inside).await, "the owner takes from whom it likes");
    app.end().await;
}

#[tokio::test]
async fn the_audit_tells_which_grants_a_delete_took_and_who_reads_what_was_moved() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let (top, folder) = (place(&app, None).await, place(&app, None).await);
    let inside = place(&app, Some(top)).await;
    grant(&app, &one, inside, GrantRight::Write).await;
    grant(&app, &one, folder, GrantRight::Write).await;
    let acts = async |id: i64| {
        let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
        app.client.list_audit(query).await.unwrap().entries
    };
    let apart = place(&app, Some(folder)).await;
    let under = |parent: Option<i64>| Json(serde_json::from_value(json!({"parent_id": parent})).unwrap());
    one.client.update_document(DocumentPath { id: apart }, WaitQuery::default(), under(Some(inside))).await.unwrap();
    let moved = acts(apart).await;
    assert_eq!((moved[0].act, moved[0].actor.as_str()), (AuditAct::DocumentMove, "one"));
    assert_eq!(Value::Object(moved[0].detail.clone()), json!({"from": folder, "to": inside}));
    let before = acts(inside).await.len();
    let also = place(&app, Some(inside)).await;
    one.client.update_document(DocumentPath { id: apart }, WaitQuery::default(), under(Some(also))).await.unwrap();
    assert_eq!(acts(apart).await.len(), moved.len(), "a move that changes no reader is no act of access");

    app.client.delete_document(DocumentPath { id: top }).await.unwrap();
    let gone = acts(inside).await;
    assert_eq!((gone.len(), gone[0].act), (before + 1, AuditAct::DocumentUnprotect));
    let lost = json!([{"principal_id": one.id, "principal": "one", "right": "write"}]);
    assert_eq!(Value::Object(gone[0].detail.clone()), json!({"is_deleted": true, "grants": lost}));
    assert!(acts(top).await.is_empty(), "it was no access root");
    app.end().await;
}

#[tokio::test]
async fn a_body_that_arrives_slowly_is_answered_with_the_rights_of_its_end() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let id = place(&app, None).await;
    grant(&app, &one, id, GrantRight::Write).await;
    let body = json!({"title": "overwritten"}).to_string();
    let mut stream = TcpStream::connect(app.base.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "PATCH /documents/{id} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        one.secret,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The service looks a caller up once more if its body took longer than a second.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    }
    app.client.delete_grant(GrantPath { id, principal_id: one.id }).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    assert_eq!(read.value().unwrap().title, "A place");
    app.end().await;
}

#[tokio::test]
async fn a_link_that_stands_for_a_place_tells_nothing_of_hidden_ones() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let (open, hidden, own) = (place(&app, None).await, place(&app, None).await, place(&app, None).await);
    app.client.protect_document(DocumentPath { id: hidden }).await.unwrap();
    grant(&app, &one, own, GrantRight::Write).await;
    let link =
        |target_id| Json(serde_json::from_value(json!({"target_id": target_id, "link_type": "contains"})).unwrap());
    app.client.create_link(DocumentPath { id: open }, link(hidden)).await.unwrap();
    app.client.create_link(DocumentPath { id: hidden }, link(own)).await.unwrap();
    let refused = app.client.create_link(DocumentPath { id: own }, link(open)).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField, "the owner sees the circle");
    let closing = one.client.create_link(DocumentPath { id: own }, link(open)).await.unwrap();
    // No test ends with a circle.
    let path = LinkPath { id: own, link_id: closing.id };
    app.client.delete_link(path).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn the_rate_of_a_principal_counts_what_is_refused_as_the_owners_alone() {
    let app = TestApp::with(Wish { settings: &[("SVC_RATE_READS", "2")], no_worker: true, ..Wish::default() }).await;
    let one = someone(&app, "one").await;
    let mut codes = BTreeSet::new();
    for _ in 0..40 {
        codes.insert(one.client.list_principals(PrincipalQuery::default()).await.unwrap_err().code.as_str());
    }
    assert_eq!(codes, BTreeSet::from([Code::Forbidden.as_str(), Code::TooManyRequests.as_str()]));
    app.end().await;
}
