//! Standbys that stand still or are behind a pooler, as a process sees them that has only just begun to look.
use super::{LOOKS, World, read_urls, title_of};
use crate::{
    admin::{run, worker_command},
    support::{TOKEN, TestApp, Wish, proxy::Proxy, until},
};
use serde_json::{Value, json};
use svc_client::wire::{DocumentPath, FindingKind};

/// Stores a document that both standbys have before they stand still, and renames it after that.
async fn renamed(world: &World) -> i64 {
    let id = world.app.create("Before", "A text.", None).await.id;
    for standby in &world.standbys {
        until("the standby to have it", async || {
            standby.ask::<bool>("SELECT EXISTS (SELECT FROM documents WHERE title = 'Before')").await.then_some(())
        })
        .await;
    }
    world.pause().await;
    let renamed = world.app.raw("PATCH", &format!("/documents/{id}")).json(&json!({"title": "After"}));
    assert_eq!(renamed.send().await.unwrap().status(), 200);
    id
}

pub async fn a_service_that_starts_reads_at_no_standby_before_it_has_caught_up(world: &World) {
    let id = renamed(world).await;
    let urls = read_urls(&world.standbys);
    let settings = [("SVC_DATABASE_READ_URL", urls.as_str())];
    let database = Some(world.primary.connect_options());
    let fresh = TestApp::with(Wish { settings: &settings, no_worker: true, database, ..Wish::default() }).await;
    // From here on it knows that both are there.
    fresh.service.replicas().unwrap().examine().await;
    for look in 0..LOOKS {
        assert_eq!(title_of(&fresh, TOKEN, id).await.as_deref(), Some("After"), "read {look}");
    }
    world.resume().await;
    until("its standbys to answer", async || {
        let before = world.answered();
        assert_eq!(title_of(&fresh, TOKEN, id).await.as_deref(), Some("After"));
        (world.answered() > before).then_some(())
    })
    .await;
    fresh.end().await;
    world.app.client.delete_document(DocumentPath { id }).await.unwrap();
}

/// The findings of standbys that a doctor tells of, and its exit code.
async fn doctor(world: &World) -> (Vec<Value>, Option<i32>) {
    let mut doctor = worker_command(&world.app, &["doctor", "--json"]);
    doctor.env("SVC_DATABASE_READ_URL", read_urls(&world.standbys));
    let said = run(doctor).await;
    let lines = String::from_utf8(said.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_of_standby = |line: &Value| line["kind"].as_str().is_some_and(|kind| kind.starts_with("standby_"));
    (lines.filter(is_of_standby).collect(), said.status.code())
}

pub async fn a_doctor_waits_until_it_knows_how_far_behind_the_standbys_are(world: &World) {
    // On a busy machine a standby may not answer in time.
    until("a doctor to find both in order", async || doctor(world).await.0.is_empty().then_some(())).await;
    let id = renamed(world).await;
    let behind = FindingKind::StandbyBehind.as_str();
    let findings = until("a doctor to find both behind", async || {
        let (findings, code) = doctor(world).await;
        assert_eq!(code, Some(1), "{findings:?}");
        (findings.len() == 2 && findings.iter().all(|finding| finding["kind"] == behind)).then_some(findings)
    })
    .await;
    for (finding, standby) in findings.iter().zip(&world.standbys) {
        let (about, begin) = (finding["about"].as_str().unwrap(), format!("{} is ", standby.name()));
        assert!(about.starts_with(&begin) && about.ends_with(" s behind the primary"), "{about}");
    }
    world.resume().await;
    world.app.client.delete_document(DocumentPath { id }).await.unwrap();
}

pub async fn a_standby_behind_a_pooler_that_drops_settings_answers_no_reads(world: &World) {
    let standby = &world.standbys[0];
    let (asked, heard) = (b"idle_in_transaction_session_timeout=", b"pooler.keeps_this_setting_to_itself=");
    let pooler = Proxy::rewriting_on(standby.socket(), asked, heard).await;
    let (user, name) = (standby.options.get_username(), standby.options.get_database().unwrap());
    let url = format!("postgres://{user}@{}/{name}?sslmode=disable", pooler.address);
    let settings = [("SVC_DATABASE_READ_URL", url.as_str())];
    let database = Some(world.primary.connect_options());
    let behind = TestApp::with(Wish { settings: &settings, no_worker: true, database, ..Wish::default() }).await;
    let replicas = behind.service.replicas().unwrap();
    let (kind, about, _) = until("the standby to have been asked", async || {
        replicas.examine().await;
        replicas.troubles().into_iter().find(|(_, about, _)| about.contains("drops the settings"))
    })
    .await;
    assert!(kind == FindingKind::StandbyAway && about.starts_with(&pooler.address.to_string()), "{about}");
    behind.end().await;
}
