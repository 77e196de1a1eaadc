import * as z from 'zod'
import { Text } from './common-values.ts'
import { ApiError } from './error.ts'

/** A place in a list that is ordered by time and id; opaque to clients. */
export interface Position {
  at: Date
  id: string
}

export const encodeCursor = (at: Date, id: string): string => btoa(`${at.getTime()} ${id}`).replace(/=+$/, '')

/** The end of the year 9999, beyond which ISO dates have another form. */
const LAST_MOMENT = Date.UTC(9999, 11, 31)

/** A cursor that we did not give out is a 400 that names its parameter. */
export function decodeCursor(parameter: string, cursor: string | undefined): Position | undefined {
  if (cursor === undefined) return undefined
  const [, at, id] = /^(\d{1,15}) ([\w-]+)$/.exec(plain(cursor)) ?? []
  if (!at || !id || Number(at) > LAST_MOMENT) throw invalidCursor(parameter)
  return { at: new Date(Number(at)), id }
}

/** What a list is ordered by, beside the id. */
type SortKey = 'name' | 'inserted_at'

/** The same where clients choose the order; the key is a name or a moment. */
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

export function placeOf(parameter: string, sort: SortKey, cursor: string): Place {
  const place = sort === 'name' ? nameAt(cursor) : momentAt(parameter, cursor)
  if (!place || !z.uuid().safeParse(place.id).success) throw invalidCursor(parameter)
  return place
}

function momentAt(parameter: string, cursor: string): Place | undefined {
  const position = decodeCursor(parameter, cursor)
  return position && { key: position.at.toISOString(), id: position.id }
}

function nameAt(cursor: string): Place | undefined {
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

function plain(cursor: string): string {
  try {
    return atob(cursor)
  } catch {
    return ''
  }
}

/** Cursors: those of the page's ends. A page that holds nothing has the one that it was asked for with. */
interface Neighbours {
  before: string | undefined
  after: string | undefined
}

/** The links of a v2 list: paths with the query of this page and the cursor of the next. */
export function pageLinks(path: string, query: Record<string, string | number | undefined>, neighbours: Neighbours) {
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
