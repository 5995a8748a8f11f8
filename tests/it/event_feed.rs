//! Events as a client follows them: in their order, each once, and only those that it may read.
mod cut_off;
mod rights;
mod roots;

use crate::{
    access::{Naive, Random},
    edits::patch,
    principals::{grant, idle, someone},
    support::{PATIENCE, TestApp, Wish, document, insert, sample, server, until},
};
use futures_util::StreamExt;
use serde_json::json;
use sqlx::PgPool;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use svc::{
    events::sequencer,
    store::{
        access,
        advisory::{self, AdvisoryLock},
        documents,
        event_feed::{self, Audience, Kept, PAGE, Wanted},
        events, places,
        scope::{Readable, Writable},
        transaction,
    },
};
use svc_client::{
    Client, Code, Event, EventStream, Json, Meta, Remote,
    wire::{ApiTokenPath, DocumentPath, EventKind, EventQuery, EventResponse, GrantRight, NewDocument, WaitQuery},
};
use svc_ids::{DocumentId, PrincipalId};

/// A service without a worker whose events are numbered.
async fn numbered() -> (TestApp, tokio::task::JoinHandle<()>) {
    let app = idle().await;
    let sequencer = sequencer::start(app.pool.clone());
    (app, sequencer)
}

async fn create(app: &TestApp, parent_id: Option<i64>) -> i64 {
    let new = NewDocument { parent_id, ..document("A place", "A text about herons.") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
}

fn query(kinds: &str, since: &str) -> EventQuery {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    EventQuery { kinds: some(kinds), since: some(since), ..EventQuery::default() }
}

async fn next(events: &mut EventStream<EventResponse>) -> Event<EventResponse> {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time").expect("no end").unwrap()
}

/// The next events, as kinds with documents.
async fn take(events: &mut EventStream<EventResponse>, count: usize) -> Vec<(String, i64)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let event = next(events).await;
        assert_eq!(event.id, Some(event.data.seq.to_string()));
        taken.push((event.name.into_owned(), event.data.document_id.expect("a document")));
    }
    taken
}

fn told(kind: &str, id: i64) -> (String, i64) {
    (kind.to_owned(), id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_followed_from_any_place_and_by_kind_and_root() {
    let (app, sequencer) = numbered().await;
    let (top, other) = (create(&app, None).await, create(&app, None).await);
    let child = create(&app, Some(top)).await;
    let all = [told("document.created", top), told("document.created", other), told("document.created", child)];
    let mut remote = app.client.follow_events(EventQuery::default()).await.unwrap();
    assert_eq!(take(&mut remote, 3).await, all);
    let mut local = app.in_process.follow_events(EventQuery::default()).await.unwrap();
    let first = next(&mut local).await;
    let Event { data: EventResponse { kind, root_id, data, .. }, .. } = &first;
    assert_eq!((*kind, *root_id, &data["usetype"]), (EventKind::DocumentCreated, Some(top), &json!("markdown")));
    // The header overrides the parameter.
    let meta = Meta { last_event_id: Some((first.data.seq + 1).to_string()), ..Meta::default() };
    let mut resumed = app.client.given(meta).follow_events(query("", "0")).await.unwrap();
    assert_eq!(take(&mut resumed, 1).await, all[2..]);
    let since = first.data.seq.to_string();
    let mut after = app.client.follow_events(query("document.created", &since)).await.unwrap();
    assert_eq!(take(&mut after, 2).await, all[1..]);
    let mut under = app.client.follow_events(EventQuery { root: Some(top), ..query("", "") }).await.unwrap();
    assert_eq!(take(&mut under, 2).await, [all[0].clone(), all[2].clone()]);

    let mut from_now = app.client.follow_events(query("", "now")).await.unwrap();
    let mut deleted = app.client.follow_events(query("document.deleted, ingest.*", "")).await.unwrap();
    app.client.delete_document(DocumentPath { id: top }).await.unwrap();
    let gone = [told("document.deleted", top), told("document.deleted", child)];
    for events in [&mut from_now, &mut deleted, &mut remote, &mut under] {
        assert_eq!(take(events, 2).await, gone);
    }
    for (bad, field) in [
        (query("document", ""), "kinds"),
        (query("document.created,", ""), "kinds"),
        (query("", "yesterday"), "since"),
        (query("", "-1"), "since"),
        (query("", "999999"), "since"),
    ] {
        let refused = app.client.follow_events(bad).await.err().expect("a plain answer");
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!(field)));
    }
    for bad in ["999999", "-1", "yesterday"] {
        let request = app.raw("GET", "/events").header("accept", "text/event-stream").header("last-event-id", bad);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 422, "{bad}");
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(problem["field"], "Last-Event-ID", "{bad}: {problem}");
    }
    sequencer.abort();
    app.end().await;
}

