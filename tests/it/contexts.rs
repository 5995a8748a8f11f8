//! Searches prepared under a name, and the method that the service chooses itself.
use crate::{
    cli::{lines, svc},
    principals::{grant, someone},
    support::{TOKEN, TestApp, document, http, sample},
};
use reqwest::Method;
use serde_json::{Value, json};
use svc_client::{
    Code, Json,
    wire::{
        AutoSearch, Bm25Search, ContextChange, ContextConfig, ContextPath, DocumentPath, FulltextSearch, GrantRight,
        GroupBy, HybridSearch, HybridWeights, IndexChange, IndexPath, NewContext, PageQuery, SearchFilter,
        SearchMethod, SearchQuery, SearchResponse, VectorSearch,
    },
};

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

fn context(name: &str, config: ContextConfig) -> Json<NewContext> {
    Json(NewContext { name: name.to_owned(), config })
}

async fn sent(app: &TestApp, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = http().request(method, format!("{}{path}", app.base)).bearer_auth(TOKEN).json(body);
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Two folders with a note on herons in each, and one of another usetype.
async fn ponds(app: &TestApp) -> [i64; 5] {
    let north = app.create("North pond", "Reeds and ice.", None).await.id;
    let south = app.create("South pond", "Warm mud.", None).await.id;
    let in_north = app.create("Herons", "The heron stands in the reeds and waits for a fish.", Some(north)).await.id;
    let in_south = app.create("Herons", "The heron sleeps on one leg in the mud.", Some(south)).await.id;
    let mut memo = document("Memo", "The heron was seen again.");
    memo.usetype = Some("memo".to_owned());
    let memo = app.client.create_document(Default::default(), Json(memo)).await.unwrap().document.id;
    [north, south, in_north, in_south, memo]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_takes_from_its_context_what_it_does_not_say_itself() {
    let app = TestApp::start().await;
    let [north, south, in_north, in_south, memo] = ponds(&app).await;
    let config = ContextConfig {
        method: Some(SearchMethod::Fulltext),
        weights: Some(HybridWeights { vector: Some(1.0), bm25: Some(0.0) }),
        parent_id: Some(north),
        min_similarity: Some(0.99),
        ..ContextConfig::default()
    };
    let made = app.client.create_context(context("north", config.clone())).await.unwrap();
    assert_eq!((made.name.as_str(), &made.config), ("north", &config));
    let named = Some("north".to_owned());
    let found = app
        .client
        .search_fulltext(Json(FulltextSearch { context: named.clone(), ..FulltextSearch::new("heron") }))
        .await
        .unwrap();
    assert_eq!((ids(&found), found.why.as_deref()), (vec![in_north], None));
    let found =
        app.client.search_bm25(Json(Bm25Search { context: named.clone(), ..Bm25Search::new("heron") })).await.unwrap();
    assert_eq!(ids(&found), [in_north]);
    // What a search says itself holds.
    let body = Bm25Search { context: named.clone(), parent_id: Some(south), ..Bm25Search::new("heron") };
    assert_eq!(ids(&app.client.search_bm25(Json(body)).await.unwrap()), [in_south]);
    // Each method takes what it knows.
    let body = VectorSearch { context: named.clone(), ..VectorSearch::new("a bird that fishes") };
    assert_eq!(app.client.search_vector(Json(body.clone())).await.unwrap().results.len(), 0, "nothing is that similar");
    let body = VectorSearch { min_similarity: Some(-1.0), ..body };
    assert_eq!(ids(&app.client.search_vector(Json(body)).await.unwrap()), [in_north]);
    let body = HybridSearch { context: named.clone(), ..HybridSearch::new("heron") };
    let found = app.client.search_hybrid(Json(body)).await.unwrap();
    assert!((found.results[0].score - 1.0 / 61.0).abs() < 1e-12, "only the vectors count");
    // The service's own choice gives way to the context's method.
    let found =
        app.client.search_auto(Json(AutoSearch { context: named.clone(), ..AutoSearch::new("heron") })).await.unwrap();
    assert_eq!((ids(&found), found.method), (vec![in_north], SearchMethod::Fulltext));
    assert_eq!(found.why.as_deref(), Some("the context names it"));
    let found = app.client.search(SearchQuery { context: named, ..SearchQuery::new("heron") }).await.unwrap();
    assert_eq!((ids(&found), found.method), (vec![in_north], SearchMethod::Fulltext));

    // A change holds for the next search, and takes the place of the whole config.
    let path = ContextPath { id: made.id };
    let change = ContextConfig {
        usetype: Some(vec!["memo".to_owned()]),
        filter: Some(SearchFilter {
            created_at_from: Some(made.created_at - chrono::Days::new(1)),
            ..Default::default()
        }),
        group_by: Some(GroupBy::None),
        ..ContextConfig::default()
    };
    let change = ContextChange { name: Some("memos".to_owned()), config: Some(change) };
    let changed = app.client.update_context(path, Json(change)).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.config.parent_id), ("memos", None));
    assert!(changed.updated_at > made.updated_at && changed.created_at == made.created_at);
    assert_eq!(app.client.read_context(path).await.unwrap(), changed);
    let body = AutoSearch { context: Some("memos".to_owned()), ..AutoSearch::new("heron") };
    let found = app.client.search_auto(Json(body.clone())).await.unwrap();
    assert_eq!((ids(&found), found.group_by), (vec![memo], None));
    let listed = app.client.list_contexts(PageQuery::default()).await.unwrap();
    assert_eq!(listed.contexts, [changed]);
    app.client.delete_context(path).await.unwrap();
    let gone = app.client.search_auto(Json(body)).await.unwrap_err();
    assert_eq!((gone.code, gone.members["remedy"].as_str()), (Code::NotFound, Some("GET /search-contexts lists them")));
    for gone in [app.client.read_context(path).await.err(), app.client.delete_context(path).await.err()] {
        assert_eq!(gone.unwrap().code, Code::NotFound);
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_search_could_use_is_refused_and_names_the_field() {
    let app = TestApp::start().await;
    let client = &app.client;
    client.create_context(context("taken", ContextConfig::default())).await.unwrap();
    let second = client.create_context(context("second", ContextConfig::default())).await.unwrap();
    assert_eq!(
        client.create_context(context("taken", ContextConfig::default())).await.unwrap_err().code,
        Code::Conflict
    );
    let change = ContextChange { name: Some("taken".to_owned()), config: None };
    let path = ContextPath { id: second.id };
    assert_eq!(client.update_context(path, Json(change)).await.unwrap_err().code, Code::Conflict);
    for (body, field) in [
        (json!({"name": ""}), "name"),
        (json!({"name": "a b"}), "name"),
        (json!({"name": "x", "config": {"parent_id": 404}}), "config.parent_id"),
        (json!({"name": "x", "config": {"index": "nowhere"}}), "config.index"),
        (json!({"name": "x", "config": {"method": "auto"}}), "config.method"),
        (json!({"name": "x", "config": {"usetype": []}}), "config.usetype"),
        (json!({"name": "x", "config": {"min_similarity": 2}}), "config.min_similarity"),
        (json!({"name": "x", "config": {"rerank_top": 0}}), "config.rerank_top"),
        (json!({"name": "x", "config": {"weights": {"vector": 1.0}}}), "config.weights"),
        (json!({"name": "x", "config": {"limit": 5}}), "config.limit"),
    ] {
        let (status, answer) = sent(&app, Method::POST, "/search-contexts", &body).await;
        assert_eq!((status, answer["field"].as_str()), (422, Some(field)), "{body}: {answer}");
        if field.starts_with("config") {
            let (path, change) = (format!("/search-contexts/{}", second.id), json!({"config": body["config"]}));
            let (status, answer) = sent(&app, Method::PATCH, &path, &change).await;
            assert_eq!((status, answer["field"].as_str()), (422, Some(field)), "{body}: {answer}");
        }
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_goes_on_to_name_an_index_that_gets_another_name() {
    let app = TestApp::start().await;
    let id = app.create("Herons", "The heron stands in the reeds.", None).await.id;
    let new = json!({"name": "birds", "members": [id]});
    let index = app.client.create_index(Json(serde_json::from_value(new).unwrap())).await.unwrap();
    let naming = |index: &str| ContextConfig { index: Some(index.to_owned()), ..ContextConfig::default() };
    let made = app.client.create_context(context("ponds", naming("birds"))).await.unwrap();
    let other = app.client.create_context(context("all", naming("default"))).await.unwrap();
    let rename = async |name: &str| {
        let change = IndexChange { name: Some(name.to_owned()), ..IndexChange::default() };
        app.client.update_index(IndexPath { id: index.id }, Json(change)).await
    };
    let read = async |id: i64| app.client.read_context(ContextPath { id }).await.unwrap();
    assert_eq!(rename("waders").await.unwrap().name, "waders");
    let body = Bm25Search { context: Some("ponds".to_owned()), ..Bm25Search::new("heron") };
    assert_eq!(ids(&app.client.search_bm25(Json(body)).await.unwrap()), [id]);
    let renamed = read(made.id).await;
    assert_eq!((&renamed.config, renamed.updated_at > made.updated_at), (&naming("waders"), true));
    // A name that is taken or stays changes no context.
    assert_eq!(rename("default").await.unwrap_err().code, Code::Conflict);
    rename("waders").await.unwrap();
    assert_eq!((read(made.id).await, read(other.id).await), (renamed, other));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_read_the_parent_of_a_context_does_not_see_it() {
    let app = TestApp::start().await;
    let [north, south, in_north, ..] = ponds(&app).await;
    for id in [north, south] {
        app.client.protect_document(DocumentPath { id }).await.unwrap();
    }
    let under = |id| ContextConfig { parent_id: Some(id), ..ContextConfig::default() };
    let open = app.client.create_context(context("open", ContextConfig::default())).await.unwrap();
    let mine = app.client.create_context(context("mine", under(north))).await.unwrap();
    let other = app.client.create_context(context("other", under(south))).await.unwrap();
    let who = someone(&app, "reader").await;
    grant(&app, &who, north, GrantRight::Read).await;
    let listed = who.client.list_contexts(PageQuery::default()).await.unwrap().contexts;
    assert_eq!(listed, [open.clone(), mine.clone()]);
    assert_eq!(who.client.read_context(ContextPath { id: mine.id }).await.unwrap(), mine);
    let hidden = who.client.read_context(ContextPath { id: other.id }).await.unwrap_err();
    let missing = who.client.read_context(ContextPath { id: other.id + 1 }).await.unwrap_err();
    assert_eq!(
        hidden.detail.replace(&other.id.to_string(), "N"),
        missing.detail.replace(&(other.id + 1).to_string(), "N")
    );
    let search = |name: &str| Json(Bm25Search { context: Some(name.to_owned()), ..Bm25Search::new("heron") });
    assert_eq!(ids(&who.client.search_bm25(search("mine")).await.unwrap()), [in_north]);
    for name in ["other", "nowhere"] {
        let failure = who.client.search_bm25(search(name)).await.unwrap_err();
        assert_eq!((failure.code, failure.detail), (Code::NotFound, format!("there is no search context `{name}`")));
    }
    // A filter names documents too, at any depth; what a caller's own object holds is none of them.
    let narrowed = |filter: Value| ContextConfig {
        filter: Some(serde_json::from_value(filter).unwrap()),
        ..ContextConfig::default()
    };
    let mut hidden = Vec::new();
    for (number, filter) in [
        json!({"under": [north, south], "structured_content": {"secret": true}}),
        json!({"exclude": [south]}),
        json!({"any": [{"under": [north]}, {"all": [{"none": [{"exclude": [south]}]}]}]}),
    ]
    .into_iter()
    .enumerate()
    {
        let named = format!("hidden-{number}");
        hidden.push(app.client.create_context(context(&named, narrowed(filter))).await.unwrap());
    }
    let shown = json!({"any": [{"under": [north]}, {"exclude": [in_north]}], "structured_content": {"under": [south]}});
    let shown = app.client.create_context(context("shown", narrowed(shown))).await.unwrap();
    let listed = who.client.list_contexts(PageQuery::default()).await.unwrap().contexts;
    assert_eq!(listed, [open.clone(), mine.clone(), shown.clone()]);
    assert_eq!(who.client.read_context(ContextPath { id: shown.id }).await.unwrap(), shown);
    for hidden in hidden {
        let path = ContextPath { id: hidden.id };
        assert_eq!(who.client.read_context(path).await.unwrap_err().code, Code::NotFound, "{}", hidden.name);
        assert_eq!(who.client.search_bm25(search(&hidden.name)).await.unwrap_err().code, Code::NotFound);
        assert_eq!(app.client.read_context(path).await.unwrap(), hidden);
        app.client.search_bm25(search(&hidden.name)).await.unwrap();
    }
    app.client.delete_context(ContextPath { id: shown.id }).await.unwrap();
    // A context is the owner's to change.
    for refused in [
        who.client.create_context(context("own", ContextConfig::default())).await.err(),
        who.client.update_context(ContextPath { id: mine.id }, Json(ContextChange::default())).await.err(),
        who.client.delete_context(ContextPath { id: mine.id }).await.err(),
    ] {
        assert_eq!(refused.unwrap().code, Code::Forbidden);
    }
    // The context of a deleted document finds nothing else than before.
    app.client.delete_document(DocumentPath { id: north }).await.unwrap();
    assert_eq!(app.client.search_bm25(search("mine")).await.unwrap_err().code, Code::NotFound);
    assert_eq!(who.client.list_contexts(PageQuery::default()).await.unwrap().contexts, [open]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_method_suits_the_query_and_the_answer_says_why() {
    let app = TestApp::start().await;
    let invoice =
        app.create("Invoices", "Order number XK-4471-B was billed twice and refunded in March.", None).await.id;
    let tide = app.create("Tides", "The moon pulls the oceans, and twice a day the water rises.", None).await.id;
    let auto = async |query: &str| app.client.search_auto(Json(AutoSearch::new(query))).await.unwrap();
    for (query, method, first) in [
        ("why does seawater go up and down", SearchMethod::Hybrid, tide),
        ("XK-4471-B", SearchMethod::Bm25, invoice),
        ("\"billed twice\" order", SearchMethod::Fulltext, invoice),
        ("twice -billed", SearchMethod::Fulltext, tide),
    ] {
        let found = auto(query).await;
        assert_eq!((found.method, ids(&found)[0]), (method, first), "{query}");
        assert_eq!(found.group_by, Some(GroupBy::File));
        assert!(found.why.is_some_and(|why| why.len() > 10), "{query}");
    }
    let hybrid = auto("moon").await;
    let equal = HybridSearch { weights: Some(HybridWeights::default()), ..HybridSearch::new("moon") };
    let equal = app.client.search_hybrid(Json(equal)).await.unwrap();
    assert_eq!((ids(&hybrid), hybrid.results[0].score), (ids(&equal), equal.results[0].score));
    // An identifier that nobody has is searched for by what it looks like.
    let near = auto("XQ-9-Z").await;
    assert_eq!((near.method, near.results.len()), (SearchMethod::Hybrid, 2), "{:?}", near.why);
    // Full text refuses more than 64 words, and what only forbids some; the caller has not asked for full text.
    let pasted = format!("{} \"billed twice\"", "word ".repeat(70));
    for query in [pasted.as_str(), "\"billed\" OR -twice"] {
        let found = auto(query).await;
        assert_eq!(found.method, SearchMethod::Hybrid, "{query}");
        assert!(found.why.is_some_and(|why| why.contains("full text refuses")), "{query}");
    }
    assert_eq!(ids(&auto("“billed twice” order").await), [invoice], "word processors put such quotes");
    // A query over the model's window is no reason to answer nothing.
    let long = auto(&"moon water ocean ".repeat(300)).await;
    assert_eq!((long.method, ids(&long)), (SearchMethod::Bm25, vec![tide]));
    assert!(long.why.unwrap().contains("window"));
    // An identifier of that length which no text has is no error either.
    let identifier = (0..400).map(|n| format!("zq{n}x")).collect::<Vec<_>>().join("_");
    let nowhere = auto(&identifier).await;
    assert_eq!((nowhere.method, ids(&nowhere)), (SearchMethod::Bm25, vec![]));
    assert!(nowhere.why.unwrap().contains("window"));
    // A number keeps its sign beside whatever full text understands.
    let cold = app.create("Engines", "After a cold start at -40 degrees the engine runs rough.", None).await.id;
    let found = auto("\"cold start\" at -40 degrees").await;
    assert_eq!((found.method, ids(&found)), (SearchMethod::Fulltext, vec![cold]));
    app.end().await;
}

/// What a context leaves out keeps it from nobody once it is gone.
#[tokio::test]
async fn a_context_outlives_what_it_leaves_out() {
    let app = TestApp::start().await;
    let [_, _, in_north, in_south, _] = ponds(&app).await;
    let filter = SearchFilter { exclude: Some(vec![in_north]), ..SearchFilter::default() };
    let config = ContextConfig { filter: Some(filter), ..ContextConfig::default() };
    app.client.create_context(context("manuals", config)).await.unwrap();
    let reader = someone(&app, "reader").await;
    let search = || {
        let body = FulltextSearch { context: Some("manuals".to_owned()), ..FulltextSearch::new("heron") };
        reader.client.search_fulltext(Json(body))
    };
    assert!(ids(&search().await.unwrap()).contains(&in_south));
    app.client.protect_document(DocumentPath { id: in_north }).await.unwrap();
    assert_eq!(search().await.unwrap_err().code, Code::NotFound, "what it names is closed");
    app.client.delete_document(DocumentPath { id: in_north }).await.unwrap();
    assert!(ids(&search().await.unwrap()).contains(&in_south));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_shows_files_unless_a_context_says_otherwise() {
    let app = TestApp::start().await;
    app.ingest(&sample("handbook.md")).await;
    let usetype = Some(vec!["chunk".to_owned(), "section".to_owned()]);
    let manuals = ContextConfig { usetype, ..ContextConfig::default() };
    let texts = ContextConfig { group_by: Some(GroupBy::None), ..manuals.clone() };
    for (name, config, is_of_files) in [("manuals", manuals, true), ("texts", texts, false)] {
        app.client.create_context(context(name, config)).await.unwrap();
        for method in ["auto", "hybrid", "bm25"] {
            let found = svc(&app, &["search", "radar gauge", "--context", name, "--method", method]).await;
            let found = lines(&found);
            assert!(!found.is_empty(), "{name} {method}");
            assert!(
                found.iter().all(|result| (result["usetype"] == "file") == is_of_files),
                "{name} {method}: {found:?}"
            );
        }
    }
    let unknown = svc(&app, &["search", "radar gauge", "--context", "nothing", "--method", "bm25"]).await;
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(1) && said.contains("not_found"), "{said}");
    app.end().await;
}
