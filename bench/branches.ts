import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { eq } from 'drizzle-orm'
import { withClient } from '../dev/control-database.ts'
import { branches as branchTable } from '../src/model/tables/index.ts'
import { bearer } from './client.ts'
import type { Environment } from './environment.ts'
import { percentile } from './measure.ts'
import { createProject, ownerUrl, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { seedOrganization, seedOwners, seedTokens } from './seed.ts'

const ROUNDS = 3
const RATIO_MAX = 1.5
const P99_RATIO_MAX = 2
const READY_MS_MAX = 600_000
/** Fills a table that takes about 1 GiB with its index. */
const FILL_TABLE = `create table filled (n int primary key, text text);
  insert into filled select n, repeat(md5(n::text), 28) from generate_series(1, 1050000) n`

/**
 * Compares the time to branch a project with 1 GiB of data with that of a plain copy of the parent's files, and measures the
 * effect on a parent in use.
 */
export async function branches(environment: Environment, report: Report): Promise<void> {
  const { port, control, gatewayPort, instances } = environment
  const organization = await seedOrganization(control, 'branches', 0)
  const [token = ''] = await seedTokens(control, await seedOwners(control, [organization], 1), 1)
  const ref = await createProject(port, token, {
    name: 'parent',
    organization_slug: organization.slug,
    db_pass: PASSWORD,
  })
  const { href: owner } = ownerUrl(gatewayPort, ref)
  const size = await withClient(owner, async (client) => {
    await client.query(FILL_TABLE)
    await client.query('vacuum analyze filled')
    await client.query('checkpoint')
    const { rows } = await client.query('select pg_size_pretty(pg_database_size(current_database())) as size')
    return rows[0].size
  })

  const call = async (method: string, path: string, body?: unknown) => {
    const headers = { ...bearer(token), 'content-type': 'application/json' }
    const reply = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers, body: JSON.stringify(body) })
    if (!reply.ok) throw new Error(`${path} answered ${reply.status}: ${await reply.text()}`)
    return (await reply.json()) as { id: string; project_ref: string }
  }
  const branch = async (name: string): Promise<number> => {
    const startedAt = performance.now()
    const { id } = await call('POST', `/v1/projects/${ref}/branches`, { branch_name: name, with_data: true })
    await waitUntilReady(environment, id)
    const ms = performance.now() - startedAt
    await call('DELETE', `/v1/branches/${id}`)
    return ms
  }
  /** Times a plain copy: in the page cache only, and flushed to disk, as a branch must be. */
  const plain = async (): Promise<{ copied: number; flushed: number }> => {
    const copy = join(instances, '..', 'plain-copy')
    const startedAt = performance.now()
    await promisify(execFile)('cp', ['-a', join(instances, ref, 'data'), copy])
    const copied = performance.now() - startedAt
    await promisify(execFile)('sync', ['-f', copy])
    const flushed = performance.now() - startedAt
    await rm(copy, { recursive: true })
    return { copied, flushed }
  }

  const [ofPlain, ofFlushed, ofBranch]: [number[], number[], number[]] = [[], [], []]
  for (let round = 0; round < ROUNDS; round++) {
    const { copied, flushed } = await plain()
    ofPlain.push(copied)
    ofFlushed.push(flushed)
    ofBranch.push(await branch(`idle-${round}`))
  }
  report.title(`a branch with data of ${size}, ${ROUNDS} of each in turns`)
  report.line(`plain copy of the data folder: ${seconds(ofPlain)}`)
  report.line(`plain copy that is flushed to the disk: ${seconds(ofFlushed)}`)
  report.line(`branch, parent idle: ${seconds(ofBranch)}`)
  const copyMs = percentile(ofPlain, 0.5)
  const flushedMs = percentile(ofFlushed, 0.5)
  const idleMs = percentile(ofBranch, 0.5)
  report.line(`branch / copy in memory: ${rounded(idleMs / copyMs)}`)
  report.atMost('branch / flushed copy, idle', rounded(idleMs / flushedMs), RATIO_MAX)

  const before = await load(owner, () => delay(10_000))
  const [during, besideCopy, ofBusy, ofBusyFlushed]: [number[], number[], number[], number[]] = [[], [], [], []]
  for (let round = 0; round < ROUNDS; round++) {
    besideCopy.push(...(await load(owner, async () => void ofBusyFlushed.push((await plain()).flushed))))
    during.push(...(await load(owner, async () => void ofBusy.push(await branch(`busy-${round}`)))))
  }
  report.line(`flushed copy, parent in use: ${seconds(ofBusyFlushed)}`)
  report.line(`branch, parent in use: ${seconds(ofBusy)}`)
  const busyRatio = percentile(ofBusy, 0.5) / percentile(ofBusyFlushed, 0.5)
  report.atMost('branch / flushed copy, in use', rounded(busyRatio), RATIO_MAX)
  for (const [name, ms] of Object.entries({ before, during, 'during a flushed copy': besideCopy }))
    report.line(
      `  its client ${name}: ${ms.length} updates, p50 ${percentile(ms, 0.5).toFixed(1)} ms, p99 ${percentile(ms, 0.99).toFixed(1)} ms, longest ${Math.max(...ms).toFixed(0)} ms`,
    )
  report.atMost(
    'its client, p99 during / before',
    rounded(percentile(during, 0.99) / percentile(before, 0.99)),
    P99_RATIO_MAX,
  )
}

const rounded = (value: number) => Number(value.toFixed(2))
const seconds = (ms: readonly number[]) => `${ms.map((each) => (each / 1000).toFixed(2)).join(', ')} s`

async function waitUntilReady({ control }: Environment, id: string): Promise<void> {
  for (const until = performance.now() + READY_MS_MAX; performance.now() < until; await delay(20)) {
    const [row] = await control.select().from(branchTable).where(eq(branchTable.id, id))
    if (row?.status === 'FUNCTIONS_DEPLOYED') return
    if (row?.status === 'MIGRATIONS_FAILED') throw new Error('the branch failed')
  }
  throw new Error('the branch did not become ready')
}

/** Updates one row after another in one session while `work` runs; fails if the session is closed. */
function load(owner: string, work: () => Promise<void>): Promise<number[]> {
  return withClient(owner, async (client) => {
    const ms: number[] = []
    let over = false
    const ended = work().finally(() => {
      over = true
    })
    for (let n = 1; !over; n++) {
      const startedAt = performance.now()
      await client.query('update filled set text = text where n = $1', [n])
      ms.push(performance.now() - startedAt)
      await delay(5)
    }
    await ended
    return ms
  })
}
