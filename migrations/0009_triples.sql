-- Facts between documents, or from a document to a literal, over two times: when each holds in the world, and when the store believed it.

-- What is said of a predicate here was said by hand. Ontologies have rows of their own, in ontology_predicates.
CREATE TABLE predicates (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace          text NOT NULL,
    name               text NOT NULL,
    -- The predicate's own IRI; without one it is derived from SVC_RDF_BASE.
    iri                text UNIQUE,
    label              text,
    description        text,
    is_functional      boolean NOT NULL,
    is_inverse_functional boolean NOT NULL,
    is_symmetric       boolean NOT NULL,
    is_asymmetric      boolean NOT NULL,
    is_transitive      boolean NOT NULL,
    is_irreflexive     boolean NOT NULL,
    inverse_of         bigint REFERENCES predicates (id) ON DELETE SET NULL,
    sub_property_of    bigint[] NOT NULL,
    disjoint_with      bigint[] NOT NULL,
    -- Whether somebody created it. One that came with an imported graph is shown to those who may read a fact with it.
    is_declared        boolean NOT NULL,
    -- The principal that created it, also once that one is gone; null: the owner did, or nobody.
    declared_by        bigint,
    -- Whether a graph that is open to all named it. What came with closed graphs and texts alone is named by its IRI or as any text would name
    -- it, and nobody is shown when the first of them came.
    is_open            boolean NOT NULL DEFAULT false,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX predicates_name ON predicates (namespace, name);
CREATE UNIQUE INDEX predicates_declared ON predicates (namespace, name) WHERE is_declared;
-- Those that came with graphs are told apart by their IRIs, so that the name of one tells nothing of another.
CREATE UNIQUE INDEX predicates_of_texts ON predicates (namespace, name) WHERE NOT is_declared AND iri IS NULL;
CREATE INDEX predicates_inverse_of ON predicates (inverse_of) WHERE inverse_of IS NOT NULL;

-- The documents that stand for nodes of imported graphs. An IRI may stand in several zones, once in each.
CREATE TABLE graph_nodes (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    iri         text NOT NULL,
    -- Whether the node had no name in its graph; its IRI is then made here.
    blank       boolean NOT NULL
);
CREATE INDEX graph_nodes_iri ON graph_nodes USING hash (iri);

-- Entities that texts speak of, by their names. A name of a type stands once in a zone, so that all who read it in texts mean one document.
CREATE TABLE entity_names (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- The guard of the document.
    zone        bigint NOT NULL,
    -- The name and the type as they are compared: in small letters, without marks. The type is blank if nobody said one.
    name_key    text NOT NULL,
    type_key    text NOT NULL,
    -- The vector of the name, by the model that made it.
    embed       halfvec,
    embed_model text,
    CHECK ((embed IS NULL) = (embed_model IS NULL)),
    UNIQUE (zone, name_key, type_key)
);
CREATE INDEX entity_names_model ON entity_names (zone, embed_model);

-- Two documents that are taken for one, from `merged_at` to `undone_at` on the clock of facts. Facts keep the ids that they were stated with.
CREATE TABLE entity_merges (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kept_id   bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    merged_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    method    text NOT NULL CHECK (method IN ('exact', 'similarity', 'manual')),
    score     double precision,
    merged_at timestamptz NOT NULL,
    undone_at timestamptz,
    CHECK (kept_id <> merged_id),
    CHECK (merged_at < undone_at)
);
CREATE INDEX entity_merges_kept ON entity_merges (kept_id);
CREATE INDEX entity_merges_merged ON entity_merges (merged_id);

-- The pen: whoever writes facts takes this row once, as the last lock, and holds it to the commit. So `recorded_at` grows in the order
-- of commits, and what was believed at a past moment reads the same for ever.
CREATE TABLE knowledge_clock (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The last moment of what was recorded before the transaction that took the pen last.
    before timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO knowledge_clock DEFAULT VALUES;

-- A row is one belief, held for [valid_from, valid_until) in the world, and by the store in [recorded_at, invalidated_at). A null bound
-- is open. A row changes once, when it is closed; only its zone and its source follow the document that states it.
CREATE TABLE triples (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The guard of the source, 0 without one: a fact from a closed text stays closed, also if its ends are open. It is -1, which no
    -- principal may read, once the source is deleted.
    zone            bigint NOT NULL,
    subject_id      bigint NOT NULL,
    predicate_id    bigint NOT NULL REFERENCES predicates (id),
    object_id       bigint,
    object_literal  text,
    object_datatype text,
    object_language text,
    -- The first half of the SHA-256 of subject, predicate and object.
    statement       uuid NOT NULL,
    valid_from      timestamptz,
    valid_until     timestamptz,
    valid           tstzrange NOT NULL GENERATED ALWAYS AS (tstzrange(valid_from, valid_until)) STORED,
    -- When the statement was first learned. It outlives the splitting and merging of rows.
    created_at      timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL,
    invalidated_at  timestamptz,
    -- The row that took its place, if one did.
    invalidated_by  bigint,
    invalidation    text,
    -- The row that this one is a remainder of.
    previous_id     bigint,
    fact_type       text NOT NULL CHECK (fact_type IN ('atemporal', 'static', 'dynamic')),
    -- The document that states it. There is no foreign key, because a delete closes facts and erases none.
    source_id       bigint,
    -- The rule that wrote it, such as `rule:transitive:12`. Such a fact has no source: its zone is the one private zone of what it follows from.
    derived_by      text,
    CHECK ((object_id IS NULL) <> (object_literal IS NULL)),
    CHECK ((object_literal IS NULL) = (object_datatype IS NULL)),
    CHECK (valid_from < valid_until),
    CHECK (recorded_at < invalidated_at),
    CHECK ((invalidated_at IS NULL) = (invalidation IS NULL)),
    CHECK (fact_type <> 'atemporal' OR (valid_from IS NULL AND valid_until IS NULL))
);
-- What is asserted closes what was derived in the same statement, which the index therefore lets pass.
CREATE UNIQUE INDEX triples_once ON triples (statement, zone, coalesce(valid_from, '-infinity'), (derived_by IS NULL)) WHERE invalidated_at IS NULL;
-- The order in which facts are exported.
CREATE INDEX triples_out ON triples (subject_id, predicate_id, id);
CREATE INDEX triples_in ON triples (object_id, predicate_id) WHERE object_id IS NOT NULL;
CREATE INDEX triples_predicate ON triples (predicate_id, id);
CREATE INDEX triples_literal ON triples USING hash (object_literal) WHERE object_literal IS NOT NULL;
-- Facts are recorded in the order of time, so that a small index tells where those of a moment are.
CREATE INDEX triples_recorded ON triples USING brin (recorded_at) WITH (autosummarize = on);
CREATE INDEX triples_invalidated ON triples (invalidated_at) WHERE invalidated_at IS NOT NULL;
CREATE INDEX triples_source ON triples (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX triples_derived ON triples (predicate_id) WHERE derived_by IS NOT NULL AND invalidated_at IS NULL;

-- The documents that state a fact, each with the place of the words that do.
CREATE TABLE triple_citations (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    triple_id   bigint NOT NULL REFERENCES triples (id),
    document_id bigint NOT NULL,
    -- Characters of the document's text, while that has the hash `source_hash`.
    quote_start integer,
    quote_end   integer,
    source_hash text NOT NULL,
    confidence  double precision CHECK (confidence BETWEEN 0 AND 1),
    cited_at    timestamptz NOT NULL,
    CHECK ((quote_start IS NULL) = (quote_end IS NULL))
);
-- A text that has changed since may be cited anew with the same place.
CREATE UNIQUE INDEX triple_citations_once ON triple_citations (triple_id, document_id, coalesce(quote_start, -1), coalesce(quote_end, -1), source_hash);
CREATE INDEX triple_citations_document ON triple_citations (document_id);

-- The facts that a derived one follows from, from `recorded_at` to `ended_at` on the clock of facts. Some of them may be derived themselves.
CREATE TABLE triple_premises (
    derived_id  bigint NOT NULL REFERENCES triples (id),
    premise_id  bigint NOT NULL REFERENCES triples (id),
    recorded_at timestamptz NOT NULL,
    ended_at    timestamptz,
    PRIMARY KEY (derived_id, premise_id, recorded_at),
    CHECK (recorded_at < ended_at)
);
CREATE INDEX triple_premises_premise ON triple_premises (premise_id) WHERE ended_at IS NULL;

-- Predicates whose facts or axioms have changed since somebody derived what follows from them, one row a change. Rows are only added and
-- deleted, so that no writer waits for another one here.
CREATE TABLE derivations (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    predicate_id bigint NOT NULL
);
CREATE INDEX derivations_predicate ON derivations (predicate_id);

-- Predicates from whose facts nothing could be derived at the last try, with the reason, since the first of the tries that failed. A try that succeeds deletes them.
CREATE TABLE derivation_failures (
    predicate_id bigint PRIMARY KEY REFERENCES predicates (id) ON DELETE CASCADE,
    reason       text NOT NULL,
    failed_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Predicates of groups from which more follows in a zone than SVC_RULES_MAX_DERIVED allows. Nothing that follows from them there is written; if
-- it is zone 0, which is open to all and so a part of every zone, nothing at all.
CREATE TABLE derivations_given_up (
    predicate_id bigint NOT NULL REFERENCES predicates (id) ON DELETE CASCADE,
    zone         bigint NOT NULL,
    given_up_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (predicate_id, zone)
);
