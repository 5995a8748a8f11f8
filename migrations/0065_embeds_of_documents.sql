-- A search says how many documents of its scope wait to be embedded, or could not be: those that were written over REST, which
-- have a task of their own. The columns of the condition change with no claim, so that a claim's updates stay within their page.
CREATE INDEX task_queue_document_embeds ON task_queue (scope_document_id)
    WHERE task_type = 'embed' AND root_id = scope_document_id AND (NOT final OR error_type IS NOT NULL);
