//! What a principal may read and change: guards beside the naive definition, the lock that keeps a node from being born open, and what
//! each operation answers to whom.
use crate::support::{TestApp, Wish, document, invariants, sample, server, until};
use serde_json::Map;
use sqlx::PgPool;
use std::collections::{BTreeMap, BTreeSet};
use svc::{
    access::Caller,
    registry::InProcess,
    store::{
        access,
        documents::{self, NewRow},
        scope::{Readable, Writable},
        transaction,
    },
};
use svc_client::{
    Access, Client, Code, FileUpload, Json, OPERATIONS, OptionalJson,
    wire::{
        Bm25Search, CellsQuery, DocumentPath, EmbedOptions, EmbedQuery, PageQuery, PriorityChange, Settled,
        UploadQuery, WaitQuery,
    },
};
use svc_ids::DocumentId;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A tree and its rights, by their definition: a grant on a root reaches what is under it, whatever other roots lie between.
#[derive(Default)]
struct Naive {
    path: BTreeMap<i64, Vec<i64>>,
    roots: BTreeSet<i64>,
    grants: BTreeMap<i64, bool>,
}

impl Naive {
    fn line(&self, id: i64) -> Vec<i64> {
        self.path[&id].iter().copied().chain([id]).collect()
    }

    fn guard(&self, id: i64) -> i64 {
        self.line(id).into_iter().rev().find(|id| self.roots.contains(id)).unwrap_or(0)
    }

    fn may(&self, id: i64, write: bool) -> bool {
        let line = self.line(id);
        let granted = line.iter().any(|id| self.grants.get(id).is_some_and(|can_write| *can_write || !write));
        granted || (!write && line.iter().all(|id| !self.roots.contains(id)))
    }
}

const PRINCIPAL: i64 = 7;

async fn add(pool: &PgPool, parent: Option<(i64, Vec<i64>)>) -> i64 {
    let path = parent.clone().map_or(Vec::new(), |(id, path)| path.into_iter().chain([id]).collect());
    let row = NewRow {
        parent_id: parent.map(|(id, _)| DocumentId(id)),
        path: &path,
        title: "t",
        content: "c",
        structured_content: &Map::new(),
        usetype: "markdown",
        position: None,
        event_time: None,
        content_hash: "sha256:",
        settled: Settled::Settled,
    };
    let mut tx = transaction::begin_creating(pool).await.unwrap();
    let id = documents::insert(&mut tx, &row).await.unwrap();
    tx.commit().await.unwrap();
    id.0
}

async fn compare(pool: &PgPool, naive: &Naive) {
    let mut conn = pool.acquire().await.unwrap();
    let guards: BTreeMap<i64, i64> =
        sqlx::query_as("SELECT id, guard FROM documents").fetch_all(&mut *conn).await.unwrap().into_iter().collect();
    let expected: BTreeMap<i64, i64> = naive.path.keys().map(|id| (*id, naive.guard(*id))).collect();
    assert_eq!(guards, expected);
    let caller = Caller::principal(&access::guards(&mut conn, PRINCIPAL).await.unwrap());
    let ids: Vec<i64> = naive.path.keys().copied().collect();
    let all: Vec<DocumentId> = ids.iter().copied().map(DocumentId).collect();
    let shown = documents::sizes(&mut conn, &caller.readable(), &all).await.unwrap();
    let shown: BTreeSet<i64> = shown.into_iter().map(|row| row.id.0).collect();
    assert_eq!(shown, ids.iter().copied().filter(|id| naive.may(*id, false)).collect());
    for id in &ids {
        let may = documents::is_writable(&mut conn, &caller.writable(), DocumentId(*id)).await.unwrap();
        assert_eq!(may, naive.may(*id, true), "writing {id}");
    }
    assert_eq!(documents::sizes(&mut conn, &Readable::everything(), &all).await.unwrap().len(), ids.len());
    assert!(documents::sizes(&mut conn, &Readable::default(), &all).await.unwrap().is_empty());
    assert!(ids.first().is_none_or(|_| !Writable::default().is_everything()));
}