#[tokio::test]
async fn who_was_away_for_too_long_is_told_where_what_is_kept_begins() {
    let (app, sequencer) = numbered().await;
    for _ in 0..3 {
        create(&app, None).await;
    }
    let mut conn = app.pool.acquire().await.unwrap();
    until("the numbers", async || (event_feed::newest(&app.pool).await.unwrap() == 3).then_some(())).await;
    sqlx::query("UPDATE event_outbox SET at = now() - interval '1 hour' WHERE seq <> 2")
        .execute(&mut *conn)
        .await
        .unwrap();
    let swept = event_feed::sweep(&mut conn, Duration::from_secs(60)).await.unwrap();
    assert!(!swept, "one batch is enough");
    // The third is old too, but what is kept has no gap.
    assert_eq!(event_feed::kept(&mut conn).await.unwrap(), Kept { oldest: 2, newest: 3 });
    drop(conn);
    let refused = app.client.follow_events(query("", "0")).await.err().expect("a plain answer");
    assert_eq!((refused.code, refused.status, &refused.members["oldest_seq"]), (Code::EventsExpired, 410, &json!(2)));
    for since in ["1", ""] {
        let mut events = app.client.follow_events(query("", since)).await.unwrap();
        assert_eq!(next(&mut events).await.data.seq, 2);
    }
    let mut events = app.client.follow_events(query("", "now")).await.unwrap();
    sqlx::query("DELETE FROM event_outbox").execute(&app.pool).await.unwrap();
    create(&app, None).await;
    assert_eq!(next(&mut events).await.data.seq, 4, "a number is never given again");
    sequencer.abort();
    app.end().await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_tells_a_principal_what_it_may_read() {
    let (app, sequencer) = numbered().await;
    let reader = someone(&app, "reader").await;
    let (closed, open) = (create(&app, None).await, create(&app, None).await);
    grant(&app, &reader, closed, GrantRight::Read).await;
    let hidden = create(&app, None).await;
    app.client.protect_document(DocumentPath { id: hidden }).await.unwrap();
    let child = create(&app, Some(closed)).await;
    let mut events = reader.client.follow_events(EventQuery::default()).await.unwrap();
    // The grant came after the creation, but nothing closed the document then; now it is closed to others alone.
    let expected = [told("document.created", closed), told("document.created", open), told("document.created", child)];
    assert_eq!(take(&mut events, 3).await, expected);
    create(&app, Some(hidden)).await;
    app.client.delete_document(DocumentPath { id: closed }).await.unwrap();
    assert_eq!(take(&mut events, 2).await, [told("document.deleted", closed), told("document.deleted", child)]);
    app.client.revoke_api_token(ApiTokenPath { id: reader.token_id }).await.unwrap();
    create(&app, None).await;
    let end = tokio::time::timeout(PATIENCE, events.next()).await.expect("an end").expect("a reason");
    assert_eq!(end.expect_err("nothing more is told").code, Code::Unauthenticated);
    assert!(events.next().await.is_none());
    sequencer.abort();
    app.end().await;
}

#[tokio::test]
async fn of_a_deleted_document_the_ancestor_that_was_nearest_to_it_decides_wherever_it_is_now() {
    let (app, sequencer) = numbered().await;
    let reader = someone(&app, "reader").await;
    let (other, top) = (create(&app, None).await, create(&app, None).await);
    let closed = create(&app, Some(top)).await;
    let gone = create(&app, Some(closed)).await;
    app.client.delete_document(DocumentPath { id: gone }).await.unwrap();
    patch(&app, closed, json!({"parent_id": null})).await.unwrap();
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    // What lay higher lies deeper now.
    patch(&app, top, json!({"parent_id": other})).await.unwrap();
    let mut events = reader.client.follow_events(EventQuery::default()).await.unwrap();
    let expected = [told("document.created", other), told("document.created", top), told("document.moved", top)];
    assert_eq!(take(&mut events, 3).await, expected);
    sequencer.abort();
    app.end().await;
}

/// Loses all events after the fifth, as a failover does that lost their commits.
async fn lose(app: &TestApp) {
    let lost = "UPDATE event_counter SET last = 5; DELETE FROM event_outbox WHERE seq > 5";
    sqlx::raw_sql(lost).execute(&app.pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_once_a_failover_has_lost_what_it_has_read() {
    let (app, sequencer) = numbered().await;
    // Nothing happens afterwards, or more than was lost.
    for later in [0, 6] {
        while event_feed::newest(&app.pool).await.unwrap() < 10 {
            let number = event_feed::newest(&app.pool).await.unwrap();
            create(&app, None).await;
            until("the number", async || (event_feed::newest(&app.pool).await.unwrap() > number).then_some(())).await;
        }
        let mut events = app.client.follow_events(query("", "now")).await.unwrap();
        events.begun().await.unwrap();
        assert_eq!(events.last_id(), Some("10"));
        lose(&app).await;
        for _ in 0..later {
            create(&app, None).await;
        }
        let end = tokio::time::timeout(PATIENCE, events.next()).await.expect("an end").expect("a reason");
        assert_eq!(end.expect_err("what got a number again is not told of").code, Code::EventsExpired, "{later}");
    }
    let mut events = app.client.follow_events(query("", "5")).await.unwrap();
    let again: Vec<(String, i64)> = take(&mut events, 6).await;
    assert_eq!(again.iter().collect::<BTreeSet<_>>().len(), 6, "{again:?}");
    sequencer.abort();
    app.end().await;
}

#[tokio::test]
async fn streams_of_events_take_the_places_of_all_streams() {
    let app = TestApp::with(Wish { no_worker: true, settings: &[("SVC_EVENT_STREAMS", "1")], ..Wish::default() }).await;
    let first = app.client.follow_events(EventQuery::default()).await.unwrap();
    let refused = app.client.follow_events(EventQuery::default()).await.err().expect("one is all that may be open");
    assert_eq!((refused.code, refused.members["setting"].as_str()), (Code::TooManyRequests, Some("SVC_EVENT_STREAMS")));
    drop(first);
    drop(until("the place", async || app.client.follow_events(EventQuery::default()).await.ok()).await);
    app.end().await;
}

#[tokio::test]
async fn a_stream_from_now_on_that_breaks_off_before_its_first_event_is_taken_up_where_it_began() {
    let (app, sequencer) = numbered().await;
    create(&app, None).await;
    until("the number", async || (event_feed::newest(&app.pool).await.unwrap() == 1).then_some(())).await;
    let mut broken = app.client.follow_events(query("", "now")).await.unwrap();
    broken.begun().await.unwrap();
    let meta = Meta { last_event_id: broken.last_id().map(str::to_owned), ..Meta::default() };
    assert_eq!(meta.last_event_id.as_deref(), Some("1"));
    drop(broken);
    let missed = create(&app, None).await;
    let mut again = app.client.given(meta).follow_events(query("", "now")).await.unwrap();
    assert_eq!(take(&mut again, 1).await, [told("document.created", missed)]);
    // What is not shown moves the place to take up too.
    let mut deleted = app.client.follow_events(query("document.deleted", "0")).await.unwrap();
    deleted.begun().await.unwrap();
    deleted.begun().await.unwrap();
    assert_eq!(deleted.last_id(), Some("2"));
    sequencer.abort();
    app.end().await;
}

/// A position at each hidden event would tell its moment, so there are no more positions than beats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_does_not_move_with_events_that_its_reader_may_not_read() {
    const HIDDEN: i64 = 20;
    let (app, sequencer) = numbered().await;
    let reader = someone(&app, "reader").await;
    let hidden = create(&app, None).await;
    app.client.protect_document(DocumentPath { id: hidden }).await.unwrap();
    until("the number", async || (event_feed::newest(&app.pool).await.unwrap() == 1).then_some(())).await;
    let mut events = reader.client.follow_events(query("", "now")).await.unwrap();
    events.begun().await.unwrap();
    let begun = Instant::now();
    for number in 2..2 + HIDDEN {
        create(&app, Some(hidden)).await;
        until("the number", async || (event_feed::newest(&app.pool).await.unwrap() == number).then_some(())).await;
    }
    let mut moves = 0;
    while events.last_id() != Some(&(1 + HIDDEN).to_string()) {
        tokio::time::timeout(PATIENCE, events.begun()).await.expect("a position in time").unwrap();
        moves += 1;
    }
    let beats = begun.elapsed().as_secs() / 2 + 1;
    assert!(moves <= beats, "{moves} moves in the time of {beats} beats");
    sequencer.abort();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_files_are_told_of_on_request_to_those_who_may_read_them() {
    let app = TestApp::start().await;
    let sequencer = sequencer::start(app.pool.clone());
    let reader = someone(&app, "reader").await;
    let (id, frontier) = app.ingest(&sample("handbook.md")).await;
    let tree = app.subtree(id).await;
    let settled = async |client: &Client<Remote>, query: EventQuery| {
        let mut events = client.follow_events(query).await.unwrap();
        let (mut kinds, mut nodes) = (BTreeSet::new(), Vec::new());
        loop {
            let Event { data: EventResponse { kind, root_id, data, .. }, .. } = next(&mut events).await;
            kinds.insert(kind.as_str());
            match kind {
                EventKind::IngestSettled => return (kinds, nodes),
                EventKind::IngestNodes => {
                    assert_eq!(root_id, Some(id));
                    nodes.extend(data["nodes"].as_array().unwrap().iter().map(|node| node.as_i64().unwrap()));
                }
                _ => {}
            }
        }
    };
    let usual = ["ingest.accepted", "ingest.settled"];
    let (kinds, _) = settled(&app.client, query("ingest.*", "0")).await;
    assert_eq!(kinds, usual.into(), "only files are told of, unless nodes are asked for");
    let with_nodes = EventQuery { nodes: true, ..query("", "0") };
    let (kinds, nodes) = settled(&app.client, with_nodes.clone()).await;
    assert!(kinds.contains("ingest.nodes") && kinds.contains("ingest.accepted"), "{kinds:?}");
    let told: BTreeSet<i64> = nodes.iter().copied().collect();
    assert_eq!(
        (nodes.len(), told.len() as i64),
        (told.len(), frontier.nodes_total - 1),
        "each node once, and the file by its own"
    );
    assert!(told.iter().all(|node| tree.iter().any(|row| row.id == *node)), "{told:?}");

    assert_eq!(settled(&reader.client, with_nodes.clone()).await.1.len(), nodes.len());
    let closed = tree.iter().find(|row| row.id != id && row.parent_id == Some(id)).unwrap().id;
    let under: BTreeSet<i64> = app.subtree(closed).await.iter().map(|row| row.id).chain([closed]).collect();
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let left: BTreeSet<i64> = settled(&reader.client, with_nodes).await.1.into_iter().collect();
    assert_eq!(left, &told - &under, "what was closed since is not told of");
    sequencer.abort();
    app.end().await;
}

/// An event beside what the definition says of it.
struct Happened {
    document: i64,
    /// Its ancestors then, root first.
    path: Vec<i64>,
    /// The places that it was at then, each with the grants that opened it, by principal; `None` where nothing closed it.
    places: Vec<Option<BTreeMap<i64, BTreeSet<u64>>>>,
    /// Who lost its grant with the document.
    readers: BTreeSet<i64>,
}

/// A tree with grants that have an identity: one that is taken and given again is another.
#[derive(Default)]
struct World {
    naive: Naive,
    /// By root and principal.
    grants: BTreeMap<(i64, i64), u64>,
    given: u64,
    happened: Vec<Happened>,
}

impl World {
    fn place(&self, id: i64) -> Option<BTreeMap<i64, BTreeSet<u64>>> {
        if self.naive.guard(id) == 0 {
            return None;
        }
        let line = self.naive.line(id);
        let mut opened: BTreeMap<i64, BTreeSet<u64>> = BTreeMap::new();
        for ((root, principal), grant) in &self.grants {
            if line.contains(root) {
                opened.entry(*principal).or_default().insert(*grant);
            }
        }
        Some(opened)
    }

    fn may(&self, principal: i64, id: i64) -> bool {
        let line = self.naive.line(id);
        self.naive.guard(id) == 0 || self.grants.keys().any(|(root, who)| *who == principal && line.contains(root))
    }

    fn record(&mut self, document: i64, places: Vec<Option<BTreeMap<i64, BTreeSet<u64>>>>) {
        let path = self.naive.path[&document].clone();
        self.happened.push(Happened { document, path, places, readers: BTreeSet::new() });
    }

    /// The positions of the events that a principal is told of.
    fn told(&self, principal: i64) -> Vec<usize> {
        let living: BTreeSet<u64> = self.grants.values().copied().collect();
        let is_told = |event: &Happened| {
            if event.readers.contains(&principal) {
                return true;
            }
            let could_read = event.places.iter().all(|place| match place {
                None => true,
                Some(grants) => grants.get(&principal).is_some_and(|grants| !grants.is_disjoint(&living)),
            });
            let left = [event.document].into_iter().chain(event.path.iter().rev().copied());
            let nearest = left.into_iter().find(|id| self.naive.path.contains_key(id));
            could_read && nearest.is_none_or(|id| self.may(principal, id))
        };
        let told = self.happened.iter().enumerate().filter(|(_, event)| is_told(event));
        told.map(|(position, _)| position).collect()
    }
}

async fn add(pool: &PgPool, parent: Option<i64>) -> i64 {
    let mut tx = transaction::begin_creating(pool).await.unwrap();
    let id = insert(&mut tx, parent).await;
    events::record(&mut tx, EventKind::DocumentCreated, &[id], &json!({})).await.unwrap();
    tx.commit().await.unwrap();
    id.0
}

/// Moves a document with everything under it, and gives all of it the paths and guards of the definition.
async fn relocate(pool: &PgPool, naive: &mut Naive, id: i64, parent: Option<i64>) {
    let mut tx = transaction::begin(pool).await.unwrap();
    let origin = events::origins(&mut tx, &[DocumentId(id)]).await.unwrap();
    let old = naive.path[&id].len();
    let above = parent.map_or(Vec::new(), |parent| naive.line(parent));
    for (other, path) in &mut naive.path {
        if *other == id || path.contains(&id) {
            *path = above.iter().chain(&path[old..]).copied().collect();
        }
    }
    for (other, path) in &naive.path {
        sqlx::query("UPDATE documents SET path = $2, parent_id = $3, guard = $4 WHERE id = $1")
            .bind(other)
            .bind(path)
            .bind(path.last())
            .bind(naive.guard(*other))
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    for root in &naive.roots {
        let above = naive.path[root].iter().rev().find(|id| naive.roots.contains(id)).unwrap_or(&0);
        sqlx::query("UPDATE access_roots SET above = $2 WHERE document_id = $1")
            .bind(root)
            .bind(above)
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    events::moved(&mut tx, &origin).await.unwrap();
    tx.commit().await.unwrap();
}

/// What a principal is told of, from the table.
async fn shown(pool: &PgPool, principal: i64) -> Vec<usize> {
    let mut conn = pool.acquire().await.unwrap();
    let guards: Vec<DocumentId> = sqlx::query_scalar(
        "WITH RECURSIVE z(id) AS (SELECT document_id FROM access_grants WHERE principal_id = $1
                                  UNION SELECT a.document_id FROM access_roots a JOIN z ON a.above = z.id) SELECT id FROM z",
    )
    .bind(principal)
    .fetch_all(&mut *conn)
    .await
    .unwrap();
    let audience = Audience { readable: Readable::under(&guards), principal: Some(PrincipalId(principal)) };
    let page = event_feed::page(&mut conn, &audience, &Wanted::all(), 0, PAGE).await.unwrap();
    page.events.into_iter().map(|event| usize::try_from(event.seq).unwrap() - 1).collect()
}

#[tokio::test]
async fn a_principal_is_told_what_the_definition_says_in_random_trees() {
    let (mut told_of, mut kept_from) = (0, 0);
    for seed in 1..=4 {
        let (pool, mut random, mut world) = (server::new_pool().await, Random(seed * 104_729), World::default());
        let mut principals = Vec::new();
        for name in ["a", "b", "c"] {
            let insert = "INSERT INTO principals (name, kind) VALUES ($1, 'user') RETURNING id";
            principals.push(sqlx::query_scalar::<_, i64>(insert).bind(name).fetch_one(&pool).await.unwrap());
        }
        for _ in 0..70 {
            let ids: Vec<i64> = world.naive.path.keys().copied().collect();
            let any = (!ids.is_empty()).then(|| ids[random.below(ids.len())]);
            let principal = principals[random.below(principals.len())];
            match (random.below(12), any) {
                (0..=3, parent) | (4.., parent @ None) => {
                    let parent = parent.filter(|_| random.below(5) > 0);
                    let id = add(&pool, parent).await;
                    world.naive.path.insert(id, parent.map_or(Vec::new(), |parent| world.naive.line(parent)));
                    let place = world.place(id);
                    world.record(id, vec![place]);
                }
                (4, Some(id)) => {
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    access::protect(&mut tx, DocumentId(id)).await.unwrap();
                    tx.commit().await.unwrap();
                    world.naive.roots.insert(id);
                }
                (5, Some(id)) => {
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    access::hold_alone(&mut tx).await.unwrap();
                    access::unprotect_held(&mut tx, DocumentId(id)).await.unwrap();
                    tx.commit().await.unwrap();
                    world.naive.roots.remove(&id);
                    world.grants.retain(|(root, _), _| *root != id);
                }
                (6 | 7, Some(_)) if !world.naive.roots.is_empty() => {
                    let root = *world.naive.roots.iter().nth(random.below(world.naive.roots.len())).unwrap();
                    let mut conn = pool.acquire().await.unwrap();
                    let (who, right) = (PrincipalId(principal), GrantRight::Read);
                    access::grant(&mut conn, who, DocumentId(root), right).await.unwrap().expect("a grant");
                    world.given += 1;
                    let given = world.given;
                    world.grants.entry((root, principal)).or_insert(given);
                }
                (8, Some(_)) => {
                    let held = world.grants.keys().find(|(_, who)| *who == principal).copied();
                    let Some((root, _)) = held else { continue };
                    let mut conn = pool.acquire().await.unwrap();
                    assert!(access::ungrant(&mut conn, PrincipalId(principal), DocumentId(root)).await.unwrap());
                    world.grants.remove(&(root, principal));
                }
                (9 | 10, Some(id)) => {
                    let to = ids[random.below(ids.len())];
                    let to = Some(to).filter(|_| random.below(6) > 0);
                    if to.is_some_and(|to| world.naive.line(to).contains(&id)) {
                        continue;
                    }
                    let from = world.place(id);
                    relocate(&pool, &mut world.naive, id, to).await;
                    let place = world.place(id);
                    world.record(id, vec![from, place]);
                }
                (_, Some(top)) if random.below(2) == 0 => {
                    let gone: Vec<i64> =
                        ids.iter().copied().filter(|id| world.naive.line(*id).contains(&top)).collect();
                    for id in &gone {
                        let place = world.place(*id);
                        world.record(*id, vec![place]);
                        let line = world.naive.line(*id);
                        let lost = world.grants.keys().filter(|(root, _)| line.contains(root) && gone.contains(root));
                        let readers = lost.map(|(_, who)| *who).collect();
                        world.happened.last_mut().unwrap().readers = readers;
                    }
                    let mut tx = transaction::begin(&pool).await.unwrap();
                    let place = places::find(&mut tx, &Writable::everything(), DocumentId(top)).await.unwrap().unwrap();
                    documents::delete_subtrees(&mut tx, &[place]).await.unwrap();
                    tx.commit().await.unwrap();
                    world.naive.path.retain(|id, _| !gone.contains(id));
                    world.naive.roots.retain(|id| !gone.contains(id));
                    world.grants.retain(|(root, _), _| !gone.contains(root));
                }
                _ => continue,
            }
            let mut conn = pool.acquire().await.unwrap();
            event_feed::number(&mut conn).await.unwrap();
            drop(conn);
            for principal in &principals {
                let expected = world.told(*principal);
                assert_eq!(shown(&pool, *principal).await, expected, "seed {seed}, principal {principal}");
                (told_of, kept_from) = (told_of + expected.len(), kept_from + world.happened.len() - expected.len());
            }
        }
    }
    assert!(told_of > 1000 && kept_from > 1000, "{told_of} {kept_from}");
}

#[tokio::test]
async fn only_one_session_numbers_and_another_takes_over_when_it_is_gone() {
    let pool = server::new_pool().await;
    let first = advisory::alone(&pool, AdvisoryLock::Sequencer).await.unwrap().expect("nobody numbers");
    assert!(advisory::alone(&pool, AdvisoryLock::Sequencer).await.unwrap().is_none());
    drop(first);
    until("the lock", async || advisory::alone(&pool, AdvisoryLock::Sequencer).await.unwrap()).await;
}
