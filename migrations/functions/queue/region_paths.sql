-- The paths that a task's region covers. A region is a rectangle: a range of paths times a range of depths. Both follow
-- from the task's write mode, or from the leaves that it names. The character '0' sorts right after '/'.
-- Two ranges must fit on a page of an index, or no task could be claimed any more. So where a path is longer than 1,500 bytes,
-- its region covers all that is under the last ancestor whose path is not; tasks so deep in a tree wait for each other more often.
-- The range is written as text and read as a range, because the constructor of a range type of our own is looked up by name, among
-- all functions of the server, by every statement that calls it.
CREATE OR REPLACE FUNCTION region_paths(path text, mode text, first_leaf text, last_leaf text) RETURNS pathrange LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (CASE WHEN octet_length(path) > 1500 OR octet_length(first_leaf) > 1500 OR octet_length(last_leaf) > 1500
                 THEN '[' || regexp_replace(left(coalesce(first_leaf, path), 1500), '[^/]*$', '') || ','
                          || left(regexp_replace(left(coalesce(last_leaf, path), 1500), '[^/]*$', ''), -1) || '0)'
                 WHEN first_leaf IS NOT NULL THEN '[' || first_leaf || ',' || left(last_leaf, -1) || '0)'
                 WHEN mode = 'self' THEN '[' || path || ',' || path || ']'
                 ELSE '[' || path || ',' || left(path, -1) || '0)' END)::pathrange $$;
