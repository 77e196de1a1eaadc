/** The role that migrations written for the hosted service make the owner of what they create, and grant rights to. */
export const APP_OWNER = 'postgres'

/** Migrations of apps add tables to it, for a server that follows changes. */
export const REALTIME_PUBLICATION = `DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime') THEN CREATE PUBLICATION supabase_realtime; END IF;
END $$`
