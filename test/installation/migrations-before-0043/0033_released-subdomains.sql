CREATE TABLE "released_subdomains" (
	"subdomain" text PRIMARY KEY NOT NULL,
	"project_ref" text NOT NULL,
	"released_at" timestamp (3) with time zone NOT NULL
);
