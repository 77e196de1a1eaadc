CREATE INDEX "backups_completed" ON "backups" USING btree ("inserted_at") WHERE status = 'COMPLETED';--> statement-breakpoint
CREATE INDEX "snippets_updated_by" ON "snippets" USING btree ("updated_by_id");--> statement-breakpoint
CREATE INDEX "temporary_logins_user" ON "temporary_logins" USING btree ("user_id") WHERE user_id is not null;--> statement-breakpoint
CREATE INDEX "access_tokens_oauth_app" ON "access_tokens" USING btree ("oauth_app_id") WHERE oauth_app_id is not null;--> statement-breakpoint
CREATE INDEX "access_tokens_organization" ON "access_tokens" USING btree ("organization_id") WHERE organization_id is not null;--> statement-breakpoint
CREATE INDEX "oauth_apps_organization" ON "oauth_apps" USING btree ("organization_id");--> statement-breakpoint
CREATE INDEX "oauth_grants_user" ON "oauth_grants" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "oauth_grants_organization" ON "oauth_grants" USING btree ("organization_id");--> statement-breakpoint
CREATE INDEX "webhook_events_organization" ON "webhook_events" USING btree ("organization_id");