-- The rules by which views show documents, as far as the owner changed or made them; the service brings the others.
CREATE TABLE usetype_presentations (
    usetype    text PRIMARY KEY CHECK (usetype <> ''),
    rule       jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
