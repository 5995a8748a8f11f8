-- Has the bytes of a file follow its document to another guard, whatever gives it that one.
CREATE OR REPLACE FUNCTION follow_guard() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE document_blobs SET guard = NEW.guard WHERE document_id = NEW.id AND guard <> NEW.guard;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER documents_guard AFTER UPDATE OF guard ON documents FOR EACH ROW WHEN (OLD.guard <> NEW.guard) EXECUTE FUNCTION follow_guard();
