ALTER TABLE "organizations" ALTER COLUMN "allowed_release_channels" SET DEFAULT '{ga}';
--> statement-breakpoint
UPDATE "organizations" SET "allowed_release_channels" = '{ga}';
