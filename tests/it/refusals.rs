//! Texts that the model gives no vector.
use crate::support::{TestApp, Wish, document, engine, invariants, poison, until};
use std::collections::BTreeSet;
use svc_client::{
    Json, OptionalJson,
    wire::{
        Bm25Search, DocumentPath, EmbedOptions, EmbedQuery, HybridSearch, LegWay, ModelMoveState, Settled,
        VectorSearch, WaitQuery,
    },
};

async fn poisoned() -> TestApp {
    TestApp::with(Wish { engine: Some(poison::engine()), ..Wish::default() }).await
}

fn section(title: &str, text: &str) -> String {
    format!("## {title}\n\n{text}\n\n")
}

/// A file of five chunks, of which one has the word without numbers.
fn stones() -> String {
    let parts = [
        "# Stones\n\nWhat lies on the shore, and where it came from.\n\n".to_owned(),
        section("Flint", "Flint breaks into sharp flakes, and people made their first knives of it."),
        section("Glass", "The black glass of the volcano is called obsidian, and no knife is sharper."),
        section("Chalk", "Chalk is made of the shells of tiny animals that sank to the bottom of the sea."),
        section("Granite", "Granite cooled slowly deep below the ground, so its crystals are large."),
    ];
    parts.concat()
}

#[tokio::test]
async fn one_text_without_a_direction_is_refused_alone() {
    let app = poisoned().await;
    let id = app.upload_bytes("stones.md", stones()).await.unwrap().document_id;
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
async fn texts_of_which_none_has_a_direction_are_refused_if_the_model_is_sound() {
    let app = poisoned().await;
    let file = [
        "# Stones\n\n".to_owned(),
        section("Glass", "The black glass of the volcano is called obsidian, and no knife is sharper."),
        section("Mirrors", "The first mirrors were of obsidian, which people polished until it shone."),
    ];
    let id = app.upload_bytes("stones.md", file.concat()).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{frontier:?}");
    assert_eq!(frontier.warnings, ["without_vector: 2 (no_direction)"]);
    app.end().await;
}

#[tokio::test]
async fn a_text_is_tried_again_if_the_model_is_broken_also_where_it_is_alone() {
    let app = TestApp::with(Wish { engine: Some(poison::broken()), ..Wish::default() }).await;
    let new = document("Tides", "The tide comes twice a day.");
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let outcome = until("an attempt to embed it", async || {
        let attempts = "SELECT outcome FROM task_attempts WHERE document_id = $1 AND task_type = 'embed' ORDER BY id";
        sqlx::query_scalar::<_, String>(attempts).bind(id).fetch_optional(&app.pool).await.unwrap()
    })
    .await;
    assert_eq!(outcome, "failed");
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert!(evidence.get("embed").is_none(), "{evidence:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gets_its_vector_on_request_counts_in_those_of_its_section_and_its_file() {
    let wish = Wish { engine: Some(poison::engine()), coming: Some(engine()), ..Wish::default() };
    let app = TestApp::with(wish).await;
    let file = app.upload_bytes("stones.md", stones()).await.unwrap().document_id;
    app.settled(file).await;
    let tree = app.subtree(file).await;
    let glass = tree.iter().find(|node| node.usetype == "chunk" && node.content.contains(poison::WORD)).unwrap().id;
    let section = tree.iter().find(|node| node.title == "Glass").unwrap();
    app.client.start_model_move().await.unwrap();
    let is_done = async || {
        let last = app.client.read_model_move().await.unwrap().last.unwrap();
        (last.state == ModelMoveState::Done).then_some(())
    };
    until("the move to end", is_done).await;
    let vector = async |id| {
        let query = EmbedQuery { include_embed: true };
        app.client.read_document(DocumentPath { id }, query).await.unwrap().value().unwrap().embed
    };
    let rollup = async |id| {
        let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
        evidence["rollup"].clone()
    };
    assert!(vector(section.id).await.is_none() && rollup(section.id).await.get("without_vector").is_some());
    let before = vector(file).await.unwrap();

    app.client.embed_document(DocumentPath { id: glass }, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    assert!(vector(section.id).await.is_some());
    assert_ne!(vector(file).await.unwrap(), before);
    for id in [section.id, section.parent_id.unwrap()] {
        let rollup = rollup(id).await;
        let left = ["without_vector", "children_without_vector"].map(|name| rollup.get(name));
        assert!(left == [None, None] && rollup["embedding"].is_string(), "{rollup}");
    }

    // The text has its vector already, and what is above it has none.
    for lose in [
        "DELETE FROM document_vectors WHERE document_id = $1",
        "UPDATE node_evidence SET value = value || '{\"without_vector\": \"nothing\"}' WHERE document_id = $1 AND name = 'rollup'",
    ] {
        sqlx::query(lose).bind(section.id).execute(&app.pool).await.unwrap();
    }
    app.client.embed_document(DocumentPath { id: glass }, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    assert!(vector(section.id).await.is_some() && rollup(section.id).await.get("without_vector").is_none());
    invariants::check_drained(&app.pool).await;
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
