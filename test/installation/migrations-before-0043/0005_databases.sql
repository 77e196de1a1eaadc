CREATE TABLE "action_run_logs" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"run_id" uuid NOT NULL,
	"step" text NOT NULL,
	"line" text NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	"number" integer GENERATED ALWAYS AS IDENTITY (sequence name "action_run_logs_number_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1)
);
--> statement-breakpoint
CREATE TABLE "action_runs" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"branch_id" uuid NOT NULL,
	"project_ref" text NOT NULL,
	"parent_ref" text NOT NULL,
	"task_id" uuid,
	"kind" text NOT NULL,
	"migration_version" text,
	"steps" jsonb NOT NULL,
	"kept" jsonb,
	"git_config" jsonb,
	"workdir" text,
	"check_run_id" integer,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "branches" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"parent_ref" text NOT NULL,
	"name" text NOT NULL,
	"git_branch" text,
	"is_default" boolean DEFAULT false NOT NULL,
	"persistent" boolean DEFAULT false NOT NULL,
	"with_data" boolean DEFAULT false NOT NULL,
	"status" text NOT NULL,
	"notify_url" text,
	"sealed_secrets" text,
	"review_requested_at" timestamp (3) with time zone,
	"deletion_scheduled_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"removed_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "jit_grants" (
	"project_ref" text NOT NULL,
	"user_id" uuid NOT NULL,
	"roles" jsonb NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "jit_grants_project_ref_user_id_pk" PRIMARY KEY("project_ref","user_id")
);
--> statement-breakpoint
CREATE TABLE "project_settings" (
	"project_ref" text NOT NULL,
	"area" text NOT NULL,
	"value" jsonb NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "project_settings_project_ref_area_pk" PRIMARY KEY("project_ref","area")
);
--> statement-breakpoint
CREATE TABLE "temporary_logins" (
	"role" text PRIMARY KEY NOT NULL,
	"project_ref" text NOT NULL,
	"user_id" uuid,
	"token_id" uuid,
	"granted_role" text NOT NULL,
	"read_only" boolean DEFAULT false NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
DROP INDEX "projects_name_once";--> statement-breakpoint
ALTER TABLE "users" ADD COLUMN "number" integer NOT NULL GENERATED ALWAYS AS IDENTITY (sequence name "users_number_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1);--> statement-breakpoint
ALTER TABLE "project_tasks" ADD COLUMN "input" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "parent_ref" text;--> statement-breakpoint
ALTER TABLE "webhook_endpoints" ADD COLUMN "branch_id" uuid;--> statement-breakpoint
ALTER TABLE "action_run_logs" ADD CONSTRAINT "action_run_logs_run_id_action_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."action_runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "action_runs" ADD CONSTRAINT "action_runs_branch_id_branches_id_fk" FOREIGN KEY ("branch_id") REFERENCES "public"."branches"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "action_runs" ADD CONSTRAINT "action_runs_task_id_project_tasks_id_fk" FOREIGN KEY ("task_id") REFERENCES "public"."project_tasks"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "branches" ADD CONSTRAINT "branches_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "branches" ADD CONSTRAINT "branches_parent_ref_projects_ref_fk" FOREIGN KEY ("parent_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "jit_grants" ADD CONSTRAINT "jit_grants_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "jit_grants" ADD CONSTRAINT "jit_grants_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_settings" ADD CONSTRAINT "project_settings_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "temporary_logins" ADD CONSTRAINT "temporary_logins_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "temporary_logins" ADD CONSTRAINT "temporary_logins_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "temporary_logins" ADD CONSTRAINT "temporary_logins_token_id_access_tokens_id_fk" FOREIGN KEY ("token_id") REFERENCES "public"."access_tokens"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "action_run_logs_run" ON "action_run_logs" USING btree ("run_id","number");--> statement-breakpoint
CREATE INDEX "action_runs_of_branch" ON "action_runs" USING btree ("project_ref","created_at" DESC NULLS LAST,"id");--> statement-breakpoint
CREATE INDEX "action_runs_of_parent" ON "action_runs" USING btree ("parent_ref","created_at" DESC NULLS LAST,"id");--> statement-breakpoint
CREATE INDEX "action_runs_task" ON "action_runs" USING btree ("task_id");--> statement-breakpoint
CREATE UNIQUE INDEX "branches_name_once" ON "branches" USING btree ("parent_ref","name") WHERE removed_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "branches_project_once" ON "branches" USING btree ("project_ref") WHERE removed_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "branches_default_once" ON "branches" USING btree ("parent_ref") WHERE removed_at is null and is_default;--> statement-breakpoint
CREATE INDEX "branches_by_age" ON "branches" USING btree ("parent_ref","created_at","id") WHERE removed_at is null;--> statement-breakpoint
CREATE INDEX "branches_deletion_due" ON "branches" USING btree ("deletion_scheduled_at") WHERE removed_at is null and deletion_scheduled_at is not null;--> statement-breakpoint
CREATE INDEX "jit_grants_user" ON "jit_grants" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "project_settings_read_only" ON "project_settings" USING btree ("project_ref") WHERE area = 'readonly';--> statement-breakpoint
CREATE INDEX "temporary_logins_project" ON "temporary_logins" USING btree ("project_ref","user_id");--> statement-breakpoint
CREATE INDEX "temporary_logins_due" ON "temporary_logins" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "temporary_logins_token" ON "temporary_logins" USING btree ("token_id");--> statement-breakpoint
ALTER TABLE "projects" ADD CONSTRAINT "projects_parent_ref_projects_ref_fk" FOREIGN KEY ("parent_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_endpoints" ADD CONSTRAINT "webhook_endpoints_branch_id_branches_id_fk" FOREIGN KEY ("branch_id") REFERENCES "public"."branches"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "projects_parent" ON "projects" USING btree ("parent_ref") WHERE parent_ref is not null and removed_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "webhook_endpoints_branch" ON "webhook_endpoints" USING btree ("branch_id");--> statement-breakpoint
CREATE UNIQUE INDEX "projects_name_once" ON "projects" USING btree ("organization_id","name") WHERE removed_at is null and status <> 'GOING_DOWN' and parent_ref is null;