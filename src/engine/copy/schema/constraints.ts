import { quoteLiterals } from '../../names.ts'
import { SERVER_TABLES } from '../../storage/names.ts'
import { idOf, SCHEMAS, SCHEMAS_AND_STORAGE, standsAlone } from './scope.ts'

/** What holds for rows that are there is not proved again, and a proof would run the owner's code: see `validated`. */
const UNPROVED = `CASE WHEN convalidated AND contype IN ('c', 'f', 'n')
  AND NOT (contype = 'f' AND relkind = 'p' AND current_setting('server_version_num')::int < 180000) THEN ' NOT VALID' ELSE '' END`

/** In the `storage` schema, whose tables come with the template, all but what the template has. */
const NEW = (catalogue: string, table: string, name: string) =>
  `NOT (${table}::regclass::text IN ('storage.objects', 'storage.buckets') AND ${catalogue} || ' ' || ${name} = ANY ($1))`

/** Those of columns that the copy does not have, as the owner added them to the template's tables. */
const OF_LEFT_OUT = `conrelid::regclass::text IN ('storage.objects', 'storage.buckets') AND EXISTS (
  SELECT FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY (conkey)
     AND 'column ' || conrelid::regclass || '.' || attname <> ALL ($1))`

export const tableConstraints = `
  SELECT ${idOf('pg_constraint', 'k.oid')} AS id, array_remove(ARRAY[
      format('ALTER TABLE %s%s ADD CONSTRAINT %I %s%s', CASE WHEN contype IN ('p', 'u', 'x') THEN 'ONLY ' ELSE '' END,
        conrelid::regclass, conname, pg_get_constraintdef(k.oid), ${UNPROVED})]
      || (SELECT format('ALTER INDEX %s SET (%s)', i.oid::regclass, array_to_string(i.reloptions, ', '))
            FROM pg_class AS i WHERE i.oid = conindid AND i.reloptions IS NOT NULL AND contype IN ('p', 'u', 'x')), NULL) AS statements
    FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = conrelid
   WHERE (contype IN ('p', 'u', 'x') OR (contype = 'c' AND conislocal) OR (contype = 'f' AND conparentid = 0)
       OR (contype = 'n' AND conislocal AND NOT convalidated))
     AND relkind IN ('r', 'p') AND relnamespace IN ${SCHEMAS_AND_STORAGE} AND ${standsAlone('pg_class', 'c.oid')}
     AND ${NEW(`'constraint'`, 'conrelid', 'conname')} AND NOT (${OF_LEFT_OUT})
     AND conrelid::regclass::text NOT IN (${quoteLiterals(SERVER_TABLES)})`

export const domainConstraints = `
  SELECT ${idOf('pg_constraint', 'k.oid')} AS id, ARRAY[format('ALTER DOMAIN %s ADD CONSTRAINT %I %s%s', format_type(contypid, NULL), conname,
      pg_get_constraintdef(k.oid), CASE WHEN convalidated THEN ' NOT VALID' ELSE '' END)] AS statements
    FROM pg_constraint AS k JOIN pg_type AS t ON t.oid = contypid
   WHERE contype = 'c' AND typnamespace IN ${SCHEMAS} AND ${standsAlone('pg_type', 't.oid')}`

export const indexes = `
  SELECT ${idOf('pg_class', 'i.oid')} AS id, array_remove(
      ARRAY[CASE WHEN NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.oid AND contype IN ('p', 'u', 'x'))
        THEN pg_get_indexdef(i.oid) END]
      || (SELECT array_agg(format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', i.oid::regclass, attnum, attstattarget))
            FROM pg_attribute WHERE attrelid = i.oid AND attstattarget >= 0)
      || CASE WHEN indisclustered THEN format('ALTER TABLE %s CLUSTER ON %I', indrelid::regclass, i.relname) END
      || CASE WHEN indisreplident THEN format('ALTER TABLE ONLY %s REPLICA IDENTITY USING INDEX %I', indrelid::regclass, i.relname) END,
      NULL) AS statements
    FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid JOIN pg_class AS c ON c.oid = indrelid
   WHERE (indisvalid OR i.relkind = 'I') AND c.relkind IN ('r', 'p', 'm') AND c.relnamespace IN ${SCHEMAS}
     AND c.relpersistence <> 't' AND ${standsAlone('pg_class', 'c.oid')}`

/** An index of a partitioned table is made empty and takes those of its partitions in, under the names that they have. */
export const indexPartitions = `
  SELECT 'attach:' || inhrelid AS id, ARRAY[format('ALTER INDEX %s ATTACH PARTITION %s', inhparent::regclass, inhrelid::regclass)] AS statements
    FROM pg_inherits JOIN pg_class AS i ON i.oid = inhrelid WHERE relkind IN ('i', 'I') AND relnamespace IN ${SCHEMAS}`

export const triggers = `
  SELECT ${idOf('pg_trigger', 't.oid')} AS id, array_remove(ARRAY[pg_get_triggerdef(t.oid), CASE WHEN tgenabled <> 'O' THEN
      format('ALTER TABLE %s %s TRIGGER %I', tgrelid::regclass,
        CASE tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, tgname) END], NULL) AS statements
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = tgrelid
   WHERE NOT tgisinternal AND tgparentid = 0 AND relnamespace IN ${SCHEMAS_AND_STORAGE} AND ${standsAlone('pg_class', 'c.oid')}
     AND ${standsAlone('pg_trigger', 't.oid')} AND ${NEW(`'trigger'`, 'tgrelid', 'tgname')}`

export const rules = `
  SELECT ${idOf('pg_rewrite', 'r.oid')} AS id, array_remove(ARRAY[pg_get_ruledef(r.oid), CASE WHEN ev_enabled <> 'O' THEN
      format('ALTER TABLE %s %s RULE %I', ev_class::regclass,
        CASE ev_enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, rulename) END], NULL) AS statements
    FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = ev_class
   WHERE rulename <> '_RETURN' AND relnamespace IN ${SCHEMAS_AND_STORAGE} AND ${standsAlone('pg_class', 'c.oid')}`
