-- The functions and views that the database has, of the files under functions/ and views/. sqlx keeps the ledger of the numbered files.
CREATE TABLE schema_functions (
    name        text PRIMARY KEY,
    -- SHA-256 of the file that made it.
    hash        text NOT NULL,
    -- The last numbered file when it was made: after another one, every function and view is made again.
    migration   bigint NOT NULL,
    -- The version of svc that made it. An earlier version does not replace it.
    version     text NOT NULL,
    replaced_at timestamptz NOT NULL DEFAULT now()
);
