//! What must always hold, as SQL that returns the offending rows.
use super::PATIENCE;
use sqlx::PgPool;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The time between two looks for what holds soon.
const LOOK: Duration = Duration::from_millis(20);

/// Each with its name; checked at the end of every scenario.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "no two believed facts say the same of the same time",
        "SELECT a.id || ' and ' || b.id FROM triples a JOIN triples b ON a.id < b.id AND a.statement = b.statement AND a.zone = b.zone AND a.valid && b.valid
          WHERE a.invalidated_at IS NULL AND b.invalidated_at IS NULL",
    ),
    (
        "a fact is in the zone of its source, and no believed fact has an end or a source that is gone",
        "SELECT t.id::text FROM triples t LEFT JOIN documents d ON d.id = t.source_id
          WHERE (t.source_id IS NULL AND t.zone <> 0 AND t.derived_by IS NULL) OR (d.id IS NOT NULL AND t.zone <> d.guard)
             OR (t.invalidated_at IS NULL AND (NOT EXISTS (SELECT FROM documents s WHERE s.id = t.subject_id) OR (t.source_id IS NOT NULL AND d.id IS NULL)
                 OR (t.object_id IS NOT NULL AND NOT EXISTS (SELECT FROM documents o WHERE o.id = t.object_id))))",
    ),
    (
        "what rules derived follows from believed facts, and is as closed as they are",
        "SELECT t.id::text FROM triples t WHERE t.derived_by IS NOT NULL AND t.invalidated_at IS NULL
            AND (NOT EXISTS (SELECT FROM triple_premises p WHERE p.derived_id = t.id AND p.ended_at IS NULL) OR t.source_id IS NOT NULL
                 OR EXISTS (SELECT FROM triple_premises p JOIN triples x ON x.id = p.premise_id
                             WHERE p.derived_id = t.id AND p.ended_at IS NULL AND (x.invalidated_at IS NOT NULL OR x.zone NOT IN (0, t.zone))))",
    ),
    (
        "what a source states is cited, and what took a fact's place is there",
        "SELECT t.id::text FROM triples t WHERE (t.source_id IS NOT NULL AND NOT EXISTS (SELECT FROM triple_citations c WHERE c.triple_id = t.id AND c.document_id = t.source_id))
            OR (t.invalidated_by IS NOT NULL AND NOT EXISTS (SELECT FROM triples x WHERE x.id = t.invalidated_by))
            OR t.recorded_at > (SELECT at FROM knowledge_clock)",
    ),
    (
        "a file bears the guard of its document",
        "SELECT b.document_id::text FROM document_blobs b JOIN documents d ON d.id = b.document_id WHERE b.guard <> d.guard",
    ),
    (
        "no two held regions overlap, by sets and not by the constraint",
        "WITH held AS (SELECT * FROM task_queue WHERE status IN ('claimed','running','batched')),
           leaf AS (
             SELECT h.id AS task, n.key, n.depth FROM held h CROSS JOIN LATERAL (
                SELECT (array_to_string(d.path || d.id, '/') || '/') COLLATE \"C\" AS key, cardinality(d.path) AS depth
                  FROM documents d WHERE d.path @> ARRAY[h.scope_document_id]) n
              WHERE n.key >= h.first_leaf AND (n.key <= h.last_leaf OR starts_with(n.key, h.last_leaf)))
         SELECT a.id || ' and ' || b.id FROM held a JOIN held b ON a.id < b.id AND a.first_leaf IS NULL AND b.first_leaf IS NULL
           AND (a.node_path = b.node_path
             OR (a.write_mode = 'subtree' AND starts_with(b.node_path, a.node_path)) OR (b.write_mode = 'subtree' AND starts_with(a.node_path, b.node_path))
             OR (a.write_mode = 'children' AND starts_with(b.node_path, a.node_path) AND b.node_depth = a.node_depth + 1)
             OR (b.write_mode = 'children' AND starts_with(a.node_path, b.node_path) AND a.node_depth = b.node_depth + 1))
         UNION ALL SELECT l.task || ' and ' || b.id FROM leaf l JOIN held b ON b.id <> l.task AND b.first_leaf IS NULL
           AND (b.node_path = l.key OR (b.write_mode <> 'self' AND starts_with(l.key, b.node_path) AND (b.write_mode = 'subtree' OR l.depth = b.node_depth + 1)))
         UNION ALL SELECT a.task || ' and ' || b.task FROM leaf a JOIN leaf b ON a.key = b.key AND a.task < b.task",
    ),
    (
        "what embeds some leaves reserves all of them",
        "SELECT DISTINCT t.id::text FROM task_queue t CROSS JOIN jsonb_array_elements(t.params->'leaves') AS run
           JOIN documents d ON d.id BETWEEN (run->>0)::bigint AND (run->>1)::bigint AND d.path @> ARRAY[t.scope_document_id]
            AND d.usetype IN ('chunk','table','record','profile','image') AND NOT EXISTS (SELECT 1 FROM ingest_node n WHERE n.document_id = d.id)
          WHERE NOT t.final AND NOT coalesce((array_to_string(d.path || d.id, '/') || '/') COLLATE \"C\" BETWEEN t.first_leaf AND t.last_leaf, false)",
    ),
    (
        "held if and only if there is one reservation with the same token",
        "SELECT coalesce(t.id, r.task_id)::text FROM (SELECT * FROM task_queue WHERE status IN ('claimed','running','batched')) t
           FULL JOIN task_reservation r ON r.task_id = t.id AND r.claim_token = t.claim_token WHERE t.id IS NULL OR r.task_id IS NULL",
    ),
    (
        "one effect a completed task",
        "SELECT t.id::text FROM task_queue t LEFT JOIN task_attempts a ON a.task_id = t.id AND a.outcome IN ('completed','skipped')
          WHERE t.status = 'completed' GROUP BY t.id HAVING count(a.id) <> 1",
    ),
    (
        "an attempt came out in one of the known ways",
        "SELECT id::text FROM task_attempts WHERE outcome NOT IN ('completed','skipped','failed','lease_lost','batched')",
    ),
    (
        "a task is batched if and only if it waits in a batch that is not done with, at which it asks something",
        "SELECT t.id::text FROM task_queue t LEFT JOIN llm_batches b ON b.id::text = t.batch_id
          WHERE (t.status = 'batched') <> (t.batch_id IS NOT NULL) OR (t.batch_id IS NULL) <> (t.batched_at IS NULL)
             OR (t.status = 'batched' AND (b.id IS NULL OR b.is_done OR NOT EXISTS (SELECT 1 FROM llm_batch_requests q WHERE q.batch_id = b.id AND q.task_id = t.id)))",
    ),
    (
        "a batch that is over keeps no text, and each of its requests is over",
        "SELECT b.id::text FROM llm_batches b JOIN llm_batch_requests q ON q.batch_id = b.id
          WHERE b.state = 'ended' AND (q.line IS NOT NULL OR NOT (q.is_over OR q.is_dropped)) OR (q.is_dropped AND q.line IS NOT NULL)",
    ),
    (
        "a structure's children are made once",
        "SELECT parent_id || '.' || position FROM documents d JOIN node_origins o ON o.document_id = d.id WHERE o.rule <> 'upload'
          GROUP BY parent_id, o.rule, o.anchor -> 'source', position HAVING count(*) > 1",
    ),
    (
        "dependencies are completed before a task runs",
        "SELECT t.id::text FROM task_queue t JOIN task_queue d ON d.id = ANY(t.dependencies)
          WHERE t.status IN ('claimed','running','batched','completed') AND d.status <> 'completed'",
    ),
    (
        "large objects and blobs are the same, both ways",
        "SELECT coalesce(b.lob, m.oid)::text FROM (SELECT lob FROM document_blobs WHERE lob IS NOT NULL UNION ALL SELECT lob FROM blob_orphan) b FULL JOIN pg_largeobject_metadata m ON m.oid = b.lob WHERE b.lob IS NULL OR m.oid IS NULL",
    ),
    (
        "no object is a file's and garbage, because garbage is removed",
        "SELECT object FROM document_blobs JOIN blob_garbage USING (object)",
    ),
    (
        "a container that settled is in the index of everything if it says something, and only then",
        "SELECT concat_ws(' ', d.id, d.usetype, d.title) FROM ingest_node n JOIN documents d ON d.id = n.document_id
          WHERE d.settled = 'settled' AND d.guard <> -1
            AND (SELECT built_to IS NULL AND d.usetype <> ALL(excluded) FROM search_indexes WHERE name = 'default')
            -- A title that changed has a task.
            AND NOT EXISTS (SELECT FROM task_queue t WHERE t.scope_document_id = d.id AND NOT t.final)
            AND (d.content ~ '\\S' OR (d.title ~ '\\S' AND d.usetype NOT IN ('raptor', 'table', 'record', 'profile', 'image', 'chunk')
                 AND NOT (d.usetype = 'section' AND d.title ~ '^((Page|Segment|Slide) [0-9]+|Untitled section)$')))
                <> EXISTS (SELECT FROM search_index_entries e JOIN search_indexes i ON i.id = e.index_id WHERE e.document_id = d.id AND i.name = 'default')",
    ),
    (
        "nothing settles above a node in flight",
        "SELECT n.document_id::text FROM ingest_node n JOIN documents d ON d.id = n.document_id JOIN documents c ON c.parent_id = d.id
           LEFT JOIN ingest_node own ON own.document_id = c.id
          WHERE d.settled = 'settled' AND c.settled = 'in_flight' AND own.root_id IS DISTINCT FROM c.id",
    ),
    (
        "counters equal a recount",
        "SELECT concat_ws(' ', n.document_id, 'of file', n.root_id, 'children', n.open_children, 'tasks', n.open_tasks, n.rollup,
                       (SELECT json_agg(json_build_array(c.id, c.usetype, c.settled, own.root_id)) FROM documents c LEFT JOIN ingest_node own ON own.document_id = c.id WHERE c.parent_id = d.id),
                       (SELECT json_agg(e) FROM settle_event e WHERE e.document_id = d.id),
                       (SELECT json_agg(json_build_array(t.id, t.task_type, t.status, t.final)) FROM task_queue t WHERE t.scope_document_id = d.id))
           FROM ingest_node n JOIN documents d ON d.id = n.document_id
          -- Nobody settles a generation that was given up: it goes once no worker holds a task of it.
          WHERE d.settled = 'in_flight' AND NOT EXISTS (SELECT 1 FROM generations g WHERE g.generation_id = n.root_id AND (g.abandoned OR g.document_id IS NULL)) AND (
                n.open_children <> (SELECT count(*) FROM documents c LEFT JOIN ingest_node own ON own.document_id = c.id
                                      WHERE c.parent_id = n.document_id AND c.settled = 'in_flight' AND own.root_id IS DISTINCT FROM c.id)
                                 + coalesce((SELECT sum(e.done) FROM settle_event e WHERE e.document_id = n.document_id), 0)
             OR n.open_tasks <> (SELECT count(*) FROM task_queue t WHERE t.scope_document_id = n.document_id AND NOT t.final
                                    AND t.task_type NOT IN ('embed:titles', 'reembed', 'raptor', 'extract:facts')))",
    ),
    (
        "the frontier's deltas equal a recount",
        "SELECT f.root_id::text FROM (SELECT root_id, sum(total) total, sum(in_flight) in_flight, sum(settled) settled, sum(failed) failed FROM frontier_delta GROUP BY 1) f
          WHERE (f.total, f.in_flight, f.settled, f.failed) <> (
             SELECT count(*), count(*) FILTER (WHERE d.settled = 'in_flight'), count(*) FILTER (WHERE d.settled = 'settled'), count(*) FILTER (WHERE d.settled = 'failed')
               FROM documents d WHERE d.id = f.root_id OR d.path @> ARRAY[f.root_id])",
    ),
    ("retries stay within the cap", "SELECT id::text FROM task_queue WHERE retry_count > max_retries"),
    (
        "permanent means one attempt, where nobody cancelled it or put it back",
        "SELECT task_id::text FROM task_attempts a WHERE outcome = 'failed' AND error_type = 'permanent' AND code <> 'cancelled' GROUP BY task_id
         HAVING count(*) > 1 + (SELECT count(*) FROM access_audit r WHERE r.act = 'task.retry' AND (r.detail ->> 'task_id')::bigint = a.task_id)",
    ),
    (
        "a parked row waits for something that is there, or a claim wakes it",
        "SELECT id::text FROM task_queue t WHERE parked_on IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = t.parked_on)
           AND NOT EXISTS (SELECT 1 FROM task_intent i WHERE i.task_id = t.parked_on)
           AND NOT EXISTS (SELECT 1 FROM paused_task_type q WHERE q.id = -t.parked_on)
           AND NOT EXISTS (SELECT 1 FROM task_release l WHERE l.task_id = t.parked_on)",
    ),
    (
        "only settled nodes are in the index",
        "SELECT e.document_id::text FROM search_index_entries e LEFT JOIN documents d ON d.id = e.document_id AND d.settled = 'settled' WHERE d.id IS NULL",
    ),
    (
        "a status and its marks agree",
        "SELECT id::text FROM task_queue WHERE (status = 'completed') AND NOT final OR (status IN ('pending','claimed','running','batched') AND final)
           OR (status IN ('claimed','running') AND (claim_token IS NULL OR ready)) OR (status IN ('pending','completed','failed') AND claim_token IS NOT NULL)
           OR (ready AND (final OR parked_on IS NOT NULL OR unmet_deps > 0)) OR unmet_deps < 0",
    ),
    (
        "what a reader lists is evidence under a name of its own",
        "SELECT e.document_id || ' ' || fact.key FROM node_evidence e CROSS JOIN jsonb_each(e.value) AS fact
          WHERE e.name = 'extract.text' AND jsonb_typeof(fact.value) IN ('array', 'object')",
    ),
    (
        "no log of what is gone",
        "SELECT a.id::text FROM task_attempts a LEFT JOIN documents d ON d.id = a.document_id WHERE d.id IS NULL",
    ),
    (
        "every node that ingestion made has its words",
        "SELECT o.document_id::text FROM node_origins o LEFT JOIN document_words w USING (document_id) WHERE w.document_id IS NULL",
    ),
    (
        "the guard of a node is the nearest access root at or above it",
        "SELECT d.id::text FROM documents d
          WHERE d.guard <> CASE WHEN EXISTS (SELECT 1 FROM generations g WHERE g.generation_id = coalesce(d.path[1], d.id)) THEN -1 ELSE
                coalesce((SELECT a.document_id FROM access_roots a JOIN documents r ON r.id = a.document_id
                                      WHERE a.document_id = d.id OR a.document_id = ANY(d.path) ORDER BY cardinality(r.path) DESC LIMIT 1), 0) END",
    ),
    (
        "a vector is in the part of its root, where vectors are in parts",
        "SELECT d.id::text FROM documents d JOIN document_vectors v ON v.document_id = d.id
          WHERE d.guard <> -1 AND v.root_id <> vector_root('document_vectors', d.id)",
    ),
    (
        "an access root knows the nearest root above it",
        "SELECT a.document_id::text FROM access_roots a JOIN documents d ON d.id = a.document_id LEFT JOIN documents p ON p.id = d.parent_id
          WHERE a.above <> coalesce(p.guard, 0)",
    ),
    (
        "a summary tells of nothing that its readers may not read",
        "SELECT s.id::text FROM documents s JOIN node_origins o ON o.document_id = s.id AND o.rule = 'raptor'
           JOIN document_links l ON l.source_id = s.id JOIN documents m ON m.id = l.target_id WHERE m.guard <> s.guard",
    ),
    (
        "a path is the parent's path and the parent",
        "SELECT d.id::text FROM documents d LEFT JOIN documents p ON p.id = d.parent_id
          WHERE d.path IS DISTINCT FROM CASE WHEN p.id IS NULL THEN '{}' ELSE p.path || p.id END",
    ),
    (
        "what contains what, in the tree and by links, is no circle",
        "WITH RECURSIVE above(link, id) AS (
             SELECT l.id, unnest(d.path || d.id) FROM document_links l JOIN documents d ON d.id = l.source_id WHERE l.link_type = 'contains'
             UNION SELECT a.link, unnest(d.path || d.id) FROM above a JOIN document_links l ON l.target_id = a.id AND l.link_type = 'contains'
                     JOIN documents d ON d.id = l.source_id)
         SELECT l.id::text FROM above a JOIN document_links l ON l.id = a.link AND l.target_id = a.id",
    ),
    (
        "an unfinished task has the region of its document's place",
        "SELECT t.id::text FROM task_queue t JOIN documents d ON d.id = t.scope_document_id
          WHERE NOT t.final AND ('/' || t.node_path) LIKE '%/' || d.id || '/'
            AND (t.node_path <> array_to_string(d.path || d.id, '/') || '/' OR t.node_depth <> cardinality(d.path)
             OR NOT starts_with(coalesce(t.first_leaf, t.node_path), t.node_path) OR NOT starts_with(coalesce(t.last_leaf, t.node_path), t.node_path))
         UNION ALL SELECT r.task_id::text FROM task_reservation r JOIN task_queue t ON t.id = r.task_id WHERE r.node_path <> t.node_path",
    ),
    (
        "no row points to nothing, where no foreign key says so",
        "SELECT 'ingest_node ' || n.document_id FROM ingest_node n
          WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = n.root_id)
             OR (n.parent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = n.parent_id))
         UNION ALL SELECT 'settle_event ' || e.id FROM settle_event e
          WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = e.root_id) OR NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = e.document_id)
         UNION ALL SELECT 'frontier_delta ' || f.root_id FROM frontier_delta f WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = f.root_id)
         UNION ALL SELECT 'task_queue ' || t.id FROM task_queue t WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = t.root_id)
         UNION ALL SELECT 'task_reservation ' || r.task_id FROM task_reservation r WHERE NOT EXISTS (SELECT 1 FROM task_queue t WHERE t.id = r.task_id)
         UNION ALL SELECT 'search_index_entries ' || e.document_id FROM search_index_entries e WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = e.document_id)
         UNION ALL SELECT 'search_index_members ' || m.root_document_id FROM search_index_members m
          WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = m.root_document_id) OR NOT EXISTS (SELECT 1 FROM search_indexes i WHERE i.id = m.index_id AND i.restricted)
         UNION ALL SELECT 'token_embeddings ' || e.document_id FROM token_embeddings e WHERE NOT EXISTS (SELECT 1 FROM token_packs p WHERE p.document_id = e.document_id)
         UNION ALL SELECT 'access_roots ' || a.document_id FROM access_roots a WHERE a.above <> 0 AND NOT EXISTS (SELECT 1 FROM access_roots r WHERE r.document_id = a.above)",
    ),
    (
        "what outlives the document that it names was made for one that was there, and finds nothing without it",
        "SELECT 'webhooks ' || id FROM webhooks WHERE root_id NOT BETWEEN 1 AND (SELECT last_value FROM documents_id_seq)
         UNION ALL SELECT 'search_contexts ' || id FROM search_contexts
          WHERE (config ->> 'parent_id')::bigint NOT BETWEEN 1 AND (SELECT last_value FROM documents_id_seq)",
    ),
    (
        "a zone stores the same bytes once for each usetype, but for files within files",
        "SELECT d.content_hash FROM documents d JOIN document_blobs b ON b.document_id = d.id AND b.is_file
           JOIN node_origins o ON o.document_id = d.id AND o.rule <> 'extract:members' GROUP BY d.content_hash, d.usetype, d.guard HAVING count(*) > 1",
    ),
];

