import { UUID } from '../../platform/identifiers.ts'
import { INTERNAL_SCHEMA, STORAGE_OWNER } from './names.ts'

/**
 * SQL for the table of versions whose bytes are to be deleted. Triggers add a version in the transaction that removes the row
 * which refers to it. They run as a role without other rights and must not call a tenant's code. A cast of a changed column
 * type could do so: therefore they check the type first, and read rows of `storage.objects` as the caller.
 */
export function removedVersions(server: string): string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${INTERNAL_SCHEMA}.removed_versions (
       version text COLLATE "C" PRIMARY KEY, removed_at timestamptz NOT NULL DEFAULT now())`,
    `ALTER TABLE ${INTERNAL_SCHEMA}.removed_versions OWNER TO ${STORAGE_OWNER}`,
    `GRANT SELECT, INSERT, DELETE ON ${INTERNAL_SCHEMA}.removed_versions TO ${server}`,

    definerFunction(
      'remember_removed(versions text[])',
      'void',
      `INSERT INTO ${INTERNAL_SCHEMA}.removed_versions (version)
         SELECT version FROM unnest(versions) AS version WHERE version ~ '${UUID.source}' ON CONFLICT DO NOTHING;`,
    ),
    `GRANT EXECUTE ON FUNCTION storage.remember_removed(text[]) TO pg_database_owner, service_role, ${server}`,
    definerFunction(
      'remember_deleted()',
      'trigger',
      `IF (SELECT atttypid = 'text'::regtype FROM pg_attribute WHERE attrelid = TG_RELID AND attname = 'version') THEN
         INSERT INTO ${INTERNAL_SCHEMA}.removed_versions (version)
           SELECT version FROM deleted WHERE version ~ '${UUID.source}' ON CONFLICT DO NOTHING;
       END IF;
       RETURN NULL;`,
    ),
    definerFunction(
      'remember_replaced()',
      'trigger',
      `IF pg_typeof(OLD.version) = 'text'::regtype THEN
         PERFORM storage.remember_removed(ARRAY[OLD.version]);
       END IF;
       RETURN NULL;`,
    ),
    `CREATE OR REPLACE FUNCTION storage.remember_truncated() RETURNS trigger LANGUAGE plpgsql SET row_security = off AS $$
     BEGIN
       PERFORM storage.remember_removed(array_agg(version))
         FROM (SELECT version, row_number() OVER () / 10000 AS slice FROM storage.objects) AS truncated GROUP BY slice;
       RETURN NULL;
     END $$`,
    `ALTER FUNCTION storage.remember_truncated() OWNER TO ${STORAGE_OWNER}`,
    `CREATE OR REPLACE FUNCTION storage.update_updated_at_column() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN NEW.updated_at = now(); RETURN NEW; END $$`,
    `ALTER FUNCTION storage.update_updated_at_column() OWNER TO ${STORAGE_OWNER}`,

    `CREATE OR REPLACE TRIGGER remember_deleted AFTER DELETE ON storage.objects REFERENCING OLD TABLE AS deleted
       FOR EACH STATEMENT EXECUTE FUNCTION storage.remember_deleted()`,
    `CREATE OR REPLACE TRIGGER remember_replaced AFTER UPDATE ON storage.objects FOR EACH ROW
       WHEN (OLD.version IS DISTINCT FROM NEW.version) EXECUTE FUNCTION storage.remember_replaced()`,
    `CREATE OR REPLACE TRIGGER remember_truncated BEFORE TRUNCATE ON storage.objects
       FOR EACH STATEMENT EXECUTE FUNCTION storage.remember_truncated()`,
    `CREATE OR REPLACE TRIGGER update_objects_updated_at
       BEFORE UPDATE OF bucket_id, name, owner, owner_id, metadata, user_metadata, version ON storage.objects
       FOR EACH ROW EXECUTE FUNCTION storage.update_updated_at_column()`,
  ]
}

/** SQL for a SECURITY DEFINER function. Only its owner may call it or use it as a trigger, until EXECUTE is granted to others. */
function definerFunction(signature: string, returns: string, body: string): string {
  const types = signature.replace('versions ', '')
  return [
    `CREATE OR REPLACE FUNCTION storage.${signature} RETURNS ${returns} LANGUAGE plpgsql
       SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ BEGIN ${body} END $$`,
    `REVOKE ALL ON FUNCTION storage.${types} FROM PUBLIC`,
    `ALTER FUNCTION storage.${types} OWNER TO ${STORAGE_OWNER}`,
  ].join('; ')
}
