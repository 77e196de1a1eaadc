import { Refused } from '../instances/types.ts'

const MB = 1024 ** 2
const GB = 1024 ** 3

/** Resources of a compute size. */
export interface Size {
  memoryBytes: number
  cpus: number
  maxConnections: number
}

const size = (memoryGb: number, cpus: number, maxConnections: number): Size => ({
  memoryBytes: memoryGb * GB,
  cpus,
  maxConnections,
})

/** The compute sizes of the API, with the resources of the hosted service. */
export const SIZES: ReadonlyMap<string, Size> = new Map([
  ['pico', size(0.25, 1, 40)],
  ['nano', size(0.5, 1, 60)],
  ['micro', size(1, 2, 60)],
  ['small', size(2, 2, 90)],
  ['medium', size(4, 2, 120)],
  ['large', size(8, 2, 160)],
  ['xlarge', size(16, 4, 240)],
  ['2xlarge', size(32, 8, 380)],
  ['4xlarge', size(64, 16, 480)],
  ['8xlarge', size(128, 32, 490)],
  ['12xlarge', size(192, 48, 500)],
  ['16xlarge', size(256, 64, 500)],
  ['24xlarge', size(384, 96, 500)],
  ['24xlarge_optimized_cpu', size(192, 96, 500)],
  ['24xlarge_optimized_memory', size(768, 96, 500)],
  ['24xlarge_high_memory', size(1536, 96, 500)],
  ['48xlarge', size(768, 192, 500)],
  ['48xlarge_optimized_cpu', size(384, 192, 500)],
  ['48xlarge_optimized_memory', size(1536, 192, 500)],
  ['48xlarge_high_memory', size(3072, 192, 500)],
])

/** Instances up to this memory share a machine with hundreds of others. */
const SHARED_MEMORY_MAX = GB

/**
 * Settings with which an idle instance takes 7.4 MB. Filled buffers stay in memory until the instance stops, while the page
 * cache is shared by all instances; the tables of predicate locks and buffers are initialized at the start, used or not.
 */
const SHARED = { shared_buffers: '16MB', wal_buffers: '256kB', max_pred_locks_per_transaction: '16' }

/** Postgres settings of a size. The machine may have less memory than the size. */
export function sizeSettings(name: string, machineBytes: number): Record<string, string> {
  const { memoryBytes, cpus, maxConnections } = sizeNamed(name)
  const memory = Math.min(memoryBytes, machineBytes)
  const isShared = memory <= SHARED_MEMORY_MAX
  const maxWal = clamp(memory / 2, 256 * MB, 4 * GB)
  const parallel = Math.max(2, cpus)
  return {
    max_connections: String(maxConnections),
    ...(isShared ? SHARED : { shared_buffers: megabytes(memory / 4) }),
    effective_cache_size: megabytes(memory * 0.75),
    maintenance_work_mem: megabytes(clamp(memory / 32, 16 * MB, 2 * GB)),
    work_mem: kilobytes(clamp(memory / (maxConnections * 8), 2 * MB, 512 * MB)),
    max_wal_size: megabytes(maxWal),
    max_slot_wal_keep_size: megabytes(Math.max(maxWal, GB)),
    temp_file_limit: megabytes(Math.max(2 * memory, 2 * GB)),
    max_worker_processes: String(parallel + 4),
    max_parallel_workers: String(parallel),
    max_parallel_workers_per_gather: String(clamp(cpus / 2, 1, 8)),
    max_parallel_maintenance_workers: String(clamp(cpus / 2, 1, 8)),
    autovacuum_max_workers: isShared ? '2' : '3',
    autovacuum_naptime: isShared ? '3min' : '1min',
  }
}

/** Tolerance: a machine reports less memory than its nominal size. */
const NOMINAL_FACTOR = 1.1

/** The sizes that a machine with this memory offers: the small sizes that share a machine, and all that fit into its memory. */
export const offeredSizes = (machineBytes: number): string[] =>
  [...SIZES]
    .filter(([, { memoryBytes }]) => memoryBytes <= Math.max(SHARED_MEMORY_MAX, machineBytes * NOMINAL_FACTOR))
    .map(([name]) => name)

/** Refuses a size that a machine with this memory does not offer. */
export function requireOffered(name: string, machineBytes: number): void {
  const offered = offeredSizes(machineBytes)
  if (!offered.includes(name))
    throw new Refused([
      { setting: 'size', reason: `this host has no size ${name}: must be one of ${offered.join(', ')}` },
    ])
}

export function sizeNamed(name: string): Size {
  const found = SIZES.get(name)
  if (!found) throw new Refused([{ setting: 'size', reason: `unknown size ${name}` }])
  return found
}

const clamp = (value: number, min: number, max: number) => Math.floor(Math.min(Math.max(value, min), max))
/** Formats bytes in the largest fitting unit, as Postgres does. */
const megabytes = (bytes: number) => {
  const count = Math.floor(bytes / MB)
  return count % 1024 === 0 ? `${count / 1024}GB` : `${count}MB`
}
const kilobytes = (bytes: number) => (bytes % MB === 0 ? megabytes(bytes) : `${Math.floor(bytes / 1024)}kB`)
