-- The documents that a task of type embed embeds: those that its parameters name, or else its own.
CREATE OR REPLACE FUNCTION embedded_documents(params jsonb, own bigint) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN params ? 'documents' THEN ARRAY(SELECT jsonb_array_elements_text(params -> 'documents')::bigint) ELSE ARRAY[own] END $$;
