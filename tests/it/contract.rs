//! Checks that the service does what the contract says.
use crate::support::{
    TOKEN, TestApp, Wish,
    contract::{resolve, validate},
};
use serde_json::{Map, Value, json};
use svc::registry::contract;

const RUNNER_KEY: &str = "test-runner-key";

#[test]
fn an_answer_that_is_not_as_documented_is_seen() {
    let schema = &contract()["components"]["schemas"]["TaskPage"];
    let broken = |value: &Value| {
        let mut broken = Vec::new();
        validate(schema, value, &mut broken);
        broken
    };
    assert!(broken(&json!({"tasks": [], "next_cursor": null})).is_empty());
    for (value, says) in [
        (json!([]), "`type`"),
        (json!({"next_cursor": null}), "`required`"),
        (json!({"tasks": {}, "next_cursor": null}), "/tasks"),
        (json!({"tasks": [], "next_cursor": 7}), "/next_cursor"),
        (json!({"tasks": [], "more": true}), "/more is not documented"),
        (json!({"tasks": [{"id": "7"}]}), "/tasks/0/id"),
        (json!({"tasks": [{"status": "asleep"}]}), "`enum`"),
        (json!({"tasks": [{"created_at": "yesterday"}]}), "`format`"),
    ] {
        let said = broken(&value).join("\n");
        assert!(said.contains(says), "{value}: {said}");
    }
}

/// The least value that a schema accepts.
fn least(schema: &'static Value) -> Value {
    let schema = resolve(schema);
    if let Some(words) = schema["enum"].as_array() {
        return words[0].clone();
    }
    match schema["type"].as_str().or_else(|| schema["type"][0].as_str()) {
        Some("integer") => json!(1),
        Some("number") => json!(0.5),
        Some("boolean") => json!(true),
        Some("array") => json!([least(&schema["items"])]),
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required.map(|name| (name.to_owned(), least(&schema["properties"][name]))).collect::<Map<_, _>>().into()
        }
        _ => json!("x"),
    }
}

/// Values just beyond what a schema accepts, each with the keyword that it breaks.
fn beyond(schema: &'static Value) -> Vec<(&'static str, Value)> {
    let schema = match schema["oneOf"].as_array() {
        // The choice is between null and something else.
        Some(choices) => choices.iter().find(|choice| choice["type"] != "null").map_or(schema, resolve),
        None => resolve(schema),
    };
    let step = |keyword: &str, by: i128| {
        let bound = &schema[keyword];
        let whole = bound.as_i64().map(i128::from).or_else(|| bound.as_u64().map(i128::from));
        // This is text, because no 64-bit number is beyond the bounds of one.
        whole
            .map(|bound| serde_json::from_str(&(bound + by).to_string()).unwrap())
            .or_else(|| bound.as_f64().map(|bound| json!(bound + by as f64)))
    };
    let mut wrong: Vec<(&str, Value)> = Vec::new();
    wrong.extend(step("minimum", -1).map(|value| ("minimum", value)));
    wrong.extend(step("maximum", 1).map(|value| ("maximum", value)));
    wrong.extend(schema["exclusiveMinimum"].as_f64().map(|bound| ("exclusiveMinimum", json!(bound))));
    if let Some(most) = schema["maxLength"].as_u64() {
        wrong.push(("maxLength", json!("x".repeat(usize::try_from(most).unwrap() + 1))));
    }
    if schema["minLength"].as_u64().is_some_and(|least| least > 0) {
        wrong.push(("minLength", json!("")));
    }
    if schema["pattern"].is_string() {
        wrong.push(("pattern", json!(" ")));
    }
    if schema["enum"].is_array() {
        wrong.push(("enum", json!("no_such_word")));
    }
    if schema["format"] == "date-time" {
        wrong.push(("format", json!("yesterday")));
    }
    if schema["minItems"].as_u64().is_some_and(|least| least > 0) {
        wrong.push(("minItems", json!([])));
    }
    if let Some(most) = schema["maxItems"].as_u64() {
        wrong.push(("maxItems", vec![least(&schema["items"]); usize::try_from(most).unwrap() + 1].into()));
    }
    if schema["additionalProperties"] == false {
        let mut object = least(schema);
        object["no_such_field"] = json!(1);
        wrong.push(("additionalProperties", object));
    }
    match schema["type"].as_str().or_else(|| schema["type"][0].as_str()) {
        Some("integer" | "number" | "boolean") => wrong.push(("type", json!("x y"))),
        Some("object") => wrong.push(("type", json!([]))),
        Some(_) => wrong.push(("type", json!({}))),
        None => {}
    }
    wrong
}

