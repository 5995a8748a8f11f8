-- What the queue still owes, by type and age: whoever counts it reads the first thousands of each type, and not the whole table,
-- in which the tasks of a week lie that are done. It has neither `status` nor `heartbeat_at`, so that starts and beats still
-- change no index.
CREATE INDEX task_queue_unfinished ON task_queue (task_type, created_at) WHERE NOT final;
