//! Filters of filters beside a naive look at every document.
use crate::{
    access::Random,
    principals::{grant, someone},
    support::{TestApp, document},
};
use serde_json::{Map, json};
use std::collections::BTreeSet;
use svc_client::{
    Code, Json,
    wire::{
        AutoSearch, Bm25Search, DocumentResponse, FulltextSearch, GrantRight, GroupBy, HybridSearch, MaxsimSearch,
        NewDocument, SearchFilter, SearchResponse, VectorSearch, WaitQuery,
    },
};

const USETYPES: [&str; 3] = ["memo", "letter", "log"];
const COLOURS: [&str; 2] = ["teal", "red"];

/// The noon of a day of a month.
fn day(number: usize) -> chrono::DateTime<chrono::Utc> {
    format!("2021-03-{number:02}T12:00:00Z").parse().unwrap()
}

/// A forest of documents that every query here finds; some are private, and some have no time or no keys.
async fn forest(app: &TestApp, random: &mut Random) -> Vec<DocumentResponse> {
    let mut all: Vec<DocumentResponse> = Vec::new();
    for number in 0..24 {
        let parent = Some(random.below(all.len() + 1)).and_then(|place| all.get(place)).filter(|_| number > 3);
        let mut keys = Map::new();
        if random.below(3) > 0 {
            keys.insert("colour".to_owned(), json!(COLOURS[random.below(2)]));
        }
        if random.below(3) > 0 {
            keys.insert("size".to_owned(), json!(random.below(2)));
        }
        let new = NewDocument {
            parent_id: parent.map(|parent| parent.id),
            usetype: Some(USETYPES[random.below(3)].to_owned()),
            event_time: Some(day(1 + random.below(9))).filter(|_| random.below(3) > 0),
            structured_content: keys,
            private: number < 3,
            ..document(&format!("Note {number}"), "The lighthouse keeper.")
        };
        let query = WaitQuery { wait: true, ..WaitQuery::default() };
        all.push(app.client.create_document(query, Json(new)).await.unwrap().document);
    }
    all
}

fn ids(random: &mut Random, all: &[DocumentResponse]) -> Vec<i64> {
    let one = |random: &mut Random| all.get(random.below(all.len() + 1)).map_or(i64::MAX, |document| document.id);
    (0..1 + random.below(3)).map(|_| one(random)).collect()
}

fn filters(random: &mut Random, all: &[DocumentResponse], depth: usize) -> Option<Vec<SearchFilter>> {
    (depth > 0 && random.below(2) == 0)
        .then(|| (0..1 + random.below(3)).map(|_| filter(random, all, depth - 1)).collect())
}

fn filter(random: &mut Random, all: &[DocumentResponse], depth: usize) -> SearchFilter {
    let mut made = SearchFilter::default();
    match random.below(9) {
        0 => made.usetype = Some(vec![USETYPES[random.below(3)].to_owned(), USETYPES[random.below(3)].to_owned()]),
        1 => made.event_time_from = Some(day(1 + random.below(9))),
        2 => made.event_time_until = Some(day(1 + random.below(9))),
        3 => made.created_at_from = Some(all[random.below(all.len())].created_at),
        4 => made.created_at_until = Some(all[random.below(all.len())].created_at),
        5 => made.structured_content = Some(Map::from_iter([("colour".to_owned(), json!(COLOURS[random.below(2)]))])),
        6 => made.structured_content = Some(Map::from_iter([("size".to_owned(), json!(random.below(2)))])),
        7 => made.exclude = Some(ids(random, all)),
        _ => made.under = Some(ids(random, all)),
    }
    made.any = filters(random, all, depth);
    made.all = filters(random, all, depth);
    made.none = filters(random, all, depth);
    made
}

/// Whether a filter lets a document pass, by its definition.
fn passes(filter: &SearchFilter, document: &DocumentResponse) -> bool {
    let is_in = |list: &[SearchFilter]| list.iter().any(|filter| passes(filter, document));
    let under = |ids: &Vec<i64>| document.path.iter().any(|above| ids.contains(above));
    let keys = |keys: &Map<String, serde_json::Value>| {
        keys.iter().all(|(name, value)| document.structured_content.get(name) == Some(value))
    };
    filter.event_time_from.is_none_or(|from| document.event_time.is_some_and(|time| time >= from))
        && filter.event_time_until.is_none_or(|until| document.event_time.is_some_and(|time| time < until))
        && filter.created_at_from.is_none_or(|from| document.created_at >= from)
        && filter.created_at_until.is_none_or(|until| document.created_at < until)
        && filter.structured_content.as_ref().is_none_or(keys)
        && filter.exclude.as_ref().is_none_or(|ids| !ids.contains(&document.id) && !under(ids))
        && filter.under.as_ref().is_none_or(under)
        && filter.usetype.as_ref().is_none_or(|usetypes| usetypes.contains(&document.usetype))
        && filter.any.as_deref().is_none_or(is_in)
        && filter.all.iter().flatten().all(|filter| passes(filter, document))
        && !filter.none.as_deref().is_some_and(is_in)
}

fn found(answer: SearchResponse) -> BTreeSet<i64> {
    answer.results.into_iter().map(|result| result.document.id).collect()
}

