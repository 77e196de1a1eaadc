import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3'
import { until } from '../../support/wire/installation.ts'
import type { Fleet, FleetHost } from './installation.ts'
import { type Ledger, mustHold, mustMiss } from './ledger.ts'

interface ProjectRow {
  ref: string
  status: string
  host: string
  branch: string | null
}

interface HostInstance {
  name: string
  state: string
}

const instancesOf = async ({ ask }: FleetHost) => (await (await ask('GET', '/instances')).json()) as HostInstance[]

const STATES: Record<string, readonly string[]> = {
  ACTIVE_HEALTHY: ['running', 'asleep'],
  INACTIVE: ['paused'],
}

const PROJECTS = `select p.ref, p.status, p.engine_state ->> 'host' as host, b.status as branch from projects p
  left join branches b on b.project_ref = p.ref and b.removed_at is null where p.removed_at is null`

/** Waits until no work is open, up to the time limit. */
export async function untilSettled({ rows }: Fleet, withinMs: number): Promise<string[]> {
  const open = () =>
    rows<{ task: string }>(
      `select concat_ws(' ', kind, project_ref, state, attempts, lease_until, due_at, last_error) as task
        from project_tasks where state in ('pending', 'running')`,
    )
  try {
    await until('all is settled', withinMs, async () => ((await open()).length === 0 ? true : undefined))
    return []
  } catch {
    return (await open()).map(({ task }) => `not settled within ${withinMs} ms: ${task}`)
  }
}

/** Returns all contradictions: lost rows, wrong states, and orphans. */
export async function judge(fleet: Fleet, ledgers: readonly Ledger[]): Promise<string[]> {
  const projects = await fleet.rows<ProjectRow>(PROJECTS)
  const refs = projects.map(({ ref }) => ref)
  const problems = [
    ...(await Promise.all(ledgers.map((ledger) => wrongRows(fleet, ledger)))).flat(),
    ...(await orphanArchives(fleet, refs)),
  ]
  for (const host of fleet.hosts) {
    const instances = await instancesOf(host)
    const here = projects.filter((project) => project.host === host.name)
    const known = here.map(({ ref }) => ref)
    problems.push(
      ...here.flatMap((project) => wrongStates(project, instances)),
      ...(await orphans(host, known)),
      ...(await orphanServers(host)),
      ...(await heldLocks(host, known)),
    )
  }
  return problems
}

function wrongStates({ ref, status, branch }: ProjectRow, instances: readonly HostInstance[]): string[] {
  const state = instances.find(({ name }) => name === ref)?.state ?? 'missing'
  const problems = STATES[status]?.includes(state) ? [] : [`${ref} is ${status}, but its instance is ${state}`]
  if (branch !== null && branch !== 'FUNCTIONS_DEPLOYED') problems.push(`the branch ${ref} is ${branch}`)
  return problems
}

async function wrongRows({ call }: Fleet, ledger: Ledger): Promise<string[]> {
  const { ref, isRemoved } = ledger
  if (isRemoved) return []
  const query = `select coalesce(array_agg(n), '{}') as found from kept`
  if (ledger.rows.length === 0) return []
  const { status, body } = await call('POST', `/v1/projects/${ref}/database/query`, { query })
  if (status !== 201) return [`${ref} answers SQL with ${status} ${JSON.stringify(body)}`]
  const [{ found = [] } = {}] = body as { found?: number[] }[]
  const missing = mustHold(ledger).filter((n) => !found.includes(n))
  const returned = mustMiss(ledger).filter((n) => found.includes(n))
  return [
    ...missing.map((n) => `${ref} has lost the row ${n}`),
    ...returned.map((n) => `${ref} has the row ${n}, which a restore undid`),
  ]
}

