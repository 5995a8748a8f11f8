-- Who may reach what. The guards that follow from the roots stand in documents.

-- The callers besides the owner, who has no row.
CREATE TABLE principals (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    kind       text NOT NULL CHECK (kind IN ('user', 'service')),
    -- The tokens of a disabled principal open nothing.
    disabled   boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A caller's own names for documents that it created in batches, by which a repeated call finds them; a null principal is the owner.
CREATE TABLE document_keys (
    key          text NOT NULL,
    principal_id bigint REFERENCES principals (id) ON DELETE CASCADE,
    document_id  bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    UNIQUE NULLS NOT DISTINCT (key, principal_id)
);
CREATE INDEX document_keys_document ON document_keys (document_id);
CREATE INDEX document_keys_principal ON document_keys (principal_id);

-- What a principal shows to be let in. The secret itself is stored nowhere.
CREATE TABLE api_tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    principal_id bigint NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    name         text NOT NULL,
    -- SHA-256 of the secret, which is drawn from 32 random bytes: it needs neither salt nor a slow hash.
    hash         bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    -- The first characters of the secret, by which people recognise it.
    prefix       text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    -- At most a minute behind.
    last_used_at timestamptz,
    -- When another token was issued in its place: this one goes on until it expires.
    rotated_at   timestamptz,
    revoked_at   timestamptz
);
CREATE INDEX api_tokens_principal ON api_tokens (principal_id, id);

-- The documents that are access roots. Only the owner and the root's grantees reach what is under one.
CREATE TABLE access_roots (
    document_id bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- The nearest root above this one, 0 for none.
    above       bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX access_roots_above ON access_roots (above);

-- How often guards have changed, in the one row: a standby that has counted as far has replayed these changes.
CREATE TABLE access_changes (
    changes bigint NOT NULL
);
INSERT INTO access_changes VALUES (0);

-- What is under a root may be read by the principals that have a grant on it, and written where the grant says so.
CREATE TABLE access_grants (
    principal_id bigint NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    document_id  bigint NOT NULL REFERENCES access_roots (document_id) ON DELETE CASCADE,
    can_write    boolean NOT NULL,
    -- Not when its transaction began: that may wait for long for those who create, and a grant opens no event from before it.
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (principal_id, document_id)
);
CREATE INDEX access_grants_document ON access_grants (document_id, principal_id);

-- Who changed principals, tokens, grants, roots, webhooks, search contexts, indexes and rules of views, who moved documents to other
-- readers, and who acted on the queue. It refers to no table, because it outlives what it tells of; the function keep_audit refuses every change
-- of a row.
CREATE TABLE access_audit (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT now(),
    -- The principal that acted, by its name then; null for the owner.
    actor_id     bigint,
    actor        text NOT NULL,
    act          text NOT NULL,
    -- The principal that was acted on, by its name then.
    principal_id bigint,
    principal    text,
    document_id  bigint,
    detail       jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX access_audit_principal ON access_audit (principal_id, id) WHERE principal_id IS NOT NULL;
CREATE INDEX access_audit_document ON access_audit (document_id, id) WHERE document_id IS NOT NULL;
CREATE INDEX access_audit_task ON access_audit ((detail ->> 'task_id'), id) WHERE detail ->> 'task_id' IS NOT NULL;
CREATE INDEX access_audit_worker ON access_audit ((detail ->> 'worker'), id) WHERE detail ->> 'worker' IS NOT NULL;

-- Who is signed in to the console. Several processes of the service share them.
CREATE TABLE console_sessions (
    -- SHA-256 of the secret in the cookie.
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    -- The token that was shown; null for the owner's, of which owner_mark tells whether it still is the owner's.
    token_id   bigint REFERENCES api_tokens (id) ON DELETE CASCADE,
    owner_mark bytea,
    -- What every form of the session repeats.
    csrf       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now(),
    CHECK ((token_id IS NULL) <> (owner_mark IS NULL))
);
CREATE INDEX console_sessions_token ON console_sessions (token_id);
