CREATE TABLE "git_branches" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"connection_id" uuid NOT NULL,
	"name" text NOT NULL,
	"due_at" timestamp (3) with time zone,
	"lease_until" timestamp (3) with time zone,
	"claim" uuid,
	"attempts" integer DEFAULT 0 NOT NULL,
	"asked" integer DEFAULT 0 NOT NULL,
	"pull_request" integer,
	"commit" text,
	"branch_id" uuid,
	"run_id" uuid,
	"report" jsonb,
	"last_error" text,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "git_branches_once" UNIQUE("connection_id","name")
);
--> statement-breakpoint
CREATE TABLE "git_connections" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_ref" text NOT NULL,
	"installation_id" bigint NOT NULL,
	"repository_id" bigint NOT NULL,
	"repository_name" text NOT NULL,
	"workdir" text NOT NULL,
	"changes_only" boolean NOT NULL,
	"branch_limit" integer NOT NULL,
	"new_branch_per_pr" boolean NOT NULL,
	"user_id" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "git_connections_project_ref_unique" UNIQUE("project_ref")
);
--> statement-breakpoint
CREATE TABLE "git_deliveries" (
	"id" uuid PRIMARY KEY NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "action_runs" ADD COLUMN "files" jsonb;--> statement-breakpoint
ALTER TABLE "branches" ADD COLUMN "for_pull_requests" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "git_branches" ADD CONSTRAINT "git_branches_connection_id_git_connections_id_fk" FOREIGN KEY ("connection_id") REFERENCES "public"."git_connections"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_branches" ADD CONSTRAINT "git_branches_branch_id_branches_id_fk" FOREIGN KEY ("branch_id") REFERENCES "public"."branches"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_connections" ADD CONSTRAINT "git_connections_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_connections" ADD CONSTRAINT "git_connections_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_connections" ADD CONSTRAINT "git_connections_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "git_branches_due" ON "git_branches" USING btree ("due_at") WHERE due_at is not null;--> statement-breakpoint
CREATE INDEX "git_branches_run" ON "git_branches" USING btree ("run_id") WHERE run_id is not null;--> statement-breakpoint
CREATE INDEX "git_connections_of_organization" ON "git_connections" USING btree ("organization_id","project_ref");--> statement-breakpoint
CREATE INDEX "git_connections_of_repository" ON "git_connections" USING btree ("repository_id","installation_id");--> statement-breakpoint
CREATE INDEX "git_connections_user" ON "git_connections" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "git_deliveries_by_age" ON "git_deliveries" USING btree ("at");