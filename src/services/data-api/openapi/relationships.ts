import { addTo, endsOf, referencesBetween, viewOrigins } from '../schema/relationships.ts'
import { keyOf } from '../schema/types.ts'
import type { Catalogue, Relation } from './catalogue.ts'
import { byName, compareTexts } from './order.ts'

/** The maximum number of relationships through views: each view on one side is joined to each on the other. */
const THROUGH_VIEWS_MAX = 20_000

export class TooManyRelationships extends Error {
  override readonly name = 'TooManyRelationships'
  override readonly message = `the views have more than ${THROUGH_VIEWS_MAX} relationships`
}

interface Relationship {
  name: string
  schema: string
  relation: string
  columns: string[]
  referenced: string[]
  oneToOne: boolean
}

export interface RelatedRelation extends Relation {
  relationships: Relationship[]
}

/** Adds the relationships of each relation. A foreign key also applies to each view that has all its columns, on either side. */
export function relate(catalogue: Catalogue): RelatedRelation[] {
  const own = new Map(catalogue.relations.map((relation) => [keyOf(relation), relation]))
  const found = new Map<string, Relationship[]>()
  let throughViews = 0
  const exposed = {
    origins: viewOrigins(catalogue),
    isExposed: (name: Parameters<typeof keyOf>[0]) => own.has(keyOf(name)),
  }
  for (const ends of endsOf(catalogue, exposed)) {
    throughViews += ends.pairsOfViews
    if (throughViews > THROUGH_VIEWS_MAX) throw new TooManyRelationships()
    for (const { constraint, source, target, columns, isUnique } of referencesBetween(ends)) {
      addTo(found, keyOf(source), {
        ...{ name: constraint, schema: target.schema, relation: target.name, oneToOne: isUnique },
        columns: columns.map(([column]) => column),
        referenced: columns.map(([, column]) => column),
      })
    }
  }
  return catalogue.relations.map((relation) => ({
    ...relation,
    relationships: (found.get(keyOf(relation)) ?? []).sort(compareRelationships),
  }))
}

function compareRelationships(a: Relationship, b: Relationship): number {
  const textOf = ({ columns, referenced }: Relationship) => JSON.stringify([referenced, columns])
  return byName(a, b) || compareTexts(a.relation, b.relation) || compareTexts(textOf(a), textOf(b))
}
