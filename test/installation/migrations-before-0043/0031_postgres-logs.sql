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
CREATE INDEX "postgres_logs_of_project" ON "postgres_logs" USING btree ("project_ref","at");--> statement-breakpoint
CREATE INDEX "postgres_logs_by_age" ON "postgres_logs" USING btree ("at");
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
