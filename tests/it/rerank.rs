//! The second stage of a search, and late interaction.
use crate::{
    principals::{grant, someone},
    support::{TOKEN, TestApp, Wish, cross_encoder, server, settings},
};
use serde_json::{Value, json};
use std::sync::Arc;
use svc::{
    app::{App, AppError},
    reader::Reader,
    settings::{model_settings, reranker_settings},
};
use svc_client::{
    Code, Json, OptionalJson,
    wire::{
        Bm25Search, DocumentPath, EmbedOptions, FulltextSearch, GrantRight, HybridSearch, MaxsimSearch, RerankMethod,
        SearchMethod, SearchResponse, TokensBatch, VectorSearch,
    },
};
use svc_models::{Engine, Reranker, default_models_dir};

const FACTS: &[(&str, &str)] = &[
    ("Tides", "The moon pulls the oceans, and twice a day the water rises along the coast."),
    ("Bread", "Yeast eats the sugar in the dough and fills it with bubbles, so the loaf rises in the oven."),
    ("Glaciers", "A glacier is a river of ice that moves downhill a few centimetres a day; water rises in summer."),
    ("Volcanoes", "Molten rock called magma rises through cracks in the crust and becomes lava."),
    ("Rivers", "A river carries water from the mountains to the sea, and rises in spring."),
];
const QUERY: &str = "water rises";

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

/// A folder with a cross-encoder, and the setting that names it.
fn reranker() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny-reranker");
    cross_encoder::write(&model);
    let model = model.to_str().unwrap().to_owned();
    (folder, model)
}

#[tokio::test]
async fn every_search_can_be_ranked_anew_by_the_cross_encoder() {
    let (_folder, model) = reranker();
    let app = TestApp::with(Wish { settings: &[("SVC_RERANKER_MODEL", &model)], ..Wish::default() }).await;
    for (title, content) in FACTS {
        app.create(title, content, None).await;
    }
    // This is the same model without the service.
    let reranker = Reranker::load(&reranker_settings(&app.service.settings), None).unwrap();
    macro_rules! reranked {
        ($type:ident, $method:ident) => {{
            let first = app.client.$method(Json($type::new(QUERY))).await.unwrap();
            assert_eq!(first.reranked, None);
            let body = $type { rerank: Some(true), ..$type::new(QUERY) };
            let found = app.client.$method(Json(body)).await.unwrap();
            assert_eq!(found.reranked, Some(RerankMethod::CrossEncoder), "{}", found.method);
            assert_eq!((found.results.len(), found.method), (first.results.len(), first.method));
            let texts = found.results.iter().map(|r| format!("{}\n{}", r.document.title, r.document.content)).collect();
            let want = reranker.score(QUERY, texts).await.unwrap();
            for (result, want) in found.results.iter().zip(want) {
                assert!((result.score - f64::from(want)).abs() < 1e-5, "{} and {want}", result.score);
            }
            assert!(found.results.is_sorted_by(|left, right| left.score >= right.score));
            // It ranks more than the five that are returned: the best of all is first, however few are asked for.
            let body = $type { rerank: Some(true), limit: 1, ..$type::new(QUERY) };
            let one = app.client.$method(Json(body)).await.unwrap();
            assert_eq!((one.results.len(), one.results[0].document.id), (1, found.results[0].document.id));
            let body = $type { rerank: Some(true), rerank_top: Some(1), limit: 1, ..$type::new(QUERY) };
            let top = app.client.$method(Json(body)).await.unwrap();
            assert_eq!(top.results[0].document.id, first.results[0].document.id);
        }};
    }
    reranked!(VectorSearch, search_vector);
    reranked!(Bm25Search, search_bm25);
    reranked!(FulltextSearch, search_fulltext);
    reranked!(HybridSearch, search_hybrid);
    app.sampled().await;
    let ready = app.client.read_readiness().await.unwrap();
    let state = ready.reranker.unwrap();
    assert_eq!((state.name.as_str(), state.device.as_str(), state.pair_window), ("tiny-reranker", "cpu", 128));
    let body = VectorSearch { rerank_top: Some(0), ..VectorSearch::new(QUERY) };
    assert_eq!(app.client.search_vector(Json(body)).await.unwrap_err().code, Code::InvalidField);
    app.end().await;
}

