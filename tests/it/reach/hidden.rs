//! An id of what a caller may not read answers as one that is gone, wherever a call may name it: in the path, the query or the body.
use super::{Held, held, whole};
use crate::{
    principals::{Someone, someone},
    support::{TestApp, document, sample},
};
use reqwest::{
    Method, RequestBuilder,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Access, FileUpload, Json, OPERATIONS, OperationInfo, TurtleText,
    wire::{DocumentPath, NewDocument, OntologyQuery, UploadQuery, WaitQuery},
};

/// The rows that are held apart and in which nobody names a document, or only by what belongs to its caller.
const NAME_NONE: &[&str] = &[
    "create_predicate",
    "list_predicates",
    "read_predicate",
    "list_ontologies",
    "list_shape_bindings",
    "read_shape_binding",
    "update_shape_binding",
    "delete_shape_binding",
    "validate_shape",
    "list_presentations",
    "read_presentation",
    "list_templates",
    "list_webhooks",
    "read_webhook",
    "delete_webhook",
    "test_webhook",
    "rotate_webhook",
    "list_deliveries",
    "retry_delivery",
    "explain_ingest",
    "list_pipelines",
    "read_health",
    "read_readiness",
    "read_openapi",
    // Its answer has no end; it tells of nothing at or under such a document, as `event_feed` holds.
    "follow_events",
];

/// What the owner has, and `who` may not read.
struct Hidden {
    id: i64,
    fact: i64,
    merge: i64,
    context: i64,
}

/// What a principal has that asks for it.
struct Asking<'a> {
    app: &'a TestApp,
    who: &'a Someone,
    /// A document that it may write.
    mine: i64,
    /// A template of its own that shows a document.
    template: i64,
    /// A fact about `mine`.
    own_fact: i64,
}

