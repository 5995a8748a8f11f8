-- Records that a task has given up its region or its intent, so that the next claim looks at what is parked on it.
CREATE OR REPLACE FUNCTION tell_of_release() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO task_release VALUES (OLD.task_id);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER task_reservation_release AFTER DELETE ON task_reservation
    FOR EACH ROW WHEN (OLD.is_waited_for) EXECUTE FUNCTION tell_of_release();
CREATE OR REPLACE TRIGGER task_intent_release AFTER DELETE ON task_intent FOR EACH ROW EXECUTE FUNCTION tell_of_release();
