import { readdir, readFile, readlink } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { eq } from 'drizzle-orm'
import pg from 'pg'
import { projects } from '../src/model/tables/index.ts'
import { bearer } from './client.ts'
import type { Environment } from './environment.ts'
import { percentile } from './measure.ts'
import { beginProject, ownerUrl, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens } from './seed.ts'

const PROJECTS = Number(process.env.FLEET_PROJECTS ?? 1_000)
const AWAKE = Math.min(50, PROJECTS)
const AT_ONCE = Math.min(500, PROJECTS)
/** Several users, because each may send only 120 requests a minute. */
const USERS = 20
const HEALTHY_MS_MAX = 120_000
const ASLEEP_MS_MAX = 300_000

const CREATE_MS_MAX = 400
const WAKE_MS_MAX = 150
const MEMORY_BYTES_MAX = 2 * 1024 ** 3

/** Measures many projects on one host: the time to create and to wake one, and the memory of those that are awake. */
export async function fleet(environment: Environment, report: Report): Promise<void> {
  const { port, control, gatewayPort } = environment
  report.title(`fleet: ${PROJECTS} projects, ${AWAKE} of them awake`)
  const organization = await seedOrganization(control, 'fleet', 0)
  const tokens = inTurn(await seedTokens(control, await seedOwners(control, [organization], USERS), USERS))
  const refs: string[] = []
  const createdMs: number[] = []
  for (let n = 0; n < PROJECTS; n++) {
    const startedAt = performance.now()
    const fields = { name: `fleet ${n}`, organization_slug: organization.slug, db_pass: PASSWORD }
    const ref = await beginProject(port, tokens(), fields)
    await waitUntilHealthy(environment, ref)
    createdMs.push(performance.now() - startedAt)
    refs.push(ref)
    // Lets the project sleep one second after its last use.
    await callHost(environment, 'PUT', `/instances/${ref}`, { password: PASSWORD, sleep_after_seconds: 1 })
  }
  report.atMost('create p50, ms', Math.round(percentile(createdMs, 0.5)), CREATE_MS_MAX)
  await waitUntilAsleep(environment)

  const wakeMs: number[] = []
  const awake: pg.Client[] = []
  for (const ref of refs.slice(0, AWAKE)) {
    const startedAt = performance.now()
    const client = await connectAndQuery(gatewayPort, ref)
    wakeMs.push(performance.now() - startedAt)
    awake.push(client)
  }
  report.line(`wake p50 ${percentile(wakeMs, 0.5).toFixed(0)} ms`)
  report.atMost('wake p95, ms', Math.round(percentile(wakeMs, 0.95)), WAKE_MS_MAX)
  const servers = await postgresBytes(environment.instances)
  // The daemon shares its process with the other services.
  const { node = 0 } = await environment.processRssBytes()
  report.line(`servers ${mebibytes(servers)} MiB, daemon ${mebibytes(node)} MiB`)
  report.atMost('memory of servers and daemon, MiB', mebibytes(servers + node), mebibytes(MEMORY_BYTES_MAX))
  await Promise.all(awake.map((client) => client.end()))
  await waitUntilAsleep(environment)

  const startedAt = performance.now()
  const woken = await Promise.allSettled(refs.slice(0, AT_ONCE).map((ref) => connectAndQuery(gatewayPort, ref)))
  report.line(`${AT_ONCE} wakes at once took ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  report.atMost('wakes that failed', woken.filter(({ status }) => status === 'rejected').length, 0)
  for (const each of woken) if (each.status === 'fulfilled') await each.value.end()
}

async function waitUntilHealthy({ control }: Environment, ref: string): Promise<void> {
  for (const until = performance.now() + HEALTHY_MS_MAX; performance.now() < until; await delay(10)) {
    const [row] = await control.select({ status: projects.status }).from(projects).where(eq(projects.ref, ref))
    if (row?.status === 'ACTIVE_HEALTHY') return
  }
  throw new Error(`the project ${ref} did not become healthy`)
}

async function callHost(
  { hostUrl, hostKey }: Environment,
  method: string,
  path: string,
  body?: object,
): Promise<unknown> {
  const headers = { ...bearer(hostKey), 'content-type': 'application/json' }
  const reply = await fetch(`${hostUrl}/host/v1${path}`, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  })
  if (!reply.ok) throw new Error(`the host answered ${reply.status}: ${await reply.text()}`)
  return reply.json()
}

async function waitUntilAsleep(environment: Environment): Promise<void> {
  for (const until = performance.now() + ASLEEP_MS_MAX; performance.now() < until; await delay(500)) {
    const found = (await callHost(environment, 'GET', '/instances')) as { name: string; state: string }[]
    if (found.every(({ name, state }) => name === 'control' || state === 'asleep')) return
  }
  throw new Error('not all projects fell asleep')
}

/** Connects a new client and waits for its first row. */
async function connectAndQuery(gatewayPort: number, ref: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: ownerUrl(gatewayPort, ref).href })
  client.on('error', () => {})
  await client.connect()
  await client.query('select 1')
  return client
}

const mebibytes = (bytes: number) => Math.round(bytes / 1024 ** 2)

/** Memory of all servers whose data is below the folder; counts shared memory once. */
async function postgresBytes(instances: string): Promise<number> {
  let kibibytes = 0
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '')
    if (!cwd.startsWith(instances)) continue
    const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch(() => '')
    kibibytes += Number(/^Pss:\s+(\d+)/m.exec(rollup)?.[1] ?? 0)
  }
  return kibibytes * 1024
}
