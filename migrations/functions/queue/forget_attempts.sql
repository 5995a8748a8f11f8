-- Deletes the log of attempts with its document. PostgreSQL fires the triggers of a row by name, and the names of foreign keys'
-- triggers begin with a capital: this one comes after them. The setting keeps the cached plan right, which is made while the
-- table is small.
CREATE OR REPLACE FUNCTION forget_attempts() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM task_attempts WHERE document_id = OLD.id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER documents_attempts AFTER DELETE ON documents FOR EACH ROW EXECUTE FUNCTION forget_attempts();
