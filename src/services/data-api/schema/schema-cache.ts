import type { Introspection, TooLargeIntrospection } from './introspection.ts'
import { addTo, keyOfView, relationshipsOf, type ViewOrigins, viewOrigins } from './relationships.ts'
import {
  ANY_RELATION,
  type Column,
  type ComputedRelationship,
  keyOf,
  type LoadedSchema,
  type MediaHandler,
  type MediaHandlers,
  type Name,
  type Parameter,
  type Relationship,
  type Representation,
  type Routine,
  SCHEMA_SIZE_MAX,
  type SchemaCache,
  type Table,
  type TooLargeSchema,
} from './types.ts'

type FoundTable = Introspection['tables'][number]
type FoundRoutine = Introspection['routines'][number]

const KINDS = { r: 'table', v: 'view', f: 'foreign', m: 'materialized', p: 'partitioned' } as const

/** The length of a text that takes as much memory as a relationship. */
const ADDED_LENGTH = 100

/** The number of relationships that views and junctions add to those of foreign keys. */
function countAdded({ foreignKeys }: Introspection, relationships: SchemaCache['relationships']): number {
  const all = [...(relationships?.values() ?? [])].reduce((sum, { length }) => sum + length, 0)
  return Math.max(0, all - 2 * foreignKeys.length)
}

export function loadedSchemaOf(text: string): LoadedSchema {
  const found = JSON.parse(text) as Introspection | TooLargeIntrospection
  const { version } = found
  // The owner's functions may hide those of Postgres and return any text, but this one becomes an option of a session.
  const sessionKey = /^[0-9a-f]{32}$/.exec(version)?.[0]
  const id = crypto.randomUUID()
  const tooLarge: TooLargeSchema = { id, version, size: version.length, sessionKey, isTooLarge: true }
  if (found.tables === null) return tooLarge
  const origins = viewOrigins(found)
  const keys = new Map(found.keys.filter(({ primary }) => primary).map(({ o, c }) => [o, c]))
  const representations = representationsOf(found)
  const tables = new Map(
    found.tables.map((table) => [
      keyOf({ schema: table.s, name: table.n }),
      tableOf(table, { keys, origins, representations }),
    ]),
  )
  const oids = new Map(found.tables.map(({ o, s, n }) => [o, { schema: s, name: n }]))
  const isExposed = (name: Name) => tables.has(keyOf(name))
  const primaryKeyOf = (name: Name) => tables.get(keyOf(name))?.primaryKey ?? []
  const relationships = relationshipsOf(found, { origins, primaryKeyOf, isExposed })
  for (const relationship of found.routines.flatMap((routine) => computedRelationships(routine, oids))) {
    if (relationships) addTo(relationships, keyOf(relationship.source), relationship)
  }
  const size = text.length + ADDED_LENGTH * countAdded(found, relationships)
  if (size > SCHEMA_SIZE_MAX) return tooLarge
  return {
    ...{ id, version, size, sessionKey },
    tables,
    relationships,
    functions: Map.groupBy(
      found.routines.map((routine) => routineOf(routine, oids)),
      keyOf,
    ),
    handlers: handlersOf(found, oids),
    timezones: new Set(found.timezones),
    settings: found.settings,
    roleSettings: new Map(Object.entries(found.roleSettings)),
    hasGeoJson: found.hasGeoJson,
  }
}

function handlersOf({ handlers }: Introspection, oids: ReadonlyMap<number, Name>): Map<string, MediaHandlers> {
  const byRelation = new Map<string, Map<string, MediaHandler>>()
  for (const [schema, name, media, oid] of handlers) {
    const relation = oid === null ? undefined : oids.get(oid)
    if (oid !== null && !relation) continue
    const key = relation ? keyOf(relation) : ANY_RELATION
    byRelation.set(key, (byRelation.get(key) ?? new Map()).set(media, { schema, name, relation }))
  }
  return byRelation
}

const INSERTS = 8
const UPDATES = 4
const DELETES = 16

interface Found {
  keys: ReadonlyMap<number, readonly string[]>
  origins: ViewOrigins
  /** By the name of the domain. */
  representations: ReadonlyMap<string, Representation>
}

function representationsOf({ casts }: Introspection): Map<string, Representation> {
  const byDomain = new Map<string, Representation>()
  for (const [source, target, schema, name] of casts) {
    const [domain, use] = target === 'json' ? [source, 'toJson'] : [target, source === 'json' ? 'fromJson' : 'fromText']
    byDomain.set(domain, { ...byDomain.get(domain), [use]: { schema, name } })
  }
  return byDomain
}

function tableOf({ o, s, n, k, w, c }: FoundTable, { keys, origins, representations }: Found): Table {
  const columns = new Map(
    c.map(([, name, type, defaultSql]): [string, Column] => [
      name,
      { name, type, defaultSql, representation: representations.get(type) },
    ]),
  )
  const isView = k === 'v' || k === 'm'
  return {
    ...{
      schema: s,
      name: n,
      kind: KINDS[k],
      columns,
      isFormatted: [...columns.values()].some(({ representation }) => representation?.toJson),
      primaryKey: isView ? keyOfView(o, keys, origins) : (keys.get(o) ?? []),
    },
    ...{ insertable: (w & INSERTS) > 0, updatable: (w & UPDATES) > 0, deletable: (w & DELETES) > 0 },
  }
}

/** The relationship of a function that takes one row of a relation and returns rows of a relation. */
function computedRelationships(
  { s, n, of, rel, set, rows }: FoundRoutine,
  oids: ReadonlyMap<number, Name>,
): Relationship[] {
  const source = of === null ? undefined : oids.get(of)
  const target = rel === null ? undefined : oids.get(rel)
  if (!source || !target) return []
  const relationship: ComputedRelationship = {
    ...{ kind: 'computed', source, target, routine: { schema: s, name: n }, isToOne: !set || rows === 1 },
  }
  return [relationship]
}

function routineOf(found: FoundRoutine, oids: ReadonlyMap<number, Name>): Routine {
  const { s, n, v, set, rel, kind, media, settings } = found
  return {
    ...{
      schema: s,
      name: n,
      volatility: v,
      returnsSet: set,
      returnsRelation: rel === null ? undefined : oids.get(rel),
    },
    ...{ returns: kind, mediaType: media ?? undefined, parameters: parametersOf(found) },
    settings: Object.fromEntries(
      (settings ?? []).flatMap((setting) => {
        const at = setting.indexOf('=')
        const name = setting.slice(0, at).toLowerCase()
        return REQUEST_SETTINGS.includes(name) ? [[name, setting.slice(at + 1)]] : []
      }),
    ),
  }
}

/** Settings of a function that must be set before its statement starts. Any other, above all `role`, must apply inside the function only. */
const REQUEST_SETTINGS = ['statement_timeout', 'plan_filter.statement_cost_limit', 'default_transaction_isolation']

/** Names and modes cover outputs too; types cover inputs only. */
function parametersOf({ names, modes, types, defaults }: FoundRoutine): Parameter[] {
  const allModes = modes ?? types.map(() => 'i')
  const inputs = allModes.flatMap((mode, index) => ('iobv'.includes(mode) && mode !== 'o' ? [{ mode, index }] : []))
  return inputs.map(({ mode, index }, at) => ({
    ...{ name: names?.[index] ?? '', type: types[at] ?? 'text', isVariadic: mode === 'v' },
    isOptional: at >= types.length - defaults,
  }))
}