impl Asking<'_> {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.app.http.request(method, format!("{}{path}", self.app.base)).bearer_auth(&self.who.secret)
    }

    /// Every call that names what is hidden, by the name of its operation.
    fn calls(&self, hidden: &Hidden) -> Vec<(&'static str, RequestBuilder)> {
        let Hidden { id, fact, merge, context } = *hidden;
        let Asking { mine, own_fact, .. } = *self;
        let get = |path: String| self.request(Method::GET, &path);
        let delete = |path: String| self.request(Method::DELETE, &path);
        let patch = |path: String, body: Value| self.request(Method::PATCH, &path).json(&body);
        let post = |path: String, body: Value| self.request(Method::POST, &path).json(&body);
        let turtle = |path: String| {
            let text = "<http://example.org/s> <http://example.org/p> <http://example.org/o> .";
            self.request(Method::POST, &path).header("content-type", "text/turtle").body(text)
        };
        let about = |subject: i64, object: i64, source: Option<i64>| json!({"subject_id": subject, "predicate": "knows", "object_id": object, "source_id": source, "on_overlap": "merge"});
        let path_of = |from: i64, to: i64| json!({"from_id": from, "to_id": to, "valid_at": "2024-01-01T00:00:00Z"});
        let archive = format!("archive=an-archive&parent_id={id}");
        let archived = json!({"id": 1, "title": "t", "content": "c", "usetype": "markdown", "content_hash": "sha256:",
            "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z", "settled": "settled"});
        let tokens = json!({"document": 1, "text_hash": format!("sha256:{}", "0".repeat(64)), "model": "m", "places": [], "token_ids": [],
            "tiers": [], "widths": []});
        let file = || Form::new().part("file", Part::bytes(b"Bytes that nobody has.".to_vec()).file_name("x.txt"));
        vec![
            ("create_link", post(format!("/documents/{mine}/links"), json!({"target_id": id, "link_type": "cites"}))),
            (
                "create_link",
                post(format!("/documents/{mine}/links"), json!({"target_id": id, "link_type": "contains"})),
            ),
            ("update_document", patch(format!("/documents/{mine}"), json!({"parent_id": id}))),
            ("update_document", patch(format!("/documents/{id}"), json!({"parent_id": mine}))),
            (
                "create_documents",
                post(
                    "/documents/batch".into(),
                    json!({"documents": [{"title": "t", "content": "c", "parent_id": mine}, {"title": "t", "content": "c", "parent_id": id}]}),
                ),
            ),
            ("find_similar", get(format!("/documents/{mine}/similar?parent_id={id}"))),
            ("search", get(format!("/search/?q=heron&parent_id={id}"))),
            ("search", get(format!("/search/?q=heron&context=about-{id}"))),
            ("search_bm25", post("/search/bm25".into(), json!({"query": "heron", "filter": {"under": [id]}}))),
            (
                "search_vector",
                post(
                    "/search/vector".into(),
                    json!({"query": "heron", "filter": {"exclude": [id]}, "facets": [{"by": "root"}]}),
                ),
            ),
            ("extract_facts", post(format!("/documents/{id}/extract-facts"), json!({}))),
            ("create_template", post("/templates".into(), json!({"title": "t", "content": "c", "parent_id": id}))),
            (
                "create_template",
                post(
                    "/templates".into(),
                    json!({"title": "t", "content": "{% include 'x' %}", "parent_id": mine, "partials": [{"name": "x", "template_id": id}]}),
                ),
            ),
            ("read_template", get(format!("/templates/{id}"))),
            ("update_template", patch(format!("/templates/{id}"), json!({"title": "t"}))),
            ("delete_template", delete(format!("/templates/{id}"))),
            ("render_template", post(format!("/templates/{id}/render"), json!({}))),
            (
                "render_template",
                post(format!("/templates/{}/render", self.template), json!({"documents": {"shown": id}})),
            ),
            ("search_templates", post("/templates/search".into(), json!({"query": "heron", "parent_id": id}))),
            (
                "search_batch",
                post(
                    "/search/batch".into(),
                    json!({"searches": [{"query": "heron", "method": "bm25", "parent_id": id}]}),
                ),
            ),
            ("embed_many_tokens", post("/documents/tokens".into(), json!({"document_ids": [id]}))),
            ("synthesize", post("/search/synthesize".into(), json!({"query": "heron", "parent_id": id}))),
            ("read_context", get(format!("/search-contexts/{context}"))),
            ("list_contexts", get("/search-contexts".into())),
            ("list_merges", get(format!("/graph/merges?document_id={id}"))),
            ("merge_entities", post("/graph/merges".into(), json!({"kept_id": mine, "merged_id": id}))),
            ("merge_entities", post("/graph/merges".into(), json!({"kept_id": id, "merged_id": mine}))),
            ("undo_merge", delete(format!("/graph/merges/{merge}"))),
            ("read_ontology", get(format!("/ontologies/{id}"))),
            ("list_classes", get(format!("/ontologies/{id}/classes"))),
            ("delete_ontology", delete(format!("/ontologies/{id}"))),
            ("create_ontology", turtle(format!("/ontologies?parent_id={id}"))),
            (
                "create_shape_binding",
                post("/shape-bindings".into(), json!({"shape": "http://example.org/shape", "document_id": id})),
            ),
            ("assert_fact", post("/triples".into(), about(id, mine, None))),
            ("assert_fact", post("/triples".into(), about(mine, id, None))),
            ("assert_fact", post("/triples".into(), about(mine, mine, Some(id)))),
            ("assert_facts", post("/triples/batch".into(), json!({"facts": [about(mine, id, None)]}))),
            ("list_facts", get(format!("/triples?valid_at=any&subject_id={id}"))),
            ("list_facts", get(format!("/triples?valid_at=any&object_id={id}"))),
            ("list_facts", get(format!("/triples?valid_at=any&subject_id={mine}"))),
            ("list_facts", get(format!("/triples?valid_at=any&source_id={id}"))),
            ("list_facts", get(format!("/triples?valid_at=any&parent_id={id}"))),
            ("read_fact", get(format!("/triples/{fact}"))),
            ("read_fact_history", get(format!("/triples/{fact}/history"))),
            ("supersede_fact", post(format!("/triples/{fact}/supersede"), json!({"object_id": mine}))),
            ("supersede_fact", post(format!("/triples/{own_fact}/supersede"), json!({"object_id": id}))),
            (
                "supersede_fact",
                post(format!("/triples/{own_fact}/supersede"), json!({"object_literal": "y", "source_id": id})),
            ),
            ("invalidate_fact", post(format!("/triples/{fact}/invalidate"), json!({}))),
            ("find_paths", post("/triples/path-find".into(), path_of(mine, id))),
            ("find_paths", post("/triples/path-find".into(), path_of(id, mine))),
            ("export_turtle", get(format!("/rdf/turtle?parent_id={id}"))),
            ("import_turtle", turtle(format!("/rdf/turtle?parent_id={id}"))),
            ("rank_documents", get(format!("/graph/centrality?parent_id={id}"))),
            ("rank_subtrees", get(format!("/graph/subtree-authority?parent_id={id}"))),
            ("find_spines", get(format!("/graph/spines?document_id={id}"))),
            ("find_communities", get(format!("/graph/communities?parent_id={id}"))),
            ("find_neighbors", get(format!("/graph/neighbors?document_id={id}"))),
            ("find_neighbors", get(format!("/graph/neighbors?document_id={mine}"))),
            ("compare_facts", get(format!("/graph/diff?parent_id={id}&known_from=2024-01-01T00:00:00Z"))),
            ("read_graph_stats", get(format!("/graph/stats?parent_id={id}"))),
            ("lint_graph", post("/graph/lint".into(), json!({"parent_id": id}))),
            ("export_documents", get(format!("/archive/documents?parent_id={id}"))),
            ("export_links", get(format!("/archive/links?parent_id={id}"))),
            ("export_tokens", get(format!("/archive/tokens?parent_id={id}"))),
            ("import_tokens", post(format!("/archive/tokens?{archive}"), json!({"tokens": [tokens]}))),
            ("import_documents", post(format!("/archive/documents?{archive}"), json!({"documents": [archived]}))),
            ("find_imported", post(format!("/archive/ids?{archive}"), json!({"ids": [1]}))),
            ("import_bytes", self.request(Method::POST, &format!("/archive/documents/{id}/bytes")).multipart(file())),
            (
                "import_links",
                post(
                    format!("/archive/links?{archive}"),
                    json!({"links": [{"source": 1, "target": 2, "link_type": "cites", "score": null, "metadata": {}}]}),
                ),
            ),
            ("import_facts", turtle(format!("/archive/facts?{archive}&base=http://example.org/"))),
            ("create_webhook", post("/webhooks".into(), json!({"url": "https://example.org/", "root": id}))),
        ]
    }

    /// The whole answers to every call.
    async fn answers(&self, hidden: &Hidden) -> Vec<(&'static str, (u16, Vec<(String, String)>, String))> {
        let mut answers = Vec::new();
        for (name, call) in self.calls(hidden) {
            let (status, mut headers, body) = whole(call).await;
            let without = without_times(&body);
            if without != body {
                headers.retain(|(name, _)| name != "content-length");
            }
            answers.push((name, (status, headers, without)));
        }
        answers
    }
}

