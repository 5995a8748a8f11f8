//! What a principal may read and change: guards beside the naive definition, and the lock that keeps a node from being born open.
use crate::{
    principals,
    support::{TestApp, Wish, document, insert, invariants, place, sample, server, until},
};
use http::{HeaderMap, header::AUTHORIZATION};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use std::collections::{BTreeMap, BTreeSet};
use svc::{
    access::{Keys, NewSecret},
    store::{
        access, documents, moves, places,
        scope::{Readable, Writable},
        story, transaction,
    },
};
use svc_client::{
    Access, FileUpload, Json,
    wire::{
        AuditQuery, ContextPath, DocumentPath, FileQuery, GrantRight, IndexDocumentPath, IndexPath, NewMembers,
        NewWebhook, PiecesQuery, PresentationPath, PrincipalPath, SplitRequest, UploadQuery, WaitQuery,
    },
};
use svc_ids::{DocumentId, PrincipalId};

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A tree and its rights, by their definition: a grant on a root reaches what is under it, whatever other roots lie between.
#[derive(Clone, Default)]
pub struct Naive {
    /// The ancestors of each node.
    pub path: BTreeMap<i64, Vec<i64>>,
    pub roots: BTreeSet<i64>,
    /// One principal's, each with whether it may write.
    pub grants: BTreeMap<i64, bool>,
}

impl Naive {
    /// A node and its ancestors.
    pub fn line(&self, id: i64) -> Vec<i64> {
        self.path[&id].iter().copied().chain([id]).collect()
    }

    pub fn guard(&self, id: i64) -> i64 {
        self.line(id).into_iter().rev().find(|id| self.roots.contains(id)).unwrap_or(0)
    }

    pub fn may(&self, id: i64, write: bool) -> bool {
        let line = self.line(id);
        let granted = line.iter().any(|id| self.grants.get(id).is_some_and(|can_write| *can_write || !write));
        granted || (!write && line.iter().all(|id| !self.roots.contains(id)))
    }
}

/// A principal as the service knows it, and what it sends.
struct Someone {
    id: i64,
    headers: HeaderMap,
}

async fn someone(pool: &PgPool) -> Someone {
    let secret = NewSecret::draw();
    let id: i64 = sqlx::query_scalar("INSERT INTO principals (name, kind) VALUES ('someone', 'user') RETURNING id")
        .fetch_one(pool)
        .await
        .unwrap();
    sqlx::query("INSERT INTO api_tokens (principal_id, name, hash, prefix) VALUES ($1, 'test', $2, $3)")
        .bind(id)
        .bind(secret.hash.as_slice())
        .bind(secret.prefix())
        .execute(pool)
        .await
        .unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {}", secret.text).parse().unwrap())]);
    Someone { id, headers }
}

async fn add(pool: &PgPool, parent: Option<i64>) -> i64 {
    let mut tx = transaction::begin_creating(pool).await.unwrap();
    let id = insert(&mut tx, parent).await;
    tx.commit().await.unwrap();
    id.0
}

/// The owner's document, which nobody embeds.
async fn stored(app: &TestApp, title: &str, content: &str) -> i64 {
    app.client.create_document(WaitQuery::default(), Json(document(title, content))).await.unwrap().id
}

async fn compare(pool: &PgPool, naive: &Naive, someone: &Someone) {
    let keys = Keys::new("owner", None, false);
    let caller = keys.authenticate(pool, Access::Read, &someone.headers).await.unwrap();
    let mut conn = pool.acquire().await.unwrap();
    let guards: BTreeMap<i64, i64> =
        sqlx::query_as("SELECT id, guard FROM documents").fetch_all(&mut *conn).await.unwrap().into_iter().collect();
    let expected: BTreeMap<i64, i64> = naive.path.keys().map(|id| (*id, naive.guard(*id))).collect();
    assert_eq!(guards, expected);
    let ids: Vec<i64> = naive.path.keys().copied().collect();
    let all: Vec<DocumentId> = ids.iter().copied().map(DocumentId).collect();
    let shown = documents::sizes(&mut conn, &caller.readable(), &all).await.unwrap();
    let shown: BTreeSet<i64> = shown.into_iter().map(|row| row.id.0).collect();
    assert_eq!(shown, ids.iter().copied().filter(|id| naive.may(*id, false)).collect());
    for id in &ids {
        let found = places::find(&mut conn, &caller.writable(), DocumentId(*id)).await.unwrap();
        assert_eq!(found.is_some(), naive.may(*id, true), "writing {id}");
    }
    assert_eq!(documents::sizes(&mut conn, &Readable::everything(), &all).await.unwrap().len(), ids.len());
    assert!(documents::sizes(&mut conn, &Readable::default(), &all).await.unwrap().is_empty());
    assert!(ids.first().is_none_or(|_| !Writable::default().is_everything()));
}

