-- By its foreign key each line of the log of attempts locked its document's row, which wrote to that row's page. Whoever writes
-- such a line holds the task's row, on which the deletion of a document waits before it comes to this trigger.

-- Where tasks hold the tables for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';
-- The first that a task locks.
LOCK TABLE documents;

ALTER TABLE task_attempts DROP CONSTRAINT task_attempts_document_id_fkey;
CREATE FUNCTION forget_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM task_attempts WHERE document_id = OLD.id;
    RETURN NULL;
END $$;
-- Triggers of a row go by their names, and those of foreign keys begin with a capital: this one comes after them.
CREATE TRIGGER documents_attempts AFTER DELETE ON documents FOR EACH ROW EXECUTE FUNCTION forget_attempts();
