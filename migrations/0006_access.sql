-- Who may reach what. The guards that follow from the roots stand in documents.

-- The documents that are access-control roots. Only the owner and the root's grantees reach what is under one.
CREATE TABLE access_roots (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- The nearest root above this one, 0 for none.
    above       bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX access_roots_above ON access_roots (above);

-- What is under a root may be read by the principals that have a grant on it, and written where the grant says so.
CREATE TABLE access_grants (
    principal_id bigint NOT NULL,
    document_id  bigint NOT NULL REFERENCES access_roots (document_id) ON DELETE CASCADE,
    can_write    boolean NOT NULL,
    PRIMARY KEY (principal_id, document_id)
);
CREATE INDEX access_grants_document ON access_grants (document_id);
