//! Malicious forms, and many uploads at once.
use crate::{
    principals::someone,
    support::{TestApp, Wish, document, http, invariants, place, until_a_statement_waits},
};
use futures_util::{StreamExt, future::join_all, stream};
use serde_json::{Value, json};
use svc::store::{documents, ingest_nodes, transaction};
use svc_client::{
    Code, FileUpload, Json,
    wire::{DocumentPath, PageQuery, UploadQuery, WaitQuery},
};

const FORM: &str = "multipart/form-data; boundary=XX";

/// The answer to this body: status and problem, or what was stored.
async fn answer(app: &TestApp, content_type: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
    let request = app.raw("POST", "/ingest/file").header("content-type", content_type).body(body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn part(header: &str, content: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; {header}\r\n\r\n{content}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_forms_are_refused_by_name() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let file = part(r#"name="file"; filename="a.txt""#, "some text");
    let options = part(r#"name="options""#, "{}");
    for (what, content_type, body, status, code) in [
        ("a form", FORM, format!("{file}--XX--"), 202, None),
        ("options first", FORM, format!("{options}{file}--XX--\r\n"), 202, None),
        ("an empty form", FORM, "--XX--\r\n".into(), 422, Some("invalid_field")),
        ("nothing", FORM, String::new(), 400, Some("malformed_request")),
        ("no final boundary", FORM, file.clone(), 400, Some("malformed_request")),
        ("no file", FORM, format!("{options}--XX--"), 422, Some("invalid_field")),
        ("two files", FORM, format!("{file}{file}--XX--"), 422, Some("invalid_field")),
        ("two options", FORM, format!("{options}{options}{file}--XX--"), 422, Some("invalid_field")),
        (
            "options with a key twice",
            FORM,
            format!(
                "{}{file}--XX--",
                part(r#"name="options""#, r#"{"structure": {}, "structure": {"max_tokens": 60}}"#)
            ),
            422,
            Some("invalid_field"),
        ),
        ("an unknown part", FORM, format!("{}{file}--XX--", part("name=more", "x")), 422, Some("invalid_field")),
        ("a part without a name", FORM, "--XX\r\n\r\nx\r\n--XX--".into(), 422, Some("invalid_field")),
        ("a hundred thousand parts", FORM, part("name=x", "").repeat(100_000), 422, Some("invalid_field")),
        ("another boundary", FORM, "--YY\r\n".repeat(10_000), 400, Some("malformed_request")),
        ("no boundary", "multipart/form-data", file.clone(), 400, Some("malformed_request")),
        ("another type", "application/octet-stream", file.clone(), 415, Some("unsupported_media_type")),
        (
            "long options",
            FORM,
            format!("{}{file}--XX--", part("name=options", &" ".repeat(100_000))),
            413,
            Some("too_large"),
        ),
        ("a tail", FORM, format!("{file}--XX--{}", "x".repeat(100_000)), 400, Some("malformed_request")),
    ] {
        let (got, problem) = answer(&app, content_type, body).await;
        assert_eq!((got, problem["code"].as_str()), (status, code), "{what}: {problem}");
    }
    // It never ends; the service refuses it before its memory fills.
    let begin =
        stream::once(async { Ok::<_, std::io::Error>("--XX\r\nContent-Disposition: form-data; name=\"".to_owned()) });
    let endless = begin.chain(stream::repeat_with(|| Ok("x".repeat(64 * 1024))));
    let (status, problem) = answer(&app, FORM, reqwest::Body::wrap_stream(endless)).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("16384 bytes"), "{problem}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packed_body_is_refused_because_nothing_unpacks_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let form = format!("{}--XX--", part(r#"name="file"; filename="a.txt""#, "some text"));
    let new = json!({"title": "A document", "content": ""}).to_string();
    for (path, content_type, body) in [("/ingest/file", FORM, &form), ("/documents", "application/json", &new)] {
        let send = async |packing: &str| {
            let request = app.raw("POST", path).header("content-type", content_type);
            request.header("content-encoding", packing).body(body.clone()).send().await.unwrap()
        };
        for packing in ["gzip", "identity, br"] {
            let response = send(packing).await;
            let status = response.status().as_u16();
            let problem: Value = response.json().await.unwrap();
            assert_eq!((status, problem["code"].as_str()), (415, Some("unsupported_media_type")), "{path}: {problem}");
            assert!(problem["remedy"].as_str().unwrap().contains("Content-Encoding"), "{problem}");
        }
        assert!(send("identity").await.status().is_success(), "{path}");
    }
    assert!(
        app.raw("GET", "/documents/roots").header("content-encoding", "gzip").send().await.unwrap().status() == 200
    );
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_over_the_limit_is_refused_before_it_is_sent_and_while_it_is() {
    let settings = [("SVC_MAX_UPLOAD_BYTES", "1 MiB")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let file = part("name=file", &"x".repeat(2 << 20));
    let (status, problem) = answer(&app, FORM, file.clone()).await;
    assert_eq!((status, problem["setting"].as_str()), (413, Some("SVC_MAX_UPLOAD_BYTES")), "{problem}");
    // Without a length it is counted on the way.
    let pieces = stream::iter(
        file.into_bytes().chunks(10_000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect::<Vec<_>>(),
    );
    let (status, problem) = answer(&app, FORM, reqwest::Body::wrap_stream(pieces)).await;
    assert_eq!((status, &problem["limit"]), (413, &(1 << 20).into()), "{problem}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_place_is_refused_before_it_is_sent() {
    let settings = [("SVC_UPLOADS_AT_ONCE", "1")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let (hold, held) = tokio::sync::oneshot::channel::<()>();
    let begin = stream::iter([Ok::<_, std::io::Error>(part("name=file", "first"))]);
    let end = stream::once(async move {
        held.await.unwrap();
        Ok("--XX--".to_owned())
    });
    let request = app.raw("POST", "/ingest/file").header("content-type", FORM);
    let request = request.body(reqwest::Body::wrap_stream(begin.chain(end)));
    let first = tokio::spawn(async move { request.send().await.unwrap().status().as_u16() });
    let mut refused = 0;
    while refused == 0 {
        match app.upload_bytes("second.txt", "second").await {
            Ok(_) => {}
            Err(failure) => {
                assert_eq!((failure.code, &failure.members["retry_after"]), (Code::TooManyRequests, &5.into()));
                refused += 1;
            }
        }
    }
    hold.send(()).unwrap();
    assert_eq!(first.await.unwrap(), 202);
    app.upload_bytes("third.txt", "third").await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_uploads_at_once_take_nothing_from_anybody_else() {
    // There are fewer connections than uploads, so uploads must not take those that copies need.
    let settings = [("SVC_UPLOADS_AT_ONCE", "20")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let uploads = join_all((0..24_u8).map(|number| {
        let bytes = vec![number; 6 << 20];
        app.client.upload_file(UploadQuery::default(), FileUpload::from_bytes(&format!("{number}.bin"), bytes, None))
    }));
    let reads = async {
        loop {
            app.client.list_roots(PageQuery::default()).await.unwrap();
        }
    };
    let uploads = tokio::select! {
        uploads = uploads => uploads,
        () = reads => unreachable!(),
    };
    let stored = uploads.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(stored >= 20, "{stored}");
    for failure in uploads.into_iter().filter_map(Result::err) {
        assert_eq!(failure.code, Code::TooManyRequests, "{failure}");
        assert!(failure.members.contains_key("retry_after"), "{failure}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_time_that_the_store_cannot_hold_is_refused_by_its_field_and_nothing_is_stored() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let body = format!("{}--XX--", part(r#"name="file"; filename="a.txt""#, "some text"));
    for time in ["-010000-01-01T00:00:00Z", "%2B10000-01-01T00:00:00Z"] {
        let request = app.raw("POST", &format!("/ingest/file?event_time={time}")).header("content-type", FORM);
        let response = request.body(body.clone()).send().await.unwrap();
        assert_eq!(response.status(), 422, "{time}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["field"], "event_time", "{time}: {problem}");
    }
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);
    app.end().await;
}

/// Only the caller reads what each of these makes, by its own wish or because the service makes it so.
#[tokio::test(flavor = "multi_thread")]
async fn eight_uploads_of_the_same_bytes_that_only_their_caller_reads_make_one_node() {
    for (visibility, private) in [("everyone", true), ("owner", false)] {
        let settings = [("SVC_DEFAULT_VISIBILITY", visibility)];
        let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
        let bob = someone(&app, "bob").await;
        let query = UploadQuery { private, ..UploadQuery::default() };
        let uploads = join_all((0..8).map(|_| {
            bob.client.upload_file(query, FileUpload::from_bytes("same.txt", "The very same bytes, at once.", None))
        }));
        let new: Vec<bool> = uploads.await.into_iter().map(|answer| !answer.unwrap().was_existing).collect();
        let body = json!({"entry": "markdown", "content": "# Same\n\nThe very same text.", "private": private});
        let ingested = join_all((0..8).map(|_| async {
            let request = http().post(format!("{}/ingest?wait=false", app.base)).bearer_auth(&bob.secret).json(&body);
            let answer: Value = request.send().await.unwrap().json().await.unwrap();
            !answer["was_existing"].as_bool().unwrap_or_else(|| panic!("{answer}"))
        }));
        let new_texts = ingested.await;
        for new in [new, new_texts] {
            assert_eq!(new.iter().filter(|is_new| **is_new).count(), 1, "{visibility}: {new:?}");
        }
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM document_blobs").fetch_one(&app.pool).await.unwrap();
        assert_eq!(stored, 2, "{visibility}");
        app.end().await;
    }
}

/// An upload has found the file with its bytes when that is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_whose_file_is_deleted_while_they_are_adopted_are_stored_anew() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let parent = document("Parent", "A place.");
    let parent = app.client.create_document(WaitQuery::default(), Json(parent)).await.unwrap().id;
    for parent_id in [None, Some(parent)] {
        let upload = async |parent_id| {
            let query = UploadQuery { parent_id, ..UploadQuery::default() };
            app.client.upload_file(query, FileUpload::from_bytes("note.txt", "A heron waits.", None)).await.unwrap()
        };
        let first = upload(None).await;
        let mut deleting = transaction::begin(&app.pool).await.unwrap();
        let file = place(&mut deleting, first.document_id).await;
        let gone = documents::delete_subtrees(&mut deleting, &[file]).await.unwrap();
        ingest_nodes::forget(&mut deleting, &gone.ids).await.unwrap();
        let (second, ()) = tokio::join!(upload(parent_id), async {
            until_a_statement_waits(&app.pool).await;
            deleting.commit().await.unwrap();
        });
        assert!(!second.was_existing && !second.linked_into_parent && second.document_id != first.document_id);
        let stored = crate::edits::get(&app, second.document_id).await;
        assert_eq!((stored.parent_id, stored.content_hash), (parent_id, first.content_hash));
        invariants::check(&app.pool).await;
        app.client.delete_document(DocumentPath { id: second.document_id }).await.unwrap();
    }
    app.end().await;
}
