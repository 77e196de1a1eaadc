import type { Catalogue, Origin, Relation, Relationship } from './catalogue.ts'
import { byName, compareTexts } from './order.ts'

/** The maximum number of relationships through views: each view on one side is joined to each on the other. */
const THROUGH_VIEWS_MAX = 20_000

export class TooManyRelationships extends Error {
  override readonly name = 'TooManyRelationships'
  override readonly message = `the views have more than ${THROUGH_VIEWS_MAX} relationships`
}

interface End {
  relation: Pick<Relation, 'schema' | 'name'>
  columns: string[]
}

interface ViewEnd extends End {
  relation: Relation
}

/** Adds relationships of views: a foreign key also applies to each view that has all its columns, on either side. */
export function relateViews({ relations: own, hidden }: Pick<Catalogue, 'relations' | 'hidden'>): Relation[] {
  const relations = [...own, ...hidden]
  const nameKey = ({ schema, name }: End['relation']) => JSON.stringify([schema, name])
  const relationByKey = new Map(relations.map((relation) => [nameKey(relation), relation]))
  const viewsOf = findViews(relations)
  const found = new Map<Relation, Relationship[]>(relations.map((relation) => [relation, []]))
  let throughViews = 0
  for (const relation of relations) {
    for (const key of relation.relationships) {
      const targetName = { schema: key.schema, name: key.relation }
      const target = relationByKey.get(nameKey(targetName))
      const from = [{ relation, columns: key.columns }, ...endsOf(viewsOf(relation), key.columns)]
      const viewEnds = target ? endsOf(viewsOf(target), key.referenced) : []
      const to: End[] = [{ relation: targetName, columns: key.referenced }, ...viewEnds]
      throughViews += from.length * to.length - 1
      if (throughViews > THROUGH_VIEWS_MAX) throw new TooManyRelationships()
      for (const one of from) found.get(one.relation)?.push(...to.map((other) => toRelationship(key, one, other)))
    }
  }
  return own.map((relation) => ({
    ...relation,
    relationships: (found.get(relation) ?? []).sort(compareRelationships),
  }))
}

const toRelationship = (key: Relationship, { columns }: End, to: End): Relationship => {
  const { schema, name } = to.relation
  return { ...key, columns, schema, relation: name, referenced: to.columns }
}

function compareRelationships(a: Relationship, b: Relationship): number {
  const textOf = ({ columns, referenced }: Relationship) => JSON.stringify([referenced, columns])
  return byName(a, b) || compareTexts(a.relation, b.relation) || compareTexts(textOf(a), textOf(b))
}

interface View {
  relation: Relation
  /** Maps columns of the table to their names in the view; several if the view has a column twice. */
  names: Map<string, string[]>
}

/** Finds the views that have columns of a table, including views of such views. */
function findViews(relations: readonly Relation[]): (table: Relation) => View[] {
  const byId = new Map(relations.map((relation) => [relation.id, relation]))
  const views = new Map<number, View[]>()
  // A replaced view can refer to itself: queries of it fail, and its columns have no source.
  const tableOf = (own: Origin): Origin | undefined => {
    const visited = new Set<Origin>()
    for (let origin: Origin | undefined = own; origin && !visited.has(origin); ) {
      const { relation: id, column }: Origin = origin
      const relation: Relation | undefined = byId.get(id)
      if (!relation || relation.origins.length === 0) return origin
      visited.add(origin)
      origin = relation.origins.find(({ name }) => name === column)
    }
    return undefined
  }
  for (const relation of relations) {
    const origins = relation.origins.flatMap((own) => ({ name: own.name, from: tableOf(own) }))
    const byTable = Map.groupBy(origins, ({ from }) => from?.relation ?? 0)
    for (const [id, own] of byTable) {
      const names = Map.groupBy(own, ({ from }) => from?.column ?? '')
      const view = { relation, names: new Map(Array.from(names, ([name, all]) => [name, all.map((one) => one.name)])) }
      const existing = views.get(id)
      if (existing) existing.push(view)
      else views.set(id, [view])
    }
  }
  return ({ id }) => views.get(id) ?? []
}

/** Maps the ids of views to their names of the primary key columns, if they have the whole key of a table. */
export function primaryKeysOfViews(relations: readonly Relation[], keyOf: (table: Relation) => readonly string[]) {
  const viewsOf = findViews(relations)
  const viewEnds = new Map<number, string[]>()
  for (const table of relations) {
    const key = keyOf(table)
    if (key.length === 0) continue
    for (const { relation, names } of viewsOf(table)) {
      const own = key.flatMap((column) => names.get(column)?.slice(0, 1) ?? [])
      if (own.length === key.length) viewEnds.set(relation.id, [...(viewEnds.get(relation.id) ?? []), ...own])
    }
  }
  return viewEnds
}

/** Returns every combination of names for the columns, for views that have all of them. */
function endsOf(views: readonly View[], columns: readonly string[]): ViewEnd[] {
  return views.flatMap(({ relation, names }) => {
    const choices = columns.map((column) => names.get(column) ?? [])
    const count = choices.reduce((product, { length }) => product * length, 1)
    if (count > THROUGH_VIEWS_MAX) throw new TooManyRelationships()
    const start: string[][] = [[]]
    const combinations = choices.reduce((all, own) => all.flatMap((one) => own.map((name) => [...one, name])), start)
    return combinations.map((columns) => ({ relation, columns }))
  })
}
