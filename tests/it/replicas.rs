//! Standbys that answer reads: two of a real server, which are behind, paused, promoted and killed, and never show less than a caller knows
//! or more than it may read.
mod fresh;

use crate::{
    crash::url,
    ontologies::load,
    principals::{Someone, grant, someone},
    reach::call,
    shape_bindings::bind,
    support::{self, PATIENCE, TOKEN, TestApp, Wish, document, sample, say, server, standby::Standby, until},
    triples::{predicate, says},
};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use svc::embedded::EmbeddedPostgres;
use svc_client::{
    AFTER_HEADER, Client, Json, NOW, OPERATIONS, On, Operation, OperationInfo, POSITION_HEADER, Position, Remote,
    Sender, Untyped, ops,
    wire::{
        Bm25Search, CheckedPart, DocumentPath, EmbedQuery, EventQuery, FindingKind, GrantPath, GrantRight,
        HybridSearch, NewDocument, OntologyQuery, WaitQuery,
    },
};

/// The number of writes, each of which a search follows; SVC_TEST_REPLICA_WRITES names another number.
const WRITES: usize = 60;
/// After one write in this many, the search names no position, as the control.
const CONTROL: usize = 10;
/// After so many writes a long run tells how far it is.
const TOLD: usize = 1_000;
/// How often what must never be seen is looked for.
const LOOKS: usize = 20;
/// How many answers with a document must have it from both legs of the search.
const TURNS: usize = 5;

/// A service on a primary with two standbys.
struct World {
    app: TestApp,
    standbys: [Standby; 2],
    primary: EmbeddedPostgres,
}

impl World {
    async fn start() -> World {
        let primary = server::own("replicas").await;
        let standbys = [Standby::of(&primary, "replica-1").await, Standby::of(&primary, "replica-2").await];
        let urls = read_urls(&standbys);
        let settings = [("SVC_DATABASE_READ_URL", urls.as_str())];
        let database = Some(primary.connect_options());
        let app = TestApp::with(Wish { settings: &settings, database, ..Wish::default() }).await;
        World { app, standbys, primary }
    }

    /// Waits until all standbys answer reads.
    async fn ready(&self) {
        until("the standbys to answer reads", async || self.app.service.replicas().unwrap().state().ok()).await;
    }

    async fn pause(&self) {
        for standby in &self.standbys {
            standby.pause().await;
        }
    }

    async fn resume(&self) {
        for standby in &self.standbys {
            standby.resume().await;
        }
        self.ready().await;
    }

    /// How many reads the standbys have answered.
    fn answered(&self) -> f64 {
        self.standbys.iter().map(|standby| answered_by(&self.app, standby)).sum()
    }

    /// What a caller who knows nothing is told of a document: its title, or that there is none for it.
    async fn title(&self, secret: &str, id: i64) -> Option<String> {
        title_of(&self.app, secret, id).await
    }

    /// The ids that a search for a word finds, of a caller who knows nothing.
    async fn found(&self, word: &str) -> Vec<i64> {
        let request = self.app.raw("POST", "/search/bm25").json(&json!({"query": word, "group_by": "none"}));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        answer["results"].as_array().unwrap().iter().map(|result| result["id"].as_i64().unwrap()).collect()
    }
}

/// The addresses of standbys, as the setting has them.
fn read_urls(standbys: &[Standby]) -> String {
    standbys.iter().map(|standby| url(&standby.options)).collect::<Vec<_>>().join(",")
}

/// What a service tells a caller of a document who knows nothing.
async fn title_of(app: &TestApp, secret: &str, id: i64) -> Option<String> {
    let request = support::http().get(format!("{}/documents/{id}", app.base)).bearer_auth(secret);
    let answer = request.send().await.unwrap();
    assert!(answer.headers().contains_key(POSITION_HEADER) || answer.status() == 404, "{answer:?}");
    match answer.status().as_u16() {
        200 => Some(answer.json::<Value>().await.unwrap()["title"].as_str().unwrap().to_owned()),
        404 => None,
        status => panic!("{status}: {}", answer.text().await.unwrap()),
    }
}

