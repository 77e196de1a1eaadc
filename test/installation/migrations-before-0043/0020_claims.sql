CREATE TABLE "project_claim_tokens" (
	"project_ref" text PRIMARY KEY NOT NULL,
	"hash" text NOT NULL,
	"alias" text NOT NULL,
	"created_by" uuid NOT NULL,
	"access_token_id" uuid,
	"oauth_grant_id" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "project_claim_tokens_hash_unique" UNIQUE("hash")
);
--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_created_by_users_id_fk" FOREIGN KEY ("created_by") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_access_token_id_access_tokens_id_fk" FOREIGN KEY ("access_token_id") REFERENCES "public"."access_tokens"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_oauth_grant_id_oauth_grants_id_fk" FOREIGN KEY ("oauth_grant_id") REFERENCES "public"."oauth_grants"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "project_claim_tokens_created_by" ON "project_claim_tokens" USING btree ("created_by");--> statement-breakpoint
CREATE INDEX "project_claim_tokens_access_token" ON "project_claim_tokens" USING btree ("access_token_id");--> statement-breakpoint
CREATE INDEX "project_claim_tokens_oauth_grant" ON "project_claim_tokens" USING btree ("oauth_grant_id");