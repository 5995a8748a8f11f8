//! Searches by the name of their method.
use serde_json::Value;
use svc_client::{Client, Failure, Json, Remote, wire::SearchResponse};

/// A search as anybody sends it.
pub async fn ask(client: &Client<Remote>, method: &str, body: &Value) -> Result<SearchResponse, Failure> {
    macro_rules! by {
        ($call:ident) => {
            client.$call(Json(serde_json::from_value(body.clone()).unwrap())).await
        };
    }
    match method {
        "vector" => by!(search_vector),
        "fulltext" => by!(search_fulltext),
        "bm25" => by!(search_bm25),
        "maxsim" => by!(search_maxsim),
        "hybrid" => by!(search_hybrid),
        _ => by!(search_auto),
    }
}
