-- The tree of documents, what hangs on its nodes, and the bytes of uploaded files.
CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE documents (
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    parent_id          bigint REFERENCES documents (id),
    -- The ids of all ancestors, root first.
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
    -- The nearest access root at or above the document, 0 for none: a principal's rights are a short list of guards. It is -1 in a
    -- generation of a file, which nobody may read.
    guard              bigint NOT NULL,
    -- Whether a caller may find a document is told without reading its row, as searches ask of hundreds for each result.
    PRIMARY KEY (id) INCLUDE (guard, settled, usetype)
) WITH (fillfactor = 85);

-- A list of siblings has the order of this index: a document without a position comes after all positions that a column can hold.
CREATE INDEX documents_siblings ON documents (parent_id, coalesce(position::bigint, 2147483648), id);
-- Each document comes before everything under it, and a subtree is one stretch of the index.
CREATE INDEX documents_preorder ON documents ((path || id));
CREATE INDEX documents_roots ON documents (coalesce(position::bigint, 2147483648), id) WHERE parent_id IS NULL;
CREATE INDEX documents_guard ON documents (guard);
CREATE INDEX documents_path ON documents USING gin (path);
-- By these a search finds the few that pass a filter.
CREATE INDEX documents_usetype ON documents (usetype);
CREATE INDEX documents_created_at ON documents (created_at);
CREATE INDEX documents_event_time ON documents (event_time) WHERE event_time IS NOT NULL;
CREATE INDEX documents_structured_content ON documents USING gin (structured_content jsonb_path_ops) WHERE structured_content <> '{}';
-- The id is a key too, because parts of what is in flight are walked in that order, each from where the one before ended.
CREATE INDEX documents_unsettled ON documents (settled, id) WHERE settled <> 'settled';
-- A search says how many nodes of its scope are in flight or failed. It reads those with the guards that its caller may read, and of these the stretch under its
-- document, and not what else waits.
CREATE INDEX documents_unsettled_guard ON documents (settled, guard, path) WHERE settled <> 'settled' AND guard <> -1;

-- The uploaded file of a node, or the bytes of a picture that was taken out of one. The bytes are a large object, or an object of the store that SVC_BLOB_STORE names, under this key. The
-- function release_blob gives them up with the row.
CREATE TABLE document_blobs (
    document_id   bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    lob           oid UNIQUE,
    object        text COLLATE "C" UNIQUE,
    mime_type     text,
    declared_mime text,
    detected_by   text,
    format        text,
    byte_size     bigint NOT NULL,
    content_hash  text NOT NULL,
    -- The resolved options of the upload; an upload of the same bytes with other options is refused.
    options       jsonb NOT NULL,
    -- False for a picture, which is a part of its file and no file itself.
    is_file       boolean NOT NULL DEFAULT true,
    -- The guard of the document. The functions guard_blob and follow_guard keep it so.
    guard         bigint NOT NULL,
    CHECK (num_nonnulls(lob, object) = 1)
);
CREATE INDEX document_blobs_content_hash ON document_blobs (content_hash);
-- A list of all files goes by this one from the latest on.
CREATE INDEX document_blobs_files ON document_blobs (document_id) WHERE is_file;
-- A list of the files that a principal may read goes by this one, guard by guard, so that it does not look at those of others.
CREATE INDEX document_blobs_guard ON document_blobs (guard, document_id) WHERE is_file;
-- A search for a format that few files have begins with these.
CREATE INDEX document_blobs_format ON document_blobs (format, document_id) WHERE is_file;

-- PostgreSQL holds a lock for each large object that a transaction deletes, and has room for some 14,000 locks in all. A transaction
-- that deletes more files than that notes their bytes here; they are deleted in parts after the commit.
CREATE TABLE blob_orphan (lob oid PRIMARY KEY);

-- Objects that no row names any more. They are deleted from the object store days later: a database that is restored to a moment before
-- they came here needs them.
CREATE TABLE blob_garbage (
    object text COLLATE "C" PRIMARY KEY,
    since  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX blob_garbage_since ON blob_garbage (since);

-- By this id a database and its object store know each other; the store keeps it too. So two databases never share one, where each would
-- take the objects of the other for orphans.
CREATE TABLE blob_store (
    id       uuid NOT NULL DEFAULT gen_random_uuid(),
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one)
);
INSERT INTO blob_store DEFAULT VALUES;

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

-- Where a node of a file came from, and which rule produced it: one row a node.
CREATE TABLE node_origins (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    rule        text NOT NULL,
    anchor      jsonb
);

-- Everything else that the pipeline recorded about a node. A JSON null says that a task ran and produced nothing.
CREATE TABLE node_evidence (
    document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    name        text NOT NULL,
    value       jsonb NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (document_id, name)
);

-- The text that a reader extracted from a file. Anchors count its characters.
CREATE TABLE extractions (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    text        text NOT NULL,
    layout      jsonb NOT NULL
);

-- The trees that reprocesses of files build. A generation is a tree of its own until one transaction puts it under its file, so it is
-- independent of where the file lies and of who may read it. Its nodes bear the guard -1, which nobody may read, not even the owner. Once it
-- stands there, the old tree is in its place until it is deleted.
CREATE TABLE generations (
    generation_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- The file, whose bytes its tasks read; null once it is deleted.
    document_id   bigint REFERENCES documents (id) ON DELETE SET NULL,
    -- The topmost document of the tree that the file was in when this began, see the function vector_root.
    root_id       bigint NOT NULL,
    options       jsonb NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    -- It was cancelled or replaced, or took its place and holds the tree that was there; it goes once no worker holds a task of it.
    abandoned     boolean NOT NULL DEFAULT false
);
CREATE INDEX generations_document ON generations (document_id);
CREATE UNIQUE INDEX generations_running ON generations (document_id) WHERE NOT abandoned;
