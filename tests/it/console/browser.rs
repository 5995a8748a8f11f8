//! The console as a person meets it, in a real browser.
use super::{Console, PAGES};
use crate::{
    admin::{idle, of_root},
    support::{
        TOKEN, TestApp,
        browser::{Browser, Program},
        missing, sample,
    },
};
use base64::Engine as _;
use serde_json::json;
use svc_client::{
    FileUpload,
    wire::{FailureQuery, TaskTypePath, UploadQuery},
};

/// The folder that the pages are drawn into, if somebody wants to see them: SVC_TEST_SCREENSHOTS.
pub fn draw(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("SVC_TEST_SCREENSHOTS") else { return };
    let picture = base64::engine::general_purpose::STANDARD.decode(browser.picture()).unwrap();
    std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
}

/// Each page in both colours and at three widths: nothing keeps people from using it, and nothing is wider than the window. In dark colours
/// only the contrasts are looked at, and where a page is as at another width, nothing but how wide it is: the rest would be as before.
pub fn look(browser: &mut Browser, program: &Program, console: &str, paths: &[String]) {
    for path in paths {
        let name = if path == "/" { "now".to_owned() } else { path[1..].replace(['/', '?', '&', '='], "-") };
        let everything = json!({});
        let contrasts = json!({ "runOnly": ["color-contrast"] });
        for (scheme, width, rules) in [
            ("light", 1440, Some(&everything)),
            ("dark", 1440, Some(&contrasts)),
            ("light", 760, None),
            ("light", 360, Some(&everything)),
            ("dark", 360, None),
        ] {
            browser.colours(scheme);
            browser.size(width, 900);
            browser.go(&format!("{console}{path}"));
            draw(browser, &format!("{name}-{scheme}-{width}"));
            let over = browser.value("document.documentElement.scrollWidth - window.innerWidth");
            assert!(over.as_i64().unwrap() <= 0, "{path} at {width} is {over} pixels too wide");
            if program.axe.is_none() {
                missing("axe on the pages of the console (no axe-core here: config/setup.sh browser)");
            }
            if let (Some(axe), Some(rules)) = (&program.axe, rules) {
                browser.value(&format!("{axe};1"));
                let found = browser.value(&format!(
                    "axe.run({rules}).then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ').slice(0, 900)))",
                ));
                assert_eq!(found, json!([]), "{path} in {scheme} at {width}");
            }
        }
    }
    browser.colours("light");
    browser.size(1440, 900);
}

/// Everything on a page that somebody can do something with is reached by the tabulator.
fn reach(browser: &mut Browser, console: &str, paths: &[String]) {
    for path in paths {
        browser.go(&format!("{console}{path}"));
        // News would draw the page anew meanwhile.
        browser.value("events?.close()");
        let all = browser.value(
            "window.wanted = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
                 .filter(e => !e.disabled && e.tabIndex >= 0 && e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0);
             window.reached = new Set(); window.wanted.length",
        );
        for _ in 0..all.as_u64().unwrap() + 2 {
            browser.tab();
            browser.value("window.reached.add(document.activeElement); 1");
        }
        let missed =
            browser.value("window.wanted.filter(e => !window.reached.has(e)).map(e => e.outerHTML.slice(0, 200))");
        assert_eq!(missed, json!([]), "{path}");
    }
}

/// Shows a token on the page that asks for one.
pub fn sign_in(browser: &mut Browser, console: &str, token: &str) {
    browser.go(&format!("{console}/login"));
    browser.value("document.querySelector('#token').focus()");
    browser.insert(token);
    browser.leave(|browser| drop(browser.value("document.querySelector('form').submit()")));
}

/// How often a page that stands open is drawn anew, unless SVC_TEST_MORPHS says otherwise.
const MORPHS: u32 = 500;
/// What a page may hold more after that: elements, and bytes of its script.
const MORE_NODES: f64 = 200.0;
const MORE_BYTES: f64 = 1_000_000.0;

/// The elements and the bytes that a page holds when everything is gone that nothing needs.
fn held(browser: &mut Browser) -> (f64, f64) {
    // What goes may hold more that goes then.
    for _ in 0..3 {
        browser.call("HeapProfiler.collectGarbage", json!({}));
    }
    let nodes = browser.call("Memory.getDOMCounters", json!({}))["nodes"].as_f64().unwrap();
    let bytes = browser.call("Runtime.getHeapUsage", json!({}))["usedSize"].as_f64().unwrap();
    (nodes, bytes)
}

