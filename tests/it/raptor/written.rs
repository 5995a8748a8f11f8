//! Summaries that a language model writes.
use super::{evidence, file, refused, summarise, three_topics};
use crate::{
    edits::patched,
    leaves::drain,
    support::{
        PATIENCE, TOKEN, TestApp, Wish, engine, invariants,
        llm::{Asked, Llm, Reply},
        reader, s3, server, until,
    },
};
use axum::http::{Method, StatusCode};
use serde_json::json;
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use svc::{
    service::Service,
    settings::Settings,
    worker::{Role, RunningWorker},
};
use svc_actors::WorkerEnd;
use svc_client::{
    Code, FileUpload, OptionalJson,
    wire::{
        DocumentPath, DocumentResponse, RaptorRequest, RaptorTree, Settled, TaskPath, TaskQuery, TaskStatus,
        UploadQuery, WaitQuery,
    },
};
use tokio::sync::Notify;

const TOKENS: u32 = 60;

/// Clusters of several leaves whose texts together do not fit a summary.
fn request(by_model: Option<bool>) -> RaptorRequest {
    RaptorRequest { summary_tokens: TOKENS, cluster_tokens: 400, by_model, ..RaptorRequest::default() }
}

async fn app(llm: &Llm) -> TestApp {
    let settings = [("SVC_LLM_BASE_URL", llm.base.as_str()), ("SVC_LLM_MODEL", "asked-model")];
    TestApp::with(Wish { settings: &settings, ..Wish::default() }).await
}

/// Says what a text is about.
fn tell(call: &Asked) -> Reply {
    let about = ["heron", "gauge", "assembly"].into_iter().find(|subject| call.message().contains(subject));
    Reply::said(&format!("In short, this is about the {}.", about.unwrap_or("summaries")))
}