#[tokio::test]
async fn guards_and_rights_are_those_of_the_definition_in_random_trees() {
    for seed in 1..=6 {
        let (pool, mut random, mut naive) = (server::new_pool().await, Random(seed * 7919), Naive::default());
        let someone = someone(&pool).await;
        for _ in 0..60 {
            let ids: Vec<i64> = naive.path.keys().copied().collect();
            let any = (!ids.is_empty()).then(|| ids[random.below(ids.len())]);
            match (random.below(13), any) {
                (0..=3, parent) | (4.., parent @ None) => {
                    let parent = parent.filter(|_| random.below(8) > 0).map(|id| (id, naive.path[&id].clone()));
                    let id = add(&pool, parent.as_ref().map(|(id, _)| *id)).await;
                    naive
                        .path
                        .insert(id, parent.map_or(Vec::new(), |(id, path)| path.into_iter().chain([id]).collect()));
                }
                (4 | 5, Some(id)) => {
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    assert_eq!(access::protect(&mut tx, DocumentId(id)).await.unwrap(), naive.roots.insert(id));
                    tx.commit().await.unwrap();
                }
                (6, Some(id)) => {
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    access::hold_alone(&mut tx).await.unwrap();
                    assert_eq!(access::unprotect_held(&mut tx, DocumentId(id)).await.unwrap(), naive.roots.remove(&id));
                    tx.commit().await.unwrap();
                    naive.grants.remove(&id);
                }
                (7 | 8, Some(_)) => {
                    let roots: Vec<i64> = naive.roots.iter().copied().collect();
                    if !roots.is_empty() {
                        let (root, can_write) = (roots[random.below(roots.len())], random.below(2) == 0);
                        let mut conn = pool.acquire().await.unwrap();
                        let right = if can_write { GrantRight::Write } else { GrantRight::Read };
                        let granted = access::grant(&mut conn, PrincipalId(someone.id), DocumentId(root), right).await;
                        assert!(granted.unwrap().is_some());
                        naive.grants.insert(root, can_write);
                    }
                }
                (9, Some(_)) => {
                    let granted: Vec<i64> = naive.grants.keys().copied().collect();
                    if !granted.is_empty() {
                        let root = granted[random.below(granted.len())];
                        let mut conn = pool.acquire().await.unwrap();
                        assert!(access::ungrant(&mut conn, PrincipalId(someone.id), DocumentId(root)).await.unwrap());
                        naive.grants.remove(&root);
                    }
                }
                (10 | 11, Some(id)) => {
                    let to = Some(ids[random.below(ids.len())]).filter(|_| random.below(4) > 0);
                    // Nothing comes under itself.
                    if to.is_some_and(|to| naive.line(to).contains(&id)) {
                        continue;
                    }
                    let mut tx = transaction::begin_moving(&pool).await.unwrap();
                    let from = place(&mut tx, id).await;
                    let under = match to {
                        Some(to) => Some(place(&mut tx, to).await),
                        None => None,
                    };
                    let guards = (
                        naive.path[&id].last().map_or(0, |parent| naive.guard(*parent)),
                        to.map_or(0, |to| naive.guard(to)),
                    );
                    let moved = moves::relocate(&mut tx, &from, under.as_ref()).await.unwrap();
                    let is_other = guards.0 != guards.1;
                    assert_eq!(moved.has_other_readers, is_other, "whether others may read {id} under {to:?}");
                    tx.commit().await.unwrap();
                    let line = to.map_or(Vec::new(), |to| naive.line(to));
                    let depth = naive.path[&id].len();
                    for (node, path) in &mut naive.path {
                        if *node == id || path.contains(&id) {
                            *path = [&line, &path[depth..]].concat();
                        }
                    }
                }
                (_, Some(id)) if random.below(3) == 0 => {
                    let mut conn = pool.acquire().await.unwrap();
                    let place = place(&mut conn, id).await;
                    let gone: BTreeSet<i64> = documents::delete_subtrees(&mut conn, &[place])
                        .await
                        .unwrap()
                        .ids
                        .into_iter()
                        .map(|id| id.0)
                        .collect();
                    naive.path.retain(|id, _| !gone.contains(id));
                    naive.roots.retain(|id| !gone.contains(id));
                    naive.grants.retain(|id, _| !gone.contains(id));
                }
                _ => continue,
            }
            compare(&pool, &naive, &someone).await;
        }
        invariants::check(&pool).await;
    }
}

