//! Results in groups: containers stand for their texts.
use crate::{
    principals::{grant, someone},
    support::{TestApp, Wish, document, invariants, sample, searches::ask, until},
};
use serde_json::json;
use std::collections::BTreeSet;
use svc_client::{
    Json,
    wire::{
        BatchItem, Bm25Search, DocumentPath, DocumentResponse, FulltextSearch, GrantRight, GroupBy, HybridSearch,
        MaxsimSearch, NewBatch, NewDocument, RerankMethod, SearchFilter, SearchMethod, SearchQuery, SearchResponse,
        SearchResult, TaskQuery, TotalIs, VectorSearch, WaitQuery,
    },
};

const QUERY: &str = "radar gauge";

/// A file whose every section is about the query.
fn book(sections: usize) -> String {
    (0..sections).map(|n| format!("# Tank {n}\n\nThe radar gauge of tank {n}.\n\n")).collect()
}

/// A file with one section about the query, behind others.
fn leaflet(n: usize) -> String {
    let other = ["herons in the reeds", "bread and yeast", "votes of the assembly"][n % 3];
    format!(
        "# Leaflet {n}\n\nSome words about {other}.\n\n# More\n\nLong words about {other} and all that they mean to \
         people who like to read them, and among them one radar gauge of station {n}.\n"
    )
}

async fn file(app: &TestApp, name: &str, text: String) -> i64 {
    let id = app.upload_bytes(name, text).await.unwrap().document_id;
    app.settled(id).await;
    id
}

/// One search by each method.
async fn by_each_method(
    app: &TestApp,
    (limit, group_by, per_group): (u32, GroupBy, u32),
    parent_id: Option<i64>,
) -> Vec<SearchResponse> {
    macro_rules! by {
        ($type:ident, $method:ident) => {
            app.client
                .$method(Json($type { limit, group_by: Some(group_by), per_group, parent_id, ..$type::new(QUERY) }))
                .await
                .unwrap()
        };
    }
    vec![
        by!(VectorSearch, search_vector),
        by!(FulltextSearch, search_fulltext),
        by!(Bm25Search, search_bm25),
        by!(MaxsimSearch, search_maxsim),
        by!(HybridSearch, search_hybrid),
    ]
}

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

fn hits(result: &SearchResult) -> Vec<i64> {
    result.hits.iter().flatten().map(|hit| hit.document.id).collect()
}

fn titled<'a>(tree: &'a [DocumentResponse], usetype: &str, title: &str) -> &'a DocumentResponse {
    tree.iter().find(|node| node.usetype == usetype && node.title == title).unwrap()
}

#[tokio::test]
async fn as_many_files_as_asked_for_are_shown_each_with_its_text_though_one_fills_the_ranking() {
    let app = TestApp::start().await;
    let book = file(&app, "book.md", book(130)).await;
    let mut files = BTreeSet::from([book]);
    for n in 0..11 {
        files.insert(file(&app, &format!("leaflet-{n}.md"), leaflet(n)).await);
    }
    for found in by_each_method(&app, (10, GroupBy::File, 2), None).await {
        let shown: BTreeSet<i64> = ids(&found).into_iter().collect();
        assert!(shown.len() == 10 && shown.is_subset(&files), "{}: {shown:?}", found.method);
        assert!(found.total >= 10 && found.group_by == Some(GroupBy::File), "{}", found.method);
        for result in &found.results {
            let hits = result.hits.as_deref().unwrap();
            assert!((1..=2).contains(&hits.len()), "{}: {result:?}", found.method);
            assert!(hits.iter().all(|hit| hit.document.path.contains(&result.document.id)), "{result:?}");
            assert!(hits.iter().all(|hit| !hit.document.content.is_empty() || !hit.texts.is_empty()), "{result:?}");
            assert_eq!(result.document.usetype, "file");
        }
    }
    // All of them are counted once nothing else matches.
    for found in by_each_method(&app, (20, GroupBy::File, 1), None).await {
        assert_eq!((found.results.len(), found.total, found.total_is), (12, 12, TotalIs::Exact), "{}", found.method);
    }
    // The best result of each group, in order, is what the ranking has without groups.
    for group_by in [GroupBy::File, GroupBy::Section] {
        let alone = by_each_method(&app, (100, GroupBy::None, 1), None).await;
        for (alone, grouped) in alone.iter().zip(by_each_method(&app, (100, group_by, 1), None).await) {
            let stands = |result: &SearchResult| match (group_by, result.document.usetype.as_str()) {
                (_, "file") | (GroupBy::Section, "section") => result.document.id,
                (GroupBy::Section, _) => *result.document.path.last().unwrap(),
                _ => result.document.path[0],
            };
            let (mut expected, mut seen) = (Vec::new(), BTreeSet::new());
            for result in &alone.results {
                if seen.insert(stands(result)) {
                    expected.push((stands(result), result.score));
                }
            }
            let mut got: Vec<(i64, f64)> =
                grouped.results.iter().map(|result| (result.document.id, result.score)).collect();
            // Deeper legs give other ranks to what is behind the first hundred.
            let (fused, whole) =
                (matches!(alone.method, SearchMethod::Hybrid | SearchMethod::Maxsim), alone.total <= 100);
            if fused && !whole {
                continue;
            }
            let both = expected.len().min(got.len());
            // Full text that also shows what has some of the words gives what has all of them higher scores, in the same order.
            if alone.method == SearchMethod::Fulltext {
                got.iter_mut().chain(&mut expected).for_each(|(_, score)| *score = 0.0);
            }
            assert_eq!(got[..both], expected[..both], "{} {group_by}", alone.method);
        }
    }
    app.end().await;
}

