DROP INDEX "action_runs_of_branch";--> statement-breakpoint
DROP INDEX "action_runs_of_parent";--> statement-breakpoint
CREATE INDEX "action_runs_of_branch" ON "action_runs" USING btree ("project_ref","created_at","id");--> statement-breakpoint
CREATE INDEX "action_runs_of_parent" ON "action_runs" USING btree ("parent_ref","created_at","id");