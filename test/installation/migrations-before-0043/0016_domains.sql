CREATE TABLE "custom_hostnames" (
	"project_ref" text PRIMARY KEY NOT NULL,
	"id" uuid DEFAULT gen_random_uuid() NOT NULL,
	"hostname" text NOT NULL,
	"status" text NOT NULL,
	"challenge" uuid NOT NULL,
	"errors" text[] DEFAULT '{}' NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "vanity_subdomains" (
	"project_ref" text PRIMARY KEY NOT NULL,
	"subdomain" text NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "vanity_subdomains_once" UNIQUE("subdomain")
);
--> statement-breakpoint
ALTER TABLE "custom_hostnames" ADD CONSTRAINT "custom_hostnames_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "vanity_subdomains" ADD CONSTRAINT "vanity_subdomains_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "custom_hostnames_once" ON "custom_hostnames" USING btree ("hostname") WHERE status <> '2_initiated';