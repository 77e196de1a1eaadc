ALTER TABLE "projects" ADD COLUMN "preparation" text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "preparation_due_at" timestamp (3) with time zone DEFAULT now() NOT NULL;--> statement-breakpoint
CREATE INDEX "projects_preparation" ON "projects" USING btree ("preparation","preparation_due_at") WHERE removed_at is null and status = 'ACTIVE_HEALTHY';