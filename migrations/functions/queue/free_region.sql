-- Frees the region of a task that is deleted. The setting keeps the cached plan right, which is made while the table is small.
CREATE OR REPLACE FUNCTION free_region() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM task_reservation WHERE task_id = OLD.id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER task_queue_region AFTER DELETE ON task_queue FOR EACH ROW EXECUTE FUNCTION free_region();
