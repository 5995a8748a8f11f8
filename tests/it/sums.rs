//! The vectors of containers: the weighted sums of what is under them, whatever happened to that.
use crate::{
    edits::patched,
    support::{TestApp, Wish, engine, insert, invariants, sample, until},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::json;
use std::collections::HashMap;
use svc_client::wire::{DocumentPath, DocumentResponse, Settled, TaskPath, TaskQuery, TaskStatus, TaskTypePath};
use svc_ids::DocumentId;

/// The vectors of documents with their weights.
async fn vectors(app: &TestApp) -> HashMap<i64, (Vec<f32>, f32)> {
    let rows: Vec<(i64, Vec<f32>, f32)> =
        sqlx::query_as("SELECT document_id, embed::vector::real[], weight FROM document_vectors")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    rows.into_iter().map(|(id, vector, weight)| (id, (vector, weight))).collect()
}

/// The weighted sum of vectors, in double precision.
fn sum<'a>(vectors: impl Iterator<Item = &'a (Vec<f32>, f32)>) -> Vec<f64> {
    let mut sum = Vec::new();
    for (vector, weight) in vectors {
        sum.resize(vector.len(), 0.0);
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(*value) * f64::from(*weight));
    }
    sum
}

/// Panics unless a vector points where a sum does, with the sum's length as its weight.
fn is_sum((vector, weight): &(Vec<f32>, f32), sum: &[f64], what: &str) {
    let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
    let own = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let cosine = vector.iter().zip(sum).map(|(left, right)| f64::from(*left) * right).sum::<f64>() / length / own;
    assert!(cosine > 0.999_99, "{what}: the cosine is {cosine}");
    assert!((f64::from(*weight) / length - 1.0).abs() < 2e-3, "{what}: the weight is {weight}, the sum {length} long");
}

/// Whether a node is a text of the file, and no container.
fn is_text(node: &DocumentResponse) -> bool {
    ["chunk", "table"].contains(&node.usetype.as_str())
}

/// Panics unless every container of a file is the sum of its children, and so of the leaves on all levels under it. Returns the nodes.
async fn check(app: &TestApp, file: i64) -> Vec<DocumentResponse> {
    let (nodes, vectors) = (app.subtree(file).await, vectors(app).await);
    let leaves: Vec<&DocumentResponse> = nodes.iter().filter(|node| is_text(node)).collect();
    let containers = nodes.iter().filter(|node| !is_text(node)).map(|node| node.id).chain([file]);
    for id in containers {
        let children = nodes.iter().filter(|node| node.parent_id == Some(id));
        is_sum(&vectors[&id], &sum(children.map(|child| &vectors[&child.id])), &format!("the children of {id}"));
        let under = leaves.iter().filter(|leaf| leaf.path.contains(&id));
        is_sum(&vectors[&id], &sum(under.map(|leaf| &vectors[&leaf.id])), &format!("the leaves under {id}"));
    }
    nodes
}

fn rollups() -> TaskTypePath {
    TaskTypePath { task_type: "summarize".to_owned() }
}