#[tokio::test]
async fn groups_by_their_wholes_have_one_order_on_all_pages() {
    let app = TestApp::start().await;
    let mut files = BTreeSet::new();
    for n in 0..9 {
        files.insert(file(&app, &format!("leaflet-{n}.md"), leaflet(n)).await);
    }
    files.insert(file(&app, "book.md", book(3)).await);
    for method in ["vector", "hybrid", "auto", "bm25", "fulltext", "maxsim"] {
        let mut body = json!({"query": QUERY, "limit": 100, "group_by": "file"});
        let alone = ids(&ask(&app.client, method, &body).await.unwrap());
        body["with_whole"] = json!(true);
        let whole = ids(&ask(&app.client, method, &body).await.unwrap());
        assert_eq!(whole.iter().copied().collect::<BTreeSet<_>>(), files, "{method}");
        if !["vector", "hybrid", "auto"].contains(&method) {
            assert_eq!(whole, alone, "{method} finds no wholes");
        }
        body["limit"] = json!(3);
        let mut paged = Vec::new();
        loop {
            let page = ask(&app.client, method, &body).await.unwrap();
            paged.extend(ids(&page));
            let Some(cursor) = page.next_cursor else { break };
            assert!(paged.len() < files.len(), "{method} comes to no end");
            body["cursor"] = cursor.into();
        }
        assert_eq!(paged, whole, "{method}");
    }
    // Each file stands where the sum of its own score and of the best score within it puts it.
    let all = ask(&app.client, "vector", &json!({"query": QUERY, "limit": 100})).await.unwrap().results;
    let last = all.last().unwrap().score;
    let together = |file: i64| {
        let whole = all.iter().find(|result| result.document.id == file);
        let part = all.iter().find(|result| result.document.path.contains(&file));
        whole.map_or(last, |whole| whole.score) + part.map_or(last, |part| part.score)
    };
    let body = json!({"query": QUERY, "limit": 100, "group_by": "file", "with_whole": true});
    let ordered = ids(&ask(&app.client, "vector", &body).await.unwrap());
    assert!(ordered.windows(2).all(|two| together(two[0]) >= together(two[1]) - 1e-9), "{ordered:?}");
    app.end().await;
}

