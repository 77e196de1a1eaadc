import type { Metrics } from './metrics.ts'

type Sample = [value: number | undefined, labels?: Record<string, string>]

/** Names begin with `pilothouse_instance_`; counters end in `_total`. */
const FAMILIES: Record<string, [help: string, read: (metrics: Metrics) => Sample[]]> = {
  state: ['State of the instance', ({ state }) => [[1, { state }]]],
  size_bytes: ['Bytes of the data folder', (m) => [[m.size_bytes]]],
  uptime_seconds: ['Seconds since the server started', (m) => [[m.use?.uptime_seconds]]],
  processes: ['Processes of the server', (m) => [[m.use?.processes]]],
  cpu_seconds_total: ['CPU time of all processes', (m) => [[m.use?.cpu_seconds]]],
  memory_bytes: ['Memory of all processes, shared pages once', (m) => [[m.use?.memory_bytes]]],
  connections: ['Sessions of clients', (m) => [[m.database?.connections]]],
  max_connections: ['Maximum number of sessions', (m) => [[m.database?.max_connections]]],
  commits_total: ['Transactions committed', (m) => [[m.database?.transactions_committed]]],
  rollbacks_total: ['Transactions rolled back', (m) => [[m.database?.transactions_rolled_back]]],
  deadlocks_total: ['Deadlocks', (m) => [[m.database?.deadlocks]]],
  blocks_hit_total: ['Blocks found in shared buffers', (m) => [[m.database?.blocks_hit]]],
  blocks_read_total: ['Blocks read into shared buffers', (m) => [[m.database?.blocks_read]]],
  wal_bytes_total: ['Position in the write-ahead log', (m) => [[m.database?.wal_bytes]]],
  replication_lag_bytes: ['Replication lag of a follower in bytes of WAL', lagSamples((lag) => lag.lag_bytes)],
  replication_lag_seconds: ['Replication lag of a follower in seconds', lagSamples((lag) => lag.lag_seconds)],
}

type Follower = NonNullable<Metrics['followers']>[number]

function lagSamples(read: (follower: Follower) => number) {
  return ({ followers = [] }: Metrics): Sample[] => followers.map((each) => [read(each), { follower: each.name }])
}

/** Formats metrics in the text format of Prometheus. */
export function prometheusText(all: readonly Metrics[]): string {
  const lines = Object.entries(FAMILIES).flatMap(([name, [help, read]]) => {
    const family = `pilothouse_instance_${name}`
    const samples = all.flatMap((metrics) => read(metrics).map((sample) => lineOf(family, metrics.name, sample)))
    const type = name.endsWith('_total') ? 'counter' : 'gauge'
    return [`# HELP ${family} ${help}`, `# TYPE ${family} ${type}`, ...samples.filter((line) => line !== undefined)]
  })
  return `${lines.join('\n')}\n`
}

const ESCAPES: Record<string, string> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' }

function lineOf(family: string, instance: string, [value, labels]: Sample): string | undefined {
  if (value === undefined) return undefined
  const written = Object.entries({ instance, ...labels }).map(
    ([name, text]) => `${name}="${text.replaceAll(/[\\"\n]/g, (sign) => ESCAPES[sign] ?? sign)}"`,
  )
  return `${family}{${written.join(',')}} ${value}`
}
