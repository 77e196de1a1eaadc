DROP INDEX "projects_by_name";--> statement-breakpoint
CREATE INDEX "projects_by_name" ON "projects" USING btree ("organization_id","name","ref") WHERE removed_at is null;