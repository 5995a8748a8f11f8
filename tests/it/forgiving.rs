//! Searches that find what was meant by a mistyped word.
use crate::{
    cli::svc,
    principals::{grant, someone},
    support::{TestApp, Wish, searches::ask, until},
};
use serde_json::json;
use svc_client::wire::{DocumentPath, GrantRight, IndexState, PageQuery, SearchQuery};

#[tokio::test]
async fn a_mistyped_word_is_searched_as_the_nearest_one_and_the_answer_says_so() {
    let app = TestApp::start().await;
    let heron = app.create("Birds", "A Heron stands in the reeds and waits.", None).await.id;
    let volcano = app.create("Rocks", "The volcano erupts, and the lava cools.", None).await.id;
    for (query, searched, found) in [
        ("hreon", "heron", heron),
        ("herons in the reedz", "herons in the reeds", heron),
        ("vulcano and lavva", "volcano and lava", volcano),
        // Only the last word may be the beginning of one.
        ("volc", "volcano", volcano),
    ] {
        let mut body = json!({"query": query, "limit": 1});
        let plain = ask(&app.client, "bm25", &body).await.unwrap();
        assert_eq!(plain.searched_instead, None, "nobody asked: {query}");
        body["forgiving"] = json!(true);
        for method in ["bm25", "fulltext", "hybrid", "vector", "maxsim", "auto"] {
            let answer = ask(&app.client, method, &body).await.unwrap();
            let instead = answer.searched_instead.unwrap();
            assert_eq!(instead.query, searched, "{method}");
            assert!(instead.words.iter().all(|word| query.contains(&word.asked) && searched.contains(&word.searched)));
            if ["bm25", "fulltext"].contains(&method) {
                assert_eq!(answer.results[0].document.id, found, "{method} {query}");
            }
        }
    }
    // However often a word stands there, it is one.
    let body = json!({"query": "Hreon hreon hreon hreon hreon lavva hreon", "forgiving": true});
    let instead = ask(&app.client, "bm25", &body).await.unwrap().searched_instead.unwrap();
    assert_eq!(instead.query, "heron heron heron heron heron lava heron");
    let asked: Vec<&str> = instead.words.iter().map(|word| word.asked.as_str()).collect();
    assert_eq!(asked, ["Hreon", "lavva"]);
    for query in ["heron", "volc lava", "\"hreon\"", "heron -hreon", "zzyzx", "hreon7"] {
        let body = json!({"query": query, "forgiving": true});
        let answer = ask(&app.client, "fulltext", &body).await.unwrap();
        assert_eq!(answer.searched_instead, None, "known, meant as it stands, or near to nothing: {query}");
    }
    let answer = app.client.search(SearchQuery { forgiving: true, ..SearchQuery::new("hreon") }).await.unwrap();
    assert_eq!(answer.searched_instead.unwrap().words[0].asked, "hreon");
    let shown = svc(&app, &["search", "hreon", "--forgiving", "--method", "bm25"]).await;
    assert!(String::from_utf8_lossy(&shown.stderr).contains("searched for “heron” instead"), "{shown:?}");
    app.end().await;
}

/// Else anybody could guess which words stand in the texts of others.
#[tokio::test]
async fn no_word_of_a_text_that_may_not_be_read_is_put_in_or_counts_as_known() {
    let app = TestApp::start().await;
    let open = app.create("Birds", "A heron stands in the reeds.", None).await.id;
    let secret = app.create("Plans", "The harpoon is hidden, and hreon is its name.", None).await.id;
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, open, GrantRight::Read).await;
    app.client.protect_document(DocumentPath { id: secret }).await.unwrap();
    for (query, of_owner, of_reader) in
        [("harpon", Some("harpoon"), None), ("harp", Some("harpoon"), None), ("hreon", None, Some("heron"))]
    {
        let body = json!({"query": query, "forgiving": true});
        for method in ["bm25", "fulltext", "hybrid"] {
            for (client, expected) in [(&app.client, of_owner), (&reader.client, of_reader)] {
                let answer = ask(client, method, &body).await.unwrap();
                let instead = answer.searched_instead.map(|instead| instead.query);
                assert_eq!(instead.as_deref(), expected, "{query} by {method}");
                assert!(expected == of_owner || answer.results.iter().all(|found| found.document.id != secret));
            }
        }
    }
    // Nor is a word put in that only texts have which the filter leaves out.
    let body = json!({"query": "harpon", "forgiving": true, "filter": {"exclude": [secret]}});
    assert_eq!(ask(&app.client, "bm25", &body).await.unwrap().searched_instead, None);
    app.end().await;
}

