-- The vectors of documents, and those of their most important tokens, for late interaction.

-- These vectors have a table of their own, so that a row of the tree stays small when it is rewritten or scanned.
-- Whether a vector can be found is read from the row of its document.
CREATE TABLE document_vectors (
    document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    -- A query is compared only with the vectors of its own model. Each model gets an HNSW index of its own width with
    -- its first vectors.
    embed_model text NOT NULL,
    -- The vector has the width of its model.
    embed       halfvec NOT NULL,
    -- How much it counts in the vector of its container, which is the weighted sum of its children's: the length of the sum that the
    -- vector was scaled down from, so that the sums of all levels add up.
    weight      real NOT NULL CHECK (weight > 0 AND weight < 'infinity'),
    -- Where the table is in parts, the topmost document of the tree that the document is in, by whose hash it is in one of them; else 0.
    -- The function vector_root says it, and `svc reindex --vectors` puts the table in parts.
    root_id     bigint NOT NULL DEFAULT 0,
    -- This index includes the model, so that counting the documents with a vector of the model reads no row. A key of a table in parts must
    -- have the column that tells the part.
    PRIMARY KEY (document_id, root_id) INCLUDE (embed_model)
);
-- An exact scan over PLAIN vectors takes a little over half the time of one over toasted vectors.
ALTER TABLE document_vectors ALTER COLUMN embed SET STORAGE PLAIN;

-- One row for each token that was kept. A setting says which of the widths are filled.
CREATE TABLE token_embeddings (
    document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    -- The token's place in the text; tokens that were not kept leave gaps.
    token_idx   integer NOT NULL,
    token_id    integer NOT NULL,
    -- The band of importance: 10 is among the most important tenth of the text's tokens, 20 among the next.
    tier        smallint NOT NULL CHECK (tier BETWEEN 10 AND 100),
    embed_256   halfvec(256),
    embed_384   halfvec(384),
    embed_512   halfvec(512),
    PRIMARY KEY (document_id, token_idx)
);
-- A row with all three stays under a page; out of line, each vector would cost a second look-up.
ALTER TABLE token_embeddings ALTER COLUMN embed_256 SET STORAGE PLAIN;
ALTER TABLE token_embeddings ALTER COLUMN embed_384 SET STORAGE PLAIN;
ALTER TABLE token_embeddings ALTER COLUMN embed_512 SET STORAGE PLAIN;

-- The same vectors as one value a document, which is what a search reads: reading a row for each token takes twice as long. The
-- transaction that writes the tokens writes it too.
CREATE TABLE token_packs (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- A query meets only the token vectors of its own model.
    model       text NOT NULL,
    -- The components of a vector: the widest that is filled above.
    width       integer NOT NULL CHECK (width > 0),
    tokens      integer NOT NULL CHECK (tokens >= 0),
    -- Half-precision numbers, little-endian, token by token.
    vectors     bytea NOT NULL CHECK (octet_length(vectors) = 2 * width * tokens),
    created_at  timestamptz NOT NULL DEFAULT now()
);
-- Numbers of this kind do not compress.
ALTER TABLE token_packs ALTER COLUMN vectors SET STORAGE EXTERNAL;
