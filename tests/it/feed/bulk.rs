//! `svc bulk`: folders through the broker and by uploads, and the journal by which it goes on.
use crate::{
    cli::lines,
    crash::Process,
    feed::{Feed, count, feed, feed_at, note, plain, state},
    support::{
        TOKEN, TestApp, Wish,
        broker::{self, Broker},
        http,
        proxy::{Proxy, Weather},
        until,
    },
};
use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    response::{Html, IntoResponse},
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

/// `svc bulk` beside a journal, over the broker.
pub fn by_broker(feed: &Feed, journal: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.arg("bulk").args(arguments).arg("--journal").arg(journal).env("SVC_CONFIG", "/dev/null");
    command.env("SVC_AMQP_URL", &feed.url).env("SVC_AMQP_PREFIX", &feed.producer.prefix);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same, by uploads.
pub fn by_uploads(app: &TestApp, journal: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.arg("bulk").args(arguments).arg("--journal").arg(journal).env("SVC_CONFIG", "/dev/null");
    command.env("SVC_URL", &app.base).env("SVC_API_TOKEN", TOKEN).env_remove("SVC_AMQP_URL");
    command
}

pub async fn ran(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The numbers of the last line.
fn account(output: &Output) -> [u64; 7] {
    let last = lines(output).pop().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    ["files", "accepted", "duplicate", "rejected", "waiting", "left", "before"].map(|name| last[name].as_u64().unwrap())
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A folder with a file of each sort; 7 files in it can be stored, and one of these is a copy.
fn folder(at: &Path, inline: usize) {
    fs::create_dir_all(at.join("in/deep")).unwrap();
    fs::write(at.join("../secret"), "outside").unwrap();
    for number in 0..4 {
        fs::write(at.join(format!("in/{number}.md")), note(20_000 + number)).unwrap();
    }
    fs::write(at.join("in/deep/copy.md"), note(20_000)).unwrap();
    fs::write(at.join("empty.txt"), "").unwrap();
    fs::write(at.join("a\n\u{1b}[2J b.md"), note(20_005)).unwrap();
    fs::write(at.join("large.txt"), "x".repeat(inline + 1)).unwrap();
    symlink("../secret", at.join("link.md")).unwrap();
    symlink("..", at.join("in/up")).unwrap();
}

async fn stored(app: &TestApp) -> (i64, i64) {
    (count(&app.pool, "document_blobs").await, count(&app.pool, "documents WHERE parent_id IS NULL").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_goes_over_the_broker_and_a_second_run_sends_what_is_new() {
    let Some(feed) = feed(true, &[]).await else { return };
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    folder(&root, 1 << 20);
    let run = async |more: &[&str]| {
        let path = text(&root);
        let arguments: Vec<&str> = [path.as_str()].iter().chain(more).copied().collect();
        ran(by_broker(&feed, &journal, &arguments)).await
    };
    let first = run(&[]).await;
    assert_eq!(account(&first), [8, 6, 1, 1, 0, 0, 0], "{}", String::from_utf8_lossy(&first.stdout));
    assert_eq!(first.status.code(), Some(3), "one is too large");
    let refused = lines(&first).remove(0);
    assert_eq!((&refused["outcome"], &refused["code"]), (&json!("rejected"), &json!("too_large")), "{refused}");
    assert!(refused["file"].as_str().unwrap().ends_with("large.txt"), "{refused}");
    assert_eq!(lines(&first).pop().unwrap()["skipped"], 2, "links are not followed");
    assert_eq!(stored(&feed.app).await, (6, 6));
    let titles: Vec<String> =
        sqlx::query_scalar("SELECT title FROM documents").fetch_all(&feed.app.pool).await.unwrap();
    assert!(titles.contains(&"a[2J b.md".to_owned()) && !titles.contains(&"link.md".to_owned()), "{titles:?}");
    let journaled = fs::read_to_string(&journal).unwrap();
    let of = |word: &str| journaled.lines().filter(|line| line.contains(word)).count();
    assert_eq!((of(r#""is":"file""#), of(r#""is":"sent""#), of(r#""is":"outcome""#)), (8, 7, 8), "{journaled}");

    // What is new or changed is sent, and a message once rejected is tried again.
    fs::remove_file(root.join("large.txt")).unwrap();
    fs::write(root.join("new.md"), note(20_006)).unwrap();
    fs::write(root.join("in/1.md"), note(20_007)).unwrap();
    let second = run(&[]).await;
    assert_eq!((account(&second), second.status.code()), ([8, 2, 0, 0, 0, 0, 6], Some(0)));
    let third = run(&["--under", "999999"]).await;
    assert_eq!(account(&third), [8, 0, 0, 8, 0, 0, 0], "to another place all are sent");
    assert!(lines(&third).iter().take(8).all(|line| line["code"] == "not_found"), "{:?}", lines(&third));
    assert_eq!(stored(&feed.app).await, (8, 8));

    // A list names files, and a journal belongs to its place.
    let list = work.path().join("list");
    fs::write(&list, format!("{}\n{}\n", text(&root.join("new.md")), text(&root.join("none.md")))).unwrap();
    let listed = ran(by_broker(&feed, &journal, &["--list", &text(&list)])).await;
    assert_eq!((account(&listed), listed.status.code()), ([1, 0, 0, 0, 0, 1, 1], Some(3)));
    let elsewhere = ran(by_uploads(&feed.app, &journal, &[&text(&root)])).await;
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("--journal"), "{elsewhere:?}");
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_are_named_where_the_service_reads_the_same_folder() {
    let shared = tempfile::tempdir().unwrap();
    let root = text(shared.path());
    let Some(feed) = feed(true, &[("SVC_BULK_ROOT", &root), ("SVC_BULK_INLINE_BYTES", "1 KiB")]).await else { return };
    fs::create_dir(shared.path().join("in")).unwrap();
    let large = (0..200).map(note).collect::<String>();
    fs::write(shared.path().join("in/large.md"), &large).unwrap();
    let mut command = by_broker(&feed, &shared.path().join("journal"), &[&text(&shared.path().join("in"))]);
    command.env("SVC_BULK_ROOT", &root).env("SVC_BULK_INLINE_BYTES", "1 KiB");
    let output = ran(command).await;
    assert_eq!((account(&output), output.status.code()), ([1, 1, 0, 0, 0, 0, 0], Some(0)), "{output:?}");
    let hash: String = sqlx::query_scalar("SELECT sha256 FROM bulk_message").fetch_one(&feed.app.pool).await.unwrap();
    assert_eq!(hash, format!("sha256:{}", crate::feed::hash(large.as_bytes())));
    feed.end().await;
}

/// Runs the command, and kills it again and again, whenever it has come so far; returns how often it was killed.
async fn killed_at(run: impl Fn() -> Command, progress: impl AsyncFn() -> i64, steps: &[i64]) -> usize {
    let mut killed = 0;
    for step in steps {
        let mut child = Process(run().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let came = until("some are stored", async || {
            if child.0.try_wait().unwrap().is_some() {
                Some(false)
            } else {
                (progress().await >= *step).then_some(true)
            }
        });
        killed += usize::from(came.await);
        child.kill();
    }
    killed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_the_command_and_the_broker_lose_no_file_and_send_none_twice() {
    const FILES: usize = 600;
    let Some(mut own) = tokio::task::spawn_blocking(Broker::start).await.unwrap() else { return };
    let url = broker::url(own.address);
    let feed = feed_at(&url, &url, true, &[]).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    fs::create_dir(&root).unwrap();
    for number in 0..FILES {
        fs::write(root.join(format!("{number}.md")), note(30_000 + number)).unwrap();
    }
    let path = text(&root);
    let run = || by_broker(&feed, &journal, &[&path]);
    // It is killed while it publishes, where most of what the journal has is neither confirmed nor answered.
    let begun = async || {
        let journaled = fs::read_to_string(&journal).unwrap_or_default();
        journaled.matches(r#""is":"file""#).count() as i64
    };
    let killed = killed_at(run, begun, &[20, 200, 450]).await;
    assert!(killed > 0, "it was killed at work");
    let mut child = Process(run().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("it goes on", async || (begun().await >= 600 || child.0.try_wait().unwrap().is_some()).then_some(())).await;
    own = tokio::task::spawn_blocking(move || {
        own.crash();
        own
    })
    .await
    .unwrap();
    child.kill();
    let output = ran(run()).await;
    let [files, accepted, duplicate, rejected, waiting, left, before] = account(&output);
    assert_eq!((files, duplicate, rejected, waiting, left), (600, 0, 0, 0, 0), "{output:?}");
    assert!(accepted + before >= 600 && output.status.success(), "{output:?}");
    let messages = count(&feed.app.pool, "bulk_message").await;
    assert_eq!((messages, stored(&feed.app).await), (600, (600, 600)), "each is stored once");
    // The journal says so of each file, once: what was sent anew has another number.
    let ended =
        fs::read_to_string(&journal).unwrap().lines().filter(|line| line.contains(r#""outcome":"accepted""#)).count();
    assert_eq!(ended, FILES);
    feed.app.end().await;
    drop(own);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_the_same_folder_is_uploaded_with_the_same_account() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    folder(&root, 1 << 20);
    let path = text(&root);
    let first = ran(by_uploads(&app, &journal, &[&path])).await;
    assert_eq!((account(&first), first.status.code()), ([8, 7, 1, 0, 0, 0, 0], Some(0)), "{first:?}");
    assert_eq!(stored(&app).await, (7, 7));
    let again = ran(by_uploads(&app, &journal, &[&path])).await;
    assert_eq!((account(&again), again.status.code()), ([8, 0, 0, 0, 0, 0, 8], Some(0)));
    let refused = ran(by_uploads(&app, &journal, &[&path, "--options", r#"{"nonsense": {}}"#])).await;
    assert_eq!((account(&refused), refused.status.code()), ([8, 0, 0, 8, 0, 0, 0], Some(3)));
    assert!(lines(&refused).iter().take(8).all(|line| line["code"] == "unknown_option"), "{refused:?}");

    // Killed at work, it goes on.
    for number in 0..300 {
        fs::write(root.join(format!("more-{number}.md")), note(40_000 + number)).unwrap();
    }
    let progress = async || count(&app.pool, "document_blobs").await;
    let killed = killed_at(|| by_uploads(&app, &journal, &[&path]), progress, &[30, 60, 120]).await;
    let output = ran(by_uploads(&app, &journal, &[&path])).await;
    assert!(killed > 0, "it was killed at work");
    let [files, .., waiting, left, _] = account(&output);
    assert_eq!((files, waiting, left, output.status.code()), (308, 0, 0, Some(0)), "{output:?}");
    assert_eq!(stored(&app).await, (307, 307));
    let shown: Value = lines(&output).pop().unwrap();
    assert!(shown["before"].as_u64().unwrap() >= 8 + 30 - 8, "{shown}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_begin_says_why() {
    let Some(feed) = feed(true, &[]).await else { return };
    let work = tempfile::tempdir().unwrap();
    let (path, journal) = (text(work.path()), work.path().join("journal"));
    let says = async |mut command: Command, arguments: &[&str], name: &str, value: &str, what: &str| {
        let output = ran({
            command.args(arguments).env(name, value);
            command
        })
        .await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{said}");
        assert!(!said.contains("hush"), "{said}");
    };
    let command = || by_broker(&feed, &journal, &[&path]);
    says(command(), &[], "SVC_AMQP_PREFIX", "nobody.serves", "nobody.serves.upload").await;
    let _ = fs::remove_file(&journal);
    says(command(), &[], "SVC_AMQP_URL", "amqp://x:hush@127.0.0.1:1/%2f", "cannot be used").await;
    let _ = fs::remove_file(&journal);
    says(command(), &["--options", "{"], "X", "", "--options is not JSON").await;
    says(command(), &["--options", r#"{"extract": {"password": "hush"}}"#], "X", "", "takes no password").await;
    says(command(), &["--priority", "101"], "X", "", "priority").await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_held_while_the_broker_is_away_and_sent_when_it_is_back() {
    const FILES: usize = 200;
    let Some(url) = broker::shared().await else { return };
    let Ok(address) = url.split('@').nth(1).unwrap().split('/').next().unwrap().parse() else { return };
    let proxy = Proxy::of_service(address).await;
    let feed = feed_at(&url, &url, true, &[]).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    fs::create_dir(&root).unwrap();
    for number in 0..FILES {
        fs::write(root.join(format!("{number}.md")), note(50_000 + number)).unwrap();
    }
    proxy.set(Weather::Slow(Duration::from_millis(20)));
    let mut command = by_broker(&feed, &journal, &[&text(&root)]);
    command.env("SVC_AMQP_URL", broker::url(proxy.address));
    let child = command.spawn().unwrap();
    let journaled = || fs::read_to_string(&journal).unwrap_or_default();
    until("it is at work", async || journaled().contains(r#""is":"file""#).then_some(())).await;
    proxy.set(Weather::Cut);
    until("the command has lost it", async || (!proxy.is_carrying()).then_some(())).await;
    let connected = proxy.times_heard("AMQP");
    proxy.set(Weather::Fair);
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(proxy.times_heard("AMQP") > connected, "it connected anew");
    let [files, accepted, .., left, before] = account(&output);
    assert_eq!((files, left, before, output.status.code()), (200, 0, 0, Some(0)), "{output:?}");
    assert!(accepted > 0);
    assert_eq!((count(&feed.app.pool, "bulk_message").await, stored(&feed.app).await), (200, (200, 200)));
    feed.end().await;
}

/// A broker may come back without what it kept, and nothing tells then what became of the files that it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_has_lost_is_left_to_the_next_run_which_sends_it_anew() {
    const FILES: usize = 20;
    let Some(mut feed) = feed(true, &[("SVC_BULK_HIGH_WATER", "2")]).await else { return };
    for number in 0..3 {
        let bytes = note(53_000 + number);
        feed.producer.publish(plain(&number.to_string(), bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    }
    until("nothing is taken", async || state(&feed.app).await.filter(|check| check.detail.contains("pauses"))).await;
    let proxy = Proxy::of_service(broker::address(&feed.url)).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    fs::create_dir(&root).unwrap();
    for number in 0..FILES {
        fs::write(root.join(format!("{number}.md")), note(53_100 + number)).unwrap();
    }
    let run = |feed: &Feed| {
        let mut command = by_broker(feed, &journal, &[&text(&root)]);
        command.env("SVC_AMQP_URL", broker::url(proxy.address));
        ran(command)
    };
    let running = tokio::spawn(run(&feed));
    let journaled = || fs::read_to_string(&journal).unwrap_or_default();
    until("all have arrived", async || (journaled().matches(r#""is":"sent""#).count() == FILES).then_some(())).await;
    proxy.set(Weather::Cut);
    until("the command has lost it", async || (!proxy.is_carrying()).then_some(())).await;
    let first: Value = serde_json::from_str(journaled().lines().next().unwrap()).unwrap();
    let (channel, prefix) = (&feed.producer.channel, &feed.producer.prefix);
    let answers = format!("{prefix}{}", first["answers"].as_str().unwrap());
    channel.queue_delete(answers.into(), Default::default()).await.unwrap();
    channel.queue_purge(format!("{prefix}.upload").into(), Default::default()).await.unwrap();
    proxy.set(Weather::Fair);
    let output = running.await.unwrap();
    assert_eq!((account(&output), output.status.code()), ([20, 0, 0, 0, 0, 20, 0], Some(3)), "{output:?}");
    feed.app.start_worker().await;
    let output = run(&feed).await;
    assert_eq!((account(&output), output.status.code()), ([20, 20, 0, 0, 0, 0, 0], Some(0)), "{output:?}");
    feed.end().await;
}

/// The address of a proxy that refuses a body of more than 10,000 bytes with a page of its own, and passes on all others.
async fn strict_proxy(app: &TestApp) -> String {
    let (client, base) = (http(), app.base.clone());
    let pass = move |request: Request| {
        let (client, base) = (client.clone(), base.clone());
        async move {
            let (mut head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            if body.len() > 10_000 {
                return (StatusCode::PAYLOAD_TOO_LARGE, Html("<h1>413 Request Entity Too Large</h1>")).into_response();
            }
            head.headers.remove(header::HOST);
            let request = client.request(head.method, format!("{base}{}", head.uri)).headers(head.headers);
            let answer = request.body(body).send().await.unwrap();
            (answer.status(), answer.bytes().await.unwrap()).into_response()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(pass)).await });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_a_proxy_refuses_is_named_and_the_others_are_sent() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    fs::create_dir(&root).unwrap();
    for number in 0..5 {
        fs::write(root.join(format!("{number}.md")), note(60_000 + number)).unwrap();
    }
    fs::write(root.join("large.txt"), "x".repeat(20_000)).unwrap();
    let address = strict_proxy(&app).await;
    let mut command = by_uploads(&app, &journal, &[&text(&root), "--patience", "2"]);
    command.env("SVC_URL", address);
    let output = ran(command).await;
    assert_eq!((account(&output), output.status.code()), ([6, 5, 0, 1, 0, 0, 0], Some(3)), "{output:?}");
    let said = lines(&output);
    let (file, reason) = (said[0]["file"].as_str().unwrap(), said[0]["reason"].as_str().unwrap());
    assert!(said.len() == 2 && file.ends_with("large.txt"), "{said:?}");
    assert!(reason.contains("status 413") && reason.contains("raise its limit"), "{reason}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_gets_shorter_while_it_is_sent_is_left_and_the_others_are_sent() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let proxy = Proxy::of_service(app.base.trim_start_matches("http://").parse().unwrap()).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    fs::create_dir(&root).unwrap();
    for number in 0..3 {
        fs::write(root.join(format!("{number}.md")), note(61_000 + number)).unwrap();
    }
    // The file is larger than the buffers of the sockets on its way.
    let large = root.join("large.txt");
    fs::write(&large, "x".repeat(48 << 20)).unwrap();
    proxy.set(Weather::Blackhole);
    let mut command = by_uploads(&app, &journal, &[&text(&root), "--patience", "2"]);
    command.env("SVC_URL", format!("http://{}", proxy.address)).env("SVC_BULK_INLINE_BYTES", "1 KiB");
    let running = tokio::spawn(ran(command));
    let uploads = || proxy.times_heard("POST /ingest/file");
    until("all uploads to begin", async || (uploads() == 4).then_some(())).await;
    fs::OpenOptions::new().write(true).open(&large).unwrap().set_len(1_000).unwrap();
    proxy.set(Weather::Fair);
    let output = running.await.unwrap();
    assert_eq!((account(&output), output.status.code()), ([4, 3, 0, 0, 0, 1, 0], Some(3)), "{output:?}");
    let left = lines(&output).remove(0);
    assert!(left["file"].as_str().unwrap().ends_with("large.txt"), "{left}");
    assert_eq!((&left["outcome"], &left["reason"]), (&json!("left"), &json!("it changed while it was sent")));
    assert_eq!(uploads(), 4, "what is no longer as it was read is not sent again");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_files_are_sent_though_nobody_reads_what_is_said_of_them() {
    const FILES: usize = 50;
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let work = tempfile::tempdir().unwrap();
    let (root, journal) = (work.path().join("root"), work.path().join("journal"));
    fs::create_dir(&root).unwrap();
    for number in 0..FILES {
        fs::write(root.join(format!("{number}.md")), note(62_000 + number)).unwrap();
    }
    let mut command = by_uploads(&app, &journal, &[&text(&root), "--options", r#"{"nonsense": {}}"#]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let journaled = fs::read_to_string(&journal).unwrap();
    assert_eq!(journaled.matches(r#""outcome":"rejected""#).count(), FILES, "{journaled}");
    app.end().await;
}
