//! The reader: what a person finds and reads there, in a browser and over HTTP, and what nobody can make it do.
use super::{
    Console,
    browser::{draw, look, sign_in},
    csrf,
};
use crate::{
    admin::idle,
    principals::{grant, someone},
    support::{
        IN_DATABASE, TOKEN, TestApp, Wish,
        browser::{Browser, Program},
        document, missing, sample, until,
    },
};
use reqwest::{Method, Response, multipart};
use serde_json::json;
use svc_client::{
    Json,
    wire::{DocumentPath, GrantRight, NewLink, PageQuery, WaitQuery},
};

/// Ways to make a page run a script that people have published; each would set `window.ran`.
const HOSTILE: &[&str] = &[
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=2>",
    "<svg onload=window.ran=3>",
    "\"><svg/onload=window.ran=4>",
    "'-(window.ran=5)-'",
    "<body onload=window.ran=6>",
    "<iframe srcdoc=\"<script>parent.ran=7</script>\"></iframe>",
    "[x](javascript:window.ran=8)",
    "[x](JaVaScRiPt&colon;window.ran=9)",
    "![x](x\"onerror=\"window.ran=10)",
    "<a href=\"javascript:window.ran=11\" autofocus onfocus=window.ran=12>x</a>",
    "</title><script>window.ran=13</script>",
    "</textarea><script>window.ran=14</script>",
    "<details open ontoggle=window.ran=15>x</details>",
    "<input autofocus onfocus=window.ran=16>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=window.ran=17&gt;\">",
    "<style>@import 'javascript:window.ran=18';</style>",
    "<object data=\"data:text/html,<script>window.ran=19</script>\"></object>",
    "`<script>window.ran=20</script>`",
    "<meta http-equiv=refresh content=\"0;url=javascript:window.ran=21\">",
    "<base href=\"javascript:window.ran=22//\">",
    "<form action=javascript:window.ran=23><button autofocus>x</button></form>",
    "javascript:/*--></title></style></textarea></script></xmp><svg/onload='+/\"/+/onmouseover=1/+/[*/[]/+window.ran=24//'>",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_person_uploads_searches_and_reads_in_a_browser() {
    let Some(program) = Program::find() else {
        return missing("the reader in a browser (no browser here: config/setup.sh browser)");
    };
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    for name in ["handbook.md", "duck-counts.xlsx", "spring-briefing.pptx"] {
        app.ingest(&sample(name)).await;
    }
    let hidden = app.create("Closed folder", "A kingfisher of somebody else.", None).await.id;
    let (who, other) = (someone(&app, "reader").await, someone(&app, "other").await);
    grant(&app, &other, hidden, GrantRight::Read).await;
    let base = console.base.clone();
    let pdf = sample("quarterly-review.pdf").to_str().unwrap().to_owned();
    let person = move || {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser::start(&program, profile.path());
        sign_in(&mut browser, &base, TOKEN);

        // A file that is chosen is sent at once, and its page follows until it can be found.
        browser.go(&format!("{base}/view"));
        let choose = json!({"expression": "document.querySelector('.drop input[type=file]')"});
        let chosen = browser.call("Runtime.evaluate", choose)["result"]["objectId"].clone();
        browser
            .leave(|browser| drop(browser.call("DOM.setFileInputFiles", json!({"files": [pdf], "objectId": chosen}))));
        let path = browser.value("location.pathname").as_str().unwrap().to_owned();
        assert!(path.strip_prefix("/view/").is_some_and(|id| id.parse::<i64>().is_ok()), "{path}");
        assert_eq!(
            browser.value("document.querySelector('.finding.note').innerText.includes('Stored the file.')"),
            true
        );
        draw(&mut browser, "view-upload");
        browser.until("document.querySelector('header .st').innerText.includes('settled')");
        browser.until("document.querySelector('#page').classList.contains('still')");
        browser.until("!document.documentElement.classList.contains('is-live')");
        assert_eq!(browser.value("document.querySelector('article').innerText.includes('page 2')"), true);
        let to = browser.value("document.querySelector('article .place a').getAttribute('href')");
        assert_eq!(to, json!(format!("{path}/bytes#page=1")), "the number of a page opens the file there");

        // What is asked for is found, marked, and opened; the way back is above it.
        browser.go(&format!("{base}/view"));
        browser.value("document.querySelector('#ask').focus()");
        browser.insert("how deep may the silt in the stilling well be");
        browser.leave(|browser| drop(browser.value("document.querySelector('.ask').requestSubmit()")));
        assert_eq!(
            browser.value(
                "document.querySelectorAll('.found > li').length > 0 && document.querySelectorAll('mark').length > 0"
            ),
            true
        );
        draw(&mut browser, "view-found");
        let hit =
            browser.value("document.querySelector('.found .text a').getAttribute('href')").as_str().unwrap().to_owned();
        browser.leave(|browser| drop(browser.value("document.querySelector('.found .text a').click()")));
        assert_eq!(browser.value("location.pathname"), json!(hit));
        let file = browser.value("[...document.querySelectorAll('nav.crumbs a')].at(1).innerText");
        browser.leave(|browser| drop(browser.value("[...document.querySelectorAll('nav.crumbs a')].at(1).click()")));
        assert_eq!(browser.value("document.querySelector('h1').innerText"), file);
        browser.key("g");
        browser.leave(|browser| browser.key("v"));
        assert_eq!(browser.value("location.pathname"), "/view");

        let all = browser.value("[...document.querySelectorAll('tbody a')].map(a => a.getAttribute('href'))");
        let mut paths: Vec<String> =
            all.as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect();
        assert_eq!(paths.len(), 5);
        let first = paths[0].clone();
        paths.extend(["/view".to_owned(), "/view?q=heron&method=bm25".to_owned(), hit, format!("{first}/references")]);
        look(&mut browser, &program, &base, &paths);
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{complaints:#?}");

        // Somebody else sees what is open, and no trace of the rest.
        browser.call("Network.clearBrowserCookies", json!({}));
        sign_in(&mut browser, &base, &who.secret);
        assert_eq!(browser.value("location.pathname"), "/view");
        assert_eq!(browser.value("document.body.innerText.includes('handbook.md')"), true);
        for path in ["/view".to_owned(), "/view?q=kingfisher".to_owned(), format!("/view/{hidden}")] {
            browser.go(&format!("{base}{path}"));
            let told = "/Closed folder|somebody else/.test(document.documentElement.outerHTML)";
            assert_eq!(browser.value(told), false, "{path}");
        }
    };
    tokio::task::spawn_blocking(person).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_somebody_stores_runs_on_a_page() {
    let Some(program) = Program::find() else {
        return missing("hostile texts in a browser (no browser here: config/setup.sh browser)");
    };
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let root = app.create("<script>window.ran=100</script>", &HOSTILE.join("\n\n"), None).await.id;
    let mut paths = vec!["/view".to_owned(), format!("/view/{root}"), format!("/view/{root}/references")];
    for text in HOSTILE {
        let child = app.create(text, &format!("{text}\n\n[[{root}]]"), Some(root)).await.id;
        paths.push(format!("/view/{child}"));
    }
    let file =
        app.upload_bytes("\"><img src=x onerror=window.ran=101>.md", HOSTILE.join("\n\n")).await.unwrap().document_id;
    let page = format!("<html><title>x</title><body><article>{}</article></body></html>", HOSTILE.join("<p>heron</p>"));
    let html = app.upload_bytes("page.html", page.clone()).await.unwrap().document_id;
    app.settled(file).await;
    app.settled(html).await;
    paths.extend([file, html].map(|id| format!("/view/{id}")));
    let hostile = "%3Cscript%3Ewindow.ran%3D102%3C%2Fscript%3E";
    paths.push(format!("/view?q={hostile}&usetype={hostile}&from={hostile}"));
    paths.push(format!("/view?q={hostile}&method=bm25&group_by=none"));
    // What a browser would run in the console's name is saved, not shown.
    let cookie = console.sign_in(TOKEN).await;
    let bytes = console.get(&format!("/view/{html}/bytes"), &cookie).await;
    assert!(bytes.headers()["content-disposition"].to_str().unwrap().starts_with("attachment"));
    let base = console.base.clone();
    let person = move || {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser::start(&program, profile.path());
        sign_in(&mut browser, &base, TOKEN);
        for path in &paths {
            browser.go(&format!("{base}{path}"));
            browser.value("for (const a of document.querySelectorAll('article a, .found a')) a.focus()");
            assert_eq!(browser.value("window.ran ?? null"), json!(null), "{path}");
            let inside = "document.querySelectorAll('main script, main iframe, main object, main style, main base, main meta, main svg[onload], \
                          main [onerror], main [onfocus], main a[href^=\"javascript\" i]').length";
            assert_eq!(browser.value(inside), json!(0), "{path}");
        }
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "the policy of the pages had nothing to stop: {complaints:#?}");
    };
    tokio::task::spawn_blocking(person).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_meets_no_trace_of_what_it_may_not_read() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let top = app.create("Closed top", "A kingfisher.", None).await.id;
    let mine = app.create("Open part", "A heron beside the [[1]] pond.", Some(top)).await.id;
    let secret = app.create("Secret sibling", &format!("A heron knows [[{mine}]]."), Some(top)).await.id;
    let link =
        NewLink { target_id: secret, link_type: "related".to_owned(), score: None, metadata: Default::default() };
    app.client.create_link(DocumentPath { id: mine }, Json(link)).await.unwrap();
    let (who, other) = (someone(&app, "reader").await, someone(&app, "other").await);
    grant(&app, &other, top, GrantRight::Read).await;
    grant(&app, &who, mine, GrantRight::Read).await;
    let cookie = console.sign_in(&who.secret).await;
    let first = console.get("/", &cookie).await;
    assert_eq!(first.headers()["location"].to_str().unwrap(), "/view");
    for path in [
        "/view".to_owned(),
        "/view?q=heron".to_owned(),
        "/view?q=heron&method=bm25&group_by=none".to_owned(),
        format!("/view/{mine}"),
        format!("/view/{mine}?children=1"),
        format!("/view/{mine}/references"),
    ] {
        let page = console.text(&path, &cookie).await;
        let (_, main) = page.split_once("<main").unwrap();
        assert!(!main.contains("Secret") && !main.contains("Closed") && !main.contains("kingfisher"), "{path}: {main}");
    }
    let page = console.text(&format!("/view/{mine}"), &cookie).await;
    assert!(page.contains("Open part") && page.contains("a document that you may not read"), "{page}");
    assert!(console.text("/view?q=heron&method=bm25&group_by=none", &cookie).await.contains("Open part"));
    for path in [
        format!("/view/{secret}"),
        format!("/view/{secret}/references"),
        format!("/view/{secret}/bytes"),
        format!("/view/{top}"),
    ] {
        assert_eq!(console.get(&path, &cookie).await.status(), 404, "{path}");
    }
    // Who may only read stores nothing there.
    let token = csrf(&page);
    let answer = send(&console, &cookie, &token, Some(mine), vec![("x.md", b"# x\n".to_vec())]).await;
    assert_eq!(answer.status(), 303);
    assert!(answer.headers()["set-cookie"].to_str().unwrap().contains("Refused"), "{:?}", answer.headers());
    let children = app.client.list_children(DocumentPath { id: mine }, PageQuery::default()).await.unwrap().documents;
    assert!(children.is_empty());
    console.end().await;
    app.end().await;
}

/// Sends the form of an upload.
async fn send(
    console: &Console,
    cookie: &str,
    csrf: &str,
    parent: Option<i64>,
    files: Vec<(&str, Vec<u8>)>,
) -> Response {
    let mut form = multipart::Form::new().text("csrf", csrf.to_owned());
    if let Some(parent) = parent {
        form = form.text("parent_id", parent.to_string());
    }
    for (name, bytes) in files {
        form = form.part("file", multipart::Part::bytes(bytes).file_name(name.to_owned()));
    }
    let request = console.send(Method::POST, "/view/upload", Some(cookie)).header("origin", &console.base);
    request.multipart(form).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_stored_by_a_form_of_the_session_alone() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let folder =
        app.client.create_document(WaitQuery::default(), Json(document("Folder", "Papers"))).await.unwrap().document.id;
    let cookie = console.sign_in(TOKEN).await;
    let page = console.text(&format!("/view/{folder}"), &cookie).await;
    let token = csrf(&page);
    let stored = async || {
        let roots = app.client.list_roots(PageQuery::default()).await.unwrap().documents;
        let under =
            app.client.list_children(DocumentPath { id: folder }, PageQuery::default()).await.unwrap().documents;
        roots.len() - 1 + under.len()
    };
    for wrong in ["", "x", &"0".repeat(5000)] {
        let answer = send(&console, &cookie, wrong, None, vec![("a.md", b"# A\n".to_vec())]).await;
        assert!([403, 413].contains(&answer.status().as_u16()), "{}", answer.status());
    }
    // The files come before what the session is known by, so nothing of them is read.
    let late = multipart::Form::new()
        .part("file", multipart::Part::bytes(b"# A\n".to_vec()).file_name("a.md"))
        .text("csrf", token.clone());
    let request =
        console.send(Method::POST, "/view/upload", Some(&cookie)).header("origin", &console.base).multipart(late);
    assert_eq!(request.send().await.unwrap().status(), 403);
    let foreign = console.send(Method::POST, "/view/upload", Some(&cookie)).header("origin", "http://evil.example");
    assert_eq!(
        foreign.multipart(multipart::Form::new().text("csrf", token.clone())).send().await.unwrap().status(),
        403
    );
    for (kind, body) in
        [("text/plain", "x"), ("multipart/form-data; boundary=x", "--x\r\nnothing"), ("multipart/form-data", "")]
    {
        let request = console.send(Method::POST, "/view/upload", Some(&cookie)).header("origin", &console.base);
        let answer = request.header("content-type", kind).body(body).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{kind}");
    }
    assert_eq!(stored().await, 0);

    let one = send(&console, &cookie, &token, Some(folder), vec![("one.md", b"# One\n\nA coot.\n".to_vec())]).await;
    let to = one.headers()["location"].to_str().unwrap().to_owned();
    let id: i64 = to.strip_prefix("/view/").unwrap().parse().unwrap();
    assert_eq!(
        app.client.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap().parent_id,
        Some(folder)
    );
    let files = vec![
        ("two.md", b"# Two\n".to_vec()),
        ("", Vec::new()),
        ("bad\0name.md", b"# Bad\n".to_vec()),
        ("three.md", b"# Three\n".to_vec()),
        ("one.md", b"# One\n\nA coot.\n".to_vec()),
    ];
    let many = send(&console, &cookie, &token, Some(folder), files).await;
    assert_eq!(
        (many.status().as_u16(), many.headers()["location"].to_str().unwrap()),
        (303, format!("/view/{folder}").as_str())
    );
    let said = many.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert_eq!(stored().await, 3, "{said}");
    assert!(said.contains("Stored%202%20files") && said.contains("1%20stored%20already"), "{said}");
    let empty = send(&console, &cookie, &token, Some(folder), vec![("empty.md", Vec::new())]).await;
    assert_eq!(empty.status(), 303, "{:?}", empty.headers());
    for day in ["9999-12-31", "%2B262142-12-31", "-0001-01-01", "tomorrow"] {
        console.text(&format!("/view?q=heron&method=fulltext&from={day}&until={day}"), &cookie).await;
    }
    // What is stored stays, and a form that is spoilt behind it says so.
    let late = multipart::Form::new()
        .text("csrf", token.clone())
        .part("file", multipart::Part::bytes(b"# Five\n".to_vec()).file_name("five.md"))
        .text("parent_id", folder.to_string());
    let request = console.send(Method::POST, "/view/upload", Some(&cookie)).header("origin", &console.base);
    let answer = request.multipart(late).send().await.unwrap();
    let said = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(said.contains("Stored%20the%20file") && said.contains("before%20the%20files"), "{said}");
    let none = send(&console, &cookie, &token, None, vec![("", Vec::new())]).await;
    assert!(none.headers()["set-cookie"].to_str().unwrap().contains("Nothing%20was%20stored"));
    let gone = send(&console, &cookie, &token, Some(999_999), vec![("four.md", b"# Four\n".to_vec())]).await;
    assert!(gone.headers()["set-cookie"].to_str().unwrap().contains("999999"));
    assert_eq!(stored().await, 5);
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_not_read_to_its_end_says_so() {
    let settings = [("SVC_MAX_UPLOAD_BYTES", "1024"), IN_DATABASE];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/view", &cookie).await);
    let said = |answer: &Response| {
        assert_eq!(answer.status(), 303);
        answer.headers()["set-cookie"].to_str().unwrap().replace("%20", " ")
    };
    let files = vec![
        ("one.md", b"# One\n".to_vec()),
        ("big.md", b"x".repeat(20_000)),
        ("two.md", b"# Two\n".to_vec()),
        ("three.md", b"# Three\n".to_vec()),
    ];
    let cut = said(&send(&console, &cookie, &token, None, files).await);
    assert!(cut.contains("Stored the file. Refused 1 file: big.md: the file is over 1024 bytes."), "{cut}");
    assert!(cut.contains("store again whatever came behind the file that is too large"), "{cut}");
    let roots = app.client.list_roots(PageQuery::default()).await.unwrap().documents;
    assert_eq!(roots.iter().map(|root| root.title.as_str()).collect::<Vec<_>>(), ["one.md"]);
    let whole = vec![("four.md", b"# Four\n".to_vec()), ("bad\0name.md", b"# Bad\n".to_vec())];
    let whole = said(&send(&console, &cookie, &token, None, whole).await);
    assert!(whole.contains("Refused 1 file") && !whole.contains("The rest of the form"), "{whole}");
    // A file that is refused hides nothing of what spoils the form behind it.
    let part = |name: &'static str| multipart::Part::bytes(name.as_bytes()).file_name(name);
    let spoilt = multipart::Form::new()
        .text("csrf", token.clone())
        .part("file", part("bad\0name.md"))
        .part("file", part("five.md"))
        .text("parent_id", "7");
    let request = console.send(Method::POST, "/view/upload", Some(&cookie)).header("origin", &console.base);
    let spoilt = said(&request.multipart(spoilt).send().await.unwrap());
    assert!(spoilt.contains("Stored the file. Refused 1 file"), "{spoilt}");
    assert!(spoilt.contains("The rest of the form was not read") && spoilt.contains("before the files"), "{spoilt}");
    // What has no room at the database is told to operators too.
    sqlx::raw_sql(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$;
         CREATE TRIGGER no_room BEFORE INSERT ON documents FOR EACH ROW EXECUTE FUNCTION no_room()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let full = said(&send(&console, &cookie, &token, None, vec![("six.md", b"# Six\n".to_vec())]).await);
    assert!(full.contains("Nothing was stored.") && full.contains("six.md: the disk is full"), "{full}");
    assert!(app.service.disk.check().unwrap_err().contains("a write was refused for lack of space"));
    sqlx::raw_sql("DROP TRIGGER no_room ON documents; DROP FUNCTION no_room()").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_waits_until_its_sender_may_store_more_and_names_the_files_that_it_refuses() {
    let settings = [("SVC_RATE_WRITES", "1"), ("SVC_UPLOADS_AT_ONCE", "1")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let console = Console::of(&app).await;
    let folder = app.client.create_document(WaitQuery::default(), Json(document("Folder", "Papers"))).await.unwrap().id;
    let who = someone(&app, "sender").await;
    grant(&app, &who, folder, GrantRight::Write).await;
    let store = async |token: &str, names: &[String]| {
        let cookie = console.sign_in(token).await;
        let csrf = csrf(&console.text(&format!("/view/{folder}"), &cookie).await);
        let files = names.iter().map(|name| (name.as_str(), format!("# {name}\n").into_bytes())).collect();
        let answer = send(&console, &cookie, &csrf, Some(folder), files).await;
        assert_eq!(answer.status(), 303);
        answer.headers()["set-cookie"].to_str().unwrap().replace("%20", " ")
    };
    // Ten at once, and then one a second, which is longer than an upload waits for the only slot.
    let names: Vec<String> = (0..18).map(|number| format!("{number}.md")).collect();
    let beside = async {
        until("the form to wait", async || {
            let under = app.client.list_children(DocumentPath { id: folder }, PageQuery::default()).await.unwrap();
            (under.documents.len() >= 10).then_some(())
        })
        .await;
        app.upload(&sample("handbook.md")).await.unwrap();
    };
    let (said, ()) = tokio::join!(store(&who.secret, &names), beside);
    assert!(said.contains("Stored 18 files.") && !said.contains("Refused"), "{said}");
    let names: Vec<String> = (0..12).map(|number| format!("bad\0{number}.md")).collect();
    let said = store(TOKEN, &names).await;
    assert!(said.contains("Nothing was stored. Refused 12 files") && said.contains("and 2 more"), "{said}");
    for number in 0..12 {
        assert_eq!(said.contains(&format!("bad%00{number}.md")), number < 10, "{number}: {said}");
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pdf_is_shown_under_a_policy_that_lets_a_browser_s_viewer_show_it() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let pdf = app.upload(&sample("quarterly-review.pdf")).await.unwrap().document_id;
    let note = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let cookie = console.sign_in(TOKEN).await;
    let policy = |answer: &Response| {
        answer.headers().get("content-security-policy").map(|policy| policy.to_str().unwrap().to_owned())
    };
    let path = format!("/view/{pdf}/bytes");
    let shown = console.get(&path, &cookie).await;
    assert!(shown.headers()["content-disposition"].to_str().unwrap().starts_with("inline"));
    assert_eq!(policy(&shown).as_deref(), Some("frame-ancestors 'none'"));
    // What a browser has keeps the policy that it came with.
    let known = console.send(Method::GET, &path, Some(&cookie)).header("if-none-match", &shown.headers()["etag"]);
    let known = known.send().await.unwrap();
    assert_eq!((known.status().as_u16(), policy(&known)), (304, None));
    for path in [format!("/view/{pdf}"), format!("/view/{note}/bytes"), "/view/999999/bytes".to_owned()] {
        let policy = policy(&console.get(&path, &cookie).await);
        assert!(policy.is_some_and(|policy| policy.starts_with("default-src 'none'")), "{path}");
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_read_of_a_file_stands_above_what_a_page_says_of_it() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let id = app.upload_bytes("page.ps", "%!PS-Adobe-3.0\n/Times findfont\n(Words) show\n").await.unwrap().document_id;
    let warnings = app.settled(id).await.warnings;
    assert_eq!(warnings, ["extract.empty: no_reader"]);
    let who = someone(&app, "reader").await;
    for token in [TOKEN, &who.secret] {
        let cookie = console.sign_in(token).await;
        let page = console.text(&format!("/view/{id}"), &cookie).await;
        assert!(page.contains(&warnings[0]) && page.contains("class=\"still\""), "{page}");
        let page = console.text(&format!("/documents/{id}"), &cookie).await;
        assert!(page.contains(&warnings[0]) && page.contains("It owes no work, and has warnings."), "{page}");
    }
    let shown = app.client.view_document(DocumentPath { id }).await.unwrap().value().unwrap();
    assert_eq!(shown.warnings, warnings);
    let page = app.raw("GET", &format!("/view/{id}")).header("accept", "text/html").send().await.unwrap();
    assert!(page.text().await.unwrap().contains(&warnings[0]));
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_form_of_files_is_sent_at_a_time_and_a_text_is_read_in_the_direction_of_its_letters() {
    let Some(program) = Program::find() else {
        return missing("forms of files and directions in a browser (no browser here: config/setup.sh browser)");
    };
    let app = idle().await;
    let console = Console::of(&app).await;
    let text = "שלום עולם (7)\n\nA heron waits.\n\n10. שלום\n\n11. עולם\n\n---\n\n* A heron\n* שלום (7).\n";
    let letter = app.client.create_document(WaitQuery::default(), Json(document("Letter", text))).await.unwrap().id;
    let base = console.base.clone();
    let person = move || {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser::start(&program, profile.path());
        sign_in(&mut browser, &base, TOKEN);
        browser.go(&format!("{base}/view"));
        // Choosing and dropping, and how many forms were sent after each; nothing is really sent.
        let sent = browser.value(
            "(() => {
                 const input = drop.querySelector('input[type=file]'), chosen = new DataTransfer(), sent = [];
                 let forms = 0;
                 drop.requestSubmit = () => { forms++; };
                 chosen.items.add(new File(['x'], 'x.md'));
                 const choose = () => { input.files = chosen.files; input.dispatchEvent(new Event('change')); sent.push(forms); };
                 const fall = () => {
                     const event = new DragEvent('drop', { dataTransfer: chosen, bubbles: true, cancelable: true });
                     document.body.dispatchEvent(event);
                     sent.push(event.defaultPrevented && forms);
                 };
                 choose(); choose(); fall();
                 sent.push(input.checkVisibility());
                 window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }));
                 sent.push(input.checkVisibility());
                 fall(); fall();
                 return sent;
             })()",
        );
        assert_eq!(sent, json!([1, 1, 1, false, true, 2, 2]));
        // Whoever stops it in the browser is led to the form again, because the page itself hears nothing of that.
        assert_eq!(browser.value("document.querySelector('.drop .sending a').checkVisibility()"), true);
        browser.leave(|browser| drop(browser.value("document.querySelector('.drop .sending a').click()")));
        assert_eq!(browser.value("location.pathname"), "/view");
        browser.until("document.querySelector('.drop input[type=file]').checkVisibility()");

        browser.size(360, 800);
        browser.go(&format!("{base}/view/{letter}"));
        let pieces =
            browser.value("[...document.querySelectorAll('.said > *')].map(e => getComputedStyle(e).direction)");
        assert_eq!(pieces, json!(["rtl", "ltr", "rtl", "ltr", "ltr"]));
        // The numbers of a list stand where its lines begin, and a line in other letters has the same edge.
        let insides = "[...document.querySelectorAll('.said :is(li, li p)')].map(e => {
                const style = getComputedStyle(e);
                return [e.tagName, style.direction, style.textAlign, style.unicodeBidi].join(' ');
            })";
        let (number, line) = ("LI rtl right plaintext", "P rtl right plaintext");
        let point = "LI ltr left plaintext";
        assert_eq!(browser.value(insides), json!([number, line, number, line, point, point]));
        assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth"), true);
    };
    tokio::task::spawn_blocking(person).await.unwrap();
    console.end().await;
    app.end().await;
}