/// Bodies that break what the schema says of one field, at any depth, each with the field's path.
fn broken_bodies(schema: &'static Value, place: &str) -> Vec<(String, Value)> {
    let schema = match schema["oneOf"].as_array() {
        Some(choices) => choices.iter().find(|choice| choice["type"] != "null").map_or(schema, resolve),
        None => resolve(schema),
    };
    let mut all: Vec<(String, Value)> =
        beyond(schema).into_iter().map(|(keyword, value)| (format!("{place} {keyword}"), value)).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        for (broken, value) in broken_bodies(property, &format!("{place}.{name}")) {
            let mut body = least(schema);
            body[name] = value;
            all.push((broken, body));
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut body = least(schema);
        body.as_object_mut().unwrap().remove(name);
        all.push((format!("{place} required {name}"), body));
    }
    all
}

#[tokio::test]
async fn what_lies_just_beyond_the_contract_is_refused_by_name() {
    let app =
        TestApp::with(Wish { no_worker: true, settings: &[("SVC_RUNNER_KEY", RUNNER_KEY)], ..Wish::default() }).await;
    let mut tried = 0;
    for (path, item) in contract()["paths"].as_object().unwrap() {
        for (method, entry) in item.as_object().unwrap() {
            let key = if path.starts_with("/runner") { RUNNER_KEY } else { TOKEN };
            let call = |path: &str| {
                let url = format!("{}{path}", app.base);
                app.http.request(method.to_uppercase().parse().unwrap(), url).bearer_auth(key)
            };
            let concrete = path.replace("{id}", "1").replace("{task_type}", "embed");
            let body = &entry["requestBody"]["content"]["application/json"]["schema"];
            let mut requests = Vec::new();
            for parameter in entry["parameters"].as_array().into_iter().flatten() {
                let (name, required) = (parameter["name"].as_str().unwrap(), parameter["required"] == true);
                let wrong: Vec<(String, Option<String>)> = beyond(&parameter["schema"])
                    .into_iter()
                    .filter(|(keyword, value)| *keyword != "type" || value.is_string())
                    .map(|(keyword, value)| {
                        (keyword.to_owned(), Some(value.as_str().map_or(value.to_string(), str::to_owned)))
                    })
                    .chain((required && parameter["in"] == "query").then(|| ("required".to_owned(), None)))
                    .collect();
                for (keyword, value) in wrong {
                    let place = format!("{method} {path} {name} {keyword}");
                    if parameter["in"] == "path" {
                        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
                        let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
                        requests.push((place, call(&path.replace(&format!("{{{name}}}"), &value))));
                    } else {
                        let query: Vec<(&str, String)> = value.into_iter().map(|value| (name, value)).collect();
                        requests.push((place, call(&concrete).query(&query)));
                    }
                }
            }
            if !body.is_null() {
                for (place, value) in broken_bodies(body, "body") {
                    requests.push((format!("{method} {path} {place}"), call(&concrete).json(&value)));
                }
            }
            requests.push((
                format!("{method} {path} a parameter that is not there"),
                call(&concrete).query(&[("nope", "1")]),
            ));
            let form = &entry["requestBody"]["content"]["multipart/form-data"]["schema"];
            for (group, keys) in form["properties"]["options"]["properties"].as_object().into_iter().flatten() {
                for (key, schema) in keys["properties"].as_object().into_iter().flatten() {
                    for (keyword, value) in beyond(schema) {
                        let options = json!({group: {key: value}}).to_string();
                        let form = reqwest::multipart::Form::new().text("file", "x").text("options", options);
                        requests.push((format!("{group}.{key} {keyword}"), call(&concrete).multipart(form)));
                    }
                }
            }
            for (place, request) in requests {
                let answer = request.send().await.unwrap();
                let (status, text) = (answer.status(), answer.text().await.unwrap());
                let problem: Value = serde_json::from_str(&text).unwrap_or_default();
                // The contract has a code of its own for a key that no option has.
                let an_option = place.contains("body.options") && place.ends_with("additionalProperties");
                let expected = if an_option { (400, Some("unknown_option")) } else { (422, Some("invalid_field")) };
                assert_eq!((status.as_u16(), problem["code"].as_str()), expected, "{place}: {text}");
                assert!(!problem["detail"].as_str().unwrap().contains("struct "), "{place}: {text}");
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "only {tried} requests were made");
    app.end().await;
}

#[tokio::test]
async fn an_operation_without_a_body_refuses_one() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.client.create_document(Default::default(), svc_client::Json(crate::support::document("t", "c")));
    let id = id.await.unwrap().id;
    for (path, body, status) in [
        (format!("/documents/{id}/tokens"), "{}", 415),
        (format!("/documents/{id}/tokens"), "x", 415),
        (format!("/documents/{id}/tokens"), "", 200),
        ("/admin/task-types/embed/pause".to_owned(), r#"{"for": "ever"}"#, 415),
        ("/admin/task-types/embed/pause".to_owned(), "", 200),
    ] {
        let answer = app.raw("POST", &path).header("content-type", "application/json").body(body).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path} {body}");
    }
    // The length is unknown, and in the end the body is empty.
    let empty = reqwest::Body::wrap_stream(futures_util::stream::empty::<std::io::Result<bytes::Bytes>>());
    let answer = app.raw("POST", "/admin/task-types/embed/resume").body(empty).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    app.end().await;
}