/// Without the lock the child would get the guard from before the protection, and everybody could read it.
#[tokio::test]
async fn a_node_that_is_created_while_its_parent_is_protected_is_guarded() {
    let pool = server::new_pool().await;
    let parent = add(&pool, None).await;
    let mut creating = transaction::begin_creating(&pool).await.unwrap();
    let protecting = tokio::spawn({
        let pool = pool.clone();
        async move {
            let mut tx = transaction::begin(&pool).await.unwrap();
            access::protect(&mut tx, DocumentId(parent)).await.unwrap();
            tx.commit().await.unwrap();
        }
    });
    let waits = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    until("the protection to wait for the creation", async || {
        sqlx::query_scalar::<_, bool>(waits).fetch_one(&pool).await.unwrap().then_some(())
    })
    .await;
    let child = insert(&mut creating, Some(parent)).await;
    creating.commit().await.unwrap();
    protecting.await.unwrap();
    let guard: i64 =
        sqlx::query_scalar("SELECT guard FROM documents WHERE id = $1").bind(child).fetch_one(&pool).await.unwrap();
    assert_eq!(guard, parent);
}

#[tokio::test]
async fn a_private_upload_and_all_under_it_are_guarded_by_it() {
    let app = TestApp::start().await;
    let query = UploadQuery { private: true, ..UploadQuery::default() };
    let file = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let id = app.client.upload_file(query, file).await.unwrap().document_id;
    app.settled(id).await;
    let guards: Vec<i64> =
        sqlx::query_scalar("SELECT DISTINCT guard FROM documents").fetch_all(&app.pool).await.unwrap();
    assert_eq!(guards, [id]);
    app.end().await;
}

/// A piece that was closed goes with those that are replaced, and the audit tells whose grants went with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_tells_of_pieces_that_were_access_roots_and_are_replaced() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let one = principals::someone(&app, "one").await;
    let id = stored(&app, "Birds", "Herons wait. Coots dive.").await;
    let split = async |replace| {
        let made = app
            .client
            .split_document(
                DocumentPath { id },
                PiecesQuery::default(),
                Json(SplitRequest { at: Some(vec![12]), by_headings: false, replace }),
            )
            .await;
        made.unwrap()
    };
    let pieces = split(false).await.created;
    principals::grant(&app, &one, pieces[1], GrantRight::Read).await;
    assert_eq!(split(true).await.deleted, 2);
    let query = AuditQuery { document_id: Some(pieces[1]), ..AuditQuery::default() };
    let told = app.client.list_audit(query).await.unwrap().entries;
    let acts: Vec<&str> = told.iter().map(|entry| entry.act.as_str()).collect();
    assert_eq!(acts, ["document.unprotect", "grant.put", "document.protect"]);
    let grants = json!([{"principal_id": one.id, "principal": "one", "right": "read"}]);
    assert_eq!((&told[0].detail["is_deleted"], &told[0].detail["grants"]), (&json!(true), &grants));
    app.end().await;
}

