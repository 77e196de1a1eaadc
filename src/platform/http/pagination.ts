import * as z from 'zod'
import { Text } from './common-values.ts'
import { ApiError } from './error.ts'

/** A position in a list that is ordered by time and id. Clients see it as an opaque cursor. */
export interface Position {
  at: Date
  id: string
}

export const encodeCursor = (at: Date, id: string): string => btoa(`${at.getTime()} ${id}`).replace(/=+$/, '')

/** The end of the year 9999: later ISO dates have another format. */
const LAST_MOMENT = Date.UTC(9999, 11, 31)

/** Decodes a cursor. Throws a 400 that names the parameter if the cursor is invalid. */
export function decodeCursor(parameter: string, cursor: string | undefined): Position | undefined {
  if (cursor === undefined) return undefined
  const [, at, id] = /^(\d{1,15}) ([\w-]+)$/.exec(decodeBase64(cursor)) ?? []
  if (!at || !id || Number(at) > LAST_MOMENT) throw invalidCursor(parameter)
  return { at: new Date(Number(at)), id }
}

/** Sort key of a list; the id is the second key. */
type SortKey = 'name' | 'inserted_at'

/** A position in a list whose order the client chooses. The key is a name or a time. */
export interface Place {
  key: string
  id: string
}

interface Listed {
  name: string
  insertedAt: Date
  id: string
}

export const cursorOf = (sort: SortKey, { name, insertedAt, id }: Listed): string =>
  sort === 'name' ? btoa(`name ${encodeURIComponent(name)} ${id}`) : encodeCursor(insertedAt, id)

/** Decodes a cursor of cursorOf. Throws a 400 that names the parameter if the cursor is invalid for this order. */
export function placeOf(parameter: string, sort: SortKey, cursor: string): Place {
  const place = sort === 'name' ? decodeNameCursor(cursor) : decodeTimeCursor(parameter, cursor)
  if (!place || !z.uuid().safeParse(place.id).success) throw invalidCursor(parameter)
  return place
}

function decodeTimeCursor(parameter: string, cursor: string): Place | undefined {
  const position = decodeCursor(parameter, cursor)
  return position && { key: position.at.toISOString(), id: position.id }
}

function decodeNameCursor(cursor: string): Place | undefined {
  try {
    const [, name = '', id = ''] = /^name (\S+) (\S+)$/.exec(atob(cursor)) ?? []
    return { key: Text.parse(decodeURIComponent(name)), id }
  } catch {
    return undefined
  }
}

const invalidCursor = (parameter: string) =>
  new ApiError('bad_request.validation_failed', {
    issues: [{ field: `query.${parameter}`, code: 'invalid_cursor', message: 'is not a cursor of this list' }],
  })

function decodeBase64(cursor: string): string {
  try {
    return atob(cursor)
  } catch {
    return ''
  }
}

/** Links of a v2 list with cursors. */
export const PageLinks = z.object({
  first: z.string().nullable().optional(),
  prev: z.string().nullable(),
  next: z.string().nullable(),
})

interface Cursors {
  'page[after]'?: string | undefined
  'page[before]'?: string | undefined
}

/** Requires that the query of a list has at most one cursor. */
export const withOneCursor = <Query extends z.ZodType<Cursors>>(query: Query): Query =>
  query.refine((given) => !(given['page[after]'] && given['page[before]']), {
    path: ['page[before]'],
    message: 'cannot be combined with page[after]',
  })

/**
 * Cuts the page from rows of which one more than the page was selected, and links its neighbours. Rows before a cursor are selected
 * in reverse order. An empty page has the cursor of its request.
 */
export function cutPage<Row>(
  path: string,
  { 'page[after]': after, 'page[before]': before, ...query }: Cursors & PageQuery,
  rows: readonly Row[],
  cursorAt: (row: Row) => string,
) {
  const backwards = before !== undefined
  const more = rows.length > query['page[size]']
  const page = rows.slice(0, query['page[size]'])
  if (backwards) page.reverse()
  const cursor = (row: Row | undefined) => row && cursorAt(row)
  const links = pageLinks(path, query, {
    before: (backwards ? more : after !== undefined) ? (cursor(page[0]) ?? after) : undefined,
    after: backwards || more ? (cursor(page.at(-1)) ?? before) : undefined,
  })
  return { page, links }
}

type PageQuery = { 'page[size]': number } & Record<string, string | number | undefined>

/** Cursors of the page's first and last row; undefined if there is no page beyond. */
interface Neighbours {
  before: string | undefined
  after: string | undefined
}

/** Creates the links of a v2 list: the path with the query of this page and the cursor of another page. */
function pageLinks(path: string, query: Record<string, string | number | undefined>, neighbours: Neighbours) {
  const link = (cursor: Record<string, string>) => {
    const pairs = Object.entries({ ...query, ...cursor }).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`],
    )
    return `${path}?${pairs.join('&')}`
  }
  return {
    first: link({}),
    prev: neighbours.before ? link({ 'page[before]': neighbours.before }) : null,
    next: neighbours.after ? link({ 'page[after]': neighbours.after }) : null,
  }
}
