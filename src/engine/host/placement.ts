import type { Machine, ProjectSpec, RegionOptions } from '../engine.ts'
import { EngineUnavailable, NoCapacity } from '../engine-errors.ts'
import { fulfilled } from '../fulfilled.ts'
import type { HostApi, HostDescription } from './client.ts'
import type { HostAccess } from './project-host.ts'

/** The options for new projects, from the hosts that accept them and have answered recently. */
export async function listRegions(access: HostAccess): Promise<RegionOptions[]> {
  const found = await fulfilled((await acceptingHosts(access)).map(access.descriptions.refreshOrLast))
  if (found.length === 0) throw noHostError()
  const withSpace = found.filter(hasFreeDisk)
  if (withSpace.length === 0) throw new NoCapacity('no database host has enough free disk space for another project')
  return withSpace.map(({ region, versions, sizes }) => ({
    region,
    versions: [...versions].sort((a, b) => Number(b.is_default) - Number(a.is_default)).map(({ major }) => major),
    sizes: new Set(sizes),
  }))
}

/** All hosts, with the capacity of those that answer. */
export const machines = async (access: HostAccess): Promise<Machine[]> =>
  Promise.all(
    (await access.apis()).map(async (api) => {
      const description = await access.descriptions.refresh(api).catch(() => undefined)
      return { name: api.host.id, ...(description && { capacity: capacityOf(description) }) }
    }),
  )

const capacityOf = ({ capacity }: HostDescription) => ({
  instances: capacity.instances,
  memoryBytes: capacity.memory_bytes,
  memoryFreeBytes: capacity.memory_free_bytes,
  diskBytes: capacity.disk_bytes,
  diskFreeBytes: capacity.disk_free_bytes,
})

/** The free disk space that a host needs to create an instance. */
const FREE_DISK_BYTES_MIN = 64 * 2 ** 20
const hasFreeDisk = ({ capacity }: HostDescription): boolean => capacity.disk_free_bytes >= FREE_DISK_BYTES_MIN

/** Chooses the host with the most free capacity among those that answer and offer the project's options. */
export async function chooseHost(access: HostAccess, spec: ProjectSpec): Promise<HostApi> {
  const accepting = await acceptingHosts(access)
  // A single host refuses options that it does not offer.
  if (accepting[0] && accepting.length === 1) return accepting[0]
  const describe = async (api: HostApi) => ({ api, description: await access.descriptions.refresh(api) })
  const [best] = (await fulfilled(accepting.map(describe)))
    .filter(({ description }) => hasFreeDisk(description) && isOffered(description, spec))
    .sort((a, b) => compareFreeCapacity(a.description, b.description))
  if (!best) throw noHostError()
  return best.api
}

const acceptingHosts = async ({ hosts, apiAt }: HostAccess): Promise<HostApi[]> =>
  (await hosts.all()).filter(({ isDraining }) => !isDraining).map(apiAt)

const noHostError = () => new EngineUnavailable('no database host that accepts such projects answers')

const isOffered = ({ region, versions, sizes }: HostDescription, spec: ProjectSpec): boolean =>
  (spec.region === undefined || spec.region === region) &&
  (spec.version === undefined || versions.some(({ major }) => major === spec.version)) &&
  (spec.size === undefined || sizes.includes(spec.size))

/** Number of steps of free capacity: smaller differences are noise. */
const STEPS = 10

/** Orders by the scarcer of disk and memory, in steps, then by the number of instances per memory. */
function compareFreeCapacity(a: HostDescription, b: HostDescription): number {
  return stepOf(b) - stepOf(a) || density(a) - density(b)
}

const stepOf = ({
  capacity: { memory_bytes, memory_free_bytes, disk_bytes, disk_free_bytes },
}: HostDescription): number =>
  Math.floor(STEPS * Math.min(memory_free_bytes / memory_bytes, disk_free_bytes / disk_bytes))

const density = ({ capacity: { instances, memory_bytes } }: HostDescription): number => instances / memory_bytes
