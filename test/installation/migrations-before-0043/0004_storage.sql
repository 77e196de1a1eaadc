ALTER TABLE "projects" ADD COLUMN "sealed_jwt_secret" text;--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "storage_config" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "storage_swept_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "storage_sweep_after" text;--> statement-breakpoint
CREATE INDEX "projects_storage_sweep" ON "projects" USING btree ("storage_swept_at" NULLS FIRST) WHERE removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY');