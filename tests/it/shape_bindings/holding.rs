//! For how long what a principal bound holds, and who takes it over.
use super::{SHAPES, bind, folder, people};
use crate::{
    cli::svc,
    ontologies::load,
    principals::{Someone, grant, idle, someone},
    support::{TestApp, until_a_statement_like_this_waits},
};
use svc_client::{
    Client, Code, Json, Remote,
    wire::{
        GrantPath, GrantRight, OntologyQuery, PrincipalChange, PrincipalPath, ShapeBindingChange, ShapeBindingPath,
        ShapeMode,
    },
};

const SHAPE: &str = "http://example.org/PersonShape";
const OWN: &str = "ex:Own a sh:NodeShape ; sh:targetClass ex:Bird ; sh:property [ sh:path ex:name ; sh:minCount 1 ] .";

fn private() -> OntologyQuery {
    OntologyQuery { private: true, ..OntologyQuery::default() }
}

/// Two principals who may write a closed folder.
async fn writers(app: &TestApp) -> (i64, Someone, Someone) {
    let closed = folder(app, "closed", true).await;
    let (p, q) = (someone(app, "p").await, someone(app, "q").await);
    for who in [&p, &q] {
        grant(app, who, closed, GrantRight::Write).await;
    }
    (closed, p, q)
}

async fn holds(client: &Client<Remote>, id: i64) -> bool {
    client.read_shape_binding(ShapeBindingPath { id }).await.unwrap().holds
}

/// Sets a mode, and says whether the binding holds then.
async fn sets(client: &Client<Remote>, id: i64, mode: ShapeMode) -> bool {
    client.update_shape_binding(ShapeBindingPath { id }, Json(ShapeBindingChange { mode })).await.unwrap().holds
}

/// Writes somebody without a name.
async fn writes(client: &Client<Remote>, closed: i64, name: &str) -> Result<(), Code> {
    let done = people(client, closed, &format!("ex:{name} a ex:Person .")).await;
    done.map(|_| ()).map_err(|failure| failure.code)
}

#[tokio::test]
async fn what_a_principal_bound_does_not_hold_while_that_one_is_disabled() {
    let app = idle().await;
    let (closed, p, q) = writers(&app).await;
    load(&p.client, private(), SHAPES).await.unwrap();
    let bound = bind(&p.client, SHAPE, Some(closed), Some(ShapeMode::Reject)).await.unwrap();
    for (disabled, name, expected) in [(true, "bea", Ok(())), (false, "carl", Err(Code::ShapeViolation))] {
        let change = PrincipalChange { disabled: Some(disabled), ..PrincipalChange::default() };
        app.client.update_principal(PrincipalPath { id: p.id }, Json(change)).await.unwrap();
        assert_eq!(writes(&q.client, closed, name).await, expected);
        assert_eq!(holds(&q.client, bound.id).await, !disabled);
    }
    app.end().await;
}

#[tokio::test]
async fn what_ceased_to_hold_is_taken_over_by_who_reads_the_ontology_and_sets_the_mode() {
    let app = idle().await;
    let (closed, p, q) = writers(&app).await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    load(&p.client, private(), OWN).await.unwrap();
    let reject = Some(ShapeMode::Reject);
    let open = bind(&p.client, SHAPE, Some(closed), reject).await.unwrap();
    let own = bind(&p.client, "http://example.org/Own", Some(closed), reject).await.unwrap();
    let takes = async |client: &Client<Remote>, id: i64| sets(client, id, ShapeMode::Reject).await;

    app.client.delete_grant(GrantPath { id: closed, principal_id: p.id }).await.unwrap();
    assert_eq!(writes(&q.client, closed, "bea").await, Ok(()));
    let listed = svc(&app, &["--table", "shapes", "list"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows: Vec<&str> = listed.lines().skip(1).collect();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.contains(" reject  no ")), "{listed}");

    // The other writer may not read the text of one of them.
    assert_eq!((takes(&q.client, open.id).await, takes(&q.client, own.id).await), (true, false));
    assert_eq!(writes(&q.client, closed, "carl").await, Err(Code::ShapeViolation));
    let id = own.id.to_string();
    let told = svc(&app, &["--token", &q.secret, "--table", "shapes", "mode", &id, "reject"]).await;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("(reject, but does not hold: whoever bound it is disabled, or may not write"), "{told}");
    assert!(takes(&app.client, own.id).await);
    // What somebody took over holds for as long as that one may write there, and the owner always may.
    app.client.delete_grant(GrantPath { id: closed, principal_id: q.id }).await.unwrap();
    assert_eq!((holds(&app.client, open.id).await, holds(&app.client, own.id).await), (false, true));
    app.end().await;
}

