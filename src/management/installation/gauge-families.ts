import type { Machine } from '../../engine/engine.ts'
import type { Family, Sample } from '../../platform/metrics/openmetrics.ts'
import type { Gauges } from './gauges.ts'
import type { Health } from './health.ts'

const gauge = (name: string, help: string, samples: Sample[]): Family => ({ name, type: 'gauge', help, samples })

const yes = (is: boolean): number => Number(is)

export const healthFamilies = ({ checks }: Health): Family[] => [
  gauge(
    'check_ok',
    'Whether the database and the bucket answer, and messages pass through the queue.',
    Object.entries(checks).map(([check, { ok }]) => ({ labels: { check }, value: yes(ok) })),
  ),
]

/** Of what the control database says. */
export const databaseFamilies = (gauges: Gauges): Family[] => [
  gauge('organizations', 'Organizations.', [{ value: gauges.organizations }]),
  gauge('users', 'Users.', [{ value: gauges.users }]),
  gauge(
    'projects',
    'Projects and branches by status.',
    gauges.projects.map(({ status, isBranch, count }) => ({
      labels: { status, kind: isBranch ? 'branch' : 'project' },
      value: count,
    })),
  ),
  gauge(
    'tasks',
    'Background work that is not over, by kind and state.',
    gauges.tasks.map(({ queue, kind, state, count }) => ({ labels: { queue, kind, state }, value: count })),
  ),
  gauge(
    'task_oldest_due_seconds',
    'For how long the oldest work of a kind has been due without being begun.',
    gauges.tasks.flatMap(({ queue, kind, oldestDueSeconds }) =>
      oldestDueSeconds === null ? [] : [{ labels: { queue, kind }, value: Math.max(0, oldestDueSeconds) }],
    ),
  ),
  gauge(
    'webhook_endpoints',
    'Webhook endpoints.',
    Object.entries(gauges.endpoints).map(([state, value]) => ({ labels: { state }, value })),
  ),
  gauge(
    'database_connections',
    'Sessions of the control database by state.',
    gauges.connections.map(({ state, count }) => ({ labels: { state }, value: count })),
  ),
  gauge('database_connections_max', 'Most sessions that the control database takes.', [
    { value: gauges.connectionsMax },
  ]),
  gauge('storage_bytes', 'Bytes of objects, as the last search of each project has counted them.', [
    { value: gauges.storageBytes },
  ]),
  gauge('database_size_bytes', 'Size of the control database.', [{ value: gauges.databaseBytes }]),
]

/** What the database hosts say; a host that does not answer has nothing but `host_up`. */
export function machineFamilies(machines: readonly Machine[]): Family[] {
  const of = (name: string, help: string, read: (capacity: NonNullable<Machine['capacity']>) => number) =>
    gauge(
      name,
      help,
      machines.flatMap(({ name: host, capacity }) => (capacity ? [{ labels: { host }, value: read(capacity) }] : [])),
    )
  const up = machines.map(({ name: host, capacity }) => ({ labels: { host }, value: yes(capacity !== undefined) }))
  return [
    gauge('host_up', 'Whether the database host answers.', up),
    of('host_instances', 'Instances on the database host.', ({ instances }) => instances),
    of('host_memory_bytes', 'Memory of the database host.', ({ memoryBytes }) => memoryBytes),
    of('host_memory_free_bytes', 'Memory of the database host that is free.', ({ memoryFreeBytes }) => memoryFreeBytes),
    of('host_disk_bytes', 'Disk of the database host.', ({ diskBytes }) => diskBytes),
    of('host_disk_free_bytes', 'Disk of the database host that is free.', ({ diskFreeBytes }) => diskFreeBytes),
  ]
}

/** Of `npm start`. */
export const processFamilies = (memory: Readonly<Record<string, number>>): Family[] => [
  gauge(
    'process_resident_memory_bytes',
    'Resident memory of the processes of this installation.',
    Object.entries(memory).map(([process, value]) => ({ labels: { process }, value })),
  ),
]
