import { quoteLiteral } from '../names.ts'
import type { Session } from '../session.ts'
import type { Copy } from './copy.ts'
import { LINK } from './link.ts'
import { SCHEMAS } from './schema/scope.ts'
import { REFERENCED_OBJECTS } from './storage-rows.ts'

/** A table of the parent that holds rows itself. */
interface Table {
  oid: string
  name: string
  /** As long as it stays the same, the table was neither emptied nor rewritten. */
  file: string
  columns: string
  /** Names and types, as rows of the parent come. */
  row: string
  rows_per_fetch: number
  condition: string | null
}

export interface Snapshot {
  id: string
  tables: Table[]
  sequences: string[]
  hasLargeObjects: boolean
}

const FETCH_BYTES = 8 * 1024 ** 2
const ALWAYS = 'supabase_migrations.schema_migrations'

/** In the transaction that holds the snapshot; without `data` only what a schema cannot be without. */
export async function readTables(
  parent: Session,
  { data, objects }: Pick<Copy, 'data' | 'objects'>,
  templateParts: readonly string[],
): Promise<Snapshot> {
  const [snapshot] = await parent.rows<{ id: string }>('SELECT pg_export_snapshot() AS id')
  const wanted = data
    ? `(c.relnamespace IN ${SCHEMAS} OR c.oid::regclass::text IN ('storage.buckets', 'storage.objects'))`
    : `c.oid::regclass::text = '${ALWAYS}'`
  const tables = await parent.rows<Table>(
    `SELECT c.oid::text AS oid, c.oid::regclass::text AS name, pg_relation_filenode(c.oid)::text AS file,
         (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM ${COLUMNS}) AS columns,
         (SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM ${COLUMNS}) AS row,
         greatest(10, least(10000, ${FETCH_BYTES} * greatest(reltuples, 1)::float8 / greatest(pg_table_size(c.oid), 1)))::int AS rows_per_fetch,
         CASE WHEN c.oid::regclass::text = 'storage.objects' AND NOT ${objects} THEN ${REFERENCED_OBJECTS} END AS condition
       FROM pg_class AS c WHERE relkind = 'r' AND relpersistence <> 't' AND ${wanted}
         AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
      ORDER BY c.oid`,
    [templateParts],
  )
  const sequences = await parent.rows<{ name: string }>(
    `SELECT oid::regclass::text AS name FROM pg_class WHERE relkind = 'S' AND relpersistence <> 't' AND relnamespace IN ${SCHEMAS}`,
  )
  const large = await parent.rows('SELECT FROM pg_largeobject_metadata LIMIT 1')
  return {
    id: snapshot?.id ?? '',
    tables,
    sequences: data ? sequences.map(({ name }) => name) : [],
    hasLargeObjects: data && large.length > 0,
  }
}

/** Of the template's tables those that the copy has too. */
const COLUMNS = `(SELECT * FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
  AND (c.relnamespace IN ${SCHEMAS} OR 'column ' || c.oid::regclass || '.' || attname = ANY ($1::text[]))) AS a`

/** As the copy's owner, through the link: the rows go from one database to the other and never leave the server. */
export async function loadRows(owner: Session, { id, tables, sequences, hasLargeObjects }: Snapshot): Promise<void> {
  for (const table of tables) await owner.rows(loadTable(id, table))
  if (hasLargeObjects) await owner.rows(inSnapshot(id, LARGE_OBJECTS))
  for (const name of sequences) await owner.rows(setSequence(name))
}

/** The lock on a table lasts for its own rows alone: who alters another one of the parent's does not wait. */
function loadTable(
  snapshot: string,
  { oid, name, file, columns, row, rows_per_fetch: count, condition }: Table,
): string {
  if (!columns) return 'SELECT'
  const declare = `DECLARE rows_of_table NO SCROLL CURSOR FOR SELECT ${columns} FROM ONLY ${name} AS o${condition ? ` WHERE ${condition}` : ''}`
  return inSnapshot(
    snapshot,
    `PERFORM ${execute(declare)};
     IF (SELECT file FROM ${fetch(`SELECT pg_relation_filenode(${oid})`)} AS r (file text)) IS DISTINCT FROM ${quoteLiteral(file)} THEN
       RAISE 'the table % was emptied or rewritten while it was copied', ${quoteLiteral(name)} USING ERRCODE = '40001';
     END IF;
     LOOP
       INSERT INTO ${name} (${columns}) OVERRIDING SYSTEM VALUE
         SELECT * FROM ${fetch(`FETCH ${count} FROM rows_of_table`)} AS r (${row});
       EXIT WHEN NOT FOUND;
     END LOOP;`,
  )
}

const LARGE_OBJECTS = `PERFORM lo_from_bytea(id, bytes)
  FROM ${fetch('SELECT oid, lo_get(oid) FROM pg_largeobject_metadata')} AS r (id oid, bytes bytea);`

/** Later than the rows, so that no row has a number that is still to be given out. */
const setSequence = (name: string) =>
  `SELECT setval(${quoteLiteral(name)}::regclass, at, called)
     FROM ${fetch(`SELECT last_value, is_called FROM ${name}`)} AS r (at bigint, called boolean)`

const inSnapshot = (snapshot: string, work: string): string => {
  const body = `BEGIN
    PERFORM ${execute(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT ${quoteLiteral(snapshot)}`)};
    ${work}
    PERFORM ${execute('COMMIT')};
  END`
  return `DO ${quoteLiteral(body)}`
}

function execute(statement: string): string {
  return `${LINK}.execute(${quoteLiteral(statement)})`
}

function fetch(query: string): string {
  return `${LINK}.fetch(${quoteLiteral(query)})`
}