#[tokio::test]
async fn a_search_whose_reranker_is_not_there_fails_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = "owner/not-fetched";
    let app = TestApp::with(Wish { settings: &[("SVC_RERANKER_MODEL", missing)], ..Wish::default() }).await;
    app.create("Tides", "The water rises.", None).await;
    let body = VectorSearch { rerank: Some(true), ..VectorSearch::new(QUERY) };
    let failure = app.client.search_vector(Json(body)).await.unwrap_err();
    assert_eq!((failure.code, failure.members["setting"].as_str()), (Code::NotConfigured, Some("SVC_RERANKER_MODEL")));
    assert_eq!(failure.members["remedy"], "svc models fetch owner/not-fetched");
    app.sampled().await;
    assert!(app.client.read_readiness().await.unwrap().reranker.is_none());
    app.end().await;
    drop(folder);
}

#[tokio::test]
async fn what_the_models_cannot_do_stops_the_start() {
    let options = server::new_database().await;
    let socket = options.get_socket().unwrap().display().to_string();
    let (user, database) = (options.get_username(), options.get_database().unwrap());
    let database = format!("postgres://{user}@localhost/{database}?host={socket}");
    let data_dir = server::work_dir().join("data").display().to_string();
    let embedding_model = default_models_dir().unwrap().join("all-MiniLM-L6-v2").display().to_string();
    for (name, value, wanted) in [
        ("SVC_RERANKER_MODEL", embedding_model.as_str(), &["SVC_RERANKER_MODEL", "without a classifier"][..]),
        ("SVC_RERANKER_DEVICE", "cuda", &["SVC_RERANKER_MODEL", "feature `cuda`"]),
        ("SVC_EMBEDDING_DEVICE", "wgpu", &["feature `wgpu`"]),
        ("SVC_TOKEN_EMBED_DIMS", "[256, 512]", &["SVC_TOKEN_EMBED_DIMS", "512", "384", "take of 256, 384"]),
    ] {
        let settings = settings(&[
            ("SVC_DATABASE_URL", database.as_str()),
            ("SVC_DATA_DIR", data_dir.as_str()),
            ("SVC_MIGRATE", "auto"),
            ("SVC_LISTEN", "127.0.0.1:0"),
            (name, value),
        ]);
        let reader = Reader::new(env!("CARGO_BIN_EXE_svc").into());
        let error: AppError = App::start(Arc::new(settings), TOKEN, reader).await.map(|_| ()).unwrap_err();
        for wanted in wanted {
            assert!(error.to_string().contains(wanted), "{wanted} is not said in: {error}");
        }
    }
}

#[tokio::test]
async fn late_interaction_ranks_what_has_tokens_and_says_what_has_none() {
    let app = TestApp::start().await;
    let mut with_tokens = Vec::new();
    for (at, (title, content)) in FACTS.iter().enumerate() {
        let id = app.create(title, content, None).await.id;
        if at < 3 {
            let answer = app.client.embed_tokens(DocumentPath { id }).await.unwrap();
            // Half of the title's and the text's tokens, rounded up.
            assert_eq!(answer.token_count, answer.text_tokens.div_ceil(2), "{title}");
            assert_eq!(answer.widths, [256]);
            with_tokens.push(id);
        }
    }
    let found = app.client.search_maxsim(Json(MaxsimSearch::new("molten bread in an oven"))).await.unwrap();
    assert_eq!((found.method, found.total), (SearchMethod::Maxsim, 5));
    assert_eq!(found.results[0].document.title, "Bread");
    for (place, result) in found.results.iter().enumerate() {
        assert_eq!(result.no_tokens, place >= 3, "{:?}", result.document.title);
        assert_eq!(result.score == 0.0, result.no_tokens);
        assert_eq!(result.no_tokens, !with_tokens.contains(&result.document.id));
    }
    let body = HybridSearch {
        rerank: Some(true),
        rerank_method: Some(RerankMethod::Maxsim),
        ..HybridSearch::new("molten bread in an oven")
    };
    let reranked = app.client.search_hybrid(Json(body)).await.unwrap();
    assert_eq!(reranked.reranked, Some(RerankMethod::Maxsim));
    assert_eq!(ids(&reranked)[..3], ids(&found)[..3]);
    assert!(reranked.results[3..].iter().all(|result| result.no_tokens && result.score == 0.0));

    // Tokens of another model are not used.
    sqlx::query("UPDATE token_packs SET model = 'other@0'").execute(&app.pool).await.unwrap();
    let found = app.client.search_maxsim(Json(MaxsimSearch::new("bread"))).await.unwrap();
    assert!(found.results.iter().all(|result| result.no_tokens && result.score == 0.0));
    app.end().await;
}

