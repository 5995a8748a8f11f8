//! The schema of a database: `migrations/schema.sql` shows it, and a program refuses one that does not fit.
use crate::{
    admin::{run, worker_command},
    crash::url,
    faults::serve,
    support::{self, TestApp, Wish, repository, server},
};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{collections::BTreeSet, process::Command};
use svc::store::{database::DatabaseError, schema};

const HEAD: &str = "-- The schema of a fresh database, dumped and normalised. Never edited: the test `schema::schema_sql_shows_a_fresh_database` writes
-- `schema.sql.new` beside it where the two differ; read that, and rename it.
";

/// What pg_dump says of a schema, without what depends on its version or on the order of its comments.
async fn dump(options: &PgConnectOptions) -> String {
    let home = support::settings(&[]).postgres_home;
    let mut command = Command::new(home.join("bin/pg_dump"));
    command
        .env("LD_LIBRARY_PATH", home.join("lib"))
        .args(["--schema-only", "--no-owner", "--no-privileges", "--no-comments", "--exclude-table=_sqlx_migrations"])
        .arg(url(options));
    let output = run(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let is_noise = |line: &str| {
        ["--", "SET ", "SELECT pg_catalog.set_config", r"\restrict", r"\unrestrict"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let mut lines: Vec<&str> = text.lines().filter(|line| !is_noise(line)).collect();
    lines.dedup_by(|line, before| line.is_empty() && before.is_empty());
    format!("{HEAD}{}\n", lines.join("\n").replace("public.", "").trim_end())
}

#[tokio::test]
async fn schema_sql_shows_a_fresh_database() {
    let options = server::new_database().await;
    let (is, path) = (dump(&options).await, repository().join("migrations/schema.sql"));
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    if shown != is {
        let new = path.with_extension("sql.new");
        std::fs::write(&new, is).unwrap();
        panic!("the schema is not what {} shows: read {} and rename it", path.display(), new.display());
    }
}

/// The functions and views of a database that do not belong to an extension.
async fn made(pool: &PgPool) -> BTreeSet<String> {
    sqlx::query_scalar(
        "SELECT proname::text FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
            AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype IN ('e', 'i'))
         UNION ALL SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'",
    )
    .fetch_all(pool)
    .await
    .unwrap()
    .into_iter()
    .collect()
}

#[tokio::test]
async fn each_function_and_view_has_a_file_of_its_name() {
    let mut files = BTreeSet::new();
    for folder in ["functions", "views"] {
        for family in std::fs::read_dir(repository().join("migrations").join(folder)).unwrap() {
            for file in std::fs::read_dir(family.unwrap().path()).unwrap() {
                let name = file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
                assert!(files.insert(name.clone()), "two files are named {name}");
            }
        }
    }
    assert_eq!(made(&server::new_pool().await).await, files);
}

#[tokio::test]
async fn a_migration_replaces_what_changed_and_drops_what_no_file_makes() {
    let options = server::new_database().await;
    let (pool, before) = (PgPool::connect_with(options.clone()).await.unwrap(), dump(&options).await);
    sqlx::raw_sql(
        "CREATE FUNCTION wake_tasks(old_form integer) RETURNS void LANGUAGE sql AS 'SELECT';
         CREATE OR REPLACE FUNCTION wake_tasks() RETURNS void LANGUAGE sql AS 'SELECT';
         CREATE FUNCTION unused() RETURNS void LANGUAGE sql AS 'SELECT';
         CREATE VIEW unused_too AS SELECT 1 AS one;
         CREATE FUNCTION of_the_operator() RETURNS void LANGUAGE sql AS 'SELECT';
         UPDATE schema_functions SET hash = 'another' WHERE name = 'wake_tasks';
         INSERT INTO schema_functions (name, hash, migration, version) VALUES ('unused', '', 1, '0.0.1'), ('unused_too', '', 1, '0.0.1')",
    )
    .execute(&pool)
    .await
    .unwrap();
    let found = schema::read(&pool).await.unwrap();
    assert_eq!(
        found.stale.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        ["unused", "unused_too", "wake_tasks"].into()
    );
    assert!(matches!(found.check(), Err(DatabaseError::Behind { migrations: 0, functions: 3 })));
    schema::migrate(&pool).await.unwrap();
    sqlx::raw_sql("DROP FUNCTION of_the_operator()").execute(&pool).await.unwrap();
    assert_eq!(dump(&options).await, before);
    let changes: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM schema_functions WHERE replaced_at > (SELECT min(replaced_at) FROM schema_functions)",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(changes, 1, "only what changed is replaced");
    // After a numbered file everything is made again, because that file may have dropped some of it.
    sqlx::raw_sql("DROP VIEW task_blockage; UPDATE schema_functions SET migration = 0").execute(&pool).await.unwrap();
    schema::migrate(&pool).await.unwrap();
    assert_eq!(dump(&options).await, before);
}

#[tokio::test]
async fn migrations_that_start_at_once_make_one_schema() {
    let options = server::new_empty_database("it_at_once").await;
    let pool = PgPool::connect_with(options.clone()).await.unwrap();
    let (a, b, c, d) =
        tokio::join!(schema::migrate(&pool), schema::migrate(&pool), schema::migrate(&pool), schema::migrate(&pool));
    for migrated in [a, b, c, d] {
        migrated.unwrap();
    }
    schema::read(&pool).await.unwrap().check().unwrap();
    assert_eq!(dump(&options).await, dump(&server::new_database().await).await);
}

/// What each of our programs says when it starts on the database of this test; none of them starts.
async fn refusals(app: &TestApp) -> Vec<String> {
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_svc"));
    migrate.args(["migrate", "--config", "/dev/null"]).env("SVC_DATABASE_URL", url(&app.options));
    let mut said = Vec::new();
    for command in [worker_command(app, &[]), serve(app), migrate] {
        let output = run(command).await;
        assert!(!output.status.success());
        said.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    said
}

#[tokio::test]
async fn a_database_of_other_migrations_is_refused_and_the_remedy_named() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let version = schema::MIGRATIONS.iter().map(|migration| migration.version).min().unwrap();
    let checksum: Vec<u8> = sqlx::query_scalar("UPDATE _sqlx_migrations m SET checksum = '' FROM _sqlx_migrations old WHERE m.version = $1 AND old.version = m.version RETURNING old.checksum")
        .bind(version)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    for said in refusals(&app).await {
        for part in ["cannot be carried over", "SVC_DATABASE_URL", "SVC_DATA_DIR"] {
            assert!(said.contains(part), "{said}");
        }
    }
    sqlx::query("UPDATE _sqlx_migrations SET checksum = $1 WHERE version = $2")
        .bind(checksum)
        .bind(version)
        .execute(&app.pool)
        .await
        .unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_function_of_a_later_version_is_not_replaced() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let set = "UPDATE schema_functions SET version = $1, hash = $2 WHERE name = 'claim_batch'";
    let hash: String = sqlx::query_scalar("SELECT hash FROM schema_functions WHERE name = 'claim_batch'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    sqlx::query(set).bind("99.1.0").bind("later").execute(&app.pool).await.unwrap();
    for said in refusals(&app).await {
        for part in ["newer than this program", "svc 99.1.0", "claim_batch"] {
            assert!(said.contains(part), "{said}");
        }
    }
    // A function that is unchanged makes no difference.
    sqlx::query(set).bind("99.1.0").bind(&hash).execute(&app.pool).await.unwrap();
    schema::read(&app.pool).await.unwrap().check().unwrap();
    app.end().await;
}