#[tokio::test]
async fn the_audit_tells_of_contexts_indexes_and_rules_of_views() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let id = stored(&app, "Place", "A heron.").await;
    let new = json!({"name": "wide", "config": {"method": "bm25"}});
    let context = app.client.create_context(Json(serde_json::from_value(new).unwrap())).await.unwrap();
    let path = ContextPath { id: context.id };
    let change = json!({"name": "narrow"});
    app.client.update_context(path, Json(serde_json::from_value(change).unwrap())).await.unwrap();
    app.client.delete_context(path).await.unwrap();
    let new = json!({"name": "words"});
    let index = app.client.create_index(Json(serde_json::from_value(new).unwrap())).await.unwrap().id;
    let path = IndexPath { id: index };
    app.client.update_index(path, Json(serde_json::from_value(json!({"k1": 2.0})).unwrap())).await.unwrap();
    let other = stored(&app, "Other", "A coot.").await;
    app.client.add_index_members(path, Json(NewMembers { members: vec![id, other] })).await.unwrap();
    app.client.remove_index_member(IndexDocumentPath { id: index, document_id: other }).await.unwrap();
    app.client.refresh_index(path).await.unwrap();
    app.client.delete_index(path).await.unwrap();
    let rule = json!({"usetype": "mine", "renderer": "plain"});
    app.client.create_presentation(Json(serde_json::from_value(rule).unwrap())).await.unwrap();
    let mine = || PresentationPath { usetype: "mine".into() };
    let change = json!({"title": "Mine"});
    app.client.update_presentation(mine(), Json(serde_json::from_value(change).unwrap())).await.unwrap();
    app.client.delete_presentation(mine()).await.unwrap();
    app.client.reset_presentation(PresentationPath { usetype: "markdown".into() }).await.unwrap();
    // What is refused is not recorded.
    app.client.delete_presentation(mine()).await.unwrap_err();
    app.client.delete_index(path).await.unwrap_err();
    let told = app.client.list_audit(AuditQuery::default()).await.unwrap().entries;
    let told: Vec<(&str, Value)> =
        told.iter().rev().map(|entry| (entry.act.as_str(), Value::Object(entry.detail.clone()))).collect();
    let of_index = |name: &str, value: Value| json!({"index_id": index, "name": "words", name: value});
    let expected = [
        ("context.create", json!({"context_id": context.id, "name": "wide"})),
        ("context.update", json!({"context_id": context.id, "name": "narrow"})),
        ("context.delete", json!({"context_id": context.id, "name": "narrow"})),
        ("index.create", of_index("members", json!(0))),
        ("index.update", of_index("change", json!({"k1": 2.0}))),
        ("index.member.add", of_index("members", json!([id, other]))),
        ("index.member.remove", of_index("member", json!(other))),
        ("index.refresh", json!({"index_id": index, "name": "words"})),
        ("index.delete", json!({"index_id": index, "name": "words"})),
        ("presentation.create", json!({"usetype": "mine"})),
        ("presentation.update", json!({"usetype": "mine"})),
        ("presentation.delete", json!({"usetype": "mine"})),
        ("presentation.reset", json!({"usetype": "markdown"})),
    ];
    assert_eq!(told, expected);
    app.end().await;
}

#[tokio::test]
async fn the_audit_lists_what_goes_with_a_principal() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let one = principals::someone(&app, "one").await;
    let places = [stored(&app, "Place", "A heron.").await, stored(&app, "Place", "A coot.").await];
    principals::grant(&app, &one, places[0], GrantRight::Read).await;
    principals::grant(&app, &one, places[1], GrantRight::Write).await;
    let new = NewWebhook { url: "https://example.org/".to_owned(), kinds: None, root: None };
    let webhook = one.client.create_webhook(Json(new)).await.unwrap().webhook.id;
    app.client.delete_principal(PrincipalPath { id: one.id }).await.unwrap();
    let told = app.client.list_audit(AuditQuery { limit: Some(1), ..AuditQuery::default() }).await.unwrap().entries;
    let expected = json!({
        "grants_total": 2,
        "grants": [{"document_id": places[0], "right": "read"}, {"document_id": places[1], "right": "write"}],
        "tokens_total": 1,
        "tokens": [{"token_id": one.token_id, "name": "test", "prefix": &one.secret[..12]}],
        "webhooks_total": 1,
        "webhooks": [{"webhook_id": webhook, "url": "https://example.org/"}],
    });
    assert_eq!((told[0].act.as_str(), Value::Object(told[0].detail.clone())), ("principal.delete", expected));
    assert_eq!((told[0].principal_id, told[0].principal.as_deref()), (Some(one.id), Some("one")));
    app.client.delete_principal(PrincipalPath { id: one.id }).await.unwrap_err();
    app.end().await;
}

