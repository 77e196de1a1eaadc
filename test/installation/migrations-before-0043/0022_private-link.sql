CREATE TABLE "private_link_associations" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"aws_account_id" text NOT NULL,
	"account_name" text,
	"database_type" text NOT NULL,
	"database_identifier" text NOT NULL,
	"dns_name" text NOT NULL,
	"resource_configuration_arn" text NOT NULL,
	"status" text NOT NULL,
	"share_asked_at" timestamp (3) with time zone,
	"share_arn" text,
	"shared_at" timestamp (3) with time zone,
	"due_at" timestamp (3) with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"lease_until" timestamp (3) with time zone,
	"claim" uuid,
	"last_error" text,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "private_link_associations" ADD CONSTRAINT "private_link_associations_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "private_link_associations_once" ON "private_link_associations" USING btree ("project_ref","database_identifier","aws_account_id") WHERE status <> 'DELETING';--> statement-breakpoint
CREATE INDEX "private_link_associations_of_project" ON "private_link_associations" USING btree ("project_ref","created_at","id");--> statement-breakpoint
CREATE INDEX "private_link_associations_due" ON "private_link_associations" USING btree ("due_at") WHERE due_at is not null;