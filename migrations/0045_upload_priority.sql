-- The priority of an upload stands with the node of its file; that of a task is made of it and of the task's stage.

-- Where tasks hold the tables for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';

-- Of the file, on the row of its root alone: the nodes below have none of their own.
ALTER TABLE ingest_node ADD COLUMN priority integer NOT NULL DEFAULT 0;

-- The one place that makes a task's priority. A higher upload goes before a lower one whatever their stages; among uploads
-- alike the later stage goes first, so that files are finished one after the other. There are ten stages at most.
CREATE FUNCTION task_priority(upload integer, stage integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT upload * 10 + stage $$;

-- The same task's under another priority of its upload.
CREATE FUNCTION with_upload_priority(priority integer, upload integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT task_priority(upload, mod(mod(priority, 10) + 10, 10)) $$;

-- What waits from before has no stage yet, and would be overtaken by all that comes after it.
UPDATE task_queue SET priority = task_priority(0, CASE
           WHEN task_type IN ('extract:text', 'extract:tables', 'extract:images', 'ocr') THEN 1
           WHEN task_type IN ('structure:declared', 'structure:inferred', 'structure:sheets') THEN 2
           WHEN task_type = 'profile:sheet' THEN 3
           WHEN task_type = 'extract:sheet' THEN 4
           WHEN task_type = 'embed' THEN 5
           WHEN task_type = 'summarize' THEN 7 END)
 WHERE NOT final AND priority = 0 AND task_type IN ('extract:text', 'extract:tables', 'extract:images', 'ocr', 'structure:declared',
       'structure:inferred', 'structure:sheets', 'profile:sheet', 'extract:sheet', 'embed', 'summarize');
