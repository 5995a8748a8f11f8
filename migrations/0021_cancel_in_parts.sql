-- A cancelled file of a million nodes is not marked as failed in one transaction.

-- True at the root of an ingestion that was cancelled, until no node under it is in flight any more.
ALTER TABLE ingest_node ADD COLUMN cancelled boolean NOT NULL DEFAULT false;
CREATE INDEX ingest_node_cancelled ON ingest_node (document_id) WHERE cancelled;

-- By id too: what is in flight is walked in that order, each part from where the one before ended.
DROP INDEX documents_unsettled;
CREATE INDEX documents_unsettled ON documents (settled, id) WHERE settled <> 'settled';
