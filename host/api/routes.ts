import { randomUUID } from 'node:crypto'
import * as z from 'zod'
import { diskProblem } from '../instances/disk.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool } from '../instances/instances.ts'
import type { Locks } from '../instances/locks.ts'
import type { Replicas } from '../replicas/replicas.ts'
import { offeredSizes } from '../settings/sizes.ts'
import { mutation, type Route, route } from './api.ts'

/** Seconds without a session after which an instance sleeps; null for never. */
const SleepAfterSeconds = z.int().min(1).nullable()
const Spec = z.strictObject({
  version: z.string().optional(),
  size: z.string().optional(),
  password: z.string().min(1),
  sleep_after_seconds: SleepAfterSeconds.optional(),
})
const Copy = z.strictObject({
  from: z.string(),
  password: z.string().min(1),
  data: z.boolean(),
  size: z.string().optional(),
  sleep_after_seconds: SleepAfterSeconds.optional(),
})
const Lock = z.strictObject({ wait_ms: z.int().min(0).max(60_000).default(0) })

interface Parts {
  pool: InstancePool
  locks: Locks
  region: string
  features: readonly string[]
  replicas: Pick<Replicas, 'list'>
  /** Ends the sessions of clients, before the instance stops. */
  endSessions(name: string): void
  /** Removes the archive of a deleted instance. */
  removeArchive(name: string): Promise<void> | undefined
}

/** The life cycle of instances. */
export function lifecycleRoutes({
  pool,
  locks,
  region,
  features,
  endSessions,
  removeArchive,
  replicas,
}: Parts): Route[] {
  // A new one for each start is enough: it only tells two addresses of one daemon from two daemons.
  const id = randomUUID()
  const primaries = () => pool.list().filter(({ record }) => !record.primary && !record.sealed)
  const requireWithoutSessions = (name: string) => {
    endSessions(name)
    return pool.require(name)
  }
  return [
    route('GET', '', async () => {
      const versions = pool.versions.map(({ major, version }, index) => ({ major, version, is_default: index === 0 }))
      const sizes = offeredSizes(pool.memoryBytes)
      return { id, versions, region, features, sizes, capacity: await capacityOf(pool, primaries().length) }
    }),
    route('GET', '/instances', async ({ query }) => {
      const sized = query.get('sizes') === 'true'
      const onlyWoken = query.get('woken') === 'true'
      const instances = primaries().filter(({ record }) => !onlyWoken || record.isWoken)
      return Promise.all(instances.map((instance) => toReply(instance, sized)))
    }),
    route('GET', '/instances/{name}', async ({ name, query }) => {
      const instance = pool.require(name)
      const isSized = query.get('size') === 'now'
      if (isSized) await instance.sizeBytes(0)
      return { ...(await toReply(instance, isSized)), replicas: await replicas.list(name) }
    }),
    route('POST', '/instances/{name}/lock', async ({ name, body }) => {
      const { wait_ms } = await body(Lock)
      return { lock: await locks.take(name, wait_ms) }
    }),
    route('PUT', '/instances/{name}/lock/{lock}', async ({ name, params: { lock = '' } }) => locks.renew(name, lock)),
    route('DELETE', '/instances/{name}/lock/{lock}', async ({ name, params: { lock = '' } }) => {
      locks.release(name, lock)
    }),
    mutation('PUT', '/instances/{name}', async ({ name, body }) => {
      const { version: major, sleep_after_seconds: sleepAfterSeconds, ...rest } = await body(Spec)
      return toReply(await pool.ensure({ name, major, sleepAfterSeconds, ...rest }), false)
    }),
    mutation('POST', '/instances/{name}/copy', async ({ name, body }) => {
      const { sleep_after_seconds: sleepAfterSeconds, ...rest } = await body(Copy)
      return toReply(await pool.copy({ name, sleepAfterSeconds, ...rest }), false)
    }),
    mutation('DELETE', '/instances/{name}', async ({ name, query }) => {
      endSessions(name)
      await pool.remove(name)
      if (query.get('archive') !== 'keep') await removeArchive(name)
    }),
    mutation('PUT', '/instances/{name}/sleep', async ({ name, body }) => {
      const { after_seconds: sleepAfterSeconds } = await body(z.strictObject({ after_seconds: SleepAfterSeconds }))
      await pool.require(name).update({ sleepAfterSeconds })
    }),
    mutation('POST', '/instances/{name}/pause', async ({ name }) => requireWithoutSessions(name).pause()),
    mutation('POST', '/instances/{name}/resume', async ({ name }) => pool.require(name).resume()),
    mutation('POST', '/instances/{name}/restart', async ({ name }) => requireWithoutSessions(name).restart()),
  ]
}

/** Facts by which the control plane places new projects. */
async function capacityOf(pool: InstancePool, instances: number) {
  const { bytes, freeBytes } = await pool.disk()
  return {
    memory_bytes: pool.memoryBytes,
    memory_free_bytes: process.availableMemory(),
    disk_bytes: bytes,
    disk_free_bytes: freeBytes,
    instances,
  }
}

async function toReply(instance: PostgresInstance, isSized: boolean): Promise<Record<string, unknown>> {
  const { name, record, programs } = instance
  const failure = instance.failure ?? (await diskProblem(instance.paths.data).catch(() => undefined))
  return {
    name,
    state: instance.state(),
    version: programs.version,
    size: record.size,
    sleep_after_seconds: record.sleepAfterSeconds ?? null,
    access: record.access,
    created_at: record.createdAt,
    wal_discarded_at: record.walDiscardedAt,
    upgrade: instance.upgrade,
    error: failure,
    size_bytes: isSized ? await instance.sizeBytes() : undefined,
  }
}
