//! Entities that are taken for one, by hand and by what texts call them.
use crate::{
    extraction::{app, entities, extract, facts, said, text},
    principals::{grant, idle, someone},
    support::{
        TestApp, invariants,
        llm::{Llm, Reply},
        statements, until,
    },
    triples::{doc, fact, predicate, under},
};
use chrono::{DateTime, Utc};
use pgvector::HalfVector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc::store::{entities as names, merges, scope::Readable};
use svc_client::{
    Code, Json,
    wire::{
        CentralityQuery, DocumentChange, DocumentPath, ExtractFactsRequest, FactPath, FactQuery, FactResponse,
        GrantRight, LintAudit, LintRequest, MergeMethod, MergePath, MergeQuery, NeighborQuery, NewFact, NewMerge,
        NewPredicate, PageQuery, PathLimit, PathSearch, ResolveNames, TurtleQuery, ValidAt, WaitQuery,
    },
};
use svc_ids::DocumentId;

async fn merge(app: &TestApp, kept_id: i64, merged_id: i64) -> i64 {
    app.client.merge_entities(Json(NewMerge { kept_id, merged_id })).await.unwrap().id
}

/// Every answer about these documents, to the byte, but the moments that it repeats.
async fn answers(app: &TestApp, ids: &[i64], known_at: Option<DateTime<Utc>>) -> String {
    let valid_at = "2024-06-01T00:00:00Z".parse().unwrap();
    let mut all: Vec<Value> = Vec::new();
    for subject_id in ids.iter().copied().map(Some).chain([None]) {
        let query = FactQuery { subject_id, valid_at: Some(ValidAt::At(valid_at)), known_at, ..FactQuery::default() };
        all.push(json!(app.client.list_facts(query.clone()).await.unwrap().facts));
        let query = FactQuery { subject_id: None, object_id: subject_id, ..query };
        all.push(json!(app.client.list_facts(query).await.unwrap().facts));
    }
    for from in ids {
        for to in ids {
            let search =
                PathSearch { valid_at: Some(valid_at), known_at, limit: Some(10), ..PathSearch::new(*from, *to) };
            let mut found = json!(app.client.find_paths(Json(search)).await.unwrap());
            found["known_at"] = Value::Null;
            all.push(found);
        }
        for depth in [1, 2] {
            let query = NeighborQuery {
                document_id: *from,
                depth: Some(depth),
                valid_at: Some(valid_at),
                known_at,
                ..NeighborQuery::default()
            };
            let mut found = json!(app.client.find_neighbors(query).await.unwrap());
            found["known_at"] = Value::Null;
            all.push(found);
        }
    }
    serde_json::to_string(&all).unwrap()
}

