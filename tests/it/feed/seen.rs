//! What an operator sees of the feed: its metrics, and the finding while its broker is away.
use super::{count, envelope, feed, feed_at, hash, note, plain, state};
use crate::support::{
    TestApp, broker,
    proxy::{Proxy, Weather},
    repository, until,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc_client::wire::{Finding, FindingKind};

/// The metrics of the feed, by name and labels. Other feeds of this process are among them.
async fn figures(app: &TestApp) -> BTreeMap<String, f64> {
    let printed = app.client.read_metrics().await.unwrap();
    let lines = printed.lines().filter(|line| line.starts_with("svc_feed_"));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_messages_is_counted_and_the_dashboard_shows_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let Some(mut feed) = feed(true, &[("SVC_BULK_ROOT", &root), ("SVC_BULK_RETRY_SECONDS", "0.1,0.2,0.3")]).await
    else {
        return;
    };
    let before = figures(&feed.app).await;
    let bytes = note(96_001);
    feed.producer.publish(plain("stored", bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    feed.producer.publish(plain("wrong", b"other", &[]), bytes.as_bytes()).await;
    let never = json!({"source": {"path": "never.md"}, "sha256": hash(b"never")}).to_string();
    feed.producer.publish(envelope("never"), never.as_bytes()).await;
    for _ in 0..3 {
        feed.producer.outcome().await;
    }
    until("all are answered", async || (feed.producer.depth("dead").await == 2).then_some(())).await;
    let after = figures(&feed.app).await;
    let grew =
        |name: &str| after.get(name).copied().unwrap_or_default() - before.get(name).copied().unwrap_or_default();
    // One is stored, one is wrong, and one comes seven times.
    assert!(grew("svc_feed_consumed_total") >= 9.0, "{after:?}");
    assert!(grew("svc_feed_acked_total") >= 1.0, "{after:?}");
    assert!(grew(r#"svc_feed_rejected_total{code="invalid_field"}"#) >= 2.0, "{after:?}");
    for queue in ["100ms", "200ms", "300ms"] {
        assert!(grew(&format!(r#"svc_feed_retried_total{{queue="{queue}"}}"#)) >= 2.0, "{queue}: {after:?}");
    }
    assert!(after.contains_key(r#"svc_feed_ready_messages{queue="dead"}"#), "{after:?}");

    let dashboard = std::fs::read_to_string(repository().join("docs/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries: Vec<&str> = panels
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .filter_map(|target| target["expr"].as_str())
        .filter(|query| query.contains("svc_feed_"))
        .collect();
    let names = |text: &str| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap().to_owned();
    for name in after.keys().map(|name| names(name)) {
        assert!(queries.iter().any(|query| query.contains(&name)), "the dashboard leaves out {name}");
    }
    for query in &queries {
        assert!(after.keys().any(|name| query.contains(&names(name))), "nothing gives {query}");
    }
    assert_eq!(count(&feed.app.pool, "document_blobs").await, 1);
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_away_is_a_finding_with_its_remedy_until_it_is_back() {
    let Some(url) = broker::shared().await else { return };
    let Ok(address) = url.split('@').nth(1).unwrap().split('/').next().unwrap().parse() else { return };
    let proxy = Proxy::of_service(address).await;
    let feed = feed_at(&broker::url(proxy.address), &url, true, &[("SVC_BULK_HIGH_WATER", "2")]).await;
    for number in 0..3 {
        let bytes = note(96_100 + number);
        feed.producer.publish(plain(&number.to_string(), bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    }
    let pauses = async || state(&feed.app).await.filter(|check| check.detail.contains("pauses"));
    until("it pauses", pauses).await;
    let found = async || {
        let findings = feed.app.client.list_findings().await.unwrap().findings;
        findings.into_iter().find(|finding| finding.kind == FindingKind::FeedAway)
    };
    assert!(found().await.is_none());
    proxy.set(Weather::Cut);
    let Finding { about, remedy, .. } = until("it is found", found).await;
    assert!(remedy.contains("SVC_AMQP_URL") && !about.contains("guest:guest"), "{about}: {remedy}");
    proxy.set(Weather::Fair);
    until("it is over", async || found().await.is_none().then_some(())).await;
    // What it did before, it does again and says so.
    until("it pauses again", pauses).await;
    feed.end().await;
}
