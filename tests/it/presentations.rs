//! The rules by which views show documents.
use crate::{
    principals::someone,
    support::{TestApp, Wish, document},
};
use serde_json::{Value, json};
use svc_client::{
    Code, Failure, Json,
    wire::{
        BlockKind, ChildrenMode, DocumentPath, LinksMode, NewDocument, PresentationPath, PresentationResponse,
        Renderer, WaitQuery,
    },
};

fn path(usetype: &str) -> PresentationPath {
    PresentationPath { usetype: usetype.to_owned() }
}

async fn create(app: &TestApp, rule: Value) -> Result<PresentationResponse, Failure> {
    app.client.create_presentation(Json(serde_json::from_value(rule).unwrap())).await
}

async fn change(app: &TestApp, usetype: &str, change: Value) -> Result<PresentationResponse, Failure> {
    app.client.update_presentation(path(usetype), Json(serde_json::from_value(change).unwrap())).await
}

#[tokio::test]
async fn the_rules_of_the_service_are_there_and_can_be_changed_and_reset_but_not_deleted() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let names: Vec<String> =
        app.client.list_presentations().await.unwrap().presentations.into_iter().map(|rule| rule.usetype).collect();
    for usetype in [
        "wiki:*",
        "markdown",
        "chunk",
        "conversation",
        "raw",
        "transcript",
        "file",
        "table",
        "sheet",
        "record",
        "profile",
        "image",
        "template",
    ] {
        assert!(names.iter().any(|name| name == usetype), "{usetype}");
    }
    assert!(names.is_sorted());
    let first = app.client.read_presentation(path("markdown")).await.unwrap();
    assert_eq!((first.renderer, first.seeded, first.changed_at), (Renderer::Markdown, true, None));
    let changed = change(&app, "markdown", json!({"renderer": "plain", "show": ["usetype"]})).await.unwrap();
    assert_eq!((changed.renderer, changed.seeded, &changed.children), (Renderer::Plain, true, &first.children));
    assert!(changed.changed_at.is_some());
    assert_eq!(app.client.read_presentation(path("markdown")).await.unwrap(), changed);
    let refused = app.client.delete_presentation(path("markdown")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.members["remedy"].as_str().unwrap()),
        (Code::Conflict, "POST /usetype-presentations/markdown/reset gives it its first form again")
    );
    assert_eq!(app.client.reset_presentation(path("markdown")).await.unwrap(), first);
    assert_eq!(app.client.read_presentation(path("markdown")).await.unwrap(), first);
    app.end().await;
}

#[tokio::test]
async fn a_rule_of_the_owner_decides_how_its_usetype_is_shown() {
    let app = TestApp::start().await;
    let new = NewDocument {
        usetype: Some("note:day".to_owned()),
        event_time: "2024-05-01T10:00:00Z".parse().ok(),
        ..document("Day", "a *b*")
    };
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    app.create("Below", "x", Some(id)).await;
    let view = async || app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap();
    let shown = view().await;
    assert_eq!((shown.presentation.usetype.as_str(), shown.blocks[0].kind), ("*", BlockKind::Markdown));

    let rule = json!({"usetype": "note:*", "renderer": "code", "children": {"mode": "hidden", "limit": 5}, "links": {"mode": "hidden"}, "show": ["event_time", "position"], "title": "Note"});
    let made = create(&app, rule).await.unwrap();
    assert!(!made.seeded);
    let shown = view().await;
    assert_eq!((shown.presentation.title.as_str(), shown.blocks[0].kind), ("Note", BlockKind::Code));
    assert_eq!(shown.blocks[0].html.as_deref(), Some("<pre dir=\"auto\">a *b*</pre>"));
    assert_eq!(
        (shown.children.mode, shown.children.blocks.len(), shown.links.mode),
        (ChildrenMode::Hidden, 0, LinksMode::Hidden)
    );
    // A field that the document does not have is not shown.
    assert_eq!(json!(shown.fields), json!([{"name": "event_time", "value": "2024-05-01T10:00:00Z"}]));
    // The name itself wins over the beginning.
    create(&app, json!({"usetype": "note:day", "renderer": "plain", "children": {"mode": "inline", "limit": 5}}))
        .await
        .unwrap();
    let shown = view().await;
    assert_eq!((shown.presentation.title.as_str(), shown.children.mode), ("note:day", ChildrenMode::Inline));
    assert_eq!(shown.children.blocks[0].title.as_deref(), Some("Below"));
    app.client.delete_presentation(path("note:day")).await.unwrap();
    assert_eq!(view().await.presentation.usetype, "note:*");
    app.end().await;
}

