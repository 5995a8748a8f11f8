-- Gives up the bytes of a file with its row, or with its change of place, so that no way of deleting a row leaves bytes behind. An object
-- becomes garbage. A large object is deleted, unless it was lost, because the row must go all the same; a transaction that sets
-- svc.unlink_later deletes too many files for its locks: it only notes them, and they are deleted after its commit.
CREATE OR REPLACE FUNCTION release_blob() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.lob IS NOT DISTINCT FROM OLD.lob AND NEW.object IS NOT DISTINCT FROM OLD.object THEN
        RETURN NULL;
    ELSIF OLD.object IS NOT NULL THEN
        INSERT INTO blob_garbage (object) VALUES (OLD.object) ON CONFLICT (object) DO UPDATE SET since = now();
    ELSIF current_setting('svc.unlink_later', true) = 'on' THEN
        INSERT INTO blob_orphan VALUES (OLD.lob);
    ELSIF EXISTS (SELECT FROM pg_largeobject_metadata WHERE oid = OLD.lob) THEN
        PERFORM lo_unlink(OLD.lob);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER document_blobs_release AFTER DELETE OR UPDATE OF lob, object ON document_blobs FOR EACH ROW EXECUTE FUNCTION release_blob();
