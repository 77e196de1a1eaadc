import { logLine } from '../src/platform/http/log.ts'

export type HostLog = (event: string, fields: Record<string, unknown>) => void

/** A line of the host's log: an event that carries an error is one. */
export const hostLogLine = (event: string, fields: Record<string, unknown>): string =>
  logLine(fields.error === undefined ? 'info' : 'error', event, fields)
