//! What a principal may read and change: guards beside the naive definition, and the lock that keeps a node from being born open.
use crate::support::{TestApp, insert, invariants, place, sample, server, until};
use http::{HeaderMap, header::AUTHORIZATION};
use sqlx::PgPool;
use std::collections::{BTreeMap, BTreeSet};
use svc::{
    access::{Keys, NewSecret},
    store::{
        access, documents, places,
        scope::{Readable, Writable},
        transaction,
    },
};
use svc_client::{
    Access, FileUpload,
    wire::{GrantRight, UploadQuery},
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
            match (random.below(10), any) {
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
                (_, Some(id)) if random.below(3) == 0 => {
                    let mut conn = pool.acquire().await.unwrap();
                    let place = place(&mut conn, id).await;
                    let gone: BTreeSet<i64> = documents::delete_subtrees(&mut conn, &[place])
                        .await
                        .unwrap()
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
