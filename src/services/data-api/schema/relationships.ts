import type { Links } from './links.ts'
import {
  type ColumnPairs,
  type JunctionRelationship,
  type KeyRelationship,
  keyOf,
  type Name,
  type Relationship,
} from './types.ts'

/** A foreign key between two relations, either of which may be a view of the table that has it. */
interface Reference {
  constraint: string
  source: Name
  target: Name
  columns: ColumnPairs
  isSourceView: boolean
  isTargetView: boolean
  isUnique: boolean
}

/** The columns of a view that are columns of tables, directly or through other views. The keys are the table and the number of its column. */
type ViewColumns = ReadonlyMap<number, ReadonlyMap<number, readonly string[]>>

export interface ViewOrigins {
  /** By view. */
  views: ReadonlyMap<number, ViewColumns>
  nameOf(oid: number): Name | undefined
  columnOf(oid: number, number: number): string | undefined
  numberOf(oid: number, column: string): number
}

export function viewOrigins({ origins, names }: Pick<Links, 'origins' | 'names'>): ViewOrigins {
  const relations = new Map(names.map(([oid, schema, name, columns]) => [oid, { schema, name, columns }]))
  const columnOf = (oid: number, number: number) => relations.get(oid)?.columns[number - 1] ?? undefined
  const direct = new Map(origins.map(([view, column, relation, source]) => [`${view} ${column}`, { relation, source }]))
  const found = new Map<string, { relation: number; source: number } | undefined>()
  /** Undefined for a column of a view that was replaced by a query of itself. */
  const sourceOf = (view: number, column: number) => {
    const passed: string[] = []
    let key = `${view} ${column}`
    let at = found.get(key)
    for (let next = direct.get(key); next && !found.has(key); next = direct.get(key)) {
      found.set(key, undefined)
      passed.push(key)
      key = `${next.relation} ${next.source}`
      at = found.has(key) ? found.get(key) : next
    }
    for (const each of passed) found.set(each, at)
    return at
  }
  const views = new Map<number, Map<number, Map<number, string[]>>>()
  for (const [view, column] of origins) {
    const at = sourceOf(view, column)
    const name = columnOf(view, column)
    if (name === undefined || !at) continue
    const tables = views.get(view) ?? new Map<number, Map<number, string[]>>()
    const columns = tables.get(at.relation) ?? new Map<number, string[]>()
    addTo(columns, at.source, name)
    tables.set(at.relation, columns)
    views.set(view, tables)
  }
  return {
    views,
    nameOf: (oid) => relations.get(oid),
    columnOf,
    numberOf: (oid, column) => (relations.get(oid)?.columns.indexOf(column) ?? -1) + 1,
  }
}

const COMBINATIONS_MAX = 16

/** The names that a view has for these columns of a table: several if it selects a column more than once. */
function namesInView(columns: ReadonlyMap<number, readonly string[]>, numbers: readonly number[]): string[][] {
  let combinations: string[][] = [[]]
  for (const number of numbers) {
    const names = columns.get(number) ?? []
    combinations = combinations.flatMap((known) => names.map((name) => [...known, name])).slice(0, COMBINATIONS_MAX)
  }
  return combinations
}

/** The columns of a view that are the primary keys of the tables below it. */
export function keyOfView(view: number, keys: ReadonlyMap<number, readonly string[]>, origins: ViewOrigins): string[] {
  const columns = [...(origins.views.get(view) ?? [])].flatMap(([table, names]) => {
    const key = keys.get(table) ?? []
    const numbers = key.map((column) => origins.numberOf(table, column))
    return key.length === 0 ? [] : (namesInView(names, numbers)[0] ?? [])
  })
  return [...new Set(columns)]
}

interface Side {
  name: Name
  columns: readonly string[]
  isView: boolean
}

interface Exposed {
  origins: ViewOrigins
  isExposed(relation: Name): boolean
}

interface View {
  name: Name
  /** Its names for the columns of one table. */
  columns: ReadonlyMap<number, readonly string[]>
}

const columnKey = (table: number, number: number): string => `${table} ${number}`

/** The exposed views that have a column of a table. */
function viewsByColumn({ origins, isExposed }: Exposed): ReadonlyMap<string, readonly View[]> {
  const found = new Map<string, View[]>()
  for (const [view, tables] of origins.views) {
    const name = origins.nameOf(view)
    if (!name || !isExposed(name)) continue
    for (const [table, columns] of tables)
      for (const number of columns.keys()) addTo(found, columnKey(table, number), { name, columns })
  }
  return found
}

/** The exposed relations that have these columns of a table: the table, and its views. */
function sidesOf(
  { origins, isExposed }: Exposed,
  views: ReadonlyMap<string, readonly View[]>,
  oid: number,
  columns: readonly string[],
): Side[] {
  const table = origins.nameOf(oid)
  const sides: Side[] = table && isExposed(table) ? [{ name: table, columns, isView: false }] : []
  const numbers = columns.map((column) => origins.numberOf(oid, column))
  const lists = numbers.map((number) => views.get(columnKey(oid, number)) ?? [])
  // A view with all columns is in each list. The shortest one bounds the work for a table with thousands of keys and of views.
  const [shortest = []] = lists.sort((a, b) => a.length - b.length)
  for (const view of shortest)
    for (const names of namesInView(view.columns, numbers))
      sides.push({ name: view.name, columns: names, isView: true })
  return sides
}

/** The relations between which a foreign key is a relationship: its two tables and their views. */
interface Ends {
  constraint: string
  isUnique: boolean
  sources: readonly Side[]
  targets: readonly Side[]
  /** The number of their pairs beside that of the two tables. A side without exposed relations counts as one, to bound the work for its keys too. */
  pairsOfViews: number
}

