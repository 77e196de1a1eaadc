import type { SQL } from 'drizzle-orm'
import type { Config } from '../config.ts'
import type { Bindings } from './bindings.ts'
import type { Db } from './db/client.ts'
import type { Logger } from './http/log.ts'

/** Settings, clock, control database and log of one request, message or tick. Nothing reads the environment or the wall clock itself. */
export interface PlatformCtx {
  config: Config
  bindings: Bindings
  requestId: string
  db: Db
  now(): Date
  /** The time of the control database, for decisions that several isolates must agree on. */
  databaseNow: SQL
  waitUntil(work: Promise<unknown>): void
  log: Logger
}
