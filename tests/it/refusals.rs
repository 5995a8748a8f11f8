//! Texts that the model gives no vector.
use crate::support::{TestApp, Wish, document, poison, until};
use std::collections::BTreeSet;
use svc_client::{
    Json,
    wire::{Bm25Search, DocumentPath, HybridSearch, LegWay, Settled, VectorSearch, WaitQuery},
};

async fn poisoned() -> TestApp {
    TestApp::with(Wish { engine: Some(poison::engine()), ..Wish::default() }).await
}

#[tokio::test]
async fn one_text_without_a_direction_is_refused_alone() {
    let app = poisoned().await;
    let section = |title: &str, text: &str| format!("## {title}\n\n{text}\n\n");
    let file = [
        "# Stones\n\nWhat lies on the shore, and where it came from.\n\n".to_owned(),
        section("Flint", "Flint breaks into sharp flakes, and people made their first knives of it."),
        section("Glass", "The black glass of the volcano is called obsidian, and no knife is sharper."),
        section("Chalk", "Chalk is made of the shells of tiny animals that sank to the bottom of the sea."),
        section("Granite", "Granite cooled slowly deep below the ground, so its crystals are large."),
    ];
    let id = app.upload_bytes("stones.md", file.concat()).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{frontier:?}");
    assert_eq!(frontier.warnings, ["without_vector: 1 (no_direction)"]);
    let attempts: Vec<(String, i32, String)> =
        sqlx::query_as("SELECT task_type, attempt, outcome FROM task_attempts").fetch_all(&app.pool).await.unwrap();
    assert!(attempts.iter().all(|(_, attempt, outcome)| *attempt == 1 && outcome == "completed"), "{attempts:?}");

    let chunks: Vec<_> = app.subtree(id).await.into_iter().filter(|node| node.usetype == "chunk").collect();
    let glass = chunks.iter().find(|chunk| chunk.content.contains(poison::WORD)).unwrap().id;
    let others: BTreeSet<i64> = chunks.iter().map(|chunk| chunk.id).filter(|chunk| *chunk != glass).collect();
    assert_eq!(others.len(), 4, "{chunks:?}");
    let query = VectorSearch { limit: 50, ..VectorSearch::new("a stone that can cut") };
    let found = app.client.search_vector(Json(query)).await.unwrap();
    let found: BTreeSet<i64> = found.results.iter().map(|result| result.document.id).collect();
    assert!(found.is_superset(&others) && !found.contains(&glass), "{found:?}");
    assert!(found.contains(&id), "the file has the sum of its parts");
    let words = app.client.search_bm25(Json(Bm25Search::new(poison::WORD))).await.unwrap();
    assert_eq!(words.results.iter().map(|result| result.document.id).collect::<Vec<_>>(), [glass]);

    let evidence = async |id| app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    let refusal = &evidence(glass).await["embed"];
    assert_eq!(refusal["skipped"], "no_direction");
    assert!(refusal["remedy"].as_str().unwrap().contains("another model"), "{refusal}");
    for other in others {
        let embed = evidence(other).await.get("embed").cloned();
        assert!(embed.is_none_or(|embed| embed.get("skipped").is_none()));
    }
    let section = app.subtree(id).await.into_iter().find(|node| node.title == "Glass").unwrap();
    assert_eq!(evidence(section.id).await["rollup"]["without_vector"], "nothing under this node has a vector");
    assert_eq!(evidence(section.parent_id.unwrap()).await["rollup"]["children_without_vector"], 1);
    app.end().await;
}

#[tokio::test]
async fn the_answer_of_a_creation_says_that_the_document_has_no_vector_and_why() {
    let app = poisoned().await;
    let create = async |content: &str, wait| {
        app.client
            .create_document(WaitQuery { wait, ..WaitQuery::default() }, Json(document("A document", content)))
            .await
            .unwrap()
    };
    assert!(create("The tide comes twice a day.", true).await.warnings.is_empty());
    let strange = create("A blade of obsidian.", true).await;
    assert!(matches!(&strange.warnings[..], [one] if one.starts_with("embed: no_direction (")), "{strange:?}");
    // A window without a direction leaves the others.
    let long = create(&format!("A blade of obsidian. {}", "a few more words ".repeat(300)), true).await;
    let evidence = app.client.read_evidence(DocumentPath { id: long.document.id }).await.unwrap().evidence;
    assert!(long.warnings.is_empty() && evidence["embed"]["windows"].as_u64() > Some(0), "{long:?} {evidence:?}");
    // Who does not wait finds the same in the evidence.
    let later = create("A mirror of obsidian.", false).await;
    assert!(later.warnings.is_empty());
    let evidence = until("the evidence", async || {
        let evidence = app.client.read_evidence(DocumentPath { id: later.id }).await.unwrap().evidence;
        evidence.get("embed").cloned()
    })
    .await;
    assert_eq!(evidence["skipped"], "no_direction");
    // The answer of a document without a fault is that of any read.
    let answer = app.raw("POST", "/documents?wait=true").json(&document("Plain", "Plain words.")).send().await.unwrap();
    let answer: serde_json::Value = answer.json().await.unwrap();
    let read: serde_json::Value =
        app.raw("GET", &format!("/documents/{}", answer["id"])).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer, read);
    app.end().await;
}

