DROP INDEX "third_party_auths_refresh";--> statement-breakpoint
CREATE INDEX "api_keys_project" ON "api_keys" USING btree ("project_ref");--> statement-breakpoint
CREATE INDEX "third_party_auths_refresh" ON "third_party_auths" USING btree ((refresh_error is not null),"refresh_at") WHERE refresh_at is not null;