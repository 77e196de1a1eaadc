CREATE TABLE "backups" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "backups_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"project_ref" text NOT NULL,
	"kind" text NOT NULL,
	"name" text,
	"status" text NOT NULL,
	"status_reason" text,
	"inserted_at" timestamp (3) with time zone NOT NULL,
	"completed_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "snippet_favorites" (
	"snippet_id" uuid NOT NULL,
	"user_id" uuid NOT NULL,
	CONSTRAINT "snippet_favorites_snippet_id_user_id_pk" PRIMARY KEY("snippet_id","user_id")
);
--> statement-breakpoint
CREATE TABLE "snippets" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"organization_id" uuid NOT NULL,
	"owner_id" uuid NOT NULL,
	"updated_by_id" uuid,
	"visibility" text NOT NULL,
	"name" text NOT NULL,
	"description" text,
	"sql" text NOT NULL,
	"inserted_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "backups" ADD CONSTRAINT "backups_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippet_favorites" ADD CONSTRAINT "snippet_favorites_snippet_id_snippets_id_fk" FOREIGN KEY ("snippet_id") REFERENCES "public"."snippets"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippet_favorites" ADD CONSTRAINT "snippet_favorites_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_owner_id_users_id_fk" FOREIGN KEY ("owner_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_updated_by_id_users_id_fk" FOREIGN KEY ("updated_by_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "backups_by_age" ON "backups" USING btree ("project_ref","inserted_at","id");--> statement-breakpoint
CREATE UNIQUE INDEX "backups_restore_point_once" ON "backups" USING btree ("project_ref","name") WHERE kind = 'restore_point' and status in ('PENDING', 'COMPLETED');--> statement-breakpoint
CREATE INDEX "snippet_favorites_user" ON "snippet_favorites" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "snippets_organization_by_age" ON "snippets" USING btree ("organization_id","visibility","inserted_at","id");--> statement-breakpoint
CREATE INDEX "snippets_organization_by_name" ON "snippets" USING btree ("organization_id","visibility","name","id");--> statement-breakpoint
CREATE INDEX "snippets_project_by_age" ON "snippets" USING btree ("project_ref","visibility","inserted_at","id");--> statement-breakpoint
CREATE INDEX "snippets_project_by_name" ON "snippets" USING btree ("project_ref","visibility","name","id");--> statement-breakpoint
CREATE INDEX "snippets_owner_by_age" ON "snippets" USING btree ("owner_id","visibility","inserted_at","id");--> statement-breakpoint
CREATE INDEX "snippets_owner_by_name" ON "snippets" USING btree ("owner_id","visibility","name","id");--> statement-breakpoint
CREATE INDEX "project_settings_backup_due" ON "project_settings" USING btree ((value ->> 'due_at')) WHERE area = 'backup_schedule';