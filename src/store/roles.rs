//! The role that the service uses on a server of its own: it owns its database and is no superuser. Every function may
//! be repeated, and leads to the same state whatever a start that was killed had done.
use sqlx::{AssertSqlSafe, PgConnection};

/// How many large objects change their owner in one transaction: each takes a lock, of which the server has some
/// thousands.
const LARGE_OBJECTS: i64 = 1000;

/// Makes the role if it is missing, and revokes what it must not be able to do. The name is ours and needs no quotes.
pub async fn ensure(superuser: &mut PgConnection, role: &str) -> Result<(), sqlx::Error> {
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)")
        .bind(role)
        .fetch_one(&mut *superuser)
        .await?;
    let verb = if exists { "ALTER" } else { "CREATE" };
    let rights = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS";
    run(superuser, format!("{verb} ROLE {role} {rights}")).await
}

/// Makes the database if it is missing, and gives it to the role.
pub async fn ensure_database(superuser: &mut PgConnection, name: &str, role: &str) -> Result<(), sqlx::Error> {
    let owner: Option<String> =
        sqlx::query_scalar("SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = $1")
            .bind(name)
            .fetch_optional(&mut *superuser)
            .await?;
    match owner {
        None => run(superuser, format!("CREATE DATABASE {name} OWNER {role}")).await,
        Some(owner) if owner != role => run(superuser, format!("ALTER DATABASE {name} OWNER TO {role}")).await,
        Some(_) => Ok(()),
    }
}

/// Creates pgvector, for which one must be superuser, in the database of the connection, or updates it to the version that the server has. A
/// server without it is left to the check that names the remedy.
pub async fn ensure_vector(superuser: &mut PgConnection) -> Result<(), sqlx::Error> {
    // From a version of a later release nothing leads back.
    let step: Option<Option<String>> = sqlx::query_scalar(
        "SELECT CASE WHEN installed_version IS NULL THEN 'CREATE EXTENSION IF NOT EXISTS vector'
                     WHEN EXISTS (SELECT FROM pg_extension_update_paths('vector')
                                   WHERE source = installed_version AND target = default_version AND path IS NOT NULL)
                     THEN 'ALTER EXTENSION vector UPDATE' END
           FROM pg_available_extensions WHERE name = 'vector'",
    )
    .fetch_optional(&mut *superuser)
    .await?;
    match step.flatten() {
        Some(step) => run(superuser, step).await,
        None => Ok(()),
    }
}

/// Gives the role everything in the database of the connection that belongs to the connecting superuser and not to the
/// server itself, because releases before this role worked as superuser.
pub async fn hand_over(superuser: &mut PgConnection, role: &str) -> Result<(), sqlx::Error> {
    // Members of an extension stay with it. A column's sequence follows its table, and the constructors of a range type,
    // which always belong to the first superuser, are a part of the type.
    const OWNED: &str = "
        WITH mine AS (SELECT oid AS owner FROM pg_roles WHERE rolname = session_user),
        space AS (SELECT oid FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
        own AS (
            SELECT 'pg_class'::regclass AS catalog, c.oid,
                   CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
                                WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END || ' ' || c.oid::regclass AS name
              FROM pg_class c, mine WHERE relowner = owner AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relnamespace IN (SELECT oid FROM space)
            UNION ALL
            SELECT 'pg_proc'::regclass, p.oid, 'ROUTINE ' || p.oid::regprocedure
              FROM pg_proc p, mine WHERE proowner = owner AND pronamespace IN (SELECT oid FROM space)
            UNION ALL
            SELECT 'pg_type'::regclass, t.oid, 'TYPE ' || t.oid::regtype
              FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid, mine
             WHERE typowner = owner AND (typtype IN ('d', 'e', 'r') OR c.relkind = 'c') AND typnamespace IN (SELECT oid FROM space)
            UNION ALL
            SELECT 'pg_namespace'::regclass, n.oid, 'SCHEMA ' || quote_ident(nspname)
              FROM pg_namespace n, mine WHERE nspowner = owner AND n.oid IN (SELECT oid FROM space)
        )
        SELECT name FROM own WHERE NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = own.catalog AND d.objid = own.oid
               AND (d.deptype = 'e' OR (d.deptype IN ('a', 'i') AND name LIKE 'SEQUENCE %') OR (d.deptype = 'i' AND name LIKE 'ROUTINE %')))";
    let names: Vec<String> = sqlx::query_scalar(OWNED).fetch_all(&mut *superuser).await?;
    if !names.is_empty() {
        tracing::info!(
            objects = names.len(),
            "giving the database of an earlier release to an owner without a superuser's rights"
        );
    }
    for name in names {
        run(superuser, format!("ALTER {name} OWNER TO {role}")).await?;
    }
    let some = format!(
        "DO $$ DECLARE one oid; BEGIN
           FOR one IN SELECT m.oid FROM pg_largeobject_metadata m JOIN pg_roles r ON r.oid = lomowner WHERE rolname = session_user LIMIT {LARGE_OBJECTS} LOOP
             EXECUTE format('ALTER LARGE OBJECT %s OWNER TO {role}', one);
           END LOOP;
         END $$"
    );
    let left = "SELECT EXISTS (SELECT FROM pg_largeobject_metadata m JOIN pg_roles r ON r.oid = lomowner WHERE rolname = session_user)";
    while sqlx::query_scalar(left).fetch_one(&mut *superuser).await? {
        run(superuser, some.clone()).await?;
    }
    Ok(())
}

async fn run(superuser: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(superuser).await.map(|_| ())
}
