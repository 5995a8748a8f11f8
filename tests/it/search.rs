//! Finding documents.
use crate::{
    bm25,
    support::{self, TestApp, Wish, document, sample},
};
use serde_json::json;
use svc::store::{
    documents::Waiting,
    reindex,
    scope::Readable,
    search::Eligible,
    transaction::begin_search,
    vectors::{self, Layout, Nearest, Plans, Stored},
};
use svc_client::{
    Code, Json,
    wire::{
        Bm25Search, DocumentPath, EmbedQuery, FulltextSearch, HybridSearch, HybridWeights, NewDocument, SearchMethod,
        SearchQuery, SearchResponse, TotalIs, VectorSearch, WaitQuery,
    },
};
use svc_ids::DocumentId;

const FACTS: &[(&str, &str)] = &[
    ("Tides", "The moon pulls the oceans, and twice a day the water rises along the coast."),
    ("Bread", "Yeast eats the sugar in the dough and fills it with bubbles, so the loaf rises in the oven."),
    ("Glaciers", "A glacier is a river of ice that moves downhill a few centimetres a day."),
    ("Keyboards", "The letters of the QWERTY keyboard were placed for early typewriters."),
    ("Volcanoes", "Molten rock called magma rises through cracks in the crust and becomes lava."),
    ("Invoices", "Order number XK-4471-B was billed twice and refunded in March."),
];

fn titles(found: &SearchResponse) -> Vec<&str> {
    found.results.iter().map(|r| r.document.title.as_str()).collect()
}

#[tokio::test]
async fn each_method_finds_what_it_is_good_at() {
    let app = TestApp::start().await;
    for (title, content) in FACTS {
        app.create(title, content, None).await;
    }
    let vector = app.client.search_vector(Json(VectorSearch::new("why does seawater go up and down"))).await.unwrap();
    assert_eq!((titles(&vector)[0], vector.total, vector.method), ("Tides", 6, SearchMethod::Vector));
    assert!(vector.results.windows(2).all(|w| w[0].score >= w[1].score) && vector.results[0].score <= 1.0);
    let bm25 = app.client.search_bm25(Json(Bm25Search::new("XK-4471-B"))).await.unwrap();
    assert_eq!(titles(&bm25), ["Invoices"]);
    let fulltext = app.client.search_fulltext(Json(FulltextSearch::new("rises -dough"))).await.unwrap();
    let mut found = titles(&fulltext);
    found.sort_unstable();
    assert_eq!(found, ["Tides", "Volcanoes"]);
    let hybrid = app.client.search_hybrid(Json(HybridSearch::new("magma in the crust"))).await.unwrap();
    assert_eq!(titles(&hybrid)[0], "Volcanoes");
    let first = &hybrid.results[0];
    let legs = first.legs.unwrap();
    assert_eq!((legs.vector.unwrap().rank, legs.bm25.unwrap().rank), (1, 1));
    assert!((first.score - (0.86 + 0.14) / 61.0).abs() < 1e-12);
    let query = SearchQuery { limit: 2, ..SearchQuery::new("magma in the crust") };
    let convenience = app.client.search(query).await.unwrap();
    assert_eq!((titles(&convenience)[0], convenience.results.len()), ("Volcanoes", 2));
    assert_eq!((convenience.total, convenience.total_is), (6, TotalIs::Exact), "all of them match by their vectors");
    app.end().await;
}

#[tokio::test]
async fn weights_shift_the_fusion_and_nonsense_weights_are_refused() {
    let app = TestApp::start().await;
    for (title, content) in FACTS {
        app.create(title, content, None).await;
    }
    let with = |vector, bm25| HybridSearch {
        weights: Some(HybridWeights { vector, bm25 }),
        ..HybridSearch::new("the letters of typewriters")
    };
    let equal = app.client.search_hybrid(Json(with(None, None))).await.unwrap();
    assert!((equal.results[0].score - 2.0 / 61.0).abs() < 1e-12);
    let words = app.client.search_hybrid(Json(with(Some(0.0), Some(1.0)))).await.unwrap();
    assert!(words.results.iter().all(|r| r.legs.unwrap().bm25.is_some()));
    for (vector, bm25) in [(Some(-1.0), Some(1.0)), (Some(0.0), Some(0.0)), (Some(1.0), None)] {
        assert_eq!(app.client.search_hybrid(Json(with(vector, bm25))).await.unwrap_err().code, Code::InvalidField);
    }
    app.end().await;
}