#[tokio::test]
async fn what_holds_stays_with_whoever_bound_it_whoever_sets_the_mode() {
    let app = idle().await;
    let (closed, p, q) = writers(&app).await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    load(&p.client, private(), OWN).await.unwrap();
    let owners = bind(&app.client, SHAPE, Some(closed), Some(ShapeMode::Warn)).await.unwrap();
    let own = bind(&p.client, "http://example.org/Own", Some(closed), Some(ShapeMode::Reject)).await.unwrap();
    assert!(sets(&q.client, owners.id, ShapeMode::Reject).await);
    assert!(sets(&app.client, own.id, ShapeMode::Warn).await);

    // What the owner bound goes on without the writer that made it stricter.
    app.client.delete_grant(GrantPath { id: closed, principal_id: q.id }).await.unwrap();
    assert!(holds(&app.client, owners.id).await);
    assert_eq!(writes(&p.client, closed, "bea").await, Err(Code::ShapeViolation));
    // The text of this one is still the principal's to change, which may not write there any more.
    app.client.delete_grant(GrantPath { id: closed, principal_id: p.id }).await.unwrap();
    assert_eq!((holds(&app.client, owners.id).await, holds(&app.client, own.id).await), (true, false));
    app.end().await;
}

#[tokio::test]
async fn who_switches_off_what_ceased_to_hold_does_not_take_it_over() {
    let app = idle().await;
    let (closed, p, q) = writers(&app).await;
    load(&p.client, private(), OWN).await.unwrap();
    let own = bind(&p.client, "http://example.org/Own", Some(closed), Some(ShapeMode::Reject)).await.unwrap();
    app.client.delete_grant(GrantPath { id: closed, principal_id: p.id }).await.unwrap();
    assert!(!sets(&app.client, own.id, ShapeMode::Off).await);
    // The other writer may not read the text, so nobody stands for it.
    assert!(!sets(&q.client, own.id, ShapeMode::Reject).await);
    assert_eq!(
        people(&q.client, closed, "ex:tit a ex:Bird .").await.map(|_| ()).map_err(|failure| failure.code),
        Ok(())
    );
    app.end().await;
}

#[tokio::test]
async fn of_two_who_take_a_binding_over_at_once_the_first_has_it() {
    let app = idle().await;
    let (closed, p, q) = writers(&app).await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let bound = bind(&p.client, SHAPE, Some(closed), Some(ShapeMode::Reject)).await.unwrap();
    app.client.delete_grant(GrantPath { id: closed, principal_id: p.id }).await.unwrap();
    let mut first = app.pool.begin().await.unwrap();
    sqlx::query("UPDATE shape_bindings SET bound_by = NULL WHERE id = $1")
        .bind(bound.id)
        .execute(&mut *first)
        .await
        .unwrap();
    let (second, ()) = tokio::join!(sets(&q.client, bound.id, ShapeMode::Reject), async {
        until_a_statement_like_this_waits(&app.pool, "%shape_bindings%").await;
        first.commit().await.unwrap();
    });
    assert!(second);
    // It is the owner's, and goes on without the second one.
    app.client.delete_grant(GrantPath { id: closed, principal_id: q.id }).await.unwrap();
    assert!(holds(&app.client, bound.id).await);
    app.end().await;
}
