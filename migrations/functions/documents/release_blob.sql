-- Deletes the bytes of a file with its row, so that no way of deleting a row leaves bytes behind. A transaction that sets
-- svc.unlink_later deletes too many files for its locks: it only notes their large objects, which are deleted after its commit.
CREATE OR REPLACE FUNCTION release_blob() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('svc.unlink_later', true) = 'on' THEN
        INSERT INTO blob_orphan VALUES (OLD.lob);
    ELSE
        PERFORM lo_unlink(OLD.lob);
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER document_blobs_release AFTER DELETE ON document_blobs FOR EACH ROW EXECUTE FUNCTION release_blob();
