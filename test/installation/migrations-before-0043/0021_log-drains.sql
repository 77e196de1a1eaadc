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
ALTER TABLE "log_drains" ADD CONSTRAINT "log_drains_project_ref_projects_ref_fk" FOREIGN KEY ("project_ref") REFERENCES "public"."projects"("ref") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "log_drains_name_once" ON "log_drains" USING btree ("project_ref","name") WHERE deleted_at is null;--> statement-breakpoint
CREATE INDEX "log_drains_deleted" ON "log_drains" USING btree ("deleted_at") WHERE deleted_at is not null;
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
