import { collate, idOf, options, SCHEMAS, standsAlone } from './scope.ts'

const COLUMNS = `(
  SELECT string_agg(format('%I %s%s%s%s', attname, format_type(atttypid, atttypmod), ${collate('attcollation', 'typcollation')},
      CASE WHEN attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%s) %s', pg_get_expr(adbin, adrelid),
        CASE attgenerated WHEN 'v' THEN 'VIRTUAL' ELSE 'STORED' END) ELSE '' END,
      -- Since Postgres 18 these are constraints with names of their own.
      CASE WHEN attnotnull AND current_setting('server_version_num')::int < 180000 THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY attnum)
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
   WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND (attislocal OR c.relispartition))`

const NOT_NULLS = `(
  SELECT string_agg(format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)), ', ' ORDER BY conname)
    FROM pg_constraint WHERE conrelid = c.oid AND contype = 'n' AND convalidated AND (conislocal OR c.relispartition))`

const INHERITS = `(SELECT ' INHERITS (' || string_agg(inhparent::regclass::text, ', ' ORDER BY inhseqno) || ')'
    FROM pg_inherits WHERE inhrelid = c.oid AND NOT c.relispartition)`

const STORAGE_OPTIONS = `(' WITH (' || nullif(concat_ws(', ', ${options('c.reloptions')}, ${options('toast.reloptions', 'toast.')}), '') || ')')`

/** What of a column no CREATE TABLE says, or says in another way from version to version. */
const COLUMN_CHANGES = `(
  SELECT array_agg(format('ALTER TABLE ONLY %s ALTER COLUMN %I %s', c.oid::regclass, attname, change) ORDER BY attnum, change)
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid, LATERAL unnest(ARRAY[
      CASE WHEN attstorage <> typstorage THEN 'SET STORAGE ' || CASE attstorage
        WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END,
      CASE attcompression WHEN 'p' THEN 'SET COMPRESSION pglz' WHEN 'l' THEN 'SET COMPRESSION lz4' END,
      CASE WHEN attstattarget >= 0 THEN 'SET STATISTICS ' || attstattarget END,
      'SET (' || ${options('attoptions')} || ')']) AS change
   WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND change IS NOT NULL)`

const SEQUENCE_OPTIONS = `format('INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s%s',
  seqincrement, seqmin, seqmax, seqstart, seqcache, CASE WHEN seqcycle THEN ' CYCLE' ELSE '' END)`

const IDENTITIES = `(
  SELECT array_agg(format('ALTER TABLE %s ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (SEQUENCE NAME %s %s)', c.oid::regclass,
      attname, CASE attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, seqrelid::regclass, ${SEQUENCE_OPTIONS}) ORDER BY attnum)
    FROM pg_attribute JOIN pg_depend ON refclassid = 'pg_class'::regclass AND refobjid = attrelid AND refobjsubid = attnum
      AND classid = 'pg_class'::regclass AND deptype = 'i'
    JOIN pg_sequence ON seqrelid = objid
   WHERE attrelid = c.oid AND attidentity <> '' AND NOT attisdropped AND NOT c.relispartition)`

const UNLOGGED = `CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END`

export const tables = `
  SELECT ${idOf('pg_class', 'c.oid')} AS id, array_remove(
      ARRAY[format('CREATE %sTABLE %s (%s)%s%s%s', ${UNLOGGED}, c.oid::regclass, concat_ws(', ', ${COLUMNS}, ${NOT_NULLS}),
        ${INHERITS}, ' PARTITION BY ' || pg_get_partkeydef(c.oid), ${STORAGE_OPTIONS})]
      || ${COLUMN_CHANGES} || ${IDENTITIES}
      || CASE WHEN c.reloftype <> 0 THEN format('ALTER TABLE %s OF %s', c.oid::regclass, format_type(c.reloftype, NULL)) END
      || (SELECT format('ALTER TABLE ONLY %s ATTACH PARTITION %s %s', inhparent::regclass, c.oid::regclass,
            pg_get_expr(c.relpartbound, c.oid)) FROM pg_inherits WHERE inhrelid = c.oid AND c.relispartition), NULL) AS statements
    FROM pg_class AS c LEFT JOIN pg_class AS toast ON toast.oid = c.reltoastrelid
   WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND c.relnamespace IN ${SCHEMAS} AND ${standsAlone('pg_class', 'c.oid')}`

/** Of columns that are not generated, and of views. */
export const defaults = `
  SELECT ${idOf('pg_attrdef', 'a.oid')} AS id, ARRAY[format('ALTER TABLE %s%s ALTER COLUMN %I SET DEFAULT %s',
      CASE WHEN relkind = 'v' THEN '' ELSE 'ONLY ' END, c.oid::regclass, attname, pg_get_expr(adbin, adrelid))] AS statements
    FROM pg_attrdef AS a JOIN pg_class AS c ON c.oid = adrelid JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
   WHERE attgenerated = '' AND c.relpersistence <> 't' AND relnamespace IN ${SCHEMAS} AND ${standsAlone('pg_class', 'c.oid')}`

export const sequences = `
  SELECT ${idOf('pg_class', 'c.oid')} AS id, array_remove(
      ARRAY[format('CREATE %sSEQUENCE %s AS %s %s', ${UNLOGGED}, c.oid::regclass, format_type(seqtypid, NULL), ${SEQUENCE_OPTIONS})]
      || (SELECT format('ALTER SEQUENCE %s OWNED BY %s.%I', c.oid::regclass, attrelid::regclass, attname)
            FROM pg_depend JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
           WHERE classid = 'pg_class'::regclass AND objid = c.oid AND refclassid = 'pg_class'::regclass AND deptype = 'a'), NULL)
      AS statements
    FROM pg_class AS c JOIN pg_sequence ON seqrelid = c.oid
   WHERE c.relpersistence <> 't' AND relnamespace IN ${SCHEMAS} AND ${standsAlone('pg_class', 'c.oid')}`

export const views = `
  SELECT ${idOf('pg_class', 'c.oid')} AS id, ARRAY[format('CREATE %sVIEW %s%s AS %s%s',
      CASE relkind WHEN 'm' THEN 'MATERIALIZED ' ELSE '' END, c.oid::regclass, ' WITH (' || ${options('reloptions')} || ')',
      rtrim(pg_get_viewdef(c.oid), ';'), CASE relkind WHEN 'm' THEN ' WITH NO DATA' ELSE '' END)]
      || coalesce(${COLUMN_CHANGES}, '{}') AS statements
    FROM pg_class AS c
   WHERE relkind IN ('v', 'm') AND relpersistence <> 't' AND relnamespace IN ${SCHEMAS} AND ${standsAlone('pg_class', 'c.oid')}`
