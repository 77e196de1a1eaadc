import type { Machine } from '../../engine/engine.ts'
import type { Family, Sample } from '../../platform/metrics/openmetrics.ts'
import type { Gauges } from './gauges.ts'
import type { Health } from './health.ts'

const gauge = (name: string, help: string, samples: Sample[]): Family => ({ name, type: 'gauge', help, samples })

export const healthFamilies = ({ checks }: Health): Family[] => [
  gauge(
    'check_ok',
    'Whether the database and the bucket respond and the queue delivers messages.',
    Object.entries(checks).map(([check, { ok }]) => ({ labels: { check }, value: Number(ok) })),
  ),
]

/** Metrics read from the control database. */
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
    'Background work that has not ended, by kind and state.',
    gauges.tasks.map(({ queue, kind, state, count }) => ({ labels: { queue, kind, state }, value: count })),
  ),
  gauge(
    'task_oldest_due_seconds',
    'Seconds for which the oldest pending work of a kind has been due.',
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
  gauge('database_connections_max', 'Maximum number of sessions of the control database.', [
    { value: gauges.connectionsMax },
  ]),
  gauge('storage_bytes', 'Bytes of objects as of the last count of each project.', [{ value: gauges.storageBytes }]),
  gauge('database_size_bytes', 'Size of the control database.', [{ value: gauges.databaseBytes }]),
]

/** Metrics of the database hosts; a host that does not respond has only `host_up`. */
export function machineFamilies(machines: readonly Machine[]): Family[] {
  const ofHosts = (name: string, help: string, read: (capacity: NonNullable<Machine['capacity']>) => number) =>
    gauge(
      name,
      help,
      machines.flatMap(({ name: host, capacity }) => (capacity ? [{ labels: { host }, value: read(capacity) }] : [])),
    )
  const up = machines.map(({ name: host, capacity }) => ({ labels: { host }, value: Number(capacity !== undefined) }))
  return [
    gauge('host_up', 'Whether the database host responds.', up),
    ofHosts('host_instances', 'Instances on the database host.', ({ instances }) => instances),
    ofHosts('host_memory_bytes', 'Memory of the database host.', ({ memoryBytes }) => memoryBytes),
    ofHosts('host_memory_free_bytes', 'Free memory of the database host.', ({ memoryFreeBytes }) => memoryFreeBytes),
    ofHosts('host_disk_bytes', 'Disk space of the database host.', ({ diskBytes }) => diskBytes),
    ofHosts('host_disk_free_bytes', 'Free disk space of the database host.', ({ diskFreeBytes }) => diskFreeBytes),
  ]
}

/** Memory of the processes of `npm start`. */
export const processFamilies = (memory: Readonly<Record<string, number>>): Family[] => [
  gauge(
    'process_resident_memory_bytes',
    'Resident memory of the processes of this installation.',
    Object.entries(memory).map(([process, value]) => ({ labels: { process }, value })),
  ),
]
