-- What a node costs: bytes, inserts, rewrites and search legs, on a database of this schema. It says nothing of the service.
--
--   createdb nodes; cat migrations/0*.sql | psql -q nodes; psql -q -v n=20000 -f benches/nodes/nodes.sql nodes
--
-- On the schema before vectors and words stood apart (migrations of f0335d2) the same script takes its other branches.
\set ON_ERROR_STOP on
\timing off
SET client_min_messages = warning;
SET plan_cache_mode = force_custom_plan;
SELECT to_regclass('document_vectors') IS NOT NULL AS apart \gset
CREATE FUNCTION some_vector(seed bigint, width integer) RETURNS real[] LANGUAGE sql AS $$
    SELECT array_agg((sin((seed % 50) * 7.1 + i) + 0.3 * sin(seed * 1.7 + i * seed))::real) FROM generate_series(1, width) AS i $$;
CREATE FUNCTION some_text(seed bigint) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg('word' || ((seed * i * 7919) % (3000 / (1 + i % 7) + 1)), ' ') FROM generate_series(1, 80) AS i $$;
CREATE TABLE result (at serial, what text, ms numeric, wal_bytes_a_row numeric);
-- Runs a statement `times` times, and keeps the median time in milliseconds, and the WAL bytes of the first run for each of its rows.
CREATE PROCEDURE measure(what text, statement text, rows integer, times integer) LANGUAGE plpgsql AS $$
DECLARE begun timestamptz; wal pg_lsn := pg_current_wal_insert_lsn(); first_wal numeric; took numeric[] := '{}';
BEGIN
    FOR i IN 1 .. times LOOP
        begun := clock_timestamp();
        EXECUTE statement;
        took := took || (extract(epoch FROM clock_timestamp() - begun) * 1000)::numeric;
        first_wal := coalesce(first_wal, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), wal));
    END LOOP;
    INSERT INTO result (what, ms, wal_bytes_a_row)
    SELECT measure.what, round((SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) FROM unnest(took) t)::numeric, 1), round(first_wal / rows);
