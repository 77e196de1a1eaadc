import { DataApiError, requestError } from '../data-api-error.ts'
import { ADDED_RELATIONSHIPS_MAX, addTo } from '../schema/relationships.ts'
import { suggest } from '../schema/suggestions.ts'
import { keyOf, type Name, type Relationship, type SchemaCache } from '../schema/types.ts'

interface Wanted {
  source: Name
  /** A table, view or computed relationship; or, without a hint, a constraint or a column with a foreign key. */
  target: string
  /** A constraint, a column or a junction. */
  hint: string | undefined
}

export function findRelationship(
  { relationships }: Pick<SchemaCache, 'relationships'>,
  schema: string,
  wanted: Wanted,
): Relationship {
  if (!relationships) throw tooMany()
  const all = relationships.get(keyOf(wanted.source))
  const candidates = (all && byTarget(all).get(wanted.target)) ?? []
  const found = candidates.filter((relationship) => matches(relationship, schema, wanted))
  // A computed relationship overrides those of foreign keys.
  const computed = found.find(({ kind }) => kind === 'computed')
  const [first, second] = found
  if (computed ?? (first && !second)) return (computed ?? first) as Relationship
  throw first ? ambiguous(wanted, found) : missing(relationships, schema, wanted)
}

const indexes = new WeakMap<readonly Relationship[], Map<string, Relationship[]>>()

/** The relationships of one source by the names that requests can give their targets: a source may have tens of thousands. */
function byTarget(relationships: readonly Relationship[]): ReadonlyMap<string, readonly Relationship[]> {
  const known = indexes.get(relationships)
  if (known) return known
  const index = new Map<string, Relationship[]>()
  for (const one of relationships) for (const name of targetNames(one)) addTo(index, name, one)
  indexes.set(relationships, index)
  return index
}

function targetNames(relationship: Relationship): Iterable<string> {
  if (relationship.kind === 'computed') return [relationship.routine.name]
  const { name } = relationship.target
  if (relationship.kind === 'many-to-many' || (relationship.isTargetView && !relationship.isSelf)) return [name]
  const { columns, constraint } = relationship
  return new Set([name, constraint, ...(columns.length === 1 && columns[0] ? [columns[0][0]] : [])])
}

function matches(relationship: Relationship, schema: string, { target, hint }: Wanted): boolean {
  if (relationship.kind === 'computed') return relationship.routine.name === target
  const isTarget = relationship.target.name === target && relationship.target.schema === schema
  const isColumn = (name: string, side: 0 | 1) =>
    relationship.kind !== 'many-to-many' &&
    relationship.columns.length === 1 &&
    relationship.columns[0]?.[side] === name
  const isConstraint = (name: string) => relationship.kind !== 'many-to-many' && relationship.constraint === name
  if (relationship.kind !== 'many-to-many' && relationship.isSelf) {
    const isToMany = relationship.kind === 'to-many'
    if (hint !== undefined) return isTarget && (isConstraint(hint) || isColumn(hint, 1)) && isToMany
    return (isTarget && isToMany) || (!isToMany && isColumn(target, 0))
  }
  if (hint === undefined) {
    const isView = relationship.kind !== 'many-to-many' && relationship.isTargetView
    const isKey = isConstraint(target) || (isColumn(target, 0) && relationship.kind !== 'to-many')
    return isTarget || (!isView && isKey)
  }
  const isJunction = relationship.kind === 'many-to-many' && relationship.junction.name === hint
  return isTarget && (isConstraint(hint) || isColumn(hint, 0) || isColumn(hint, 1) || isJunction)
}

const tooMany = () =>
  new DataApiError({
    ...{ status: 500, code: '54000', details: null },
    message: `Views and junctions add more than ${ADDED_RELATIONSHIPS_MAX} relationships: nothing can be embedded`,
    hint: 'Expose fewer views of related tables.',
  })

function missing(
  relationships: NonNullable<SchemaCache['relationships']>,
  schema: string,
  { source, target, hint }: Wanted,
) {
  const related = (relationships.get(keyOf(source)) ?? []).map((one) => one.target.name)
  // The list is empty if all relationships of the table are with tables that are not exposed.
  const isKnown = relationships.has(keyOf(source))
  const sources = [...relationships.values()].flatMap(([one]) =>
    one && one.source.schema === schema ? [one.source.name] : [],
  )
  const [wrong, close] = isKnown
    ? [target, related.includes(target) ? undefined : suggest(related, target)]
    : [source.name, suggest(sources, source.name)]
  const usingHint = hint === undefined ? '' : ` using the hint '${hint}'`
  return requestError('PGRST200', {
    message: `Could not find a relationship between '${source.name}' and '${target}' in the schema cache`,
    details: `Searched for a foreign key relationship between '${source.name}' and '${target}'${usingHint} in the schema '${schema}', but no matches were found.`,
    hint: close === undefined ? null : `Perhaps you meant '${close}' instead of '${wrong}'.`,
  })
}

function ambiguous({ source, target }: Wanted, found: readonly Relationship[]) {
  const hints = found.map((one) => `'${one.target.name}!${hintOf(one)}'`).join(', ')
  return requestError('PGRST201', {
    message: `Could not embed because more than one relationship was found for '${source.name}' and '${target}'`,
    details: found.map(describe),
    hint: `Try changing '${target}' to one of the following: ${hints}. Find the desired relationship in the 'details' key.`,
  })
}

function hintOf(relationship: Relationship): string {
  if (relationship.kind === 'computed') return relationship.routine.name
  return relationship.kind === 'many-to-many' ? relationship.junction.name : relationship.constraint
}

const CARDINALITIES = {
  'to-one': 'many-to-one',
  'to-many': 'one-to-many',
  'one-to-one': 'one-to-one',
  'many-to-many': 'many-to-many',
  computed: 'computed',
} as const

function describe(relationship: Relationship) {
  const { kind, source, target } = relationship
  return {
    cardinality: CARDINALITIES[kind],
    embedding: `${source.name} with ${target.name}`,
    relationship: textOf(relationship),
  }
}

function textOf(relationship: Relationship): string {
  const list = (names: readonly string[]) => `(${names.join(', ')})`
  if (relationship.kind === 'computed') return relationship.routine.name
  if (relationship.kind === 'many-to-many') {
    const { junction, sourceConstraint, targetConstraint, sourceColumns, targetColumns } = relationship
    const from = `${sourceConstraint}${list(sourceColumns.map(([, column]) => column))}`
    const to = `${targetConstraint}${list(targetColumns.map(([, column]) => column))}`
    return `${junction.name} using ${from} and ${to}`
  }
  const { constraint, source, target, columns } = relationship
  const from = `${source.name}${list(columns.map(([column]) => column))}`
  return `${constraint} using ${from} and ${target.name}${list(columns.map(([, column]) => column))}`
}
