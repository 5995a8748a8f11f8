//! The piece of each result that shows why it was found.
use crate::support::TestApp;
use std::collections::BTreeMap;
use svc_client::{
    Json,
    wire::{
        Bm25Search, FulltextSearch, GroupBy, HybridSearch, MaxsimSearch, SearchQuery, SearchResponse, Snippet,
        SnippetOf, VectorSearch,
    },
};

const HTML: &str = "<b>Herons</b> & egrets wait.";

fn marked(snippet: &Snippet) -> Vec<String> {
    let word = |at: &svc_client::wire::Highlight| snippet.text.chars().skip(at.start).take(at.end - at.start).collect();
    snippet.highlights.iter().map(word).collect()
}

/// Every snippet is a bounded literal piece of a text that exists.
async fn hold(app: &TestApp, found: &SearchResponse) {
    let texts: Vec<(i64, String, String)> =
        sqlx::query_as("SELECT id, title, content FROM documents").fetch_all(&app.pool).await.unwrap();
    let texts: BTreeMap<i64, (String, String)> =
        texts.into_iter().map(|(id, title, text)| (id, (title, text))).collect();
    for result in &found.results {
        let hits = result.hits.iter().flatten();
        let first = hits.clone().next().map(|hit| hit.snippet.clone());
        assert!(first.is_none_or(|first| first == result.snippet), "{result:?}");
        let snippets = std::iter::once(&result.snippet).chain(hits.map(|hit| &hit.snippet));
        for snippet in snippets.map(|snippet| snippet.as_ref().unwrap()) {
            let (title, content) = &texts[&snippet.document_id];
            let whole = if snippet.of == SnippetOf::Title { title } else { content };
            let length = snippet.text.chars().count();
            assert!((1..=240).contains(&length), "{snippet:?}");
            let piece: String = whole.chars().skip(snippet.start).take(length).collect();
            assert_eq!(piece, snippet.text, "{}", found.method);
            assert!(snippet.highlights.iter().all(|at| at.start < at.end && at.end <= length), "{snippet:?}");
        }
    }
}

#[tokio::test]
async fn every_method_shows_the_words_of_the_query_grouped_or_not() {
    let app = TestApp::start().await;
    let filler = "Nothing of interest is said in this sentence about the weather of that day. ".repeat(40);
    let long = format!("{filler}At last the {HTML} 🦩🦩 The radar gauges were silent, naïve as they are. {filler}");
    let id = app.create("Long", &long, None).await.id;
    app.upload_bytes("notes.md", format!("# One\n\n{filler}\n\n# Two\n\nA radar gauge, and a gauge of radar.\n"))
        .await
        .unwrap();
    let folder = app.create("Radar gauge", "", None).await.id;
    crate::support::until("all is embedded", async || {
        let state = app.client.search_bm25(Json(Bm25Search::new("x"))).await.unwrap().scope_state;
        (state.in_flight == 0).then_some(())
    })
    .await;
    let query = "silent radar gauge";
    for group_by in [GroupBy::None, GroupBy::File, GroupBy::Section] {
        macro_rules! by {
            ($type:ident, $method:ident, $query:expr) => {{
                let body = $type {
                    group_by: Some(group_by),
                    per_group: 3,
                    snippets: Some(true),
                    limit: 50,
                    ..$type::new($query)
                };
                app.client.$method(Json(body)).await.unwrap()
            }};
        }
        for found in [
            by!(VectorSearch, search_vector, query),
            by!(FulltextSearch, search_fulltext, "radar gauge"),
            by!(Bm25Search, search_bm25, query),
            by!(MaxsimSearch, search_maxsim, query),
            by!(HybridSearch, search_hybrid, query),
        ] {
            hold(&app, &found).await;
            let result = found.results.iter().find(|result| result.document.id == id).unwrap();
            let snippet = result.snippet.as_ref().unwrap();
            let marked = marked(snippet);
            assert!(marked.contains(&"radar".to_owned()) && marked.contains(&"gauges".to_owned()), "{found:?}");
            assert!(snippet.text.contains("The radar gauges were silent"), "{snippet:?}");
            let folder = found.results.iter().find(|result| result.document.id == folder).unwrap();
            let snippet = folder.snippet.as_ref().unwrap();
            assert_eq!((snippet.of, &*snippet.text, snippet.start), (SnippetOf::Title, "Radar gauge", 0));
        }
    }
    // Markup is text like any other.
    let body = Bm25Search { snippets: Some(true), ..Bm25Search::new("egrets") };
    let found = app.client.search_bm25(Json(body)).await.unwrap();
    let snippet = found.results[0].snippet.as_ref().unwrap();
    assert!(snippet.text.contains(HTML) && marked(snippet) == ["egrets"], "{snippet:?}");
    // They come unasked with groups alone.
    assert!(app.client.search_bm25(Json(Bm25Search::new("egrets"))).await.unwrap().results[0].snippet.is_none());
    assert!(app.client.search(SearchQuery::new("egrets")).await.unwrap().results[0].snippet.is_some());
    let without = SearchQuery { snippets: Some(false), ..SearchQuery::new("egrets") };
    assert!(app.client.search(without).await.unwrap().results[0].snippet.is_none());
    app.end().await;
}

#[tokio::test]
async fn a_text_without_a_word_of_the_query_shows_a_sentence_or_its_beginning() {
    let app = TestApp::start().await;
    let text = "Clerks file the minutes of each meeting in a cabinet. Yeast eats the sugar in the dough, so that the loaf rises. \
                The letters of the keyboard were placed for early typewriters.";
    let id = app.create("Three things", text, None).await.id;
    let body = VectorSearch { snippets: Some(true), ..VectorSearch::new("how do bakers make bread?") };
    let found = app.client.search_vector(Json(body)).await.unwrap();
    hold(&app, &found).await;
    let snippet = found.results[0].snippet.as_ref().unwrap();
    assert!(snippet.document_id == id && snippet.highlights.is_empty(), "{snippet:?}");
    // On a busy machine the sentences are not compared in time.
    assert!(snippet.text.starts_with("Yeast") || snippet.start == 0, "{snippet:?}");
    app.end().await;
}
