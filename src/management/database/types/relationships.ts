import type { Origin, Relation, Relationship } from './catalogue.ts'
import { byName, compareTexts } from './print-types.ts'

/** How many there may be that no key says itself: each view of the one side is joined to each of the other. */
const THROUGH_VIEWS_MAX = 20_000

export class TooManyRelationships extends Error {
  override readonly name = 'TooManyRelationships'
  override readonly message = `views lead to more than ${THROUGH_VIEWS_MAX} relationships`
}

interface End {
  relation: Pick<Relation, 'schema' | 'name'>
  columns: string[]
}

interface ViewEnd extends End {
  relation: Relation
}

/** A table's keys also hold for each view that shows all columns of the key, on either side. */
export function relateViews(relations: readonly Relation[]): Relation[] {
  const place = ({ schema, name }: End['relation']) => JSON.stringify([schema, name])
  const byPlace = new Map(relations.map((relation) => [place(relation), relation]))
  const viewsOf = findViews(relations)
  const found = new Map<Relation, Relationship[]>(relations.map((relation) => [relation, []]))
  let throughViews = 0
  for (const relation of relations) {
    for (const key of relation.relationships) {
      const named = { schema: key.schema, name: key.relation }
      const target = byPlace.get(place(named))
      const from = [{ relation, columns: key.columns }, ...endsOf(viewsOf(relation), key.columns)]
      const shown = target ? endsOf(viewsOf(target), key.referenced) : []
      const to: End[] = [{ relation: named, columns: key.referenced }, ...shown]
      throughViews += from.length * to.length - 1
      if (throughViews > THROUGH_VIEWS_MAX) throw new TooManyRelationships()
      for (const one of from) found.get(one.relation)?.push(...to.map((other) => joined(key, one, other)))
    }
  }
  return relations.map((relation) => ({ ...relation, relationships: (found.get(relation) ?? []).sort(inOrder) }))
}

const joined = (key: Relationship, { columns }: End, to: End): Relationship => {
  const { schema, name } = to.relation
  return { ...key, columns, schema, relation: name, referenced: to.columns }
}

function inOrder(a: Relationship, b: Relationship): number {
  const textOf = ({ columns, referenced }: Relationship) => JSON.stringify([referenced, columns])
  return byName(a, b) || compareTexts(a.relation, b.relation) || compareTexts(textOf(a), textOf(b))
}

interface View {
  relation: Relation
  /** By the names of the table's columns, what the view calls each; more than one where it shows one twice. */
  names: Map<string, string[]>
}

/** The views that show a table's columns, those of views of it among them. */
function findViews(relations: readonly Relation[]): (table: Relation) => View[] {
  const byId = new Map(relations.map((relation) => [relation.id, relation]))
  const views = new Map<number, View[]>()
  // A view that was replaced can show itself; no query of it succeeds, and none of its columns has an end.
  const tableOf = (own: Origin): Origin | undefined => {
    const passed = new Set<Origin>()
    for (let origin: Origin | undefined = own; origin && !passed.has(origin); ) {
      const { relation: id, column }: Origin = origin
      const relation: Relation | undefined = byId.get(id)
      if (!relation || relation.origins.length === 0) return origin
      passed.add(origin)
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
      const known = views.get(id)
      if (known) known.push(view)
      else views.set(id, [view])
    }
  }
  return ({ id }) => views.get(id) ?? []
}

/** By the ids of views, under which names they show the whole key of a table, each column once. */
export function showKeys(relations: readonly Relation[], keyOf: (table: Relation) => readonly string[]) {
  const viewsOf = findViews(relations)
  const shown = new Map<number, string[]>()
  for (const table of relations) {
    const key = keyOf(table)
    if (key.length === 0) continue
    for (const { relation, names } of viewsOf(table)) {
      const own = key.flatMap((column) => names.get(column)?.slice(0, 1) ?? [])
      if (own.length === key.length) shown.set(relation.id, [...(shown.get(relation.id) ?? []), ...own])
    }
  }
  return shown
}

/** Each choice of names for all of the columns, where the view shows them all. */
function endsOf(views: readonly View[], columns: readonly string[]): ViewEnd[] {
  return views.flatMap(({ relation, names }) => {
    const choices = columns.map((column) => names.get(column) ?? [])
    const count = choices.reduce((product, { length }) => product * length, 1)
    if (count > THROUGH_VIEWS_MAX) throw new TooManyRelationships()
    const start: string[][] = [[]]
    const chosen = choices.reduce((all, own) => all.flatMap((one) => own.map((name) => [...one, name])), start)
    return chosen.map((columns) => ({ relation, columns }))
  })
}
