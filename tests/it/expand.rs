//! Searches that add terms of their best texts to the query.
use crate::{
    cli::svc,
    principals::{grant, someone},
    support::{TestApp, searches::ask},
};
use serde_json::json;
use svc_client::{
    Code, Json,
    wire::{
        ContextConfig, DocumentPath, GrantPath, GrantRight, MethodSearch, NewContext, NewIndex, SearchBatch,
        SearchMethod, SearchQuery, SearchResponse,
    },
};

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

fn has(found: &SearchResponse, term: &str) -> bool {
    found.expanded_by.iter().flatten().any(|added| added == term)
}

#[tokio::test]
async fn what_the_best_texts_are_about_is_searched_for_too() {
    let app = TestApp::start().await;
    let herons = app.create("Herons", "The heron stands in the marsh and eats a frog.", None).await.id;
    let egrets = app.create("Egrets", "A heron and an egret share the marsh with the frogs.", None).await.id;
    let frogs = app.create("Frogs", "Frogs live in the marsh.", None).await.id;
    let bread = app.create("Bread", "Yeast makes the dough rise.", None).await.id;
    let plain = ask(&app.client, "bm25", &json!({"query": "heron"})).await.unwrap();
    assert_eq!((ids(&plain).len(), plain.expanded_by.as_ref()), (2, None), "nobody asked");
    assert!(!ids(&plain).contains(&frogs) && !ids(&plain).contains(&bread));

    let body = json!({"query": "heron", "expand": true, "explain": true, "include_scores": true});
    for method in ["bm25", "hybrid", "auto"] {
        let found = ask(&app.client, method, &body).await.unwrap();
        assert!(has(&found, "marsh") && has(&found, "frog"), "{method}: {:?}", found.expanded_by);
        assert!(found.expanded_by.as_ref().is_some_and(|added| added.len() <= 10), "{method}");
        let by_letters: Vec<i64> = found
            .results
            .iter()
            .filter(|result| result.legs.is_some_and(|legs| legs.bm25.is_some()))
            .map(|result| result.document.id)
            .collect();
        assert!(by_letters.contains(&frogs) && !by_letters.contains(&bread), "{method}: {by_letters:?}");
        let legs = found.explanation.unwrap().legs;
        assert_eq!(legs.len(), if method == "bm25" { 1 } else { 2 }, "{method}: the plain search is none of its legs");
        assert_eq!(found.why.is_some(), method == "auto");
    }
    // The words of the query weigh more than all added terms.
    let expanded = ask(&app.client, "bm25", &body).await.unwrap();
    assert_eq!(ids(&expanded).len(), 3);
    assert!([herons, egrets].iter().all(|id| ids(&expanded)[..2].contains(id)), "{:?}", ids(&expanded));
    assert_eq!(ids(&expanded)[2], frogs);

    let asked = SearchQuery { expand: Some(true), ..SearchQuery::new("heron") };
    assert!(has(&app.client.search(asked).await.unwrap(), "marsh"));
    let config = ContextConfig { expand: Some(true), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "wide".to_owned(), config })).await.unwrap();
    let by_context = ask(&app.client, "bm25", &json!({"query": "heron", "context": "wide"})).await.unwrap();
    assert_eq!(ids(&by_context), ids(&expanded));
    let not_even = json!({"query": "heron", "context": "wide", "expand": false});
    assert_eq!(ask(&app.client, "bm25", &not_even).await.unwrap().expanded_by, None);

    // The search finds no text that could feed terms back.
    let nothing = ask(&app.client, "bm25", &json!({"query": "zzyzx", "expand": true})).await.unwrap();
    assert_eq!((nothing.results.len(), nothing.expanded_by.as_deref()), (0, Some(&[][..])));
    app.end().await;
}

/// Three texts have the marsh, and two the heron: so many are among the first ten by words, and all are by meaning.
async fn marshes(app: &TestApp) -> [i64; 4] {
    let mut ids = [0; 4];
    for (id, (title, text)) in ids.iter_mut().zip([
        ("Herons", "The heron stands in the marsh and eats a frog."),
        ("Egrets", "A heron and an egret share the marsh with the frogs."),
        ("Frogs", "Frogs live in the marsh."),
        ("Bread", "Yeast makes the dough rise."),
    ]) {
        *id = app.create(title, text, None).await.id;
    }
    ids
}

