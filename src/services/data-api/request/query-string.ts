import { requestError } from '../data-api-error.ts'
import { type Filter, type Located, type LogicGroup, parseFilter, parseLogic, treePath } from './filters.ts'
import { type OrderTerm, parseColumns, parseOrder } from './order.ts'
import { parseSelect, type SelectItem } from './select.ts'

export interface Window {
  limit?: number | undefined
  offset: number
}

export interface QueryParams {
  select: readonly SelectItem[]
  filters: readonly Located<Filter>[]
  logic: readonly Located<LogicGroup>[]
  orders: readonly Located<OrderTerm[]>[]
  windows: readonly Located<Window>[]
  columns: readonly string[] | undefined
  onConflict: readonly string[] | undefined
  /** Arguments of a function; only for calls by GET. */
  args: readonly (readonly [string, string])[]
}

export type Parameter = readonly [name: string, value: string]

const RESERVED = new Set(['select', 'columns', 'on_conflict'])

/** Parses the query string. In a call of a function, parameters without an operator are arguments. */
export function parseQuery(parameters: readonly Parameter[], { isCall = false } = {}): QueryParams {
  const filters: Located<Filter>[] = []
  const logic: Located<LogicGroup>[] = []
  const orders: Located<OrderTerm[]>[] = []
  const windows = new Map<string, Located<Window>>()
  const args: [string, string][] = []
  for (const [key, value] of parameters) {
    const last = key.slice(key.lastIndexOf('.') + 1)
    if (RESERVED.has(key)) continue
    if (last === 'and' || last === 'or') logic.push(parseLogic(key, value))
    else if (last === 'order') {
      if (value !== '') orders.push(parseOrder(key, value))
    } else if (last === 'limit' || last === 'offset') addWindow(windows, key, last, value)
    else if (isCall && !key.includes('.') && !hasOperator(value)) args.push([key, value])
    else filters.push(parseFilter(key, value))
  }
  const firstOf = (name: string) => parameters.find(([key]) => key === name)?.[1]
  const columns = firstOf('columns')
  const onConflict = firstOf('on_conflict')
  return {
    ...{
      select: parseSelect(firstOf('select') || '*'),
      filters,
      logic,
      orders,
      windows: [...windows.values()],
      args,
    },
    columns: columns === undefined ? undefined : parseColumns('columns', columns),
    onConflict: onConflict === undefined ? undefined : parseColumns('on_conflict', onConflict),
  }
}

const OPERATOR =
  /^(not\..*\.|is\.|in\.|isdistinct\.|(eq|gte|gt|lte|lt|like|ilike|match|imatch)(\((any|all)\))?\.|(neq|cs|cd|ov|sl|sr|nxr|nxl|adj)\.|(fts|plfts|phfts|wfts)[.(])/s

const hasOperator = (value: string): boolean => OPERATOR.test(value)

const INTEGER = /^-?\d{1,18}$/

function addWindow(windows: Map<string, Located<Window>>, key: string, name: 'limit' | 'offset', value: string): void {
  const { path } = treePath(key)
  const place = path.join('\0')
  const known = windows.get(place)?.value ?? { offset: 0 }
  if (!INTEGER.test(value)) return
  const number = Number(value)
  if (name === 'limit' && number < 0) {
    throw requestError('PGRST103', { details: 'Limit should be greater than or equal to zero.' })
  }
  windows.set(place, { path, value: { ...known, [name]: Math.max(0, number) } })
}
