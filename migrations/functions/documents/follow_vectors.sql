-- Puts the vectors at and under a document that came into another tree into the parts of that tree's root. Where the table of vectors is not in
-- parts there is nothing to do.
CREATE OR REPLACE FUNCTION follow_vectors(place bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    vectors regclass;
BEGIN
    FOREACH vectors IN ARRAY ARRAY[to_regclass('document_vectors'), to_regclass('document_vectors_next')] LOOP
        IF pg_get_partkeydef(vectors) IS NOT NULL THEN
            EXECUTE format('UPDATE %s v SET root_id = r.root
                              FROM (SELECT d.id, vector_root($2, d.id) AS root FROM documents d WHERE d.id = $1 OR d.path @> ARRAY[$1]) r
                             WHERE v.document_id = r.id AND v.root_id <> r.root', vectors) USING place, vectors;
        END IF;
    END LOOP;
END $$;
