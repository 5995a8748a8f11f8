-- The bytes of the text that a task embeds, if it embeds one document that was written over REST and has neither failed nor lost a
-- lease; no row says that it embeds something else, or does so by itself. A segment without a text is the sum of its parts. It returns a
-- set so that the planner makes it a part of the statement around it, which is far cheaper than a call for each task.
CREATE OR REPLACE FUNCTION short_text(task bigint) RETURNS SETOF integer LANGUAGE sql STABLE AS $$
    SELECT octet_length(d.title) + octet_length(d.content) FROM task_queue t JOIN documents d ON d.id = t.scope_document_id
     WHERE t.id = task AND t.task_type = 'embed' AND t.params = '{}' AND t.root_id = t.scope_document_id
       AND t.retry_count = 0 AND t.lapses = 0 AND t.lease_losses = 0 AND octet_length(d.content) > 0
       AND NOT EXISTS (SELECT 1 FROM ingest_node n WHERE n.document_id = d.id) $$;
