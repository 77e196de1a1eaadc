CREATE TABLE "notebook_favorites" (
	"notebook_id" uuid NOT NULL,
	"user_id" uuid NOT NULL,
	CONSTRAINT "notebook_favorites_notebook_id_user_id_pk" PRIMARY KEY("notebook_id","user_id")
);
--> statement-breakpoint
CREATE TABLE "notebooks" (
	"id" uuid PRIMARY KEY DEFAULT uuidv7() NOT NULL,
	"project_ref" text NOT NULL,
	"owner_id" uuid,
	"updated_by_id" uuid,
	"name" text NOT NULL,
	"description" text,
	"cells" jsonb NOT NULL,
	"inserted_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "notebook_favorites" ADD CONSTRAINT "notebook_favorites_notebook_id_notebooks_id_fk" FOREIGN KEY ("notebook_id") REFERENCES "public"."notebooks"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebook_favorites" ADD CONSTRAINT "notebook_favorites_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebooks" ADD CONSTRAINT "notebooks_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebooks" ADD CONSTRAINT "notebooks_owner_id_users_id_fk" FOREIGN KEY ("owner_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebooks" ADD CONSTRAINT "notebooks_updated_by_id_users_id_fk" FOREIGN KEY ("updated_by_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "notebook_favorites_user" ON "notebook_favorites" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "notebooks_by_age" ON "notebooks" USING btree ("project_ref","inserted_at","id");--> statement-breakpoint
CREATE INDEX "notebooks_by_name" ON "notebooks" USING btree ("project_ref","name","id");--> statement-breakpoint
CREATE INDEX "notebooks_owner" ON "notebooks" USING btree ("owner_id");--> statement-breakpoint
CREATE INDEX "notebooks_updated_by" ON "notebooks" USING btree ("updated_by_id");