/// How many reads of a service a standby has answered.
pub fn answered_by(app: &TestApp, standby: &Standby) -> f64 {
    let metrics = app.service.metrics.render();
    let begin = format!("svc_reads_total{{server=\"{}\"}} ", standby.name());
    metrics.lines().find_map(|line| line.strip_prefix(&begin)?.parse::<f64>().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_answer_reads_with_no_less_than_a_caller_knows_and_no_more_than_it_may_read() {
    let world = World::start().await;
    world.ready().await;
    every_operation_that_may_read_at_a_standby_is_answered_by_one(&world).await;
    what_is_no_position_is_refused(&world).await;
    a_search_after_a_write_finds_it(&world).await;
    a_read_at_the_position_of_an_event_shows_what_happened(&world).await;
    a_batch_of_searches_denies_nothing_that_the_standbys_lack(&world).await;
    both_legs_of_a_search_read_one_server(&world).await;
    a_right_that_was_taken_away_is_never_read(&world).await;
    a_search_that_is_cancelled_for_replay_is_asked_again_at_the_primary(&world).await;
    fresh::a_service_that_starts_reads_at_no_standby_before_it_has_caught_up(&world).await;
    fresh::a_doctor_waits_until_it_knows_how_far_behind_the_standbys_are(&world).await;
    fresh::a_standby_behind_a_pooler_that_drops_settings_answers_no_reads(&world).await;
    a_promoted_standby_shows_nothing_of_its_own(&world).await;
    a_killed_standby_costs_nobody_an_answer(&world).await;
    let World { app, standbys, primary } = world;
    app.end().await;
    drop(standbys);
    primary.stop().await;
}

#[tokio::test]
async fn a_client_names_the_latest_position_that_it_was_shown() {
    // A later answer may be of an earlier position, because another server gave it.
    let shown = Mutex::new(["0/10", "1/0", "0/20"].into_iter());
    let named: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let asked = named.clone();
    let send: Sender = Arc::new(move |request: http::Request<reqwest::Body>| {
        let after = request.headers().get(AFTER_HEADER).map(|value| value.to_str().unwrap().to_owned());
        asked.lock().unwrap().push(after);
        let position = shown.lock().unwrap().next().unwrap_or("0/0");
        let answer = http::Response::builder().header(POSITION_HEADER, position).body(reqwest::Body::from("{}"));
        std::future::ready(answer.unwrap()).boxed()
    });
    let remote = Remote::new("http://service", "", support::http()).sent_by(send);
    let info = <ops::read_caller as Operation>::INFO;
    for client in [&remote, &remote.clone(), &remote, &remote] {
        client.call(&info, Untyped::default()).await.unwrap();
    }
    remote.clone().beginning_now().call(&info, Untyped::default()).await.unwrap();
    let expected = [None, Some("0/10"), Some("1/0"), Some("1/0"), Some("1/0")];
    assert_eq!(std::mem::take(&mut *named.lock().unwrap()), expected.map(|after| after.map(str::to_owned)));

    let asked = named.clone();
    let silent: Sender = Arc::new(move |request: http::Request<reqwest::Body>| {
        let after = request.headers().get(AFTER_HEADER).map(|value| value.to_str().unwrap().to_owned());
        asked.lock().unwrap().push(after);
        std::future::ready(http::Response::new(reqwest::Body::from("{}"))).boxed()
    });
    let fresh = Remote::new("http://service", "", support::http()).sent_by(silent).beginning_now();
    fresh.call(&info, Untyped::default()).await.unwrap();
    assert_eq!(*named.lock().unwrap(), [Some(NOW.to_owned())]);
}

#[tokio::test]
async fn a_client_that_was_sent_an_event_is_shown_what_it_tells_of() {
    let named: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let asked = named.clone();
    let send: Sender = Arc::new(move |request: http::Request<reqwest::Body>| {
        let after = request.headers().get(AFTER_HEADER).map(|value| value.to_str().unwrap().to_owned());
        asked.lock().unwrap().push(after);
        let event = |seq: i64, position: Option<&str>| {
            let event = json!({
                "seq": seq, "kind": "document.created", "at": "2026-01-01T00:00:00Z", "document_id": 3, "root_id": 3,
                "data": {}, "position": position,
            });
            format!("id: {seq}\nevent: document.created\ndata: {event}\n\n")
        };
        let body = match request.uri().path() {
            "/events" => event(1, Some("0/20")) + &event(2, None),
            _ => "{}".to_owned(),
        };
        let answer = http::Response::builder().header(POSITION_HEADER, "0/10").body(reqwest::Body::from(body));
        std::future::ready(answer.unwrap()).boxed()
    });
    let remote = Remote::new("http://service", "", support::http()).sent_by(send);
    let read = async || remote.call(&<ops::read_caller as Operation>::INFO, Untyped::default()).await.unwrap();
    let mut events = Client(remote.clone()).follow_events(EventQuery::default()).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data.seq, 1);
    read().await;
    // This event names no position.
    assert_eq!(events.next().await.unwrap().unwrap().data.seq, 2);
    read().await;
    read().await;
    let expected = [None, Some("0/20"), Some(NOW), Some("0/20")];
    assert_eq!(*named.lock().unwrap(), expected.map(|after| after.map(str::to_owned)));
}

#[tokio::test]
async fn a_client_whose_change_was_refused_is_shown_what_the_refusal_tells_of() {
    let named: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let asked = named.clone();
    let send: Sender = Arc::new(move |request: http::Request<reqwest::Body>| {
        let after = request.headers().get(AFTER_HEADER).map(|value| value.to_str().unwrap().to_owned());
        asked.lock().unwrap().push(after);
        let answer = match request.method() == http::Method::GET {
            true => http::Response::builder().header(POSITION_HEADER, "0/10"),
            false => http::Response::builder().status(409),
        };
        std::future::ready(answer.body(reqwest::Body::from("{}")).unwrap()).boxed()
    });
    let remote = Remote::new("http://service", "", support::http()).sent_by(send);
    let read = async || remote.call(&<ops::read_caller as Operation>::INFO, Untyped::default()).await.unwrap();
    read().await;
    remote.call(&<ops::create_document as Operation>::INFO, Untyped::default()).await.unwrap_err();
    read().await;
    read().await;
    let expected = [None, Some("0/10"), Some(NOW), Some("0/10")];
    assert_eq!(*named.lock().unwrap(), expected.map(|after| after.map(str::to_owned)));
}

/// The call of an operation about what there is of its kind.
fn request(world: &World, row: &OperationInfo, id: i64) -> reqwest::RequestBuilder {
    let request = call(&world.app, TOKEN, row, id, &[]).header(AFTER_HEADER, NOW);
    match row.name {
        "search_batch" => {
            let searches = ["bm25", "hybrid"].map(|method| json!({"query": "heron", "method": method}));
            request.json(&json!({"searches": searches}))
        }
        "search_templates" => request.json(&json!({"query": "heron"})),
        "lint_graph" => request.json(&json!({})),
        "find_spines" => request.query(&[("document_id", id)]),
        "compare_facts" => request.query(&[("known_from", "2024-01-01T00:00:00Z")]),
        _ => request,
    }
}

async fn every_operation_that_may_read_at_a_standby_is_answered_by_one(world: &World) {
    let app = &world.app;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let top = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    app.create("Tides", "The moon pulls the oceans.", Some(top)).await;
    predicate(app, "knows").await;
    let fact = app.client.assert_fact(Json(says(top, "knows", "the tide"))).await.unwrap().fact.id;
    let zoo = "<http://example.org/zoo> a owl:Ontology ; rdfs:label 'Zoo' . ex:Cat a owl:Class ; rdfs:label 'Cat' .
        ex:born a owl:DatatypeProperty ; rdfs:label 'born' .
        ex:CatShape a sh:NodeShape ; sh:targetClass ex:Cat ; sh:property [ sh:path ex:born ; sh:minCount 1 ] .";
    let ontology = load(&app.client, OntologyQuery::default(), zoo).await.unwrap().document_id;
    let binding = bind(&app.client, "http://example.org/CatShape", None, None).await.unwrap().id;
    let template = app.raw("POST", "/templates").json(&json!({"title": "Greeting", "content": "Hello."}));
    let template: Value = template.send().await.unwrap().json().await.unwrap();
    let template = template["id"].as_i64().unwrap();
    for row in OPERATIONS.iter().filter(|row| row.on == On::Replica) {
        let id = match row.name {
            "read_story" => file,
            "read_fact" | "read_fact_history" => fact,
            "read_ontology" | "list_classes" => ontology,
            "validate_shape" => binding,
            "read_template" => template,
            _ => top,
        };
        // On a busy machine a standby may take longer for one answer than the service waits for it.
        until(row.name, async || {
            let before = world.answered();
            let answer = request(world, row, id).send().await.unwrap();
            let status = answer.status();
            assert!(status.is_success(), "{}: {status} {}", row.name, answer.text().await.unwrap());
            let position = answer.headers()[POSITION_HEADER].to_str().unwrap().parse::<Position>();
            assert!(position.is_ok(), "{}: {position:?}", row.name);
            (world.answered() > before).then_some(())
        })
        .await;
    }
}

async fn what_is_no_position_is_refused(world: &World) {
    let answer = world.app.raw("GET", "/documents/roots").header(AFTER_HEADER, "yesterday").send().await.unwrap();
    assert_eq!(answer.status(), 422);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!((&problem["code"], &problem["field"]), (&json!("invalid_field"), &json!(AFTER_HEADER)));
}

async fn a_search_after_a_write_finds_it(world: &World) {
    let app = &world.app;
    let before = world.answered();
    let named: Option<usize> =
        std::env::var("SVC_TEST_REPLICA_WRITES").ok().map(|number| number.parse().expect("a number of writes"));
    let (writes, is_over) = (named.unwrap_or(WRITES), AtomicBool::new(false));
    let (next, stale) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Files are ingested all the time, so that the standbys always have something to replay.
    let ingest = async {
        let mut file = 0;
        while !is_over.load(Ordering::Relaxed) {
            let part = |n: usize| format!("## Part {n}\n\nThe curlew number {n} of file {file} probes the mud. ");
            let text: String = (0..20).map(part).collect();
            let id = app.upload_bytes(&format!("curlews-{file}.md"), text).await.unwrap().document_id;
            app.settled(id).await;
            file += 1;
        }
    };
    let writer = async || {
        // Each client knows of its own writes alone, and names the position of each by itself.
        let client = Client(Remote::new(&app.base, TOKEN, support::http()));
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= writes {
                return;
            }
            let word = format!("plover{number}x");
            let (query, new) = (WaitQuery { wait: true, ..WaitQuery::default() }, Json(document("A bird", &word)));
            let id = client.create_document(query, new).await.unwrap().document.id;
            if number % CONTROL == 0 && !world.found(&word).await.contains(&id) {
                stale.fetch_add(1, Ordering::Relaxed);
            }
            let found = client.search_bm25(Json(Bm25Search::new(&word))).await.unwrap();
            assert!(found.results.iter().any(|result| result.document.id == id), "{word} is not found");
            let read = client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
            assert_eq!(read.value().unwrap().content, word);
            if named.is_some() && number % TOLD == 0 {
                say(&format!("{number} of {writes} writes"));
            }
        }
    };
    let write = async {
        tokio::join!(writer(), writer(), writer(), writer());
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(ingest, write);
    let stale = stale.into_inner();
    if named.is_some() {
        let controls = writes.div_ceil(CONTROL);
        say(&format!(
            "{writes} searches that named a position found what was just written, 0 did not (goal: 0); of {controls} without a position {stale} did \
             not (goal: the control must fail)"
        ));
        assert!(stale > 0, "the control never failed, so nothing is shown");
    }
    until("a standby to have answered some of it", async || {
        app.client.search_bm25(Json(Bm25Search::new("plover0x"))).await.unwrap();
        (world.answered() > before).then_some(())
    })
    .await;

    world.pause().await;
    let id = app.create("A bird", "godwit", None).await.id;
    // Whoever knows nothing may be answered with less: this shows that the standbys are asked, and lack it.
    until("an answer without it", async || (!world.found("godwit").await.contains(&id)).then_some(())).await;
    for _ in 0..LOOKS {
        let found = app.client.search_bm25(Json(Bm25Search::new("godwit"))).await.unwrap();
        assert!(found.results.iter().any(|result| result.document.id == id), "the client knows that it is there");
    }
    // Another client, which has written nothing, asks for the moment.
    let body = json!({"query": "godwit", "group_by": "none"});
    let answer = app.raw("POST", "/search/bm25").header(AFTER_HEADER, NOW).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["results"][0]["id"], id, "{answer}");
    // What a standby does not know it denies to nobody.
    assert_eq!(world.title(TOKEN, id).await.as_deref(), Some("A bird"));
    world.resume().await;
}

