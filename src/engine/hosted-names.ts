/** The role that migrations written for the hosted service use as owner and grant rights to. */
export const APP_OWNER = 'postgres'

/** Creates the publication to which migrations of apps add tables. */
export const REALTIME_PUBLICATION = `DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime') THEN CREATE PUBLICATION supabase_realtime; END IF;
END $$`
