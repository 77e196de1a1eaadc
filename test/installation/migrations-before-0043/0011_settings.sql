CREATE TABLE "api_keys" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"type" text NOT NULL,
	"name" text NOT NULL,
	"description" text,
	"prefix" text NOT NULL,
	"hash" text NOT NULL,
	"sealed_key" text NOT NULL,
	"secret_jwt_template" jsonb,
	"inserted_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"deleted_at" timestamp (3) with time zone,
	"was_compromised" boolean,
	"deletion_reason" text
);
--> statement-breakpoint
CREATE TABLE "signing_keys" (
	"id" uuid DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"algorithm" text NOT NULL,
	"status" text NOT NULL,
	"is_legacy" boolean DEFAULT false NOT NULL,
	"sealed_private_jwk" text,
	"public_jwk" jsonb,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	CONSTRAINT "signing_keys_project_ref_id_pk" PRIMARY KEY("project_ref","id")
);
--> statement-breakpoint
CREATE TABLE "third_party_auths" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"type" text NOT NULL,
	"oidc_issuer_url" text,
	"jwks_url" text,
	"custom_jwks" jsonb,
	"resolved_jwks" jsonb,
	"issuer" text,
	"inserted_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"resolved_at" timestamp (3) with time zone,
	"refresh_at" timestamp (3) with time zone,
	"refresh_error" text
);
--> statement-breakpoint
CREATE TABLE "sso_domains" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"provider_id" uuid NOT NULL,
	"project_ref" text NOT NULL,
	"domain" text NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "sso_providers" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"entity_id" text NOT NULL,
	"metadata_url" text,
	"metadata_xml" text NOT NULL,
	"attribute_mapping" jsonb,
	"name_id_format" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "signing_keys" ADD CONSTRAINT "signing_keys_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "third_party_auths" ADD CONSTRAINT "third_party_auths_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sso_domains" ADD CONSTRAINT "sso_domains_provider_id_sso_providers_id_fk" FOREIGN KEY ("provider_id") REFERENCES "public"."sso_providers"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sso_domains" ADD CONSTRAINT "sso_domains_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sso_providers" ADD CONSTRAINT "sso_providers_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_hash_once" ON "api_keys" USING btree ("hash");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_name_once" ON "api_keys" USING btree ("project_ref","type","name") WHERE deleted_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_in_use" ON "signing_keys" USING btree ("project_ref") WHERE status = 'in_use';--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_standby" ON "signing_keys" USING btree ("project_ref") WHERE status = 'standby';--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_legacy" ON "signing_keys" USING btree ("project_ref") WHERE is_legacy;--> statement-breakpoint
CREATE INDEX "third_party_auths_project" ON "third_party_auths" USING btree ("project_ref","inserted_at");--> statement-breakpoint
CREATE INDEX "third_party_auths_refresh" ON "third_party_auths" USING btree ("refresh_at") WHERE refresh_at is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "sso_domains_once" ON "sso_domains" USING btree ("project_ref","domain");--> statement-breakpoint
CREATE INDEX "sso_domains_provider" ON "sso_domains" USING btree ("provider_id","created_at");--> statement-breakpoint
CREATE INDEX "sso_providers_project" ON "sso_providers" USING btree ("project_ref","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "sso_providers_entity_once" ON "sso_providers" USING btree ("project_ref","entity_id");