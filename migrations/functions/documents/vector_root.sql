-- The root by whose hash the vector of a document is in a part of this table of vectors; 0 where the table is not in parts. It is the topmost
-- document of the tree that the document is in. What a reprocess builds has the root of its file already, so that no vector changes its part
-- when it takes its place.
CREATE OR REPLACE FUNCTION vector_root(vectors regclass, document bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    top bigint;
BEGIN
    IF pg_get_partkeydef(vectors) IS NULL THEN
        RETURN 0;
    END IF;
    SELECT coalesce(d.path[1], d.id) INTO top FROM documents d WHERE d.id = document;
    RETURN coalesce((SELECT coalesce(f.path[1], f.id) FROM generations g JOIN documents f ON f.id = g.document_id WHERE g.generation_id = top),
                    top, document);
END $$;
