-- Gives each search index a sequence of its own, from which its documents get their numbers there, so that an index does not use up the numbers of others
-- and can begin again.
CREATE OR REPLACE FUNCTION number_index() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        EXECUTE format('CREATE SEQUENCE search_docno_%s AS integer', NEW.id);
    ELSE
        EXECUTE format('DROP SEQUENCE search_docno_%s', OLD.id);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER search_indexes_numbers AFTER INSERT OR DELETE ON search_indexes FOR EACH ROW EXECUTE FUNCTION number_index();