/// An answer without the moment of which it tells and the time that it took, which are all that differs between two answers to one call.
fn without_times(body: &str) -> String {
    let mut without = body.to_owned();
    for key in ["latency_ms", "known_at", "valid_at"] {
        let key = format!("\"{key}\":");
        let mut from = 0;
        while let Some(at) = without[from..].find(&key) {
            from += at + key.len();
            let end = without[from..].find([',', '}']).map_or(without.len(), |end| from + end);
            without.replace_range(from..end, "");
        }
    }
    without
}

/// The owner's document of a kind, closed to all others, with a fact, a merge and a search context about it.
async fn hide(app: &TestApp, kind: &str, mine: i64) -> Hidden {
    let wait = WaitQuery::default();
    let create = async |new: NewDocument| app.client.create_document(wait, Json(new)).await.unwrap().document.id;
    let folder = create(document("Folder", "A heron.")).await;
    app.client.protect_document(DocumentPath { id: folder }).await.unwrap();
    let under =
        |title: &str| NewDocument { parent_id: Some(folder), ..document(title, "The heron waits by the water.") };
    let id = match kind {
        "file" => {
            let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
            let file = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
            let id = app.client.upload_file(query, file).await.unwrap().document_id;
            app.settled(id).await;
            id
        }
        "ontology" => {
            let text = "@prefix owl: <http://www.w3.org/2002/07/owl#> . <http://example.org/o> a owl:Ontology .\n\
                        <http://example.org/Bird> a owl:Class ."
                .to_owned();
            let query = OntologyQuery { parent_id: Some(folder), ..OntologyQuery::default() };
            let made = app.client.create_ontology(query, TurtleText(text)).await.unwrap();
            made.document_id
        }
        _ => create(NewDocument { usetype: Some(kind.to_owned()), ..under("Hidden") }).await,
    };
    let twin = create(under("Its twin")).await;
    let send = async |path: &str, body: Value| -> Value {
        let answer = app.raw("POST", path).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    };
    let fact = json!({"subject_id": mine, "predicate": "knows", "object_id": id});
    let fact = send("/triples", fact).await["id"].as_i64().unwrap();
    let merge = send("/graph/merges", json!({"kept_id": twin, "merged_id": id})).await["id"].as_i64().unwrap();
    let context = json!({"name": format!("about-{id}"), "config": {"parent_id": id}});
    let context = send("/search-contexts", context).await["id"].as_i64().unwrap();
    Hidden { id, fact, merge, context }
}