#[tokio::test]
async fn auto_adds_terms_where_both_legs_find_the_same_texts_first_unless_told_otherwise() {
    let app = TestApp::start().await;
    let [_, _, frogs, _] = marshes(&app).await;
    let alone = |query: &str| json!({"query": query, "group_by": "none", "include_scores": true});
    let scored = |found: &SearchResponse| {
        found.results.iter().map(|result| (result.document.id, result.score, result.legs)).collect::<Vec<_>>()
    };
    let says_so = |found: &SearchResponse| found.why.as_ref().is_some_and(|why| why.contains("terms of the best ones"));
    let found = ask(&app.client, "auto", &alone("marsh")).await.unwrap();
    assert!(has(&found, "heron") && has(&found, "frog"), "{:?}", found.expanded_by);
    assert!(says_so(&found), "{:?}", found.why);
    // It is what the search with the option finds.
    let mut body = alone("marsh");
    body["expand"] = json!(true);
    let asked = ask(&app.client, "auto", &body).await.unwrap();
    assert_eq!((asked.expanded_by.as_ref(), scored(&asked)), (found.expanded_by.as_ref(), scored(&found)));
    assert!(!says_so(&asked), "somebody asked for it");
    body["expand"] = json!(false);
    let plain = ask(&app.client, "auto", &body).await.unwrap();
    assert_eq!((plain.expanded_by.as_ref(), says_so(&plain)), (None, false));
    let by_letters = |found: &SearchResponse, id: i64| {
        let result = found.results.iter().find(|result| result.document.id == id).unwrap();
        result.legs.unwrap().bm25.map(|leg| leg.score)
    };
    assert!(by_letters(&found, frogs) > by_letters(&plain, frogs), "it has a frog too");
    // Two texts are fewer than three, and a leg that finds nothing agrees with nobody.
    for query in ["heron", "zzyzx quux"] {
        let found = ask(&app.client, "auto", &alone(query)).await.unwrap();
        assert_eq!((found.method, found.expanded_by.as_ref(), says_so(&found)), (SearchMethod::Hybrid, None, false));
        let mut body = alone(query);
        body["expand"] = json!(false);
        assert_eq!(scored(&ask(&app.client, "auto", &body).await.unwrap()), scored(&found), "{query}");
    }
    // Groups change nothing about it, and whoever names the method has no terms added.
    let grouped = app.client.search(SearchQuery::new("marsh")).await.unwrap();
    assert_eq!(grouped.expanded_by, found.expanded_by);
    assert_eq!(ask(&app.client, "hybrid", &alone("marsh")).await.unwrap().expanded_by, None);
    // A context that names the method has it without them too, and a leg that counts for nothing agrees with nobody.
    let config = ContextConfig { method: Some(SearchMethod::Hybrid), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "both".to_owned(), config })).await.unwrap();
    for (name, value) in [
        ("context", json!("both")),
        ("weights", json!({"vector": 0, "bm25": 1})),
        ("weights", json!({"vector": 1, "bm25": 0})),
    ] {
        let mut body = alone("marsh");
        body[name] = value;
        let plain = ask(&app.client, "auto", &body).await.unwrap();
        let told = (plain.method, plain.expanded_by.as_ref(), says_so(&plain));
        assert_eq!(told, (SearchMethod::Hybrid, None, false), "{body}");
    }
    let shown = svc(&app, &["search", "marsh"]).await;
    assert!(String::from_utf8_lossy(&shown.stderr).contains("also searched for"), "{shown:?}");
    let shown = svc(&app, &["search", "marsh", "--expand=false"]).await;
    assert!(shown.status.success() && !String::from_utf8_lossy(&shown.stderr).contains("also searched"), "{shown:?}");
    app.end().await;
}