/// The task that waits to roll up containers of a file.
async fn waiting(app: &TestApp, file: i64) -> i64 {
    until("a rollup", async || {
        let query = TaskQuery { root_id: Some(file), status: Some(TaskStatus::Pending), ..TaskQuery::default() };
        let tasks = app.client.list_tasks(query).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.task_type == "summarize").map(|task| task.id)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_the_sum_of_its_children_on_every_level_and_of_an_edited_chunk_too() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let nodes = check(&app, file).await;
    let levels = nodes.iter().filter(|node| !is_text(node)).map(|node| node.path.len()).max().unwrap() + 1;
    let (tasks, embedded): (i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE task_type = 'summarize'), count(*) FILTER (WHERE task_type = 'embed') FROM task_attempts",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    let containers = nodes.iter().filter(|node| !is_text(node)).count() + 1;
    assert!(
        tasks as usize <= levels && levels < containers && embedded == 1,
        "{tasks} rollups of {containers} containers"
    );

    // The evidence tells of the text as if it were embedded.
    for node in nodes.iter().filter(|node| !is_text(node)) {
        let evidence = app.client.read_evidence(DocumentPath { id: node.id }).await.unwrap().evidence;
        let texts = nodes.iter().filter(|leaf| is_text(leaf) && leaf.path.contains(&node.id));
        let text = texts.map(|leaf| leaf.content.as_str()).collect::<Vec<_>>().join("\n\n");
        let children = nodes.iter().filter(|child| child.parent_id == Some(node.id)).count();
        let (tokens, window) = (engine().count_tokens(&text).unwrap(), engine().info().doc_window);
        let want = match tokens <= window {
            true => json!({"method": "concatenated", "source_children": children, "tokens": tokens, "window": window,
                "characters": text.chars().count()}),
            false => json!(null),
        };
        assert_eq!(evidence["effective_content"], want);
        assert_eq!(evidence["rollup"]["embedding"], "weighted sum of the children's vectors");
    }

    let chunk = nodes.iter().filter(|node| node.usetype == "chunk").max_by_key(|node| node.path.len()).unwrap();
    let before = vectors(&app).await;
    patched(&app, chunk.id, json!({"content": "Every zeppelin is weighed before the mooring mast is lowered."})).await;
    app.settled(file).await;
    check(&app, file).await;
    let after = vectors(&app).await;
    assert!(chunk.path.iter().chain([&chunk.id]).all(|id| before[id] != after[id]), "the whole line is new");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollup_that_waits_leaves_out_what_is_edited_or_deleted_meanwhile() {
    let app = TestApp::start().await;
    app.client.pause_task_type(rollups()).await.unwrap();
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let task = waiting(&app, file).await;
    let nodes = app.subtree(file).await;
    let deep = nodes.iter().map(|node| node.path.len()).max().unwrap();
    let mut chunks = nodes.iter().filter(|node| node.usetype == "chunk" && node.path.len() == deep);
    let (edited, gone) = (chunks.next().unwrap(), chunks.next_back().unwrap());
    assert_ne!(edited.parent_id, gone.parent_id);
    app.client.pause_task_type(TaskTypePath { task_type: "embed".to_owned() }).await.unwrap();
    patched(&app, edited.id, json!({"content": "Every zeppelin is weighed before the mast is lowered."})).await;
    app.client.delete_document(DocumentPath { id: gone.parent_id.unwrap() }).await.unwrap();
    app.client.resume_task_type(rollups()).await.unwrap();
    until("the rollup to end", async || {
        let done = app.client.read_task(TaskPath { id: task }).await.unwrap();
        (done.status == TaskStatus::Completed).then_some(())
    })
    .await;
    let section = DocumentPath { id: edited.parent_id.unwrap() };
    let still = app.client.read_document(section, Default::default()).await.unwrap().value().unwrap();
    assert_eq!(still.settled, Settled::InFlight, "its chunk waits for its vector");
    invariants::check(&app.pool).await;
    app.client.resume_task_type(TaskTypePath { task_type: "embed".to_owned() }).await.unwrap();
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    check(&app, file).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_containers_of_a_rollup_fail_with_it_and_are_rolled_up_when_it_is_queued_again() {
    let app = TestApp::start().await;
    app.client.pause_task_type(rollups()).await.unwrap();
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let task = waiting(&app, file).await;
    app.client.cancel_task(TaskPath { id: task }).await.unwrap();
    let frontier = until("what waited for the rollup to fail", async || {
        let frontier = app.client.read_frontier(DocumentPath { id: file }).await.unwrap();
        (frontier.nodes_failed > 0).then_some(frontier)
    })
    .await;
    let failed = app.subtree(file).await.iter().filter(|node| node.settled == Settled::Failed).count();
    assert!(failed > 1 && frontier.nodes_failed == failed as i64, "{frontier:?}");
    invariants::check(&app.pool).await;
    app.client.retry_task(TaskPath { id: task }).await.unwrap();
    app.client.resume_task_type(rollups()).await.unwrap();
    let settled = until("the file to settle", async || {
        let frontier = app.client.read_frontier(DocumentPath { id: file }).await.unwrap();
        (frontier.settled == Settled::Settled && frontier.nodes_in_flight == 0).then_some(frontier)
    });
    assert_eq!(settled.await.nodes_failed, 0);
    check(&app, file).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn sums_are_those_of_any_vectors_and_weights() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut random = SmallRng::seed_from_u64(0x5eed);
    let mut conn = app.pool.acquire().await.unwrap();
    for round in 0..30 {
        let containers = [insert(&mut conn, None).await, insert(&mut conn, None).await];
        let width = [3, 48, 384][round % 3];
        for (container, most) in [(containers[0], 40), (containers[1], 2)] {
            let (mut counted, mut count) = (Vec::new(), 0);
            for _ in 0..random.random_range(0..most) {
                let id = insert(&mut conn, Some(container.0)).await;
                let unit: Vec<f32> = (0..width).map(|_| random.random_range(-1.0..1.0)).collect();
                let length = unit.iter().map(|value| value * value).sum::<f32>().sqrt();
                let unit: Vec<f32> = unit.into_iter().map(|value| value / length).collect();
                let weight: f32 = 10f32.powf(random.random_range(-2.0..6.0));
                // Only settled children that tasks made count, and only vectors of this model.
                let (settled, rule, model) = match random.random_range(0..8) {
                    0 => ("failed", "structure:declared", "model"),
                    1 => ("settled", "upload", "model"),
                    2 => ("settled", "structure:declared", "another"),
                    _ => ("settled", "structure:declared", "model"),
                };
                sqlx::query("UPDATE documents SET settled = $2 WHERE id = $1")
                    .bind(id)
                    .bind(settled)
                    .execute(&mut *conn)
                    .await
                    .unwrap();
                sqlx::query("INSERT INTO node_origins (document_id, rule) VALUES ($1, $2)")
                    .bind(id)
                    .bind(rule)
                    .execute(&mut *conn)
                    .await
                    .unwrap();
                sqlx::query("INSERT INTO document_vectors (document_id, embed_model, embed, weight) VALUES ($1, $2, $3::real[]::vector::halfvec, $4)")
                    .bind(id).bind(model).bind(&unit).bind(weight).execute(&mut *conn).await.unwrap();
                if (settled, rule, model) == ("settled", "structure:declared", "model") {
                    counted.push((unit, weight));
                    count += 1;
                }
            }
            let made = svc::store::rollups::set_vectors(&mut conn, &containers, "model").await.unwrap();
            let vectors = vectors(&app).await;
            assert_eq!(made.get(&container).copied().unwrap_or_default(), count);
            match count {
                0 => assert!(!vectors.contains_key(&container.0)),
                _ => is_sum(&vectors[&container.0], &sum(counted.iter()), &format!("round {round}")),
            }
        }
        // A container whose children are gone has no vector any more.
        sqlx::query("DELETE FROM documents WHERE parent_id = ANY($1)")
            .bind(containers)
            .execute(&mut *conn)
            .await
            .unwrap();
        assert!(svc::store::rollups::set_vectors(&mut conn, &containers, "model").await.unwrap().is_empty());
        assert!(containers.iter().all(|id: &DocumentId| id.0 > 0) && vectors(&app).await.is_empty());
    }
    drop(conn);
    app.end().await;
}