/// Their vectors would all be the same, whatever they say.
#[tokio::test]
async fn what_has_only_unknown_tokens_has_no_vector_and_neither_has_such_a_query() {
    let app = TestApp::start().await;
    let create = async |title: &str, content: &str| {
        let wait = WaitQuery { wait: true, ..WaitQuery::default() };
        app.client.create_document(wait, Json(document(title, content))).await.unwrap()
    };
    let plain = create("Tides", "The sea rises and falls twice a day.").await;
    assert!(plain.warnings.is_empty(), "{plain:?}");
    let strange = create("ሰላም", "አማርኛ \u{1f9a9}\u{1f9a9}").await;
    assert!(matches!(&strange.warnings[..], [one] if one.starts_with("embed: unknown_tokens (")), "{strange:?}");
    let unseen = create("\u{200b}", "\u{ad}\u{fffd}").await;
    assert!(matches!(&unseen.warnings[..], [one] if one.starts_with("embed: unknown_tokens (")), "{unseen:?}");
    let empty = create("Tide tables", "").await;
    assert!(empty.warnings.is_empty(), "its title is known: {empty:?}");
    let titled = create("Flamingo", "\u{1f9a9}").await;
    assert!(titled.warnings.is_empty(), "its title is known: {titled:?}");
    let unread = app.upload_bytes("unread.txt", "አማርኛ ሰላም\n").await.unwrap().document_id;
    let frontier = app.settled(unread).await;
    assert_eq!(frontier.warnings, ["without_vector: 1 (unknown_tokens)"]);
    let chunk = app.subtree(unread).await.into_iter().find(|node| node.usetype == "chunk").unwrap().id;
    for id in [strange.document.id, chunk] {
        let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
        assert_eq!(evidence["embed"]["skipped"], "unknown_tokens");
        assert!(evidence["embed"]["remedy"].as_str().unwrap().contains("another model"), "{evidence:?}");
    }
    let with: Vec<i64> = sqlx::query_scalar("SELECT document_id FROM document_vectors WHERE document_id = ANY($1)")
        .bind([strange.document.id, unseen.document.id, chunk, plain.document.id])
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(with, [plain.document.id]);

    let unseen = app.client.search_vector(Json(VectorSearch::new("\u{200b}"))).await.unwrap();
    assert!(unseen.no_vector.is_some() && unseen.total == 0, "{unseen:?}");
    let query = "ሰላም";
    let near = VectorSearch { explain: true, ..VectorSearch::new(query) };
    let near = app.client.search_vector(Json(near)).await.unwrap();
    assert_eq!((near.results.len(), near.total), (0, 0), "{near:?}");
    assert!(near.no_vector.is_some_and(|reason| reason.contains("by meaning")));
    let legs = near.explanation.unwrap().legs;
    assert_eq!(legs[0].plan.as_ref().unwrap().way, LegWay::NoVector);
    let hybrid = app.client.search_hybrid(Json(HybridSearch::new(query))).await.unwrap();
    let found: BTreeSet<i64> = hybrid.results.iter().map(|result| result.document.id).collect();
    assert!(found.contains(&strange.document.id) && !found.contains(&plain.document.id), "{found:?}");
    assert!(hybrid.no_vector.is_some());
    let words = app.client.search_bm25(Json(Bm25Search::new(query))).await.unwrap();
    assert!(words.no_vector.is_none() && words.total > 0, "nobody needs a vector: {words:?}");
    let known = app.client.search_vector(Json(VectorSearch::new("the tide"))).await.unwrap();
    assert!(known.no_vector.is_none() && known.total > 0, "{known:?}");
    let embed = format!("/documents/{}/embed?with_tokens=false", strange.document.id);
    let refused = app.raw("POST", &embed).send().await.unwrap();
    let refused: serde_json::Value = refused.json().await.unwrap();
    assert!(refused["detail"].as_str().unwrap().contains("knows no token"), "{refused}");
    app.end().await;
}