/// What must also hold once nothing is left to do.
const DRAINED: &[(&str, &str)] = &[
    (
        "the vector of a container of a file is the weighted sum of its children's, unless it is that of a summary",
        "WITH sums AS (
             SELECT d.parent_id AS id, v.embed_model, avg(v.embed::vector * array_fill(v.weight, ARRAY[vector_dims(v.embed)])::vector) AS mean
               FROM documents d JOIN document_vectors v ON v.document_id = d.id
               JOIN node_origins o ON o.document_id = d.id AND o.rule <> ALL('{upload,split,chunk,segment,raptor,extract:images}')
              WHERE d.settled = 'settled' AND d.usetype NOT IN ('raptor', 'image') GROUP BY 1, 2)
         SELECT n.document_id || ': ' || coalesce((own.embed <=> l2_normalize(s.mean)::halfvec)::text, 'one of them is missing')
           FROM ingest_node n JOIN documents d ON d.id = n.document_id AND d.settled = 'settled'
           LEFT JOIN document_vectors own ON own.document_id = n.document_id
           LEFT JOIN sums s ON s.id = n.document_id AND s.embed_model = coalesce(own.embed_model, s.embed_model) AND vector_norm(s.mean) > 0
          WHERE ((own.document_id IS NULL) <> (s.id IS NULL) OR (own.embed <=> l2_normalize(s.mean)::halfvec) > 1e-3)
            AND NOT EXISTS (SELECT 1 FROM node_evidence e WHERE e.document_id = d.id AND e.name = 'rollup'
                             AND e.value ->> 'embedding' = 'summary of a language model')",
    ),
    (
        "a summary is that of a container whose text did not fit",
        "SELECT e.document_id || ': ' || e.value FROM node_evidence e LEFT JOIN node_evidence r ON r.document_id = e.document_id AND r.name = 'rollup'
          WHERE e.name = 'effective_content' AND e.value ->> 'method' = 'llm_summary'
            AND (NOT (e.value ? 'text' OR e.value ? 'text_removed') OR r.value -> 'not_concatenated' IS NULL)",
    ),
    (
        "a container that settled knows how many of its children failed",
        "SELECT n.document_id || ': ' || n.failed_children FROM ingest_node n JOIN documents d ON d.id = n.document_id AND d.settled = 'settled'
          WHERE n.failed_children <> (SELECT count(*) FROM documents c LEFT JOIN ingest_node own ON own.document_id = c.id
                                       WHERE c.parent_id = n.document_id AND c.settled = 'failed' AND own.root_id IS DISTINCT FROM c.id)",
    ),
    ("no task is lost", "SELECT id || ' ' || task_type || ' ' || status FROM task_queue WHERE NOT final"),
    ("every node ends settled or failed", "SELECT id::text FROM documents WHERE settled = 'in_flight'"),
    ("no region stays held", "SELECT task_id::text FROM task_reservation"),
    ("no event is left", "SELECT id::text FROM settle_event"),
    ("no reprocess is left", "SELECT generation_id::text FROM generations"),
];