/// To have no vector, or to be in no index, is not to be worse than what has both.
#[tokio::test]
async fn what_a_leg_cannot_hold_has_its_rank_in_the_other_leg_for_both() {
    let app = TestApp::with(Wish { settings: &[("SVC_BM25_EXCLUDE_USETYPES", "memo")], ..Wish::default() }).await;
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    for (title, content) in FACTS {
        app.create(title, content, None).await;
    }
    let other = app.create("Ebb", "The water rises and falls with the moon.", None).await.id;
    let mut memo = document("Memo", "Why the water of the sea goes up and down along the coast every day.");
    memo.usetype = Some("memo".into());
    let memo = app
        .client
        .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(memo))
        .await
        .unwrap()
        .document
        .id;
    sqlx::query("UPDATE document_vectors SET embed_model = 'another' WHERE document_id = $1")
        .bind(other)
        .execute(&app.pool)
        .await
        .unwrap();
    let found = app.client.search_hybrid(Json(HybridSearch::new("the water rises with the moon"))).await.unwrap();
    let mut only_near = 0;
    for result in &found.results {
        let legs = result.legs.unwrap();
        let share = |weight: f64, rank: u32| weight / (60.0 + f64::from(rank));
        let expected = match (legs.vector, legs.bm25) {
            (Some(near), None) if result.document.id == memo => share(1.0, near.rank),
            (None, Some(worded)) if result.document.id == other => share(1.0, worded.rank),
            (Some(near), worded) => {
                only_near += u32::from(worded.is_none());
                share(0.86, near.rank) + worded.map_or(0.0, |worded| share(0.14, worded.rank))
            }
            (None, _) => panic!("only one has no vector of this model: {result:?}"),
        };
        assert!((result.score - expected).abs() < 1e-12, "{expected} {result:?}");
    }
    let ids: Vec<i64> = found.results.iter().map(|result| result.document.id).collect();
    assert_eq!(ids[0], other, "it has all of the words, and nothing is better by both");
    assert!(ids.contains(&memo) && only_near > 0, "{found:?}");
    app.end().await;
}

#[tokio::test]
async fn filters_hold_in_every_leg() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    for (n, (title, content)) in FACTS.iter().enumerate() {
        let mut new = document(title, content);
        new.parent_id = (n % 2 == 0).then_some(folder);
        new.usetype = Some(if n < 3 { "raw".into() } else { "markdown".into() });
        new.structured_content = serde_json::from_value(json!({"shelf": n % 3, "tags": ["a"]})).unwrap();
        new.event_time = Some(format!("202{n}-01-01T00:00:00Z").parse().unwrap());
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    }
    let query = "the water rises a few letters of ice rises in March";
    macro_rules! found {
        ($type:ident, $method:ident, { $($field:ident: $value:expr),* }) => {{
            let found = app.client.$method(Json($type { $($field: $value,)* ..$type::new(query) })).await.unwrap();
            let mut titles: Vec<String> = titles(&found).into_iter().map(str::to_owned).collect();
            titles.sort();
            titles
        }};
    }
    let filter: svc_client::wire::SearchFilter =
        serde_json::from_value(json!({"event_time_from": "2021-01-01T00:00:00Z", "event_time_until": "2024-01-01T00:00:00Z", "structured_content": {"tags": ["a"]}})).unwrap();
    assert_eq!(found!(VectorSearch, search_vector, { parent_id: Some(folder) }), ["Glaciers", "Tides", "Volcanoes"]);
    assert_eq!(found!(HybridSearch, search_hybrid, { parent_id: Some(folder) }), ["Glaciers", "Tides", "Volcanoes"]);
    assert_eq!(
        found!(VectorSearch, search_vector, { usetype: Some(vec!["raw".into()]) }),
        ["Bread", "Glaciers", "Tides"]
    );
    assert_eq!(
        found!(VectorSearch, search_vector, { filter: Some(filter.clone()) }),
        ["Bread", "Glaciers", "Keyboards"]
    );
    for titles in [
        found!(Bm25Search, search_bm25, { parent_id: Some(folder) }),
        found!(Bm25Search, search_bm25, { parent_id: Some(folder), usetype: Some(vec!["raw".into(), "markdown".into()]) }),
    ] {
        assert_eq!(titles, ["Glaciers", "Tides", "Volcanoes"]);
    }
    assert_eq!(found!(Bm25Search, search_bm25, { filter: Some(filter) }), ["Bread", "Glaciers", "Keyboards"]);
    assert_eq!(found!(VectorSearch, search_vector, { min_similarity: Some(0.99) }), Vec::<String>::new());
    app.end().await;
}

