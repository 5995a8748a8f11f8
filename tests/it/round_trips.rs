//! How many messages a search sends to the database and waits for.
use crate::support::{TestApp, searches::ask, statements::counted};
use serde_json::{Value, json};
use std::collections::HashMap;
use svc::{
    search::bm25,
    store::{
        indexes,
        reindex::{self, Wanted},
        scope::Readable,
        search::{
            Eligible,
            groups::{Counted, members, texts_in},
        },
        vectors::Index,
    },
};
use svc_client::{
    Json,
    wire::{GroupBy, HybridSearch, LegWay, SearchMethod, SearchQuery, SearchResponse, SearchResult, VectorSearch},
};
use svc_ids::DocumentId;

/// The words by which all of these are found.
const QUERY: &str = "the heron in the reeds";

/// How many messages a hybrid search takes: the transaction of the vectors begins, finds and ends; words are read and verified at once; the answer is read.
const MOST: usize = 5;

/// How many more searches are counted.
const WARMING: usize = 4;

/// Files of two sections, each with two paragraphs that are about the query, beside notes that are not.
async fn stored(app: &TestApp) -> Vec<i64> {
    let mut files = Vec::new();
    for n in 0..4 {
        let section = |part: i32| {
            let text = "The heron stands in the reeds and waits for a fish to come by. ".repeat(12);
            format!("# Part {part} of {n}\n\n{text}\n\n{text}\n\n")
        };
        let file = app.upload_bytes(&format!("herons-{n}.md"), section(1) + &section(2)).await.unwrap().document_id;
        app.settled(file).await;
        files.push(file);
    }
    for n in 0..3 {
        app.create(&format!("Note {n}"), "Bread rises because yeast makes gas.", None).await;
    }
    // Without this the planner would guess how many documents pass a filter.
    sqlx::raw_sql("ANALYZE documents").execute(&app.pool).await.unwrap();
    seal(app).await;
    files
}

/// Seals all postings, so that a search need not read any again. A worker may do the same at this moment.
async fn seal(app: &TestApp) {
    let mut conn = app.pool.acquire().await.unwrap();
    let index = indexes::by_name(&mut conn, indexes::DEFAULT).await.unwrap().unwrap().id;
    drop(conn);
    while bm25::compact(&app.pool, index).await.unwrap().busy {}
}

/// The result of a search, and the fewest statements among some repetitions, because each connection asks once for types that it does not know.
async fn fewest<T>(search: impl AsyncFn() -> T) -> (T, usize) {
    let mut fewest = counted(Box::pin(search())).await;
    for _ in 0..WARMING {
        let again = counted(Box::pin(search())).await;
        if again.1 < fewest.1 {
            fewest = again;
        }
    }
    fewest
}

