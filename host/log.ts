import { logLine } from '../src/platform/http/log.ts'

export type HostLog = (event: string, fields: Record<string, unknown>) => void

/** A line of the host's log; an event with the field `error` has the level `error`. */
export const hostLogLine = (event: string, fields: Record<string, unknown>): string =>
  logLine(fields.error === undefined ? 'info' : 'error', event, fields)
