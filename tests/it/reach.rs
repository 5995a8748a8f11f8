//! Who reaches what: every operation of the table beside the definition of access, over HTTP, in random trees with random grants.
mod hidden;
mod ingestion;
mod options;
mod views;
mod world;

use crate::{
    access::{Naive, Random},
    principals::{Someone, someone},
    support::{TOKEN, TestApp},
};
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Access, FileUpload, OPERATIONS, OperationInfo,
    wire::{
        DocumentPage, DocumentPath, EvidenceResponse, FilePage, FrontierResponse, LinkPage, PortfolioResponse,
        SearchResponse, StoryResponse, TotalIs, UploadQuery,
    },
};
use world::{World, grow};

/// How an operation is held to the definition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// It answers from all documents, and [`compare`] says what.
    Lists,
    /// It reads the document in its path. Where [`compare`] says nothing more, it answers a reader as it answers the owner.
    Reads,
    /// It changes the document in its path.
    Changes,
    /// It names a document in its body or query, under which it puts something.
    Adds,
    /// It searches, also under a document.
    Searches,
    /// It finds the bytes that it is sent, as [`compare_copies`] says.
    Finds,
    /// It tells of the caller alone.
    Tells,
    /// It is the owner's, has a key of its own, or tells of no document.
    Apart,
}

/// Whoever adds a row to the table says here how it is held, and in [`compare`] what it lists or counts.
fn held(row: &OperationInfo) -> Held {
    if matches!(row.access, Access::Owner | Access::RunnerKey | Access::Metrics) {
        return Held::Apart;
    }
    match row.name {
        "list_roots" | "list_files" | "search" => Held::Lists,
        "read_frontier"
        | "read_document"
        | "read_bytes"
        | "list_children"
        | "list_ancestors"
        | "list_siblings"
        | "list_subtree"
        | "list_links"
        | "read_evidence"
        | "read_story"
        | "read_cells"
        | "choose_portfolio"
        | "find_similar"
        | "view_document"
        | "expand_children"
        | "list_breadcrumbs"
        | "list_back_references" => Held::Reads,
        "cancel_ingest" | "change_priority" | "reprocess_file" | "update_document" | "delete_document"
        | "create_link" | "delete_link" | "embed_document" | "embed_tokens" | "make_raptor" | "split_document"
        | "chunk_document" | "segment_document" => Held::Changes,
        "upload_file" | "create_document" | "create_documents" | "ingest" | "create_conversation" => Held::Adds,
        "search_vector" | "search_fulltext" | "search_bm25" | "search_maxsim" | "search_hybrid" | "search_auto" => {
            Held::Searches
        }
        // Whose texts are read, and who sees what comes of it, `extraction::facts_of_a_closed_text_...` holds to the definition.
        "extract_facts" => Held::Apart,
        // So does `merges::merges_are_of_those_...` for what is taken for one.
        "list_merges" | "merge_entities" | "undo_merge" => Held::Apart,
        // `hidden` checks it with documents that the caller may not read, and each of its documents goes the way of `embed_tokens`.
        "embed_many_tokens" => Held::Apart,
        // `search_batch::each_search_of_a_batch_...` holds it to its searches.
        "search_batch" => Held::Apart,
        // What an answer is made of and shows, `synthesize::an_answer_is_made_of_...` holds to the definition.
        "synthesize" => Held::Apart,
        // Of facts, `triples::rights` holds every read to the definition; predicates are open to all.
        "rank_documents" | "rank_subtrees" | "find_spines" | "find_communities" | "find_neighbors"
        | "compare_facts" | "read_graph_stats" | "lint_graph" | "assert_fact" | "assert_facts" | "list_facts"
        | "read_fact" | "read_fact_history" | "supersede_fact" | "invalidate_fact" | "find_paths"
        | "create_predicate" | "list_predicates" | "read_predicate" => Held::Apart,
        // So do `ontologies::what_an_ontology_says_...` and `shape_bindings::bindings_are_of_those_...`.
        "create_ontology"
        | "list_ontologies"
        | "read_ontology"
        | "list_classes"
        | "delete_ontology"
        | "create_shape_binding"
        | "list_shape_bindings"
        | "read_shape_binding"
        | "update_shape_binding"
        | "delete_shape_binding"
        | "validate_shape" => Held::Apart,
        // So does `rdf::a_graph_is_as_closed_...`.
        "export_turtle" | "import_turtle" => Held::Apart,
        // What archives hold and what imports of them reach, `archive::rights` holds to the definition.
        "export_documents" | "export_links" | "import_documents" | "find_imported" | "import_bytes"
        | "import_links" | "import_facts" | "export_tokens" | "import_tokens" => Held::Apart,
        // Rules of views are open to all, and tell of no document.
        "list_presentations" | "read_presentation" => Held::Apart,
        // What templates reach, `templates` holds to the definition.
        "create_template" | "list_templates" | "read_template" | "update_template" | "delete_template"
        | "render_template" | "search_templates" => Held::Apart,
        // Who may not read the parent of a context does not see it: `contexts` holds that.
        "list_contexts" | "read_context" => Held::Apart,
        // What of the events a principal is told, `event_feed` holds to a definition.
        "follow_events" => Held::Apart,
        // A principal has webhooks of its own: `webhooks` holds that.
        "create_webhook" | "list_webhooks" | "read_webhook" | "delete_webhook" | "test_webhook" | "rotate_webhook"
        | "list_deliveries" | "retry_delivery" => Held::Apart,
        "read_caller" => Held::Tells,
        "analyze_file" => Held::Finds,
        "explain_ingest" | "list_pipelines" | "read_health" | "read_readiness" | "read_openapi" => Held::Apart,
        other => panic!("say how `{other}` is held to the definition of access, and what it lists or counts"),
    }
}

