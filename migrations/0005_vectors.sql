-- The vectors of documents, and those of their most important tokens, for late interaction.

-- These vectors have a table of their own, so that a row of the tree stays small when it is rewritten or scanned.
-- Whether a vector can be found is read from the row of its document.
CREATE TABLE document_vectors (
    document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    -- A query is compared only with the vectors of its own model. Each model gets an HNSW index of its own width once it
    -- has many vectors. A document has the vector of one model; while `svc reembed` moves all of them to another model, it has one of each.
    embed_model text NOT NULL,
    -- The vector has the width of its model.
    embed       halfvec NOT NULL,
    -- How much it counts in the vector of its container, which is the weighted sum of its children's: the length of the sum that the
    -- vector was scaled down from, so that the sums of all levels add up.
    weight      real NOT NULL CHECK (weight > 0 AND weight < 'infinity'),
    -- Where the table is in parts, the topmost document of the tree that the document is in, by whose hash it is in one of them; else 0.
    -- The function vector_root says it, and `svc reindex --vectors` puts the table in parts.
    root_id     bigint NOT NULL DEFAULT 0,
    -- Its index has the model, so that counting the documents with a vector of the model reads no row. A key of a table in parts must have the
    -- column that tells the part.
    PRIMARY KEY (document_id, embed_model, root_id)
);
-- It tells at once whether there is a vector of another model.
CREATE INDEX document_vectors_embed_model ON document_vectors (embed_model);
-- An exact scan over PLAIN vectors takes a little over half the time of one over toasted vectors.
ALTER TABLE document_vectors ALTER COLUMN embed SET STORAGE PLAIN;

-- The last move of all vectors from one model to another, if there was one; what it has yet to do is read from the vectors.
CREATE TABLE model_moves (
    only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    -- The model whose vectors searches and tasks work with.
    serving    text NOT NULL,
    from_model text NOT NULL,
    to_model   text NOT NULL,
    -- The models that others took the place of, until they serve again. Who has only such a one must write nothing with it, because nobody would find it.
    replaced   text[] NOT NULL DEFAULT '{}',
    -- 'moving': vectors of the new model are made beside the others. 'emptying': the new model serves, and the vectors of others are deleted.
    -- 'cancelling': the vectors of the new model are deleted, because somebody called the move off.
    state      text NOT NULL CHECK (state IN ('moving', 'emptying', 'done', 'cancelling', 'cancelled')),
    -- The last document that this pass has given to a task, and how many passes over all of them have ended.
    up_to      bigint NOT NULL DEFAULT 0,
    passes     integer NOT NULL DEFAULT 0,
    -- How many vectors were made, and of how many documents there were when it began.
    done       bigint NOT NULL DEFAULT 0,
    wanted     bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    served_at  timestamptz,
    ended_at   timestamptz,
    -- Nothing is done before this time.
    rests_until timestamptz NOT NULL DEFAULT now()
);

-- The documents to which the new model gives no vector, as they were when it was asked.
CREATE TABLE model_move_refusals (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    seen_at     timestamptz NOT NULL,
    -- What the evidence of the document says once its other vectors are gone.
    note        jsonb NOT NULL
);

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
