//! Full text: what it asks for, and what it finds for a question.
use crate::{
    cranfield,
    edits::patched,
    support::{TestApp, Wish, document},
};
use serde_json::json;
use svc_client::{
    Code, Json,
    wire::{BatchItem, FulltextSearch, NewBatch, SearchResponse, TotalIs, WaitQuery},
};

async fn put(app: &TestApp, texts: &[(&str, &str)]) {
    for (title, content) in texts {
        app.client.create_document(WaitQuery::default(), Json(document(title, content))).await.unwrap();
    }
}

async fn find(app: &TestApp, query: &str, limit: u32) -> SearchResponse {
    app.client.search_fulltext(Json(FulltextSearch { limit, ..FulltextSearch::new(query) })).await.unwrap()
}

async fn titles(app: &TestApp, query: &str) -> String {
    let found = find(app, query, 10).await;
    found.results.iter().map(|result| result.document.title.as_str()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn words_are_found_in_any_spelling_and_any_script() {
    // No worker has to run: a text is found by its words as soon as it is stored.
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    put(
        &app,
        &[
            ("coffee", "Le cafe\u{301} de l'\u{e9}cole"),
            ("tower", "\u{6771}\u{4eac}\u{96fb}\u{6ce2}\u{5854}"),
            ("thai", "ประเทศญี่ปุ่นและกรุงเทพมหานคร"),
            ("code", "call get_user_by_id in src/handlers/user.rs of v1.2.3"),
            ("wide", "ＡＢＣ and a \u{fb01}le"),
            ("moon", "👩🏽\u{200d}🚀 flew to the moon"),
        ],
    )
    .await;
    for (query, found) in [
        ("café", "coffee"),
        ("CAFE", "coffee"),
        ("cafe\u{301}", "coffee"),
        ("école", "coffee"),
        ("塔", "tower"),
        ("電波塔", "tower"),
        ("ญี่ปุ่น", "thai"),
        ("กรุงเทพมหานคร", "thai"),
        ("get user", "code"),
        ("user_by_id", "code"),
        ("get_user_by_id", "code"),
        ("1.2.3", "code"),
        ("abc file", "wide"),
        ("👩\u{200d}🚀", "moon"),
        ("🚀", "moon"),
        ("\"flew to the moon\"", "moon"),
        ("\"moon flew\"", ""),
        ("moon or abc -file", "moon"),
        ("塔 -京都", "tower"),
        ("the", ""),
    ] {
        assert_eq!(titles(&app, query).await, found, "{query}");
    }
    app.end().await;
}

/// A tsvector tells some 16,000 places apart, and a text may have more words.
#[tokio::test]
async fn a_phrase_is_found_however_far_into_a_text_it_is() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let words = |count: usize| (0..count).map(|at| format!("word{} ", at % 900)).collect::<String>();
    let texts = [
        ("early", format!("{}purple elephant", words(100))),
        ("border", format!("{}purple elephant {}", words(15_998), words(50))),
        ("late", format!("{}purple elephant and get_gadget_name", words(18_000))),
        ("apart", format!("{}purple {}elephant", words(17_000), words(3))),
        ("last", format!("{}zanzibar", words(60_000))),
        ("kanji", format!("{}東京都", "漢字".repeat(9_000))),
    ];
    let texts: Vec<(&str, &str)> = texts.iter().map(|(title, text)| (*title, text.as_str())).collect();
    put(&app, &texts).await;
    let found = async |query: &str| {
        let mut titles: Vec<String> = titles(&app, query).await.split(' ').map(str::to_owned).collect();
        titles.sort_unstable();
        titles.join(" ")
    };
    assert_eq!(found("\"purple elephant\"").await, "border early late");
    assert_eq!(found("purple -\"purple elephant\"").await, "apart");
    assert_eq!(found("get_gadget_name").await, "late");
    assert_eq!(found("zanzibar").await, "last");
    assert_eq!(found("東京都").await, "kanji");
    // Another title changes nothing of that.
    let last = find(&app, "zanzibar", 1).await.results[0].document.id;
    patched(&app, last, json!({"title": "final"})).await;
    assert_eq!(found("zanzibar").await, "final");
    app.end().await;
}

#[tokio::test]
async fn a_question_finds_what_has_some_of_its_words_after_what_has_all() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    put(
        &app,
        &[
            ("all", "Yeast makes bread rise in the oven"),
            ("some", "Bread and butter"),
            ("rare", "Yeast is a fungus"),
            ("none", "The moon pulls the oceans"),
            ("more", "Bread again, and more bread"),
        ],
    )
    .await;
    let found = find(&app, "why does yeast make bread rise", 10).await;
    assert_eq!((found.total, found.total_is), (4, TotalIs::Exact));
    assert_eq!(titles(&app, "why does yeast make bread rise").await, "all rare some more");
    assert!(found.results.windows(2).all(|pair| pair[0].score >= pair[1].score));
    // What has everything is enough for a search that asks for no more.
    let found = find(&app, "yeast bread", 1).await;
    assert_eq!((found.results[0].document.title.as_str(), found.total), ("all", 1));
    // A phrase and what is forbidden hold for all.
    assert_eq!(titles(&app, "\"bread rise\" butter yeast").await, "all");
    assert_eq!(titles(&app, "yeast butter -fungus").await, "some all");
    assert_eq!(titles(&app, "yeast or fungus").await, "rare all");
    app.end().await;
}

