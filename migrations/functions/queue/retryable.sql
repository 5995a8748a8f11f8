-- Whether a failure of this class is tried again. PostgreSQL lets a query write it as a column, `t.retryable`.
CREATE OR REPLACE FUNCTION retryable(t task_queue) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT t.error_type IN ('retryable', 'timeout') $$;
