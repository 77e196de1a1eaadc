import { encodeId, type FactBase, type StableId } from '@supabase/pg-delta/core'
import type { Action, Plan } from '@supabase/pg-delta/plan'
import { revokedColumnGrants } from './column-grants.ts'
import { ADDED_VALUE, commitBeforeUse } from './enum-values.ts'
import type { RoleNames } from './roles.ts'
import { moveIntoBounds } from './sequence-bounds.ts'
import { castThroughAnother, type TypeCasts } from './type-casts.ts'
import { unmarkVirtual } from './virtual-columns.ts'

interface Sides {
  source: FactBase
  desired: FactBase
  roles: RoleNames
  casts: TypeCasts
}

/** The SQL of a plan in an order that Postgres accepts, for the database's owner to run. */
export function orderStatements(
  plan: Pick<Plan, 'actions' | 'preamble'>,
  { source, desired, roles: { owner }, casts }: Sides,
): string {
  const actions = plan.actions.filter((action) => !isRedundantOwnership(action, source, owner))
  if (actions.length === 0) return ''
  const settings = plan.preamble.filter(({ name }) => name !== 'search_path')
  const statements = [
    ...settings.map(({ name, value }) => `SET ${name} = ${value}`),
    ...commitBeforeUse([
      ...sortStatements(actions, { source, desired, casts }),
      ...revokedColumnGrants(actions, desired),
    ]),
    ...settings.map(({ name }) => `RESET ${name}`),
  ]
  const text = statements.map((sql) => `${sql.trimEnd().replace(/;$/, '')};\n`).join('\n')
  return unmarkVirtual(text, owner).replaceAll(`"${owner}"`, 'CURRENT_USER')
}

/** Whether the action gives an object to its creator, who owns it already. An object of the source may belong to another role. */
const isRedundantOwnership = ({ sql, consumes }: Action, source: FactBase, owner: string): boolean =>
  sql.endsWith(` OWNER TO "${owner}"`) &&
  !consumes
    .flatMap((id) => source.outgoingEdges(id))
    .some(({ kind, to }) => kind === 'owner' && to.kind === 'role' && to.name !== owner)

const DEFAULT_CHANGE =
  /^ALTER (?:DOMAIN (?:"(?:[^"]|"")*"[. ])+|TABLE (?:"(?:[^"]|"")*"[. ])+ALTER COLUMN "(?:[^"]|"")*" )(SET|DROP) DEFAULT/

/**
 * Moves DROP DEFAULT to the start and SET DEFAULT to the end. The library does not order a default after the types and
 * functions that it needs, and nothing depends on a default. New enum values go before all statements that may use them.
 */
function sortStatements(actions: readonly Action[], { source, desired, casts }: Omit<Sides, 'roles'>): string[] {
  const dropped = new Map<string, string>()
  const set = new Map<string, string>()
  const values: string[] = []
  const others: string[] = []
  for (const action of actions) {
    const [, verb] = DEFAULT_CHANGE.exec(action.sql) ?? []
    const id = verb && defaultOf(action)
    if (ADDED_VALUE.test(action.sql)) values.push(action.sql)
    else if (!id) {
      others.push(...moveIntoBounds(action, { source, desired }))
      others.push(`${lossWarning(action, desired)}${includePartitions(castThroughAnother(action, source, casts))}`)
    } else if (verb === 'SET') set.set(encodeId(id), action.sql)
    // Skips identity columns, which have no default: DROP DEFAULT fails on them.
    else if (source.has(id)) dropped.set(encodeId(id), action.sql)
  }
  return [...dropped.values(), ...values, ...others, ...set.values()]
}

/** A warning for the reader of the SQL: both sides have the table, so losing its rows is unexpected. */
const lossWarning = ({ destroys }: Action, desired: FactBase) =>
  destroys.some((id) => id.kind === 'table' && desired.has(id))
    ? '-- Recreated below: the rows of this table are lost.\n'
    : ''

function defaultOf({ consumes, produces, destroys }: Action): StableId | undefined {
  for (const id of [...consumes, ...produces, ...destroys]) {
    if (id.kind === 'column' || id.kind === 'default') return { ...id, kind: 'default' }
    if (id.kind === 'domain') return id
  }
  return undefined
}

/**
 * Removes ONLY: Postgres prints a partitioned index with it, but the index is valid only with those of the partitions.
 */
const includePartitions = (sql: string) =>
  sql.replace(/^(CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^\s"]+) ON )ONLY /, '$1')
