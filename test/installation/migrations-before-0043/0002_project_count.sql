-- organizations.project_count follows the projects that exist, once a statement and not once a row.
CREATE FUNCTION projects_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    UPDATE organizations o SET project_count = o.project_count + n.added
      FROM (SELECT organization_id, count(*) AS added FROM new_rows WHERE removed_at IS NULL GROUP BY 1) n
      WHERE o.id = n.organization_id;
  ELSE
    UPDATE organizations o SET project_count = o.project_count + n.added
      FROM (
        SELECT organization_id, sum(change) AS added FROM (
          SELECT organization_id, 1 AS change FROM new_rows WHERE removed_at IS NULL
          UNION ALL
          SELECT organization_id, -1 FROM old_rows WHERE removed_at IS NULL
        ) changes GROUP BY 1 HAVING sum(change) <> 0
      ) n
      WHERE o.id = n.organization_id;
  END IF;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER projects_inserted AFTER INSERT ON projects
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION projects_counted();
--> statement-breakpoint
CREATE TRIGGER projects_updated AFTER UPDATE ON projects
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION projects_counted();