/// What each fact, the audits, the ranks and an export say now, to the byte.
async fn now(app: &TestApp) -> String {
    let mut all: Vec<Value> = Vec::new();
    let query = FactQuery { valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    for fact in app.client.list_facts(query).await.unwrap().facts {
        let path = FactPath { id: fact.id };
        all.push(json!(app.client.read_fact(path).await.unwrap()));
        all.push(json!(app.client.read_fact_history(path, PageQuery::default()).await.unwrap().facts));
    }
    let audits = Some(vec![LintAudit::Orphan, LintAudit::Contradiction]);
    for audit in app.client.lint_graph(Json(LintRequest { audits, ..LintRequest::default() })).await.unwrap().audits {
        all.push(json!(audit.findings));
    }
    all.push(json!(app.client.rank_documents(CentralityQuery::default()).await.unwrap().results));
    all.push(json!(crate::rdf::canonical(&crate::rdf::export(&app.client, TurtleQuery::default()).await)));
    serde_json::to_string(&all).unwrap()
}

#[tokio::test]
async fn merged_documents_are_one_in_lists_and_paths_and_an_undone_merge_restores_every_answer() {
    let app = TestApp::start().await;
    predicate(&app, "knows").await;
    let [ada, lovelace, countess, bea, cora] = [
        doc(&app, "Ada").await,
        doc(&app, "Lovelace").await,
        doc(&app, "Countess").await,
        doc(&app, "Bea").await,
        doc(&app, "Cora").await,
    ];
    for (from, to) in [(bea, ada), (lovelace, cora), (countess, bea)] {
        app.client.assert_fact(Json(fact(from, "knows", to))).await.unwrap();
    }
    let all = [ada, lovelace, countess, bea, cora];
    let before = answers(&app, &all, None).await;
    let whole = now(&app).await;
    let known = app.client.list_facts(FactQuery::default()).await.unwrap().known_at;

    let first = merge(&app, ada, lovelace).await;
    let second = merge(&app, lovelace, countess).await;
    let stated: Vec<(i64, Option<i64>)> = {
        let query = FactQuery { subject_id: Some(lovelace), ..FactQuery::default() };
        let facts = app.client.list_facts(query).await.unwrap().facts;
        facts.iter().map(|fact| (fact.subject_id, fact.stated_subject_id)).collect()
    };
    assert_eq!(stated, [(ada, Some(lovelace)), (ada, Some(countess))], "all of the set, by the id that was kept");
    let path = app.client.find_paths(Json(PathSearch::new(bea, cora))).await.unwrap().paths;
    let steps: Vec<(i64, i64, Option<i64>, bool)> = path[0]
        .steps
        .iter()
        .map(|step| (step.subject_id, step.object_id, step.stated_subject_id, step.forward))
        .collect();
    assert_eq!(
        steps,
        [(bea, ada, None, true), (ada, cora, Some(lovelace), true)],
        "two facts meet in one of whom two are said"
    );
    let same = app.client.find_paths(Json(PathSearch::new(ada, countess))).await.unwrap().paths;
    assert_eq!((same.len(), same[0].length), (1, 0), "they are one");
    let twice =
        app.client.merge_entities(Json(NewMerge { kept_id: countess, merged_id: ada })).await.expect_err("one already");
    assert_eq!((twice.code, &twice.members["document_ids"]), (Code::Conflict, &json!([ada, lovelace, countess])));
    assert_eq!(answers(&app, &all, Some(known)).await, before, "what was known before is known so for ever");
    let merged = answers(&app, &all, None).await;
    assert_ne!(merged, before);
    assert_ne!(now(&app).await, whole);
    let after = app.client.list_facts(FactQuery::default()).await.unwrap().known_at;

    for id in [first, second] {
        app.client.undo_merge(MergePath { id }).await.unwrap();
        assert_eq!(app.client.undo_merge(MergePath { id }).await.expect_err("undone").code, Code::Conflict);
    }
    assert_eq!(answers(&app, &all, None).await, before, "an undone merge leaves no trace");
    assert_eq!(now(&app).await, whole);
    assert_eq!(answers(&app, &all, Some(after)).await, merged, "but what was known while it was in force");
    assert!(app.client.list_merges(MergeQuery::default()).await.unwrap().merges.is_empty());
    let undone = app.client.list_merges(MergeQuery { undone: true, ..MergeQuery::default() }).await.unwrap().merges;
    assert_eq!(
        undone.iter().map(|merge| (merge.id, merge.method)).collect::<Vec<_>>(),
        [(first, MergeMethod::Manual), (second, MergeMethod::Manual)]
    );
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// The subject and the object of a fact, each with the document that it was stated of.
type Ends = (i64, Option<i64>, i64, Option<i64>);

#[tokio::test]
async fn merged_documents_are_one_among_neighbors_and_in_the_audit_of_contradictions() {
    let app = TestApp::start().await;
    let flag = |name: &str| NewPredicate { name: name.to_owned(), ..NewPredicate::default() };
    for new in [
        NewPredicate { functional: true, ..flag("leads") },
        NewPredicate { inverse_functional: true, ..flag("badge") },
        NewPredicate { functional: true, ..flag("born") },
    ] {
        app.client.create_predicate(Json(new)).await.unwrap();
    }
    let [ada, lovelace, team, crew, bea] = [
        doc(&app, "Ada").await,
        doc(&app, "Lovelace").await,
        doc(&app, "Team").await,
        doc(&app, "Crew").await,
        doc(&app, "Bea").await,
    ];
    let born = |id| NewFact { object_id: None, object_literal: Some("1815".to_owned()), ..fact(id, "born", 0) };
    for new in [
        fact(ada, "leads", team),
        fact(lovelace, "leads", crew),
        fact(ada, "badge", team),
        fact(lovelace, "badge", team),
        fact(crew, "badge", bea),
        born(ada),
        born(lovelace),
    ] {
        app.client.assert_fact(Json(new)).await.unwrap();
    }
    let contradictions = async || -> Vec<String> {
        let asked = LintRequest { audits: Some(vec![LintAudit::Contradiction]), ..LintRequest::default() };
        let found = app.client.lint_graph(Json(asked)).await.unwrap().audits.remove(0).findings;
        found.into_iter().map(|finding| finding.predicate.unwrap()).collect()
    };
    let around = async |id: i64| -> (Vec<i64>, Vec<Ends>) {
        let query = NeighborQuery { document_id: id, ..NeighborQuery::default() };
        let found = app.client.find_neighbors(query).await.unwrap();
        let facts = found.facts.iter();
        let facts = facts.map(|fact| (fact.subject_id, fact.stated_subject_id, fact.object_id, fact.stated_object_id));
        (found.documents.iter().map(|near| near.document.document_id).collect(), facts.collect())
    };
    // One badge of two people is wrong, and nobody is known to be somebody else.
    assert_eq!(contradictions().await, ["default:badge"]);
    assert_eq!(around(ada).await.0, [ada, team]);
    let people = merge(&app, ada, lovelace).await;
    assert_eq!(
        contradictions().await,
        ["default:leads"],
        "one person leads two teams, has one badge, and was born once"
    );
    for id in [ada, lovelace] {
        let (documents, facts) = around(id).await;
        assert_eq!(documents, [ada, team, crew]);
        assert!(
            facts.contains(&(ada, Some(lovelace), crew, None)) && facts.contains(&(ada, None, team, None)),
            "{facts:?}"
        );
    }
    let teams = merge(&app, team, crew).await;
    assert!(contradictions().await.is_empty(), "and the teams are one");
    assert_eq!(around(bea).await, (vec![bea, team], vec![(team, Some(crew), bea, None)]));
    for id in [people, teams] {
        app.client.undo_merge(MergePath { id }).await.unwrap();
    }
    assert_eq!((contradictions().await, around(ada).await.0), (vec!["default:badge".to_owned()], vec![ada, team]));
    app.end().await;
}

/// Documents that a test makes at once.
async fn many(app: &TestApp, count: i32) -> Vec<i64> {
    sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, content_hash, guard)
         SELECT 'One of many', '', 'entity', 'sha256:', 0 FROM generate_series(1, $1) RETURNING id",
    )
    .bind(count)
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

/// Merges that a test makes at once.
async fn plant(app: &TestApp, pairs: impl Iterator<Item = (i64, i64)>) {
    let (kept, merged): (Vec<i64>, Vec<i64>) = pairs.unzip();
    sqlx::query(
        "INSERT INTO entity_merges (kept_id, merged_id, method, merged_at)
         SELECT m.kept, m.merged, 'manual', p.at FROM (SELECT take_pen() AS at OFFSET 0) p CROSS JOIN unnest($1::bigint[], $2::bigint[]) m(kept, merged)",
    )
    .bind(kept)
    .bind(merged)
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test]
async fn what_is_merged_more_than_a_read_looks_at_is_read_whole_or_said_to_be_left_out() {
    let app = idle().await;
    predicate(&app, "knows").await;
    let [ada, near, far, bea, cora] = [
        doc(&app, "Ada").await,
        doc(&app, "Near").await,
        doc(&app, "Far").await,
        doc(&app, "Bea").await,
        doc(&app, "Cora").await,
    ];
    // Each of these is merged with each other one, which is more than 100,000 merges; Ada is on one side of them, and Far two steps beyond.
    let clique = many(&app, 460).await;
    let within = clique.iter().enumerate().flat_map(|(at, one)| clique[at + 1..].iter().map(|other| (*one, *other)));
    let around = [(ada, clique[0]), (clique[459], near), (near, far)];
    plant(&app, within.chain(around)).await;
    let twin = merge(&app, cora, doc(&app, "Coraline").await).await;
    for (from, to) in [(far, cora), (bea, ada)] {
        app.client.assert_fact(Json(fact(from, "knows", to))).await.unwrap();
    }
    let query = FactQuery { subject_id: Some(ada), ..FactQuery::default() };
    let of_ada = app.client.list_facts(query).await.unwrap().facts;
    let ends = |fact: &FactResponse| (fact.subject_id, fact.stated_subject_id, fact.object_id);
    assert_eq!(of_ada.iter().map(ends).collect::<Vec<_>>(), [(ada, Some(far), Some(cora))]);
    let all = app.client.list_facts(FactQuery::default()).await.unwrap().facts;
    assert_eq!(all.iter().map(ends).collect::<Vec<_>>(), [(ada, Some(far), Some(cora)), (bea, None, Some(ada))]);
    // A search begins with whole sets, and gives up where it comes to one that is too large.
    let path = async |from, to| {
        let found = app.client.find_paths(Json(PathSearch::new(from, to))).await.unwrap();
        (found.paths.first().map(|path| path.length), found.truncated)
    };
    assert_eq!(path(ada, cora).await, (Some(1), None));
    assert_eq!(path(bea, cora).await, (None, Some(PathLimit::Nodes)));
    let query = NeighborQuery { document_id: bea, ..NeighborQuery::default() };
    assert!(app.client.find_neighbors(query).await.unwrap().truncated);
    let asked = LintRequest { audits: Some(vec![LintAudit::Contradiction]), ..LintRequest::default() };
    assert!(app.client.lint_graph(Json(asked.clone())).await.unwrap().audits.remove(0).truncated);

    // No set comes to have more than a thousand documents.
    let others = many(&app, 600).await;
    plant(&app, others[1..].iter().map(|other| (others[0], *other))).await;
    let refused = app.client.merge_entities(Json(NewMerge { kept_id: ada, merged_id: others[7] })).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["reason"]), (Code::Conflict, &json!("set_too_large")));
    assert!(refused.detail.contains("more than 1000 would be one"), "{}", refused.detail);
    merge(&app, ada, bea).await;
    merge(&app, cora, others[0]).await;
    app.client.undo_merge(MergePath { id: twin }).await.unwrap();
    sqlx::query("DELETE FROM documents WHERE id = ANY($1)")
        .bind([clique, others].concat())
        .execute(&app.pool)
        .await
        .unwrap();
    assert!(!app.client.lint_graph(Json(asked)).await.unwrap().audits.remove(0).truncated);
    app.end().await;
}

