-- Does to the next table of vectors what was done to the present one. `svc reindex --vectors` makes the next table, and the trigger that calls
-- this for as long as it copies.
CREATE OR REPLACE FUNCTION mirror_vector() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM document_vectors_next WHERE document_id = OLD.document_id AND embed_model = OLD.embed_model;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO document_vectors_next (document_id, embed_model, embed, weight, root_id)
        VALUES (NEW.document_id, NEW.embed_model, NEW.embed, NEW.weight, vector_root(to_regclass('document_vectors_next'), NEW.document_id))
        ON CONFLICT (document_id, embed_model, root_id) DO UPDATE SET embed = excluded.embed, weight = excluded.weight;
    END IF;
    RETURN NULL;
END $$;
