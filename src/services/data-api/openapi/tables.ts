import { keyOfView, viewOrigins } from '../schema/relationships.ts'
import { type Catalogue, type Column, isView, type Type } from './catalogue.ts'
import type { ColumnDetails, Details } from './catalogue-details.ts'
import { byName } from './order.ts'
import { type RelatedRelation, relate } from './relationships.ts'

/** A table or view of an OpenAPI document. */
export interface Table {
  name: string
  comment: string | null
  writable: boolean
  columns: TableColumn[]
}

export interface TableColumn extends ColumnDetails {
  nullable: boolean
  values: string[] | null
  inKey: boolean
  refersTo: { table: string; column: string } | undefined
}

/** The tables and views of a document. Leaves out partitions, whose rows are in their parent table, and unusable relations. */
export function tablesOf(read: Catalogue, { relations: found }: Details): Table[] {
  const details = new Map(found.map((one) => [one.id, one]))
  const types = new Map(read.types.map((type) => [type.id, type]))
  const relations = relate(read)
  const views = new Set(relations.filter(isView).map(({ name }) => name))
  const keys = new Map(read.keys.filter(({ primary }) => primary).map(({ o, c }) => [o, c]))
  const origins = viewOrigins(read)
  return relations
    .flatMap((relation) => {
      const own = details.get(relation.id)
      if (!own?.usable || own.isPartition) return []
      const key = new Set(isView(relation) ? keyOfView(relation.id, keys, origins) : keys.get(relation.id))
      const byColumn = new Map(relation.columns.map((column) => [column.name, column]))
      const columns = own.columns.map((column) => ({
        ...column,
        nullable: byColumn.get(column.name)?.nullable ?? true,
        values: valuesOf(byColumn.get(column.name), types),
        inKey: key.has(column.name),
        refersTo: referenceOf(column.name, relation, views),
      }))
      const writable = !isView(relation) || relation.insertable || relation.updatable
      return [{ name: relation.name, comment: own.comment, writable, columns }]
    })
    .sort(byName)
}

function valuesOf(column: Column | undefined, types: ReadonlyMap<number, Type>): string[] | null {
  let type = types.get(column?.type ?? 0)
  while (type?.base) type = types.get(type.base)
  return type?.values ?? null
}

/** Returns the target of a foreign key of this column alone, preferring a table to its views. */
function referenceOf(column: string, { schema, relationships }: RelatedRelation, views: ReadonlySet<string>) {
  const own = relationships.filter(
    ({ schema: other, columns: [only, ...more] }) => other === schema && only === column && more.length === 0,
  )
  const found = own.find(({ relation }) => !views.has(relation)) ?? own[0]
  const [referenced] = found?.referenced ?? []
  return found && referenced !== undefined ? { table: found.relation, column: referenced } : undefined
}