/** The exposed relations at the ends of each foreign key. Pairs of them can be far more than there are views. */
export function* endsOf({ keys, foreignKeys }: Links, exposed: Exposed): Generator<Ends> {
  const views = viewsByColumn(exposed)
  const textOf = (oid: number, columns: readonly string[]) => `${oid} ${[...columns].sort().join('\0')}`
  const uniques = new Set(keys.map(({ o, c }) => textOf(o, c)))
  for (const { n, o, f, c, fc } of foreignKeys) {
    const [sources, targets] = [sidesOf(exposed, views, o, c), sidesOf(exposed, views, f, fc)]
    const pairsOfViews = Math.max(1, sources.length) * Math.max(1, targets.length) - 1
    yield { constraint: n, isUnique: uniques.has(textOf(o, c)), sources, targets, pairsOfViews }
  }
}

/** All pairs of a source and a target. */
export const referencesBetween = ({ constraint, isUnique, sources, targets }: Ends): Reference[] =>
  sources.flatMap((source) =>
    targets.map((target) => ({
      ...{ constraint, source: source.name, target: target.name, isUnique },
      columns: source.columns.map((column, index) => [column, target.columns[index] ?? ''] as const),
      ...{ isSourceView: source.isView, isTargetView: target.isView },
    })),
  )

/**
 * Maximum number of relationships that views and junctions add to those of foreign keys. They take about 15 MB. Each pair of views of
 * two related tables adds two, and each pair of keys of a junction one.
 */
export const ADDED_RELATIONSHIPS_MAX = 50_000

type PrimaryKeyOf = (relation: Name) => readonly string[]

/**
 * The relationships between exposed relations, by the key of their source. The list of a relation is empty if it has relationships
 * with hidden ones only. Undefined if there are more than `ADDED_RELATIONSHIPS_MAX`.
 */
export function relationshipsOf(
  links: Links,
  { primaryKeyOf, ...exposed }: Exposed & { primaryKeyOf: PrimaryKeyOf },
): Map<string, Relationship[]> | undefined {
  const relationships = new Map<string, Relationship[]>()
  const references: Reference[] = []
  let added = 0
  for (const ends of endsOf(links, exposed)) {
    const { sources, targets, pairsOfViews } = ends
    added += 2 * pairsOfViews
    if (added > ADDED_RELATIONSHIPS_MAX) return undefined
    for (const { name } of [...sources, ...targets]) relationships.set(keyOf(name), [])
    references.push(...referencesBetween(ends))
  }
  const junctions = junctionsOf(references, primaryKeyOf)
  if (added + pairsOf(junctions) > ADDED_RELATIONSHIPS_MAX) return undefined
  for (const one of [...references.flatMap(relationshipsOfReference), ...junctions.flatMap(throughJunction)])
    addTo(relationships, keyOf(one.source), one)
  return relationships
}

export function addTo<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const known = lists.get(key)
  if (known) known.push(value)
  else lists.set(key, [value])
}

const isSame = (a: Name, b: Name) => a.schema === b.schema && a.name === b.name

function relationshipsOfReference(reference: Reference): KeyRelationship[] {
  const { constraint, source, target, columns, isSourceView, isTargetView, isUnique } = reference
  const isSelf = isSame(source, target)
  return [
    {
      kind: isUnique ? 'one-to-one' : 'to-one',
      constraint,
      source,
      target,
      columns,
      isSelf,
      isTargetView,
    },
    {
      ...{ kind: isUnique ? 'one-to-one' : 'to-many', constraint, source: target, target: source, isSelf },
      columns: columns.map(([from, to]) => [to, from] as const),
      isTargetView: isSourceView,
    },
  ]
}

/**
 * References of one relation by foreign key, if the columns of the key are all part of the primary key. Unique keys
 * make none, as in PostgREST: a row of their target has at most one row here, so it is linked to nothing by it.
 */
type Junction = readonly (readonly Reference[])[]

function junctionsOf(references: readonly Reference[], primaryKeyOf: PrimaryKeyOf): Junction[] {
  const bySource = Map.groupBy(references, ({ source }) => keyOf(source))
  return [...bySource.values()].map((own) => {
    const [first] = own
    const key = new Set(first && primaryKeyOf(first.source))
    const inKey = own.filter(
      ({ isUnique, columns }) => !isUnique && key.size > 0 && columns.every(([column]) => key.has(column)),
    )
    return [...Map.groupBy(inKey, ({ constraint }) => constraint).values()]
  })
}

/** The number of pairs of references of different foreign keys. */
const pairsOf = (junctions: readonly Junction[]): number =>
  junctions.reduce((sum, keys) => {
    const all = keys.flat().length
    return sum + keys.reduce((pairs, { length }) => pairs + length * (all - length), 0)
  }, 0)

/**
 * The many-to-many relationships of a junction. Its two keys must lead to different relations: a request could not tell the two
 * directions between the rows of one relation apart.
 */
const throughJunction = (keys: Junction): JunctionRelationship[] =>
  keys.flatMap((sources) => {
    const others = keys.filter((key) => key !== sources).flat()
    return sources.flatMap((from) => others.filter((to) => !isSame(to.target, from.target)).map((to) => link(from, to)))
  })

const link = (from: Reference, to: Reference): JunctionRelationship => ({
  ...{ kind: 'many-to-many', source: from.target, target: to.target, junction: from.source },
  ...{ sourceConstraint: from.constraint, targetConstraint: to.constraint },
  sourceColumns: from.columns.map(([column, source]) => [source, column] as const),
  targetColumns: to.columns.map(([column, target]) => [target, column] as const),
})
