-- A random number for each sealing of a term's postings. Generations are counted, and after a restore or a failover that lost commits
-- they are counted once more from an earlier one: what a process remembers by them alone may be of the time that was lost. 0: sealed
-- before this column was there.
ALTER TABLE search_term_stats ADD COLUMN seal bigint NOT NULL DEFAULT 0;
