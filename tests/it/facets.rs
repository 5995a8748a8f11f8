//! Counts of what a search matches, beside a definition: the results themselves, counted one by one.
use crate::{
    cli::svc,
    principals::{grant, someone},
    support::{TestApp, document, sample, searches::ask},
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Code, Json,
    wire::{
        AutoSearch, Bm25Search, DocumentPath, DocumentResponse, Facet, FacetBy, FacetCounts, FulltextSearch,
        GrantRight, HybridSearch, MaxsimSearch, SynthesizeSearch, TimeBucket, TotalIs, VectorSearch, WaitQuery,
    },
};

const METHODS: [&str; 5] = ["vector", "fulltext", "bm25", "maxsim", "hybrid"];

/// The counts, by their values as JSON.
fn counts(facet: &FacetCounts) -> BTreeMap<String, u64> {
    facet.values.iter().map(|value| (value.value.to_string(), value.count)).collect()
}

/// A tree of notes of two usetypes with colours, sizes, tags and times, of which three subtrees have guards of their own, one in another.
async fn notes(app: &TestApp) -> Vec<i64> {
    let mut ids: Vec<i64> = Vec::new();
    for n in 0..30_usize {
        let mut new = document(&format!("Note {n}"), &format!("The heron of day {n} stands in the reeds."));
        new.usetype = Some(["memo", "letter"][n % 3 % 2].to_owned());
        new.parent_id = (n > 3).then(|| ids[n / 3]);
        new.event_time =
            (n % 4 != 0).then(|| format!("20{:02}-{:02}-03T23:30:00-05:00", n % 3, 1 + n % 12).parse().unwrap());
        let colour = ["red", "teal"][n % 2];
        let tags = json!({"colour": colour, "size": n % 5, "tags": ["a", "b", "a", (n % 3), null]});
        new.structured_content = if n % 7 == 0 { Map::new() } else { tags.as_object().unwrap().clone() };
        ids.push(
            app.client
                .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new))
                .await
                .unwrap()
                .document
                .id,
        );
    }
    for guard in [ids[2], ids[6], ids[9]] {
        app.client.protect_document(DocumentPath { id: guard }).await.unwrap();
    }
    ids
}

/// What one document has of a facet, by the contract.
fn values(
    facet: &Facet,
    document: &DocumentResponse,
    readable: &BTreeSet<i64>,
    under: Option<i64>,
) -> BTreeSet<String> {
    let month = |time: Option<chrono::DateTime<chrono::Utc>>| {
        time.map(|time| json!(time.format("%Y-%m-01").to_string())).into_iter().collect()
    };
    let found: Vec<Value> = match facet.by {
        FacetBy::Usetype => vec![json!(document.usetype)],
        FacetBy::Format => vec![],
        FacetBy::StructuredContent => match document.structured_content.get(facet.key.as_deref().unwrap()) {
            Some(Value::Array(values)) => values.clone(),
            value => value.cloned().into_iter().collect(),
        },
        FacetBy::Parent => {
            document.parent_id.filter(|id| readable.contains(id)).map(|id| json!(id)).into_iter().collect()
        }
        FacetBy::Root => {
            let line: Vec<i64> = document.path.iter().copied().chain([document.id]).collect();
            let from = under.and_then(|under| line.iter().position(|id| *id == under)).map_or(0, |at| at + 1);
            line[from..].iter().find(|id| readable.contains(id)).map(|id| json!(id)).into_iter().collect()
        }
        FacetBy::EventTime => month(document.event_time),
        FacetBy::CreatedAt => month(Some(document.created_at)),
    };
    found.iter().filter(|value| !value.is_null()).map(Value::to_string).collect()
}

