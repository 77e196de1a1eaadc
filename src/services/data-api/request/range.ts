import { requestError } from '../data-api-error.ts'
import type { Window } from './query-string.ts'

const RANGE = /^(\d{1,15})-(\d{0,15})$/

/** The rows that a `Range` header asks for; undefined if there is none. */
export function parseRange(header: string | null): Window | undefined {
  const [, from, to] = RANGE.exec(header?.trim() ?? '') ?? []
  if (from === undefined) return undefined
  const offset = Number(from)
  if (!to) return { offset }
  if (Number(to) < offset) {
    const details = 'The lower boundary must be lower than or equal to the upper boundary in the Range header.'
    throw requestError('PGRST103', { details })
  }
  return { offset, limit: Number(to) - offset + 1 }
}

/** The rows of a window that are in the range of the header too. Refuses an empty result, unless the limit itself is zero. */
export function narrowWindow(window: Window, range: Window): Window {
  if (window.limit === 0) return window
  const narrowed = intersectWindows(window, range)
  if (narrowed.limit !== 0) return narrowed
  throw requestError('PGRST103', { details: 'The limit and the Range header have no rows in common.' })
}

/** The rows that are in both windows. */
export function intersectWindows(a: Window, b: Window): Window {
  const offset = Math.max(a.offset, b.offset)
  const ends = [a, b].flatMap((window) => (window.limit === undefined ? [] : [window.offset + window.limit]))
  return ends.length === 0 ? { offset } : { offset, limit: Math.max(0, Math.min(...ends) - offset) }
}

interface Page {
  offset: number
  rows: number
  /** Undefined if the caller did not ask for a count. */
  total: number | undefined
}

export function contentRange({ offset, rows, total }: Page): string {
  const range = rows === 0 ? '*' : `${offset}-${offset + rows - 1}`
  return `${range}/${total ?? '*'}`
}

/** The status of a page: 206 if it is only a part of a known total. Refuses an offset beyond that total. */
export function pageStatus({ offset, rows, total }: Page): 200 | 206 {
  if (total === undefined) return 200
  if (offset > total) {
    const details = `An offset of ${offset} was requested, but there are only ${total} rows.`
    throw requestError('PGRST103', { details, headers: { 'content-range': `*/${total}` } })
  }
  return rows < total ? 206 : 200
}
