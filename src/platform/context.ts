import type { SQL } from 'drizzle-orm'
import type { Config } from '../config.ts'
import type { Bindings } from './bindings.ts'
import type { Db } from './db/client.ts'
import type { Logger } from './http/log.ts'

/** Settings, clock, control database and log of one request, message or cron run. Services read time and settings from here only. */
export interface PlatformCtx {
  config: Config
  bindings: Bindings
  requestId: string
  db: Db
  now(): Date
  /** Time of the control database, for decisions on which several isolates must agree. */
  databaseNow: SQL
  waitUntil(work: Promise<unknown>): void
  log: Logger
}
