-- What a project was set to stayed behind when it was removed, sealed secrets among it.
DELETE FROM "project_settings" WHERE "project_ref" IN (SELECT "ref" FROM "projects" WHERE "removed_at" IS NOT NULL);
