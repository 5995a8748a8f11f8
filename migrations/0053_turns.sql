-- When the fleet last did what one of its workers does for all.
CREATE TABLE upkeep_turn (
    name     text PRIMARY KEY,
    taken_at timestamptz NOT NULL
);
