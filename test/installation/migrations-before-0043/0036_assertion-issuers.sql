CREATE TABLE "assertion_issuers" (
	"organization_id" uuid PRIMARY KEY NOT NULL,
	"issuer" text NOT NULL,
	"jwks_url" text,
	"jwks" jsonb NOT NULL,
	"fetched_at" timestamp (3) with time zone,
	"tried_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "used_assertions" (
	"id" text PRIMARY KEY NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "assertion_issuers" ADD CONSTRAINT "assertion_issuers_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "assertion_issuers_issuer" ON "assertion_issuers" USING btree ("issuer");--> statement-breakpoint
CREATE INDEX "used_assertions_expiry" ON "used_assertions" USING btree ("expires_at");