-- The root by whose hash the vector of a document is in a part of this table of vectors; 0 where the table is not in parts. It is the topmost
-- document of the tree that the document is in. What a reprocess builds has the root that its file had when it began, so that hardly a vector
-- changes its part when it takes its place, and a move of the file meanwhile leaves none of its vectors behind.
CREATE OR REPLACE FUNCTION vector_root(vectors regclass, document bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    top bigint;
BEGIN
    IF pg_get_partkeydef(vectors) IS NULL THEN
        RETURN 0;
    END IF;
    SELECT coalesce(d.path[1], d.id) INTO top FROM documents d WHERE d.id = document;
    RETURN coalesce((SELECT g.root_id FROM generations g WHERE g.generation_id = top), top, document);
END $$;