/** Returns orphaned folders of instances and of sockets. */
async function orphans({ name: host, folder }: FleetHost, refs: readonly string[]): Promise<string[]> {
  const known = host === 'local' ? [...refs, 'control'] : refs
  const entries = await readdir(join(folder, 'instances')).catch(() => [])
  // A running host keeps one copy of each template for the next instance.
  const spares = entries.filter((name) => name.includes('.spare-'))
  const isSurplus = (name: string, n: number) =>
    spares.findIndex((other) => templateOf(other) === templateOf(name)) !== n
  const instances = entries.filter((name) => !spares.includes(name))
  const files = await Promise.all(
    instances.map(async (name) => (await readdir(join(folder, 'instances', name))).map((file) => `${name}/${file}`)),
  )
  const sockets = await readdir(join(folder, 'run')).catch(() => [])
  return [
    ...spares.filter(isSurplus).map((name) => `${host}: surplus copy instances/${name}`),
    ...instances.filter((name) => !known.includes(name)).map((name) => `${host}: orphan folder instances/${name}`),
    ...files
      .flat()
      .filter((path) => !/\/(data|data\.old|log|wal|instance\.json)$/.test(path))
      .map((path) => `${host}: orphan file instances/${path}`),
    ...sockets
      .filter((name) => ![...known, 'host.sock'].includes(name))
      .map((name) => `${host}: orphan socket run/${name}`),
  ]
}

const templateOf = (spare: string) => spare.split('.')[0]

/** Checks for exactly one postmaster for each running instance, and no other process of Postgres in the folder. */
async function orphanServers(host: FleetHost): Promise<string[]> {
  const reported = await instancesOf(host)
  const instances = join(host.folder, 'instances')
  const running = reported.filter(({ state }) => state === 'running').map(({ name }) => name)
  const problems: string[] = []
  const found = new Map<string, number[]>()
  for (const { pid, parent, cwd } of await servers()) {
    if (!cwd.startsWith(`${instances}/`)) continue
    const name = cwd.slice(instances.length + 1).replace(/\/data$/, '')
    if (parent === 'postgres') continue
    found.set(name, [...(found.get(name) ?? []), pid])
  }
  for (const [name, pids] of found) {
    if (!running.includes(name)) problems.push(`orphan server of ${name}: ${pids}`)
    if (pids.length > 1) problems.push(`${name} has the servers ${pids}`)
  }
  for (const name of running) if (!found.has(name)) problems.push(`${name} is reported as running, but has no server`)
  return problems
}

async function servers(): Promise<{ pid: number; parent: string; cwd: string }[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    pids.map(async (pid) => {
      if ((await commOf(pid)) !== 'postgres') return []
      const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '')
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
      const [, , parent = ''] = stat.slice(stat.lastIndexOf(')')).split(' ')
      return [{ pid: Number(pid), parent: await commOf(parent), cwd }]
    }),
  )
  return found.flat()
}

const commOf = async (pid: string): Promise<string> =>
  (await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')).trim()

async function orphanArchives({ s3 }: Fleet, refs: readonly string[]): Promise<string[]> {
  const { endpoint, S3_BUCKET: Bucket, S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey } = s3
  const credentials = { accessKeyId, secretAccessKey }
  const client = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket }))
  const keys = Contents.map(({ Key = '' }) => Key)
  return keys
    .filter((key) => /[a-z]{20}/.test(key) && !refs.some((ref) => key.includes(ref)))
    .map((key) => `orphan object ${key}`)
}

/** Returns the projects whose lock is held: a free lock can be acquired at once. */
async function heldLocks({ ask }: FleetHost, refs: readonly string[]): Promise<string[]> {
  const problems: string[] = []
  for (const ref of refs) {
    const reply = await ask('POST', `/instances/${ref}/lock`, { wait_ms: 2_000 })
    if (!reply.ok) problems.push(`${ref} is locked`)
    else await ask('DELETE', `/instances/${ref}/lock/${((await reply.json()) as { lock: string }).lock}`)
  }
  return problems
}