/// A fact about a document, with the predicate `knows`.
pub fn a_fact(id: i64) -> Value {
    json!({"subject_id": id, "predicate": "knows", "object_literal": "x", "on_overlap": "merge"})
}

/// The path from a document to itself.
pub fn a_path(id: i64) -> Value {
    json!({"from_id": id, "to_id": id, "valid_at": "2024-01-01T00:00:00Z"})
}

/// A call of an operation, about this document if it names one.
pub fn call(
    app: &TestApp,
    secret: &str,
    row: &OperationInfo,
    id: i64,
    query: &[(&str, String)],
) -> reqwest::RequestBuilder {
    let path = row
        .path
        .replace("{id}", &id.to_string())
        .replace("{principal_id}", "1")
        .replace("{link_id}", "1")
        .replace("{task_type}", "embed")
        .replace("{usetype}", "markdown");
    let request = app.http.request(row.method.clone(), format!("{}{path}", app.base)).bearer_auth(secret).query(query);
    match row.name {
        "upload_file" => {
            let form = Form::new().part("file", Part::bytes(b"Bytes that nobody has.".to_vec()).file_name("x.txt"));
            request.query(&[("parent_id", id)]).multipart(form)
        }
        "ingest" => request.json(&json!({"entry": "raw", "content": "Words that nobody has.", "parent_id": id})),
        "create_conversation" => {
            request.json(&json!({"turns": [{"speaker": "A", "text": "Words that nobody has."}], "parent_id": id}))
        }
        "create_document" => request.json(&json!({"title": "t", "content": "c", "parent_id": id})),
        "create_documents" => request.json(&json!({"documents": [{"title": "t", "content": "c", "parent_id": id}]})),
        "update_document" => request.json(&json!({"title": "t"})),
        "split_document" => request.json(&json!({"at": [1]})),
        "create_link" => request.json(&json!({"target_id": id, "link_type": "cites"})),
        "change_priority" => request.json(&json!({"priority": 1})),
        "choose_portfolio" => request.json(&json!({"tokens": 1_000_000})),
        "find_similar" => request.query(&[("limit", "100")]),
        "assert_fact" => request.json(&a_fact(id)),
        "list_facts" => request.query(&[("subject_id", id.to_string()), ("valid_at", "any".to_owned())]),
        "find_paths" => request.json(&a_path(id)),
        "supersede_fact" => request.json(&json!({"object_literal": "y"})),
        "synthesize" => request.json(&json!({"query": "heron", "limit": 100, "parent_id": id})),
        "find_neighbors" => {
            request.query(&[("document_id", id.to_string()), ("valid_at", "2026-01-01T00:00:00Z".to_owned())])
        }
        "search" if query.is_empty() => request.query(&[("q", "heron"), ("limit", "100"), ("group_by", "none")]),
        "search" => request.query(&[("q", "heron"), ("limit", "100")]),
        _ if held(row) == Held::Searches && id != 0 => {
            request.json(&json!({"query": "heron", "limit": 100, "parent_id": id, "group_by": "none"}))
        }
        _ if held(row) == Held::Searches => request.json(&json!({"query": "heron", "limit": 100, "group_by": "none"})),
        _ => request,
    }
}