#[tokio::test]
async fn what_is_not_settled_is_not_found_and_that_is_said() {
    let mut app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let before = app.client.search_bm25(Json(Bm25Search::new("handbook"))).await.unwrap();
    assert_eq!((before.total, before.scope_state.in_flight), (0, 1));
    app.start_worker().await;
    app.settled(id).await;
    let after = app.client.search_bm25(Json(Bm25Search::new("handbook"))).await.unwrap();
    assert!(after.total > 0 && after.scope_state.in_flight == 0);
    app.end().await;
}

#[tokio::test]
async fn what_waits_to_be_embedded_is_counted_where_it_lies() {
    let mut app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let create = async |title: &str, parent_id| {
        let new = NewDocument { parent_id, ..document(title, "A buoy off the northern pier.") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let (folder, other) = (create("Folder", None).await, create("Other", None).await);
    create("Inside", Some(folder)).await;
    let client = app.client.clone();
    let state = async |parent_id| {
        let body = Bm25Search { parent_id, ..Bm25Search::new("buoy") };
        let found = client.search_bm25(Json(body)).await.unwrap();
        (found.total, found.scope_state.in_flight, found.scope_state.failed)
    };
    assert_eq!(
        (state(None).await, state(Some(folder)).await, state(Some(other)).await),
        ((0, 3, 0), (0, 2, 0), (0, 1, 0))
    );
    // What fails for good is reported as failed.
    let tasks = app.client.list_tasks(Default::default()).await.unwrap().tasks;
    let task = tasks.iter().find(|task| task.document_id == other).unwrap();
    app.client.cancel_task(svc_client::wire::TaskPath { id: task.id }).await.unwrap();
    assert_eq!((state(None).await, state(Some(other)).await), ((0, 2, 1), (0, 0, 1)));
    app.start_worker().await;
    support::until("both are embedded", async || (state(None).await.1 == 0).then_some(())).await;
    assert_eq!(state(None).await, (2, 0, 1));
    app.end().await;
}

/// Puts so many nodes with this guard under a document, all of them in flight.
async fn in_flight(conn: &mut sqlx::PgConnection, parent: i64, guard: i64, count: i64) {
    sqlx::query(
        "INSERT INTO documents (title, content, usetype, content_hash, parent_id, path, guard, settled)
         SELECT 'Note ' || n, '', 'chunk', '', $1::bigint, ARRAY[$1::bigint], $2::bigint, 'in_flight' FROM generate_series(1, $3::bigint) n",
    )
    .bind(parent)
    .bind(guard)
    .bind(count)
    .execute(conn)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_backlog_that_is_out_of_scope_is_not_read_to_its_end() {
    const BACKLOG: i64 = 50_000;
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let create = async |title: &str, parent_id: Option<i64>| {
        let new = NewDocument { parent_id, ..document(title, "A buoy off the northern pier.") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let (folder, other) = (create("Folder", None).await, create("Other", None).await);
    create("A note", Some(other)).await;
    let mut tx = app.pool.begin().await.unwrap();
    // One that everybody may read is older than those under the folder, and than those of a reprocess.
    in_flight(&mut tx, other, 0, 1).await;
    in_flight(&mut tx, folder, folder, BACKLOG / 2).await;
    in_flight(&mut tx, other, -1, BACKLOG / 2).await;
    // Documents under a folder, all of which wait to be embedded and bear the guard of the folder.
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (title, content, usetype, content_hash, parent_id, path, guard)
             SELECT 'Note ' || n, '', 'raw', '', $1::bigint, ARRAY[$1::bigint], $1::bigint FROM generate_series(1, $2::bigint) n RETURNING id)
         INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode)
         SELECT 'embed', id, 'model', $1::bigint || '/' || id || '/', 1, id, 'self' FROM made",
    )
    .bind(folder)
    .bind(BACKLOG)
    .execute(&mut *tx)
    .await
    .unwrap();
    // Tasks of another type that come before the note in the order of the tree.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode)
         SELECT 'extract:facts', $1::bigint, 'llm', $1::bigint || '/', 0, $1::bigint, 'self' FROM generate_series(1, 10001) n",
    )
    .bind(other)
    .execute(&mut *tx)
    .await
    .unwrap();
    // A closed document with a node of its own and an older closed one that was moved into it, and more closed ones than are looked at, all of them older.
    sqlx::query(
        "INSERT INTO documents (title, content, usetype, content_hash, guard, settled)
         SELECT 'Root ' || n, '', 'raw', '', 1000 + n, 'in_flight' FROM generate_series(1, 1001) n",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    let new = "INSERT INTO documents (title, content, usetype, content_hash, guard) VALUES ('Closed', '', 'raw', '', 0) RETURNING id";
    let closed: i64 = sqlx::query_scalar(new).fetch_one(&mut *tx).await.unwrap();
    let close = sqlx::query("UPDATE documents SET guard = id WHERE id = ANY ($1)");
    close.bind([folder, closed]).execute(&mut *tx).await.unwrap();
    in_flight(&mut tx, closed, closed, 1).await;
    in_flight(&mut tx, closed, 1001, 1).await;
    sqlx::raw_sql("ANALYZE documents; ANALYZE task_queue").execute(&mut *tx).await.unwrap();
    let read = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'documents'";
    let (everything, open) = (Readable::everything(), Readable::under(&[]));
    for (scope, under, waiting) in [
        (&everything, Some(other), 3),
        (&everything, Some(folder), 10_000),
        (&everything, Some(closed), 2),
        (&open, Some(other), 3),
        // The two that wait to be embedded are behind the newest 10,000 tasks.
        (&open, None, 1),
    ] {
        let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
        let unsettled =
            svc::store::documents::unsettled(&mut tx, scope, under.map(DocumentId), None, None).await.unwrap();
        let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
        assert!(after - before < BACKLOG / 2, "{} rows under {under:?}", after - before);
        assert_eq!((unsettled.in_flight, unsettled.failed), (waiting, 0), "under {under:?}");
    }
    // Vectors of another model beside which somebody searches, of documents that all readers of everything may read and nobody else.
    sqlx::query(
        "INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT id, 'gone@1', '[1]'::halfvec, 1 FROM documents WHERE parent_id = $1 AND usetype = 'raw' ORDER BY id LIMIT $2",
    )
    .bind(folder)
    .bind(BACKLOG * 3 / 5)
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE document_vectors").execute(&mut *tx).await.unwrap();
    for (scope, of_another) in [(&everything, 10_000), (&open, 0)] {
        let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
        let none = Some(Waiting { are_open: false, are_titled: false, are_building: false });
        let unsettled = svc::store::documents::unsettled(&mut tx, scope, None, Some("here@1"), none).await.unwrap();
        let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
        assert!(after - before < BACKLOG / 2, "{} rows beside another model", after - before);
        assert_eq!(unsettled.other_model, of_another);
    }
    tx.rollback().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_total_counts_what_matches_and_says_where_it_is_a_bound() {
    let app = TestApp::start().await;
    for n in 0..5 {
        app.create(&format!("Note {n}"), "The lighthouse keeper wrote down the weather.", None).await;
    }
    macro_rules! total {
        ($type:ident, $method:ident, $limit:expr) => {{
            let body = $type { limit: $limit, ..$type::new("lighthouse keeper") };
            let found = app.client.$method(Json(body)).await.unwrap();
            (found.results.len(), found.total, found.total_is)
        }};
    }
    assert_eq!(total!(VectorSearch, search_vector, 2), (2, 5, TotalIs::Exact));
    assert_eq!(total!(FulltextSearch, search_fulltext, 2), (2, 5, TotalIs::Exact));
    assert_eq!(total!(Bm25Search, search_bm25, 2), (2, 2, TotalIs::AtLeast));
    assert_eq!(total!(Bm25Search, search_bm25, 10), (5, 5, TotalIs::Exact));
    assert_eq!(total!(HybridSearch, search_hybrid, 2), (2, 5, TotalIs::Exact));
    let near = VectorSearch { limit: 2, min_similarity: Some(0.99), ..VectorSearch::new("lighthouse keeper") };
    let found = app.client.search_vector(Json(near)).await.unwrap();
    assert_eq!((found.total, found.total_is), (0, TotalIs::Exact));
    app.end().await;
}

#[tokio::test]
async fn a_search_that_can_find_nothing_says_why() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    for path in ["vector", "fulltext", "bm25", "maxsim", "hybrid"] {
        for (body, status, code) in [
            (json!({"query": "x", "parent_id": 424_242}), 404, "not_found"),
            (json!({"query": " \n\t"}), 422, "invalid_field"),
            (json!({"query": "x", "usetype": []}), 422, "invalid_field"),
        ] {
            let answer = app.raw("POST", &format!("/search/{path}")).json(&body).send().await.unwrap();
            let status_got = answer.status().as_u16();
            let problem: serde_json::Value = answer.json().await.unwrap();
            assert_eq!((status_got, problem["code"].as_str()), (status, Some(code)), "{path} {body}: {problem}");
        }
    }
    let blank = app.client.search(SearchQuery::new(" ")).await.unwrap_err();
    assert_eq!((blank.code, blank.members["field"].as_str()), (Code::InvalidField, Some("q")));
    app.end().await;
}

#[tokio::test]
async fn excluded_usetypes_are_in_no_answer() {
    let app = TestApp::start().await;
    for usetype in ["entity", "summary", "markdown"] {
        let mut new = document(usetype, "Zanzibar is named in all three.");
        new.usetype = Some(usetype.into());
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    }
    let (vector, bm25) = (VectorSearch::new("Zanzibar"), Bm25Search::new("Zanzibar"));
    let (fulltext, hybrid) = (FulltextSearch::new("Zanzibar"), HybridSearch::new("Zanzibar"));
    assert_eq!(titles(&app.client.search_vector(Json(vector)).await.unwrap()), ["markdown"]);
    assert_eq!(titles(&app.client.search_bm25(Json(bm25)).await.unwrap()), ["markdown"]);
    assert_eq!(titles(&app.client.search_fulltext(Json(fulltext)).await.unwrap()), ["markdown"]);
    assert_eq!(titles(&app.client.search_hybrid(Json(hybrid)).await.unwrap()), ["markdown"]);
    let indexed: i64 =
        sqlx::query_scalar("SELECT count(*) FROM search_index_entries").fetch_one(&app.pool).await.unwrap();
    assert_eq!(indexed, 1);
    app.end().await;
}

/// A search uses the index where a model has many vectors.
#[tokio::test]
async fn the_index_of_a_model_finds_what_comparing_each_vector_finds() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    app.index_vectors().await;
    let (model, width): (String, i32) =
        sqlx::query_as("SELECT embed_model, vector_dims(embed) FROM document_vectors WHERE document_id = $1")
            .bind(id)
            .fetch_one(&app.pool)
            .await
            .unwrap();
    let read = app.client.read_document(DocumentPath { id }, EmbedQuery { include_embed: true }).await.unwrap();
    let shown = read.value().unwrap().embed.unwrap();
    assert_eq!((shown.len(), width), (vectors::SHOWN_WIDTH, 384), "stored at the model's width, shown at 768");
    let query = Stored::new(&model, width as usize, &shown);
    let everything = Eligible { scope: Readable::everything(), ..Eligible::default() };
    let mut tx = begin_search(&app.pool).await.unwrap();
    let layout = vectors::layout(&mut tx, &everything, &query).await.unwrap();
    assert_eq!(layout, Layout::default());
    let near = vectors::approximate(&mut tx, &everything, &query, 10, 40, vectors::LOOKED_AT, &layout).await.unwrap();
    let all: i64 = sqlx::query_scalar("SELECT count(*) FROM document_vectors").fetch_one(&mut *tx).await.unwrap();
    let too_many = vectors::exact(&mut tx, &everything, &query, 10, all - 1, &layout).await.unwrap();
    assert!(too_many.is_none(), "{too_many:?}");
    let Nearest { ranked: exact, count } =
        vectors::exact(&mut tx, &everything, &query, 10, all, &layout).await.unwrap().unwrap();
    assert_eq!(count, all);
    let others = Eligible { excluded: vec![exact[1].0], ..everything.clone() };
    let left = vectors::approximate(&mut tx, &others, &query, 10, 40, vectors::LOOKED_AT, &layout).await.unwrap();
    assert!(!left.is_empty() && left.iter().all(|(left, _)| *left != exact[1].0), "{left:?}");
    tx.commit().await.unwrap();
    assert!(exact.len() > 5 && exact[0].0.0 == id && near == exact, "{near:?} {exact:?}");
    // A plan that is kept finds the same, and after it what needs a plan of its own has one.
    let (mut tx, layout) =
        vectors::begin(&app.pool, &everything, &query, vectors::LOOKED_AT, Plans::Kept).await.unwrap();
    for _ in 0..2 {
        let near =
            vectors::approximate(&mut tx, &everything, &query, 10, 40, vectors::LOOKED_AT, &layout).await.unwrap();
        assert_eq!(near, exact);
    }
    let kept: i64 = sqlx::query_scalar(
        "SELECT generic_plans FROM pg_prepared_statements WHERE statement LIKE 'WITH near %(SELECT $1::halfvec)%'",
    )
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    assert_eq!(kept, 2);
    vectors::plan_anew(&mut tx).await.unwrap();
    let again = vectors::exact(&mut tx, &everything, &query, 10, all, &layout).await.unwrap().unwrap();
    assert_eq!(again.ranked, exact);
    tx.commit().await.unwrap();
    let index: String = sqlx::query_scalar(
        "SELECT indexdef FROM pg_indexes WHERE tablename = 'document_vectors' AND indexdef LIKE '%hnsw%'",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert!(index.contains("halfvec(384)") && index.contains(&model), "{index}");
    // A second model has an index of its own width, and a quote in its name is an ordinary character.
    reindex::add_index(&app.pool, "an'other@1", 256).await.unwrap();
    reindex::add_index(&app.pool, "an'other@1", 256).await.unwrap();
    let indexes: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_indexes WHERE tablename = 'document_vectors' AND indexdef LIKE '%hnsw%'",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(indexes, 2);
    app.end().await;
}

#[tokio::test]
async fn results_have_their_vectors_on_request() {
    let app = TestApp::start().await;
    let new = Json(document("Tides", FACTS[0].1));
    let created = app.client.create_document(WaitQuery { wait: true, include_embed: true }, new).await.unwrap();
    let stored = created.embed.clone().unwrap();
    let found = app.client.search_bm25(Json(Bm25Search { include_embed: true, ..Bm25Search::new("tides") })).await;
    assert_eq!(found.unwrap().results[0].document.embed, Some(stored));
    let found = app.client.search_bm25(Json(Bm25Search::new("tides"))).await.unwrap();
    assert_eq!(found.results[0].document.embed, None);
    app.end().await;
}

#[tokio::test]
async fn a_query_only_meets_vectors_of_its_own_model() {
    let app = TestApp::start().await;
    let id = app.create("Tides", FACTS[0].1, None).await.id;
    sqlx::query("UPDATE document_vectors SET embed_model = 'another' WHERE document_id = $1")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(app.client.search_vector(Json(VectorSearch::new("tides"))).await.unwrap().total, 0);
    app.end().await;
}

#[tokio::test]
async fn a_text_over_the_window_is_embedded_in_windows_and_found_by_its_end() {
    let app = TestApp::start().await;
    let text = |last: &str| {
        let filler = |n: usize| format!("Clerk {n} files the minutes of meeting {n} in cabinet {n}. ");
        (0..60).map(filler).chain((0..25).map(|_| format!("{last} "))).collect::<String>()
    };
    let volcano = app.create("Report", &text("The volcano erupts and lava flows from its crater."), None).await.id;
    let bread = app.create("Report", &text("The baker kneads the dough, and the bread rises."), None).await.id;
    for (query, first) in [("molten rock from a mountain of fire", volcano), ("yeast and flour in a bakery", bread)] {
        let found = app.client.search_vector(Json(VectorSearch::new(query))).await.unwrap();
        assert_eq!((found.total, found.results[0].document.id), (2, first), "{query}");
    }
    let evidence = app.client.read_evidence(DocumentPath { id: volcano }).await.unwrap().evidence;
    let window = support::engine().info().doc_window as u64;
    let [windows, tokens] = ["windows", "tokens"].map(|name| evidence["embed"][name].as_u64().unwrap());
    assert!(windows > tokens / window && windows <= tokens / window + 2 && tokens > window, "{evidence:?}");
    assert_eq!(evidence["embed"].as_object().unwrap().len(), 2, "nothing is left out: {evidence:?}");
    // A text without end has a vector too, of its beginning.
    let endless: String = (0..6_000).map(|n| format!("word{n} and more words here ")).collect();
    let created =
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(document("Long", &endless)));
    let created = created.await.unwrap();
    assert!(
        matches!(&created.warnings[..], [one] if one.starts_with("embed: left_out (chunk the document")),
        "{:?}",
        created.warnings
    );
    let evidence = app.client.read_evidence(DocumentPath { id: created.document.id }).await.unwrap().evidence;
    let [tokens, left_out] = ["tokens", "left_out"].map(|name| evidence["embed"][name].as_u64().unwrap());
    assert!(left_out > 0 && tokens - left_out <= 32_768, "{evidence:?}");
    assert_eq!(titles(&app.client.search_bm25(Json(Bm25Search::new("word5999"))).await.unwrap()), ["Long"]);
    let query = VectorSearch::new(&"many words ".repeat(600));
    let refused = app.client.search_vector(Json(query)).await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::TextTooLong, 422));
    assert!(refused.members["token_count"].as_u64() > refused.members["limit"].as_u64(), "{refused:?}");
    // Who asks has no text to split.
    assert_eq!(refused.members["field"], "query", "{refused:?}");
    assert!(refused.members["chars_total"].as_u64() > Some(6_000), "{refused:?}");
    assert!(refused.members["remedy"].as_str().is_some_and(|remedy| remedy.contains("bm25")), "{refused:?}");
    app.end().await;
}