#[tokio::test]
async fn a_further_page_adds_terms_if_the_first_page_did_whatever_is_stored_meanwhile() {
    let app = TestApp::start().await;
    marshes(&app).await;
    let body = |query: &str, limit: u32| json!({"query": query, "group_by": "none", "limit": limit});
    let whole = ask(&app.client, "auto", &body("marsh", 10)).await.unwrap();
    let (mut next, mut paged) = (body("marsh", 1), Vec::new());
    loop {
        let page = ask(&app.client, "auto", &next).await.unwrap();
        assert_eq!(page.expanded_by, whole.expanded_by);
        paged.extend(ids(&page));
        let Some(cursor) = page.next_cursor else { break };
        assert!(paged.len() < 4, "the pages come to no end");
        next["cursor"] = cursor.into();
    }
    assert_eq!(paged, ids(&whole));

    let first = [
        ask(&app.client, "auto", &body("heron", 1)).await.unwrap(),
        ask(&app.client, "auto", &body("marsh", 1)).await.unwrap(),
    ];
    assert_eq!((first[0].expanded_by.as_ref(), first[1].expanded_by.is_some()), (None, true));
    for n in 0..9 {
        app.create(&format!("Heron {n}"), "Heron, heron, dragon.", None).await;
    }
    assert!(has(&ask(&app.client, "auto", &body("heron", 1)).await.unwrap(), "dragon"), "now they agree");
    for (query, first) in ["heron", "marsh"].into_iter().zip(first) {
        let mut next = body(query, 1);
        next["cursor"] = first.next_cursor.into();
        let second = ask(&app.client, "auto", &next).await.unwrap();
        assert_eq!(second.expanded_by.is_some(), first.expanded_by.is_some(), "{query}");
        assert!(!has(&second, "dragon"), "{query}: the terms are of the texts that were there");
    }
    app.end().await;
}

/// Where the legs agree by texts that the caller may not read, the answer would show that there are any.
#[tokio::test]
async fn only_texts_that_the_caller_may_read_make_the_legs_agree() {
    let app = TestApp::start().await;
    let all = marshes(&app).await;
    let reader = someone(&app, "reader").await;
    for id in [all[0], all[3]] {
        app.client.protect_document(DocumentPath { id }).await.unwrap();
    }
    let body = json!({"query": "marsh"});
    assert!(ask(&app.client, "auto", &body).await.unwrap().expanded_by.is_some());
    let found = ask(&reader.client, "auto", &body).await.unwrap();
    assert_eq!((ids(&found).len(), found.expanded_by), (2, None));
    app.end().await;
}

#[tokio::test]
async fn what_has_no_terms_to_add_refuses_the_option_and_the_command_line_says_what_was_added() {
    let app = TestApp::start().await;
    app.create("Herons", "The heron stands in the marsh.", None).await;
    for (method, is_known) in [
        (None, true),
        (Some(SearchMethod::Bm25), true),
        (Some(SearchMethod::Hybrid), true),
        (Some(SearchMethod::Vector), false),
        (Some(SearchMethod::Fulltext), false),
        (Some(SearchMethod::Maxsim), false),
    ] {
        let search = MethodSearch { method, expand: Some(true), ..MethodSearch::new("heron") };
        match app.client.search_batch(Json(SearchBatch { searches: vec![search] })).await {
            Ok(batch) => {
                let found = batch.answers[0].found.as_ref().unwrap();
                assert!(is_known && has(found, "marsh"), "{method:?}: {found:?}");
            }
            Err(refused) => {
                assert!(!is_known, "{method:?}: {refused}");
                assert_eq!(
                    (refused.code, &refused.members["field"]),
                    (Code::InvalidField, &json!("searches[0].expand"))
                );
            }
        }
    }
    let shown = svc(&app, &["search", "heron", "--expand", "--method", "bm25"]).await;
    let says = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success() && says.contains("also searched for") && says.contains("marsh"), "{shown:?}");
    let refused = svc(&app, &["search", "heron", "--expand", "--method", "vector"]).await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--expand"), "{refused:?}");
    app.end().await;
}