#[tokio::test]
async fn the_first_page_decides_whether_some_of_the_words_are_enough() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for number in 0..30 {
        let content = if number < 10 { "Yeast makes bread rise" } else { "Bread and butter" };
        put(&app, &[(&format!("Note {number}"), content)]).await;
    }
    for (limit, all) in [(3, 10), (10, 10), (11, 30)] {
        let mut cursor = None;
        let mut seen = 0;
        loop {
            let body = FulltextSearch { limit, cursor, ..FulltextSearch::new("yeast bread") };
            let page = app.client.search_fulltext(Json(body)).await.unwrap();
            assert_eq!((page.total, page.total_is), (all, TotalIs::Exact), "{limit}, after {seen}");
            seen += page.results.len() as u64;
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, all, "by {limit}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_question_without_spaces_is_a_question() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    put(
        &app,
        &[
            ("gauge", "雷达水位计测量水箱的液位，如果失效则请更换电池。"),
            ("battery", "液位計の電池は毎年交換してください。"),
            ("tower", "東京電波塔"),
            ("weather", "今天天气很好。"),
        ],
    )
    .await;
    assert_eq!(titles(&app, "雷达水位计什么时候失效").await, "gauge");
    assert_eq!(titles(&app, "液位計が故障したときの電池の交換方法").await, "battery gauge");
    assert_eq!(titles(&app, "東京電波塔").await, "tower");
    // In quotes it is what must be there, as is a word of three characters.
    assert_eq!(titles(&app, "\"雷达水位计什么时候失效\"").await, "");
    assert_eq!(titles(&app, "京都塔").await, "");
    // A long one is no reason to refuse it.
    assert_eq!(titles(&app, &"雷达水位计什么时候失效".repeat(20)).await, "gauge");
    app.end().await;
}

#[tokio::test]
async fn many_words_are_ranked_by_each_of_them_and_a_longer_answer_begins_as_a_shorter_one() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let words: Vec<String> = (0..60).map(|at| format!("made{at}up")).collect();
    let once = words.join(" ");
    // The words stand as densely in each, and more often in the second.
    let often = format!("{once} {once} {once}");
    let without_last = words[..59].join(" ");
    put(&app, &[("once", &once), ("often", &often), ("some", &without_last)]).await;
    assert_eq!(titles(&app, &once).await, "often once some");
    // Forty of them make up more of a shorter text.
    assert_eq!(titles(&app, &words[..40].join(" ")).await, "often some once");
    for limit in 1..=3 {
        let found = find(&app, &once, limit).await;
        let titles: Vec<&str> = found.results.iter().map(|result| result.document.title.as_str()).collect();
        assert_eq!(titles, ["often", "once", "some"][..limit as usize]);
        assert!(found.results.windows(2).all(|pair| pair[0].score >= pair[1].score));
    }
    app.end().await;
}

#[tokio::test]
async fn hostile_queries_are_answered_or_refused_with_a_reason() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mark = "\u{301}".repeat(3_000);
    put(
        &app,
        &[
            ("marked", &format!("caf\u{65}{mark} x\u{200d}y")),
            ("long", &"x".repeat(1 << 20)),
            ("quotes", "it''s \\ 'quoted' & | ! <-> ( :*"),
        ],
    )
    .await;
    let wide: String = (0..200_000u32).filter_map(|at| char::from_u32(0x4E00 + at % 20_000)).collect();
    put(&app, &[("wide", &wide)]).await;
    for (query, found) in [
        (format!("cafe{mark}"), "marked"),
        ("xy".to_owned(), "marked"),
        ("'quoted' & | ! <-> ( :*".to_owned(), "quotes"),
        ("\u{4e00}\u{4e01}".to_owned(), "wide"),
        ("\\ ' \\'".to_owned(), ""),
        ("\u{301}\u{200d}".to_owned(), ""),
    ] {
        assert_eq!(titles(&app, &query).await, found, "{query:?}");
    }
    for query in ["-x".to_owned(), "a or -b".to_owned(), "\u{4e00}\u{4e01}".repeat(1_000), "w ".repeat(3_000)] {
        let refused = app.client.search_fulltext(Json(FulltextSearch::new(&query))).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.members["field"].as_str()),
            (Code::InvalidField, Some("query")),
            "{query:.20}"
        );
    }
    app.end().await;
}

#[tokio::test]
async fn full_text_answers_the_questions_of_cranfield() {
    let Some(cranfield) = cranfield::read() else { return };
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut ids = std::collections::HashMap::new();
    for chunk in cranfield.docs.chunks(500) {
        let item = |(number, text): &(i64, String)| BatchItem {
            content: text.clone(),
            ..serde_json::from_value(serde_json::json!({"title": number.to_string(), "content": ""})).unwrap()
        };
        let batch = NewBatch { documents: chunk.iter().map(item).collect(), priority: 0 };
        let made = app.client.create_documents(Json(batch)).await.unwrap();
        ids.extend(made.documents.iter().zip(chunk).map(|(made, (number, _))| (made.document_id, *number)));
    }
    let mut sum = 0.0;
    for (query, relevant) in &cranfield.queries {
        // What stands behind a dash is not forbidden here.
        let found = find(&app, &query.replace(" -", " "), 10).await;
        let found: Vec<i64> = found.results.iter().map(|result| ids[&result.document.id]).collect();
        sum += cranfield::ndcg(&found, relevant);
    }
    let ndcg = sum / cranfield.queries.len() as f64;
    println!("Cranfield nDCG@10 of full text: {ndcg:.4}");
    assert!(ndcg >= 0.35, "nDCG@10 is {ndcg:.4}");
    app.end().await;
}
