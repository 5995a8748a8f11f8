//! What a search tells a principal, with any of its options, follows from what the principal may read alone.
use crate::{
    principals::someone,
    support::{TestApp, document, sample, searches::ask, until},
};
use serde_json::{Value, json};
use svc_client::{
    Client, FileUpload, Json, Remote,
    wire::{DocumentPath, NewDocument, SearchResponse, TaskTypePath, UploadQuery, WaitQuery},
};

const METHODS: [&str; 6] = ["vector", "fulltext", "bm25", "maxsim", "hybrid", "auto"];
const OPEN: [(&str, &str); 6] = [
    ("Pond", "A heron by the pond."),
    ("Reeds", "Reeds grow by the water."),
    ("Sea", "The sea rises and falls twice a day."),
    ("Hiding", "A heron hides in the reeds and waits for fish."),
    ("Oven", "Bake the dough in a hot oven."),
    ("Dawn", "At dawn the heron flies over the reeds."),
];
const BIRDS: &str =
    "# Herons\n\nThe heron stands in the reeds at dawn.\n\n# Coots\n\nThe coot swims by the reeds until noon.\n";
const HIDDEN: &str = "The heron, or hreon, stands in the reeds of the closed pond.";

/// What a method is asked for beside the words. Which terms are added to these follows from all texts, and so do the order and what BM25 returns. So terms are added only by
/// methods that find every document by its vector, and only where the answer has everything in it that is found.
fn options(method: &str) -> Vec<Value> {
    let facets = ["usetype", "parent", "root", "format", "created_at"].map(|by| json!({"by": by}));
    let mut all = vec![
        json!({}),
        json!({"group_by": "file", "per_group": 3}),
        json!({"group_by": "section"}),
        json!({"group_by": "file", "with_whole": true}),
        json!({"sort": "title"}),
        json!({"sort": "created_at", "sort_order": "asc", "sort_top": 3, "group_by": "file"}),
        json!({"rerank": true, "rerank_method": "maxsim", "rerank_top": 6}),
        json!({"mmr_lambda": 0.5, "rerank_top": 6}),
        json!({"recency_half_life_days": 30.0}),
        json!({"facets": facets}),
        json!({"facets": facets, "group_by": "file"}),
        json!({"explain": true, "group_by": "file"}),
        json!({"forgiving": true, "query": "hreon reeds"}),
        json!({"fields": ["id", "title"], "include_scores": true}),
        json!({"snippets": true, "filter": {"format": ["text"]}}),
    ];
    if method == "auto" {
        // Unless told otherwise, it adds terms by itself.
        all.iter_mut().for_each(|asked| asked["expand"] = json!(false));
        all.push(json!({}));
    }
    if ["hybrid", "auto"].contains(&method) {
        all.push(json!({"expand": true}));
    }
    all
}

/// What an answer tells. The scores of words follow from all texts, and with them the order: of methods that use them it is what is found.
fn told(found: &SearchResponse, by_words: bool) -> Value {
    let mut ids: Vec<(i64, Vec<i64>)> = Vec::new();
    for result in &found.results {
        let hits = result.hits.iter().flatten().map(|hit| hit.document.id);
        ids.push((result.document.id, if by_words { Vec::new() } else { hits.collect() }));
    }
    if by_words {
        ids.sort_unstable();
    }
    let ran = found.explanation.as_ref().map(|explanation| {
        let legs: Vec<_> = explanation.legs.iter().map(|leg| (leg.returned, &leg.plan, leg.embed_ms)).collect();
        json!({"rounds": explanation.rounds, "legs": legs})
    });
    json!({
        "ids": ids,
        "total": found.total,
        "total_is": found.total_is,
        "facets": found.facets,
        "scope_state": found.scope_state,
        "sorted": found.sorted,
        "searched_instead": found.searched_instead,
        "has_more": found.next_cursor.is_some(),
        "ran": ran,
    })
}

/// What each method tells with each option.
async fn answers(client: &Client<Remote>) -> Vec<(String, Value)> {
    let mut answers = Vec::new();
    for method in METHODS {
        // Full text ranks what has only some of the words by how rare these are.
        let by_words = method != "vector";
        for options in options(method) {
            let mut body = json!({"query": "heron reeds", "limit": if by_words { 100 } else { 5 }});
            body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
            let found = ask(client, method, &body).await.unwrap();
            answers.push((format!("{method} {options}"), told(&found, by_words)));
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_tells_the_same_whatever_there_is_that_its_caller_may_not_read() {
    let app = TestApp::start().await;
    let who = someone(&app, "one").await;
    for (title, content) in OPEN {
        app.create(title, content, None).await;
    }
    let file = app.upload_bytes("birds.md", BIRDS).await.unwrap().document_id;
    app.settled(file).await;
    let section = app.subtree(file).await.into_iter().find(|node| node.usetype == "section").unwrap().id;
    let closed = app.create("Closed", "A folder.", None).await.id;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let before = answers(&who.client).await;
    let compare = async |after: &str| {
        for ((asked, before), (_, now)) in before.iter().zip(answers(&who.client).await) {
            assert_eq!(*before, now, "{asked}, {after}");
        }
    };
    let everything = json!({"query": "heron", "limit": 100});
    let total = async |client: &Client<Remote>| ask(client, "bm25", &everything).await.unwrap().total;
    assert_eq!(total(&app.client).await, total(&who.client).await);

    for number in 0..12 {
        app.create(&format!("Heron {number}"), HIDDEN, Some(closed)).await;
    }
    compare("after others were stored in a closed folder").await;
    // What is hidden within an open file stands beside what is found in it.
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let within = NewDocument { parent_id: Some(section), private: true, ..document("Heron", HIDDEN) };
    app.client.create_document(wait, Json(within)).await.unwrap();
    for name in ["handbook.md", "corrupt.pdf"] {
        let query = UploadQuery { parent_id: Some(closed), ..UploadQuery::default() };
        let upload = FileUpload::from_path(&sample(name), None).await.unwrap();
        let id = app.client.upload_file(query, upload).await.unwrap().document_id;
        app.settled(id).await;
    }
    compare("after a note was hidden in an open file, and files were closed").await;
    assert_eq!(total(&app.client).await, total(&who.client).await + 13);

    app.client.pause_task_type(TaskTypePath { task_type: "embed".to_owned() }).await.unwrap();
    for _ in 0..3 {
        let new = NewDocument { parent_id: Some(closed), ..document("Heron", HIDDEN) };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    }
    let state = ask(&app.client, "vector", &everything).await.unwrap().scope_state;
    assert!(state.in_flight >= 3 && state.failed > 0, "{state:?}");
    compare("while others wait to be embedded").await;
    app.client.resume_task_type(TaskTypePath { task_type: "embed".to_owned() }).await.unwrap();
    until("all to be embedded", async || {
        let left = "SELECT count(*) FROM task_queue WHERE NOT final";
        (sqlx::query_scalar::<_, i64>(left).fetch_one(&app.pool).await.unwrap() == 0).then_some(())
    })
    .await;
    app.end().await;
}
