import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { withOwner } from '../copies/owner-session.ts'
import { withAdminAt } from '../instances/admin.ts'
import type { AdminSession, Instance } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import type { RestorePlan } from './plan.ts'
import { ownerOf, recover } from './recovery.ts'

interface DrillReport {
  backup: string
  at: Date
  seconds: number
  tables: number
  rows: number
  /** False for a paused instance, whose server does not run: then the drill only starts the backup and checks its indexes. */
  isCompared: boolean
  /** Tables whose rows differ from those of the instance around `at`; includes only tables that the owner may read. */
  differences: { table: string; expected: number; restored: number | null; reason: string }[]
  indexes: number
  /** Damaged indexes, and what is wrong with each. */
  damaged: { index: string; reason: string }[]
}

/** The number of rows of a table, and a checksum of their contents. */
interface Rows {
  rows: number
  sum: string
}

export type Contents = ReadonlyMap<string, Rows>

const TABLES = `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')`

/** Reads all tables that the owner may read, in one snapshot. */
export const readContents = (socket: Socket): Promise<Contents> =>
  withOwner(socket, async (owner) => {
    await owner.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const contents = new Map<string, Rows>()
    for (const { name } of (await owner.query<{ name: string }>(TABLES)).rows) {
      const { rows } = await owner.query<{ n: string; sum: string }>(
        `SELECT count(*) AS n, coalesce(sum(hashtextextended((t.*)::text, 0)), 0) AS sum FROM ONLY ${name} AS t`,
      )
      contents.set(name, { rows: Number(rows[0]?.n), sum: String(rows[0]?.sum) })
    }
    return contents
  })

interface Live {
  before: Contents
  after: Contents
}

/** Recovers into a temporary server, and compares it with the contents of the instance before and after the plan's moment. */
export async function drillPlan(
  archive: Archive,
  instance: Instance,
  plan: RestorePlan,
  live: Live | undefined,
): Promise<DrillReport> {
  const startedAt = Date.now()
  const place = { data: `${instance.paths.data}.drill`, socket: `${instance.paths.socket}.drill` }
  const recovered = await recover(archive, ownerOf(instance), place, plan)
  try {
    const socket = connect(join(place.socket, '.s.PGSQL.5432'))
    await once(socket, 'connect')
    const restored = await readContents(socket)
    const indexes = await withAdminAt(place.socket, 'postgres', checkIndexes)
    return {
      backup: plan.base.id,
      at: plan.at ?? new Date(plan.base.stoppedAt),
      seconds: (Date.now() - startedAt) / 1000,
      tables: restored.size,
      rows: [...restored.values()].reduce((sum, { rows }) => sum + rows, 0),
      isCompared: live !== undefined,
      differences: live ? compare(live, restored) : [],
      ...indexes,
    }
  } finally {
    await recovered.drop()
  }
}

function compare({ before, after }: Live, restored: Contents): DrillReport['differences'] {
  return [...before].flatMap(([table, first]) => {
    const last = after.get(table)
    const found = restored.get(table)
    // The table was dropped during the drill, perhaps before the moment of the plan.
    if (last === undefined) return []
    const reason = findDifference(found, first, last)
    return reason ? [{ table, expected: first.rows, restored: found?.rows ?? null, reason }] : []
  })
}

/** How a restored table differs from what it contained first and last. */
function findDifference(found: Rows | undefined, first: Rows, last: Rows): string | undefined {
  if (!found) return 'it is missing'
  const isBetween = found.rows >= Math.min(first.rows, last.rows) && found.rows <= Math.max(first.rows, last.rows)
  if (!isBetween) return `it has ${found.rows} rows instead of ${first.rows}`
  const isUnchanged = first.rows === last.rows && first.sum === last.sum
  return isUnchanged && found.sum !== first.sum ? 'its rows differ' : undefined
}

/** Checks the structure of B-tree indexes, which evaluates none of their expressions. Needs the extension amcheck. */
async function checkIndexes(admin: AdminSession): Promise<Pick<DrillReport, 'indexes' | 'damaged'>> {
  const [available] = await admin.rows(`SELECT FROM pg_available_extensions WHERE name = 'amcheck'`)
  if (!available) return { indexes: 0, damaged: [] }
  await admin.rows('DROP EXTENSION IF EXISTS amcheck CASCADE')
  await admin.rows('CREATE EXTENSION amcheck SCHEMA pg_catalog')
  const found = await admin.rows<{ oid: number; name: string }>(
    `SELECT c.oid::int8::int4 AS oid, c.oid::regclass::text AS name FROM pg_class AS c JOIN pg_index ON indexrelid = c.oid
      WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND relkind = 'i' AND relpersistence = 'p' AND indisvalid`,
  )
  const damaged: DrillReport['damaged'] = []
  for (const { oid, name } of found) {
    await admin.rows('SELECT pg_catalog.bt_index_check($1::oid)', [oid]).catch((error) => {
      damaged.push({ index: name, reason: String(error.message) })
    })
  }
  return { indexes: found.length, damaged }
}