#[tokio::test]
async fn every_method_finds_what_a_look_at_every_document_finds() {
    let app = TestApp::start().await;
    let mut random = Random(20_211);
    let all = forest(&app, &mut random).await;
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, all[1].id, GrantRight::Read).await;
    let (mut some, mut parts) = (0, 0);
    for round in 0..60 {
        let wanted = if round == 0 { SearchFilter::default() } else { filter(&mut random, &all, 2) };
        for (client, is_owner) in [(&app.client, true), (&reader.client, false)] {
            let is_readable = |document: &&DocumentResponse| {
                let is_in = |root: &DocumentResponse| root.id == document.id || document.path.contains(&root.id);
                is_owner || !is_in(&all[0]) && !is_in(&all[2])
            };
            let right: BTreeSet<i64> = all
                .iter()
                .filter(is_readable)
                .filter(|document| passes(&wanted, document))
                .map(|document| document.id)
                .collect();
            macro_rules! found { ($($type:ident $method:ident),*) => { [$({
                let body = $type { filter: Some(wanted.clone()), limit: 100, group_by: Some(GroupBy::None), ..$type::new("lighthouse") };
                (stringify!($method), found(client.$method(Json(body)).await.unwrap()))
            }),*] } }
            for (method, found) in found!(VectorSearch search_vector, FulltextSearch search_fulltext, Bm25Search search_bm25, MaxsimSearch search_maxsim, HybridSearch search_hybrid, AutoSearch search_auto)
            {
                assert_eq!(found, right, "{method}, owner: {is_owner}, {}", json!(wanted));
            }
            some += usize::from(!right.is_empty() && right.len() < all.len() / 2);
            parts += usize::from(!is_owner && round == 0 && !right.is_empty() && right.len() < all.len());
        }
    }
    // The filters tell documents apart, and the reader reads a part.
    assert!(some > 20 && parts == 1, "{some} {parts}");
    app.end().await;
}

#[tokio::test]
async fn a_group_shows_no_text_whose_place_a_filter_excludes() {
    let app = TestApp::start().await;
    // It is found by its title, and has no text of its own to show.
    let top = app.create("Lighthouse", "", None).await.id;
    let under = async |parent, content| {
        let new = NewDocument {
            parent_id: Some(parent),
            usetype: Some("section".to_owned()),
            ..document("Section", content)
        };
        let query = WaitQuery { wait: true, ..WaitQuery::default() };
        app.client.create_document(query, Json(new)).await.unwrap().document.id
    };
    let log = "The keeper writes a log.";
    let [left, right] = [under(top, log).await, under(top, "").await];
    let deep = under(right, log).await;
    let shown = async |none: SearchFilter| {
        let filter = Some(SearchFilter { none: Some(vec![none]), ..SearchFilter::default() });
        let body = Bm25Search { filter, group_by: Some(GroupBy::File), per_group: 10, ..Bm25Search::new("lighthouse") };
        let results = app.client.search_bm25(Json(body)).await.unwrap().results;
        let hits = results.iter().flat_map(|result| result.hits.iter().flatten().map(|hit| hit.document.id));
        hits.collect::<BTreeSet<_>>()
    };
    let place = SearchFilter { under: Some(vec![right]), ..SearchFilter::default() };
    // A text is not kept out by what else a filter says: that chose the group.
    let both = SearchFilter { usetype: Some(vec!["memo".to_owned()]), ..place.clone() };
    assert_eq!(shown(both).await, BTreeSet::from([left, deep]));
    assert_eq!(shown(place).await, BTreeSet::from([left]));
    app.end().await;
}

#[tokio::test]
async fn a_filter_that_is_too_large_or_too_deep_is_refused_by_its_name() {
    let app = TestApp::start().await;
    let open = SearchFilter::default;
    let nested = |depth: usize| (0..depth).fold(open(), |inner, _| SearchFilter { all: Some(vec![inner]), ..open() });
    let of = |place: i64, count: usize| SearchFilter { under: Some(vec![place; count]), ..open() };
    let many = |count: usize| SearchFilter { any: Some(vec![open(); count]), ..open() };
    let refused = async |filter: SearchFilter| {
        let body = Bm25Search { filter: Some(filter), ..Bm25Search::new("lighthouse") };
        app.client.search_bm25(Json(body)).await.map(|_| ()).map_err(|failure| {
            assert_eq!(failure.code, Code::InvalidField);
            failure.members["field"].as_str().unwrap().to_owned()
        })
    };
    for fits in [nested(4), many(100), of(1, 1_000), SearchFilter { none: Some(vec![of(1, 1_000)]), ..of(1, 1_000) }] {
        assert_eq!(refused(fits).await, Ok(()));
    }
    for (filter, field) in [
        (nested(5), "filter.all[0].all[0].all[0].all[0].all"),
        (many(101), "filter.any"),
        (SearchFilter { all: Some(vec![many(100)]), ..open() }, "filter.all[0].any"),
        (SearchFilter { none: Some(Vec::new()), ..open() }, "filter.none"),
        (SearchFilter { any: Some(vec![of(1, 0)]), ..open() }, "filter.any[0].under"),
        (SearchFilter { any: Some(vec![open(), of(1, 1_001)]), ..open() }, "filter.any[1].under"),
        (SearchFilter { any: Some(vec![of(1, 1_000), of(1, 1)]), ..of(1, 1_000) }, "filter.any[1]"),
    ] {
        assert_eq!(refused(filter).await, Err(field.to_owned()));
    }
    let typo = json!({"query": "lighthouse", "filter": {"any": [{}, {"usetypes": ["memo"]}]}});
    let answer = app.raw("POST", "/search/bm25").json(&typo).send().await.unwrap();
    assert_eq!(answer.status(), 422);
    let problem: serde_json::Value = answer.json().await.unwrap();
    assert!(problem["field"].as_str().unwrap().starts_with("filter.any[1]"), "{problem}");
    app.end().await;
}
