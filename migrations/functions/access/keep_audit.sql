-- Refuses every change of the audit's rows, whoever asks: rows are only added.
CREATE OR REPLACE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is only added to: % is refused', TG_OP;
END $$;
CREATE OR REPLACE TRIGGER access_audit_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON access_audit
    FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();
