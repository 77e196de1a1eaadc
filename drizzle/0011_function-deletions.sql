CREATE TABLE "function_deletions" (
	"project_ref" text NOT NULL,
	"kind" text NOT NULL,
	"name" text NOT NULL,
	"deleted_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "function_deletions_project_ref_kind_name_pk" PRIMARY KEY("project_ref","kind","name")
);
--> statement-breakpoint
ALTER TABLE "function_deletions" ADD CONSTRAINT "function_deletions_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;