/// What the model answers about a text in which a company pays.
fn pays(subject: &str) -> Reply {
    facts(&[said(json!({
        "subject": subject, "subject_type": "company", "predicate": "pays", "object": "7", "object_kind": "literal", "object_type": null,
        "datatype": "xsd:integer", "quote": format!("{subject} pays 7"),
    }))])
}

#[tokio::test]
async fn a_near_name_is_found_among_thousands() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_EXTRACTION_ENTITY_SIMILARITY_THRESHOLD", "0.5")]).await;
    let first = text(&app, "Acme Corporation pays 7.", None).await;
    llm.will([pays("Acme Corporation")]);
    assert_eq!(extract(&app.client, first, ExtractFactsRequest::default()).await.entities, 1);
    // All that came later means something else, also where no number of the names says so.
    let others = many(&app, 2_500).await;
    sqlx::query(
        "INSERT INTO entity_names (document_id, zone, name_key, type_key, embed, embed_model)
         SELECT o.id, 0, 'another ' || translate(o.id::text, '0123456789', 'abcdefghij'), '', (ARRAY(SELECT random() - 0.5 FROM generate_series(1, vector_dims(n.embed)) WHERE o.id > 0))::halfvec, n.embed_model
           FROM unnest($1::bigint[]) o(id) CROSS JOIN entity_names n WHERE n.name_key = 'acme corporation'",
    )
    .bind(&others)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE entity_names").execute(&app.pool).await.unwrap();
    let second = text(&app, "Acme Corporation Ltd pays 7.", None).await;
    llm.will([pays("Acme Corporation Ltd")]);
    let done = extract(&app.client, second, ExtractFactsRequest::default()).await;
    assert_eq!((done.entities, done.merges), (1, 1), "{done:?}");
    let merges = app.client.list_merges(MergeQuery::default()).await.unwrap().merges;
    assert_eq!((merges[0].kept_title.as_str(), merges[0].method), ("Acme Corporation", MergeMethod::Similarity));
    // The planner takes the index of its own accord where there are more names. Where it may not sort, the index alone gives the nearest ones
    // in their order, if the statement names what the index is of.
    let (model, vector): (String, HalfVector) =
        sqlx::query_as("SELECT embed_model, embed FROM entity_names WHERE name_key = 'acme corporation'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    let mut tx = app.pool.begin().await.unwrap();
    let narrow = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off";
    sqlx::raw_sql(narrow).execute(&mut *tx).await.unwrap();
    let scans = "SELECT pg_stat_get_xact_numscans(c.oid) FROM pg_indexes i JOIN pg_class c ON c.relname = i.indexname
                  WHERE i.tablename = 'entity_names' AND i.indexdef LIKE '%USING hnsw%'";
    let before: Vec<i64> = sqlx::query_scalar(scans).fetch_all(&mut *tx).await.unwrap();
    let near = names::near(&mut tx, DocumentId(0), &model, &[vector], DocumentId(0), 0.5).await.unwrap();
    let found: Vec<&str> = near.iter().map(|near| near.name_key.as_str()).collect();
    assert_eq!(found, ["acme corporation", "acme corporation ltd"], "those that are near enough, and no others");
    let after: Vec<i64> = sqlx::query_scalar(scans).fetch_all(&mut *tx).await.unwrap();
    assert!(before.len() == 1 && after[0] > before[0], "the one index of the model was read: {before:?}, {after:?}");
    tx.rollback().await.unwrap();

    // What is not near enough is another thing, whatever else it could be: the vectors of both names now lead away from theirs.
    sqlx::query("UPDATE entity_names SET embed = embed - embed - embed WHERE name_key LIKE 'acme%'")
        .execute(&app.pool)
        .await
        .unwrap();
    let third = text(&app, "Acme Corporation Group pays 7.", None).await;
    llm.will([pays("Acme Corporation Group")]);
    let done = extract(&app.client, third, ExtractFactsRequest::default()).await;
    assert_eq!((done.entities, done.merges), (1, 0), "{done:?}");
    sqlx::query("DELETE FROM documents WHERE id = ANY($1)").bind(others).execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_name_that_another_model_has_embedded_is_compared_by_the_one_that_serves() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_EXTRACTION_ENTITY_SIMILARITY_THRESHOLD", "0.5")]).await;
    let first = text(&app, "Acme Corporation pays 7.", None).await;
    llm.will([pays("Acme Corporation")]);
    assert_eq!(extract(&app.client, first, ExtractFactsRequest::default()).await.entities, 1);
    // All vectors have moved to the model that serves now, and the document has another title since.
    let (id, _) = entities(&app).await.remove(0);
    // A node that is being embedded refuses a change.
    app.settled(id).await;
    let change = DocumentChange { title: Some("Quite another thing".to_owned()), ..DocumentChange::default() };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.update_document(DocumentPath { id }, wait, Json(change)).await.unwrap();
    sqlx::raw_sql("UPDATE entity_names SET embed_model = 'a model of before', embed = embed - embed - embed")
        .execute(&app.pool)
        .await
        .unwrap();
    let second = text(&app, "Acme Corporation Ltd pays 7.", None).await;
    llm.will([pays("Acme Corporation Ltd")]);
    let done = extract(&app.client, second, ExtractFactsRequest::default()).await;
    assert_eq!((done.entities, done.merges), (1, 1), "{done:?}");
    let models: Vec<(Option<String>, i64)> =
        sqlx::query_as("SELECT embed_model, count(*) FROM entity_names GROUP BY 1").fetch_all(&app.pool).await.unwrap();
    assert!(models.len() == 1 && models[0].1 == 2 && models[0].0.is_some(), "{models:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Two services with different models would embed each other's names anew for every text.
#[tokio::test]
async fn a_name_that_a_model_in_use_has_embedded_keeps_its_vector() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_EXTRACTION_ENTITY_SIMILARITY_THRESHOLD", "0.5")]).await;
    let models = async || -> BTreeMap<String, i64> {
        let counted = "SELECT embed_model, count(*) FROM entity_names GROUP BY 1";
        let counted: Vec<(String, i64)> = sqlx::query_as(counted).fetch_all(&app.pool).await.unwrap();
        counted.into_iter().collect()
    };
    let read = async |name: &str| {
        let id = text(&app, &format!("{name} pays 7."), None).await;
        llm.will([pays(name)]);
        assert_eq!(extract(&app.client, id, ExtractFactsRequest::default()).await.entities, 1, "{name}");
        id
    };
    let first = read("Acme Corporation").await;
    let ours = models().await.into_keys().next().unwrap();
    // Another service has embedded the text and the name.
    until("the vector of the text", async || {
        let by_another = "UPDATE document_vectors SET embed_model = 'another' WHERE document_id = $1";
        let done = sqlx::query(by_another).bind(first).execute(&app.pool).await.unwrap();
        (done.rows_affected() == 1).then_some(())
    })
    .await;
    sqlx::raw_sql("UPDATE entity_names SET embed_model = 'another'").execute(&app.pool).await.unwrap();
    read("Bolt Works").await;
    let beside = BTreeMap::from([(ours.clone(), 1), ("another".to_owned(), 1)]);
    assert_eq!(models().await, beside, "the other service goes on with its name");
    // All vectors have moved to this model.
    sqlx::query("UPDATE document_vectors SET embed_model = $1 WHERE embed_model = 'another'")
        .bind(&ours)
        .execute(&app.pool)
        .await
        .unwrap();
    read("Copper Mills").await;
    assert_eq!(models().await, BTreeMap::from([(ours, 3)]));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn merges_are_of_those_who_may_read_and_write_both_and_never_of_two_guards() {
    let app = TestApp::start().await;
    predicate(&app, "knows").await;
    let (reader, writer, stranger) =
        (someone(&app, "reader").await, someone(&app, "writer").await, someone(&app, "stranger").await);
    let folder = doc(&app, "Closed").await;
    let [ada, countess] = [under(&app, "Ada", Some(folder)).await, under(&app, "Countess", Some(folder)).await];
    let open = doc(&app, "Open").await;
    app.client.protect_document(DocumentPath { id: folder }).await.unwrap();
    grant(&app, &reader, folder, GrantRight::Read).await;
    grant(&app, &writer, folder, GrantRight::Write).await;
    let both = NewMerge { kept_id: ada, merged_id: countess };
    for (client, code) in [(&reader.client, Code::Forbidden), (&stranger.client, Code::NotFound)] {
        assert_eq!(client.merge_entities(Json(both)).await.expect_err("refused").code, code);
    }
    let refused =
        app.client.merge_entities(Json(NewMerge { kept_id: ada, merged_id: open })).await.expect_err("two guards");
    assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("merged_id")));
    let id = writer.client.merge_entities(Json(both)).await.unwrap().id;
    assert_eq!(reader.client.list_merges(MergeQuery::default()).await.unwrap().merges.len(), 1);
    assert!(stranger.client.list_merges(MergeQuery::default()).await.unwrap().merges.is_empty());
    let of = MergeQuery { document_id: Some(ada), ..MergeQuery::default() };
    assert_eq!(stranger.client.list_merges(of).await.expect_err("hidden").code, Code::NotFound);
    for (client, code) in [(&reader.client, Code::Forbidden), (&stranger.client, Code::NotFound)] {
        assert_eq!(client.undo_merge(MergePath { id }).await.expect_err("refused").code, code);
    }
    let unknown = stranger.client.undo_merge(MergePath { id: id + 99 }).await.expect_err("no merge");
    let hidden = stranger.client.undo_merge(MergePath { id }).await.expect_err("no merge");
    assert_eq!(unknown.detail.replace(&(id + 99).to_string(), "N"), hidden.detail.replace(&id.to_string(), "N"));

    // Where the two come to have different guards, who reads one of them is told of neither as the other.
    app.client.assert_fact(Json(fact(countess, "knows", ada))).await.unwrap();
    app.client.protect_document(DocumentPath { id: countess }).await.unwrap();
    let query = FactQuery { subject_id: Some(ada), ..FactQuery::default() };
    assert!(reader.client.list_facts(query.clone()).await.unwrap().facts.is_empty());
    assert!(app.client.list_facts(query.clone()).await.unwrap().facts.is_empty(), "the merge counts for nothing");
    assert!(reader.client.list_merges(MergeQuery::default()).await.unwrap().merges.is_empty());
    app.client.unprotect_document(DocumentPath { id: countess }).await.unwrap();
    assert_eq!(reader.client.list_facts(query).await.unwrap().facts[0].stated_subject_id, Some(countess));
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn names_of_nearly_the_same_meaning_are_merged_unless_numbers_or_types_differ() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_EXTRACTION_ENTITY_SIMILARITY_THRESHOLD", "0.5")]).await;
    let words =
        "Acme Corporation pays Invoice 1001. Acme Corporation Ltd pays Invoice 1002. Acme Corporation Inc pays nobody.";
    let id = text(&app, words, None).await;
    let pays = |subject: &str, kind: &str, object: &str| {
        said(
            json!({"subject": subject, "subject_type": kind, "predicate": "pays", "object": object, "object_type": null, "quote": format!("{subject} pays {object}")}),
        )
    };
    llm.will([facts(&[pays("Acme Corporation", "company", "Invoice 1001")])]);
    let done = extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!((done.entities, done.merges), (2, 0), "{done:?}");
    let more = |max_facts| ExtractFactsRequest { max_facts: Some(max_facts), ..ExtractFactsRequest::default() };
    llm.will([facts(&[
        pays("Acme Corporation Ltd", "company", "Invoice 1002"),
        pays("Acme Corporation Inc", "ship", "nobody"),
    ])]);
    let done = extract(&app.client, id, more(7)).await;
    assert_eq!((done.entities, done.dropped.get("pronoun")), (2, Some(&1)), "{done:?}");
    let merges = app.client.list_merges(MergeQuery::default()).await.unwrap().merges;
    let [merge] = &merges[..] else { panic!("invoices have different numbers: {merges:?}") };
    assert_eq!((merge.kept_title.as_str(), merge.merged_title.as_str()), ("Acme Corporation", "Acme Corporation Ltd"));
    assert_eq!(
        (merge.method, merge.score.is_some_and(|score| (0.5..=1.0).contains(&score))),
        (MergeMethod::Similarity, true)
    );
    let query = FactQuery { subject_id: Some(merge.kept_id), valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(query.clone()).await.unwrap().facts.len(), 2);
    // What somebody undid is not merged again when the text is read again.
    app.client.undo_merge(MergePath { id: merge.id }).await.unwrap();
    extract(&app.client, id, more(8)).await;
    assert!(app.client.list_merges(MergeQuery::default()).await.unwrap().merges.is_empty());
    assert_eq!(app.client.list_facts(query).await.unwrap().facts.len(), 1);

    // By letters alone nothing is near.
    let other = text(&app, "Acme Corporation Plc pays Invoice 1003.", None).await;
    llm.will([facts(&[pays("Acme Corporation Plc", "company", "Invoice 1003")])]);
    let exact = ExtractFactsRequest { resolve: Some(ResolveNames::Exact), ..ExtractFactsRequest::default() };
    assert_eq!(extract(&app.client, other, exact).await.merges, 0);
    assert_eq!(entities(&app).await.len(), 6);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_extracts_facts_and_lists_and_undoes_merges() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let id = text(&app, crate::extraction::TEXT, None).await;
    llm.will([facts(&[said(json!({}))])]);
    let said = crate::cli::svc(&app, &["extract-facts", &id.to_string(), "--wait", "--resolve", "exact"]).await;
    assert!(said.status.success(), "{said:?}");
    assert_eq!(crate::cli::lines(&said)[0]["done"]["facts"], 1);
    let found = entities(&app).await;
    let (kept, merged) = (found[0].0.to_string(), found[1].0.to_string());
    assert!(crate::cli::svc(&app, &["merges", "add", &kept, &merged]).await.status.success());
    let listed = crate::cli::lines(&crate::cli::svc(&app, &["merges"]).await);
    assert_eq!((listed.len(), &listed[0]["merged_title"]), (1, &json!(found[1].1)));
    assert!(crate::cli::svc(&app, &["merges", "undo", &listed[0]["id"].to_string()]).await.status.success());
    assert!(crate::cli::lines(&crate::cli::svc(&app, &["merges"]).await).is_empty());
    app.end().await;
}

