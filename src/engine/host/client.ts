import * as z from 'zod'
import { parseJson } from '../../platform/http/parse-json.ts'
import { BackupGone } from '../backup.ts'
import { databaseMissing, EngineBusy, EngineRefusal, EngineUnavailable, Superseded } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { SettingsRefused } from '../settings.ts'
import type { HostAddress } from './directory.ts'

const REQUEST_MS_MAX = 35_000
/** Longest wait for an operation. The operation continues on the host, and the task that waited is retried. */
const OPERATION_MS_MAX = 300_000
/**
 * Longest wait for an operation whose time grows with the data. A task that stopped waiting would not learn that the operation failed,
 * and its retries would start the operation again without end.
 */
export const LONG_OPERATION_MS_MAX = 24 * 3_600_000
/** Short, because another host can be used instead of one that does not answer. */
const DESCRIBE_MS_MAX = 3_000
const LOCK_WAIT_MS = 10_000
/** Interval of renewals. Several fit into the time after which the host releases a lock. */
const LOCK_RENEWAL_MS = 1_500

const Failure = z.object({
  error: z.object({
    code: z.string(),
    message: z.string(),
    refusals: z.array(z.object({ setting: z.string(), reason: z.string() })).default([]),
  }),
})

export const NoContent = z.unknown().transform(() => undefined)

export const Instance = z.object({
  name: z.string(),
  state: z.enum(['running', 'starting', 'asleep', 'paused', 'failed']),
  version: z.string(),
  error: z.string().nullish(),
  size_bytes: z.number().nullish(),
  /** When WAL was last discarded instead of archived; absent once a later backup is complete. */
  wal_discarded_at: z.string().optional(),
})
export const Instances = z.array(Instance)

/** Optional features of a host. */
export type Feature = 'backups'
const Host = z.object({
  /** The same at all addresses of one daemon. */
  id: z.string().optional(),
  region: z.string(),
  features: z.array(z.string()).default([]),
  versions: z.array(z.object({ major: z.string(), version: z.string(), is_default: z.boolean() })),
  sizes: z.array(z.string()),
  capacity: z.object({
    memory_bytes: z.number(),
    memory_free_bytes: z.number(),
    disk_bytes: z.number(),
    disk_free_bytes: z.number(),
    instances: z.number(),
  }),
})
/** What a host reports about itself: region, versions, sizes, features and capacity. */
export type HostDescription = z.output<typeof Host>

export interface Call {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE'
  /** Below `/host/v1`. */
  path: string
  body?: object
  timeoutMs?: number
  /** Longest wait for an operation that continues after the request. */
  waitMs?: number
}

/** Sends a call and waits for its result. */
type Ask = <Reply>(schema: z.ZodType<Reply>, call: Call) => Promise<Reply>

export type HostApi = ReturnType<typeof hostApi>

/** Client of a host's control API (docs/hosts.md). */
export function hostApi(host: HostAddress, egress: Fetcher | undefined) {
  async function send({ method, path, body, timeoutMs = REQUEST_MS_MAX }: Call, lock?: string): Promise<Response> {
    const headers = {
      authorization: `Bearer ${host.key}`,
      ...(body && { 'content-type': 'application/json' }),
      ...(lock && { 'x-lock': lock }),
    }
    const init = {
      method,
      headers,
      signal: AbortSignal.timeout(timeoutMs),
      ...(body && { body: JSON.stringify(body) }),
    }
    try {
      return await (egress ?? globalThis).fetch(`${host.url}/host/v1${path}`, init)
    } catch (error) {
      throw new EngineUnavailable('the database host does not answer', { cause: error })
    }
  }

  /** Sends a call; polls the operation if it takes longer than one request. */
  async function ask<Reply>(schema: z.ZodType<Reply>, call: Call, lock?: string): Promise<Reply> {
    const until = Date.now() + (call.waitMs ?? OPERATION_MS_MAX)
    let response = await send(call, lock)
    while (response.status === 202) {
      const { operation } = z.object({ operation: z.string() }).parse(await response.json())
      if (Date.now() > until)
        throw new EngineBusy('the database host is still running the operation: wait until it ends')
      response = await send({ method: 'GET', path: `/operations/${operation}` })
      if (response.status === 404)
        throw new EngineUnavailable('the database host restarted during the operation: try again')
    }
    const text = await response.text()
    if (!response.ok) throw failureOf(response.status, text)
    if (response.headers.get('content-type')?.startsWith('text/plain')) return schema.parse(text)
    return schema.parse(text === '' ? undefined : JSON.parse(text))
  }

  /** Runs `work` under the project's lock on the host, if the fence still allows it. */
  async function withLock<Value>(ref: string, fence: Fence | undefined, work: (ask: Ask) => Promise<Value>) {
    const locks = `/instances/${ref}/lock`
    const take = { method: 'POST', path: locks, body: { wait_ms: LOCK_WAIT_MS } } as const
    const { lock } = await ask(z.object({ lock: z.string() }), take)
    const path = `${locks}/${lock}`
    const renewal = setInterval(() => ask(NoContent, { method: 'PUT', path }).catch(() => {}), LOCK_RENEWAL_MS)
    try {
      if (fence && !(await fence())) throw new Superseded(`another caller has taken over ${ref}`)
      return await work((schema, call) => ask(schema, call, lock))
    } finally {
      clearInterval(renewal)
      // The host keeps the lock until operations that still run under it end.
      await ask(NoContent, { method: 'DELETE', path }).catch(() => {})
    }
  }

  return {
    host,
    ask,
    withLock,
    describe: () => ask(Host, { method: 'GET', path: '', timeoutMs: DESCRIBE_MS_MAX }),
    /** Whether the host answers, even if it refuses the key or is slow. A proxy that answers for a host that is gone does not count. */
    async answers(): Promise<boolean> {
      const response = await send({ method: 'GET', path: '' }).catch(() => undefined)
      return response !== undefined && (response.ok || Failure.safeParse(parseJson(await response.text())).success)
    },
    /** Changes a project's instance under its lock; the path of the call is below that of the instance. */
    change: (ref: string, fence: Fence | undefined, call: Call): Promise<void> =>
      withLock(ref, fence, (askInLock) => askInLock(NoContent, { ...call, path: `/instances/${ref}${call.path}` })),
  }
}

function failureOf(status: number, text: string): Error {
  const parsed = Failure.safeParse(parseJson(text))
  if (!parsed.success) return new EngineUnavailable(`the database host answered ${status}`)
  const { code, message, refusals } = parsed.data.error
  if (code === 'unknown_instance') return databaseMissing()
  if (code === 'unknown_backup') return new BackupGone(message)
  if (code === 'locked') return new EngineBusy(message, { code: '55006' })
  if (status !== 422) return new EngineUnavailable(message)
  return refusals.length > 0 ? new SettingsRefused(refusals) : new EngineRefusal(message)
}

/** Maps refused settings to `EngineRefusal`: a retry would be refused too. */
export function throwRefusal(error: unknown): never {
  throw error instanceof SettingsRefused ? new EngineRefusal(error.message, { cause: error }) : error
}

/** Error handler for calls that may find no instance. */
export function ignoreMissing(error: unknown): undefined {
  if (error instanceof EngineUnavailable && error.code === '3D000') return undefined
  throw error
}