#[tokio::test]
async fn counts_are_of_all_that_matches_and_may_be_read_whatever_the_page_shows() {
    let app = TestApp::start().await;
    let ids = notes(&app).await;
    let reader = someone(&app, "reader").await;
    // They may read what is in the inner subtree, and not what is above it.
    for granted in [ids[6], ids[9]] {
        grant(&app, &reader, granted, GrantRight::Read).await;
    }
    let facets: Vec<Facet> =
        [FacetBy::Usetype, FacetBy::Parent, FacetBy::Root, FacetBy::EventTime, FacetBy::CreatedAt, FacetBy::Format]
            .into_iter()
            .map(|by| Facet { limit: Some(100), ..Facet::by(by) })
            .chain(["colour", "size", "tags", "nothing"].map(|key| Facet {
                key: Some(key.to_owned()),
                limit: Some(100),
                ..Facet::by(FacetBy::StructuredContent)
            }))
            .collect();
    let mut seen = BTreeSet::new();
    for (client, is_owner) in [(&app.client, true), (&reader.client, false)] {
        for (method, under) in METHODS.into_iter().flat_map(|method| [None, Some(ids[1])].map(|under| (method, under)))
        {
            let body = json!({"query": "heron reeds", "limit": 100, "parent_id": under});
            let all = ask(client, method, &body).await.unwrap();
            assert_eq!((all.total, all.total_is), (all.results.len() as u64, TotalIs::Exact), "{method}");
            assert_eq!(all.facets, None, "nobody asked");
            let readable: BTreeSet<i64> = match under {
                Some(_) => {
                    ids.iter().copied().filter(|id| is_owner || ![ids[2], ids[6], ids[9]].contains(id)).collect()
                }
                None => all.results.iter().map(|result| result.document.id).collect(),
            };
            let body = json!({"query": "heron reeds", "limit": 1, "parent_id": under, "facets": facets});
            let found = ask(client, method, &body).await.unwrap();
            assert_eq!(found.results.len(), 1);
            let counted = found.facets.unwrap();
            assert_eq!((counted.counted, counted.counted_is), (all.total, TotalIs::Exact), "{method}");
            for (facet, shown) in facets.iter().zip(&counted.facets) {
                let mut expected: BTreeMap<String, u64> = BTreeMap::new();
                let mut without = 0;
                for result in &all.results {
                    let values = values(facet, &result.document, &readable, under);
                    without += u64::from(values.is_empty());
                    values.into_iter().for_each(|value| *expected.entry(value).or_default() += 1);
                }
                assert_eq!((counts(shown), shown.more, shown.without), (expected, 0, without), "{method} {facet:?}");
            }
            seen.insert((is_owner, counted.counted));
        }
    }
    assert!(seen.len() >= 4, "the reader and the subtree have fewer: {seen:?}");
    app.end().await;
}

