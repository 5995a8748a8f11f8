-- The tables that a search by words reads: PostgreSQL's full text, and BM25 indexes, whose postings are stored in
-- blocks and scored in the service.

-- The words of a document's title and text, written together with the document. They have a table of their own, because
-- rows of documents are often rewritten without a change of words, and each rewrite would write the words and their
-- index entries again.
CREATE TABLE document_words (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    words       tsvector NOT NULL
);
CREATE INDEX document_words_words ON document_words USING gin (words);

CREATE TABLE search_indexes (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name <> ''),
    config       jsonb NOT NULL,
    capabilities jsonb NOT NULL DEFAULT '{"bm25": true, "maxsim": false}',
    -- Counts every change to the sealed postings.
    generation   bigint NOT NULL DEFAULT 0,
    -- Lists that were sealed at or before this generation carry bounds for other k1 and b, which are not to be used.
    rescored_at  bigint NOT NULL DEFAULT 0,
    -- The average length when the deltas were last folded.
    avgdl_built  double precision NOT NULL DEFAULT 0,
    -- The totals without the rows that are still in search_index_deltas.
    docs         bigint NOT NULL DEFAULT 0,
    tokens       bigint NOT NULL DEFAULT 0,
    -- Each write of the index draws a random number. All of these numbers combined by XOR, here and in search_index_deltas, stand for what a search reads:
    -- while the result is the same, so is what a search finds.
    contents     bigint NOT NULL DEFAULT 0,
    -- The last document that a build has looked at; null if there is nothing to build.
    built_to     bigint,
    -- Counts the builds that were begun: a step of an earlier build is none of a later one's.
    builds       bigint NOT NULL DEFAULT 0,
    -- Whether the build also replaces what the index holds already; else it only adds what is missing, and takes out what the index covers no more.
    replaces     boolean NOT NULL DEFAULT true,
    -- Whether it covers the subtrees of its members alone, and nothing once the last of them is deleted; else it covers every document.
    restricted   boolean NOT NULL DEFAULT false,
    -- The usetypes that are kept out of it, as SVC_BM25_EXCLUDE_USETYPES named them when it was last set.
    excluded     text[] NOT NULL DEFAULT '{entity,summary}',
    -- The last of its terms when those that no document has were last looked for. One up to it that has no postings is not about to be written.
    terms_seen   integer NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now()
);

-- The subtrees that a restricted index covers.
CREATE TABLE search_index_members (
    index_id         bigint NOT NULL REFERENCES search_indexes (id) ON DELETE CASCADE,
    root_document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    PRIMARY KEY (index_id, root_document_id)
);
CREATE INDEX search_index_members_root ON search_index_members (root_document_id);

-- What each document put into the index, so that it can be taken out again. No foreign key to documents, whose cascade would
-- drop the terms that the tombstones are made from. No foreign key to search_indexes here or below, since a check for each row
-- costs more than the row; a writer locks its index once a transaction instead.
CREATE TABLE search_index_entries (
    index_id    bigint NOT NULL,
    docno       integer NOT NULL,
    document_id bigint NOT NULL,
    length      integer NOT NULL,
    terms       integer[] NOT NULL,
    tfs         smallint[] NOT NULL,
    -- A search reads which documents have the best numbers, and nothing else of these wide rows.
    PRIMARY KEY (index_id, docno) INCLUDE (document_id),
    -- The document comes first, because taking a document out asks for it in all indexes.
    CONSTRAINT search_index_entries_document UNIQUE (document_id, index_id)
);

-- Writers append here, because the totals of an index would be one hot row.
CREATE TABLE search_index_deltas (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    index_id bigint NOT NULL,
    docs     integer NOT NULL,
    tokens   bigint NOT NULL,
    -- A random number, see search_indexes. A number that is counted would come again after a restore or a failover that lost commits.
    contents bigint NOT NULL
);
CREATE INDEX search_index_deltas_index ON search_index_deltas (index_id) INCLUDE (docs, tokens, contents);

CREATE SEQUENCE search_term_seq AS integer;

-- df counts only the sealed postings. generation and avgdl_built say when, and for which average length, the bounds of
-- this term's sealed blocks were computed (the smallest, where its rows differ).
CREATE TABLE search_term_stats (
    index_id    bigint NOT NULL,
    term        text COLLATE "C" NOT NULL,
    term_id     integer NOT NULL DEFAULT nextval('search_term_seq'),
    df          integer NOT NULL DEFAULT 0,
    generation  bigint NOT NULL DEFAULT 0,
    avgdl_built real NOT NULL DEFAULT 0,
    -- A random number for each sealing of the term's postings. Generations are counted, and after a restore or a failover that lost
    -- commits the same numbers are counted again: a process that remembered lists by generation alone would use lists of the lost time.
    seal        bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (index_id, term)
) WITH (fillfactor = 80);
ALTER SEQUENCE search_term_seq OWNED BY search_term_stats.term_id;
CREATE UNIQUE INDEX search_term_stats_term_id ON search_term_stats (index_id, term_id);

CREATE TABLE search_term_postings (
    index_id  bigint NOT NULL,
    term_id   integer NOT NULL,
    first_doc integer NOT NULL,
    last_doc  integer NOT NULL,
    n         integer NOT NULL,
    ub        real NOT NULL,
    sealed    boolean NOT NULL,
    data      bytea NOT NULL,
    -- One index serves both readers: compaction finds all tails together, and a query finds all rows of a term together.
    PRIMARY KEY (index_id, sealed, term_id, first_doc)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- A row is under a page by construction; out of line or compressed, each would cost a second look-up.
ALTER TABLE search_term_postings ALTER COLUMN data SET STORAGE PLAIN;

-- The documents that were taken out and whose postings are not yet purged, per term. A query reads them with the term's postings,
-- so that what it leaves out and what it counts are exact.
CREATE TABLE search_term_tombstones (
    index_id  bigint NOT NULL,
    term_id   integer NOT NULL,
    first_doc integer NOT NULL,
    docs      integer[] NOT NULL,
    PRIMARY KEY (index_id, term_id, first_doc)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

INSERT INTO search_indexes (name, config, capabilities)
VALUES ('default',
        '{"k1": 1.2, "b": 0.75, "analyzer": {"language": "english", "stop_words": "remove", "version": 2}, "title_weight": 1, "title_paths": true}',
        '{"bm25": true, "maxsim": false}');
-- Each index numbers its documents by a sequence of its own, which comes and goes with the index: see the function number_index. It is that of the first one.
CREATE SEQUENCE search_docno_1 AS integer;

-- Values of searches under a name, which a search gives as its context. No foreign key to documents for the parent in a config: if the
-- context of a deleted document vanished or forgot its parent, searches would find more than they were prepared for.
CREATE TABLE search_contexts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (name <> ''),
    config     jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
