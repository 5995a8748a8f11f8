//! Files that are ingested again, with other options, while the tree that they have stays.
mod endings;
mod following;

use crate::{
    cli::{lines, svc},
    crash,
    edits::patch,
    principals::{Someone, grant, someone},
    reach,
    support::{
        TOKEN, TestApp, Wish, document, invariants, place, repository, sample, until,
        until_a_statement_like_this_waits, until_a_statement_waits,
    },
    triples,
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use svc::store::{self, advisory::AdvisoryLock};
use svc_client::{
    Access, Code, Failure, FileUpload, Json, OPERATIONS, OptionalJson,
    wire::{
        Bm25Search, DocumentPath, DocumentResponse, EmbedQuery, FactPath, FactQuery, FrontierResponse, FulltextSearch,
        GrantPath, GrantRight, HybridSearch, LinkResponse, MaxsimSearch, NewDocument, NewGrant, NewLink, PageQuery,
        PiecesQuery, PriorityChange, ReprocessRequest, ReprocessResponse, SearchResponse, Settled, SplitRequest,
        TaskPath, TaskQuery, TaskStatus, TaskTypePath, UploadQuery, VectorSearch, WaitQuery,
    },
};
use svc_ids::DocumentId;

/// A file whose sections are the same whatever the options are, and whose chunks are not.
fn text() -> String {
    let sentence = |bird: &str, n: usize| format!("The {bird} number {n} stands in the reeds and waits for fish. ");
    let part = |bird: &str| (0..12).map(|n| sentence(bird, n)).collect::<String>();
    format!("# Herons\n\n{}\n\n# Coots\n\n{}\n", part("heron"), part("coot"))
}

fn short() -> Value {
    json!({"structure": {"max_tokens": 20}})
}

async fn reprocess(app: &TestApp, id: i64, options: Value, replace: bool) -> Result<ReprocessResponse, Failure> {
    let request = ReprocessRequest { options: Some(options), replace };
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await
}

/// Uploads the file and waits for its tree.
async fn ingested(app: &TestApp, parent_id: Option<i64>) -> i64 {
    let query = UploadQuery { parent_id, ..UploadQuery::default() };
    let id = app.client.upload_file(query, FileUpload::from_bytes("birds.md", text(), None)).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    id
}

async fn evidence(app: &TestApp, id: i64, name: &str) -> Value {
    let mut evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    evidence.remove(name).unwrap_or_default()
}

async fn read(app: &TestApp, id: i64) -> DocumentResponse {
    app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap().value().unwrap()
}

async fn frontier(app: &TestApp, id: i64) -> FrontierResponse {
    app.client.read_frontier(DocumentPath { id }).await.unwrap()
}

async fn pause(app: &TestApp, task_type: &str) {
    app.client.pause_task_type(TaskTypePath { task_type: task_type.into() }).await.unwrap();
}

async fn resume(app: &TestApp, task_type: &str) {
    app.client.resume_task_type(TaskTypePath { task_type: task_type.into() }).await.unwrap();
}

/// What a reprocess has built and nobody may see.
async fn hidden(app: &TestApp) -> Vec<i64> {
    sqlx::query_scalar("SELECT id FROM documents WHERE guard = -1 ORDER BY id").fetch_all(&app.pool).await.unwrap()
}

/// Begins a reprocess and waits until all of its tree but the containers has settled.
async fn nearly_done(app: &TestApp, id: i64) -> Vec<i64> {
    pause(app, "summarize").await;
    reprocess(app, id, short(), false).await.unwrap();
    until("the chunks of the reprocess", async || {
        let progress = frontier(app, id).await.reprocess?;
        (progress.nodes_settled > 0 && progress.blocked_by.len() == 1 && progress.tasks_unfinished == 1).then_some(())
    })
    .await;
    hidden(app).await
}

async fn link(app: &TestApp, source: i64, target_id: i64) -> LinkResponse {
    let new = NewLink { target_id, link_type: "cites".into(), score: Some(0.5), metadata: Default::default() };
    app.client.create_link(DocumentPath { id: source }, Json(new)).await.unwrap()
}

async fn links(app: &TestApp, id: i64) -> Vec<LinkResponse> {
    app.client.list_links(DocumentPath { id }, PageQuery::default()).await.unwrap().links
}

fn of(tree: &[DocumentResponse], usetype: &str, title: &str) -> Vec<i64> {
    tree.iter().filter(|node| node.usetype == usetype && node.title == title).map(|node| node.id).collect()
}

fn found(response: &SearchResponse) -> BTreeSet<i64> {
    response.results.iter().map(|result| result.document.id).collect()
}

/// For each way of searching: what it finds, the total, and how many nodes it says are in flight.
async fn searches(app: &TestApp) -> BTreeMap<&'static str, (BTreeSet<i64>, u64, i64)> {
    let limit = 100;
    let answers = [
        ("vector", app.client.search_vector(Json(VectorSearch { limit, ..VectorSearch::new("heron") })).await),
        ("fulltext", app.client.search_fulltext(Json(FulltextSearch { limit, ..FulltextSearch::new("heron") })).await),
        ("bm25", app.client.search_bm25(Json(Bm25Search { limit, ..Bm25Search::new("heron") })).await),
        ("maxsim", app.client.search_maxsim(Json(MaxsimSearch { limit, ..MaxsimSearch::new("heron") })).await),
        ("hybrid", app.client.search_hybrid(Json(HybridSearch { limit, ..HybridSearch::new("heron") })).await),
    ];
    let read = |answer: Result<SearchResponse, Failure>| {
        let answer = answer.unwrap();
        (found(&answer), answer.total, answer.scope_state.in_flight)
    };
    answers.into_iter().map(|(name, answer)| (name, read(answer))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_gets_another_tree_and_keeps_what_is_its_own() {
    let app = TestApp::start().await;
    let reader = someone(&app, "reader").await;
    let folder = app.create("Folder", "A folder.", None).await.id;
    let id = ingested(&app, Some(folder)).await;
    grant(&app, &reader, id, GrantRight::Read).await;
    let fields = json!({"title": "My birds", "structured_content": {"shelf": 7}, "position": 3});
    patch(&app, id, fields).await.unwrap();
    let note = app.create("Note", "A note about birds.", None).await.id;
    let old = app.subtree(id).await;
    let (section, chunk) = (of(&old, "section", "Herons")[0], of(&old, "chunk", "Herons")[0]);
    let (to_section, from_section) =
        (link(&app, note, section).await, link(&app, of(&old, "section", "Coots")[0], note).await);
    let (to_file, to_chunk) = (link(&app, note, id).await, link(&app, note, chunk).await);
    triples::predicate(&app, "mentions").await;
    let state = async |subject, object| {
        app.client.assert_fact(Json(triples::fact(subject, "mentions", object))).await.unwrap().fact.id
    };
    let of_section = state(note, section).await;
    let of_chunk = state(note, chunk).await;
    // Who may read the file is told nothing of a fact about a document that it may not read.
    let closed = app.create("Closed", "Nobody's business.", None).await.id;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let of_closed = state(closed, chunk).await;
    let guest = app.create("Guest", "A caller's remark on herons.", Some(section)).await.id;
    // A piece of another text is a caller's document too.
    let cut = app.create("A text of mine", "A first part. A second part.", None).await.id;
    let at = SplitRequest { at: Some(vec![13]), by_headings: false, replace: false };
    let path = DocumentPath { id: cut };
    let cuts = app.client.split_document(path, PiecesQuery { wait: true }, Json(at)).await.unwrap().created;
    let (piece, rest) = (cuts[0], cuts[1]);
    patch(&app, piece, json!({"parent_id": section, "content": "My own words."})).await.unwrap();
    let (before, upload) = (read(&app, id).await, FileUpload::from_bytes("birds.md", text(), Some(short())));
    let refused = app.client.upload_file(UploadQuery::default(), upload).await.unwrap_err();
    assert_eq!(refused.code, Code::StoredWithOtherOptions);
    assert!(
        refused.members["remedy"].as_str().unwrap().contains(&format!("POST /ingest/file/{id}/reprocess")),
        "{refused}"
    );

    let begun = reprocess(&app, id, short(), false).await.unwrap();
    assert_eq!(
        (begun.document_id, begun.replaced, begun.options["structure"]["max_tokens"].as_i64()),
        (id, false, Some(20))
    );
    assert_eq!(begun.options_before["structure"]["max_tokens"], 120);
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, frontier.reprocess), (Settled::Settled, 0, None));

    let (after, new) = (read(&app, id).await, app.subtree(id).await);
    assert_eq!(
        serde_json::to_value(&after).unwrap(),
        serde_json::to_value(&before).unwrap(),
        "the file itself is as it was"
    );
    assert_eq!(frontier.nodes_total, 1 + new.len() as i64);
    assert!(new.len() > old.len() + 5, "{} nodes, {} before", new.len(), old.len());
    let ids = |tree: &[DocumentResponse]| tree.iter().map(|node| node.id).collect::<BTreeSet<i64>>();
    assert_eq!(&ids(&old) & &ids(&new), BTreeSet::new(), "no node of the old tree is left");
    let section = of(&new, "section", "Herons")[0];
    let remark = read(&app, guest).await;
    assert_eq!((remark.parent_id, remark.path), (Some(section), vec![folder, id, section]), "it follows its section");
    let kept = read(&app, piece).await;
    assert_eq!((kept.parent_id, kept.content.as_str()), (Some(section), "My own words."));
    let mut ends: Vec<(i64, i64, i64)> =
        links(&app, note).await.iter().map(|link| (link.id, link.source_id, link.target_id)).collect();
    ends.sort_unstable();
    let coots = of(&new, "section", "Coots")[0];
    assert_eq!(ends, [(to_section.id, note, section), (from_section.id, coots, note), (to_file.id, note, id)]);

    let told = evidence(&app, id, "reprocess").await;
    assert_eq!(
        (&told["state"], &told["links_followed"], &told["links_lost"], &told["documents_moved"]),
        (&json!("done"), &json!(2), &json!(1), &json!(2))
    );
    let lost = &told["lost"][0];
    assert_eq!(
        (&lost["link_id"], &lost["target_id"], &lost["link_type"]),
        (&json!(to_chunk.id), &json!(chunk), &json!("cites"))
    );
    assert!(lost["anchor"]["characters"].is_array(), "{lost}");
    // What was replaced is set aside until it is deleted.
    let aside = "INSERT INTO documents (id, title, content, usetype, content_hash, guard) OVERRIDING SYSTEM VALUE
                 VALUES ($1, 'Aside', '', 'chunk', '', -1) ON CONFLICT DO NOTHING";
    sqlx::query(aside).bind(chunk).execute(&app.pool).await.unwrap();
    assert_eq!(evidence(&app, id, "reprocess").await["lost"], told["lost"]);
    sqlx::query("DELETE FROM documents WHERE id = $1").bind(chunk).execute(&app.pool).await.unwrap();
    assert_eq!((&told["facts_followed"], &told["facts_lost"]), (&json!(1), &json!(1)));
    assert_eq!(told["lost_facts"], json!([{"triple_id": of_chunk, "subject_id": note, "object_id": chunk}]));
    let about_note = FactQuery { subject_id: Some(note), ..FactQuery::default() };
    let believed = app.client.list_facts(about_note).await.unwrap().facts;
    assert_eq!(believed.iter().map(|fact| fact.object_id).collect::<Vec<_>>(), [Some(section)]);
    for (fact, why) in [(of_section, "reprocessed"), (of_chunk, "source_deleted"), (of_closed, "source_deleted")] {
        let closed = app.client.read_fact(FactPath { id: fact }).await.unwrap();
        assert_eq!(serde_json::to_value(closed).unwrap()["invalidation"], why, "{fact}");
    }
    app.client.protect_document(DocumentPath { id: note }).await.unwrap();
    let shown = reader.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(shown["reprocess"]["lost"], json!([]), "the other end is closed by now");
    assert_eq!(shown["reprocess"]["lost_facts"], json!([]), "the subject is closed by now");
    assert_eq!(evidence(&app, id, "reprocess").await["lost"].as_array().unwrap().len(), 1);
    assert_eq!(evidence(&app, id, "options").await["structure"]["max_tokens"], 20);
    assert_eq!(evidence(&app, id, "rule").await, "upload");
    let (kind, data): (String, Value) = sqlx::query_as(
        "SELECT kind, data FROM event_outbox WHERE document_id = $1 AND kind LIKE 'ingest.%' ORDER BY id DESC LIMIT 1",
    )
    .bind(id)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(
        (kind.as_str(), &data["links_lost"], &data["nodes"]),
        ("ingest.reprocessed", &json!(1), &json!(frontier.nodes_total))
    );

    for (name, (found, ..)) in searches(&app).await {
        assert!(
            found.is_subset(&(&ids(&new) | &BTreeSet::from([id, note, closed, guest, folder, cut, piece, rest]))),
            "{name}: {found:?}"
        );
        assert!(name == "maxsim" || found.len() > 3, "{name}: {found:?}");
    }
    assert!(reader.client.read_document(DocumentPath { id: section }, EmbedQuery::default()).await.is_ok());
    let again =
        app.client.upload_file(UploadQuery::default(), FileUpload::from_bytes("b.md", text(), Some(short()))).await;
    assert_eq!(again.unwrap().document_id, id);
    let attempts = evidence(&app, id, "attempts").await;
    let probes = attempts.as_array().unwrap().iter().filter(|attempt| attempt["task_type"] == "probe").count();
    assert_eq!(probes, 2, "the log of attempts goes on");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_anything_of_a_reprocess_before_it_takes_its_place() {
    let app = TestApp::start().await;
    let reader = someone(&app, "reader").await;
    let id = ingested(&app, None).await;
    let (searched, tree, state) = (searches(&app).await, app.subtree(id).await, frontier(&app, id).await);
    let roots = app.client.list_roots(PageQuery::default()).await.unwrap().documents.len();
    let told = "SELECT count(*) FROM event_outbox WHERE NOT owner_only";
    let events: i64 = sqlx::query_scalar(told).fetch_one(&app.pool).await.unwrap();
    let hidden = nearly_done(&app, id).await;
    assert!(hidden.len() > tree.len(), "{hidden:?}");

    assert_eq!(searches(&app).await, searched);
    assert_eq!(serde_json::to_value(app.subtree(id).await).unwrap(), serde_json::to_value(&tree).unwrap());
    let now = frontier(&app, id).await;
    let counts = |frontier: &FrontierResponse| {
        (frontier.nodes_total, frontier.nodes_settled, frontier.nodes_in_flight, frontier.tasks_unfinished)
    };
    assert_eq!((counts(&now), now.settled), (counts(&state), Settled::Settled));
    assert_eq!(app.client.list_roots(PageQuery::default()).await.unwrap().documents.len(), roots);
    assert_eq!(sqlx::query_scalar::<_, i64>(told).fetch_one(&app.pool).await.unwrap(), events, "nothing is told of it");
    let known = hidden[1];
    let of_documents = ["/documents/{id}", "/ingest/file/{id}", "/access/documents/{id}"];
    for row in OPERATIONS.iter().filter(|row| of_documents.iter().any(|start| row.path.starts_with(start))) {
        for (who, id) in
            [(TOKEN, hidden[0]), (TOKEN, known), (reader.secret.as_str(), hidden[0]), (reader.secret.as_str(), known)]
        {
            let answers = async |id| reach::call(&app, who, row, id, &[]).send().await.unwrap().status().as_u16();
            let expected = if row.access == Access::Owner && who != TOKEN { 403 } else { answers(424_242).await };
            assert_eq!(answers(id).await, expected, "{} of {id}", row.name);
            assert!(expected >= 400 || row.name == "list_document_grants", "{}: {expected}", row.name);
        }
    }
    let path = GrantPath { id: known, principal_id: reader.id };
    assert_eq!(
        app.client.put_grant(path, Json(NewGrant { right: GrantRight::Read })).await.unwrap_err().code,
        Code::NotFound
    );
    let under = NewDocument { parent_id: Some(known), ..document("t", "c") };
    assert_eq!(app.client.create_document(WaitQuery::default(), Json(under)).await.unwrap_err().code, Code::NotFound);
    let new = NewLink { target_id: known, link_type: "cites".into(), score: None, metadata: Default::default() };
    assert_eq!(app.client.create_link(DocumentPath { id }, Json(new)).await.unwrap_err().code, Code::NotFound);
    assert_eq!(patch(&app, id, json!({"parent_id": known})).await.unwrap_err().code, Code::NotFound);
    let copy =
        app.client.upload_file(UploadQuery::default(), FileUpload::from_bytes("b.md", text(), None)).await.unwrap();
    assert_eq!((copy.document_id, copy.was_existing), (id, true));
    assert_eq!(self::hidden(&app).await, hidden, "nothing of it was changed");
    invariants::check(&app.pool).await;

    resume(&app, "summarize").await;
    app.settled(id).await;
    let tree: BTreeSet<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    // Its root is no document of its own.
    assert_eq!(hidden.into_iter().skip(1).collect::<BTreeSet<i64>>(), tree);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Summaries that somebody asked for, and a priority that somebody gave, hold for the new tree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_for_meanwhile_holds_for_the_new_tree() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    pause(&app, "raptor").await;
    let path = DocumentPath { id };
    let asked = app.client.make_raptor(path, WaitQuery::default(), OptionalJson(None)).await.unwrap();
    pause(&app, "embed").await;
    let root_id = Some(reprocess(&app, id, short(), false).await.unwrap().root_id);
    let embeds = || TaskQuery { root_id, task_type: Some("embed".into()), ..TaskQuery::default() };
    until("a task that embeds", async || app.client.list_tasks(embeds()).await.unwrap().tasks.pop()).await;
    let change = Json(PriorityChange { priority: 7 });
    let changed = app.client.change_priority(DocumentPath { id }, change).await.unwrap().tasks_changed;
    let priorities: Vec<i32> =
        app.client.list_tasks(embeds()).await.unwrap().tasks.iter().map(|task| task.priority).collect();
    assert!(changed > 0 && priorities.iter().all(|priority| priority.div_euclid(10) == 7), "{changed} {priorities:?}");
    resume(&app, "embed").await;
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    resume(&app, "raptor").await;
    let task = TaskPath { id: asked.task_id };
    until("the summaries", async || Some(app.client.read_task(task).await.unwrap()).filter(|task| task.finished)).await;
    let tree = app.subtree(id).await;
    let summaries = tree.iter().find(|node| node.usetype == "raptor").unwrap().id;
    reprocess(&app, id, json!({}), false).await.unwrap();
    app.settled(id).await;
    let told = "SELECT count(*) FROM event_outbox WHERE kind = 'document.deleted' AND document_id = $1";
    let told: i64 = sqlx::query_scalar(told).bind(summaries).fetch_one(&app.pool).await.unwrap();
    assert_eq!(told, 1, "whoever was told of the summaries is told that they are gone");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_reprocess_of_a_file_runs_at_a_time_and_another_may_replace_it() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    pause(&app, "embed").await;
    let of_tokens = |max_tokens: i64| json!({"structure": {"max_tokens": max_tokens}});
    let (one, other) =
        tokio::join!(reprocess(&app, id, of_tokens(30), false), reprocess(&app, id, of_tokens(31), false));
    let refused = match (one, other) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        both => panic!("{both:?}"),
    };
    assert_eq!(refused.code, Code::Conflict);
    assert!(refused.members["running_options"]["structure"]["max_tokens"].as_i64() >= Some(30), "{refused}");
    until("its tree", async || (frontier(&app, id).await.reprocess?.nodes_total > 3).then_some(())).await;
    let (one, other) = tokio::join!(reprocess(&app, id, of_tokens(40), true), reprocess(&app, id, of_tokens(41), true));
    assert!(one.unwrap().replaced && other.unwrap().replaced);
    let said = svc(&app, &["reprocess", &id.to_string()]).await;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains(&format!("svc reprocess {id} --replace")) && said.contains(&format!("svc cancel {id}")),
        "{said}"
    );
    let last = reprocess(&app, id, short(), true).await.unwrap();
    resume(&app, "embed").await;
    app.settled(id).await;
    let ended = evidence(&app, id, "reprocess").await;
    assert_eq!((&ended["state"], &ended["started_at"]), (&json!("done"), &json!(last.started_at)));
    assert_eq!(evidence(&app, id, "options").await["structure"]["max_tokens"], 20);
    let done = "SELECT count(*) FROM event_outbox WHERE kind = 'ingest.reprocessed'";
    assert_eq!(sqlx::query_scalar::<_, i64>(done).fetch_one(&app.pool).await.unwrap(), 1);

    let line = svc(&app, &["reprocess", &id.to_string(), "--options", r#"{"structure": {"max_tokens": 60}}"#]).await;
    assert!(line.status.success(), "{}", String::from_utf8_lossy(&line.stderr));
    let printed = &lines(&line)[0];
    assert_eq!(
        (&printed["state"], &printed["reprocess"]["options"]["structure"]["max_tokens"]),
        (&json!("done"), &json!(60))
    );
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_change_a_file_may_not_reprocess_it_and_options_are_those_of_an_upload() {
    let app = TestApp::start().await;
    let (reader, writer, stranger) =
        (someone(&app, "reader").await, someone(&app, "writer").await, someone(&app, "stranger").await);
    let id = ingested(&app, None).await;
    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    let note = app.create("Note", "A note.", None).await.id;
    grant(&app, &reader, id, GrantRight::Read).await;
    grant(&app, &writer, id, GrantRight::Write).await;
    let of = async |who: &Someone, id: i64| who.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await;
    assert_eq!(of(&reader, id).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(of(&stranger, id).await.unwrap_err().code, Code::NotFound);
    assert_eq!(of(&stranger, 424_242).await.unwrap_err().code, Code::NotFound);
    for (wrong, code) in [
        (json!({"structure": {"max_token": 60}}), Code::UnknownOption),
        (json!({"structure": {"max_tokens": 0}}), Code::InvalidField),
        (json!({"ocr": {}}), Code::UnknownOption),
    ] {
        assert_eq!(reprocess(&app, id, wrong, false).await.unwrap_err().code, code);
    }
    let part = reprocess(&app, section, json!({}), false).await.unwrap_err();
    assert_eq!((part.code, part.members["file_id"].as_i64()), (Code::Conflict, Some(id)));
    assert_eq!(reprocess(&app, note, json!({}), false).await.unwrap_err().code, Code::Conflict);
    assert!(hidden(&app).await.is_empty());
    of(&writer, id).await.unwrap();
    app.settled(id).await;
    assert_eq!(evidence(&app, id, "reprocess").await["state"], "done");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_password_opened_keeps_its_evidence_without_the_password() {
    // Of the two members of the archive one is left out.
    let app = TestApp::with(Wish { settings: &[("SVC_PARSER_MEMBERS", "1")], ..Wish::default() }).await;
    let archive = repository().join("formats/src/archive/files/aes-256.zip");
    for (path, password, found) in [
        (sample("locked.pdf"), "heron", "/extract.text/page_count"),
        (archive, "Wehr über Erlen", "/members.left_out/count"),
    ] {
        let options = json!({"extract": {"password": password}});
        let upload = FileUpload::from_path(&path, Some(options)).await.unwrap();
        let id = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
        let first = app.settled(id).await;
        let all = async || Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence);
        let before = all().await;
        assert!(before.pointer(found).is_some_and(Value::is_u64), "{found}: {before}");
        // The second one takes over what the first has taken over.
        for max_tokens in [20, 40] {
            reprocess(&app, id, json!({"structure": {"max_tokens": max_tokens}}), false).await.unwrap();
            let frontier = app.settled(id).await;
            assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, first.warnings.clone()));
            let after = all().await;
            assert_eq!(after["reprocess"]["state"], "done");
            for name in ["extract.text", "members.left_out", "page_images", "scanned_pages", "ocr.left_out"] {
                assert_eq!(after[name], before[name], "{name} of {}", path.display());
            }
        }
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
