mod turtle;

use super::*;
use crate::settings::Settings;
use futures_util::future::BoxFuture;
use std::collections::BTreeSet;
use svc_client::{Client, OPERATIONS, Remote};
use svc_ids::PrincipalId;
use tower::ServiceExt;

fn reader() -> crate::reader::Reader {
    crate::reader::Reader::new("/nonexistent".into())
}

fn service() -> Arc<Service> {
    let home = [("HOME".to_owned(), "/nonexistent".to_owned())];
    let settings = Arc::new(Settings::defaults(home.into_iter()).expect("defaults"));
    let pool = crate::store::database::pool(sqlx::postgres::PgConnectOptions::new(), 1, settings.worker_lease);
    Arc::new(Service::new(settings, pool, None, "owner", reader()))
}

async fn call(
    router: &Router,
    request: http::request::Builder,
    body: &'static str,
) -> (u16, http::HeaderMap, serde_json::Value) {
    let response =
        router.clone().oneshot(request.body(HttpBody::from(body)).expect("a request")).await.expect("a response");
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    (parts.status.as_u16(), parts.headers, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn every_operation_is_one_route_one_entry_and_two_methods() {
    let rows: BTreeSet<_> =
        OPERATIONS.iter().map(|o| (o.method.to_string(), o.path.to_owned(), o.name.to_owned())).collect();
    let names: BTreeSet<_> = OPERATIONS.iter().map(|o| o.name).collect();
    let routes: BTreeSet<_> = OPERATIONS.iter().map(|o| (o.method.as_str(), o.path)).collect();
    assert_eq!(
        (rows.len(), names.len(), routes.len()),
        (OPERATIONS.len(), OPERATIONS.len(), OPERATIONS.len()),
        "two rows share a name or a route"
    );

    let document = contract();
    let entries: BTreeSet<_> = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().expect("an item").iter().filter(|(_, entry)| entry.get("operationId").is_some()).map(
                move |(method, entry)| {
                    (method.to_uppercase(), path.clone(), entry["operationId"].as_str().expect("a name").to_owned())
                },
            )
        })
        .collect();
    assert_eq!(rows, entries);

    let router = router(service());
    for row in
        OPERATIONS.iter().filter(|row| !matches!(row.access, svc_client::Access::Public | svc_client::Access::Metrics))
    {
        let request = Request::builder().method(row.method.clone()).uri(
            row.path
                .replace("{id}", "7")
                .replace("{principal_id}", "8")
                .replace("{link_id}", "9")
                .replace("{task_type}", "embed"),
        );
        let (status, headers, problem) = call(&router, request, "").await;
        if row.access == svc_client::Access::RunnerKey {
            assert_eq!((status, problem["setting"].as_str()), (501, Some("SVC_RUNNER_KEY")), "{}", row.name);
            continue;
        }
        assert_eq!(status, 401, "{} is not mounted, or open to anyone", row.name);
        assert_eq!(
            (headers["www-authenticate"].as_bytes(), problem["code"].as_str()),
            (&b"Bearer"[..], Some("unauthenticated"))
        );
    }
    macro_rules! both_clients { ($(
        $(#[doc = $doc:literal])+ $method:ident $path:literal $name:ident $args:tt -> $reply:ty
            $(, or $other:ident -> $other_reply:ty)? $(, access $access:ident)? $(, needs $need:ident)? $(, fails $codes:tt)? $(, tool $tool:ident)? $(, on $on:ident)?;
    )*) => { $(
        let _ = Client::<Remote>::$name;
        let _ = Client::<InProcess>::$name;
        $( let _ = (Client::<Remote>::$other, Client::<InProcess>::$other); )?
    )* } }
    operation_table!(both_clients);
}

#[test]
fn every_reference_of_the_contract_resolves() {
    let document = contract();
    let mut open = vec![document];
    let mut references = BTreeSet::new();
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(members) => {
                references.extend(members.get("$ref").and_then(|r| r.as_str()));
                open.extend(members.values());
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(references.len() > 10, "{references:?}");
    for reference in references {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn a_document_of_a_batch_takes_what_a_single_one_takes() {
    let schemas = &contract()["components"]["schemas"];
    for field in ["title", "usetype", "parent_id", "position"] {
        for keyword in ["minLength", "maxLength", "pattern", "minimum", "maximum"] {
            let of = |schema: &str| &schemas[schema]["properties"][field][keyword];
            assert_eq!(of("BatchItem"), of("NewDocument"), "{field}: {keyword}");
        }
    }
    assert_eq!(schemas["BatchItem"]["properties"]["key"]["maxLength"], 255);
}

#[test]
fn what_a_full_disk_or_a_large_ontology_stops_says_so_in_the_contract() {
    let refuses = |method: &str, path: &str, status: &str| {
        let responses = &contract()["paths"][path][method]["responses"];
        assert!(responses["500"].is_object(), "{path}");
        responses.get(status).is_some()
    };
    // Some reads copy a stored file to the data folder, and any of them may have the database sort on its disk.
    for path in ["/documents/{id}/cells", "/documents/roots"] {
        assert!(refuses("get", path, "507"), "{path}");
    }
    assert!(!refuses("get", "/health", "507"));
    assert!(refuses("post", "/shape-bindings/{id}/validate", "413"));
}

#[test]
fn the_contract_is_this() {
    insta::assert_json_snapshot!(contract());
}

#[tokio::test]
async fn no_plain_text_error_leaves_the_service() {
    let router = router(service());
    let authorized =
        |method: &str, uri: &str| Request::builder().method(method).uri(uri).header("authorization", "Bearer owner");
    let json = |method: &str, uri: &str| authorized(method, uri).header("content-type", "application/json");
    for (request, body, status, code) in [
        (authorized("GET", "/nowhere"), "", 404, "not_found"),
        (authorized("PUT", "/documents"), "", 405, "method_not_allowed"),
        (authorized("GET", "/documents/seven"), "", 422, "invalid_field"),
        (authorized("GET", "/documents/99999999999999999999"), "", 422, "invalid_field"),
        (authorized("GET", "/documents/7?include_embeds=true"), "", 422, "invalid_field"),
        (authorized("GET", "/documents/7?include_embed=maybe"), "", 422, "invalid_field"),
        (authorized("GET", "/documents/roots?limit=0"), "", 422, "invalid_field"),
        (authorized("POST", "/documents"), "{}", 415, "unsupported_media_type"),
        (json("POST", "/documents"), "{", 400, "malformed_request"),
        (json("POST", "/documents"), "{} x", 422, "invalid_field"),
        (json("POST", "/documents"), r#"["a title", "a content"]"#, 422, "invalid_field"),
        (json("POST", "/search/bm25"), r#"["fox"]"#, 422, "invalid_field"),
        (json("POST", "/search/bm25"), r#"{"query": "x", "filter": [null, null]}"#, 422, "invalid_field"),
        (authorized("GET", "/admin/tasks?task_type=a%00b"), "", 422, "invalid_field"),
        (authorized("POST", "/admin/task-types/a%00b/pause"), "", 422, "invalid_field"),
        (authorized("POST", "/ingest/file/7/cancel"), "{}", 415, "unsupported_media_type"),
        (authorized("POST", "/admin/tasks/7/retry"), "x", 415, "unsupported_media_type"),
        (json("POST", "/documents"), r#"{"title": "t"}"#, 422, "invalid_field"),
        (json("POST", "/documents"), r#"{"title": "", "content": ""}"#, 422, "invalid_field"),
        (json("POST", "/documents"), r#"{"title": "\ud800", "content": ""}"#, 400, "malformed_request"),
        (json("POST", "/documents"), r#"{"title": "t", "content": "", "colour": 1}"#, 422, "invalid_field"),
        (json("POST", "/search/bm25"), r#"{"query": "x", "limit": 101}"#, 422, "invalid_field"),
        (json("POST", "/search/bm25"), r#"{"query": ""}"#, 422, "invalid_field"),
        (json("POST", "/search/vector"), r#"{"query": "x"}"#, 501, "not_configured"),
        (authorized("POST", "/ingest/file"), "", 415, "unsupported_media_type"),
        (authorized("GET", "/health").header("x-svc-version", "0.1.0"), "", 426, "version_mismatch"),
        // No standby answers here, and what is no position is refused all the same.
        (authorized("GET", "/documents/roots").header("svc-after", "yesterday"), "", 422, "invalid_field"),
        (
            json("POST", "/documents").header("svc-after", "0/1, now"),
            r#"{"title": "t", "content": ""}"#,
            422,
            "invalid_field",
        ),
    ] {
        let shown = format!("{:?} {:?} {body}", request.method_ref(), request.uri_ref());
        let (got, headers, problem) = call(&router, request, body).await;
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{shown}: {problem}");
        assert_eq!(headers["content-type"], "application/problem+json", "{shown}");
        for member in ["type", "title", "detail", "instance", "request_id"] {
            assert!(problem[member].is_string(), "{shown} lacks {member}: {problem}");
        }
    }
}

#[tokio::test]
async fn a_change_that_compares_no_versions_refuses_one() {
    let router = router(service());
    let mut refused = 0;
    for row in registry() {
        let info = &row.form.info;
        // Without a model the operations that need one are 501.
        if lifetime::only_reads(info) || info.needs.is_some() || (row.form.heeds)().contains(&"if-match") {
            continue;
        }
        let path = info.path.replace(['{', '}'], "");
        let request = Request::builder().method(info.method.clone()).uri(path).header("authorization", "Bearer owner");
        let request = request.header("if-match", r#""a version""#);
        let (status, _, problem) = call(&router, request, "").await;
        assert_eq!((status, problem["field"].as_str()), (422, Some("If-Match")), "{}: {problem}", info.name);
        refused += 1;
    }
    assert!(refused > 40, "{refused}");
    // `*` is any version, and a search changes nothing.
    for (path, version) in [("/documents", "*"), ("/triples", " * "), ("/search/bm25", r#""a version""#)] {
        let request = Request::builder().method("POST").uri(path).header("authorization", "Bearer owner");
        let request = request.header("content-type", "application/json").header("if-match", version);
        let (status, _, problem) = call(&router, request, r#"{"colour": 1}"#).await;
        assert_eq!(status, 422, "{path}: {problem}");
        assert!(problem["detail"].as_str().expect("a detail").contains("colour"), "{path}: {problem}");
    }
}

#[tokio::test]
async fn a_panic_is_a_500_with_a_request_id_and_nothing_more() {
    fn explode(
        _: &Service,
        _: Option<PrincipalId>,
        _: Meta,
        _: Request,
    ) -> BoxFuture<'_, Result<serving::Arrived, Failure>> {
        Box::pin(async { panic!("the secret reason") })
    }
    let form = Form { arrive: explode, ..Form::of::<ops::read_health>() };
    let response = answer(service(), form, Request::new(HttpBody::empty())).await;
    assert_eq!(response.status(), 500);
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("request_id") && !text.contains("secret"), "{text}");
}

/// A body that does not fit could never be sent, however long its sender waits.
#[tokio::test(start_paused = true)]
async fn the_largest_body_of_each_operation_fits_into_the_share_of_a_principal() {
    let home = [("HOME", "/nonexistent"), ("SVC_PRINCIPAL_SHARE", "0.1")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    let settings = Arc::new(Settings::load(Some(std::path::Path::new("/dev/null")), home.into_iter()).expect("valid"));
    let pool = crate::store::database::pool(sqlx::postgres::PgConnectOptions::new(), 1, settings.worker_lease);
    let service = Service::new(settings, pool, None, "owner", reader());
    let usual = service.settings.max_body_bytes;
    for info in OPERATIONS {
        let most = (info.most_bytes)(usual);
        let room = service.admission.body(Some(PrincipalId(1)), most).await;
        assert!(room.is_ok(), "{}: {most} bytes", info.name);
    }
    let most = |name: &str| OPERATIONS.iter().find(|info| info.name == name).map(|info| (info.most_bytes)(usual));
    assert!(most("import_tokens") > Some(2 * usual) && most("create_document") == Some(usual));
    assert_eq!(most("upload_file"), Some(0), "it is streamed");
}

#[tokio::test]
async fn browsers_of_other_origins_are_refused() {
    let home = [("HOME", "/nonexistent"), ("SVC_CORS_ORIGINS", r#"["https://console.example"]"#)]
        .map(|(n, v)| (n.to_owned(), v.to_owned()));
    let settings = Arc::new(Settings::load(Some(std::path::Path::new("/dev/null")), home.into_iter()).expect("valid"));
    let pool = crate::store::database::pool(sqlx::postgres::PgConnectOptions::new(), 1, settings.worker_lease);
    let router = router(Arc::new(Service::new(settings, pool, None, "owner", reader())));
    for (origin, allowed) in [("https://console.example", true), ("https://evil.example", false)] {
        let request = Request::builder()
            .method("OPTIONS")
            .uri("/documents")
            .header("origin", origin)
            .header("access-control-request-method", "POST");
        let (_, headers, _) = call(&router, request, "").await;
        assert_eq!(headers.contains_key("access-control-allow-origin"), allowed, "{origin}");
    }
}

#[test]
fn the_contract_names_what_is_on_the_wire() {
    let document = contract();
    let codes = document["components"]["schemas"]["Code"]["enum"].as_array().expect("codes");
    let words: Vec<&str> = codes.iter().filter_map(serde_json::Value::as_str).collect();
    let sent: Vec<&str> = Code::ALL.iter().filter(|code| code.status() != 0).map(|code| code.as_str()).collect();
    assert_eq!(words, sent);
    let text = document.to_string();
    assert!(!text.contains(r#""items":false"#) && !text.contains("prefixItems"), "generators of clients refuse these");
}

#[tokio::test]
async fn what_a_request_lacks_or_has_twice_is_named_as_a_field() {
    let router = router(service());
    for (method, path, body, field, says) in [
        ("POST", "/documents", r#"{"title": "a"}"#, "content", "must be given"),
        ("POST", "/documents", r#"{"title": "a", "title": "b", "content": "c"}"#, "title", "only once"),
        (
            "POST",
            "/documents",
            r#"{"title": "a", "content": "c", "event_time": "2020-01-01"}"#,
            "event_time",
            "2020-01-01T00:00:00Z",
        ),
        ("POST", "/documents/7/links", r#"{"link_type": "cites"}"#, "target_id", "must be given"),
        (
            "POST",
            "/ingest",
            r#"{"entry": "conversation", "turns": [{"speaker": "A"}]}"#,
            "turns[0].text",
            "must be given",
        ),
        (
            "POST",
            "/conversations",
            r#"{"messages": [{"role": "user", "content": "a", "content": "b"}]}"#,
            "messages[0]",
            "only once",
        ),
        (
            "POST",
            "/conversations",
            r#"{"content": "a", "options": {"embed": {}, "embed": {}}}"#,
            "options",
            "only once",
        ),
        ("POST", "/ingest/file/7/reprocess", r#"{"options": {"a": {"b": 1, "b": 2}}}"#, "options", "only once"),
        ("POST", "/ingest/explain", r#"{"format": "pdf", "patterns": {"a": 1, "a": 2}}"#, "patterns", "only once"),
        ("GET", "/documents/roots?limit=-1", "", "limit", "a whole number from 1 to 1000"),
        ("GET", "/documents/roots?limit=0", "", "limit", "takes 1 to 1000"),
    ] {
        let mut request = Request::builder().method(method).uri(path).header("authorization", "Bearer owner");
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let (status, _, problem) = call(&router, request, body).await;
        assert_eq!((status, problem["field"].as_str()), (422, Some(field)), "{path} {body}: {problem}");
        assert!(problem["detail"].as_str().expect("a detail").contains(says), "{path} {body}: {problem}");
    }
}

#[test]
fn a_search_that_lacks_its_query_or_names_no_method_is_refused_by_the_field() {
    for (uri, says) in [
        ("/search/", "must be given"),
        ("/search/?q=a&q=b", "only once"),
        ("/search/?limit=3&q=%ff%fe", "is not UTF-8"),
    ] {
        let text = uri.split_once('?').map(|(_, text)| text);
        let failure = serving::query::<svc_client::wire::SearchQuery>(text).expect_err("refused");
        assert!(failure.members["field"] == "q" && failure.detail.contains(says), "{uri}: {failure}");
    }
    let body = br#"{"query": "a", "rerank_method": "zzz"}"#;
    let read = decode::from_json::<svc_client::wire::HybridSearch>(body, "the body", Vec::new, 1 << 20);
    let failure = read.expect_err("refused");
    assert!(failure.members["field"] == "rerank_method" && failure.detail.contains("got `zzz`"), "{failure}");
}

#[tokio::test]
async fn the_old_name_of_the_options_is_refused_with_the_new_one_whatever_else_is_wrong() {
    let router = router(service());
    for body in [
        r#"{"pipeline_config": {"stages": []}}"#,
        r#"{"content": "x", "pipeline_config": null}"#,
        r#"{"entry": "no entry", "pipeline_config": {}}"#,
        r#"{"entry": "raw", "content": 7, "foo": 1, "pipeline_config": {}}"#,
        r#"{"entry": "raw", "content": "x", "pipeline_config": {}}"#,
    ] {
        let request = Request::builder().method("POST").uri("/ingest").header("authorization", "Bearer owner");
        let (status, _, problem) = call(&router, request.header("content-type", "application/json"), body).await;
        assert_eq!((status, problem["code"].as_str()), (400, Some("unknown_option")), "{body}: {problem}");
        assert_eq!(problem["key"], "pipeline_config", "{body}");
        assert!(problem["detail"].as_str().expect("a detail").contains("`options`"), "{body}: {problem}");
    }
    let request = Request::builder().method("POST").uri("/ingest").header("authorization", "Bearer owner");
    let (status, _, problem) = call(&router, request.header("content-type", "application/json"), r#"{"foo": 1}"#).await;
    assert_eq!((status, problem["field"].as_str()), (422, Some("foo")));
    assert!(!problem["detail"].as_str().expect("a detail").contains("pipeline_config"), "{problem}");
}