async fn a_batch_of_searches_denies_nothing_that_the_standbys_lack(world: &World) {
    let app = &world.app;
    world.pause().await;
    let folder = app.create("A folder", "avocet", None).await.id;
    until("an answer without it", async || (!world.found("avocet").await.contains(&folder)).then_some(())).await;
    let searches = json!([{"query": "avocet", "method": "bm25", "parent_id": folder}]);
    for look in 0..LOOKS {
        let request = app.raw("POST", "/search/batch").json(&json!({"searches": searches}));
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert!(answer["answers"][0]["found"].is_object(), "look {look}: {answer}");
    }
    world.resume().await;
}

async fn a_read_at_the_position_of_an_event_shows_what_happened(world: &World) {
    let app = &world.app;
    let query = EventQuery { since: Some("now".to_owned()), ..EventQuery::default() };
    // This client writes nothing, so it knows only what it is told.
    let follower = Client(Remote::new(&app.base, TOKEN, support::http()));
    let mut events = follower.follow_events(query).await.unwrap();
    world.pause().await;
    let id = app.create("A bird", "dunlin", None).await.id;
    let event = loop {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time").unwrap().unwrap();
        if event.data.document_id == Some(id) {
            break event.data;
        }
    };
    let position = event.position.expect("a position beside standbys");
    // A client that was told nothing may still get an answer without the document.
    until("an answer without it", async || (!world.found("dunlin").await.contains(&id)).then_some(())).await;
    let body = json!({"query": "dunlin", "group_by": "none"});
    for _ in 0..LOOKS {
        let request = app.raw("POST", "/search/bm25").header(AFTER_HEADER, &position).json(&body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["results"][0]["id"], id, "whoever was told of it is shown it: {answer}");
        let found = follower.search_bm25(Json(Bm25Search::new("dunlin"))).await.unwrap();
        assert!(
            found.results.iter().any(|result| result.document.id == id),
            "the client goes on from what it was told"
        );
    }
    world.resume().await;
}

