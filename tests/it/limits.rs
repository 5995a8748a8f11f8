//! Limits of how much callers may ask for: rates of principals, requests at work, addresses and headers.
use crate::{
    principals::{grant, someone},
    support::{PATIENCE, TOKEN, TestApp, Wish, document, http, sample, server, until, web::Web},
};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use svc::reader::Reader;
use svc_client::{
    Client, Code, FileUpload, Json, Remote,
    wire::{
        CellsQuery, DocumentPath, GrantPath, GrantRight, IndexDocumentPath, IndexPath, IngestQuery, NewDocument,
        NewGrant, NewIndex, NewMembers, TaskTypePath, UploadQuery, WaitQuery,
    },
};
use svc_ids::PrincipalId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn header<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn get(app: &TestApp, token: &str, path: &str) -> Response {
    http().get(format!("{}{path}", app.base)).bearer_auth(token).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_asks_too_much_is_told_when_to_come_again_and_nobody_else_notices() {
    let settings = [("SVC_RATE_READS", "1"), ("SVC_RATE_COSTLY", "1")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let (greedy, other) = (someone(&app, "greedy").await, someone(&app, "other").await);
    let read = async |token: &str| get(&app, token, "/documents/roots").await;

    let first = read(&greedy.secret).await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(header(&first, "ratelimit-policy"), Some("\"reads\";q=10;w=10"));
    assert_eq!(header(&first, "ratelimit"), Some("\"reads\";r=9;t=1"));
    let refused = until("a refusal", async || {
        let answer = read(&greedy.secret).await;
        (answer.status() != StatusCode::OK).then_some(answer)
    })
    .await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    assert_eq!(header(&refused, "ratelimit"), Some("\"reads\";r=0;t=1"));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!((&problem["code"], &problem["setting"]), (&"too_many_requests".into(), &"SVC_RATE_READS".into()));

    // Another class, another principal, the owner and the probes go on.
    let search = get(&app, &greedy.secret, "/search/?q=words").await;
    assert_eq!((search.status(), header(&search, "ratelimit-policy")), (StatusCode::OK, Some("\"costly\";q=10;w=10")));
    assert_eq!(read(&other.secret).await.status(), StatusCode::OK);
    for _ in 0..20 {
        let owners = read(TOKEN).await;
        assert_eq!((owners.status(), header(&owners, "ratelimit")), (StatusCode::OK, None));
    }
    assert_eq!(get(&app, &greedy.secret, "/health").await.status(), StatusCode::OK);
    until("the bucket to have one more", async || {
        (read(&greedy.secret).await.status() == StatusCode::OK).then_some(())
    })
    .await;
    app.end().await;
}

/// Checks that this is the answer to a principal that has its share.
async fn is_over_its_share(answer: Response) {
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&answer, "retry-after"), Some("5"));
    let problem: Value = answer.json().await.unwrap();
    let expected = ("too_many_requests", "SVC_PRINCIPAL_SHARE");
    assert_eq!((problem["code"].as_str().unwrap(), problem["setting"].as_str().unwrap()), expected, "{problem}");
    assert!(problem["remedy"].is_string(), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_take_a_bounded_memory() {
    // An answer may stay unread for longer than the test has patience.
    let settings = [("SVC_BODY_TIMEOUT_SECONDS", "3600"), ("SVC_PRINCIPAL_SHARE", "0.1")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let (greedy, other) = (someone(&app, "greedy").await, someone(&app, "other").await);
    // One principal's tenth of 256 MiB has room for two of these.
    let long = document("long", &"many words ".repeat(1 << 20));
    let id = app.client.create_document(WaitQuery::default(), Json(long)).await.unwrap().id;
    let path = format!("/documents/{id}");
    let mut unread = Vec::new();
    for _ in 0..2 {
        let mut answer = get(&app, &greedy.secret, &path).await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer.chunk().await.unwrap();
        unread.push(answer);
    }
    is_over_its_share(get(&app, &greedy.secret, &path).await).await;
    // What has been stored is not refused for want of room for its answer.
    let new = json!({"title": "long", "content": "other words ".repeat(1 << 20)});
    let create = http().post(format!("{}/documents", app.base)).bearer_auth(&greedy.secret).json(&new);
    assert_eq!(create.send().await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(get(&app, &other.secret, &path).await.bytes().await.unwrap().len() >> 20, 11);
    // Who reads gets the room back.
    for answer in unread {
        answer.bytes().await.unwrap();
    }
    until("the room of what was read", async || {
        let answer = get(&app, &greedy.secret, &path).await;
        (answer.status() == StatusCode::OK).then_some(())
    })
    .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_holds_its_share_of_streams_leaves_some_to_others() {
    let app = TestApp::with(Wish { no_worker: true, settings: &[("SVC_EVENT_STREAMS", "4")], ..Wish::default() }).await;
    let (greedy, other) = (someone(&app, "greedy").await, someone(&app, "other").await);
    let follow = async |token: &str| get(&app, token, "/events?since=now").await;
    let mut held = vec![follow(&greedy.secret).await, follow(&greedy.secret).await];
    assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
    is_over_its_share(follow(&greedy.secret).await).await;

    let others = [follow(&other.secret).await, follow(TOKEN).await];
    assert!(others.iter().all(|answer| answer.status() == StatusCode::OK), "the others are served");
    held.pop();
    let again = until("its slot to come back", async || {
        let answer = follow(&greedy.secret).await;
        (answer.status() == StatusCode::OK).then_some(answer)
    })
    .await;
    is_over_its_share(follow(&greedy.secret).await).await;
    drop((held, others, again));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_whose_uploads_are_slow_leaves_slots_to_others() {
    let settings = [("SVC_UPLOADS_AT_ONCE", "2")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let (greedy, other) = (someone(&app, "greedy").await, someone(&app, "other").await);
    let upload = async |token: &str, text: &str| {
        let form = reqwest::multipart::Form::new();
        let part = reqwest::multipart::Part::text(text.to_owned()).file_name("note.txt");
        let request = http().post(format!("{}/ingest/file", app.base)).bearer_auth(token);
        request.multipart(form.part("file", part)).send().await.unwrap()
    };
    // It announces a form, and sends none of it.
    let mut slow = TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!(
        "POST /ingest/file HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {}\r\nContent-Length: 5000\r\n\
         Content-Type: multipart/form-data; boundary=XX\r\n\r\n",
        greedy.secret
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let refused = until("its share to be taken", async || {
        let answer = upload(&greedy.secret, "before").await;
        (answer.status() != StatusCode::ACCEPTED).then_some(answer)
    })
    .await;
    is_over_its_share(refused).await;

    assert_eq!(upload(&other.secret, "of another").await.status(), StatusCode::ACCEPTED);
    assert_eq!(upload(TOKEN, "of the owner").await.status(), StatusCode::ACCEPTED);
    drop(slow);
    until("its slot to come back", async || {
        (upload(&greedy.secret, "after").await.status() == StatusCode::ACCEPTED).then_some(())
    })
    .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_whose_files_are_read_for_long_leaves_readers_to_others() {
    let web = Web::start().await;
    web.put("/heron", "200 OK", "content-type: text/html\r\n", b"<p>A heron waits in the reeds.</p>");
    let allow = format!("[{:?}]", web.at);
    let settings = [("SVC_PRINCIPAL_SHARE", "0.5"), ("SVC_FETCH_ALLOW", allow.as_str())];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let (greedy, other) = (someone(&app, "greedy").await, someone(&app, "other").await);
    let (workbook, _) = app.ingest(&sample("duck-counts.xlsx")).await;
    let cells = async |client: &Client<Remote>| {
        let query = CellsQuery { reference: Some("A1".to_owned()), sheet: None };
        client.read_cells(DocumentPath { id: workbook }, query).await
    };
    let file = |name: &str, options: Option<Value>| {
        FileUpload::from_bytes(name, std::fs::read(sample(name)).unwrap(), options)
    };
    let mut held = Vec::new();
    for _ in 0..std::thread::available_parallelism().unwrap().get().max(2) / 2 {
        held.push(app.service.admission.reader(Some(PrincipalId(greedy.id))).await.unwrap());
    }
    let page = json!({"entry": "wiki:url", "url": web.url("/heron")});
    let locked = file("locked.pdf", Some(json!({"extract": {"password": "heron"}})));
    let (read, analyzed, opened, fetched) = tokio::join!(
        cells(&greedy.client),
        greedy.client.analyze_file(file("handbook.md", None)),
        greedy.client.upload_file(UploadQuery::default(), locked),
        greedy.client.ingest(IngestQuery::default(), Json(serde_json::from_value(page).unwrap())),
    );
    for refused in [read.err(), analyzed.err(), opened.err(), fetched.err()] {
        let refused = refused.unwrap();
        assert_eq!(refused.members["setting"], "SVC_PRINCIPAL_SHARE", "{refused}");
        assert!(refused.detail.contains("readings of files"), "{refused}");
    }
    for client in [&other.client, &app.client] {
        cells(client).await.unwrap();
        client.analyze_file(file("handbook.md", None)).await.unwrap();
    }
    drop(held);
    cells(&greedy.client).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_request_has_a_file_read_for_a_minute_or_a_fifth_of_the_time_of_a_task() {
    let folder = server::work_dir();
    let (program, told) = (folder.join("telling-reader"), folder.join("telling-reader.told"));
    // It writes down what it is asked for, and gives no answer.
    std::fs::write(&program, format!("#!/bin/sh\ncat <&1 >> '{}'\n", told.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for ([cpu, wall], expected) in [(["300", "600"], [60, 120]), (["40", "2000"], [40, 400])] {
        let settings = [("SVC_PARSER_CPU_TIME", cpu), ("SVC_PARSER_WALL_TIME", wall)];
        let reader = Some(Reader::new(program.clone()));
        let app = TestApp::with(Wish { settings: &settings, reader, no_worker: true, ..Wish::default() }).await;
        let options = json!({"extract": {"password": "heron"}});
        let locked = FileUpload::from_path(&sample("locked.pdf"), Some(options)).await.unwrap();
        app.client.upload_file(UploadQuery::default(), locked).await.unwrap();
        let open = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
        app.client.analyze_file(open).await.unwrap();
        let asked = std::fs::read(&told).unwrap();
        std::fs::remove_file(&told).unwrap();
        let times: Vec<[u64; 2]> = serde_json::Deserializer::from_slice(&asked)
            .into_iter::<Value>()
            .map(|message| {
                let message = message.unwrap();
                ["cpu_time", "wall_time"].map(|name| message["request"]["limits"][name].as_u64().unwrap())
            })
            .collect();
        // The upload has it read with its password and without, and the analysis once.
        assert_eq!(times, [expected; 3]);
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_answer_while_every_request_slot_is_taken() {
    let settings = [("SVC_REQUESTS_AT_ONCE", "3")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    // What reads documents waits for this lock.
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE documents").execute(&mut *lock).await.unwrap();
    let at_work: Vec<_> = (0..3).map(|_| tokio::spawn(app.raw("GET", "/documents/roots").send())).collect();
    until("all slots to be taken", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%d.parent_id IS NULL%'",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        (waiting == 3).then_some(())
    })
    .await;

    let refused = tokio::spawn(app.raw("GET", "/access/me").send());
    for path in ["/health", "/metrics", "/openapi.json"] {
        assert_eq!(app.raw("GET", path).send().await.unwrap().status(), StatusCode::OK, "{path}");
        assert!(!refused.is_finished(), "{path} answers before a request without a slot is given up");
    }
    let refused = refused.await.unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(header(&refused, "retry-after").is_some());
    assert_eq!(refused.json::<Value>().await.unwrap()["setting"], "SVC_REQUESTS_AT_ONCE");

    lock.rollback().await.unwrap();
    for answer in at_work {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(app.raw("GET", "/access/me").send().await.unwrap().status(), StatusCode::OK, "the slots are free again");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_tasks_keeps_nobody_from_working() {
    const WAITS: usize = 24;
    let settings = [("SVC_REQUESTS_AT_ONCE", "3"), ("SVC_UPLOADS_AT_ONCE", "3"), ("SVC_WAITS_AT_ONCE", "24")];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let ask = |number: usize| {
        let text = format!("The gauge was read {number} times.");
        match number % 2 {
            0 => app.raw("POST", "/documents?wait=true").json(&json!({"title": "Gauge", "content": text})),
            _ => app.raw("POST", "/ingest").json(&json!({"entry": "raw", "title": "Gauge", "content": text})),
        }
    };
    let waiting: Vec<_> = (0..WAITS).map(|number| tokio::spawn(ask(number).send())).collect();
    let stored = async || {
        let roots: Value = app.raw("GET", "/documents/roots").send().await.unwrap().json().await.unwrap();
        roots["documents"].as_array().map_or(0, Vec::len)
    };
    until("all to be stored and to wait", async || (stored().await == WAITS).then_some(())).await;
    for _ in 0..10 {
        assert_eq!(app.raw("GET", "/access/me").send().await.unwrap().status(), StatusCode::OK);
    }
    // It is refused before anything is stored.
    for number in [WAITS, WAITS + 1] {
        let refused = ask(number).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(header(&refused, "retry-after").is_some());
        assert_eq!(refused.json::<Value>().await.unwrap()["setting"], "SVC_WAITS_AT_ONCE");
    }
    assert_eq!(stored().await, WAITS);
    assert!(waiting.iter().all(|answer| !answer.is_finished()), "all of them waited");

    app.client.resume_task_type(embed()).await.unwrap();
    for answer in waiting {
        let answer = answer.await.unwrap().unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_waits_no_longer() {
    // A wait takes longer than the test has patience.
    let settings = [("SVC_WAITS_AT_ONCE", "1"), ("SVC_INGEST_WAIT_SECONDS", "3600")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let ask = |text: &str| {
        app.raw("POST", "/ingest").json(&json!({"entry": "raw", "title": "Gauge", "content": text})).send()
    };
    let stored =
        async || -> i64 { sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap() };
    let waiting = tokio::spawn(ask("It was read."));
    until("it to be stored", async || (stored().await == 1).then_some(())).await;
    assert_eq!(ask("It was read again.").await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    waiting.abort();
    let next = until("the place of who hung up", async || {
        let mut next = Box::pin(ask("It was read again."));
        tokio::select! {
            biased;
            refused = &mut next => {
                assert_eq!(refused.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
                None
            }
            () = until("it to be stored too", async || (stored().await == 2).then_some(())) => Some(next),
        }
    })
    .await;
    drop(next);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_tasks_is_answered_when_the_service_stops() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let new = json!({"title": "Gauge", "content": "The gauge was read."});
    let waiting = tokio::spawn(app.raw("POST", "/documents?wait=true").json(&new).send());
    until("it to be stored", async || {
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
        (stored == 1).then_some(())
    })
    .await;
    assert!(!waiting.is_finished());
    app.stop_listening();
    let answer = tokio::time::timeout(PATIENCE, waiting).await.expect("it is not held").unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let problem: Value = answer.json().await.unwrap();
    assert!(problem["document_id"].is_i64() && problem["remedy"].is_string(), "{problem}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_texts_cut_leaves_slots_to_others() {
    let settings = [("SVC_EMBEDS_AT_ONCE", "2"), ("SVC_PRINCIPAL_SHARE", "0.5")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let bob = someone(&app, "bob").await;
    let new = NewDocument { private: true, ..document("Herons", "The heron waits by the water. It eats fish.") };
    let id = bob.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id;
    let ask = async |token: &str, what: &str, body: Value| {
        let request = http().post(format!("{}/documents/{id}/{what}", app.base)).bearer_auth(token);
        request.json(&body).send().await.unwrap()
    };
    let held = app.service.admission.embed(Some(PrincipalId(bob.id))).await.unwrap();
    let (chunk, split, segment) = tokio::join!(
        ask(&bob.secret, "chunk", json!({})),
        ask(&bob.secret, "split", json!({"at": [30]})),
        ask(&bob.secret, "segment", json!({}))
    );
    for refused in [chunk, split, segment] {
        is_over_its_share(refused).await;
    }
    assert_eq!(ask(TOKEN, "split", json!({"at": [30]})).await.status(), StatusCode::CREATED);
    drop(held);
    assert_eq!(ask(&bob.secret, "chunk", json!({})).await.status(), StatusCode::CREATED);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_closes_documents_by_grants_or_changes_what_indexes_cover_takes_the_slots_of_moves() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let bob = someone(&app, "bob").await;
    let create = async || {
        let created = app.client.create_document(WaitQuery::default(), Json(document("A place", "A text."))).await;
        created.unwrap().id
    };
    let (one, two) = (create().await, create().await);
    let index = |name: &str| -> Json<NewIndex> {
        Json(serde_json::from_value(json!({"name": name, "members": [one]})).unwrap())
    };
    let id = app.client.create_index(index("first")).await.unwrap().id;
    app.client.protect_document(DocumentPath { id: one }).await.unwrap();
    // As many as there are.
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(app.service.admission.moving(None).await.unwrap());
    }
    grant(&app, &bob, one, GrantRight::Read).await;
    let path = GrantPath { id: two, principal_id: bob.id };
    let closes = || app.client.put_grant(path, Json(NewGrant { right: GrantRight::Read }));
    let (closed, made, added, removed) = tokio::join!(
        closes(),
        app.client.create_index(index("second")),
        app.client.add_index_members(IndexPath { id }, Json(NewMembers { members: vec![two] })),
        app.client.remove_index_member(IndexDocumentPath { id, document_id: one }),
    );
    for refused in [closed.err(), made.err(), added.err(), removed.err()] {
        let refused = refused.unwrap();
        assert_eq!(refused.code, Code::TooManyRequests);
        assert!(refused.detail.contains("access roots") && refused.detail.contains("indexes"), "{refused}");
    }
    drop(held);
    closes().await.unwrap();
    app.client.create_index(index("second")).await.unwrap();
    app.end().await;
}

/// The status line of the answer to this.
async fn status(app: &TestApp, request: String) -> String {
    let mut stream = TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap();
    // The service may close before it has read everything.
    drop(stream.write_all(request.as_bytes()).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_body_waits_for_no_room_for_one() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let new = document("Herons", "The heron waits by the water.");
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    // The bodies of others leave less room than the largest one would take.
    let held = app.service.admission.body(None, 250 << 20).await.unwrap();
    let head = format!("POST /documents/{id}/embed?with_tokens=false HTTP/1.1\r\nHost: svc\r\nConnection: close\r\n");
    for length in ["", "Content-Length: 0\r\n"] {
        let line = status(&app, format!("{head}Authorization: Bearer {TOKEN}\r\n{length}\r\n")).await;
        assert!(line.contains("200"), "{length}{line}");
    }
    drop(held);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_headers_have_a_longest_form() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let request = |address: usize, value: usize, headers: usize| {
        let more: String = (0..headers).map(|number| format!("X-{number}: a\r\n")).collect();
        let (address, value) = ("a".repeat(address), "b".repeat(value));
        format!("GET /health?{address} HTTP/1.1\r\nHost: svc\r\nConnection: close\r\nX-Long: {value}\r\n{more}\r\n")
    };
    for (address, value, headers, expected) in [
        // A parameter that nobody knows.
        (60_000, 1, 0, "422"),
        (70_000, 1, 0, "414"),
        (1, 200_000, 0, "431"),
        (1, 1, 200, "431"),
    ] {
        let line = status(&app, request(address, value, headers)).await;
        assert!(line.contains(expected), "{address} {value} {headers}: {line}");
    }
    app.end().await;
}
