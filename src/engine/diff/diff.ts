import { sessionsOf } from '../cluster-sessions.ts'
import { statementFailure } from '../database-errors.ts'
import type { DiffRequest } from '../engine.ts'
import { SqlError } from '../engine-errors.ts'
import { withProjectSession } from '../run-sql.ts'
import type { Cluster, Session } from '../session.ts'
import { extrasHandler, extrasRules, isNotNullUnchecked } from './extra-facts.ts'
import { comparisonScope, schemaFilter } from './platform-schemas.ts'
import { planWithRebuilds } from './rebuilds.ts'
import { neutralRoles, type RoleNames } from './roles.ts'
import { orderStatements } from './statement-order.ts'
import { readCasts } from './type-casts.ts'
import { markVirtual } from './virtual-columns.ts'

const TIMEOUT_MS_DEFAULT = 120_000

/** SQL that turns the schema of `from` into that of `to`; empty when they are equal. Reads catalogues only. */
export async function diff(
  clusterOf: (ref: string) => Promise<Cluster>,
  { timeoutMs = TIMEOUT_MS_DEFAULT, ...request }: DiffRequest,
): Promise<string> {
  const roles = neutralRoles((await clusterOf(request.from.ref)).names)
  // Loaded with the first diff, to spare other requests the cost.
  const { plan } = await import('@supabase/pg-delta/plan')
  const isCompared = schemaFilter(request.schemas)
  const readSide = async (side: DiffRequest['from']) =>
    readSchema(await clusterOf(side.ref), side, { roles, isCompared, timeoutMs })
  const sides = await Promise.all([readSide(request.from), readSide(request.to)])
  const [source, desired] = [sides[0].facts, sides[1].facts]
  const casts = new Map([...sides[1].casts, ...sides[0].casts])
  const { policy, assumedRoles } = comparisonScope([source, desired], request.schemas, roles)
  try {
    const options = {
      policy,
      assumedRoles,
      scope: 'database',
      intentRules: extrasRules,
    } as const
    return orderStatements(planWithRebuilds(plan, source, desired, options), { source, desired, roles, casts })
  } catch (error) {
    // The library's message names the object that it cannot change.
    const message = error instanceof Error ? error.message.replaceAll(roles.owner, 'the owner') : String(error)
    throw new SqlError({ code: '0A000', message: `The difference cannot be written as SQL: ${message}` })
  }
}

interface ReadOptions {
  roles: RoleNames
  isCompared: (schema: string) => boolean
  timeoutMs: number
}

/** Reads the catalogue as the read-only role, in one snapshot. */
function readSchema(cluster: Cluster, side: DiffRequest['from'], { roles, isCompared, timeoutMs }: ReadOptions) {
  return withProjectSession(sessionsOf(cluster), { ...side, readOnly: true, timeoutMs }, async (session) => {
    const { extract } = await import('@supabase/pg-delta/extract')
    try {
      await requireComparable(session, isCompared)
      const neutral = roles.of(cluster.names)
      const virtual = markVirtual(roles.owner)
      const pool = poolOf(session, (row) => virtual(neutral(row)))
      const casts = await readCasts(session)
      const { factBase } = await extract(pool, { handlers: [extrasHandler(isCompared, cluster.names)] })
      return { facts: factBase, casts }
    } catch (error) {
      throw statementFailure(error, 0)
    }
  })
}

/** Both catalogues are in memory at once, and a Worker has 128 MB: about 1,000 tables of six columns take 100 MB. */
const RELATIONS_MAX = 1_500

async function requireComparable(session: Session, isCompared: (schema: string) => boolean): Promise<void> {
  // Qualified names, because the database's search path may contain objects of the same name.
  const schemas = await session.rows<{ schema: string; relations: number }>(
    `SELECT n.nspname AS schema, pg_catalog.count(*)::int AS relations
       FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      WHERE pg_catalog.strpos('rpvmf', c.relkind::pg_catalog.text) OPERATOR(pg_catalog.>) 0 GROUP BY n.oid, n.nspname`,
  )
  const own = schemas.filter(({ schema }) => isCompared(schema) && !/^(pg_|information_schema$)/.test(schema))
  const relations = own.reduce((sum, each) => sum + each.relations, 0)
  if (relations <= RELATIONS_MAX) return
  const message = `Cannot compare ${relations} tables and views at once: name schemas that have at most ${RELATIONS_MAX} together`
  throw new SqlError({ code: '54000', message })
}

type Extract = typeof import('@supabase/pg-delta/extract').extract

/** A pool for the library, which uses one client with text queries only; `neutral` maps every row. */
function poolOf(session: Session, neutral: (row: Record<string, unknown>) => unknown): Parameters<Extract>[0] {
  const client = {
    query: async (text: string) => ({
      rows: (await session.rows<Record<string, unknown>>(correctQuery(text))).map(neutral),
    }),
    release: () => {},
  }
  return { connect: async () => client } as never
}

/**
 * Corrects two queries of the library. A domain's default is read with qualified names, because its source text depends on the search
 * path. A `NOT NULL` that is not validated counts as absent, because it is compared as a fact of its own.
 */
const correctQuery = (text: string) =>
  text
    .replace('t.typdefault AS', `pg_get_expr(t.typdefaultbin, 'pg_type'::regclass) AS`)
    .replace('a.attnotnull AS', `(a.attnotnull AND NOT ${isNotNullUnchecked('a')}) AS`)