/// A filter by a value of a facet leaves as many as the facet said, also of groups.
#[tokio::test]
async fn a_count_is_the_total_of_the_search_that_asks_for_its_value() {
    let app = TestApp::start().await;
    let mut files = Vec::new();
    for n in 0..6 {
        let text = format!("# Heron {n}\n\nA heron stands here.\n\n# Reeds\n\nThe heron of the reeds.\n");
        files.push(app.upload_bytes(&format!("heron-{n}.md"), text).await.unwrap().document_id);
    }
    files.push(app.upload(&sample("duck-counts.xlsx")).await.unwrap().document_id);
    for file in &files {
        app.settled(*file).await;
    }
    for colour in ["red", "red", "teal"] {
        let mut note = document("A note", "The heron was seen.");
        note.structured_content = json!({"colour": colour}).as_object().unwrap().clone();
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(note)).await.unwrap();
    }
    let facets = json!([{"by": "usetype"}, {"by": "structured_content", "key": "colour"}, {"by": "format"}]);
    for method in METHODS {
        for group_by in ["none", "file", "section"] {
            let ask = async |filter: Value| {
                let body =
                    json!({"query": "heron", "limit": 100, "group_by": group_by, "filter": filter, "facets": facets});
                ask(&app.client, method, &body).await.unwrap()
            };
            let found = ask(json!({})).await;
            let counted = found.facets.unwrap();
            assert_eq!((counted.counted, counted.counted_is), (found.total, TotalIs::Exact), "{method} {group_by}");
            assert!(!counted.facets[0].values.is_empty());
            for value in &counted.facets[0].values {
                let narrowed = ask(json!({"usetype": [value.value]})).await;
                assert_eq!(narrowed.total, value.count, "{method} {group_by} {value:?}");
            }
            for value in &counted.facets[1].values {
                let narrowed = ask(json!({"structured_content": {"colour": value.value}})).await;
                assert_eq!(narrowed.total, value.count, "{method} {group_by} {value:?}");
            }
            for value in &counted.facets[2].values {
                let narrowed = ask(json!({"format": [value.value]})).await;
                assert_eq!(narrowed.total, value.count, "{method} {group_by} {value:?}");
            }
            if group_by == "none" {
                let formats: Vec<&Value> = counted.facets[2].values.iter().map(|value| &value.value).collect();
                let without = ask(json!({"none": [{"format": formats}]})).await;
                assert_eq!(without.total, counted.facets[2].without, "{method}");
            }
            if group_by == "file" {
                assert_eq!(counts(&counted.facets[2])["\"text\""], 6, "a format is that of the whole file");
                assert!(counted.facets[2].without >= 3, "notes have no file");
            }
        }
    }
    // The values with the highest counts are shown, and the others are counted.
    let one =
        json!([{"by": "structured_content", "key": "colour", "limit": 1}, {"by": "event_time", "bucket": "year"}]);
    let found = ask(&app.client, "bm25", &json!({"query": "heron", "facets": one})).await.unwrap().facets.unwrap();
    assert_eq!((counts(&found.facets[0]), found.facets[0].more), (BTreeMap::from([("\"red\"".to_owned(), 2)]), 1));
    assert_eq!((found.facets[1].bucket, found.facets[1].without), (Some(TimeBucket::Year), found.counted));
    // The year 0 is the one before the year 1.
    for time in ["0001-06-01T00:00:00Z", "0000-06-01T00:00:00Z"] {
        let mut new = document("Annals", "An egret was seen.");
        new.event_time = Some(time.parse().unwrap());
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    }
    let by_year = json!([{"by": "event_time", "bucket": "year"}]);
    let found = ask(&app.client, "bm25", &json!({"query": "egret", "facets": by_year})).await.unwrap().facets.unwrap();
    let years: Vec<&str> = found.facets[0].values.iter().map(|value| value.value.as_str().unwrap()).collect();
    assert_eq!(years, ["0001-01-01", "0000-01-01"]);
    let shown = svc(
        &app,
        &["--table", "search", "heron", "--facet", "structured_content:colour", "--facet", "created_at:year"],
    )
    .await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("structured_content colour, of ") && shown.contains("2  red"), "{shown}");
    app.end().await;
}

/// Neither a filter nor a count tells what a file is that the caller may not read.
#[tokio::test]
async fn a_format_is_that_of_a_file_that_the_caller_may_read() {
    let app = TestApp::start().await;
    let text = "# Herons\n\nA heron stands here.\n\n# Reeds\n\nThe heron of the reeds.\n";
    let file = app.upload_bytes("herons.md", text).await.unwrap().document_id;
    app.settled(file).await;
    let tree = app.subtree(file).await;
    let section = tree.iter().find(|node| node.usetype == "section").unwrap().id;
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: file }).await.unwrap();
    grant(&app, &reader, section, GrantRight::Read).await;
    app.settled(file).await;
    for (client, is_owner) in [(&app.client, true), (&reader.client, false)] {
        let ask = async |filter: Value| {
            let body = json!({"query": "heron", "filter": filter, "facets": [{"by": "format"}]});
            ask(client, "fulltext", &body).await.unwrap()
        };
        let all = ask(json!({})).await;
        let without = all.facets.unwrap().facets[0].without;
        let with = all.total - without;
        assert!(with + without > 0 && (with > 0) == is_owner && (without > 0) != is_owner, "{with} {without}");
        assert_eq!(ask(json!({"format": ["text", "pdf"]})).await.total, with);
        assert_eq!(ask(json!({"none": [{"format": ["text"]}]})).await.total, without);
        assert_eq!(ask(json!({"format": ["pdf"]})).await.total, 0);
        assert_eq!(ask(json!({"any": [{"format": ["pdf"]}, {"format": ["text"]}]})).await.total, with);
        assert_eq!(ask(json!({"all": [{"format": ["pdf"]}, {"format": ["text"]}]})).await.total, 0);
        let either = ask(json!({"any": [{"format": ["text"]}, {"none": [{"format": ["text"]}]}]})).await;
        assert_eq!(either.total, all.total, "what has no file is in one of them");
        let twice = ask(json!({"none": [{"none": [{"format": ["text"]}]}]})).await;
        assert_eq!(twice.total, with);
    }
    let refused = ask(&app.client, "bm25", &json!({"query": "heron", "filter": {"any": [{"format": []}]}})).await;
    assert_eq!(refused.unwrap_err().members["field"], "filter.any[0].format");
    app.end().await;
}