#[tokio::test]
async fn a_file_shows_at_most_as_many_texts_as_asked_for_and_a_section_instead_of_most_of_its_texts() {
    let app = TestApp::start().await;
    let dense: String = (0..3)
        .map(|n| format!("The radar gauge number {n} measures the level of the tank. ").repeat(12) + "\n\n")
        .collect();
    let text = format!(
        "# Gauges\n\n{dense}# Herons\n\nThe heron waits in the reeds.\n\n# Radar\n\nA radar without anything else.\n"
    );
    let id = app
        .client
        .upload_file(
            svc_client::wire::UploadQuery::default(),
            svc_client::FileUpload::from_bytes(
                "tanks.md",
                text.into_bytes(),
                serde_json::from_str(r#"{"structure": {"max_tokens": 200}}"#).ok(),
            ),
        )
        .await
        .unwrap()
        .document_id;
    app.settled(id).await;
    let tree = app.subtree(id).await;
    let gauges = titled(&tree, "section", "Gauges").id;
    let leaves = tree.iter().filter(|node| node.parent_id == Some(gauges)).count();
    assert!(leaves > 2, "{tree:?}");
    let search = async |limit, per_group, group_by| {
        let body = Bm25Search { limit, per_group, group_by: Some(group_by), ..Bm25Search::new(QUERY) };
        app.client.search_bm25(Json(body)).await.unwrap()
    };
    let found = search(10, 3, GroupBy::File).await;
    assert_eq!(ids(&found), [id]);
    let first = &found.results[0].hits.as_ref().unwrap()[0];
    assert_eq!((first.document.id, first.texts.len()), (gauges, leaves));
    assert_eq!(first.score, Some(found.results[0].score));
    assert_eq!(hits(&found.results[0]).len(), 2, "and the section about radar: {found:?}");
    // If one text of the section is among the best, that text comes.
    let one = search(1, 3, GroupBy::File).await;
    assert_eq!(
        hits(&one.results[0]),
        [first.texts[0]].into_iter().chain(first.texts[1..].iter().copied()).take(3).collect::<Vec<_>>()
    );
    let one = search(1, 1, GroupBy::File).await;
    assert_eq!(hits(&one.results[0]), first.texts[..1]);
    let sections = search(10, 10, GroupBy::Section).await;
    assert_eq!((ids(&sections)[0], hits(&sections.results[0])), (gauges, first.texts.clone()));
    for (per_group, refused) in [(0, true), (1, false), (10, false), (11, true)] {
        let body = Bm25Search { per_group, ..Bm25Search::new(QUERY) };
        assert_eq!(app.client.search_bm25(Json(body)).await.is_err(), refused, "{per_group}");
    }
    app.end().await;
}

#[tokio::test]
async fn what_a_principal_may_not_read_stands_for_nothing() {
    let app = TestApp::start().await;
    let id = file(&app, "leaflet.md", leaflet(0)).await;
    let tree = app.subtree(id).await;
    let (first, more) = (titled(&tree, "section", "Leaflet 0").id, titled(&tree, "section", "More").id);
    app.client.protect_document(DocumentPath { id }).await.unwrap();
    let one = someone(&app, "one").await;
    let search = async || {
        // A part that is closed or opened is embedded with other titles.
        invariants::check_drained(&app.pool).await;
        let query = SearchQuery { per_group: 10, ..SearchQuery::new("words about radar gauge") };
        one.client.search(query).await.unwrap()
    };
    assert_eq!(search().await.results.len(), 0);
    app.client.protect_document(DocumentPath { id: more }).await.unwrap();
    grant(&app, &one, more, GrantRight::Read).await;
    let found = search().await;
    assert_eq!((ids(&found), found.total), (vec![more], 1));
    assert!(found.results[0].hits.as_ref().unwrap().iter().all(|hit| hit.document.content.contains("radar")));
    // Both sections may be read, and the file may not: nothing tells that they are of one file but their paths.
    app.client.protect_document(DocumentPath { id: first }).await.unwrap();
    grant(&app, &one, first, GrantRight::Read).await;
    let found = search().await;
    assert_eq!((ids(&found).into_iter().collect::<BTreeSet<_>>(), found.total), (BTreeSet::from([first, more]), 2));
    // A private section of a file that may be read: the file stands for the rest.
    app.client.unprotect_document(DocumentPath { id }).await.unwrap();
    app.client.delete_grant(svc_client::wire::GrantPath { id: more, principal_id: one.id }).await.unwrap();
    let found = search().await;
    assert_eq!((ids(&found), found.total), (vec![id], 1));
    assert!(
        found.results[0].hits.as_ref().unwrap().iter().all(|hit| !hit.document.content.contains("radar")),
        "{found:?}"
    );
    app.end().await;
}

#[tokio::test]
async fn groups_follow_what_is_moved_and_deleted_and_folders_are_no_groups() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "A folder about a radar gauge.", None).await.id;
    let note = app.create("Note", "A note about a radar gauge.", Some(folder)).await.id;
    let query = svc_client::wire::UploadQuery { parent_id: Some(folder), ..Default::default() };
    let leaflet = svc_client::FileUpload::from_bytes("leaflet.md", leaflet(1).into_bytes(), None);
    let file = app.client.upload_file(query, leaflet).await.unwrap().document_id;
    app.settled(file).await;
    let search = async |parent_id| {
        let body = HybridSearch { parent_id, group_by: Some(GroupBy::File), ..HybridSearch::new(QUERY) };
        let found = app.client.search_hybrid(Json(body)).await.unwrap();
        let mut ids = ids(&found);
        ids.sort_unstable();
        (ids, found.total)
    };
    assert_eq!(search(None).await, (vec![folder, note, file], 3));
    assert_eq!(search(Some(folder)).await, (vec![note, file], 2));
    let tree = app.subtree(file).await;
    let (first, more) = (titled(&tree, "section", "Leaflet 1"), titled(&tree, "section", "More"));
    assert_eq!(search(Some(file)).await, (vec![first.id, more.id], 2), "under a file, its sections are the groups");
    let under = async |parent_id, under: &[i64]| {
        let filter = Some(SearchFilter { under: Some(under.to_vec()), ..SearchFilter::default() });
        let body = HybridSearch { parent_id, filter, group_by: Some(GroupBy::File), ..HybridSearch::new(QUERY) };
        let mut ids = ids(&app.client.search_hybrid(Json(body)).await.unwrap());
        ids.sort_unstable();
        ids
    };
    assert_eq!(under(None, &[file]).await, [first.id, more.id], "and so they are by a filter");
    assert_eq!(under(None, &[file, folder]).await, [note, file]);
    assert_eq!(under(Some(file), &[folder]).await, [first.id, more.id]);
    let change = serde_json::from_value(serde_json::json!({"parent_id": note})).unwrap();
    app.client.update_document(DocumentPath { id: file }, Default::default(), Json(change)).await.unwrap();
    assert_eq!(search(None).await, (vec![folder, note, file], 3));
    assert_eq!(search(Some(note)).await, (vec![file], 1));
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();
    assert!(!search(None).await.0.contains(&file));
    app.end().await;
}

