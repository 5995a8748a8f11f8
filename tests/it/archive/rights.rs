//! What an archive holds is what its caller may read, and an import gives nobody more than its caller has.
use super::{done, held, moment, rows, said};
use crate::{
    principals::{Someone, grant, idle, someone},
    rdf::import,
    support::{TestApp, document, repository, until_a_statement_like_this_waits},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Output},
};
use svc::store::{blobs, documents::content_hash, transaction};
use svc_client::{
    Code, FileUpload, Json, TurtleText,
    wire::{
        ArchivePart, DocumentPath, FactQuery, GrantPath, GrantRight, ImportQuery, ImportedArchive, NewBatch,
        NewDocument, NewFact, NewPredicate, OntologyQuery, PredicateQuery, PrincipalPath, ValidAt, WaitQuery,
    },
};

/// Runs `svc` as somebody.
pub async fn svc_as(app: &TestApp, who: &Someone, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(arguments).env("SVC_URL", &app.base).env("SVC_TOKEN", &who.secret).env("SVC_CONFIG", "/dev/null");
    command.current_dir(repository());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_closed_stays_out_and_stays_closed() {
    let (app, other) = (idle().await, idle().await);
    let (alice, bob) = (someone(&app, "alice").await, someone(&other, "bob").await);
    let carol = someone(&other, "carol").await;
    let documents = json!([{"title": "open", "content": "", "key": "open"}, {"title": "closed", "content": "", "key": "closed", "private": true},
        {"title": "within", "content": "", "key": "within", "parent_key": "closed", "private": true}, {"title": "below", "content": "", "parent_key": "within"},
        {"title": "hers", "content": "", "key": "hers", "private": true}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap();
    let [open, closed, within, _, hers] = [0, 1, 2, 3, 4].map(|at: usize| made.documents[at].document_id);
    // She reaches what is in a closed document, and not that document.
    grant(&app, &alice, within, GrantRight::Read).await;
    grant(&app, &alice, hers, GrantRight::Write).await;
    app.client
        .create_predicate(Json(NewPredicate { name: "knows".to_owned(), ..NewPredicate::default() }))
        .await
        .unwrap();
    for (source, text) in [(None, "all know"), (Some(hers), "she knows"), (Some(closed), "nobody knows")] {
        let fact = json!({"subject_id": open, "predicate": "knows", "object_literal": text, "source_id": source, "valid_from": moment(1)});
        let fact: NewFact = serde_json::from_value(fact).unwrap();
        app.client.assert_fact(Json(fact)).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
    let output = svc_as(&app, &alice, &["export", part.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    let titles: Vec<Value> = rows(&part, "documents.ndjson").into_iter().map(|row| row["title"].clone()).collect();
    assert_eq!(titles, ["open", "within", "below", "hers"]);
    let facts = fs::read_to_string(part.join("facts.ttl")).unwrap();
    assert!(facts.contains("she knows") && facts.contains("all know") && !facts.contains("nobody knows"), "{facts}");
    assert!(rows(&part, "grants.ndjson").is_empty(), "grants are the owner's to see");
    let all = rows(&part, "documents.ndjson");
    assert!(all[1]["detached"] == true && all[1]["private"] == true && all[1].get("parent").is_none(), "{}", all[1]);
    let refused = alice.client.export_grants(Default::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    let hidden =
        svc_as(&app, &alice, &["export", folder.path().join("x").to_str().unwrap(), "--under", &closed.to_string()])
            .await;
    assert!(said(&hidden).contains(&format!("no document {closed}")), "{}", said(&hidden));

    // He brings in a whole store as himself: all of it is his alone, and he gives nobody a grant.
    done(&app, &["export", whole.to_str().unwrap()]).await;
    let output = svc_as(&other, &bob, &["import", whole.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&imported["grants_left_out"], &imported["facts"]["created"]), (&json!(true), &json!(3)), "{imported}");
    let id = |title: &'static str| {
        let pool = other.pool.clone();
        async move {
            let id: i64 = sqlx::query_scalar("SELECT id FROM documents WHERE title = $1")
                .bind(title)
                .fetch_one(&pool)
                .await
                .unwrap();
            id
        }
    };
    for title in ["open", "closed", "within", "below", "hers"] {
        let path = DocumentPath { id: id(title).await };
        assert!(bob.client.read_document(path, Default::default()).await.is_ok(), "{title}");
        assert!(carol.client.read_document(path, Default::default()).await.is_err(), "{title}");
    }
    let grants: i64 = sqlx::query_scalar("SELECT count(*) FROM access_grants WHERE principal_id <> $1")
        .bind(bob.id)
        .fetch_one(&other.pool)
        .await
        .unwrap();
    assert_eq!(grants, 0);
    let output =
        svc_as(&other, &carol, &["import", whole.to_str().unwrap(), "--under", &id("hers").await.to_string()]).await;
    assert!(output.status.code() == Some(1) && said(&output).contains("no document"), "{}", said(&output));

    // The owner's import gives each principal of the same name what it had, and closes the facts of closed sources.
    let third = idle().await;
    let (alice, dave) = (someone(&third, "alice").await, someone(&third, "dave").await);
    let imported = done(&third, &["import", whole.to_str().unwrap()]).await;
    assert_eq!((&imported["grants"]["created"], &imported["facts"]["created"]), (&json!(2), &json!(3)), "{imported}");
    let query = || FactQuery { valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    for (who, facts) in [(&alice, 2), (&dave, 1)] {
        assert_eq!(who.client.list_facts(query()).await.unwrap().facts.len(), facts);
    }
    let granted = third.client.list_principal_grants(PrincipalPath { id: alice.id }, Default::default()).await.unwrap();
    assert_eq!(granted.grants.len(), 2);
    let again = folder.path().join("again");
    done(&third, &["export", again.to_str().unwrap()]).await;
    assert_eq!(held(&again), held(&whole));
    // What she may no longer write here, a repeated import does not give back.
    let written = granted.grants.iter().find(|grant| grant.right == GrantRight::Write).unwrap().document_id;
    grant(&third, &alice, written, GrantRight::Read).await;
    let repeated = done(&third, &["import", whole.to_str().unwrap()]).await;
    assert_eq!((&repeated["grants"]["created"], &repeated["grants"]["existing"]), (&json!(0), &json!(2)), "{repeated}");
    let granted = third.client.list_principal_grants(PrincipalPath { id: alice.id }, Default::default()).await.unwrap();
    assert!(granted.grants.iter().all(|grant| grant.right == GrantRight::Read));
    for app in [app, other, third] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_graphs_come_back_with_their_facts_each_in_its_own_place() {
    let (app, other) = (idle().await, idle().await);
    let documents =
        json!([{"title": "one", "content": "", "private": true}, {"title": "two", "content": "", "private": true}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap();
    // One IRI stands for a document in each of the two.
    for (document, name) in made.documents.iter().zip(["one", "two"]) {
        let query = ImportQuery { parent_id: Some(document.document_id), ..ImportQuery::default() };
        let text = format!("<http://e/ann> <http://e/is> '{name}' ; <http://e/knows> <http://e/bea> .");
        import(&app.client, query, &text).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!((&imported["facts"]["created"], &imported["facts"]["outside"]), (&json!(4), &json!(0)), "{imported}");
    let beside: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM triples t JOIN documents s ON s.id = t.subject_id JOIN documents r ON r.id = t.source_id
           LEFT JOIN documents o ON o.id = t.object_id WHERE s.guard = r.id AND coalesce(o.guard, s.guard) = s.guard",
    )
    .fetch_one(&other.pool)
    .await
    .unwrap();
    assert_eq!(beside, 4);
    for app in [app, other] {
        app.end().await;
    }
}

/// What a principal reads of facts, and of predicates.
async fn known(who: &Someone) -> (Vec<String>, Vec<String>) {
    let facts = who.client.list_facts(FactQuery::default()).await.unwrap().facts;
    let mut said: Vec<String> = facts.into_iter().filter_map(|fact| fact.object_literal).collect();
    said.sort();
    let listed = who.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    (said, listed.into_iter().map(|predicate| predicate.iri).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_comes_back_to_the_document_that_it_was_about_whoever_has_its_iri() {
    let (app, other) = (idle().await, idle().await);
    let text = |name: &str| format!("<http://e/ann> <http://e/says> '{name}' .");
    let (alice, bob) = (someone(&app, "alice").await, someone(&app, "bob").await);
    import(&app.client, ImportQuery::default(), &text("owner")).await.unwrap();
    // What a principal imports at the top is closed to others, and no document states it.
    import(&alice.client, ImportQuery::default(), &text("alice")).await.unwrap();
    import(&bob.client, ImportQuery::default(), &text("bob")).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let mut named = Vec::new();
    for name in ["alice", "bob", "stranger"] {
        named.push(someone(&other, name).await);
    }
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!((&imported["facts"]["created"], &imported["facts"]["outside"]), (&json!(3), &json!(0)), "{imported}");
    for (who, facts) in named.iter().zip([&["alice", "owner"][..], &["bob", "owner"], &["owner"]]) {
        assert_eq!(known(who).await.0, facts);
    }
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_closed_texts_say_is_named_to_nobody_else_after_a_round_trip() {
    let (app, other) = (idle().await, idle().await);
    let closed = NewDocument { private: true, ..document("Plans", "") };
    let closed = app.client.create_document(WaitQuery::default(), Json(closed)).await.unwrap().id;
    let query = ImportQuery { parent_id: Some(closed), ..ImportQuery::default() };
    import(&app.client, query, "<http://e/acme> <http://e/plannedLayoffOf> '40' .").await.unwrap();
    let ontology = "<http://e/o> a <http://www.w3.org/2002/07/owl#Ontology> .
        <http://e/plannedLayoffOf> a <http://www.w3.org/2002/07/owl#FunctionalProperty> ; <http://www.w3.org/2000/01/rdf-schema#label> 'planned layoff' .
        <http://e/shown> a <http://www.w3.org/2002/07/owl#FunctionalProperty> .";
    let query = OntologyQuery { parent_id: Some(closed), ..OntologyQuery::default() };
    app.client.create_ontology(query, TurtleText(ontology.to_owned())).await.unwrap();
    // An extracted predicate, as texts bring them.
    sqlx::query(
        "INSERT INTO predicates (namespace, name, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive, is_irreflexive,
                sub_property_of, disjoint_with, is_declared) VALUES ('extracted', 'works for', false, false, false, false, false, false, '{}', '{}', false)",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let fact = json!({"subject_id": closed, "predicate": "extracted:works for", "object_literal": "Acme", "source_id": closed});
    app.client.assert_fact(Json(serde_json::from_value(fact).unwrap())).await.unwrap();
    import(&app.client, ImportQuery::default(), "<http://e/b> <http://e/shown> 'x' .").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let predicates = fs::read_to_string(archive.join("predicates.ndjson")).unwrap();
    assert!(predicates.contains("http://e/shown") && !predicates.contains("lanned"), "{predicates}");

    let stranger = someone(&other, "stranger").await;
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!(imported["facts"]["outside"], 0, "{imported}");
    assert_eq!(known(&stranger).await, (vec!["x".to_owned()], vec!["http://e/shown".to_owned()]));
    let shown = stranger.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    assert!(!shown[0].functional, "a closed ontology holds for nobody else");
    let all = other.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    let iris: BTreeSet<&str> = all.iter().map(|predicate| predicate.iri.as_str()).collect();
    assert!(iris.contains("http://e/plannedLayoffOf") && iris.iter().any(|iri| iri.contains("extracted/works")));

    // A principal brings the same in, though only the owner declares such predicates.
    let third = idle().await;
    let bob = someone(&third, "bob").await;
    let output = svc_as(&third, &bob, &["import", archive.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(imported["facts"]["outside"], 0, "{imported}");
    assert_eq!(known(&bob).await.0, ["40", "Acme", "x"]);
    for app in [app, other, third] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_about_what_its_importer_may_only_read_is_left_out_and_the_others_come_in() {
    let (app, other) = (idle().await, idle().await);
    let (alice, bob) = (someone(&app, "alice").await, someone(&other, "bob").await);
    for client in [&app.client, &other.client] {
        import(client, ImportQuery::default(), "<http://e/acme> <http://e/is> 'a company' .").await.unwrap();
    }
    let notes = app.client.create_document(WaitQuery::default(), Json(document("Notes", ""))).await.unwrap().id;
    let new = NewPredicate { name: "says".to_owned(), ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    for (field, about) in [("subject_iri", json!("http://e/acme")), ("subject_id", json!(notes))] {
        let fact = json!({field: about, "predicate": "says", "object_literal": "hello", "source_id": notes});
        app.client.assert_fact(Json(serde_json::from_value(fact).unwrap())).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let arguments = ["export", archive.to_str().unwrap(), "--under", &notes.to_string()];
    let output = svc_as(&app, &alice, &arguments).await;
    assert!(output.status.success(), "{}", said(&output));

    let output = svc_as(&other, &bob, &["import", archive.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(imported["facts"], json!({"created": 1, "merged": 0, "existing": 0, "outside": 1, "left_out": 0}));
    let about: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM triples t JOIN graph_nodes g ON g.document_id = t.subject_id WHERE g.iri = 'http://e/acme'",
    )
    .fetch_one(&other.pool)
    .await
    .unwrap();
    assert_eq!(about, 1, "what the owner imported");
    assert_eq!(known(&bob).await.0, ["a company", "hello"]);
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_documents_come_back_without_their_parents_as_somebody_may_read() {
    let (app, other) = (idle().await, idle().await);
    let alice = someone(&app, "alice").await;
    let mut documents = vec![json!({"title": "folder", "content": "", "key": "folder", "private": true})];
    for number in 0..300 {
        let title = format!("note {number}");
        documents.push(json!({"title": title, "content": "", "parent_key": "folder", "private": true}));
    }
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    app.client.create_documents(Json(batch)).await.unwrap();
    // She reaches each of the notes, and not their folder.
    sqlx::query(
        "INSERT INTO access_grants (principal_id, document_id, can_write)
         SELECT $1, id, false FROM documents WHERE starts_with(title, 'note')",
    )
    .bind(alice.id)
    .execute(&app.pool)
    .await
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let output = svc_as(&app, &alice, &["export", archive.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    assert!(rows(&archive, "documents.ndjson").iter().all(|row| row["detached"] == true));
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!(imported["documents"], 300, "{imported}");
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_waited_are_stored_by_the_rights_that_their_sender_still_has() {
    const TEXT: &str = "The heron waits.";
    let app = idle().await;
    let alice = someone(&app, "alice").await;
    let folder = NewDocument { private: true, ..document("Folder", "") };
    let folder = app.client.create_document(WaitQuery::default(), Json(folder)).await.unwrap().id;
    grant(&app, &alice, folder, GrantRight::Write).await;
    let hash = content_hash(TEXT);
    let part: ArchivePart = serde_json::from_value(json!({"documents": [{
        "id": 1, "title": "heron.txt", "content": "", "usetype": "file", "settled": "settled", "content_hash": hash,
        "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z",
        "file": {"byte_size": TEXT.len(), "content_hash": hash, "options": {}}}]}))
    .unwrap();
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: Some(folder) };
    let id = alice.client.import_documents(of, Json(part)).await.unwrap().documents[0].document_id;
    // Others bring the same bytes at the same time.
    let mut others = transaction::begin(&app.pool).await.unwrap();
    blobs::lock_hash(&mut others, &hash).await.unwrap();
    let client = alice.client.clone();
    let sending = tokio::spawn(async move {
        let upload = FileUpload::from_bytes("heron.txt", TEXT, None);
        client.import_bytes(DocumentPath { id }, Default::default(), upload).await
    });
    until_a_statement_like_this_waits(&app.pool, "%pg_advisory_xact_lock%").await;
    app.client.delete_grant(GrantPath { id: folder, principal_id: alice.id }).await.unwrap();
    others.rollback().await.unwrap();
    let refused = sending.await.unwrap().unwrap_err();
    assert_eq!(refused.code, Code::NotFound, "{refused}");
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM document_blobs").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);
    app.end().await;
}
