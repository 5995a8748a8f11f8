-- Ontologies: what vocabularies say of classes and predicates, and the shapes that facts are held against.

CREATE TABLE ontologies (
    -- The document with the text.
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- The principal that loaded it, also once that one is gone; null for the owner.
    loaded_by   bigint,
    -- The IRI that the text gives itself, if it does.
    iri         text,
    -- The IRI that relative ones of the text are resolved against.
    base        text,
    classes     integer NOT NULL,
    predicates  integer NOT NULL,
    -- The IRIs of its shapes.
    shapes      text[] NOT NULL,
    facts       integer NOT NULL,
    -- What of the text says nothing to the service, with the number of triples.
    not_used    jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ontologies_iri ON ontologies USING hash (iri) WHERE iri IS NOT NULL;
CREATE INDEX ontologies_shapes ON ontologies USING gin (shapes);

-- The documents that are classes of ontologies.
CREATE TABLE ontology_classes (
    ontology_id bigint NOT NULL REFERENCES ontologies (document_id) ON DELETE CASCADE,
    document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    PRIMARY KEY (ontology_id, document_id)
);
CREATE INDEX ontology_classes_document ON ontology_classes (document_id);

-- What ontologies say of predicates. It holds for those who may read the ontology, and for facts in its zone; that of an open one for all.
CREATE TABLE ontology_predicates (
    ontology_id           bigint NOT NULL REFERENCES ontologies (document_id) ON DELETE CASCADE,
    predicate_id          bigint NOT NULL REFERENCES predicates (id) ON DELETE CASCADE,
    label                 text,
    description           text,
    is_functional         boolean NOT NULL,
    is_inverse_functional boolean NOT NULL,
    is_symmetric          boolean NOT NULL,
    is_asymmetric         boolean NOT NULL,
    is_transitive         boolean NOT NULL,
    is_irreflexive        boolean NOT NULL,
    inverse_of            bigint REFERENCES predicates (id) ON DELETE SET NULL,
    sub_property_of       bigint[] NOT NULL,
    disjoint_with         bigint[] NOT NULL,
    -- The IRIs of the classes of its subjects, and of the classes or datatypes of its objects.
    domains               text[] NOT NULL,
    ranges                text[] NOT NULL,
    PRIMARY KEY (ontology_id, predicate_id)
);
CREATE INDEX ontology_predicates_predicate ON ontology_predicates (predicate_id);
CREATE INDEX ontology_predicates_inverse_of ON ontology_predicates (inverse_of) WHERE inverse_of IS NOT NULL;

CREATE TABLE shape_bindings (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ontology_id bigint NOT NULL REFERENCES ontologies (document_id) ON DELETE CASCADE,
    -- One shape of the ontology; null for all that have targets.
    shape       text,
    -- The nodes at and under this document; null for all.
    document_id bigint REFERENCES documents (id) ON DELETE CASCADE,
    mode        text NOT NULL CHECK (mode IN ('off', 'warn', 'reject')),
    -- The principal that bound it or took it over, also once that one is gone; null for the owner.
    bound_by    bigint,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX shape_bindings_once ON shape_bindings (ontology_id, coalesce(shape, ''), coalesce(document_id, 0));
CREATE INDEX shape_bindings_document ON shape_bindings (document_id);
