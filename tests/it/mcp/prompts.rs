//! Templates as prompts of the protocol.
use super::model;
use crate::{
    principals::{grant, someone},
    support::{TOKEN, TestApp, Wish, document},
};
use rmcp::model::{ContentBlock, GetPromptRequestParams, PaginatedRequestParams};
use serde_json::{Value, json};
use svc_client::{
    Json,
    wire::{GrantRight, NewTemplate, WaitQuery},
};

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_prompts_with_their_variables_as_arguments() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let note = app.client.create_document(WaitQuery::default(), Json(document("Note", "A heron."))).await.unwrap().id;
    let body = json!({
        "title": "Ask about a note",
        "content": "{{ question }} ({{ words }} words, {{ tags|join('+') }}): {{ note.content }}",
        "variables": {
            "question": {"type": "string", "description": "What to ask"}, "words": {"type": "number", "default": 50},
            "tags": {"type": "array", "default": []}, "note": {"type": "document"},
        },
    });
    let new: NewTemplate = serde_json::from_value(body).unwrap();
    let id = app.client.create_template(WaitQuery::default(), Json(new)).await.unwrap().id;
    let (who, other) = (someone(&app, "one").await, someone(&app, "two").await);
    grant(&app, &other, id, GrantRight::Read).await;

    let client = model(&app, TOKEN).await;
    let prompts = client.list_all_prompts().await.unwrap();
    let [prompt] = prompts.as_slice() else { panic!("{prompts:?}") };
    assert_eq!(
        (prompt.name.as_str(), prompt.title.as_deref()),
        (format!("template-{id}").as_str(), Some("Ask about a note"))
    );
    let arguments: Vec<_> =
        prompt.arguments.iter().flatten().map(|a| (a.name.as_str(), a.required, a.description.as_deref())).collect();
    assert_eq!(
        arguments,
        [
            ("note", Some(true), Some("the id of a document")),
            ("question", Some(true), Some("What to ask")),
            ("tags", Some(false), Some("JSON of the type array")),
            ("words", Some(false), Some("JSON of the type number")),
        ]
    );
    let get = async |name: String, arguments: Value| {
        let params = GetPromptRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone());
        client.get_prompt(params).await
    };
    let given = json!({"question": "Who?", "words": "7", "tags": "[\"a\", \"b\"]", "note": note.to_string()});
    let got = get(prompt.name.clone(), given).await.unwrap();
    let ContentBlock::Text(text) = &got.messages[0].content else { panic!("{got:?}") };
    assert_eq!(text.text, "Who? (7 words, a+b): A heron.");
    for (name, arguments, says) in [
        (prompt.name.clone(), json!({"question": "Who?"}), "note"),
        (prompt.name.clone(), json!({"question": "Who?", "note": "x"}), "id of a document"),
        (prompt.name.clone(), json!({"question": "Who?", "note": note, "more": "1"}), "more"),
        (format!("template-{note}"), json!({}), "no template"),
        ("ask".to_owned(), json!({}), "prompts/list"),
    ] {
        let refused = get(name, arguments).await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    // What a template includes takes its values through the same prompt.
    let body = json!({
        "title": "Ask politely", "content": "{{ words }}, please: {% include 'ask' %}", "variables": {"words": {"type": "string"}},
        "partials": [{"name": "ask", "template_id": id}], "private": true,
    });
    let new: NewTemplate = serde_json::from_value(body).unwrap();
    let polite = app.client.create_template(WaitQuery::default(), Json(new)).await.unwrap().id;
    let prompts = client.list_all_prompts().await.unwrap();
    let taken = prompts.iter().find(|prompt| prompt.name == format!("template-{polite}")).unwrap().arguments.clone();
    let taken: Vec<_> = taken.unwrap().into_iter().map(|a| (a.name, a.required)).collect();
    let required = [("note", true), ("question", true), ("tags", false), ("words", true)];
    assert_eq!(taken, required.map(|(name, required)| (name.to_owned(), Some(required))));
    let given = json!({"question": "Who?", "words": "7", "note": note.to_string()});
    let got = get(format!("template-{polite}"), given).await.unwrap();
    let ContentBlock::Text(text) = &got.messages[0].content else { panic!("{got:?}") };
    assert_eq!(text.text, "7, please: Who? (7 words, ): A heron.");
    let closed = model(&app, &who.secret).await;
    assert!(closed.list_prompts(Some(PaginatedRequestParams::default())).await.unwrap().prompts.is_empty());
    let refused = closed.get_prompt(GetPromptRequestParams::new(prompt.name.clone())).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("there is no document {id}")), "{refused}");
    app.end().await;
}
