ALTER TABLE "oauth_grants" ADD COLUMN "previous_refresh_hash" text;--> statement-breakpoint
ALTER TABLE "oauth_grants" ADD COLUMN "refreshed_at" timestamp (3) with time zone;