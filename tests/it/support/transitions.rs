//! From which status to which a task may go. The databases of the tests hold the service to it.
use sqlx::PgPool;

/// What a statement of a test has in it that puts a task into a status to which nothing leads.
pub const FORGED: &str = "/* forged */";

/// The contract's table, with what it leaves open: a short task ends in the transaction that would start it, one that is granted beside another runs at
/// once, what waits may be cancelled, put off or lost with what it waits for, and a task that failed may be put back.
pub const LEGAL: &[(&str, &[&str])] = &[
    ("pending", &["claimed", "running", "failed"]),
    ("claimed", &["running", "batched", "completed", "failed", "pending"]),
    ("running", &["batched", "completed", "failed", "pending"]),
    ("batched", &["claimed", "completed", "failed", "pending"]),
    ("failed", &["claimed", "running", "pending"]),
    ("completed", &[]),
];

/// Has a database refuse every other way. The condition is a part of the trigger, so that a task on a legal way costs no call.
pub async fn hold(pool: &PgPool) {
    let legal = LEGAL.iter().flat_map(|(from, all)| all.iter().map(move |to| format!("('{from}', '{to}')")));
    let legal: Vec<String> = legal.collect();
    let hold = format!(
        "CREATE FUNCTION refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF strpos(current_query(), '{FORGED}') = 0 THEN
                 RAISE EXCEPTION 'task % went from % to %, which no task may', NEW.id, OLD.status, NEW.status;
             END IF;
             RETURN NULL; END $$;
         CREATE TRIGGER legal_transitions AFTER UPDATE OF status ON task_queue FOR EACH ROW
             WHEN (OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN ({})) EXECUTE FUNCTION refuse_transition()",
        legal.join(", ")
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(hold)).execute(pool).await.unwrap();
}
