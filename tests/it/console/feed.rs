//! The page of the bulk feed, on a real broker.
use super::{Console, browser::look, csrf};
use crate::{
    admin::idle,
    feed::{Feed, feed, note, plain, text},
    principals::{grant, someone},
    support::{
        TOKEN, TestApp, Wish,
        browser::{Browser, Program},
        document, until,
    },
};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use svc_client::{
    Code, Json,
    wire::{AuditQuery, DeadChoice, DocumentPath, FeedState, GrantRight},
};

/// The page once it says this.
async fn page(console: &Console, cookie: &str, says: &str) -> String {
    until(says, async || {
        let page = console.text("/feed", cookie).await;
        page.contains(says).then_some(page)
    })
    .await
}

/// Puts a message where the service puts what it gives up.
async fn bury(feed: &Feed, id: &str, code: Option<&str>, sha256: &str) {
    let mut table = FieldTable::default();
    table.insert("svc-sha256".into(), text(sha256));
    if let Some(code) = code {
        table.insert("svc-code".into(), text(code));
    }
    let properties = BasicProperties::default().with_message_id(id.into()).with_user_id("guest".into());
    let (exchange, options) = (format!("{}.dlx", feed.producer.prefix), Default::default());
    let properties = properties.with_headers(table);
    let sent = feed.producer.channel.basic_publish(exchange.as_str().into(), "".into(), options, b"x", properties);
    sent.await.unwrap().await.unwrap();
}

/// The row of a message with this code in the page, and the fields of its form that leads there.
fn row_of<'a>(page: &'a str, code: &str, action: &str) -> (&'a str, Vec<(&'a str, &'a str)>) {
    let is_of_code = |row: &&str| row.contains(&format!("name=\"code\" value=\"{code}\""));
    let mut rows = page.split("<tr id=\"").skip(1).map(|row| row.split("</tr>").next().unwrap());
    let row = rows.find(is_of_code).unwrap_or_else(|| panic!("{code}: {page}"));
    let (_, form) = row.split_once(&format!("action=\"/feed/dead/{action}\"")).unwrap();
    let inputs = form.split("</form>").next().unwrap().split("<input type=\"hidden\" name=\"").skip(1);
    let field = |input: &'a str| {
        let (name, rest) = input.split_once("\" value=\"").unwrap();
        (name, rest.split('"').next().unwrap())
    };
    (row.split('"').next().unwrap(), inputs.map(field).collect())
}

async fn lie_dead(feed: &Feed, number: u32) {
    until("the dead letters", async || (feed.producer.depth("dead").await == number).then_some(())).await;
}