/// So many other documents that a search of few does not look at all.
async fn many_notes(app: &TestApp) {
    sqlx::raw_sql(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 'note', 'bread', 'note', 'sha256:' || n, 0 FROM generate_series(1, 8000) n RETURNING id)
         INSERT INTO document_words SELECT id, 'bread:1'::tsvector FROM made;
         ANALYZE documents",
    )
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_warm_hybrid_search_waits_for_the_database_five_times_at_most() {
    let app = TestApp::start().await;
    let files = stored(&app).await;
    let otter = app.create("Otter", "An otter dives.", None).await.id;
    sqlx::raw_sql("ANALYZE documents").execute(&app.pool).await.unwrap();
    seal(&app).await;
    // The legs agree on the heron, and do not on the otter: there it takes nothing to find that out.
    for (asked, expand, limit) in
        [(QUERY, Some(false), 3), (QUERY, Some(false), 10), ("otter", None, 3), ("otter", None, 10)]
    {
        let query = || SearchQuery { limit, expand, ..SearchQuery::new(asked) };
        // The first search learns what all later ones know.
        let first = app.in_process.search(query()).await.unwrap();
        let (found, statements) = fewest(async || app.in_process.search(query()).await).await;
        let found = found.unwrap();
        assert!((1..=MOST).contains(&statements), "{statements} for {limit} files by {asked}");
        assert_eq!((found.method, found.group_by), (SearchMethod::Hybrid, Some(GroupBy::File)));
        assert_eq!(found.expanded_by, None);
        let of = |results: &[SearchResult]| {
            let snippet = |result: &SearchResult| result.snippet.as_ref().map(|snippet| snippet.text.clone());
            results.iter().map(|result| (result.document.id, snippet(result))).collect::<Vec<_>>()
        };
        assert_eq!(of(&found.results), of(&first.results));
        let first = found.results[0].document.id;
        assert!(if asked == QUERY { files.contains(&first) } else { first == otter }, "{asked}: {first}");
        assert!(found.results[0].snippet.is_some());
        assert_eq!((found.scope_state.in_flight, found.scope_state.failed), (0, 0));
    }
    let filter = json!({"created_at_from": "2000-01-01T00:00:00Z"});
    for (group_by, filter) in [
        (GroupBy::None, None),
        (GroupBy::Section, None),
        (GroupBy::None, Some(&filter)),
        (GroupBy::File, Some(&filter)),
    ] {
        let body = || {
            let filter = filter.map(|filter| serde_json::from_value(filter.clone()).unwrap());
            let usetype = Some(vec!["chunk".to_owned()]);
            Json(HybridSearch { group_by: Some(group_by), filter, usetype, ..HybridSearch::new(QUERY) })
        };
        app.in_process.search_hybrid(body()).await.unwrap();
        let (found, statements) = fewest(async || app.in_process.search_hybrid(body()).await).await;
        assert!(!found.unwrap().results.is_empty());
        assert!((1..=MOST).contains(&statements), "{statements} {group_by:?} {filter:?}");
    }
    // Where few documents pass, the search lists them instead of verifying its results.
    many_notes(&app).await;
    let body = || {
        // How many are expected to pass this one is not known from before there were so many others.
        let usetype = Some(vec!["chunk".to_owned(), "reed".to_owned()]);
        Json(HybridSearch { group_by: Some(GroupBy::File), usetype, explain: true, ..HybridSearch::new(QUERY) })
    };
    app.in_process.search_hybrid(body()).await.unwrap();
    let (found, statements) = fewest(async || app.in_process.search_hybrid(body()).await).await;
    let legs = found.unwrap().explanation.unwrap().legs;
    assert_eq!(legs[1].plan.as_ref().unwrap().way, LegWay::Listed);
    // The list is a message of its own.
    assert!((1..=MOST + 1).contains(&statements), "{statements}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_in_parts_and_under_indexes_of_bits_take_no_more_messages() {
    let app = TestApp::start().await;
    stored(&app).await;
    app.index_vectors().await;
    let body = || Json(HybridSearch { group_by: Some(GroupBy::File), ..HybridSearch::new(QUERY) });
    let before = app.in_process.search_hybrid(body()).await.unwrap();
    let of = |found: &[SearchResult]| found.iter().map(|result| result.document.id).collect::<Vec<_>>();
    for (parts, index) in [(4, Index::Halves), (4, Index::Bits), (1, Index::Bits)] {
        let wanted = Wanted { parts, index, batch: 100, sample: 20, least_recall: 0.0 };
        reindex::vectors(&app.pool, &wanted, |_| ()).await.unwrap();
        app.in_process.search_hybrid(body()).await.unwrap();
        let (found, statements) = fewest(async || app.in_process.search_hybrid(body()).await).await;
        assert_eq!(of(&found.unwrap().results), of(&before.results), "{parts} {index:?}");
        assert!((1..=MOST).contains(&statements), "{statements} {parts} {index:?}");
    }
    app.end().await;
}

/// Above some thousand documents the vectors are looked up in their index, by a statement whose plan is kept.
#[tokio::test]
async fn a_search_of_everything_finds_by_the_index_what_comparing_all_finds() {
    let app = TestApp::start().await;
    stored(&app).await;
    app.index_vectors().await;
    many_notes(&app).await;
    let body = |filter: Option<&Value>| {
        let filter = filter.map(|filter| serde_json::from_value(filter.clone()).unwrap());
        Json(VectorSearch { filter, explain: true, ..VectorSearch::new(QUERY) })
    };
    let way = |found: &SearchResponse| found.explanation.as_ref().unwrap().legs[0].plan.as_ref().unwrap().way;
    let of = |found: &SearchResponse| {
        found.results.iter().map(|result| (result.document.id, result.score)).collect::<Vec<_>>()
    };
    let all = json!({"created_at_from": "2000-01-01T00:00:00Z"});
    let compared = app.in_process.search_vector(body(Some(&all))).await.unwrap();
    assert_eq!((way(&compared), compared.results.len()), (LegWay::Exact, 10));
    let found = app.in_process.search_vector(body(None)).await.unwrap();
    assert_eq!((way(&found), of(&found)), (LegWay::Hnsw, of(&compared)));
    // The connections keep the plan after some searches.
    for _ in 0..3 {
        let (found, statements) = fewest(async || app.in_process.search_vector(body(None)).await).await;
        assert_eq!(of(&found.unwrap()), of(&compared));
        assert!((1..=4).contains(&statements), "{statements}");
    }
    // The index has fewer vectors than a leg of this search ranks.
    let hybrid = Json(HybridSearch { explain: true, ..HybridSearch::new(QUERY) });
    let found = app.in_process.search_hybrid(hybrid).await.unwrap();
    assert_eq!((way(&found), found.results.len()), (LegWay::HnswThenExact, 10));
    // Of more equal ones than are read at first, the results are the same as where all are compared.
    let nearest = app.create("Heron", "The heron in the reeds, the heron in the reeds.", None).await.id;
    sqlx::query(
        "INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT d.id, v.embed_model, v.embed, v.weight
           FROM (SELECT id FROM documents WHERE title = 'note' ORDER BY id LIMIT 30) d, document_vectors v
          WHERE v.document_id = $1 ORDER BY d.id DESC",
    )
    .bind(nearest)
    .execute(&app.pool)
    .await
    .unwrap();
    let compared = app.in_process.search_vector(body(Some(&all))).await.unwrap();
    assert_eq!(
        (way(&compared), compared.results[9].score),
        (LegWay::Exact, compared.results[0].score),
        "all are equal"
    );
    let found = app.in_process.search_vector(body(None)).await.unwrap();
    assert_eq!((way(&found), of(&found)), (LegWay::Hnsw, of(&compared)));
    // Of more than a search reads of the index, each comes on one page.
    sqlx::query(
        "INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT d.id, v.embed_model, v.embed, v.weight
           FROM (SELECT id FROM documents WHERE title = 'note' ORDER BY id OFFSET 30 LIMIT 170) d, document_vectors v
          WHERE v.document_id = $1 ORDER BY d.id DESC",
    )
    .bind(nearest)
    .execute(&app.pool)
    .await
    .unwrap();
    let equal = "SELECT v.document_id FROM document_vectors v JOIN document_vectors n USING (embed) WHERE n.document_id = $1 ORDER BY 1";
    let equal: Vec<i64> = sqlx::query_scalar(equal).bind(nearest).fetch_all(&app.pool).await.unwrap();
    assert_eq!(equal.len(), 201);
    let (mut paged, mut cursor) = (Vec::new(), None);
    for page in 0..3 {
        let body = VectorSearch { group_by: Some(GroupBy::None), explain: true, cursor, ..VectorSearch::new(QUERY) };
        let found = app.in_process.search_vector(Json(body)).await.unwrap();
        assert_eq!((way(&found), found.results.len()), (LegWay::HnswThenExact, 10), "page {page}");
        paged.extend(found.results.iter().map(|result| result.document.id));
        cursor = found.next_cursor;
    }
    assert_eq!(paged, equal[..30]);
    app.end().await;
}

/// What one leg cannot hold has its rank in the other.
#[tokio::test]
async fn a_text_that_a_leg_does_not_have_is_told_from_one_that_it_does_not_find() {
    let app = TestApp::start().await;
    stored(&app).await;
    let one = app.create("Heron", "The heron in the reeds, the heron in the reeds.", None).await.id;
    for group_by in ["none", "file"] {
        let body = json!({"query": QUERY, "limit": 100, "group_by": group_by});
        let found = async || {
            let found = ask(&app.client, "hybrid", &body).await.unwrap();
            let result = found.results.into_iter().find(|result| result.document.id == one).unwrap();
            (result.legs.unwrap(), result.score)
        };
        let (legs, score) = found().await;
        let (near, worded) = (legs.vector.unwrap(), legs.bm25.unwrap());
        let fused = 0.86 / (60.0 + f64::from(near.rank)) + 0.14 / (60.0 + f64::from(worded.rank));
        assert!((score - fused).abs() < 1e-9, "{score} {fused}");
        let taken = "CREATE TABLE taken AS SELECT * FROM document_vectors WHERE document_id = $1";
        sqlx::raw_sql(sqlx::AssertSqlSafe(taken.replace("$1", &one.to_string()))).execute(&app.pool).await.unwrap();
        sqlx::query("DELETE FROM document_vectors WHERE document_id = $1").bind(one).execute(&app.pool).await.unwrap();
        let (legs, score) = found().await;
        assert_eq!(legs.vector, None);
        let alone = 1.0 / (60.0 + f64::from(legs.bm25.unwrap().rank));
        assert!((score - alone).abs() < 1e-9, "{score} {alone}: its rank by words counts for both");
        sqlx::raw_sql("INSERT INTO document_vectors SELECT * FROM taken; DROP TABLE taken")
            .execute(&app.pool)
            .await
            .unwrap();
    }
    app.end().await;
}

#[tokio::test]
async fn texts_counted_along_are_the_texts_counted_by_themselves() {
    let app = TestApp::start().await;
    let files = stored(&app).await;
    let eligible = Eligible { scope: Readable::everything(), ..Eligible::default() };
    let tree = app.subtree(files[0]).await;
    let chunks: Vec<DocumentId> =
        tree.iter().filter(|node| node.usetype == "chunk").map(|node| DocumentId(node.id)).collect();
    let mut children: HashMap<i64, i64> = HashMap::new();
    for chunk in tree.iter().filter(|node| node.usetype == "chunk") {
        *children.entry(*chunk.path.last().unwrap()).or_default() += 1;
    }
    let mut conn = app.pool.acquire().await.unwrap();
    for most in [1, 20] {
        let read = members(&mut conn, &eligible, &chunks, Counted { among: &chunks, most }).await.unwrap();
        assert!(chunks.iter().all(|id| read.iter().any(|member| member.id == *id && member.has_text)));
        let known: HashMap<DocumentId, i64> =
            read.iter().filter_map(|member| Some((member.id, member.texts?))).collect();
        let crowded: HashMap<DocumentId, i64> = children
            .iter()
            .filter(|(_, count)| **count > 1)
            .map(|(id, count)| (DocumentId(*id), (*count).min(most)))
            .collect();
        assert_eq!(known, crowded);
        let ids: Vec<DocumentId> = crowded.keys().copied().collect();
        assert_eq!(texts_in(&mut conn, &eligible.scope, &ids, most).await.unwrap(), known);
    }
    let hidden = Eligible { scope: Readable::default(), ..eligible.clone() };
    let read = members(&mut conn, &hidden, &chunks, Counted { among: &chunks, most: 20 }).await.unwrap();
    assert!(read.iter().all(|member| !member.readable && !member.may_be_shown && member.texts.is_none()));
    // Any other container may have any number of children.
    let note = app.create("Pond", "A pond has reeds.", None).await.id;
    let mut beside = Vec::new();
    for at in 0..2 {
        beside.push(DocumentId(app.create(&format!("Reed {at}"), "A reed stands.", Some(note)).await.id));
    }
    let read = members(&mut conn, &eligible, &beside, Counted { among: &beside, most: 20 }).await.unwrap();
    assert!(read.len() == 3 && read.iter().all(|member| member.readable && member.texts.is_none()), "{read:?}");
    drop(conn);
    app.end().await;
}
