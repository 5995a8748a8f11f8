-- Records that a pause of a task type has ended, so that the next claim looks at what is parked on it.
CREATE OR REPLACE FUNCTION tell_of_resumption() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO task_release VALUES (-OLD.id);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER paused_task_type_release AFTER DELETE ON paused_task_type
    FOR EACH ROW EXECUTE FUNCTION tell_of_resumption();
