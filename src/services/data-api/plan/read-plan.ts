import { DataApiError, requestError } from '../data-api-error.ts'
import type { Filter, Located, Logic } from '../request/filters.ts'
import type { OrderTerm } from '../request/order.ts'
import type { QueryParams, Window } from '../request/query-string.ts'
import { intersectWindows, narrowWindow } from '../request/range.ts'
import type { SelectedField, SelectedRelation, SelectItem } from '../request/select.ts'
import { isToOne, keyOf, type Name, type Relationship, type SchemaCache, type Table } from '../schema/types.ts'
import { findRelationship } from './find-relationship.ts'

/** A query on one relation, and the queries on the relations that are embedded in its rows. */
export interface ReadNode {
  relation: Name
  /** Undefined if the rows are those of a function that returns no relation. */
  table: Table | undefined
  /** Qualifies the columns. It is the name of the subquery too, if the node is embedded. */
  alias: string
  fields: readonly SelectedField[]
  logic: Logic[]
  order: OrderTerm[]
  window: Window
  children: readonly EmbedNode[]
  /** The children by their keys, and by their names where no other has the name as its key. Of equal ones, the first. */
  childrenByName: ReadonlyMap<string, EmbedNode>
}

export interface EmbedNode extends ReadNode {
  /** The key in the parent's JSON. */
  key: string
  /** The name of the relation or computed relationship in the request. The key is the same if there is no alias. */
  name: string
  relationship: Relationship
  parentAlias: string
  isInner: boolean
  isSpread: boolean
  /** Whether nothing is selected: then the embedded rows only filter those of the parent. */
  isEmpty: boolean
}

interface Root {
  /** A table or a function. */
  relation: Name
  /** The table whose rows are read; undefined for a function that returns rows of no table. */
  table: Table | undefined
}

interface Limits {
  /** The rows that the header `Range` asks for. */
  range: Window | undefined
  rowsMax: number | undefined
  allowsAggregates: boolean
}

export function planRead(
  cache: SchemaCache,
  query: QueryParams,
  { relation, table }: Root,
  { range, rowsMax, allowsAggregates }: Limits,
): ReadNode {
  const alias = relation.name
  const planner = new Planner(cache, relation.schema, allowsAggregates)
  const root: ReadNode = {
    relation,
    table,
    alias,
    ...noConditions(),
    ...planner.select(query.select, { relation: table ?? relation, alias }),
  }
  const at = <Value>({ path }: Located<Value>) => nodeAt(root, path)
  for (const filter of query.filters) at(filter).logic.push(filter.value)
  for (const logic of query.logic) at(logic).logic.push(logic.value)
  for (const order of query.orders) at(order).order.push(...order.value)
  for (const window of query.windows) {
    const node = at(window)
    node.window = intersectWindows(node.window, window.value)
  }
  if (range) root.window = narrowWindow(root.window, range)
  checkNodes(root)
  checkColumns(root)
  if (rowsMax !== undefined) limitRows(root, rowsMax)
  return root
}

const noConditions = () => ({ logic: [] as Logic[], order: [] as OrderTerm[], window: { offset: 0 } as Window })

/** Limit for the embedded resources of a request: each is a subquery. */
const EMBEDS_MAX = 500

class Planner {
  private readonly cache: SchemaCache
  private readonly schema: string
  private readonly allowsAggregates: boolean
  private embeds = 0

  constructor(cache: SchemaCache, schema: string, allowsAggregates: boolean) {
    this.cache = cache
    this.schema = schema
    this.allowsAggregates = allowsAggregates
  }

  select(items: readonly SelectItem[], parent: Pick<ReadNode, 'relation' | 'alias'>) {
    const fields = items.filter((item) => item.kind === 'field')
    if (!this.allowsAggregates && fields.some(({ aggregate }) => aggregate)) throw requestError('PGRST123')
    const relations = items.filter((item) => item.kind === 'relation')
    const children = relations.map((item) => this.embed(item, parent))
    return { fields, children, childrenByName: children.length === 0 ? NO_CHILDREN : byName(children) }
  }

  private embed(item: SelectedRelation, parent: Pick<ReadNode, 'relation' | 'alias'>): EmbedNode {
    const { name, hint, alias, join, isSpread, items } = item
    this.embeds += 1
    if (this.embeds > EMBEDS_MAX) throw tooLarge(`the request embeds more than ${EMBEDS_MAX} resources`)
    // An alias with the name of the relation could be the name of another relation in scope.
    const nodeAlias = `pgrst_embed_${this.embeds}`
    const relationship = findRelationship(this.cache, this.schema, { source: parent.relation, target: name, hint })
    const relation = relationship.target
    const node = { relation, alias: nodeAlias }
    const selected = this.select(items, node)
    if (isSpread && !isToOne(relationship) && hasAggregates(selected)) {
      const details = 'Aggregates are not implemented for one-to-many or many-to-many spreads.'
      throw requestError('PGRST127', { details })
    }
    return {
      ...{ ...node, table: this.cache.tables.get(keyOf(relation)), ...noConditions(), ...selected },
      ...{
        key: alias ?? name,
        name,
        relationship,
        parentAlias: parent.alias,
        isInner: join === 'inner',
        isSpread,
        isEmpty: isEmpty(selected),
      },
    }
  }
}

export const NO_CHILDREN: ReadNode['childrenByName'] = new Map()

