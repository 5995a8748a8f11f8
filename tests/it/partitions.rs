//! The vectors in parts by the root of a document, and under indexes of bits: searches find what they found before, whatever is killed on the
//! way there and back.
mod bits;

use crate::{
    admin::run,
    crash::{Process, url},
    edits::{patch, patched},
    support::{self, TestApp, Wish, invariants, sample, searches::ask, server, statements::counted, until},
};
use serde_json::json;
use sqlx::AssertSqlSafe;
use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};
use svc::store::{
    reindex::{self, Step, Wanted},
    scope::Readable,
    search::{Eligible, not_held, read_not_held},
    transaction::{begin_audit, begin_search},
    vectors::{self, Index, LOOKED_AT, Layout, Plans, Stored},
};
use svc_client::{
    OptionalJson,
    wire::{DocumentPath, ReprocessRequest, TaskTypePath},
};
use svc_ids::DocumentId;
use tokio::sync::Notify;

const QUERIES: [&str; 3] = ["how long may I be on holiday", "birds that wait in the water", "why the sea rises"];

/// Wishes whose batches are small, so that there are several.
fn wanted(parts: usize, index: Index) -> Wanted {
    Wanted { parts, index, batch: 4, sample: 20, least_recall: 0.95 }
}

/// A file and trees of documents, some of which have something under them. Returns the roots.
async fn filled(app: &TestApp) -> Vec<i64> {
    let mut roots = vec![app.ingest(&sample("handbook.md")).await.0];
    for (title, content) in [
        ("Herons", "A heron waits in the shallows."),
        ("Tides", "The moon pulls the oceans, and the water rises."),
        ("Coots", "A coot dives for weeds."),
        ("Bread", "Yeast eats the sugar in the dough."),
        ("Ice", "A glacier is a river of ice."),
    ] {
        let root = app.create(title, content, None).await.id;
        app.create(title, &format!("More of it: {content}"), Some(root)).await;
        roots.push(root);
    }
    app.index_vectors().await;
    roots
}

/// What searches find, in the whole store and under each of these.
async fn answers(app: &TestApp, roots: &[i64]) -> Vec<Vec<i64>> {
    let mut answers = Vec::new();
    for query in QUERIES {
        for root in roots.iter().copied().map(Some).chain([None]) {
            for method in ["vector", "hybrid"] {
                let body = json!({"query": query, "parent_id": root, "group_by": "none", "limit": 20});
                let found = ask(&app.client, method, &body).await.unwrap();
                answers.push(found.results.iter().map(|result| result.document.id).collect());
            }
        }
    }
    answers
}

/// A hash of each vector, by its document.
async fn stored(app: &TestApp) -> BTreeMap<i64, String> {
    let rows: Vec<(i64, String)> =
        sqlx::query_as("SELECT document_id, md5(embed_model || embed::text || weight::text) FROM document_vectors")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    let vectors: BTreeMap<i64, String> = rows.iter().cloned().collect();
    assert_eq!(rows.len(), vectors.len(), "a document has one vector");
    vectors
}

async fn parts(app: &TestApp) -> usize {
    vectors::parts(&mut app.pool.acquire().await.unwrap()).await.unwrap()
}

/// What is left of a move that ended or was given up: the tables of vectors beside their own, and the trigger.
async fn left(app: &TestApp) -> i64 {
    sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM pg_class WHERE relname IN ('document_vectors_next', 'document_vectors_old'))
                + (SELECT count(*) FROM pg_trigger WHERE tgname = 'mirror_vector')",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap()
}

