import { buildFactBase, encodeId, type Fact, type FactBase, type StableId } from '@supabase/pg-delta/core'
import type { Action, Plan, PlanOptions } from '@supabase/pg-delta/plan'

type Planner = (source: FactBase, desired: FactBase, options: PlanOptions) => Plan
type Kinds = ReadonlySet<StableId['kind']>

/**
 * Kinds that can be dropped and recreated without losing data. Postgres refuses to drop objects that they depend on.
 */
const RECREATABLE: Kinds = new Set([
  ...(['view', 'materializedView', 'index', 'constraint', 'default', 'policy', 'trigger', 'rule'] as const),
  ...(['function', 'procedure', 'aggregate', 'publicationRel', 'extensionIntent'] as const),
])
const REMOVABLE: Kinds = new Set([...RECREATABLE, 'table', 'column', 'sequence', 'domain'])
/** Kinds that Postgres adapts itself when a column's type changes. */
const ADAPTED: Kinds = new Set(['index', 'constraint', 'default', 'extensionIntent', 'domain', 'table'])
const RETYPED = /^ALTER TABLE (?:"(?:[^"]|"")*"[. ])+ALTER COLUMN "(?:[^"]|"")*" TYPE /
const ROUTINES: Kinds = new Set(['function', 'aggregate'])

/**
 * Plans in two steps: drop everything that must be recreated, then plan the rest from a schema that never had it. In one step
 * the library would forget some of the dependents and children of an object that it recreates.
 */
export function planWithRebuilds(plan: Planner, source: FactBase, desired: FactBase, options: PlanOptions) {
  const removed = new Set<string>()
  let rest = source
  let rebuild = plan(source, desired, options)
  while (addRemoved(removed, rebuild.actions, rest, desired)) {
    rest = withoutFacts(source, removed)
    rebuild = plan(rest, desired, options)
  }
  const drops = removed.size > 0 ? plan(source, rest, options).actions : []
  const lost = grantsToFormerOwners(source, desired)
  const grants = lost.size > 0 ? plan(withoutFacts(desired, lost), desired, options).actions : []
  return { actions: [...drops, ...rebuild.actions, ...grants], preamble: rebuild.preamble }
}

/** Rights that must be granted again: with the ownership, Postgres gives the new owner all rights of the old one. */
function grantsToFormerOwners(source: FactBase, desired: FactBase): Set<string> {
  const grants = desired.facts().filter(({ id }) => {
    if (id.kind !== 'acl') return false
    const owner = ownerOf(source, id.target)
    return owner === id.grantee && owner !== ownerOf(desired, id.target)
  })
  return new Set(grants.map(({ id }) => encodeId(id)))
}

function ownerOf(side: FactBase, id: StableId): string | undefined {
  const owner = side.outgoingEdges(id).find(({ kind }) => kind === 'owner')?.to
  return owner?.kind === 'role' ? owner.name : undefined
}

/** Adds the objects that must be dropped before these actions can run; false if there are no more. */
function addRemoved(removed: Set<string>, actions: readonly Action[], source: FactBase, desired: FactBase): boolean {
  const before = removed.size
  const found = findRemoved(actions, source)
  // If the plan recreates nothing, the library's own order is correct.
  if (before > 0 || found.some((id) => desired.has(id))) for (const id of found) removed.add(encodeId(id))
  return removed.size > before
}

/** The objects that the actions drop, with those that Postgres drops too or that would block the drop. */
function findRemoved(actions: readonly Action[], source: FactBase): StableId[] {
  const dropped = new Set(actions.flatMap(({ destroys }) => destroys.map(encodeId)))
  const sequences = source.facts().filter(({ id, payload }) => id.kind === 'sequence' && payload.ownedBy)
  const dependents = (id: StableId) =>
    source.incomingEdges(id).flatMap(({ from, kind }) => (kind === 'depends' ? (source.get(from) ?? []) : []))
  const retyped = actions.filter(({ sql }) => RETYPED.test(sql)).flatMap(({ consumes }) => consumes.flatMap(dependents))
  const queue = [
    ...[...dropped].flatMap((key) => source.getByEncoded(key) ?? []),
    ...retyped.filter((fact) => isRecreatable(fact) && !isAdapted(fact)),
  ]
  const seen = new Set<string>()
  const found: StableId[] = []
  for (const { id } of queue) {
    const key = encodeId(id)
    if (seen.has(key)) continue
    seen.add(key)
    if (REMOVABLE.has(id.kind)) found.push(id)
    // A domain that the actions do not drop loses only its default.
    if (id.kind === 'domain' && !dropped.has(key)) continue
    queue.push(...source.childrenOf(id), ...sequences.filter((sequence) => isOwnedBy(sequence, id)))
    queue.push(...dependents(id).filter(isRecreatable))
  }
  return found
}

/** Whether Postgres adapts the object itself. It cannot adapt foreign keys, because the columns on both sides change one after the other. */
const isAdapted = ({ id, payload }: Fact) => ADAPTED.has(id.kind) && payload.type !== 'f'

/** Whether an object can be recreated: Postgres recomputes generated columns, and a partition goes with its table. */
function isRecreatable({ id, payload }: Fact): boolean {
  if (id.kind === 'column') return payload.generatedExpr !== null
  if (id.kind === 'table') return payload.partitionBound !== null
  if (id.kind === 'domain') return payload.default !== null
  return RECREATABLE.has(id.kind)
}

function isOwnedBy({ payload: { ownedBy } }: Fact, id: StableId): boolean {
  if (id.kind !== 'column' || ownedBy === null || typeof ownedBy !== 'object' || Array.isArray(ownedBy)) return false
  const owner: Record<string, unknown> = { ...ownedBy }
  return owner.schema === id.schema && owner.table === id.table && owner.column === id.name
}

function withoutFacts(source: FactBase, removed: ReadonlySet<string>): FactBase {
  const omitted = new Set<string>()
  const omit = (id: StableId) => {
    omitted.add(encodeId(id))
    for (const child of source.childrenOf(id)) omit(child.id)
  }
  for (const key of removed) {
    const fact = source.getByEncoded(key)
    if (fact && fact.id.kind !== 'domain') omit(fact.id)
  }
  const facts = source.facts().flatMap((fact) => {
    const key = encodeId(fact.id)
    if (omitted.has(key)) return []
    if (removed.has(key)) return [{ ...fact, payload: { ...fact.payload, default: null } }]
    return [hasReplicaIndexIn(omitted, fact) ? { ...fact, payload: { ...fact.payload, ...NO_REPLICA_INDEX } } : fact]
  })
  const edges = source.edges.filter(({ from, to }) => {
    const [fromKey, toKey] = [encodeId(from), encodeId(to)]
    return !omitted.has(fromKey) && !omitted.has(toKey) && !(removed.has(fromKey) && ROUTINES.has(to.kind))
  })
  return buildFactBase(facts, edges, source.source, source.referenceOnly)
}

const NO_REPLICA_INDEX = { replicaIdentity: 'd', replicaIdentityIndex: null }

/** Whether the index that identifies the table's rows to replication is omitted. Postgres forgets the setting with the index. */
function hasReplicaIndexIn(
  omitted: ReadonlySet<string>,
  { id, payload: { replicaIdentityIndex: name } }: Fact,
): boolean {
  if (id.kind !== 'table' || typeof name !== 'string') return false
  const { schema, name: table } = id
  return (
    omitted.has(encodeId({ kind: 'index', schema, name })) ||
    omitted.has(encodeId({ kind: 'constraint', schema, table, name }))
  )
}