/// However many words of such texts are nearer, they tell nothing of themselves by keeping away another.
#[tokio::test]
async fn nearer_words_of_texts_that_may_not_be_read_keep_no_other_away() {
    let app = TestApp::start().await;
    app.create("Birds", "The heronry is loud.", None).await;
    let near: Vec<String> = ('a'..='z')
        .flat_map(|letter| [format!("her{letter}"), format!("h{letter}ro")])
        .filter(|word| word != "hero")
        .collect();
    let secret = app.create("Plans", &near.join(" "), None).await.id;
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: secret }).await.unwrap();
    let body = json!({"query": "hero", "forgiving": true});
    let of_owner = ask(&app.client, "bm25", &body).await.unwrap().searched_instead.unwrap();
    assert!(near.contains(&of_owner.query), "{of_owner:?}");
    let of_reader = ask(&reader.client, "bm25", &body).await.unwrap().searched_instead.unwrap();
    assert_eq!(of_reader.query, "heronry");
    app.end().await;
}

#[tokio::test]
async fn a_word_of_a_title_above_what_is_searched_is_no_mistake() {
    let app = TestApp::start().await;
    let file = app.upload_bytes("heron.md", "# Reeds\n\nThe hero waits in the reeds.\n").await.unwrap().document_id;
    app.settled(file).await;
    let chunk = app.subtree(file).await.into_iter().find(|node| node.usetype == "chunk").unwrap().id;
    for (scope, query, searched) in [
        (json!({"usetype": ["chunk"]}), "heron waits", None),
        (json!({"parent_id": file}), "heron waits", None),
        (json!({"usetype": ["chunk"]}), "herox waits", Some("hero waits")),
    ] {
        let mut body = json!({"query": query, "forgiving": true});
        body.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        for method in ["bm25", "hybrid"] {
            let answer = ask(&app.client, method, &body).await.unwrap();
            assert_eq!(answer.searched_instead.map(|instead| instead.query).as_deref(), searched, "{method} {body}");
            assert!(answer.results.iter().any(|found| found.document.id == chunk), "{method} {body}");
        }
    }
    app.end().await;
}

#[tokio::test]
async fn every_page_searches_what_the_first_one_did_whatever_is_stored_meanwhile() {
    let app = TestApp::start().await;
    let mut herons = Vec::new();
    for title in ["One", "Two", "Three"] {
        herons.push(app.create(title, "A heron stands in the reeds.", None).await.id);
    }
    let mut firsts = Vec::new();
    for method in ["bm25", "fulltext", "hybrid", "auto"] {
        let mut body = json!({"query": "hreon", "forgiving": true, "limit": 1});
        let first = ask(&app.client, method, &body).await.unwrap();
        assert_eq!(first.searched_instead.as_ref().unwrap().query, "heron", "{method}");
        body["cursor"] = first.next_cursor.clone().into();
        firsts.push((method, body, first));
    }
    // Now the word is none that was mistyped.
    app.create("Four", "A hreon is no bird.", None).await;
    for (method, mut body, first) in firsts {
        let mut found = vec![first.results[0].document.id];
        while found.len() < herons.len() {
            let page = ask(&app.client, method, &body).await.unwrap();
            assert_eq!(page.searched_instead, first.searched_instead, "{method}");
            found.push(page.results[0].document.id);
            body["cursor"] = page.next_cursor.into();
        }
        found.sort_unstable();
        assert_eq!(found, herons, "{method}");
    }
    let mut body = json!({"query": "hreon", "forgiving": true, "limit": 1});
    assert_eq!(ask(&app.client, "bm25", &body).await.unwrap().searched_instead, None);
    // Nor does a word come in that is known only since.
    body["query"] = json!("vulcano heron");
    let first = ask(&app.client, "bm25", &body).await.unwrap();
    assert_eq!(first.searched_instead, None);
    let volcano = app.create("Rocks", "The volcano erupts.", None).await.id;
    let mut more = body.clone();
    more["cursor"] = first.next_cursor.clone().into();
    let second = ask(&app.client, "bm25", &more).await.unwrap();
    assert_eq!(second.searched_instead, None);
    assert_ne!(second.results[0].document.id, volcano);
    assert_eq!(ask(&app.client, "bm25", &body).await.unwrap().searched_instead.unwrap().query, "volcano heron");
    more["query"] = json!("heron");
    assert_eq!(ask(&app.client, "bm25", &more).await.unwrap_err().members["field"], "cursor");
    app.end().await;
}

