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
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "invocations_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
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
ALTER TABLE "projects" ADD COLUMN "secrets_generation" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "function_deployments" ADD CONSTRAINT "function_deployments_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "function_secrets" ADD CONSTRAINT "function_secrets_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "functions" ADD CONSTRAINT "functions_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "functions" ADD CONSTRAINT "functions_deployment_id_function_deployments_id_fk" FOREIGN KEY ("deployment_id") REFERENCES "public"."function_deployments"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "function_deployments_unused" ON "function_deployments" USING btree ("unused_since") WHERE unused_since is not null;--> statement-breakpoint
CREATE INDEX "function_deployments_of_project" ON "function_deployments" USING btree ("project_ref");--> statement-breakpoint
CREATE UNIQUE INDEX "functions_slug_once" ON "functions" USING btree ("project_ref","slug");--> statement-breakpoint
CREATE INDEX "functions_deployment" ON "functions" USING btree ("deployment_id");--> statement-breakpoint
CREATE INDEX "invocations_of_project" ON "invocations" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "invocations_by_age" ON "invocations" USING btree ("at");