END $$;
\if :apart
CREATE INDEX vectors_hnsw ON document_vectors USING hnsw ((embed::halfvec(384)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 64) WHERE embed_model = 'm';
CREATE PROCEDURE add_nodes(first bigint, count integer) LANGUAGE sql AS $$
    WITH made AS (
        INSERT INTO documents (id, parent_id, path, title, content, usetype, content_hash, guard) OVERRIDING SYSTEM VALUE
        SELECT i, 1 + i % 20, ARRAY[1 + i % 20], 'node ' || i, some_text(i), 'chunk', 'sha256:' || md5(i::text), 0
          FROM generate_series(first, first + count - 1) i RETURNING id, title, content),
    words AS (INSERT INTO document_words SELECT id, to_tsvector('english', left(title || E'\n' || content, 200000)) FROM made)
    INSERT INTO document_vectors SELECT id, 'm', some_vector(id, 384)::halfvec, 1 FROM made $$;
\else
ALTER TABLE documents ADD COLUMN guard bigint NOT NULL DEFAULT 0;
CREATE INDEX documents_guard ON documents (guard);
CREATE PROCEDURE add_nodes(first bigint, count integer) LANGUAGE sql AS $$
    INSERT INTO documents (id, parent_id, path, title, content, usetype, content_hash, embed, embed_model) OVERRIDING SYSTEM VALUE
    SELECT i, 1 + i % 20, ARRAY[1 + i % 20], 'node ' || i, some_text(i), 'chunk', 'sha256:' || md5(i::text),
           (some_vector(i, 384) || array_fill(0::real, ARRAY[384]))::vector, 'm'
      FROM generate_series(first, first + count - 1) i $$;
\endif

INSERT INTO documents (id, title, content, usetype, content_hash, guard) OVERRIDING SYSTEM VALUE
SELECT i, 'file', '', 'file', '', 0 FROM generate_series(1, 20) i;
CALL add_nodes(100001, :n);
VACUUM ANALYZE;
CHECKPOINT;
CALL measure('insert of 1,000 nodes', $$DO 'DECLARE next bigint := (SELECT max(id) + 1 FROM documents); BEGIN CALL add_nodes(next, 1000); END'$$, 1000, 3);
CALL measure('guard of 1,000 nodes', 'UPDATE documents SET guard = guard + 1 WHERE id BETWEEN 100001 AND 101000', 1000, 3);
CALL measure('path of 1,000 nodes', 'UPDATE documents SET path = ARRAY[2, 1 + id % 20] WHERE id BETWEEN 102001 AND 103000', 1000, 3);
VACUUM ANALYZE;
\if :apart
CALL measure('exact search in a file', $$SELECT v.document_id FROM document_vectors v WHERE v.embed_model = 'm' AND v.document_id = ANY(ARRAY(SELECT d.id FROM documents d
    WHERE d.settled = 'settled' AND d.path @> ARRAY[5::bigint])) ORDER BY (v.embed <=> (SELECT some_vector(77, 384)::halfvec)) + 0, v.document_id LIMIT 10$$, 1, 9);
CALL measure('exact search of everything', $$SELECT v.document_id FROM document_vectors v WHERE v.embed_model = 'm' AND v.document_id = ANY(ARRAY(SELECT d.id FROM documents d
    WHERE d.settled = 'settled')) ORDER BY (v.embed <=> (SELECT some_vector(77, 384)::halfvec)) + 0, v.document_id LIMIT 10$$, 1, 9);
SET hnsw.ef_search = 200; SET hnsw.iterative_scan = relaxed_order;
CALL measure('search by HNSW', $$SELECT v.document_id FROM document_vectors v JOIN documents d ON d.id = v.document_id WHERE v.embed_model = 'm' AND d.settled = 'settled'
    ORDER BY v.embed::halfvec(384) <=> (SELECT some_vector(77, 384)::halfvec(384)) LIMIT 40$$, 1, 9);
CALL measure('full text', $$SELECT d.id, ts_rank_cd(w.words, q) AS score FROM websearch_to_tsquery('english', 'word12 word40') q, document_words w JOIN documents d ON d.id = w.document_id
    WHERE d.settled = 'settled' AND w.words @@ q ORDER BY score DESC, d.id LIMIT 10$$, 1, 9);
\else
CALL measure('exact search in a file', $$SELECT d.id FROM documents d WHERE d.settled = 'settled' AND d.embed IS NOT NULL AND d.embed_model = 'm' AND d.path @> ARRAY[5::bigint]
    ORDER BY (d.embed <=> (SELECT (some_vector(77, 384) || array_fill(0::real, ARRAY[384]))::vector(768))) + 0, d.id LIMIT 10$$, 1, 9);
CALL measure('exact search of everything', $$SELECT d.id FROM documents d WHERE d.settled = 'settled' AND d.embed IS NOT NULL AND d.embed_model = 'm'
    ORDER BY (d.embed <=> (SELECT (some_vector(77, 384) || array_fill(0::real, ARRAY[384]))::vector(768))) + 0, d.id LIMIT 10$$, 1, 9);
SET hnsw.ef_search = 200; SET hnsw.iterative_scan = relaxed_order;
CALL measure('search by HNSW', $$SELECT d.id FROM documents d WHERE d.settled = 'settled' AND d.embed_model = 'm'
    ORDER BY d.embed::halfvec(768) <=> (SELECT (some_vector(77, 384) || array_fill(0::real, ARRAY[384]))::vector(768)::halfvec(768)) LIMIT 40$$, 1, 9);
CALL measure('full text', $$SELECT d.id, ts_rank_cd(d.words, q) AS score FROM documents d, websearch_to_tsquery('english', 'word12 word40') q
    WHERE d.settled = 'settled' AND d.words @@ q ORDER BY score DESC, d.id LIMIT 10$$, 1, 9);
\endif
CALL measure('count under a guard', 'SELECT count(*) FROM documents WHERE guard = ANY(ARRAY[0::bigint, 5])', 1, 9);
SELECT what, ms, wal_bytes_a_row FROM result ORDER BY at;
SELECT c.relname, pg_size_pretty(pg_relation_size(c.oid)) AS size, round(pg_relation_size(c.oid)::numeric / (SELECT count(*) FROM documents)) AS bytes_a_node
  FROM pg_class c WHERE c.relname LIKE 'document%' AND pg_relation_size(c.oid) > 100000 OR c.relname = 'vectors_hnsw' ORDER BY pg_relation_size(c.oid) DESC;
SELECT round(sum(pg_total_relation_size(c.oid))::numeric / (SELECT count(*) FROM documents)) AS all_bytes_a_node
  FROM pg_class c WHERE c.relkind = 'r' AND c.relname IN ('documents', 'document_vectors', 'document_words');
