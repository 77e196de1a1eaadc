DROP INDEX "projects_storage_sweep";--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "storage_sweep_due_at" timestamp (3) with time zone DEFAULT now();--> statement-breakpoint
-- Removed projects that were swept for the last time.
UPDATE "projects" SET "storage_sweep_due_at" = NULL WHERE "removed_at" + interval '1 day' <= "storage_swept_at";--> statement-breakpoint
CREATE INDEX "projects_storage_sweep_removed" ON "projects" USING btree ("storage_sweep_due_at") WHERE removed_at is not null and storage_sweep_due_at is not null;--> statement-breakpoint
CREATE INDEX "projects_storage_sweep" ON "projects" USING btree ("storage_sweep_due_at") WHERE removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY');