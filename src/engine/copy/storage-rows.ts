import { quoteLiterals } from '../names.ts'
import type { Session } from '../session.ts'
import { SERVER_TABLES } from '../storage/names.ts'
import type { Copy } from './copy.ts'
import { asRunner, withSession } from './sessions.ts'

/**
 * An object's bytes stay with the parent, so its row does not come along either, save where a foreign key of the project's
 * own tables points at it: SQL for the condition, over `storage.objects AS o`.
 */
export const REFERENCED_OBJECTS = `(
  SELECT coalesce(string_agg(format('EXISTS (SELECT FROM %s AS r WHERE %s)', conrelid::regclass, pairs), ' OR '), 'false')
    FROM pg_constraint, LATERAL (
      SELECT string_agg(format('r.%I = o.%I', theirs.attname, ours.attname), ' AND ') AS pairs
        FROM unnest(conkey, confkey) AS k (their, our)
        JOIN pg_attribute AS theirs ON theirs.attrelid = conrelid AND theirs.attnum = k.their
        JOIN pg_attribute AS ours ON ours.attrelid = confrelid AND ours.attnum = k.our) AS k
   WHERE contype = 'f' AND confrelid = to_regclass('storage.objects') AND conrelid <> confrelid AND conparentid = 0)`

const EMPTY_OBJECTS = `DO $do$
  BEGIN
    IF to_regclass('storage.objects') IS NOT NULL THEN
      EXECUTE 'DELETE FROM ONLY storage.objects AS o WHERE NOT (' || ${REFERENCED_OBJECTS} || ')';
    END IF;
  END $do$`

/** A parent of an older version lacks some. */
const TRUNCATE_SERVER_TABLES = `DO $do$
  DECLARE tables text := (SELECT string_agg(name, ', ') FROM unnest(ARRAY[${quoteLiterals(SERVER_TABLES)}]) AS name
    WHERE to_regclass(name) IS NOT NULL);
  BEGIN
    IF tables IS NOT NULL THEN EXECUTE 'TRUNCATE ' || tables; END IF;
  END $do$`

const FLAGS = 'relhastriggers, relhasrules'

/**
 * In a clone. No trigger or rule sees the rows go, but casts, and functions in indexes, run even when a query is only planned:
 * never in the superuser's session, which is `inside`.
 */
export async function emptyStorage(copy: Copy, inside: Session): Promise<void> {
  const { admin, to } = copy
  const [flags] = await inside.rows<{ text: string }>(
    `SELECT format('(%L, %L)', ${FLAGS}) AS text FROM pg_class WHERE oid = to_regclass('storage.objects')`,
  )
  const setFlags = (row: string) =>
    inside.rows(`UPDATE pg_class SET (${FLAGS}) = ${row} WHERE oid = to_regclass('storage.objects')`)
  if (flags) await setFlags('(false, false)')
  await admin.rows(`ALTER ROLE ${to.runner} BYPASSRLS`)
  await withSession(asRunner(copy), (runner) => runner.rows(EMPTY_OBJECTS))
  await admin.rows(`ALTER ROLE ${to.runner} NOBYPASSRLS`)
  if (flags) await setFlags(flags.text)
  await inside.rows(TRUNCATE_SERVER_TABLES)
}
