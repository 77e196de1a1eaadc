import * as z from 'zod'
import type { Gateway } from '../gateway/gateway.ts'
import type { InstancePool } from '../instances/instances.ts'
import { applySettings, setSize } from '../settings/apply.ts'
import { readEffectiveSettings } from '../settings/effective-settings.ts'
import { mutation, type Route, route } from './api.ts'

const Settings = z.strictObject({
  set: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).default({}),
  /** Ignored: the control plane of the version before names what `set` lacks. */
  reset: z.array(z.string()).optional(),
  /** True, the default, restarts if a value needs it. The control plane of the version before sends only this and false. */
  restart: z.union([z.boolean(), z.literal('always')]).optional(),
})
const Access = z.strictObject({
  ssl: z.boolean().optional(),
  networks: z
    .array(z.union([z.cidrv4(), z.cidrv6()]))
    .nullable()
    .optional(),
})

interface Parts {
  pool: InstancePool
  gateway: Gateway
  /** Ends the HTTP sessions of callers without the host key, after their access rules have changed. */
  endClientHttpSessions(name: string): void
}

/** The settings of an instance, and the access rules for its clients. */
export const settingRoutes = ({ pool, gateway, endClientHttpSessions }: Parts): Route[] => [
  route('GET', '/instances/{name}/settings', async ({ name }) => ({
    settings: await readEffectiveSettings(pool.require(name)),
  })),
  mutation('PUT', '/instances/{name}/settings', async ({ name, body }) => {
    const instance = pool.require(name)
    await applySettings(instance, await body(Settings), await pool.trialOf(instance))
  }),
  mutation('PUT', '/instances/{name}/size', async ({ name, body }) => {
    const instance = pool.require(name)
    const { size } = await body(z.strictObject({ size: z.string() }))
    await setSize(instance, size, await pool.trialOf(instance))
    await pool.limit(instance)
  }),
  mutation('PUT', '/instances/{name}/access', async ({ name, body }) => {
    const instance = pool.require(name)
    const { ssl = instance.record.access.ssl, networks = instance.record.access.networks } = await body(Access)
    await instance.update({ access: { ssl, networks } })
    // The new rules are in force, so a client that connects meanwhile is either found here or refused.
    for (const each of [instance, ...pool.replicasOf(name)]) {
      gateway.applyAccess(each)
      endClientHttpSessions(each.name)
    }
  }),
  route('GET', '/instances/{name}/bans', async ({ name }) => ({ bans: gateway.bans(pool.require(name).name) })),
  route('DELETE', '/instances/{name}/bans/{address}', async ({ name, params: { address = '' } }) => {
    gateway.unban(pool.require(name).name, [decodeURIComponent(address)])
  }),
]
