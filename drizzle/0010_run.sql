ALTER TABLE "invocations" DROP COLUMN "id";--> statement-breakpoint
ALTER TABLE "invocations" ADD COLUMN "id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL;
