//! Texts that a runner does not take.
use super::{KEY, far};
use crate::support::{TestApp, Wish, document, until};
use serde_json::json;
use svc_client::{
    Code, Json,
    wire::{DocumentPath, IndexState, TokensBatch, WaitQuery},
};

#[tokio::test]
async fn texts_that_the_runner_does_not_take_keep_no_other_from_its_vectors() {
    let settings = [("SVC_RUNNER_KEY", KEY), ("SVC_MAX_BODY_BYTES", "65536")];
    let runner = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let mut patient = far(&runner.base).to_vec();
    patient.push(("SVC_RUNNER_TIMEOUT_SECONDS", "300"));
    let far = TestApp::with(Wish { settings: &patient, ..Wish::default() }).await;
    let short = far.create("Bread", "Yeast eats the sugar in the dough.", None).await.id;
    // A word of so many letters is one token, which the model does not know. This text is longer than the window, and its windows are together too
    // long for one call.
    let word = "heron".repeat(150);
    let new = document("Tide", &format!("The ship lay in the water. {word} ").repeat(90));
    let long = far.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    // One task embeds both of these, and the first one has only a few tokens.
    let batch = json!({"documents": [
        {"title": "Word", "content": format!("The ship lay in the water. {}", "heron".repeat(14_000))},
        {"title": "Pier", "content": "A lamp burns at the pier."},
    ]});
    let batch = far.client.create_documents(Json(serde_json::from_value(batch).unwrap())).await.unwrap();
    let [odd, beside] = [0, 1].map(|at| batch.documents[at].document_id);
    until("the end of all tasks", async || {
        let are_over = "SELECT NOT EXISTS (SELECT FROM task_queue WHERE NOT final)";
        sqlx::query_scalar::<_, bool>(are_over).fetch_one(&far.pool).await.unwrap().then_some(())
    })
    .await;
    let embedded: Vec<i64> = sqlx::query_scalar("SELECT document_id FROM document_vectors ORDER BY document_id")
        .fetch_all(&far.pool)
        .await
        .unwrap();
    assert_eq!(embedded, [short, long, beside]);
    let note = async |id: i64| far.client.read_evidence(DocumentPath { id }).await.unwrap().evidence["embed"].clone();
    let (of_long, of_odd) = (note(long).await, note(odd).await);
    assert!(of_long["windows"].as_u64().unwrap() >= 2 && of_long.get("left_out").is_none(), "{of_long}");
    assert_eq!(of_odd["skipped"], "runner_refuses", "{of_odd}");
    let late = json!({"name": "late", "capabilities": {"bm25": false, "maxsim": true}});
    let made = far.client.create_index(Json(serde_json::from_value(late).unwrap())).await.unwrap();
    assert_eq!(made.state, IndexState::Ready);
    let packed = async || -> Vec<i64> {
        sqlx::query_scalar("SELECT document_id FROM token_packs ORDER BY 1").fetch_all(&far.pool).await.unwrap()
    };
    assert_eq!(packed().await, [short, beside]);
    sqlx::raw_sql("DELETE FROM token_packs; DELETE FROM token_embeddings").execute(&far.pool).await.unwrap();
    // Who asks for the token vectors of many is told of each, and of one over the window that it is too long, whatever the runner has against it.
    let asked = TokensBatch { document_ids: vec![long, short, odd] };
    let answers = far.client.embed_many_tokens(Json(asked)).await.unwrap().documents;
    let refused: Vec<Option<Code>> = answers.iter().map(|answer| Some(answer.failure.as_ref()?.code)).collect();
    assert_eq!(refused, [Some(Code::TextTooLong), None, Some(Code::InvalidField)]);
    assert_eq!(packed().await, [short]);
    far.end().await;
    runner.end().await;
}
