import { EngineUnavailable, type Machine, NoRoom, type Place, type ProjectSpec } from '../engine.ts'
import type { HostApi, HostFacts } from './client.ts'
import type { Reach } from './project-host.ts'

/** The options for new projects, from the hosts that accept them and have answered recently. */
export async function places(reach: Reach): Promise<Place[]> {
  const answers = await Promise.allSettled((await takingProjects(reach)).map((api) => reach.facts.now(api)))
  const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
  if (found.length === 0) throw noHost()
  const roomy = found.filter(hasRoom)
  if (roomy.length === 0) throw new NoRoom('no database host has enough free disk space for another project')
  return roomy.map(({ region, versions, sizes }) => ({
    region,
    versions: [...versions].sort((a, b) => Number(b.is_default) - Number(a.is_default)).map(({ major }) => major),
    sizes: new Set(sizes),
  }))
}

/** All hosts, with the capacity of those that answer. */
export const machines = async (reach: Reach): Promise<Machine[]> =>
  Promise.all(
    (await reach.apis()).map(async (api) => {
      const facts = await reach.facts.ask(api).catch(() => undefined)
      return { name: api.host.id, ...(facts && { capacity: capacityOf(facts) }) }
    }),
  )

const capacityOf = ({ capacity }: HostFacts) => ({
  instances: capacity.instances,
  memoryBytes: capacity.memory_bytes,
  memoryFreeBytes: capacity.memory_free_bytes,
  diskBytes: capacity.disk_bytes,
  diskFreeBytes: capacity.disk_free_bytes,
})

/** The free disk space that a host needs to create an instance. */
const ROOM_BYTES = 64 * 2 ** 20
const hasRoom = ({ capacity }: HostFacts): boolean => capacity.disk_free_bytes >= ROOM_BYTES

/** Chooses the host with the most free capacity among those that answer and offer the project's options. */
export async function chooseHost(reach: Reach, spec: ProjectSpec): Promise<HostApi> {
  const [first, ...others] = await takingProjects(reach)
  // A single host refuses options that it does not offer.
  if (first && others.length === 0) return first
  const asked = [...(first ? [first] : []), ...others].map(async (api) => ({ api, facts: await reach.facts.ask(api) }))
  const answers = (await Promise.allSettled(asked)).flatMap((answer) =>
    answer.status === 'fulfilled' ? [answer.value] : [],
  )
  const [best] = answers.filter(({ facts }) => offers(facts, spec)).sort((a, b) => compareRoom(a.facts, b.facts))
  if (!best) throw noHost()
  return best.api
}

const takingProjects = async ({ hosts, apiAt }: Reach): Promise<HostApi[]> =>
  (await hosts.all()).filter(({ isDraining }) => !isDraining).map(apiAt)

const noHost = () => new EngineUnavailable('no database host that accepts such projects answers')

const offers = (facts: HostFacts, spec: ProjectSpec): boolean => hasRoom(facts) && isOffered(facts, spec)

const isOffered = ({ region, versions, sizes }: HostFacts, spec: ProjectSpec): boolean =>
  (spec.region === undefined || spec.region === region) &&
  (spec.version === undefined || versions.some(({ major }) => major === spec.version)) &&
  (spec.size === undefined || sizes.includes(spec.size))

/** Number of steps of free capacity: smaller differences are noise. */
const STEPS = 10

/** Orders by the scarcer of disk and memory, in steps, then by the number of instances per memory. */
function compareRoom(a: HostFacts, b: HostFacts): number {
  return stepOf(b) - stepOf(a) || density(a) - density(b)
}

const stepOf = ({ capacity: { memory_bytes, memory_free_bytes, disk_bytes, disk_free_bytes } }: HostFacts): number =>
  Math.floor(STEPS * Math.min(memory_free_bytes / memory_bytes, disk_free_bytes / disk_bytes))

const density = ({ capacity: { instances, memory_bytes } }: HostFacts): number => instances / memory_bytes
