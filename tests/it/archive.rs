//! Parts of the tree that go from one store to another: the same up to ids, once each whatever is killed, and as closed as they were.
mod copies;
mod events;
mod hostile;
mod names;
mod odd;
mod rights;
mod round_trip;
mod searching;

use crate::{
    access::Random,
    cli::{lines, svc},
    edits::patched,
    principals::{grant, idle, someone},
    support::{PATIENCE, TOKEN, TestApp, Wish, document, http, invariants, queue_text, repository, sample, until},
};
use oxrdf::Term;
use oxttl::TurtleParser;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use svc_client::{
    FileUpload, Json, OptionalJson, RdfSyntax, RdfText,
    wire::{
        DocumentPath, FactPath, GrantRight, ImportQuery, Invalidation, NewBatch, NewFact, NewLink, NewPredicate,
        PageQuery, TaskQuery, UploadQuery, WaitQuery,
    },
};

/// Waits until every task is done.
async fn drained(app: &TestApp) {
    let done = until("the queue is empty", async || {
        app.client.list_tasks(TaskQuery::default()).await.unwrap().tasks.is_empty().then_some(())
    });
    if tokio::time::timeout(PATIENCE, done).await.is_err() {
        panic!("{}", queue_text(&app.pool).await);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `svc`, which must succeed, and returns its line.
async fn done(app: &TestApp, arguments: &[&str]) -> Value {
    let output = svc(app, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    lines(&output).remove(0)
}

fn moment(day: u32) -> chrono::DateTime<chrono::Utc> {
    format!("2024-01-{day:02}T00:00:00Z").parse().unwrap()
}

const WORDS: [&str; 8] = ["heron", "gauge", "river", "winter", "signal", "quiet", "count", "bridge"];

/// Fills a store at random: a tree with files, links, grants, and facts over both times.
async fn grow(app: &TestApp, seed: u64) -> Vec<i64> {
    let mut random = Random(seed);
    let (alice, bob) = (someone(app, "alice").await, someone(app, "bob").await);
    let mut batch: Vec<Value> = Vec::new();
    for number in 0..24_usize {
        let words: Vec<&str> = (0..6).map(|_| WORDS[random.below(WORDS.len())]).collect();
        let mut item = json!({"title": format!("{} {number}", words[0]), "content": words.join(" "), "key": number.to_string(),
            "structured_content": {"n": number, "nested": {"ü": [1.5, null, words[1]]}}, "private": random.below(8) == 0});
        if number > 2 && random.below(5) > 0 {
            item["parent_key"] = random.below(number).to_string().into();
        }
        if random.below(3) == 0 {
            item["position"] = i64::try_from(random.below(9)).unwrap().into();
            item["event_time"] = json!(moment(3));
        }
        batch.push(item);
    }
    let batch: NewBatch = serde_json::from_value(json!({"documents": batch})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap();
    let mut ids: Vec<i64> = made.documents.iter().map(|made| made.document_id).collect();
    for (name, at) in [("handbook.md", 1), ("duck-counts.xlsx", 4), ("release-notes.txt", 9)] {
        let upload = FileUpload::from_path(&sample(name), None).await.unwrap();
        let query = UploadQuery { parent_id: Some(ids[at]), ..UploadQuery::default() };
        ids.push(app.client.upload_file(query, upload).await.unwrap().document_id);
    }
    let empty = FileUpload::from_bytes("corrupt.pdf", fs::read(sample("corrupt.pdf")).unwrap(), None);
    ids.push(app.client.upload_file(UploadQuery::default(), empty).await.unwrap().document_id);
    drained(app).await;
    for _ in 0..12 {
        let (source, target) = (ids[random.below(ids.len())], ids[random.below(ids.len())]);
        let link_type = ["cites", "contains"][random.below(2)].to_owned();
        let metadata = json!({"why": WORDS[random.below(8)]}).as_object().unwrap().clone();
        let new = NewLink { target_id: target, link_type, score: Some(0.25), metadata };
        // Some are circles, or there already.
        let _ = app.client.create_link(DocumentPath { id: source }, Json(new)).await;
    }
    for right in [GrantRight::Read, GrantRight::Write] {
        grant(app, &alice, ids[random.below(ids.len())], right).await;
        grant(app, &bob, ids[random.below(ids.len())], right).await;
    }
    for (name, functional) in [("knows", false), ("weighs", true)] {
        let new = NewPredicate {
            name: name.to_owned(),
            functional,
            label: Some("a label".to_owned()),
            ..NewPredicate::default()
        };
        app.client.create_predicate(Json(new)).await.unwrap();
    }
    let text = "@prefix e: <http://e/> . e:a e:in e:b . e:b e:in _:c . _:c e:says 'hush'@en , '01.50'^^<http://www.w3.org/2001/XMLSchema#decimal> . e:a a e:Place .";
    let text = RdfText { syntax: RdfSyntax::Turtle, text: text.to_owned() };
    app.client.import_turtle(ImportQuery { parent_id: Some(ids[0]), ..ImportQuery::default() }, text).await.unwrap();
    let mut facts = Vec::new();
    for number in 0..16 {
        let from = 1 + random.below(9) as u32;
        let mut fact = json!({"subject_id": ids[random.below(ids.len())], "predicate": (["knows", "weighs"][number % 2]), "on_overlap": "merge"});
        match number % 2 {
            0 => fact["object_id"] = ids[random.below(ids.len())].into(),
            _ => fact["object_literal"] = format!("{}.50", random.below(3)).into(),
        }
        if random.below(3) > 0 {
            (fact["valid_from"], fact["valid_until"]) = (json!(moment(from)), json!(moment(from + 5)));
        }
        if random.below(2) == 0 {
            fact["source_id"] = ids[random.below(ids.len())].into();
        }
        if random.below(3) == 0 {
            fact["fact_type"] = "static".into();
        }
        let fact: NewFact = serde_json::from_value(fact).unwrap();
        facts.push(app.client.assert_fact(Json(fact)).await.unwrap().fact.id);
    }
    for id in facts.into_iter().step_by(4) {
        let what = Invalidation { valid_from: Some(moment(3)), valid_until: Some(moment(4)), reason: None };
        let _ = app.client.invalidate_fact(FactPath { id }, OptionalJson(Some(what))).await;
    }
    drained(app).await;
    ids
}

/// What an archive holds, with numbers in the order of its documents in place of their ids.
#[derive(Debug, PartialEq)]
struct Held {
    documents: Vec<Value>,
    links: BTreeSet<String>,
    grants: BTreeSet<String>,
    facts: BTreeSet<String>,
    blobs: BTreeSet<String>,
}

fn rows(folder: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn held(folder: &Path) -> Held {
    let mut documents = rows(folder, "documents.ndjson");
    let numbers: HashMap<i64, i64> =
        documents.iter().zip(0..).map(|(document, number)| (document["id"].as_i64().unwrap(), number)).collect();
    let renumber = |value: &mut Value| {
        if let Some(id) = value.as_i64() {
            *value = numbers.get(&id).copied().unwrap_or(-1).into();
        }
    };
    for document in &mut documents {
        for pointer in ["/id", "/parent", "/guard", "/container/root", "/anchor/source"] {
            document.pointer_mut(pointer).into_iter().for_each(renumber);
        }
        // A blank node gets its IRI where it is imported.
        if document["blank"] == true {
            document["iri"] = Value::Null;
        }
    }
    let named = |name: &str, ends: &[&str]| {
        let rows = rows(folder, name).into_iter().map(|mut row| {
            ends.iter().for_each(|end| renumber(&mut row[*end]));
            row.to_string()
        });
        rows.collect::<BTreeSet<String>>()
    };
    let files = fs::read_dir(folder.join("blobs")).unwrap().flatten();
    let blobs = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let links = named("links.ndjson", &["source", "target"]);
    Held { links, grants: named("grants.ndjson", &["document"]), facts: told(folder, &numbers), documents, blobs }
}

/// What is believed and asserted, with its times, type and source.
fn told(folder: &Path, numbers: &HashMap<i64, i64>) -> BTreeSet<String> {
    let text = fs::read(folder.join("facts.ttl")).unwrap();
    let mut described: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for triple in TurtleParser::new().for_slice(&text) {
        let triple = triple.unwrap();
        let number = |text: String| {
            let bare = text.trim_start_matches("<urn:svc:document/").trim_start_matches("_:b").trim_end_matches('>');
            let is_ours = text.starts_with("<urn:svc:document/") || text.starts_with("_:b");
            bare.parse()
                .ok()
                .filter(|_| is_ours)
                .map_or(text.clone(), |id: i64| format!("#{}", numbers.get(&id).copied().unwrap_or(-1)))
        };
        if triple.subject.to_string().contains("urn:svc:triple/") {
            let of = described.entry(triple.subject.to_string()).or_default();
            let object = match (&triple.object, triple.predicate.as_str().ends_with("Id")) {
                (Term::Literal(id), true) => {
                    id.value().parse().map_or(-1, |id: i64| numbers.get(&id).copied().unwrap_or(-1)).to_string()
                }
                (object, _) => number(object.to_string()),
            };
            of.entry(triple.predicate.to_string()).or_default().insert(object);
        }
    }
    let kept = described
        .into_values()
        .filter(|fact| !fact.keys().any(|key| key.contains("invalidatedAt") || key.contains("derivedBy")));
    kept.map(|mut fact| {
        fact.retain(|key, _| !key.contains("recordedAt"));
        format!("{fact:?}")
    })
    .collect()
}

/// What searches answer, without ids and in an order of their own among equals.
async fn found(app: &TestApp, token: &str) -> Vec<(String, Vec<(String, String, String)>)> {
    let mut all = Vec::new();
    for method in ["vector", "bm25", "fulltext", "hybrid"] {
        for query in ["heron river", "what to do when the radar gauge fails", "quiet bridge in winter"] {
            let url = format!("{}/search/{method}", app.base);
            let body = json!({"query": query, "limit": 100});
            let answer: Value =
                http().post(url).bearer_auth(token).json(&body).send().await.unwrap().json().await.unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut results: Vec<_> = answer["results"]
                .as_array()
                .unwrap_or_else(|| panic!("{answer}"))
                .iter()
                .map(|result| {
                    (
                        format!("{:.5}", result["score"].as_f64().unwrap()),
                        text(&result["title"]),
                        text(&result["content"]),
                    )
                })
                .collect();
            // What is equally good by words has a rank all the same, by which this method scores.
            if method == "hybrid" {
                results.iter_mut().for_each(|(score, ..)| score.clear());
            }
            results.sort();
            all.push((format!("{method} {query}"), results));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_of_an_export_is_the_same_up_to_ids_and_is_found_alike() {
    for seed in [7_919, 104_729, 15_485_863] {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let app = TestApp::start().await;
        grow(&app, seed).await;
        let exported = done(&app, &["export", first.to_str().unwrap()]).await;
        assert_eq!(exported["counts"]["files"], 4, "{exported}");
        let other = TestApp::start().await;
        for name in ["alice", "bob"] {
            someone(&other, name).await;
        }
        let imported = done(&other, &["import", first.to_str().unwrap()]).await;
        assert_eq!((&imported["documents"], &imported["existing"]), (&exported["counts"]["documents"], &json!(0)));
        // Nothing was embedded again that had a vector.
        assert_eq!(
            (&imported["vectors"], &imported["queued"]),
            (&exported["counts"]["vectors"], &json!(0)),
            "{imported}"
        );
        drained(&other).await;
        invariants::check_drained(&other.pool).await;
        done(&other, &["export", second.to_str().unwrap()]).await;
        let (was, is) = (held(&first), held(&second));
        for (was, is) in was.documents.iter().zip(&is.documents) {
            assert_eq!(is, was, "seed {seed}");
        }
        assert_eq!(is, was, "seed {seed}");
        assert!(was.facts.len() > 8 && !was.links.is_empty() && was.grants.len() >= 2, "{was:?}");
        assert_eq!(found(&other, TOKEN).await, found(&app, TOKEN).await, "seed {seed}");
        // Running it again changes nothing.
        let again = done(&other, &["import", first.to_str().unwrap()]).await;
        assert_eq!((&again["existing"], &again["files"]), (&exported["counts"]["documents"], &json!(0)), "{again}");
        assert_eq!(
            (again["links"]["created"].as_i64(), again["facts"]["created"].as_i64()),
            (Some(0), Some(0)),
            "{again}"
        );
        // A file can be ingested again.
        let (id,): (i64,) = sqlx::query_as("SELECT document_id FROM document_blobs b JOIN documents d ON d.id = b.document_id WHERE d.title = 'handbook.md'")
            .fetch_one(&other.pool)
            .await
            .unwrap();
        other.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
        other.settled(id).await;
        app.end().await;
        other.end().await;
    }
}

/// Starts `svc`, which is to be killed.
fn started(app: &TestApp, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(arguments).env("SVC_URL", &app.base).env("SVC_API_TOKEN", TOKEN).env("SVC_CONFIG", "/dev/null");
    command.current_dir(repository()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

async fn count(app: &TestApp) -> i64 {
    let all = "SELECT (SELECT count(*) FROM documents) + (SELECT count(*) FROM document_links) + (SELECT count(*) FROM document_blobs)
                      + (SELECT count(*) FROM triples) + (SELECT count(*) FROM access_grants)";
    sqlx::query_scalar(all).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_killed_at_any_step_goes_on_to_the_same_end() {
    let (app, other) = (idle().await, idle().await);
    let person = someone(&app, "alice").await;
    someone(&other, "alice").await;
    let mut ids = Vec::new();
    for part in 0..3 {
        let documents: Vec<Value> = (0..500)
            .map(|number| json!({"title": format!("{part} {number}"), "content": "", "key": format!("{part}:{number}"), "parent_key": (number > 0).then(|| format!("{part}:{}", number / 7))}))
            .collect();
        let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
        let made = app.client.create_documents(Json(batch)).await.unwrap();
        ids.extend(made.documents.iter().map(|made| made.document_id));
    }
    for number in 0..300_usize {
        let new = NewLink {
            target_id: ids[number + 1],
            link_type: "cites".to_owned(),
            score: None,
            metadata: Default::default(),
        };
        app.client.create_link(DocumentPath { id: ids[number * 4] }, Json(new)).await.unwrap();
    }
    for (number, id) in ids.iter().enumerate().step_by(300) {
        let upload = FileUpload::from_bytes("x.bin", vec![number as u8; 100_000 + number], None);
        app.client.upload_file(UploadQuery { parent_id: Some(*id), ..UploadQuery::default() }, upload).await.unwrap();
        grant(&app, &person, *id, GrantRight::Read).await;
    }
    let facts: Vec<Value> = (0..1_500)
        .map(|number| json!({"subject_id": ids[number], "predicate": "knows", "object_id": ids[0]}))
        .collect();
    let new = NewPredicate { name: "knows".to_owned(), ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    app.client.assert_facts(Json(serde_json::from_value(json!({"facts": facts})).unwrap())).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    done(&app, &["export", whole.to_str().unwrap()]).await;
    // Each time it comes a step further, as its journal says, and is killed there.
    let progress = folder.path().join("cut.part/progress.json");
    let mut steps = 0;
    loop {
        let before = fs::read(&progress).unwrap_or_default();
        let mut child = started(&app, &["export", cut.to_str().unwrap()]);
        let moved = until("a step or the end", async || {
            let ended = child.try_wait().unwrap();
            let now = fs::read(&progress).unwrap_or_default();
            (ended.is_some() || (!now.is_empty() && now != before)).then_some(ended)
        })
        .await;
        if let Some(status) = moved {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!cut.exists() && !folder.path().join("cut.part/manifest.json").exists(), "it looks whole");
        steps += 1;
    }
    // A busy machine may take some steps before the kill comes.
    assert!(steps >= 3, "{steps}");
    assert_eq!(held(&cut), held(&whole));

    let mut steps = 0;
    loop {
        let before = count(&other).await;
        let mut child = started(&other, &["import", cut.to_str().unwrap()]);
        let moved = until("a step or the end", async || {
            let ended = child.try_wait().unwrap();
            (ended.is_some() || count(&other).await > before).then_some(ended)
        })
        .await;
        if let Some(status) = moved {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        steps += 1;
    }
    assert!(steps >= 3, "{steps}");
    let again = folder.path().join("again");
    done(&other, &["export", again.to_str().unwrap()]).await;
    let (was, mut is) = (held(&whole), held(&again));
    // Here nobody has read the files yet: what was in flight is failed.
    let mut documents = was.documents.clone();
    for document in documents.iter_mut().filter(|document| document["settled"] == "in_flight") {
        document["settled"] = "failed".into();
    }
    for (was, is) in documents.iter().zip(&is.documents) {
        assert_eq!(is, was);
    }
    is.documents.clone_from(&was.documents);
    assert_eq!(is, was);
    invariants::check(&other.pool).await;
    app.end().await;
    other.end().await;
}

/// Three thousand documents under another one, or at the top.
async fn many(app: &TestApp, parent: Option<i64>) -> Vec<i64> {
    let mut ids = Vec::new();
    for part in 0..6 {
        let documents: Vec<Value> = (0..500)
            .map(|number| json!({"title": format!("{part} {number}"), "content": "", "parent_id": parent}))
            .collect();
        let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
        let made = app.client.create_documents(Json(batch)).await.unwrap();
        ids.extend(made.documents.iter().map(|made| made.document_id));
    }
    ids
}

/// Begins an export and kills it once it has some pages of documents, and not all.
async fn killed_between_pages(app: &TestApp, archive: &Path, more: &[&str]) {
    let progress = archive.with_extension("part").join("progress.json");
    loop {
        let mut child = started(app, &[&["export", archive.to_str().unwrap()][..], more].concat());
        until("a page or the end", async || (progress.exists() || archive.exists()).then_some(())).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let now: Value = fs::read(&progress).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap());
        if now["stage"] == "documents" && now["cursor"].is_string() {
            return;
        }
        // The kill came too late.
        let _ = fs::remove_dir_all(archive);
        let _ = fs::remove_dir_all(progress.parent().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_closed_between_two_pages_of_an_export_is_closed_where_it_comes_in() {
    let (app, other) = (idle().await, idle().await);
    let top = app.client.create_document(WaitQuery::default(), Json(document("Folder", ""))).await.unwrap().id;
    let ids = many(&app, Some(top)).await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    killed_between_pages(&app, &archive, &[]).await;
    // The page that has the folder says that it is open, and what is under it on later pages is closed by the folder alone.
    app.client.protect_document(DocumentPath { id: top }).await.unwrap();
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let rows = rows(&archive, "documents.ndjson");
    assert_eq!((rows.len(), rows[0]["private"].as_bool()), (ids.len() + 1, Some(true)));
    assert!(rows[1..].iter().all(|row| row["guard"] == rows[0]["id"]));
    let stranger = someone(&other, "stranger").await;
    done(&other, &["import", archive.to_str().unwrap()]).await;
    let seen = stranger.client.list_roots(PageQuery::default()).await.unwrap().documents;
    assert!(seen.is_empty(), "{seen:?}");
    let open: i64 =
        sqlx::query_scalar("SELECT count(*) FROM documents WHERE guard = 0").fetch_one(&other.pool).await.unwrap();
    assert_eq!(open, 0);
    app.end().await;
    other.end().await;
}

/// As ingestion moves the parts of a file into segments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_moves_between_two_pages_of_an_export_comes_once() {
    let (app, other) = (idle().await, idle().await);
    let ids = many(&app, None).await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    killed_between_pages(&app, &archive, &[]).await;
    patched(&app, ids[0], json!({"parent_id": ids[2_999]})).await;
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let exported: BTreeSet<i64> =
        rows(&archive, "documents.ndjson").iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!((exported.len(), rows(&archive, "documents.ndjson").len()), (3_000, 3_000));
    done(&other, &["import", archive.to_str().unwrap()]).await;
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subtree_that_moves_between_two_pages_of_its_export_comes_whole() {
    let app = idle().await;
    let mut made = Vec::new();
    for title in ["Before", "Folder", "After"] {
        made.push(app.client.create_document(WaitQuery::default(), Json(document(title, ""))).await.unwrap().id);
    }
    let [before, top, after] = made[..] else { panic!("{made:?}") };
    let (ids, under, folder) = (many(&app, Some(top)).await, top.to_string(), tempfile::tempdir().unwrap());
    // Where the next page began lies behind the subtree now, and then before it.
    for (name, parent) in [("one", before), ("other", after)] {
        let archive = folder.path().join(name);
        killed_between_pages(&app, &archive, &["--under", &under]).await;
        patched(&app, top, json!({"parent_id": parent})).await;
        done(&app, &["export", archive.to_str().unwrap(), "--under", &under]).await;
        let exported: BTreeSet<i64> =
            rows(&archive, "documents.ndjson").iter().map(|row| row["id"].as_i64().unwrap()).collect();
        assert_eq!(exported.len(), ids.len() + 1, "moved under {parent}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subtree_goes_under_another_document_and_vectors_of_another_model_are_made_anew() {
    let (app, other) = (TestApp::start().await, TestApp::with(Wish::default()).await);
    let top = app.create("Birds", "Herons wait in the reeds.", None).await.id;
    let child = app.create("Ducks", "Ducks count the winters.", Some(top)).await.id;
    let apart = app.create("Apart", "A lighthouse on a hill.", None).await.id;
    let link =
        |target_id| NewLink { target_id, link_type: "cites".to_owned(), score: None, metadata: Default::default() };
    app.client.create_link(DocumentPath { id: child }, Json(link(apart))).await.unwrap();
    app.client.create_link(DocumentPath { id: top }, Json(link(child))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("birds");
    let exported = done(&app, &["export", archive.to_str().unwrap(), "--under", &top.to_string()]).await;
    assert_eq!((&exported["counts"]["documents"], &exported["counts"]["links_outside"]), (&json!(2), &json!(1)));
    hostile::change(&archive, "documents.ndjson", |text| {
        let model = text.split("\"model\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        text.replace(&model, "another@model")
    });
    let under = other.create("Under it", "", None).await.id;
    let arguments = ["import", archive.to_str().unwrap(), "--under", &under.to_string()];
    let imported = done(&other, &arguments).await;
    assert_eq!((&imported["queued"], &imported["vectors"]), (&json!(2), &json!(0)), "{imported}");
    assert_eq!((&imported["links"]["created"], &imported["links"]["outside"]), (&json!(1), &json!(1)), "{imported}");
    drained(&other).await;
    let tree = other.subtree(under).await;
    assert_eq!(tree.iter().map(|document| document.title.as_str()).collect::<Vec<_>>(), ["Birds", "Ducks"]);
    assert_eq!(tree[1].path, [under, tree[0].id]);
    let found = found(&other, TOKEN).await;
    assert!(
        found.iter().any(|(of, results)| of.starts_with("vector") && results.iter().any(|found| found.1 == "Ducks"))
    );
    app.end().await;
    other.end().await;
}