/// The rows that are held apart, and that a principal may call.
fn held_apart() -> BTreeSet<&'static str> {
    let is_apart = |row: &&OperationInfo| {
        held(row) == Held::Apart && !matches!(row.access, Access::Owner | Access::RunnerKey | Access::Metrics)
    };
    OPERATIONS.iter().filter(is_apart).map(|row| row.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_hidden_answers_as_what_is_gone_wherever_a_call_names_it() {
    let app = TestApp::start().await;
    crate::triples::predicate(&app, "knows").await;
    let who = someone(&app, "one").await;
    for kind in ["markdown", "template", "file", "ontology"] {
        let new = NewDocument { private: true, ..document("Mine", "A coot.") };
        // What is embedded meanwhile would be found by the second call alone.
        let wait = WaitQuery { wait: true, ..WaitQuery::default() };
        let mine = who.client.create_document(wait, Json(new)).await.unwrap().document.id;
        let template =
            json!({"title": "Shows", "content": "{{ shown.title }}", "variables": {"shown": {"type": "document"}}});
        let template = who.client.create_template(wait, Json(serde_json::from_value(template).unwrap()));
        let template = template.await.unwrap().document.id;
        let own_fact = json!({"subject_id": mine, "predicate": "knows", "object_literal": "x"});
        let own_fact = who.client.assert_fact(Json(serde_json::from_value(own_fact).unwrap())).await.unwrap().fact.id;
        let hidden = hide(&app, kind, mine).await;
        let asking = Asking { app: &app, who: &who, mine, template, own_fact };
        let before = asking.answers(&hidden).await;
        let called: BTreeSet<&str> = before.iter().map(|(name, _)| *name).chain(NAME_NONE.iter().copied()).collect();
        let left_out: Vec<&str> = held_apart().difference(&called).copied().collect();
        assert_eq!(left_out, [""; 0], "say how these name a document, or that they name none");
        for (name, (status, _, body)) in &before {
            assert!(!body.contains("Hidden") && !body.contains("twin"), "{name}: {body}");
            assert!((200..500).contains(status) || *status == 501, "{name} of a {kind}: {status} {body}");
        }
        app.client.delete_document(DocumentPath { id: hidden.id }).await.unwrap();
        let after = asking.answers(&hidden).await;
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            assert_eq!(before, after, "{name} tells that there was a {kind}");
        }
        // None of these calls did anything.
        let found: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE parent_id = $1")
            .bind(mine)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!(found, 0);
        let webhooks = app.raw("GET", "/webhooks").send().await.unwrap();
        assert_eq!(webhooks.json::<Value>().await.unwrap()["webhooks"], json!([]));
    }
    app.end().await;
}
