import type * as z from 'zod'

/** A row of a project's logs, as defined in src/outbound/logs/rows.ts. */
export interface LogRow {
  id: string
  /** ISO 8601, in UTC, with microseconds. */
  timestamp: string
  source: string
  severity_text: string
  event_message: string
  log_attributes: Record<string, string>
}

export interface Batch {
  /** Identical for repeated sends of the same rows. */
  id: string
  projectRef: string
  /** The time of the first row. */
  at: Date
  rows: readonly LogRow[]
}

interface Outgoing {
  url: string
  headers: Readonly<Record<string, string>>
  body: string | Uint8Array<ArrayBuffer>
  gzip: boolean
}

/** Network access for a batch, with a time limit for all of it. Errors are thrown as SendFailure. */
export interface Transport {
  /** Resolves on a 2xx response. Redirects are not followed. */
  post(request: Outgoing): Promise<void>
  /** For backends with their own HTTP client. */
  fetch(request: Request): Promise<Response>
  connect(address: { hostname: string; port: number }, options: { tls: boolean }): Socket
  signal: AbortSignal
}

/** The destination of a batch and its config field. It is checked when the drain is saved and before each batch. */
export type Target = { field: string; url: string } | { field: string; host: string; port: number }

/** A kind of destination. */
export interface Backend<C extends z.ZodType<object> = z.ZodType<object>> {
  /** A strict schema, so that issues name unknown fields. */
  config: C
  /** Fields that are encrypted and never returned. */
  secrets: readonly string[]
  target(config: z.output<C>): Target
  send(config: z.output<C>, batch: Batch, transport: Transport): Promise<void>
  /** The delay after a batch that was not full, so that the next one is larger. */
  lingerMs?(config: z.output<C>): number
}

/** Checks that the schema and its users agree on the type of the config. */
export const backend = <C extends z.ZodType<object>>(one: Backend<C>): Backend => one as unknown as Backend

interface FailureDetails {
  status?: number
  retryAfterMs?: number
}

/** The reason why a batch failed, for the log. It never contains the response, which may repeat the logs. */
export class SendFailure extends Error {
  override name = 'SendFailure'
  readonly code: string
  readonly status: number | undefined
  readonly retryAfterMs: number | undefined

  constructor(code: string, message: string, { status, retryAfterMs }: FailureDetails = {}) {
    super(message)
    this.code = code
    this.status = status
    this.retryAfterMs = retryAfterMs
  }

  /** True if the destination rejected these rows; it may accept others. */
  get isContentRejection(): boolean {
    return this.status === 400 || this.status === 413 || this.status === 422
  }
}

/** Returns nanoseconds since the epoch. */
export function nanosOf({ timestamp }: LogRow): string {
  const [seconds = '', fraction = ''] = timestamp.replace('Z', '').split('.')
  return `${Date.parse(`${seconds}Z`) / 1000}${fraction.padEnd(9, '0')}`
}

export const levelOf = ({ severity_text }: LogRow): string => severity_text.toLowerCase()

/** Groups rows by source and keeps their order. */
export const bySource = (rows: readonly LogRow[]): Map<string, LogRow[]> => Map.groupBy(rows, ({ source }) => source)

export const basicAuth = (username: string, password: string): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
