CREATE TABLE "request_counts" (
	"project_ref" text NOT NULL,
	"minute" timestamp (3) with time zone NOT NULL,
	"service" text NOT NULL,
	"requests" integer NOT NULL,
	CONSTRAINT "request_counts_project_ref_minute_service_pk" PRIMARY KEY("project_ref","minute","service")
);
--> statement-breakpoint
CREATE INDEX "request_counts_by_age" ON "request_counts" USING btree ("minute");