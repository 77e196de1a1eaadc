import { totalmem } from 'node:os'
import * as z from 'zod'
import { diskProblem } from '../instances/disk.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool } from '../instances/instances.ts'
import type { Locks } from '../instances/locks.ts'
import type { Replicas } from '../replicas/replicas.ts'
import { offeredSizes } from '../settings/sizes.ts'
import { mutation, type Route, route } from './api.ts'

/** Null for never. */
const Sleep = z.int().min(1).nullable()
const Spec = z.strictObject({
  version: z.string().optional(),
  size: z.string().optional(),
  password: z.string().min(1),
  sleep_after_seconds: Sleep.optional(),
})
const Copy = z.strictObject({
  from: z.string(),
  password: z.string().min(1),
  data: z.boolean(),
  size: z.string().optional(),
  sleep_after_seconds: Sleep.optional(),
})
const Lock = z.strictObject({ wait_ms: z.int().min(0).max(60_000).default(0) })

interface Parts {
  pool: InstancePool
  locks: Locks
  region: string
  features: readonly string[]
  replicas: Pick<Replicas, 'list'>
  /** Ends what clients have open; the instance is about to stop. */
  endSessions(name: string): void
  /** Removes the archive of an instance that is gone. */
  forget(name: string): Promise<void> | undefined
}

/** The life cycle of instances. */
export function lifecycleRoutes({ pool, locks, region, features, endSessions, forget, replicas }: Parts): Route[] {
  const primaries = () => pool.list().filter(({ record }) => !record.primary && !record.sealed)
  const stopping = (name: string) => {
    endSessions(name)
    return pool.require(name)
  }
  return [
    route('GET', '', async () => {
      const versions = pool.versions.map(({ major, version }, index) => ({ major, version, is_default: index === 0 }))
      const sizes = offeredSizes(totalmem())
      return { versions, region, features, sizes, capacity: await capacityOf(pool, primaries().length) }
    }),
    route('GET', '/instances', async ({ query }) => {
      const sized = query.get('sizes') === 'true'
      const onlyWoken = query.get('woken') === 'true'
      const instances = primaries().filter(({ record }) => !onlyWoken || record.isWoken)
      return Promise.all(instances.map((instance) => shown(instance, sized)))
    }),
    route('GET', '/instances/{name}', async ({ name, query }) => {
      const instance = pool.require(name)
      if (query.get('size') === 'now') await instance.sizeBytes(0)
      return { ...(await shown(instance, true)), replicas: await replicas.list(name) }
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
      const { version, sleep_after_seconds, ...rest } = await body(Spec)
      const major = version === undefined ? {} : { major: version }
      return shown(await pool.ensure({ name, ...rest, ...major, ...sleepOf(sleep_after_seconds) }), false)
    }),
    mutation('POST', '/instances/{name}/copy', async ({ name, body }) => {
      const { sleep_after_seconds, ...rest } = await body(Copy)
      return shown(await pool.copy({ name, ...rest, ...sleepOf(sleep_after_seconds) }), false)
    }),
    mutation('DELETE', '/instances/{name}', async ({ name, query }) => {
      endSessions(name)
      await pool.remove(name)
      if (query.get('archive') !== 'keep') await forget(name)
    }),
    mutation('PUT', '/instances/{name}/sleep', async ({ name, body }) => {
      const { after_seconds: sleepAfterSeconds } = await body(z.strictObject({ after_seconds: Sleep }))
      await pool.require(name).update({ sleepAfterSeconds })
    }),
    mutation('POST', '/instances/{name}/pause', async ({ name }) => stopping(name).pause()),
    mutation('POST', '/instances/{name}/resume', async ({ name }) => pool.require(name).resume()),
    mutation('POST', '/instances/{name}/restart', async ({ name }) => stopping(name).restart()),
  ]
}

const sleepOf = (seconds: number | null | undefined) => (seconds === undefined ? {} : { sleepAfterSeconds: seconds })

/** The facts that placement is based on. */
async function capacityOf(pool: InstancePool, instances: number) {
  const { bytes, freeBytes } = await pool.disk()
  return {
    memory_bytes: totalmem(),
    memory_free_bytes: process.availableMemory(),
    disk_bytes: bytes,
    disk_free_bytes: freeBytes,
    instances,
  }
}

async function shown(instance: PostgresInstance, isSized: boolean): Promise<Record<string, unknown>> {
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
    ...(instance.upgrade && { upgrade: instance.upgrade }),
    ...(failure !== undefined && { error: failure }),
    ...(isSized && { size_bytes: await instance.sizeBytes() }),
  }
}
