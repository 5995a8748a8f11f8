//! Texts that a runner does not take.
use super::{KEY, far};
use crate::support::{TestApp, Wish, document, until};
use serde_json::json;
use svc_client::{
    Code, Json,
    wire::{IndexState, TokensBatch, WaitQuery},
};

#[tokio::test]
async fn texts_that_the_runner_does_not_take_keep_no_other_from_its_token_vectors() {
    let settings = [("SVC_RUNNER_KEY", KEY), ("SVC_MAX_BODY_BYTES", "65536")];
    let runner = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let far = TestApp::with(Wish { settings: &far(&runner.base), ..Wish::default() }).await;
    let short = far.create("Bread", "Yeast eats the sugar in the dough.", None).await.id;
    let create = async |title: &str, content: String| {
        let new = document(title, &content);
        far.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    // The one is longer than the window; the other is one token, which the model does not know.
    let long = create("Tide", "water ".repeat(12_000)).await;
    let odd = create("Word", "heron".repeat(14_000)).await;
    until("the end of all tasks", async || {
        let are_over = "SELECT NOT EXISTS (SELECT FROM task_queue WHERE NOT final)";
        sqlx::query_scalar::<_, bool>(are_over).fetch_one(&far.pool).await.unwrap().then_some(())
    })
    .await;
    let late = json!({"name": "late", "capabilities": {"bm25": false, "maxsim": true}});
    let made = far.client.create_index(Json(serde_json::from_value(late).unwrap())).await.unwrap();
    assert_eq!(made.state, IndexState::Ready);
    let packed = async || -> Vec<i64> {
        sqlx::query_scalar("SELECT document_id FROM token_packs").fetch_all(&far.pool).await.unwrap()
    };
    assert_eq!(packed().await, [short]);
    sqlx::raw_sql("DELETE FROM token_packs; DELETE FROM token_embeddings").execute(&far.pool).await.unwrap();
    // Who asks for the token vectors of many is told of each.
    let asked = TokensBatch { document_ids: vec![long, short, odd] };
    let answers = far.client.embed_many_tokens(Json(asked)).await.unwrap().documents;
    let refused: Vec<Option<Code>> = answers.iter().map(|answer| Some(answer.failure.as_ref()?.code)).collect();
    assert_eq!(refused, [Some(Code::InvalidField), None, Some(Code::InvalidField)]);
    assert_eq!(packed().await, [short]);
    far.end().await;
    runner.end().await;
}