#[tokio::test]
async fn a_file_that_has_all_of_the_words_many_times_hides_no_file_that_has_some() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let folder = app.client.create_document(Default::default(), Json(document("Log", ""))).await.unwrap().document.id;
    let item = |title: &str, content: &str, parent_id, usetype: Option<&str>| BatchItem {
        parent_id,
        usetype: usetype.map(str::to_owned),
        ..serde_json::from_value(serde_json::json!({"title": title, "content": content})).unwrap()
    };
    let mut documents: Vec<BatchItem> =
        (0..500).map(|at| item("Line", &format!("gauge radar reading {at}"), Some(folder), Some("chunk"))).collect();
    documents.extend((0..5).map(|at| item("Note", &format!("The radar of ship {at}"), None, None)));
    app.client.create_documents(Json(NewBatch { documents, priority: 0 })).await.unwrap();
    let body = FulltextSearch { group_by: Some(GroupBy::File), ..FulltextSearch::new("gauge radar reading") };
    let found = app.client.search_fulltext(Json(body)).await.unwrap();
    assert_eq!((found.results.len(), found.total, found.total_is), (6, 6, TotalIs::Exact));
    assert_eq!(found.results[0].document.id, folder);
    app.end().await;
}

#[tokio::test]
async fn groups_within_groups_are_told_from_further_ones_without_a_deeper_look() {
    let app = TestApp::start().await;
    let create = async |documents: Vec<serde_json::Value>| {
        let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
        let first = app.client.create_documents(Json(batch)).await.unwrap().documents[0].document_id;
        until("all of them are embedded", async || {
            app.client.list_tasks(TaskQuery::default()).await.unwrap().tasks.is_empty().then_some(())
        })
        .await;
        first
    };
    let section =
        |key: &str, of: &str| json!({"key": key, "parent_key": of, "title": key, "content": "", "usetype": "section"});
    let chunk = |of: &str, text: &str| json!({"parent_key": of, "title": "Part", "content": text, "usetype": "chunk"});
    let mut documents = vec![json!({"key": "book", "title": "Book", "content": ""})];
    for chapter in 0..5 {
        let chapter = format!("chapter {chapter}");
        let mut sections = vec![section(&chapter, "book")];
        sections.extend((0..4).map(|at| section(&format!("{chapter} section {at}"), &chapter)));
        for section in sections {
            let key = section["key"].as_str().unwrap().to_owned();
            documents.push(section);
            // The best text of each section is before all others.
            documents.push(chunk(&key, QUERY));
            documents.extend((0..7).map(|at| chunk(&key, &format!("Lamp {at} stands beside the radar gauge."))));
        }
    }
    let book = create(documents).await;
    let search = async || {
        let wanted = VectorSearch { limit: 40, explain: true, parent_id: Some(book), ..VectorSearch::new(QUERY) };
        let by_section = VectorSearch { group_by: Some(GroupBy::Section), ..wanted };
        let found = app.client.search_vector(Json(by_section)).await.unwrap();
        let last = found.results.last().unwrap().document.title.clone();
        (found.results.len(), found.total, found.total_is, found.explanation.unwrap().rounds, last)
    };
    let found = search().await;
    assert_eq!((found.0, found.1, found.2, found.3), (25, 25, TotalIs::Exact, 1), "these are all that there are");
    // Nothing in it is among the 160 results that are looked at first.
    create(vec![section("bread", "chapter 0"), chunk("bread", "Yeast makes the dough rise.")]).await;
    assert_eq!(search().await, (26, 26, TotalIs::Exact, 2, "bread".to_owned()));
    app.end().await;
}

