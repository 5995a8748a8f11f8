-- The living workers as one: how many they are, which badges they take, and what they serve, see is_served.
CREATE OR REPLACE VIEW fleet AS
WITH alive AS (SELECT badges, strict, task_types FROM workers WHERE beat_at > now() - lease)
SELECT count(*) AS workers, coalesce(bool_or(badges = '{}'), false) AS takes_all, coalesce(bool_or(NOT strict), false) AS takes_unbadged,
       coalesce((SELECT array_agg(DISTINCT b) FROM alive, unnest(badges) AS b), '{}') AS badges,
       coalesce((SELECT array_agg(DISTINCT s) FROM alive, unnest(serves(badges, strict, task_types)) AS s), '{}') AS serves
  FROM alive;
