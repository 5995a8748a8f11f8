//! Changes of documents: what is found of a new text, whose change wins, and what a part of a file takes.
mod again;

use crate::{
    principals::{grant, someone},
    support::{TOKEN, TestApp, Wish, document, http, invariants, refusing_soon, sample, until},
};
use serde_json::{Value, json};
use svc_client::{
    Code, Failure, FileUpload, Json, Meta, Version,
    wire::{
        Bm25Search, DocumentChange, DocumentPath, DocumentResponse, EmbedQuery, FulltextSearch, GrantRight,
        MaxsimSearch, PiecesQuery, SearchResponse, Settled, SplitRequest, TaskPath, TaskTypePath, UpdatedDocument,
        UploadQuery, VectorSearch, WaitQuery,
    },
};

pub fn change(fields: Value) -> Json<DocumentChange> {
    Json(serde_json::from_value(fields).unwrap())
}

pub async fn patch(app: &TestApp, id: i64, fields: Value) -> Result<Version<UpdatedDocument>, Failure> {
    app.client.update_document(DocumentPath { id }, WaitQuery::default(), change(fields)).await
}

/// Changes a document as soon as no task holds it.
pub async fn patched(app: &TestApp, id: i64, fields: Value) -> Version<UpdatedDocument> {
    until("no task to hold the document", async || match patch(app, id, fields.clone()).await {
        Err(failure) if failure.code == Code::Conflict => None,
        answer => Some(answer.unwrap()),
    })
    .await
}

pub async fn get(app: &TestApp, id: i64) -> DocumentResponse {
    app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap().value().unwrap()
}

fn found(response: &SearchResponse) -> Vec<i64> {
    response.results.iter().map(|result| result.document.id).collect()
}

async fn by_words(app: &TestApp, query: &str) -> (Vec<i64>, Vec<i64>) {
    let fulltext = app.client.search_fulltext(Json(FulltextSearch::new(query))).await.unwrap();
    let bm25 = app.client.search_bm25(Json(Bm25Search::new(query))).await.unwrap();
    (found(&fulltext), found(&bm25))
}

async fn by_meaning(app: &TestApp, query: &str) -> Vec<i64> {
    found(&app.client.search_vector(Json(VectorSearch::new(query))).await.unwrap())
}

/// How many rows of each derived table a document has.
async fn derived(app: &TestApp, id: i64) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in ["document_vectors", "token_packs", "search_index_entries", "document_words"] {
        let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table} WHERE document_id = {id}"));
        counts.push(sqlx::query_scalar(query).fetch_one(&app.pool).await.unwrap());
    }
    counts
}

#[tokio::test]
async fn the_vectors_of_an_old_text_are_gone_with_it_and_the_new_text_is_found_once_it_is_embedded() {
    let app = TestApp::start().await;
    let id = app.create("Tides", "The moon pulls the oceans along the coast.", None).await.id;
    app.client.embed_tokens(DocumentPath { id }).await.unwrap();
    assert_eq!(derived(&app, id).await, [1, 1, 1, 1]);
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let text = "Yeast fills the dough with bubbles of gas.";
    let version = patch(&app, id, json!({"title": "Bread", "content": text})).await.unwrap();
    let document = &version.value.document;
    assert_eq!((document.title.as_str(), document.content.as_str()), ("Bread", text));
    assert_eq!(document.content_hash, svc::store::documents::content_hash(text));
    assert_eq!((document.settled, document.updated_at > document.created_at), (Settled::Settled, true));
    assert_eq!(derived(&app, id).await, [0, 0, 0, 1], "what was made of the old text is gone");
    assert_eq!(by_meaning(&app, "the moon and the sea").await, [0; 0]);
    assert_eq!(by_words(&app, "oceans").await, (vec![], vec![]));
    assert_eq!(
        by_words(&app, "yeast").await,
        (vec![id], vec![]),
        "words are found at once, postings come with the vector"
    );
    let state = app.client.search_bm25(Json(Bm25Search::new("yeast"))).await.unwrap().scope_state;
    assert_eq!((state.in_flight, state.failed), (1, 0), "a search says what it waits for");
    // Another change waits for the same task.
    patch(&app, id, json!({"content": "Sourdough needs no yeast from a shop."})).await.unwrap();
    let tasks = "SELECT count(*) FROM task_queue WHERE scope_document_id = $1 AND NOT final";
    assert_eq!(sqlx::query_scalar::<_, i64>(tasks).bind(id).fetch_one(&app.pool).await.unwrap(), 1);
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    until("the new text to be embedded", async || (by_meaning(&app, "baking").await == [id]).then_some(())).await;
    assert_eq!(by_words(&app, "sourdough").await, (vec![id], vec![id]));
    assert_eq!(derived(&app, id).await, [1, 1, 1, 1], "it had token vectors, and has them again");
    let maxsim = app.client.search_maxsim(Json(MaxsimSearch::new("sourdough"))).await.unwrap();
    assert!(maxsim.results[0].document.id == id && !maxsim.results[0].no_tokens);
    let waited = app
        .client
        .update_document(
            DocumentPath { id },
            WaitQuery { wait: true, include_embed: true },
            change(json!({"content": "A glacier is a river of ice."})),
        )
        .await
        .unwrap();
    assert!(waited.value.document.embed.is_some() && waited.value.warnings.is_empty());
    assert_eq!(by_words(&app, "glacier").await, (vec![id], vec![id]));
    let long: String = (0..300).map(|n| format!("word{n} and more words here ")).collect();
    let waited = app
        .client
        .update_document(
            DocumentPath { id },
            WaitQuery { wait: true, include_embed: true },
            change(json!({"content": long})),
        )
        .await
        .unwrap();
    assert!(waited.value.document.embed.is_some() && waited.value.warnings.is_empty(), "it has windows");
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert!(evidence["embed"]["windows"].as_u64() > Some(1), "{evidence:?}");
    patched(&app, id, json!({"content": "Short again."})).await;
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert!(!evidence.contains_key("embed"), "it went with the long text: {evidence:?}");
    app.end().await;
}

