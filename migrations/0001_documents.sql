-- The tree, what hangs on it, and the bytes under it.
CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE documents (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent_id          bigint REFERENCES documents (id),
    path               bigint[] NOT NULL DEFAULT '{}',
    title              text NOT NULL,
    content            text NOT NULL,
    structured_content jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(structured_content) = 'object'),
    usetype            text NOT NULL,
    position           integer,
    event_time         timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    content_hash       text NOT NULL,
    settled            text NOT NULL DEFAULT 'settled' CHECK (settled IN ('in_flight', 'settled', 'failed')),
    embed              vector(768),
    -- A query only meets vectors of its own model.
    embed_model        text,
    -- The cap keeps the longest text under the megabyte that a tsvector may take.
    words              tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('english', left(title || E'\n' || content, 200000))) STORED
) WITH (fillfactor = 85);
-- An exact scan over PLAIN vectors takes a little over half the time of one over toasted ones.
ALTER TABLE documents ALTER COLUMN embed SET STORAGE PLAIN;

CREATE INDEX documents_siblings ON documents (parent_id, position, id);
CREATE INDEX documents_roots ON documents (id) WHERE parent_id IS NULL;
CREATE INDEX documents_path ON documents USING gin (path);
CREATE INDEX documents_file_hash ON documents (content_hash) WHERE usetype = 'file';
CREATE INDEX documents_unsettled ON documents (settled) WHERE settled <> 'settled';
CREATE INDEX documents_words ON documents USING gin (words) WHERE settled = 'settled';
CREATE INDEX documents_embed ON documents USING hnsw ((embed::halfvec(768)) halfvec_cosine_ops)
    WITH (m = 16, ef_construction = 64) WHERE settled = 'settled';

CREATE TABLE document_blobs (
    document_id   bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    lob           oid NOT NULL UNIQUE,
    mime_type     text,
    declared_mime text,
    detected_by   text,
    format        text,
    byte_size     bigint NOT NULL,
    content_hash  text NOT NULL,
    -- The resolved options of the upload; the same bytes with others are refused.
    options       jsonb NOT NULL
);

-- No way of deleting a row may leave its bytes behind.
CREATE FUNCTION release_blob() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lo_unlink(OLD.lob);
    RETURN OLD;
END $$;
CREATE TRIGGER document_blobs_release AFTER DELETE ON document_blobs
    FOR EACH ROW EXECUTE FUNCTION release_blob();

CREATE TABLE document_links (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_id  bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    target_id  bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    link_type  text NOT NULL,
    score      double precision,
    metadata   jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (source_id, target_id, link_type)
);
CREATE INDEX document_links_target ON document_links (target_id);

-- A document that is an access-control root; nobody but the owner and its grantees reaches what is under it.
CREATE TABLE access_roots (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- Where a node of a file came from, and which rule produced it: one row a node.
CREATE TABLE node_origins (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    rule        text NOT NULL,
    anchor      jsonb
);

-- All else that the pipeline recorded about a node. JSON null: a task ran and produced nothing.
CREATE TABLE node_evidence (
    document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    name        text NOT NULL,
    value       jsonb NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (document_id, name)
);

-- The text that a reader pulled out of a file; anchors count its characters.
CREATE TABLE extractions (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    text        text NOT NULL,
    layout      jsonb NOT NULL
);
