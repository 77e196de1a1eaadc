import type * as z from 'zod'

/** A row of the project's logs; what it is made of stands in src/outbound/logs/rows.ts. */
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
  /** The same whenever the same rows are sent together. */
  id: string
  projectRef: string
  /** When what is in it was logged, first of all. */
  at: Date
  rows: readonly LogRow[]
}

interface Outgoing {
  url: string
  headers: Readonly<Record<string, string>>
  body: string | Uint8Array<ArrayBuffer>
  gzip: boolean
}

/** How a batch leaves: the time for all of it is bounded, and what goes wrong is thrown as a SendFailure. */
export interface Way {
  /** Redirects are not followed; resolves once it was answered with 2xx. */
  post(request: Outgoing): Promise<void>
  /** For a client of its own. */
  fetch(request: Request): Promise<Response>
  connect(address: { hostname: string; port: number }, options: { tls: boolean }): Socket
  signal: AbortSignal
}

/** Where a batch goes, and the field of the config that says so; judged when the drain is saved and before each batch. */
export type Target = { field: string; url: string } | { field: string; host: string; port: number }

/** One kind of destination. */
export interface Backend<C extends z.ZodType<object> = z.ZodType<object>> {
  /** Strict: its issues name the fields. */
  config: C
  /** The fields that are sealed and never shown. */
  secrets: readonly string[]
  target(config: z.output<C>): Target
  send(config: z.output<C>, batch: Batch, way: Way): Promise<void>
  /** How long to wait after a batch that was not full, so that the next one is larger. */
  lingerMs?(config: z.output<C>): number
}

/** Keeps the type of the config between its schema and what uses it. */
export const backend = <C extends z.ZodType<object>>(one: Backend<C>): Backend => one as unknown as Backend

interface FailureFacts {
  status?: number
  retryAfterMs?: number
}

/** Why a batch was not taken, for the log: without what the destination said, which may repeat what it was sent. */
export class SendFailure extends Error {
  override name = 'SendFailure'
  readonly code: string
  readonly status: number | undefined
  readonly retryAfterMs: number | undefined

  constructor(code: string, message: string, { status, retryAfterMs }: FailureFacts = {}) {
    super(message)
    this.code = code
    this.status = status
    this.retryAfterMs = retryAfterMs
  }

  /** It is what was sent that is not liked: other rows may well be. */
  get isOfContent(): boolean {
    return this.status === 400 || this.status === 413 || this.status === 422
  }
}

/** Nanoseconds since the epoch. */
export function nanosOf({ timestamp }: LogRow): string {
  const [seconds = '', fraction = ''] = timestamp.replace('Z', '').split('.')
  return `${Date.parse(`${seconds}Z`) / 1000}${fraction.padEnd(9, '0')}`
}

export const levelOf = ({ severity_text }: LogRow): string => severity_text.toLowerCase()

/** Rows by their source, each in order. */
export const bySource = (rows: readonly LogRow[]): Map<string, LogRow[]> => Map.groupBy(rows, ({ source }) => source)

export const basicAuth = (username: string, password: string): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
