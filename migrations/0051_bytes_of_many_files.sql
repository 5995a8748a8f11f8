-- PostgreSQL holds a lock for each large object that a transaction deletes, and has room for some 14,000 of all locks. Whoever deletes
-- more files than that notes their bytes here, and deletes them in parts after the commit.
CREATE TABLE blob_orphan (lob oid PRIMARY KEY);

-- As before, but for a transaction that sets svc.unlink_later.
CREATE OR REPLACE FUNCTION release_blob() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('svc.unlink_later', true) = 'on' THEN
        INSERT INTO blob_orphan VALUES (OLD.lob);
    ELSE
        PERFORM lo_unlink(OLD.lob);
    END IF;
    RETURN OLD;
END $$;
