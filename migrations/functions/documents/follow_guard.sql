-- Has the bytes of a file follow its document to another guard, whatever gives it that one. Many documents may get another guard
-- in a transaction that has its own statements planned anew each time; this one is planned once.
CREATE OR REPLACE FUNCTION follow_guard() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE document_blobs SET guard = NEW.guard WHERE document_id = NEW.id AND guard <> NEW.guard;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER documents_guard AFTER UPDATE OF guard ON documents FOR EACH ROW WHEN (OLD.guard <> NEW.guard) EXECUTE FUNCTION follow_guard();