#[tokio::test]
async fn what_a_narrow_filter_leaves_is_found_behind_thousands_that_match_better() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let ids: Vec<i64> = sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, content_hash, guard)
         SELECT 'Heron', 'heron', CASE WHEN n <= 5 THEN 'note' ELSE 'markdown' END, 'x', 0 FROM generate_series(1, 3000) n RETURNING id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let text = |at: usize| if at < 5 { "a heron among many words that say little of it" } else { "heron" };
    let texts: Vec<(i64, String)> = ids.iter().enumerate().map(|(at, id)| (*id, text(at).to_owned())).collect();
    let index = sqlx::query_scalar("SELECT id FROM search_indexes WHERE name = 'default'").fetch_one(&app.pool).await;
    bm25::put(&app.pool, &svc_ranking::Cache::new(1 << 20), index.unwrap(), &texts).await;
    let query = Bm25Search { usetype: Some(vec!["note".to_owned()]), ..Bm25Search::new("heron") };
    let found: Vec<i64> =
        app.client.search_bm25(Json(query)).await.unwrap().results.iter().map(|result| result.document.id).collect();
    assert_eq!(found, ids[..5]);
    bm25::take(&app.pool, &ids).await;
    sqlx::query("DELETE FROM documents").execute(&app.pool).await.unwrap();
    app.end().await;
}