async fn both_legs_of_a_search_read_one_server(world: &World) {
    let app = &world.app;
    let [ahead, behind] = &world.standbys;
    behind.pause().await;
    let id = app.create("A bird", "bittern", None).await.id;
    until("one standby to have it", async || {
        let has = "SELECT EXISTS (SELECT FROM document_vectors v JOIN documents d ON d.id = v.document_id WHERE d.content = 'bittern')";
        ahead.ask::<bool>(has).await.then_some(())
    })
    .await;
    let body = json!({"query": "bittern", "group_by": "none"});
    let (mut found, mut missed) = (0, 0);
    until("answers of both standbys", async || {
        let answer = app.raw("POST", "/search/hybrid").json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        match answer["results"].as_array().unwrap().iter().find(|result| result["id"] == id) {
            // Whatever the one leg finds by meaning the other one finds by its word, if both ask the same server.
            Some(result) => {
                let legs = &result["legs"];
                assert!(legs["vector"].is_object() && legs["bm25"].is_object(), "{result}");
                found += 1;
            }
            None => missed += 1,
        }
        // One that is paused answers for ten seconds and no longer, so one answer of it must be enough.
        (found >= TURNS && missed > 0).then_some(())
    })
    .await;
    behind.resume().await;
    world.ready().await;
}

