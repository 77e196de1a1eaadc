CREATE TABLE "function_deletions" (
	"project_ref" text NOT NULL,
	"kind" text NOT NULL,
	"name" text NOT NULL,
	"deleted_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "function_deletions_project_ref_kind_name_pk" PRIMARY KEY("project_ref","kind","name")
);
--> statement-breakpoint
CREATE TABLE "function_deployments" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"slug" text NOT NULL,
	"sha256" text NOT NULL,
	"entrypoint" text NOT NULL,
	"import_map" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"unused_since" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "function_secrets" (
	"project_ref" text NOT NULL,
	"name" text NOT NULL,
	"sealed_value" text NOT NULL,
	"digest" text NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "function_secrets_project_ref_name_pk" PRIMARY KEY("project_ref","name")
);
--> statement-breakpoint
CREATE TABLE "functions" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"slug" text NOT NULL,
	"name" text NOT NULL,
	"status" text NOT NULL,
	"version" integer NOT NULL,
	"verify_jwt" boolean NOT NULL,
	"deployment_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "invocations" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"kind" text NOT NULL,
	"program_id" uuid NOT NULL,
	"deployment_id" uuid NOT NULL,
	"method" text NOT NULL,
	"path" text NOT NULL,
	"status" integer NOT NULL,
	"ms" integer NOT NULL,
	"console" jsonb NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "worker_images" (
	"project_ref" text NOT NULL,
	"sha256" text NOT NULL,
	"touched_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "worker_images_project_ref_sha256_pk" PRIMARY KEY("project_ref","sha256")
);
--> statement-breakpoint
CREATE TABLE "worker_tasks" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"worker_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"upload_id" uuid,
	"spec" jsonb NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"due_at" timestamp (3) with time zone NOT NULL,
	"lease_until" timestamp (3) with time zone,
	"claim" uuid,
	"last_error" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"finished_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "worker_uploads" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"worker_name" text NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "workers" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"name" text NOT NULL,
	"spec" jsonb NOT NULL,
	"build_state" text NOT NULL,
	"state_reason" text,
	"served" jsonb,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"deleted_at" timestamp (3) with time zone
);
--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "secrets_generation" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "function_deletions" ADD CONSTRAINT "function_deletions_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "function_deployments" ADD CONSTRAINT "function_deployments_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "function_secrets" ADD CONSTRAINT "function_secrets_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "functions" ADD CONSTRAINT "functions_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "functions" ADD CONSTRAINT "functions_deployment_id_function_deployments_id_fk" FOREIGN KEY ("deployment_id") REFERENCES "public"."function_deployments"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "worker_images" ADD CONSTRAINT "worker_images_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "worker_tasks" ADD CONSTRAINT "worker_tasks_worker_id_workers_id_fk" FOREIGN KEY ("worker_id") REFERENCES "public"."workers"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "worker_uploads" ADD CONSTRAINT "worker_uploads_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workers" ADD CONSTRAINT "workers_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "function_deployments_unused" ON "function_deployments" USING btree ("unused_since") WHERE unused_since is not null;--> statement-breakpoint
CREATE INDEX "function_deployments_of_project" ON "function_deployments" USING btree ("project_ref");--> statement-breakpoint
CREATE UNIQUE INDEX "functions_slug_once" ON "functions" USING btree ("project_ref","slug");--> statement-breakpoint
CREATE INDEX "functions_deployment" ON "functions" USING btree ("deployment_id");--> statement-breakpoint
CREATE INDEX "invocations_of_project" ON "invocations" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "invocations_by_age" ON "invocations" USING btree ("at");--> statement-breakpoint
CREATE INDEX "worker_images_by_age" ON "worker_images" USING btree ("touched_at");--> statement-breakpoint
CREATE UNIQUE INDEX "worker_tasks_one_open" ON "worker_tasks" USING btree ("worker_id") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "worker_tasks_due" ON "worker_tasks" USING btree ("due_at") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "worker_tasks_of_worker" ON "worker_tasks" USING btree ("worker_id");--> statement-breakpoint
CREATE INDEX "worker_tasks_of_upload" ON "worker_tasks" USING btree ("upload_id") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "worker_uploads_expired" ON "worker_uploads" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "worker_uploads_of_project" ON "worker_uploads" USING btree ("project_ref");--> statement-breakpoint
CREATE UNIQUE INDEX "workers_name_once" ON "workers" USING btree ("project_ref","name") WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "workers_of_project" ON "workers" USING btree ("project_ref");