#[tokio::test]
async fn a_chain_of_merges_is_read_by_as_few_statements_as_one_merge() {
    let app = idle().await;
    predicate(&app, "knows").await;
    let (chain, other) = (many(&app, 300).await, doc(&app, "Other").await);
    plant(&app, chain.windows(2).map(|pair| (pair[0], pair[1]))).await;
    let (first, last) = (chain[0], chain[299]);
    let [late, early] = ["2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"].map(|at| at.parse::<DateTime<Utc>>().unwrap());
    let (everything, asked) = (Readable::everything(), [DocumentId(last)]);
    let mut conn = app.pool.acquire().await.unwrap();
    for (known_at, members) in [(late, 300), (early, 1)] {
        let (sets, count) = statements::counted(merges::sets(&mut conn, &everything, &asked, known_at)).await;
        assert_eq!((sets.unwrap().members(DocumentId(last)).len(), count), (members, 1));
    }
    // Of what is merged more than a read looks at, nothing is taken for all.
    for (most, members) in [(298, None), (299, Some(300))] {
        let sets = merges::sets_within(&mut conn, &everything, &asked, late, most).await.unwrap();
        assert_eq!(sets.map(|sets| sets.members(DocumentId(last)).len()), members);
    }
    drop(conn);
    app.client.assert_fact(Json(fact(last, "knows", other))).await.unwrap();
    let query = FactQuery { subject_id: Some(chain[150]), ..FactQuery::default() };
    let facts = app.client.list_facts(query).await.unwrap().facts;
    let ends: Vec<(i64, Option<i64>)> = facts.iter().map(|fact| (fact.subject_id, fact.stated_subject_id)).collect();
    assert_eq!(ends, [(first, Some(last))]);
    // The chain grows, and what is in it already is refused.
    merge(&app, last, other).await;
    let again = app.client.merge_entities(Json(NewMerge { kept_id: first, merged_id: other })).await.unwrap_err();
    assert_eq!((again.code, again.members["document_ids"].as_array().unwrap().len()), (Code::Conflict, 301));
    app.end().await;
}
