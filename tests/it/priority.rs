//! What goes first: uploads of a higher priority at every stage, and among equals what is nearly done.
use crate::{
    extraction, queue, summarize,
    support::{TestApp, Wish, document, engine, llm::Llm, until, until_a_statement_waits},
};
use std::collections::{BTreeMap, BTreeSet};
use svc::store::tasks;
use svc_actors::WriteMode;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{
        DocumentPath, PriorityChange, Settled, TaskPath, TaskQuery, TaskStatus, TaskTypePath, UploadQuery, WaitQuery,
    },
};
use svc_ids::{DocumentId, RootId};

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Default::default() }).await
}

async fn upload(app: &TestApp, name: &str, priority: i32) -> i64 {
    let file = FileUpload::from_bytes(name, format!("The gauge {name} was read twice and written down."), None);
    let query = UploadQuery { priority, ..UploadQuery::default() };
    app.client.upload_file(query, file).await.unwrap().document_id
}

async fn bulk(app: &TestApp, files: usize) -> Vec<i64> {
    let mut ids = Vec::with_capacity(files);
    for n in 0..files {
        ids.push(upload(app, &format!("bulk {n}.txt"), 0).await);
    }
    ids
}

/// The files of completed tasks, in the order in which the tasks ended.
async fn completions(app: &TestApp) -> Vec<i64> {
    sqlx::query_scalar(
        "SELECT n.root_id FROM task_attempts a JOIN ingest_node n ON n.document_id = a.document_id WHERE a.outcome = 'completed' ORDER BY a.id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

/// For each file, how many tasks had ended when it was done, including its own last one.
fn done_after(completions: &[i64]) -> BTreeMap<i64, usize> {
    completions.iter().zip(1..).map(|(file, ended)| (*file, ended)).collect()
}

async fn priorities(app: &TestApp, root: i64) -> BTreeMap<String, i32> {
    let query = TaskQuery { root_id: Some(root), ..TaskQuery::default() };
    let tasks = app.client.list_tasks(query).await.unwrap().tasks;
    tasks.into_iter().map(|task| (task.task_type, task.priority)).collect()
}

async fn change(app: &TestApp, id: i64, priority: i32) -> i64 {
    let change = Json(PriorityChange { priority });
    let done = app.client.change_priority(DocumentPath { id }, change).await.unwrap();
    assert_eq!((done.document_id, done.priority), (id, priority));
    done.tasks_changed
}

#[tokio::test]
async fn of_many_files_half_are_done_before_sixty_percent_of_the_work_is() {
    let mut app = idle().await;
    let files = bulk(&app, 80).await;
    app.start_worker().await;
    for id in &files {
        assert_eq!(app.settled(*id).await.settled, Settled::Settled);
    }
    let ended = completions(&app).await;
    let done = done_after(&ended);
    let early = done.values().filter(|after| **after <= ended.len() * 6 / 10).count();
    assert!(early * 2 >= files.len(), "{early} of {} files were done after 60 % of {} tasks", files.len(), ended.len());
    app.end().await;
}

#[tokio::test]
async fn an_urgent_upload_overtakes_a_backlog_at_every_stage_and_an_idle_one_comes_last() {
    let mut app = idle().await;
    let last = upload(&app, "whenever.txt", -100).await;
    let files = bulk(&app, 40).await;
    let urgent = upload(&app, "now.txt", 100).await;
    assert_eq!(app.client.read_frontier(DocumentPath { id: urgent }).await.unwrap().priority, Some(100));
    assert_eq!(priorities(&app, urgent).await["probe"], 1000);
    app.start_worker().await;
    for id in files.iter().chain([&last, &urgent]) {
        app.settled(*id).await;
    }
    let done = done_after(&completions(&app).await);
    let before = |id: i64| files.iter().filter(|file| done[file] < done[&id]).count();
    // Beside it, as many others go on as a worker has permits left.
    let beside = engine().info().threads + 4;
    assert!(before(urgent) <= beside, "{} of 40 files were done before the urgent one", before(urgent));
    // It begins on the permits that the last of the others leave free, and may then end before one of them.
    assert!(
        before(last) + beside >= files.len(),
        "what may wait came before {} of 40 files",
        files.len() - before(last)
    );
    app.end().await;
}

#[tokio::test]
async fn a_change_of_priority_holds_for_what_waits_what_follows_and_what_is_tried_again() {
    let mut app = idle().await;
    let files = bulk(&app, 6).await;
    let raised = files[5];
    assert_eq!(change(&app, raised, 7).await, 1);
    assert_eq!(change(&app, raised, 7).await, 0, "it has it already");
    assert_eq!(priorities(&app, raised).await["probe"], 70);
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    app.start_worker().await;
    let waiting = until("the embed task of the raised file", async || {
        let open = priorities(&app, raised).await;
        (open.keys().eq(["embed"])).then_some(open)
    })
    .await;
    assert_eq!(waiting["embed"], 75, "what follows has the file's priority and a stage of its own");
    assert_eq!(change(&app, raised, -3).await, 1);
    assert_eq!(priorities(&app, raised).await["embed"], -25);

    // The change does not see a task that failed for good, but the task takes the new priority when it comes back.
    app.client.cancel_ingest(DocumentPath { id: raised }).await.unwrap();
    assert_eq!(change(&app, raised, 9).await, 0);
    let failed = TaskQuery { root_id: Some(raised), status: Some(TaskStatus::Failed), ..TaskQuery::default() };
    let task = app.client.list_tasks(failed).await.unwrap().tasks.remove(0);
    assert_eq!((task.task_type.as_str(), task.priority), ("embed", -25));
    assert_eq!(app.client.retry_task(TaskPath { id: task.id }).await.unwrap().priority, 95);
    app.client.resume_task_type(embed()).await.unwrap();
    for id in &files {
        app.settled(*id).await;
    }
    app.end().await;
}

#[tokio::test]
async fn a_task_that_is_queued_during_a_change_of_priority_has_the_new_one() {
    let app = idle().await;
    let file = upload(&app, "one.txt", 0).await;
    let mut conn = app.pool.begin().await.unwrap();
    let follow_up = tasks::NewTask {
        task_type: "extract:text",
        lane: svc_actors::Lane::Cpu,
        document_id: DocumentId(file),
        path: &[],
        root_id: RootId(file),
        write_mode: WriteMode::Itself,
        leaves: None,
        dependencies: &[],
        params: &serde_json::json!({}),
        badge: None,
        priority: 0,
        traceparent: None,
    };
    let id = tasks::enqueue(&mut conn, &follow_up).await.unwrap();
    let changing = tokio::spawn({
        let client = app.in_process.clone();
        async move { client.change_priority(DocumentPath { id: file }, Json(PriorityChange { priority: 4 })).await }
    });
    // The change waits for whoever queues.
    until_a_statement_waits(&app.pool).await;
    conn.commit().await.unwrap();
    assert_eq!(changing.await.unwrap().unwrap().tasks_changed, 2);
    assert_eq!(app.client.read_task(TaskPath { id: id.0 }).await.unwrap().priority, 41);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_priority_is_bounded_and_changed_of_files_alone() {
    let app = idle().await;
    let file = upload(&app, "one.txt", 100).await;
    for wrong in [101, -101, i32::MIN] {
        let query = UploadQuery { priority: wrong, ..UploadQuery::default() };
        let refused = app.client.upload_file(query, FileUpload::from_bytes("x", "x", None)).await.unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains("-100 to 100"), "{refused}");
        let change = Json(PriorityChange { priority: wrong });
        let refused = app.client.change_priority(DocumentPath { id: file }, change).await.unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains("priority"), "{refused}");
    }
    let mut new = document("By itself", "A document that was created and not uploaded.");
    new.priority = 5;
    let created = app.client.create_document(WaitQuery::default(), Json(new.clone())).await.unwrap().id;
    assert_eq!(priorities(&app, created).await["embed"], 55);
    new.priority = 1000;
    assert_eq!(app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap_err().status, 422);
    let change = || Json(PriorityChange { priority: 1 });
    let refused = app.client.change_priority(DocumentPath { id: created }, change()).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    assert_eq!(app.client.change_priority(DocumentPath { id: 999_999 }, change()).await.unwrap_err().status, 404);
    let frontier = app.client.read_frontier(DocumentPath { id: created }).await.unwrap();
    assert_eq!(frontier.priority, None);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    let gone: BTreeSet<i64> = [file, created].into();
    for id in gone {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    app.end().await;
}

/// Of two tasks that have waited for long, one stands back for the other; which one comes first may change.
#[tokio::test]
async fn a_change_of_priority_leaves_no_two_tasks_that_stand_back_for_each_other() {
    let app = idle().await;
    let outer = upload(&app, "outer.txt", 5).await;
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    let root = (outer, Vec::new());
    let inner = queue::node(&app, Some(outer)).await;
    let busy = queue::task(&app, &queue::node(&app, Some(outer)).await, WriteMode::Itself, 90, None).await;
    let held = queue::claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, busy);
    sqlx::query("UPDATE task_queue SET root_id = scope_document_id").execute(&app.pool).await.unwrap();
    // Each has waited for so long that it leaves word: the first one waits for what is held, and the second one for the first.
    let waits = async |node: &(i64, Vec<i64>), mode, priority| {
        let id = queue::task(&app, node, mode, priority, None).await;
        let since = "UPDATE task_queue SET parked_since = now() - interval '1 hour', park_count = 1000, root_id = scope_document_id WHERE id = $1";
        sqlx::query(since).bind(id).execute(&app.pool).await.unwrap();
        assert!(queue::claim(&app, 1).await.is_empty());
        id
    };
    let above = waits(&root, WriteMode::Subtree, 50).await;
    let below = waits(&inner, WriteMode::Itself, 20).await;
    assert_eq!(queue::status(&app, above).await.2, Some(busy));
    assert_eq!(queue::status(&app, below).await.2, Some(above));
    let intents: i64 = sqlx::query_scalar("SELECT count(*) FROM task_intent").fetch_one(&app.pool).await.unwrap();
    assert_eq!(intents, 2);
    assert_eq!(change(&app, outer, -5).await, 1);
    assert!(queue::finish(&app.pool, &held).await);
    let mut ended = Vec::new();
    while let [grant] = &queue::claim(&app, 1).await[..] {
        ended.push(grant.task_id);
        assert!(queue::finish(&app.pool, grant).await);
    }
    assert_eq!(ended, [below, above]);
    // Its own tasks were taken away above.
    app.client.delete_document(DocumentPath { id: outer }).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_by_which_a_file_settles_goes_before_facts_that_were_asked_for_earlier() {
    let llm = Llm::start().await;
    llm.will_say(|_| extraction::facts(&[]));
    let mut app = extraction::app(&llm, &[("SVC_LLM_CONCURRENCY", "1")]).await;
    let of_types = ["extract:facts", "summarize:llm"].map(|name| TaskTypePath { task_type: name.to_owned() });
    for of_type in of_types.clone() {
        app.client.pause_task_type(of_type).await.unwrap();
    }
    let folder = extraction::text(&app, "", None).await;
    for n in 0..5 {
        extraction::text(&app, &format!("The clerk number {n} files the minutes."), Some(folder)).await;
    }
    let extract = app.client.extract_facts(DocumentPath { id: folder }, WaitQuery::default(), OptionalJson(None));
    assert_eq!(extract.await.unwrap().tasks, 5);
    let file = summarize::upload(&app, &summarize::section("", "oven", 80), serde_json::json!({})).await;
    until("the file to wait for its summary", async || {
        (priorities(&app, file).await.keys().eq(["summarize:llm"])).then_some(())
    })
    .await;

    app.stop_worker().await;
    for of_type in of_types {
        app.client.resume_task_type(of_type).await.unwrap();
    }
    app.start_worker().await;
    app.settled(file).await;
    let ended = "SELECT task_type FROM task_attempts WHERE task_type IN ('extract:facts', 'summarize:llm') AND outcome = 'completed' ORDER BY id";
    let ended = until("all to end", async || {
        let ended: Vec<String> = sqlx::query_scalar(ended).fetch_all(&app.pool).await.unwrap();
        (ended.iter().filter(|name| *name == "extract:facts").count() == 5).then_some(ended)
    })
    .await;
    assert_eq!(ended[0], "summarize:llm", "{ended:?}");
    app.end().await;
}