#[tokio::test]
async fn what_is_found_by_its_title_shows_a_text_of_its_own() {
    let app = TestApp::start().await;
    let folder = app.create("Zanzibar", "", None).await.id;
    app.create("Inside", "Something else.", Some(folder)).await;
    let (handbook, _) = app.ingest(&sample("handbook.md")).await;
    let grouped = async |query: &str| {
        let body = FulltextSearch { group_by: Some(GroupBy::File), ..FulltextSearch::new(query) };
        app.client.search_fulltext(Json(body)).await.unwrap()
    };
    let found = grouped("handbook.md").await;
    let result = found.results.iter().find(|result| result.document.id == handbook).unwrap();
    let hits = result.hits.as_ref().unwrap();
    assert!(hits.len() == 1 && !hits[0].document.content.is_empty(), "{result:?}");
    let first = app.subtree(handbook).await.into_iter().find(|node| !node.content.is_empty()).unwrap();
    assert_eq!((hits[0].document.id, hits[0].score), (first.id, None), "the ranking has none, so it is the first");
    // What is inside of a folder is not the folder's text.
    let found = grouped("Zanzibar").await;
    assert_eq!((ids(&found), found.results[0].hits.as_ref().map(Vec::len)), (vec![folder], Some(0)));
    // A second stage ranks texts of each group.
    let body = HybridSearch {
        group_by: Some(GroupBy::File),
        rerank: Some(true),
        rerank_method: Some(RerankMethod::Maxsim),
        ..HybridSearch::new("the radar gauge is silent")
    };
    let found = app.client.search_hybrid(Json(body)).await.unwrap();
    assert_eq!(found.results.len(), 3);
    app.end().await;
}

#[tokio::test]
async fn a_document_that_was_chunked_stands_for_its_chunks() {
    let app = TestApp::start().await;
    let new = NewDocument { ..document("Report", &leaflet(2).repeat(8)) };
    let id = app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap().id;
    let body = serde_json::from_value(serde_json::json!({"max_tokens": 64})).unwrap();
    app.client
        .chunk_document(DocumentPath { id }, Default::default(), svc_client::OptionalJson(Some(body)))
        .await
        .unwrap();
    for found in by_each_method(&app, (10, GroupBy::File, 3), None).await {
        assert_eq!(ids(&found), [id], "{}", found.method);
    }
    app.end().await;
}