/// Statements are planned with their values; should one ever be planned without, it reads no table for a page either.
#[tokio::test]
async fn the_first_page_of_a_list_scans_no_table_under_a_generic_plan() {
    const LIMIT: u32 = 50;
    let pool = server::new_pool().await;
    let top = add(&pool, None).await;
    // Many children of one document, each with some of its own, and as many at the top.
    for parents in ["SELECT $1::bigint AS parent, 4000 AS count", "SELECT NULL::bigint, 4000 WHERE $1::bigint > 0"] {
        let insert = format!(
            "INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
             SELECT p.parent, CASE WHEN p.parent IS NULL THEN '{{}}' ELSE ARRAY[p.parent] END, 't', 'c', 'markdown', 'sha256:' || n, 0
               FROM ({parents}) p(parent, count), generate_series(1, p.count) n"
        );
        sqlx::query(sqlx::AssertSqlSafe(insert)).bind(top).execute(&pool).await.unwrap();
    }
    sqlx::query(
        "INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
         SELECT d.id, d.path || d.id, 't', 'c', 'markdown', 'sha256:' || n, 0
           FROM documents d, generate_series(1, 3) n WHERE d.parent_id = $1",
    )
    .bind(top)
    .execute(&pool)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE documents").execute(&pool).await.unwrap();
    let someone = someone(&pool).await;
    let scope = Keys::new("owner", None, false).authenticate(&pool, Access::Read, &someone.headers).await.unwrap();
    let (scope, top) = (scope.readable(), DocumentId(top));
    // How often the connection has scanned the table and how many rows it has fetched, with what it has not reported of earlier ones.
    let read = async |conn: &mut PgConnection| -> (i64, i64) {
        let query = "SELECT coalesce(sum(seq_scan), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
                       FROM pg_stat_xact_user_tables WHERE relname = 'documents'";
        sqlx::query_as(query).fetch_one(conn).await.unwrap()
    };
    for list in ["roots", "children", "subtree"] {
        let mut tx = transaction::begin(&pool).await.unwrap();
        sqlx::query("SET LOCAL plan_cache_mode = force_generic_plan").execute(&mut *tx).await.unwrap();
        let before = read(&mut tx).await;
        let listed = match list {
            "roots" => documents::children(&mut tx, &scope, None, None, None, LIMIT).await.unwrap().len(),
            "children" => documents::children(&mut tx, &scope, Some(top), None, None, LIMIT).await.unwrap().len(),
            _ => documents::reading(&mut tx, &scope, top, &[], LIMIT, true).await.unwrap().len(),
        };
        assert_eq!(listed, LIMIT as usize);
        let after = read(&mut tx).await;
        let (scans, fetched) = (after.0 - before.0, after.1 - before.1);
        assert_eq!(scans, 0, "{list}");
        // What is under some documents is read ahead.
        let most = if list == "subtree" { 4 } else { 2 };
        assert!(fetched <= most * i64::from(LIMIT), "a page of {list} reads {fetched} rows");
        tx.rollback().await.unwrap();
    }
}

/// Where most guards have few documents, a plan for any values would go by the guard, and read everything that is open. The first plans of a
/// connection are made with the values, so the later ones count.
#[tokio::test]
async fn a_protection_reads_what_it_closes_and_not_all_that_is_open() {
    const OTHERS: i64 = 10_000;
    let pool = server::new_pool().await;
    let (open, closed) = (add(&pool, None).await, add(&pool, None).await);
    let folder = add(&pool, Some(open)).await;
    for _ in 0..3 {
        add(&pool, Some(folder)).await;
    }
    // Half of the others are open, and each of the rest has a guard of its own.
    for (parent, guard) in [(open, "0"), (closed, "1000000 + n")] {
        let insert = format!(
            "INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
             SELECT $1::bigint, ARRAY[$1::bigint], 't', 'c', 'markdown', 'sha256:' || n, {guard}
               FROM generate_series(1, $2::bigint) n"
        );
        sqlx::query(sqlx::AssertSqlSafe(insert)).bind(parent).bind(OTHERS).execute(&pool).await.unwrap();
    }
    sqlx::raw_sql("ANALYZE documents").execute(&pool).await.unwrap();
    // With what the connection has not reported of earlier transactions.
    let read = async |conn: &mut PgConnection| -> i64 {
        let query = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
                       FROM pg_stat_xact_user_tables WHERE relname = 'documents'";
        sqlx::query_scalar(query).fetch_one(conn).await.unwrap()
    };
    let mut conn = pool.acquire().await.unwrap();
    for round in 0..10 {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await.unwrap();
        let before = read(&mut conn).await;
        assert!(access::protect(&mut conn, DocumentId(folder)).await.unwrap());
        let after = read(&mut conn).await;
        let guards = "SELECT count(*) FROM documents WHERE guard = $1";
        let guarded: i64 = sqlx::query_scalar(guards).bind(folder).fetch_one(&mut *conn).await.unwrap();
        assert_eq!(guarded, 4);
        assert!(after - before < OTHERS / 10, "protection {round} reads {} documents", after - before);
        sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await.unwrap();
    }
}

