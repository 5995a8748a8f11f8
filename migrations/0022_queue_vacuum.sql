-- Rows of the queue live for seconds. Each claim reads past the index entries of what was done since the last vacuum, so these
-- tables are vacuumed by the number of dead rows and not by their share, and without pauses.
ALTER TABLE task_queue SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE task_reservation SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE settle_event SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