#[tokio::test]
async fn tokens_are_stored_as_the_settings_say() {
    let settings = [("SVC_TOKEN_TOP_PERCENT", "0.30"), ("SVC_TOKEN_EMBED_DIMS", "[256, 384]")];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let text = "the dough rises in the oven and the loaf is bread ".repeat(4);
    let id = app.create("Bread", &text, None).await.id;
    let vector = |app: &TestApp| {
        let client = app.client.clone();
        async move {
            client
                .read_document(DocumentPath { id }, svc_client::wire::EmbedQuery { include_embed: true })
                .await
                .unwrap()
                .value()
                .unwrap()
                .embed
                .unwrap()
        }
    };
    let before = vector(&app).await;
    sqlx::query("DELETE FROM document_vectors").execute(&app.pool).await.unwrap();
    let answer =
        app.client.embed_document(DocumentPath { id }, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    assert!(answer.embedded && answer.with_tokens);
    let after = vector(&app).await;
    assert!(before.iter().zip(&after).all(|(before, after)| (before - after).abs() < 1e-6));
    // There are 45 tokens: Bread, and eleven words four times.
    assert_eq!(answer.token_count, 14);
    let rows: Vec<(i64, i64, i64, i64, i16, bool)> = sqlx::query_as(
        "SELECT count(*), count(embed_256), count(embed_384), count(embed_512), max(tier),
                bool_and(abs(l2_norm(embed_256) - 1) < 0.01 AND abs(l2_norm(embed_384) - 1) < 0.01) FROM token_embeddings WHERE document_id = $1",
    )
    .bind(id)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert_eq!(rows, [(14, 14, 14, 0, 30, true)]);
    let pack: (i32, i32, i32) = sqlx::query_as("SELECT width, tokens, octet_length(vectors) FROM token_packs")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(pack, (384, 14, 384 * 14 * 2));
    // Doing it again adds no rows, and the rows are deleted with the document.
    app.client.embed_tokens(DocumentPath { id }).await.unwrap();
    let count = || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM token_embeddings").fetch_one(&app.pool);
    assert_eq!(count().await.unwrap(), 14);
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    assert_eq!(count().await.unwrap(), 0);
    app.end().await;
}

#[tokio::test]
async fn the_token_vectors_of_many_documents_are_those_of_each_and_one_that_is_refused_stops_no_other() {
    let window = settings(&[("SVC_EMBEDDING_TOKEN_WINDOW", "48"), ("SVC_EMBEDDING_THREADS", "1")]);
    let engine = Engine::load(&model_settings(&window)).unwrap();
    let app = TestApp::with(Wish { engine: Some(engine), ..Wish::default() }).await;
    let mut good = Vec::new();
    for (title, content) in FACTS {
        good.push(app.create(title, content, None).await.id);
    }
    let packs = async || {
        let packs: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT document_id, vectors FROM token_packs ORDER BY document_id")
                .fetch_all(&app.pool)
                .await
                .unwrap();
        packs
    };
    let mut alone = Vec::new();
    for id in &good {
        alone.push(app.client.embed_tokens(DocumentPath { id: *id }).await.unwrap().token_count);
    }
    let expected = packs().await;
    sqlx::raw_sql("DELETE FROM token_packs; DELETE FROM token_embeddings").execute(&app.pool).await.unwrap();
    let long = app.create("Tide", &"water ".repeat(60), None).await.id;
    let empty = app.create("Folder", "", None).await.id;
    let asked = [&good[..1], &[long, i64::MAX, empty], &good[1..]].concat();
    let answer = app.client.embed_many_tokens(Json(TokensBatch { document_ids: asked.clone() })).await.unwrap();
    assert_eq!(answer.documents.iter().map(|answer| answer.document_id).collect::<Vec<_>>(), asked);
    let stored: Vec<usize> =
        answer.documents.iter().filter_map(|answer| Some(answer.stored.as_ref()?.token_count)).collect();
    assert_eq!(stored, alone);
    let refused: Vec<Code> = answer.documents.iter().filter_map(|answer| Some(answer.failure.as_ref()?.code)).collect();
    assert_eq!(refused, [Code::TextTooLong, Code::NotFound, Code::InvalidField]);
    let now = packs().await;
    assert_eq!(now.len(), expected.len());
    for ((id, now), (other, expected)) in now.iter().zip(&expected) {
        // Texts that are embedded together may differ from one alone by what rounding does.
        assert_eq!((id, now.len()), (other, expected.len()));
    }
    // A query is refused by its name.
    let failure = app.client.search_maxsim(Json(MaxsimSearch::new(&"water ".repeat(60)))).await.unwrap_err();
    assert_eq!((failure.code, failure.members["field"].as_str()), (Code::TextTooLong, Some("query")), "{failure:?}");
    assert_eq!((failure.members["token_count"].as_u64(), failure.members["limit"].as_u64()), (Some(62), Some(48)));
    for document_ids in [vec![], vec![good[0]; 101]] {
        let failure = app.client.embed_many_tokens(Json(TokensBatch { document_ids })).await.unwrap_err();
        assert_eq!(failure.code, Code::InvalidField);
    }
    app.end().await;
}

#[tokio::test]
async fn of_many_documents_only_those_get_token_vectors_that_their_caller_may_write() {
    let app = TestApp::start().await;
    let (writer, other) = (someone(&app, "writer").await, someone(&app, "other").await);
    let mut all = Vec::new();
    for (title, content) in &FACTS[..4] {
        all.push(app.create(title, content, None).await.id);
    }
    let [mine, read, open, hidden] = all[..] else { panic!("{all:?}") };
    grant(&app, &writer, mine, GrantRight::Write).await;
    grant(&app, &writer, read, GrantRight::Read).await;
    grant(&app, &other, hidden, GrantRight::Write).await;
    let document_ids = vec![read, hidden, mine, open, i64::MAX, mine];
    let answer = writer.client.embed_many_tokens(Json(TokensBatch { document_ids })).await.unwrap();
    let became: Vec<Result<usize, Code>> = answer
        .documents
        .iter()
        .map(|answer| match (&answer.stored, &answer.failure) {
            (Some(stored), None) => Ok(stored.token_count),
            (None, Some(failure)) => Err(failure.code),
            both => panic!("{both:?}"),
        })
        .collect();
    let count = became[2].unwrap();
    let (forbidden, unknown) = (Err(Code::Forbidden), Err(Code::NotFound));
    assert_eq!(became, [forbidden, unknown, Ok(count), forbidden, unknown, Ok(count)], "one that is named twice too");
    // A hidden document is refused in the same words as a missing one.
    let [gone, closed] = [4, 1].map(|at| {
        let answer = &answer.documents[at];
        let failure = serde_json::to_string(answer.failure.as_ref().unwrap()).unwrap();
        failure.replace(&format!("document {}", answer.document_id), "it")
    });
    assert_eq!(gone, closed);
    let packed: Vec<i64> =
        sqlx::query_scalar("SELECT document_id FROM token_packs").fetch_all(&app.pool).await.unwrap();
    assert_eq!(packed, [mine]);
    app.end().await;
}

#[tokio::test]
async fn a_text_is_embedded_whole_or_refused_with_its_numbers() {
    let window = settings(&[("SVC_EMBEDDING_TOKEN_WINDOW", "32"), ("SVC_EMBEDDING_THREADS", "1")]);
    let engine = Engine::load(&model_settings(&window)).unwrap();
    let app = TestApp::with(Wish { engine: Some(engine), ..Wish::default() }).await;
    let embed = |id, with_tokens| {
        let client = app.client.clone();
        async move {
            client
                .embed_document(
                    DocumentPath { id },
                    EmbedOptions { with_tokens: Some(with_tokens) },
                    OptionalJson(None),
                )
                .await
        }
    };
    // The title, the words and two special tokens fill the window.
    let fits = app.create("Tide", &"water ".repeat(29), None).await.id;
    assert_eq!(embed(fits, true).await.unwrap().token_count, 15);
    let long = app.create("Tide", &"water ".repeat(30), None).await.id;
    let failure = embed(long, true).await.unwrap_err();
    assert_eq!(failure.code, Code::TextTooLong);
    let said = |name: &str| failure.members[name].as_u64();
    assert_eq!((said("token_count"), said("limit"), said("chars_total")), (Some(33), Some(32), Some(185)));
    assert!(failure.members["remedy"].as_str().unwrap().contains("with_tokens=false"));
    let longer = app.create("Tide", &"water ".repeat(600), None).await.id;
    let failure = embed(longer, true).await.unwrap_err();
    let remedy = failure.members["remedy"].as_str().unwrap();
    assert!(failure.code == Code::TextTooLong && !remedy.contains("with_tokens"), "{failure}");
    let failure = app.client.embed_tokens(DocumentPath { id: long }).await.unwrap_err();
    assert_eq!(failure.code, Code::TextTooLong);
    // The query, the body, or both alike may say what to embed.
    for (query, body, status) in [
        ("", r#"{"with_tokens": false}"#, 200),
        ("?with_tokens=false", "", 200),
        ("?with_tokens=false", r#"{"with_tokens": false}"#, 200),
        ("", "{}", 422),
        ("", r#"{"with_tokens": true}"#, 422),
        ("?with_tokens=true", r#"{"with_tokens": false}"#, 422),
        ("", "[false]", 422),
        ("", r#"{"with_token": false}"#, 422),
    ] {
        let call = app.raw("POST", &format!("/documents/{long}/embed{query}"));
        let call = if body.is_empty() { call } else { call.header("content-type", "application/json").body(body) };
        let answer = call.send().await.unwrap();
        assert_eq!(answer.status(), status, "{query} {body}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(
            answer["with_tokens"],
            if status == 200 { json!(false) } else { Value::Null },
            "{query} {body}: {answer}"
        );
    }
    let answer = embed(long, false).await.unwrap();
    assert_eq!((answer.with_tokens, answer.token_count), (false, 0));
    // This is also above the document window.
    let longer = app.create("Tide", &"water ".repeat(510), None).await.id;
    let failure = embed(longer, false).await.unwrap_err();
    assert_eq!((failure.code, failure.members["token_count"].as_u64()), (Code::TextTooLong, Some(513)));
    assert!(!failure.to_string().contains("with_tokens"), "that was asked for already: {failure}");

    // These are white space and characters that are not words, so only the title has tokens.
    let blank = app.create("Tide", " \n\t\u{200b}", None).await.id;
    assert_eq!(embed(blank, true).await.unwrap().token_count, 1);
    let empty = app.create("Tide", "", None).await.id;
    let failure = embed(empty, true).await.unwrap_err();
    assert_eq!((failure.code, failure.members["field"].as_str()), (Code::InvalidField, Some("id")));
    assert_eq!(embed(i64::MAX, true).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test]
async fn text_that_is_none_is_refused() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for body in [r#"{"query": "\ud800"}"#, r#"{"query": "a\udc00b"}"#] {
        let answer = app.raw("POST", "/search/vector").header("content-type", "application/json").body(body);
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{body}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "malformed_request");
    }
    let body = json!({"query": QUERY, "rerank": true, "rerank_method": "dice"});
    let answer = app.raw("POST", "/search/vector").json(&body).send().await.unwrap();
    assert!(answer.status().is_client_error());
    app.end().await;
}