/// Otherwise a search would show which words stand in texts that the caller may not read.
#[tokio::test]
async fn no_term_of_a_text_that_may_not_be_read_is_added() {
    let app = TestApp::start().await;
    let open = app.create("Birds", "A heron stands in the reeds of the marsh.", None).await.id;
    let secret = app.create("Plans", "The heron is a harpoon: harpoon, heron, harpoon.", None).await.id;
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, open, GrantRight::Read).await;
    app.client.protect_document(DocumentPath { id: secret }).await.unwrap();
    let body = json!({"query": "heron", "expand": true});
    let mut before = Vec::new();
    for method in ["bm25", "hybrid", "auto"] {
        assert!(has(&ask(&app.client, method, &body).await.unwrap(), "harpoon"), "{method}");
        let found = ask(&reader.client, method, &body).await.unwrap();
        assert!(has(&found, "marsh") && !has(&found, "harpoon"), "{method}: {:?}", found.expanded_by);
        assert_eq!(ids(&found), [open], "{method}");
        before.push((method, serde_json::to_string(&found.expanded_by).unwrap()));
        // Nor does the search add a term of texts that the filter leaves out.
        let without = json!({"query": "heron", "expand": true, "filter": {"exclude": [secret]}});
        assert!(!has(&ask(&app.client, method, &without).await.unwrap(), "harpoon"), "{method}");
    }
    let more = app.create("More plans", "A torpedo is no heron of the marsh, and no torpedo floats.", None).await.id;
    app.client.protect_document(DocumentPath { id: more }).await.unwrap();
    for (method, before) in before {
        let found = ask(&reader.client, method, &body).await.unwrap();
        assert_eq!(serde_json::to_string(&found.expanded_by).unwrap(), before, "{method}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_further_page_adds_the_terms_of_the_first_as_long_as_their_texts_may_be_read() {
    let app = TestApp::start().await;
    let reader = someone(&app, "reader").await;
    let mut known = Vec::new();
    for (title, text) in [
        ("Bitterns", "The heron and the bittern boom in the marsh."),
        ("Marshes", "A heron waits in the marsh."),
        ("Frogs", "Frogs live in the marsh."),
    ] {
        let id = app.create(title, text, None).await.id;
        grant(&app, &reader, id, GrantRight::Read).await;
        known.push(id);
    }
    for method in ["bm25", "hybrid"] {
        let mut body = json!({"query": "heron", "expand": true, "limit": 1});
        let first = ask(&reader.client, method, &body).await.unwrap();
        assert!(has(&first, "bittern"), "{method}: {:?}", first.expanded_by);
        body["cursor"] = first.next_cursor.clone().unwrap().into();
        let better = app.create("Herons", "Heron, heron, dragon.", None).await.id;
        grant(&app, &reader, better, GrantRight::Read).await;
        let second = ask(&reader.client, method, &body).await.unwrap();
        assert_eq!(second.expanded_by, first.expanded_by, "{method}");
        app.client.delete_grant(GrantPath { id: known[0], principal_id: reader.id }).await.unwrap();
        let closed = ask(&reader.client, method, &body).await.unwrap();
        assert!(has(&closed, "marsh") && !has(&closed, "bittern"), "{method}: {:?}", closed.expanded_by);
        grant(&app, &reader, known[0], GrantRight::Read).await;
        app.client.delete_document(DocumentPath { id: better }).await.unwrap();
    }
    app.end().await;
}

/// Whoever makes a cursor up can name any text, also one of another index or of none. The cursor must not reveal which of these words stand in texts of others.
#[tokio::test]
async fn a_cursor_that_nobody_gave_adds_no_term_that_only_other_texts_have_in_the_index() {
    let app = TestApp::start().await;
    let home = app.create("Birds", "A heron stands in the reeds.", None).await.id;
    let marshes = app.create("Marshes", "A heron waits in the marsh.", Some(home)).await.id;
    let secret = app.create("Plans", "The harpoon is hidden.", Some(home)).await.id;
    let apart = app.create("Guesses", "A harpoon, a torpedo, or reeds?", None).await.id;
    let narrow: NewIndex = serde_json::from_value(json!({"name": "narrow", "members": [home]})).unwrap();
    app.client.create_index(Json(narrow)).await.unwrap();
    app.client.protect_document(DocumentPath { id: secret }).await.unwrap();
    let reader = someone(&app, "reader").await;
    for method in ["bm25", "hybrid"] {
        let mut body = json!({"query": "heron", "index": "narrow", "expand": true, "limit": 1});
        let first = ask(&reader.client, method, &body).await.unwrap();
        assert!(has(&first, "marsh") && has(&first, "reed"), "{method}: {:?}", first.expanded_by);
        let cursor = first.next_cursor.unwrap();
        let mut numbers: Vec<i64> = cursor.split('.').map(|number| number.parse().unwrap()).collect();
        // It ends with the one result that was shown, behind the texts that feed terms back.
        let end = numbers.len() - 1;
        let fed_back = &numbers[end - 2..end];
        assert!(fed_back.contains(&home) && fed_back.contains(&marshes), "{method}: {cursor}");
        for (named, expected) in [([apart, secret], &[][..]), ([marshes, apart], &["heron", "marsh", "wait"][..])] {
            numbers[end - 2..end].copy_from_slice(&named);
            let forged: Vec<String> = numbers.iter().map(i64::to_string).collect();
            body["cursor"] = forged.join(".").into();
            let page = ask(&reader.client, method, &body).await.unwrap();
            let mut added = page.expanded_by.unwrap();
            added.sort();
            assert_eq!(added, expected, "{method}");
        }
    }
    app.end().await;
}
