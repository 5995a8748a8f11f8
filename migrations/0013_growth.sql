-- What tells that one server will not do for much longer.

-- How long what processes do has taken lately, as each of them tells.
CREATE TABLE process_timings (
    process       uuid NOT NULL,
    -- What was timed: the names of store::growth::Timed.
    kind          text NOT NULL,
    told_at       timestamptz NOT NULL DEFAULT now(),
    calls         integer NOT NULL,
    -- 95 of 100 calls took no longer.
    p95_seconds   double precision NOT NULL,
    total_seconds double precision NOT NULL,
    PRIMARY KEY (process, kind)
);