async fn status(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

async fn json_of<T: serde::de::DeserializeOwned>(request: reqwest::RequestBuilder) -> T {
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.url());
    answer.json().await.unwrap()
}

/// A whole answer, without what tells the time.
async fn whole(request: reqwest::RequestBuilder) -> (u16, Vec<(String, String)>, String) {
    let answer = request.header("x-request-id", "the-same").send().await.unwrap();
    let headers = answer.headers().iter().filter(|(name, _)| *name != "date");
    let mut headers: Vec<_> =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    headers.sort();
    (answer.status().as_u16(), headers, answer.text().await.unwrap())
}

/// The ids of a list, all pages of it.
async fn pages(app: &TestApp, secret: &str, row: &OperationInfo, id: i64) -> Vec<i64> {
    let (mut ids, mut query) = (Vec::new(), vec![("limit", "7".to_owned())]);
    loop {
        let answer = call(app, secret, row, id, &query);
        let next = match row.name {
            "list_links" => {
                let page: LinkPage = json_of(answer).await;
                ids.extend(page.links.iter().map(|link| link.id));
                page.next_cursor
            }
            "list_files" => {
                let page: FilePage = json_of(answer).await;
                assert!(secret == TOKEN || page.files.iter().all(|file| file.nodes_total.is_none()));
                ids.extend(page.files.iter().map(|file| file.id));
                page.next_cursor
            }
            _ => {
                let page: DocumentPage = json_of(answer).await;
                ids.extend(page.documents.iter().map(|document| document.id));
                page.next_cursor
            }
        };
        match next {
            Some(cursor) => query = vec![("limit", "7".to_owned()), ("cursor", cursor)],
            None => return ids,
        }
    }
}

fn found(response: &SearchResponse) -> BTreeSet<i64> {
    response.results.iter().map(|result| result.document.id).collect()
}

/// Holds groups to what they are without the statements of the store: a principal finds the documents that it may read, and the topmost
/// that it may read of what stands for each of them shows it.
async fn compare_groups(app: &TestApp, rights: &Naive, who: &Someone, row: &OperationInfo) {
    let nodes: Vec<(i64, String, bool)> =
        sqlx::query_as("SELECT id, usetype, settled = 'settled' FROM documents").fetch_all(&app.pool).await.unwrap();
    let nodes: BTreeMap<i64, (String, bool)> = nodes.into_iter().map(|(id, usetype, is)| (id, (usetype, is))).collect();
    for group_by in ["file", "section"] {
        let parts: &[&str] = match group_by {
            "file" => &["chunk", "table", "record", "profile", "summary", "raptor", "section", "sheet"],
            _ => &["chunk", "table", "record", "profile", "summary", "raptor"],
        };
        let alone: SearchResponse = json_of(call(app, &who.secret, row, 0, &[])).await;
        let mut expected: Vec<(i64, f64)> = Vec::new();
        for result in &alone.results {
            let mut line = rights.line(result.document.id);
            line.reverse();
            let end = line.iter().position(|id| !parts.contains(&nodes[id].0.as_str())).map_or(line.len(), |at| at + 1);
            let shown = line[..end].iter().rfind(|id| rights.may(**id, false) && nodes[id].1).copied().unwrap();
            if !expected.iter().any(|(id, _)| *id == shown) {
                expected.push((shown, result.score));
            }
        }
        let query = [("group_by", group_by.to_owned()), ("per_group", "10".to_owned())];
        let grouped: SearchResponse = json_of(call(app, &who.secret, row, 0, &query)).await;
        let got: Vec<(i64, f64)> = grouped.results.iter().map(|result| (result.document.id, result.score)).collect();
        assert_eq!(got, expected, "{group_by} for principal {}", who.id);
        assert_eq!((grouped.total, grouped.total_is), (expected.len() as u64, TotalIs::Exact));
        for result in &grouped.results {
            let hits = result.hits.as_deref().unwrap();
            // A container all of whose texts are hidden has only its title.
            let is_container = ["file", "section", "sheet"].contains(&result.document.usetype.as_str());
            assert!(!hits.is_empty() || !result.document.content.is_empty() || is_container, "{result:?}");
            assert!(result.snippet.is_some());
            for hit in hits {
                assert!(
                    rights.may(hit.document.id, false) && hit.document.path.contains(&result.document.id),
                    "{hit:?}"
                );
                assert!(hit.texts.iter().all(|id| rights.may(*id, false)), "{hit:?}");
            }
        }
    }
}

