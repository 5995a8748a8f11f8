-- Has the bytes of a file bear the guard of its document, so that an index has the files together that a caller may read.
CREATE OR REPLACE FUNCTION guard_blob() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    NEW.guard := coalesce((SELECT d.guard FROM documents d WHERE d.id = NEW.document_id), -1);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER document_blobs_guard BEFORE INSERT ON document_blobs FOR EACH ROW EXECUTE FUNCTION guard_blob();
