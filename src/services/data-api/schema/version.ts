import { SCHEMA_CHANGES } from '../../../engine/storage/schema-changes.ts'

/**
 * SQL of a text that changes with every change of the schema and of the settings. Each request compares it with that of its schema
 * cache, so it reads two small tables only.
 */
export const VERSION = `pg_catalog.md5(pg_catalog.concat(
  (SELECT pg_catalog.string_agg(token::pg_catalog.text, ',' ORDER BY id) FROM ${SCHEMA_CHANGES}), ';',
  (SELECT pg_catalog.string_agg(xmin::pg_catalog.text, ',' ORDER BY setrole, setdatabase) FROM pg_catalog.pg_db_role_setting)))`
