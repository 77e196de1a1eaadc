ALTER TABLE "projects" ADD COLUMN "storage_bytes" bigint;--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "storage_bytes_counted" bigint DEFAULT 0 NOT NULL;