function byName(children: readonly EmbedNode[]): Map<string, EmbedNode> {
  const found = new Map<string, EmbedNode>()
  for (const child of children) if (!found.has(child.key)) found.set(child.key, child)
  for (const child of children) if (!found.has(child.name)) found.set(child.name, child)
  return found
}

/** Whether the query around the node applies its aggregates, so that they group the rows of the parent. */
export const isHoisted = (node: ReadNode): node is EmbedNode =>
  'relationship' in node && (node as EmbedNode).isSpread && isToOne((node as EmbedNode).relationship)

/** Whether the query around the node has to apply aggregates to its columns. */
const hoistsAggregates = (node: ReadNode): boolean => isHoisted(node) && hasAggregates(node)

/** Names of functions of the row that the node selects, orders by or filters by. `count` is excluded: Postgres reads it as the aggregate. */
export function computedNames(node: ReadNode): string[] {
  const ordered = node.order.filter(({ relation }) => relation === undefined)
  const filtered = node.logic.flatMap(filtersIn).filter((filter) => !filteredChild(node, filter))
  const names = [...node.fields, ...ordered, ...filtered].map(({ field }) => field.name)
  return [...new Set(names)].filter(
    (name) => node.table && name !== '*' && name !== 'count' && !node.table.columns.has(name),
  )
}

const filtersIn = (logic: Logic): Filter[] => (logic.kind === 'filter' ? [logic] : logic.parts.flatMap(filtersIn))

export const hasAggregates = ({ fields, children }: Pick<ReadNode, 'fields' | 'children'>): boolean =>
  fields.some(({ aggregate }) => aggregate) || children.some(hoistsAggregates)

const isEmpty = ({ fields, children }: Pick<ReadNode, 'fields' | 'children'>): boolean =>
  fields.length === 0 && children.every((child) => child.isEmpty)

function nodeAt(root: ReadNode, path: readonly string[]): ReadNode {
  let node = root
  for (const key of path) {
    const child = node.childrenByName.get(key)
    if (!child) {
      throw requestError('PGRST108', {
        message: `'${key}' is not an embedded resource in this request`,
        hint: `Verify that '${key}' is included in the 'select' query parameter.`,
      })
    }
    node = child
  }
  return node
}

/** The embedded resource that a filter names. A column of the same name takes precedence, unless the filter compares with null. */
export function filteredChild(
  { childrenByName, table }: ReadNode,
  { field, operation }: Filter,
): EmbedNode | undefined {
  if (field.path.length > 0) return undefined
  const comparesNull = operation.kind === 'is' && (operation.value === 'null' || operation.value === 'not_null')
  if (!comparesNull && table?.columns.has(field.name)) return undefined
  const child = childrenByName.get(field.name)
  return child?.key === field.name ? child : undefined
}

/** The embedded resources that filters of the node name, each as often as it is named. */
export const filteredChildren = (node: ReadNode): EmbedNode[] =>
  node.logic.flatMap(filtersIn).flatMap((filter) => filteredChild(node, filter) ?? [])

function checkNodes(node: ReadNode): void {
  for (const logic of node.logic) checkLogic(node, logic)
  for (const { relation } of node.order) if (relation !== undefined) orderedChild(node, relation)
  for (const child of node.children) checkNodes(child)
}

/** An embedded resource can only be compared with null. */
function checkLogic(node: ReadNode, logic: Logic): void {
  if (logic.kind === 'group') {
    for (const part of logic.parts) checkLogic(node, part)
    return
  }
  const child = filteredChild(node, logic)
  if (!child) return
  const { operation } = logic
  if (operation.kind === 'is' && (operation.value === 'null' || operation.value === 'not_null')) return
  throw requestError('PGRST120', {
    message: `Bad operator on the '${child.key}' embedded resource`,
    details: 'Only is null or not is null filters are allowed on embedded resources',
  })
}

/** The embedded resource whose column orders the rows. Each row must have at most one. */
export function orderedChild(node: ReadNode, key: string): EmbedNode {
  const child = node.childrenByName.get(key)
  if (!child) nodeAt(node, [key])
  else if (isToOne(child.relationship)) return child
  throw requestError('PGRST118', {
    message: `A related order on '${key}' is not possible`,
    details: `'${node.relation.name}' and '${key}' do not form a many-to-one or one-to-one relationship`,
  })
}

const tooLarge = (message: string) => new DataApiError({ status: 500, code: '54000', message })

/** Limit for the columns of all queries of a request. SQL names a spread column on each level. */
const COLUMNS_MAX = 20_000

function checkColumns(root: ReadNode): void {
  let total = 0
  countColumns(root)
  if (total <= COLUMNS_MAX) return
  throw tooLarge(`the request selects more than ${COLUMNS_MAX} columns`)

  function countColumns({ fields, children, table }: ReadNode): number {
    const columns = table?.columns.size ?? 1
    // If nothing is selected, the query still names the columns.
    let count = fields.length === 0 ? columns : 0
    for (const { field, aggregate } of fields) {
      count += field.name === '*' && !aggregate ? columns : 1
    }
    for (const child of children) {
      const ofChild = countColumns(child)
      count += child.isSpread ? ofChild : 1
      // The function gets a row of all columns.
      if (child.relationship.kind === 'computed') count += columns
    }
    total += count
    return count
  }
}

function limitRows(node: ReadNode, rowsMax: number): void {
  const { offset, limit = Number.POSITIVE_INFINITY } = node.window
  node.window = { offset, limit: Math.min(limit, rowsMax) }
  for (const child of node.children) limitRows(child, rowsMax)
}