#[tokio::test]
async fn an_absent_field_stays_and_null_clears_what_can_be_empty() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let new = json!({"title": "t", "content": "c", "position": 4, "event_time": "2021-02-03T04:05:06Z", "structured_content": {"a": 1}});
    let new = serde_json::from_value(new).unwrap();
    let before = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document;
    let id = before.id;
    let same = json!({"title": "t", "content": "c", "position": 4, "structured_content": {"a": 1}, "parent_id": null});
    for nothing in [json!({}), same] {
        let after = patch(&app, id, nothing).await.unwrap().value.document;
        assert_eq!(serde_json::to_value(&after).unwrap(), serde_json::to_value(&before).unwrap());
    }
    let after =
        patch(&app, id, json!({"usetype": "raw", "structured_content": {"b": [2]}})).await.unwrap().value.document;
    assert_eq!((after.usetype.as_str(), after.position, after.event_time), ("raw", Some(4), before.event_time));
    assert_eq!(serde_json::to_value(&after.structured_content).unwrap(), json!({"b": [2]}));
    let after = patch(&app, id, json!({"position": null, "event_time": null})).await.unwrap().value.document;
    assert_eq!((after.position, after.event_time, after.content.as_str()), (None, None, "c"));
    for (body, field) in [
        (json!({"title": null}), "title"),
        (json!({"content": null}), "content"),
        (json!({"usetype": null}), "usetype"),
        (json!({"structured_content": null}), "structured_content"),
        (json!({"title": ""}), "title"),
        (json!({"settled": "failed"}), "settled"),
        (json!({"position": "first"}), "position"),
    ] {
        let answer = app.raw("PATCH", &format!("/documents/{id}")).json(&body).send().await.unwrap();
        let (status, problem) = (answer.status(), answer.json::<Value>().await.unwrap());
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(field), "{body}: {problem}");
    }
    assert_eq!(patch(&app, 424_242, json!({"title": "x"})).await.unwrap_err().code, Code::NotFound);
    let fields: Vec<Value> =
        sqlx::query_scalar("SELECT data -> 'fields' FROM event_outbox WHERE kind = 'document.updated' ORDER BY id")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    assert_eq!(fields, [json!(["structured_content", "usetype"]), json!(["position", "event_time"])]);
    app.end().await;
}

