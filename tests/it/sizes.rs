//! Large documents: which are accepted, and how much of them one answer shows.
use crate::{
    support::{TestApp, Wish, document},
    triples::{day, fact, predicate, says},
};
use serde_json::{Value, json};
use svc_client::{
    Json, OptionalJson,
    wire::{
        ArchiveQuery, Bm25Search, DocumentPath, FactPath, Invalidation, NewDocument, NewFact, NewFacts, NewLink,
        PageQuery, PathSearch, WaitQuery,
    },
};

/// A small page, so that a few documents fill it.
const SMALL_PAGES: &[(&str, &str)] = &[("SVC_PAGE_BYTES", "64 KiB")];
const PAGE: usize = 64 * 1024;
/// Two of them fill a page.
const TEXT: usize = 25_000;

async fn create(app: &TestApp, new: NewDocument) -> i64 {
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

/// An answer as it is sent: its bytes and its JSON.
async fn get(app: &TestApp, path: &str) -> (usize, Value) {
    let bytes = app.raw("GET", path).send().await.unwrap().bytes().await.unwrap();
    (bytes.len(), serde_json::from_slice(&bytes).unwrap())
}

fn ids(page: &Value) -> Vec<i64> {
    page["documents"].as_array().unwrap().iter().map(|document| document["id"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_callers_is_refused_by_the_name_of_field_and_limit() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let zeros = format!("{{\"a\": [{}0]}}", "0,".repeat(7_000_000));
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100), "]".repeat(100));
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(2 << 20));
    let twice = r#"{"a": [{"b": 1, "b": 2}]}"#.to_owned();
    for (value, limit) in
        [(zeros, "100000 values"), (deep, "64 levels"), (long, "1048576 bytes"), (twice, "`b` stands there twice")]
    {
        for (path, body, field) in [
            (
                "/documents",
                format!(r#"{{"title": "t", "content": "", "structured_content": {value}}}"#),
                "structured_content",
            ),
            (
                "/search/bm25",
                format!(r#"{{"query": "x", "filter": {{"structured_content": {value}}}}}"#),
                "filter.structured_content",
            ),
        ] {
            let request = app.raw("POST", path).header("content-type", "application/json").body(body);
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 422, "{path} {limit}");
            let problem: Value = response.json().await.unwrap();
            assert_eq!(problem["field"], field, "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains(limit), "{problem}");
        }
    }
    let within = json!({"list": vec![0; 50_000], "text": "x".repeat(1 << 19)});
    let new = NewDocument { structured_content: within.as_object().unwrap().clone(), ..document("within", "") };
    let id = create(&app, new).await;
    let read = app.client.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap();
    assert_eq!(Value::Object(read.structured_content), within);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_documents_ends_early_and_no_document_is_lost() {
    let app = TestApp::with(Wish { settings: SMALL_PAGES, no_worker: true, ..Wish::default() }).await;
    let folder = create(&app, document("folder", "")).await;
    let mut made = Vec::new();
    for number in 0..9 {
        // One of them alone is more than a page.
        let length = if number == 4 { 3 * PAGE } else { TEXT };
        let new = NewDocument {
            parent_id: Some(folder),
            ..document(&format!("number {number}"), &"word ".repeat(length / 5))
        };
        made.push(create(&app, new).await);
    }
    for list in ["children", "subtree"] {
        let path = format!("/documents/{folder}/{list}?limit=1000");
        let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let (bytes, page) = get(&app, &format!("{path}{cursor}")).await;
            assert!(
                bytes <= PAGE + 1024 || ids(&page).len() == 1,
                "{list}: {bytes} bytes with {} rows",
                ids(&page).len()
            );
            seen.extend(ids(&page));
            pages += 1;
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!((&seen, pages), (&made, 5), "{list}");
        let (bytes, page) = get(&app, &format!("{path}&include_content=false")).await;
        assert!(bytes < 16 * 1024, "{list}: {bytes} bytes");
        assert_eq!((ids(&page), &page["next_cursor"]), (made.clone(), &Value::Null), "{list}");
        assert_eq!(page["documents"][0]["omitted"], json!(["content"]));
        assert_eq!(page["documents"][0]["content"], "");
    }
    let roots = app.client.list_roots(PageQuery::default()).await.unwrap();
    assert!(roots.documents.iter().all(|root| root.omitted.is_empty()));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_leaves_out_the_texts_that_it_has_no_room_for_and_says_so() {
    let app = TestApp::with(Wish { settings: SMALL_PAGES, ..Wish::default() }).await;
    for number in 0..5 {
        let content = format!("heron {}", "marsh ".repeat(TEXT / 6 + number));
        let structured_content = json!({"number": number}).as_object().unwrap().clone();
        let new = NewDocument { structured_content, ..document(&format!("number {number}"), &content) };
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    }
    let search = |include_content| Bm25Search { include_content, ..Bm25Search::new("heron") };
    let answer = app.client.search_bm25(Json(search(true))).await.unwrap();
    let shown: Vec<(bool, bool, Vec<&str>)> = answer
        .results
        .iter()
        .map(|result| {
            let document = &result.document;
            let omitted = document.omitted.iter().map(String::as_str).collect();
            (document.content.is_empty(), document.structured_content.is_empty(), omitted)
        })
        .collect();
    let (whole, bare) = ((false, false, vec![]), (true, true, vec!["content", "structured_content"]));
    assert_eq!(shown, [whole.clone(), whole, bare.clone(), bare.clone(), bare]);
    assert!(serde_json::to_vec(&answer).unwrap().len() < PAGE);
    let answer = app.client.search_bm25(Json(search(false))).await.unwrap();
    assert_eq!(answer.results.len(), 5);
    assert!(
        answer
            .results
            .iter()
            .all(|result| result.document.omitted == ["content"] && !result.document.structured_content.is_empty())
    );
    let (_, answer) = get(&app, "/search/?q=heron&include_content=false").await;
    assert_eq!(answer["results"][0]["omitted"], json!(["content"]));
    app.end().await;
}

/// Long texts take the room of the answer. The next text is short enough for its share, but no longer fits; the last one fits.
#[tokio::test]
async fn a_text_within_its_share_is_left_out_if_those_before_it_took_the_room_and_its_snippet_is_shown() {
    let app = TestApp::with(Wish { settings: SMALL_PAGES, ..Wish::default() }).await;
    let mut stored = Vec::new();
    // The more often a text has the word, the better it ranks.
    for herons in [3_413, 3_412, 3_411, 850, 170] {
        let new = document(&format!("{herons} times"), &vec!["heron"; herons].join(" "));
        let created = app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await;
        stored.push(created.unwrap().document.id);
    }
    let body = Bm25Search { snippets: Some(true), ..Bm25Search::new("heron") };
    let answer = app.client.search_bm25(Json(body)).await.unwrap();
    let shown: Vec<(i64, usize, Vec<&str>)> = answer
        .results
        .iter()
        .map(|result| {
            let document = &result.document;
            (document.id, document.content.len(), document.omitted.iter().map(String::as_str).collect())
        })
        .collect();
    let whole = |at: usize, herons: usize| (stored[at], 6 * herons - 1, vec![]);
    let bare = (stored[3], 0, vec!["content", "structured_content"]);
    assert_eq!(shown, [whole(0, 3_413), whole(1, 3_412), whole(2, 3_411), bare, whole(4, 170)]);
    assert!(answer.results.iter().all(|result| result.snippet.as_ref().unwrap().text.contains("heron heron")));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_links_ends_early_and_no_link_is_lost() {
    let app = TestApp::with(Wish { settings: SMALL_PAGES, no_worker: true, ..Wish::default() }).await;
    let (from, to) = (create(&app, document("from", "")).await, create(&app, document("to", "")).await);
    let mut made = Vec::new();
    for number in 0..9 {
        // One of them alone is larger than a page, and no two of the others fit together.
        let values = if number == 4 { 20_000 } else { 4_000 };
        let metadata: Value = (0..values).map(|at| json!(at * 7_919 % 100_003)).collect();
        let new = NewLink {
            target_id: to,
            link_type: format!("number-{number}"),
            metadata: json!({ "values": metadata }).as_object().unwrap().clone(),
            score: None,
        };
        made.push(app.client.create_link(DocumentPath { id: from }, Json(new)).await.unwrap().id);
    }
    for path in [
        format!("/documents/{from}/links?limit=1000"),
        format!("/documents/{to}/links?limit=1000"),
        format!("/documents/{from}/links?limit=2"),
    ] {
        let (mut seen, mut next) = (Vec::new(), String::new());
        loop {
            let (_, page) = get(&app, &format!("{path}{next}")).await;
            let links = page["links"].as_array().unwrap();
            assert!(links.len() == 1, "{path}: {}", links.len());
            seen.extend(links.iter().map(|link| link["id"].as_i64().unwrap()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
        assert_eq!(seen, made, "{path}");
    }
    let mut archived = Vec::new();
    let mut cursor = None;
    loop {
        let query = ArchiveQuery { cursor: cursor.take(), limit: Some(1_000), ..ArchiveQuery::default() };
        let page = app.client.export_links(query).await.unwrap();
        archived.push(page.links.len());
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(archived, [1; 9]);
    // What the reader shows of a link has no metadata, so that all are shown.
    let (_, view) = get(&app, &format!("/view/{from}")).await;
    assert_eq!(view["links"]["links"].as_array().unwrap().len(), 9, "{view}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_leaves_out_the_texts_that_its_answer_has_no_room_for_and_says_so() {
    let app = TestApp::with(Wish { settings: SMALL_PAGES, no_worker: true, ..Wish::default() }).await;
    predicate(&app, "leads").await;
    let mut chain = Vec::new();
    for number in 0..5 {
        chain.push(create(&app, document(&format!("number {number}"), &"word ".repeat(TEXT / 5))).await);
    }
    let facts = chain.windows(2).map(|pair| fact(pair[0], "leads", pair[1])).collect();
    app.client.assert_facts(Json(NewFacts { facts, on_overlap: None })).await.unwrap();
    let found = app.client.find_paths(Json(PathSearch::new(chain[0], chain[4]))).await.unwrap();
    assert_eq!(found.paths.iter().map(|path| path.length).collect::<Vec<_>>(), [4]);
    let shown: Vec<(i64, bool, Vec<&str>)> = found
        .documents
        .iter()
        .map(|document| {
            (document.id, document.content.is_empty(), document.omitted.iter().map(String::as_str).collect())
        })
        .collect();
    let whole = |id: i64| (id, false, vec![]);
    let bare = |id: i64| (id, true, vec!["content", "structured_content"]);
    assert_eq!(shown, [whole(chain[0]), whole(chain[1]), bare(chain[2]), bare(chain[3]), bare(chain[4])]);
    assert!(serde_json::to_vec(&found).unwrap().len() < PAGE);
    app.end().await;
}

/// The ids of the facts on each page of a list, of which none is larger than a page may be.
async fn pages_of_facts(app: &TestApp, path: &str) -> Vec<Vec<i64>> {
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let (bytes, page) = get(app, &format!("{path}{next}")).await;
        assert!(bytes <= PAGE + 1024, "{path}: {bytes} bytes");
        let facts = page["facts"].as_array().or(page["changes"].as_array()).unwrap();
        pages.push(facts.iter().map(|row| row["id"].as_i64().or(row["fact"]["id"].as_i64()).unwrap()).collect());
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => return pages,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_facts_ends_early_and_no_fact_is_lost() {
    let app = TestApp::with(Wish { settings: SMALL_PAGES, no_worker: true, ..Wish::default() }).await;
    predicate(&app, "notes").await;
    let about = create(&app, document("about", "")).await;
    let mut long = Vec::new();
    for number in 0..5 {
        let new = says(about, "notes", &format!("{number}{}", "x".repeat(60 * 1024)));
        long.push(app.client.assert_fact(Json(new)).await.unwrap().fact.id);
    }
    let one_a_page: Vec<Vec<i64>> = long.iter().map(|id| vec![*id]).collect();
    assert_eq!(pages_of_facts(&app, &format!("/triples?subject_id={about}&limit=1000")).await, one_a_page);
    assert_eq!(pages_of_facts(&app, &format!("/triples?subject_id={about}&limit=2")).await, one_a_page);
    assert_eq!(pages_of_facts(&app, "/graph/diff?known_from=2024-01-01T00:00:00Z&limit=1000").await, one_a_page);
    // What is left of a fact on either side of a time is a form of it too.
    let gone = Invalidation { valid_from: Some(day(1)), valid_until: Some(day(2)), ..Invalidation::default() };
    let gone = app.client.invalidate_fact(FactPath { id: long[0] }, OptionalJson(Some(gone))).await.unwrap();
    let forms: Vec<Vec<i64>> =
        [long[0]].into_iter().chain(gone.remainders.iter().map(|fact| fact.id)).map(|id| vec![id]).collect();
    assert_eq!(forms.len(), 3);
    assert_eq!(pages_of_facts(&app, &format!("/triples/{}/history?limit=1000", long[0])).await, forms);

    // Quotes count as well.
    let text: String = (0..9).map(|n| format!("{n}{}", "y".repeat(8_999))).collect();
    let source = create(&app, document("source", &text)).await;
    let facts = (0..9).map(|n| NewFact {
        source_id: Some(source),
        quote: Some(text[n * 9_000..(n + 1) * 9_000].to_owned()),
        ..says(about, "notes", &n.to_string())
    });
    let batch = NewFacts { facts: facts.collect(), on_overlap: None };
    let made = app.client.assert_facts(Json(batch)).await.unwrap();
    let pages = pages_of_facts(&app, &format!("/triples?source_id={source}&limit=1000")).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3]);
    let mut made: Vec<i64> = made.facts.iter().map(|fact| fact.id).collect();
    made.sort_unstable();
    assert_eq!(pages.concat(), made);
    app.end().await;
}
