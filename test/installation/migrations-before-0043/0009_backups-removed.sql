ALTER TABLE "backups" ADD COLUMN "removed_at" timestamp (3) with time zone;--> statement-breakpoint
CREATE INDEX "backups_removed" ON "backups" USING btree ("removed_at") WHERE removed_at is not null;--> statement-breakpoint
UPDATE "backups" SET "removed_at" = now() WHERE "status" = 'REMOVED';