async fn summaries(app: &TestApp, tree: &RaptorTree) -> Vec<DocumentResponse> {
    app.subtree(tree.raptor_id).await.into_iter().filter(|document| document.usetype == "summary").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_language_model_writes_what_does_not_fit_and_is_paid_once() {
    let llm = Llm::start().await;
    llm.will_say(tell);
    let app = app(&llm).await;
    let id = file(&app).await;
    // The file itself was summarised while it was ingested.
    llm.will_say(tell);
    let tree = summarise(&app, id, request(None)).await;
    assert!(tree.by_model > 0 && tree.by_model <= tree.summaries, "{tree:?}");
    let mut written = 0;
    for summary in summaries(&app, &tree).await {
        let how = &evidence(&app, summary.id).await["summary"];
        assert!(how["tokens"].as_u64().unwrap() <= u64::from(TOKENS), "{how}");
        if how["method"] == "llm_summary" {
            assert!(summary.content.starts_with("In short, this is about the "), "{}", summary.content);
            written += 1;
        } else {
            assert_eq!(how["method"], "concatenated", "what does not fit is written: {}", summary.content);
        }
    }
    assert_eq!(written, tree.by_model);
    let asked = llm.asked();
    let messages: BTreeSet<String> = asked.iter().map(|call| of_marks(call.message())).collect();
    assert_eq!((asked.len(), messages.len()), (written, written), "each cluster is asked of once");
    let took = &evidence(&app, tree.raptor_id).await["llm.summarize"];
    assert_eq!(took["calls"], written);
    assert_eq!(took["prompt"], "summarize/1");

    // The same tree again asks nothing that was answered before; without the model nothing is asked at all.
    llm.will_say(|_| panic!("an answer that is kept was asked for again"));
    let again = summarise(&app, id, request(None)).await;
    assert_eq!((again.summaries, again.by_model), (tree.summaries, tree.by_model));
    assert_eq!(evidence(&app, again.raptor_id).await["llm.summarize"]["kept_calls"], written);
    let quoted = summarise(&app, id, request(Some(false))).await;
    assert_eq!(quoted.by_model, 0);
    assert!(!evidence(&app, quoted.raptor_id).await.contains_key("llm.summarize"));
    let texts = summaries(&app, &quoted).await;
    assert!(texts.iter().all(|summary| !summary.content.contains("In short")), "{texts:?}");
    app.end().await;
}

/// A question without the random marks around its text.
fn of_marks(message: &str) -> String {
    let lines: Vec<&str> = message.trim_end().lines().collect();
    lines[3..lines.len() - 1].join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_model_says_nothing_of_use_sentences_stay_and_the_evidence_says_why() {
    let llm = Llm::start().await;
    let long = "The heron goes on and on about the reeds of the lake. ".repeat(200);
    let mut turn = 0;
    llm.will_say(move |_| {
        turn += 1;
        match turn % 3 {
            0 => Reply::said(""),
            1 => Reply::said(&long),
            _ => {
                Reply::status("400 Bad Request", "", "{\"error\": {\"message\": \"maximum context length exceeded\"}}")
            }
        }
    });
    let app = app(&llm).await;
    let id = file(&app).await;
    let tree = summarise(&app, id, request(Some(true))).await;
    let (mut written, mut without) = (0, 0);
    for summary in summaries(&app, &tree).await {
        let how = &evidence(&app, summary.id).await["summary"];
        assert!(how["tokens"].as_u64().unwrap() <= u64::from(TOKENS), "{how}");
        if how["method"] == "llm_summary" {
            assert!(
                summary.content.starts_with("The heron goes on") && summary.content.ends_with("lake."),
                "{summary:?}"
            );
            written += 1;
        } else if how.get("not_written").is_some() {
            assert_eq!(how["method"], "extracted");
            // A summary of summaries quotes those that were written.
            let quotes_leaves = how["level"] == 1;
            assert!(!summary.content.is_empty(), "{summary:?}");
            assert!(!quotes_leaves || !summary.content.contains("goes on and on"), "{summary:?}");
            without += 1;
        }
    }
    assert_eq!(written, tree.by_model);
    assert!(written > 0 && without > 0, "{tree:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_filter_refuses_a_text_its_sentences_stay_and_the_tree_is_made() {
    let llm = Llm::start().await;
    llm.will_say(tell);
    let app = app(&llm).await;
    let id = file(&app).await;
    llm.will([Reply::filtered("")]);
    let tree = summarise(&app, id, request(Some(true))).await;
    assert_eq!(tree.by_model, 0);
    let mut refused = 0;
    for summary in summaries(&app, &tree).await {
        let how = &evidence(&app, summary.id).await["summary"];
        refused += usize::from(how["not_written"].as_str().is_some_and(|why| why.contains("its filter")));
    }
    assert_eq!((refused > 0, refused), (true, llm.asked().len()));
    app.end().await;
}

#[tokio::test]
async fn who_wants_a_language_model_and_has_none_is_refused_and_nothing_is_queued() {
    // No endpoint is named, and there is none to fall back to.
    let app = TestApp::with(Wish { settings: &[("SVC_FALLBACK_LLM_URL", "")], ..Wish::default() }).await;
    let id = file(&app).await;
    let failure = refused(&app, id, request(Some(true))).await;
    assert_eq!(failure.code, Code::NotConfigured, "{failure:?}");
    assert_eq!(failure.members["setting"], "SVC_LLM_BASE_URL");
    let query = TaskQuery { task_type: Some("raptor".to_owned()), ..TaskQuery::default() };
    assert!(app.client.list_tasks(query).await.unwrap().tasks.is_empty());
    let made = app.client.make_raptor(
        DocumentPath { id },
        WaitQuery { wait: true, ..WaitQuery::default() },
        OptionalJson(Some(request(None))),
    );
    assert_eq!(made.await.unwrap().tree.unwrap().by_model, 0);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_what_is_at_the_default_address_is_no_language_model_sentences_stay_and_the_tree_is_made() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.upload_bytes("topics.md", three_topics()).await.unwrap().document_id;
    drain(&app).await;
    // It answers, and knows no such path.
    let questions = Arc::new(AtomicUsize::new(0));
    let counted = questions.clone();
    let elsewhere = axum::Router::new().fallback(move |method: Method| {
        counted.fetch_add(usize::from(method == Method::POST), Ordering::Relaxed);
        async { StatusCode::NOT_FOUND }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, elsewhere).await });
    // Nobody has named an endpoint: the address is a default.
    let data = server::work_dir().join("data").display().to_string();
    let more = [("HOME", "/nonexistent".to_owned()), ("SVC_DATA_DIR", data)];
    let environment = s3::of_all_tests(&app.options).into_iter().chain(more);
    let environment = environment.map(|(name, value)| (name.to_owned(), value));
    let mut settings = Settings::load(Some(Path::new("/dev/null")), environment).unwrap();
    settings.fallback_llm_url = format!("http://{address}/v1");
    let settings = Arc::new(settings);
    let service = Service::new(settings.clone(), app.pool.clone(), Some(engine().into()), TOKEN, reader());

    let asked = OptionalJson(Some(request(None)));
    let task = app.client.make_raptor(DocumentPath { id }, WaitQuery::default(), asked).await.unwrap().task_id;
    let role = Role { drain: true, ..Role::of(&settings) };
    let mut worker = RunningWorker::start(role, service.tools(), app.options.clone()).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, worker.wait()).await.unwrap(), WorkerEnd::Drained);
    worker.stop(Duration::from_secs(10), std::future::pending()).await;
    let task = app.client.read_task(TaskPath { id: task }).await.unwrap();
    assert_eq!(task.status, TaskStatus::Completed, "{:?}", task.last_error);
    let mut left = 0;
    for summary in app.subtree(id).await.into_iter().filter(|document| document.usetype == "summary") {
        let how = &evidence(&app, summary.id).await["summary"];
        assert_ne!(how["method"], "llm_summary");
        left += usize::from(how["not_written"].as_str().is_some_and(|why| why.contains("nobody has named one")));
    }
    assert!(left > 1, "{left} summaries say why nobody wrote them");
    assert_eq!(questions.load(Ordering::Relaxed), 1, "nothing more is asked");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_title_that_changes_while_summaries_are_written_is_in_none_of_them() {
    let llm = Llm::start().await;
    llm.will_say(tell);
    let app = app(&llm).await;
    let folder = app.create("Folder", "", None).await.id;
    let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
    let upload = FileUpload::from_bytes("topics.md", three_topics(), None);
    let id = app.client.upload_file(query, upload).await.unwrap().document_id;
    app.settled(id).await;
    let first = app.subtree(id).await.into_iter().find(|document| document.usetype == "chunk").unwrap();
    let released = Arc::new(Notify::new());
    let mut held = Some(released.clone());
    llm.will_say(move |call| match held.take() {
        Some(released) => tell(call).held(&released),
        None => tell(call),
    });
    let asked = OptionalJson(Some(request(Some(true))));
    let task = app.client.make_raptor(DocumentPath { id: folder }, WaitQuery::default(), asked).await.unwrap().task_id;
    until("the first question", async || (!llm.asked().is_empty()).then_some(())).await;
    patched(&app, first.id, json!({"title": "Another title"})).await;
    released.notify_one();
    let ended = until("the summaries", async || {
        Some(app.client.read_task(TaskPath { id: task }).await.unwrap()).filter(|task| task.finished)
    });
    assert_eq!(ended.await.status, TaskStatus::Completed);
    let made: Vec<DocumentResponse> =
        app.subtree(folder).await.into_iter().filter(|document| document.usetype == "summary").collect();
    assert!(!made.is_empty() && made.iter().all(|summary| summary.title != first.title), "{made:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_that_wait_for_a_language_model_leave_a_place_to_what_is_embedded() {
    let llm = Llm::start().await;
    llm.will_say(tell);
    let app = app(&llm).await;
    // As many as could take all of the places.
    let mut files = Vec::new();
    for n in 0..engine().info().threads + 2 {
        let text = format!("{}# The end of copy {n}\n\nNothing else was seen.\n", three_topics());
        files.push(app.upload_bytes(&format!("topics-{n}.md"), text).await.unwrap().document_id);
    }
    for id in &files {
        app.settled(*id).await;
    }
    llm.will_say(|_| Reply::Hold(Vec::new()));
    for id in &files {
        let asked = OptionalJson(Some(request(Some(true))));
        app.client.make_raptor(DocumentPath { id: *id }, WaitQuery::default(), asked).await.unwrap();
    }
    let tried = "SELECT count(*) FROM task_queue WHERE task_type = 'raptor' AND (claim_token IS NOT NULL OR put_off_code = 'others_are_written')";
    until("each tree to be tried", async || {
        let tried: i64 = sqlx::query_scalar(tried).fetch_one(&app.pool).await.unwrap();
        (tried == files.len() as i64).then_some(())
    })
    .await;
    until("a question", async || llm.asked().pop()).await;
    app.create("Ducks", "A duck dives for weed.", None).await;
    let held = "SELECT count(*) FROM task_queue WHERE task_type = 'raptor' AND claim_token IS NOT NULL";
    let held: i64 = sqlx::query_scalar(held).fetch_one(&app.pool).await.unwrap();
    assert!(held > 0, "the trees still wait");
    for id in files {
        app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
        assert_eq!(app.settled(id).await.settled, Settled::Settled);
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_makes_every_tree_although_fewer_may_be_written_at_once() {
    let llm = Llm::start().await;
    llm.will_say(tell);
    // Beside a worker that goes on, one of its two permits for models would be left to what is embedded.
    let settings =
        [("SVC_LLM_BASE_URL", llm.base.as_str()), ("SVC_LLM_MODEL", "asked-model"), ("SVC_DATABASE_POOL_SIZE", "4")];
    let mut app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let mut files = Vec::new();
    for n in 0..3 {
        let text = format!("{}# The end of copy {n}\n\nNothing else was seen.\n", three_topics());
        files.push(app.upload_bytes(&format!("topics-{n}.md"), text).await.unwrap().document_id);
    }
    for id in &files {
        app.settled(*id).await;
    }
    app.stop_worker().await;
    for id in &files {
        let asked = OptionalJson(Some(request(Some(true))));
        app.client.make_raptor(DocumentPath { id: *id }, WaitQuery::default(), asked).await.unwrap();
    }
    let released = Arc::new(Notify::new());
    let mut held = Some(released.clone());
    llm.will_say(move |call| match held.take() {
        Some(released) => tell(call).held(&released),
        None => tell(call),
    });
    // The first tree is being written while others are tried.
    let others_are_tried = async {
        let tried = "SELECT count(*) FROM task_queue
                      WHERE task_type = 'raptor' AND (claim_token IS NOT NULL OR final OR put_off_code = 'others_are_written')";
        until("another tree to be tried", async || {
            let tried: i64 = sqlx::query_scalar(tried).fetch_one(&app.pool).await.unwrap();
            (tried > 1 && !llm.asked().is_empty()).then_some(())
        })
        .await;
        released.notify_one();
    };
    tokio::join!(drain(&app), others_are_tried);
    let made = "SELECT count(*) FROM task_queue WHERE task_type = 'raptor' AND status = 'completed'";
    let made: i64 = sqlx::query_scalar(made).fetch_one(&app.pool).await.unwrap();
    assert_eq!(made, files.len() as i64);
    app.end().await;
}