/// What a standby has of the guards of documents, by which it would show them.
async fn guard_at(standby: &Standby, id: i64) -> i64 {
    let pool = sqlx::PgPool::connect_with(standby.options.clone()).await.unwrap();
    let guard =
        sqlx::query_scalar("SELECT guard FROM documents WHERE id = $1").bind(id).fetch_one(&pool).await.unwrap();
    pool.close().await;
    guard
}

async fn a_right_that_was_taken_away_is_never_read(world: &World) {
    let app = &world.app;
    let reader: Someone = someone(app, "reader").await;
    let create = async |title: &str, parent_id| {
        let new = NewDocument { parent_id, ..document(title, "A text.") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let (open, moved, granted) =
        (create("Open", None).await, create("Moved", None).await, create("Granted", None).await);
    let vault = create("Vault", None).await;
    app.client.protect_document(DocumentPath { id: vault }).await.unwrap();
    grant(app, &reader, granted, GrantRight::Read).await;
    for (id, title) in [(open, "Open"), (moved, "Moved"), (granted, "Granted")] {
        until("a standby to show it", async || {
            let before = world.answered();
            let shown = world.title(&reader.secret, id).await;
            assert_eq!(shown.as_deref(), Some(title));
            (world.answered() > before).then_some(())
        })
        .await;
    }
    // Each standby has all of it before it stops.
    until("the standbys to have it", async || {
        let mut guards = Vec::new();
        for standby in &world.standbys {
            guards.extend([guard_at(standby, granted).await, guard_at(standby, vault).await]);
        }
        (guards == [granted, vault, granted, vault]).then_some(())
    })
    .await;
    world.pause().await;
    app.client.protect_document(DocumentPath { id: open }).await.unwrap();
    let change = app.raw("PATCH", &format!("/documents/{moved}")).json(&json!({"parent_id": vault}));
    assert_eq!(change.send().await.unwrap().status(), 200);
    app.client.delete_grant(GrantPath { id: granted, principal_id: reader.id }).await.unwrap();
    for _ in 0..LOOKS {
        for id in [open, moved, granted] {
            assert_eq!(world.title(&reader.secret, id).await, None, "{id} is closed");
        }
    }
    for standby in &world.standbys {
        assert_eq!((guard_at(standby, open).await, guard_at(standby, moved).await), (0, 0), "it would have shown both");
    }
    world.resume().await;
}

/// How many statements and sessions the standbys have ended because replay needed what they read; `None` if this question was one of them.
async fn conflicts(world: &World) -> Option<i64> {
    let mut conflicts = 0;
    for standby in &world.standbys {
        let counted = "SELECT sum(confl_snapshot + confl_lock)::bigint FROM pg_stat_database_conflicts";
        conflicts += standby.try_ask::<i64>(counted).await.ok()?;
    }
    Some(conflicts)
}

async fn a_search_that_is_cancelled_for_replay_is_asked_again_at_the_primary(world: &World) {
    let app = &world.app;
    for standby in &world.standbys {
        standby.set("ALTER SYSTEM SET max_standby_streaming_delay = 0").await;
    }
    let id = app.create("A bird", "whimbrel", None).await.id;
    let before = (until("the conflicts", async || conflicts(world).await).await, world.answered());
    sqlx::raw_sql("CREATE TABLE churn AS SELECT n FROM generate_series(1, 100) n").execute(&app.pool).await.unwrap();
    let is_over = AtomicBool::new(false);
    let search = async || {
        while !is_over.load(Ordering::Relaxed) {
            let found = app.client.search_hybrid(Json(HybridSearch::new("whimbrel"))).await.unwrap();
            assert!(found.results.iter().any(|result| result.document.id == id), "{found:?}");
        }
    };
    // The rows that the primary removes are those that snapshots at the standbys still see.
    let churn = async {
        until("replay to end searches", async || {
            sqlx::raw_sql("UPDATE churn SET n = n + 1").execute(&app.pool).await.unwrap();
            sqlx::raw_sql("VACUUM churn").execute(&app.pool).await.unwrap();
            (conflicts(world).await? > before.0 + 5).then_some(())
        })
        .await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(churn, search(), search(), search(), search(), search(), search());
    assert!(world.answered() > before.1, "standbys were asked");
    for standby in &world.standbys {
        standby.set("ALTER SYSTEM RESET max_standby_streaming_delay").await;
    }
    sqlx::raw_sql("DROP TABLE churn").execute(&app.pool).await.unwrap();
    world.ready().await;
}

/// Which findings of standbys there are.
async fn troubles(app: &TestApp) -> Vec<(FindingKind, String)> {
    let found = app.client.list_findings().await.unwrap().findings.into_iter();
    let kinds = [FindingKind::StandbyAway, FindingKind::StandbyBehind];
    found.filter(|finding| kinds.contains(&finding.kind)).map(|finding| (finding.kind, finding.about)).collect()
}

async fn a_promoted_standby_shows_nothing_of_its_own(world: &World) {
    let app = &world.app;
    until("no finding", async || troubles(app).await.is_empty().then_some(())).await;
    let id = app.create("True", "A text.", None).await.id;
    let promoted = &world.standbys[0];
    until("the standby to have it", async || {
        promoted.ask::<bool>("SELECT EXISTS (SELECT FROM documents WHERE title = 'True')").await.then_some(())
    })
    .await;
    assert!(promoted.ask::<bool>("SELECT pg_promote()").await);
    promoted.ask::<i64>("UPDATE documents SET title = 'False' WHERE title = 'True' RETURNING id").await;
    for _ in 0..LOOKS {
        assert_eq!(world.title(TOKEN, id).await.as_deref(), Some("True"));
    }
    until("the finding", async || {
        let mut away = troubles(app).await.into_iter().filter(|(kind, _)| *kind == FindingKind::StandbyAway);
        away.any(|(_, about)| about.contains("takes writes")).then_some(())
    })
    .await;
}

async fn a_killed_standby_costs_nobody_an_answer(world: &World) {
    let app = &world.app;
    let id = app.create("Kept", "A text.", None).await.id;
    world.standbys[1].kill();
    for number in 0..LOOKS {
        assert_eq!(world.title(TOKEN, id).await.as_deref(), Some("Kept"), "read {number}");
    }
    until("both findings", async || (troubles(app).await.len() == 2).then_some(())).await;
    let check = until("the service to be ready all the same", async || {
        let ready = app.client.read_readiness().await.ok()?;
        ready.checks.into_iter().find(|check| check.name == CheckedPart::Standbys)
    })
    .await;
    assert!(!check.ok && check.detail.contains(&world.standbys[1].name()), "{check:?}");
}