/// There the terms of a text bear the name of its language, and those of a query bear the names of all.
#[tokio::test]
async fn a_mistyped_word_is_mended_where_each_text_has_a_language_of_its_own() {
    let app = TestApp::with(Wish { settings: &[("SVC_LANGUAGE", "detect")], ..Wish::default() }).await;
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    until("the index to be built", async || {
        let indexes = app.client.list_indexes(PageQuery::default()).await.unwrap().indexes;
        (indexes[0].state == IndexState::Ready).then_some(())
    })
    .await;
    let text =
        "The old houses of the small town have belonged to the parish for many years, and nobody lives in them. ";
    let short = app.create("en", text, None).await.id;
    // A mistyped word may stand behind what is read of a text to see how it is written there.
    let long = app.create("en", &format!("{}The volcano erupts.", text.repeat(250)), None).await.id;
    let german =
        "Die alten Häuser in der kleinen Stadt gehören seit vielen Jahren der Gemeinde, und niemand wohnt darin.";
    let german = app.create("de", german, None).await.id;
    for (query, searched, found) in
        [("parihs", "parish", short), ("vulcano", "volcano", long), ("Gemiende", "gemeinde", german)]
    {
        let body = json!({"query": query, "forgiving": true});
        for method in ["bm25", "fulltext", "hybrid"] {
            let answer = ask(&app.client, method, &body).await.unwrap();
            assert_eq!(answer.searched_instead.map(|instead| instead.query).as_deref(), Some(searched), "{method}");
            assert!(answer.results.iter().any(|result| result.document.id == found), "{method} {query}");
        }
    }
    app.end().await;
}

/// Who makes a cursor up searches for another query, and sees no more by it.
#[tokio::test]
async fn a_cursor_that_nobody_gave_puts_in_no_word_that_does_not_fit_and_shows_nothing_hidden() {
    let app = TestApp::start().await;
    for title in ["One", "Two"] {
        app.create(title, "A heron stands in the reeds.", None).await;
    }
    let secret = app.create("Plans", "The harpoon is hidden.", None).await.id;
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: secret }).await.unwrap();
    let mut body = json!({"query": "hreon", "forgiving": true, "limit": 1});
    let cursor = ask(&reader.client, "bm25", &body).await.unwrap().next_cursor.unwrap();
    let numbers: Vec<&str> = cursor.split('.').collect();
    // It ends with three numbers about the word, the word itself in one, and the one result that was shown. Before them stands how many numbers the key takes by
    // which results are sorted, how many the words take, and how many documents feed terms back.
    let (begin, about) = numbers.split_at(numbers.len() - 7);
    assert_eq!((begin.last(), &about[..5]), (Some(&"0"), &["4", "0", "0", "5", "1"][..]), "{cursor}");
    let forged = |from: u64, length: u64, word: &[u8]| {
        let word = word.iter().fold(1_u64, |number, byte| number << 8 | u64::from(*byte));
        format!("{}.4.0.{from}.{length}.1.{word}.{}", begin.join("."), about[6])
    };
    body["cursor"] = forged(0, 5, b"harpoon").into();
    let page = ask(&reader.client, "bm25", &body).await.unwrap();
    assert_eq!((page.searched_instead.unwrap().query.as_str(), page.results.len()), ("harpoon", 0));
    let wrong: [(u64, u64, &[u8]); 6] =
        [(0, 6, b"heron"), (9, 1, b"heron"), (0, 5, b"a\0b"), (0, 5, b" "), (0, 5, b"\xff"), (0, 5, b"")];
    for (from, length, word) in wrong {
        body["cursor"] = forged(from, length, word).into();
        let refused = ask(&reader.client, "bm25", &body).await.unwrap_err();
        assert_eq!(refused.members["field"], "cursor", "{from} {length} {word:?}");
    }
    app.end().await;
}
