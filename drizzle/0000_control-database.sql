-- Trigram index for the search by name.
CREATE EXTENSION IF NOT EXISTS pg_trgm;
--> statement-breakpoint
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
	"files" jsonb,
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
	"for_pull_requests" boolean DEFAULT false NOT NULL,
	"pr_number" integer,
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
CREATE TABLE "backups" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "backups_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"project_ref" text NOT NULL,
	"kind" text NOT NULL,
	"name" text,
	"status" text NOT NULL,
	"status_reason" text,
	"inserted_at" timestamp (3) with time zone NOT NULL,
	"completed_at" timestamp (3) with time zone,
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
CREATE TABLE "custom_hostnames" (
	"project_ref" text PRIMARY KEY NOT NULL,
	"id" uuid DEFAULT gen_random_uuid() NOT NULL,
	"hostname" text NOT NULL,
	"status" text NOT NULL,
	"challenge" uuid NOT NULL,
	"errors" text[] DEFAULT '{}' NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "released_subdomains" (
	"subdomain" text PRIMARY KEY NOT NULL,
	"project_ref" text NOT NULL,
	"released_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "vanity_subdomains" (
	"project_ref" text PRIMARY KEY NOT NULL,
	"subdomain" text NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "vanity_subdomains_once" UNIQUE("subdomain")
);
--> statement-breakpoint
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
CREATE TABLE "hosts" (
	"name" text PRIMARY KEY NOT NULL,
	"url" text NOT NULL,
	"sealed_key" text NOT NULL,
	"database_host" text NOT NULL,
	"database_port" integer NOT NULL,
	"database_domain" text,
	"region" text NOT NULL,
	"state" text DEFAULT 'active' NOT NULL,
	"added_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "access_tokens" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"hash" text NOT NULL,
	"name" text NOT NULL,
	"user_id" uuid NOT NULL,
	"oauth_app_id" uuid,
	"organization_id" uuid,
	"oauth_grant_id" uuid,
	"scopes" text[],
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp (3) with time zone,
	"revoked_at" timestamp (3) with time zone,
	CONSTRAINT "access_tokens_hash_unique" UNIQUE("hash"),
	CONSTRAINT "access_tokens_oauth_scopes" CHECK ("access_tokens"."oauth_app_id" is null or "access_tokens"."scopes" is not null)
);
--> statement-breakpoint
CREATE TABLE "invitations" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"organization_id" uuid NOT NULL,
	"email" text NOT NULL,
	"role" text NOT NULL,
	"project_refs" text[],
	"invited_by" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "invitations_once" UNIQUE("organization_id","email")
);
--> statement-breakpoint
CREATE TABLE "member_roles" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"organization_id" uuid NOT NULL,
	"user_id" uuid NOT NULL,
	"role" text NOT NULL,
	"project_ref" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "member_roles_once" UNIQUE NULLS NOT DISTINCT("organization_id","user_id","project_ref")
);
--> statement-breakpoint
CREATE TABLE "oauth_apps" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"organization_id" uuid NOT NULL,
	"name" text NOT NULL,
	"secret_hash" text,
	"redirect_uris" text[] DEFAULT '{}' NOT NULL,
	"scopes" text[] DEFAULT '{}' NOT NULL,
	"grant_types" text[] DEFAULT '{authorization_code,refresh_token}' NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "oauth_grants" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"app_id" uuid NOT NULL,
	"user_id" uuid NOT NULL,
	"organization_id" uuid NOT NULL,
	"approved_by" uuid NOT NULL,
	"scopes" text[] NOT NULL,
	"redirect_uri" text NOT NULL,
	"code_hash" text,
	"code_challenge" text,
	"code_challenge_method" text,
	"code_used_at" timestamp (3) with time zone,
	"refresh_family_hash" text,
	"refresh_hash" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "oauth_grants_code_hash_unique" UNIQUE("code_hash"),
	CONSTRAINT "oauth_grants_refresh_family_hash_unique" UNIQUE("refresh_family_hash")
);
--> statement-breakpoint
CREATE TABLE "organizations" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"slug" text NOT NULL,
	"name" text NOT NULL,
	"plan" text NOT NULL,
	"opt_in_tags" text[] DEFAULT '{}' NOT NULL,
	"allowed_release_channels" text[] DEFAULT '{ga,preview}' NOT NULL,
	"project_count" integer DEFAULT 0 NOT NULL,
	"disabled_at" timestamp (3) with time zone,
	"removed_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "organizations_slug_unique" UNIQUE("slug")
);
--> statement-breakpoint
CREATE TABLE "users" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"number" integer GENERATED ALWAYS AS IDENTITY (sequence name "users_number_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"username" text NOT NULL,
	"primary_email" text NOT NULL,
	"avatar_url" text,
	"mfa_enabled" boolean DEFAULT false NOT NULL,
	"disabled_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "users_username_unique" UNIQUE("username"),
	CONSTRAINT "users_primary_email_unique" UNIQUE("primary_email")
);
--> statement-breakpoint
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
CREATE TABLE "log_drain_entries" (
	"drain_id" uuid NOT NULL,
	"id" uuid DEFAULT uuidv7() NOT NULL,
	"kind" text NOT NULL,
	"record_id" uuid NOT NULL,
	"first_line" integer DEFAULT 0 NOT NULL,
	"last_line" integer DEFAULT 0 NOT NULL,
	"rows" integer NOT NULL,
	"bytes" integer NOT NULL,
	CONSTRAINT "log_drain_entries_drain_id_id_pk" PRIMARY KEY("drain_id","id")
);
--> statement-breakpoint
CREATE TABLE "log_drains" (
	"id" uuid PRIMARY KEY DEFAULT uuidv7() NOT NULL,
	"project_ref" text NOT NULL,
	"name" text NOT NULL,
	"description" text,
	"backend_type" text NOT NULL,
	"config" jsonb NOT NULL,
	"sealed_secrets" text NOT NULL,
	"failing_since" timestamp (3) with time zone,
	"failures" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"lease_until" timestamp (3) with time zone,
	"claim" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"deleted_at" timestamp (3) with time zone
);
--> statement-breakpoint
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
CREATE TABLE "assertion_issuers" (
	"organization_id" uuid PRIMARY KEY NOT NULL,
	"issuer" text NOT NULL,
	"jwks_url" text,
	"jwks" jsonb NOT NULL,
	"fetched_at" timestamp (3) with time zone,
	"tried_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "oauth_signing_keys" (
	"id" uuid PRIMARY KEY NOT NULL,
	"public_jwk" jsonb NOT NULL,
	"sealed_private_jwk" text NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "used_assertions" (
	"id" text PRIMARY KEY NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "postgres_log_cursors" (
	"project_ref" text PRIMARY KEY NOT NULL,
	"cursor" text NOT NULL,
	"read_at" timestamp (3) with time zone NOT NULL,
	"day" date NOT NULL,
	"messages" integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE "postgres_logs" (
	"id" uuid PRIMARY KEY DEFAULT uuidv7() NOT NULL,
	"project_ref" text NOT NULL,
	"at" timestamp (6) with time zone NOT NULL,
	"message" text NOT NULL,
	"attributes" jsonb NOT NULL
);
--> statement-breakpoint
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
CREATE TABLE "audit_log" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"action" text NOT NULL,
	"actor_user_id" uuid,
	"actor_app_id" uuid,
	"organization_id" uuid,
	"project_ref" text,
	"detail" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"request_id" text NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "heartbeats" (
	"name" text PRIMARY KEY NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
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
CREATE TABLE "project_tasks" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"project_ref" text NOT NULL,
	"kind" text NOT NULL,
	"input" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"actor_user_id" uuid,
	"state" text DEFAULT 'pending' NOT NULL,
	"steps_done" text[] DEFAULT '{}' NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"due_at" timestamp (3) with time zone NOT NULL,
	"lease_until" timestamp (3) with time zone,
	"claim" uuid,
	"last_error" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"finished_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "projects" (
	"ref" text PRIMARY KEY NOT NULL,
	"id" bigint GENERATED ALWAYS AS IDENTITY (sequence name "projects_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"organization_id" uuid NOT NULL,
	"parent_ref" text,
	"name" text NOT NULL,
	"region" text NOT NULL,
	"instance_size" text NOT NULL,
	"status" text NOT NULL,
	"status_reason" text,
	"postgres_version" text DEFAULT '' NOT NULL,
	"sealed_password" text NOT NULL,
	"sealed_runner_password" text NOT NULL,
	"sealed_jwt_secret" text,
	"engine_state" jsonb,
	"storage_config" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"secrets_generation" integer DEFAULT 0 NOT NULL,
	"storage_swept_at" timestamp (3) with time zone,
	"storage_sweep_due_at" timestamp (3) with time zone DEFAULT now(),
	"storage_sweep_after" text,
	"storage_bytes" bigint,
	"storage_bytes_counted" bigint DEFAULT 0 NOT NULL,
	"preparation" text DEFAULT '' NOT NULL,
	"preparation_due_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"removed_at" timestamp (3) with time zone
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
CREATE TABLE "storage_requests" (
	"id" uuid PRIMARY KEY NOT NULL,
	"project_ref" text NOT NULL,
	"method" text NOT NULL,
	"path" text NOT NULL,
	"status" integer NOT NULL,
	"ms" integer NOT NULL,
	"error" text,
	"skipped" integer NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "request_counts" (
	"project_ref" text NOT NULL,
	"minute" timestamp (3) with time zone NOT NULL,
	"service" text NOT NULL,
	"requests" integer NOT NULL,
	CONSTRAINT "request_counts_project_ref_minute_service_pk" PRIMARY KEY("project_ref","minute","service")
);
--> statement-breakpoint
CREATE TABLE "webhook_deliveries" (
	"id" uuid PRIMARY KEY DEFAULT uuidv7() NOT NULL,
	"message_id" uuid NOT NULL,
	"event_id" uuid NOT NULL,
	"endpoint_id" uuid NOT NULL,
	"trigger" text NOT NULL,
	"attempt" integer DEFAULT 1 NOT NULL,
	"status" text DEFAULT 'pending' NOT NULL,
	"asked" boolean DEFAULT false NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"lease_until" timestamp (3) with time zone,
	"claim" uuid,
	"claims" integer DEFAULT 0 NOT NULL,
	"attempted_at" timestamp (3) with time zone,
	"response_code" integer DEFAULT 0 NOT NULL,
	"response_headers" json DEFAULT '{}'::json NOT NULL,
	"response_body" text DEFAULT '' NOT NULL,
	"error_code" text,
	"error_message" text,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "webhook_endpoints" (
	"id" uuid PRIMARY KEY DEFAULT uuidv7() NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_ref" text,
	"branch_id" uuid,
	"url" text NOT NULL,
	"enabled" boolean NOT NULL,
	"description" text,
	"event_types" text[] NOT NULL,
	"sealed_headers" text,
	"sealed_secret" text NOT NULL,
	"old_secrets" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"failing_since" timestamp (3) with time zone,
	"created_by" uuid NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "webhook_events" (
	"id" uuid PRIMARY KEY DEFAULT uuidv7() NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_ref" text,
	"type" text NOT NULL,
	"payload" json NOT NULL,
	"idempotency_key" text,
	"published_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "webhook_events_idempotency_key_unique" UNIQUE("idempotency_key")
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
	"cron_due_at" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"deleted_at" timestamp (3) with time zone
);
--> statement-breakpoint
ALTER TABLE "action_run_logs" ADD CONSTRAINT "action_run_logs_run_id_action_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."action_runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "action_runs" ADD CONSTRAINT "action_runs_branch_id_branches_id_fk" FOREIGN KEY ("branch_id") REFERENCES "public"."branches"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "action_runs" ADD CONSTRAINT "action_runs_task_id_project_tasks_id_fk" FOREIGN KEY ("task_id") REFERENCES "public"."project_tasks"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "branches" ADD CONSTRAINT "branches_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "branches" ADD CONSTRAINT "branches_parent_ref_projects_ref_fk" FOREIGN KEY ("parent_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_branches" ADD CONSTRAINT "git_branches_connection_id_git_connections_id_fk" FOREIGN KEY ("connection_id") REFERENCES "public"."git_connections"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_branches" ADD CONSTRAINT "git_branches_branch_id_branches_id_fk" FOREIGN KEY ("branch_id") REFERENCES "public"."branches"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_connections" ADD CONSTRAINT "git_connections_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_connections" ADD CONSTRAINT "git_connections_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "git_connections" ADD CONSTRAINT "git_connections_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "backups" ADD CONSTRAINT "backups_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "jit_grants" ADD CONSTRAINT "jit_grants_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "jit_grants" ADD CONSTRAINT "jit_grants_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_settings" ADD CONSTRAINT "project_settings_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippet_favorites" ADD CONSTRAINT "snippet_favorites_snippet_id_snippets_id_fk" FOREIGN KEY ("snippet_id") REFERENCES "public"."snippets"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippet_favorites" ADD CONSTRAINT "snippet_favorites_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_owner_id_users_id_fk" FOREIGN KEY ("owner_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "snippets" ADD CONSTRAINT "snippets_updated_by_id_users_id_fk" FOREIGN KEY ("updated_by_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "temporary_logins" ADD CONSTRAINT "temporary_logins_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "temporary_logins" ADD CONSTRAINT "temporary_logins_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "temporary_logins" ADD CONSTRAINT "temporary_logins_token_id_access_tokens_id_fk" FOREIGN KEY ("token_id") REFERENCES "public"."access_tokens"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "custom_hostnames" ADD CONSTRAINT "custom_hostnames_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "vanity_subdomains" ADD CONSTRAINT "vanity_subdomains_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "function_deletions" ADD CONSTRAINT "function_deletions_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "function_deployments" ADD CONSTRAINT "function_deployments_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "function_secrets" ADD CONSTRAINT "function_secrets_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "functions" ADD CONSTRAINT "functions_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "functions" ADD CONSTRAINT "functions_deployment_id_function_deployments_id_fk" FOREIGN KEY ("deployment_id") REFERENCES "public"."function_deployments"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "access_tokens" ADD CONSTRAINT "access_tokens_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "access_tokens" ADD CONSTRAINT "access_tokens_oauth_app_id_oauth_apps_id_fk" FOREIGN KEY ("oauth_app_id") REFERENCES "public"."oauth_apps"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "access_tokens" ADD CONSTRAINT "access_tokens_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "access_tokens" ADD CONSTRAINT "access_tokens_oauth_grant_id_oauth_grants_id_fk" FOREIGN KEY ("oauth_grant_id") REFERENCES "public"."oauth_grants"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invitations" ADD CONSTRAINT "invitations_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invitations" ADD CONSTRAINT "invitations_invited_by_users_id_fk" FOREIGN KEY ("invited_by") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "member_roles" ADD CONSTRAINT "member_roles_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "member_roles" ADD CONSTRAINT "member_roles_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "oauth_apps" ADD CONSTRAINT "oauth_apps_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "oauth_grants" ADD CONSTRAINT "oauth_grants_app_id_oauth_apps_id_fk" FOREIGN KEY ("app_id") REFERENCES "public"."oauth_apps"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "oauth_grants" ADD CONSTRAINT "oauth_grants_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "oauth_grants" ADD CONSTRAINT "oauth_grants_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "oauth_grants" ADD CONSTRAINT "oauth_grants_approved_by_access_tokens_id_fk" FOREIGN KEY ("approved_by") REFERENCES "public"."access_tokens"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "signing_keys" ADD CONSTRAINT "signing_keys_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "third_party_auths" ADD CONSTRAINT "third_party_auths_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "log_drains" ADD CONSTRAINT "log_drains_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebook_favorites" ADD CONSTRAINT "notebook_favorites_notebook_id_notebooks_id_fk" FOREIGN KEY ("notebook_id") REFERENCES "public"."notebooks"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebook_favorites" ADD CONSTRAINT "notebook_favorites_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebooks" ADD CONSTRAINT "notebooks_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebooks" ADD CONSTRAINT "notebooks_owner_id_users_id_fk" FOREIGN KEY ("owner_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "notebooks" ADD CONSTRAINT "notebooks_updated_by_id_users_id_fk" FOREIGN KEY ("updated_by_id") REFERENCES "public"."users"("id") ON DELETE set null ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "assertion_issuers" ADD CONSTRAINT "assertion_issuers_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "private_link_associations" ADD CONSTRAINT "private_link_associations_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_created_by_users_id_fk" FOREIGN KEY ("created_by") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_access_token_id_access_tokens_id_fk" FOREIGN KEY ("access_token_id") REFERENCES "public"."access_tokens"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_claim_tokens" ADD CONSTRAINT "project_claim_tokens_oauth_grant_id_oauth_grants_id_fk" FOREIGN KEY ("oauth_grant_id") REFERENCES "public"."oauth_grants"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "project_tasks" ADD CONSTRAINT "project_tasks_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "projects" ADD CONSTRAINT "projects_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "projects" ADD CONSTRAINT "projects_parent_ref_projects_ref_fk" FOREIGN KEY ("parent_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sso_domains" ADD CONSTRAINT "sso_domains_provider_id_sso_providers_id_fk" FOREIGN KEY ("provider_id") REFERENCES "public"."sso_providers"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sso_domains" ADD CONSTRAINT "sso_domains_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sso_providers" ADD CONSTRAINT "sso_providers_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_deliveries" ADD CONSTRAINT "webhook_deliveries_endpoint_id_webhook_endpoints_id_fk" FOREIGN KEY ("endpoint_id") REFERENCES "public"."webhook_endpoints"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_endpoints" ADD CONSTRAINT "webhook_endpoints_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_endpoints" ADD CONSTRAINT "webhook_endpoints_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_endpoints" ADD CONSTRAINT "webhook_endpoints_branch_id_branches_id_fk" FOREIGN KEY ("branch_id") REFERENCES "public"."branches"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_events" ADD CONSTRAINT "webhook_events_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "worker_images" ADD CONSTRAINT "worker_images_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "worker_tasks" ADD CONSTRAINT "worker_tasks_worker_id_workers_id_fk" FOREIGN KEY ("worker_id") REFERENCES "public"."workers"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "worker_uploads" ADD CONSTRAINT "worker_uploads_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workers" ADD CONSTRAINT "workers_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "action_run_logs_run" ON "action_run_logs" USING btree ("run_id","number");--> statement-breakpoint
CREATE INDEX "action_runs_of_branch" ON "action_runs" USING btree ("project_ref","created_at","id");--> statement-breakpoint
CREATE INDEX "action_runs_of_parent" ON "action_runs" USING btree ("parent_ref","created_at","id");--> statement-breakpoint
CREATE INDEX "action_runs_task" ON "action_runs" USING btree ("task_id");--> statement-breakpoint
CREATE UNIQUE INDEX "branches_name_once" ON "branches" USING btree ("parent_ref","name") WHERE removed_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "branches_project_once" ON "branches" USING btree ("project_ref") WHERE removed_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "branches_default_once" ON "branches" USING btree ("parent_ref") WHERE removed_at is null and is_default;--> statement-breakpoint
CREATE INDEX "branches_by_age" ON "branches" USING btree ("parent_ref","created_at","id") WHERE removed_at is null;--> statement-breakpoint
CREATE INDEX "branches_deletion_due" ON "branches" USING btree ("deletion_scheduled_at") WHERE removed_at is null and deletion_scheduled_at is not null;--> statement-breakpoint
CREATE INDEX "git_branches_due" ON "git_branches" USING btree ("due_at") WHERE due_at is not null;--> statement-breakpoint
CREATE INDEX "git_branches_run" ON "git_branches" USING btree ("run_id") WHERE run_id is not null;--> statement-breakpoint
CREATE INDEX "git_connections_of_organization" ON "git_connections" USING btree ("organization_id","project_ref");--> statement-breakpoint
CREATE INDEX "git_connections_of_repository" ON "git_connections" USING btree ("repository_id","installation_id");--> statement-breakpoint
CREATE INDEX "git_connections_user" ON "git_connections" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "git_deliveries_by_age" ON "git_deliveries" USING btree ("at");--> statement-breakpoint
CREATE INDEX "backups_by_age" ON "backups" USING btree ("project_ref","inserted_at","id");--> statement-breakpoint
CREATE INDEX "backups_removed" ON "backups" USING btree ("removed_at") WHERE removed_at is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "backups_restore_point_once" ON "backups" USING btree ("project_ref","name") WHERE kind = 'restore_point' and status in ('PENDING', 'COMPLETED');--> statement-breakpoint
CREATE INDEX "jit_grants_user" ON "jit_grants" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "project_settings_read_only" ON "project_settings" USING btree ("project_ref") WHERE area = 'readonly';--> statement-breakpoint
CREATE INDEX "project_settings_backup_due" ON "project_settings" USING btree ((value ->> 'due_at')) WHERE area = 'backup_schedule';--> statement-breakpoint
CREATE INDEX "snippet_favorites_user" ON "snippet_favorites" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "snippets_organization_by_age" ON "snippets" USING btree ("organization_id","visibility","inserted_at","id");--> statement-breakpoint
CREATE INDEX "snippets_organization_by_name" ON "snippets" USING btree ("organization_id","visibility","name","id");--> statement-breakpoint
CREATE INDEX "snippets_project_by_age" ON "snippets" USING btree ("project_ref","visibility","inserted_at","id");--> statement-breakpoint
CREATE INDEX "snippets_project_by_name" ON "snippets" USING btree ("project_ref","visibility","name","id");--> statement-breakpoint
CREATE INDEX "snippets_owner_by_age" ON "snippets" USING btree ("owner_id","visibility","inserted_at","id");--> statement-breakpoint
CREATE INDEX "snippets_owner_by_name" ON "snippets" USING btree ("owner_id","visibility","name","id");--> statement-breakpoint
CREATE INDEX "temporary_logins_project" ON "temporary_logins" USING btree ("project_ref","user_id");--> statement-breakpoint
CREATE INDEX "temporary_logins_due" ON "temporary_logins" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "temporary_logins_token" ON "temporary_logins" USING btree ("token_id");--> statement-breakpoint
CREATE UNIQUE INDEX "custom_hostnames_once" ON "custom_hostnames" USING btree ("hostname") WHERE status <> '2_initiated';--> statement-breakpoint
CREATE INDEX "function_deployments_unused" ON "function_deployments" USING btree ("unused_since") WHERE unused_since is not null;--> statement-breakpoint
CREATE INDEX "function_deployments_of_project" ON "function_deployments" USING btree ("project_ref");--> statement-breakpoint
CREATE UNIQUE INDEX "functions_slug_once" ON "functions" USING btree ("project_ref","slug");--> statement-breakpoint
CREATE INDEX "functions_deployment" ON "functions" USING btree ("deployment_id");--> statement-breakpoint
CREATE INDEX "invocations_of_project" ON "invocations" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "invocations_by_age" ON "invocations" USING btree ("at");--> statement-breakpoint
CREATE INDEX "access_tokens_user" ON "access_tokens" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "access_tokens_oauth_grant" ON "access_tokens" USING btree ("oauth_grant_id") WHERE oauth_grant_id is not null;--> statement-breakpoint
CREATE INDEX "access_tokens_oauth_expiry" ON "access_tokens" USING btree ("expires_at") WHERE oauth_grant_id is not null;--> statement-breakpoint
CREATE INDEX "invitations_email" ON "invitations" USING btree ("email");--> statement-breakpoint
CREATE INDEX "invitations_invited_by" ON "invitations" USING btree ("invited_by");--> statement-breakpoint
CREATE INDEX "member_roles_user" ON "member_roles" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "oauth_grants_of_user" ON "oauth_grants" USING btree ("app_id","user_id","organization_id");--> statement-breakpoint
CREATE INDEX "oauth_grants_approved_by" ON "oauth_grants" USING btree ("approved_by");--> statement-breakpoint
CREATE INDEX "oauth_grants_expiry" ON "oauth_grants" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "users_any_case_email" ON "users" USING btree (lower("primary_email"));--> statement-breakpoint
CREATE INDEX "api_keys_project" ON "api_keys" USING btree ("project_ref");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_hash_once" ON "api_keys" USING btree ("hash");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_name_once" ON "api_keys" USING btree ("project_ref","type","name") WHERE deleted_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_in_use" ON "signing_keys" USING btree ("project_ref") WHERE status = 'in_use';--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_standby" ON "signing_keys" USING btree ("project_ref") WHERE status = 'standby';--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_legacy" ON "signing_keys" USING btree ("project_ref") WHERE is_legacy;--> statement-breakpoint
CREATE INDEX "third_party_auths_project" ON "third_party_auths" USING btree ("project_ref","inserted_at");--> statement-breakpoint
CREATE INDEX "third_party_auths_refresh" ON "third_party_auths" USING btree ((refresh_error is not null),"refresh_at") WHERE refresh_at is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "log_drains_name_once" ON "log_drains" USING btree ("project_ref","name") WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "log_drains_deleted" ON "log_drains" USING btree ("deleted_at") WHERE deleted_at is not null;--> statement-breakpoint
CREATE INDEX "notebook_favorites_user" ON "notebook_favorites" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "notebooks_by_age" ON "notebooks" USING btree ("project_ref","inserted_at","id");--> statement-breakpoint
CREATE INDEX "notebooks_by_name" ON "notebooks" USING btree ("project_ref","name","id");--> statement-breakpoint
CREATE INDEX "notebooks_owner" ON "notebooks" USING btree ("owner_id");--> statement-breakpoint
CREATE INDEX "notebooks_updated_by" ON "notebooks" USING btree ("updated_by_id");--> statement-breakpoint
CREATE INDEX "assertion_issuers_issuer" ON "assertion_issuers" USING btree ("issuer");--> statement-breakpoint
CREATE INDEX "used_assertions_expiry" ON "used_assertions" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "postgres_logs_of_project" ON "postgres_logs" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "postgres_logs_by_age" ON "postgres_logs" USING btree ("at");--> statement-breakpoint
CREATE UNIQUE INDEX "private_link_associations_once" ON "private_link_associations" USING btree ("project_ref","database_identifier","aws_account_id") WHERE status <> 'DELETING';--> statement-breakpoint
CREATE INDEX "private_link_associations_of_project" ON "private_link_associations" USING btree ("project_ref","created_at","id");--> statement-breakpoint
CREATE INDEX "private_link_associations_due" ON "private_link_associations" USING btree ("due_at") WHERE due_at is not null;--> statement-breakpoint
CREATE INDEX "audit_log_organization" ON "audit_log" USING btree ("organization_id","created_at");--> statement-breakpoint
CREATE INDEX "audit_log_time" ON "audit_log" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "project_claim_tokens_created_by" ON "project_claim_tokens" USING btree ("created_by");--> statement-breakpoint
CREATE INDEX "project_claim_tokens_access_token" ON "project_claim_tokens" USING btree ("access_token_id");--> statement-breakpoint
CREATE INDEX "project_claim_tokens_oauth_grant" ON "project_claim_tokens" USING btree ("oauth_grant_id");--> statement-breakpoint
CREATE UNIQUE INDEX "project_tasks_one_open" ON "project_tasks" USING btree ("project_ref") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "project_tasks_due" ON "project_tasks" USING btree ("due_at") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE UNIQUE INDEX "projects_name_once" ON "projects" USING btree ("organization_id","name") WHERE removed_at is null and status <> 'GOING_DOWN' and parent_ref is null;--> statement-breakpoint
CREATE INDEX "projects_parent" ON "projects" USING btree ("parent_ref") WHERE parent_ref is not null and removed_at is null;--> statement-breakpoint
CREATE INDEX "projects_removed" ON "projects" USING btree ("removed_at") WHERE removed_at is not null;--> statement-breakpoint
CREATE INDEX "projects_by_name" ON "projects" USING btree ("organization_id","name","ref") WHERE removed_at is null;--> statement-breakpoint
CREATE INDEX "projects_by_age" ON "projects" USING btree ("organization_id","created_at","ref") WHERE removed_at is null;--> statement-breakpoint
CREATE INDEX "projects_storage_sweep" ON "projects" USING btree ("storage_sweep_due_at") WHERE removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY');--> statement-breakpoint
CREATE INDEX "projects_storage_sweep_removed" ON "projects" USING btree ("storage_sweep_due_at") WHERE removed_at is not null and storage_sweep_due_at is not null;--> statement-breakpoint
CREATE INDEX "projects_preparation" ON "projects" USING btree ("preparation","preparation_due_at") WHERE removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY');--> statement-breakpoint
CREATE INDEX "projects_name_search" ON "projects" USING gin ("name" gin_trgm_ops);--> statement-breakpoint
CREATE UNIQUE INDEX "sso_domains_once" ON "sso_domains" USING btree ("project_ref","domain");--> statement-breakpoint
CREATE INDEX "sso_domains_provider" ON "sso_domains" USING btree ("provider_id","created_at");--> statement-breakpoint
CREATE INDEX "sso_providers_project" ON "sso_providers" USING btree ("project_ref","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "sso_providers_entity_once" ON "sso_providers" USING btree ("project_ref","entity_id");--> statement-breakpoint
CREATE INDEX "storage_requests_of_project" ON "storage_requests" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "storage_requests_by_age" ON "storage_requests" USING btree ("at");--> statement-breakpoint
CREATE INDEX "request_counts_by_age" ON "request_counts" USING btree ("minute");--> statement-breakpoint
CREATE INDEX "webhook_deliveries_log" ON "webhook_deliveries" USING btree ("endpoint_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "webhook_deliveries_one_pending" ON "webhook_deliveries" USING btree ("message_id") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_asked" ON "webhook_deliveries" USING btree ("endpoint_id","next_at") WHERE status = 'pending' and asked;--> statement-breakpoint
CREATE INDEX "webhook_deliveries_due" ON "webhook_deliveries" USING btree ("endpoint_id",(attempt > 1),"next_at") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_endpoints_organization" ON "webhook_endpoints" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "webhook_endpoints_project" ON "webhook_endpoints" USING btree ("project_ref","id");--> statement-breakpoint
CREATE INDEX "webhook_endpoints_of_organization" ON "webhook_endpoints" USING btree ("organization_id") WHERE project_ref is null;--> statement-breakpoint
CREATE UNIQUE INDEX "webhook_endpoints_branch" ON "webhook_endpoints" USING btree ("branch_id");--> statement-breakpoint
CREATE INDEX "worker_images_by_age" ON "worker_images" USING btree ("touched_at");--> statement-breakpoint
CREATE UNIQUE INDEX "worker_tasks_one_open" ON "worker_tasks" USING btree ("worker_id") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "worker_tasks_due" ON "worker_tasks" USING btree ("due_at") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "worker_tasks_of_worker" ON "worker_tasks" USING btree ("worker_id");--> statement-breakpoint
CREATE INDEX "worker_tasks_of_upload" ON "worker_tasks" USING btree ("upload_id") WHERE state in ('pending', 'running');--> statement-breakpoint
CREATE INDEX "worker_uploads_expired" ON "worker_uploads" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "worker_uploads_of_project" ON "worker_uploads" USING btree ("project_ref");--> statement-breakpoint
CREATE UNIQUE INDEX "workers_name_once" ON "workers" USING btree ("project_ref","name") WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "workers_of_project" ON "workers" USING btree ("project_ref");--> statement-breakpoint
CREATE INDEX "workers_cron_due" ON "workers" USING btree ("cron_due_at") WHERE cron_due_at is not null;
--> statement-breakpoint
-- organizations.project_count follows the projects that exist, once a statement and not once a row.
CREATE FUNCTION projects_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    UPDATE organizations o SET project_count = o.project_count + n.added
      FROM (SELECT organization_id, count(*) AS added FROM new_rows WHERE removed_at IS NULL GROUP BY 1) n
      WHERE o.id = n.organization_id;
  ELSE
    UPDATE organizations o SET project_count = o.project_count + n.added
      FROM (
        SELECT organization_id, sum(change) AS added FROM (
          SELECT organization_id, 1 AS change FROM new_rows WHERE removed_at IS NULL
          UNION ALL
          SELECT organization_id, -1 FROM old_rows WHERE removed_at IS NULL
        ) changes GROUP BY 1 HAVING sum(change) <> 0
      ) n
      WHERE o.id = n.organization_id;
  END IF;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER projects_inserted AFTER INSERT ON projects
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION projects_counted();
--> statement-breakpoint
CREATE TRIGGER projects_updated AFTER UPDATE ON projects
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION projects_counted();
--> statement-breakpoint
-- What is logged of a project goes to each of its drains too: an entry beside it, in the same transaction.
CREATE FUNCTION drain_calls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, last_line, rows, bytes)
    SELECT d.id, 'call', n.id, l.count, 2 + l.count,
      500 * (2 + l.count) + 6 * octet_length(n.path) + octet_length(n.console::text)
    FROM new_rows n JOIN log_drains d ON d.project_ref = n.project_ref AND d.deleted_at IS NULL
      CROSS JOIN LATERAL (SELECT jsonb_array_length(n.console) AS count) l
    ORDER BY n.at;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER invocations_drained AFTER INSERT ON invocations
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION drain_calls();
--> statement-breakpoint
CREATE FUNCTION drain_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, first_line, last_line, rows, bytes)
    SELECT d.id, 'lines', n.id, l.before, l.after, l.after - l.before,
      500 * (l.after - l.before) + octet_length(n.console::text) - octet_length(o.console::text)
    FROM new_rows n JOIN log_drains d ON d.project_ref = n.project_ref AND d.deleted_at IS NULL
      JOIN old_rows o ON o.id = n.id
      CROSS JOIN LATERAL (SELECT jsonb_array_length(o.console) AS before, jsonb_array_length(n.console) AS after) l
    WHERE l.after > l.before
    ORDER BY n.at;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER invocations_lines_drained AFTER UPDATE ON invocations
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION drain_lines();
--> statement-breakpoint
CREATE FUNCTION drain_build() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, rows, bytes)
    SELECT d.id, 'build', NEW.id, 1, 500 + coalesce(octet_length(NEW.last_error), 0)
    FROM workers w JOIN log_drains d ON d.project_ref = w.project_ref AND d.deleted_at IS NULL
    WHERE w.id = NEW.worker_id;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER worker_tasks_inserted_drained AFTER INSERT ON worker_tasks
  FOR EACH ROW WHEN (NEW.kind = 'build' AND NEW.state IN ('done', 'failed')) EXECUTE FUNCTION drain_build();
--> statement-breakpoint
CREATE TRIGGER worker_tasks_ended_drained AFTER UPDATE OF state ON worker_tasks
  FOR EACH ROW WHEN (NEW.kind = 'build' AND NEW.state IN ('done', 'failed') AND OLD.state NOT IN ('done', 'failed'))
  EXECUTE FUNCTION drain_build();
--> statement-breakpoint
CREATE FUNCTION drain_run_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, rows, bytes)
    SELECT d.id, 'run_line', n.id, 1, 500 + octet_length(n.line)
    FROM new_rows n JOIN action_runs r ON r.id = n.run_id
      JOIN log_drains d ON d.project_ref IN (r.parent_ref, r.project_ref) AND d.deleted_at IS NULL
    ORDER BY n.number;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER action_run_logs_drained AFTER INSERT ON action_run_logs
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION drain_run_lines();
--> statement-breakpoint
-- Messages of Postgres go to each drain of their project, as other logs do.
CREATE FUNCTION drain_postgres_logs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, rows, bytes)
    SELECT d.id, 'postgres_log', n.id, 1, 500 + octet_length(n.message) + octet_length(n.attributes::text)
    FROM new_rows n JOIN log_drains d ON d.project_ref = n.project_ref AND d.deleted_at IS NULL
    ORDER BY n.at, n.id;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER postgres_logs_drained AFTER INSERT ON postgres_logs
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION drain_postgres_logs();
--> statement-breakpoint
-- Requests to storage go to each drain of their project, as other logs do: a row of `edge_logs` and one of `storage_logs`.
CREATE FUNCTION drain_storage_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, rows, bytes)
    SELECT d.id, 'storage_request', n.id, 2, 1000 + 6 * octet_length(n.path)
    FROM new_rows n JOIN log_drains d ON d.project_ref = n.project_ref AND d.deleted_at IS NULL
    ORDER BY n.at, n.id;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER storage_requests_drained AFTER INSERT ON storage_requests
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION drain_storage_requests();