/// Panics if a connection of ours stays in a transaction while nobody works. Such a transaction is rolled back in the
/// background, so this waits for it.
pub async fn check_idle(pool: &PgPool) {
    let query = "SELECT state || ': ' || query FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'svc' AND state LIKE 'idle in transaction%'";
    let begun = Instant::now();
    loop {
        let open: Vec<String> = sqlx::query_scalar(query).fetch_all(pool).await.unwrap();
        if open.is_empty() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "connections stay in a transaction that nobody works in: {open:?}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn broken(pool: &PgPool, invariants: &[(&'static str, &'static str)]) -> Vec<String> {
    // Over one connection, the server's process reads the catalog once for all of these statements.
    let mut conn = pool.acquire().await.unwrap();
    let mut broken = Vec::new();
    for (name, query) in invariants {
        let rows: Vec<Option<String>> = sqlx::query_scalar(*query).fetch_all(&mut *conn).await.unwrap();
        if !rows.is_empty() {
            broken.push(format!(
                "{name}: {} rows, first {:?}",
                rows.len(),
                rows.iter().flatten().take(5).collect::<Vec<_>>()
            ));
        }
    }
    broken
}

/// The evidence that docs/evidence.md does not have, and the null that it does not explain.
async fn undocumented(pool: &PgPool) -> Vec<String> {
    let page = std::fs::read_to_string(super::repository().join("docs/evidence.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeMap<&str, bool> = rows
        .map(|row| {
            (row.split('`').next().unwrap(), row.split(" | ").nth(2).is_some_and(|null| !null.trim().is_empty()))
        })
        .collect();
    let recorded: Vec<(String, bool)> =
        sqlx::query_as("SELECT DISTINCT name, value = 'null' FROM node_evidence").fetch_all(pool).await.unwrap();
    let is_known =
        |(name, is_null): &(String, bool)| documented.get(name.as_str()).is_some_and(|null| *null || !is_null);
    let unknown = recorded.into_iter().filter(|evidence| !is_known(evidence));
    unknown.map(|(name, is_null)| format!("docs/evidence.md lacks {name}, null: {is_null}")).collect()
}

/// Panics, naming each invariant that does not hold. Like every claim, it first wakes what can be woken.
pub async fn check(pool: &PgPool) {
    sqlx::query("SELECT wake_tasks()").execute(pool).await.unwrap();
    let mut broken = broken(pool, INVARIANTS).await;
    broken.extend(undocumented(pool).await);
    assert!(broken.is_empty(), "invariants broken:\n{}", broken.join("\n"));
}

/// The same, and checks that nothing is left to do. Settling is apart from the tasks, so this waits until their events are taken.
pub async fn check_drained(pool: &PgPool) {
    check(pool).await;
    let begun = Instant::now();
    loop {
        let left = broken(pool, DRAINED).await;
        if left.is_empty() {
            return;
        }
        if begun.elapsed() > PATIENCE {
            panic!("not drained:\n{}\n{}", left.join("\n"), super::queue_text(pool).await);
        }
        tokio::time::sleep(LOOK).await;
    }
}