/// Looks at the page as a person does, where there is a browser.
async fn in_a_browser(console: &Console) {
    let Some(program) = Program::find() else { return };
    let base = console.base.clone();
    let person = move || {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser::start(&program, profile.path());
        browser.go(&base);
        browser.value("document.querySelector('#token').focus()");
        browser.insert(TOKEN);
        browser.leave(|browser| drop(browser.value("document.querySelector('form').submit()")));
        browser.go(&format!("{base}/feed"));
        browser.until("document.querySelector('main').innerText.includes('unknown_option')");
        look(&mut browser, &program, &base, &["/feed".to_owned()]);
    };
    tokio::task::spawn_blocking(person).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_the_page_says_how_to_have_one() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let page = console.text("/feed", &cookie).await;
    assert!(page.contains("not configured") && page.contains("set SVC_AMQP_URL"), "{page}");
    assert_eq!(app.client.read_feed().await.unwrap().state, FeedState::NotConfigured);
    let all = || Json(DeadChoice { all: true, ..DeadChoice::default() });
    for refused in [app.client.drop_dead(all()).await.unwrap_err(), app.client.replay_dead(all()).await.unwrap_err()] {
        assert_eq!((refused.status, refused.code), (501, Code::NotConfigured), "{refused}");
    }
    let both = DeadChoice { message_id: Some("m".to_owned()), all: true, ..DeadChoice::default() };
    for choice in [DeadChoice::default(), both] {
        let refused = app.client.drop_dead(Json(choice)).await.unwrap_err();
        assert_eq!((refused.status, refused.code), (422, Code::InvalidField), "{refused}");
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_said_without_its_password() {
    // Nothing listens at this port.
    let settings = [("SVC_AMQP_URL", "amqp://someone:hush-hush@127.0.0.1:1/%2f")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let page = page(&console, &cookie, "the broker cannot be used").await;
    assert!(page.contains("no broker for") && page.contains("tries again by itself"), "{page}");
    assert!(page.contains("every message is rejected") && !page.contains("hush"), "{page}");
    let refused = app.client.drop_dead(Json(DeadChoice { all: true, ..DeadChoice::default() })).await.unwrap_err();
    assert!(refused.status == 503 && !refused.to_string().contains("hush"), "{refused}");
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dead_letters_are_shown_as_text_and_only_the_owners_forms_replay_and_drop_them() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    let console = Console::of(&feed.app).await;
    let cookie = console.sign_in(TOKEN).await;
    let made = feed.app.client.create_document(Default::default(), Json(document("Closed", "Text."))).await.unwrap();
    let closed = made.document.id;
    feed.app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let (bytes, other) = (note(60_000), note(60_001));
    let body = bytes.as_bytes();
    let hostile = "<script>alert(1)</script>";
    feed.producer.publish(plain("good", other.as_bytes(), &[]), other.as_bytes()).await;
    feed.producer.outcome().await;
    for properties in [
        plain("closed", body, &[("svc-parent-id", AMQPValue::LongLongInt(closed))]),
        plain(hostile, body, &[("svc-options", text(r#"{"<script>alert(2)</script>": {}}"#))]),
        plain("hash", b"other bytes", &[]),
    ] {
        feed.producer.publish(properties, body).await;
        feed.producer.outcome().await;
    }
    lie_dead(&feed, 3).await;
    in_a_browser(&console).await;
    let page_now = page(&console, &cookie, "<b>3</b><span>dead letters</span>").await;
    let upload = format!("{}.upload", feed.producer.prefix);
    for says in [
        "takes messages",
        "&lt;script&gt;alert(1)&lt;/script&gt;.md",
        "unknown_option",
        "not_found",
        "good.md",
        "producer",
        &upload,
    ] {
        assert!(page_now.contains(says), "{says}: {page_now}");
    }
    assert!(!page_now.contains("<script>alert") && !page_now.contains(":guest@"), "{page_now}");
    let seen = feed.app.client.read_feed().await.unwrap();
    assert_eq!((seen.state, seen.last_hour.accepted, seen.last_hour.rejected), (FeedState::Takes, 1, 3));
    assert_eq!((seen.dead.len(), seen.outcomes.len(), seen.uploaders[0].messages), (3, 4, 4));

    // Only a form of the owner's own session does anything.
    let who = someone(&feed.app, "reader").await;
    let (token, others) = (csrf(&page_now), console.sign_in(&who.secret).await);
    let theirs = csrf(&console.text("/documents", &others).await);
    assert_eq!(console.get("/feed", &others).await.status(), 403);
    for path in ["/feed/dead/replay", "/feed/dead/drop"] {
        assert_eq!(console.get(path, &cookie).await.status(), 405);
        for fields in [&[("all", "true")][..], &[("all", "true"), ("csrf", theirs.as_str())]] {
            assert_eq!(console.post(path, Some(&cookie), fields).send().await.unwrap().status(), 403, "{path}");
        }
        let fields = [("all", "true"), ("csrf", theirs.as_str())];
        let refused = console.post(path, Some(&others), &fields).send().await.unwrap();
        assert!(refused.headers()["set-cookie"].to_str().unwrap().contains("Refused"), "{path}");
    }
    lie_dead(&feed, 3).await;

    let act = async |path: &str, field: (&str, &str)| {
        let fields = [("csrf", token.as_str()), ("back", "/feed"), field];
        let answer = console.post(path, Some(&cookie), &fields).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/feed"));
        let notice = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        console.text("/feed", &format!("{cookie}; {notice}")).await
    };
    // What is mended is stored as its publisher's.
    grant(&feed.app, &feed.uploader, closed, GrantRight::Write).await;
    let said = act("/feed/dead/replay", ("message_id", "closed")).await;
    assert!(said.contains("Sent 1 message once more."), "{said}");
    let (outcome, _) = feed.producer.outcome().await;
    assert_eq!((&outcome["outcome"], &outcome["message_id"]), (&"accepted".into(), &"closed".into()), "{outcome}");
    lie_dead(&feed, 2).await;
    // What is not mended is given up again.
    act("/feed/dead/replay", ("code", "unknown_option")).await;
    assert_eq!(feed.producer.outcome().await.0["outcome"], "rejected");
    lie_dead(&feed, 2).await;
    assert!(act("/feed/dead/drop", ("message_id", hostile)).await.contains("Dropped 1 message."));
    lie_dead(&feed, 1).await;
    assert!(act("/feed/dead/drop", ("message_id", hostile)).await.contains("No such message lies there any more."));
    act("/feed/dead/drop", ("all", "true")).await;
    lie_dead(&feed, 0).await;
    page(&console, &cookie, "Nothing was given up.").await;
    let audit = feed.app.client.list_audit(AuditQuery::default()).await.unwrap().entries;
    let acts: Vec<(&str, &str)> = audit
        .iter()
        .filter(|entry| entry.act.as_str().starts_with("feed."))
        .map(|entry| (entry.act.as_str(), entry.detail["message_id"].as_str().unwrap()))
        .collect();
    let [drop, replay] = ["feed.drop", "feed.replay"];
    assert_eq!(
        acts,
        [(drop, "hash"), (drop, hostile), (replay, hostile), (replay, "closed")],
        "each act is on record, once"
    );
    console.end().await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_does_not_grow_with_what_was_given_up() {
    const DEAD: u32 = 60;
    let Some(feed) = feed(true, &[]).await else { return };
    let console = Console::of(&feed.app).await;
    let cookie = console.sign_in(TOKEN).await;
    let exchange = format!("{}.dlx", feed.producer.prefix);
    let long = |number: u32| AMQPValue::LongString(format!("{number}{}", "\"".repeat(20_000)).into());
    for number in 0..DEAD {
        let mut table = FieldTable::default();
        for name in ["svc-code", "svc-detail", "svc-filename", "svc-uploader"] {
            table.insert(name.into(), long(number));
        }
        table.insert("svc-sha256".into(), text(&"0".repeat(64)));
        let id = format!("{number:03}{}", "\"".repeat(250));
        let properties = BasicProperties::default().with_message_id(id.into()).with_user_id("guest".into());
        let (options, properties) = (Default::default(), properties.with_headers(table));
        let sent = feed.producer.channel.basic_publish(exchange.as_str().into(), "".into(), options, b"x", properties);
        sent.await.unwrap().await.unwrap();
    }
    lie_dead(&feed, DEAD).await;
    let page = page(&console, &cookie, "and 35 more").await;
    let rows = page.matches("<tr").count();
    assert!(page.len() < 250 * 1024 && rows <= 500, "{} bytes, {rows} rows", page.len());
    assert_eq!(page.matches(r#"action="/feed/dead/drop""#).count(), 25 + 1, "one each, and one for all");
    // Looking takes nothing.
    lie_dead(&feed, DEAD).await;
    let dropped = feed.app.client.drop_dead(Json(DeadChoice { all: true, ..DeadChoice::default() })).await.unwrap();
    assert_eq!((dropped.taken, dropped.refused, dropped.more), (i64::from(DEAD), 0, false));
    console.end().await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_more_messages_than_are_shown_says_so() {
    const DEAD: u32 = 60;
    let Some(feed) = feed(true, &[]).await else { return };
    let console = Console::of(&feed.app).await;
    let cookie = console.sign_in(TOKEN).await;
    let sha256 = "0".repeat(64);
    for number in 0..DEAD {
        bury(&feed, &format!("m{number}"), Some("unknown_option"), &sha256).await;
    }
    bury(&feed, "other", Some("not_found"), &sha256).await;
    lie_dead(&feed, DEAD + 1).await;
    let page = page(&console, &cookie, "and 36 more").await;
    let also = "also those that are not shown (61 lie here in all)?";
    for says in [
        format!("Drop every message with the code \u{2068}unknown_option\u{2069}, {also}"),
        format!("Have every message with the code \u{2068}unknown_option\u{2069} tried once more, {also}"),
        format!("Drop every message that was given up, {also}"),
    ] {
        assert!(page.contains(&format!("data-confirm=\"{says}")), "{says}: {page}");
    }
    assert!(page.contains("Drop all of this code") && page.contains("Replay all of this code"), "{page}");
    let fields = [("csrf", csrf(&page)), ("code", "unknown_option".to_owned())];
    let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
    let dropped = console.post("/feed/dead/drop", Some(&cookie), &fields).send().await.unwrap();
    assert!(dropped.headers()["set-cookie"].to_str().unwrap().contains("Dropped%2060%20messages."));
    lie_dead(&feed, 1).await;
    feed.app.client.drop_dead(Json(DeadChoice { all: true, ..DeadChoice::default() })).await.unwrap();
    console.end().await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_messages_with_one_id_the_one_that_is_shown_is_dropped_or_replayed() {
    let Some(feed) = feed(true, &[]).await else { return };
    let console = Console::of(&feed.app).await;
    let cookie = console.sign_in(TOKEN).await;
    let (one, other) = ("1".repeat(64), "2".repeat(64));
    bury(&feed, "same", Some("not_found"), &one).await;
    bury(&feed, "same", Some("too_large"), &one).await;
    bury(&feed, "same", Some("conflict"), &other).await;
    bury(&feed, "same", None, &other).await;
    lie_dead(&feed, 4).await;
    let codes = async || {
        let mut codes: Vec<Option<String>> =
            feed.app.client.read_feed().await.unwrap().dead.into_iter().map(|letter| letter.code).collect();
        codes.sort();
        codes
    };
    let all = [None, Some("conflict"), Some("not_found"), Some("too_large")].map(|code| code.map(str::to_owned));
    until("all are seen", async || (codes().await == all).then_some(())).await;
    let shown = page(&console, &cookie, "given up as \u{2068}too_large\u{2069}, for good?").await;
    let row = |code| row_of(&shown, code, "drop");
    let (id, fields) = row("too_large");
    assert!(id.starts_with("dead-") && shown.matches(&format!("id=\"{id}\"")).count() == 1, "{id}: {shown}");
    let hash = format!("sha256:{one}");
    for field in [("message_id", "same"), ("sha256", hash.as_str()), ("code", "too_large")] {
        assert!(fields.contains(&field), "{field:?}: {fields:?}");
    }
    assert_eq!(row_of(&shown, "too_large", "replay").1, fields);
    let ids = ["not_found", "conflict", ""].map(|code| row(code).0);
    let act = async |action: &str, fields: &[(&str, &str)]| {
        let answer = console.post(&format!("/feed/dead/{action}"), Some(&cookie), fields).send().await.unwrap();
        answer.headers()["set-cookie"].to_str().unwrap().to_owned()
    };
    assert!(act("drop", &fields[..]).await.contains("Dropped%201%20message."));
    until("the others are left", async || (codes().await == all[..3]).then_some(())).await;
    // The rows of the others are what they were.
    let left = page(&console, &cookie, "given up by the broker").await;
    assert_eq!(["not_found", "conflict", ""].map(|code| row_of(&left, code, "drop").0), ids);
    // One without a code is not taken for one that has a code.
    let (_, fields) = row_of(&left, "", "drop");
    assert!(act("drop", &fields[..]).await.contains("Dropped%201%20message."));
    until("two are left", async || (codes().await == all[1..3]).then_some(())).await;

    let of_id = || DeadChoice { message_id: Some("same".to_owned()), ..DeadChoice::default() };
    let code = |code: &str| Some(code.to_owned());
    for nothing in [
        DeadChoice { sha256: code("sha256:3"), ..of_id() },
        DeadChoice { code: code("too_large"), ..of_id() },
        DeadChoice { code: code("conflict"), sha256: Some(hash.clone()), ..of_id() },
        DeadChoice { code: code(""), ..of_id() },
    ] {
        for done in [
            feed.app.client.drop_dead(Json(nothing.clone())).await.unwrap(),
            feed.app.client.replay_dead(Json(nothing.clone())).await.unwrap(),
        ] {
            assert_eq!((done.taken, done.refused), (0, 0), "{nothing:?}");
        }
    }
    for refused in [
        DeadChoice { code: code(""), ..DeadChoice::default() },
        DeadChoice { sha256: Some(hash.clone()), ..DeadChoice::default() },
        DeadChoice { code: code("conflict"), sha256: Some(hash.clone()), ..DeadChoice::default() },
        DeadChoice { sha256: Some(hash.clone()), all: true, ..DeadChoice::default() },
    ] {
        assert_eq!(feed.app.client.drop_dead(Json(refused)).await.unwrap_err().code, Code::InvalidField);
    }
    let done = feed.app.client.drop_dead(Json(DeadChoice { all: true, ..DeadChoice::default() })).await.unwrap();
    assert_eq!(done.taken, 2);
    console.end().await;
    feed.end().await;
}
