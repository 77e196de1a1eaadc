import { StartError } from '../start-error.ts'

const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/

/** Parses an option: a day in UTC, or a moment. */
export function readTime(option: string, text: string): Date {
  const at = new Date(TIME.test(text) ? text : Number.NaN)
  // `Date` accepts days such as February 31 and turns them into other days.
  const day = new Date(`${text.slice(0, 10)}T00:00:00Z`)
  if (Number.isNaN(at.getTime()) || Number.isNaN(day.getTime()) || !text.startsWith(day.toISOString().slice(0, 10)))
    throw new StartError(`${option} ${text} is not a time such as 2026-01-31 or 2026-01-31T18:00:00Z`)
  return at
}
