-- The living workers as one: how many they are, and which badges and task types they take.
CREATE OR REPLACE VIEW fleet AS
WITH alive AS (SELECT badges, strict, task_types FROM workers WHERE beat_at > now() - lease)
SELECT count(*) AS workers, coalesce(bool_or(badges = '{}'), false) AS takes_all, coalesce(bool_or(NOT strict), false) AS takes_unbadged,
       coalesce((SELECT array_agg(DISTINCT b) FROM alive, unnest(badges) AS b), '{}') AS badges,
       coalesce((SELECT array_agg(DISTINCT y) FROM alive, unnest(task_types) AS y), '{}') AS task_types
  FROM alive;
