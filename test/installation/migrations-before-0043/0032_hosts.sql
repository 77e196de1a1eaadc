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
