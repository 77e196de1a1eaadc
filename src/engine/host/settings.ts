import * as z from 'zod'
import { fulfilled } from '../fulfilled.ts'
import { withAdmin } from '../session.ts'
import { type Configuration, type DatabaseSettings, isReadOnly, setReadOnly, settingText } from '../settings.ts'
import { Instances, ignoreMissing, NoContent } from './client.ts'
import { HOST_NAMES } from './names.ts'
import type { HostAccess } from './project-host.ts'

const Effective = z.object({
  settings: z.array(
    z.object({
      name: z.string(),
      value: z.string(),
      default: z.string(),
      source: z.string(),
      pending_restart: z.boolean(),
      context: z.string(),
    }),
  ),
})

/** Settings of an instance; the host applies server settings and login rules. */
export function hostSettings(access: HostAccess): DatabaseSettings {
  const withDatabase = async <Value>(ref: string, work: Parameters<typeof withAdmin<Value>>[1]) =>
    withAdmin(await access.clusterOf(ref), work)
  return {
    configure: (ref, configuration) => configure(access, ref, configuration),
    async listEffective(ref) {
      const { ask } = await access.api(ref)
      const { settings } = await ask(Effective, { method: 'GET', path: `/instances/${ref}/settings` })
      return settings.map(({ pending_restart: pendingRestart, ...setting }) => ({ ...setting, pendingRestart }))
    },
    setReadOnly: (ref, readOnly) => withDatabase(ref, (admin) => setReadOnly(admin, HOST_NAMES, readOnly)),
    async filterReadOnly(refs) {
      if (refs.length === 0) return new Set()
      const found = new Map((await listInstances(access)).map(({ name, state }) => [name, state]))
      // A sleeping instance cannot have changed since it fell asleep, and a query would wake it.
      const startsReadOnly = async (ref: string) =>
        found.get(ref) === 'asleep' ||
        (found.get(ref) === 'running' && (await withDatabase(ref, (admin) => isReadOnly(admin, HOST_NAMES))))
      // A database that does not answer counts as writable: making it read-only then fails with the reason.
      return new Set((await fulfilled(refs.map(async (ref) => ((await startsReadOnly(ref)) ? [ref] : [])))).flat())
    },
    async setLoginRules(ref, rules) {
      const { ask } = await access.api(ref)
      await ask(NoContent, { method: 'PUT', path: `/instances/${ref}/access`, body: rules })
    },
    async sizesOf(refs) {
      const [only] = refs
      if (only !== undefined && refs.length === 1) return measureSize(access, only)
      const wanted = new Set(refs)
      return wanted.size === 0 ? new Map() : listSizes(access, (ref) => wanted.has(ref))
    },
    sizesAtLeast: (bytesMin) => listSizes(access, (_, bytes) => bytes >= bytesMin),
  }
}

/** The settings in the form that a host takes. */
export function settingsOf({ set, connectionsMax }: Configuration): Record<string, string> {
  const texts = Object.entries(set).map(([name, value]) => [name, settingText(value)])
  const connections = connectionsMax === null ? [] : [['max_connections', String(connectionsMax)]]
  return Object.fromEntries([...texts, ...connections])
}

async function configure(access: HostAccess, ref: string, configuration: Configuration): Promise<void> {
  const { restart } = configuration
  const body = { set: settingsOf(configuration), restart: restart === true ? 'always' : restart }
  const { ask } = await access.api(ref)
  await ask(NoContent, { method: 'PUT', path: `/instances/${ref}/settings`, body })
}

/** The instances of the hosts that answer; a missing one may be on a host that does not. */
export async function listInstances(access: HostAccess, query = '') {
  const lists = await access.askAllHosts(({ ask }) => ask(Instances, { method: 'GET', path: `/instances${query}` }))
  return lists.flat()
}

/** Measures the current size: the owner of the project is asking for it. */
async function measureSize(access: HostAccess, ref: string): Promise<Map<string, number>> {
  const found = await access.getInstance(ref, '?size=now').catch(ignoreMissing)
  return new Map(found ? [[ref, found.size_bytes ?? 0]] : [])
}

async function listSizes(
  access: HostAccess,
  isWanted: (ref: string, bytes: number) => boolean,
): Promise<Map<string, number>> {
  const found = await listInstances(access, '?sizes=true')
  const measured = found.map(({ name, size_bytes: bytes }) => [name, bytes ?? 0] as const)
  return new Map(measured.filter(([name, bytes]) => isWanted(name, bytes)))
}