/// Holds every operation of the table to the definition, for one principal.
async fn compare(app: &TestApp, world: &World, who: &Someone) {
    let rights = world.of(who);
    let ids = world.ids();
    let reads = |id: i64| rights.may(id, false);
    let at_or_under = |node: i64, id: i64| node == id || rights.path[&node].contains(&id);
    for row in OPERATIONS {
        let shown = |id| format!("{} of {id}, for principal {}: {:?}", row.name, who.id, rights.path.get(&id));
        let ask = |id| call(app, &who.secret, row, id, &[]);
        if row.access == Access::Owner {
            assert_eq!(status(ask(ids[0])).await, 403, "{}", row.name);
        }
        match held(row) {
            Held::Apart | Held::Tells | Held::Finds => {}
            Held::Lists if row.name == "list_roots" => {
                let expected: Vec<i64> =
                    ids.iter().copied().filter(|id| reads(*id) && rights.path[id].is_empty()).collect();
                assert_eq!(pages(app, &who.secret, row, 0).await, expected, "{}", shown(0));
            }
            Held::Lists if row.name == "list_files" => {
                let mut expected = pages(app, TOKEN, row, 0).await;
                expected.retain(|id| reads(*id));
                assert_eq!(pages(app, &who.secret, row, 0).await, expected, "{}", shown(0));
            }
            Held::Lists | Held::Searches => {
                if row.name == "search" {
                    compare_groups(app, &rights, who, row).await;
                }
                let scopes = if row.name == "search" { vec![0] } else { [&[0], &ids[..]].concat() };
                for scope in scopes {
                    if scope != 0 && !reads(scope) {
                        assert_eq!(status(ask(scope)).await, 404, "{}", shown(scope));
                        continue;
                    }
                    // A search runs for a while, so only some scopes are searched.
                    if scope % 3 != 0 {
                        continue;
                    }
                    let all: SearchResponse = json_of(call(app, TOKEN, row, scope, &[])).await;
                    assert!(all.results.len() < 100, "the owner is shown all that there is");
                    let response: SearchResponse = json_of(ask(scope)).await;
                    let expected: BTreeSet<i64> = found(&all).into_iter().filter(|id| reads(*id)).collect();
                    assert_eq!(found(&response), expected, "{}", shown(scope));
                    assert_eq!(
                        (response.total, response.total_is),
                        (expected.len() as u64, TotalIs::Exact),
                        "{}",
                        shown(scope)
                    );
                    let failed = ids.iter().filter(|id| {
                        world.settled[id] == "failed" && reads(**id) && (scope == 0 || at_or_under(**id, scope))
                    });
                    let state = (response.scope_state.in_flight, response.scope_state.failed);
                    assert_eq!(state, (0, failed.count() as i64), "{}", shown(scope));
                }
            }
            Held::Reads => {
                for id in ids.iter().copied() {
                    if !reads(id) {
                        assert_eq!(status(ask(id)).await, 404, "{}", shown(id));
                        continue;
                    }
                    let readable = |node: &i64| reads(*node);
                    match row.name {
                        "list_children" => {
                            let of = |node: &i64| rights.path[node].last() == Some(&id) && readable(node);
                            let mut got = pages(app, &who.secret, row, id).await;
                            got.sort_unstable();
                            assert_eq!(got, ids.iter().copied().filter(of).collect::<Vec<_>>(), "{}", shown(id));
                        }
                        "list_subtree" => {
                            let of = |node: &i64| rights.path[node].contains(&id) && readable(node);
                            let mut expected: Vec<i64> = ids.iter().copied().filter(of).collect();
                            expected.sort_by_key(|id| rights.line(*id));
                            assert_eq!(pages(app, &who.secret, row, id).await, expected, "{}", shown(id));
                        }
                        "list_ancestors" => {
                            let expected: Vec<i64> = rights.path[&id].iter().copied().filter(|id| reads(*id)).collect();
                            assert_eq!(pages(app, &who.secret, row, id).await, expected, "{}", shown(id));
                        }
                        "list_siblings" => {
                            let of = |node: &i64| {
                                *node != id && rights.path[node].last() == rights.path[&id].last() && readable(node)
                            };
                            let mut got = pages(app, &who.secret, row, id).await;
                            got.sort_unstable();
                            assert_eq!(got, ids.iter().copied().filter(of).collect::<Vec<_>>(), "{}", shown(id));
                        }
                        "list_links" => {
                            let of = |(_, source, target): &&(i64, i64, i64)| {
                                (*source == id && reads(*target)) || (*target == id && reads(*source))
                            };
                            let expected: Vec<i64> = world.links.iter().filter(of).map(|(link, ..)| *link).collect();
                            assert_eq!(pages(app, &who.secret, row, id).await, expected, "{}", shown(id));
                        }
                        "read_frontier" => {
                            let frontier: FrontierResponse = json_of(ask(id)).await;
                            let under: Vec<i64> =
                                ids.iter().copied().filter(|node| at_or_under(*node, id) && reads(*node)).collect();
                            let in_state =
                                |state| under.iter().filter(|node| world.settled[node] == state).count() as i64;
                            let expected =
                                (under.len() as i64, in_state("settled"), in_state("in_flight"), in_state("failed"));
                            let FrontierResponse { nodes_total, nodes_settled, nodes_in_flight, nodes_failed, .. } =
                                frontier;
                            let got = (nodes_total, nodes_settled, nodes_in_flight, nodes_failed);
                            assert_eq!(got, expected, "{}", shown(id));
                        }
                        "choose_portfolio" => {
                            // A document alone has nothing to choose from, as one under which everything is hidden.
                            let leaves = world.texts.iter().filter(|(leaf, _)| at_or_under(*leaf, id) && *leaf != id);
                            // What is hidden under a text does not keep it from being a leaf.
                            let is_leaf = |(leaf, children): &&(i64, Vec<i64>)| {
                                reads(*leaf) && !children.iter().any(|child| reads(*child))
                            };
                            let expected = leaves.filter(is_leaf).count();
                            if expected == 0 {
                                assert_eq!(status(ask(id)).await, 422, "{}", shown(id));
                                continue;
                            }
                            let chosen: PortfolioResponse = json_of(ask(id)).await;
                            assert_eq!((chosen.leaves, chosen.candidates), (expected, expected), "{}", shown(id));
                            let hidden = chosen.nodes.iter().find(|node| !reads(node.document.id));
                            assert!(hidden.is_none(), "{}: {hidden:?}", shown(id));
                        }
                        "find_similar" => {
                            let owners = status(call(app, TOKEN, row, id, &[])).await;
                            if owners != 200 {
                                assert_eq!(status(ask(id)).await, owners, "{}", shown(id));
                                continue;
                            }
                            // The owner finds all that have a vector, and the caller those of them that it may read.
                            let found = async |request| -> BTreeSet<i64> {
                                let found: SearchResponse = json_of(request).await;
                                found.results.iter().map(|result| result.document.id).collect()
                            };
                            let all = found(call(app, TOKEN, row, id, &[])).await;
                            let expected: BTreeSet<i64> = all.into_iter().filter(|id| reads(*id)).collect();
                            assert_eq!(found(ask(id)).await, expected, "{}", shown(id));
                        }
                        "view_document" | "expand_children" | "list_breadcrumbs" | "list_back_references" => {
                            views::compare(row, ask(id), world, &rights, id).await;
                        }
                        "read_cells" => {
                            // The cells are read from the file, which must be readable too.
                            let hidden = rights.line(id).into_iter().any(|node| !reads(node));
                            let owners = status(call(app, TOKEN, row, id, &[])).await;
                            let got = status(ask(id)).await;
                            assert!(got == owners || (hidden && got == 422), "{}: {got}, not {owners}", shown(id));
                        }
                        "read_story" => {
                            // Each attempt at what the caller may read of the file, and no other.
                            let attempts: Vec<i64> = sqlx::query_scalar(
                                "SELECT document_id FROM task_attempts WHERE document_id = $1
                                    OR document_id IN (SELECT document_id FROM ingest_node WHERE root_id = $1)",
                            )
                            .bind(id)
                            .fetch_all(&app.pool)
                            .await
                            .unwrap();
                            let expected = attempts.iter().filter(|node| reads(**node)).count() as i64;
                            let story: StoryResponse = json_of(ask(id)).await;
                            let told: i64 = story.entries.iter().map(|entry| entry.attempts).sum();
                            assert_eq!((told, story.next_cursor), (expected, None), "{}", shown(id));
                        }
                        "read_evidence" => {
                            // What attempts say of machines is the owner's alone, so that the values differ.
                            let names =
                                |evidence: EvidenceResponse| evidence.evidence.keys().cloned().collect::<Vec<_>>();
                            let owners: EvidenceResponse = json_of(call(app, TOKEN, row, id, &[])).await;
                            assert_eq!(names(json_of(ask(id)).await), names(owners), "{}", shown(id));
                        }
                        _ => {
                            let (owners, _, expected) = whole(call(app, TOKEN, row, id, &[])).await;
                            let (status, _, got) = whole(ask(id)).await;
                            assert_eq!((status, got), (owners, expected), "{}", shown(id));
                        }
                    }
                }
            }
            Held::Changes | Held::Adds => {
                for id in ids.iter().copied().filter(|id| !rights.may(*id, true)) {
                    assert_eq!(status(ask(id)).await, if reads(id) { 403 } else { 404 }, "{}", shown(id));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_shows_each_principal_what_the_definition_allows() {
    for seed in [3, 8] {
        let (app, mut random) = (TestApp::start().await, Random(seed * 104_729));
        let mut world = grow(&app, &mut random).await;
        let principals = [someone(&app, "one").await, someone(&app, "two").await];
        for _ in 0..2 {
            for _ in 0..6 {
                world.change(&app, &mut random, &principals).await;
            }
            for who in &principals {
                compare(&app, &world, who).await;
            }
        }
        compare_missing(&app, &mut world, &principals).await;
        compare_copies(&app, &mut world, &principals).await;
        app.end().await;
    }
}

/// What may not be read is answered as what does not exist: each answer is the same to the byte after the document is deleted.
async fn compare_missing(app: &TestApp, world: &mut World, principals: &[Someone]) {
    for who in principals {
        let rights = world.of(who);
        // A leaf, so that nothing else goes with it.
        let is_leaf = |id: &i64| !world.naive.path.values().any(|path| path.contains(id));
        let Some(id) = world.ids().into_iter().find(|id| is_leaf(id) && !rights.may(*id, false)) else { continue };
        let names_one =
            |row: &&OperationInfo| !matches!(held(row), Held::Apart | Held::Tells | Held::Finds | Held::Lists);
        let mut before = Vec::new();
        for row in OPERATIONS.iter().filter(names_one) {
            before.push(whole(call(app, &who.secret, row, id, &[])).await);
        }
        app.client.delete_document(DocumentPath { id }).await.unwrap();
        for (row, before) in OPERATIONS.iter().filter(names_one).zip(before) {
            assert_eq!(before.0, 404, "{}", row.name);
            assert_eq!(
                whole(call(app, &who.secret, row, id, &[])).await,
                before,
                "{} tells that there was one",
                row.name
            );
        }
        world.renew(app).await;
    }
}

/// An upload and an analysis find the bytes that their caller may read, and no others; a private upload only what a grant reaches.
async fn compare_copies(app: &TestApp, world: &mut World, principals: &[Someone]) {
    let rows: Vec<(i64, String, String)> =
        sqlx::query_as("SELECT id, content_hash, title FROM documents WHERE usetype = 'file' ORDER BY id")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    for (id, _, title) in rows.into_iter().filter(|(_, _, title)| title != "x.txt") {
        let download = app.raw("GET", &format!("/documents/{id}/bytes")).send().await.unwrap();
        let bytes = download.bytes().await.unwrap();
        for who in principals {
            for private in [true, false] {
                world.renew(app).await;
                let rights = world.of(who);
                let query = UploadQuery { private, ..UploadQuery::default() };
                let file = || FileUpload::from_bytes(&title, bytes.clone(), None);
                let analysis = who.client.analyze_file(file()).await.unwrap();
                let stored = who.client.upload_file(query, file()).await.unwrap();
                let copies: Vec<i64> = sqlx::query_scalar(
                    "SELECT id FROM documents WHERE usetype = 'file' AND content_hash = $1 AND id <> $2",
                )
                .bind(&stored.content_hash)
                .bind(if stored.was_existing { 0 } else { stored.document_id })
                .fetch_all(&app.pool)
                .await
                .unwrap();
                let reached = |id: &i64| rights.may(*id, false) && (!private || rights.guard(*id) != 0);
                let expected = copies.iter().copied().filter(reached).min();
                let got = stored.was_existing.then_some(stored.document_id);
                assert_eq!(got, expected, "private: {private}, copies: {copies:?}");
                let readable = copies.iter().copied().filter(|id| rights.may(*id, false)).min();
                assert_eq!(analysis.already_stored.map(|stored| stored.document_id), readable, "copies: {copies:?}");
                if private && !stored.was_existing {
                    world.naive.roots.insert(stored.document_id);
                    world.grants.entry(who.id).or_default().insert(stored.document_id, true);
                }
            }
        }
    }
}