/// A name is looked for among so many of the latest files; more of others, which are closed, do not hide an older one.
#[tokio::test]
async fn a_file_is_found_by_its_name_behind_however_many_that_are_closed() {
    let pool = server::new_pool().await;
    let files: Vec<i64> = sqlx::query_scalar(
        "WITH made AS (
             INSERT INTO documents (title, content, usetype, content_hash, guard)
             SELECT 'Report', '', 'file', 'sha256:' || n, CASE n WHEN 0 THEN 0 ELSE 7 + n % 100 END
               FROM generate_series(0, 10001) n ORDER BY n RETURNING id)
         INSERT INTO document_blobs (document_id, object, byte_size, content_hash, options)
         SELECT id, 'object ' || id, 1, 'sha256:', '{}' FROM made RETURNING document_id",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let open = files.iter().copied().min().unwrap();
    let named = FileQuery { name: Some("report".to_owned()), ..FileQuery::default() };
    let mut conn = pool.acquire().await.unwrap();
    let mut found = async |scope: Readable| -> Vec<i64> {
        let found = story::files(&mut conn, &scope, &named, DocumentId(i64::MAX), 20_000).await.unwrap();
        found.into_iter().map(|file| file.id).collect()
    };
    assert_eq!(found(Readable::under(&[])).await, [open]);
    let all = found(Readable::everything()).await;
    assert!(all.len() > 10_000 && !all.contains(&open), "{}", all.len());
    // Who reads few does not wait while those of others are looked at.
    sqlx::raw_sql("ANALYZE documents; ANALYZE document_blobs").execute(&mut *conn).await.unwrap();
    let read = async |conn: &mut PgConnection| -> i64 {
        let query = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
                       FROM pg_stat_xact_user_tables WHERE relname IN ('documents', 'document_blobs')";
        sqlx::query_scalar(query).fetch_one(conn).await.unwrap()
    };
    for query in [&named, &FileQuery::default()] {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await.unwrap();
        let before = read(&mut conn).await;
        let found = story::files(&mut conn, &Readable::under(&[]), query, DocumentId(i64::MAX), 50).await.unwrap();
        let after = read(&mut conn).await;
        assert_eq!(found.iter().map(|file| file.id).collect::<Vec<_>>(), [open]);
        assert!(after - before < 100, "{} rows are read for {query:?}", after - before);
        sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await.unwrap();
    }
    // A file goes where its document goes, and is listed by those who may read it there.
    for (guard, are_listed) in [(7_i64, [false, true]), (0, [true, true])] {
        sqlx::query("UPDATE documents SET guard = $1 WHERE id = $2")
            .bind(guard)
            .bind(open)
            .execute(&mut *conn)
            .await
            .unwrap();
        for (scope, is_listed) in
            [Readable::under(&[]), Readable::under(&[DocumentId(7), DocumentId(7)])].into_iter().zip(are_listed)
        {
            let found = story::files(&mut conn, &scope, &named, DocumentId(i64::MAX), 500).await.unwrap();
            assert_eq!(found.iter().filter(|file| file.id == open).count(), usize::from(is_listed), "{guard}");
        }
    }
    // Where all files bore one guard when they were counted, the planner expects no other, and still does not have all of them looked at for another one.
    sqlx::raw_sql("UPDATE documents SET guard = 7; ANALYZE documents; ANALYZE document_blobs")
        .execute(&mut *conn)
        .await
        .unwrap();
    sqlx::query("UPDATE documents SET guard = 0 WHERE id = $1").bind(open).execute(&mut *conn).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut *conn).await.unwrap();
    let before = read(&mut conn).await;
    let scope = Readable::under(&[DocumentId(8)]);
    let found = story::files(&mut conn, &scope, &FileQuery::default(), DocumentId(i64::MAX), 50).await.unwrap();
    let after = read(&mut conn).await;
    assert_eq!(found.iter().map(|file| file.id).collect::<Vec<_>>(), [open]);
    assert!(after - before < 100, "{} rows are read", after - before);
    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await.unwrap();
}