#[tokio::test]
async fn a_picture_that_a_caller_describes_is_shown_with_its_text() {
    let app = TestApp::start().await;
    let new = NewDocument { usetype: Some("image".to_owned()), ..document("Heron", "It stands at the *weir*.") };
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let shown = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap();
    let said: Vec<_> = shown.blocks.iter().map(|block| (block.kind, block.text.as_deref())).collect();
    assert_eq!(said, [(BlockKind::Image, None), (BlockKind::Markdown, Some("It stands at the *weir*."))]);
    app.end().await;
}

#[tokio::test]
async fn what_a_caller_puts_under_a_table_of_its_own_is_shown() {
    let app = TestApp::start().await;
    let create = async |usetype: &str, title: &str, parent_id: Option<i64>| {
        let new = NewDocument { usetype: Some(usetype.to_owned()), parent_id, ..document(title, title) };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let id = create("raw", "Tides", None).await;
    let table = create("table", "High water", Some(id)).await;
    create("section", "Remarks on it", Some(table)).await;
    let shown = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap().children.blocks;
    assert!(shown.iter().any(|block| block.title.as_deref() == Some("Remarks on it")), "{shown:?}");
    app.end().await;
}

#[tokio::test]
async fn what_is_no_rule_is_refused_by_name_and_only_the_owner_makes_rules() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for (rule, field) in [
        (json!({"usetype": "a b", "renderer": "plain"}), "usetype"),
        (json!({"usetype": "a*b", "renderer": "plain"}), "usetype"),
        (json!({"usetype": "", "renderer": "plain"}), "usetype"),
        (json!({"usetype": "x", "renderer": "pdf"}), "renderer"),
        (json!({"usetype": "x", "renderer": "plain", "colour": 1}), "colour"),
        (json!({"usetype": "x", "renderer": "plain", "children": {"mode": "inline", "limit": 501}}), "children.limit"),
        (json!({"usetype": "x", "renderer": "plain", "children": {"mode": "folded", "limit": 5}}), "children"),
        (json!({"usetype": "x", "renderer": "plain", "links": {"mode": "hidden", "types": ["a b"]}}), "links.types"),
        (json!({"usetype": "x", "renderer": "plain", "show": ["embed"]}), "show"),
        (json!({"usetype": "x", "renderer": "plain", "show": ["usetype", "usetype"]}), "show"),
        (json!({"usetype": "x", "renderer": "plain", "title": " "}), "title"),
    ] {
        let answer = app.raw("POST", "/usetype-presentations").json(&rule).send().await.unwrap();
        let (status, problem): (_, Value) = (answer.status(), answer.json().await.unwrap());
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(field), "{rule}: {problem}");
    }
    assert_eq!(create(&app, json!({"usetype": "chunk", "renderer": "plain"})).await.unwrap_err().code, Code::Conflict);
    assert_eq!(change(&app, "nothing", json!({})).await.unwrap_err().code, Code::NotFound);
    assert_eq!(app.client.reset_presentation(path("nothing")).await.unwrap_err().code, Code::NotFound);
    assert_eq!(app.client.delete_presentation(path("nothing")).await.unwrap_err().code, Code::NotFound);
    create(&app, json!({"usetype": "mine", "renderer": "plain"})).await.unwrap();
    assert_eq!(app.client.reset_presentation(path("mine")).await.unwrap_err().code, Code::InvalidField);
    let reader = someone(&app, "reader").await;
    assert_eq!(reader.client.reset_presentation(path("markdown")).await.unwrap_err().code, Code::Forbidden);
    assert!(reader.client.read_presentation(path("mine")).await.is_ok());
    // One of two who make the same rule at once is told of the other.
    let both = tokio::join!(
        create(&app, json!({"usetype": "twice", "renderer": "plain"})),
        create(&app, json!({"usetype": "twice", "renderer": "code"}))
    );
    assert_eq!([both.0.is_ok(), both.1.is_ok()].iter().filter(|ok| **ok).count(), 1);
    app.end().await;
}
