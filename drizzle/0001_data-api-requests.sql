CREATE TABLE "data_api_requests" (
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
CREATE INDEX "data_api_requests_of_project" ON "data_api_requests" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "data_api_requests_by_age" ON "data_api_requests" USING btree ("at");--> statement-breakpoint
-- Requests to Data APIs go to each drain of their project, as other logs do.
CREATE FUNCTION drain_data_api_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO log_drain_entries (drain_id, kind, record_id, rows, bytes)
    SELECT d.id, 'data_api_request', n.id, 1, 500 + 3 * octet_length(n.path)
    FROM new_rows n JOIN log_drains d ON d.project_ref = n.project_ref AND d.deleted_at IS NULL
    ORDER BY n.at, n.id;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER data_api_requests_drained AFTER INSERT ON data_api_requests
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION drain_data_api_requests();
