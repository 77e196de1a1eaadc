ALTER TABLE "temporary_logins" ADD COLUMN "failed_at" timestamp (3) with time zone;--> statement-breakpoint
CREATE INDEX "project_tasks_upgrades" ON "project_tasks" USING btree ("project_ref","created_at") WHERE kind = 'upgrade';--> statement-breakpoint
UPDATE "action_runs" AS "run" SET "kept" = NULL
  WHERE "kept" IS NOT NULL AND (
    NOT EXISTS (SELECT FROM "branches" AS "branch" WHERE "branch"."project_ref" = "run"."project_ref" AND "branch"."removed_at" IS NULL)
    OR EXISTS (SELECT FROM "action_runs" AS "later" WHERE "later"."project_ref" = "run"."project_ref" AND "later"."kept" IS NOT NULL
      AND ("later"."created_at", "later"."id") > ("run"."created_at", "run"."id")));
