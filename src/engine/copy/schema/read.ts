import type { Session } from '../../session.ts'
import { defaultRights, grants, owners, policies, type Renaming, rowSecurity } from './access.ts'
import { domainConstraints, indexes, indexPartitions, rules, tableConstraints, triggers } from './constraints.ts'
import { DEPENDENCIES, PARTS, type Part } from './dependencies.ts'
import { comments, proved, publications, statistics } from './extras.ts'
import { type Dependency, inOrder } from './order.ts'
import { aggregates, casts, functions, operators } from './routines.ts'
import { type Definition, SCHEMAS, standsAlone } from './scope.ts'
import { defaults, sequences, tables, views } from './tables.ts'
import { collations, textSearch, types } from './types.ts'

export interface Schema {
  hasPublic: boolean
  schemas: string[]
  extensions: { statement: string; asOwner: boolean }[]
  /** What the owner makes before the rows come, and after. */
  early: string[]
  late: string[]
  materializedViews: string[]
  /** What only a superuser can do, at the end. */
  access: string[]
  proved: Proved[]
}

interface Proved {
  relation: string
  type: string | null
  name: string
}

/** The template's own columns, constraints and triggers of the tables of the `storage` schema, read in a new database. */
export const TEMPLATE_PARTS = `
  SELECT 'constraint ' || conname AS name FROM pg_constraint
   WHERE conrelid IN (to_regclass('storage.objects'), to_regclass('storage.buckets'))
  UNION ALL
  SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid IN (to_regclass('storage.objects'), to_regclass('storage.buckets'))
  UNION ALL
  SELECT 'column ' || attrelid::regclass || '.' || attname FROM pg_attribute
   WHERE attrelid IN (to_regclass('storage.objects'), to_regclass('storage.buckets')) AND attnum > 0 AND NOT attisdropped`

/** In a superuser's session whose search path is `pg_catalog`, so that every name comes with its schema. */
export async function readSchema(
  parent: Session,
  renaming: Renaming,
  templateParts: readonly string[],
): Promise<Schema> {
  const early = [
    types,
    collations,
    functions,
    aggregates,
    operators,
    casts,
    textSearch,
    sequences,
    tables,
    defaults,
    views,
  ]
  const late = [
    domainConstraints,
    indexes,
    indexPartitions,
    rules,
    rowSecurity,
    statistics,
    publications,
    policies(renaming),
  ]
  const ofStorage = [tableConstraints, triggers]
  const nodes = [
    ...(await definitions(parent, early)).map((node) => ({ ...node, late: false })),
    ...(await definitions(parent, ofStorage, [templateParts])).map((node) => ({ ...node, late: true })),
    ...(await definitions(parent, late)).map((node) => ({ ...node, late: true })),
  ]
  const ordered = inOrder(nodes, await dependencies(parent))
  const texts = async (query: string) =>
    (await parent.rows<{ statement: string }>(query)).map(({ statement }) => statement)
  return {
    hasPublic: (await parent.rows(`SELECT FROM pg_namespace WHERE nspname = 'public'`)).length > 0,
    schemas: await texts(NEW_SCHEMAS),
    extensions: await parent.rows(extensions(renaming)),
    early: statementsOf(ordered.early),
    late: statementsOf(ordered.late),
    materializedViews: inTurn([...ordered.early, ...ordered.late], await parent.rows<NamedView>(POPULATED)),
    access: [
      ...(await texts(owners(renaming))),
      ...(await texts(grants(renaming))),
      ...(await texts(defaultRights(renaming))),
      ...(await texts(comments)),
    ],
    proved: await parent.rows<Proved>(proved),
  }
}

async function definitions(
  parent: Session,
  queries: readonly string[],
  values?: readonly unknown[],
): Promise<Definition[]> {
  const found: Definition[] = []
  for (const query of queries) found.push(...(await parent.rows<Definition>(`${query} ORDER BY 1`, values)))
  return found
}

async function dependencies(parent: Session): Promise<Dependency[]> {
  const wholes = new Map((await parent.rows<Part>(PARTS)).map(({ id, whole }) => [id, whole]))
  const wholeOf = (id: string): string => {
    const whole = wholes.get(id)
    return whole === undefined ? id : wholeOf(whole)
  }
  const found = await parent.rows<Dependency>(DEPENDENCIES)
  return found.map(({ id, on }) => ({ id: wholeOf(id), on: wholeOf(on) }))
}

const statementsOf = (definitions: readonly Definition[]) => definitions.flatMap(({ statements }) => statements)

interface NamedView {
  id: string
  name: string
}

function inTurn(order: readonly Definition[], views: readonly NamedView[]): string[] {
  const names = new Map(views.map(({ id, name }) => [id, name]))
  return order.flatMap(({ id }) => names.get(id) ?? [])
}

const POPULATED = `SELECT 'pg_class'::regclass::oid || ':' || oid AS id, oid::regclass::text AS name FROM pg_class
  WHERE relkind = 'm' AND relispopulated`

const NEW_SCHEMAS = `SELECT format('CREATE SCHEMA %I', nspname) AS statement FROM pg_namespace AS n
  WHERE oid IN ${SCHEMAS} AND nspname <> 'public' AND ${standsAlone('pg_namespace', 'n.oid')} ORDER BY nspname`

/** In the order in which they were made, as one may need another. */
const extensions = ({ from }: Renaming) => `
  SELECT format('CREATE EXTENSION %I%s%s', extname,
      CASE WHEN ${standsAlone('pg_namespace', 'extnamespace')} THEN format(' WITH SCHEMA %I', nspname) ELSE '' END,
      CASE WHEN EXISTS (SELECT FROM pg_available_extension_versions AS v WHERE v.name = extname AND v.version = extversion)
        THEN format(' VERSION %L', extversion) ELSE '' END) AS statement,
      pg_get_userbyid(extowner) = '${from.owner}' AS "asOwner"
    FROM pg_extension AS e JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname <> 'plpgsql' ORDER BY e.oid`
