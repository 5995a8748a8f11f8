//! How containers settle: segments of many children, summaries, and what waits for a language model.
use crate::support::{TestApp, document, invariants, until};
use serde_json::{Value, json};
use svc_client::{
    FileUpload, Json,
    wire::{
        DocumentPath, DocumentResponse, ErrorType, PageQuery, Settled, TaskPath, TaskQuery, TaskStatus, TaskTypePath,
        UploadQuery, VectorSearch, WaitQuery,
    },
};

/// Sentences about three subjects, one subject after the other, each long enough to be a chunk.
pub(crate) fn three_subjects(of_each: usize) -> String {
    let subjects = [
        "The baker kneads bread dough with yeast, flour and water in batch number",
        "The volcano erupts lava, ash and glowing magma from its crater on day",
        "The court ruled that the tenant owes the landlord rent under lease clause",
    ];
    let lines = subjects.iter().flat_map(|subject| (0..of_each).map(move |n| format!("{subject} {n}.\n")));
    lines.collect()
}

pub(crate) async fn upload(app: &TestApp, text: String, options: Value) -> i64 {
    let file = FileUpload::from_bytes("subjects.txt", text, Some(options));
    app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id
}

/// Options by which each sentence is a chunk.
pub(crate) fn one_sentence_each() -> Value {
    json!({"structure": {"max_tokens": 18}})
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

async fn children(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
    let page = PageQuery { limit: Some(1000), ..PageQuery::default() };
    app.client.list_children(DocumentPath { id }, page).await.unwrap().documents
}

fn of_type(name: &str) -> TaskTypePath {
    TaskTypePath { task_type: name.to_owned() }
}

pub(crate) async fn waiting(app: &TestApp, root_id: i64, task_type: &str) -> Option<i64> {
    let query = TaskQuery { root_id: Some(root_id), task_type: Some(task_type.to_owned()), ..TaskQuery::default() };
    app.client.list_tasks(query).await.unwrap().tasks.pop().map(|task| task.id)
}

#[tokio::test]
async fn a_container_with_many_children_is_cut_where_the_subject_changes() {
    let app = TestApp::start().await;
    let text = three_subjects(12);
    let file = upload(&app, text.clone(), one_sentence_each()).await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_total, frontier.nodes_failed), (Settled::Settled, 40, 0));
    let segments = children(&app, file).await;
    let titles: Vec<&str> = segments.iter().map(|segment| segment.title.as_str()).collect();
    assert_eq!(titles, ["Segment 1", "Segment 2", "Segment 3"]);
    let mut read = Vec::new();
    for (segment, word) in segments.iter().zip(["baker", "volcano", "court"]) {
        assert_eq!(
            (segment.usetype.as_str(), segment.settled, &segment.path),
            ("section", Settled::Settled, &vec![file])
        );
        let chunks = children(&app, segment.id).await;
        assert!(chunks.len() == 12 && chunks.iter().all(|chunk| chunk.content.contains(word)), "{word}: {chunks:?}");
        assert!(chunks.iter().all(|chunk| chunk.path == [file, segment.id]), "{chunks:?}");
        read.extend(chunks.into_iter().map(|chunk| chunk.content));
        let evidence = evidence(&app, segment.id).await;
        assert_eq!(evidence["rule"], "structure:semantic");
        assert_eq!(evidence["effective_content"]["source_children"], 12, "{evidence}");
        let [from, to] = [0, 1].map(|end| evidence["anchor"]["characters"][end].as_u64().unwrap() as usize);
        assert!(text[from..to].contains(word) && text[from..to].lines().count() == 12, "{evidence}");
    }
    assert_eq!(read.iter().map(|text| text.trim()).collect::<Vec<_>>(), text.lines().collect::<Vec<_>>());
    let of_file = evidence(&app, file).await;
    assert_eq!(of_file["structure.semantic"], json!({"children": 36, "segments": [3]}));

    // What is found in a segment is found there and under the file, and nowhere else.
    let search = |under| VectorSearch { parent_id: Some(under), ..VectorSearch::new("molten rock") };
    let found = app.client.search_vector(Json(search(segments[1].id))).await.unwrap();
    assert_eq!((found.total, found.results[0].document.parent_id), (12, Some(segments[1].id)));
    assert_eq!(app.client.search_vector(Json(search(file))).await.unwrap().total, 39);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn segments_are_cut_again_while_there_are_too_many_and_options_decide() {
    let app = TestApp::start().await;
    let lines: String = (0..5).map(|_| three_subjects(4)).collect();
    let mut options = one_sentence_each();
    options["rollup"] = json!({"max_children": 6, "penalty": 0.6});
    let file = upload(&app, lines, options).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let counts = evidence(&app, file).await["structure.semantic"]["segments"].clone();
    assert_eq!(counts[0], 15, "{counts}");
    let top = counts.as_array().unwrap().last().unwrap().as_u64().unwrap() as usize;
    assert_eq!(children(&app, file).await.len(), top, "{counts}");
    invariants::check_drained(&app.pool).await;

    // One subject stays one container, and says that somebody looked. Few children are not looked at.
    let same: String = (0..30).map(|n| format!("The baker kneads bread dough for the loaf of oven {n}.\n")).collect();
    let file = upload(&app, same, one_sentence_each()).await;
    app.settled(file).await;
    let of_file = evidence(&app, file).await;
    assert_eq!(of_file.get("structure.semantic"), Some(&Value::Null), "{of_file}");
    assert!(children(&app, file).await.iter().all(|child| child.usetype == "chunk"));
    let few = upload(&app, three_subjects(5), one_sentence_each()).await;
    app.settled(few).await;
    assert_eq!(evidence(&app, few).await.get("structure.semantic"), None);
    assert_eq!(children(&app, few).await.len(), 15);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_hangs_on_a_chunk_moves_with_it_and_its_task_too() {
    let app = TestApp::start().await;
    app.client.pause_task_type(of_type("structure:semantic")).await.unwrap();
    let file = upload(&app, three_subjects(8), one_sentence_each()).await;
    let task = until("the task that cuts", async || waiting(&app, file, "structure:semantic").await).await;
    let chunk = children(&app, file).await.pop().unwrap().id;
    app.client.pause_task_type(of_type("embed")).await.unwrap();
    let note = svc_client::wire::NewDocument { parent_id: Some(chunk), ..document("Note", "A note on the lease.") };
    let note = app.client.create_document(WaitQuery::default(), Json(note)).await.unwrap().document.id;
    app.client.resume_task_type(of_type("structure:semantic")).await.unwrap();
    until("segments", async || (waiting(&app, file, "structure:semantic").await != Some(task)).then_some(())).await;
    let settled = until("the file settles", async || {
        let frontier = app.client.read_frontier(DocumentPath { id: file }).await.unwrap();
        (frontier.settled == Settled::Settled).then_some(frontier)
    });
    assert_eq!(settled.await.nodes_failed, 0);
    invariants::check(&app.pool).await;
    let astray: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM task_queue t JOIN documents d ON d.id = t.scope_document_id
          WHERE NOT t.final AND (t.node_path, t.node_depth) <> (array_to_string(d.path || d.id, '/') || '/', cardinality(d.path))",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(astray, 0, "a task that waits stands where its node is");
    let moved = app.client.read_document(DocumentPath { id: note }, Default::default()).await.unwrap().value().unwrap();
    assert_eq!((moved.path.len(), moved.path[0], moved.path[2]), (3, file, chunk), "{moved:?}");

    // A batch of chunks that is embedded again reserves them where they are now.
    sqlx::query(
        "UPDATE task_queue /* forged */ SET status = 'failed', error_type = 'permanent' WHERE root_id = $1 AND task_type = 'embed' AND final",
    )
    .bind(file)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("UPDATE task_attempts SET outcome = 'lease_lost' WHERE task_type = 'embed'")
        .execute(&app.pool)
        .await
        .unwrap();
    let failed = TaskQuery { status: Some(TaskStatus::Failed), root_id: Some(file), ..TaskQuery::default() };
    let failed = app.client.list_tasks(failed).await.unwrap().tasks;
    let embed = failed.iter().find(|task| task.task_type == "embed").unwrap();
    app.client.retry_task(TaskPath { id: embed.id }).await.unwrap();
    invariants::check(&app.pool).await;
    app.client.resume_task_type(of_type("embed")).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn without_a_language_model_a_long_container_settles_with_the_sum_and_says_so() {
    let app = TestApp::start().await;
    let long: String = (0..300).map(|n| format!("Oven {n} bakes the bread dough of the baker.\n")).collect();
    let file = upload(&app, long, json!({})).await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, &frontier.warnings), (Settled::Settled, 0, &vec![]));
    let of_file = evidence(&app, file).await;
    assert_eq!(of_file["effective_content"], Value::Null);
    let rollup = &of_file["rollup"];
    assert!(rollup["not_summarized"]["reason"].as_str().unwrap().contains("SVC_LLM_BASE_URL"), "{rollup}");
    assert!(rollup["not_concatenated"]["tokens"].as_u64() > rollup["not_concatenated"]["window"].as_u64(), "{rollup}");
    assert_eq!(rollup["embedding"], "weighted sum of the children's vectors");
    let attempts = of_file["attempts"].as_array().unwrap();
    let summary = attempts.iter().find(|attempt| attempt["task_type"] == "summarize:llm").unwrap();
    assert_eq!((&summary["error_type"], &summary["code"]), (&json!("dependency"), &json!("no_language_model")));
    app.sampled().await;
    let queue = app.client.read_readiness().await.unwrap().queue.unwrap();
    assert_eq!((queue.failed, queue.not_configured), (0, 1), "what lacks a model did not go wrong: {queue:?}");
    let found = VectorSearch { limit: 100, ..VectorSearch::new("baking bread") };
    let found = app.client.search_vector(Json(found)).await.unwrap();
    assert!(found.results.iter().any(|result| result.document.id == file), "{found:?}");

    // Once there is a model, the operator asks for the summary again; nothing else is done again.
    let failed = TaskQuery { status: Some(TaskStatus::Failed), root_id: Some(file), ..TaskQuery::default() };
    let task = app.client.list_tasks(failed).await.unwrap().tasks.pop().unwrap();
    assert_eq!((task.task_type.as_str(), task.error_type), ("summarize:llm", Some(ErrorType::Dependency)));
    app.client.retry_task(TaskPath { id: task.id }).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let again = evidence(&app, file).await["attempts"].as_array().unwrap().len();
    assert_eq!(again, attempts.len() + 1);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// What a rollup made of each container of a file, by its title.
async fn made(app: &TestApp, file: i64) -> Vec<(String, String, Value, Value, String, f32)> {
    sqlx::query_as(
        "SELECT d.title, d.settled, e.value, r.value, v.embed::text, v.weight
           FROM documents d JOIN ingest_node n ON n.document_id = d.id JOIN document_vectors v ON v.document_id = d.id
           JOIN node_evidence e ON e.document_id = d.id AND e.name = 'effective_content'
           JOIN node_evidence r ON r.document_id = d.id AND r.name = 'rollup'
          WHERE n.root_id = $1 ORDER BY cardinality(d.path), d.title",
    )
    .bind(file)
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

/// How often a task of a type ended at a file.
async fn ended(app: &TestApp, file: i64, task_type: &str) -> usize {
    let evidence = evidence(app, file).await;
    let attempts = evidence["attempts"].as_array().unwrap();
    attempts.iter().filter(|attempt| attempt["task_type"] == task_type && attempt["outcome"] == "completed").count()
}

#[tokio::test]
async fn one_task_rolls_up_all_levels_of_a_file_or_the_lowest_while_somebody_settles() {
    let app = TestApp::start().await;
    let text = "# Book\n\n## Bread\n\n### Dough\n\nThe baker kneads dough.\n\n### Oven\n\nThe oven is hot.\n\n\
                ## Lava\n\n### Ash\n\nThe volcano erupts ash.\n\nIt rains down.\n";
    let new = async || {
        let upload = FileUpload::from_bytes("book.md", text, None);
        app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id
    };
    let nobody_settles = async |file| {
        let settles = "SELECT EXISTS (SELECT 1 FROM settle_event WHERE root_id = $1)
                           OR EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 7376 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
        until("the settler to end", async || {
            waiting(&app, file, "summarize").await?;
            let settles: bool = sqlx::query_scalar(settles).bind(file).fetch_one(&app.pool).await.unwrap();
            (!settles).then_some(())
        })
        .await;
    };
    app.client.pause_task_type(of_type("summarize")).await.unwrap();
    let file = new().await;
    nobody_settles(file).await;
    app.client.resume_task_type(of_type("summarize")).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(ended(&app, file, "summarize").await, 1);
    let together = made(&app, file).await;
    let titles: Vec<&str> = together.iter().map(|(title, ..)| title.as_str()).collect();
    assert_eq!(titles, ["book.md", "Book", "Bread", "Lava", "Ash", "Dough", "Oven"]);
    for (title, settled, effective, ..) in &together {
        assert_eq!((settled.as_str(), &effective["method"]), ("settled", &json!("concatenated")), "{title}");
    }
    assert_eq!(together[2].2["source_children"], 3, "a heading and two sections");
    invariants::check_drained(&app.pool).await;
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();

    // The same file, while somebody settles under it.
    app.client.pause_task_type(of_type("summarize")).await.unwrap();
    let file = new().await;
    nobody_settles(file).await;
    let mut settler = app.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(7376, hashint8($1))").bind(file).execute(&mut *settler).await.unwrap();
    app.client.resume_task_type(of_type("summarize")).await.unwrap();
    until("the rollup to end", async || (ended(&app, file, "summarize").await == 1).then_some(())).await;
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM ingest_node WHERE root_id = $1 AND rollup <> 'done'")
        .bind(file)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(open, 4, "only the lowest level was rolled up");
    settler.rollback().await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(ended(&app, file, "summarize").await, 2);
    assert_eq!(made(&app, file).await, together);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