/// A page that stands open for hours holds no more than after its first minutes.
fn stand_open(browser: &mut Browser, address: &str) {
    let morphs = std::env::var("SVC_TEST_MORPHS").map_or(MORPHS, |count| count.parse().unwrap());
    browser.go(address);
    // News would draw the page between two of the test's own drawings, and in the moment in which it is measured.
    browser.value("events.close()");
    let mut refresh = |count: u32| {
        for _ in 0..count / 50 {
            // What the service sends is drawn twice, the first time with rows that go again.
            browser.value(
                "(async () => {
                     for (let at = 0; at < 50; at++) {
                         document.querySelector('main').append(document.querySelector('main').lastElementChild.cloneNode(true));
                         while (busy) await new Promise(done => setTimeout(done, 5));
                         await refresh();
                     }
                 })()",
            );
        }
        browser.value(
            "(async () => {
                 const still = () => !busy && !again;
                 do {
                     await new Promise(done => setTimeout(done, 300)); // longer than a drawing that came too early waits
                 } while (!still());
                 await refresh();
             })()",
        );
        held(browser)
    };
    let (nodes, bytes) = refresh(200);
    let (nodes_then, bytes_then) = refresh(morphs);
    assert!(nodes_then < nodes + MORE_NODES, "{nodes} nodes became {nodes_then}");
    assert!(bytes_then < bytes + MORE_BYTES, "{bytes} bytes became {bytes_then}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_person_operates_the_service_in_a_browser() {
    let Some(program) = Program::find() else {
        return missing("the console in a browser (no browser here: config/setup.sh browser)");
    };
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    for name in ["handbook.md", "corrupt.pdf", "duck-counts.xlsx", "onboarding-checklist.docx"] {
        app.ingest(&sample(name)).await;
    }
    let document = app.upload_bytes("<b>bold</b>.md", "# A\n\nheron\n\n# B\n\ncoot\n").await.unwrap().document_id;
    app.settled(document).await;
    let failed = app.client.list_failures(FailureQuery::default()).await.unwrap().failures;
    let task = failed.first().map(|group| group.sample.task_id).unwrap();
    let (base, client) = (console.base.clone(), app.client.clone());
    let runtime = tokio::runtime::Handle::current();
    let person = move || {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser::start(&program, profile.path());

        // Signing in, with the wrong token first.
        sign_in(&mut browser, &base, "wrong");
        assert_eq!(browser.value("location.pathname"), "/login");
        draw(&mut browser, "login");
        sign_in(&mut browser, &base, TOKEN);
        assert_eq!(browser.value("location.pathname"), "/");

        // The pages stay live: a file that is stored now is shown, and what the person does stays.
        browser.until("document.documentElement.classList.contains('is-live')");
        browser.value("document.querySelector('#find').focus()");
        browser.insert("half a wor");
        let file = FileUpload::from_bytes("just-now.md", b"# New\n\nA kingfisher.\n".to_vec(), None);
        runtime.block_on(client.upload_file(UploadQuery::default(), file)).unwrap();
        browser.until("document.querySelector('main').innerText.includes('just-now.md')");
        assert_eq!(browser.value("document.activeElement.value"), "half a wor");
        browser.value("document.activeElement.value = ''; document.activeElement.blur()");

        // Keys lead everywhere.
        for (key, place) in [
            ("t", "/tasks"),
            ("a", "/actors"),
            ("w", "/workers"),
            ("b", "/feed"),
            ("f", "/failed"),
            ("d", "/documents"),
            ("v", "/view"),
            ("n", "/"),
        ] {
            browser.key("g");
            browser.leave(|browser| browser.key(key));
            assert_eq!(browser.value("location.pathname"), place);
        }
        browser.key("?");
        browser.until("document.querySelector('#help').open");
        draw(&mut browser, "help");
        browser.value("document.querySelector('#help').close()");
        browser.key("/");
        assert_eq!(browser.value("document.activeElement.id"), "find");
        browser.insert(&document.to_string());
        browser.leave(|browser| drop(browser.value("document.activeElement.form.submit()")));
        browser.until("location.pathname.startsWith('/documents/') || location.pathname.startsWith('/tasks/')");

        // What is closed stays closed, while the page goes on.
        browser.go(&format!("{base}/actors"));
        browser.until("document.querySelector('.tree details[open]')");
        browser.value("document.querySelector('.tree details[open]').open = false");
        let shown = browser.value("document.querySelector('.when').innerText");
        browser.until(&format!("document.querySelector('.when').innerText !== {shown}"));
        assert_eq!(browser.value("document.querySelector('.tree details').open"), false);
        browser.key("j");
        browser.until("document.querySelector('.cur')");
        browser.key("p");
        browser.until("document.documentElement.classList.contains('is-held')");

        // An act asks first, and tells what came of it.
        browser.go(&format!("{base}/failed"));
        browser.click_and_accept("document.querySelector('main form button')");
        assert_eq!(browser.value("location.pathname"), "/failed");
        browser.until("document.querySelector('.finding.note').innerText.includes('Queued')");

        let more = [
            format!("/documents/{document}"),
            format!("/tasks/{task}"),
            "/tasks?status=completed".to_owned(),
            format!("/tasks?under={document}"),
            "/failed?minutes=60".to_owned(),
            "/nowhere".to_owned(),
        ];
        let paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).chain(more).collect();
        look(&mut browser, &program, &base, &paths);
        reach(&mut browser, &base, &paths);
        let complaints: Vec<String> = browser
            .complaints()
            .into_iter()
            .filter(|complaint| !complaint.contains("404") && !complaint.contains("403"))
            .collect();
        assert!(complaints.is_empty(), "{complaints:#?}");

        stand_open(&mut browser, &format!("{base}/actors"));

        // A button chooses other colours than the system's.
        browser.go(&base);
        browser
            .leave(|browser| drop(browser.value("document.querySelector('form[action=\"/theme\"] button').click()")));
        assert_eq!(browser.value("document.documentElement.dataset.theme"), "dark");
    };
    tokio::task::spawn_blocking(person).await.unwrap();
    let open = app.client.list_tasks(of_root(document)).await.unwrap().tasks;
    assert!(open.is_empty());
    crate::support::until("the queue to be empty", async || {
        let left: i64 =
            sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final").fetch_one(&app.pool).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
    console.end().await;
    app.end().await;
}

/// Has a live page read itself again, and waits until that is done.
fn draw_anew(browser: &mut Browser) {
    let is_anew = browser.value(
        "(async () => {
             events?.close();
             while (busy) await new Promise(done => setTimeout(done, 5));
             document.querySelector('.when').textContent = '';
             await refresh();
             return document.querySelector('.when').textContent !== '';
         })()",
    );
    assert_eq!(is_anew, true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_person_typed_chose_and_was_told_stays_while_a_page_goes_on() {
    let Some(program) = Program::find() else {
        return missing("forms of live pages in a browser (no browser here: config/setup.sh browser)");
    };
    let app = idle().await;
    let console = Console::of(&app).await;
    // Nobody works, so the file stays in flight, and its page is live.
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let task = app.client.list_tasks(of_root(file)).await.unwrap().tasks.remove(0).id;
    let base = console.base.clone();
    let person = move || {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser::start(&program, profile.path());
        sign_in(&mut browser, &base, TOKEN);

        browser.go(&format!("{base}/documents"));
        browser.value("document.querySelector('input[name=name]').focus()");
        browser.insert("hand");
        browser.value("document.activeElement.blur()");
        draw_anew(&mut browser);
        assert_eq!(browser.value("document.querySelector('input[name=name]').value"), "hand");

        browser.go(&format!("{base}/view/{file}"));
        browser.value(
            "(() => {
                 const { q, method, usetype, from, parent_id } = document.querySelector('.ask').elements;
                 [q.value, method.value, usetype.value, from.value, parent_id.checked] = ['heron', 'fulltext', 'record', '2026-03-01', false];
                 document.querySelector('#find').value = 'abc';
             })()",
        );
        draw_anew(&mut browser);
        let kept = browser.value(
            "(() => {
                 const { q, method, usetype, from, parent_id } = document.querySelector('.ask').elements;
                 return [q.value, method.value, usetype.value, from.value, parent_id.checked, document.querySelector('#find').value];
             })()",
        );
        assert_eq!(kept, json!(["heron", "fulltext", "record", "2026-03-01", false, "abc"]));

        // What an act came to stays above what the page then finds.
        browser.go(&base);
        browser.until("document.querySelector('form[action=\"/task-types/probe/pause\"]')");
        browser.click_and_accept("document.querySelector('form[action=\"/task-types/probe/pause\"] button')");
        let told = "[...document.querySelectorAll('main > .finding')].map(e => e.innerText.includes('Paused probe.'))";
        browser.until(&format!("{told}.length > 1"));
        for _ in 0..2 {
            draw_anew(&mut browser);
            let told = browser.value(told);
            let told = told.as_array().unwrap();
            assert!(told.len() > 1 && told[0] == true && told[1..].iter().all(|told| *told == false), "{told:?}");
        }

        // No button becomes another under somebody's hand: that of what is no longer possible goes.
        browser.go(&format!("{base}/tasks/{task}"));
        browser.value(
            "(async () => {
                 window.before = document.querySelector('main form button');
                 await fetch(before.form.action, { method: 'POST', body: new URLSearchParams(new FormData(before.form)) });
             })()",
        );
        draw_anew(&mut browser);
        let labels = "[before.textContent, before.isConnected, document.querySelector('main form button').textContent]";
        assert_eq!(browser.value(labels), json!(["Cancel", false, "Retry"]));

        // Whose session has ended signs in, and is back where that was.
        browser.go(&format!("{base}/documents?name=hand"));
        browser.value("events?.close()");
        browser.call("Network.clearBrowserCookies", json!({}));
        browser.leave(|browser| drop(browser.value("setTimeout(refresh, 0)")));
        assert_eq!(browser.value("location.pathname + location.search"), json!("/login?to=%2Fdocuments%3Fname%3Dhand"));
        browser.value("document.querySelector('#token').focus()");
        browser.insert(TOKEN);
        browser.leave(|browser| drop(browser.value("document.querySelector('form').submit()")));
        assert_eq!(browser.value("location.pathname + location.search"), "/documents?name=hand");
    };
    tokio::task::spawn_blocking(person).await.unwrap();
    app.client.resume_task_type(TaskTypePath { task_type: "probe".to_owned() }).await.unwrap();
    console.end().await;
    app.end().await;
}
