-- The believed facts with one statement in one zone that hold at some moment of a time. Such facts do not overlap, so that only the last ones
-- that begin before it and those that begin in it are looked at, however many there are. Of two that begin together one may be new.
-- A caller that keeps its plan forbids it to read the whole table, because a plan that was made when the table was small would. For the same reason
-- OFFSET 0 keeps what a caller asks of the facts out of the search for them: of derived facts it would read the index of all that are derived.
CREATE OR REPLACE FUNCTION believed_during(its_statement uuid, its_zone bigint, during tstzrange) RETURNS SETOF triples LANGUAGE sql STABLE AS $$
    SELECT t.* FROM (
        (SELECT b.* FROM triples b
          WHERE b.statement = its_statement AND b.zone = its_zone AND b.invalidated_at IS NULL
            AND coalesce(b.valid_from, '-infinity') <= coalesce(lower(during), '-infinity')
          ORDER BY coalesce(b.valid_from, '-infinity') DESC LIMIT 2)
        UNION ALL
        (SELECT b.* FROM triples b
          WHERE b.statement = its_statement AND b.zone = its_zone AND b.invalidated_at IS NULL
            AND coalesce(b.valid_from, '-infinity') > coalesce(lower(during), '-infinity')
            AND coalesce(b.valid_from, '-infinity') < coalesce(upper(during), 'infinity'))
         OFFSET 0) t
     WHERE t.valid && during
$$;