#[tokio::test]
async fn a_facet_that_means_nothing_is_refused_by_its_name() {
    let app = TestApp::start().await;
    for (facets, field) in [
        (json!([]), "facets"),
        (json!([{"by": "usetype"}, {"by": "structured_content"}]), "facets[1].key"),
        (json!([{"by": "usetype", "key": "colour"}]), "facets[0].key"),
        (json!([{"by": "usetype", "bucket": "day"}]), "facets[0].bucket"),
        (json!([{"by": "created_at", "limit": 101}]), "facets[0].limit"),
        (json!(vec![json!({"by": "usetype"}); 11]), "facets"),
    ] {
        let refused = ask(&app.client, "bm25", &json!({"query": "heron", "facets": facets})).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!(field)), "{facets}");
    }
    let facets = Some(vec![Facet::by(FacetBy::Usetype)]);
    let answer = SynthesizeSearch { facets: facets.clone(), ..SynthesizeSearch::new("heron") };
    assert_eq!(app.client.synthesize(Json(answer)).await.unwrap_err().members["field"], "facets");
    // Counts of nothing are no failure.
    let nothing = AutoSearch { facets, ..AutoSearch::new("\"nothing at all\"") };
    let counted = app.client.search_auto(Json(nothing)).await.unwrap().facets.unwrap();
    assert_eq!((counted.counted, counted.facets[0].values.len(), counted.facets[0].without), (0, 0, 0));
    app.end().await;
}

#[tokio::test]
async fn what_is_too_much_to_be_counted_is_said_to_be_more() {
    let app = TestApp::start().await;
    sqlx::raw_sql(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 'note', 'heron', 'note', 'sha256:' || n, 0 FROM generate_series(1, 10001) n RETURNING id)
         INSERT INTO document_words SELECT id, 'heron:1'::tsvector FROM made",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let facets = Some(vec![Facet::by(FacetBy::Usetype)]);
    let search = FulltextSearch { facets, ..FulltextSearch::new("heron") };
    let counted = app.client.search_fulltext(Json(search.clone())).await.unwrap().facets.unwrap();
    assert_eq!((counted.counted, counted.counted_is), (10_000, TotalIs::AtLeast));
    assert_eq!(counts(&counted.facets[0])["\"note\""], 10_000);
    sqlx::query("DELETE FROM documents WHERE id = (SELECT max(id) FROM documents)").execute(&app.pool).await.unwrap();
    let counted = app.client.search_fulltext(Json(search)).await.unwrap().facets.unwrap();
    assert_eq!((counted.counted, counted.counted_is), (10_000, TotalIs::Exact));
    // Every method takes them.
    let facets = || Some(vec![Facet::by(FacetBy::Root)]);
    let vector = VectorSearch { facets: facets(), ..VectorSearch::new("heron") };
    assert!(app.client.search_vector(Json(vector)).await.unwrap().facets.is_some());
    let bm25 = Bm25Search { facets: facets(), ..Bm25Search::new("heron") };
    assert!(app.client.search_bm25(Json(bm25)).await.unwrap().facets.is_some());
    let maxsim = MaxsimSearch { facets: facets(), ..MaxsimSearch::new("heron") };
    assert!(app.client.search_maxsim(Json(maxsim)).await.unwrap().facets.is_some());
    let hybrid = HybridSearch { facets: facets(), ..HybridSearch::new("heron") };
    assert!(app.client.search_hybrid(Json(hybrid)).await.unwrap().facets.is_some());
    app.end().await;
}