#[tokio::test]
async fn of_changes_to_the_same_version_one_wins() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("t", "c"))).await.unwrap().id;
    let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    let given = |etag: &str| app.client.given(Meta { if_match: Some(etag.to_owned()), ..Meta::default() });
    let guarded = async |etag: &str, title: &str| {
        given(etag).update_document(DocumentPath { id }, WaitQuery::default(), change(json!({"title": title}))).await
    };
    let etag = read.etag().to_owned();
    let (one, two, three) = tokio::join!(guarded(&etag, "one"), guarded(&etag, "two"), guarded(&etag, "three"));
    let (won, lost): (Vec<_>, Vec<_>) = [one, two, three].into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 2));
    for refused in lost {
        let refused = refused.unwrap_err();
        assert_eq!((refused.code, refused.status), (Code::PreconditionFailed, 412));
    }
    let winner = won.into_iter().next().unwrap().unwrap();
    let now = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    assert_eq!(now.etag(), winner.etag, "the answer has the version that a reader gets");
    assert_eq!(now.value().unwrap().title, winner.value.title);
    assert_eq!(guarded(&etag, "late").await.unwrap_err().code, Code::PreconditionFailed);
    assert_eq!(guarded(&format!("W/{}", winner.etag), "weak").await.unwrap_err().code, Code::PreconditionFailed);
    let list = format!("{etag}, {}", winner.etag);
    assert_eq!(guarded(&list, "named among others").await.unwrap().value.title, "named among others");
    let shown = app.client.read_document(DocumentPath { id }, EmbedQuery { include_embed: true }).await.unwrap();
    assert_eq!(guarded(shown.etag(), "as read with its vector").await.unwrap().value.title, "as read with its vector");
    assert_eq!(guarded("*", "any").await.unwrap().value.title, "any");
    // A delete takes nothing that the caller has not seen.
    let refused = given(shown.etag()).delete_document(DocumentPath { id }).await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::PreconditionFailed, 412));
    let now = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    given(now.etag()).delete_document(DocumentPath { id }).await.unwrap();
    assert_eq!(guarded("*", "gone").await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_text_of_a_chunk_rolls_its_file_up_again() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let before = get(&app, file).await;
    let nodes = app.subtree(file).await;
    let chunk = nodes.iter().filter(|node| node.usetype == "chunk").max_by_key(|node| node.path.len()).unwrap();
    let section = chunk.parent_id.unwrap();
    assert_ne!(section, file);
    let vectors = async || -> Vec<String> {
        let vectors = "SELECT embed::text FROM document_vectors WHERE document_id = ANY($1) ORDER BY document_id";
        sqlx::query_scalar(vectors).bind([file, section, chunk.id]).fetch_all(&app.pool).await.unwrap()
    };
    let old = vectors().await;
    assert_eq!(old.len(), 3);
    // The file remembers parts that failed and were tried again since.
    sqlx::query("INSERT INTO node_evidence (document_id, name, value) VALUES ($1, 'failed_parts', '{\"nodes\": 1}')")
        .bind(file)
        .execute(&app.pool)
        .await
        .unwrap();
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let text = "Every zeppelin is weighed before the mooring mast is lowered.";
    let answer = patched(&app, chunk.id, json!({"content": text})).await.value.document;
    assert_eq!((answer.settled, get(&app, section).await.settled), (Settled::InFlight, Settled::InFlight));
    let frontier = app.client.read_frontier(DocumentPath { id: file }).await.unwrap();
    assert!(frontier.settled == Settled::InFlight && frontier.nodes_in_flight >= 3, "{frontier:?}");
    // What is in flight is not found, so no vector of the old text is either.
    assert!(!by_meaning(&app, &chunk.content.chars().take(200).collect::<String>()).await.contains(&section));
    invariants::check(&app.pool).await;
    patched(&app, chunk.id, json!({"content": format!("{text} Twice.")})).await;
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert_eq!(frontier.warnings, Vec::<String>::new(), "nothing is failed any more");
    assert_eq!(frontier.nodes_total, 1 + nodes.len() as i64);
    let new = vectors().await;
    assert!(new.len() == 3 && new.iter().zip(&old).all(|(new, old)| new != old), "each container has a new vector");
    assert_eq!(by_words(&app, "zeppelin").await.1, [chunk.id]);
    let after = get(&app, file).await;
    assert_eq!(after.content_hash, before.content_hash, "the hash of a file is that of its bytes");
    assert_eq!(get(&app, chunk.id).await.content_hash, svc::store::documents::content_hash(&format!("{text} Twice.")));

    // A title of a container is searched by its words, and what is under it is embedded anew with it.
    let renamed = patched(&app, section, json!({"title": "Mooring of airships"})).await.value.document;
    assert_eq!(renamed.settled, Settled::Settled);
    assert_eq!(by_words(&app, "airships").await.0, [section]);
    let is_found = async || by_words(&app, "airships").await.1.contains(&chunk.id).then_some(());
    until("the chunk to be found by the title above it", is_found).await;
    assert!(vectors().await.iter().zip(&new).all(|(renamed, new)| renamed != new), "and so are its containers");
    for (id, fields, field) in [
        (section, json!({"content": "A text of its own"}), "content"),
        (file, json!({"content": "A text of its own"}), "content"),
        (file, json!({"usetype": "markdown"}), "usetype"),
        (chunk.id, json!({"usetype": "markdown"}), "usetype"),
        (chunk.id, json!({"parent_id": null}), "parent_id"),
        (section, json!({"parent_id": file}), "parent_id"),
    ] {
        let answer = patch(&app, id, fields.clone()).await;
        let is_there_already = get(&app, id).await.parent_id == fields["parent_id"].as_i64();
        match answer {
            Ok(_) => assert!(field == "parent_id" && is_there_already, "{fields}"),
            Err(refused) => {
                assert_eq!((refused.code, refused.members["field"].as_str()), (Code::InvalidField, Some(field)));
                assert!(refused.members.contains_key("remedy"), "{refused}");
            }
        }
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Deletes a document as soon as no task holds it.
async fn deleted(app: &TestApp, id: i64) {
    until("no task to hold the document", async || match app.client.delete_document(DocumentPath { id }).await {
        Err(failure) if failure.code == Code::Conflict => None,
        answer => answer.map(Some).unwrap(),
    })
    .await;
}

/// A file with a section on penguins among others, that section and its chunks.
async fn file_with_penguins(app: &TestApp) -> (i64, i64, Vec<i64>) {
    let penguins = "The penguin colony on the ice shelf feeds krill and fish to its chicks in the polar winter. ";
    let zebras = "The zebra and the giraffe drink at the waterhole while lions sleep in the shade of acacias. ";
    let text = format!("# Notes\n\n## Animals\n\n{}\n\n## Birds\n\n{}\n", zebras.repeat(8), penguins.repeat(8));
    let options = json!({"structure": {"max_tokens": 60}});
    let upload = FileUpload::from_bytes("animals.md", text, Some(options));
    let file = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    app.settled(file).await;
    let nodes = app.subtree(file).await;
    let section = nodes.iter().find(|node| node.title == "Birds").unwrap().id;
    let chunks: Vec<i64> = nodes.iter().filter(|node| node.parent_id == Some(section)).map(|node| node.id).collect();
    assert!(chunks.len() > 2, "{nodes:?}");
    (file, section, chunks)
}

async fn evidence(app: &TestApp, id: i64, name: &str) -> Option<Value> {
    sqlx::query_scalar("SELECT value FROM node_evidence WHERE document_id = $1 AND name = $2")
        .bind(id)
        .bind(name)
        .fetch_optional(&app.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_delete_takes_out_of_a_file_is_gone_from_the_containers_above() {
    let app = TestApp::start().await;
    let (file, section, chunks) = file_with_penguins(&app).await;
    let query = "penguins feeding krill to chicks in Antarctica";
    assert!(by_meaning(&app, query).await.contains(&section));
    let weights = async |id: i64| -> Option<f32> {
        sqlx::query_scalar("SELECT weight FROM document_vectors WHERE document_id = $1")
            .bind(id)
            .fetch_optional(&app.pool)
            .await
            .unwrap()
    };
    let (of_section, of_file) = (weights(section).await.unwrap(), weights(file).await.unwrap());
    deleted(&app, chunks[0]).await;
    app.settled(file).await;
    assert!(weights(section).await.unwrap() < of_section && weights(file).await.unwrap() < of_file);
    let text = evidence(&app, section, "effective_content").await.unwrap();
    assert_eq!(text["source_children"], chunks.len() - 1);
    invariants::check_drained(&app.pool).await;

    for chunk in &chunks[1..] {
        deleted(&app, *chunk).await;
    }
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert_eq!((weights(section).await, get(&app, section).await.settled), (None, Settled::Settled));
    assert!(!by_meaning(&app, query).await.contains(&section), "nothing of the section is left to be found");
    assert_eq!(evidence(&app, section, "effective_content").await, Some(Value::Null));
    assert_eq!(evidence(&app, section, "rollup").await, None);
    invariants::check_drained(&app.pool).await;

    let above = get(&app, section).await.parent_id.unwrap();
    let total = frontier.nodes_total;
    deleted(&app, above).await;
    let frontier = app.settled(file).await;
    assert!(frontier.nodes_total < total && frontier.settled == Settled::Settled, "{frontier:?}");
    assert_eq!(weights(file).await, None);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_whose_last_chunk_goes_while_it_waits_to_be_embedded_has_no_vector() {
    let app = TestApp::start().await;
    let (file, section, chunks) = file_with_penguins(&app).await;
    for chunk in &chunks[1..] {
        deleted(&app, *chunk).await;
    }
    app.settled(file).await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    patched(&app, chunks[0], json!({"content": "Penguins eat krill."})).await;
    deleted(&app, chunks[0]).await;
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_in_flight), (Settled::Settled, 0));
    assert_eq!(derived(&app, section).await[0], 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// The worker of the task has died. The delete ends the task, and the file counts neither the part that failed with it nor what is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_goes_although_a_worker_that_does_not_answer_holds_a_task_there() {
    let app = TestApp::start().await;
    let (file, section, chunks) = file_with_penguins(&app).await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    patched(&app, chunks[0], json!({"content": "Penguins eat krill."})).await;
    let held: i64 = sqlx::query_scalar(
        "SELECT id FROM grant_tasks('dead', ARRAY(SELECT id FROM task_queue WHERE scope_document_id = $1 AND NOT final), '1 hour')",
    )
    .bind(section)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    app.client.delete_document(DocumentPath { id: section }).await.unwrap();
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let frontier = app.settled(file).await;
    assert_eq!(
        (frontier.settled, frontier.nodes_in_flight, frontier.nodes_failed),
        (Settled::Settled, 0, 0),
        "{frontier:?}"
    );
    assert_eq!(evidence(&app, file, "failed_parts").await, None);
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM task_queue WHERE id = $1) + (SELECT count(*) FROM task_reservation WHERE task_id = $1)",
    )
    .bind(held)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(left, 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_failed_is_forgotten_with_its_delete() {
    let app = TestApp::start().await;
    let (file, section, chunks) = file_with_penguins(&app).await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    patched(&app, chunks[0], json!({"content": "Penguins eat krill."})).await;
    app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let frontier = app.settled(file).await;
    assert_eq!(get(&app, chunks[0]).await.settled, Settled::Failed, "{frontier:?}");
    deleted(&app, chunks[0]).await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{frontier:?}");
    assert_eq!(get(&app, section).await.settled, Settled::Settled);
    assert_eq!(evidence(&app, section, "rollup").await.unwrap()["failed_children"], 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_was_to_come_when_a_text_changed_does_not_stand_for_the_new_sum() {
    let app = TestApp::start().await;
    let pause = TaskTypePath { task_type: "summarize:llm".into() };
    app.client.pause_task_type(pause.clone()).await.unwrap();
    let long = "The lighthouse keeper logs wind, tide and every passing sail. ".repeat(100);
    let text = format!("# Log\n\n## Long\n\n{long}\n\n## Short\n\nNothing.\n");
    let file = app.upload_bytes("log.md", text).await.unwrap().document_id;
    let task: i64 = until("a container to wait for its summary", async || {
        sqlx::query_scalar("SELECT id FROM task_queue WHERE root_id = $1 AND task_type = 'summarize:llm'")
            .bind(file)
            .fetch_optional(&app.pool)
            .await
            .unwrap()
    })
    .await;
    let chunk: i64 = sqlx::query_scalar(
        "SELECT d.id FROM documents d JOIN task_queue t ON t.scope_document_id = d.parent_id WHERE t.id = $1 ORDER BY d.id LIMIT 1",
    )
    .bind(task)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    patched(&app, chunk, json!({"content": "Yeast fills the dough with bubbles of gas. ".repeat(30)})).await;
    app.client.resume_task_type(pause).await.unwrap();
    until("the summary to end", async || {
        let ended = "SELECT 1 FROM task_queue WHERE id = $1 AND final";
        sqlx::query_scalar::<_, i32>(ended).bind(task).fetch_optional(&app.pool).await.unwrap()
    })
    .await;
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    app.settled(file).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_edit_of_what_a_task_holds_is_refused_naming_the_holder() {
    let app = TestApp::with(Wish { waits: refusing_soon(), no_worker: true, ..Default::default() }).await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("t", "c"))).await.unwrap().id;
    let other = app.client.create_document(WaitQuery::default(), Json(document("o", "c"))).await.unwrap().id;
    let claimer =
        svc::store::tasks::Claimer { worker_id: "w".into(), badges: None, strict: false, lease: crate::queue::LEASE };
    let grants = svc::store::tasks::claim(&app.pool, &claimer, &[(svc_actors::Lane::Model, 1)]).await.unwrap().grants;
    assert_eq!(grants[0].document_id.0, id);
    for fields in [json!({"content": "new"}), json!({"parent_id": other})] {
        let refused = patch(&app, id, fields).await.unwrap_err();
        assert_eq!((refused.code, refused.members["task_id"].as_i64()), (Code::Conflict, Some(grants[0].task_id.0)));
    }
    // The owner is told which process holds it, and a writer is not.
    assert_eq!(patch(&app, id, json!({"title": "new"})).await.unwrap_err().members["worker"], "w");
    let writer = someone(&app, "writer").await;
    grant(&app, &writer, id, GrantRight::Write).await;
    let refused =
        writer.client.update_document(DocumentPath { id }, WaitQuery::default(), change(json!({"title": "n"})));
    let refused = refused.await.unwrap_err();
    assert_eq!((refused.code, refused.members.get("worker")), (Code::Conflict, None));
    let refused = patch(&app, other, json!({"parent_id": id})).await;
    assert!(refused.is_ok(), "the task holds the document alone, and not what comes under it");
    svc::store::leases::give_back(&app.pool, &[grants[0].token]).await.unwrap();
    patch(&app, id, json!({"content": "new"})).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_number_that_would_be_stored_as_another_one_is_refused() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    for (number, kept) in [
        ("12345678901234567890123", false),
        ("0.1234567890123456789012", false),
        ("18446744073709551615", true),
        ("0.1", true),
    ] {
        let body = format!(r#"{{"title": "t", "content": "c", "structured_content": {{"n": {number}}}}}"#);
        let answer = http()
            .post(format!("{}/documents", app.base))
            .bearer_auth(TOKEN)
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert_eq!((status, text.contains(number)), (if kept { 201 } else { 422 }, true), "{text}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_in_a_cancelled_file_does_not_make_it_pass_for_done() {
    let app = TestApp::start().await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let text = format!("# Notes\n\n{}\n", "The zebra and the giraffe drink at the waterhole. ".repeat(40));
    let upload = FileUpload::from_bytes("zebras.md", text, Some(json!({"structure": {"max_tokens": 60}})));
    let file = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    let chunks = until("the chunks", async || {
        let nodes = app.subtree(file).await;
        let chunks: Vec<i64> = nodes.iter().filter(|node| node.usetype == "chunk").map(|node| node.id).collect();
        (chunks.len() > 3).then_some(chunks)
    })
    .await;
    app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    until("all of it to fail", async || {
        let frontier = app.client.read_frontier(DocumentPath { id: file }).await.unwrap();
        (frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0).then_some(())
    })
    .await;
    deleted(&app, chunks[0]).await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_settled), (Settled::Failed, 0), "{frontier:?}");
    let told: i64 = sqlx::query_scalar("SELECT count(*) FROM event_outbox WHERE kind = 'ingest.settled'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(told, 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// What its caller sent is stored, so that a task that fails or is cancelled is no failure of the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_task_that_is_cancelled_is_warned() {
    let app = TestApp::start().await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let cancel = async || {
        let task: i64 = until("the task to wait", async || {
            sqlx::query_scalar("SELECT id FROM task_queue WHERE task_type = 'embed' AND NOT final")
                .fetch_optional(&app.pool)
                .await
                .unwrap()
        })
        .await;
        app.client.cancel_task(TaskPath { id: task }).await.unwrap();
        format!("embed: failed (task {task} failed or was cancelled; ")
    };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let (created, warning) =
        tokio::join!(app.client.create_document(wait, Json(document("Tides", "The moon."))), cancel());
    let created = created.unwrap();
    assert!(created.warnings.len() == 1 && created.warnings[0].starts_with(&warning), "{:?}", created.warnings);
    let path = DocumentPath { id: created.document.id };
    let (changed, warning) =
        tokio::join!(app.client.update_document(path, wait, change(json!({"content": "The sea."}))), cancel());
    let changed = changed.unwrap().value;
    assert_eq!(changed.document.content, "The sea.");
    assert!(changed.warnings.len() == 1 && changed.warnings[0].starts_with(&warning), "{:?}", changed.warnings);
    let at = SplitRequest { at: Some(vec![4]), by_headings: false, replace: false };
    let (cut, warning) = tokio::join!(app.client.split_document(path, PiecesQuery { wait: true }, Json(at)), cancel());
    let cut = cut.unwrap();
    assert_eq!(cut.created.len(), 2);
    assert!(cut.warnings.len() == 1 && cut.warnings[0].starts_with(&warning), "{:?}", cut.warnings);
    app.end().await;
}
