//! What callers bound to parts of a file, and what they asked for of these, when another tree takes its place.
use super::*;
use crate::{
    extraction, ontologies, shape_bindings,
    support::llm::{Llm, Reply},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use svc_client::wire::{
    BlockedBy, ContextConfig, ContextPath, ExtractFactsRequest, MergeQuery, NewContext, NewMerge, NewWebhook,
    OntologyQuery, SearchFilter, ShapeBindingPath, ShapeMode,
};
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shape_that_was_bound_to_a_part_guards_its_successor_and_one_without_is_listed() {
    let app = TestApp::start().await;
    ontologies::load(&app.client, OntologyQuery::default(), shape_bindings::SHAPES).await.unwrap();
    let id = ingested(&app, None).await;
    let tree = app.subtree(id).await;
    let (section, chunk) = (of(&tree, "section", "Herons")[0], of(&tree, "chunk", "Herons")[0]);
    let shape = "http://example.org/PersonShape";
    let bound = shape_bindings::bind(&app.client, shape, Some(section), Some(ShapeMode::Reject)).await.unwrap();
    let lost = shape_bindings::bind(&app.client, shape, Some(chunk), None).await.unwrap();
    reprocess(&app, id, short(), false).await.unwrap();
    app.settled(id).await;

    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    let read = async |id: i64| app.client.read_shape_binding(ShapeBindingPath { id }).await;
    let now = read(bound.id).await.unwrap();
    assert_eq!((now.document_id, now.mode), (Some(section), ShapeMode::Reject));
    assert_eq!(read(lost.id).await.unwrap_err().code, Code::NotFound);
    let told = evidence(&app, id, "reprocess").await;
    assert_eq!((&told["bindings_followed"], &told["bindings_lost"]), (&json!(1), &json!(1)));
    let listed = &told["lost_bindings"][0];
    assert_eq!(
        (&listed["binding_id"], &listed["document_id"], &listed["shape"], &listed["mode"]),
        (&json!(lost.id), &json!(chunk), &json!(shape), &json!("warn"))
    );
    // Who may read the file is told nothing of an ontology that it may not read.
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, id, GrantRight::Read).await;
    app.client.protect_document(DocumentPath { id: lost.ontology_id }).await.unwrap();
    let shown = reader.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(shown["reprocess"]["lost_bindings"], json!([]));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_for_a_part_is_taken_for_its_successor_and_a_merge_without_one_is_listed() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    let tree = app.subtree(id).await;
    let (section, chunk) = (of(&tree, "section", "Herons")[0], of(&tree, "chunk", "Herons")[0]);
    triples::predicate(&app, "haunts").await;
    let heron = app.create("Heron", "A bird.", None).await.id;
    let bird = app.create("Bird", "An animal.", None).await.id;
    let reeds = app.create("Reeds", "A plant.", None).await.id;
    app.client.assert_fact(Json(triples::fact(section, "haunts", reeds))).await.unwrap();
    let merge = async |kept_id: i64, merged_id: i64| {
        app.client.merge_entities(Json(NewMerge { kept_id, merged_id })).await.unwrap().id
    };
    let (followed, lost) = (merge(heron, section).await, merge(bird, chunk).await);
    let remark = NewDocument { parent_id: Some(section), private: true, ..document("A remark", "Herons, for few.") };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.create_document(wait, Json(remark)).await.unwrap();
    reprocess(&app, id, short(), false).await.unwrap();
    let nodes = app.settled(id).await.nodes_total;

    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    let merges = app.client.list_merges(MergeQuery::default()).await.unwrap().merges;
    let merges: Vec<_> = merges.iter().map(|merge| (merge.id, merge.kept_id, merge.merged_id)).collect();
    assert_eq!(merges, [(followed, heron, section)]);
    let query = FactQuery { subject_id: Some(heron), ..FactQuery::default() };
    let facts = app.client.list_facts(query).await.unwrap().facts;
    let facts: Vec<_> = facts.iter().map(|fact| (fact.subject_id, fact.stated_subject_id, fact.object_id)).collect();
    assert_eq!(facts, [(heron, Some(section), Some(reeds))]);
    let told = evidence(&app, id, "reprocess").await;
    assert_eq!((&told["merges_followed"], &told["merges_lost"]), (&json!(1), &json!(1)));
    assert_eq!(told["lost_merges"], json!([{"merge_id": lost, "kept_id": bird, "merged_id": chunk}]));
    // Everybody may read the file, and is told nothing of what is closed in it.
    let event = "SELECT data FROM event_outbox WHERE document_id = $1 AND kind = 'ingest.reprocessed'";
    let event: Value = sqlx::query_scalar(event).bind(id).fetch_one(&app.pool).await.unwrap();
    assert_eq!((&event["nodes"], &event["documents_moved"]), (&json!(nodes - 1), &json!(0)));
    // Who may read the file is told nothing of what it may not read by now.
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, id, GrantRight::Read).await;
    app.client.protect_document(DocumentPath { id: bird }).await.unwrap();
    let shown = reader.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!((&shown["reprocess"]["merges_lost"], &shown["reprocess"]["lost_merges"]), (&json!(1), &json!([])));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_and_webhooks_that_name_a_part_name_its_successor() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    let tree = app.subtree(id).await;
    let (section, chunk) = (of(&tree, "section", "Herons")[0], of(&tree, "chunk", "Herons")[0]);
    let make = async |name: &str, config: ContextConfig| -> i64 {
        app.client.create_context(Json(NewContext { name: name.to_owned(), config })).await.unwrap().id
    };
    let of_filter = |filter: SearchFilter| ContextConfig { filter: Some(filter), ..ContextConfig::default() };
    let without = |ids: Vec<i64>| of_filter(SearchFilter { exclude: Some(ids), ..SearchFilter::default() });
    let among = |ids: Vec<i64>| {
        let inner = SearchFilter { under: Some(ids), ..SearchFilter::default() };
        of_filter(SearchFilter { any: Some(vec![inner]), ..SearchFilter::default() })
    };
    let within = |parent_id: i64| ContextConfig { parent_id: Some(parent_id), ..ContextConfig::default() };
    let contexts = [
        make("without", without(vec![section])).await,
        make("within", within(section)).await,
        make("among", among(vec![section, chunk, id])).await,
        make("others", without(vec![chunk])).await,
    ];
    let config = async |at: usize| app.client.read_context(ContextPath { id: contexts[at] }).await.unwrap().config;
    // Nothing of this kind happens here.
    let webhook = async |root: i64| -> i64 {
        let kinds = Some("ingest.failed".to_owned());
        let new = NewWebhook { url: "https://example.org/".to_owned(), kinds, root: Some(root) };
        app.client.create_webhook(Json(new)).await.unwrap().webhook.id
    };
    let webhooks = [(webhook(section).await, section), (webhook(chunk).await, chunk), (webhook(id).await, id)];
    let herons = async |context: &str| -> BTreeSet<i64> {
        let search = Bm25Search { context: Some(context.to_owned()), limit: 100, ..Bm25Search::new("heron") };
        found(&app.client.search_bm25(Json(search)).await.unwrap())
    };
    assert_eq!(herons("without").await, BTreeSet::new());
    assert!(!herons("within").await.is_empty());
    reprocess(&app, id, short(), false).await.unwrap();
    app.settled(id).await;

    let tree = app.subtree(id).await;
    let new = of(&tree, "section", "Herons")[0];
    assert_ne!(new, section);
    assert_eq!(herons("without").await, BTreeSet::new());
    let is_within = |node: &&DocumentResponse| node.id == new || node.path.contains(&new);
    let within_new: BTreeSet<i64> = tree.iter().filter(is_within).map(|node| node.id).collect();
    let found = herons("within").await;
    assert!(!found.is_empty() && found.is_subset(&within_new), "{found:?} {within_new:?}");
    assert_eq!((config(0).await, config(1).await), (without(vec![new]), within(new)));
    // The chunk has no successor.
    assert_eq!((config(2).await, config(3).await), (among(vec![new, chunk, id]), without(vec![chunk])));
    let listed = app.client.list_webhooks(PageQuery::default()).await.unwrap().webhooks;
    let roots: Vec<_> = listed.iter().map(|webhook| (webhook.id, webhook.root)).collect();
    let expected = webhooks.map(|(webhook, root)| (webhook, Some(if root == section { new } else { root })));
    assert_eq!(roots, expected);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_that_names_a_part_without_a_successor_is_shown_while_the_old_tree_is_still_there() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    let chunk = of(&app.subtree(id).await, "chunk", "Herons")[0];
    let filter = SearchFilter { exclude: Some(vec![chunk]), ..SearchFilter::default() };
    let config = ContextConfig { filter: Some(filter), ..ContextConfig::default() };
    let new = NewContext { name: "others".to_owned(), config };
    let context = app.client.create_context(Json(new)).await.unwrap();
    let reader = someone(&app, "reader").await;
    // The old tree can be moved, and not deleted.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents WHERE id = $1 FOR KEY SHARE").bind(chunk).execute(&mut *held).await.unwrap();
    reprocess(&app, id, short(), false).await.unwrap();
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    assert!(hidden(&app).await.contains(&chunk), "the old tree is gone already");
    let shown = reader.client.read_context(ContextPath { id: context.id }).await.unwrap();
    assert_eq!((shown.name, shown.config), (context.name, context.config));
    held.rollback().await.unwrap();
    app.settled(id).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_tree_takes_its_place_while_what_was_taken_for_a_part_is_deleted() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    triples::predicate(&app, "haunts").await;
    let heron = app.create("Heron", "A bird.", None).await.id;
    let reeds = app.create("Reeds", "A plant.", None).await.id;
    for bird in [section, heron] {
        app.client.assert_fact(Json(triples::fact(bird, "haunts", reeds))).await.unwrap();
    }
    app.client.merge_entities(Json(NewMerge { kept_id: heron, merged_id: section })).await.unwrap();
    let mut pen = app.pool.begin().await.unwrap();
    sqlx::query("SELECT take_pen()").execute(&mut *pen).await.unwrap();
    reprocess(&app, id, short(), false).await.unwrap();
    until_a_statement_like_this_waits(&app.pool, "SELECT take_pen()").await;
    let deleting = tokio::spawn({
        let client = app.client.clone();
        async move { client.delete_document(DocumentPath { id: heron }).await }
    });
    // The delete waits for the merge, or for the pen if it has the merge.
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                      AND (query = 'SELECT take_pen()' OR query LIKE 'WITH gone AS (DELETE FROM documents %')";
    until("both to wait", async || {
        (sqlx::query_scalar::<_, i64>(waiting).fetch_one(&app.pool).await.unwrap() > 1).then_some(())
    })
    .await;
    pen.rollback().await.unwrap();
    deleting.await.unwrap().unwrap();
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    assert_eq!(evidence(&app, id, "reprocess").await["merges_followed"], 1);
    assert_eq!(app.client.list_merges(MergeQuery::default()).await.unwrap().merges.len(), 0);
    app.settled(id).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_that_are_still_to_be_extracted_are_extracted_of_what_stays_and_of_successors() {
    let llm = Llm::start().await;
    llm.will_say(|call| match call.body.get("response_format") {
        Some(_) => extraction::facts(&[]),
        None => Reply::said("Birds stand in the reeds."),
    });
    let app = extraction::app(&llm, &[]).await;
    let id = ingested(&app, None).await;
    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    let guest = app.create("Guest", "A caller's remark on herons.", Some(section)).await.id;
    pause(&app, "extract:facts").await;
    let extract = async || {
        let asked = app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await;
        asked.unwrap().tasks
    };
    let reprocessed = async || {
        let begun = json!(reprocess(&app, id, short(), false).await.unwrap().started_at);
        until("the new tree", async || {
            let told = evidence(&app, id, "reprocess").await;
            (told["state"] == "done" && told["started_at"] == begun).then_some(told)
        })
        .await
    };
    let tasks = async |status: Option<TaskStatus>| -> BTreeSet<i64> {
        let task_type = Some("extract:facts".to_owned());
        let query = TaskQuery { root_id: Some(id), task_type, status, ..TaskQuery::default() };
        app.client.list_tasks(query).await.unwrap().tasks.iter().map(|task| task.document_id).collect()
    };

    // No chunk of the new options begins and ends where one of the old ones did.
    let asked = extract().await;
    assert!(asked > 2, "{asked}");
    assert_eq!(reprocessed().await["extractions_lost"], asked - 1);
    assert_eq!(tasks(None).await, BTreeSet::from([guest]));
    // With the same options every chunk has a successor.
    let asked = extract().await;
    assert_eq!(reprocessed().await["extractions_lost"], 0);
    let texts = app.subtree(id).await.into_iter().filter(|node| !node.content.is_empty()).map(|node| node.id);
    let texts: BTreeSet<i64> = texts.collect();
    assert_eq!((tasks(None).await, asked), (texts.clone(), texts.len() as i64));
    invariants::check(&app.pool).await;
    resume(&app, "extract:facts").await;
    app.settled(id).await;
    assert_eq!(tasks(Some(TaskStatus::Completed)).await, texts);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_facts_is_told_of_those_of_the_new_tree_alone() {
    let llm = Llm::start().await;
    llm.will_say(|call| match call.body.get("response_format") {
        Some(_) => extraction::facts(&[extraction::said(json!({"quote": "No text says this"}))]),
        None => Reply::said("Birds stand in the reeds."),
    });
    let app = extraction::app(&llm, &[]).await;
    let id = ingested(&app, None).await;
    let chunks: Vec<i64> =
        app.subtree(id).await.iter().filter(|node| node.usetype == "chunk").map(|node| node.id).collect();
    let first = extraction::extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!(first.dropped.values().sum::<i64>(), chunks.len() as i64);

    pause(&app, "extract:facts").await;
    let again = tokio::spawn({
        let client = app.client.clone();
        async move { extraction::extract(&client, id, ExtractFactsRequest::default()).await }
    });
    let open = "SELECT count(*) FROM task_queue WHERE task_type = 'extract:facts' AND NOT final";
    until("the tasks", async || {
        (sqlx::query_scalar::<_, i64>(open).fetch_one(&app.pool).await.unwrap() == chunks.len() as i64).then_some(())
    })
    .await;
    // The old tree can be moved, and not deleted.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents WHERE id = ANY($1) FOR KEY SHARE")
        .bind(&chunks)
        .execute(&mut *held)
        .await
        .unwrap();
    reprocess(&app, id, json!({}), false).await.unwrap();
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    resume(&app, "extract:facts").await;
    let told = again.await.unwrap();
    assert_eq!((told.facts, told.failed, &told.dropped), (0, 0, &first.dropped));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE id = ANY($1)")
        .bind(&chunks)
        .fetch_one(&mut *held)
        .await
        .unwrap();
    assert_eq!(left, chunks.len() as i64, "the old tree is still there");
    held.rollback().await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_model_read_in_a_text_is_not_asked_again_of_the_same_text_in_another_tree() {
    let llm = Llm::start().await;
    llm.will_say(|call| match call.body.get("response_format") {
        Some(_) => extraction::facts(&[]),
        None => Reply::said("Birds stand in the reeds."),
    });
    let app = extraction::app(&llm, &[]).await;
    let id = ingested(&app, None).await;
    // The parts of the trees that come are younger than those of this one.
    sqlx::query("UPDATE documents SET created_at = created_at - interval '1 day'").execute(&app.pool).await.unwrap();
    let extracted = async || extraction::extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!(extracted().await.failed, 0);
    let of_facts = || llm.asked().iter().filter(|call| call.body.get("response_format").is_some()).count();
    let chunks = of_facts();
    assert!(chunks > 1, "{chunks}");
    for _ in 0..2 {
        let begun = json!(reprocess(&app, id, json!({}), false).await.unwrap().started_at);
        until("the end of the old tree", async || {
            let told = evidence(&app, id, "reprocess").await;
            let is_done = told["state"] == "done" && told["started_at"] == begun;
            (is_done && hidden(&app).await.is_empty()).then_some(())
        })
        .await;
        assert_eq!(extracted().await.failed, 0);
        assert_eq!(of_facts(), chunks);
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Has facts extracted of the many texts of a file, and has it ingested again during the first question. Returns the file and the number of its texts,
/// once all others of them stand back.
async fn reprocessed_during_a_question(app: &TestApp, llm: &Llm) -> (i64, i64) {
    // No summary of it needs the language model.
    let sentences: String =
        (0..6).map(|n| format!("The heron number {n} stands in the reeds and waits for fish. ")).collect();
    let file = FileUpload::from_bytes("herons.md", format!("# Herons\n\n{sentences}\n"), Some(short()));
    let id = app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id;
    app.settled(id).await;
    let asked = app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await;
    let tasks = asked.unwrap().tasks;
    assert!(tasks > 2, "{tasks}");
    until("the first question", async || llm.asked().pop()).await;
    reprocess(app, id, short(), false).await.unwrap();
    until("the others to stand back", async || (standing_back(app).await == tasks - 1).then_some(())).await;
    (id, tasks)
}

/// How many tasks wait until an edit is over.
async fn standing_back(app: &TestApp) -> i64 {
    let standing_back = "SELECT count(*) FROM task_queue WHERE task_type = 'extract:facts' AND put_off_code = 'edited' AND retry_after > clock_timestamp()";
    sqlx::query_scalar(standing_back).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_tree_takes_its_place_before_a_text_is_read_once_more_and_one_that_is_given_up_keeps_none_waiting() {
    let llm = Llm::start().await;
    let (released, mut asked) = (Arc::new(Notify::new()), 0);
    llm.will_say({
        let released = released.clone();
        move |_| {
            asked += 1;
            match asked {
                1 => Reply::status("500 Internal Server Error", "", "{}").held(&released),
                2 => extraction::facts(&[]).held(&released),
                _ => extraction::facts(&[]),
            }
        }
    });
    let app = extraction::app(&llm, &[("SVC_LLM_CONCURRENCY", "1")]).await;
    let (id, tasks) = reprocessed_during_a_question(&app, &llm).await;
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!(standing_back(&app).await, 0);
    reprocess(&app, id, short(), false).await.unwrap();
    until("the others to stand back again", async || (standing_back(&app).await == tasks - 1).then_some(())).await;

    let done = async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(());
    released.notify_one();
    // The next question is not answered before.
    until("the new tree", done).await;
    released.notify_one();
    app.settled(id).await;
    assert_eq!(llm.asked().len() as i64, tasks + 1, "the one that failed is asked once more");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_tree_takes_its_place_between_two_of_many_texts_of_which_facts_are_extracted() {
    let llm = Llm::start().await;
    let (released, is_open) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    llm.will_say({
        let (released, is_open) = (released.clone(), is_open.clone());
        move |_| match is_open.load(Ordering::Relaxed) {
            true => extraction::facts(&[]),
            false => extraction::facts(&[]).held(&released),
        }
    });
    let app = extraction::app(&llm, &[("SVC_LLM_CONCURRENCY", "1")]).await;
    let (id, tasks) = reprocessed_during_a_question(&app, &llm).await;
    let waiting = frontier(&app, id).await.reprocess.unwrap();
    assert_eq!((waiting.tasks_unfinished, waiting.blocked_by), (0, BTreeMap::from([(BlockedBy::Reservation, 1)])));
    released.notify_one();
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    assert_eq!(evidence(&app, id, "reprocess").await["extractions_lost"], 0);
    // They go on at once.
    until("the next question", async || (llm.asked().len() == 2).then_some(())).await;

    is_open.store(true, Ordering::Relaxed);
    released.notify_one();
    app.settled(id).await;
    assert_eq!(llm.asked().len() as i64, tasks, "each text is read once");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