/// The names of the HNSW indexes of the whole table.
async fn indexes(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
          WHERE i.indrelid = 'document_vectors'::regclass AND a.amname = 'hnsw' AND i.indisvalid ORDER BY 1",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

async fn reindexed(app: &TestApp, wanted: &Wanted) -> Vec<Step> {
    let mut steps = Vec::new();
    reindex::vectors(&app.pool, wanted, |step| steps.push(step)).await.unwrap();
    steps
}

/// Stops a move after so many steps, in the middle of what comes next; says whether it came to its end before.
async fn stopped_after(app: &TestApp, wanted: &Wanted, mut steps: usize) -> bool {
    let stop = Notify::new();
    let tell = |_: Step| {
        steps = steps.saturating_sub(1);
        if steps == 0 {
            stop.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = stop.notified() => false,
        done = reindex::vectors(&app.pool, wanted, tell) => {
            done.unwrap();
            true
        }
    }
}

/// Stops a move once everything is copied, when it begins to build an index.
async fn stopped_at_building(app: &TestApp, wanted: &Wanted) {
    let stop = Notify::new();
    let tell = |step: Step| {
        if matches!(step, Step::Building { .. }) {
            stop.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = stop.notified() => {}
        done = reindex::vectors(&app.pool, wanted, tell) => panic!("it built no index: {done:?}"),
    }
}

/// What is written while vectors are on their way: a document is made, moved into another tree, edited and deleted, and a tree is moved.
async fn written(app: &TestApp, roots: &[i64]) {
    let id = app.create("Loons", "A loon calls at night.", Some(roots[1])).await.id;
    patched(app, id, json!({"parent_id": roots[2]})).await;
    patched(app, id, json!({"content": "A loon is silent by day."})).await;
    until("no task to hold it", async || app.client.delete_document(DocumentPath { id }).await.ok()).await;
    patched(app, roots[3], json!({"parent_id": roots[4]})).await;
    patched(app, roots[3], json!({"parent_id": null})).await;
}

/// A program of the service with these settings, on the database of a test.
fn program(app: &TestApp, settings: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["--config", "/dev/null", "reindex"])
        .args(arguments)
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", server::work_dir().join("data"))
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_parts_finds_what_it_found_in_one_table_while_everybody_writes() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    for count in [4, 3, 1] {
        let (before, vectors) = (answers(&app, &roots).await, stored(&app).await);
        let wish = wanted(count, Index::Halves);
        let (steps, ()) = tokio::join!(reindexed(&app, &wish), written(&app, &roots));
        assert!(steps.contains(&Step::Exchanged { parts: count }), "{steps:?}");
        assert_eq!((parts(&app).await, left(&app).await), (count, 0));
        assert_eq!(stored(&app).await, vectors, "in {count} parts");
        assert_eq!(answers(&app, &roots).await, before, "in {count} parts");
        assert_eq!(indexes(&app).await.len(), 1);
        invariants::check(&app.pool).await;
        // What is written later comes to its part too, also what a reprocess builds, whether its file is moved meanwhile or not.
        written(&app, &roots).await;
        let request = ReprocessRequest { options: Some(json!({"structure": {"max_tokens": 60}})), replace: false };
        app.client.reprocess_file(DocumentPath { id: roots[0] }, OptionalJson(Some(request))).await.unwrap();
        let moved = patch(&app, roots[0], json!({"parent_id": roots[5]})).await;
        until("the reprocess to end", async || {
            let left: i64 = sqlx::query_scalar("SELECT count(*) FROM generations").fetch_one(&app.pool).await.unwrap();
            (left == 0).then_some(())
        })
        .await;
        invariants::check_drained(&app.pool).await;
        if moved.is_ok() {
            patched(&app, roots[0], json!({"parent_id": null})).await;
        }
        assert!(reindexed(&app, &wish).await.is_empty(), "there is nothing left to do");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scoped_search_reads_one_part_and_others_merge_the_indexes_of_all() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    reindexed(&app, &wanted(4, Index::Halves)).await;
    let info = support::engine().info().clone();
    let vector = support::engine().embed_query("birds that wait in the water".to_owned()).await.unwrap();
    let query = Stored::new(&info.identity, info.native_width, &vector);
    let everything = Eligible { scope: Readable::everything(), ..Eligible::default() };
    let scoped = Eligible { parent_id: Some(DocumentId(roots[1])), ..everything.clone() };
    let counted =
        "SELECT max(n) / sum(n) FROM (SELECT count(*)::float8 AS n FROM document_vectors GROUP BY tableoid) p";
    let largest: f64 = sqlx::query_scalar(counted).fetch_one(&app.pool).await.unwrap();
    for (eligible, read) in [(&everything, 4), (&scoped, 1)] {
        let mut tx = begin_search(&app.pool).await.unwrap();
        // In a store that is as small as this one, whole tables are read as fast.
        sqlx::raw_sql("SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off").execute(&mut *tx).await.unwrap();
        let scans = "SELECT coalesce(sum(pg_stat_get_xact_numscans(c.oid)), 0)::bigint FROM pg_class c JOIN pg_am a ON a.oid = c.relam
                      WHERE a.amname = 'hnsw' AND c.relkind = 'i'";
        let before: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
        let layout = vectors::layout(&mut tx, eligible, &query).await.unwrap();
        assert!((layout.largest - largest).abs() < 0.01 && largest > 0.25, "{} and {largest}", layout.largest);
        let expected = Layout { parts: 4, largest: layout.largest, root: eligible.parent_id, ..Layout::default() };
        assert_eq!(layout, expected);
        let near = vectors::approximate(&mut tx, eligible, &query, 5, 20, LOOKED_AT, &layout).await.unwrap();
        let scanned: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(scanned - before, read, "the index of each part that is read gives its nearest");
        let touched: i64 = sqlx::query_scalar(
            "SELECT count(DISTINCT l.relation) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
              WHERE l.pid = pg_backend_pid() AND c.relname ~ '^document_vectors_4_[0-9]$'",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        assert_eq!(touched, read, "the planner leaves out the other parts");
        let exact = vectors::exact(&mut tx, eligible, &query, 5, i64::MAX, &layout).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        assert!(!near.is_empty() && near == exact.ranked, "{near:?} {exact:?}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_leg_does_not_have_is_told_in_parts_as_in_one_table_and_by_any_name() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    let bare = DocumentId(app.subtree(roots[1]).await[0].id);
    let unknown = DocumentId(i64::MAX);
    let mut near: Vec<DocumentId> = roots[1..].iter().copied().map(DocumentId).collect();
    near.extend([bare, unknown]);
    let worded = near.clone();
    let info = support::engine().info().clone();
    let vector = support::engine().embed_query("birds that wait in the water".to_owned()).await.unwrap();
    let query = Stored::new(&info.identity, info.native_width, &vector);
    let everything = Eligible { scope: Readable::everything(), ..Eligible::default() };
    sqlx::query("DELETE FROM document_vectors WHERE document_id = $1").bind(bare).execute(&app.pool).await.unwrap();
    let hostile = "default'; DELETE FROM documents; SELECT '\\";
    let sorted = |mut ids: Vec<DocumentId>| {
        ids.sort_unstable();
        ids
    };
    for count in [1, 4] {
        if count > 1 {
            reindexed(&app, &wanted(count, Index::Halves)).await;
        }
        for (index, without) in [("default", vec![unknown]), (hostile, near.clone())] {
            for (model, lack) in [(info.identity.as_str(), vec![bare]), (hostile, worded[..worded.len() - 1].to_vec())]
            {
                let (mut tx, layout) =
                    vectors::begin(&app.pool, &everything, &query, LOOKED_AT, Plans::Anew).await.unwrap();
                assert_eq!((layout.parts, layout.set), (if count > 1 { 4 } else { 0 }, Some(LOOKED_AT)));
                let looked_at: (String, String) = sqlx::query_as(
                    "SELECT current_setting('hnsw.ef_search'), current_setting('transaction_isolation')",
                )
                .fetch_one(&mut *tx)
                .await
                .unwrap();
                assert_eq!((looked_at.0.as_str(), looked_at.1.as_str()), ("200", "repeatable read"));
                let statement = not_held((&near, index), (&worded, model), &layout);
                let rows = tx.commit_after_all(&[statement]).await.unwrap().pop().unwrap();
                let (by_words, by_vectors) = read_not_held(&rows).unwrap();
                let told = (sorted(by_words), sorted(by_vectors));
                assert_eq!(told, (sorted(without.clone()), sorted(lack)), "{index} {model} {count}");
                // A search that ranks words again begins another transaction, which has to know of the parts too.
                let (tx, layout) = vectors::begin_looking_up(&app.pool).await.unwrap();
                assert_eq!(layout.parts, if count > 1 { 4 } else { 0 });
                let statement = not_held((&near, index), (&worded, model), &layout);
                let rows = tx.commit_after_all(&[statement]).await.unwrap().pop().unwrap();
                let (by_words, by_vectors) = read_not_held(&rows).unwrap();
                assert_eq!((sorted(by_words), sorted(by_vectors)), told, "{index} {model} {count}");
            }
        }
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_of_vectors_that_is_stopped_at_any_step_loses_none_and_goes_on() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    let (before, vectors) = (answers(&app, &roots).await, stored(&app).await);
    for parts_wanted in [3, 1] {
        let wanted = wanted(parts_wanted, Index::Halves);
        let mut stops = 0;
        for steps in 1.. {
            let has_ended = stopped_after(&app, &wanted, steps).await;
            assert_eq!(answers(&app, &roots).await, before, "after a stop in step {steps}");
            written(&app, &roots).await;
            let now = stored(&app).await;
            assert!(vectors.iter().all(|(id, hash)| now.get(id) == Some(hash)), "a vector is lost in step {steps}");
            invariants::check(&app.pool).await;
            if has_ended {
                break;
            }
            stops += 1;
        }
        assert!(stops > 1 && parts(&app).await == parts_wanted && left(&app).await == 0, "{stops}");
    }
    // What was begun in another form is given up.
    assert!(!stopped_after(&app, &wanted(3, Index::Halves), 1).await);
    assert_eq!((parts(&app).await, left(&app).await), (1, 2));
    reindexed(&app, &wanted(2, Index::Halves)).await;
    assert_eq!((parts(&app).await, left(&app).await), (2, 0));
    assert!(!stopped_after(&app, &wanted(5, Index::Halves), 1).await);
    reindexed(&app, &wanted(2, Index::Halves)).await;
    assert_eq!((parts(&app).await, left(&app).await), (2, 0));
    assert_eq!(answers(&app, &roots).await, before);
    app.end().await;
}

/// Who moves a document waits for each look, and whoever creates one waits behind that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_of_vectors_that_goes_on_looks_at_no_more_than_a_batch_at_a_time() {
    let app = TestApp::start().await;
    filled(&app).await;
    let vectors = stored(&app).await.len();
    let wish = Wanted { batch: 1, ..wanted(8, Index::Halves) };
    stopped_at_building(&app, &wish).await;
    let ((), statements) = counted(stopped_at_building(&app, &wish)).await;
    // Each look is a transaction of its own.
    assert!(vectors > 12 && statements >= 3 * vectors, "{statements} statements for {vectors} vectors");
    reindexed(&app, &wish).await;
    assert_eq!((parts(&app).await, left(&app).await, stored(&app).await.len()), (8, 0, vectors));
    app.end().await;
}

/// A summary replaces the vector that a part of the new tree has already, and the file may have come into another tree in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reprocess_ends_although_its_file_is_moved_between_two_writes_of_a_vector() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    reindexed(&app, &wanted(4, Index::Halves)).await;
    let (file, elsewhere) = (roots[0], roots[1]);
    // Its chunks are embedded, and it does not come to its end.
    let rollups = || TaskTypePath { task_type: "summarize".to_owned() };
    app.client.pause_task_type(rollups()).await.unwrap();
    let request = ReprocessRequest { options: Some(json!({"structure": {"max_tokens": 60}})), replace: false };
    app.client.reprocess_file(DocumentPath { id: file }, OptionalJson(Some(request))).await.unwrap();
    until("vectors of the new tree", async || {
        let (made, embedding): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM document_vectors v JOIN documents d ON d.id = v.document_id JOIN generations g ON g.generation_id = d.path[1]),
                    (SELECT count(*) FROM task_queue WHERE task_type = 'embed' AND NOT final)",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        (made > 0 && embedding == 0).then_some(())
    })
    .await;
    patched(&app, file, json!({"parent_id": elsewhere})).await;
    let again = sqlx::query(
        "INSERT INTO document_vectors (document_id, embed_model, embed, weight, root_id)
         SELECT v.document_id, v.embed_model, v.embed, v.weight, vector_root('document_vectors', v.document_id)
           FROM document_vectors v JOIN documents d ON d.id = v.document_id JOIN generations g ON g.generation_id = d.path[1]
         ON CONFLICT (document_id, embed_model, root_id) DO UPDATE SET embed = excluded.embed",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    assert!(again.rows_affected() > 0);
    stored(&app).await;
    app.client.resume_task_type(rollups()).await.unwrap();
    until("the reprocess to end", async || {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM generations").fetch_one(&app.pool).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
    stored(&app).await;
    invariants::check(&app.pool).await;
    let body = json!({"query": QUERIES[0], "parent_id": elsewhere, "group_by": "none", "limit": 20});
    until("its parts to be found in the other tree", async || {
        let found = ask(&app.client, "vector", &body).await.unwrap();
        let found: Vec<i64> = found.results.iter().map(|result| result.document.id).collect();
        let of_file = "SELECT count(*) FROM documents WHERE id = ANY($1) AND path @> ARRAY[$2::bigint]";
        let of_file: i64 = sqlx::query_scalar(of_file).bind(&found).bind(file).fetch_one(&app.pool).await.unwrap();
        (of_file > 0).then_some(())
    })
    .await;
    app.end().await;
}

/// What was copied after the snapshot of a reader is invisible to it in the next table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_snapshot_is_older_than_the_exchange_sees_all_vectors() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (title, content, usetype, content_hash, guard)
             SELECT 'Leaf', 'Leaf', 'note', 'x', 0 FROM generate_series(1, 9) RETURNING id)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight) SELECT id, 'm@1', '[1, 0]'::halfvec, 1 FROM made",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    for (count, is_audit) in [(3, true), (1, false)] {
        let reader = match is_audit {
            true => begin_audit(&app.pool).await,
            false => begin_search(&app.pool).await,
        };
        let mut reader = reader.unwrap();
        let reads = async {
            until("the exchange", async || {
                let waits: bool = sqlx::query_scalar(
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                                     AND query LIKE '%LOCK TABLE document_vectors IN ACCESS EXCLUSIVE MODE%')",
                )
                .fetch_one(&app.pool)
                .await
                .unwrap();
                (waits || parts(&app).await == count).then_some(())
            })
            .await;
            let seen =
                sqlx::query_scalar::<_, i64>("SELECT count(*) FROM document_vectors").fetch_one(&mut *reader).await;
            assert_eq!(seen.unwrap(), 9, "before there are {count} parts");
            reader.commit().await.unwrap();
        };
        let wish = wanted(count, Index::Halves);
        tokio::join!(reindexed(&app, &wish), reads);
        assert_eq!((parts(&app).await, left(&app).await), (count, 0));
        // While an index is there, its copy is built before the exchange, and waits for all older snapshots.
        for index in indexes(&app).await {
            sqlx::raw_sql(AssertSqlSafe(format!("DROP INDEX {index}"))).execute(&app.pool).await.unwrap();
        }
    }
    sqlx::query("DELETE FROM documents").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_somebody_makes_while_the_parts_change_is_there_afterwards() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    let (before, mut is_first) = (answers(&app, &roots).await, true);
    let tell = |step: Step| {
        if matches!(step, Step::Building { .. }) && std::mem::take(&mut is_first) {
            let make = "CREATE INDEX document_vectors_16_0123456789ab ON document_vectors USING hnsw ((embed::halfvec(16)) halfvec_cosine_ops)
                        WHERE embed_model = 'other@1'";
            let made = sqlx::raw_sql(make).execute(&app.pool);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(made)).unwrap();
        }
    };
    reindex::vectors(&app.pool, &wanted(3, Index::Halves), tell).await.unwrap();
    assert_eq!((parts(&app).await, left(&app).await), (3, 0));
    let indexes = indexes(&app).await;
    assert!(indexes.len() == 2 && indexes.iter().any(|index| index.starts_with("document_vectors_16_")), "{indexes:?}");
    assert_eq!(answers(&app, &roots).await, before);
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_reindex_is_ended_by_the_next_one() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    let (before, vectors) = (answers(&app, &roots).await, stored(&app).await);
    let settings = [("SVC_VECTOR_PARTITIONS", "3")];
    assert!(!stopped_after(&app, &wanted(3, Index::Halves), 1).await);
    // Somebody holds a vector that is not copied yet.
    let mut holder = app.pool.begin().await.unwrap();
    sqlx::raw_sql("UPDATE document_vectors SET weight = weight WHERE document_id = (SELECT max(document_id) FROM document_vectors)")
        .execute(&mut *holder)
        .await
        .unwrap();
    let mover = Process(program(&app, &settings, &["--vectors"]).spawn().unwrap());
    support::until_a_statement_like_this_waits(&app.pool, "WITH looked_at%").await;
    mover.kill();
    holder.rollback().await.unwrap();
    assert_eq!(answers(&app, &roots).await, before);
    let done = run(program(&app, &settings, &["--vectors"])).await;
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.lines().last().unwrap().contains("\"done\""), "{done:?}");
    assert_eq!((parts(&app).await, left(&app).await, stored(&app).await), (3, 0, vectors));
    assert_eq!(answers(&app, &roots).await, before);
    let lacking = run(program(&app, &settings, &[])).await;
    assert!(String::from_utf8_lossy(&lacking.stderr).contains("--vectors"), "{lacking:?}");
    // Whoever means 95 % learns it before an index is built for hours.
    let percent = run(program(&app, &settings, &["--vectors", "--least-recall", "95"])).await;
    let said = String::from_utf8_lossy(&percent.stderr);
    assert!(!percent.status.success() && said.contains("from 0 to 1"), "{percent:?}");
    app.end().await;
}