#[tokio::test]
async fn guards_and_rights_are_those_of_the_definition_in_random_trees() {
    for seed in 1..=6 {
        let (pool, mut random, mut naive) = (server::new_pool().await, Random(seed * 7919), Naive::default());
        for _ in 0..60 {
            let ids: Vec<i64> = naive.path.keys().copied().collect();
            let any = (!ids.is_empty()).then(|| ids[random.below(ids.len())]);
            match (random.below(10), any) {
                (0..=3, parent) | (4.., parent @ None) => {
                    let parent = parent.filter(|_| random.below(8) > 0).map(|id| (id, naive.path[&id].clone()));
                    let id = add(&pool, parent.clone()).await;
                    naive
                        .path
                        .insert(id, parent.map_or(Vec::new(), |(id, path)| path.into_iter().chain([id]).collect()));
                }
                (4 | 5, Some(id)) => {
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    assert_eq!(access::protect(&mut tx, id).await.unwrap(), naive.roots.insert(id));
                    tx.commit().await.unwrap();
                }
                (6, Some(id)) => {
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    assert_eq!(access::unprotect(&mut tx, id).await.unwrap(), naive.roots.remove(&id));
                    tx.commit().await.unwrap();
                    naive.grants.remove(&id);
                }
                (7 | 8, Some(_)) => {
                    let roots: Vec<i64> = naive.roots.iter().copied().collect();
                    if !roots.is_empty() {
                        let (root, can_write) = (roots[random.below(roots.len())], random.below(2) == 0);
                        let mut conn = pool.acquire().await.unwrap();
                        access::grant(&mut conn, PRINCIPAL, root, can_write).await.unwrap();
                        naive.grants.insert(root, can_write);
                    }
                }
                (_, Some(id)) if random.below(3) == 0 => {
                    let mut conn = pool.acquire().await.unwrap();
                    let gone: BTreeSet<i64> = documents::delete_subtree(&mut conn, DocumentId(id))
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
            compare(&pool, &naive).await;
        }
        invariants::check(&pool).await;
    }
}

/// Were the lock missing, the child would bear the guard of before, and everybody could read it.
#[tokio::test]
async fn a_node_that_is_created_while_its_parent_is_protected_is_guarded() {
    let pool = server::new_pool().await;
    let parent = add(&pool, None).await;
    let mut creating = transaction::begin_creating(&pool).await.unwrap();
    let place =
        documents::lock_parent(&mut creating, &Writable::everything(), DocumentId(parent)).await.unwrap().unwrap();
    let protecting = tokio::spawn({
        let pool = pool.clone();
        async move {
            let mut tx = transaction::begin(&pool).await.unwrap();
            access::protect(&mut tx, parent).await.unwrap();
            tx.commit().await.unwrap();
        }
    });
    let waits = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    until("the protection to wait for the creation", async || {
        sqlx::query_scalar::<_, bool>(waits).fetch_one(&pool).await.unwrap().then_some(())
    })
    .await;
    let path = place.children_path();
    let row = NewRow {
        parent_id: Some(DocumentId(parent)),
        path: &path,
        title: "t",
        content: "c",
        structured_content: &Map::new(),
        usetype: "markdown",
        position: None,
        event_time: None,
        content_hash: "sha256:",
        settled: Settled::Settled,
    };
    let child = documents::insert(&mut creating, &row).await.unwrap();
    creating.commit().await.unwrap();
    protecting.await.unwrap();
    let guard: i64 =
        sqlx::query_scalar("SELECT guard FROM documents WHERE id = $1").bind(child).fetch_one(&pool).await.unwrap();
    assert_eq!(guard, parent);
}

/// The code that an operation on this document answers with, where it refuses.
async fn answer(client: &Client<InProcess>, name: &str, id: i64) -> Option<Code> {
    let path = DocumentPath { id };
    let under = |mut new: svc_client::wire::NewDocument| {
        new.parent_id = Some(id);
        new
    };
    let result: Result<(), svc_client::Failure> = match name {
        "upload_file" => {
            let query = UploadQuery { parent_id: Some(id), ..UploadQuery::default() };
            let file = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
            client.upload_file(query, file).await.map(drop)
        }
        "read_frontier" => client.read_frontier(path).await.map(drop),
        "cancel_ingest" => client.cancel_ingest(path).await.map(drop),
        "change_priority" => client.change_priority(path, Json(PriorityChange { priority: 1 })).await.map(drop),
        "create_document" => {
            client.create_document(WaitQuery::default(), Json(under(document("t", "c")))).await.map(drop)
        }
        "read_document" => client.read_document(path, EmbedQuery::default()).await.map(drop),
        "delete_document" => client.delete_document(path).await.map(drop),
        "list_children" => client.list_children(path, PageQuery::default()).await.map(drop),
        "list_subtree" => client.list_subtree(path, PageQuery::default()).await.map(drop),
        "list_links" => client.list_links(path, PageQuery::default()).await.map(drop),
        "read_bytes" => client.read_bytes(path).await.map(drop),
        "read_evidence" => client.read_evidence(path).await.map(drop),
        "read_cells" => client.read_cells(path, CellsQuery::default()).await.map(drop),
        "embed_document" => client.embed_document(path, EmbedOptions::default(), OptionalJson(None)).await.map(drop),
        "embed_tokens" => client.embed_tokens(path).await.map(drop),
        _ => panic!("say what {name} answers to a caller who may not"),
    };
    result.err().map(|failure| failure.code)
}

#[tokio::test]
async fn an_operation_answers_404_to_who_may_not_read_and_403_to_who_may_not_write() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let mut private = document("Private", "A text that not everybody reads.");
    private.private = true;
    let id = app.client.create_document(WaitQuery::default(), Json(private)).await.unwrap().id;
    let open = document("Open", "A text that everybody reads.");
    let open = app.client.create_document(WaitQuery::default(), Json(open)).await.unwrap().id;
    let client = |caller: Caller| Client(InProcess { service: app.service.clone(), caller });
    let mut conn = app.pool.acquire().await.unwrap();
    access::grant(&mut conn, PRINCIPAL, id, false).await.unwrap();
    let reader = client(Caller::principal(&access::guards(&mut conn, PRINCIPAL).await.unwrap()));
    access::grant(&mut conn, PRINCIPAL, id, true).await.unwrap();
    let writer = client(Caller::principal(&access::guards(&mut conn, PRINCIPAL).await.unwrap()));
    drop(conn);
    let stranger = client(Caller::principal(&[]));
    // Those that name one document, in the path or, to put something under it, elsewhere.
    let of_one = |row: &&svc_client::OperationInfo| {
        matches!(row.access, Access::Read | Access::Write) && (row.path.contains("{id}") || row.access == Access::Write)
    };
    for row in OPERATIONS.iter().filter(of_one) {
        assert_eq!(answer(&stranger, row.name, id).await, Some(Code::NotFound), "{} to a stranger", row.name);
        let to_reader = answer(&reader, row.name, id).await;
        let to_all = answer(&stranger, row.name, open).await;
        if row.access == Access::Write {
            assert_eq!(to_reader, Some(Code::Forbidden), "{} to who may only read", row.name);
            assert_eq!(to_all, Some(Code::Forbidden), "{} on what is open to all", row.name);
        } else {
            // A document that has no bytes answers 404 to its owner too.
            let to_owner = answer(&app.in_process, row.name, id).await;
            assert_eq!((to_reader, to_all), (to_owner, to_owner), "{}", row.name);
        }
    }
    // What is the owner's alone is no principal's, nor is the top of the tree.
    assert_eq!(writer.list_workers().await.unwrap_err().code, Code::Forbidden);
    let at_top = writer.create_document(WaitQuery::default(), Json(document("t", "c"))).await.unwrap_err();
    assert_eq!(at_top.code, Code::Forbidden);
    // A search shows what may be read, and a writer writes.
    app.client.delete_document(DocumentPath { id: open }).await.unwrap();
    assert_eq!(answer(&writer, "create_document", id).await, None);
    assert_eq!(answer(&writer, "upload_file", id).await, None);
    let total = |page: svc_client::wire::DocumentPage| page.documents.len();
    assert_eq!(total(reader.list_children(DocumentPath { id }, PageQuery::default()).await.unwrap()), 2);
    assert_eq!(total(stranger.list_roots(PageQuery::default()).await.unwrap()), 0);
    assert_eq!(total(reader.list_roots(PageQuery::default()).await.unwrap()), 1);
    let found = stranger.search_bm25(Json(Bm25Search::new("text"))).await.unwrap();
    assert_eq!(found.results.len(), 0);
    assert_eq!(answer(&writer, "delete_document", id).await, None);
    app.end().await;
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
